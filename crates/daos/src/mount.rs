//! Mounted containers. Owns what `dfs_t` points at, and the prefix that paths start with.

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use azekura_posix::{Credentials, Errno, FileSystem, FsConfig, Namespace, Oid, WritePolicy};
use azekura_proto::attr::Inheritance;
use azekura_proto::message::Container;
use parking_lot::RwLock;

use crate::global::{self, GlobalMount, Kind};
use crate::handles::{self, ContainerHandle, PoolHandle};
use crate::status::{dfs_call, errno_of_der, errno_of_mount};
use crate::types::{DfsAttr, Handle, Iov, Uuid, c_bytes, c_text, place, put};
use crate::{class, container};

/// `dfs_t`.
pub(crate) struct Mount {
    names: Namespace,
    container: u32,
    /// What was mounted, for those who want handles of it.
    open: ContainerHandle,
    writable: bool,
    /// What is taken off paths, without a slash at its end.
    prefix: RwLock<Vec<u8>>,
}

impl Mount {
    pub(crate) fn new(open: &ContainerHandle, flags: c_int) -> Result<Box<Self>, Errno> {
        let writable = match flags & libc::O_ACCMODE {
            libc::O_RDONLY => false,
            // Programs mount what they open for reading only in this way too.
            libc::O_RDWR => !open.read_only,
            _ => return Err(Errno::INVAL),
        };
        // In somebody else's process, which may fork and end as it likes.
        let config = FsConfig { write_policy: WritePolicy::Through, ..FsConfig::default() };
        let pool = Arc::clone(&open.pool.pool);
        let fs = FileSystem::mount(pool, &open.container.name, config)
            .map_err(|error| errno_of_mount(&error))?;
        Ok(Box::new(Self {
            container: fs.container().id.0,
            names: Namespace::new(fs, Credentials::of_process()),
            open: open.clone(),
            writable,
            prefix: RwLock::default(),
        }))
    }

    /// The file system.
    pub(crate) fn fs(&self) -> &Arc<FileSystem> {
        self.names.filesystem()
    }

    /// The user that its calls are made for.
    pub(crate) fn caller(&self) -> &Credentials {
        self.names.caller()
    }

    /// The file system by path.
    pub(crate) fn names(&self) -> &Namespace {
        &self.names
    }

    /// The container's number.
    pub(crate) fn container(&self) -> u32 {
        self.container
    }

    /// The container as it was opened.
    pub(crate) fn open(&self) -> &ContainerHandle {
        &self.open
    }

    /// An id that is said to be of this container; `EINVAL` if it cannot be.
    pub(crate) fn own(&self, oid: Oid) -> Result<Oid, Errno> {
        let here =
            oid.container().0 == self.container && oid.home().0 < self.fs().pool().target_count();
        if here { Ok(oid) } else { Err(Errno::INVAL) }
    }

    /// What another process needs to mount it in the same way.
    pub(crate) fn to_global(&self) -> GlobalMount {
        let prefix = self.prefix.read().clone();
        GlobalMount { container: self.container, writable: self.writable, prefix }
    }

    /// The container mounted as another process has done; `flags` of 0 are those of that process.
    pub(crate) fn from_global(
        open: &ContainerHandle,
        flags: c_int,
        contents: GlobalMount,
    ) -> Result<Box<Self>, Errno> {
        if contents.container != open.container.id.0 {
            return Err(Errno::INVAL);
        }
        let sent = if contents.writable { libc::O_RDWR } else { libc::O_RDONLY };
        let mount = Self::new(open, if flags == 0 { sent } else { flags })?;
        *mount.prefix.write() = contents.prefix;
        Ok(mount)
    }

    /// `EROFS` for a mount that only reads.
    pub(crate) fn check_writable(&self) -> Result<(), Errno> {
        if self.writable { Ok(()) } else { Err(Errno::ROFS) }
    }

    /// The path below the root of the container that `path` means.
    pub(crate) fn path(&self, path: &[u8]) -> Result<Vec<u8>, Errno> {
        if path.first() != Some(&b'/') {
            return Err(Errno::INVAL);
        }
        let prefix = self.prefix.read();
        let rest = path.strip_prefix(prefix.as_slice()).ok_or(Errno::INVAL)?;
        match rest.first() {
            None => Ok(b"/".to_vec()),
            Some(b'/') => Ok(rest.to_vec()),
            // The prefix ends in the middle of a name.
            Some(_) => Err(Errno::INVAL),
        }
    }
}

/// The mount that a caller means.
///
/// # Safety
/// `mount` is null or came from this library and is mounted for `'a`.
pub(crate) unsafe fn mounted<'a>(mount: *const Mount) -> Result<&'a Mount, Errno> {
    // SAFETY: the caller's promise.
    unsafe { mount.as_ref() }.ok_or(Errno::INVAL)
}

