//! Listing the keys of an object, and the records of an array.

use std::ffi::c_int;

use azekura_client::{Objects as _, ValueKind, akey_kind};

use crate::event::finish;
use crate::objects::cursor::Cursor;
use crate::objects::list::{Room, list_dkeys};
use crate::objects::memory::key;
use crate::objects::open::{self, check_no_transaction};
use crate::objects::update::{ARRAY, SINGLE};
use crate::status::{Der, daos_call};
use crate::types::{
    Anchor, END, EpochRange, Event, Handle, Iov, KeyDescriptor, RecordRange, START, SgList, WITHIN,
    items_mut, place,
};

/// See `daos_obj.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_obj_list_dkey(
    object: Handle,
    transaction: Handle,
    count: *mut u32,
    descriptors: *mut KeyDescriptor,
    memory: *mut SgList,
    anchor: *mut Anchor,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        check_no_transaction(transaction)?;
        let object = open::object(object)?;
        object.check_values()?;
        // SAFETY: by the contract.
        unsafe { list_dkeys(&object, Room::of(count, descriptors, memory, anchor)?) }
    });
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, rc) }
}

/// See `daos_obj.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_obj_list_akey(
    object: Handle,
    transaction: Handle,
    dkey: *mut Iov,
    count: *mut u32,
    descriptors: *mut KeyDescriptor,
    memory: *mut SgList,
    anchor: *mut Anchor,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        check_no_transaction(transaction)?;
        let object = open::object(object)?;
        object.check_values()?;
        // SAFETY: by the contract.
        let (dkey, mut to) = unsafe { (key(dkey)?, Room::of(count, descriptors, memory, anchor)?) };
        let after = match object.cursors.of(to.anchor)? {
            None => None,
            Some(Cursor::Akeys(after)) => Some(after),
            Some(Cursor::Dkeys(_)) => return Err(Der::Inval),
        };
        let limit = to.wanted();
        let (Some(oid), true) = (object.find()?, to.anchor.kind != END && limit > 0) else {
            *to.count = 0;
            if limit > 0 {
                object.cursors.advance(to.anchor, None);
            }
            return Ok(());
        };
        let (akeys, end) = object.pool().list_akeys(oid, dkey, after.as_deref(), limit)?;
        // SAFETY: by the contract.
        let fitting = unsafe { to.fitting(akeys.iter().map(|akey| akey_kind(akey).1)) }? as usize;
        let shown = akeys[..fitting].iter().map(|akey| match akey_kind(akey) {
            (ValueKind::Single, name) => (name, SINGLE),
            (ValueKind::Array, name) => (name, ARRAY),
        });
        // SAFETY: by the contract.
        unsafe { to.give(shown) }?;
        let end = end && fitting == akeys.len();
        let last = akeys.into_iter().take(fitting).next_back().or(after);
        let next = if end { None } else { last.map(Cursor::Akeys) };
        object.cursors.advance(to.anchor, next);
        Ok(())
    });
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, rc) }
}

/// See `daos_obj.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_obj_list_recx(
    object: Handle,
    transaction: Handle,
    dkey: *mut Iov,
    akey: *mut Iov,
    record_bytes: *mut u64,
    count: *mut u32,
    ranges: *mut RecordRange,
    epochs: *mut EpochRange,
    anchor: *mut Anchor,
    rising: bool,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        check_no_transaction(transaction)?;
        let object = open::object(object)?;
        object.check_values()?;
        if !rising {
            return Err(Der::Nosys);
        }
        // SAFETY: by the contract.
        let (dkey, akey, record_bytes) =
            unsafe { (key(dkey)?, key(akey)?, place(record_bytes).ok_or(Der::Inval)?) };
        // SAFETY: by the contract.
        let (count, anchor) =
            unsafe { (place(count).ok_or(Der::Inval)?, place(anchor).ok_or(Der::Inval)?) };
        let wanted = std::mem::take(count) as usize;
        // SAFETY: by the contract.
        let (ranges, epochs) =
            unsafe { (items_mut(ranges, wanted).ok_or(Der::Inval)?, items_mut(epochs, wanted)) };
        if let Some(epochs) = epochs {
            epochs.fill(EpochRange { low: 0, high: u64::MAX });
        }
        *record_bytes = 0;
        let arrays = object.find()?.map(|oid| object.values(oid));
        let found = match &arrays {
            Some(arrays) => arrays.find(dkey, akey)?,
            None => None,
        };
        let (Some(arrays), Some(array)) = (arrays, found) else {
            anchor.kind = END;
            return Ok(());
        };
        *record_bytes = array.record_bytes();
        // Record numbers go into an anchor as they are.
        let mut from = if anchor.kind == START { 0 } else { anchor.number() };
        for range in ranges {
            if anchor.kind == END {
                break;
            }
            match arrays.next_extent(array, from)? {
                Some((first, records)) => {
                    *range = RecordRange { index: first, count: records };
                    *count += 1;
                    from = first + records;
                    anchor.kind = WITHIN;
                    anchor.set_number(from);
                }
                None => anchor.kind = END,
            }
        }
        Ok(())
    });
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, rc) }
}
