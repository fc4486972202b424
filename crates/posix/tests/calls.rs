//! What single calls ask for where a pool is far away; and that what is told without asking is true.

#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use azekura_policy::PredictiveParameters;
use azekura_posix::{
    Allocation, AttrUpdate, AttrsWanted, CachePolicy, Credentials, Errno, File, FileSystem,
    FsConfig, Namespace, NewEntry, OFlags, OpenOptions, ReadPolicy, RenameMode, SetTime, Timestamp,
    WritePolicy, XattrMode,
};
use azekura_proto::attr::Inheritance;
use azekura_testkit::Cluster;

const SMALL_BYTES: usize = 15_000;
const CHUNK: u64 = 64 << 10;

/// Every link is far.
fn predictive() -> ReadPolicy {
    let parameters = PredictiveParameters { round_trip_min_us: 0, ..Default::default() };
    ReadPolicy::Predictive(parameters)
}

fn far_pool() -> Cluster {
    let inheritance = Inheritance { chunk_bytes: CHUNK as u32, ..Inheritance::default() };
    Cluster::start_far(1, 2, inheritance)
}

fn client(cluster: &Cluster) -> Namespace {
    let fs = cluster.mount_reading(CachePolicy::AUTO, predictive());
    Namespace::new(fs, Credentials::ROOT)
}

/// One that believes nothing about directories for longer than a moment.
fn forgetful(cluster: &Cluster) -> Namespace {
    let cache = CachePolicy::Auto { ttl: Duration::from_millis(1) };
    Namespace::new(cluster.mount_reading(cache, predictive()), Credentials::ROOT)
}

fn user(uid: u32) -> Credentials {
    Credentials { uid, gid: uid, groups: Vec::new(), process: None }
}

fn just(kinds: &[&str]) -> BTreeMap<String, u64> {
    kinds.iter().map(|kind| ((*kind).to_owned(), 1)).collect()
}

fn read_only(client: &Namespace, path: &str) -> File {
    client.open(path, &OpenOptions::read_only()).unwrap()
}

fn times(secs: i64) -> AttrUpdate {
    let time = Some(SetTime::At(Timestamp { secs, nanos: 5 }));
    AttrUpdate { atime: time, mtime: time, ..AttrUpdate::default() }
}

fn mode(mode: u32) -> AttrUpdate {
    AttrUpdate { mode: Some(mode), ..AttrUpdate::default() }
}

fn owner(uid: u32) -> AttrUpdate {
    AttrUpdate { uid: Some(uid), ..AttrUpdate::default() }
}

#[test]
fn attributes_of_an_open_file_are_changed_by_one_request() {
    let cluster = far_pool();
    let client = client(&cluster);
    let file = client.open("/file", &OpenOptions::create()).unwrap();
    file.write_all_at(b"content", 0).unwrap();
    for update in [times(1_000_000), mode(0o640), owner(7), times(2_000_000)] {
        let asked = cluster.asked(|| {
            file.set_attr(&update).unwrap();
        });
        assert_eq!(asked, just(&["set_attr_guarded"]), "{update:?}");
    }
    let attr = cluster.root().metadata("/file").unwrap();
    assert_eq!((attr.mtime.secs, attr.mode, attr.uid), (2_000_000, 0o640, 7));
    let by_path = cluster.asked(|| {
        client.set_attr("/file", true, &times(3)).unwrap();
    });
    assert_eq!(by_path, just(&["lookup", "set_attr_guarded"]));
    assert_eq!(file.metadata().unwrap().mtime.secs, 3);
}

