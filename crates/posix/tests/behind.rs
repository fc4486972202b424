//! Writes that are answered before they have arrived: nobody sees a difference, and nothing is lost.

#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use azekura_client::{Call, ClientConfig, ClientError, Objects as _, Pool};
use azekura_policy::PredictiveParameters;
use azekura_posix::{
    AttrUpdate, CachePolicy, Credentials, Errno, File, FileSystem, FsConfig, Lock, LockKind,
    LockMode, Namespace, OFlags, OpenOptions, ReadPolicy, SeekTo, WritePolicy,
};
use azekura_proto::ObjectClass;
use azekura_proto::attr::Inheritance;
use azekura_proto::message::ShardRef;
use azekura_proto::message::typed::Write;
use azekura_testkit::Cluster;

const BLOCK: usize = 4096;

fn client(cluster: &Cluster) -> Namespace {
    let fs = cluster.mount_writing(CachePolicy::None, ReadPolicy::default());
    Namespace::new(fs, Credentials::ROOT)
}

/// One that reads under leases, as far programs do.
fn client_reading(cluster: &Cluster) -> Namespace {
    let parameters = PredictiveParameters { round_trip_min_us: 0, ..Default::default() };
    let policy = ReadPolicy::Predictive(parameters);
    Namespace::new(cluster.mount_writing(CachePolicy::AUTO, policy), Credentials::ROOT)
}

/// Files whose chunks are small, so that they have many shards.
fn striped() -> Inheritance {
    Inheritance { chunk_bytes: 4096, ..Inheritance::default() }
}

/// A block that tells where it stands and who wrote it.
fn block(number: usize, value: u8) -> Vec<u8> {
    let mut bytes = vec![value; BLOCK];
    bytes[..8].copy_from_slice(&(number as u64).to_le_bytes());
    bytes
}

fn write_blocks(file: &File, blocks: std::ops::Range<usize>, value: u8) {
    for number in blocks {
        file.write_all_at(&block(number, value), (number * BLOCK) as u64).unwrap();
    }
}

fn contents(blocks: std::ops::Range<usize>, value: u8) -> Vec<u8> {
    blocks.flat_map(|number| block(number, value)).collect()
}

#[test]
fn an_answered_write_is_seen_by_every_later_read_of_another_client() {
    let cluster = Cluster::start_far(2, 2, striped());
    let (writer, reader) = (client(&cluster), client(&cluster));
    for turn in 0..4_u8 {
        let path = format!("/file{turn}");
        let file = writer.open(&path, &OpenOptions::create()).unwrap();
        write_blocks(&file, 0..50, turn);
        // By each way in which one can look; the file is open all the while.
        match turn {
            0 => assert!(reader.read(&path).unwrap() == contents(0..50, turn)),
            1 => assert_eq!(reader.metadata(&path).unwrap().size, 50 * BLOCK as u64),
            2 => {
                let names = reader.read_dir("/").unwrap().map(Result::unwrap);
                assert_eq!(names.count(), 3);
                let other = reader.open(&path, &OpenOptions::read_only()).unwrap();
                assert_eq!(other.seek(0, SeekTo::Hole), Ok(50 * BLOCK as u64));
            }
            _ => {
                let other = reader.open(&path, &OpenOptions::new(OFlags::RDWR, 0)).unwrap();
                assert_eq!(other.append(b"end").unwrap(), 50 * BLOCK as u64);
                other.write_all_at(&block(7, 99), 7 * BLOCK as u64).unwrap();
                let mut buffer = vec![0; BLOCK];
                file.read_at(&mut buffer, 7 * BLOCK as u64).unwrap();
                assert!(buffer == block(7, 99));
            }
        }
    }
}

