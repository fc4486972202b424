//! Files by their object, as front ends use them whose clients keep no open files.

#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

use azekura_posix::{
    AttrUpdate, CachePolicy, Credentials, Errno, FileSystem, NewEntry, OFlags, ReadPolicy,
    ReadRequest,
};
use azekura_proto::attr::Inheritance;
use azekura_testkit::Cluster;

const CHUNK: u32 = 4096;

fn small_chunks() -> Inheritance {
    Inheritance { chunk_bytes: CHUNK, ..Inheritance::default() }
}

fn user(uid: u32) -> Credentials {
    Credentials { uid, gid: uid, groups: Vec::new(), process: None }
}

fn make(fs: &FileSystem, caller: &Credentials, name: &[u8], mode: u32) -> azekura_posix::Oid {
    fs.make(caller, fs.root(), name, mode, NewEntry::Regular).unwrap().oid
}

fn open_root(fs: &FileSystem) {
    let all = AttrUpdate { mode: Some(0o777), ..AttrUpdate::default() };
    fs.setattr(&Credentials::ROOT, fs.root(), None, &all).unwrap();
}

#[test]
fn data_go_in_and_out_by_object_also_over_all_shards() {
    let cluster = Cluster::start(2, 2, small_chunks());
    let fs = cluster.mount(CachePolicy::None);
    let root = &Credentials::ROOT;
    let oid = make(&fs, root, b"file", 0o600);
    let data: Vec<u8> = (0..50_000_u32).map(|at| (at % 251) as u8).collect();
    let written = fs.write_object(root, oid, 10_000, &data).unwrap();
    assert_eq!(written.bytes, data.len());
    let mut buffer = vec![9; 70_000];
    let read = fs.read_object(root, oid, 0, &mut buffer).unwrap();
    assert_eq!((read.bytes, read.at_end, read.attr.size), (60_000, true, 60_000));
    assert!(buffer[..10_000].iter().all(|byte| *byte == 0));
    assert!(buffer[10_000..60_000] == data);
    let read = fs.read_object(root, oid, 20_000, &mut buffer[..100]).unwrap();
    assert_eq!((read.bytes, read.at_end), (100, false));
    let read = fs.read_object(root, oid, 1 << 40, &mut buffer[..100]).unwrap();
    assert_eq!((read.bytes, read.at_end), (0, true));
    let (_, file) = fs.open(root, oid, OFlags::RDONLY).unwrap();
    assert_eq!(fs.read(&file, 30_000, &mut buffer[..4]), Ok(4));
    assert_eq!(buffer[..4], data[20_000..20_004]);
    let dir = fs.root();
    assert_eq!(fs.read_object(root, dir, 0, &mut buffer).err(), Some(Errno::ISDIR));
    fs.unlink(root, dir, b"file").unwrap();
    drop(file);
    fs.pool().tick();
    assert_eq!(fs.write_object(root, oid, 0, b"late").err(), Some(Errno::STALE));
}

#[test]
fn what_is_on_its_way_through_an_open_file_is_seen_by_object() {
    let cluster = Cluster::start_far(1, 2, small_chunks());
    let fs = cluster.mount_writing(CachePolicy::None, ReadPolicy::default());
    let root = &Credentials::ROOT;
    let flags = OFlags::RDWR | OFlags::CREATE;
    let (attr, file) = fs.create(root, fs.root(), b"file", 0o600, flags).unwrap();
    let mut buffer = [0; 64];
    for round in 0..20_u8 {
        assert_eq!(fs.write(&file, 0, &[round; 64]), Ok(64));
        let read = fs.read_object(root, attr.oid, 0, &mut buffer).unwrap();
        assert_eq!((read.bytes, buffer), (64, [round; 64]));
        fs.write_object(root, attr.oid, 0, &[round + 100; 64]).unwrap();
        assert_eq!(fs.read(&file, 0, &mut buffer), Ok(64));
        assert_eq!(buffer, [round + 100; 64]);
    }
}

