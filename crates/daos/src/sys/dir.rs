//! Listing directories by path. Owns what stands behind a `DIR` of this library, which means nothing to
//! the C library's calls of these names.

use std::ffi::{c_char, c_int};

use azekura_posix::{AttrsWanted, DirPage, Errno, FileKind, Oid};

use crate::readdir::{AFTER_DOTS, fill_entry};
use crate::status::dfs_call;
use crate::sys::{Sys, at_path, found, mounted};
use crate::types::{Dirent, place};

/// Bytes of a page.
const PAGE_BYTES: u32 = 64 * 1024;

/// What a `DIR` of this library points at.
pub(crate) struct Listing {
    dir: Oid,
    page: DirPage,
    /// The next entry of the page.
    next: usize,
    cookie: u64,
    /// What the caller sees until it asks for the next one.
    shown: Dirent,
}

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys_opendir(
    sys: *mut Sys,
    path: *const c_char,
    flags: c_int,
    listing: *mut *mut Listing,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, path) = unsafe { at_path(sys, path) }?;
        // SAFETY: null or the caller's to write to, by the contract.
        let listing = unsafe { place(listing) }.ok_or(Errno::INVAL)?;
        let attr = found(mount, &path, flags)?;
        if attr.kind != FileKind::Directory {
            return Err(Errno::NOTDIR);
        }
        let page = mount.fs().readdir(
            mount.caller(),
            attr.oid,
            AFTER_DOTS,
            PAGE_BYTES,
            AttrsWanted::No,
        )?;
        // SAFETY: all fields are integers, for which zero is a value.
        let shown = unsafe { std::mem::zeroed() };
        let cookie = AFTER_DOTS;
        *listing = Box::into_raw(Box::new(Listing { dir: attr.oid, page, next: 0, cookie, shown }));
        Ok(())
    })
}

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys_readdir(
    sys: *mut Sys,
    listing: *mut Listing,
    entry: *mut *mut Dirent,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, listing, entry) = unsafe { (mounted(sys)?, place(listing), place(entry)) };
        let (Some(listing), Some(entry)) = (listing, entry) else { return Err(Errno::INVAL) };
        *entry = std::ptr::null_mut();
        while listing.next >= listing.page.entries.len() {
            if listing.page.end || listing.page.entries.is_empty() {
                return Ok(());
            }
            let (dir, cookie) = (listing.dir, listing.cookie);
            listing.page =
                mount.fs().readdir(mount.caller(), dir, cookie, PAGE_BYTES, AttrsWanted::No)?;
            listing.next = 0;
        }
        let found = &listing.page.entries[listing.next];
        fill_entry(&mut listing.shown, found);
        listing.cookie = found.cookie;
        listing.next += 1;
        *entry = &raw mut listing.shown;
        Ok(())
    })
}

/// See `daos_fs_sys.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_sys_closedir(listing: *mut Listing) -> c_int {
    dfs_call(|| {
        if listing.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: it came from `Box::into_raw` and is not used after this, by the contract.
        drop(unsafe { Box::from_raw(listing) });
        Ok(())
    })
}
