//! Shows what the store's calls cost on this machine: `cargo run --release --example store_speed
//! [directory] [inodes in thousands]`. Prints one line a call; asserts nothing.

use std::path::PathBuf;
use std::time::Instant;

use azekura_proto::{ContainerId, ObjectClass, Oid, PoolId, TargetId};
use rustix::time::{ClockId, clock_gettime};

use azekura_store::{Batch, Environment, Space, Store, StoreConfig, StoreError};

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

/// What this thread has spent of the processor, in nanoseconds.
fn thread_cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn create_batch(serial: u64) -> Batch {
    let key = entry_key(serial);
    let mut batch = Batch::new();
    batch.put(Space::Entry, &key, [7u8; 24]);
    batch.put(Space::Inode, &oid(serial).to_bytes(), [7u8; 100]);
    batch.put(Space::DirShard, &oid(1).to_bytes(), [7u8; 40]);
    batch.put(Space::Reply, &(serial % 64).to_be_bytes(), [7u8; 60]);
    batch
}

fn create_file(store: &Store, serial: u64) -> Result<(), StoreError> {
    if store.get(Space::Entry, &entry_key(serial))?.is_some() {
        return Ok(());
    }
    store.commit(create_batch(serial))
}

/// Commits of four items each: one after the other, or with `gap_us` between them, as requests
/// come. Says what they take by the clock, and what of the processor.
fn commits(store: &Store, first: u64, count: u64, gap_us: u64) -> Result<(), StoreError> {
    let (mut by_clock, mut by_cpu) = (Vec::new(), Vec::new());
    let mut build_ns = 0;
    let process_cpu_ns = || {
        let now = clock_gettime(ClockId::ProcessCPUTime);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    };
    let cpu_before = process_cpu_ns();
    for serial in first..first + count {
        let began = Instant::now();
        let batch = create_batch(serial);
        build_ns += began.elapsed().as_nanos() as u64;
        let cpu = thread_cpu_ns();
        let began = Instant::now();
        store.commit(batch)?;
        by_clock.push(began.elapsed().as_nanos() as u64);
        by_cpu.push(thread_cpu_ns() - cpu);
        let began = Instant::now();
        while began.elapsed().as_micros() < u128::from(gap_us) {
            std::hint::spin_loop();
        }
    }
    let all_ns = ((process_cpu_ns() - cpu_before) / count).saturating_sub(gap_us * 1000);
    println!("    with what follows in other threads, processor: mean {all_ns} ns");
    println!("commit of 4, {gap_us} us between, building {} ns", build_ns / count);
    for (what, mut ns) in [("clock", by_clock), ("processor", by_cpu)] {
        ns.sort_unstable();
        let mean = ns.iter().sum::<u64>() / count;
        let at = |share: usize| ns[(ns.len() * share / 100).min(ns.len() - 1)];
        let (median, p90, p99) = (at(50), at(90), at(99));
        println!("    {what:<12} median {median} ns, mean {mean}, 90% {p90}, 99% {p99}");
    }
    Ok(())
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
    Store::create(&Environment::system(), dir.path(), pool, TargetId(0))?;
    let store = Store::open(
        &Environment::system(),
        dir.path(),
        pool,
        TargetId(0),
        &StoreConfig::default(),
    )?;
    let count = thousands * 1000;
    commits(&store, 1 << 30, count, 0)?;
    commits(&store, 1 << 31, count.min(50_000), 20)?;
    if std::env::args().nth(3).is_some() {
        return Ok(());
    }
    key_values(&store, count)?;
    println!("{:<44} {:>9} MiB", "resident", resident_mib());
    shard_files(&store)?;
    println!("{:?}", store.space()?);
    Ok(())
}