#[test]
fn permissions_are_those_of_the_moment_but_for_the_owner() {
    let cluster = Cluster::start(1, 2, small_chunks());
    let fs = cluster.mount(CachePolicy::None);
    open_root(&fs);
    let oid = make(&fs, &user(1), b"file", 0o000);
    let mut buffer = [0; 8];
    assert_eq!(fs.write_object(&user(2), oid, 0, b"no").err(), Some(Errno::ACCESS));
    assert_eq!(fs.read_object(&user(2), oid, 0, &mut buffer).err(), Some(Errno::ACCESS));
    assert_eq!(fs.write_object(&user(1), oid, 0, b"yes").unwrap().bytes, 3);
    assert_eq!(fs.read_object(&user(1), oid, 0, &mut buffer).unwrap().bytes, 3);
}

#[test]
fn a_write_by_object_takes_the_set_user_bit_away() {
    let cluster = Cluster::start(1, 2, small_chunks());
    let fs = cluster.mount(CachePolicy::None);
    open_root(&fs);
    let oid = make(&fs, &user(1), b"program", 0o4755);
    let update = AttrUpdate { mode: Some(0o4755), ..AttrUpdate::default() };
    assert_eq!(fs.setattr(&user(1), oid, None, &update).unwrap().mode, 0o4755);
    fs.write_object(&Credentials::ROOT, oid, 0, b"by root").unwrap();
    assert_eq!(fs.getattr(oid).unwrap().mode, 0o4755);
    fs.write_object(&user(1), oid, 0, b"by its owner").unwrap();
    assert_eq!(fs.getattr(oid).unwrap().mode, 0o755);
}

#[test]
fn an_exclusive_creation_that_is_repeated_finds_its_own_file() {
    let cluster = Cluster::start(2, 2, small_chunks());
    let (fs, other) = (cluster.mount(CachePolicy::None), cluster.mount(CachePolicy::None));
    let root = &Credentials::ROOT;
    let create = |fs: &FileSystem, name: &[u8], verifier: [u8; 8]| {
        fs.make(root, fs.root(), name, 0o600, NewEntry::Exclusive(verifier)).map(|attr| attr.oid)
    };
    // Several names, so that some objects have their home where the entry is and some have not.
    for name in [&b"a"[..], b"b", b"c", b"d"] {
        let first = create(&fs, name, *b"verifier").unwrap();
        assert_eq!(create(&fs, name, *b"verifier"), Ok(first));
        // Also after the front end was started anew, and after the file has been used.
        fs.write_object(root, first, 0, b"data").unwrap();
        let times = AttrUpdate { mode: Some(0o644), ..AttrUpdate::default() };
        fs.setattr(root, first, None, &times).unwrap();
        assert_eq!(create(&other, name, *b"verifier"), Ok(first));
        assert_eq!(create(&other, name, *b"reifirev"), Err(Errno::EXIST));
        assert_eq!(create(&other, name, [0; 8]), Err(Errno::EXIST));
    }
    make(&fs, root, b"plain", 0o600);
    assert_eq!(create(&fs, b"plain", [0; 8]), Err(Errno::EXIST), "made without a verifier");
    fs.make(root, fs.root(), b"dir", 0o700, NewEntry::Directory).unwrap();
    assert_eq!(create(&fs, b"dir", *b"verifier"), Err(Errno::EXIST));
}

#[test]
fn the_verifier_of_writes_tells_of_an_engine_that_was_started_anew() {
    let mut cluster = Cluster::start(2, 2, small_chunks());
    let fs = cluster.mount(CachePolicy::None);
    let root = &Credentials::ROOT;
    let oid = make(&fs, root, b"file", 0o600);
    let data = vec![7; 100_000];
    let first = fs.write_object(root, oid, 0, &data).unwrap().verifier;
    let second = fs.write_object(root, oid, 5, &data).unwrap().verifier;
    assert_eq!(first, second);
    assert_eq!(fs.sync_object(oid).unwrap(), first);
    fs.write_object(root, oid, 9, &data).unwrap();
    for engine in 0..2 {
        let before = fs.write_object(root, oid, 0, &data).unwrap().verifier;
        cluster.restart(engine);
        assert_ne!(fs.sync_object(oid).unwrap(), before, "engine {engine}");
    }
}

/// How often the engine was asked for each of these meanwhile.
fn asked<const N: usize>(cluster: &Cluster, requests: [&str; N], work: impl FnOnce()) -> [u64; N] {
    let before = requests.map(|request| cluster.count(request));
    work();
    std::array::from_fn(|index| cluster.count(requests[index]) - before[index])
}

