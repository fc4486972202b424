//! Changes of names and of new objects that are answered before they have arrived: nobody sees a difference,
//! and nothing is lost.

#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use azekura_client::{ClientConfig, Pool};
use azekura_posix::{
    AttrUpdate, CachePolicy, Credentials, Errno, FileKind, FileSystem, FsConfig, Namespace,
    NewEntry, OFlags, OpenOptions, RenameMode, SetTime, Timestamp, WritePolicy,
};
use azekura_proto::attr::Inheritance;
use azekura_testkit::{Cluster, Fragile};

const FILES: usize = 60;

/// Each of these with one engine, and with several, of which one hands on what is for the others.
macro_rules! on_one_engine_and_several {
    ($($name:ident,)*) => {
        mod on_one_engine {
            $(#[test] fn $name() {
                super::$name(&super::Cluster::start_far(1, 3, super::Inheritance::default()));
            })*
        }
        mod on_three_engines {
            $(#[test] fn $name() {
                super::$name(&super::Cluster::start_far(3, 1, super::Inheritance::default()));
            })*
        }
    };
}

on_one_engine_and_several! {
    a_tree_is_made_without_waiting_and_others_find_it_as_it_was_made,
    a_front_end_whose_kernel_checks_and_asks_again_does_not_wait_either,
    what_was_written_to_a_new_file_is_read_back_without_asking,
    nothing_is_answered_early_where_it_is_not_wanted,
    what_was_answered_is_found_by_every_other_client_at_once,
    a_name_is_made_by_one_alone_whoever_else_wants_it,
    names_are_moved_and_removed_after_they_were_made,
    leases_of_names_outlive_files_that_are_written_under_another_name_first,
    what_is_moved_to_where_others_look_is_there_at_once,
    looking_for_names_where_something_was_made_leases_them,
    a_file_goes_on_being_used_after_it_was_made,
    an_unlinked_file_lives_while_the_client_that_made_it_has_it_open,
    what_fails_after_it_was_answered_is_told_once,
    what_others_make_of_a_directory_takes_nothing_back_that_was_answered,
    names_that_are_not_there_are_known_again_once_the_lease_is_renewed,
    who_gives_way_does_not_get_the_name_that_the_other_one_waited_for,
    what_is_made_is_judged_by_what_the_process_has_made_of_the_directory,
    connections_that_break_lose_nothing_that_was_answered,
    names_that_are_not_there_are_known_under_the_lease,
    nobody_waits_once_everything_was_let_arrive,
}

fn client_keeping(cluster: &Cluster, cache: CachePolicy) -> Namespace {
    let config = FsConfig {
        cache,
        write_policy: WritePolicy::Always,
        changes_in_flight: true,
        ..FsConfig::default()
    };
    let fs = FileSystem::mount(cluster.pool(), "default", config).unwrap();
    Namespace::new(fs, Credentials::ROOT)
}

fn client(cluster: &Cluster) -> Namespace {
    client_keeping(cluster, CachePolicy::AUTO)
}

/// What `tar x` does with a file.
fn unpack(client: &Namespace, path: &str, contents: &[u8]) {
    let options = OpenOptions::new(OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY, 0o600);
    let file = client.open(path, &options).unwrap();
    file.write_all_at(contents, 0).unwrap();
    let time = Some(SetTime::At(Timestamp { secs: 1_000_000_000, nanos: 5 }));
    let times = AttrUpdate { atime: time, mtime: time, ..AttrUpdate::default() };
    file.set_attr(&times).unwrap();
    file.set_attr(&AttrUpdate { mode: Some(0o640), ..AttrUpdate::default() }).unwrap();
    file.close().unwrap();
}

fn contents(number: usize) -> Vec<u8> {
    vec![number as u8; 3000 + number]
}

/// A tree of directories with files, as `tar x` makes it.
fn unpack_tree(client: &Namespace, top: &str) {
    client.create_dir(top, 0o755).unwrap();
    for dir in 0..4 {
        client.create_dir(format!("{top}/{dir}"), 0o755).unwrap();
        for file in 0..FILES {
            unpack(client, &format!("{top}/{dir}/{file}"), &contents(file));
        }
        client.symlink(b"0", format!("{top}/{dir}/link")).unwrap();
    }
}