#[test]
fn writes_are_kept_in_flight_under_leases_and_only_where_that_is_wanted() {
    let cluster = Cluster::start_far(1, 2, Inheritance::default());
    let mut leased = 0;
    // On a busy machine a lease may run out while it is written.
    let is_once_in_flight = (0..5).any(|number| {
        let path = format!("/behind{number}");
        let file = client(&cluster).open(&path, &OpenOptions::create()).unwrap();
        write_blocks(&file, 0..100, 1);
        file.close().unwrap();
        let before = std::mem::replace(&mut leased, cluster.count("write_leased"));
        leased - before >= 90
    });
    assert!(is_once_in_flight);
    let through = FsConfig { write_policy: WritePolicy::Through, ..FsConfig::default() };
    let fs = FileSystem::mount(cluster.pool(), "default", through).unwrap();
    let through = Namespace::new(fs, Credentials::ROOT);
    write_blocks(&through.open("/through", &OpenOptions::create()).unwrap(), 0..20, 2);
    // A single write needs no lease, nor does one that is to be durable.
    client(&cluster).write("/single", b"made").unwrap();
    leased = cluster.count("write_leased");
    let asked = cluster.count("lease_write");
    client(&cluster).write("/single", b"once").unwrap();
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::DSYNC;
    let durable = client(&cluster).open("/durable", &OpenOptions::new(flags, 0o644)).unwrap();
    write_blocks(&durable, 0..20, 3);
    assert_eq!(cluster.count("write_leased"), leased);
    assert_eq!(cluster.count("lease_write"), asked);
}

#[test]
fn a_file_that_is_made_to_be_written_is_leased_from_the_start() {
    let cluster = Cluster::start_far(1, 2, Inheritance::default());
    let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::RDWR;
    let write = |path: &str, flags| {
        let client = client(&cluster);
        cluster.asked(|| {
            let file = client.open(path, &OpenOptions::new(flags, 0o644)).unwrap();
            let mut buffer = vec![0; BLOCK];
            assert_eq!(file.read_at(&mut buffer, 0), Ok(0), "nothing is in it");
            write_blocks(&file, 0..4, 1);
            assert_eq!(file.read_at(&mut buffer, BLOCK as u64), Ok(BLOCK));
            assert!(buffer == block(1, 1));
            file.close().unwrap();
        })
    };
    // On a busy machine a lease may run out while it is written.
    let is_once_so = (0..5).any(|number| {
        let asked = write(&format!("/{number}"), flags);
        assert!(asked["create_to_write"] == 1 && !asked.contains_key("create"), "{asked:?}");
        asked.get("write_leased") == Some(&4)
            && ["lease_write", "write", "read"].iter().all(|kind| !asked.contains_key(*kind))
    });
    assert!(is_once_so);
    let there = write("/0", flags);
    assert!(there.contains_key("create_to_write"), "it may be there already: {there:?}");
    assert!(client(&cluster).read("/0").unwrap() == contents(0..4, 1));
    for flags in [flags | OFlags::SYNC, flags | OFlags::DSYNC] {
        let asked = write(&format!("/{}", flags.bits()), flags);
        assert!(!asked.contains_key("create_to_write"), "{asked:?}");
    }
}

#[test]
fn what_is_written_first_to_a_new_file_is_read_back_wherever_it_lies() {
    let cluster = Cluster::start_far(2, 2, striped());
    let writer = client(&cluster);
    for number in 0..16 {
        let flags = OFlags::CREATE | OFlags::RDWR;
        let file = writer.open(format!("/{number}"), &OpenOptions::new(flags, 0o644)).unwrap();
        file.write_all_at(&block(number, 7), (number * BLOCK) as u64).unwrap();
        let mut buffer = vec![1; (number + 2) * BLOCK];
        assert_eq!(file.read_at(&mut buffer, 0), Ok((number + 1) * BLOCK));
        assert!(buffer[..number * BLOCK].iter().all(|byte| *byte == 0));
        assert!(buffer[number * BLOCK..][..BLOCK] == block(number, 7));
    }
}