#[test]
fn a_change_of_attributes_is_judged_by_what_is_so_when_it_is_made() {
    let cluster = far_pool();
    let (root, fs) = (cluster.root(), cluster.mount_reading(CachePolicy::AUTO, predictive()));
    root.set_attr("/", true, &mode(0o777)).unwrap();
    let mine = Namespace::new(fs, user(1));
    let file = mine.open("/mine", &OpenOptions::create()).unwrap();
    file.set_attr(&times(10)).unwrap();
    root.set_attr("/mine", true, &owner(2)).unwrap();
    assert_eq!(file.set_attr(&times(20)).err(), Some(Errno::PERM));
    assert_eq!(root.metadata("/mine").unwrap().mtime.secs, 10);
    root.set_attr("/mine", true, &owner(1)).unwrap();
    file.set_attr(&times(30)).unwrap();
    // Set-user bits that somebody else has set go with the owner.
    root.set_attr("/mine", true, &mode(0o4755)).unwrap();
    let same = AttrUpdate { gid: Some(1), ..AttrUpdate::default() };
    assert_eq!(file.set_attr(&same).unwrap().mode, 0o755);
}

#[test]
fn what_is_asked_next_goes_over_the_connection_of_the_writes_before() {
    let cluster = far_pool();
    let fs = cluster.mount_writing(CachePolicy::AUTO, ReadPolicy::default());
    let client = Namespace::new(fs, Credentials::ROOT);
    let file = client.open("/file", &OpenOptions::create()).unwrap();
    for turn in 0..20 {
        file.write_all_at(&[turn; 100], u64::from(turn) * 100).unwrap();
    }
    let connections = cluster.connections();
    file.set_attr(&times(1)).unwrap();
    assert!(cluster.count("write_leased") > 0);
    file.write_all_at(b"more", 2000).unwrap();
    assert_eq!(file.len(), Ok(2004));
    file.close().unwrap();
    assert!(cluster.connections() <= connections);
}

#[test]
fn what_is_opened_after_a_file_was_written_goes_over_the_connection_of_its_writes() {
    let cluster = far_pool();
    cluster.root().write("/other", &[7; SMALL_BYTES]).unwrap();
    let fs = cluster.mount_writing(CachePolicy::AUTO, ReadPolicy::default());
    let client = Namespace::new(fs, Credentials::ROOT);
    for path in ["/a", "/b"] {
        let file = client.open(path, &OpenOptions::create()).unwrap();
        file.write_all_at(&[7; SMALL_BYTES], 0).unwrap();
        let connections = cluster.connections();
        file.close().unwrap();
        for path in ["/other", path] {
            assert_eq!(client.read(path).unwrap().len(), SMALL_BYTES);
        }
        client.metadata("/other").unwrap();
        assert!(cluster.connections() <= connections, "{path}");
    }
    assert!(cluster.count("release_write") > 0);
}

#[test]
fn what_is_asked_after_changes_in_flight_goes_over_their_connection() {
    let cluster = far_pool();
    cluster.root().write("/other", &[7; SMALL_BYTES]).unwrap();
    let config = FsConfig {
        write_policy: WritePolicy::Always,
        changes_in_flight: true,
        ..FsConfig::default()
    };
    let fs = FileSystem::mount(cluster.pool(), "default", config).unwrap();
    let client = Namespace::new(fs, Credentials::ROOT);
    for dir in ["/a", "/b", "/c", "/c/d"] {
        client.create_dir(dir, 0o755).unwrap();
    }
    assert!(cluster.count("create_numbered") > 0);
    client.create_dir("/c/e", 0o755).unwrap();
    let connections = cluster.connections();
    client.rename("/a", "/c/a", RenameMode::Replace).unwrap();
    client.metadata("/other").unwrap();
    assert_eq!(client.read("/other").unwrap().len(), SMALL_BYTES);
    assert!(cluster.connections() <= connections);
}

#[test]
fn what_is_asked_next_goes_over_a_connection_of_the_reads_before() {
    let cluster = far_pool();
    // What is read here does not come with the opening.
    cluster.root().write("/file", &vec![7; 3 * SMALL_BYTES]).unwrap();
    let client = client(&cluster);
    let file = read_only(&client, "/file");
    let mut buffer = vec![0; SMALL_BYTES / 2];
    for at in [0, SMALL_BYTES / 2] {
        assert_eq!(file.read_at(&mut buffer, at as u64), Ok(SMALL_BYTES / 2));
    }
    let connections = cluster.connections();
    client.metadata("/").unwrap();
    client.metadata("/file").unwrap();
    assert_eq!(file.read_at(&mut buffer, 1), Ok(SMALL_BYTES / 2));
    assert!(cluster.connections() <= connections);
}

