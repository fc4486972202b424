//! Reading and writing. Owns how the ranges of a file and the pieces of memory of a list become parts
//! that are one of both; each part goes straight to and from the file, with no copy of its own.

use std::ffi::c_int;

use azekura_posix::{Allocation, AttrUpdate, Errno, FileKind};

use crate::event::launch;
use crate::mount::{Mount, mounted};
use crate::object::{Object, opened};
use crate::status::{dfs_call, number_of_errno};
use crate::types::{Event, Handle, Iov, ObjectId, Range, RangeList, SgList, items, place};

/// As a length: everything from the offset on.
const TO_THE_END: u64 = u64::MAX;

/// A piece of memory that is one range of a file or array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub(crate) offset: u64,
    memory: *mut u8,
    pub(crate) bytes: usize,
}

impl Part {
    /// # Safety
    /// The memory is the caller's to read for `'a`.
    pub(crate) unsafe fn data<'a>(self) -> &'a [u8] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.memory, self.bytes) }
    }

    /// # Safety
    /// The memory is the caller's to write to for `'a`, and nobody else's.
    pub(crate) unsafe fn room<'a>(self) -> &'a mut [u8] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.memory, self.bytes) }
    }
}

/// The pieces of a list.
///
/// # Safety
/// `list` is null or points at a list of `count` pieces, which live for `'a`.
pub(crate) unsafe fn pieces<'a>(list: *mut SgList) -> Result<&'a [Iov], Errno> {
    // SAFETY: the caller's promise.
    let list = unsafe { place(list) }.ok_or(Errno::INVAL)?;
    // SAFETY: the caller's promise.
    let iovs = unsafe { items(list.iovs, list.count as usize) }.ok_or(Errno::INVAL)?;
    if iovs.iter().any(|iov| iov.bytes > 0 && iov.buf.is_null()) {
        return Err(Errno::FAULT);
    }
    Ok(iovs)
}

/// The parts of memory that lie, one after the other, from `offset` on.
pub(crate) fn parts_from(offset: u64, iovs: &[Iov]) -> Vec<Part> {
    let mut at = offset;
    let some = iovs.iter().filter(|iov| iov.bytes > 0);
    some.map(|iov| {
        let part = Part { offset: at, memory: iov.buf.cast(), bytes: iov.bytes };
        at = at.saturating_add(iov.bytes as u64);
        part
    })
    .collect()
}

/// The parts of memory that lie in these ranges (offset and length in bytes), which have as many bytes as
/// the memory; else `EINVAL`.
pub(crate) fn parts_of(
    ranges: impl IntoIterator<Item = (u64, u64)>,
    iovs: &[Iov],
) -> Result<Vec<Part>, Errno> {
    let (parts, all) = fit(ranges, iovs)?;
    if all { Ok(parts) } else { Err(Errno::INVAL) }
}

/// As [`parts_of`], where there may be more memory.
pub(crate) fn parts_within(
    ranges: impl IntoIterator<Item = (u64, u64)>,
    iovs: &[Iov],
) -> Result<Vec<Part>, Errno> {
    fit(ranges, iovs).map(|(parts, _)| parts)
}

/// The parts, and whether they take all memory.
fn fit(
    ranges: impl IntoIterator<Item = (u64, u64)>,
    iovs: &[Iov],
) -> Result<(Vec<Part>, bool), Errno> {
    let mut memory = iovs.iter().filter(|iov| iov.bytes > 0).map(|iov| (iov.buf.cast(), iov.bytes));
    let mut left: Option<(*mut u8, usize)> = None;
    let mut parts = Vec::new();
    for (mut offset, mut bytes) in ranges {
        while bytes > 0 {
            let (start, room) = left.take().or_else(|| memory.next()).ok_or(Errno::INVAL)?;
            let taken = room.min(usize::try_from(bytes).unwrap_or(usize::MAX));
            parts.push(Part { offset, memory: start, bytes: taken });
            if taken < room {
                left = Some((start.wrapping_add(taken), room - taken));
            }
            offset = offset.saturating_add(taken as u64);
            bytes -= taken as u64;
        }
    }
    let all = left.is_none() && memory.next().is_none();
    Ok((parts, all))
}

/// What a call that moves data was given.
struct Transfer {
    dfs: *mut Mount,
    object: *mut Object,
    list: *mut SgList,
    place: Where,
    read_bytes: *mut u64,
}

/// Where in a file the data of a call lie.
enum Where {
    From(u64),
    Ranges(*mut RangeList),
}

impl Transfer {
    /// # Safety
    /// By the contract.
    unsafe fn parts(&self) -> Result<Vec<Part>, Errno> {
        // SAFETY: the caller's promise.
        let iovs = unsafe { pieces(self.list) }?;
        match self.place {
            Where::From(offset) => Ok(parts_from(offset, iovs)),
            Where::Ranges(list) => {
                // SAFETY: the caller's promise.
                let list = unsafe { place(list) }.ok_or(Errno::INVAL)?;
                // SAFETY: the caller's promise.
                let ranges: &[Range] =
                    unsafe { items(list.ranges, list.count as usize) }.ok_or(Errno::INVAL)?;
                parts_of(ranges.iter().map(|range| (range.index, range.length)), iovs)
            }
        }
    }