#[test]
fn attributes_of_a_file_that_is_being_written_are_asked_for_once_between_writes() {
    let cluster = Cluster::start_far(1, 2, Inheritance::default());
    let writer = client_reading(&cluster);
    let flags = OFlags::CREATE | OFlags::RDWR;
    let file = writer.open("/file", &OpenOptions::new(flags, 0o644)).unwrap();
    let mut asked = 0;
    for turn in 0..20 {
        write_blocks(&file, turn..turn + 1, 1);
        let before = cluster.count("get_attr");
        let first = file.metadata().unwrap();
        assert_eq!(first.size as usize, (turn + 1) * BLOCK);
        assert_eq!(file.metadata().unwrap(), first);
        assert_eq!(file.metadata().unwrap(), first);
        asked += cluster.count("get_attr") - before;
    }
    assert!((20..30).contains(&asked), "{asked} for 60");
    // Whatever is changed is told.
    let mode = |mode| AttrUpdate { mode: Some(mode), ..AttrUpdate::default() };
    file.set_attr(&mode(0o600)).unwrap();
    assert_eq!(file.metadata().unwrap().mode, 0o600);
    writer.hard_link("/file", "/other").unwrap();
    assert_eq!(file.metadata().unwrap().nlink, 2);
    write_blocks(&file, 0..1, 2);
    file.metadata().unwrap();
    cluster.root().set_attr("/file", true, &mode(0o640)).unwrap();
    assert_eq!(file.metadata().unwrap().mode, 0o640);
}

#[test]
fn a_file_that_was_made_and_not_written_is_nobodys_to_wait_for_once_it_is_closed() {
    let cluster = Cluster::start_far(1, 2, Inheritance::default());
    let (maker, other) = (client(&cluster), client(&cluster));
    let begun = std::time::Instant::now();
    for number in 0..10 {
        let path = format!("/{number}");
        maker.open(&path, &OpenOptions::create()).unwrap().close().unwrap();
        assert_eq!(other.metadata(&path).unwrap().size, 0);
        other.write(&path, b"other").unwrap();
        assert_eq!(maker.read(&path).unwrap(), b"other");
    }
    let lease = Duration::from_millis(azekura_proto::limits::WRITE_LEASE_MS);
    assert!(begun.elapsed() < 5 * lease, "{:?}", begun.elapsed());
}

#[test]
fn what_is_copied_is_written_as_the_destination_was_opened() {
    let cluster = Cluster::start_far(1, 2, Inheritance::default());
    let from = client(&cluster).open("/from", &OpenOptions::create()).unwrap();
    write_blocks(&from, 0..20, 1);
    from.sync().unwrap();
    let leased = cluster.count("write_leased");
    let through = FsConfig { write_policy: WritePolicy::Through, ..FsConfig::default() };
    let fs = FileSystem::mount(cluster.pool(), "default", through).unwrap();
    let to = Namespace::new(fs, Credentials::ROOT).open("/to", &OpenOptions::create()).unwrap();
    for number in 0..20 {
        let at = (number * BLOCK) as u64;
        assert_eq!(from.copy_range(at, &to, at, BLOCK as u64), Ok(BLOCK as u64));
    }
    assert_eq!(cluster.count("write_leased"), leased);
    assert!(client(&cluster).read("/to").unwrap() == contents(0..20, 1));
    // Another connection to the pool finds the same file.
    let same = client(&cluster).open("/from", &OpenOptions::new(OFlags::RDWR, 0)).unwrap();
    assert_eq!(from.copy_range(0, &same, 10, 20), Err(Errno::INVAL));
    assert_eq!(from.copy_range(0, &same, 20, 20), Ok(20));
}