#[test]
fn a_file_is_opened_by_one_request_and_its_end_is_known_under_the_lease() {
    let cluster = far_pool();
    cluster.root().write("/small", &[7; SMALL_BYTES]).unwrap();
    let client = client(&cluster);
    let mut file = None;
    let opening = cluster.asked(|| file = Some(read_only(&client, "/small")));
    assert_eq!(opening, just(&["open_entry"]));
    let file = file.unwrap();
    let looking = cluster.asked(|| assert_eq!(file.len(), Ok(SMALL_BYTES as u64)));
    assert!(looking.is_empty(), "{looking:?}");
    let mut buffer = vec![0; 2 * SMALL_BYTES];
    assert_eq!(file.read_at(&mut buffer, 0), Ok(SMALL_BYTES));
    assert!(buffer[..SMALL_BYTES].iter().all(|byte| *byte == 7));
    let ending = cluster.asked(|| {
        assert_eq!(file.read_at(&mut buffer, SMALL_BYTES as u64), Ok(0));
        assert_eq!(file.read_at(&mut buffer, 1 << 40), Ok(0));
        assert_eq!(file.metadata().unwrap().size, SMALL_BYTES as u64);
    });
    assert!(ending.is_empty(), "{ending:?}");
    // Opened in a way that brings no lease.
    let both = client.open("/small", &OpenOptions::new(OFlags::RDWR, 0)).unwrap();
    let reading = cluster.asked(|| assert_eq!(both.read_at(&mut buffer, 5), Ok(SMALL_BYTES - 5)));
    assert_eq!(reading, just(&["lease_file", "read"]));
    let ending = cluster.asked(|| {
        assert_eq!(both.read_at(&mut buffer, SMALL_BYTES as u64), Ok(0));
        assert_eq!(both.len(), Ok(SMALL_BYTES as u64));
    });
    assert!(ending.is_empty(), "{ending:?}");
}

#[test]
fn the_end_of_a_striped_file_is_known_after_a_full_read() {
    let cluster = far_pool();
    let bytes = 16 * CHUNK + 77;
    cluster.root().write("/large", &vec![3; bytes as usize]).unwrap();
    let client = client(&cluster);
    let file = read_only(&client, "/large");
    let mut buffer = vec![0; 10_000];
    let mut at = 0;
    while at < bytes {
        let got = file.read_at(&mut buffer, at).unwrap();
        assert!(buffer[..got].iter().all(|byte| *byte == 3));
        at += got as u64;
    }
    assert_eq!(at, bytes);
    let ending = cluster.asked(|| {
        assert_eq!(file.read_at(&mut buffer, bytes), Ok(0));
        assert_eq!(file.len(), Ok(bytes));
    });
    assert!(ending.is_empty(), "{ending:?}");
}

#[test]
fn without_a_cache_attributes_are_always_asked_for() {
    let cluster = far_pool();
    cluster.root().write("/small", &[7; SMALL_BYTES]).unwrap();
    let fs = cluster.mount_reading(CachePolicy::None, predictive());
    let file = read_only(&Namespace::new(fs, Credentials::ROOT), "/small");
    let looking = cluster.asked(|| assert_eq!(file.len(), Ok(SMALL_BYTES as u64)));
    assert_eq!(looking, just(&["get_attr"]));
}

/// What another client does to a file.
type Change = fn(&Namespace, &str);

/// Each with the length and mode that the file has then.
const CHANGES: [(Change, u64, u16); 7] = [
    (|other, path| set(other, path, &mode(0o600)), 100, 0o600),
    (|other, path| set(other, path, &AttrUpdate::size(7)), 7, 0o644),
    (|other, path| set(other, path, &times(5)), 100, 0o644),
    (|other, path| writing(other, path).write_all_at(&[1; 10], 100).unwrap(), 110, 0o644),
    (|other, path| assert_eq!(writing(other, path).append(&[1; 20]), Ok(100)), 120, 0o644),
    // Beyond the first chunk, so that the file is striped from then on.
    (|other, path| writing(other, path).write_all_at(&[1], CHUNK).unwrap(), CHUNK + 1, 0o644),
    (|other, path| writing(other, path).allocate(0, 500, Allocation::Grow).unwrap(), 500, 0o644),
];

