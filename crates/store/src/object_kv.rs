//! Key-value objects: values under (object, dkey, akey). Owns the encoding of these three into one
//! key, in which byte order is the order of dkeys, then of akeys; and the atomicity of conditional
//! updates.

use std::ops::ControlFlow;

use azekura_proto::Oid;

use crate::error::StoreError;
use crate::kv::batch::Batch;
use crate::kv::change::Value;
use crate::kv::space::Space;
use crate::store::Store;

/// Keys removed in one batch.
const PUNCH_KEYS: usize = 256;
/// Values of one dkey that a listing of dkeys steps over before it seeks to the next dkey.
const STEPS_MAX: u32 = 16;

/// What to do with a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KvOp<'a> {
    /// Store it.
    Put(&'a [u8]),
    /// Remove it, if it is there.
    Punch,
}

/// What must be so before an update is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum KvCondition<'a> {
    /// Anything.
    #[default]
    None,
    /// There is a value.
    MustExist,
    /// There is no value.
    MustNotExist,
    /// The value is this one.
    Equals(&'a [u8]),
}

/// One update of an object's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KvUpdate<'a> {
    /// The distribution key.
    pub dkey: &'a [u8],
    /// The attribute key.
    pub akey: &'a [u8],
    /// What to do.
    pub op: KvOp<'a>,
    /// When to do it.
    pub condition: KvCondition<'a>,
}

/// Appends a dkey so that order is kept and no dkey is the beginning of another: a zero byte
/// becomes `00 ff`, and `00 00` ends the key.
fn push_dkey(key: &mut Vec<u8>, dkey: &[u8]) {
    for &byte in dkey {
        key.push(byte);
        if byte == 0 {
            key.push(0xff);
        }
    }
    key.extend_from_slice(&[0, 0]);
}

fn dkey_prefix(oid: Oid, dkey: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(16 + dkey.len() + 8);
    key.extend_from_slice(&oid.to_bytes());
    push_dkey(&mut key, dkey);
    key
}

fn full_key(oid: Oid, dkey: &[u8], akey: &[u8]) -> Vec<u8> {
    let mut key = dkey_prefix(oid, dkey);
    key.extend_from_slice(akey);
    key
}

/// The dkey at the beginning of `key`, and the number of bytes that its encoding takes.
fn split_dkey(key: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut dkey = Vec::new();
    let mut at = 0;
    loop {
        let byte = *key.get(at)?;
        if byte != 0 {
            dkey.push(byte);
            at += 1;
            continue;
        }
        match *key.get(at + 1)? {
            0 => return Some((dkey, at + 2)),
            0xff => dkey.push(0),
            _ => return None,
        }
        at += 2;
    }
}

