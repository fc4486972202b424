//! Open files whose engine is on the same host are read past it: nobody sees a difference but in speed.

#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

use std::time::{Duration, Instant};

use azekura_posix::{
    Allocation, CachePolicy, Credentials, Errno, File, FileSystem, FsConfig, Lock, LockKind,
    LockMode, Namespace, OFlags, OpenOptions,
};
use azekura_proto::attr::Inheritance;
use azekura_proto::message::ShardRef;
use azekura_proto::message::typed::{LeaseWrite, ReleaseWrite};
use azekura_proto::{ObjectClass, Oid};
use azekura_testkit::Cluster;

const BLOCK: usize = 4096;

fn cluster(inheritance: Inheritance) -> Cluster {
    Cluster::start_near_and_far(1, 4, inheritance)
}

fn narrow() -> Inheritance {
    Inheritance { file_class: ObjectClass::S1, ..Inheritance::default() }
}

/// Files whose chunks are small, so that they have many shards.
fn striped() -> Inheritance {
    Inheritance { chunk_bytes: 4096, ..Inheritance::default() }
}

fn client(cluster: &Cluster, descriptors: bool) -> Namespace {
    let config = FsConfig { cache: CachePolicy::None, descriptors, ..FsConfig::default() };
    let fs = FileSystem::mount(cluster.pool(), "default", config).unwrap();
    Namespace::new(fs, Credentials::ROOT)
}

fn bytes(count: usize, seed: u32) -> Vec<u8> {
    (0..count as u32)
        .map(|at| (at.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 13) as u8)
        .collect()
}

/// What a read at an offset gives.
fn read(file: &File, offset: u64, count: usize) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0xee; count];
    let got = file.read_at(&mut buffer, offset)?;
    buffer.truncate(got);
    Ok(buffer)
}

/// Reads until the file is read past the engine.
fn warm_up(file: &File) {
    for _ in 0..3 {
        read(file, 0, 16).unwrap();
    }
}

/// The same file by both ways, which agree wherever one looks.
struct Both {
    past: File,
    by_requests: File,
}

impl Both {
    fn open(cluster: &Cluster, path: &str) -> Self {
        let open = |descriptors| {
            client(cluster, descriptors).open(path, &OpenOptions::read_only()).unwrap()
        };
        Self { past: open(true), by_requests: open(false) }
    }

    fn check(&self, up_to: u64) {
        for count in [1, 100, BLOCK, 3 * BLOCK, 70_000] {
            let step = (up_to / 13).max(1) as usize;
            for offset in (0..=up_to).step_by(step) {
                let (past, asked) =
                    (read(&self.past, offset, count), read(&self.by_requests, offset, count));
                assert!(past == asked, "{count} bytes at {offset}");
            }
        }
    }
}

#[test]
fn reads_stay_on_this_host_and_give_the_same() {
    for inheritance in [narrow(), Inheritance::default(), striped()] {
        let cluster = cluster(inheritance);
        let content = bytes(3_000_000, 1);
        client(&cluster, true).write("/file", &content).unwrap();
        let file = client(&cluster, true).open("/file", &OpenOptions::read_only()).unwrap();
        for offset in 0..3 {
            // Every shard that there is.
            assert!(
                read(&file, offset, 2_900_000).unwrap() == content[offset as usize..][..2_900_000]
            );
        }
        let (asked, passed) = (cluster.count("read"), cluster.count("shard_descriptor"));
        assert!(passed > 0);
        for turn in 0..1000_usize {
            let offset = turn * 7919 % 2_900_000;
            assert!(read(&file, offset as u64, BLOCK).unwrap() == content[offset..offset + BLOCK]);
        }
        assert_eq!(cluster.count("read"), asked);
        assert_eq!(cluster.count("shard_descriptor"), passed);
        // The end is the engine's to tell.
        assert_eq!(read(&file, 2_999_990, 100).unwrap().len(), 10);
        assert!(cluster.count("read") > asked);
        let both = Both::open(&cluster, "/file");
        warm_up(&both.past);
        both.check(3_100_000);
    }
}

#[test]
fn whatever_others_do_to_a_file_is_seen_at_once() {
    for inheritance in [narrow(), Inheritance::default(), striped()] {
        let cluster = cluster(inheritance);
        let other = client(&cluster, true);
        let chunk = u64::from(inheritance.chunk_bytes);
        let written = other.open("/file", &OpenOptions::create()).unwrap();
        written.write_all_at(&bytes(100_000, 1), 0).unwrap();
        let both = Both::open(&cluster, "/file");
        warm_up(&both.past);
        both.check(120_000);
        let again = |what: &str| {
            let asked = cluster.count("shard_descriptor");
            both.check(150_000);
            assert!(cluster.count("shard_descriptor") >= asked, "{what}");
        };
        written.write_all_at(&bytes(5000, 2), 1000).unwrap();
        assert!(read(&both.past, 1000, 5000).unwrap() == bytes(5000, 2));
        again("written");
        written.set_len(40_001).unwrap();
        assert_eq!(read(&both.past, 40_000, 100).unwrap().len(), 1);
        again("cut");
        written.set_len(90_000).unwrap();
        assert!(read(&both.past, 50_000, 100).unwrap() == [0; 100]);
        again("longer");
        written.allocate(8192, 8192, Allocation::PunchHole).unwrap();
        assert!(read(&both.past, 9000, 100).unwrap() == [0; 100]);
        again("a hole");
        written.append(&bytes(30_000, 3)).unwrap();
        assert!(read(&both.past, 90_000, 30_000).unwrap() == bytes(30_000, 3));
        again("appended");
        // Striped from now on, if it may be, with holes behind the ends of shards.
        written.write_all_at(b"far away", 5 * chunk + 17).unwrap();
        assert!(read(&both.past, 5 * chunk + 17, 8).unwrap() == b"far away");
        let hole = chunk.max(120_000) + 4096;
        let zeros = read(&both.past, hole, 64).unwrap();
        assert!(zeros.iter().all(|byte| *byte == 0));
        both.check(6 * chunk + 100);
        // Its name goes, and it stays as it is.
        other.remove_file("/file").unwrap();
        both.check(6 * chunk + 100);
        written.write_all_at(b"nameless", 0).unwrap();
        assert!(read(&both.past, 0, 8).unwrap() == b"nameless");
    }
}