fn set(client: &Namespace, path: &str, update: &AttrUpdate) {
    client.set_attr(path, true, update).unwrap();
}

#[test]
fn what_another_client_was_answered_is_seen_under_a_lease_too() {
    let cluster = far_pool();
    let (reader, other) = (client(&cluster), cluster.root());
    for (number, (change, bytes, mode)) in CHANGES.into_iter().enumerate() {
        let path = format!("/file{number}");
        other.write(&path, &[9; 100]).unwrap();
        let file = read_only(&reader, &path);
        let mut buffer = [0; 200];
        assert_eq!(file.read_at(&mut buffer, 0), Ok(100));
        let before = file.metadata().unwrap();
        change(&other, &path);
        let end = file.read_at(&mut buffer, bytes);
        let after = file.metadata().unwrap();
        assert_eq!((end, after.size, after.mode), (Ok(0), bytes, mode), "change {number}");
        assert_eq!(after, other.metadata(&path).unwrap(), "change {number}");
        assert!(after.ctime > before.ctime, "change {number}");
    }
    // An extended attribute shows in the time of last change.
    other.write("/last", &[9; 100]).unwrap();
    let file = read_only(&reader, "/last");
    let before = file.metadata().unwrap();
    other.set_xattr("/last", b"user.x", b"y", XattrMode::Set).unwrap();
    let after = file.metadata().unwrap();
    assert!(after.ctime > before.ctime && after.has_xattrs);
}

fn writing(client: &Namespace, path: &str) -> File {
    client.open(path, &OpenOptions::new(OFlags::RDWR, 0)).unwrap()
}

#[test]
fn own_changes_are_seen_under_a_lease_at_once() {
    let cluster = far_pool();
    let client = client(&cluster);
    client.write("/own", &[9; 100]).unwrap();
    let file = read_only(&client, "/own");
    let mut buffer = [0; 200];
    assert_eq!(file.read_at(&mut buffer, 0), Ok(100));
    client.set_attr("/own", true, &mode(0o600)).unwrap();
    assert_eq!(file.metadata().unwrap().mode, 0o600);
    writing(&client, "/own").write_all_at(&[8; 5], 100).unwrap();
    assert_eq!(file.read_at(&mut buffer, 100), Ok(5));
    assert_eq!(file.len(), Ok(105));
    client.hard_link("/own", "/second").unwrap();
    assert_eq!(file.metadata().unwrap().nlink, 2);
    client.remove_file("/own").unwrap();
    assert_eq!(file.metadata().unwrap().nlink, 1);
    client.write("/other", b"").unwrap();
    client.rename("/other", "/second", RenameMode::Replace).unwrap();
    assert_eq!(file.metadata().unwrap().nlink, 0);
    assert_eq!(file.read_at(&mut buffer, 0), Ok(105), "it lives while it is open");
}

