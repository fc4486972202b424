//! Files of a far directory that are opened one after the other: the next ones are brought before they are
//! asked for, and are never given older than what has been answered to anybody.

#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use azekura_policy::PredictiveParameters;
use azekura_posix::{
    AttrUpdate, AttrsWanted, CachePolicy, Credentials, Errno, FsConfig, Namespace, OFlags,
    OpenOptions, ReadPolicy, RenameMode,
};
use azekura_proto::ObjectClass;
use azekura_proto::attr::Inheritance;
use azekura_testkit::{Cluster, Random};

const BELIEVED: Duration = Duration::from_secs(1);

fn far_client(cluster: &Cluster) -> Namespace {
    let parameters = PredictiveParameters { round_trip_min_us: 0, ..Default::default() };
    let config = FsConfig {
        cache: CachePolicy::Auto { ttl: BELIEVED },
        read_policy: ReadPolicy::Predictive(parameters),
        listed_from_us: Some(0),
        ..FsConfig::default()
    };
    let fs = azekura_posix::FileSystem::mount(cluster.pool(), "default", config).unwrap();
    Namespace::new(fs, Credentials::ROOT)
}

fn contents(number: usize) -> Vec<u8> {
    (0..1000 + 97 * number).map(|at| (at * (number + 1)) as u8).collect()
}

fn name(number: usize) -> String {
    format!("file{number:03}")
}

fn number_of(path: &str) -> usize {
    path[path.len() - 3..].parse().unwrap()
}

fn make_files(cluster: &Cluster, dir: &str, count: usize) {
    let root = cluster.root();
    root.create_dir_all(dir, 0o755).unwrap();
    for number in 0..count {
        root.write(format!("{dir}/{}", name(number)), &contents(number)).unwrap();
    }
}

/// Lists a directory as `tar` does, and gives its files in the order of their numbers.
fn list(client: &Namespace, path: &str) -> Vec<String> {
    let dir = client.open(path, &OpenOptions::new(OFlags::DIRECTORY, 0)).unwrap();
    let (fs, caller) = (client.filesystem(), client.caller());
    let mut files = BTreeMap::new();
    let mut cookie = 0;
    loop {
        let page = fs.readdir(caller, dir.handle().oid(), cookie, 65536, AttrsWanted::No).unwrap();
        for entry in page.entries.iter().filter(|entry| entry.cookie > 2) {
            let name = String::from_utf8(entry.name.clone()).unwrap();
            files.insert(entry.oid.inode_number(), format!("{path}/{name}"));
        }
        match page.entries.last() {
            Some(last) if !page.end => cookie = last.cookie,
            _ => return files.into_values().collect(),
        }
    }
}

/// Opens a file, looks at it and reads it to its end, as programs do.
fn read(client: &Namespace, path: &str) -> Vec<u8> {
    let file = client.open(path, &OpenOptions::read_only()).unwrap();
    let size = file.metadata().unwrap().size;
    let (mut found, mut buffer) = (Vec::new(), vec![0; 4096]);
    loop {
        match file.read_at(&mut buffer, found.len() as u64).unwrap() {
            0 => break,
            bytes => found.extend_from_slice(&buffer[..bytes]),
        }
    }
    assert_eq!(found.len() as u64, size, "{path}");
    file.close().unwrap();
    found
}

/// How many files of these made the program wait for an engine when they were opened and read.
fn waits(cluster: &Cluster, client: &Namespace, paths: &[String]) -> usize {
    let asked = |cluster: &Cluster| -> u64 {
        let names = ["lookup", "open", "open_entry", "get_attr", "read_directory", "ping"];
        names.iter().map(|name| cluster.count(name)).sum()
    };
    let mut waits = 0;
    for path in paths {
        let before = asked(cluster);
        assert_eq!(read(client, path), contents(number_of(path)), "{path}");
        waits += usize::from(asked(cluster) != before);
    }
    waits
}