fn check_tree(client: &Namespace, top: &str) {
    for dir in 0..4 {
        let names = client.read_dir(format!("{top}/{dir}")).unwrap().map(Result::unwrap);
        assert_eq!(names.count(), FILES + 1);
        for file in 0..FILES {
            let path = format!("{top}/{dir}/{file}");
            assert!(client.read(&path).unwrap() == contents(file), "{path}");
            let attr = client.metadata(&path).unwrap();
            assert_eq!((attr.mode, attr.mtime.secs, attr.nlink), (0o640, 1_000_000_000, 1));
        }
        assert_eq!(client.read_link(format!("{top}/{dir}/link")).unwrap(), b"0");
    }
}

fn a_tree_is_made_without_waiting_and_others_find_it_as_it_was_made(cluster: &Cluster) {
    let writer = client(cluster);
    unpack_tree(&writer, "/tree");
    writer.filesystem().pool().arrive().unwrap();
    assert!(cluster.count_at_all("create_numbered") >= 4 * FILES as u64 - 10);
    assert!(cluster.count_at_all("create") + cluster.count_at_all("create_guarded") < 10);
    check_tree(&writer, "/tree");
    let begun = Instant::now();
    check_tree(&cluster.root(), "/tree");
    assert!(begun.elapsed() < Duration::from_secs(20), "others wait for each lease once at most");
}

fn a_front_end_whose_kernel_checks_and_asks_again_does_not_wait_either(cluster: &Cluster) {
    let config = FsConfig {
        cache: CachePolicy::AUTO,
        write_policy: WritePolicy::Always,
        changes_in_flight: true,
        check_permissions: false,
        ..FsConfig::default()
    };
    let fs = FileSystem::mount(cluster.pool(), "default", config).unwrap();
    let root = Credentials::ROOT;
    let top = fs.make(&root, fs.root(), b"top", 0o755, NewEntry::Directory).unwrap().oid;
    fs.make(&root, top, b"first", 0o755, NewEntry::Directory).unwrap();
    let asked =
        || ["get_attr", "lookup"].map(|kind| cluster.count_at_all(kind)).iter().sum::<u64>();
    let dir = fs.make(&root, top, b"second", 0o755, NewEntry::Directory).unwrap().oid;
    let before = asked();
    for number in 0..FILES {
        let name = number.to_string().into_bytes();
        // A kernel looks the name up, and after each file at the directory again.
        assert_eq!(fs.lookup(&root, dir, &name), Err(Errno::NOENT));
        let (_, file) = fs.create(&root, dir, &name, 0o600, OFlags::WRONLY).unwrap();
        assert_eq!(fs.write(&file, 0, &contents(number)), Ok(3000 + number));
        let time = Some(SetTime::At(Timestamp { secs: 1_000_000_000, nanos: 5 }));
        let update = AttrUpdate { mtime: time, mode: Some(0o640), ..AttrUpdate::default() };
        let attr = fs.setattr(&root, file.oid(), None, &update).unwrap();
        assert_eq!(
            (attr.size, attr.mode, attr.mtime.secs),
            (3000 + number as u64, 0o640, 1_000_000_000)
        );
        // But for the times it is as an engine would tell it.
        assert!(fs.has_guessed_times(file.oid()));
        fs.flush(&file).unwrap();
        assert_eq!(fs.getattr_for(dir).unwrap().0.kind, FileKind::Directory);
    }
    let made = fs.getattr_for(top).unwrap().0;
    assert_eq!(made.nlink, 4);
    // An engine that makes a name in a directory of another one asks that what it is.
    let handed_on = cluster.count_at_all("on_behalf");
    assert!(asked() < before + handed_on + 10, "{} looks", asked() - before);
    // What belongs to another loses its set-id bits, and the kernel need not say so.
    let (_, file) = fs.create(&root, dir, b"tool", 0o4755, OFlags::WRONLY).unwrap();
    let given = AttrUpdate { uid: Some(7), ..AttrUpdate::default() };
    assert_eq!(fs.setattr(&root, file.oid(), None, &given).unwrap().mode, 0o755);
    drop(file);
    // Whoever does nothing more lets others at what was made.
    std::thread::sleep(Duration::from_millis(600));
    fs.look_after_changes().unwrap();
    let begun = Instant::now();
    let other = cluster.root();
    assert_eq!(other.read_dir("/top/second").unwrap().count(), FILES + 1);
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
    assert_eq!(other.metadata("/top/second/tool").unwrap().mode, 0o755);
    assert!(other.read("/top/second/7").unwrap() == contents(7));
}

