//! The cache in front of the database never shows a value that was replaced.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use azekura_store::{Batch, Space, StoreConfig};

use crate::fixture::{Fixture, get};

const KEYS: usize = 400;
const ROUNDS: u64 = 150;

fn number(value: &[u8]) -> u64 {
    u64::from_be_bytes(value[..8].try_into().unwrap())
}

/// One writer counts every key up; readers must never see a count below the last one that was
/// committed before they asked. The small cache makes keys leave and come back all the time.
#[test]
fn readers_never_go_back_in_time() {
    let small = StoreConfig { cache_bytes: 30_000, ..StoreConfig::default() };
    let target = Fixture::with(&small);
    let committed: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..3usize {
            let (target, committed, done) = (&target, &committed, &done);
            scope.spawn(move || {
                let mut i = reader;
                while !done.load(Ordering::Acquire) {
                    i = (i * 31 + 7) % KEYS;
                    let floor = committed[i].load(Ordering::Acquire);
                    let value = get(&target.store, Space::Inode, &i.to_be_bytes());
                    let seen = value.as_deref().map_or(0, number);
                    assert!(seen >= floor, "key {i}: {seen} after {floor}");
                }
            });
        }
        for round in 1..=ROUNDS {
            for (i, committed) in committed.iter().enumerate() {
                let mut batch = Batch::new();
                // Every seventh value is too large for the cache.
                let pad = if i % 7 == 0 { 20_000 } else { 24 };
                let mut value = vec![0; pad];
                value[..8].copy_from_slice(&round.to_be_bytes());
                batch.put(Space::Inode, &i.to_be_bytes(), value);
                target.store.commit(batch).unwrap();
                committed.store(round, Ordering::Release);
            }
        }
        done.store(true, Ordering::Release);
    });
}

/// Writers of the same keys at the same time: afterwards the cache says what the database says.
#[test]
fn after_racing_writers_the_cache_agrees_with_the_database() {
    let target = Fixture::new();
    std::thread::scope(|scope| {
        for writer in 0..4u64 {
            let target = &target;
            scope.spawn(move || {
                for round in 0..2000u64 {
                    let mut batch = Batch::new();
                    for key in [round % 5, round % 3, 7] {
                        if (round + writer).is_multiple_of(11) {
                            batch.delete(Space::Entry, &key.to_be_bytes());
                        } else {
                            let value = (writer << 32 | round).to_be_bytes();
                            batch.put(Space::Entry, &key.to_be_bytes(), value);
                        }
                    }
                    target.store.commit(batch).unwrap();
                    get(&target.store, Space::Entry, &(round % 5).to_be_bytes());
                }
            });
        }
    });
    let cached: Vec<_> =
        (0..8u64).map(|key| get(&target.store, Space::Entry, &key.to_be_bytes())).collect();
    let target = target.reopen();
    for (key, cached) in cached.into_iter().enumerate() {
        assert_eq!(get(&target.store, Space::Entry, &(key as u64).to_be_bytes()), cached);
    }
}
