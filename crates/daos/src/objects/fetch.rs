//! Getting values.

use std::ffi::{c_int, c_uint};

use azekura_client::Objects as _;
use azekura_proto::Oid;

use crate::data::parts_within;
use crate::event::{Unread, launch};
use crate::objects::memory::{bytes_of_key, key, room, scatter};
use crate::objects::open::{self, OpenObject, check_no_transaction};
use crate::objects::update::{ARRAY, SINGLE, byte_ranges};
use crate::status::{Der, daos_call, number_of_der};
use crate::types::{Event, Handle, IoDescriptor, Iov, SgList, items_mut};

/// The condition that each akey is there.
const AKEY_FETCH: u64 = 1 << 6;

/// What a fetch was given.
struct Fetch {
    object: Handle,
    transaction: Handle,
    flags: u64,
    dkey: *mut Iov,
    count: c_uint,
    values: *mut IoDescriptor,
    lists: *mut SgList,
    maps: Unread,
}

/// Gets a single value; false if there is none.
///
/// # Safety
/// What the value and the list point at is the caller's.
unsafe fn get_single(
    object: &OpenObject,
    oid: Oid,
    (dkey, akey): (&[u8], &[u8]),
    value: &mut IoDescriptor,
    memory: Option<&mut SgList>,
) -> Result<bool, Der> {
    let Some(found) = object.pool().get(oid, dkey, akey)? else { return Ok(false) };
    value.record_bytes = found.len() as u64;
    if let Some(memory) = memory {
        // SAFETY: the caller's promise.
        unsafe {
            if room(memory)? < found.len() {
                return Err(Der::Rec2Big);
            }
            scatter(memory, &found)?;
        }
    }
    Ok(true)
}

/// Gets the records of an array; false if there is none.
///
/// # Safety
/// What the value and the list point at is the caller's.
unsafe fn get_records(
    object: &OpenObject,
    oid: Oid,
    (dkey, akey): (&[u8], &[u8]),
    value: &mut IoDescriptor,
    memory: Option<&mut SgList>,
) -> Result<bool, Der> {
    let arrays = object.values(oid);
    let Some(array) = arrays.find(dkey, akey)? else { return Ok(false) };
    value.record_bytes = array.record_bytes();
    let Some(memory) = memory else { return Ok(true) };
    // SAFETY: the caller's promise.
    let (ranges, iovs) = unsafe {
        (
            byte_ranges(value, array.record_bytes())?,
            items_mut(memory.iovs, memory.count as usize).ok_or(Der::Inval)?,
        )
    };
    let wanted = ranges.iter().fold(0u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
    // All room counts here, however much of it held data before.
    let mut left = wanted;
    memory.count_out = 0;
    for iov in iovs.iter_mut() {
        iov.bytes = iov.buf_bytes.min(usize::try_from(left).unwrap_or(usize::MAX));
        left -= iov.bytes as u64;
        memory.count_out += u32::from(iov.bytes > 0);
    }
    if left > 0 {
        return Err(Der::Rec2Big);
    }
    if !iovs.iter().all(Iov::has_its_memory) {
        return Err(Der::Inval);
    }
    for part in parts_within(ranges, iovs).map_err(|_| Der::Inval)? {
        // SAFETY: the caller's memory to write to.
        arrays.read_bytes(array, part.offset, unsafe { part.room() })?;
    }
    Ok(true)
}

impl Fetch {
    fn run(&self) -> c_int {
        daos_call(|| {
            check_no_transaction(self.transaction)?;
            if !self.maps.is_null() || self.flags & !AKEY_FETCH != 0 {
                return Err(Der::Nosys);
            }
            let object = open::object(self.object)?;
            object.check_values()?;
            let count = self.count as usize;
            // SAFETY: by the contract.
            let (dkey, values, lists) = unsafe {
                (
                    key(self.dkey)?,
                    items_mut(self.values, count).ok_or(Der::Inval)?,
                    items_mut(self.lists, count),
                )
            };
            let oid = object.find()?;
            let mut lists = lists.map(|lists| lists.iter_mut());
            for value in values {
                let mut memory = lists.as_mut().and_then(Iterator::next);
                if let Some(memory) = &mut memory {
                    memory.count_out = 0;
                }
                // SAFETY: by the contract.
                let keys = (dkey, unsafe { bytes_of_key(&value.name) }?);
                let get = match value.kind {
                    SINGLE => get_single,
                    ARRAY => get_records,
                    _ => return Err(Der::Inval),
                };
                let found = match oid {
                    None => false,
                    // SAFETY: by the contract.
                    Some(oid) => unsafe { get(&object, oid, keys, value, memory) }?,
                };
                if !found {
                    value.record_bytes = 0;
                    if self.flags & AKEY_FETCH != 0 {
                        return Err(Der::Nonexist);
                    }
                }
            }
            Ok(())
        })
    }
}

/// See `daos_obj.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_obj_fetch(
    object: Handle,
    transaction: Handle,
    flags: u64,
    dkey: *mut Iov,
    count: c_uint,
    values: *mut IoDescriptor,
    lists: *mut SgList,
    maps: Unread,
    event: *mut Event,
) -> c_int {
    let given = Fetch { object, transaction, flags, dkey, count, values, lists, maps };
    // SAFETY: by the contract.
    unsafe { launch(event, number_of_der, given, Fetch::run) }
}