fn what_was_written_to_a_new_file_is_read_back_without_asking(cluster: &Cluster) {
    let writer = client(cluster);
    writer.create_dir("/dir", 0o755).unwrap();
    unpack(&writer, "/dir/first", b"first");
    let options = OpenOptions::new(OFlags::CREATE | OFlags::EXCL | OFlags::RDWR, 0o600);
    let file = writer.open("/dir/second", &options).unwrap();
    let read = |offset| {
        let mut buffer = [0xee; 64];
        let got = file.read_at(&mut buffer, offset).unwrap();
        buffer[..got].to_vec()
    };
    let asked =
        || ["read", "read_file", "lease_read", "lease_file"].map(|kind| cluster.count_at_all(kind));
    let before = asked();
    assert_eq!(read(0), b"");
    file.write_all_at(b"0123456789", 0).unwrap();
    file.write_all_at(b"abc", 12).unwrap();
    file.write_all_at(b"XY", 4).unwrap();
    assert_eq!(read(0), b"0123XY6789\0\0abc");
    assert_eq!(read(13), b"bc");
    assert_eq!(asked(), before);
    file.set_len(6).unwrap();
    assert_eq!(read(0), b"0123XY");
    file.write_all_at(b"end", 6).unwrap();
    assert_eq!(read(0), b"0123XYend");
    assert_eq!(cluster.root().read("/dir/second").unwrap(), b"0123XYend");
}

fn nothing_is_answered_early_where_it_is_not_wanted(cluster: &Cluster) {
    for (write_policy, changes_in_flight) in
        [(WritePolicy::Through, true), (WritePolicy::Always, false)]
    {
        let config = FsConfig { write_policy, changes_in_flight, ..FsConfig::default() };
        let fs = FileSystem::mount(cluster.pool(), "default", config).unwrap();
        let client = Namespace::new(fs, Credentials::ROOT);
        unpack_tree(&client, &format!("/{write_policy:?}"));
    }
    assert_eq!(cluster.count_at_all("create_numbered"), 0);
    // A single file needs no lease.
    let leases = cluster.count("lease_write");
    let one = client(cluster);
    unpack(&one, "/once", b"once");
    assert_eq!(cluster.count_at_all("create_numbered"), 0);
    assert_eq!(cluster.count_at_all("lease_write"), leases);
}

fn what_was_answered_is_found_by_every_other_client_at_once(cluster: &Cluster) {
    let (writer, reader) = (client(cluster), cluster.root());
    writer.create_dir("/dir", 0o755).unwrap();
    let (made, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..400 {
                unpack(&writer, &format!("/dir/{number}"), &contents(number % 50));
                made.store(number as u32 + 1, Ordering::SeqCst);
            }
            is_over.store(true, Ordering::SeqCst);
        });
        while !is_over.load(Ordering::SeqCst) {
            let Some(last) = made.load(Ordering::SeqCst).checked_sub(1) else { continue };
            let path = format!("/dir/{last}");
            assert!(reader.read(&path).unwrap() == contents(last as usize % 50), "{path}");
            assert_eq!(reader.metadata(&path).unwrap().mode, 0o640);
            std::thread::sleep(Duration::from_millis(40));
        }
    });
    assert_eq!(reader.read_dir("/dir").unwrap().count(), 400);
}