#[test]
fn files_of_the_next_directory_come_while_those_of_one_are_read() {
    let cluster = Cluster::start_far(1, 3, Inheritance::default());
    let (dirs, files) = (16, 12);
    for number in 0..dirs {
        make_files(&cluster, &format!("/tree/{number:02}"), files);
    }
    let client = far_client(&cluster);
    let opened = || client.filesystem().foreseen().opened_files;
    let mut whole = 0;
    for dir in list(&client, "/tree") {
        let before = opened();
        for path in list(&client, &dir) {
            assert_eq!(read(&client, &path), contents(number_of(&path)), "{path}");
        }
        whole += usize::from(opened() - before == files as u64);
    }
    // Of these also the first one had come. Where the machine is slow leases run out.
    assert!(whole >= dirs / 2, "{whole} directories");
}

#[test]
fn files_that_are_read_in_the_order_of_a_listing_are_there() {
    for (engines, targets) in [(1, 1), (1, 3), (2, 2)] {
        let cluster = Cluster::start_far(engines, targets, Inheritance::default());
        make_files(&cluster, "/one", 100);
        make_files(&cluster, "/two", 100);
        let client = far_client(&cluster);
        let paths = list(&client, "/one");
        let waits_for_one = waits(&cluster, &client, &paths);
        // One file, another one with those after it, and ever more; where the machine is slow not so many.
        assert!(waits_for_one <= 25, "{waits_for_one} of 100, {engines} engines");
        let paths = list(&client, "/two");
        let waits_for_two = waits(&cluster, &client, &paths);
        assert!(waits_for_two <= 15, "{waits_for_two} of 100, {engines} engines");
        let foreseen = client.filesystem().foreseen();
        assert!(foreseen.opened_files > 150, "{foreseen:?}");
        // On a slow machine some of them wait for longer than their leases hold.
        assert!(foreseen.wasted_bytes < foreseen.read_bytes / 4, "{foreseen:?}");
        assert_eq!(foreseen.held_bytes, 0, "{foreseen:?}");
    }
}

#[test]
fn a_file_that_is_opened_again_and_again_between_the_others_does_not_end_their_order() {
    let cluster = Cluster::start_far(1, 1, Inheritance::default());
    make_files(&cluster, "/dir", 60);
    let client = far_client(&cluster);
    let mut paths = list(&client, "/dir");
    let header = paths.pop().unwrap();
    for path in &paths {
        assert_eq!(read(&client, path), contents(number_of(path)), "{path}");
        assert_eq!(read(&client, &header), contents(number_of(&header)));
    }
    let foreseen = client.filesystem().foreseen();
    assert!(foreseen.opened_files >= 30, "{foreseen:?}");
}

#[test]
fn files_that_are_read_by_name_are_there_without_a_listing_of_the_program() {
    let cluster = Cluster::start_far(1, 3, Inheritance::default());
    make_files(&cluster, "/dir", 100);
    let client = far_client(&cluster);
    let paths: Vec<_> = (0..100).map(|number| format!("/dir/{}", name(number))).collect();
    let waits = waits(&cluster, &client, &paths);
    assert!(waits <= 30, "{waits} of 100");
}

#[test]
fn files_that_are_opened_twice_each_are_in_an_order_as_well() {
    let cluster = Cluster::start_far(1, 3, Inheritance::default());
    make_files(&cluster, "/dir", 100);
    let client = far_client(&cluster);
    let twice =
        |number: usize| [format!("/dir/{}", name(number)), format!("/dir/{}", name(number))];
    let paths: Vec<_> = (0..100).flat_map(twice).collect();
    waits(&cluster, &client, &paths);
    let foreseen = client.filesystem().foreseen();
    assert!(foreseen.opened_files > 50, "{foreseen:?}");
}

#[test]
fn a_file_that_was_brought_and_is_still_open_is_opened_once_more_without_asking() {
    let cluster = Cluster::start_far(1, 3, Inheritance::default());
    make_files(&cluster, "/dir", 100);
    let client = far_client(&cluster);
    let paths: Vec<_> = (0..100).map(|number| format!("/dir/{}", name(number))).collect();
    let mut open = Vec::new();
    let mut asked = 0;
    for (number, path) in paths.iter().enumerate() {
        open.push(client.open(path, &OpenOptions::read_only()).unwrap());
        let before = cluster.count("open_entry");
        assert_eq!(read(&client, path), contents(number));
        asked += usize::from(cluster.count("open_entry") > before);
    }
    assert!(asked <= 40, "{asked} of 100");
    // What others, and the program itself, do to it is seen all the same.
    let root = cluster.root();
    for number in [97, 98, 99] {
        let path = &paths[number];
        drop(client.open(path, &OpenOptions::read_only()).unwrap());
        match number {
            97 => root.rename(&paths[0], path, RenameMode::Replace).unwrap(),
            98 => client.rename(&paths[1], path, RenameMode::Replace).unwrap(),
            _ => client.write(path, &contents(2)).unwrap(),
        }
        assert_eq!(read(&client, path), contents(number - 97));
    }
    client.remove_file(&paths[50]).unwrap();
    let gone = client.open(&paths[50], &OpenOptions::read_only());
    assert_eq!(gone.map(drop), Err(Errno::NOENT));
}