/// As programs do that write tables into a file whose beginning they come back to.
#[test]
fn a_kernel_that_asks_how_long_a_file_is_between_writes_and_reads_waits_once() {
    let cluster = Cluster::start_far(1, 2, Inheritance::default());
    let config = FsConfig {
        cache: CachePolicy::AUTO,
        check_permissions: false,
        write_policy: WritePolicy::Always,
        ..FsConfig::default()
    };
    let fs = FileSystem::mount(cluster.pool(), "default", config).unwrap();
    let caller = Credentials::ROOT;
    let made = fs.create(&caller, fs.root(), b"file", 0o600, OFlags::RDWR).unwrap();
    let (_, file) = made;
    let mut wanted = Vec::new();
    let mut asked = 0;
    for number in 0..40 {
        let counts = cluster.asked(|| {
            assert_eq!(fs.write(&file, 100 * number, &[number as u8; 150]), Ok(150));
            wanted.truncate(100 * number as usize);
            wanted.resize(wanted.len() + 150, number as u8);
            let attr = fs.attr_but_for_times(&file);
            let attr = attr.unwrap_or_else(|| fs.getattr_open(&file).unwrap());
            assert_eq!(attr.size, wanted.len() as u64);
            let mut buffer = vec![0; 8192];
            let got = fs.read(&file, 0, &mut buffer).unwrap();
            assert!(buffer[..got] == wanted);
        });
        asked += counts.iter().filter(|(kind, _)| *kind != "write_leased").count();
    }
    assert!(asked <= 8, "{asked} questions");
    // What anybody asks is answered as ever.
    assert_eq!(fs.getattr(file.oid()).unwrap().size, wanted.len() as u64);
    assert!(cluster.root().read("/file").unwrap() == wanted);
}

#[test]
fn what_is_in_flight_to_a_short_file_is_read_back_without_asking() {
    let one_shard = Inheritance { file_class: ObjectClass::S1, ..Inheritance::default() };
    let cluster = Cluster::start_far(1, 2, one_shard);
    let client = client_reading(&cluster);
    client.write("/file", b"from before, and longer").unwrap();
    let other = client_reading(&cluster);
    let file = client.open("/file", &OpenOptions::new(OFlags::RDWR, 0)).unwrap();
    let mut wanted = b"from before, and longer".to_vec();
    let write = |wanted: &mut Vec<u8>, at: usize, data: &[u8]| {
        file.write_all_at(data, at as u64).unwrap();
        wanted.resize(wanted.len().max(at + data.len()), 0);
        wanted[at..at + data.len()].copy_from_slice(data);
    };
    let all = || {
        let mut buffer = vec![0xee; 400];
        let got = file.read_at(&mut buffer, 0).unwrap();
        buffer.truncate(got);
        buffer
    };
    // The first is waited for, the second brings a lease.
    write(&mut wanted, 0, b"header");
    write(&mut wanted, 30, b"behind a hole");
    let looks =
        || ["read", "read_file", "lease_read", "lease_file"].map(|kind| cluster.count(kind));
    let before = looks();
    for number in 0..40 {
        write(&mut wanted, 7 * number, format!("table {number}").as_bytes());
        assert!(all() == wanted, "{number}");
        let mut some = [0; 5];
        file.read_at(&mut some, 2).unwrap();
        assert_eq!(some, wanted[2..7]);
    }
    assert_eq!(looks(), before);
    assert!(other.read("/file").unwrap() == wanted, "others find the same");
    // What is changed in another way is not read as it was before that.
    for turn in 0..10_u8 {
        write(&mut wanted, 3, &[turn; 9]);
        write(&mut wanted, 90, &[turn; 4]);
        match turn % 5 {
            0 => {
                file.set_len(200).unwrap();
                wanted.resize(200, 0);
            }
            1 => {
                file.set_len(50).unwrap();
                wanted.truncate(50);
            }
            2 => {
                other
                    .open("/file", &OpenOptions::new(OFlags::RDWR, 0))
                    .unwrap()
                    .write_all_at(b"other", 10)
                    .unwrap();
                wanted[10..15].copy_from_slice(b"other");
            }
            3 => {
                file.allocate(20, 10, azekura_posix::Allocation::ZeroKeepSize).unwrap();
                wanted[20..30].fill(0);
            }
            _ => {
                client
                    .open("/file", &OpenOptions::new(OFlags::RDWR, 0))
                    .unwrap()
                    .write_all_at(b"again", 12)
                    .unwrap();
                wanted[12..17].copy_from_slice(b"again");
            }
        }
        assert!(all() == wanted, "{turn}");
        write(&mut wanted, 1, b"x");
        write(&mut wanted, 5, b"y");
        assert!(all() == wanted, "{turn} and on");
    }
    file.close().unwrap();
    assert!(other.read("/file").unwrap() == wanted);
}

