//! Names of far directories that nobody has listed, looked at one after the other; and front ends that look names
//! up and open what they found, as a mount does: few questions, and nothing older than what was answered.

#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

use std::time::Duration;

use azekura_policy::PredictiveParameters;
use azekura_posix::{
    Attr, AttrsWanted, CachePolicy, Credentials, Errno, FileSystem, FsConfig, Listed, Namespace,
    OFlags, Oid, ReadPolicy, RenameMode,
};
use azekura_proto::attr::Inheritance;
use azekura_testkit::Cluster;

const CALLER: Credentials = Credentials::ROOT;

/// How somebody is set up who believes what he has heard for so long.
fn believing(ttl: Duration) -> FsConfig {
    let parameters = PredictiveParameters { round_trip_min_us: 0, ..Default::default() };
    FsConfig {
        cache: CachePolicy::Auto { ttl },
        read_policy: ReadPolicy::Predictive(parameters),
        listed_from_us: Some(0),
        ..FsConfig::default()
    }
}

/// A client that believes what it has heard for so long.
fn client_believing(cluster: &Cluster, ttl: Duration) -> Namespace {
    let fs = FileSystem::mount(cluster.pool(), "default", believing(ttl)).unwrap();
    Namespace::new(fs, CALLER)
}

fn far_client(cluster: &Cluster) -> Namespace {
    client_believing(cluster, Duration::from_secs(1))
}

/// One that believes for longer than any test takes.
fn credulous_client(cluster: &Cluster) -> Namespace {
    client_believing(cluster, Duration::from_secs(600))
}

fn contents(number: usize) -> Vec<u8> {
    vec![number as u8; 100 + number]
}

fn make_files(cluster: &Cluster, dir: &str, count: usize) {
    let root = cluster.root();
    root.create_dir_all(dir, 0o755).unwrap();
    for number in 0..count {
        root.write(format!("{dir}/file{number}"), &contents(number)).unwrap();
    }
}

/// How often the engine is asked for anything that a program waits for.
fn asked(cluster: &Cluster, work: impl FnOnce()) -> u64 {
    let kinds =
        ["lookup", "open", "open_entry", "get_attr", "read_directory", "read", "lease_file"];
    let count = || kinds.iter().map(|kind| cluster.count(kind)).sum::<u64>();
    let before = count();
    work();
    count() - before
}

/// The directory's entries, as a mount lists them.
fn list(fs: &FileSystem, dir: Oid) -> Vec<Listed> {
    let (mut found, mut cookie) = (Vec::new(), 0);
    loop {
        let page = fs.readdir(&CALLER, dir, cookie, 1 << 17, AttrsWanted::AtHand).unwrap();
        found.extend(page.entries.iter().filter(|entry| entry.cookie > 2).cloned());
        match page.entries.last() {
            Some(last) if !page.end => cookie = last.cookie,
            _ => return found,
        }
    }
}

/// Opens and reads what was looked up.
fn read(fs: &FileSystem, oid: Oid) -> Result<(Attr, Vec<u8>), Errno> {
    let (attr, file) = fs.open_looked_up(&CALLER, oid, OFlags::RDONLY)?;
    let mut buffer = vec![0; 1 << 16];
    let got = fs.read(&file, 0, &mut buffer)?;
    buffer.truncate(got);
    Ok((attr, buffer))
}

#[test]
fn where_the_first_path_leads_is_told_with_the_container() {
    let cluster = Cluster::start_far(1, 3, Inheritance::default());
    make_files(&cluster, "/dir/below", 3);
    let mount = |container, path: &str| {
        let config = believing(Duration::from_secs(1));
        FileSystem::mount_towards(cluster.pool(), container, config, path.as_bytes())
    };
    let towards = |path| Namespace::new(mount("default", path).unwrap(), CALLER);
    let waits = |work: &dyn Fn()| {
        let walks = || cluster.count("walk");
        let before = walks();
        asked(&cluster, work) + walks() - before
    };
    let client = towards("//dir/below//file1");
    let size = |path: &str| client.look_at(path, true).unwrap().size;
    assert_eq!(waits(&|| assert_eq!(size("/dir/below/file1"), 101)), 0);
    assert_eq!(waits(&|| assert_eq!(size("/dir/below/file2"), 102)), 1, "its directory is known");
    let client = towards("/dir/below");
    let look = || assert!(client.look_at("/dir/below", true).is_ok());
    assert_eq!(waits(&look), 0);
    let client = towards("/dir/none");
    let look = || assert_eq!(client.look_at("/dir/none", true).err(), Some(Errno::NOENT));
    assert_eq!(waits(&look), 0);
    cluster.root().write("/dir/none", b"made").unwrap();
    assert_eq!(client.look_at("/dir/none", true).unwrap().size, 4);
    // What it has changed itself.
    let client = towards("/dir/new");
    client.write("/dir/new", b"newly").unwrap();
    assert_eq!(client.look_at("/dir/new", true).unwrap().size, 5);
    let client = towards("/dir/new");
    client.write("/dir/new", b"changed").unwrap();
    assert_eq!(client.look_at("/dir/new", true).unwrap().size, 7);
    let client = towards("/dir/new");
    client.remove_file("/dir/new").unwrap();
    assert_eq!(client.look_at("/dir/new", true).err(), Some(Errno::NOENT));
    // Where it does not lead by names alone.
    for path in ["", "/", "/../dir", "/dir/../dir", &"/x".repeat(200)] {
        assert!(towards(path).look_at("/dir", true).is_ok(), "{path}");
    }
    assert!(mount("nowhere", "/dir").is_err());
}