#[test]
fn a_creation_takes_one_request_also_where_the_directory_was_met_long_ago() {
    let cluster = far_pool();
    let (client, other) = (forgetful(&cluster), cluster.root());
    other.create_dir("/dir", 0o755).unwrap();
    let base = client.metadata("/dir").unwrap().oid;
    let below = client.at(base);
    below.metadata(".").unwrap();
    let long = Duration::from_millis(5);
    std::thread::sleep(long);
    let creating = cluster.asked(|| drop(below.open("second", &OpenOptions::create()).unwrap()));
    assert_eq!(creating, just(&["create_guarded"]));
    // What others have made of the directory counts.
    let update = AttrUpdate { gid: Some(77), mode: Some(0o2755), ..AttrUpdate::default() };
    other.set_attr("/dir", true, &update).unwrap();
    std::thread::sleep(long);
    let file = below.open("third", &OpenOptions::create()).unwrap();
    assert_eq!(file.metadata().unwrap().gid, 77);
    std::thread::sleep(long);
    let making = cluster.asked(|| {
        below.symlink(b"text", "fourth").unwrap();
    });
    assert_eq!(making, just(&["create_guarded"]));
    other.set_attr("/dir", true, &AttrUpdate { gid: Some(78), ..AttrUpdate::default() }).unwrap();
    std::thread::sleep(long);
    let made = below.create_dir("fifth", 0o755).unwrap();
    assert_eq!((made.gid, made.mode & 0o2000), (78, 0o2000));
    other.remove_dir_all("/dir").unwrap();
    std::thread::sleep(long);
    assert_eq!(below.open("sixth", &OpenOptions::create()).err(), Some(Errno::NOENT));
}

#[test]
fn who_may_not_make_names_any_more_does_not_get_at_those_that_are_there() {
    let cluster = far_pool();
    let other = cluster.root();
    other.create_dir("/dir", 0o777).unwrap();
    let cache = CachePolicy::Auto { ttl: Duration::from_millis(1) };
    let client = Namespace::new(cluster.mount_reading(cache, predictive()), user(1));
    let below = client.at(client.metadata("/dir").unwrap().oid);
    below.write("there", b"").unwrap();
    other.set_attr("/dir", true, &mode(0o700)).unwrap();
    std::thread::sleep(Duration::from_millis(5));
    for name in ["there", "new"] {
        assert_eq!(below.open(name, &OpenOptions::create()).err(), Some(Errno::ACCESS), "{name}");
    }
    assert_eq!(below.open("there", &OpenOptions::read_only()).err(), Some(Errno::ACCESS));
}

#[test]
fn a_file_that_is_opened_by_its_name_is_held_wherever_it_lies() {
    let cluster = Cluster::start_far(3, 1, Inheritance::default());
    let (client, other) = (client(&cluster), cluster.root());
    for number in 0..12 {
        let path = format!("/file{number}");
        other.write("/born", path.as_bytes()).unwrap();
        other.rename("/born", &path, RenameMode::Replace).unwrap();
        let file = read_only(&client, &path);
        other.remove_file(&path).unwrap();
        let mut buffer = [0; 20];
        assert_eq!(file.read_at(&mut buffer, 0), Ok(path.len()));
        assert_eq!(&buffer[..path.len()], path.as_bytes());
        assert_eq!(client.open(&path, &OpenOptions::read_only()).err(), Some(Errno::NOENT));
    }
    other.symlink(b"dir", "/link").unwrap();
    other.create_dir("/dir", 0o755).unwrap();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let dir = client.open("/link", &OpenOptions::new(flags, 0)).unwrap();
    assert_eq!(dir.handle().oid(), client.metadata("/dir").unwrap().oid);
    let nofollow =
        |flags| client.open("/link", &OpenOptions::new(flags | OFlags::NOFOLLOW, 0)).err();
    assert_eq!(nofollow(OFlags::RDONLY), Some(Errno::LOOP));
    assert_eq!(nofollow(OFlags::DIRECTORY), Some(Errno::NOTDIR));
    other.make_node("/pipe", 0o644, NewEntry::Fifo).unwrap();
    assert_eq!(client.open("/pipe", &OpenOptions::read_only()).err(), Some(Errno::NXIO));
}

#[test]
fn a_file_that_is_opened_and_closed_again_and_again_stays_open_while_it_is() {
    let cluster = far_pool();
    let (client, other) = (client(&cluster), cluster.root());
    other.write("/file", b"content").unwrap();
    for _ in 0..600 {
        drop(read_only(&client, "/file"));
    }
    let file = read_only(&client, "/file");
    other.remove_file("/file").unwrap();
    client.metadata("/").unwrap();
    let mut buffer = [0; 20];
    assert_eq!(file.read_at(&mut buffer, 0), Ok(7));
}