#[test]
fn nothing_is_answered_early_once_the_process_is_about_to_end() {
    let cluster = Cluster::start_far(1, 2, Inheritance::default());
    let client = client(&cluster);
    let file = client.open("/file", &OpenOptions::create()).unwrap();
    write_blocks(&file, 0..20, 1);
    client.filesystem().drain_for_good().unwrap();
    let leased = cluster.count("write_leased");
    let released = cluster.count("release_write");
    assert!(leased > 0 && released > 0);
    write_blocks(&file, 20..40, 1);
    assert_eq!(cluster.count("write_leased"), leased);
    assert!(cluster.root().read("/file").unwrap() == contents(0..40, 1));
    // It has not come to that.
    client.filesystem().resume();
    let other = client.open("/other", &OpenOptions::create()).unwrap();
    write_blocks(&other, 0..20, 2);
    assert!(cluster.count("write_leased") > leased);
}

#[test]
fn a_directory_of_files_that_others_write_is_listed_with_their_lengths() {
    let cluster = Cluster::start_far(1, 2, Inheritance::default());
    let writer = client(&cluster);
    let names: Vec<String> = (0..6).map(|number| format!("/file{number}")).collect();
    let open = |name: &String| writer.open(name, &OpenOptions::create()).unwrap();
    let files: Vec<File> = names.iter().map(open).collect();
    for file in &files {
        write_blocks(file, 0..10, 1);
    }
    let reader = client(&cluster);
    let found = reader.read_dir("/").unwrap().map(Result::unwrap).count();
    assert_eq!(found, names.len());
    for name in &names {
        assert_eq!(reader.metadata(name).unwrap().size, 10 * BLOCK as u64);
    }
}

#[test]
fn nobody_waits_for_a_file_that_was_closed_or_left_alone() {
    let cluster = Cluster::start_far(1, 2, Inheritance::default());
    let (writer, reader) = (client(&cluster), client(&cluster));
    let start = Instant::now();
    for turn in 0..10 {
        let path = format!("/file{turn}");
        let file = writer.open(&path, &OpenOptions::create()).unwrap();
        write_blocks(&file, 0..10, 1);
        file.close().unwrap();
        assert_eq!(reader.read(&path).unwrap().len(), 10 * BLOCK);
    }
    // Ten leases would take twenty seconds to run out.
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    // One that stays open is given back as well when it is not used.
    let file = writer.open("/open", &OpenOptions::create()).unwrap();
    write_blocks(&file, 0..10, 1);
    std::thread::sleep(Duration::from_millis(1500));
    assert!(cluster.count("release_write") >= 11);
    assert!(reader.read("/open").unwrap() == contents(0..10, 1));
}

#[test]
fn own_reads_and_changes_come_after_own_writes() {
    let cluster = Cluster::start_far(2, 2, striped());
    // Reads ahead as well, so that bytes of before the writes are at hand.
    let parameters = PredictiveParameters { round_trip_min_us: 0, ..Default::default() };
    let policy = ReadPolicy::Predictive(parameters);
    let fs = cluster.mount_writing(CachePolicy::AUTO, policy);
    let client = Namespace::new(fs, Credentials::ROOT);
    let file = client.open("/own", &OpenOptions::create()).unwrap();
    let other = client.open("/own", &OpenOptions::new(OFlags::RDWR, 0)).unwrap();
    let mut buffer = vec![0; BLOCK];
    for round in 0..20_u8 {
        write_blocks(&file, 0..30, round);
        for number in 0..30 {
            other.read_at(&mut buffer, (number * BLOCK) as u64).unwrap();
            assert!(buffer == block(number, round), "round {round}, block {number}");
        }
        write_blocks(&file, 30..40, round);
        assert_eq!(client.metadata("/own").unwrap().size, 40 * BLOCK as u64);
        other.write_all_at(&block(39, 200), 39 * BLOCK as u64).unwrap();
        file.set_len(30 * BLOCK as u64).unwrap();
        assert_eq!(other.len().unwrap(), 30 * BLOCK as u64);
        assert_eq!(other.read_at(&mut buffer, 39 * BLOCK as u64).unwrap(), 0);
    }
}

