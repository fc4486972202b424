//! Opening, reading and writing files by path.

use std::ffi::{c_char, c_int, c_void};

use azekura_posix::{Errno, OFlags};
use libc::mode_t;

use crate::data::punch;
use crate::event::launch;
use crate::mount::{Mount, mounted};
use crate::object::{Object, Wanted, dfs_release, flags_of, opened, striping_of};
use crate::status::{dfs_call, number_of_errno};
use crate::sys::{Sys, at_path, base, found, split};
use crate::types::{Event, c_bytes, items, items_mut, place};

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys_open(
    sys: *mut Sys,
    path: *const c_char,
    mode: mode_t,
    flags: c_int,
    class_id: u32,
    chunk_bytes: u64,
    value: *const c_char,
    object: *mut *mut Object,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, path) = unsafe { at_path(sys, path) }?;
        // SAFETY: null or the caller's to write to, by the contract.
        let object = unsafe { place(object) }.ok_or(Errno::INVAL)?;
        let flags = flags_of(flags);
        if !flags.contains(OFlags::CREATE) && mode & libc::S_IFMT != libc::S_IFLNK {
            let attr = mount.names().resolve(&path, !flags.contains(OFlags::NOFOLLOW))?;
            *object = Box::into_raw(Object::open(mount, &attr, flags)?);
            return Ok(());
        }
        let (dir, name) = split(mount, &path)?;
        let kind = if mode & libc::S_IFMT == 0 { libc::S_IFREG } else { 0 };
        let striping = striping_of(class_id, chunk_bytes)?;
        // SAFETY: null or a C string, by the contract.
        let text = unsafe { c_bytes(value) };
        let wanted = Wanted { dir, name: &name, mode: mode | kind, flags, striping, text };
        *object = Box::into_raw(wanted.open(mount)?);
        Ok(())
    })
}

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys_close(object: *mut Object) -> c_int {
    // SAFETY: by the contract.
    unsafe { dfs_release(object) }
}

/// What a call that moves data was given.
struct Transfer {
    mount: *mut Mount,
    object: *mut Object,
    memory: *mut u8,
    offset: u64,
    /// In: how many bytes there are; out: how many were moved.
    bytes: *mut u64,
}

fn read(given: &Transfer) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        unsafe {
            let mount = mounted(given.mount)?;
            let bytes = place(given.bytes).ok_or(Errno::INVAL)?;
            let room = items_mut(given.memory, *bytes as usize).ok_or(Errno::FAULT)?;
            let file = opened(given.object)?.file()?;
            *bytes = mount.fs().read(file, given.offset, room)? as u64;
        }
        Ok(())
    })
}

fn write(given: &Transfer) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, file, data) = unsafe {
            let bytes = *place(given.bytes).ok_or(Errno::INVAL)?;
            let data = items(given.memory.cast_const(), bytes as usize).ok_or(Errno::FAULT)?;
            (mounted(given.mount)?, opened(given.object)?.file()?, data)
        };
        let mut done = 0;
        while done < data.len() {
            match mount.fs().write(file, given.offset + done as u64, &data[done..])? {
                0 => return Err(Errno::IO),
                bytes => done += bytes,
            }
        }
        Ok(())
    })
}

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys_read(
    sys: *mut Sys,
    object: *mut Object,
    memory: *mut c_void,
    offset: u64,
    bytes: *mut u64,
    event: *mut Event,
) -> c_int {
    // SAFETY: by the contract.
    unsafe {
        let given = Transfer { mount: base(sys), object, memory: memory.cast(), offset, bytes };
        launch(event, number_of_errno, given, read)
    }
}

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys_write(
    sys: *mut Sys,
    object: *mut Object,
    memory: *const c_void,
    offset: u64,
    bytes: *mut u64,
    event: *mut Event,
) -> c_int {
    let memory = memory.cast_mut().cast();
    // SAFETY: by the contract.
    unsafe {
        let given = Transfer { mount: base(sys), object, memory, offset, bytes };
        launch(event, number_of_errno, given, write)
    }
}

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys_punch(
    sys: *mut Sys,
    path: *const c_char,
    offset: u64,
    bytes: u64,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, path) = unsafe { at_path(sys, path) }?;
        let attr = found(mount, &path, 0)?;
        punch(mount, &*Object::open(mount, &attr, OFlags::RDWR)?, offset, bytes)
    })
}