#[test]
fn files_that_are_read_in_no_order_cost_nothing() {
    let cluster = Cluster::start_far(1, 3, Inheritance::default());
    make_files(&cluster, "/dir", 100);
    let client = far_client(&cluster);
    let paths = list(&client, "/dir");
    for turn in 0..100 {
        let path = &paths[turn * 37 % 100];
        assert_eq!(read(&client, path), contents(number_of(path)));
    }
    assert_eq!(client.filesystem().foreseen().files, 0);
}

#[test]
fn what_others_do_to_a_file_that_was_brought_is_seen_by_whoever_opens_it() {
    for (engines, targets) in [(1, 3), (2, 2)] {
        let cluster = Cluster::start_far(engines, targets, Inheritance::default());
        make_files(&cluster, "/dir", 40);
        let (client, other) = (far_client(&cluster), cluster.root());
        let paths = list(&client, "/dir");
        for path in &paths[..10] {
            read(&client, path);
        }
        let [written, cut, replaced, removed, moved, secret] = &paths[10..16] else { panic!() };
        let begun = Instant::now();
        let brought = client.filesystem().foreseen();
        assert!(brought.files > brought.opened_files, "{brought:?}");
        other.write("/new", b"another file").unwrap();
        other.write(written, b"written").unwrap();
        assert_eq!(read(&client, written), b"written");
        let half = AttrUpdate::size(500);
        other.set_attr(cut, true, &half).unwrap();
        assert_eq!(read(&client, cut), contents(number_of(cut))[..500]);
        other.rename("/new", replaced, RenameMode::Replace).unwrap();
        assert_eq!(read(&client, replaced), b"another file");
        other.remove_file(removed).unwrap();
        let gone = client.open(removed, &OpenOptions::read_only());
        assert_eq!(gone.err(), Some(Errno::NOENT));
        other.rename(moved, "/moved", RenameMode::Replace).unwrap();
        let gone = client.open(moved, &OpenOptions::read_only());
        assert_eq!(gone.err(), Some(Errno::NOENT));
        assert_eq!(read(&client, "/moved"), contents(number_of(moved)));
        let update = AttrUpdate { mode: Some(0o600), ..AttrUpdate::default() };
        other.set_attr(secret, true, &update).unwrap();
        let file = client.open(secret, &OpenOptions::read_only()).unwrap();
        assert_eq!(file.metadata().unwrap().mode & 0o777, 0o600);
        // Who changes something waits for the leases, and no longer.
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    }
}

#[test]
fn what_is_changed_while_files_are_read_is_never_older_than_what_was_answered() {
    let cluster = Cluster::start_far(1, 3, Inheritance::default());
    make_files(&cluster, "/dir", 60);
    let (client, other) = (far_client(&cluster), cluster.root());
    let mut random = Random::new(7);
    for round in 0..4 {
        let paths = list(&client, "/dir");
        let mut now: BTreeMap<&String, Vec<u8>> = BTreeMap::new();
        for (place, path) in paths.iter().enumerate() {
            if random.below(12) == 0 {
                let ahead = (place + random.below(8) as usize).min(paths.len() - 1);
                let told = format!("round {round}, at {place}").into_bytes();
                if random.below(2) == 0 {
                    other.write(&paths[ahead], &told).unwrap();
                } else {
                    other.write("/new", &told).unwrap();
                    other.rename("/new", &paths[ahead], RenameMode::Replace).unwrap();
                }
                now.insert(&paths[ahead], told);
            }
            let found = read(&client, path);
            match now.get(path) {
                Some(told) => assert_eq!(&found, told, "{path}"),
                None if round == 0 => assert_eq!(found, contents(number_of(path)), "{path}"),
                None => {}
            }
        }
    }
}

