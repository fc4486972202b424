//! Names of far directories that are believed under leases: few questions, and never anything else than an engine would
//! have told.

#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

use std::time::{Duration, Instant};

use azekura_policy::PredictiveParameters;
use azekura_posix::{
    AttrsWanted, CachePolicy, Credentials, Errno, FileSystem, FsConfig, Namespace, NewEntry,
    OFlags, Oid, ReadPolicy, RenameMode, Trust,
};
use azekura_proto::attr::Inheritance;
use azekura_testkit::{Cluster, skip};

const CALLER: Credentials = Credentials::ROOT;

fn cluster() -> Cluster {
    Cluster::start_far(1, 3, Inheritance::default())
}

/// A front end as a mount is one; whether what it changes is answered before it has arrived.
fn mount_changing(cluster: &Cluster, changes_in_flight: bool) -> std::sync::Arc<FileSystem> {
    let parameters = PredictiveParameters { round_trip_min_us: 0, ..Default::default() };
    let config = FsConfig {
        cache: CachePolicy::AUTO,
        check_permissions: false,
        read_policy: ReadPolicy::Predictive(parameters),
        listed_from_us: Some(0),
        listed_trust: Trust::Leased,
        changes_in_flight,
        ..FsConfig::default()
    };
    FileSystem::mount(cluster.pool(), "default", config).unwrap()
}

/// One that waits for what it changes.
fn mount(cluster: &Cluster) -> std::sync::Arc<FileSystem> {
    mount_changing(cluster, false)
}

fn make_files(cluster: &Cluster, dir: &str, count: usize) {
    let root = cluster.root();
    root.create_dir_all(dir, 0o755).unwrap();
    for number in 0..count {
        root.write(format!("{dir}/file{number}"), &vec![number as u8; 100 + number]).unwrap();
    }
}

fn find(fs: &FileSystem, path: &str) -> Oid {
    let names = path.split('/').filter(|name| !name.is_empty());
    names.fold(fs.root(), |dir, name| fs.lookup(&CALLER, dir, name.as_bytes()).unwrap().oid)
}

/// Looks a name up as a kernel does; gives the length of what is there.
fn look(fs: &FileSystem, dir: Oid, name: &str) -> Result<u64, Errno> {
    fs.lookup_for(&CALLER, dir, name.as_bytes()).map(|(attr, left)| {
        assert!(left <= Duration::from_secs(1));
        attr.size
    })
}

#[test]
fn names_that_are_there_and_names_that_are_not_take_no_question_each() {
    let cluster = cluster();
    make_files(&cluster, "/dir", 100);
    let fs = mount(&cluster);
    let dir = find(&fs, "/dir");
    let lookups = cluster.count("lookup");
    let begun = Instant::now();
    for number in 0..100 {
        assert_eq!(look(&fs, dir, &format!("file{number}")), Ok(100 + number));
        assert_eq!(look(&fs, dir, &format!("absent{number}")), Err(Errno::NOENT));
    }
    let leases = 1 + begun.elapsed().as_millis() as u64 / 900;
    let asked = cluster.count("lookup") - lookups;
    assert!(asked <= 2 * leases, "{asked} lookups, time for {leases} leases");
}

#[test]
fn what_others_make_remove_and_move_is_seen_as_soon_as_they_are_answered() {
    let cluster = cluster();
    make_files(&cluster, "/dir", 20);
    let (fs, other) = (mount(&cluster), cluster.root());
    let dir = find(&fs, "/dir");
    let lease = || {
        for number in 0..5 {
            look(&fs, dir, &format!("file{number}")).unwrap();
        }
    };
    lease();
    let answered = cluster.count("lookup");
    assert_eq!(look(&fs, dir, "new"), Err(Errno::NOENT));
    assert_eq!(cluster.count("lookup"), answered, "known under the lease");
    let begun = Instant::now();
    other.write("/dir/new", b"new").unwrap();
    assert!(begun.elapsed() < Duration::from_millis(1500), "{:?}", begun.elapsed());
    assert_eq!(look(&fs, dir, "new"), Ok(3));
    // Who has had to wait for each part of the directory waits no more for a while.
    lease();
    for number in 0..6 {
        other.write(format!("/dir/more{number}"), b"more").unwrap();
    }
    lease();
    let begun = Instant::now();
    other.write("/dir/another", b"another").unwrap();
    other.remove_file("/dir/file0").unwrap();
    other.rename("/dir/file1", "/dir/file2", RenameMode::Replace).unwrap();
    other.create_dir("/dir/below", 0o755).unwrap();
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
    let looks = ["another", "file0", "file1", "file2", "below"].map(|name| look(&fs, dir, name));
    let gone = Err(Errno::NOENT);
    assert_eq!(looks, [Ok(7), gone, gone, Ok(101), Ok(4096)]);
}

