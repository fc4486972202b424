//! Listing: how keys are given out, and the list of all objects.

use std::ffi::c_int;

use azekura_client::Objects as _;

use crate::event::finish;
use crate::handles;
use crate::objects::cursor::Cursor;
use crate::objects::memory::{list, room, scatter};
use crate::objects::open::{self, Form, OpenObject};
use crate::objects::table;
use crate::status::{Der, daos_call};
use crate::types::{
    Anchor, END, Event, Handle, KeyDescriptor, ObjectId, START, SgList, items_mut, place,
};

/// Most keys of one answer.
const KEYS_MAX: u32 = 256;

/// Where a listing of keys goes.
pub(super) struct Room<'a> {
    pub(super) count: &'a mut u32,
    pub(super) descriptors: &'a mut [KeyDescriptor],
    pub(super) memory: &'a mut SgList,
    pub(super) anchor: &'a mut Anchor,
}

impl Room<'_> {
    /// # Safety
    /// By the contract.
    pub(super) unsafe fn of(
        count: *mut u32,
        descriptors: *mut KeyDescriptor,
        memory: *mut SgList,
        anchor: *mut Anchor,
    ) -> Result<Self, Der> {
        // SAFETY: the caller's promise.
        unsafe {
            let count = place(count).ok_or(Der::Inval)?;
            let descriptors = items_mut(descriptors, *count as usize).ok_or(Der::Inval)?;
            let anchor = place(anchor).ok_or(Der::Inval)?;
            Ok(Self { count, descriptors, memory: list(memory)?, anchor })
        }
    }

    /// How many keys there is room for by their number.
    pub(super) fn wanted(&self) -> u32 {
        (*self.count).min(KEYS_MAX)
    }

    /// How many of these keys there is room for; `DER_KEY2BIG` if not even for the first.
    ///
    /// # Safety
    /// By the contract.
    pub(super) unsafe fn fitting<'k>(
        &mut self,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Result<u32, Der> {
        // SAFETY: the caller's promise.
        let mut left = unsafe { room(self.memory) }?;
        let mut count = 0;
        for key in keys {
            if key.len() > left {
                if count == 0 {
                    self.descriptors[0].key_bytes = key.len() as u64;
                    return Err(Der::Key2Big);
                }
                break;
            }
            left -= key.len();
            count += 1;
        }
        Ok(count)
    }

    /// Gives keys out, which fit, each with the kind of its value.
    ///
    /// # Safety
    /// By the contract.
    pub(super) unsafe fn give<'k>(
        &mut self,
        keys: impl Iterator<Item = (&'k [u8], u32)>,
    ) -> Result<(), Der> {
        let mut all = Vec::new();
        *self.count = 0;
        for ((key, kind), descriptor) in keys.zip(self.descriptors.iter_mut()) {
            all.extend_from_slice(key);
            *descriptor = KeyDescriptor { key_bytes: key.len() as u64, value_kind: kind };
            *self.count += 1;
        }
        // SAFETY: the caller's promise.
        unsafe { scatter(self.memory, &all) }
    }
}

/// Lists dkeys.
///
/// # Safety
/// By the contract.
pub(super) unsafe fn list_dkeys(object: &OpenObject, mut to: Room<'_>) -> Result<(), Der> {
    let mut limit = to.wanted();
    let from = match object.cursors.of(to.anchor)? {
        None => None,
        Some(Cursor::Dkeys(cursor)) => Some(cursor),
        Some(Cursor::Akeys(_)) => return Err(Der::Inval),
    };
    let oid = object.find()?;
    let (Some(oid), true) = (oid, to.anchor.kind != END && limit > 0) else {
        *to.count = 0;
        if limit > 0 {
            object.cursors.advance(to.anchor, None);
        }
        return Ok(());
    };
    loop {
        let (keys, next) = object.pool().list_dkeys(oid, from.clone(), limit)?;
        // SAFETY: the caller's promise.
        let fitting = unsafe { to.fitting(keys.iter().map(Vec::as_slice)) }?;
        if fitting as usize == keys.len() {
            // SAFETY: the caller's promise.
            unsafe { to.give(keys.iter().map(|key| (key.as_slice(), 0))) }?;
            object.cursors.advance(to.anchor, next.map(Cursor::Dkeys));
            return Ok(());
        }
        limit = fitting;
    }
}

