//! Array values: records of one size under a dkey and an akey, beside the single values of the same
//! object. Owns how one is kept: under the dkey and a marked akey stands a descriptor with the size of the
//! records and the id of an object on the target of the dkey, whose data the records are. Never touches a
//! single value but to see that there is none.
//!
//! Removing is done by its client, descriptor first: whoever writes at the same time may leave data that
//! nothing leads to, until the container goes.

use azekura_proto::limits::{CHUNK_BYTES_DEFAULT, KEY_BYTES_MAX};
use azekura_proto::message::typed::ValueList;
use azekura_proto::message::{Condition, ValueUpdate};
use azekura_proto::{Layout, ObjectClass, Oid, Status};

use crate::error::{ClientError, Result};
use crate::fan_out::Call;
use crate::objects::Objects as _;
use crate::pool::Pool;
use crate::shard_io::ShardIo;

/// What the akey of an array starts with.
const MARK: &[u8] = b"\0array\0\0";
/// No akey comes between this one and those of arrays.
const BEFORE_ARRAYS: &[u8] = b"\0array\0";
/// Longest akey of an array, in bytes.
pub const ARRAY_AKEY_BYTES_MAX: usize = KEY_BYTES_MAX - MARK.len();
/// The user bits of the objects that hold records: none of the file system, with chunks of 1 MiB.
const DATA_BITS: u32 = 1 << 31 | CHUNK_BYTES_DEFAULT.trailing_zeros() << 26;
/// Keys asked for at a time.
const KEYS_AT_ONCE: u32 = 256;

/// What stands under an akey.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueKind {
    /// Bytes that are read and written as a whole.
    Single,
    /// Records that are read and written in ranges.
    Array,
}

/// The array values of an object.
#[derive(Clone, Copy, Debug)]
pub struct ArrayValues<'p> {
    pool: &'p Pool,
    oid: Oid,
}

/// An array value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArrayValue {
    record_bytes: u64,
    data: Oid,
}

impl ArrayValue {
    /// Size of a record in bytes.
    pub fn record_bytes(self) -> u64 {
        self.record_bytes
    }

    fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.record_bytes.to_be_bytes());
        bytes[8..].copy_from_slice(&self.data.to_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (size, data) = bytes.split_first_chunk::<8>()?;
        let record_bytes = u64::from_be_bytes(*size);
        (record_bytes > 0).then_some(Self { record_bytes, data: Oid::from_bytes(data)? })
    }

    /// Where a record begins; `FileTooBig` where no array can have one.
    fn offset(self, index: u64) -> Result<u64> {
        index.checked_mul(self.record_bytes).ok_or(ClientError::Status(Status::FileTooBig))
    }
}

/// What kind of value stands under an akey as it is listed, and the akey that its user knows.
pub fn akey_kind(akey: &[u8]) -> (ValueKind, &[u8]) {
    match akey.strip_prefix(MARK) {
        Some(name) => (ValueKind::Array, name),
        None => (ValueKind::Single, akey),
    }
}

fn marked(akey: &[u8]) -> Vec<u8> {
    [MARK, akey].concat()
}

impl<'p> ArrayValues<'p> {
    /// Those of this object.
    pub fn new(pool: &'p Pool, oid: Oid) -> Self {
        Self { pool, oid }
    }

    /// The array under these keys; `None` if there is none.
    ///
    /// # Errors
    /// As [`Pool::call`].
    pub fn find(&self, dkey: &[u8], akey: &[u8]) -> Result<Option<ArrayValue>> {
        let descriptor = self.pool.get(self.oid, dkey, &marked(akey))?;
        let damaged = ClientError::Status(Status::Damaged);
        descriptor.map(|bytes| ArrayValue::from_bytes(&bytes).ok_or(damaged)).transpose()
    }

    /// The array under these keys, made if there is none.
    ///
    /// # Errors
    /// `Invalid` for records of no bytes or of another size than those that are there, and where a single
    /// value stands under the keys; `TooLarge` for a key that is too long; as [`Pool::call`].
    pub fn find_or_make(&self, dkey: &[u8], akey: &[u8], record_bytes: u64) -> Result<ArrayValue> {
        let invalid = ClientError::Status(Status::Invalid);
        let found = match self.find(dkey, akey)? {
            Some(found) => found,
            None if record_bytes == 0 => return Err(invalid),
            None => match self.make(dkey, akey, record_bytes) {
                // Somebody else was first, with an array or with a single value.
                Err(ClientError::Status(Status::ConditionFailed)) => {
                    self.find(dkey, akey)?.ok_or(ClientError::Status(Status::Invalid))?
                }
                made => made?,
            },
        };
        if found.record_bytes == record_bytes { Ok(found) } else { Err(invalid) }
    }

