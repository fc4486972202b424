//! Where things live: computed from ids and names alone, so that no server has to be asked. Owns
//! the hash of names. Changing anything here changes the on-disk and on-wire format.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::ids::{Oid, TargetId};
use crate::pool_map::PoolMap;

/// The hash of an entry's name. Its upper bits order a shard of a directory (see
/// [`crate::message::DirCookie`]), its lower 16 bits choose the shard.
pub fn name_hash(name: &[u8]) -> u64 {
    xxh3_64_with_seed(name, 0x617a_656b_7572_6100)
}

/// Where objects lie in a pool, under one version of its map. Whoever has to know the target of a shard
/// asks here; nobody else computes with numbers of targets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    targets: u16,
}

impl Placement {
    /// The placement that a map gives.
    pub fn of(map: &PoolMap) -> Self {
        Self { targets: map.target_count().max(1) }
    }

    /// Over how many shards an object is spread.
    pub fn shards(self, oid: Oid) -> u16 {
        oid.class().shards(self.targets)
    }

    /// The target that holds a shard of an object. Shard 0 is at home; the following shards take the
    /// following targets.
    pub fn shard_target(self, oid: Oid, shard: u16) -> TargetId {
        let place = u32::from(oid.home().0) + u32::from(shard);
        TargetId((place % u32::from(self.targets)) as u16)
    }

    /// Which shard of an object lies on a target; `None` if the object does not reach it.
    pub fn shard_on_target(self, oid: Oid, target: TargetId) -> Option<u16> {
        let targets = u32::from(self.targets);
        let shard = (u32::from(target.0) + targets - u32::from(oid.home().0) % targets) % targets;
        (shard < u32::from(self.shards(oid))).then_some(shard as u16)
    }

    /// The shard of a directory that holds an entry.
    pub(crate) fn entry_shard(self, dir: Oid, name: &[u8]) -> u16 {
        ((name_hash(name) & 0xffff) % u64::from(self.shards(dir))) as u16
    }

    /// The target that holds an entry of a directory.
    pub fn entry_target(self, dir: Oid, name: &[u8]) -> TargetId {
        self.shard_target(dir, self.entry_shard(dir, name))
    }

    /// The target that holds the values under a dkey of a key-value object.
    pub fn dkey_target(self, oid: Oid, dkey: &[u8]) -> TargetId {
        self.entry_target(oid, dkey)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::ObjectClass;
    use crate::ids::{ContainerId, PoolId};
    use crate::pool_map::EngineEntry;

    fn placement(targets: u16) -> Placement {
        let engines = vec![EngineEntry { addresses: Vec::new() }];
        Placement::of(&PoolMap::deal(PoolId([1; 16]), "p".to_owned(), engines, &[targets]))
    }

    #[test]
    fn shards_and_targets_lead_to_each_other() {
        for targets in [1, 3, 4, 7, 16] {
            for class in ObjectClass::ALL {
                for home in 0..targets {
                    let oid = Oid::new(ContainerId(1), class, TargetId(home), 5);
                    let placement = placement(targets);
                    for shard in 0..placement.shards(oid) {
                        let target = placement.shard_target(oid, shard);
                        assert_eq!(placement.shard_on_target(oid, target), Some(shard));
                    }
                }
            }
        }
    }

    /// Stored entries are found by these values: a change loses every file of every pool.
    #[test]
    fn the_name_hash_never_changes() {
        let long = "n".repeat(255);
        let golden: [(&[u8], u64); 6] = [
            (b"", 0x6f18_a1fd_40b2_d185),
            (b"a", 0x5742_0edc_818a_ce54),
            (b"azekura", 0x9298_227f_6d65_9fc2),
            (b"file.0001.dat", 0x676f_b47e_b1ff_7a08),
            (b"a name of more than sixteen bytes", 0xb491_39d1_38a8_abd2),
            (long.as_bytes(), 0x011d_bf5a_1d03_0abd),
        ];
        for (name, hash) in golden {
            assert_eq!(name_hash(name), hash, "{}", name.escape_ascii());
        }
    }

    /// Entries are looked for on these targets: a change loses them as well.
    #[test]
    fn the_place_of_an_entry_never_changes() {
        let dir = Oid::new(ContainerId(7), ObjectClass::SX, TargetId(5), 9);
        let placement = placement(7);
        for (name, shard, target) in [("a", 5, 3), ("azekura", 4, 2), ("file.0001.dat", 6, 4)] {
            assert_eq!(placement.entry_shard(dir, name.as_bytes()), shard, "{name}");
            assert_eq!(placement.entry_target(dir, name.as_bytes()), TargetId(target), "{name}");
        }
    }

    #[test]
    fn names_spread_over_all_shards() {
        let dir = Oid::new(ContainerId(1), ObjectClass::SX, TargetId(0), 1);
        let placement = placement(4);
        let mut counts = [0u32; 4];
        for i in 0..4000 {
            counts[usize::from(placement.entry_shard(dir, format!("file.{i}").as_bytes()))] += 1;
        }
        assert!(counts.iter().all(|&count| count > 850), "{counts:?}");
    }
}