#[test]
fn own_changes_wait_for_no_own_lease_and_are_seen_at_once() {
    let cluster = cluster();
    make_files(&cluster, "/dir", 20);
    make_files(&cluster, "/aside", 3);
    let fs = mount(&cluster);
    let (dir, aside) = (find(&fs, "/dir"), find(&fs, "/aside"));
    let begun = Instant::now();
    for turn in 0..5 {
        for number in 5..10 {
            look(&fs, dir, &format!("file{number}")).unwrap();
            look(&fs, aside, &format!("absent{number}")).unwrap_err();
        }
        let (made, moved) = (format!("made{turn}"), format!("moved{turn}"));
        assert_eq!(look(&fs, dir, &made), Err(Errno::NOENT));
        let (_, file) = fs.create(&CALLER, dir, made.as_bytes(), 0o600, OFlags::WRONLY).unwrap();
        fs.write(&file, 0, b"made").unwrap();
        assert_eq!(look(&fs, dir, &made), Ok(4));
        let how = RenameMode::Replace;
        fs.rename(&CALLER, dir, made.as_bytes(), aside, moved.as_bytes(), how).unwrap();
        assert_eq!((look(&fs, dir, &made), look(&fs, aside, &moved)), (Err(Errno::NOENT), Ok(4)));
        fs.unlink(&CALLER, aside, moved.as_bytes()).unwrap();
        assert_eq!(look(&fs, aside, &moved), Err(Errno::NOENT));
    }
    assert!(begun.elapsed() < Duration::from_millis(900), "{:?}", begun.elapsed());
}

#[test]
fn directories_beside_each_other_come_along_and_have_what_was_made_in_them() {
    let cluster = cluster();
    for number in 0..12 {
        make_files(&cluster, &format!("/tree/{number:02}"), 8);
    }
    let (fs, other) = (mount(&cluster), cluster.root());
    let tree = find(&fs, "/tree");
    let list = |dir| {
        let page = fs.readdir(&CALLER, dir, 2, 1 << 17, AttrsWanted::AtHand).unwrap();
        assert!(page.end);
        page.entries
    };
    let dirs: Vec<Oid> = list(tree).iter().map(|entry| entry.oid).collect();
    assert_eq!(dirs.len(), 12);
    let before = cluster.count("read_directory");
    for (turn, dir) in dirs.iter().enumerate() {
        if turn == 6 {
            let name = list(tree)[9].name.clone();
            other.write([b"/tree/".to_vec(), name, b"/new".to_vec()].concat(), b"new").unwrap();
        }
        let expected = if turn == 9 { 9 } else { 8 };
        assert_eq!(list(*dir).len(), expected, "directory {turn}");
    }
    let asked = cluster.count("read_directory") - before;
    assert!(asked <= 3 * 22, "{asked} parts of listings");
}

#[test]
fn who_goes_from_directory_to_directory_has_the_next_ones_listed_by_the_first_look() {
    let cluster = cluster();
    // Neither the order in which they were made nor that of a listing.
    let mut dirs: Vec<String> = (1..=48).map(|number| format!("d{number}")).collect();
    dirs.sort();
    for dir in &dirs {
        make_files(&cluster, &format!("/tree/{dir}"), 4);
    }
    let fs = mount(&cluster);
    let tree = find(&fs, "/tree");
    let looks = || cluster.count("lookup") + cluster.count("walk");
    let (mut looked_up, begun) = (Vec::new(), Instant::now());
    for (turn, name) in dirs.iter().enumerate() {
        let before = looks();
        // The leases of the directory above run out meanwhile.
        std::thread::sleep(Duration::from_millis(30));
        let dir = fs.lookup_for(&CALLER, tree, name.as_bytes()).unwrap().0.oid;
        for file in 0..4 {
            assert_eq!(look(&fs, dir, &format!("file{file}")), Ok(100 + file));
        }
        if looks() > before {
            looked_up.push(turn);
        }
    }
    if begun.elapsed() > Duration::from_secs(3) {
        return skip("leases do not last as long as this machine takes");
    }
    // Until it is known that one directory follows the other.
    assert!(looked_up.len() <= 5 && looked_up.last() < Some(&8), "{looked_up:?}");
}