/// A client of the kind that programs get which keep listings of far directories for a moment.
fn keeping(cluster: &Cluster) -> Namespace {
    let config = FsConfig {
        read_policy: predictive(),
        listed_from_us: Some(0),
        cache: CachePolicy::Auto { ttl: Duration::from_secs(600) },
        ..FsConfig::default()
    };
    let fs = FileSystem::mount(cluster.pool(), "default", config).unwrap();
    Namespace::new(fs, Credentials::ROOT)
}

#[test]
fn a_file_that_is_there_is_opened_by_the_creation_that_finds_it() {
    let cluster = far_pool();
    let (client, other) = (client(&cluster), cluster.root());
    other.write("/file", &[7; 100]).unwrap();
    client.metadata("/").unwrap();
    let options = OpenOptions::new(OFlags::RDWR | OFlags::CREATE, 0o644);
    let mut file = None;
    let opening = cluster.asked(|| file = Some(client.open("/file", &options).unwrap()));
    assert_eq!(opening, just(&["create"]));
    let file = file.unwrap();
    let cutting = cluster.asked(|| drop(client.open("/file", &OpenOptions::create()).unwrap()));
    assert_eq!(cutting, just(&["create", "set_attr"]));
    // It is held: what has no name any more lives on.
    other.remove_file("/file").unwrap();
    file.write_all_at(b"more", 0).unwrap();
    assert_eq!(file.len(), Ok(4));
    let excluding = OpenOptions::new(OFlags::RDWR | OFlags::CREATE | OFlags::EXCL, 0o644);
    other.write("/file", b"other").unwrap();
    assert_eq!(client.open("/file", &excluding).err(), Some(Errno::EXIST));
    // What it does not open is not held either.
    drop(file);
    for round in 0..600 {
        let found = client.open("/file", &options).unwrap();
        assert_eq!(found.len(), Ok(5), "round {round}");
    }
    let mine = Namespace::new(Arc::clone(client.filesystem()), user(1));
    assert_eq!(mine.open("/file", &options).err(), Some(Errno::ACCESS));
}

#[test]
fn what_was_written_just_before_is_seen_by_who_creates_the_file_again() {
    let cluster = far_pool();
    let fs = cluster.mount_writing(CachePolicy::AUTO, predictive());
    let client = Namespace::new(fs, Credentials::ROOT);
    let options = OpenOptions::new(OFlags::RDWR | OFlags::CREATE, 0o644);
    let file = client.open("/file", &options).unwrap();
    for turn in 0..20 {
        file.write_all_at(&[turn; 100], u64::from(turn) * 100).unwrap();
        assert_eq!(client.open("/file", &options).unwrap().len(), Ok(u64::from(turn + 1) * 100));
    }
    drop(client.open("/file", &OpenOptions::create()).unwrap());
    assert_eq!(file.len(), Ok(0));
}

#[test]
fn a_file_is_cut_by_one_request_that_is_judged_by_what_is_known() {
    let cluster = far_pool();
    let (client, other) = (client(&cluster), cluster.root());
    let file = client.open("/file", &OpenOptions::create()).unwrap();
    file.write_all_at(&[7; 100], 0).unwrap();
    for bytes in [10, 50, 0] {
        let cutting = cluster.asked(|| file.set_len(bytes).unwrap());
        assert_eq!(cutting, just(&["set_attr_guarded"]));
        assert_eq!(other.metadata("/file").unwrap().size, bytes);
    }
    let by_path = cluster.asked(|| {
        client.set_attr("/file", true, &AttrUpdate::size(9)).unwrap();
    });
    assert_eq!(by_path, just(&["lookup", "set_attr_guarded"]));
    assert_eq!(file.len(), Ok(9));
    // Beyond the first chunk, and back.
    for bytes in [3 * CHUNK, 5] {
        file.set_len(bytes).unwrap();
        assert_eq!(other.metadata("/file").unwrap().size, bytes);
    }
}