#[test]
fn a_narrow_file_is_read_and_written_by_one_request_each() {
    let cluster = Cluster::start_far(1, 2, small_chunks());
    let fs = cluster.mount(CachePolicy::None);
    let root = &Credentials::ROOT;
    let oid = make(&fs, root, b"file", 0o666);
    let requests = ["read_file", "write_file", "get_attr", "read", "write"];
    let mut buffer = [9; 64];
    let counts = asked(&cluster, requests, || {
        for at in 0..4 {
            let written = fs.write_object(&user(7), oid, at * 8, b"8 bytes.").unwrap();
            let (before, after) = (written.before.unwrap(), written.after.unwrap());
            assert_eq!((before.size, after.size), (at * 8, at * 8 + 8));
            assert!(before.ctime <= after.ctime && before.mtime <= after.mtime);
        }
        let read = fs.read_object(&user(7), oid, 8, &mut buffer).unwrap();
        assert_eq!((read.bytes, read.at_end, read.attr.size), (24, true, 32));
        assert_eq!(&buffer[..24], b"8 bytes.8 bytes.8 bytes.");
        let read = fs.read_object(&user(7), oid, 8, &mut buffer[..4]).unwrap();
        assert_eq!((read.bytes, read.at_end), (4, false));
        assert_eq!(fs.read_object(&user(7), oid, 32, &mut buffer).unwrap().bytes, 0);
        assert!(fs.read_object(&user(7), oid, 1 << 40, &mut buffer).unwrap().at_end);
    });
    assert_eq!(counts, [4, 4, 0, 0, 0]);
    let attr = fs.getattr(oid).unwrap();
    let written = fs.write_object(root, oid, 3, b"x").unwrap();
    let before = written.before.unwrap();
    assert_eq!((before.size, before.mtime, before.ctime), (attr.size, attr.mtime, attr.ctime));
    assert_eq!(fs.getattr(oid).unwrap(), written.after.unwrap());
}

#[test]
fn a_striped_file_is_read_and_written_together_with_its_attributes() {
    let cluster = Cluster::start_far(1, 2, small_chunks());
    let fs = cluster.mount(CachePolicy::AUTO);
    let oid = make(&fs, &Credentials::ROOT, b"file", 0o666);
    let data = vec![5; 3 * CHUNK as usize];
    fs.write_object(&user(7), oid, 0, &data).unwrap();
    let requests = ["read_file", "get_attr", "read", "write", "sync"];
    let mut buffer = vec![9; 2 * CHUNK as usize];
    let counts = asked(&cluster, requests, || {
        let written = fs.write_object(&user(7), oid, data.len() as u64, &data).unwrap();
        assert_eq!(written.after.unwrap().size, 2 * data.len() as u64);
        let read = fs.read_object(&user(7), oid, 100, &mut buffer).unwrap();
        assert_eq!((read.bytes, read.at_end), (buffer.len(), false));
        assert!(buffer.iter().all(|byte| *byte == 5));
    });
    assert_eq!(counts, [0, 2, 3, 3, 0]);
    assert_eq!(
        asked(&cluster, requests, || {
            fs.sync_object(oid).unwrap();
        })[1..],
        [1, 0, 0, 2]
    );
    // A hole at the end of the range is believed after a second look.
    let far = AttrUpdate::size(20 * u64::from(CHUNK));
    fs.setattr(&Credentials::ROOT, oid, None, &far).unwrap();
    let at = 7 * u64::from(CHUNK);
    let read = fs.read_object(&user(7), oid, at, &mut buffer).unwrap();
    assert_eq!((read.bytes, read.at_end), (buffer.len(), false));
    assert!(buffer.iter().all(|byte| *byte == 0));
}

