//! What a target has stored, as a damaged disk may give it back: records and keys decode or are
//! refused, and a bucket that decodes can be worked with. The records are private to their crate,
//! so their file is taken in here as it is.

#![no_main]
#![allow(dead_code, unreachable_pub, unused_imports)]

#[path = "../../crates/engine/src/records/record.rs"]
mod record;

use azekura_proto::frame;
use azekura_proto::message::DirShardStat;
use azekura_proto::transaction::Action;
use libfuzzer_sys::fuzz_target;
use record::{Bucket, Inode, Orphan, Reclaim, decode, encode};

fuzz_target!(|bytes: &[u8]| {
    let Some((which, stored)) = bytes.split_first() else { return };
    match which % 7 {
        0 => {
            if let Ok(inode) = decode::<Inode>(stored) {
                assert_eq!(decode::<Inode>(&encode(&inode)).as_ref(), Ok(&inode));
            }
        }
        1 => {
            if let Ok(mut bucket) = decode::<Bucket>(stored) {
                if let Some(slot) = bucket.slots.first().cloned() {
                    assert!(bucket.find(&slot.name).is_some());
                    let _ = bucket.insert(b"another", slot.entry);
                    bucket.remove(&slot.name);
                    assert!(bucket.find(&slot.name).is_none());
                }
            }
        }
        2 => drop(decode::<DirShardStat>(stored)),
        3 => drop((decode::<Orphan>(stored), decode::<Reclaim>(stored))),
        4 => drop(frame::decode::<Vec<Action>>(stored)),
        5 => {
            if let Some((dir, order)) = record::parse_bucket_key(stored) {
                assert_eq!(
                    record::parse_bucket_key(&record::bucket_key(dir, order)),
                    Some((dir, order))
                );
            }
        }
        _ => {
            if let Some(id) = record::parse_transaction_key(stored) {
                assert_eq!(record::parse_transaction_key(&record::prepared_key(id)), Some(id));
            }
        }
    }
});
