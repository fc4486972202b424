//! Finding, opening and reading a far file that was never met before: few questions, and nothing older than what
//! was answered.

#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use azekura_policy::PredictiveParameters;
use azekura_posix::{
    AttrUpdate, CachePolicy, Credentials, Errno, File, FileKind, FileSystem, FsConfig, Namespace,
    OFlags, OpenOptions, ReadPolicy, RenameMode, WritePolicy, XattrMode,
};
use azekura_proto::attr::Inheritance;
use azekura_proto::limits::READ_LEASE_MS;
use azekura_testkit::Cluster;

const CHUNK: u64 = 64 << 10;
/// As many bytes as an opening brings at most.
const BROUGHT: usize = azekura_proto::limits::BROUGHT_BYTES_MAX as usize;

fn far_pool(engines: u16) -> Cluster {
    let inheritance = Inheritance { chunk_bytes: CHUNK as u32, ..Inheritance::default() };
    Cluster::start_far(engines, 2, inheritance)
}

fn far_config() -> FsConfig {
    let parameters = PredictiveParameters { round_trip_min_us: 0, ..Default::default() };
    FsConfig {
        // Longer than any test takes.
        cache: CachePolicy::Auto { ttl: Duration::from_secs(600) },
        read_policy: ReadPolicy::Predictive(parameters),
        listed_from_us: Some(0),
        ..FsConfig::default()
    }
}

fn far_client(cluster: &Cluster, caller: Credentials) -> Namespace {
    Namespace::new(FileSystem::mount(cluster.pool(), "default", far_config()).unwrap(), caller)
}

fn far_root(cluster: &Cluster) -> Namespace {
    far_client(cluster, Credentials::ROOT)
}

fn user(uid: u32) -> Credentials {
    Credentials { uid, gid: uid, groups: Vec::new(), process: None }
}

/// What the first engine is asked for meanwhile and answers before it goes on.
fn asked(cluster: &Cluster, act: impl FnOnce()) -> BTreeMap<String, u64> {
    let mut asked = cluster.asked(act);
    asked.remove("goodbye");
    asked
}

fn just(kinds: &[&str]) -> BTreeMap<String, u64> {
    kinds.iter().map(|kind| ((*kind).to_owned(), 1)).collect()
}

fn contents(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 7 + at) as u8).collect()
}

fn make(cluster: &Cluster, path: &str, data: &[u8]) {
    let root = cluster.root();
    let above = &path[..path.rfind('/').unwrap()];
    if !above.is_empty() {
        root.create_dir_all(above, 0o755).unwrap();
    }
    root.write(path, data).unwrap();
}

fn read_at(client: &Namespace, path: &str, offset: u64, bytes: usize) -> Vec<u8> {
    let file = client.open(path, &OpenOptions::read_only()).unwrap();
    let mut buffer = vec![0; bytes];
    let got = file.read_at(&mut buffer, offset).unwrap();
    buffer.truncate(got);
    buffer
}

#[test]
fn the_names_of_a_path_are_looked_up_together() {
    let cluster = far_pool(1);
    make(&cluster, "/a/b/c/file", b"content");
    let client = far_root(&cluster);
    let look = asked(&cluster, || assert_eq!(client.metadata("/a/b/c/file").unwrap().size, 7));
    assert_eq!(look, just(&["walk"]));
    // The way there is known now, and what stands beside it is asked for by itself.
    let look = asked(&cluster, || assert_eq!(client.metadata("/a/b/c/none"), Err(Errno::NOENT)));
    assert_eq!(look, just(&["lookup"]));
    let look =
        asked(&cluster, || assert_eq!(far_root(&cluster).metadata("/a/none/x"), Err(Errno::NOENT)));
    assert_eq!(look, just(&["container_open", "walk"]));
    let look = asked(&cluster, || {
        let file = far_root(&cluster).metadata("/a/b/c/file/x");
        assert_eq!(file, Err(Errno::NOTDIR));
    });
    assert_eq!(look, just(&["container_open", "walk"]));
    let last = far_root(&cluster).look_at("/a/b/c", true).unwrap();
    assert_eq!(last.kind, FileKind::Directory);
    // A process with children believes nothing of it, but asks for as much at a time.
    let parent = far_root(&cluster);
    parent.filesystem().drain().unwrap();
    let look = asked(&cluster, || assert_eq!(parent.look_at("/a/b/c/file", true).unwrap().size, 7));
    assert_eq!(look, just(&["walk"]));
    make(&cluster, "/a/b/c/file", b"longer content");
    assert_eq!(parent.look_at("/a/b/c/file", true).unwrap().size, 14);
}

