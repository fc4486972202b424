//! Single values under (dkey, akey): get, put with conditions, remove, and atomic batches.

use std::ffi::{c_int, c_void};

use azekura_client::{ArrayValues, ClientError, Objects as _};
use azekura_posix::Errno;
use azekura_proto::Status;
use azekura_proto::limits::{BATCH_UPDATES_MAX, KEY_BYTES_MAX};
use azekura_proto::message::{Condition, ValueUpdate};

use crate::call::{count, status};
use crate::failure::{About as _, Failure, Outcome};
use crate::object::Object;
use crate::pointers::{Bytes, Room, hand_out, handle};

/// `AZEKURA_MUST_NOT_EXIST`.
const MUST_NOT_EXIST: c_int = 1;
/// `AZEKURA_MUST_EXIST`.
const MUST_EXIST: c_int = 2;
/// `AZEKURA_MUST_EQUAL`.
const MUST_EQUAL: c_int = 4;

/// `struct azekura_kv_update`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct KvUpdate {
    dkey: *const c_void,
    dkey_bytes: usize,
    akey: *const c_void,
    akey_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
    expected: *const c_void,
    expected_bytes: usize,
    condition: c_int,
    remove: c_int,
}

/// A key of the right length.
pub(crate) fn key<'a>(key: &'a [u8], what: &'static str) -> Outcome<&'a [u8]> {
    if (1..=KEY_BYTES_MAX).contains(&key.len()) {
        return Ok(key);
    }
    let text = format!("'{what}' has {} bytes: keys have 1 to {KEY_BYTES_MAX}", key.len());
    Err(Failure::with(Errno::INVAL, text))
}

fn condition(number: c_int, expected: &[u8]) -> Outcome<Condition<'_>> {
    Ok(match number {
        0 => Condition::Always,
        MUST_NOT_EXIST => Condition::MustNotExist,
        MUST_EXIST => Condition::MustExist,
        MUST_EQUAL => Condition::Equals(expected),
        _ => return Err(Failure::with(Errno::INVAL, format!("there is no condition {number}"))),
    })
}

/// One update; what failed its condition is told by the errno that fits the condition.
fn update_one(object: &Object, update: ValueUpdate<'_>) -> Outcome<()> {
    let condition = update.condition;
    object
        .pool
        .update(object.oid, vec![update])
        .map_err(|error| match (condition, error) {
            (Condition::MustNotExist, ClientError::Status(Status::ConditionFailed)) => {
                Failure::with(Errno::EXIST, "there is a value under these keys already")
            }
            (Condition::MustExist, ClientError::Status(Status::ConditionFailed)) => {
                Failure::with(Errno::NOENT, "there is no value under these keys")
            }
            (_, ClientError::Status(Status::ConditionFailed)) => {
                Failure::with(Errno::CANCELED, "another value than the expected one is there")
            }
            (_, error) => error.into(),
        })
        .about(object.subject())
}

/// `azekura_kv_get`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_kv_get(
    object: Option<&Object>,
    dkey: Bytes<'_>,
    dkey_bytes: usize,
    akey: Bytes<'_>,
    akey_bytes: usize,
    value: Room<'_>,
    capacity: usize,
) -> isize {
    count("azekura_kv_get", || {
        let object = handle(object, "object")?;
        // SAFETY: the lengths stand beside what they measure, as azekura.h says.
        let (dkey, akey, room) = unsafe {
            (
                dkey.slice(dkey_bytes, "dkey")?,
                akey.slice(akey_bytes, "akey")?,
                value.slice(capacity, "value")?,
            )
        };
        let (dkey, akey) = (key(dkey, "dkey")?, key(akey, "akey")?);
        match object.pool.get(object.oid, dkey, akey).about(object.subject())? {
            Some(found) => hand_out(&found, room).about(object.subject()),
            None => Err(Failure::with(Errno::NOENT, "there is no value under these keys"))
                .about(object.subject()),
        }
    })
}

/// `azekura_kv_put`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_kv_put(
    object: Option<&Object>,
    dkey: Bytes<'_>,
    dkey_bytes: usize,
    akey: Bytes<'_>,
    akey_bytes: usize,
    value: Bytes<'_>,
    value_bytes: usize,
    required: c_int,
) -> c_int {
    status("azekura_kv_put", || {
        let object = handle(object, "object")?;
        // SAFETY: the lengths stand beside what they measure, as azekura.h says.
        let (dkey, akey, value) = unsafe {
            (
                dkey.slice(dkey_bytes, "dkey")?,
                akey.slice(akey_bytes, "akey")?,
                value.slice(value_bytes, "value")?,
            )
        };
        if required == MUST_EQUAL {
            let text = "AZEKURA_MUST_EQUAL needs the expected value: use azekura_kv_replace";
            return Err(Failure::with(Errno::INVAL, text));
        }
        let condition = condition(required, &[])?;
        let (dkey, akey) = (key(dkey, "dkey")?, key(akey, "akey")?);
        update_one(object, ValueUpdate { dkey, akey, value: Some(value), condition })
    })
}

