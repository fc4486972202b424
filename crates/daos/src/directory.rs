//! Calls about open directories beside plain listing: listing with a call for each entry, where a listing
//! starts, and what new entries get.

use std::ffi::{c_char, c_int, c_void};

use azekura_posix::{AttrsWanted, Credentials, Errno, XattrMode};
use azekura_proto::ObjectClass;

use crate::class;
use crate::mount::{Mount, mounted};
use crate::object::{Object, name_of, opened};
use crate::readdir::{AFTER_DOTS, PAGE_BYTES_MAX, cookie_of, page_bytes};
use crate::status::dfs_call;
use crate::types::{Anchor, END, START, WITHIN, c_text, place};

/// `dfs_filler_cb_t`.
type Filler = unsafe extern "C" fn(*mut Mount, *mut Object, *const c_char, *mut c_void) -> c_int;

/// A listing that calls for each entry.
struct Visit {
    dfs: *mut Mount,
    object: *mut Object,
    filler: Option<Filler>,
    argument: *mut c_void,
    entries_left: u32,
    /// Bytes that names may still take.
    bytes_left: usize,
    /// What the last call gave.
    said: c_int,
}

impl Visit {
    fn is_over(&self) -> bool {
        self.entries_left == 0 || self.said != 0
    }

    /// Calls for an entry. False if its name does not fit any more.
    ///
    /// # Safety
    /// By the contract.
    unsafe fn visit(&mut self, name: &[u8]) -> bool {
        let Some(left) = self.bytes_left.checked_sub(name.len()) else { return false };
        (self.bytes_left, self.entries_left) = (left, self.entries_left - 1);
        if let Some(filler) = self.filler {
            let text: Vec<u8> = name.iter().copied().chain([0]).collect();
            // SAFETY: a function of the caller's, by the contract; the name ends with a zero.
            self.said =
                unsafe { filler(self.dfs, self.object, text.as_ptr().cast(), self.argument) };
        }
        true
    }