    fn make(&self, dkey: &[u8], akey: &[u8], record_bytes: u64) -> Result<ArrayValue> {
        let home = self.pool.placement().dkey_target(self.oid, dkey);
        let container = self.oid.container();
        let data = self.pool.allocate(container, ObjectClass::S1, DATA_BITS, Some(home))?;
        let made = ArrayValue { record_bytes, data };
        let (array, descriptor) = (marked(akey), made.to_bytes());
        let condition = Condition::MustNotExist;
        let updates = vec![
            ValueUpdate { dkey, akey: &array, value: Some(&descriptor), condition },
            ValueUpdate { dkey, akey, value: None, condition },
        ];
        self.pool.update(self.oid, updates)?;
        Ok(made)
    }

    /// Sets single values under one dkey in one atomic step, as far as no array is in the way: each is an
    /// akey, its new value, and its condition.
    ///
    /// # Errors
    /// `ConditionFailed` if a condition fails; `Invalid` where an array stands under the keys; as
    /// [`Objects::update`](crate::Objects::update).
    pub fn put_singles(&self, dkey: &[u8], values: &[(&[u8], &[u8], Condition<'_>)]) -> Result<()> {
        let arrays: Vec<Vec<u8>> = values.iter().map(|(akey, _, _)| marked(akey)).collect();
        let absent = |akey| {
            let condition = Condition::MustNotExist;
            ValueUpdate { dkey, akey, value: None, condition }
        };
        let guards = arrays.iter().map(|akey| absent(akey.as_slice()));
        let values = values.iter().map(|&(akey, value, condition)| ValueUpdate {
            dkey,
            akey,
            value: Some(value),
            condition,
        });
        let failed = ClientError::Status(Status::ConditionFailed);
        match self.pool.update(self.oid, guards.chain(values).collect()) {
            Err(ClientError::Status(Status::ConditionFailed)) => {
                for array in &arrays {
                    if self.pool.get(self.oid, dkey, array)?.is_some() {
                        return Err(ClientError::Status(Status::Invalid));
                    }
                }
                Err(failed)
            }
            other => other,
        }
    }

    /// Reads from a byte of the records on, which is the index of a record times their size; what is not
    /// there reads as zeros.
    ///
    /// # Errors
    /// As [`Pool::call`].
    pub fn read_bytes(&self, array: ArrayValue, offset: u64, buffer: &mut [u8]) -> Result<()> {
        buffer.fill(0);
        self.pool.array_read(array.data, CHUNK_BYTES_DEFAULT, offset, buffer).map(drop)
    }

    /// Writes from a byte of the records on; a record that is written in part is zeros in the rest.
    ///
    /// # Errors
    /// As [`Pool::call`].
    pub fn write_bytes(&self, array: ArrayValue, offset: u64, data: &[u8]) -> Result<()> {
        self.pool.array_write(array.data, CHUNK_BYTES_DEFAULT, offset, data)
    }

    /// Number of records, with all holes before the last one.
    ///
    /// # Errors
    /// As [`Pool::call`].
    pub fn records(&self, array: ArrayValue) -> Result<u64> {
        let bytes = self.pool.array_size(array.data, CHUNK_BYTES_DEFAULT)?;
        Ok(bytes.div_ceil(array.record_bytes))
    }

    /// The next records that are there at or after `index`: the first, and how many. They are told in the
    /// steps in which the target keeps data, so some may be zeros that nobody has written.
    ///
    /// # Errors
    /// As [`Pool::call`].
    pub fn next_extent(&self, array: ArrayValue, index: u64) -> Result<Option<(u64, u64)>> {
        let layout = Layout::of_array(self.pool.placement(), array.data, CHUNK_BYTES_DEFAULT);
        let shards = ShardIo::new(self.pool, layout);
        let end = self.pool.array_size(array.data, CHUNK_BYTES_DEFAULT)?;
        let from = array.offset(index)?;
        if from >= end {
            return Ok(None);
        }
        let Some(start) = shards.seek(from, false, 1)?.filter(|start| *start < end) else {
            return Ok(None);
        };
        let stop = shards.seek(start, true, 1)?.map_or(end, |stop| stop.min(end));
        let first = (start / array.record_bytes).max(index);
        Ok(Some((first, stop.div_ceil(array.record_bytes) - first)))
    }

    /// Removes an array; false if there was none.
    ///
    /// # Errors
    /// As [`Pool::call`].
    pub fn remove(&self, dkey: &[u8], akey: &[u8]) -> Result<bool> {
        let Some(array) = self.find(dkey, akey)? else { return Ok(false) };
        let (key, descriptor) = (marked(akey), array.to_bytes());
        let condition = Condition::Equals(&descriptor);
        let gone = ValueUpdate { dkey, akey: &key, value: None, condition };
        match self.pool.update(self.oid, vec![gone]) {
            // Somebody else has removed it.
            Err(ClientError::Status(Status::ConditionFailed)) => return Ok(false),
            other => other?,
        }
        self.pool.array_remove(array.data)?;
        Ok(true)
    }

    /// Removes all values under a dkey, of both kinds.
    ///
    /// # Errors
    /// As [`Pool::call`].
    pub fn remove_dkey(&self, dkey: &[u8]) -> Result<()> {
        self.remove_arrays(dkey)?;
        self.pool.punch(self.oid, dkey)
    }

    fn remove_arrays(&self, dkey: &[u8]) -> Result<()> {
        let mut after = BEFORE_ARRAYS.to_vec();
        loop {
            let (akeys, end) = self.pool.list_akeys(self.oid, dkey, Some(&after), KEYS_AT_ONCE)?;
            for akey in &akeys {
                let (ValueKind::Array, name) = akey_kind(akey) else { return Ok(()) };
                self.remove(dkey, name)?;
            }
            match akeys.into_iter().next_back() {
                Some(last) if !end => after = last,
                _ => return Ok(()),
            }
        }
    }

    /// Removes all values of the object, of both kinds.
    ///
    /// # Errors
    /// As [`Pool::call`].
    pub fn remove_all(&self) -> Result<()> {
        let mut cursor = None;
        loop {
            let (dkeys, next) = self.pool.list_dkeys(self.oid, cursor, KEYS_AT_ONCE)?;
            for dkey in self.with_arrays(&dkeys)? {
                self.remove_arrays(dkey)?;
            }
            match next {
                Some(next) => cursor = Some(next),
                None => return self.pool.punch_all(self.oid),
            }
        }
    }

    /// Those of some dkeys that have arrays: all are asked for at once, since most have none.
    fn with_arrays<'k>(&self, dkeys: &'k [Vec<u8>]) -> Result<Vec<&'k [u8]>> {
        let (oid, placement) = (self.oid, self.pool.placement());
        let mut calls: Vec<_> = dkeys
            .iter()
            .map(|dkey| {
                let (after, limit) = (Some(BEFORE_ARRAYS), 1);
                let request = ValueList { oid, dkey: Some(dkey), after, limit };
                Call::new(placement.dkey_target(oid, dkey), request)
            })
            .collect();
        let mut found = Vec::new();
        for (dkey, page) in dkeys.iter().zip(self.pool.call_all(&mut calls)) {
            if page?.keys.first().is_some_and(|akey| akey.starts_with(MARK)) {
                found.push(dkey.as_slice());
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use azekura_proto::{ContainerId, TargetId};

    use super::*;

    /// Arrays are found by these: a change loses every array of every pool.
    #[test]
    fn the_form_of_descriptors_never_changes() {
        let data = Oid::new(ContainerId(3), ObjectClass::S1, TargetId(2), 9);
        let array = ArrayValue { record_bytes: 12, data };
        let bytes = array.to_bytes();
        assert_eq!(bytes[..8], [0, 0, 0, 0, 0, 0, 0, 12]);
        assert_eq!(bytes[8..], data.to_bytes());
        assert_eq!(ArrayValue::from_bytes(&bytes), Some(array));
        assert_eq!(ArrayValue::from_bytes(&bytes[..20]), None);
        assert_eq!(ArrayValue::from_bytes(&[0; 24]), None);
        assert_eq!(marked(b"k"), b"\0array\0\0k");
        assert!(MARK.strip_prefix(BEFORE_ARRAYS) == Some(b"\0"));
        assert_eq!(akey_kind(b"\0array\0\0k"), (ValueKind::Array, b"k".as_slice()));
        assert_eq!(akey_kind(b"\0array"), (ValueKind::Single, b"\0array".as_slice()));
    }
}
