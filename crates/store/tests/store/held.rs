//! Commits that other targets rely on as durable before the database has made them so: they are in the journal
//! alone, and stay there as long as nothing else keeps them.

use std::path::Path;
use std::sync::Arc;

use azekura_proto::{Dependence, Dependences, TargetId};
use azekura_store::{Batch, Space, Store, StoreError, Unsettled, Witnesses};

use crate::fixture::{TARGET, get, put};
use crate::simulation::Simulated;

const SEEDS: u64 = 40;
/// More than the journal has room for.
const FILLED_BYTES: usize = 6 * 1024 * 1024;

fn last_own(store: &Store) -> Dependence {
    store.position().iter().find(|each| each.target == TARGET).copied().unwrap()
}

fn opened(seed: u64) -> (Simulated, Store) {
    let simulated = Simulated::new(seed);
    simulated.create().unwrap();
    let store = simulated.open().unwrap();
    (simulated, store)
}

/// Commits until the journal has gone round, or no more is taken.
fn fill(store: &Store) -> Result<(), StoreError> {
    for number in 0..(FILLED_BYTES / 50_000) as u64 {
        let mut batch = Batch::new();
        batch.put(Space::Entry, &number.to_be_bytes(), vec![number as u8; 50_000]);
        store.commit(batch)?;
        let _ = store.pass();
    }
    Ok(())
}

#[test]
fn what_others_rely_on_stays_in_the_journal_while_the_database_cannot_be_synced() {
    for seed in 0..SEEDS {
        let (simulated, store) = opened(seed);
        put(&store, Space::Inode, b"held", &vec![7; 100_000]);
        let held = last_own(&store);
        assert!(store.hold(held.epoch, held.seq).unwrap());
        simulated.disk.fail_syncs_of(Path::new("/pool/target/kv/log")).unwrap();
        // What is refused was not answered.
        assert!(fill(&store).is_err(), "seed {seed}: the journal has room for everything");
        assert!(store.sync().is_err());
        assert_eq!(get(&store, Space::Inode, b"held"), Some(vec![7; 100_000]));
        simulated.disk.cut_power();
        drop(store);
        let store = simulated.open().unwrap();
        let found = get(&store, Space::Inode, b"held").map(|value| value.len());
        assert_eq!(found, Some(100_000), "seed {seed}");
        assert!(store.hold(held.epoch, held.seq).unwrap());
    }
}

/// The other target, which has made everything durable.
struct Settled;

impl Witnesses for Settled {
    fn make_durable(&self, _: &Dependences) -> Result<(), Unsettled> {
        Ok(())
    }
}

#[test]
fn what_others_rely_on_is_kept_by_the_next_run_too() {
    let elsewhere = Dependence { target: TargetId(900), epoch: 5, seq: 7 };
    for seed in 0..SEEDS {
        let (simulated, store) = opened(seed);
        assert!(store.observe(&[elsewhere].into_iter().collect()));
        put(&store, Space::Inode, b"held", &vec![7; 100_000]);
        let held = last_own(&store);
        assert!(store.hold(held.epoch, held.seq).unwrap());
        simulated.disk.kill();
        drop(store);
        let store = simulated.open().unwrap();
        let witnesses: Arc<dyn Witnesses> = Arc::new(Settled);
        store.set_witnesses(Arc::downgrade(&witnesses));
        store.pass().unwrap();
        fill(&store).unwrap();
        simulated.disk.cut_power();
        drop(store);
        let store = simulated.open().unwrap();
        let found = get(&store, Space::Inode, b"held").map(|value| value.len());
        assert_eq!(found, Some(100_000), "seed {seed}");
    }
}