    /// # Safety
    /// By the contract.
    unsafe fn run(&mut self, anchor: &mut Anchor) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        let (mount, dir) = unsafe { (mounted(self.dfs)?, opened(self.object)?.directory()?) };
        let first = self.entries_left;
        while anchor.kind != END && !self.is_over() {
            let (cookie, bytes) = (cookie_of(anchor), page_bytes(self.entries_left));
            let page = mount.fs().readdir(mount.caller(), dir, cookie, bytes, AttrsWanted::No)?;
            let mut seen = 0;
            for found in &page.entries {
                // SAFETY: the caller's promise.
                if self.is_over() || !unsafe { self.visit(&found.name) } {
                    break;
                }
                seen += 1;
                anchor.kind = WITHIN;
                anchor.set_number(found.cookie);
            }
            if seen < page.entries.len() {
                let none = self.entries_left == first && !self.is_over();
                return if none { Err(Errno::TOOBIG) } else { Ok(()) };
            }
            if page.end || page.entries.is_empty() {
                anchor.kind = END;
            }
        }
        Ok(())
    }
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_iterate(
    dfs: *mut Mount,
    object: *mut Object,
    anchor: *mut Anchor,
    count: *mut u32,
    bytes: usize,
    filler: Option<Filler>,
    argument: *mut c_void,
) -> c_int {
    let mut said = 0;
    let rc = dfs_call(|| {
        // SAFETY: null or the caller's to read and write, by the contract.
        let (anchor, count) = unsafe { (place(anchor), place(count)) };
        let (Some(anchor), Some(count)) = (anchor, count) else { return Err(Errno::INVAL) };
        let room = std::mem::take(count);
        let mut visit = Visit {
            dfs,
            object,
            filler,
            argument,
            entries_left: if bytes == 0 { 0 } else { room },
            bytes_left: bytes,
            said: 0,
        };
        let first = visit.entries_left;
        // SAFETY: by the contract.
        let done = unsafe { visit.run(anchor) };
        *count = first - visit.entries_left;
        said = visit.said;
        done
    });
    if rc == 0 { said } else { rc }
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_dir_anchor_set(
    object: *mut Object,
    name: *const c_char,
    anchor: *mut Anchor,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (object, name, anchor) = unsafe { (opened(object)?, name_of(name)?, place(anchor)) };
        let (dir, anchor) = (object.directory()?, anchor.ok_or(Errno::INVAL)?);
        let (fs, caller) = (object.fs(), Credentials::of_process());
        fs.lookup(&caller, dir, name)?;
        let mut before = AFTER_DOTS;
        loop {
            let page = fs.readdir(&caller, dir, before, PAGE_BYTES_MAX, AttrsWanted::No)?;
            for found in &page.entries {
                if found.name == name {
                    anchor.kind = WITHIN;
                    anchor.set_number(before);
                    return Ok(());
                }
                before = found.cookie;
            }
            if page.end || page.entries.is_empty() {
                // It has gone meanwhile.
                return Err(Errno::NOENT);
            }
        }
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_obj_anchor_split(
    object: *mut Object,
    count: *mut u32,
    anchors: *mut Anchor,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        unsafe { opened(object)?.directory()? };
        // SAFETY: null or the caller's, by the contract; of so many anchors the first.
        let (count, first) = unsafe { (place(count), place(anchors)) };
        let room = std::mem::replace(count.ok_or(Errno::INVAL)?, 1);
        if let (Some(first), 1..) = (first, room) {
            first.kind = START;
        }
        Ok(())
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_obj_anchor_set(
    object: *mut Object,
    index: u32,
    anchor: *mut Anchor,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        unsafe { opened(object)?.directory()? };
        // SAFETY: null or the caller's to write to, by the contract.
        let anchor = unsafe { place(anchor) }.ok_or(Errno::INVAL)?;
        if index > 0 {
            return Err(Errno::INVAL);
        }
        anchor.kind = START;
        Ok(())
    })
}

/// Sets what new entries of a directory get.
///
/// # Safety
/// By the contract.
unsafe fn set(
    (dfs, object): (*mut Mount, *mut Object),
    changes: &[(&[u8], String)],
) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let (mount, dir) = unsafe { (mounted(dfs)?, opened(object)?.directory()?) };
    mount.check_writable()?;
    for (name, value) in changes {
        mount.fs().setxattr(mount.caller(), dir, name, value.as_bytes(), XattrMode::Set)?;
    }
    Ok(())
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_obj_set_chunk_size(
    dfs: *mut Mount,
    object: *mut Object,
    _flags: c_int,
    bytes: u64,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let defaults = unsafe { mounted(dfs) }?.fs().container().inheritance;
        let bytes = if bytes == 0 { defaults.chunk_bytes.into() } else { bytes };
        // SAFETY: by the contract.
        unsafe { set((dfs, object), &[(b"user.azekura.chunk_size", bytes.to_string())]) }
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_obj_set_oclass(
    dfs: *mut Mount,
    object: *mut Object,
    _flags: c_int,
    class_id: u32,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let defaults = unsafe { mounted(dfs) }?.fs().container().inheritance;
        let class = class::wanted(class_id)?;
        let name = |default: ObjectClass| class.unwrap_or(default).name().to_owned();
        let changes: [(&[u8], String); 2] = [
            (b"user.azekura.class", name(defaults.file_class)),
            (b"user.azekura.dir_class", name(defaults.dir_class)),
        ];
        // SAFETY: by the contract.
        unsafe { set((dfs, object), &changes) }
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_suggest_oclass(
    dfs: *mut Mount,
    hint: *const c_char,
    class_id: *mut u32,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        unsafe { mounted(dfs) }?;
        // SAFETY: a C string, and null or the caller's to write to, by the contract.
        let (hint, class_id) = unsafe { (c_text(hint), place(class_id)) };
        let (hint, class_id) = (hint.ok_or(Errno::INVAL)?, class_id.ok_or(Errno::INVAL)?);
        let class = match hint.split_once(':') {
            Some(("file" | "dir" | "directory", "single")) => ObjectClass::S1,
            Some(("file" | "dir" | "directory", "max")) => ObjectClass::SX,
            _ => return Err(Errno::INVAL),
        };
        *class_id = class::id_of(class);
        Ok(())
    })
}