#[test]
fn a_cut_is_judged_by_what_is_so_when_it_is_made() {
    let cluster = far_pool();
    let (root, fs) = (cluster.root(), cluster.mount_reading(CachePolicy::AUTO, predictive()));
    root.set_attr("/", true, &mode(0o777)).unwrap();
    let mine = Namespace::new(fs, user(1));
    let file = mine.open("/mine", &OpenOptions::create()).unwrap();
    file.write_all_at(&[7; 100], 0).unwrap();
    // Set-user bits that somebody else has set go; so do capabilities.
    root.set_attr("/mine", true, &mode(0o4755)).unwrap();
    root.set_xattr("/mine", b"security.capability", &[1; 20], XattrMode::Set).unwrap();
    file.set_len(10).unwrap();
    let attr = root.metadata("/mine").unwrap();
    assert_eq!((attr.size, attr.mode, attr.has_xattrs), (10, 0o755, false));
    // By its path, who may not write to it any more may not cut it; with the open file still.
    root.set_attr("/mine", true, &owner(2)).unwrap();
    let cut = AttrUpdate::size(3);
    assert_eq!(mine.set_attr("/mine", true, &cut).err(), Some(Errno::ACCESS));
    let seen = mine.metadata("/mine").unwrap();
    root.set_attr("/mine", true, &owner(1)).unwrap();
    mine.set_attr("/mine", true, &cut).unwrap();
    root.set_attr("/mine", true, &owner(2)).unwrap();
    let before = azekura_proto::Attr { uid: 1, ..seen };
    let fs = mine.filesystem();
    assert_eq!(fs.setattr_of(&user(1), &before, &AttrUpdate::size(1)), Err(Errno::ACCESS));
    assert_eq!(root.metadata("/mine").unwrap().size, 3);
    file.set_len(2).unwrap();
    assert_eq!(root.metadata("/mine").unwrap().size, 2);
}

#[test]
fn a_file_is_cut_at_once_under_the_own_lease_and_later_under_that_of_another() {
    let cluster = far_pool();
    let (client, other) = (client(&cluster), cluster.root());
    other.write("/file", &[7; SMALL_BYTES]).unwrap();
    let file = client.open("/file", &OpenOptions::new(OFlags::RDWR, 0)).unwrap();
    let mut buffer = vec![0; 100];
    assert_eq!(file.read_at(&mut buffer, 0), Ok(100));
    let start = Instant::now();
    file.set_len(50).unwrap();
    let took = start.elapsed();
    assert!(took < Duration::from_millis(500), "{took:?}");
    assert_eq!(file.read_at(&mut buffer, 0), Ok(50));
    assert_eq!(file.read_at(&mut buffer, 50), Ok(0));
    // Now by somebody else: the reader may rely on what it has until its lease is over.
    assert_eq!(file.read_at(&mut buffer, 0), Ok(50));
    other.set_attr("/file", true, &AttrUpdate::size(20)).unwrap();
    assert_eq!(file.read_at(&mut buffer, 0), Ok(20));
}

#[test]
fn calls_by_path_ask_no_more_than_once_for_what_they_have_met() {
    let cluster = far_pool();
    let (client, other) = (keeping(&cluster), cluster.root());
    other.create_dir("/dir", 0o755).unwrap();
    other.write("/dir/file", b"content").unwrap();
    client.metadata("/dir").unwrap();
    let ask = |what: &[&str], act: &dyn Fn()| {
        assert_eq!(cluster.asked(act), just(what));
    };
    ask(&["lookup", "link"], &|| client.hard_link("/dir/file", "/dir/second").unwrap());
    ask(&["rename"], &|| {
        client.rename("/dir/second", "/dir/third", RenameMode::Replace).unwrap();
    });
    let make = |path: &str| assert!(client.create_dir(path, 0o755).is_ok());
    // What was known of the directory before a rename is confirmed by the creation itself.
    ask(&["create_guarded"], &|| make("/dir/sub"));
    ask(&["create_guarded"], &|| make("/dir/sub2"));
    ask(&["create"], &|| make("/dir/sub2/below"));
    ask(&["remove_directory"], &|| client.remove_dir("/dir/sub2/below").unwrap());
    ask(&["remove_directory"], &|| client.remove_dir("/dir/sub2").unwrap());
    ask(&["create_guarded"], &|| make("/dir/sub2"));
    ask(&["lookup", "set_xattr"], &|| {
        client.set_xattr("/dir/file", b"user.x", b"1", XattrMode::Set).unwrap();
    });
    ask(&["lookup", "remove_xattr"], &|| client.remove_xattr("/dir/file", b"user.x").unwrap());
    let canonical = || assert_eq!(client.canonicalize(b"", "/dir").unwrap().0, b"/dir");
    ask(&["lookup"], &canonical);
    let spaces = cluster.asked(|| assert!(client.space("/dir").is_ok()));
    assert_eq!(spaces, [("space".to_owned(), 2)].into());
    let nameless = OpenOptions::new(OFlags::TMPFILE | OFlags::RDWR, 0o600);
    ask(&["create_unlinked"], &|| drop(client.open("/dir", &nameless).unwrap()));
}