#[test]
fn the_names_of_a_path_are_looked_up_together_behind_what_is_on_its_way_too() {
    let cluster = far_pool(1);
    make(&cluster, "/old/b/c/file", b"content");
    let config = FsConfig {
        write_policy: WritePolicy::Always,
        changes_in_flight: true,
        cache: CachePolicy::Auto { ttl: Duration::from_millis(300) },
        ..far_config()
    };
    let fs = FileSystem::mount(cluster.pool(), "default", config).unwrap();
    let client = Namespace::new(fs, Credentials::ROOT);
    for dir in ["/new", "/new/a", "/new/a/b", "/new/a/b/c"] {
        client.create_dir(dir, 0o755).unwrap();
    }
    assert!(cluster.count("create_numbered") > 0);
    client.create_dir("/old/b/made", 0o755).unwrap();
    client.create_dir("/old/b/made/below", 0o755).unwrap();
    std::thread::sleep(Duration::from_millis(400));
    // What was believed of directories is over, and what was made is still known here.
    let look = asked(&cluster, || assert_eq!(client.metadata("/old/b/c/file").unwrap().size, 7));
    assert_eq!(look, just(&["walk"]));
    let file = client.open("/new/a/b/c/file", &OpenOptions::create()).unwrap();
    file.write_all_at(b"more", 0).unwrap();
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(client.metadata("/new/a/b/c/file").unwrap().size, 4);
    assert_eq!(client.metadata("/old/b/made/below").unwrap().kind, FileKind::Directory);
    assert_eq!(client.metadata("/old/b/made/none/x"), Err(Errno::NOENT));
}

#[test]
fn where_a_file_stands_that_was_opened_just_now_is_known() {
    let cluster = far_pool(1);
    make(&cluster, "/dir/file", b"content");
    let client = far_root(&cluster);
    client.read("/dir/file").unwrap();
    let canonical = |path: &str| client.canonicalize(b"", path).map(|(path, _)| path);
    let look = asked(&cluster, || assert_eq!(canonical("/dir/file").unwrap(), b"/dir/file"));
    assert_eq!(look, just(&[]));
    // Looks at the file itself are none of where it stands.
    let look = asked(&cluster, || assert_eq!(client.metadata("/dir/file").unwrap().size, 7));
    assert_eq!(look, just(&["lookup"]));
    assert_eq!(canonical("/dir/file/"), Err(Errno::NOTDIR));
    // Own changes count at once.
    client.read("/dir/file").unwrap();
    client.rename("/dir/file", "/dir/moved", RenameMode::Replace).unwrap();
    assert_eq!(canonical("/dir/file"), Err(Errno::NOENT));
    client.symlink(b"moved", "/dir/file").unwrap();
    assert_eq!(canonical("/dir/file").unwrap(), b"/dir/moved");
    // A process with children asks.
    client.read("/dir/moved").unwrap();
    client.filesystem().drain().unwrap();
    let look = asked(&cluster, || assert_eq!(canonical("/dir/moved").unwrap(), b"/dir/moved"));
    assert_eq!(look, just(&["walk"]));
}