#[test]
fn what_others_make_of_a_file_counts_at_the_next_write() {
    for policy in [CachePolicy::None, CachePolicy::AUTO] {
        let cluster = Cluster::start(1, 2, small_chunks());
        let (fs, other) = (cluster.mount(policy), cluster.mount(CachePolicy::None));
        let root = &Credentials::ROOT;
        let set = |fs: &FileSystem, oid, mode| {
            let update = AttrUpdate { mode: Some(mode), ..AttrUpdate::default() };
            fs.setattr(root, oid, None, &update).unwrap();
        };
        let oid = make(&fs, root, b"file", 0o666);
        assert_eq!(fs.write_object(&user(7), oid, 0, b"first").unwrap().bytes, 5);
        set(&other, oid, 0o644);
        assert_eq!(fs.write_object(&user(7), oid, 0, b"again").err(), Some(Errno::ACCESS));
        set(&other, oid, 0o666);
        assert_eq!(fs.write_object(&user(7), oid, 0, b"third").unwrap().bytes, 5);
        set(&other, oid, 0o4777);
        assert_eq!(fs.write_object(&user(7), oid, 0, b"4th").unwrap().bytes, 3);
        assert_eq!(other.getattr(oid).unwrap().mode, 0o777, "set-user-id went with the write");
        let capability = b"security.capability";
        let mode = azekura_posix::XattrMode::Set;
        other.setxattr(root, oid, capability, b"any", mode).unwrap();
        assert_eq!(fs.write_object(root, oid, 0, b"5th").unwrap().bytes, 3);
        assert!(other.getxattr(root, oid, capability).is_err());
        // Beyond chunk 0 at once if it was this file system that has changed it.
        let far = 3 * u64::from(CHUNK);
        fs.write_object(&user(7), oid, far, b"far").unwrap();
        set(&fs, oid, 0o644);
        assert_eq!(fs.write_object(&user(7), oid, far, b"no").err(), Some(Errno::ACCESS));
        let mut buffer = [9; 3];
        assert_eq!(fs.read_object(&user(7), oid, far, &mut buffer).unwrap().bytes, 3);
        assert_eq!(&buffer, b"far");
        set(&other, oid, 0o600);
        for offset in [0, far] {
            let refused = fs.read_object(&user(7), oid, offset, &mut buffer);
            assert_eq!((refused.err(), buffer), (Some(Errno::ACCESS), [0; 3]));
        }
    }
}

#[test]
fn a_chunk_size_that_has_changed_is_met_by_the_next_write() {
    let cluster = Cluster::start(1, 2, Inheritance::default());
    let (fs, other) = (cluster.mount(CachePolicy::AUTO), cluster.mount(CachePolicy::AUTO));
    let root = &Credentials::ROOT;
    let oid = make(&fs, root, b"file", 0o600);
    let mode = azekura_posix::XattrMode::Set;
    other.setxattr(root, oid, b"user.azekura.chunk_size", b"4096", mode).unwrap();
    let data: Vec<u8> = (0..20_000_u32).map(|at| (at % 251) as u8).collect();
    assert_eq!(fs.write_object(root, oid, 0, &data).unwrap().bytes, data.len());
    let mut buffer = vec![0; data.len()];
    for fs in [&fs, &other] {
        let read = fs.read_object(root, oid, 0, &mut buffer).unwrap();
        assert_eq!((read.bytes, read.attr.chunk_bytes), (data.len(), 4096));
        assert!(buffer == data);
    }
}

#[test]
fn no_byte_is_invented_while_a_file_is_cut_and_written_anew() {
    let cluster = Cluster::start(1, 1, small_chunks());
    let (fs, other) = (cluster.mount(CachePolicy::AUTO), cluster.mount(CachePolicy::AUTO));
    let root = &Credentials::ROOT;
    let oid = make(&fs, root, b"file", 0o600);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..1500 {
                other.write_object(root, oid, 0, &vec![5; 1 + round % 4000]).unwrap();
                other.setattr(root, oid, None, &AttrUpdate::size(0)).unwrap();
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let mut buffer = [9; 4096];
        while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
            let read = fs.read_object(root, oid, 0, &mut buffer).unwrap();
            assert!(buffer[..read.bytes].iter().all(|byte| *byte == 5), "{read:?}");
            assert!(read.at_end || read.bytes == buffer.len(), "{read:?}");
        }
    });
}

