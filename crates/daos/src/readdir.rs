//! Listing a directory. Owns what stands in an anchor: how far a listing has come.

use std::ffi::c_int;

use azekura_posix::{AttrsWanted, Errno, Listed, Oid};

use crate::mount::{Mount, mounted};
use crate::object::{Object, opened};
use crate::stat::fill_stat;
use crate::status::dfs_call;
use crate::types::{Anchor, Dirent, END, START, WITHIN, items_mut, place};

/// The cookie behind the dot entries.
pub(crate) const AFTER_DOTS: u64 = 2;
/// Bytes of a page for each entry that is wanted.
const ENTRY_BYTES: u32 = 48;
/// Bytes of a page at most.
pub(crate) const PAGE_BYTES_MAX: u32 = 64 * 1024;

/// Bytes of a page for so many entries; one of a longer name comes too.
pub(crate) fn page_bytes(entries: u32) -> u32 {
    entries.saturating_mul(ENTRY_BYTES).min(PAGE_BYTES_MAX)
}

/// The cookie to go on after.
pub(crate) fn cookie_of(anchor: &Anchor) -> u64 {
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

/// Lists up to `room` entries, with their attributes where there is a place for these.
///
/// # Safety
/// By the contract; there is room for so many entries, and for so many attributes if not null.
unsafe fn list(
    (mount, dir): (&Mount, Oid),
    anchor: &mut Anchor,
    room: u32,
    entries: *mut Dirent,
    stats: *mut libc::stat,
) -> Result<u32, Errno> {
    if anchor.kind == END || room == 0 {
        return Ok(0);
    }
    // SAFETY: the caller's promise. All of them are plain integers.
    let (entries, mut stats) = unsafe {
        (items_mut(entries, room as usize).ok_or(Errno::INVAL)?, items_mut(stats, room as usize))
    };
    let attrs = if stats.is_some() { AttrsWanted::All } else { AttrsWanted::No };
    let page_bytes = page_bytes(room);
    let mut cookie = cookie_of(anchor);
    let mut filled = 0;
    let mut end = false;
    while filled < entries.len() && !end {
        let page = mount.fs().readdir(mount.caller(), dir, cookie, page_bytes, attrs)?;
        end = page.end || page.entries.is_empty();
        let wanted = entries.len() - filled;
        end &= page.entries.len() <= wanted;
        for found in page.entries.iter().take(wanted) {
            cookie = found.cookie;
            if let Some(stats) = &mut stats {
                // What has gone meanwhile is left out.
                let Some(attr) = &found.attr else { continue };
                fill_stat(&mut stats[filled], attr);
            }
            fill_entry(&mut entries[filled], found);
            filled += 1;
        }
    }
    anchor.kind = if end { END } else { WITHIN };
    anchor.set_number(cookie);
    Ok(filled as u32)
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
        // SAFETY: there is room for so many, by the contract.
        *count = unsafe { list((mount, dir), anchor, room, entries, std::ptr::null_mut()) }?;
        Ok(())
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_readdirplus(
    dfs: *mut Mount,
    object: *mut Object,
    anchor: *mut Anchor,
    count: *mut u32,
    entries: *mut Dirent,
    stats: *mut libc::stat,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, dir) = unsafe { (mounted(dfs)?, opened(object)?.directory()?) };
        // SAFETY: null or the caller's to read and write, by the contract.
        let (anchor, count) = unsafe { (place(anchor), place(count)) };
        let (Some(anchor), Some(count)) = (anchor, count) else { return Err(Errno::INVAL) };
        let room = std::mem::take(count);
        if stats.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: there is room for so many, by the contract.
        *count = unsafe { list((mount, dir), anchor, room, entries, stats) }?;
        Ok(())
    })
}