#[test]
fn the_way_to_a_directory_is_believed_by_whoever_it_is_handed_on_to_for_no_longer() {
    let cluster = far_pool(1);
    make(&cluster, "/a/b/c/file", b"content");
    let ttl = Duration::from_millis(1500);
    let config = || FsConfig { cache: CachePolicy::Auto { ttl }, ..far_config() };
    let client = || {
        let fs = FileSystem::mount(cluster.pool(), "default", config()).unwrap();
        Namespace::new(fs, Credentials::ROOT)
    };
    let (first, second) = (client(), client());
    assert_eq!(first.filesystem().believed_way(b"/a/b/c"), None);
    let dir = first.metadata("/a/b/c").unwrap().oid;
    let way = first.filesystem().believed_way(b"/a/b/c").unwrap();
    assert_eq!((way.dirs.len(), way.dirs[2]), (3, dir));
    let path = |client: &Namespace, path: &[u8]| client.filesystem().believed_path(path, dir);
    assert_eq!(path(&second, b"/a/b/c"), None);
    second.filesystem().take_over_way(b"/a/b/c", &way);
    assert_eq!(path(&second, b"//a/b//c/").unwrap(), b"/a/b/c");
    for other in [&b"/a/b"[..], b"", b"/", b"/a/./b/c", b"/a/b/../b/c", b"/a/b/c/d"] {
        assert_eq!(path(&second, other), None);
    }
    let look = asked(&cluster, || assert_eq!(second.metadata("/a/b/c/file").unwrap().size, 7));
    assert_eq!(look, just(&["lookup"]));
    second.rename("/a/b", "/a/elsewhere", RenameMode::Replace).unwrap();
    assert_eq!(path(&second, b"/a/b/c"), None, "own changes count at once");
    std::thread::sleep(ttl);
    assert_eq!(first.filesystem().believed_way(b"/a/b/c"), None);
    let third = client();
    third.filesystem().take_over_way(b"/a/b/c", &way);
    assert_eq!(path(&third, b"/a/b/c"), None, "it is as old as it was");
}

#[test]
fn short_files_come_whole_once_the_program_has_read_some_to_their_start() {
    let cluster = far_pool(1);
    let long = contents(3 * BROUGHT);
    for number in 0..6 {
        make(&cluster, &format!("/dir/{number}"), &long);
    }
    let client = far_root(&cluster);
    let read = |path: &str| {
        let mut kinds = asked(&cluster, || assert!(client.read(path).unwrap() == long, "{path}"));
        kinds.retain(|kind, _| kind == "read");
        !kinds.is_empty()
    };
    // Not in an order in which they would be brought before they are opened.
    let reads = ["/dir/4", "/dir/1", "/dir/5", "/dir/0"].map(read);
    assert_eq!(reads, [true, true, false, false]);
    // One of which only the end is read.
    assert_eq!(read_at(&client, "/dir/2", long.len() as u64 - 10, 10), long[long.len() - 10..]);
    assert!(read("/dir/3"));
}

#[test]
fn a_walk_understands_symlinks_and_dots_on_its_way() {
    let cluster = far_pool(1);
    make(&cluster, "/a/b/file", b"content");
    let root = cluster.root();
    root.symlink(b"a/b", "/short").unwrap();
    root.symlink(b"../a", "/a/round").unwrap();
    root.symlink(b"/a/b/file", "/a/b/last").unwrap();
    root.symlink(b"circle", "/circle").unwrap();
    for path in [
        "/short/file",
        "/short/../b/./file",
        "/a/round/round/b/file",
        "/a/b/../../a/b/file",
        "/short/last",
        "//a///b//file",
    ] {
        let client = far_root(&cluster);
        assert_eq!(client.metadata(path).unwrap().size, 7, "{path}");
        assert_eq!(far_root(&cluster).read(path).unwrap(), b"content", "{path}");
    }
    let client = far_root(&cluster);
    assert_eq!(client.symlink_metadata("/a/b/last").unwrap().kind, FileKind::Symlink);
    assert_eq!(client.metadata("/circle/file"), Err(Errno::LOOP));
    assert_eq!(client.metadata("/short/file/"), Err(Errno::NOTDIR));
    // Where they lead is believed for as long as where directories do.
    let look = asked(&cluster, || assert_eq!(client.metadata("/short/file").unwrap().size, 7));
    assert_eq!(look, just(&["lookup"]));
}