impl Store {
    /// Makes all `updates` of one object, or none. Every condition is checked against the values
    /// from before the call; of two updates of one value the later one counts.
    ///
    /// # Errors
    /// [`StoreError::Condition`] if one does not hold.
    pub fn kv_update(&self, oid: Oid, updates: &[KvUpdate<'_>]) -> Result<(), StoreError> {
        self.kv_update_with(oid, updates, Batch::new())
    }

    /// As [`Store::kv_update`], with further writes in the same batch.
    ///
    /// # Errors
    /// [`StoreError::Condition`] if a condition does not hold.
    pub fn kv_update_with(
        &self,
        oid: Oid,
        updates: &[KvUpdate<'_>],
        extra: Batch,
    ) -> Result<(), StoreError> {
        let mut batch = extra;
        let _held = self.kv_stripe(oid).lock();
        for update in updates {
            let key = full_key(oid, update.dkey, update.akey);
            self.check(&key, update.condition)?;
            match update.op {
                KvOp::Put(value) => batch.put(Space::Kv, &key, value),
                KvOp::Punch => batch.delete(Space::Kv, &key),
            }
        }
        self.commit(batch)
    }

    fn check(&self, key: &[u8], condition: KvCondition<'_>) -> Result<(), StoreError> {
        if condition == KvCondition::None {
            return Ok(());
        }
        let value = self.get(Space::Kv, key)?;
        let holds = match condition {
            KvCondition::None => true,
            KvCondition::MustExist => value.is_some(),
            KvCondition::MustNotExist => value.is_none(),
            KvCondition::Equals(expected) => value.is_some_and(|value| *value == *expected),
        };
        if holds { Ok(()) } else { Err(StoreError::Condition { path: self.kv_dir().to_owned() }) }
    }

    /// The value under (object, dkey, akey).
    pub fn kv_get(&self, oid: Oid, dkey: &[u8], akey: &[u8]) -> Result<Option<Value>, StoreError> {
        self.get(Space::Kv, &full_key(oid, dkey, akey))
    }

    /// Removes all values under a dkey; gives their number. Not atomic: values go in bounded
    /// batches, in key order, and values put meanwhile may stay.
    pub fn kv_punch_dkey(&self, oid: Oid, dkey: &[u8]) -> Result<u64, StoreError> {
        self.punch_prefix(oid, &dkey_prefix(oid, dkey))
    }

    /// Removes all values of an object; gives their number. Not atomic, like
    /// [`Store::kv_punch_dkey`].
    pub fn kv_punch_object(&self, oid: Oid) -> Result<u64, StoreError> {
        self.punch_prefix(oid, &oid.to_bytes())
    }

    fn punch_prefix(&self, oid: Oid, prefix: &[u8]) -> Result<u64, StoreError> {
        let mut removed = 0;
        let mut after: Option<Vec<u8>> = None;
        loop {
            let held = self.kv_stripe(oid).lock();
            let mut batch = Batch::new();
            let mut last = None;
            self.scan_visit(Space::Kv, prefix, after.as_deref(), |key, _| {
                batch.delete(Space::Kv, key);
                last = Some(key.to_vec());
                if batch.len() < PUNCH_KEYS {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            })?;
            let count = batch.len();
            self.commit(batch)?;
            drop(held);
            removed += count as u64;
            if count < PUNCH_KEYS {
                return Ok(removed);
            }
            after = last;
        }
    }

    /// At most `limit` dkeys of an object that come after `after`, in order.
    pub fn kv_list_dkeys(
        &self,
        oid: Oid,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let object = oid.to_bytes();
        let mut dkeys: Vec<Vec<u8>> = Vec::new();
        // The key after which to go on: beyond every akey of the last dkey.
        let mut resume = after.map(|dkey| end_of_dkey(oid, dkey));
        while dkeys.len() < limit {
            let mut steps = 0;
            let mut damaged = false;
            let mut again = false;
            let from = resume.take();
            self.scan_visit(Space::Kv, &object, from.as_deref(), |key, _| {
                let Some((dkey, _)) = key.get(16..).and_then(split_dkey) else {
                    damaged = true;
                    return ControlFlow::Break(());
                };
                if dkeys.last().is_none_or(|last| *last != dkey) {
                    if dkeys.len() == limit {
                        return ControlFlow::Break(());
                    }
                    dkeys.push(dkey);
                    steps = 0;
                    return ControlFlow::Continue(());
                }
                steps += 1;
                again = steps > STEPS_MAX;
                if again { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            if damaged {
                let detail = format!("object {oid} has a key without a dkey");
                return Err(StoreError::Damaged { path: self.kv_dir().to_owned(), detail });
            }
            if !again {
                break;
            }
            resume = dkeys.last().map(|dkey| end_of_dkey(oid, dkey));
        }
        Ok(dkeys)
    }

    /// At most `limit` akeys under a dkey that come after `after`, in order.
    pub fn kv_list_akeys(
        &self,
        oid: Oid,
        dkey: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let prefix = dkey_prefix(oid, dkey);
        let mut akeys = Vec::new();
        if limit == 0 {
            return Ok(akeys);
        }
        let from = after.map(|akey| full_key(oid, dkey, akey));
        self.scan_visit(Space::Kv, &prefix, from.as_deref(), |key, _| {
            akeys.push(key[prefix.len()..].to_vec());
            if akeys.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(akeys)
    }
}

/// A key after all akeys of `dkey` and before the next dkey.
fn end_of_dkey(oid: Oid, dkey: &[u8]) -> Vec<u8> {
    let mut key = dkey_prefix(oid, dkey);
    // The end mark is `00 00`, and what follows a dkey that goes on with a zero byte is `00 ff`.
    if let Some(last) = key.last_mut() {
        *last = 1;
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stored values are found by these keys: a change loses every value of every pool.
    #[test]
    fn the_form_of_keys_never_changes() {
        let oid = Oid::from_bytes(b"\0\0\0\x07\0\0\0\0\x01\0\x02\0\0\0\0\x03").unwrap();
        let golden = b"\0\0\0\x07\0\0\0\0\x01\0\x02\0\0\0\0\x03d\0\xffk\0\0a\0";
        assert_eq!(full_key(oid, b"d\0k", b"a\0"), golden);
    }

    #[test]
    fn encoded_dkeys_keep_their_order_and_come_back() {
        let mut dkeys: Vec<&[u8]> = vec![
            b"", b"\0", b"\0\0", b"\0\x01", b"\0\xff", b"\x01", b"a", b"a\0", b"a\0b", b"ab",
            b"\xff",
        ];
        dkeys.sort_unstable();
        let encode = |dkey: &[u8]| {
            let mut key = Vec::new();
            push_dkey(&mut key, dkey);
            key
        };
        let mut last = Vec::new();
        for dkey in dkeys {
            let mut key = encode(dkey);
            assert!(key > last, "{dkey:?}");
            let length = key.len();
            last.clone_from(&key);
            key.extend_from_slice(b"\0akey\0");
            assert_eq!(split_dkey(&key), Some((dkey.to_vec(), length)));
        }
        assert_eq!(split_dkey(b"no end"), None);
        assert_eq!(split_dkey(b"bad\0\x07"), None);
    }
}
