//! The sizes of the structures that C programs are compiled with. A change here breaks every program
//! that was built before: it takes a new soname. The tests in C assert the same numbers.

use crate::{attr, container, dir, lock, object, oid, pool, value};

macro_rules! size {
    ($($type:ty = $bytes:literal),+ $(,)?) => {
        $(const _: () = assert!(size_of::<$type>() == $bytes);)+
    };
}

#[cfg(target_pointer_width = "64")]
size! {
    pool::PoolOptions = 64,
    pool::PoolInfo = 376,
    pool::Space = 64,
    pool::EngineInfo = 160,
    container::ContainerOptions = 64,
    container::ContainerInfo = 336,
    oid::RawOid = 16,
    object::ObjectInfo = 64,
    value::KvUpdate = 72,
    attr::Stat = 168,
    attr::StatFs = 72,
    dir::DirEntry = 280,
    lock::LockInfo = 24,
}