fn a_name_is_made_by_one_alone_whoever_else_wants_it(cluster: &Cluster) {
    let exclusive = OpenOptions::new(OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY, 0o600);
    // Two threads of one client, and another client.
    let (one, other) = (client(cluster), client(cluster));
    one.create_dir("/dir", 0o755).unwrap();
    let made: Vec<AtomicU32> = (0..120).map(|_| AtomicU32::new(0)).collect();
    std::thread::scope(|scope| {
        for client in [&one, &one, &other] {
            scope.spawn(|| {
                for (number, made) in made.iter().enumerate() {
                    match client.open(format!("/dir/{number}"), &exclusive) {
                        Ok(file) => {
                            made.fetch_add(1, Ordering::SeqCst);
                            file.close().unwrap();
                        }
                        Err(errno) => assert_eq!(errno, Errno::EXIST),
                    }
                }
            });
        }
    });
    assert!(made.iter().all(|made| made.load(Ordering::SeqCst) == 1));
    for client in [&one, &other] {
        client.filesystem().drain().unwrap();
    }
}

fn names_are_moved_and_removed_after_they_were_made(cluster: &Cluster) {
    let client = client(cluster);
    client.create_dir("/dir", 0o755).unwrap();
    for number in 0..40 {
        unpack(&client, &format!("/dir/{number}"), &contents(number));
    }
    client.rename("/dir/30", "/dir/moved", RenameMode::Replace).unwrap();
    client.remove_file("/dir/31").unwrap();
    client.hard_link("/dir/32", "/dir/again").unwrap();
    let exclusive = OpenOptions::new(OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY, 0o600);
    assert_eq!(client.open("/dir/moved", &exclusive).err(), Some(Errno::EXIST));
    assert_eq!(client.open("/dir/again", &exclusive).err(), Some(Errno::EXIST));
    unpack(&client, "/dir/30", b"anew");
    unpack(&client, "/dir/31", b"anew");
    let other = cluster.root();
    assert!(other.read("/dir/moved").unwrap() == contents(30));
    assert!(other.read("/dir/31").unwrap() == b"anew");
    assert_eq!(other.metadata("/dir/32").unwrap().nlink, 2);
    client.remove_dir_all("/dir").unwrap();
    assert_eq!(other.metadata("/dir").err(), Some(Errno::NOENT));
}

fn leases_of_names_outlive_files_that_are_written_under_another_name_first(cluster: &Cluster) {
    let client = client(cluster);
    client.create_dir("/dir", 0o755).unwrap();
    client.create_dir("/dir/below", 0o755).unwrap();
    unpack(&client, "/dir/first", b"first");
    let leases = cluster.count("lease_write");
    for number in 0..20 {
        unpack(&client, "/dir/config.lock", &contents(number));
        client.rename("/dir/config.lock", "/dir/config", RenameMode::Replace).unwrap();
        assert!(client.read("/dir/config").unwrap() == contents(number));
        assert_eq!(client.metadata("/dir/config.lock").err(), Some(Errno::NOENT));
        unpack(&client, "/dir/below/temporary", &contents(number));
        let path = format!("/dir/{number}");
        client.rename("/dir/below/temporary", &path, RenameMode::NoReplace).unwrap();
        unpack(&client, "/dir/gone", b"gone");
        client.remove_file("/dir/gone").unwrap();
        let again = client.rename("/dir/config", &path, RenameMode::NoReplace);
        assert_eq!(again, Err(Errno::EXIST));
    }
    client.create_dir("/dir/empty", 0o755).unwrap();
    client.remove_dir("/dir/empty").unwrap();
    client.create_dir("/dir/empty", 0o700).unwrap();
    // The first directory's, and perhaps once more, if this took longer than a lease serves.
    assert!(
        cluster.count_at_all("lease_write") <= leases + 12,
        "{}",
        cluster.count_at_all("lease_write")
    );
    let other = cluster.root();
    for number in 0..20 {
        assert!(other.read(format!("/dir/{number}")).unwrap() == contents(number));
    }
    assert!(other.read("/dir/config").unwrap() == contents(19));
    let mut names: Vec<_> =
        other.read_dir("/dir").unwrap().map(|entry| entry.unwrap().name).collect();
    names.sort();
    let mut expected: Vec<_> = (0..20).map(|number| number.to_string().into_bytes()).collect();
    expected.extend([&b"below"[..], b"config", b"empty", b"first"].map(<[u8]>::to_vec));
    expected.sort();
    assert_eq!(names, expected);
}

