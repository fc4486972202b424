//! Setting values.

use std::ffi::{c_int, c_uint};

use azekura_client::{ClientError, Objects as _};
use azekura_proto::limits::BATCH_UPDATES_MAX;
use azekura_proto::message::Condition;
use azekura_proto::{Oid, Status};

use crate::data::parts_of;
use crate::event::launch;
use crate::objects::memory::{bytes_of_key, gather, key};
use crate::objects::open::{self, OpenObject, check_no_transaction};
use crate::status::{Der, daos_call, number_of_der};
use crate::types::{Event, Handle, IoDescriptor, Iov, RecordRange, SgList, items};

/// Kinds of values.
pub(super) const SINGLE: u32 = 1;
pub(super) const ARRAY: u32 = 2;
/// Conditions.
pub(super) const KEY_INSERT: u64 = 1 << 1;
pub(super) const KEY_UPDATE: u64 = 1 << 2;
const AKEY_INSERT: u64 = 1 << 4;
const AKEY_UPDATE: u64 = 1 << 5;

/// What an update was given.
struct Update {
    object: Handle,
    transaction: Handle,
    flags: u64,
    dkey: *mut Iov,
    count: c_uint,
    values: *mut IoDescriptor,
    lists: *mut SgList,
}

/// The condition that flags stand for.
pub(super) fn condition_of(
    flags: u64,
    insert: u64,
    update: u64,
) -> Result<Condition<'static>, Der> {
    match flags {
        0 => Ok(Condition::Always),
        only if only == insert => Ok(Condition::MustNotExist),
        only if only == update => Ok(Condition::MustExist),
        _ => Err(Der::Nosys),
    }
}

/// Sets single values, in one step.
pub(super) fn put_singles(
    object: &OpenObject,
    oid: Oid,
    dkey: &[u8],
    values: &[(&[u8], &[u8], Condition<'_>)],
) -> Result<(), Der> {
    object.values(oid).put_singles(dkey, values).map_err(|error| {
        let insert = values.iter().any(|(_, _, wanted)| *wanted == Condition::MustNotExist);
        match error {
            ClientError::Status(Status::ConditionFailed) if insert => Der::Exist,
            ClientError::Status(Status::ConditionFailed) => Der::Nonexist,
            other => other.into(),
        }
    })
}

/// The ranges of an array value, in bytes.
///
/// # Safety
/// The ranges are the caller's.
pub(super) unsafe fn byte_ranges(
    value: &IoDescriptor,
    record_bytes: u64,
) -> Result<Vec<(u64, u64)>, Der> {
    // SAFETY: the caller's promise.
    let ranges: &[RecordRange] =
        unsafe { items(value.ranges.cast_const(), value.count as usize) }.ok_or(Der::Inval)?;
    let bytes = |records: u64| records.checked_mul(record_bytes).ok_or(Der::Overflow);
    ranges.iter().map(|range| Ok((bytes(range.index)?, bytes(range.count)?))).collect()
}

/// Writes the records of an array.
///
/// # Safety
/// What the value and the list point at is the caller's.
unsafe fn write_records(
    object: &OpenObject,
    oid: Oid,
    dkey: &[u8],
    value: &IoDescriptor,
    memory: &SgList,
) -> Result<(), Der> {
    // SAFETY: the caller's promise.
    let (akey, ranges) =
        unsafe { (bytes_of_key(&value.name)?, byte_ranges(value, value.record_bytes)?) };
    // SAFETY: the caller's promise.
    let iovs = unsafe { items(memory.iovs.cast_const(), memory.count as usize) };
    let iovs = iovs.filter(|iovs| iovs.iter().all(Iov::has_its_memory)).ok_or(Der::Inval)?;
    let parts = parts_of(ranges, iovs).map_err(|_| Der::Inval)?;
    let arrays = object.values(oid);
    let array = arrays.find_or_make(dkey, akey, value.record_bytes)?;
    for part in parts {
        // SAFETY: the caller's memory to read.
        arrays.write_bytes(array, part.offset, unsafe { part.data() })?;
    }
    Ok(())
}

impl Update {
    fn run(&self) -> c_int {
        daos_call(|| {
            check_no_transaction(self.transaction)?;
            let object = open::object(self.object)?;
            object.check_values()?;
            let condition = condition_of(self.flags, AKEY_INSERT, AKEY_UPDATE)?;
            let count = self.count as usize;
            // SAFETY: by the contract.
            let (dkey, values, lists) = unsafe {
                (
                    key(self.dkey)?,
                    items(self.values.cast_const(), count).ok_or(Der::Inval)?,
                    items(self.lists.cast_const(), count).ok_or(Der::Inval)?,
                )
            };
            if count > BATCH_UPDATES_MAX / 2 {
                return Err(Der::Overflow);
            }
            let mut singles = Vec::new();
            let mut arrays = Vec::new();
            for (value, memory) in values.iter().zip(lists) {
                match value.kind {
                    SINGLE => {
                        // SAFETY: by the contract.
                        let single = unsafe { (bytes_of_key(&value.name)?, gather(memory)?) };
                        // A value of no bytes could not be told from none.
                        if single.1.is_empty() || single.1.len() as u64 != value.record_bytes {
                            return Err(Der::Inval);
                        }
                        singles.push(single);
                    }
                    ARRAY if condition == Condition::Always => arrays.push((value, memory)),
                    ARRAY => return Err(Der::Nosys),
                    _ => return Err(Der::Inval),
                }
            }
            let oid = object.find_or_make()?;
            if !singles.is_empty() {
                let singles: Vec<_> = singles
                    .iter()
                    .map(|(akey, data)| (*akey, data.as_slice(), condition))
                    .collect();
                put_singles(&object, oid, dkey, &singles)?;
            }
            for (value, memory) in arrays {
                // SAFETY: by the contract.
                unsafe { write_records(&object, oid, dkey, value, memory) }?;
            }
            Ok(())
        })
    }
}

/// See `daos_obj.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_obj_update(
    object: Handle,
    transaction: Handle,
    flags: u64,
    dkey: *mut Iov,
    count: c_uint,
    values: *mut IoDescriptor,
    lists: *mut SgList,
    event: *mut Event,
) -> c_int {
    let given = Update { object, transaction, flags, dkey, count, values, lists };
    // SAFETY: by the contract.
    unsafe { launch(event, number_of_der, given, Update::run) }
}

/// Sets one value where nothing else may be.
pub(super) fn put_one(
    object: &OpenObject,
    oid: Oid,
    (dkey, akey): (&[u8], &[u8]),
    value: &[u8],
    condition: Condition<'_>,
) -> Result<(), Der> {
    let update = azekura_proto::message::ValueUpdate { dkey, akey, value: Some(value), condition };
    match object.pool().update(oid, vec![update]) {
        Err(ClientError::Status(Status::ConditionFailed)) => Err(match condition {
            Condition::MustNotExist => Der::Exist,
            _ => Der::Nonexist,
        }),
        other => Ok(other?),
    }
}