#[test]
fn own_changes_of_files_that_were_brought_are_seen_at_once() {
    let cluster = Cluster::start_far(1, 3, Inheritance::default());
    make_files(&cluster, "/dir", 60);
    let client = far_client(&cluster);
    let paths = list(&client, "/dir");
    for path in &paths[..12] {
        read(&client, path);
    }
    client.write(&paths[12], b"own").unwrap();
    assert_eq!(read(&client, &paths[12]), b"own");
    let begun = Instant::now();
    client.remove_file(&paths[13]).unwrap();
    assert_eq!(client.open(&paths[13], &OpenOptions::read_only()).err(), Some(Errno::NOENT));
    client.write("/new", b"replaced").unwrap();
    client.rename("/new", &paths[14], RenameMode::Replace).unwrap();
    assert_eq!(read(&client, &paths[14]), b"replaced");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    for path in &paths[15..] {
        assert_eq!(read(&client, path), contents(number_of(path)));
    }
}

#[test]
fn a_file_that_was_brought_and_opened_stays_when_its_name_goes() {
    let cluster = Cluster::start_far(1, 2, Inheritance::default());
    make_files(&cluster, "/dir", 20);
    let (client, other) = (far_client(&cluster), cluster.root());
    let paths = list(&client, "/dir");
    for path in &paths[..5] {
        read(&client, path);
    }
    let before = client.filesystem().foreseen().opened_files;
    let file = client.open(&paths[5], &OpenOptions::read_only()).unwrap();
    assert_eq!(client.filesystem().foreseen().opened_files, before + 1);
    other.remove_file(&paths[5]).unwrap();
    let mut buffer = vec![0; 64 << 10];
    let bytes = file.read_at(&mut buffer, 0).unwrap();
    assert_eq!(buffer[..bytes], contents(number_of(&paths[5])));
    assert_eq!(file.metadata().unwrap().nlink, 0);
}

#[test]
fn files_that_are_opened_and_not_read_are_brought_no_more() {
    let cluster = Cluster::start_far(1, 2, Inheritance::default());
    make_files(&cluster, "/dir", 100);
    let client = far_client(&cluster);
    let paths = list(&client, "/dir");
    for path in &paths {
        client.open(path, &OpenOptions::read_only()).unwrap();
    }
    let foreseen = client.filesystem().foreseen();
    assert!(foreseen.files <= 16, "{foreseen:?}");
    assert_eq!(foreseen.read_bytes, 0);
}

#[test]
fn with_children_nothing_is_brought() {
    let cluster = Cluster::start_far(1, 2, Inheritance::default());
    make_files(&cluster, "/dir", 40);
    let client = far_client(&cluster);
    let paths = list(&client, "/dir");
    for path in &paths[..5] {
        read(&client, path);
    }
    let before = client.filesystem().foreseen();
    client.filesystem().drain().unwrap();
    for path in &paths[5..] {
        read(&client, path);
    }
    let after = client.filesystem().foreseen();
    assert_eq!((after.opened_files, after.held_bytes), (0, 0), "{before:?}, {after:?}");
}

#[test]
fn names_of_one_file_are_told_apart() {
    let cluster = Cluster::start_far(1, 2, Inheritance::default());
    let root = cluster.root();
    for shared in 2..8 {
        let dir = format!("/dir{shared}");
        root.create_dir_all(&dir, 0o755).unwrap();
        let path = |number| format!("{dir}/{}", name(number));
        // Not in the order of the names, so that it is these that are followed.
        for number in [9, 3, 7, 1, 8, 0, 5, 2, 6, 4] {
            root.write(path(number), &contents(number)).unwrap();
        }
        root.remove_file(path(shared + 1)).unwrap();
        root.hard_link(path(shared), path(shared + 1)).unwrap();
        let client = far_client(&cluster);
        list(&client, &dir);
        for number in 0..shared {
            assert_eq!(read(&client, &path(number)), contents(number));
        }
        client.write("/new", b"new").unwrap();
        client.rename("/new", path(shared), RenameMode::Replace).unwrap();
        assert_eq!(read(&client, &path(shared)), b"new", "{shared}");
        assert_eq!(read(&client, &path(shared + 1)), contents(shared), "{shared}");
    }
}