#[test]
fn a_file_gets_another_name_at_once_while_it_is_written() {
    let cluster = Cluster::start_far(1, 2, Inheritance::default());
    let client = client(&cluster);
    let took = (0..5).map(|turn| {
        let (path, second) = (format!("/file{turn}"), format!("/second{turn}"));
        let file = client.open(&path, &OpenOptions::create()).unwrap();
        write_blocks(&file, 0..20, turn);
        let start = Instant::now();
        client.hard_link(&path, &second).unwrap();
        let took = start.elapsed();
        assert!(client.read(&second).unwrap() == contents(0..20, turn));
        took
    });
    // A lease that is not used goes by itself after half a second: that is not waited for.
    let least = took.min().unwrap();
    assert!(least < Duration::from_millis(250), "{least:?}");
}

#[test]
fn of_writes_to_one_place_the_last_one_stays() {
    let cluster = Cluster::start_far(1, 3, Inheritance::default());
    let client = client(&cluster);
    let file = client.open("/over", &OpenOptions::create()).unwrap();
    // Across the places where one connection follows another.
    let mut expected = vec![0; 3 << 20];
    for turn in 0..400_usize {
        let at = turn * 7919 * 13 % ((3 << 20) - 70_000);
        let bytes = 1 + turn * 173 % 70_000;
        expected[at..at + bytes].fill(turn as u8);
        file.write_all_at(&vec![turn as u8; bytes], at as u64).unwrap();
    }
    file.set_len(3 << 20).unwrap();
    assert!(client.read("/over").unwrap() == expected);
    assert!(cluster.root().read("/over").unwrap() == expected);
}

#[test]
fn who_gets_the_lock_sees_what_was_written_under_it() {
    let cluster = Cluster::start_far(1, 2, Inheritance::default());
    let setup = cluster.root();
    setup.write("/counter", &[0; 64]).unwrap();
    let lock = |owner| {
        let (kind, mode) = (LockKind::Whole, LockMode::Exclusive);
        Lock { kind, owner, pid: 1, mode, start: 0, end: u64::MAX }
    };
    std::thread::scope(|scope| {
        for owner in 1..=3_u64 {
            let client = client(&cluster);
            scope.spawn(move || {
                let file = client.open("/counter", &OpenOptions::new(OFlags::RDWR, 0)).unwrap();
                let fs = client.filesystem();
                for _ in 0..5 {
                    fs.lock(file.handle().oid(), lock(owner), true, &|| false).unwrap();
                    for at in 0..8_u64 {
                        let mut number = [0; 8];
                        file.read_at(&mut number, at * 8).unwrap();
                        let more = u64::from_le_bytes(number) + 1;
                        file.write_all_at(&more.to_le_bytes(), at * 8).unwrap();
                    }
                    fs.unlock(file.handle().oid(), lock(owner)).unwrap();
                }
            });
        }
    });
    let counted = setup.read("/counter").unwrap();
    assert!(counted.chunks(8).all(|number| number == 15_u64.to_le_bytes()), "{counted:?}");
}

#[test]
fn an_engine_that_restarts_in_mid_write_loses_nothing() {
    let mut cluster = Cluster::start_far(1, 2, striped());
    let client = client(&cluster);
    let file = client.open("/file", &OpenOptions::create()).unwrap();
    for turn in 0..3_usize {
        write_blocks(&file, turn * 100..turn * 100 + 50, 5);
        cluster.restart(0);
        write_blocks(&file, turn * 100 + 50..turn * 100 + 100, 5);
        // Over what may have been on its way.
        write_blocks(&file, turn * 100..turn * 100 + 10, 6);
    }
    file.sync().unwrap();
    let found = cluster.root().read("/file").unwrap();
    let value = |number: usize| if number % 100 < 10 { 6 } else { 5 };
    let expected: Vec<u8> = (0..300).flat_map(|number| block(number, value(number))).collect();
    assert!(found == expected);
}

