//! Shows what the store's calls cost on this machine: `cargo run --release --example store_speed
//! [directory] [inodes in thousands]`. Prints one line a call; asserts nothing.

use std::path::PathBuf;
use std::time::Instant;

use azekura_proto::{ContainerId, ObjectClass, Oid, PoolId, TargetId};
use azekura_store::{Batch, Space, Store, StoreConfig, StoreError};

fn oid(serial: u64) -> Oid {
    Oid::new(ContainerId(1), ObjectClass::S1, TargetId(0), serial)
}

fn entry_key(serial: u64) -> Vec<u8> {
    let mut key = oid(1).to_bytes().to_vec();
    key.extend_from_slice(&serial.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key.extend_from_slice(format!("file.{serial}").as_bytes());
    key
}

fn report(what: &str, count: u64, began: Instant) {
    let ns = began.elapsed().as_nanos() as f64 / count as f64;
    println!("{what:<44} {:>9.3} us", ns / 1000.0);
}

fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn create_file(store: &Store, serial: u64) -> Result<(), StoreError> {
    let key = entry_key(serial);
    if store.get(Space::Entry, &key)?.is_some() {
        return Ok(());
    }
    let mut batch = Batch::new();
    batch.put(Space::Entry, &key, [7u8; 24]);
    batch.put(Space::Inode, &oid(serial).to_bytes(), [7u8; 100]);
    batch.put(Space::DirShard, &oid(1).to_bytes(), [7u8; 40]);
    batch.put(Space::Reply, &(serial % 64).to_be_bytes(), [7u8; 60]);
    store.commit(batch)
}

fn key_values(store: &Store, count: u64) -> Result<(), StoreError> {
    let began = Instant::now();
    let mut slowest_us = 0;
    for serial in 2..count + 2 {
        let one = Instant::now();
        create_file(store, serial)?;
        slowest_us = slowest_us.max(one.elapsed().as_micros());
    }
    report("get of nothing, commit of 4 (create)", count, began);
    println!("{:<44} {slowest_us:>9} us", "slowest of these");

    let hot = oid(count).to_bytes();
    let began = Instant::now();
    for _ in 0..1_000_000 {
        std::hint::black_box(store.get(Space::Inode, &hot)?);
    }
    report("get, hot", 1_000_000, began);

    let began = Instant::now();
    let random = 200_000;
    for i in 0..random {
        let serial = 2 + i * 0x9e37_79b9 % count;
        std::hint::black_box(store.get(Space::Inode, &oid(serial).to_bytes())?);
    }
    report("get, random", random, began);

    let began = Instant::now();
    let (mut seen, mut after) = (0u64, None);
    loop {
        let page = store.scan(Space::Entry, &oid(1).to_bytes(), after.as_deref(), 1000)?;
        seen += page.len() as u64;
        match page.into_iter().next_back() {
            Some((key, _)) => after = Some(key),
            None => break,
        }
    }
    report("scan, pages of 1000, an entry", seen, began);
    let began = Instant::now();
    store.sync()?;
    report("sync", 1, began);
    let began = Instant::now();
    for serial in 2..count + 2 {
        let mut batch = Batch::new();
        batch.delete(Space::Entry, &entry_key(serial));
        batch.delete(Space::Inode, &oid(serial).to_bytes());
        batch.put(Space::DirShard, &oid(1).to_bytes(), [7u8; 40]);
        store.commit(batch)?;
    }
    report("commit of 3 (remove)", count, began);
    Ok(())
}

fn shard_files(store: &Store) -> Result<(), StoreError> {
    let count = 20_000;
    let began = Instant::now();
    for serial in 0..count {
        store.shard_create(oid(serial), 0)?.write_at(&[1; 4096], 0)?;
    }
    report("create a shard, write 4 KiB", count, began);
    let file = store.shard_create(oid(1), 0)?;
    let mut buffer = [0; 4096];
    let began = Instant::now();
    for _ in 0..500_000 {
        std::hint::black_box(store.shard(oid(1), 0)?);
    }
    report("shard, open already", 500_000, began);
    let began = Instant::now();
    for _ in 0..500_000 {
        file.read_at(&mut buffer, 0)?;
    }
    report("read 4 KiB", 500_000, began);
    let began = Instant::now();
    for _ in 0..500_000 {
        file.write_at(&buffer, 0)?;
    }
    report("write 4 KiB", 500_000, began);
    let began = Instant::now();
    for serial in 0..count {
        store.shard_remove(oid(serial), 0)?;
    }
    report("remove a shard", count, began);
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let parent = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let thousands: u64 = arguments.next().map_or(Ok(300), |text| text.parse())?;
    let dir = tempfile::tempdir_in(parent)?;
    let pool = PoolId([1; 16]);
    Store::create(dir.path(), pool, TargetId(0))?;
    let store = Store::open(dir.path(), pool, TargetId(0), &StoreConfig::default())?;
    key_values(&store, thousands * 1000)?;
    println!("{:<44} {:>9} MiB", "resident", resident_mib());
    shard_files(&store)?;
    println!("{:?}", store.space()?);
    Ok(())
}