/// Follows a path as a kernel does that believes nothing of before.
fn follow(fs: &FileSystem, path: &str) -> Oid {
    path.split('/')
        .fold(fs.root(), |dir, name| fs.lookup_for(&CALLER, dir, name.as_bytes()).unwrap().0.oid)
}

/// What a kernel believes is old after this time, and is in use still.
const OLD: Duration = Duration::from_millis(1100);

#[test]
fn two_ways_that_are_taken_in_turn_are_asked_for_together() {
    let cluster = cluster();
    let (fs, other) = (mount(&cluster), cluster.root());
    other.create_dir_all("/from/a", 0o755).unwrap();
    other.create_dir_all("/to/b/c", 0o755).unwrap();
    let there = |path: &str| other.metadata(path).unwrap().oid;
    let asked = |path: &str| {
        let expected = there(path);
        let asked = cluster.asked(|| assert_eq!(follow(&fs, &path[1..]), expected));
        asked.into_iter().collect::<Vec<_>>()
    };
    asked("/from/a");
    asked("/to/b/c");
    for _ in 0..3 {
        std::thread::sleep(OLD);
        assert_eq!(asked("/from/a"), [("walk".to_owned(), 2)]);
        assert_eq!(asked("/to/b/c"), []);
        let above = cluster.asked(|| assert!(fs.getattr_for(fs.root()).is_ok()));
        assert!(above.is_empty(), "it was seen whether one may go there: {above:?}");
    }
    // Another directory stands where the second way led.
    other.rename("/to/b", "/to/old", RenameMode::Replace).unwrap();
    other.create_dir_all("/to/b/c", 0o755).unwrap();
    std::thread::sleep(OLD);
    asked("/from/a");
    asked("/to/b/c");
    std::thread::sleep(3 * OLD);
    assert_eq!(asked("/from/a"), [("walk".to_owned(), 1)], "nobody goes the other way");
}

#[test]
fn the_names_of_a_path_are_asked_for_together_once_they_are_old() {
    let cluster = cluster();
    let (fs, other) = (mount(&cluster), cluster.root());
    other.create_dir_all("/a/b/c/d", 0o755).unwrap();
    let there = |path: &str| other.metadata(path).unwrap().oid;
    assert_eq!(follow(&fs, "a/b/c/d"), there("/a/b/c/d"));
    for _ in 0..3 {
        std::thread::sleep(OLD);
        let expected = there("/a/b/c/d");
        let asked = cluster.asked(|| assert_eq!(follow(&fs, "a/b/c/d"), expected));
        assert_eq!(asked.into_iter().collect::<Vec<_>>(), [("walk".to_owned(), 1)]);
        std::thread::sleep(OLD);
        let asked = cluster.asked(|| {
            assert_eq!(fs.getattr_for(fs.root()).unwrap().0.oid, fs.root());
            assert_eq!(follow(&fs, "a/b/c/d"), expected);
        });
        assert_eq!(asked.into_iter().collect::<Vec<_>>(), [("walk".to_owned(), 1)]);
    }
    // Others have put another directory in its place.
    other.rename("/a/b", "/a/old", RenameMode::Replace).unwrap();
    other.create_dir_all("/a/b/c/d", 0o700).unwrap();
    std::thread::sleep(OLD);
    assert_eq!(follow(&fs, "a/b/c/d"), there("/a/b/c/d"));
    assert_eq!(follow(&fs, "a/old/c/d"), there("/a/old/c/d"));
    // This client has, and sees it at once, as it does what it makes there.
    std::thread::sleep(OLD);
    let above = follow(&fs, "a/b");
    fs.rename(&CALLER, above, b"c", above, b"moved", RenameMode::Replace).unwrap();
    assert_eq!(look(&fs, above, "c"), Err(Errno::NOENT));
    assert_eq!(follow(&fs, "a/b/moved/d"), there("/a/b/moved/d"));
    std::thread::sleep(OLD);
    let dir = follow(&fs, "a/b/moved");
    let before = fs.lookup_for(&CALLER, dir, b"d").unwrap().0;
    fs.make(&CALLER, before.oid, b"below", 0o755, NewEntry::Directory).unwrap();
    let after = fs.lookup_for(&CALLER, dir, b"d").unwrap().0;
    assert_eq!((before.nlink, after.nlink), (2, 3));
}

