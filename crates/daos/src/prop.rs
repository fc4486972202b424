//! Properties: lists of typed entries in memory of the C library, which programs fill in, pass on and
//! free. Owns what Azekura knows of a container in these terms.

use std::ffi::{c_char, c_int};

use crate::event::finish;
use crate::handles::{self, ContainerHandle};
use crate::status::{Der, call_or, daos_call};
use crate::types::{ContainerInfo, Event, Handle, PropEntry, Props, items_mut, place, put};
use crate::{attr, container};

/// Most entries of a list.
const ENTRIES_MAX: u32 = 128;
/// An entry without a value.
const NOT_SET: u16 = 1;
/// Types of entries.
const LABEL: u32 = 0x1001;
const LAYOUT_TYPE: u32 = 0x1002;
const LAYOUT_VERSION: u32 = 0x1003;
const CHECKSUM: u32 = 0x1004;
const REDUNDANCY_FACTOR: u32 = 0x1007;
const REDUNDANCY_LEVEL: u32 = 0x1008;
const SNAPSHOTS_MAX: u32 = 0x1009;
const COMPRESSION: u32 = 0x100b;
const ENCRYPTION: u32 = 0x100c;
const OWNER: u32 = 0x100d;
const OWNER_GROUP: u32 = 0x100e;
const DEDUPLICATION: u32 = 0x100f;
const STATUS: u32 = 0x1012;
const ALLOCATED: u32 = 0x1013;
/// Values of them.
const LAYOUT_POSIX: u64 = 1;
const LEVEL_RANK: u64 = 1;

/// Whether the value of a type is text.
fn is_text(kind: u32) -> bool {
    [LABEL, OWNER, OWNER_GROUP].contains(&kind)
}

/// The entries of a list.
///
/// # Safety
/// The list is the caller's for `'a`.
unsafe fn entries<'a>(props: &Props) -> Result<&'a mut [PropEntry], Der> {
    // SAFETY: the caller's promise.
    unsafe { items_mut(props.entries, props.count as usize) }.ok_or(Der::Inval)
}

/// A copy of text in memory of the C library.
fn text_of(text: &str) -> Result<u64, Der> {
    let text = std::ffi::CString::new(text).map_err(|_| Der::Inval)?;
    // SAFETY: it ends with a zero.
    let copy = unsafe { libc::strdup(text.as_ptr()) };
    if copy.is_null() { Err(Der::Nospace) } else { Ok(copy as u64) }
}

/// See `daos_prop.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn daos_prop_alloc(count: u32) -> *mut Props {
    let null = std::ptr::null_mut();
    if count > ENTRIES_MAX {
        return null;
    }
    // SAFETY: zeros are values of both structs, and what was allocated is freed where it is not used.
    unsafe {
        let props: *mut Props = libc::calloc(1, size_of::<Props>()).cast();
        let Some(list) = place(props) else { return null };
        list.count = count;
        if count > 0 {
            list.entries = libc::calloc(count as usize, size_of::<PropEntry>()).cast();
            if list.entries.is_null() {
                libc::free(props.cast());
                return null;
            }
        }
        props
    }
}

/// See `daos_prop.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_prop_free(props: *mut Props) {
    // SAFETY: null or a list of the caller's, by the contract; texts and entries are memory of the C
    // library, or null.
    unsafe {
        let Some(list) = place(props) else { return };
        for entry in entries(list).unwrap_or_default() {
            if is_text(entry.kind) {
                libc::free(entry.value as *mut libc::c_void);
            }
        }
        libc::free(list.entries.cast());
        libc::free(props.cast());
    }
}

/// See `daos_prop.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_prop_entry_get(
    props: *mut Props,
    kind: u32,
) -> *mut PropEntry {
    // SAFETY: null or a list of the caller's, by the contract.
    let found = unsafe { place(props).and_then(|list| entries(list).ok()) };
    let found = found.into_iter().flatten().find(|entry| entry.kind == kind);
    found.map_or(std::ptr::null_mut(), std::ptr::from_mut)
}

/// Copies an entry with its text.
fn copy(from: &PropEntry) -> Result<PropEntry, Der> {
    let mut copy = *from;
    if is_text(from.kind) && from.value != 0 {
        // SAFETY: a text of this type is a C string, by the contract.
        let text = unsafe { libc::strdup(from.value as *const c_char) };
        copy.value = text as u64;
        if text.is_null() {
            return Err(Der::Nospace);
        }
    }
    Ok(copy)
}

/// See `daos_prop.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_prop_merge(one: *mut Props, two: *mut Props) -> *mut Props {
    let null = std::ptr::null_mut();
    call_or(null, || {
        // SAFETY: lists of the caller's, by the contract.
        let both = unsafe { (place(one), place(two)) };
        let (Some(one), Some(two)) = both else { return null };
        // SAFETY: as above.
        let both = unsafe { (entries(one), entries(two)) };
        let (Ok(old), Ok(new)) = both else { return null };
        let kept = old.iter().filter(|entry| new.iter().all(|other| other.kind != entry.kind));
        let all: Vec<&PropEntry> = kept.chain(new.iter()).collect();
        let merged = daos_prop_alloc(u32::try_from(all.len()).unwrap_or(u32::MAX));
        // SAFETY: null or a list that was just made.
        let Some(list) = (unsafe { place(merged) }) else { return null };
        // SAFETY: as above.
        let room = unsafe { entries(list) }.unwrap_or_default();
        for (to, from) in room.iter_mut().zip(all) {
            let Ok(copy) = copy(from) else {
                // SAFETY: a list that was just made.
                unsafe { daos_prop_free(merged) };
                return null;
            };
            *to = copy;
        }
        merged
    })
}

/// Fills an entry in; `DER_NONEXIST` for what there is no value of.
fn fill(open: &ContainerHandle, entry: &mut PropEntry) -> Result<(), Der> {
    entry.flags &= !NOT_SET;
    entry.value = match entry.kind {
        LABEL => text_of(&open.container.name)?,
        LAYOUT_TYPE => LAYOUT_POSIX,
        LAYOUT_VERSION | REDUNDANCY_LEVEL => LEVEL_RANK,
        CHECKSUM | REDUNDANCY_FACTOR | SNAPSHOTS_MAX | COMPRESSION | ENCRYPTION | DEDUPLICATION
        | STATUS => 0,
        ALLOCATED => attr::allocated(open)?,
        _ => {
            entry.flags |= NOT_SET;
            0
        }
    };
    Ok(())
}

/// See `daos_cont.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_cont_query(
    handle: Handle,
    info: *mut ContainerInfo,
    props: *mut Props,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        let open = handles::container(handle)?;
        let uuid = container::uuid_of(&open.pool.pool, &open.container);
        // SAFETY: null or the caller's to write to, by the contract.
        unsafe { put(info, ContainerInfo { uuid, ..ContainerInfo::default() }) };
        // SAFETY: null or a list of the caller's, by the contract.
        if let Some(list) = unsafe { place(props) } {
            // SAFETY: as above.
            for entry in unsafe { entries(list) }? {
                fill(&open, entry)?;
            }
        }
        Ok(())
    });
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, rc) }
}

/// See `daos_cont.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_cont_get_acl(
    handle: Handle,
    props: *mut *mut Props,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        handles::container(handle)?;
        // SAFETY: null or the caller's to write to, by the contract.
        let props = unsafe { place(props) }.ok_or(Der::Inval)?;
        *props = daos_prop_alloc(0);
        if props.is_null() { Err(Der::Nospace) } else { Ok(()) }
    });
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, rc) }
}