#[test]
fn the_text_of_a_symlink_is_asked_for_once() {
    let cluster = far_pool();
    let (client, other) = (client(&cluster), cluster.root());
    other.symlink(b"file", "/symlink").unwrap();
    other.write("/file", b"content").unwrap();
    client.metadata("/").unwrap();
    let read = || assert_eq!(client.read_link("/symlink").unwrap(), b"file");
    assert_eq!(cluster.asked(read), just(&["lookup", "read_link"]));
    assert_eq!(cluster.asked(read), just(&["lookup"]));
    let looking = cluster.asked(|| assert_eq!(client.metadata("/symlink").unwrap().size, 7));
    assert_eq!(looking, [("lookup".to_owned(), 2)].into());
    let opening = cluster.asked(|| drop(read_only(&client, "/symlink")));
    assert_eq!(opening, [("open_entry".to_owned(), 2)].into());
    client.symlink(b"own", "/own").unwrap();
    let own = cluster.asked(|| assert_eq!(client.read_link("/own").unwrap(), b"own"));
    assert_eq!(own, just(&["lookup"]));
    // Another symlink under the name is another one, and one that is gone is gone.
    other.remove_file("/symlink").unwrap();
    assert_eq!(client.read_link("/symlink").err(), Some(Errno::NOENT));
    other.symlink(b"elsewhere", "/symlink").unwrap();
    assert_eq!(client.read_link("/symlink").unwrap(), b"elsewhere");
    assert_eq!(client.read_link("/file").err(), Some(Errno::INVAL));
    // Also where a listing tells of one that is not there any more.
    let keeping = keeping(&cluster);
    let dir = keeping.open("/", &OpenOptions::new(OFlags::DIRECTORY, 0)).unwrap();
    let (fs, caller) = (keeping.filesystem(), keeping.caller());
    fs.readdir(caller, dir.handle().oid(), 0, 65536, AttrsWanted::No).unwrap();
    assert_eq!(keeping.read_link("/symlink").unwrap(), b"elsewhere");
    other.remove_file("/symlink").unwrap();
    other.symlink(b"new", "/symlink").unwrap();
    assert_eq!(keeping.read_link("/symlink").unwrap(), b"new");
}

#[test]
fn a_directory_that_was_moved_shows_where_it_is() {
    let cluster = far_pool();
    let client = keeping(&cluster);
    for dir in ["/one", "/two", "/one/below"] {
        client.create_dir(dir, 0o755).unwrap();
    }
    let (below, two) =
        (client.metadata("/one/below").unwrap().oid, client.metadata("/two").unwrap().oid);
    client.rename("/one/below", "/two/below", RenameMode::Replace).unwrap();
    client.write("/two/below/file", b"").unwrap();
    let (fs, caller) = (client.filesystem(), client.caller());
    let page = fs.readdir(caller, below, 0, 65536, AttrsWanted::No).unwrap();
    assert_eq!((&page.entries[1].name[..], page.entries[1].oid), (&b".."[..], two));
    assert_eq!(client.metadata("/two/below").unwrap().parent, Some(two));
}