    fn read(&self) -> c_int {
        dfs_call(|| {
            // SAFETY: by the contract.
            let (mount, file) = unsafe { (mounted(self.dfs)?, opened(self.object)?.file()?) };
            // SAFETY: null or the caller's to write to, by the contract.
            let read_bytes = unsafe { place(self.read_bytes) }.ok_or(Errno::INVAL)?;
            let mut done = 0;
            // SAFETY: by the contract.
            for part in unsafe { self.parts() }? {
                // SAFETY: the caller's memory to write to, by the contract.
                let got = mount.fs().read(file, part.offset, unsafe { part.room() })?;
                done += got as u64;
                if got < part.bytes && matches!(self.place, Where::From(_)) {
                    break;
                }
            }
            *read_bytes = done;
            Ok(())
        })
    }

    fn write(&self) -> c_int {
        dfs_call(|| {
            // SAFETY: by the contract.
            let (mount, file) = unsafe { (mounted(self.dfs)?, opened(self.object)?.file()?) };
            // SAFETY: by the contract.
            for part in unsafe { self.parts() }? {
                // SAFETY: the caller's memory to read, by the contract.
                let (mut at, mut data) = (part.offset, unsafe { part.data() });
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
        })
    }
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
    let given = Transfer { dfs, object, list, place: Where::From(offset), read_bytes };
    // SAFETY: by the contract.
    unsafe { launch(event, number_of_errno, given, Transfer::read) }
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_readx(
    dfs: *mut Mount,
    object: *mut Object,
    ranges: *mut RangeList,
    list: *mut SgList,
    read_bytes: *mut u64,
    event: *mut Event,
) -> c_int {
    let given = Transfer { dfs, object, list, place: Where::Ranges(ranges), read_bytes };
    // SAFETY: by the contract.
    unsafe { launch(event, number_of_errno, given, Transfer::read) }
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
    let read_bytes = std::ptr::null_mut();
    let given = Transfer { dfs, object, list, place: Where::From(offset), read_bytes };
    // SAFETY: by the contract.
    unsafe { launch(event, number_of_errno, given, Transfer::write) }
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_writex(
    dfs: *mut Mount,
    object: *mut Object,
    ranges: *mut RangeList,
    list: *mut SgList,
    event: *mut Event,
) -> c_int {
    let read_bytes = std::ptr::null_mut();
    let given = Transfer { dfs, object, list, place: Where::Ranges(ranges), read_bytes };
    // SAFETY: by the contract.
    unsafe { launch(event, number_of_errno, given, Transfer::write) }
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
pub(crate) unsafe extern "C" fn dfs_get_file_oh(object: *mut Object, handle: *mut Handle) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (object, handle) = unsafe { (opened(object)?, place(handle).ok_or(Errno::INVAL)?) };
        *handle = object.array()?;
        Ok(())
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_get_size_by_oid(
    dfs: *mut Mount,
    id: ObjectId,
    _chunk_bytes: u64,
    bytes: *mut u64,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let mount = unsafe { mounted(dfs) }?;
        // SAFETY: null or the caller's to write to, by the contract.
        let bytes = unsafe { place(bytes) }.ok_or(Errno::INVAL)?;
        let attr = mount.fs().getattr(mount.own(id.to_ours().ok_or(Errno::INVAL)?)?)?;
        match attr.kind {
            FileKind::Regular => *bytes = attr.size,
            FileKind::Directory => return Err(Errno::ISDIR),
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    })
}

/// Makes a hole, or from the end of the file on sets the length.
pub(crate) fn punch(mount: &Mount, object: &Object, offset: u64, bytes: u64) -> Result<(), Errno> {
    let file = object.file()?;
    if bytes == 0 {
        return Ok(());
    }
    let to_the_end = bytes == TO_THE_END || offset >= mount.fs().getattr(object.oid())?.size;
    if to_the_end {
        let update = AttrUpdate::size(offset);
        return mount.fs().setattr(mount.caller(), object.oid(), Some(file), &update).map(drop);
    }
    mount.fs().allocate(file, offset, bytes, Allocation::PunchHole)
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
        punch(mount, object, offset, bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_memory_are_cut_to_fit_each_other() {
        let mut memory = [0u8; 10];
        let start = memory.as_mut_ptr();
        let iov =
            |at: usize, bytes| Iov { buf: start.wrapping_add(at).cast(), buf_bytes: bytes, bytes };
        let part =
            |offset, at: usize, bytes| Part { offset, memory: start.wrapping_add(at), bytes };
        let iovs = [iov(0, 3), iov(3, 0), iov(3, 7)];
        assert_eq!(parts_from(50, &iovs), [part(50, 0, 3), part(53, 3, 7)]);
        assert_eq!(
            parts_of([(100, 5), (0, 0), (7, 5)], &iovs),
            Ok(vec![part(100, 0, 3), part(103, 3, 2), part(7, 5, 5)])
        );
        assert_eq!(parts_of([(0, 9)], &iovs), Err(Errno::INVAL));
        assert_eq!(parts_of([(0, 11)], &iovs), Err(Errno::INVAL));
    }
}