fn what_is_moved_to_where_others_look_is_there_at_once(cluster: &Cluster) {
    let (client, other) = (client(cluster), cluster.root());
    client.create_dir("/shared", 0o755).unwrap();
    client.create_dir("/shared/there", 0o755).unwrap();
    client.filesystem().drain().unwrap();
    let shared = other.read_dir("/shared/there").unwrap();
    assert_eq!(shared.count(), 0);
    client.create_dir("/own", 0o755).unwrap();
    for number in 0..10 {
        let (from, to) = (format!("/own/{number}"), format!("/shared/there/{number}"));
        unpack(&client, &from, &contents(number));
        client.rename(&from, &to, RenameMode::Replace).unwrap();
        // Under no lease of the place that it has now: what others do with it is seen.
        other.write(&to, b"by another").unwrap();
        assert!(client.read(&to).unwrap() == b"by another");
        other.remove_file(&to).unwrap();
        assert_eq!(client.metadata(&to).err(), Some(Errno::NOENT));
    }
}

fn looking_for_names_where_something_was_made_leases_them(cluster: &Cluster) {
    let (client, other) = (client(cluster), cluster.root());
    client.create_dir("/dir", 0o755).unwrap();
    other.write("/dir/there", b"there").unwrap();
    // One waited for, so that the directory is one in which something was made.
    unpack(&client, "/dir/first", b"first");
    let fs = client.filesystem();
    let dir = client.metadata("/dir").unwrap().oid;
    let lookups = || cluster.count_at_all("lookup");
    let before = lookups();
    for number in 0..20 {
        let name = format!("absent {number}").into_bytes();
        assert_eq!(fs.lookup(&Credentials::ROOT, dir, &name), Err(Errno::NOENT));
    }
    assert!(lookups() <= before + 2, "{} lookups", lookups() - before);
    assert_eq!(fs.lookup(&Credentials::ROOT, dir, b"there").unwrap().size, 5);
    other.write("/dir/absent 3", b"now").unwrap();
    assert_eq!(fs.lookup(&Credentials::ROOT, dir, b"absent 3").unwrap().size, 3);
}

fn a_file_goes_on_being_used_after_it_was_made(cluster: &Cluster) {
    let client = client(cluster);
    client.create_dir("/dir", 0o755).unwrap();
    unpack(&client, "/dir/first", b"first");
    let options = OpenOptions::new(OFlags::CREATE | OFlags::RDWR, 0o644);
    let file = client.open("/dir/file", &options).unwrap();
    file.write_all_at(b"0123456789", 0).unwrap();
    let mut buffer = [0; 4];
    assert_eq!(file.read_at(&mut buffer, 6), Ok(4));
    assert_eq!(&buffer, b"6789");
    assert_eq!(file.len(), Ok(10));
    assert!(cluster.count_at_all("create_numbered") > 0, "it was made early");
    // Beyond the first chunk, and more than goes with a new file.
    let large = vec![7; 6 << 20];
    file.write_all_at(&large, 10).unwrap();
    file.set_len(11).unwrap();
    assert_eq!(file.append(b"end"), Ok(11));
    client.set_xattr("/dir/file", b"user.x", b"y", azekura_posix::XattrMode::Set).unwrap();
    assert_eq!(file.metadata().map(|attr| (attr.size, attr.has_xattrs)), Ok((14, true)));
    // It lives on without its name.
    client.remove_file("/dir/file").unwrap();
    assert_eq!(file.read_at(&mut buffer, 10), Ok(4));
    assert_eq!(&buffer, b"\x07end");
    assert_eq!(client.metadata("/dir/file").err(), Some(Errno::NOENT));
}

fn an_unlinked_file_lives_while_the_client_that_made_it_has_it_open(cluster: &Cluster) {
    let client = client(cluster);
    client.create_dir("/dir", 0o755).unwrap();
    unpack(&client, "/dir/first", b"first");
    let options = OpenOptions::new(OFlags::CREATE | OFlags::RDWR, 0o644);
    let file = client.open("/dir/file", &options).unwrap();
    file.write_all_at(b"kept", 0).unwrap();
    client.filesystem().drain().unwrap();
    cluster.root().remove_file("/dir/file").unwrap();
    let mut buffer = [0; 4];
    assert_eq!(file.read_at(&mut buffer, 0), Ok(4));
    assert_eq!(&buffer, b"kept");
}

