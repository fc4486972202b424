//! Files by their object, as front ends use them whose clients keep no open files.

#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

use azekura_posix::{
    AttrUpdate, CachePolicy, Credentials, Errno, FileSystem, NewEntry, OFlags, ReadPolicy,
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