#[test]
fn where_one_is_is_told_again_without_asking_again() {
    let cluster = far_pool(1);
    make(&cluster, "/a/b/file", b"content");
    let client = far_root(&cluster);
    let told = |path: &str| client.canonicalize(b"", path).map(|(path, attr)| (path, attr.kind));
    let wanted = Ok((b"/a/b".to_vec(), FileKind::Directory));
    assert_eq!(told("/a/b"), wanted);
    assert_eq!(asked(&cluster, || assert_eq!(told("/a/./b/"), wanted)), just(&[]));
    assert_eq!(
        asked(&cluster, || assert_eq!(told("/a/none"), Err(Errno::NOENT))),
        just(&["lookup"])
    );
    // A file is asked for each time, and what the process does itself is known at once.
    let look = asked(&cluster, || assert!(told("/a/b/file").is_ok()));
    assert_eq!(look, just(&["lookup"]));
    // What was not known yet is asked for together, as far as it leads.
    for path in ["/a/b/file", "/a/b/none", "/a/none/x", "/a/b/file/x"] {
        let wanted = far_root(&cluster).metadata(path).map(|_| path.as_bytes().to_vec());
        let other = far_root(&cluster);
        let look = asked(&cluster, || {
            assert_eq!(other.canonicalize(b"", path).map(|(path, _)| path), wanted);
        });
        assert_eq!(look, just(&["walk"]), "{path}");
    }
    let other = far_root(&cluster);
    let names: Vec<_> = (0..20).map(|number| format!("/a/b/{number}")).collect();
    for name in &names {
        make(&cluster, name, b"");
    }
    let look = asked(&cluster, || {
        for name in &names {
            assert_eq!(other.canonicalize(b"", name).unwrap().0, name.as_bytes());
        }
    });
    assert_eq!(look.get("read_directory"), Some(&2), "{look:?}");
    assert!(look.values().sum::<u64>() < 8, "{look:?}");
    client.rename("/a/b", "/a/c", RenameMode::NoReplace).unwrap();
    assert_eq!(told("/a/b"), Err(Errno::NOENT));
    assert_eq!(told("/a/c"), Ok((b"/a/c".to_vec(), FileKind::Directory)));
}

#[test]
fn who_may_not_search_a_directory_learns_nothing_of_what_lies_below() {
    let cluster = far_pool(1);
    make(&cluster, "/open/shut/open/file", b"content");
    let root = cluster.root();
    let mode = |mode| AttrUpdate { mode: Some(mode), ..AttrUpdate::default() };
    root.set_attr("/open/shut", true, &mode(0o700)).unwrap();
    let client = far_client(&cluster, user(7));
    for path in ["/open/shut/open/file", "/open/shut/none", "/open/shut/open/none/x"] {
        assert_eq!(client.metadata(path), Err(Errno::ACCESS), "{path}");
        assert_eq!(client.look_at(path, true), Err(Errno::ACCESS), "{path}");
        let opened = client.open(path, &OpenOptions::read_only());
        assert_eq!(opened.map(drop), Err(Errno::ACCESS), "{path}");
    }
    assert_eq!(client.metadata("/open/shut").unwrap().mode, 0o700);
    root.set_attr("/open/shut", true, &mode(0o711)).unwrap();
    let client = far_client(&cluster, user(7));
    let look = asked(&cluster, || {
        assert_eq!(client.metadata("/open/shut/open/file").unwrap().size, 7);
    });
    assert_eq!(look, just(&["walk"]), "what it takes to judge comes along");
}

#[test]
fn a_path_over_several_engines_leads_where_it_leads() {
    let cluster = far_pool(3);
    for number in 0..12 {
        make(&cluster, &format!("/a/dir{number}/b/c/file"), &contents(number));
    }
    let client = far_root(&cluster);
    for number in 0..12 {
        let path = format!("/a/dir{number}/b/c/file");
        assert_eq!(client.metadata(&path).unwrap().size, number as u64);
        assert_eq!(far_root(&cluster).read(&path).unwrap(), contents(number));
        let absent = format!("/a/dir{number}/b/none/file");
        assert_eq!(client.metadata(absent), Err(Errno::NOENT));
    }
}

#[test]
fn steps_that_were_met_are_no_longer_believed_after_an_own_change() {
    let cluster = far_pool(1);
    make(&cluster, "/a/b/file", b"old");
    make(&cluster, "/new/file", b"newer");
    let client = far_root(&cluster);
    assert_eq!(client.metadata("/a/b/file").unwrap().size, 3);
    client.rename("/a/b", "/a/c", RenameMode::Replace).unwrap();
    client.rename("/new", "/a/b", RenameMode::Replace).unwrap();
    assert_eq!(client.metadata("/a/b/file").unwrap().size, 5);
    assert_eq!(client.metadata("/a/c/file").unwrap().size, 3);
}