fn what_fails_after_it_was_answered_is_told_once(cluster: &Cluster) {
    let other = cluster.root();
    let options = OpenOptions::new(OFlags::CREATE | OFlags::WRONLY, 0o600);
    // Whoever syncs the file hears of it, or whoever makes the next name beside it.
    for is_synced in [true, false] {
        let client = client(cluster);
        let dir = format!("/dir-{is_synced}");
        client.create_dir(&dir, 0o755).unwrap();
        for number in 0..10 {
            unpack(&client, &format!("{dir}/{number}"), &contents(number));
        }
        client.filesystem().pool().arrive().unwrap();
        // By what the next one is judged does not hold any more: others would have waited for the lease, but not
        // another file system of the same session.
        let (pool, config) = (Arc::clone(client.filesystem().pool()), FsConfig::default());
        let beside = FileSystem::mount(pool, "default", config).unwrap();
        let beside = Namespace::new(beside, client.caller().clone());
        let private = AttrUpdate { mode: Some(0o700), ..AttrUpdate::default() };
        beside.set_attr(&dir, true, &private).unwrap();
        let path = format!("{dir}/refused");
        let file = client.open(&path, &options).unwrap();
        if is_synced {
            // Nor does a fork take it away.
            client.filesystem().drain().unwrap();
            assert_eq!(file.sync(), Err(Errno::IO));
        } else {
            client.filesystem().pool().arrive().unwrap();
            assert_eq!(client.create_dir(format!("{dir}/next"), 0o755).err(), Some(Errno::IO));
        }
        assert_eq!(client.metadata(&path).err(), Some(Errno::NOENT));
        drop(file);
        unpack(&client, &path, b"later");
        client.filesystem().drain().unwrap();
        assert_eq!(other.read_dir(&dir).unwrap().count(), 11);
    }
}

fn what_others_make_of_a_directory_takes_nothing_back_that_was_answered(cluster: &Cluster) {
    let (client, other) = (client(cluster), cluster.root());
    client.create_dir("/dir", 0o755).unwrap();
    for number in 0..10 {
        unpack(&client, &format!("/dir/{number}"), &contents(number));
    }
    let making = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let changing = scope.spawn(|| {
            for mode in [0o700, 0o750, 0o711] {
                let update = AttrUpdate { mode: Some(mode), ..AttrUpdate::default() };
                other.set_attr("/dir", true, &update).unwrap();
                let owner = AttrUpdate { uid: Some(mode), ..AttrUpdate::default() };
                other.set_attr("/dir", true, &owner).unwrap();
            }
            making.store(false, Ordering::SeqCst);
        });
        for number in 10.. {
            unpack(&client, &format!("/dir/{number}"), &contents(number));
            std::thread::sleep(Duration::from_millis(5));
            if !making.load(Ordering::SeqCst) {
                changing.join().unwrap();
                client.filesystem().drain().unwrap();
                assert_eq!(other.read_dir("/dir").unwrap().count(), number + 1);
                break;
            }
        }
    });
    assert_eq!(client.filesystem().pool().take_failed_changes().len(), 0);
    for number in 0..10 {
        assert_eq!(other.read(format!("/dir/{number}")).unwrap(), contents(number));
    }
}

