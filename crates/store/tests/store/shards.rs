//! Array data in shard files.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use azekura_proto::Timestamp;
use azekura_store::{ShardFile, StoreConfig};

use crate::fixture::{Fixture, oid};

fn contents(file: &ShardFile) -> Vec<u8> {
    let mut buffer = vec![0xee; file.stat().unwrap().bytes as usize + 10];
    let bytes = file.read_at(&mut buffer, 0).unwrap();
    buffer.truncate(bytes);
    buffer
}

#[test]
fn a_shard_is_there_from_creation_to_removal() {
    let target = Fixture::new();
    let store = &target.store;
    assert!(store.shard(oid(1), 0).unwrap().is_none());
    assert!(store.shard_stat(oid(1), 0).unwrap().is_none());
    assert!(!store.shard_remove(oid(1), 0).unwrap());
    let file = store.shard_create(oid(1), 0).unwrap();
    file.write_at(b"hello", 3).unwrap();
    assert_eq!(contents(&store.shard_create(oid(1), 0).unwrap()), b"\0\0\0hello");
    assert_eq!(contents(&store.shard(oid(1), 0).unwrap().unwrap()), b"\0\0\0hello");
    assert_eq!(store.shard_stat(oid(1), 0).unwrap(), Some(file.stat().unwrap()));
    assert!(store.shard(oid(1), 1).unwrap().is_none());
    assert!(store.shard_remove(oid(1), 0).unwrap());
    assert!(store.shard(oid(1), 0).unwrap().is_none());
    assert!(store.shard_stat(oid(1), 0).unwrap().is_none());
    // Who still has the file has the old one; a new one begins empty.
    assert_eq!(contents(&file), b"\0\0\0hello");
    assert_eq!(contents(&store.shard_create(oid(1), 0).unwrap()), b"");
}

#[test]
fn shards_survive_a_reopening_and_are_listed() {
    let target = Fixture::new();
    for serial in 0..300 {
        let file = target.store.shard_create(oid(serial), (serial % 3) as u16).unwrap();
        file.write_at(&vec![1; serial as usize], 0).unwrap();
    }
    std::fs::write(target.dir.path().join("data/00/stray"), "x").unwrap();
    let target = target.reopen();
    let mut listed = BTreeMap::new();
    target
        .store
        .shard_list(&mut |oid, shard, stat| {
            assert!(listed.insert(oid, (shard, stat.bytes)).is_none());
        })
        .unwrap();
    assert_eq!(listed.len(), 300);
    for serial in 0..300 {
        assert_eq!(listed[&oid(serial)], ((serial % 3) as u16, serial));
    }
}

#[test]
fn few_open_files_are_enough_for_many_shards() {
    let target = Fixture::with(&StoreConfig { open_files_max: 1, ..StoreConfig::default() });
    let held: Vec<Arc<ShardFile>> =
        (0..200).map(|serial| target.store.shard_create(oid(serial), 0).unwrap()).collect();
    // A shard in use is never opened a second time.
    for (serial, file) in held.iter().enumerate() {
        let again = target.store.shard(oid(serial as u64), 0).unwrap().unwrap();
        assert!(Arc::ptr_eq(file, &again));
    }
    drop(held);
    for serial in 0..2000 {
        let file = target.store.shard_create(oid(serial), 0).unwrap();
        file.write_at(&serial.to_be_bytes(), 0).unwrap();
    }
    let open = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
        .filter(|path| path.starts_with(target.dir.path().join("data")))
        .count();
    assert!(open < 300, "{open}");
    for serial in 0..2000 {
        let file = target.store.shard(oid(serial), 0).unwrap().unwrap();
        assert_eq!(contents(&file), serial.to_be_bytes());
    }
}

#[test]
fn racing_creation_and_removal_leave_one_file_or_none() {
    let target = Fixture::with(&StoreConfig { open_files_max: 1, ..StoreConfig::default() });
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let target = &target;
            scope.spawn(move || {
                for round in 0..500u64 {
                    let oid = oid((round + thread) % 3);
                    if (round + thread).is_multiple_of(4) {
                        target.store.shard_remove(oid, 0).unwrap();
                    } else {
                        target.store.shard_create(oid, 0).unwrap().write_at(b"x", 0).unwrap();
                        target.store.shard(oid, 0).unwrap();
                    }
                }
            });
        }
    });
    for serial in 0..3 {
        let file = target.store.shard_create(oid(serial), 0).unwrap();
        file.write_at(b"last", 0).unwrap();
        let path = target.dir.path().join(format!("data/{serial:02x}/{}.0", oid(serial)));
        assert_eq!(std::fs::read(path).unwrap(), b"last");
    }
}