/// `azekura_kv_replace`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_kv_replace(
    object: Option<&Object>,
    dkey: Bytes<'_>,
    dkey_bytes: usize,
    akey: Bytes<'_>,
    akey_bytes: usize,
    expected: Bytes<'_>,
    expected_bytes: usize,
    value: Bytes<'_>,
    value_bytes: usize,
) -> c_int {
    status("azekura_kv_replace", || {
        let object = handle(object, "object")?;
        // SAFETY: the lengths stand beside what they measure, as azekura.h says.
        let (dkey, akey, expected, value) = unsafe {
            (
                dkey.slice(dkey_bytes, "dkey")?,
                akey.slice(akey_bytes, "akey")?,
                expected.slice(expected_bytes, "expected")?,
                value.slice(value_bytes, "value")?,
            )
        };
        let (dkey, akey) = (key(dkey, "dkey")?, key(akey, "akey")?);
        let condition = Condition::Equals(expected);
        update_one(object, ValueUpdate { dkey, akey, value: Some(value), condition })
    })
}

/// `azekura_kv_remove`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_kv_remove(
    object: Option<&Object>,
    dkey: Bytes<'_>,
    dkey_bytes: usize,
    akey: Bytes<'_>,
    akey_bytes: usize,
    required: c_int,
) -> c_int {
    status("azekura_kv_remove", || {
        let object = handle(object, "object")?;
        // SAFETY: the lengths stand beside what they measure, as azekura.h says.
        let (dkey, akey) =
            unsafe { (dkey.slice(dkey_bytes, "dkey")?, akey.slice(akey_bytes, "akey")?) };
        let condition = match required {
            0 => Condition::Always,
            MUST_EXIST => Condition::MustExist,
            _ => {
                let text = "a removal is unconditional, or AZEKURA_MUST_EXIST";
                return Err(Failure::with(Errno::INVAL, text));
            }
        };
        let (dkey, akey) = (key(dkey, "dkey")?, key(akey, "akey")?);
        update_one(object, ValueUpdate { dkey, akey, value: None, condition })
    })
}

/// `azekura_kv_remove_dkey`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_kv_remove_dkey(
    object: Option<&Object>,
    dkey: Bytes<'_>,
    dkey_bytes: usize,
) -> c_int {
    status("azekura_kv_remove_dkey", || {
        let object = handle(object, "object")?;
        // SAFETY: the length stands beside what it measures, as azekura.h says.
        let dkey = key(unsafe { dkey.slice(dkey_bytes, "dkey") }?, "dkey")?;
        let arrays = ArrayValues::new(&object.pool, object.oid);
        arrays.remove_dkey(dkey).about(object.subject())
    })
}

/// The bytes that a field of a struct points to.
///
/// # Safety
/// As azekura.h says of the struct: so many bytes that stay as they are during the
/// call, or NULL.
pub(crate) unsafe fn field<'a>(
    start: *const c_void,
    bytes: usize,
    what: &'static str,
) -> Outcome<&'a [u8]> {
    if bytes == 0 {
        return Ok(&[]);
    }
    if start.is_null() || isize::try_from(bytes).is_err() {
        let text = format!("'{what}' of an update is NULL or too long");
        return Err(Failure::with(Errno::FAULT, text));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(start.cast(), bytes) })
}

fn read_update(update: &KvUpdate) -> Outcome<ValueUpdate<'_>> {
    // SAFETY: each length stands beside what it measures, as azekura.h says.
    let (dkey, akey, value, expected) = unsafe {
        (
            field(update.dkey, update.dkey_bytes, "dkey")?,
            field(update.akey, update.akey_bytes, "akey")?,
            field(update.value, update.value_bytes, "value")?,
            field(update.expected, update.expected_bytes, "expected")?,
        )
    };
    Ok(ValueUpdate {
        dkey: key(dkey, "dkey")?,
        akey: key(akey, "akey")?,
        value: (update.remove == 0).then_some(value),
        condition: condition(update.condition, expected)?,
    })
}

/// `azekura_kv_update`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_kv_update(
    object: Option<&Object>,
    updates: *const KvUpdate,
    update_count: usize,
) -> c_int {
    status("azekura_kv_update", || {
        let object = handle(object, "object")?;
        if update_count > BATCH_UPDATES_MAX {
            let text = format!("{update_count} updates: a batch has at most {BATCH_UPDATES_MAX}");
            return Err(Failure::with(Errno::TOOBIG, text));
        }
        if update_count == 0 {
            return Ok(());
        }
        if updates.is_null() {
            return Err(Failure::with(Errno::FAULT, "'updates' is NULL"));
        }
        // SAFETY: azekura.h asks for `update_count` updates there.
        let given = unsafe { std::slice::from_raw_parts(updates, update_count) };
        let batch: Vec<ValueUpdate<'_>> = given.iter().map(read_update).collect::<Outcome<_>>()?;
        let placement = object.pool.placement();
        let target = |update: &ValueUpdate<'_>| placement.dkey_target(object.oid, update.dkey);
        if batch.iter().any(|update| target(update) != target(&batch[0])) {
            let text = "the dkeys live on several targets: a batch is atomic within one dkey, or \
                        within an object of class AZEKURA_S1";
            return Err(Failure::with(Errno::XDEV, text)).about(object.subject());
        }
        object.pool.update(object.oid, batch).about(object.subject())
    })
}