#[test]
fn a_short_file_comes_with_the_answer_to_its_opening() {
    let cluster = far_pool(1);
    for bytes in [1, 100, BROUGHT] {
        let client = far_root(&cluster);
        let path = format!("/file{bytes}");
        make(&cluster, &path, &contents(bytes));
        let read = asked(&cluster, || assert_eq!(client.read(&path).unwrap(), contents(bytes)));
        assert_eq!(read, just(&["open_entry"]), "{bytes} bytes");
    }
    make(&cluster, "/empty", b"");
    let client = far_root(&cluster);
    let read = asked(&cluster, || assert_eq!(client.read("/empty").unwrap(), b""));
    assert_eq!(read, just(&["open_entry"]));
}

#[test]
fn a_short_file_comes_with_its_opening_behind_changes_that_are_on_their_way() {
    let cluster = far_pool(1);
    for number in 0..50 {
        make(&cluster, &format!("/dir/{number}"), &contents(3000));
    }
    let config =
        FsConfig { changes_in_flight: true, write_policy: WritePolicy::Always, ..far_config() };
    let fs = FileSystem::mount(cluster.pool(), "default", config).unwrap();
    let client = Namespace::new(fs, Credentials::ROOT);
    client.create_dir("/new", 0o755).unwrap();
    let (mut behind, mut reads) = (0, 0);
    for number in 0..50 {
        client.write(format!("/new/{number}"), b"on its way").unwrap();
        let has_some = client.filesystem().pool().has_changes_in_flight();
        let asked = asked(&cluster, || {
            // In no order, so that none is asked for ahead.
            let path = format!("/dir/{}", number * 37 % 50);
            assert_eq!(client.read(path).unwrap(), contents(3000));
        });
        behind += u32::from(has_some);
        reads += asked.get("read").copied().unwrap_or_default();
    }
    assert!(behind > 25, "{behind} of 50");
    assert_eq!(reads, 0);
}

/// Files of 100 bytes and more, each a byte longer than the one before.
fn ten_open_files(cluster: &Cluster, client: &Namespace) -> Vec<File> {
    let open = |number: usize| {
        make(cluster, &format!("/dir/{number}"), &contents(100 + number));
        client.open(format!("/dir/{number}"), &OpenOptions::read_only()).unwrap()
    };
    (0..10).map(open).collect()
}

fn let_leases_run_out() {
    std::thread::sleep(Duration::from_millis(READ_LEASE_MS) + Duration::from_millis(100));
}

#[test]
fn attributes_of_open_files_are_asked_for_together() {
    let cluster = far_pool(1);
    let client = far_root(&cluster);
    let files = ten_open_files(&cluster, &client);
    let open: Vec<_> = files.iter().map(File::handle).collect();
    let fs = client.filesystem();
    let_leases_run_out();
    let together = asked(&cluster, || {
        for (number, file) in open.iter().enumerate() {
            assert_eq!(fs.getattr_open(file).unwrap().size as usize, 100 + number);
        }
    });
    assert_eq!(together, BTreeMap::from([("lease_file".to_owned(), 10)]), "their leases were over");
    // A file of its own is asked for by itself.
    let alone = far_root(&cluster).open("/dir/0", &OpenOptions::read_only()).unwrap();
    let_leases_run_out();
    let look = asked(&cluster, || assert_eq!(alone.metadata().unwrap().size, 100));
    assert_eq!(look, just(&["get_attr"]));
    // What others change is not what is known any more.
    fs.leased_attr(open[3]).unwrap();
    cluster.root().write("/dir/3", b"other").unwrap();
    assert!(fs.leased_attr(open[3]).is_none_or(|attr| attr.size == 5));
    assert_eq!(fs.getattr_open(open[3]).unwrap().size, 5);
}

