//! Engines that go and come back: what waits, what fails, and what a session keeps.

#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use azekura_client::{ClientConfig, ClientError, Objects as _, Pool};
use azekura_posix::{
    CachePolicy, Credentials, Errno, FileSystem, FsConfig, Lock, LockKind, LockMode, Namespace,
    OFlags, OpenOptions,
};
use azekura_proto::attr::Inheritance;
use azekura_proto::message::typed::Ping;
use azekura_proto::{ObjectClass, TargetId};
use azekura_testkit::Cluster;

fn narrow_on_one_target() -> Inheritance {
    Inheritance { file_class: ObjectClass::S1, ..Inheritance::default() }
}

fn impatient(cluster: &Cluster, request_timeout: Duration) -> Namespace {
    let pool =
        Pool::connect(cluster.file(), ClientConfig { request_timeout, ..ClientConfig::default() })
            .unwrap();
    let config =
        FsConfig { cache: CachePolicy::None, check_permissions: true, ..FsConfig::default() };
    Namespace::new(FileSystem::mount(pool, "default", config).unwrap(), Credentials::ROOT)
}

fn whole(owner: u64) -> Lock {
    let (kind, mode) = (LockKind::Whole, LockMode::Exclusive);
    Lock { kind, owner, pid: 1, mode, start: 0, end: u64::MAX }
}

#[test]
fn open_files_and_locks_outlive_a_restart() {
    let mut cluster = Cluster::start(1, 2, narrow_on_one_target());
    let (one, other) = (cluster.root(), cluster.root());
    one.write("/file", b"content").unwrap();
    let file = one.open("/file", &OpenOptions::new(OFlags::RDWR, 0)).unwrap();
    let oid = file.handle().oid();
    one.filesystem().lock(oid, whole(5), false, &|| false).unwrap();
    other.remove_file("/file").unwrap();
    cluster.restart(0);
    let mut buffer = [0; 7];
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 7);
    assert_eq!(&buffer, b"content");
    file.write_all_at(b"more", 7).unwrap();
    assert_eq!(file.len().unwrap(), 11);
    // The lock was claimed again before anything else was asked.
    let denied = other.filesystem().lock(oid, whole(5), false, &|| false);
    assert_eq!(denied, Err(Errno::AGAIN));
    one.filesystem().unlock_owner(oid, LockKind::Whole, 5).unwrap();
    other.filesystem().lock(oid, whole(5), false, &|| false).unwrap();
}

#[test]
fn an_idle_client_keeps_its_locks_over_a_restart() {
    let mut cluster = Cluster::start(1, 2, narrow_on_one_target());
    let (one, other) = (cluster.root(), cluster.root());
    one.write("/file", b"content").unwrap();
    let file = one.open("/file", &OpenOptions::new(OFlags::RDWR, 0)).unwrap();
    let oid = file.handle().oid();
    one.filesystem().lock(oid, whole(5), false, &|| false).unwrap();
    cluster.restart(0);
    // All that happens in an idle mount, once a second.
    one.filesystem().pool().tick();
    // Answered when the grace is over.
    let denied = other.filesystem().lock(oid, whole(5), false, &|| false);
    assert_eq!(denied, Err(Errno::AGAIN));
    assert_eq!(file.read_at(&mut [0; 7], 0).unwrap(), 7);
}

#[test]
fn whoever_relies_on_a_lost_lock_is_told() {
    let mut cluster = Cluster::start(1, 2, narrow_on_one_target());
    let (one, other) = (cluster.root(), cluster.root());
    one.write("/file", b"content").unwrap();
    let file = one.open("/file", &OpenOptions::new(OFlags::RDWR, 0)).unwrap();
    let oid = file.handle().oid();
    one.filesystem().lock(oid, whole(5), false, &|| false).unwrap();
    cluster.restart(0);
    // Granted when the grace is over, since the holder has not come back.
    other.filesystem().lock(oid, whole(5), false, &|| false).unwrap();
    other.filesystem().unlock_owner(oid, LockKind::Whole, 5).unwrap();
    one.metadata("/file").unwrap();
    let io = Err(Errno::IO);
    assert_eq!(file.read_at(&mut [0; 7], 0), io);
    assert_eq!(file.write_at(b"more", 7), io);
    assert_eq!(one.filesystem().lock(oid, whole(5), false, &|| false).map(|()| 0), io);
    assert_eq!(one.filesystem().unlock_owner(oid, LockKind::Whole, 5).map(|()| 0), io);
    // From then on its owner knows.
    assert_eq!(file.read_at(&mut [0; 7], 0), Ok(7));
    one.filesystem().lock(oid, whole(5), false, &|| false).unwrap();
    one.filesystem().unlock_owner(oid, LockKind::Whole, 5).unwrap();
}

