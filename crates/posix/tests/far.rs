//! Files whose data are far away: what is read ahead is used, and never when it is old.

#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use azekura_client::{ClientConfig, Pool};
use azekura_policy::PredictiveParameters;
use azekura_posix::{
    CachePolicy, Credentials, File, FileSystem, FsConfig, Namespace, OFlags, OpenOptions,
    ReadPolicy, Trace, TraceRecord,
};
use azekura_proto::attr::Inheritance;
use azekura_proto::limits::READ_LEASE_MS;
use azekura_proto::{EngineId, ObjectClass, TargetId};
use azekura_testkit::{Cluster, Rounds};

const FILE_BYTES: usize = 8 << 20;
const READ_BYTES: usize = 64 << 10;
/// Blocks of a file that is read while it is written.
const BLOCKS: usize = 64;

/// Reads ahead whatever the link.
fn predictive() -> ReadPolicy {
    predictive_by(PredictiveParameters::default().piece_min_bytes)
}

/// The same in pieces of at least so many bytes; twice as much is read ahead at least.
fn predictive_by(piece_min_bytes: u64) -> ReadPolicy {
    let parameters =
        PredictiveParameters { round_trip_min_us: 0, piece_min_bytes, ..Default::default() };
    ReadPolicy::Predictive(parameters)
}

fn policies() -> [ReadPolicy; 5] {
    let windows = ["sync-adaptive", "fixed=1M", "sync-adaptive-striped", "fixed=1M-striped"];
    let [adaptive, fixed, adaptive_striped, fixed_striped] =
        windows.map(|text| text.parse().unwrap());
    [predictive(), adaptive, fixed, adaptive_striped, fixed_striped]
}

fn client(cluster: &Cluster, policy: ReadPolicy) -> Namespace {
    Namespace::new(cluster.mount_reading(CachePolicy::None, policy), Credentials::ROOT)
}

fn byte(at: usize) -> u8 {
    (at / 4096 % 251) as u8
}

fn contents() -> Vec<u8> {
    (0..FILE_BYTES).map(byte).collect()
}

fn read_only(client: &Namespace, path: &str) -> File {
    client.open(path, &OpenOptions::read_only()).unwrap()
}

#[test]
fn every_pattern_reads_the_right_bytes_by_every_policy() {
    let cluster = Cluster::start_far(2, 2, Inheritance::default());
    let expected = contents();
    cluster.root().write("/file", &expected).unwrap();
    for policy in policies() {
        let client = client(&cluster, policy);
        let file = read_only(&client, "/file");
        let mut buffer = vec![0; READ_BYTES];
        let sequential = (0..FILE_BYTES / READ_BYTES).map(|turn| turn * READ_BYTES);
        let strided = (0..10).map(|turn| turn * 700_001);
        let backward = (0..40).map(|turn| FILE_BYTES - (turn + 1) * READ_BYTES);
        let jumping = (0..60).map(|turn| turn * 7_368_787 % (FILE_BYTES - READ_BYTES));
        for at in sequential.chain(strided).chain(backward).chain(jumping) {
            assert_eq!(file.read_at(&mut buffer, at as u64).unwrap(), READ_BYTES);
            assert!(buffer == expected[at..at + READ_BYTES], "at {at}");
        }
        // Around the end.
        for before in [0, 1, 100, READ_BYTES - 1] {
            let got = file.read_at(&mut buffer, (FILE_BYTES - before) as u64).unwrap();
            assert_eq!(buffer[..got], expected[FILE_BYTES - before..]);
        }
        assert_eq!(file.read_at(&mut buffer, FILE_BYTES as u64 * 2).unwrap(), 0);
        assert_eq!(file.read_at(&mut [], 5).unwrap(), 0);
    }
}