#[test]
fn short_files_that_are_read_again_are_leased_together_and_not_read_again() {
    let cluster = far_pool(1);
    let client = far_root(&cluster);
    let files = ten_open_files(&cluster, &client);
    let read_all = |lengths: &dyn Fn(usize) -> usize| {
        for (number, file) in files.iter().enumerate() {
            let mut buffer = vec![0; 4096];
            let got = file.read_at(&mut buffer, 0).unwrap();
            assert_eq!(buffer[..got], contents(lengths(number)));
        }
    };
    assert_eq!(asked(&cluster, || read_all(&|number| 100 + number)), BTreeMap::new());
    let_leases_run_out();
    let again = asked(&cluster, || read_all(&|number| 100 + number));
    assert_eq!(again, BTreeMap::from([("lease_file".to_owned(), 10)]));
    let_leases_run_out();
    make(&cluster, "/dir/4", &contents(50));
    let again = asked(&cluster, || read_all(&|number| if number == 4 { 50 } else { 100 + number }));
    assert_eq!(again.get("lease_file"), Some(&10), "{again:?}");
}

#[test]
fn a_name_is_opened_by_one_request_also_where_the_pool_is_near() {
    let cluster = far_pool(1);
    make(&cluster, "/dir/file", b"content");
    let root = cluster.root();
    root.symlink(b"file", "/dir/link").unwrap();
    let fs = root.filesystem();
    let dir = root.metadata("/dir").unwrap().oid;
    let open = |name: &[u8], flags| {
        fs.open_at(&Credentials::ROOT, dir, name, flags).map(|(attr, _)| (attr.kind, attr.size))
    };
    let opened = asked(&cluster, || {
        assert_eq!(open(b"file", OFlags::RDONLY), Ok((FileKind::Regular, 7)));
    });
    assert_eq!(opened.get("open_entry"), Some(&1));
    assert!(!opened.contains_key("lookup") && !opened.contains_key("open"), "{opened:?}");
    assert_eq!(open(b"link", OFlags::RDONLY), Err(Errno::LOOP));
    assert_eq!(open(b"none", OFlags::RDONLY), Err(Errno::NOENT));
    assert_eq!(open(b".", OFlags::RDONLY).map(|(kind, _)| kind), Ok(FileKind::Directory));
    assert_eq!(open(b"..", OFlags::RDWR), Err(Errno::ISDIR));
    assert_eq!(open(b"file", OFlags::WRONLY | OFlags::TRUNC), Ok((FileKind::Regular, 0)));
    // An entry and its inode at different engines.
    let cluster = far_pool(3);
    for number in 0..12 {
        make(&cluster, &format!("/from{number}/file"), b"content");
        let root = cluster.root();
        root.create_dir_all("/to", 0o755).unwrap();
        let name = format!("moved{number}");
        root.rename(format!("/from{number}/file"), format!("/to/{name}"), RenameMode::Replace)
            .unwrap();
        let dir = root.metadata("/to").unwrap().oid;
        let opened =
            root.filesystem().open_at(&Credentials::ROOT, dir, name.as_bytes(), OFlags::RDONLY);
        assert_eq!(opened.unwrap().0.size, 7);
    }
}

#[test]
fn the_end_of_a_longer_file_comes_with_the_answer_to_its_opening() {
    let cluster = far_pool(1);
    let data = contents(3 * BROUGHT + 11);
    make(&cluster, "/file", &data);
    let client = far_root(&cluster);
    let start = data.len() - BROUGHT;
    let read = asked(&cluster, || {
        assert_eq!(read_at(&client, "/file", start as u64, 2 * BROUGHT), data[start..]);
    });
    assert_eq!(read, just(&["open_entry"]));
    assert_eq!(read_at(&client, "/file", start as u64 - 1, 9), data[start - 1..start + 8]);
    assert_eq!(client.read("/file").unwrap(), data);
}

