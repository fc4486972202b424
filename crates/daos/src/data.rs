//! Reading and writing. Owns the walk over the pieces of memory of a list; each piece goes straight to
//! and from the file, with no copy of its own.

use std::ffi::c_int;

use azekura_posix::{Allocation, AttrUpdate, Errno};

use crate::event::finish;
use crate::mount::{Mount, mounted};
use crate::object::{Object, opened};
use crate::status::dfs_call;
use crate::types::{Event, Iov, SgList, place};

/// As a length: everything from the offset on.
const TO_THE_END: u64 = u64::MAX;

/// The pieces of a list that have any bytes.
///
/// # Safety
/// `list` is null or points at a list of `count` pieces, which live for `'a`.
unsafe fn pieces<'a>(list: *mut SgList) -> Result<impl Iterator<Item = &'a Iov>, Errno> {
    // SAFETY: the caller's promise.
    let list = unsafe { place(list) }.ok_or(Errno::INVAL)?;
    let iovs: &'a [Iov] = match (list.count, list.iovs.is_null()) {
        (0, _) => &[],
        (_, true) => return Err(Errno::INVAL),
        // SAFETY: the caller's promise.
        (count, false) => unsafe { std::slice::from_raw_parts(list.iovs, count as usize) },
    };
    if iovs.iter().any(|iov| iov.bytes > 0 && iov.buf.is_null()) {
        return Err(Errno::FAULT);
    }
    Ok(iovs.iter().filter(|iov| iov.bytes > 0))
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_read(
    dfs: *mut Mount,
    object: *mut Object,
    list: *mut SgList,
    offset: u64,
    read_bytes: *mut u64,
    event: *mut Event,
) -> c_int {
    let rc = dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, file) = unsafe { (mounted(dfs)?, opened(object)?.file()?) };
        // SAFETY: null or the caller's to write to, by the contract.
        let read_bytes = unsafe { place(read_bytes) }.ok_or(Errno::INVAL)?;
        let mut done = 0;
        // SAFETY: by the contract.
        for piece in unsafe { pieces(list) }? {
            // SAFETY: the piece is the caller's memory to write to, by the contract.
            let buffer =
                unsafe { std::slice::from_raw_parts_mut(piece.buf.cast::<u8>(), piece.bytes) };
            let got = mount.fs().read(file, offset.saturating_add(done), buffer)?;
            done += got as u64;
            if got < piece.bytes {
                break;
            }
        }
        *read_bytes = done;
        Ok(())
    });
    // SAFETY: null or the caller's to write to, by the contract.
    unsafe { finish(event, rc) }
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_write(
    dfs: *mut Mount,
    object: *mut Object,
    list: *mut SgList,
    offset: u64,
    event: *mut Event,
) -> c_int {
    let rc = dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, file) = unsafe { (mounted(dfs)?, opened(object)?.file()?) };
        let mut at = offset;
        // SAFETY: by the contract.
        for piece in unsafe { pieces(list) }? {
            // SAFETY: the piece is the caller's memory to read, by the contract.
            let mut data =
                unsafe { std::slice::from_raw_parts(piece.buf.cast::<u8>(), piece.bytes) };
            while !data.is_empty() {
                match mount.fs().write(file, at, data)? {
                    0 => return Err(Errno::IO),
                    bytes => {
                        at += bytes as u64;
                        data = &data[bytes..];
                    }
                }
            }
        }
        Ok(())
    });
    // SAFETY: null or the caller's to write to, by the contract.
    unsafe { finish(event, rc) }
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_get_size(
    dfs: *mut Mount,
    object: *mut Object,
    bytes: *mut u64,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, object) = unsafe { (mounted(dfs)?, opened(object)?) };
        // SAFETY: null or the caller's to write to, by the contract.
        let bytes = unsafe { place(bytes) }.ok_or(Errno::INVAL)?;
        object.file()?;
        *bytes = mount.fs().getattr(object.oid())?.size;
        Ok(())
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_punch(
    dfs: *mut Mount,
    object: *mut Object,
    offset: u64,
    bytes: u64,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, object) = unsafe { (mounted(dfs)?, opened(object)?) };
        let file = object.file()?;
        if bytes == 0 {
            return Ok(());
        }
        let to_the_end = bytes == TO_THE_END || offset >= mount.fs().getattr(object.oid())?.size;
        if to_the_end {
            let update = AttrUpdate::size(offset);
            let changed = mount.fs().setattr(mount.caller(), object.oid(), Some(file), &update);
            return changed.map(drop);
        }
        mount.fs().allocate(file, offset, bytes, Allocation::PunchHole)
    })
}