#[test]
fn where_the_first_path_led_is_asked_for_by_whoever_looks_later() {
    let cluster = Cluster::start_far(1, 1, Inheritance::default());
    let config = believing(Duration::from_secs(600));
    let fs = FileSystem::mount_towards(cluster.pool(), "default", config, b"/late").unwrap();
    cluster.root().write("/late", b"made").unwrap();
    std::thread::sleep(Duration::from_millis(150));
    assert_eq!(Namespace::new(fs, CALLER).look_at("/late", true).unwrap().size, 4);
}

#[test]
fn a_walk_over_names_has_their_directory_listed() {
    let cluster = Cluster::start_far(1, 3, Inheritance::default());
    make_files(&cluster, "/dir", 100);
    let client = credulous_client(&cluster);
    let asked = asked(&cluster, || {
        for number in 0..100 {
            let attr = client.look_at(format!("/dir/file{number}"), false).unwrap();
            assert_eq!(attr.size, contents(number).len() as u64);
        }
    });
    assert!(asked <= 1 + 2 + 3, "the directory, two names, three parts of a listing: {asked}");
}

#[test]
fn a_walk_over_the_names_of_a_tree_brings_the_directories_along() {
    let cluster = Cluster::start_far(1, 1, Inheritance::default());
    for number in 0..20 {
        make_files(&cluster, &format!("/tree/dir{number:02}"), 5);
    }
    let client = credulous_client(&cluster);
    let mut waits = 0;
    for number in 0..20 {
        for file in 0..5 {
            let path = format!("/tree/dir{number:02}/file{file}");
            for path in [&path[..5], &path[..11], &path[..]] {
                let look = || assert!(client.look_at(path, false).is_ok());
                waits += asked(&cluster, look).min(1);
            }
        }
    }
    assert!(waits <= 25, "{waits} of 300 looks made the program wait");
}

#[test]
fn of_directories_that_are_walked_in_an_order_the_next_come_along_though_nobody_listed_where_they_stand()
 {
    let cluster = Cluster::start_far(1, 3, Inheritance::default());
    let dirs: Vec<String> = (10..40).map(|number| format!("/tree/dir{number}")).collect();
    for dir in &dirs {
        make_files(&cluster, dir, 4);
    }
    let client = credulous_client(&cluster);
    let walks_before = cluster.count("walk");
    let mut waits = Vec::new();
    for dir in &dirs {
        waits.push(asked(&cluster, || {
            for number in 0..4 {
                let found = client.look_at(format!("{dir}/file{number}"), true).unwrap();
                assert_eq!(found.size, 100 + number);
            }
        }));
    }
    assert!(cluster.count("walk") - walks_before <= 3, "the way to the others is known");
    // What comes along is asked for with one that is waited for.
    assert!(waits.iter().filter(|waits| **waits > 0).count() <= 9, "{waits:?}");
}

#[test]
fn names_that_are_not_there_are_always_asked_for() {
    let cluster = Cluster::start_far(1, 1, Inheritance::default());
    make_files(&cluster, "/dir", 10);
    let (client, other) = (credulous_client(&cluster), cluster.root());
    for turn in 0..10 {
        let path = format!("/dir/new{turn}");
        assert_eq!(client.look_at(&path, false).err(), Some(Errno::NOENT));
        other.write(&path, b"made").unwrap();
        assert_eq!(client.look_at(&path, false).unwrap().size, 4);
    }
}

