//! A pool map from a peer: a map that passes its check never sends anybody out of its lists.

#![no_main]

use azekura_proto::frame::decode;
use azekura_proto::{ContainerId, EngineId, ObjectClass, Oid, Placement, PoolMap, TargetId};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(map) = decode::<PoolMap>(bytes) else { return };
    if map.validate().is_err() {
        return;
    }
    let (targets, placement) = (map.target_count(), Placement::of(&map));
    for class in ObjectClass::ALL {
        let oid = Oid::new(ContainerId(1), class, TargetId(targets - 1), 1);
        for shard in 0..placement.shards(oid).min(64) {
            let target = placement.shard_target(oid, shard);
            assert_eq!(placement.shard_on_target(oid, target), Some(shard));
            assert!(map.engine_of(target).is_some());
        }
        assert!(map.engine_of(placement.entry_target(oid, map.name.as_bytes())).is_some());
    }
    let listed: usize =
        (0..map.engines.len()).map(|engine| map.targets_of(EngineId(engine as u16)).count()).sum();
    assert_eq!(listed, map.targets.len());
});