#[test]
fn large_reads_go_on_asking_while_their_bytes_come() {
    const LARGE: usize = (3 << 20) + 4321;
    const SKIPPED: usize = 100_000;
    let cluster = Cluster::start_far(1, 2, Inheritance::default());
    let expected = contents();
    cluster.root().write("/file", &expected).unwrap();
    let path = cluster.scratch();
    let config = FsConfig {
        cache: CachePolicy::None,
        read_policy: predictive_by(2 << 20),
        trace: Some(Trace::append_to(&path, None).unwrap()),
        ..FsConfig::default()
    };
    let mounted = FileSystem::mount(cluster.pool(), "default", config).unwrap();
    let file = read_only(&Namespace::new(mounted, Credentials::ROOT), "/file");
    let mut buffer = vec![0; LARGE];
    assert_eq!(file.read_at(&mut buffer[..SKIPPED], 0).unwrap(), SKIPPED);
    let mut at = SKIPPED;
    while at < FILE_BYTES {
        let got = file.read_at(&mut buffer, at as u64).unwrap();
        assert_eq!(got, LARGE.min(FILE_BYTES - at), "at {at}");
        assert!(buffer[..got] == expected[at..at + got], "at {at}");
        at += got;
    }
    assert_eq!(file.read_at(&mut buffer, FILE_BYTES as u64 + 1).unwrap(), 0);
    let plans = TraceRecord::load(&path).unwrap();
    let is_step = |plan: &TraceRecord| {
        plan.read_bytes < LARGE as u64
            && (plan.read_offset + plan.read_bytes).is_multiple_of(1 << 20)
    };
    assert!(plans.iter().any(is_step), "{plans:?}");
}

#[test]
fn an_answered_write_of_another_client_is_read_by_whoever_reads_later() {
    let cluster = Cluster::start_far(1, 3, Inheritance::default());
    cluster.root().write("/file", &contents()).unwrap();
    for policy in policies() {
        let reader = client(&cluster, policy);
        let writer = client(&cluster, ReadPolicy::Off);
        let reading = read_only(&reader, "/file");
        let writing = writer.open("/file", &OpenOptions::new(OFlags::WRONLY, 0)).unwrap();
        let mut buffer = vec![0; READ_BYTES];
        for turn in 0..8 {
            let at = turn * READ_BYTES;
            reading.read_at(&mut buffer, at as u64).unwrap();
        }
        let start = Instant::now();
        let changed = vec![0xEE; READ_BYTES];
        for turn in 8..40 {
            writing.write_all_at(&changed, (turn * READ_BYTES) as u64).unwrap();
        }
        // A writer waits for leases once, not at every write.
        assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
        for turn in 8..40 {
            reading.read_at(&mut buffer, (turn * READ_BYTES) as u64).unwrap();
            assert!(buffer == changed, "turn {turn}");
        }
        cluster.root().write("/file", &contents()).unwrap();
    }
}

#[test]
fn a_reader_never_sees_time_run_backwards() {
    // The writer writes one value over the whole file, block by block, then the next. The reader may
    // find the old one in front of it and the new one behind, never the reverse: what it reads later
    // is at least as new as what had been answered when it last looked.
    const BLOCK: usize = 16 << 10;
    read_while_written(BLOCK, predictive(), |file, answered| {
        let mut buffer = vec![0; BLOCK];
        for block in 0..BLOCKS {
            let before = answered(block);
            file.read_at(&mut buffer, (block * BLOCK) as u64).unwrap();
            assert!(buffer[0] >= before, "block {block}: {} after {before}", buffer[0]);
        }
    });
}

#[test]
fn one_large_read_has_all_that_was_answered_when_it_began() {
    const BLOCK: usize = 128 << 10;
    // As much ahead as several steps, however quick the engine.
    read_while_written(BLOCK, predictive_by(4 << 20), |file, answered| {
        let before: Vec<u8> = (0..BLOCKS).map(answered).collect();
        let mut buffer = vec![0; BLOCK * BLOCKS];
        // Small first, so that the large one finds much on its way.
        file.read_at(&mut buffer[..BLOCK], 0).unwrap();
        assert_eq!(file.read_at(&mut buffer, 0).unwrap(), buffer.len());
        for (block, before) in before.into_iter().enumerate() {
            let got = buffer[block * BLOCK];
            assert!(got >= before, "block {block}: {got} after {before}");
        }
    });
}

