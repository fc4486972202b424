//! Changes of a directory's entries that tell how the directory was before and after.

#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

use azekura_posix::{
    AttrUpdate, CachePolicy, ChangeMark, ChangedDir, Credentials, Errno, FileSystem, NewEntry, Oid,
    RenameMode, SetTime, Timestamp,
};
use azekura_proto::attr::Inheritance;
use azekura_testkit::Cluster;

const ROOT: Credentials = Credentials::ROOT;

/// Changes a directory, and compares what came along with what the directory says by itself.
fn watched<T>(
    fs: &FileSystem,
    dir: Oid,
    change: impl FnOnce(&mut ChangedDir) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let before = fs.getattr(dir).unwrap();
    let mut changed = ChangedDir::new(dir);
    let done = change(&mut changed);
    assert!(changed.was_asked());
    assert_eq!(changed.before(), Some(ChangeMark::of(&before)));
    let after = fs.getattr(dir).unwrap();
    assert_eq!(changed.after(), Some(&after));
    assert_eq!(done.is_ok(), before.ctime < after.ctime);
    done
}

fn changes_are_told(fs: &FileSystem, dir: Oid) {
    let make = |dir: &mut ChangedDir, name: &[u8], what| fs.make_in(&ROOT, dir, name, 0o755, what);
    let file = watched(fs, dir, |dir| make(dir, b"file", NewEntry::Regular)).unwrap();
    let sub = watched(fs, dir, |dir| make(dir, b"sub", NewEntry::Directory)).unwrap();
    watched(fs, dir, |dir| make(dir, b"symlink", NewEntry::Symlink(b"x"))).unwrap();
    assert_eq!(fs.getattr(dir).unwrap().nlink, 3);
    let taken = watched(fs, dir, |dir| make(dir, b"file", NewEntry::Directory));
    assert_eq!(taken.err(), Some(Errno::EXIST));
    let linked = watched(fs, dir, |dir| fs.link_in(&ROOT, file.oid, dir, b"link")).unwrap();
    assert_eq!((linked.oid, linked.nlink), (file.oid, 2));
    let into = watched(fs, sub.oid, |dir| make(dir, b"inner", NewEntry::Fifo)).unwrap();
    let rmdir = |name| watched(fs, dir, |dir| fs.rmdir_in(&ROOT, dir, name));
    assert_eq!(rmdir(b"sub"), Err(Errno::NOTEMPTY));
    assert_eq!(rmdir(b"file"), Err(Errno::NOTDIR));
    watched(fs, sub.oid, |dir| fs.unlink_in(&ROOT, dir, b"inner")).unwrap();
    assert_eq!(fs.getattr(into.oid).err(), Some(Errno::STALE));
    rmdir(b"sub").unwrap();
    assert_eq!(fs.getattr(dir).unwrap().nlink, 2);
    let unlink = |name| watched(fs, dir, |dir| fs.unlink_in(&ROOT, dir, name));
    unlink(b"link").unwrap();
    assert_eq!(unlink(b"link"), Err(Errno::NOENT));
    for name in [&b"file"[..], b"symlink"] {
        unlink(name).unwrap();
    }
}

#[test]
fn a_change_tells_how_the_directory_was_before_and_after() {
    let cluster = Cluster::start(1, 3, Inheritance::default());
    for cache in [CachePolicy::None, CachePolicy::AUTO] {
        changes_are_told(&cluster.mount(cache), cluster.root().resolve(b"/", true).unwrap().oid);
    }
}

#[test]
fn it_tells_so_where_another_engine_has_the_directory() {
    let cluster = Cluster::start(2, 2, Inheritance::default());
    let fs = cluster.mount(CachePolicy::AUTO);
    for number in 0..32 {
        let before = ChangeMark::of(&fs.getattr(fs.root()).unwrap());
        let mut dir = ChangedDir::new(fs.root());
        let name = format!("file{number}");
        fs.make_in(&ROOT, &mut dir, name.as_bytes(), 0o644, NewEntry::Regular).unwrap();
        assert_eq!(dir.before(), Some(before));
        assert_eq!(dir.after(), Some(&fs.getattr(fs.root()).unwrap()));
    }
}

#[test]
fn times_that_were_set_by_hand_give_way() {
    let cluster = Cluster::start(1, 2, Inheritance::default());
    let fs = cluster.mount(CachePolicy::None);
    for secs in [1, 1 << 32] {
        let mtime = Some(SetTime::At(Timestamp { secs, nanos: 5 }));
        let update = AttrUpdate { mtime, ..AttrUpdate::default() };
        fs.setattr(&ROOT, fs.root(), None, &update).unwrap();
        let name = secs.to_string();
        let make = |dir: &mut ChangedDir| {
            fs.make_in(&ROOT, dir, name.as_bytes(), 0o644, NewEntry::Regular)
        };
        watched(&fs, fs.root(), make).unwrap();
    }
}

