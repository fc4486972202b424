//! Where things live: computed from ids and names alone, so that no server has to be asked. Owns
//! the hash of names. Changing anything here changes the on-disk and on-wire format.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::ids::{Oid, TargetId};

/// The target that holds shard `shard` of `oid` in a pool of `targets` targets. Shard 0 is at
/// home; the following shards take the following targets.
pub fn shard_target(oid: Oid, shard: u16, targets: u16) -> TargetId {
    TargetId(((u32::from(oid.home().0) + u32::from(shard)) % u32::from(targets.max(1))) as u16)
}

/// Which shard of `oid` lives on `target`; `None` if the object does not reach that target.
pub fn shard_on_target(oid: Oid, target: TargetId, targets: u16) -> Option<u16> {
    let targets = u32::from(targets.max(1));
    let shard = (u32::from(target.0) + targets - u32::from(oid.home().0) % targets) % targets;
    (shard < u32::from(oid.class().shards(targets as u16))).then_some(shard as u16)
}

/// The hash of an entry's name. Its upper bits order a shard of a directory (see
/// [`crate::message::DirCookie`]), its lower 16 bits choose the shard.
pub fn name_hash(name: &[u8]) -> u64 {
    xxh3_64_with_seed(name, 0x617a_656b_7572_6100)
}

/// The shard of directory `dir` that holds the entry `name`.
pub fn entry_shard(dir: Oid, name: &[u8], targets: u16) -> u16 {
    ((name_hash(name) & 0xffff) % u64::from(dir.class().shards(targets))) as u16
}

/// The target that holds the entry `name` of directory `dir`.
pub fn entry_target(dir: Oid, name: &[u8], targets: u16) -> TargetId {
    shard_target(dir, entry_shard(dir, name, targets), targets)
}

/// The target that holds the value under `dkey` of a key-value object.
pub fn dkey_target(oid: Oid, dkey: &[u8], targets: u16) -> TargetId {
    entry_target(oid, dkey, targets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::ObjectClass;
    use crate::ids::ContainerId;

    #[test]
    fn shards_and_targets_lead_to_each_other() {
        for targets in [1, 3, 4, 7, 16] {
            for class in ObjectClass::ALL {
                for home in 0..targets {
                    let oid = Oid::new(ContainerId(1), class, TargetId(home), 5);
                    for shard in 0..class.shards(targets) {
                        let target = shard_target(oid, shard, targets);
                        assert_eq!(shard_on_target(oid, target, targets), Some(shard));
                    }
                }
            }
        }
    }

    #[test]
    fn the_name_hash_never_changes() {
        // Stored entries are found by this value: a change loses every file of every pool.
        assert_eq!(name_hash(b"azekura"), name_hash(b"azekura"));
        assert_ne!(name_hash(b"a"), name_hash(b"b"));
    }

    #[test]
    fn names_spread_over_all_shards() {
        let dir = Oid::new(ContainerId(1), ObjectClass::SX, TargetId(0), 1);
        let mut counts = [0u32; 4];
        for i in 0..4000 {
            counts[usize::from(entry_shard(dir, format!("file.{i}").as_bytes(), 4))] += 1;
        }
        assert!(counts.iter().all(|&count| count > 850), "{counts:?}");
    }
}