#[test]
fn a_directory_is_not_asked_for_at_each_look_and_own_changes_are_seen() {
    let cluster = Cluster::start_far(1, 1, Inheritance::default());
    make_files(&cluster, "/dir", 1);
    let client = credulous_client(&cluster);
    client.look_at("/dir", true).unwrap();
    assert_eq!(asked(&cluster, || assert!(client.look_at("/dir", true).is_ok())), 0);
    let before = client.look_at("/dir", true).unwrap();
    client.create_dir("/dir/below", 0o755).unwrap();
    let after = client.look_at("/dir", true).unwrap();
    assert!(after.mtime > before.mtime && after.nlink == before.nlink + 1);
    client.remove_dir("/dir/below").unwrap();
    client.remove_file("/dir/file0").unwrap();
    client.remove_dir("/dir").unwrap();
    assert_eq!(client.look_at("/dir", true).err(), Some(Errno::NOENT));
}

#[test]
fn what_a_listing_had_is_looked_up_without_asking_for_as_long_as_it_is_believed() {
    let cluster = Cluster::start_far(1, 3, Inheritance::default());
    make_files(&cluster, "/dir", 50);
    let (client, exact) = (far_client(&cluster), cluster.root());
    let fs = client.filesystem();
    let (dir, _) = fs.lookup_for(&CALLER, fs.root(), b"dir").unwrap();
    assert_eq!(list(fs, dir.oid).len(), 50);
    let look = |name: &str| fs.lookup_for(&CALLER, dir.oid, name.as_bytes());
    let asked_once = asked(&cluster, || {
        for number in 0..50 {
            let (attr, left) = look(&format!("file{number}")).unwrap();
            assert_eq!(attr.size, contents(number).len() as u64);
            assert!(left <= Duration::from_secs(1));
        }
    });
    assert_eq!(asked_once, 0);
    std::thread::sleep(Duration::from_millis(600));
    assert!(look("file1").unwrap().1 < Duration::from_millis(500), "it grows old");
    exact.write("/dir/file1", b"new").unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let (attr, left) = look("file1").unwrap();
    assert!(attr.size == 3 && left > Duration::from_millis(600), "{left:?}");
}

#[test]
fn what_was_replaced_since_it_was_listed_is_not_opened() {
    let cluster = Cluster::start_far(1, 2, Inheritance::default());
    make_files(&cluster, "/dir", 9);
    let (client, other) = (credulous_client(&cluster), cluster.root());
    let fs = client.filesystem();
    let (dir, _) = fs.lookup_for(&CALLER, fs.root(), b"dir").unwrap();
    list(fs, dir.oid);
    let look = |name: &[u8]| fs.lookup_for(&CALLER, dir.oid, name).unwrap().0.oid;
    let (one, two, three) = (look(b"file1"), look(b"file2"), look(b"file3"));
    // Somebody has it open, so it can be opened still.
    let _held = other.open("/dir/file1", &azekura_posix::OpenOptions::read_only()).unwrap();
    other.write("/dir/.new", b"replaced").unwrap();
    other.rename("/dir/.new", "/dir/file1", RenameMode::Replace).unwrap();
    other.remove_file("/dir/file2").unwrap();
    other.write("/dir/file3", b"longer than it was: it has a hundred and some bytes").unwrap();
    assert_eq!(read(fs, one).err(), Some(Errno::STALE));
    // The kernel looks it up again then.
    let now = look(b"file1");
    assert_ne!(now, one);
    assert_eq!(read(fs, now).unwrap().1, b"replaced");
    assert_eq!(read(fs, two).err(), Some(Errno::STALE));
    assert_eq!(fs.lookup_for(&CALLER, dir.oid, b"file2").err(), Some(Errno::NOENT));
    let (attr, found) = read(fs, three).unwrap();
    assert_eq!((attr.size, found.len()), (51, 51));
}

#[test]
fn what_is_open_is_opened_again_also_if_its_name_is_gone() {
    let cluster = Cluster::start_far(1, 1, Inheritance::default());
    make_files(&cluster, "/dir", 3);
    let (client, other) = (credulous_client(&cluster), cluster.root());
    let fs = client.filesystem();
    let (dir, _) = fs.lookup_for(&CALLER, fs.root(), b"dir").unwrap();
    list(fs, dir.oid);
    let (attr, _) = fs.lookup_for(&CALLER, dir.oid, b"file1").unwrap();
    let held = fs.open_looked_up(&CALLER, attr.oid, OFlags::RDONLY).unwrap();
    other.remove_file("/dir/file1").unwrap();
    // By its descriptor: there is no name to be looked up again, but the call is tried twice.
    let again = || read(fs, attr.oid);
    let (_, found) = again().or_else(|_| again()).unwrap();
    assert_eq!(found, contents(1));
    drop(held);
}

