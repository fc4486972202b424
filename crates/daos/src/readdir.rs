//! Listing a directory. Owns what stands in an anchor: how far a listing has come.

use std::ffi::c_int;

use azekura_posix::{AttrsWanted, Errno, Listed};

use crate::mount::{Mount, mounted};
use crate::object::{Object, opened};
use crate::status::dfs_call;
use crate::types::{Anchor, Dirent, place};

/// Kinds of anchors: at the start, in the middle, at the end.
pub(crate) const START: u16 = 0;
pub(crate) const WITHIN: u16 = 1;
pub(crate) const END: u16 = 3;
/// The cookie behind the dot entries.
pub(crate) const AFTER_DOTS: u64 = 2;
/// Bytes of a page for each entry that is wanted.
const ENTRY_BYTES: u32 = 48;
/// Bytes of a page at most.
const PAGE_BYTES_MAX: u32 = 64 * 1024;

fn cookie_of(anchor: &Anchor) -> u64 {
    if anchor.kind == START { AFTER_DOTS } else { anchor.number() }
}

/// An entry as `readdir` shows it.
pub(crate) fn fill_entry(entry: &mut Dirent, found: &Listed) {
    entry.d_ino = found.oid.inode_number();
    entry.d_type = (found.kind.mode_bits() >> 12) as u8;
    for (to, from) in entry.d_name.iter_mut().zip(found.name.iter().chain(&[0])) {
        *to = from.cast_signed();
    }
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_readdir(
    dfs: *mut Mount,
    object: *mut Object,
    anchor: *mut Anchor,
    count: *mut u32,
    entries: *mut Dirent,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, dir) = unsafe { (mounted(dfs)?, opened(object)?.directory()?) };
        // SAFETY: null or the caller's to read and write, by the contract.
        let (anchor, count) = unsafe { (place(anchor), place(count)) };
        let (Some(anchor), Some(count)) = (anchor, count) else { return Err(Errno::INVAL) };
        let room = std::mem::take(count);
        if anchor.kind == END || room == 0 {
            return Ok(());
        }
        if entries.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: the caller gives room for so many, by the contract. They are plain integers.
        let entries = unsafe { std::slice::from_raw_parts_mut(entries, room as usize) };
        let page_bytes = room.saturating_mul(ENTRY_BYTES).min(PAGE_BYTES_MAX);
        let mut cookie = cookie_of(anchor);
        let mut filled = 0;
        let mut end = false;
        while filled < entries.len() && !end {
            let page =
                mount.fs().readdir(mount.caller(), dir, cookie, page_bytes, AttrsWanted::No)?;
            end = page.end || page.entries.is_empty();
            let wanted = entries.len() - filled;
            end &= page.entries.len() <= wanted;
            for found in page.entries.iter().take(wanted) {
                fill_entry(&mut entries[filled], found);
                cookie = found.cookie;
                filled += 1;
            }
        }
        anchor.kind = if end { END } else { WITHIN };
        anchor.set_number(cookie);
        *count = filled as u32;
        Ok(())
    })
}
