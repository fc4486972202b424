//! The greatest and least keys and records of an object.

use std::ffi::c_int;

use azekura_client::{Objects as _, akey_kind};
use azekura_proto::Oid;

use crate::event::finish;
use crate::objects::memory::key;
use crate::objects::open::{self, OpenObject, check_no_transaction};
use crate::status::{Der, daos_call};
use crate::types::{Event, Handle, Iov, RecordRange, place};

/// What is asked for.
const GET_MAX: u64 = 1;
const GET_MIN: u64 = 1 << 1;
const GET_DKEY: u64 = 1 << 2;
const GET_AKEY: u64 = 1 << 3;
const GET_RECORD: u64 = 1 << 4;
/// Keys of one page.
const PAGE_KEYS: u32 = 256;

/// The greatest or least of some numbers.
#[derive(Clone, Copy)]
struct Extreme {
    greatest: bool,
    found: Option<u64>,
}

impl Extreme {
    /// Takes a key into account, if it is a number.
    fn see(&mut self, key: &[u8]) {
        let Ok(bytes) = key.try_into() else { return };
        let number = u64::from_ne_bytes(bytes);
        let better = |other| if self.greatest { number > other } else { number < other };
        if self.found.is_none_or(better) {
            self.found = Some(number);
        }
    }
}

fn extreme_dkey(object: &OpenObject, oid: Oid, mut extreme: Extreme) -> Result<u64, Der> {
    let mut cursor = None;
    loop {
        let (dkeys, next) = object.pool().list_dkeys(oid, cursor, PAGE_KEYS)?;
        for dkey in &dkeys {
            extreme.see(dkey);
        }
        match next {
            Some(next) => cursor = Some(next),
            None => return extreme.found.ok_or(Der::Nonexist),
        }
    }
}

fn extreme_akey(
    object: &OpenObject,
    oid: Oid,
    dkey: &[u8],
    mut extreme: Extreme,
) -> Result<u64, Der> {
    let mut after: Option<Vec<u8>> = None;
    loop {
        let (akeys, end) = object.pool().list_akeys(oid, dkey, after.as_deref(), PAGE_KEYS)?;
        for akey in &akeys {
            extreme.see(akey_kind(akey).1);
        }
        after = akeys.into_iter().next_back().or(after);
        if end {
            return extreme.found.ok_or(Der::Nonexist);
        }
    }
}

/// Puts a number where a key is to be given out.
///
/// # Safety
/// `key` is null or the caller's.
unsafe fn give(key: *mut Iov, number: u64) -> Result<(), Der> {
    // SAFETY: the caller's promise.
    let key = unsafe { place(key) }.ok_or(Der::Inval)?;
    if key.buf.is_null() || key.buf_bytes < size_of::<u64>() {
        return Err(Der::Inval);
    }
    // SAFETY: there is room for it, as was just checked.
    unsafe { key.buf.cast::<u64>().write_unaligned(number) };
    key.bytes = size_of::<u64>();
    Ok(())
}

/// The first or last record of an array.
fn extreme_record(
    object: &OpenObject,
    oid: Oid,
    keys: (&[u8], &[u8]),
    greatest: bool,
) -> Result<RecordRange, Der> {
    let arrays = object.values(oid);
    let array = arrays.find(keys.0, keys.1)?.ok_or(Der::Nonexist)?;
    let index = if greatest {
        arrays.records(array)?.checked_sub(1)
    } else {
        arrays.next_extent(array, 0)?.map(|(first, _)| first)
    };
    Ok(RecordRange { index: index.ok_or(Der::Nonexist)?, count: 1 })
}

/// See `daos_obj.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_obj_query_key(
    object: Handle,
    transaction: Handle,
    flags: u64,
    dkey: *mut Iov,
    akey: *mut Iov,
    range: *mut RecordRange,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        check_no_transaction(transaction)?;
        let object = open::object(object)?;
        object.check_values()?;
        let greatest = flags & GET_MAX != 0;
        if greatest == (flags & GET_MIN != 0) {
            return Err(Der::Inval);
        }
        let extreme = Extreme { greatest, found: None };
        let oid = object.find()?.ok_or(Der::Nonexist)?;
        // SAFETY: by the contract.
        unsafe {
            if flags & GET_DKEY != 0 {
                give(dkey, extreme_dkey(&object, oid, extreme)?)?;
            }
            if flags & GET_AKEY != 0 {
                give(akey, extreme_akey(&object, oid, key(dkey)?, extreme)?)?;
            }
            if flags & GET_RECORD != 0 {
                let found = extreme_record(&object, oid, (key(dkey)?, key(akey)?), greatest)?;
                *place(range).ok_or(Der::Inval)? = found;
            }
        }
        Ok(())
    });
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, rc) }
}