#[test]
fn files_that_are_looked_up_and_opened_in_order_come_along() {
    for (engines, targets) in [(1, 1), (2, 2)] {
        let cluster = Cluster::start_far(engines, targets, Inheritance::default());
        make_files(&cluster, "/dir", 60);
        let client = far_client(&cluster);
        let fs = client.filesystem();
        let (dir, _) = fs.lookup_for(&CALLER, fs.root(), b"dir").unwrap();
        let mut waits = 0;
        // As `ls -v` has them, which is not the order of the names.
        for number in 0..60 {
            let wait = asked(&cluster, || {
                let name = format!("file{number}");
                let (attr, _) = fs.lookup_for(&CALLER, dir.oid, name.as_bytes()).unwrap();
                let (opened, found) = read(fs, attr.oid).unwrap();
                assert_eq!((opened.oid, opened.size), (attr.oid, attr.size));
                assert_eq!(found, contents(number));
            });
            waits += u64::from(wait > 1);
        }
        assert!(waits <= 30, "{waits} of 60, {engines} engines");
        assert!(fs.foreseen().opened_files >= 30, "{:?}", fs.foreseen());
    }
}

#[test]
fn a_file_that_was_opened_just_now_is_opened_again_without_asking() {
    let cluster = Cluster::start_far(1, 1, Inheritance::default());
    make_files(&cluster, "/dir", 2);
    let client = far_client(&cluster);
    let fs = client.filesystem();
    let (dir, _) = fs.lookup_for(&CALLER, fs.root(), b"dir").unwrap();
    let (file, _) = fs.lookup_for(&CALLER, dir.oid, b"file1").unwrap();
    let read = || {
        let (attr, file) = fs.open_looked_up(&CALLER, file.oid, OFlags::RDONLY)?;
        let mut buffer = vec![0; 4096];
        let got = fs.read(&file, 0, &mut buffer)?;
        assert_eq!(got as u64, attr.size);
        drop(file);
        buffer.truncate(got);
        Ok::<_, Errno>(buffer)
    };
    assert_eq!(read().unwrap(), contents(1));
    let again = || (0..10).for_each(|_| assert_eq!(read().unwrap(), contents(1)));
    assert_eq!(asked(&cluster, again), 0);
    let held = fs.open_looked_up(&CALLER, file.oid, OFlags::RDONLY).unwrap();
    assert_eq!(asked(&cluster, || assert_eq!(read().unwrap(), contents(1))), 0, "two at a time");
    drop(held);
    // Whoever changes it waits until that is over.
    cluster.root().write("/dir/file1", b"by others").unwrap();
    assert_eq!(read().unwrap(), b"by others");
    client.write("/dir/file1", b"by itself").unwrap();
    assert_eq!(read().unwrap(), b"by itself");
    cluster.root().remove_file("/dir/file1").unwrap();
    assert!(matches!(read(), Err(Errno::STALE | Errno::NOENT)));
}

/// A mount's kernel looks a file up and opens it.
struct Kernel<'a> {
    fs: &'a FileSystem,
    dir: Oid,
}

impl Kernel<'_> {
    fn look(&self, number: usize) -> Oid {
        let name = format!("file{number}");
        self.fs.lookup_for(&CALLER, self.dir, name.as_bytes()).unwrap().0.oid
    }
}

#[test]
fn a_file_is_opened_with_the_look_at_its_name() {
    let cluster = Cluster::start_far(1, 2, Inheritance::default());
    make_files(&cluster, "/dir", 3);
    cluster.root().symlink(b"file1", "/dir/link").unwrap();
    let client = far_client(&cluster);
    let fs = client.filesystem();
    let dir = fs.lookup_for(&CALLER, fs.root(), b"dir").unwrap().0.oid;
    let kernel = Kernel { fs, dir };
    for number in [1, 2] {
        let exchanges = asked(&cluster, || {
            let (attr, found) = read(fs, kernel.look(number)).unwrap();
            assert_eq!((attr.size as usize, found), (100 + number, contents(number)));
        });
        assert_eq!(exchanges, 1, "file{number}");
    }
    let link = fs.lookup_for(&CALLER, dir, b"link").unwrap().0;
    assert_eq!(fs.readlink(link.oid).unwrap(), b"file1");
    assert_eq!(fs.lookup_for(&CALLER, dir, b"none").err(), Some(Errno::NOENT));
}