/// See `daos_obj.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_oit_open(
    container: Handle,
    epoch: u64,
    handle: *mut Handle,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        let container = handles::container(container)?;
        // SAFETY: null or the caller's to write to, by the contract.
        let handle = unsafe { place(handle) }.ok_or(Der::Inval)?;
        if epoch != 0 && epoch != u64::MAX {
            return Err(Der::Nosys);
        }
        let object = OpenObject::new(container, ObjectId::NONE, true, Form::Table);
        *handle = open::add(object);
        Ok(())
    });
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, rc) }
}

/// See `daos_obj.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_oit_close(handle: Handle, event: *mut Event) -> c_int {
    let rc = daos_call(|| handles::remove_object(handle));
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, rc) }
}

/// Whether there is anything in an object.
fn holds_anything(open: &OpenObject, id: ObjectId) -> Result<bool, Der> {
    let Some(oid) = table::find(&open.container, id)? else { return Ok(false) };
    let (dkeys, _) = open.pool().list_dkeys(oid, None, 1)?;
    let chunk_bytes = azekura_proto::limits::CHUNK_BYTES_DEFAULT;
    Ok(!dkeys.is_empty() || open.pool().array_size(oid, chunk_bytes)? > 0)
}

/// See `daos_obj.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_oit_list(
    handle: Handle,
    ids: *mut ObjectId,
    count: *mut u32,
    anchor: *mut Anchor,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        let open = open::object(handle)?;
        if open.form != Form::Table {
            return Err(Der::NoHdl);
        }
        // SAFETY: null or the caller's, by the contract.
        let (count, anchor) = unsafe { (place(count), place(anchor)) };
        let (Some(count), Some(anchor)) = (count, anchor) else { return Err(Der::Inval) };
        // SAFETY: there is room for so many, by the contract.
        let ids = unsafe { items_mut(ids, *count as usize) }.ok_or(Der::Inval)?;
        let mut from = match open.cursors.of(anchor)? {
            Some(Cursor::Dkeys(cursor)) => Some(cursor),
            _ => None,
        };
        let mut filled = 0;
        while anchor.kind != END && filled < ids.len() {
            let limit = u32::try_from(ids.len() - filled).unwrap_or(KEYS_MAX).min(KEYS_MAX);
            let (found, next) = table::list(&open.container, from, limit)?;
            for id in found {
                if holds_anything(&open, id)? {
                    ids[filled] = id;
                    filled += 1;
                }
            }
            open.cursors.advance(anchor, next.clone().map(Cursor::Dkeys));
            from = next;
        }
        *count = filled as u32;
        Ok(())
    });
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, rc) }
}

/// See `daos_obj.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_obj_anchor_split(
    object: Handle,
    count: *mut u32,
    anchors: *mut Anchor,
) -> c_int {
    daos_call(|| {
        open::object(object)?.check_values()?;
        // SAFETY: null or the caller's, by the contract; of so many anchors the first.
        let (count, first) = unsafe { (place(count), place(anchors)) };
        let room = std::mem::replace(count.ok_or(Der::Inval)?, 1);
        if let (Some(first), 1..) = (first, room) {
            first.kind = START;
        }
        Ok(())
    })
}

/// See `daos_obj.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_obj_anchor_set(
    object: Handle,
    index: u32,
    anchor: *mut Anchor,
) -> c_int {
    daos_call(|| {
        open::object(object)?.check_values()?;
        // SAFETY: null or the caller's to write to, by the contract.
        let anchor = unsafe { place(anchor) }.ok_or(Der::Inval)?;
        if index > 0 {
            return Err(Der::Inval);
        }
        anchor.kind = START;
        Ok(())
    })
}