/// Reads by `look` for some seconds while another client writes one value over the whole file, block by
/// block, then the next. `look` is told of each block what had been answered when it asks.
fn read_while_written(
    block_bytes: usize,
    policy: ReadPolicy,
    look: impl Fn(&File, &dyn Fn(usize) -> u8),
) {
    let cluster = Cluster::start_far(1, 2, Inheritance::default());
    cluster.root().write("/file", &vec![0; block_bytes * BLOCKS]).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let answered: Arc<Vec<AtomicU8>> = Arc::new((0..BLOCKS).map(|_| AtomicU8::new(0)).collect());
    std::thread::scope(|scope| {
        let writer = client(&cluster, ReadPolicy::Off);
        let (stopped, told) = (Arc::clone(&stop), Arc::clone(&answered));
        scope.spawn(move || {
            let file = writer.open("/file", &OpenOptions::new(OFlags::WRONLY, 0)).unwrap();
            for value in 1..=200_u8 {
                for block in 0..BLOCKS {
                    file.write_all_at(&vec![value; block_bytes], (block * block_bytes) as u64)
                        .unwrap();
                    told[block].store(value, Ordering::SeqCst);
                }
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(30));
            }
        });
        let reader = client(&cluster, policy);
        let file = read_only(&reader, "/file");
        let end = Instant::now() + Duration::from_secs(6);
        while Instant::now() < end {
            look(&file, &|block| answered[block].load(Ordering::SeqCst));
        }
        stop.store(true, Ordering::SeqCst);
    });
}

#[test]
fn own_writes_truncations_and_replacements_are_seen_at_once() {
    let cluster = Cluster::start_far(1, 2, Inheritance::default());
    for policy in policies() {
        let client = client(&cluster, policy);
        client.write("/own", &contents()).unwrap();
        let file = client.open("/own", &OpenOptions::new(OFlags::RDWR, 0)).unwrap();
        let mut buffer = vec![0; READ_BYTES];
        for turn in 0..6 {
            file.read_at(&mut buffer, (turn * READ_BYTES) as u64).unwrap();
        }
        file.write_all_at(&vec![9; READ_BYTES], (7 * READ_BYTES) as u64).unwrap();
        file.read_at(&mut buffer, (7 * READ_BYTES) as u64).unwrap();
        assert!(buffer.iter().all(|byte| *byte == 9));
        // By another handle.
        client
            .open("/own", &OpenOptions::new(OFlags::WRONLY, 0))
            .unwrap()
            .write_all_at(&vec![8; READ_BYTES], (8 * READ_BYTES) as u64)
            .unwrap();
        file.read_at(&mut buffer, (8 * READ_BYTES) as u64).unwrap();
        assert!(buffer.iter().all(|byte| *byte == 8));
        file.set_len((9 * READ_BYTES) as u64 + 10).unwrap();
        assert_eq!(file.read_at(&mut buffer, (9 * READ_BYTES) as u64).unwrap(), 10);
        // Another file under the name: the handle keeps the old one.
        client.write("/new", b"other").unwrap();
        client.rename("/new", "/own", azekura_posix::RenameMode::Replace).unwrap();
        assert_eq!(file.read_at(&mut buffer, 0).unwrap(), READ_BYTES);
        assert_eq!(client.read("/own").unwrap(), b"other");
        client.remove_file("/own").unwrap();
    }
}

#[test]
fn an_engine_that_restarts_in_mid_read_is_only_waited_for() {
    let mut cluster = Cluster::start_far(1, 2, Inheritance::default());
    let expected = contents();
    cluster.root().write("/file", &expected).unwrap();
    for policy in policies() {
        let client = client(&cluster, policy);
        let file = read_only(&client, "/file");
        let mut buffer = vec![0; READ_BYTES];
        for turn in 0..FILE_BYTES / READ_BYTES {
            if turn == 20 {
                cluster.restart(0);
            }
            let at = turn * READ_BYTES;
            assert_eq!(file.read_at(&mut buffer, at as u64).unwrap(), READ_BYTES);
            assert!(buffer == expected[at..at + READ_BYTES]);
        }
    }
}

#[test]
fn threads_that_share_a_handle_each_get_their_own_bytes() {
    let cluster = Cluster::start_far(2, 1, Inheritance::default());
    let expected = contents();
    cluster.root().write("/file", &expected).unwrap();
    let client = client(&cluster, predictive());
    let file = read_only(&client, "/file");
    std::thread::scope(|scope| {
        for thread in 0..8_usize {
            let (file, expected) = (&file, &expected);
            scope.spawn(move || {
                let mut buffer = vec![0; READ_BYTES];
                for turn in 0..FILE_BYTES / READ_BYTES / 8 {
                    // Interleaved: together one sequential stream, split and reordered.
                    let at = (turn * 8 + thread) * READ_BYTES;
                    assert_eq!(file.read_at(&mut buffer, at as u64).unwrap(), READ_BYTES);
                    assert!(buffer == expected[at..at + READ_BYTES]);
                }
            });
        }
    });
}

