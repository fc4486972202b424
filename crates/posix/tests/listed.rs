//! Listings of far directories that bring along what is looked at next: nobody is asked for it again, own
//! changes are seen at once, and those of others in the time that is promised.

#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

use std::time::{Duration, Instant};

use azekura_posix::{
    AttrUpdate, AttrsWanted, CachePolicy, Credentials, Errno, FileSystem, FsConfig, Namespace,
    OFlags, OpenOptions, RenameMode, XattrMode,
};
use azekura_proto::attr::Inheritance;
use azekura_testkit::{Cluster, Random};

/// For how long what a listing brought may be believed.
const BELIEVED: Duration = Duration::from_secs(1);

/// A client that believes listings, as the preload library does of pools that are far.
fn far_client(cluster: &Cluster) -> Namespace {
    client_believing(cluster, BELIEVED)
}

/// One that believes them for longer than any test takes.
fn credulous_client(cluster: &Cluster) -> Namespace {
    client_believing(cluster, Duration::from_secs(600))
}

fn client_believing(cluster: &Cluster, ttl: Duration) -> Namespace {
    let cache = CachePolicy::Auto { ttl };
    let config = FsConfig { cache, listed_from_us: Some(0), ..FsConfig::default() };
    let fs = FileSystem::mount(cluster.pool(), "default", config).unwrap();
    Namespace::new(fs, Credentials::ROOT)
}

/// Opens and lists a directory as a program does, with the look at what it has opened.
fn list(client: &Namespace, path: &str) -> Vec<String> {
    list_opened(client, path, OFlags::DIRECTORY)
}

/// The same for one that is opened in this way.
fn list_opened(client: &Namespace, path: &str, flags: OFlags) -> Vec<String> {
    let dir = client.open(path, &OpenOptions::new(flags, 0)).unwrap();
    dir.metadata().unwrap();
    let (fs, caller) = (client.filesystem(), client.caller());
    let (mut names, mut cookie) = (Vec::new(), 0);
    loop {
        let page = fs.readdir(caller, dir.handle().oid(), cookie, 65536, AttrsWanted::No).unwrap();
        for entry in &page.entries {
            assert_eq!(entry.attr, None);
            names.push(String::from_utf8(entry.name.clone()).unwrap());
        }
        match page.entries.last() {
            Some(last) if !page.end => cookie = last.cookie,
            _ => break,
        }
    }
    assert_eq!(names[..2], [".", ".."]);
    names.drain(..2);
    names
}

/// How often the first engine is asked for each of these.
fn asked<const N: usize>(cluster: &Cluster, requests: [&str; N], work: impl FnOnce()) -> [u64; N] {
    let before = requests.map(|request| cluster.count(request));
    work();
    std::array::from_fn(|index| cluster.count(requests[index]) - before[index])
}

fn make_files(cluster: &Cluster, dir: &str, count: usize) {
    let root = cluster.root();
    root.create_dir_all(dir, 0o755).unwrap();
    for number in 0..count {
        root.write(format!("{dir}/file{number}"), &vec![7; number]).unwrap();
    }
}

#[test]
fn names_that_were_listed_are_looked_at_without_asking() {
    let cluster = Cluster::start_far(1, 4, Inheritance::default());
    make_files(&cluster, "/dir", 100);
    let (client, exact) = (credulous_client(&cluster), cluster.root());
    let (fs, caller) = (client.filesystem(), client.caller());
    client.look_at("/dir", true).unwrap();
    let opening = asked(&cluster, ["lookup", "get_attr", "open", "read_directory"], || {
        assert_eq!(list(&client, "/dir").len(), 100);
    });
    assert_eq!(opening, [0, 0, 1, 4], "one round trip, with a request for each shard");
    // As `tar` does it.
    let opening = asked(&cluster, ["lookup", "get_attr", "open", "read_directory"], || {
        assert_eq!(list_opened(&client, "/dir", OFlags::RDONLY).len(), 100);
    });
    assert_eq!(opening, [0, 0, 1, 4]);
    let found: Vec<_> = (0..100).map(|number| format!("/dir/file{number}")).collect();
    let looks = asked(&cluster, ["lookup", "get_attr", "get_xattr", "list_xattrs"], || {
        for path in &found {
            let attr = client.look_at(path, false).unwrap();
            assert_eq!(fs.listxattr_of(caller, &attr), Ok(Vec::new()));
            assert_eq!(fs.getxattr_of(caller, &attr, b"user.x"), Err(Errno::NODATA));
            assert_eq!(
                fs.getxattr_of(caller, &attr, b"system.posix_acl_access"),
                Err(Errno::OPNOTSUPP)
            );
        }
    });
    assert_eq!(looks, [0; 4]);
    for path in &found {
        assert_eq!(client.look_at(path, true), exact.metadata(path));
    }
    assert_eq!(client.look_at("/dir/other", true), Err(Errno::NOENT));
    assert_eq!(client.look_at("/dir/file1/", true), Err(Errno::NOTDIR));
}

