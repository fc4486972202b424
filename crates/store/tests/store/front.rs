//! Commits that the database does not have yet: many threads, and the end of the process.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use azekura_store::{Batch, Environment, Space, Store};

use crate::fixture::{Fixture, POOL, TARGET, get, oid, open};

const CHILD: &str = "AZEKURA_STORE_TEST_FRONT_CHILD";
const WRITERS: u64 = 4;
const KEYS: u64 = 50;

fn key(writer: u64, i: u64) -> Vec<u8> {
    [writer.to_be_bytes(), i.to_be_bytes()].concat()
}

fn number(value: &[u8]) -> u64 {
    u64::from_be_bytes(value.try_into().unwrap())
}

/// Commits round `round` of a writer: its counter, one key anew and another one gone.
fn commit_round(store: &Store, writer: u64, round: u64) {
    let mut batch = Batch::new();
    batch.put(Space::DirShard, &writer.to_be_bytes(), round.to_be_bytes());
    batch.put(Space::Entry, &key(writer, round % KEYS), round.to_be_bytes());
    batch.delete(Space::Entry, &key(writer, (round + KEYS / 2) % KEYS));
    // Now and then one that does not fit the journal.
    let pad = if round % 500 == 499 { 200_000 } else { 50 };
    batch.put(Space::Reply, &writer.to_be_bytes(), vec![round as u8; pad]);
    store.commit(batch).unwrap();
}

/// That a writer's records are those after one of its rounds; gives that round.
fn check_writer(store: &Store, writer: u64) -> u64 {
    let counter = get(store, Space::DirShard, &writer.to_be_bytes());
    let Some(round) = counter.as_deref().map(number) else { return 0 };
    let pad = if round % 500 == 499 { 200_000 } else { 50 };
    assert_eq!(get(store, Space::Reply, &writer.to_be_bytes()), Some(vec![round as u8; pad]));
    for i in 0..KEYS {
        // The youngest round that put this key, if it is younger than the one that removed it. Rounds
        // begin behind KEYS, and a writer may have had few of them.
        let age = (round + KEYS - i) % KEYS;
        let put = (age < KEYS / 2 && round - age > KEYS).then(|| round - age);
        assert_eq!(get(store, Space::Entry, &key(writer, i)).as_deref().map(number), put);
    }
    round
}

/// Not a test of its own: what the killed process does. Says in a shard what was answered.
#[test]
fn child_that_is_killed() {
    let Some(dir) = std::env::var_os(CHILD).map(PathBuf::from) else { return };
    let store = open(&dir);
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (store, done) = (&store, &done);
            scope.spawn(move || {
                let answered = store.shard_create(oid(writer), 0).unwrap();
                let start = check_writer(store, writer).max(KEYS);
                for round in start + 1.. {
                    commit_round(store, writer, round);
                    answered.write_at(&round.to_be_bytes(), 0).unwrap();
                    if done.fetch_add(1, Ordering::Relaxed) == 6000 {
                        println!("\nready");
                    }
                }
            });
        }
    });
}

#[test]
fn whatever_was_answered_survives_a_kill_under_many_writers() {
    use std::io::{BufRead, BufReader};
    let dir = tempfile::tempdir().unwrap();
    Store::create(&Environment::system(), dir.path(), POOL, TARGET).unwrap();
    for _ in 0..4 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["front::child_that_is_killed", "--exact", "--nocapture"])
            .env(CHILD, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines.map_while(Result::ok).any(|line| line == "ready");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(ready, "the child stopped by itself");
        let store = open(dir.path());
        for writer in 0..WRITERS {
            let round = check_writer(&store, writer);
            let mut answered = [0; 8];
            store.shard(oid(writer), 0).unwrap().unwrap().read_at(&mut answered, 0).unwrap();
            let answered = u64::from_be_bytes(answered);
            assert!((answered..=answered + 1).contains(&round), "{round}, answered {answered}");
        }
    }
}

/// Every answered commit is seen at once by gets and by scans, from every thread.
#[test]
fn answered_commits_are_seen_at_once() {
    let target = Fixture::new();
    let answered: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (store, answered) = (&target.store, &answered);
            scope.spawn(move || {
                for round in KEYS + 1..KEYS + 2000 {
                    commit_round(store, writer, round);
                    answered[writer as usize].store(round, Ordering::Release);
                    if round % 64 == 0 {
                        let other = (writer + 1) % WRITERS;
                        let floor = answered[other as usize].load(Ordering::Acquire);
                        let key = other.to_be_bytes();
                        let seen = get(store, Space::DirShard, &key).as_deref().map_or(0, number);
                        assert!(seen >= floor, "{seen} after {floor}");
                        let page = store.scan(Space::DirShard, &key, None, 1).unwrap();
                        let listed = page.first().map_or(0, |(_, value)| number(value));
                        assert!(listed >= seen, "{listed} after {seen}");
                    }
                }
            });
        }
    });
    let target = target.reopen();
    for writer in 0..WRITERS {
        assert_eq!(check_writer(&target.store, writer), KEYS + 1999);
    }
}
