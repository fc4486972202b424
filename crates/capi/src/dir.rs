//! Listing directories. Owns the place that a listing has come to; its cookies are those of the file
//! system, so they stay good in other handles and processes.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int};

use azekura_posix::{AttrsWanted, Errno, Listed, Namespace, Oid};
use parking_lot::Mutex;

use crate::attr::Stat;
use crate::call::{answer, offset, status};
use crate::container::Container;
use crate::failure::{About as _, Failure, Outcome, Subject};
use crate::pointers::{Out, OutHandle, Text, fill, handle, handle_place, place};

/// Names asked for at a time, in bytes.
const PAGE_BYTES: u32 = 64 * 1024;
/// The cookie behind the dot entries, which are not handed out.
const AFTER_DOTS: u64 = 2;

/// `azekura_dir`.
#[derive(Debug)]
pub(crate) struct Dir {
    names: Namespace,
    oid: Oid,
    listing: Mutex<Listing>,
}

#[derive(Debug)]
struct Listing {
    /// Of the entry that was handed out last.
    cookie: u64,
    page: VecDeque<Listed>,
    /// The page was asked for with attributes.
    with_attrs: bool,
    /// Nothing follows behind the page.
    end: bool,
}

impl Listing {
    fn at(cookie: u64) -> Self {
        Self {
            cookie: cookie.max(AFTER_DOTS),
            page: VecDeque::new(),
            with_attrs: false,
            end: false,
        }
    }
}

/// `struct azekura_dirent`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct DirEntry {
    ino: u64,
    cookie: u64,
    mode: u32,
    name_bytes: u32,
    name: [c_char; 256],
}

impl Dir {
    fn lock(&self) -> Outcome<parking_lot::MutexGuard<'_, Listing>> {
        self.listing.try_lock().ok_or_else(|| {
            let text = "another thread is using this listing: give each thread its own";
            Failure::with(Errno::BUSY, text)
        })
    }

    /// The next entry, with attributes if they are wanted and the entry is still there.
    fn next(&self, with_attrs: bool) -> Outcome<Option<Listed>> {
        let listing = &mut *self.lock()?;
        if with_attrs && !listing.with_attrs && !listing.page.is_empty() {
            *listing = Listing::at(listing.cookie);
        }
        loop {
            if let Some(entry) = listing.page.pop_front() {
                listing.cookie = entry.cookie;
                // Removed after it was listed.
                if with_attrs && entry.attr.is_none() {
                    continue;
                }
                return Ok(Some(entry));
            }
            if listing.end {
                return Ok(None);
            }
            let wanted = if with_attrs { AttrsWanted::All } else { AttrsWanted::No };
            let fs = self.names.filesystem();
            let page = fs
                .readdir(self.names.caller(), self.oid, listing.cookie, PAGE_BYTES, wanted)
                .about(Subject::File(self.oid))?;
            listing.end = page.end || page.entries.is_empty();
            listing.with_attrs = with_attrs;
            listing.page = page.entries.into();
        }
    }
}

/// `azekura_opendir`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_opendir(
    container: Option<&Container>,
    path: Text<'_>,
    dir: OutHandle<'_, Dir>,
) -> c_int {
    status("azekura_opendir", || {
        let out = handle_place(dir, "dir")?;
        let (container, path) = (handle(container, "container")?, path.bytes("path")?);
        let oid = container.names.read_dir(path).about(Subject::Path(path))?.oid();
        let listing = Mutex::new(Listing::at(AFTER_DOTS));
        *out = Some(Box::new(Dir { names: container.names.clone(), oid, listing }));
        Ok(())
    })
}

/// `azekura_readdir`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_readdir(
    dir: Option<&Dir>,
    entry: Out<'_, DirEntry>,
    stat: Out<'_, Stat>,
) -> c_int {
    answer("azekura_readdir", || {
        let (dir, out) = (handle(dir, "dir")?, place(entry, "entry")?);
        let Some(found) = dir.next(stat.is_some())? else { return Ok(false) };
        out.write(DirEntry {
            ino: found.oid.inode_number(),
            cookie: found.cookie,
            mode: found.kind.mode_bits(),
            name_bytes: found.name.len() as u32,
            name: fill(&found.name),
        });
        if let (Some(stat), Some(attr)) = (stat, &found.attr) {
            stat.write(Stat::of(attr));
        }
        Ok(true)
    })
}

/// `azekura_telldir`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_telldir(dir: Option<&Dir>) -> i64 {
    offset("azekura_telldir", || Ok(handle(dir, "dir")?.lock()?.cookie))
}

/// `azekura_seekdir`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_seekdir(dir: Option<&Dir>, cookie: u64) -> c_int {
    status("azekura_seekdir", || {
        *handle(dir, "dir")?.lock()? = Listing::at(cookie);
        Ok(())
    })
}

/// `azekura_closedir`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_closedir(dir: Option<Box<Dir>>) -> c_int {
    status("azekura_closedir", || {
        drop(dir);
        Ok(())
    })
}
