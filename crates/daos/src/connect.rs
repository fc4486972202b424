//! From a name to a mount in one call, and back; making and destroying the containers of file systems.

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use azekura_posix::Errno;

use crate::class::id_of;
use crate::event::finish;
use crate::handles::{ContainerHandle, PoolHandle};
use crate::mount::{Mount, dfs_umount, give, inheritance, mounted};
use crate::pool::{connect_to, daos_fini, daos_init};
use crate::status::{Der, dfs_call, errno_of_der};
use crate::types::{DfsAttr, Event, Handle, Uuid, c_text, place, put};
use crate::{container, handles};

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn dfs_init() -> c_int {
    if daos_init() == 0 { 0 } else { libc::EIO }
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn dfs_fini() -> c_int {
    if daos_fini() == 0 { 0 } else { libc::EINVAL }
}

/// Opens the container of a pool, or makes it where `flags` say so.
fn container_of(
    pool: Arc<PoolHandle>,
    label: &str,
    flags: c_int,
    attr: Option<&DfsAttr>,
) -> Result<ContainerHandle, Errno> {
    let found = match container::find(&pool.pool, label) {
        Err(Der::Nonexist) if flags & libc::O_CREAT != 0 => {
            match container::create(&pool, label, inheritance(attr)?) {
                // Somebody else was first.
                Err(Der::Exist) => container::find(&pool.pool, label),
                made => made,
            }
        }
        found => found,
    };
    let read_only = pool.read_only;
    Ok(ContainerHandle { container: found.map_err(errno_of_der)?, pool, read_only })
}

/// What `dfs_connect` and `dfs_sys_connect` do.
pub(crate) fn connect(
    pool: Option<&str>,
    label: Option<&str>,
    flags: c_int,
    attr: Option<&DfsAttr>,
) -> Result<Box<Mount>, Errno> {
    let (pool, label) = (pool.ok_or(Errno::INVAL)?, label.ok_or(Errno::INVAL)?);
    let read_only = flags & libc::O_ACCMODE == libc::O_RDONLY;
    let pool = Arc::new(connect_to(pool, read_only).map_err(errno_of_der)?);
    Mount::new(&container_of(pool, label, flags, attr)?, flags)
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_connect(
    pool: *const c_char,
    _system: *const c_char,
    label: *const c_char,
    flags: c_int,
    attr: *mut DfsAttr,
    dfs: *mut *mut Mount,
) -> c_int {
    dfs_call(|| {
        // SAFETY: null or the caller's to write to, by the contract.
        let dfs = unsafe { place(dfs) }.ok_or(Errno::INVAL)?;
        // SAFETY: C strings, and null or the caller's, by the contract.
        let (pool, label, attr) = unsafe { (c_text(pool), c_text(label), place(attr)) };
        *dfs = Box::into_raw(connect(pool, label, flags, attr.as_deref())?);
        Ok(())
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_disconnect(dfs: *mut Mount) -> c_int {
    // SAFETY: by the contract. The pool goes with what used it last.
    unsafe { dfs_umount(dfs) }
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_destroy(
    pool: *const c_char,
    _system: *const c_char,
    label: *const c_char,
    _force: c_int,
    event: *mut Event,
) -> c_int {
    let rc = dfs_call(|| {
        // SAFETY: C strings, by the contract.
        let (pool, label) = unsafe { (c_text(pool), c_text(label)) };
        let (pool, label) = (pool.ok_or(Errno::INVAL)?, label.ok_or(Errno::INVAL)?);
        let pool = connect_to(pool, false).map_err(errno_of_der)?;
        container::destroy(&pool, label).map_err(errno_of_der)
    });
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, rc) }
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_cont_create(
    pool: Handle,
    uuid: *mut Uuid,
    attr: *mut DfsAttr,
    handle: *mut Handle,
    dfs: *mut *mut Mount,
) -> c_int {
    dfs_call(|| {
        let found = handles::pool(pool).map_err(errno_of_der)?;
        // SAFETY: null or the caller's, by the contract.
        let inheritance = inheritance(unsafe { place(attr) }.as_deref())?;
        let made = container::create_unnamed(&found, inheritance).map_err(errno_of_der)?;
        // SAFETY: null or the caller's to write to, by the contract.
        unsafe {
            put(uuid, container::uuid_of(&found.pool, &made));
            give(found, made, handle, dfs)
        }
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_query(dfs: *mut Mount, attr: *mut DfsAttr) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let mount = unsafe { mounted(dfs) }?;
        // SAFETY: null or the caller's to write to, by the contract.
        let attr = unsafe { place(attr) }.ok_or(Errno::INVAL)?;
        let defaults = mount.fs().container().inheritance;
        *attr = DfsAttr {
            id: mount.container().into(),
            chunk_bytes: defaults.chunk_bytes.into(),
            class: id_of(defaults.file_class),
            file_class: id_of(defaults.file_class),
            dir_class: id_of(defaults.dir_class),
            props: std::ptr::null_mut(),
            mode: 0,
        };
        Ok(())
    })
}
