//! A record of a target's front journal, as a torn write or a damaged disk may leave it: refused, or
//! whole. Half of the runs mend the checksum, so that what lies behind it is reached too.

#![no_main]
#![allow(dead_code, unreachable_pub, unused_imports, unfulfilled_lint_expectations)]

#[path = "../../crates/store/src/kv/record.rs"]
mod record;

/// Stands in for the store's list of key spaces, which would bring the whole database along.
mod space {
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Space {
        Known(u8),
    }

    impl Space {
        pub fn code(self) -> u8 {
            let Self::Known(code) = self;
            code
        }

        pub fn from_code(code: u8) -> Option<Self> {
            (code < 128).then_some(Self::Known(code))
        }
    }
}

use libfuzzer_sys::fuzz_target;
use record::{Changes, HEAD_BYTES, sealed_bytes};
use xxhash_rust::xxh3::xxh3_64;

fuzz_target!(|bytes: &[u8]| {
    let Some((mend, stored)) = bytes.split_first() else { return };
    let mut stored = stored.to_vec();
    if mend & 1 == 1 && stored.len() >= 8 {
        let checksum = xxh3_64(&stored[8..]);
        stored[..8].copy_from_slice(&checksum.to_le_bytes());
    }
    if let Some(head) = stored.first_chunk::<HEAD_BYTES>() {
        let _ = sealed_bytes(head, 1, 1);
    }
    let Some(mut changes) = Changes::unseal(stored) else { return };
    let mut again = Changes::default();
    for slot in changes.slots() {
        let key = changes.key(slot);
        assert_eq!(key[0], slot.space.code());
        if again.push(slot.space, &key[1..], changes.value(slot)).is_err() {
            return;
        }
    }
    assert_eq!(again.len(), changes.len());
    if !changes.is_empty() {
        assert_eq!(again.seal(7, 9), changes.seal(7, 9));
    }
});