#[test]
fn without_being_told_so_a_client_asks_for_each() {
    let cluster = Cluster::start_far(1, 2, Inheritance::default());
    make_files(&cluster, "/dir", 10);
    let fs = FileSystem::mount(cluster.pool(), "default", FsConfig::default()).unwrap();
    let client = Namespace::new(fs, Credentials::ROOT);
    let names = list(&client, "/dir");
    let looks = asked(&cluster, ["lookup"], || {
        for name in &names {
            client.look_at(format!("/dir/{name}"), false).unwrap();
        }
    });
    assert!(looks[0] >= 10, "{looks:?}");
}

#[test]
fn a_walk_over_directories_brings_them_along() {
    const DIRECTORIES: usize = 20;
    let cluster = Cluster::start_far(1, 3, Inheritance::default());
    for number in 0..DIRECTORIES {
        make_files(&cluster, &format!("/tree/dir{number}"), 5);
    }
    let client = credulous_client(&cluster);
    let requests = ["lookup", "get_attr", "open", "read_directory"];
    let (mut rounds, mut files) = (0, 0);
    let mut walk = |path: &str| {
        let mut found = Vec::new();
        let counts = asked(&cluster, requests, || {
            client.look_at(path, false).unwrap();
            found = list(&client, path);
            for name in &found {
                client.look_at(format!("{path}/{name}"), false).unwrap();
            }
        });
        rounds += usize::from(counts != [0; 4]);
        found
    };
    for name in walk("/tree") {
        files += walk(&format!("/tree/{name}")).len();
    }
    assert_eq!(files, 5 * DIRECTORIES);
    // The tree, a first directory, a second with those beside it, and two more such steps.
    assert!(rounds <= 5, "{rounds} of {} directories made the program wait", 1 + DIRECTORIES);
}

#[test]
fn a_walk_over_what_is_too_old_asks_for_many_at_once() {
    let cluster = Cluster::start_far(1, 3, Inheritance::default());
    make_files(&cluster, "/dir", 60);
    let client = far_client(&cluster);
    let names = list(&client, "/dir");
    for turn in 0..2 {
        std::thread::sleep(BELIEVED);
        let exact = cluster.root();
        exact.write("/dir/file9", &vec![1; 1000 + turn]).unwrap();
        let [lookups, lists] = asked(&cluster, ["lookup", "read_directory"], || {
            for name in &names {
                let attr = client.look_at(format!("/dir/{name}"), false).unwrap();
                let size = name[4..].parse().unwrap();
                assert_eq!(attr.size, if size == 9 { 1000 + turn as u64 } else { size });
            }
        });
        assert!(lookups <= 3 && lists == 3, "{lookups} lookups, {lists} parts of listings");
    }
}

#[test]
fn no_name_is_forgotten_where_the_parts_of_a_directory_are_of_unequal_length() {
    let cluster = Cluster::start_far(1, 4, Inheritance::default());
    for count in [40, 60, 100, 150] {
        let dir = format!("/dir{count}");
        make_files(&cluster, &dir, count);
        let client = far_client(&cluster);
        let names = list(&client, &dir);
        std::thread::sleep(BELIEVED);
        let [lookups] = asked(&cluster, ["lookup"], || {
            for name in &names {
                client.look_at(format!("{dir}/{name}"), false).unwrap();
            }
        });
        assert!(lookups <= 3, "{lookups} lookups of {count} names");
    }
}