fn names_that_are_not_there_are_known_again_once_the_lease_is_renewed(cluster: &Cluster) {
    let (client, other) = (client(cluster), cluster.root());
    client.create_dir("/dir", 0o755).unwrap();
    for number in 0..5 {
        unpack(&client, &format!("/dir/{number}"), &contents(number));
    }
    let dir = client.metadata("/dir").unwrap().oid;
    let fs = client.filesystem();
    let look = |name: &str| fs.lookup(&Credentials::ROOT, dir, name.as_bytes()).map(drop);
    assert_eq!(look("absent"), Err(Errno::NOENT));
    let leases = cluster.count("lease_write");
    // What is left of the lease is for what is on its way.
    std::thread::sleep(Duration::from_millis(1200));
    let asked = cluster.asked(|| {
        for number in 0..9 {
            assert_eq!(look(&format!("absent{number}")), Err(Errno::NOENT));
        }
        unpack(&client, "/dir/more", b"more");
        fs.pool().arrive().unwrap();
    });
    assert_eq!((asked.get("lookup"), asked.get("create")), (None, None), "{asked:?}");
    assert_eq!(asked.get("lease_write"), Some(&leases), "each of them once: {asked:?}");
    // Who has come meanwhile is found.
    std::thread::sleep(Duration::from_millis(2100));
    other.write("/dir/absent", b"there").unwrap();
    assert_eq!(look("absent"), Ok(()));
    assert_eq!(look("absent1"), Err(Errno::NOENT));
}

fn who_gives_way_does_not_get_the_name_that_the_other_one_waited_for(cluster: &Cluster) {
    let (holder, other) = (client(cluster), client(cluster));
    let exclusive = OpenOptions::new(OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY, 0o600);
    for turn in 0..2 {
        let dir = format!("/dir{turn}");
        holder.create_dir(&dir, 0o755).unwrap();
        for number in 0..5 {
            unpack(&holder, &format!("{dir}/{number}"), &contents(number));
        }
        let lock = format!("{dir}/lock");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| other.open(&lock, &exclusive).map(drop));
            std::thread::sleep(Duration::from_millis(200));
            // The answer says that somebody waits.
            unpack(&holder, &format!("{dir}/more"), b"more");
            holder.filesystem().pool().arrive().unwrap();
            let own = if turn == 0 {
                holder.open(&lock, &exclusive).map(drop)
            } else {
                holder.create_dir(&lock, 0o755).map(drop)
            };
            let both = [waiting.join().unwrap(), own];
            assert_eq!(both.iter().filter(|made| made.is_ok()).count(), 1, "{both:?}");
            assert!(both.contains(&Err(Errno::EXIST)), "{both:?}");
        });
        // Once somebody has waited no lease is asked for.
        std::thread::sleep(Duration::from_secs(6));
    }
}

fn what_is_made_is_judged_by_what_the_process_has_made_of_the_directory(cluster: &Cluster) {
    let client = client(cluster);
    client.create_dir("/tree", 0o755).unwrap();
    unpack(&client, "/tree/first", b"first");
    for dir in ["/own", "/tree/newborn"] {
        client.create_dir(dir, 0o755).unwrap();
        for number in 0..5 {
            unpack(&client, &format!("{dir}/{number}"), &contents(number));
        }
        let change = AttrUpdate { mode: Some(0o2775), gid: Some(77), ..AttrUpdate::default() };
        client.set_attr(dir, true, &change).unwrap();
        client.set_xattr(dir, b"user.x", b"y", azekura_posix::XattrMode::Set).unwrap();
        for number in 5..10 {
            unpack(&client, &format!("{dir}/{number}"), &contents(number));
        }
        let class = (b"user.azekura.class", b"S1");
        client.set_xattr(dir, class.0, class.1, azekura_posix::XattrMode::Set).unwrap();
        client.write(format!("{dir}/narrow"), b"narrow").unwrap();
    }
    client.filesystem().drain().unwrap();
    let other = cluster.root();
    for dir in ["/own", "/tree/newborn"] {
        for number in 0..10 {
            let path = format!("{dir}/{number}");
            assert!(other.read(&path).unwrap() == contents(number), "{path}");
            assert_eq!(other.metadata(&path).unwrap().gid == 77, number >= 5, "{path}");
        }
        let class = other.get_xattr(format!("{dir}/narrow"), b"user.azekura.class").unwrap();
        assert_eq!(class, b"S1");
    }
}

#[test]
fn a_restart_of_an_engine_loses_nothing_that_was_answered() {
    for engines in [1, 3] {
        loses_nothing_by_restarts(Cluster::start_far(engines, 3 / engines, Inheritance::default()));
    }
}

