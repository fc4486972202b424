//! Handles of what a mount holds, and mounts as bytes that need nothing else at the receiver.

use std::ffi::c_int;
use std::sync::Arc;

use azekura_posix::Errno;

use crate::global::{self, GlobalWhole, Kind};
use crate::handles::{self, ContainerHandle};
use crate::mount::{Mount, mounted};
use crate::status::{Der, dfs_call, errno_of_der};
use crate::types::{Handle, Iov, place};
use crate::{container, pool};

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_pool_get(dfs: *mut Mount, handle: *mut Handle) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, handle) = unsafe { (mounted(dfs)?, place(handle).ok_or(Errno::INVAL)?) };
        *handle = handles::add_pool(Arc::clone(&mount.open().pool));
        Ok(())
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_pool_put(dfs: *mut Mount, handle: Handle) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        unsafe { mounted(dfs) }?;
        handles::remove_pool(handle).map_err(errno_of_der)
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_cont_get(dfs: *mut Mount, handle: *mut Handle) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, handle) = unsafe { (mounted(dfs)?, place(handle).ok_or(Errno::INVAL)?) };
        *handle = handles::add_container(mount.open().clone());
        Ok(())
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_cont_put(dfs: *mut Mount, handle: Handle) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        unsafe { mounted(dfs) }?;
        handles::remove_container(handle).map_err(errno_of_der)
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_local2global_all(dfs: *mut Mount, iov: *mut Iov) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let mount = unsafe { mounted(dfs) }?;
        let contents = GlobalWhole {
            pool: pool::to_global(&mount.open().pool).map_err(errno_of_der)?,
            container: container::to_global(mount.open()),
            mount: mount.to_global(),
        };
        // SAFETY: a list with its buffer, by the contract.
        unsafe { global::give(Kind::Whole, &contents, iov) }.map_err(errno_of_der)
    })
}

/// Connects to the pool and opens the container that another process has mounted.
fn connect(contents: GlobalWhole) -> Result<(ContainerHandle, global::GlobalMount), Der> {
    let pool = Arc::new(pool::from_global(contents.pool)?);
    let container = container::found_again(&pool, &contents.container)?;
    let read_only = contents.container.read_only || pool.read_only;
    Ok((ContainerHandle { pool, container, read_only }, contents.mount))
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_global2local_all(
    flags: c_int,
    iov: Iov,
    dfs: *mut *mut Mount,
) -> c_int {
    dfs_call(|| {
        // SAFETY: null or the caller's to write to, by the contract.
        let dfs = unsafe { place(dfs) }.ok_or(Errno::INVAL)?;
        // SAFETY: a list with its buffer, by the contract.
        let contents = unsafe { global::take(Kind::Whole, &iov) }.map_err(errno_of_der)?;
        let (open, mount) = connect(contents).map_err(errno_of_der)?;
        *dfs = Box::into_raw(Mount::from_global(&open, flags, mount)?);
        Ok(())
    })
}