#[test]
fn a_request_waits_for_an_engine_that_comes_back() {
    let mut cluster = Cluster::start(2, 1, narrow_on_one_target());
    let fs = cluster.root();
    for index in 0..20 {
        fs.write(format!("/file{index}"), b"x").unwrap();
    }
    cluster.stop(1);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for index in 0..20 {
                fs.write(format!("/file{index}"), b"longer").unwrap();
                fs.remove_file(format!("/file{index}")).unwrap();
                fs.write(format!("/new{index}"), b"new").unwrap();
            }
            done.store(true, Ordering::Release);
        });
        std::thread::sleep(Duration::from_millis(300));
        assert!(!done.load(Ordering::Acquire), "nothing was on the engine that is away");
        cluster.restart(1);
        writer.join().unwrap();
    });
    let names = cluster.root().read_dir("/").unwrap().count();
    assert_eq!(names, 20);
}

#[test]
fn an_engine_that_stays_away_is_an_error_in_bounded_time() {
    let mut cluster = Cluster::start(2, 1, narrow_on_one_target());
    let fs = impatient(&cluster, Duration::from_millis(1500));
    // One file on each engine.
    let mut homes: [Option<String>; 2] = [None, None];
    for index in 0.. {
        let name = format!("/file{index}");
        fs.write(&name, b"x").unwrap();
        let home = fs.metadata(&name).unwrap().oid.home();
        homes[usize::from(home.0)].get_or_insert(name);
        if homes.iter().all(Option::is_some) {
            break;
        }
    }
    let [near, far] = homes.map(Option::unwrap);
    cluster.stop(1);
    let started = Instant::now();
    assert_eq!(fs.metadata(&far), Err(Errno::IO));
    assert!(started.elapsed() < Duration::from_secs(10));
    // The rest of the pool goes on, and further calls fail without the whole wait.
    fs.metadata(&near).unwrap();
    let started = Instant::now();
    for _ in 0..3 {
        assert_eq!(fs.metadata(&far), Err(Errno::IO));
    }
    assert!(started.elapsed() < Duration::from_secs(10));
    let error = fs.filesystem().pool().call(TargetId(1), Ping).unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("unix:"), "the address is named: {error}");
    cluster.restart(1);
    assert_eq!(fs.read(&far).unwrap(), b"x");
}

#[test]
fn two_sessions_wait_for_each_others_locks() {
    let cluster = Cluster::start(1, 1, narrow_on_one_target());
    let (one, other) = (cluster.root(), cluster.root());
    one.write("/file", b"x").unwrap();
    let oid = one.metadata("/file").unwrap().oid;
    let range = |start, end| Lock {
        kind: LockKind::Range,
        owner: 9,
        pid: 42,
        mode: LockMode::Exclusive,
        start,
        end,
    };
    one.filesystem().lock(oid, range(0, 9), false, &|| false).unwrap();
    other.filesystem().lock(oid, range(10, 19), false, &|| false).unwrap();
    let way = other.filesystem().test_lock(oid, range(5, 5)).unwrap().unwrap();
    assert_eq!((way.start, way.end, way.pid), (0, 9, 42));
    let interrupted = other.filesystem().lock(oid, range(0, 0), true, &|| true);
    assert_eq!(interrupted, Err(Errno::INTR));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| other.filesystem().lock(oid, range(0, 0), true, &|| false));
        std::thread::sleep(Duration::from_millis(100));
        one.filesystem().unlock(oid, range(0, 9)).unwrap();
        waiter.join().unwrap().unwrap();
    });
    assert_eq!(one.filesystem().lock(oid, range(0, 0), false, &|| false), Err(Errno::AGAIN));
    // A session that ends gives everything back.
    drop(other);
    one.filesystem().lock(oid, range(0, 20), true, &|| false).unwrap();
}

#[test]
fn many_threads_share_a_session() {
    let cluster = Cluster::start(2, 2, Inheritance { chunk_bytes: 4096, ..Default::default() });
    let fs = cluster.root();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let fs = &fs;
            scope.spawn(move || {
                for round in 0..40 {
                    let shared = format!("/shared{}", round % 4);
                    let own = format!("/own{thread}");
                    let data = vec![thread as u8 + 1; 10_000];
                    fs.write(&own, &data).unwrap();
                    assert!(fs.read(&own).unwrap() == data);
                    let options = OpenOptions::new(OFlags::RDWR | OFlags::CREATE, 0o644);
                    let file = fs.open(&shared, &options).unwrap();
                    file.write_all_at(&data, 0).unwrap();
                    let _ = fs.remove_file(&shared);
                    // Still there for the handle, whoever else closes the same file just now.
                    let mut buffer = vec![0; 10_000];
                    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 10_000);
                }
            });
        }
    });
}

#[test]
fn a_pool_without_the_container_says_so() {
    let cluster = Cluster::start(1, 1, Inheritance::default());
    let pool = cluster.pool();
    let error = FileSystem::mount(pool.clone(), "nowhere", FsConfig::default()).unwrap_err();
    assert!(error.to_string().contains("nowhere"));
    pool.container_destroy("default").unwrap();
    assert!(pool.container_open("default").is_err());
}