/// What the attributes for a new container say.
pub(crate) fn inheritance(attr: Option<&DfsAttr>) -> Result<Inheritance, Errno> {
    let defaults = Inheritance::default();
    let Some(attr) = attr else { return Ok(defaults) };
    let both = class::wanted(attr.class)?;
    Ok(Inheritance {
        file_class: class::wanted(attr.file_class)?.or(both).unwrap_or(defaults.file_class),
        dir_class: class::wanted(attr.dir_class)?.or(both).unwrap_or(defaults.dir_class),
        chunk_bytes: match attr.chunk_bytes {
            0 => defaults.chunk_bytes,
            bytes => u32::try_from(bytes).map_err(|_| Errno::INVAL)?,
        },
    })
}

/// Gives a container that was made out: open, and mounted, if the caller wants that.
///
/// # Safety
/// Both places are null or the caller's to write to.
pub(crate) unsafe fn give(
    pool: Arc<PoolHandle>,
    made: Container,
    handle: *mut Handle,
    dfs: *mut *mut Mount,
) -> Result<(), Errno> {
    let open = ContainerHandle { pool, container: made, read_only: false };
    let mount = if dfs.is_null() { None } else { Some(Mount::new(&open, libc::O_RDWR)?) };
    // SAFETY: the caller's promise.
    unsafe {
        put(dfs, mount.map_or(std::ptr::null_mut(), Box::into_raw));
        if !handle.is_null() {
            handle.write(handles::add_container(open));
        }
    }
    Ok(())
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_cont_create_with_label(
    pool: Handle,
    label: *const c_char,
    attr: *mut DfsAttr,
    uuid: *mut Uuid,
    handle: *mut Handle,
    dfs: *mut *mut Mount,
) -> c_int {
    dfs_call(|| {
        let pool = handles::pool(pool).map_err(errno_of_der)?;
        // SAFETY: a C string, by the contract.
        let label = unsafe { c_text(label) }.ok_or(Errno::INVAL)?;
        // SAFETY: null or the caller's, by the contract.
        let inheritance = inheritance(unsafe { place(attr) }.as_deref())?;
        let made = container::create(&pool, label, inheritance).map_err(errno_of_der)?;
        // SAFETY: null or the caller's to write to, by the contract.
        unsafe { put(uuid, container::uuid_of(&pool.pool, &made)) };
        // SAFETY: both are null or the caller's to write to, by the contract.
        unsafe { give(pool, made, handle, dfs) }
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_mount(
    _pool: Handle,
    handle: Handle,
    flags: c_int,
    dfs: *mut *mut Mount,
) -> c_int {
    dfs_call(|| {
        // SAFETY: null or the caller's to write to, by the contract.
        let dfs = unsafe { place(dfs) }.ok_or(Errno::INVAL)?;
        let open = handles::container(handle).map_err(errno_of_der)?;
        *dfs = Box::into_raw(Mount::new(&open, flags)?);
        Ok(())
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_umount(dfs: *mut Mount) -> c_int {
    dfs_call(|| {
        if dfs.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: it came from `Box::into_raw` and is not used after this, by the contract.
        drop(unsafe { Box::from_raw(dfs) });
        Ok(())
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_local2global(dfs: *mut Mount, iov: *mut Iov) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let contents = unsafe { mounted(dfs) }?.to_global();
        // SAFETY: a list with its buffer, by the contract.
        unsafe { global::give(Kind::Mount, &contents, iov) }.map_err(errno_of_der)
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_global2local(
    _pool: Handle,
    handle: Handle,
    flags: c_int,
    iov: Iov,
    dfs: *mut *mut Mount,
) -> c_int {
    dfs_call(|| {
        // SAFETY: null or the caller's to write to, by the contract.
        let dfs = unsafe { place(dfs) }.ok_or(Errno::INVAL)?;
        let open = handles::container(handle).map_err(errno_of_der)?;
        // SAFETY: a list with its buffer, by the contract.
        let contents: GlobalMount =
            unsafe { global::take(Kind::Mount, &iov) }.map_err(errno_of_der)?;
        *dfs = Box::into_raw(Mount::from_global(&open, flags, contents)?);
        Ok(())
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_set_prefix(dfs: *mut Mount, prefix: *const c_char) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let mount = unsafe { mounted(dfs) }?;
        // SAFETY: null or a C string, by the contract.
        let prefix = unsafe { c_bytes(prefix) }.unwrap_or_default();
        if prefix.first().is_some_and(|first| *first != b'/') {
            return Err(Errno::INVAL);
        }
        let slashes = prefix.iter().rev().take_while(|byte| **byte == b'/').count();
        *mount.prefix.write() = prefix[..prefix.len() - slashes].to_vec();
        Ok(())
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sync(dfs: *mut Mount) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        unsafe { mounted(dfs) }?.fs().syncfs()
    })
}