#[test]
fn a_window_is_one_request_where_the_file_has_one_shard() {
    let inheritance = Inheritance { file_class: ObjectClass::S1, ..Inheritance::default() };
    let cluster = Cluster::start_far(1, 2, inheritance);
    let expected = contents();
    cluster.root().write("/file", &expected).unwrap();
    // The second is more than a write may have at a time.
    for (policy, requests) in [("fixed=1M", 8), ("fixed=8M", 1), ("fixed=8M-striped", 32)] {
        let client = client(&cluster, policy.parse().unwrap());
        let file = read_only(&client, "/file");
        let before = cluster.count("read");
        let mut buffer = vec![0; READ_BYTES];
        for at in (0..FILE_BYTES).step_by(READ_BYTES) {
            assert_eq!(file.read_at(&mut buffer, at as u64).unwrap(), READ_BYTES);
            assert!(buffer == expected[at..at + READ_BYTES], "{policy}: at {at}");
        }
        let sent = cluster.count("read") - before;
        if policy.ends_with("striped") {
            assert!(sent >= requests, "{policy}: {sent} requests");
        } else {
            assert_eq!(sent, requests, "{policy}");
        }
    }
}

#[test]
fn holes_are_read_like_data() {
    let cluster = Cluster::start_far(1, 3, Inheritance::default());
    let root = cluster.root();
    let made = root.open("/holes", &OpenOptions::create()).unwrap();
    made.set_len(FILE_BYTES as u64).unwrap();
    // One shard has something in its middle.
    let data = vec![7; READ_BYTES];
    let data_at = 5 * 1024 * 1024;
    made.write_all_at(&data, data_at as u64).unwrap();
    for policy in policies() {
        let name = policy.to_string();
        let client = client(&cluster, policy);
        let file = read_only(&client, "/holes");
        let mut buffer = vec![1; READ_BYTES];
        let before = (cluster.count("read"), cluster.count("get_attr"));
        for at in (0..FILE_BYTES).step_by(READ_BYTES) {
            buffer.fill(1);
            assert_eq!(file.read_at(&mut buffer, at as u64).unwrap(), READ_BYTES);
            let expected = if at == data_at { 7 } else { 0 };
            assert!(buffer.iter().all(|byte| *byte == expected), "{name}: at {at}");
        }
        let reads = cluster.count("read") - before.0;
        let looks = cluster.count("get_attr") - before.1;
        // How long the file is is asked once, and nothing is fetched a second time.
        assert!(looks <= 4, "{name}: the length was asked for {looks} times");
        assert!(reads <= (FILE_BYTES / READ_BYTES + 16) as u64, "{name}: {reads} requests");
    }
}

#[test]
fn holes_are_believed_only_as_long_as_nobody_changes_the_file() {
    let cluster = Cluster::start_far(1, 3, Inheritance::default());
    let writer = client(&cluster, ReadPolicy::Off);
    let turn_at = |turn: usize| (turn * READ_BYTES) as u64;
    for policy in policies() {
        let name = policy.to_string();
        let made = writer.open("/holes", &OpenOptions::create()).unwrap();
        made.set_len(0).unwrap();
        made.set_len(FILE_BYTES as u64).unwrap();
        let reader = client(&cluster, policy);
        let file = read_only(&reader, "/holes");
        let mut buffer = vec![1; READ_BYTES];
        let mut read = |turn: usize| {
            buffer.fill(1);
            let got = file.read_at(&mut buffer, turn_at(turn)).unwrap();
            (got, buffer[..got].first().copied())
        };
        for turn in 0..8 {
            assert_eq!(read(turn), (READ_BYTES, Some(0)), "{name}: turn {turn}");
        }
        // It is cut.
        made.set_len(turn_at(40) + 10).unwrap();
        assert_eq!(read(39), (READ_BYTES, Some(0)), "{name}");
        assert_eq!(read(40), (10, Some(0)), "{name}");
        assert_eq!(read(41), (0, None), "{name}");
        // It is filled, and made long again.
        made.write_all_at(&vec![9; READ_BYTES], turn_at(20)).unwrap();
        assert_eq!(read(20), (READ_BYTES, Some(9)), "{name}");
        made.set_len(FILE_BYTES as u64).unwrap();
        assert_eq!(read(60), (READ_BYTES, Some(0)), "{name}");
        // This process itself changes it.
        let own = reader.open("/holes", &OpenOptions::new(OFlags::WRONLY, 0)).unwrap();
        own.write_all_at(&vec![8; READ_BYTES], turn_at(61)).unwrap();
        assert_eq!(read(61), (READ_BYTES, Some(8)), "{name}");
        own.set_len(turn_at(62)).unwrap();
        assert_eq!(read(62), (0, None), "{name}");
    }
}

