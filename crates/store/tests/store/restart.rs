//! What a killed process had committed is there afterwards, and of a batch all or nothing.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use azekura_store::{Batch, Environment, Space, Store};

use crate::fixture::{POOL, TARGET, get, oid, open};

const CHILD: &str = "AZEKURA_STORE_TEST_CHILD";
const PARTS: [Space; 4] = [Space::Entry, Space::Inode, Space::DirShard, Space::Reply];

/// Not a test of its own: what the killed process does.
#[test]
fn child_that_is_killed() {
    let Some(dir) = std::env::var_os(CHILD).map(PathBuf::from) else { return };
    let store = open(&dir);
    let start = committed(&store);
    for round in start + 1.. {
        let mut batch = Batch::new();
        for space in PARTS {
            batch.put(space, b"round", round.to_be_bytes());
            batch.put(space, &round.to_be_bytes(), vec![round as u8; 700]);
        }
        store.commit(batch).unwrap();
        store.shard_create(oid(1), 0).unwrap().write_at(&round.to_be_bytes(), 0).unwrap();
        if round == start + 3000 {
            println!("\nready");
        }
    }
}

fn committed(store: &Store) -> u64 {
    get(store, Space::Inode, b"round").map_or(0, |v| u64::from_be_bytes(v.try_into().unwrap()))
}

fn run_and_kill(dir: &Path) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["restart::child_that_is_killed", "--exact", "--nocapture"])
        .env(CHILD, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let ready = lines.map_while(Result::ok).any(|line| line == "ready");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(ready, "the child stopped by itself");
}

#[test]
fn commits_survive_a_kill_and_batches_stay_whole() {
    let dir = tempfile::tempdir().unwrap();
    Store::create(&Environment::system(), dir.path(), POOL, TARGET).unwrap();
    let mut last = 0;
    for _ in 0..4 {
        run_and_kill(dir.path());
        let store = open(dir.path());
        let round = committed(&store);
        assert!(round >= last + 3000, "{round} after {last}");
        last = round;
        for space in PARTS {
            assert_eq!(get(&store, space, b"round"), Some(round.to_be_bytes().to_vec()));
            for i in [1, round / 2, round - 1, round] {
                assert_eq!(get(&store, space, &i.to_be_bytes()), Some(vec![i as u8; 700]));
            }
            assert_eq!(get(&store, space, &(round + 1).to_be_bytes()), None);
        }
        let shard = store.shard(oid(1), 0).unwrap().unwrap();
        let mut written = [0; 8];
        assert_eq!(shard.read_at(&mut written, 0).unwrap(), 8);
        // Data come after the commit of their round, so they may lag by one.
        assert!((round - 1..=round).contains(&u64::from_be_bytes(written)));
    }
}

#[test]
fn a_torn_end_of_the_journal_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    Store::create(&Environment::system(), dir.path(), POOL, TARGET).unwrap();
    run_and_kill(dir.path());
    let newest = std::fs::read_dir(dir.path().join("kv"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "jnl"))
        .max()
        .unwrap();
    // The file ends in unwritten space: cut it within the last batch.
    let bytes = std::fs::read(&newest).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    std::fs::OpenOptions::new()
        .write(true)
        .open(&newest)
        .unwrap()
        .set_len(used as u64 - 500)
        .unwrap();
    let store = open(dir.path());
    let round = committed(&store);
    // The database takes batches in groups of at most 512, so a torn end costs at most one group, and
    // what waited behind it in the front journal, 4 MiB of rounds of 2100 bytes: what a machine crash
    // may do to batches that were not synced.
    assert!(round >= 3000 - 512 - 4 * 1024 * 1024 / 2100, "{round}");
    for space in PARTS {
        assert_eq!(get(&store, space, b"round"), Some(round.to_be_bytes().to_vec()));
        assert_eq!(get(&store, space, &(round + 1).to_be_bytes()), None);
    }
}
