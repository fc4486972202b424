//! A target that the first release made opens, with all that is in it: nobody's pool is lost.
//!
//! `old_target.bin` is target 0 of a pool of two, whose engine was killed: 60 small files were copied
//! into `/tree`, one was renamed and one removed. It holds the target's files one after the other:
//! length of the name (2 bytes), name, length (4), bytes. Zeros at the end of `kv-front` and most of the
//! shards' files were left out.

use std::path::Path;

use azekura_proto::{Oid, PoolId, TargetId};
use azekura_store::{Environment, FileStat, Space, Store, StoreConfig};
use xxhash_rust::xxh3::xxh3_64;

const PACKED: &[u8] = include_bytes!("old_target.bin");
const POOL: PoolId = PoolId(0x60eb_c0d5_4af0_fd03_0121_4ad3_8747_7ba4_u128.to_be_bytes());
const SPACES: [Space; 5] =
    [Space::System, Space::Entry, Space::Inode, Space::DirShard, Space::Reply];

fn unpack(dir: &Path) {
    for index in 0..256 {
        std::fs::create_dir_all(dir.join(format!("data/{index:02x}"))).unwrap();
    }
    for tree in 1..3 {
        std::fs::create_dir_all(dir.join(format!("kv/keyspaces/{tree}/tables"))).unwrap();
    }
    let mut rest = PACKED;
    let mut take = |bytes: usize| {
        let (taken, tail) = rest.split_at(bytes);
        rest = tail;
        (taken, tail.is_empty())
    };
    loop {
        let name_bytes = u16::from_le_bytes(take(2).0.try_into().unwrap());
        let name = std::str::from_utf8(take(name_bytes.into()).0).unwrap();
        let bytes = u32::from_le_bytes(take(4).0.try_into().unwrap());
        let (contents, is_last) = take(bytes as usize);
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, contents).unwrap();
        if is_last {
            return;
        }
    }
}

fn open(dir: &Path) -> Store {
    let config = StoreConfig::default();
    Store::open(&Environment::system(), dir, POOL, TargetId(0), &config).unwrap()
}

/// The number of records of each space, and a hash of all of them.
fn contents(store: &Store) -> (Vec<usize>, u64) {
    let (mut counts, mut all) = (Vec::new(), Vec::new());
    for space in SPACES {
        let records = store.scan(space, b"", None, usize::MAX).unwrap();
        counts.push(records.len());
        for (key, value) in records {
            all.extend_from_slice(&key);
            all.extend_from_slice(&value);
        }
    }
    (counts, xxh3_64(&all))
}

#[test]
fn a_target_of_the_first_release_opens_with_all_that_is_in_it() {
    let dir = tempfile::tempdir().unwrap();
    unpack(dir.path());
    for _ in 0..2 {
        let store = open(dir.path());
        assert_eq!(contents(&store), (vec![4, 30, 31, 2, 0], 9_797_272_142_654_427_838));
        let mut shards = Vec::new();
        let mut visit = |oid: Oid, shard: u16, stat: FileStat| {
            shards.push((oid.to_string(), shard, stat.bytes));
        };
        store.shard_list(&mut visit).unwrap();
        shards.sort();
        let shard = |serial| (format!("0000000100000000.3f000000000000{serial}"), 0, 17);
        assert_eq!(shards, ["12", "13", "14"].map(shard));
    }
}