#[test]
fn what_another_client_does_is_seen_in_time() {
    let cluster = Cluster::start_far(1, 3, Inheritance::default());
    make_files(&cluster, "/dir/below", 3);
    let (client, other) = (far_client(&cluster), cluster.root());
    list(&client, "/dir");
    list(&client, "/dir/below");
    client.look_at("/dir/below/file1", false).unwrap();
    other.write("/dir/below/file1", b"longer than before").unwrap();
    other.write("/new", b"another one").unwrap();
    other.rename("/new", "/dir/below/file2", RenameMode::Replace).unwrap();
    other.write("/dir/below/more", b"").unwrap();
    other.remove_file("/dir/below/file0").unwrap();
    // What is opened, and what is listed, is as it is now.
    let file = client.open("/dir/below/file1", &OpenOptions::read_only()).unwrap();
    assert_eq!(file.len(), Ok(18));
    assert_eq!(client.read("/dir/below/file2").unwrap(), b"another one");
    assert_eq!(
        client.open("/dir/below/file0", &OpenOptions::read_only()).err(),
        Some(Errno::NOENT)
    );
    assert!(list(&client, "/dir/below").contains(&"more".to_owned()));
    let listed = Instant::now();
    other.write("/dir/below/file1", b"and longer than that").unwrap();
    other.remove_file("/dir/below/file2").unwrap();
    // A mere look may be as old as this.
    loop {
        let since = Instant::now();
        let size = client.look_at("/dir/below/file1", false).unwrap().size;
        let is_gone = client.look_at("/dir/below/file2", false) == Err(Errno::NOENT);
        if size == 20 && is_gone {
            break;
        }
        assert!(since.duration_since(listed) < BELIEVED);
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn directories_that_came_along_are_given_no_longer_than_promised() {
    let cluster = Cluster::start_far(1, 2, Inheritance::default());
    for number in 0..8 {
        make_files(&cluster, &format!("/tree/dir{number}"), 1);
    }
    let (client, other) = (far_client(&cluster), cluster.root());
    let names = list(&client, "/tree");
    for name in &names[..2] {
        list(&client, &format!("/tree/{name}"));
    }
    // The next ones have come along.
    let (here, gone) = (format!("/tree/{}", names[2]), format!("/tree/{}", names[3]));
    other.write(format!("{here}/more"), b"").unwrap();
    other.remove_dir_all(&gone).unwrap();
    std::thread::sleep(BELIEVED);
    assert_eq!(list(&client, &here).len(), 2);
    assert_eq!(
        client.open(&gone, &OpenOptions::new(OFlags::DIRECTORY, 0)).err(),
        Some(Errno::NOENT)
    );
    // An own change is seen at once.
    list(&client, "/tree");
    list(&client, &format!("/tree/{}", names[0]));
    list(&client, &format!("/tree/{}", names[1]));
    let own = format!("/tree/{}", names[4]);
    client.write(format!("{own}/own"), b"").unwrap();
    assert_eq!(list(&client, &own).len(), 2);
}

#[test]
fn with_children_everything_is_asked_for() {
    let cluster = Cluster::start_far(1, 2, Inheritance::default());
    make_files(&cluster, "/dir", 3);
    let (client, child) = (credulous_client(&cluster), cluster.root());
    list(&client, "/dir");
    client.filesystem().drain().unwrap();
    child.write("/dir/file1", b"by the child").unwrap();
    assert_eq!(client.look_at("/dir/file1", false).unwrap().size, 12);
    list(&client, "/dir");
    child.write("/dir/file1", b"by the child again").unwrap();
    assert_eq!(client.look_at("/dir/file1", false).unwrap().size, 18);
}

#[test]
fn attributes_of_files_on_many_engines_are_asked_for_together() {
    let striped = Inheritance { chunk_bytes: 4096, ..Inheritance::default() };
    let cluster = Cluster::start_far(2, 2, striped);
    let root = cluster.root();
    root.create_dir("/dir", 0o755).unwrap();
    for number in 0..30_usize {
        root.write(format!("/dir/file{number}"), &vec![7; number * 1000]).unwrap();
        root.create_dir(format!("/dir/dir{number}"), 0o755).unwrap();
    }
    let client = credulous_client(&cluster);
    let names = list(&client, "/dir");
    let mut seen = Vec::new();
    let [lookups] = asked(&cluster, ["lookup"], || {
        seen.extend(names.iter().map(|name| client.look_at(format!("/dir/{name}"), false)));
    });
    // The first few looks make no walk yet.
    assert!(lookups <= 3, "{lookups} lookups");
    for (name, seen) in names.iter().zip(seen) {
        assert_eq!(seen, root.metadata(format!("/dir/{name}")));
    }
    for name in names.iter().filter(|name| name.starts_with("dir")) {
        assert!(list(&client, &format!("/dir/{name}")).is_empty());
    }
}

/// One random change of a small tree. Failing is fine.
fn change(client: &Namespace, random: &mut Random) {
    let mut path = || {
        let names = ["/a", "/b", "/a/c", "/a/d", "/b/c", "/b/d", "/a/e", "/b/e"];
        names[random.below(names.len() as u64) as usize].to_owned()
    };
    let (one, two) = (path(), path());
    let kind = random.below(12);
    let bytes = random.below(9000) as usize;
    let _ = match kind {
        0 | 1 => client.write(&one, &vec![1; bytes]),
        2 => client.create_dir(&one, 0o755).map(drop),
        3 => client.remove_file(&one),
        4 => client.remove_dir(&one),
        5 => client.rename(&one, &two, RenameMode::Replace),
        6 => client.rename(&one, &two, RenameMode::Exchange),
        7 => client.hard_link(&one, &two),
        8 => {
            let mode = Some(0o600 + bytes as u32 % 64);
            client.set_attr(&one, false, &AttrUpdate { mode, ..AttrUpdate::default() }).map(drop)
        }
        9 => client.set_attr(&one, false, &AttrUpdate::size(bytes as u64)).map(drop),
        10 => client.set_xattr(&one, b"user.x", b"value", XattrMode::Set),
        _ => client
            .open(&one, &OpenOptions::new(OFlags::WRONLY, 0))
            .and_then(|file| file.append(&vec![2; bytes]).map(drop)),
    };
}

#[test]
fn what_is_made_in_a_directory_known_from_longer_ago_is_seen_at_once() {
    let cluster = Cluster::start_far(1, 3, Inheritance::default());
    make_files(&cluster, "/dir", 1);
    let (client, exact) = (far_client(&cluster), cluster.root());
    client.write("/dir/one", b"x").unwrap();
    std::thread::sleep(BELIEVED);
    list(&client, "/");
    assert_eq!(client.look_at("/dir", true), exact.metadata("/dir"));
    let guarded = asked(&cluster, ["create_guarded"], || {
        client.create_dir("/dir/two", 0o755).unwrap();
    });
    assert_eq!(guarded, [1], "the directory's attributes are a guess");
    assert_eq!(client.look_at("/dir", true), exact.metadata("/dir"));
}

#[test]
fn an_open_directory_shows_what_was_made_and_removed_in_it() {
    let cluster = Cluster::start_far(1, 3, Inheritance::default());
    make_files(&cluster, "/dir", 1);
    let (client, exact) = (credulous_client(&cluster), cluster.root());
    list(&client, "/dir");
    let dir = client.open("/dir", &OpenOptions::new(OFlags::DIRECTORY, 0)).unwrap();
    assert_eq!(dir.metadata(), exact.metadata("/dir"));
    client.write("/dir/new", b"x").unwrap();
    assert_eq!(dir.metadata(), exact.metadata("/dir"));
    client.create_dir("/dir/below", 0o755).unwrap();
    assert_eq!(dir.metadata(), exact.metadata("/dir"));
    client.remove_file("/dir/new").unwrap();
    assert_eq!(dir.metadata(), exact.metadata("/dir"));
}

#[test]
fn own_creations_do_not_make_older_attributes_of_a_directory_new() {
    let cluster = Cluster::start_far(1, 3, Inheritance::default());
    make_files(&cluster, "/dir", 1);
    let (client, exact) = (far_client(&cluster), cluster.root());
    let dir = client.open("/dir", &OpenOptions::new(OFlags::DIRECTORY, 0)).unwrap();
    dir.metadata().unwrap();
    std::thread::sleep(BELIEVED);
    exact.create_dir("/dir/theirs", 0o755).unwrap();
    // It tells where the name leads, so that nobody looks at the directory on the way.
    list(&client, "/");
    let guarded = asked(&cluster, ["create_guarded"], || client.write("/dir/own", b"x").unwrap());
    assert_eq!(guarded, [1]);
    assert_eq!(dir.metadata(), exact.metadata("/dir"));
}

#[test]
fn a_directory_that_came_along_is_opened_by_what_it_is_now() {
    let cluster = Cluster::start_far(1, 3, Inheritance::default());
    let exact = cluster.root();
    for number in 0..6 {
        exact.create_dir_all(format!("/tree/{number}"), 0o755).unwrap();
    }
    let client = credulous_client(&cluster);
    let names = list(&client, "/tree");
    for name in &names[..2] {
        list(&client, &format!("/tree/{name}"));
    }
    let path = format!("/tree/{}", names[2]);
    let update = AttrUpdate { mode: Some(0o500), ..AttrUpdate::default() };
    client.set_attr(&path, true, &update).unwrap();
    let opens = asked(&cluster, ["open"], || {
        list(&client, &path);
    });
    assert!(opens[0] >= 1, "what came along is from before the change");
}

#[test]
fn own_changes_are_seen_at_once_whatever_they_are() {
    for (seed, engines) in [(1, 1), (2, 1), (3, 2)] {
        let striped = Inheritance { chunk_bytes: 4096, ..Inheritance::default() };
        let cluster = Cluster::start_far(engines, 2, striped);
        let (client, exact) = (credulous_client(&cluster), cluster.root());
        let mut random = Random::new(seed);
        client.create_dir("/a", 0o755).unwrap();
        client.create_dir("/b", 0o755).unwrap();
        for step in 0..200 {
            for path in ["/", "/a", "/b"] {
                if let Ok(found) = exact.read_dir(path) {
                    let found = found.map(|entry| String::from_utf8(entry.unwrap().name).unwrap());
                    assert_eq!(list(&client, path), found.collect::<Vec<_>>(), "{path}, {step}");
                }
            }
            change(&client, &mut random);
            for path in ["/a", "/b", "/a/c", "/a/d", "/b/c", "/b/d", "/a/e", "/b/e"] {
                let (seen, is) = (client.look_at(path, false), exact.symlink_metadata(path));
                assert_eq!(seen, is, "{path}, step {step} of seed {seed}");
            }
        }
    }
}
