//! Arrays of records under a dkey and an akey: read and written in ranges, as the single values beside
//! them are as a whole.

use std::ffi::{c_int, c_void};

use azekura_client::{ARRAY_AKEY_BYTES_MAX, ArrayValue, ArrayValues};
use azekura_posix::Errno;
use azekura_proto::limits::FILE_BYTES_MAX;

use crate::call::{answer, status};
use crate::failure::{About as _, Failure, Outcome};
use crate::object::Object;
use crate::pointers::{Bytes, Out, Room, handle, place};
use crate::value::{field, key};

/// `struct azekura_value_keys`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct ValueKeys {
    dkey: *const c_void,
    dkey_bytes: usize,
    akey: *const c_void,
    akey_bytes: usize,
}

/// `struct azekura_records_info`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct RecordsInfo {
    record_bytes: u64,
    records: u64,
}

/// The keys, each of the right length.
fn keys(given: Option<&ValueKeys>) -> Outcome<(&[u8], &[u8])> {
    let given = handle(given, "keys")?;
    // SAFETY: each length stands beside what it measures, as azekura.h says.
    let (dkey, akey) = unsafe {
        (field(given.dkey, given.dkey_bytes, "dkey")?, field(given.akey, given.akey_bytes, "akey")?)
    };
    if akey.len() > ARRAY_AKEY_BYTES_MAX {
        let text = format!(
            "'akey' has {} bytes: that of an array has 1 to {ARRAY_AKEY_BYTES_MAX}",
            akey.len()
        );
        return Err(Failure::with(Errno::INVAL, text));
    }
    Ok((key(dkey, "dkey")?, key(akey, "akey")?))
}

/// The bytes that so many records from one on take: the first, and how many.
fn range(index: u64, records: usize, record_bytes: u64) -> Outcome<(u64, usize)> {
    let too_far = || Failure::with(Errno::FBIG, "an array ends before 2^63 bytes");
    let start = index.checked_mul(record_bytes).ok_or_else(too_far)?;
    let bytes = (records as u64).checked_mul(record_bytes).ok_or_else(too_far)?;
    match start.checked_add(bytes) {
        Some(end) if end <= FILE_BYTES_MAX => Ok((start, bytes as usize)),
        _ => Err(too_far()),
    }
}

/// The array under keys; `ENOENT` if there is none.
fn find(object: &Object, (dkey, akey): (&[u8], &[u8])) -> Outcome<ArrayValue> {
    let found = ArrayValues::new(&object.pool, object.oid).find(dkey, akey);
    found
        .about(object.subject())?
        .ok_or_else(|| Failure::with(Errno::NOENT, "there is no array of records under these keys"))
}

/// `azekura_records_write`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_records_write(
    object: Option<&Object>,
    given: Option<&ValueKeys>,
    record_bytes: u64,
    index: u64,
    data: Bytes<'_>,
    records: usize,
) -> c_int {
    status("azekura_records_write", || {
        let object = handle(object, "object")?;
        let (dkey, akey) = keys(given)?;
        let (start, bytes) = range(index, records, record_bytes)?;
        // SAFETY: `data` has so many records of this size.
        let data = unsafe { data.slice(bytes, "data") }?;
        let arrays = ArrayValues::new(&object.pool, object.oid);
        let array = arrays.find_or_make(dkey, akey, record_bytes).about(object.subject())?;
        arrays.write_bytes(array, start, data).about(object.subject())
    })
}

/// `azekura_records_read`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_records_read(
    object: Option<&Object>,
    given: Option<&ValueKeys>,
    record_bytes: u64,
    index: u64,
    buffer: Room<'_>,
    records: usize,
) -> c_int {
    status("azekura_records_read", || {
        let object = handle(object, "object")?;
        let (start, bytes) = range(index, records, record_bytes)?;
        // SAFETY: `buffer` has room for so many records of this size.
        let buffer = unsafe { buffer.slice(bytes, "buffer") }?;
        let array = find(object, keys(given)?)?;
        if array.record_bytes() != record_bytes {
            let text = format!("the records have {} bytes", array.record_bytes());
            return Err(Failure::with(Errno::INVAL, text)).about(object.subject());
        }
        let arrays = ArrayValues::new(&object.pool, object.oid);
        arrays.read_bytes(array, start, buffer).about(object.subject())
    })
}

/// `azekura_records_info`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_records_info(
    object: Option<&Object>,
    given: Option<&ValueKeys>,
    info: Out<'_, RecordsInfo>,
) -> c_int {
    status("azekura_records_info", || {
        let (object, info) = (handle(object, "object")?, place(info, "info")?);
        let array = find(object, keys(given)?)?;
        let arrays = ArrayValues::new(&object.pool, object.oid);
        let records = arrays.records(array).about(object.subject())?;
        info.write(RecordsInfo { record_bytes: array.record_bytes(), records });
        Ok(())
    })
}

/// `azekura_records_next`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_records_next(
    object: Option<&Object>,
    given: Option<&ValueKeys>,
    from: u64,
    index: Out<'_, u64>,
    records: Out<'_, u64>,
) -> c_int {
    answer("azekura_records_next", || {
        let object = handle(object, "object")?;
        let (index, records) = (place(index, "index")?, place(records, "records")?);
        let array = find(object, keys(given)?)?;
        let arrays = ArrayValues::new(&object.pool, object.oid);
        let next = arrays.next_extent(array, from).about(object.subject())?;
        let (first, count) = next.unwrap_or_default();
        index.write(first);
        records.write(count);
        Ok(next.is_some())
    })
}

/// `azekura_records_remove`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_records_remove(
    object: Option<&Object>,
    given: Option<&ValueKeys>,
) -> c_int {
    status("azekura_records_remove", || {
        let object = handle(object, "object")?;
        let (dkey, akey) = keys(given)?;
        let arrays = ArrayValues::new(&object.pool, object.oid);
        arrays.remove(dkey, akey).about(object.subject()).map(drop)
    })
}
