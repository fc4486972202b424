//! What a pool shows of its containers and of each of its targets.

use std::ffi::{c_char, c_int};

use azekura_client::Objects as _;
use azekura_proto::message::typed;
use azekura_proto::{EngineId, TargetId};

use crate::container::uuid_of;
use crate::event::finish;
use crate::handles;
use crate::status::{Der, daos_call};
use crate::types::{
    Event, Handle, LABEL_BYTES, ListedContainer, Space, TargetInfo, items_mut, place,
};

/// The media under which all space stands.
const MEDIA: usize = 1;
/// The state of a target that answers.
const UP: u32 = 4;

fn label_of(name: &str) -> Result<[c_char; LABEL_BYTES], Der> {
    let mut label = [0; LABEL_BYTES];
    if name.len() >= LABEL_BYTES {
        return Err(Der::Overflow);
    }
    for (to, from) in label.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    Ok(label)
}

/// See `daos.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_pool_list_cont(
    handle: Handle,
    count: *mut u64,
    list: *mut ListedContainer,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        let pool = handles::pool(handle)?;
        // SAFETY: null or the caller's to read and write, by the contract.
        let count = unsafe { place(count) }.ok_or(Der::Inval)?;
        let all = pool.pool.container_list()?;
        let room = std::mem::replace(count, all.len() as u64);
        if list.is_null() {
            return Ok(());
        }
        if room < all.len() as u64 {
            return Err(Der::Trunc);
        }
        // SAFETY: there is room for so many and more, by the contract.
        let list = unsafe { items_mut(list, all.len()) }.ok_or(Der::Inval)?;
        for (to, container) in list.iter_mut().zip(&all) {
            let uuid = uuid_of(&pool.pool, container);
            *to = ListedContainer { uuid, label: label_of(&container.name)? };
        }
        Ok(())
    });
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, rc) }
}

/// See `daos.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_pool_query_target(
    handle: Handle,
    target: u32,
    rank: u32,
    info: *mut TargetInfo,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        let pool = handles::pool(handle)?;
        // SAFETY: null or the caller's to write to, by the contract.
        let info = unsafe { place(info) }.ok_or(Der::Inval)?;
        let map = pool.pool.map();
        let engine = u16::try_from(rank).map(EngineId).map_err(|_| Der::Nonexist)?;
        let of_engine = (0..).zip(&map.targets).filter(|(_, its)| **its == engine);
        let found = of_engine.map(|(id, _)| id).nth(target as usize);
        let space = pool.pool.call(TargetId(found.ok_or(Der::Nonexist)?), typed::Space)?;
        let mut shown = Space::default();
        shown.total_bytes[MEDIA] = space.total_bytes;
        shown.free_bytes[MEDIA] = space.available_bytes;
        *info = TargetInfo { padding: 0, state: UP, performance: 0, space: shown };
        Ok(())
    });
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, rc) }
}