#[test]
fn long_files_are_not_brought_as_a_whole() {
    let cluster = Cluster::start_far(1, 1, Inheritance::default());
    make_files(&cluster, "/dir", 20);
    let client = far_client(&cluster);
    let paths = list(&client, "/dir");
    // Those that are opened first are of no use for this.
    for place in [5, 6, 7, 12] {
        cluster.root().write(&paths[place], &vec![7; 9 << 20]).unwrap();
    }
    for path in &paths {
        let file = client.open(path, &OpenOptions::read_only()).unwrap();
        let held = client.filesystem().foreseen().held_bytes;
        assert!(held < 9 << 20, "{held} bytes at {path}");
        let mut buffer = vec![0; 100];
        file.read_at(&mut buffer, 0).unwrap();
    }
}

/// Files that lie on one target, or on several, of one engine or of one each.
fn cluster_with_long_files(
    engines: u16,
    file_class: ObjectClass,
    count: usize,
) -> (Cluster, Vec<u8>) {
    let inheritance = Inheritance { file_class, ..Inheritance::default() };
    let cluster = Cluster::start_far(engines, 3 / engines, inheritance);
    let contents: Vec<u8> = (0..5 << 20).map(|at: u32| (at / 1000) as u8).collect();
    let root = cluster.root();
    root.create_dir_all("/long", 0o755).unwrap();
    for number in 0..count {
        root.write(format!("/long/{}", name(number)), &contents).unwrap();
    }
    (cluster, contents)
}

#[test]
fn long_files_that_follow_each_other_are_on_their_way_when_they_are_opened() {
    for (engines, class) in [(1, ObjectClass::S1), (1, ObjectClass::S4), (3, ObjectClass::S4)] {
        let (cluster, contents) = cluster_with_long_files(engines, class, 12);
        let client = far_client(&cluster);
        for path in list(&client, "/long") {
            assert!(read(&client, &path) == contents, "{path} of {class:?}");
        }
        let foreseen = client.filesystem().foreseen();
        let what = format!("{class:?} at {engines}: {foreseen:?}");
        // Where the machine is slow leases run out.
        assert!(foreseen.opened_files >= 6, "{what}");
        assert!(foreseen.read_bytes > 0, "{what}");
        assert!(foreseen.wasted_bytes <= foreseen.read_bytes, "{what}");
    }
}

#[test]
fn of_long_files_whose_first_bytes_alone_are_read_few_are_brought() {
    // Of files at several engines listings do not say how long they are.
    for (engines, files_max) in [(1, 8), (3, 12)] {
        let (cluster, _) = cluster_with_long_files(engines, ObjectClass::S4, 30);
        let client = far_client(&cluster);
        for path in list(&client, "/long") {
            let file = client.open(&path, &OpenOptions::read_only()).unwrap();
            file.read_at(&mut [0; 100], 0).unwrap();
        }
        let foreseen = client.filesystem().foreseen();
        assert!(foreseen.files <= files_max, "{engines} engines: {foreseen:?}");
    }
}

#[test]
fn file_systems_of_one_session_see_each_other_s_changes() {
    let cluster = Cluster::start_far(1, 2, Inheritance::default());
    make_files(&cluster, "/dir", 2);
    let pool = cluster.pool();
    let of_pool = || {
        let config = FsConfig {
            read_policy: ReadPolicy::Predictive(PredictiveParameters {
                round_trip_min_us: 0,
                ..Default::default()
            }),
            ..FsConfig::default()
        };
        let fs = azekura_posix::FileSystem::mount(pool.clone(), "default", config).unwrap();
        Namespace::new(fs, Credentials::ROOT)
    };
    let (one, other) = (of_pool(), of_pool());
    let path = format!("/dir/{}", name(0));
    let file = one.open(&path, &OpenOptions::read_only()).unwrap();
    for round in 0..20_usize {
        let told = vec![round as u8; 3000 + round];
        other.write(&path, &told).unwrap();
        let mut buffer = vec![0; 8192];
        let bytes = file.read_at(&mut buffer, 0).unwrap();
        assert!(buffer[..bytes] == told, "round {round}: {bytes} bytes");
        assert_eq!(file.metadata().unwrap().size, told.len() as u64);
    }
}