#[test]
fn a_name_that_moves_leaves_what_is_known_of_other_directories() {
    let cluster = cluster();
    make_files(&cluster, "/one", 8);
    make_files(&cluster, "/two", 8);
    cluster.root().hard_link("/one/file0", "/two/linked").unwrap();
    let fs = mount(&cluster);
    let (one, two) = (find(&fs, "/one"), find(&fs, "/two"));
    let look_around = |dir| {
        for number in 3..7 {
            look(&fs, dir, &format!("file{number}")).unwrap();
        }
    };
    let links = || fs.lookup_for(&CALLER, two, b"linked").unwrap().0.nlink;
    look_around(two);
    assert_eq!(links(), 2);
    let asked = cluster.asked(|| {
        fs.rename(&CALLER, one, b"file1", one, b"file2", RenameMode::Replace).unwrap();
        fs.unlink(&CALLER, one, b"file7").unwrap();
        look_around(two);
    });
    assert_eq!(asked.keys().map(String::as_str).collect::<Vec<_>>(), ["rename", "unlink"]);
    assert_eq!((look(&fs, one, "file1"), look(&fs, one, "file2")), (Err(Errno::NOENT), Ok(101)));
    // But for how many names a file has that has several.
    fs.unlink(&CALLER, one, b"file0").unwrap();
    assert_eq!(links(), 1);
}

#[test]
fn directories_that_are_looked_at_are_listed_again_together() {
    let cluster = cluster();
    let dirs = ["/one", "/two", "/three"];
    for dir in dirs {
        make_files(&cluster, dir, 8);
    }
    let fs = mount(&cluster);
    let dirs = dirs.map(|dir| find(&fs, dir));
    let look_around = |dir| {
        for number in 0..8 {
            look(&fs, dir, &format!("file{number}")).unwrap();
        }
    };
    for dir in dirs {
        look_around(dir);
    }
    std::thread::sleep(Duration::from_millis(1050));
    look_around(dirs[0]);
    assert!(cluster.asked(|| dirs.into_iter().for_each(look_around)).is_empty());
}

#[test]
fn a_name_that_is_too_long_is_so_also_where_all_names_are_known() {
    let cluster = cluster();
    make_files(&cluster, "/dir", 3);
    let fs = mount(&cluster);
    let dir = find(&fs, "/dir");
    for name in ["a", "b", "c"] {
        assert_eq!(look(&fs, dir, name), Err(Errno::NOENT));
    }
    let client = Namespace::new(fs, CALLER).at(dir);
    assert_eq!(client.read_link("a").err(), Some(Errno::NOENT));
    let long = "n".repeat(256);
    assert_eq!(client.read_link(&long).err(), Some(Errno::NAMETOOLONG));
    assert_eq!(client.look_at(&long, false).err(), Some(Errno::NAMETOOLONG));
}

#[test]
fn files_that_were_made_here_are_opened_ahead_as_any_others() {
    let cluster = cluster();
    cluster.root().create_dir("/new", 0o755).unwrap();
    let fs = mount_changing(&cluster, true);
    let dir = find(&fs, "/new");
    let names: Vec<String> = (0..20).map(|number| format!("part_{number:02}.o")).collect();
    for name in &names {
        assert_eq!(look(&fs, dir, name), Err(Errno::NOENT));
        let (_, file) = fs.create(&CALLER, dir, name.as_bytes(), 0o644, OFlags::WRONLY).unwrap();
        fs.write(&file, 0, name.as_bytes()).unwrap();
        fs.flush(&file).unwrap();
    }
    // As a linker does.
    assert_eq!(look(&fs, dir, "program"), Err(Errno::NOENT));
    let (_, program) = fs.create(&CALLER, dir, b"program", 0o755, OFlags::WRONLY).unwrap();
    for name in &names {
        let (attr, _) = fs.lookup_for(&CALLER, dir, name.as_bytes()).unwrap();
        let (_, file) = fs.open_looked_up(&CALLER, attr.oid, OFlags::RDONLY).unwrap();
        let mut buffer = [0; 64];
        let got = fs.read(&file, 0, &mut buffer).unwrap();
        assert_eq!(&buffer[..got], name.as_bytes());
    }
    drop(program);
    let foreseen = fs.foreseen();
    assert!(foreseen.opened_files >= 10, "{foreseen:?}");
}