#[test]
fn what_was_answered_before_a_restart_is_seen_by_whoever_reads_after_it() {
    let mut cluster = Cluster::start_far(1, 2, Inheritance::default());
    let writer = client(&cluster);
    let file = writer.open("/file", &OpenOptions::create()).unwrap();
    for turn in 0..3_u8 {
        write_blocks(&file, 0..64, turn);
        // Nothing is asked of the writer in between.
        cluster.restart(0);
        assert!(cluster.root().read("/file").unwrap() == contents(0..64, turn), "turn {turn}");
    }
}

#[test]
fn an_error_is_told_once_to_each_who_has_the_file_open() {
    let mut cluster = Cluster::start_far(1, 2, Inheritance::default());
    let impatient =
        ClientConfig { request_timeout: Duration::from_millis(500), ..ClientConfig::default() };
    let pool = Pool::connect(cluster.file(), impatient).unwrap();
    let config = FsConfig { write_policy: WritePolicy::Always, ..FsConfig::default() };
    let fs = FileSystem::mount(pool, "default", config).unwrap();
    let client = Namespace::new(fs, Credentials::ROOT);
    let file = client.open("/file", &OpenOptions::create()).unwrap();
    let other = client.open("/file", &OpenOptions::new(OFlags::RDWR, 0)).unwrap();
    // The engine goes in the middle: what was answered and has not arrived is told.
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let write = |number: usize| file.write_at(&block(number, 2), (number * BLOCK) as u64);
            (0..).find_map(|number| write(number % 50).err())
        });
        std::thread::sleep(Duration::from_millis(300));
        cluster.stop(0);
        assert_eq!(writer.join().unwrap(), Some(Errno::IO));
    });
    cluster.restart(0);
    // The leases of before the restart are over.
    std::thread::sleep(Duration::from_millis(2100));
    let fs = client.filesystem();
    file.write_all_at(&block(0, 3), 0).unwrap();
    file.sync().unwrap();
    assert_eq!(fs.flush(other.handle()), Err(Errno::IO));
    assert_eq!(fs.flush(other.handle()), Ok(()));
    let late = client.open("/file", &OpenOptions::new(OFlags::RDWR, 0)).unwrap();
    assert_eq!(fs.flush(late.handle()), Ok(()));
    file.close().unwrap();
}

#[test]
fn writes_that_follow_each_other_fail_together_while_the_engine_is_away() {
    const WRITES: usize = 500;
    let mut cluster = Cluster::start_far(1, 1, Inheritance::default());
    let impatient =
        ClientConfig { request_timeout: Duration::from_millis(500), ..ClientConfig::default() };
    let pool = Pool::connect(cluster.file(), impatient).unwrap();
    let file = cluster.root().open("/file", &OpenOptions::create()).unwrap();
    let oid = file.handle().oid();
    let data = ShardRef { oid, shard: 0, is_file: true };
    let blocks: Vec<Vec<u8>> = (0..WRITES).map(|number| block(number, 1)).collect();
    // All to one place, so that the last one has to stay.
    let calls = || -> Vec<Call<'_, Write>> {
        let request = || Write { data, offset: 0 };
        let call = |bytes| Call::sending(oid.home(), request(), bytes).in_order();
        blocks.iter().map(|bytes| call(bytes.as_slice())).collect()
    };
    let mut lost = calls();
    cluster.stop(0);
    let start = Instant::now();
    let lost = pool.call_all(&mut lost);
    // Not half a second for each.
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    assert!(lost.iter().all(|done| done.as_ref().is_err_and(ClientError::is_unreached)));
    cluster.restart(0);
    let mut again = calls();
    assert!(pool.call_all(&mut again).iter().all(Result::is_ok));
    assert!(cluster.root().read("/file").unwrap() == blocks[WRITES - 1]);
}

