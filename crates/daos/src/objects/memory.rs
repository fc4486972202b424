//! Memory of the caller's: keys, what is taken from lists and what is put into them.

use azekura_proto::limits::KEY_BYTES_MAX;

use crate::status::Der;
use crate::types::{Iov, SgList, items, items_mut, place};

/// The bytes of a key.
///
/// # Safety
/// `key` is null or points at a piece of memory that lives for `'a`.
pub(super) unsafe fn key<'a>(key: *const Iov) -> Result<&'a [u8], Der> {
    // SAFETY: the caller's promise.
    unsafe { key.as_ref().ok_or(Der::Inval).and_then(|key| bytes_of_key(key)) }
}

/// As [`key`], of a piece of memory that is there.
///
/// # Safety
/// As [`key`].
pub(super) unsafe fn bytes_of_key<'a>(key: &Iov) -> Result<&'a [u8], Der> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { items(key.buf.cast_const().cast::<u8>(), key.bytes) }.ok_or(Der::Inval)?;
    if (1..=KEY_BYTES_MAX).contains(&bytes.len()) { Ok(bytes) } else { Err(Der::Inval) }
}

/// All bytes of a list, one piece after the other.
///
/// # Safety
/// The pieces are the caller's to read.
pub(super) unsafe fn gather(list: &SgList) -> Result<Vec<u8>, Der> {
    // SAFETY: the caller's promise.
    let iovs = unsafe { items(list.iovs.cast_const(), list.count as usize) }.ok_or(Der::Inval)?;
    let mut all = Vec::new();
    for iov in iovs {
        // SAFETY: the caller's promise.
        let piece = unsafe { items(iov.buf.cast_const().cast::<u8>(), iov.bytes) };
        all.extend_from_slice(piece.ok_or(Der::Inval)?);
    }
    Ok(all)
}

/// The room of a list in bytes.
///
/// # Safety
/// The list is the caller's.
pub(super) unsafe fn room(list: &SgList) -> Result<usize, Der> {
    // SAFETY: the caller's promise.
    let iovs = unsafe { items(list.iovs.cast_const(), list.count as usize) }.ok_or(Der::Inval)?;
    Ok(iovs.iter().fold(0, |sum: usize, iov| sum.saturating_add(iov.buf_bytes)))
}

/// Puts data into a list, one piece after the other, and says in it how far they went; what does not fit
/// is left out.
///
/// # Safety
/// The list and its pieces are the caller's to write to.
pub(super) unsafe fn scatter(list: &mut SgList, data: &[u8]) -> Result<(), Der> {
    // SAFETY: the caller's promise.
    let iovs = unsafe { items_mut(list.iovs, list.count as usize) }.ok_or(Der::Inval)?;
    let mut rest = data;
    list.count_out = 0;
    for iov in iovs {
        let count = rest.len().min(iov.buf_bytes);
        // SAFETY: the caller's promise.
        let piece = unsafe { items_mut(iov.buf.cast::<u8>(), count) }.ok_or(Der::Inval)?;
        let (now, later) = rest.split_at(count);
        piece.copy_from_slice(now);
        rest = later;
        iov.bytes = count;
        list.count_out += u32::from(count > 0);
    }
    Ok(())
}

/// The list at a place of the caller's.
///
/// # Safety
/// As [`place`].
pub(super) unsafe fn list<'a>(list: *mut SgList) -> Result<&'a mut SgList, Der> {
    // SAFETY: the caller's promise.
    unsafe { place(list) }.ok_or(Der::Inval)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_go_piece_by_piece() {
        let mut memory = [0u8; 10];
        let start = memory.as_mut_ptr();
        let iov =
            |at: usize, bytes| Iov { buf: start.wrapping_add(at).cast(), buf_bytes: bytes, bytes };
        let mut iovs = [iov(0, 4), iov(4, 0), iov(6, 3)];
        let mut list = SgList { count: 3, count_out: 9, iovs: iovs.as_mut_ptr() };
        // SAFETY: the pieces lie in the memory.
        unsafe {
            assert_eq!(room(&list), Ok(7));
            assert_eq!(scatter(&mut list, b"abcdef"), Ok(()));
            assert_eq!(list.count_out, 2);
            assert_eq!(gather(&list), Ok(b"abcdef".to_vec()));
            assert_eq!(scatter(&mut list, b"xy"), Ok(()));
            assert_eq!((list.count_out, gather(&list)), (1, Ok(b"xy".to_vec())));
            assert_eq!(scatter(&mut list, &[]), Ok(()));
            assert_eq!(list.count_out, 0);
        }
        assert_eq!(&memory, b"xycd\0\0ef\0\0");
    }
}