#[test]
fn leases_of_a_file_over_several_engines_are_renewed_without_its_attributes() {
    let cluster = Cluster::start_far(2, 1, Inheritance::default());
    let root = cluster.root();
    // At home at the engine whose requests are counted.
    let is_there = |path: &String| {
        root.write(path, &contents()).unwrap();
        root.metadata(path).unwrap().oid.home() == TargetId(0)
    };
    let path = (0..64).map(|number| format!("/{number}")).find(is_there).unwrap();
    let fs = cluster.mount_reading(CachePolicy::AUTO, predictive());
    let client = Namespace::new(fs, Credentials::ROOT);
    let file = read_only(&client, &path);
    let fs = client.filesystem();
    let mut buffer = vec![0; READ_BYTES];
    let mut known = 0;
    let begun = Instant::now();
    let asked = cluster.asked(|| {
        for at in (0..FILE_BYTES - READ_BYTES).step_by(READ_BYTES).cycle() {
            if begun.elapsed() > Duration::from_millis(3 * READ_LEASE_MS) {
                break;
            }
            assert_eq!(file.read_at(&mut buffer, at as u64), Ok(READ_BYTES));
            assert_eq!(buffer[0], byte(at));
            known += usize::from(fs.leased_attr(file.handle()).is_some());
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let count = |kind| asked.get(kind).copied().unwrap_or(0);
    assert!(count("lease_read") > count("lease_file"), "{asked:?}");
    assert!(known > 0, "its attributes are told by the leases");
    root.write(&path, b"other").unwrap();
    assert_eq!(fs.getattr_open(file.handle()).unwrap().size, 5);
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 5);
}

#[test]
fn engines_that_a_read_needs_are_called_together() {
    let cluster = Cluster::start_far(5, 1, Inheritance::default());
    cluster.root().write("/file", &contents()).unwrap();
    for is_guest in [true, false] {
        let network = Arc::new(Rounds::default());
        let config = ClientConfig {
            is_guest,
            network: Some(Arc::clone(&network) as Arc<_>),
            ..ClientConfig::default()
        };
        let pool = Pool::connect(cluster.file(), config).unwrap();
        let config = FsConfig { read_policy: predictive(), ..FsConfig::default() };
        let fs = FileSystem::mount(pool, "default", config).unwrap();
        let client = Namespace::new(fs, Credentials::ROOT);
        let file = read_only(&client, "/file");
        let mut buffer = vec![0; FILE_BYTES];
        assert_eq!(file.read_at(&mut buffer, 0), Ok(FILE_BYTES));
        assert!(buffer == contents());
        let called = network.called();
        let first_called =
            |engine| called.iter().position(|round| round.contains(&EngineId(engine))).unwrap();
        let mut rounds: Vec<usize> = (0..5).map(first_called).collect();
        rounds.sort_unstable();
        rounds.dedup();
        // That of the root, that of the file, and all others.
        assert!(rounds.len() <= 3, "{called:?}");
    }
}

#[test]
fn what_others_have_just_written_is_read_ahead() {
    const SMALL: usize = 4 << 10;
    let cluster = Cluster::start_far(1, 3, Inheritance::default());
    cluster.root().write("/file", &contents()).unwrap();
    let mut buffer = vec![0; SMALL];
    read_only(&client(&cluster, predictive()), "/file").read_at(&mut buffer, 0).unwrap();
    std::thread::sleep(Duration::from_millis(READ_LEASE_MS));
    // Nobody reads it now.
    cluster.root().write("/file", &contents()).unwrap();
    let reader = client(&cluster, predictive());
    let file = read_only(&reader, "/file");
    let before = cluster.count("read");
    for at in (0..1 << 20).step_by(SMALL) {
        assert_eq!(file.read_at(&mut buffer, at as u64).unwrap(), SMALL);
        assert!(buffer.iter().all(|have| *have == byte(at)), "at {at}");
    }
    let requests = cluster.count("read") - before;
    assert!(requests < 128, "{requests} requests for 256 reads");
}
