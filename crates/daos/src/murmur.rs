//! `MurmurHash64A`, by Austin Appleby, who placed it in the public domain.

use std::ffi::c_uint;

const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
const SHIFT: u32 = 47;

fn murmur64(key: &[u8], seed: u32) -> u64 {
    let mut hash = u64::from(seed) ^ (key.len() as u64).wrapping_mul(MULTIPLIER);
    let (words, tail) = key.as_chunks::<8>();
    for word in words {
        let mut part = u64::from_le_bytes(*word).wrapping_mul(MULTIPLIER);
        part ^= part >> SHIFT;
        hash = (hash ^ part.wrapping_mul(MULTIPLIER)).wrapping_mul(MULTIPLIER);
    }
    if !tail.is_empty() {
        let mut last = [0; 8];
        last[..tail.len()].copy_from_slice(tail);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(MULTIPLIER);
    }
    hash ^= hash >> SHIFT;
    hash = hash.wrapping_mul(MULTIPLIER);
    hash ^ hash >> SHIFT
}

/// See `gurt/common.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn d_hash_murmur64(
    key: *const u8,
    bytes: c_uint,
    seed: c_uint,
) -> u64 {
    if key.is_null() || bytes == 0 {
        return murmur64(&[], seed);
    }
    // SAFETY: the caller's key of so many bytes, by the contract.
    murmur64(unsafe { std::slice::from_raw_parts(key, bytes as usize) }, seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_all_lengths_have_hashes_of_their_own() {
        assert_eq!(murmur64(b"", 0), 0);
        let mut seen = std::collections::HashSet::new();
        for length in 0..64 {
            for seed in 0..4 {
                let key = vec![b'x'; length];
                assert!(seen.insert(murmur64(&key, seed + 1)), "{length} {seed}");
            }
        }
        assert_ne!(murmur64(b"ab", 1), murmur64(b"ba", 1));
    }
}