#[test]
fn who_may_not_read_does_not() {
    let cluster = cluster(narrow());
    let client = client(&cluster, true);
    client.write("/file", &bytes(100_000, 1)).unwrap();
    let flags = OFlags::WRONLY;
    let file = client.open("/file", &OpenOptions::new(flags, 0)).unwrap();
    for _ in 0..5 {
        assert_eq!(read(&file, 0, 10), Err(Errno::BADF));
    }
    assert_eq!(cluster.count("shard_descriptor"), 0);
    // Nor is anything asked for that is read once, or by whoever wants none, or is far.
    client.read("/file").unwrap();
    let off = self::client(&cluster, false).open("/file", &OpenOptions::read_only()).unwrap();
    let fs = FileSystem::mount(cluster.far_pool(), "default", FsConfig::default()).unwrap();
    let far = Namespace::new(fs, Credentials::ROOT);
    let far = far.open("/file", &OpenOptions::read_only()).unwrap();
    for file in [&off, &far] {
        for _ in 0..10 {
            assert!(read(file, 10, BLOCK).unwrap() == bytes(100_000, 1)[10..10 + BLOCK]);
        }
    }
    assert_eq!(cluster.count("shard_descriptor"), 0);
}

#[test]
fn a_file_that_is_locked_is_read_by_requests() {
    let cluster = cluster(narrow());
    let client = client(&cluster, true);
    client.write("/file", &bytes(100_000, 1)).unwrap();
    let file = client.open("/file", &OpenOptions::read_only()).unwrap();
    warm_up(&file);
    let asked = cluster.count("read");
    read(&file, 0, 100).unwrap();
    assert_eq!(cluster.count("read"), asked);
    // So that an engine that was started again hears of the lock in time.
    let (kind, mode) = (LockKind::Range, LockMode::Shared);
    let lock = Lock { kind, owner: 1, pid: 1, mode, start: 0, end: u64::MAX };
    let (fs, oid) = (file.filesystem(), file.handle().oid());
    fs.lock(oid, lock, false, &|| false).unwrap();
    read(&file, 0, 100).unwrap();
    assert_eq!(cluster.count("read"), asked + 1);
    fs.unlock(oid, lock).unwrap();
    read(&file, 0, 100).unwrap();
    assert_eq!(cluster.count("read"), asked + 1);
}

#[test]
fn reads_go_on_while_the_engine_is_away_and_see_what_the_next_run_writes() {
    let mut cluster = cluster(narrow());
    let content = bytes(100_000, 1);
    client(&cluster, true).write("/file", &content).unwrap();
    let file = client(&cluster, true).open("/file", &OpenOptions::read_only()).unwrap();
    warm_up(&file);
    cluster.stop(0);
    let begun = Instant::now();
    for offset in 0..100 {
        assert!(read(&file, offset as u64, 5000).unwrap() == content[offset..offset + 5000]);
    }
    assert!(begun.elapsed() < Duration::from_secs(1));
    cluster.restart(0);
    let other = client(&cluster, true).open("/file", &OpenOptions::new(OFlags::RDWR, 0)).unwrap();
    other.write_all_at(b"after it", 77).unwrap();
    assert!(read(&file, 77, 8).unwrap() == b"after it");
    assert_eq!(cluster.count("read"), 0);
    // What needs the engine finds it again, and what is opened there is read past it as before.
    assert_eq!(file.len().unwrap(), 100_000);
    let again = client(&cluster, true).open("/file", &OpenOptions::read_only()).unwrap();
    warm_up(&again);
    assert_eq!(cluster.count("shard_descriptor"), 1);
}

#[test]
fn a_far_client_writes_early_only_while_nobody_reads_past_the_engine() {
    let cluster = cluster(narrow());
    let client = client(&cluster, true);
    client.write("/file", &bytes(100_000, 1)).unwrap();
    let file = client.open("/file", &OpenOptions::read_only()).unwrap();
    warm_up(&file);
    let oid: Oid = file.handle().oid();
    let data = ShardRef { oid, shard: 0, is_file: true };
    let far = cluster.far_pool();
    let lease = || {
        let leased = far.call(oid.home(), LeaseWrite { data, instead_of: None }).unwrap();
        (leased.lease_ms > 0).then_some(leased.version)
    };
    assert_eq!(lease(), None);
    file.close().unwrap();
    let epoch = lease().unwrap();
    // Now the reader waits, once, until it is given back; then it is as before.
    let again = client.open("/file", &OpenOptions::read_only()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            far.call(oid.home(), ReleaseWrite { data, epoch }).unwrap();
        });
        warm_up(&again);
    });
    let asked = cluster.count("read");
    read(&again, 0, 100).unwrap();
    assert_eq!(cluster.count("read"), asked);
    assert_eq!(lease(), None);
}