fn loses_nothing_by_restarts(mut cluster: Cluster) {
    let engines = cluster.file().map.engines.len();
    let client = client(&cluster);
    client.create_dir("/dir", 0o755).unwrap();
    for number in 0..300 {
        unpack(&client, &format!("/dir/{number}"), &contents(number % 50));
        if number % 100 == 50 {
            cluster.restart(number / 100 % engines);
        }
    }
    client.filesystem().drain().unwrap();
    let other = cluster.root();
    for number in 0..300 {
        let path = format!("/dir/{number}");
        assert!(other.read(&path).unwrap() == contents(number % 50), "{path}");
    }
    assert_eq!(other.read_dir("/dir").unwrap().count(), 300);
}

fn connections_that_break_lose_nothing_that_was_answered(cluster: &Cluster) {
    let network = Arc::new(Fragile::default());
    let config =
        ClientConfig { network: Some(Arc::clone(&network) as Arc<_>), ..ClientConfig::default() };
    let pool = Pool::connect(cluster.file(), config).unwrap();
    let config = FsConfig {
        write_policy: WritePolicy::Always,
        changes_in_flight: true,
        ..FsConfig::default()
    };
    let client =
        Namespace::new(FileSystem::mount(pool, "default", config).unwrap(), Credentials::ROOT);
    client.create_dir("/dir", 0o755).unwrap();
    let (made, cuts) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let maker = scope.spawn(|| {
            for number in 0..5000 {
                // How often they are cut while 500 are made depends on the machine.
                if number >= 500 && cuts.load(Ordering::SeqCst) >= 20 {
                    break;
                }
                unpack(&client, &format!("/dir/{number}"), &contents(number % 50));
                made.store(number + 1, Ordering::SeqCst);
            }
        });
        let mut made_before = 0;
        while !maker.is_finished() {
            std::thread::sleep(Duration::from_millis(7));
            // On a busy machine that is too short for a connection to come far.
            let made_now = made.load(Ordering::SeqCst);
            if made_now >= made_before + 5 {
                made_before = made_now;
                network.cut();
                cuts.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    let (made, cuts) = (made.into_inner(), cuts.into_inner());
    assert!(cuts >= 20, "{cuts}");
    client.filesystem().drain().unwrap();
    let numbered = cluster.count_at_all("create_numbered");
    assert!(numbered > 400, "{numbered}");
    let other = cluster.root();
    for number in 0..made {
        let path = format!("/dir/{number}");
        assert!(other.read(&path).unwrap() == contents(number % 50), "{path}");
        assert_eq!(other.metadata(&path).unwrap().mode, 0o640);
    }
    assert_eq!(other.read_dir("/dir").unwrap().count(), made);
}

fn names_that_are_not_there_are_known_under_the_lease(cluster: &Cluster) {
    let (client, other) = (client(cluster), cluster.root());
    client.create_dir("/dir", 0o755).unwrap();
    for number in 0..10 {
        unpack(&client, &format!("/dir/{number}"), &contents(number));
    }
    let lookups = || cluster.count_at_all("lookup") + cluster.count_at_all("open_entry");
    let asked = lookups();
    for number in 10..40 {
        let path = format!("/dir/{number}");
        assert_eq!(client.metadata(&path).err(), Some(Errno::NOENT));
        assert_eq!(client.open(&path, &OpenOptions::read_only()).err(), Some(Errno::NOENT));
        assert_eq!(client.remove_file(&path).err(), Some(Errno::NOENT));
        unpack(&client, &path, &contents(number));
    }
    assert_eq!(lookups(), asked);
    other.write("/dir/others", b"other").unwrap();
    assert_eq!(client.read("/dir/others").unwrap(), b"other");
}

fn nobody_waits_once_everything_was_let_arrive(cluster: &Cluster) {
    let client = client(cluster);
    unpack_tree(&client, "/tree");
    client.filesystem().drain().unwrap();
    let begun = Instant::now();
    let other = cluster.root();
    check_tree(&other, "/tree");
    other.write("/tree/0/other", b"other").unwrap();
    assert!(begun.elapsed() < Duration::from_millis(1500));
    // For a while none is asked for: whoever was started looks at what is made.
    let numbered = cluster.count_at_all("create_numbered");
    unpack_tree(&client, "/more");
    assert_eq!(cluster.count_at_all("create_numbered"), numbered);
}