#[test]
fn what_lies_before_the_end_comes_at_once_for_who_begins_there() {
    let cluster = far_pool(1);
    let data = contents(CHUNK as usize - 100);
    make(&cluster, "/archive", &data);
    let client = far_root(&cluster);
    let file = client.open("/archive", &OpenOptions::read_only()).unwrap();
    let read = |from: usize, bytes: usize| {
        let mut buffer = vec![0; bytes];
        let got = file.read_at(&mut buffer, from as u64).unwrap();
        assert!(buffer[..got] == data[from..(from + bytes).min(data.len())], "{from}");
    };
    let from = data.len() - 3 * BROUGHT;
    let begun = asked(&cluster, || {
        read(data.len() - 20, 40);
        (from..data.len()).step_by(1000).for_each(|at| read(at, 1000));
    });
    assert_eq!(begun, just(&["read"]));
    let rest = asked(&cluster, || (0..from).step_by(1000).for_each(|at| read(at, 1000)));
    assert_eq!(rest, just(&["read"]), "of a short one that is all");
    // Others change it meanwhile.
    std::thread::sleep(Duration::from_millis(1100));
    cluster.root().write("/archive", &contents(50)).unwrap();
    let mut buffer = [0; 100];
    assert_eq!(file.read_at(&mut buffer, 0), Ok(50));
    assert!(buffer[..50] == contents(50));
}

/// Length of a file over two shards: its last chunk is the other target's, and longer than what comes with an opening.
const STRIPED: usize = CHUNK as usize * 6 - 100;

#[test]
fn the_end_of_a_striped_file_comes_with_the_leases_of_all_its_shards() {
    let cluster = far_pool(1);
    let data = contents(STRIPED);
    make(&cluster, "/file", &data);
    let client = far_root(&cluster);
    let start = STRIPED - BROUGHT;
    let mut file = None;
    let begun = asked(&cluster, || {
        let opened = client.open("/file", &OpenOptions::read_only()).unwrap();
        let mut buffer = vec![0; 2 * BROUGHT];
        assert_eq!(opened.read_at(&mut buffer, start as u64), Ok(BROUGHT));
        assert!(buffer[..BROUGHT] == data[start..]);
        file = Some(opened);
    });
    assert_eq!(begun, just(&["open_entry"]));
    let file = file.unwrap();
    let before = asked(&cluster, || {
        let mut buffer = vec![0; BROUGHT];
        assert_eq!(file.read_at(&mut buffer, (start - BROUGHT) as u64), Ok(BROUGHT));
        assert!(buffer[..] == data[start - BROUGHT..start]);
    });
    assert_eq!(before, just(&["read"]));
    // Others make it longer, in the shard that is not the home's.
    let writer = cluster.root().open("/file", &OpenOptions::new(OFlags::RDWR, 0)).unwrap();
    writer.write_all_at(b"more", STRIPED as u64).unwrap();
    let mut buffer = [0; 10];
    assert_eq!(file.read_at(&mut buffer, STRIPED as u64 - 2), Ok(6));
    assert_eq!(buffer[..6], [&data[STRIPED - 2..], b"more"].concat());
    assert_eq!(far_root(&cluster).read("/file").unwrap(), [&data[..], b"more"].concat());
}

#[test]
fn of_a_file_on_two_engines_nothing_comes_that_one_of_them_does_not_have() {
    let cluster = far_pool(2);
    let data = contents(STRIPED);
    for number in 0..8 {
        let path = format!("/file{number}");
        make(&cluster, &path, &data);
        let client = far_root(&cluster);
        let end = read_at(&client, &path, (STRIPED - BROUGHT) as u64, 2 * BROUGHT);
        assert!(end == data[STRIPED - BROUGHT..]);
        assert!(client.read(&path).unwrap() == data);
    }
}

#[test]
fn of_a_striped_file_that_is_being_written_nothing_is_kept() {
    let cluster = far_pool(1);
    let data = contents(STRIPED);
    make(&cluster, "/file", &data);
    let reader = far_root(&cluster).open("/file", &OpenOptions::read_only()).unwrap();
    let mut buffer = [0; 4];
    assert_eq!(reader.read_at(&mut buffer, STRIPED as u64 - 4), Ok(4));
    let writer = cluster.root().open("/file", &OpenOptions::new(OFlags::RDWR, 0)).unwrap();
    for round in 0..20_u8 {
        writer.write_all_at(&[round; 4], STRIPED as u64 - 4).unwrap();
        assert_eq!(reader.read_at(&mut buffer, STRIPED as u64 - 4), Ok(4));
        assert_eq!(buffer, [round; 4]);
        let other = far_root(&cluster);
        assert_eq!(read_at(&other, "/file", STRIPED as u64 - 4, 9), [round; 4]);
    }
}