const BLOCK: u64 = 65_536;

#[test]
fn space_is_taken_given_back_and_zeroed() {
    let target = Fixture::new();
    let file = target.store.shard_create(oid(1), 0).unwrap();
    let data = vec![7u8; 4 * BLOCK as usize];
    file.write_at(&data, 0).unwrap();

    file.punch_hole(BLOCK, BLOCK).unwrap();
    assert_eq!(file.stat().unwrap().bytes, 4 * BLOCK);
    assert_eq!(file.seek_hole(0).unwrap(), Some(BLOCK));
    assert_eq!(file.seek_data(BLOCK).unwrap(), Some(2 * BLOCK));

    file.zero_range(2 * BLOCK + 5, 10, true).unwrap();
    file.zero_range(4 * BLOCK - 3, 1000, true).unwrap();
    assert_eq!(file.stat().unwrap().bytes, 4 * BLOCK);
    file.zero_range(4 * BLOCK - 5, 1000, false).unwrap();
    assert_eq!(file.stat().unwrap().bytes, 4 * BLOCK + 995);

    let mut expected = data;
    expected[BLOCK as usize..2 * BLOCK as usize].fill(0);
    expected[2 * BLOCK as usize + 5..][..10].fill(0);
    expected[4 * BLOCK as usize - 5..].fill(0);
    expected.resize(4 * BLOCK as usize + 995, 0);
    assert!(contents(&file) == expected);

    file.truncate(0).unwrap();
    file.allocate(0, BLOCK, true).unwrap();
    let stat = file.stat().unwrap();
    assert_eq!(stat.bytes, 0);
    assert!(stat.blocks_512 >= BLOCK / 512);
    file.allocate(BLOCK, BLOCK, false).unwrap();
    assert_eq!(file.stat().unwrap().bytes, 2 * BLOCK);
    assert_eq!(file.seek_data(5 * BLOCK).unwrap(), None);
    assert_eq!(file.seek_hole(5 * BLOCK).unwrap(), None);
}

#[test]
fn truncating_changes_the_time_also_at_the_same_length() {
    let target = Fixture::new();
    let file = target.store.shard_create(oid(1), 0).unwrap();
    file.write_at(b"12345678", 0).unwrap();
    let old = Timestamp { secs: 1_000_000_000, nanos: 123_456_789 };
    for bytes in [8, 3, 30] {
        file.set_mtime(old).unwrap();
        assert_eq!(file.stat().unwrap().mtime, old);
        file.truncate(bytes).unwrap();
        let stat = file.stat().unwrap();
        assert_eq!(stat.bytes, bytes);
        assert!(stat.mtime > old);
    }
    file.set_mtime(Timestamp { secs: -5, nanos: 1 }).unwrap();
    assert_eq!(file.stat().unwrap().mtime.secs, -5);
    assert!(file.stat().unwrap().ctime.secs > 1_000_000_000);
}

#[test]
fn syncs_of_data_and_key_values_go_through() {
    let target = Fixture::new();
    let file = target.store.shard_create(oid(1), 0).unwrap();
    file.write_at(b"x", 0).unwrap();
    std::thread::scope(|scope| {
        for i in 0..8u8 {
            let (target, file) = (&target, &file);
            scope.spawn(move || {
                crate::fixture::put(&target.store, azekura_store::Space::Inode, &[i], b"1");
                target.store.sync().unwrap();
                file.sync(i.is_multiple_of(2)).unwrap();
            });
        }
    });
    target.store.sync().unwrap();
    // Not a promise about time: only that a sync of nothing new does not hang.
    std::thread::sleep(Duration::from_millis(1));
    file.sync(true).unwrap();
}

#[test]
fn writes_beyond_what_a_file_may_have_are_refused() {
    let target = Fixture::new();
    let file = target.store.shard_create(oid(1), 0).unwrap();
    assert!(file.write_at(b"x", u64::MAX - 1).is_err());
    assert!(file.write_at(b"x", i64::MAX as u64).is_err());
    assert!(file.truncate(u64::MAX).is_err());
    assert_eq!(file.stat().unwrap().bytes, 0);
}