#[test]
fn what_happened_between_the_look_and_the_open_is_seen() {
    let cluster = Cluster::start_far(1, 1, Inheritance::default());
    make_files(&cluster, "/dir", 5);
    let (client, other) = (far_client(&cluster), cluster.root());
    let fs = client.filesystem();
    let dir = fs.lookup_for(&CALLER, fs.root(), b"dir").unwrap().0.oid;
    let kernel = Kernel { fs, dir };
    // By others.
    let file = kernel.look(0);
    other.write("/dir/file0", b"by others").unwrap();
    assert_eq!(read(fs, file).unwrap().1, b"by others");
    let file = kernel.look(1);
    other.remove_file("/dir/file1").unwrap();
    assert!(matches!(read(fs, file), Err(Errno::STALE | Errno::NOENT)));
    let file = kernel.look(2);
    other.write("/dir/.new", b"replaced").unwrap();
    other.rename("/dir/.new", "/dir/file2", RenameMode::Replace).unwrap();
    // The kernel means the one that it has looked up, and looks again where that is gone.
    assert!(matches!(read(fs, file), Err(Errno::STALE)));
    assert_eq!(read(fs, kernel.look(2)).unwrap().1, b"replaced");
    // By itself.
    let file = kernel.look(3);
    client.write("/dir/file3", b"by itself").unwrap();
    assert_eq!(read(fs, file).unwrap().1, b"by itself");
    let file = kernel.look(4);
    client.remove_file("/dir/file4").unwrap();
    assert!(matches!(read(fs, file), Err(Errno::STALE | Errno::NOENT)));
}

#[test]
fn looks_that_no_open_follows_soon_open_nothing() {
    let cluster = Cluster::start_far(1, 1, Inheritance::default());
    for number in 0..20 {
        make_files(&cluster, &format!("/dir{number}"), 1);
    }
    let client = far_client(&cluster);
    let fs = client.filesystem();
    let look = |number: usize| {
        let name = format!("dir{number}");
        let dir = fs.lookup_for(&CALLER, fs.root(), name.as_bytes()).unwrap().0.oid;
        Kernel { fs, dir }.look(0)
    };
    let opened = |work: &dyn Fn()| {
        let before = cluster.count("open_entry");
        work();
        cluster.count("open_entry") - before
    };
    let looks = opened(&|| (0..16).for_each(|number| _ = look(number)));
    // And of a few directories, which are looked at in the same way.
    assert!((1..=11).contains(&looks), "{looks}");
    assert_eq!(opened(&|| _ = look(16)), 0);
    // Until one is opened again.
    read(fs, look(17)).unwrap();
    assert_eq!(asked(&cluster, || assert_eq!(read(fs, look(18)).unwrap().1, contents(0))), 1);
}

#[test]
fn what_was_looked_up_is_not_kept_open_for_long() {
    let cluster = Cluster::start_far(1, 1, Inheritance::default());
    make_files(&cluster, "/dir", 1);
    let (client, other) = (far_client(&cluster), cluster.root());
    let fs = client.filesystem();
    let dir = fs.lookup_for(&CALLER, fs.root(), b"dir").unwrap().0.oid;
    let file = Kernel { fs, dir }.look(0);
    other.remove_file("/dir/file0").unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    fs.forget_opened();
    fs.pool().tick();
    // Nobody has it open any more, so it is gone.
    assert_eq!(other.filesystem().getattr(file).err(), Some(Errno::STALE));
}

#[test]
fn the_first_file_is_opened_while_its_program_is_started() {
    let cluster = Cluster::start_far(1, 3, Inheritance::default());
    make_files(&cluster, "/dir", 3);
    let config = believing(Duration::from_secs(600));
    let fs = FileSystem::mount_towards(cluster.pool(), "default", config, b"/dir/file1").unwrap();
    let opened = || cluster.count("open_entry");
    let before = opened();
    fs.open_first_file();
    while opened() == before {
        std::thread::sleep(Duration::from_millis(1));
    }
    let exchanges = asked(&cluster, || {
        let dir = fs.lookup_for(&CALLER, fs.root(), b"dir").unwrap().0.oid;
        assert_eq!(read(&fs, Kernel { fs: &fs, dir }.look(1)).unwrap().1, contents(1));
    });
    assert_eq!(exchanges, 0);
    for towards in [&b"/dir"[..], b"/dir/none", b""] {
        let config = believing(Duration::from_secs(1));
        let fs = FileSystem::mount_towards(cluster.pool(), "default", config, towards).unwrap();
        fs.open_first_file();
        let dir = fs.lookup_for(&CALLER, fs.root(), b"dir").unwrap().0.oid;
        assert_eq!(read(&fs, Kernel { fs: &fs, dir }.look(2)).unwrap().1, contents(2));
    }
}