#[test]
fn a_file_that_ends_with_a_hole_or_in_another_shard_is_read_as_it_is() {
    let cluster = far_pool(1);
    let root = cluster.root();
    let small = |bytes: u64| {
        let mut data = contents(10);
        data.resize(bytes as usize, 0);
        data
    };
    for bytes in [20, BROUGHT as u64 - 1, BROUGHT as u64 * 2, CHUNK, CHUNK + 10, 3 * CHUNK + 5] {
        for class in ["S1", "S2"] {
            let dir = format!("/{class}-{bytes}");
            root.create_dir(&dir, 0o755).unwrap();
            root.set_xattr(&dir, b"user.azekura.class", class.as_bytes(), XattrMode::Set).unwrap();
            let path = format!("{dir}/file");
            root.write(&path, &contents(10)).unwrap();
            let file = root.open(&path, &OpenOptions::new(OFlags::RDWR, 0)).unwrap();
            file.set_len(bytes).unwrap();
            assert_eq!(far_root(&cluster).read(&path).unwrap(), small(bytes), "{path}");
            file.write_all_at(b"end", bytes - 3).unwrap();
            let wanted = [&small(bytes)[..bytes as usize - 3], b"end"].concat();
            assert_eq!(far_root(&cluster).read(&path).unwrap(), wanted, "{path}");
            assert_eq!(read_at(&far_root(&cluster), &path, bytes - 3, 10), b"end", "{path}");
        }
    }
}

#[test]
fn what_came_with_the_opening_is_not_read_once_the_file_has_changed() {
    let cluster = far_pool(1);
    make(&cluster, "/file", b"before");
    let client = far_root(&cluster);
    let file = client.open("/file", &OpenOptions::read_only()).unwrap();
    let mut buffer = [0; 6];
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 6);
    assert_eq!(&buffer, b"before");
    // Others, who are answered when nobody may read the old any more.
    cluster.root().write("/file", b"after!").unwrap();
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 6);
    assert_eq!(&buffer, b"after!");
    // The same client, through another handle.
    let file = client.open("/file", &OpenOptions::read_only()).unwrap();
    let own = client.open("/file", &OpenOptions::new(OFlags::RDWR, 0)).unwrap();
    own.write_all_at(b"mine", 0).unwrap();
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 6);
    assert_eq!(&buffer, b"miner!");
    own.set_len(2).unwrap();
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 2);
}

#[test]
fn nothing_that_was_answered_is_missed_by_an_opening_beside_it() {
    let cluster = far_pool(1);
    make(&cluster, "/file", b"000000");
    let writer = cluster.root();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let read = || {
            let client = far_root(&cluster);
            let mut last = 0;
            while !is_over.load(Ordering::SeqCst) {
                let text = String::from_utf8(client.read("/file").unwrap()).unwrap();
                let number: u64 = text.parse().unwrap();
                assert!(number >= last, "{number} after {last}");
                last = number;
            }
        };
        let readers = [scope.spawn(read), scope.spawn(read)];
        for number in 0..300 {
            let file = writer.open("/file", &OpenOptions::new(OFlags::RDWR, 0)).unwrap();
            file.write_all_at(format!("{number:06}").as_bytes(), 0).unwrap();
            if number % 10 == 0 {
                let seen = far_root(&cluster).read("/file").unwrap();
                assert_eq!(seen, format!("{number:06}").as_bytes());
            }
        }
        is_over.store(true, Ordering::SeqCst);
        for reader in readers {
            reader.join().unwrap();
        }
    });
}

#[test]
fn an_opening_that_is_refused_brings_nothing() {
    let cluster = far_pool(1);
    make(&cluster, "/secret", b"content");
    let root = cluster.root();
    let mode = AttrUpdate { mode: Some(0o600), ..AttrUpdate::default() };
    root.set_attr("/secret", true, &mode).unwrap();
    let client = far_client(&cluster, user(7));
    let opened = client.open("/secret", &OpenOptions::read_only());
    assert_eq!(opened.map(drop), Err(Errno::ACCESS));
    let directory = client.open("/", &OpenOptions::read_only()).unwrap();
    assert_eq!(directory.metadata().unwrap().kind, FileKind::Directory);
}