#[test]
fn what_the_engine_refuses_is_told_at_the_next_write_or_close() {
    let cluster = Cluster::start_far(1, 1, Inheritance::default());
    let pool = cluster.pool();
    pool.container_create("gone", Inheritance::default()).unwrap();
    let config = FsConfig { write_policy: WritePolicy::Always, ..FsConfig::default() };
    let fs = FileSystem::mount(cluster.pool(), "gone", config).unwrap();
    let client = Namespace::new(fs, Credentials::ROOT);
    let file = client.open("/file", &OpenOptions::create()).unwrap();
    write_blocks(&file, 0..10, 1);
    pool.container_destroy("gone").unwrap();
    let mut seen = Vec::new();
    for number in 0..2000 {
        if let Err(errno) = file.write_at(&block(number, 2), (number * BLOCK) as u64) {
            seen.push(errno);
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(seen, [Errno::STALE]);
}

#[test]
fn several_writers_of_one_file_end_up_with_what_each_wrote() {
    let cluster = Cluster::start_far(1, 2, Inheritance::default());
    cluster.root().write("/shared", &[]).unwrap();
    std::thread::scope(|scope| {
        for part in 0..4_usize {
            // Two threads of one client, and one of each of two others.
            let client = client(&cluster);
            scope.spawn(move || {
                let options = OpenOptions::new(OFlags::RDWR, 0);
                let file = client.open("/shared", &options).unwrap();
                for number in (part..200).step_by(4) {
                    file.write_all_at(&block(number, 1), (number * BLOCK) as u64).unwrap();
                }
                file.close().unwrap();
            });
        }
    });
    assert!(cluster.root().read("/shared").unwrap() == contents(0..200, 1));
    let client = client(&cluster);
    let file = client.open("/shared", &OpenOptions::new(OFlags::RDWR, 0)).unwrap();
    std::thread::scope(|scope| {
        for part in 0..4_usize {
            let file = &file;
            scope.spawn(move || {
                for number in (part..200).step_by(4) {
                    file.write_all_at(&block(number, 2), (number * BLOCK) as u64).unwrap();
                }
            });
        }
    });
    assert!(cluster.root().read("/shared").unwrap() == contents(0..200, 2));
}

#[test]
fn a_reader_at_the_same_time_never_finds_less_than_was_answered() {
    const BLOCKS: usize = 32;
    let cluster = Cluster::start_far(1, 2, Inheritance::default());
    cluster.root().write("/file", &vec![0; BLOCK * BLOCKS]).unwrap();
    let answered: Vec<AtomicU8> = (0..BLOCKS).map(|_| AtomicU8::new(0)).collect();
    let end = Instant::now() + Duration::from_secs(6);
    std::thread::scope(|scope| {
        let (writer, answered) = (client(&cluster), &answered);
        scope.spawn(move || {
            let file = writer.open("/file", &OpenOptions::new(OFlags::WRONLY, 0)).unwrap();
            for value in 1..=u8::MAX {
                for (number, told) in answered.iter().enumerate() {
                    file.write_all_at(&[value; BLOCK], (number * BLOCK) as u64).unwrap();
                    told.store(value, Ordering::SeqCst);
                }
                if Instant::now() > end {
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let reader = client(&cluster);
        let file = reader.open("/file", &OpenOptions::read_only()).unwrap();
        let mut buffer = vec![0; BLOCK];
        while Instant::now() < end {
            for (number, told) in answered.iter().enumerate() {
                let before = told.load(Ordering::SeqCst);
                file.read_at(&mut buffer, (number * BLOCK) as u64).unwrap();
                assert!(buffer[0] >= before, "block {number}: {} after {before}", buffer[0]);
            }
            std::thread::sleep(Duration::from_millis(300));
        }
    });
}