#[test]
fn a_write_to_a_striped_file_that_is_gone_leaves_nothing_behind() {
    use azekura_proto::message::{ShardRef, typed::ShardStat};
    let cluster = Cluster::start(1, 2, small_chunks());
    let (fs, other) = (cluster.mount(CachePolicy::AUTO), cluster.mount(CachePolicy::AUTO));
    let root = &Credentials::ROOT;
    let oid = make(&fs, root, b"file", 0o600);
    let data = vec![5; 4 * CHUNK as usize];
    fs.write_object(root, oid, 0, &data).unwrap();
    other.unlink(root, other.root(), b"file").unwrap();
    assert_eq!(fs.write_object(root, oid, 0, &data).err(), Some(Errno::STALE));
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    for shard in 0..2 {
        let target = fs.pool().placement().shard_target(oid, shard);
        let data = ShardRef { oid, shard, is_file: false };
        // The reclaimer may be about to.
        while fs.pool().call(target, ShardStat { data, asker: None }).unwrap().is_some() {
            assert!(std::time::Instant::now() < deadline, "shard {shard} is left");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

#[test]
fn several_reads_go_together_and_each_has_its_own_answer() {
    let cluster = Cluster::start_far(1, 2, small_chunks());
    let fs = cluster.mount(CachePolicy::None);
    let root = Credentials::ROOT;
    let narrow = make(&fs, &root, b"narrow", 0o600);
    let striped = make(&fs, &root, b"striped", 0o644);
    let gone = make(&fs, &root, b"gone", 0o644);
    fs.write_object(&root, narrow, 0, b"narrow").unwrap();
    fs.write_object(&root, striped, 0, &[5; 3 * CHUNK as usize]).unwrap();
    fs.unlink(&root, fs.root(), b"gone").unwrap();
    let (mut all, other) = (vec![9; 8 * 5000], user(7));
    let places = [
        (&root, narrow, 2),
        (&other, narrow, 0),
        (&other, striped, 100),
        (&other, striped, 10_000),
        (&root, fs.root(), 0),
        (&root, gone, 0),
        (&root, narrow, 6),
        (&root, narrow, u64::MAX - 3),
    ];
    let mut requests: Vec<ReadRequest<'_>> = all
        .chunks_mut(5000)
        .zip(places)
        .map(|(buffer, (caller, oid, offset))| ReadRequest { caller, oid, offset, buffer })
        .collect();
    let results = fs.read_objects(&mut requests);
    let seen: Vec<_> =
        results.iter().map(|read| read.as_ref().map(|read| (read.bytes, read.at_end))).collect();
    let expected = [
        Ok((4, true)),
        Err(&Errno::ACCESS),
        Ok((5000, false)),
        Ok((2288, true)),
        Err(&Errno::ISDIR),
        Err(&Errno::STALE),
        Ok((0, true)),
        Ok((0, true)),
    ];
    assert_eq!(seen, expected);
    assert_eq!(&all[..4], b"rrow");
    assert!(all[5000..10_000].iter().all(|byte| *byte == 0), "nothing for whom it is refused to");
    assert!(all[10_000..15_000].iter().all(|byte| *byte == 5));
    let attrs = fs.getattrs(&[narrow, gone, fs.root()]);
    assert_eq!(attrs[0], fs.getattr(narrow));
    assert_eq!(attrs[1], Err(Errno::STALE));
    assert_eq!(attrs[2], fs.getattr(fs.root()));
    let counts = asked(&cluster, ["read_file", "read"], || {
        let mut buffers = [[0; 3]; 20];
        let mut requests: Vec<_> = buffers
            .iter_mut()
            .map(|buffer| ReadRequest { caller: &root, oid: narrow, offset: 1, buffer })
            .collect();
        assert!(fs.read_objects(&mut requests).iter().all(Result::is_ok));
        assert_eq!(buffers, [*b"arr"; 20]);
    });
    assert_eq!(counts, [20, 0]);
}

#[test]
fn reads_of_striped_files_go_together_too() {
    let cluster = Cluster::start_far(1, 2, small_chunks());
    let fs = cluster.mount(CachePolicy::None);
    let (root, other) = (Credentials::ROOT, user(7));
    let [one, two, cut, gone, narrow] = ["one", "two", "cut", "gone", "narrow"]
        .map(|name| make(&fs, &root, name.as_bytes(), 0o644));
    let data: Vec<u8> = (0..10 * CHUNK).map(|at| (at % 251) as u8).collect();
    for oid in [one, two, cut, gone] {
        fs.write_object(&root, oid, 0, &data).unwrap();
    }
    fs.write_object(&root, narrow, 0, b"narrow").unwrap();
    // Of these something else is known than is true.
    let elsewhere = cluster.mount(CachePolicy::None);
    elsewhere.setattr(&root, cut, None, &AttrUpdate::size(100)).unwrap();
    elsewhere.setattr(&root, cut, None, &AttrUpdate::size(3 * u64::from(CHUNK))).unwrap();
    elsewhere.unlink(&root, fs.root(), b"gone").unwrap();
    let private = AttrUpdate { mode: Some(0o600), ..AttrUpdate::default() };
    elsewhere.setattr(&root, two, None, &private).unwrap();
    let at = u64::from(CHUNK);
    let reads = |buffers: &mut [Vec<u8>], places: &[(&Credentials, azekura_posix::Oid, u64)]| {
        let each = buffers.iter_mut().zip(places);
        let request = |(buffer, place): (_, &(_, _, _))| {
            let (buffer, &(caller, oid, offset)): (&mut Vec<u8>, _) = (buffer, place);
            ReadRequest { caller, oid, offset, buffer }
        };
        fs.read_objects(&mut each.map(request).collect::<Vec<_>>())
    };
    let places = [
        (&other, one, 0),
        (&other, one, at - 7),
        (&other, two, at),
        (&root, two, at),
        (&root, cut, 0),
        (&root, gone, at),
        (&root, one, 10 * at - 5),
        (&root, one, 20 * at),
        (&root, narrow, 0),
    ];
    let mut together = vec![vec![9; 5000]; places.len()];
    let results = reads(&mut together, &places);
    for (((caller, oid, offset), result), buffer) in places.into_iter().zip(results).zip(together) {
        let mut alone = vec![9; 5000];
        let expected = fs.read_object(caller, oid, offset, &mut alone);
        assert_eq!(result, expected);
        let bytes = expected.map_or(5000, |read| read.bytes);
        assert_eq!(buffer[..bytes], alone[..bytes]);
    }
    let counts = asked(&cluster, ["read_file", "get_attr", "read"], || {
        let places: Vec<_> = (0..16).map(|place| (&root, [one, two][place % 2], at + 3)).collect();
        let mut buffers = vec![vec![0; 64]; places.len()];
        assert!(reads(&mut buffers, &places).iter().all(Result::is_ok));
        assert!(buffers.iter().all(|buffer| buffer[..] == data[CHUNK as usize + 3..][..64]));
    });
    assert_eq!(counts, [0, 2, 16]);
}

#[test]
fn a_guarded_change_is_made_only_while_nobody_else_has_made_one() {
    let cluster = Cluster::start(1, 2, small_chunks());
    let (fs, other) = (cluster.mount(CachePolicy::None), cluster.mount(CachePolicy::None));
    let root = &Credentials::ROOT;
    let oid = make(&fs, root, b"file", 0o600);
    fs.write_object(root, oid, 0, &[5; 3 * CHUNK as usize]).unwrap();
    let mode = |mode| AttrUpdate { mode: Some(mode), ..AttrUpdate::default() };
    let seen = fs.getattr(oid).unwrap();
    // Times are as fine as the clock that files are stamped by.
    std::thread::sleep(std::time::Duration::from_millis(20));
    other.setattr(root, oid, None, &mode(0o640)).unwrap();
    let changed = other.getattr(oid).unwrap();
    for update in [mode(0o644), AttrUpdate::size(1)] {
        assert_eq!(fs.setattr_if(root, oid, &update, seen.ctime), Ok(None));
        assert_eq!(fs.getattr(oid), Ok(changed.clone()));
    }
    assert_eq!(fs.setattr_if(&user(3), oid, &mode(0o666), changed.ctime), Err(Errno::PERM));
    let after = fs.setattr_if(root, oid, &mode(0o644), changed.ctime).unwrap().unwrap();
    assert_eq!((after.mode, &after), (0o644, &other.getattr(oid).unwrap()));
    // A capability that is taken by the way is nobody else's change.
    let how = azekura_posix::XattrMode::Set;
    fs.setxattr(root, oid, b"security.capability", b"any", how).unwrap();
    let seen = fs.getattr(oid).unwrap();
    let cut = fs.setattr_if(root, oid, &AttrUpdate::size(7), seen.ctime).unwrap().unwrap();
    assert_eq!((cut.size, cut.has_xattrs), (7, false));
}