#[test]
fn it_takes_one_request_more_and_no_round_trip() {
    let cluster = Cluster::start_far(1, 2, Inheritance::default());
    let fs = cluster.mount(CachePolicy::AUTO);
    fs.make(&ROOT, fs.root(), b"first", 0o644, NewEntry::Regular).unwrap();
    let requests = ["get_attr", "create", "unlink", "lookup"];
    let before = requests.map(|request| cluster.count(request));
    for number in 0..8_u8 {
        let mut dir = ChangedDir::new(fs.root());
        fs.make_in(&ROOT, &mut dir, &[b'a', number + 1], 0o644, NewEntry::Regular).unwrap();
        fs.unlink_in(&ROOT, &mut dir, &[b'a', number + 1]).unwrap();
    }
    let counts: Vec<_> = requests
        .iter()
        .zip(before)
        .map(|(request, count)| cluster.count(request) - count)
        .collect();
    assert_eq!(counts, [16, 8, 8, 0]);
}

#[test]
fn what_is_refused_at_once_asks_nobody() {
    let cluster = Cluster::start(1, 1, Inheritance::default());
    let fs = cluster.mount(CachePolicy::AUTO);
    let mut dir = ChangedDir::new(fs.root());
    assert_eq!(fs.unlink_in(&ROOT, &mut dir, &[b'x'; 256]), Err(Errno::NAMETOOLONG));
    assert!(!dir.was_asked() && dir.before().is_none() && dir.after().is_none());
    // A directory that is gone says nothing.
    let gone = fs.make(&ROOT, fs.root(), b"gone", 0o755, NewEntry::Directory).unwrap().oid;
    fs.rmdir(&ROOT, fs.root(), b"gone").unwrap();
    let mut dir = ChangedDir::new(gone);
    assert_eq!(fs.unlink_in(&ROOT, &mut dir, b"x"), Err(Errno::NOENT));
    assert!(dir.was_asked() && dir.before().is_none() && dir.after().is_none());
}

#[test]
fn a_rename_tells_how_both_directories_were_before_and_after() {
    let cluster = Cluster::start(2, 2, Inheritance::default());
    let fs = cluster.mount(CachePolicy::AUTO);
    let make = |dir, name: &[u8], what| fs.make(&ROOT, dir, name, 0o755, what).unwrap().oid;
    let one = make(fs.root(), b"one", NewEntry::Directory);
    let two = make(fs.root(), b"two", NewEntry::Directory);
    make(one, b"file", NewEntry::Regular);
    let mark = |dir| ChangeMark::of(&fs.getattr(dir).unwrap());
    let rename = |from: Oid, old: &[u8], to: Oid, new: &[u8]| {
        let marks = (Some(mark(from)), Some(mark(to)));
        let (mut from, mut to) = (ChangedDir::new(from), ChangedDir::new(to));
        let done = fs.rename_in(&ROOT, (&mut from, old), (&mut to, new), RenameMode::Replace);
        assert_eq!((from.before(), to.before()), marks);
        for dir in [&from, &to] {
            assert_eq!(dir.after(), Some(&fs.getattr(dir.oid()).unwrap()));
        }
        done
    };
    assert_eq!(rename(one, b"none", two, b"file"), Err(Errno::NOENT));
    rename(one, b"file", two, b"file").unwrap();
    rename(two, b"file", two, b"other").unwrap();
    assert_eq!(fs.lookup(&ROOT, two, b"other").unwrap().nlink, 1);
}

#[test]
fn who_may_rename_is_as_it_was() {
    let cluster = Cluster::start(1, 2, Inheritance::default());
    let fs = cluster.mount(CachePolicy::None);
    let user = |uid| Credentials { uid, gid: uid, groups: Vec::new(), process: None };
    let rename = |caller: &Credentials, from: (Oid, &[u8]), to: (Oid, &[u8])| {
        fs.rename(caller, from.0, from.1, to.0, to.1, RenameMode::Replace)
    };
    let mode = |dir, mode| {
        let update = AttrUpdate { mode: Some(mode), ..AttrUpdate::default() };
        fs.setattr(&ROOT, dir, None, &update).unwrap();
    };
    let make = |dir, name: &[u8], what| fs.make(&user(1), dir, name, 0o755, what).unwrap().oid;
    mode(fs.root(), 0o777);
    let dir = fs.root();
    make(dir, b"mine", NewEntry::Regular);
    let sub = make(dir, b"sub", NewEntry::Directory);
    let into = make(dir, b"into", NewEntry::Directory);
    mode(into, 0o777);
    rename(&user(2), (dir, b"mine"), (dir, b"moved")).unwrap();
    assert_eq!(rename(&user(2), (dir, b"mine"), (dir, b"x")), Err(Errno::NOENT));
    // A directory that gets another parent is written to.
    assert_eq!(rename(&user(2), (dir, b"sub"), (into, b"sub")), Err(Errno::ACCESS));
    rename(&user(2), (dir, b"sub"), (dir, b"bus")).unwrap();
    mode(dir, 0o1777);
    assert_eq!(rename(&user(2), (dir, b"moved"), (dir, b"mine")), Err(Errno::PERM));
    fs.make(&user(2), dir, b"other", 0o644, NewEntry::Regular).unwrap();
    assert_eq!(rename(&user(2), (dir, b"other"), (dir, b"moved")), Err(Errno::PERM));
    rename(&user(1), (dir, b"bus"), (into, b"sub")).unwrap();
    assert_eq!(fs.lookup(&ROOT, into, b"sub").unwrap().oid, sub);
}
