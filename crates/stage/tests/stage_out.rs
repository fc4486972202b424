//! What programs write goes home.

#![allow(clippy::unwrap_used)]

mod fixture;

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use azekura_proto::staging::MapKind;
use azekura_proto::staging::local::Change;
use azekura_stage::front::{OutReport, Recipients};
use fixture::{LARGE, Setting, local, noise};

fn setting(nodes: u16) -> Setting {
    let maps = vec![("data", MapKind::ReadWrite), ("out", MapKind::Out)];
    Setting { maps, ..Setting::read_only(nodes, Recipients::Requesters) }
}

fn right(report: &OutReport) -> (u64, u64) {
    assert!(report.is_right(), "{report:?}");
    (report.files, report.bytes)
}

/// That nothing is to be sent.
fn nothing(report: &OutReport) {
    assert!(report.is_right(), "{report:?}");
    let done = report.files + report.directories + report.links + report.removed;
    assert_eq!(done, 0, "{report:?}");
}

#[test]
fn files_come_home_with_their_attributes_and_only_once() {
    let job = setting(2).start();
    let files = [("none", 0), ("small", 10), ("edge", 65_536), ("middle", 300_000)];
    let files = [&files[..], &[("large", LARGE + 1)]].concat();
    let bytes: usize = files.iter().map(|(_, bytes)| bytes).sum();
    for (number, (name, bytes)) in files.iter().enumerate() {
        let program = job.program(number as u16 % 2);
        let here = program.write(&job.home("out").join(name), noise(*bytes, 5));
        fs::set_permissions(&here, Permissions::from_mode(0o640)).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123_456_789);
        fs::File::options().write(true).open(&here).unwrap().set_modified(time).unwrap();
    }
    assert_eq!(right(&job.stage_out()), (5, bytes as u64));
    for (name, bytes) in &files {
        let home = job.home("out").join(name);
        assert!(fs::read(&home).unwrap() == noise(*bytes, 5), "{name}");
        let home = fs::metadata(home).unwrap();
        assert_eq!(home.mode() & 0o777, 0o640);
        assert_eq!((home.mtime(), home.mtime_nsec()), (1_000_000_000, 123_456_789));
    }
    nothing(&job.stage_out());
    job.end();
}

#[test]
fn only_what_has_changed_goes_home_again() {
    let job = setting(1).start();
    let staged = job.write("data/staged", "from home");
    let changed = job.write("data/changed", "before");
    let program = job.program(0);
    program.stage(&staged);
    program.stage(&changed);
    // Links make nothing new, here or at home.
    program.names(&job.home("data"));
    nothing(&job.stage_out());
    fs::write(local(program.change(&changed, Change::Write { follow: true })), "behind").unwrap();
    let new = job.home("out/new");
    let here = program.write(&new, "1234");
    assert_eq!(right(&job.stage_out()), (2, 10));
    assert_eq!(fs::read(&changed).unwrap(), b"behind");
    program.names(&job.home("out"));
    program.names(&job.home("data"));
    nothing(&job.stage_out());
    for round in 0..5 {
        // Of the same length, and at once.
        let content = format!("{round:04}");
        fs::write(&here, &content).unwrap();
        assert_eq!(right(&job.stage_out()), (1, 4));
        assert_eq!(fs::read(&new).unwrap(), content.as_bytes());
    }
    nothing(&job.stage_out());
    job.end();
}

#[test]
fn names_of_any_bytes_deep_directories_and_links_come_home() {
    let job = setting(2).start();
    let program = job.program(0);
    let mut directory = job.home("out");
    for depth in 0..60 {
        directory = directory.join(format!("directory-{depth}"));
        let here = program.make_dir(&directory);
        fs::set_permissions(&here, Permissions::from_mode(0o750)).unwrap();
    }
    program.write(&directory.join("deep"), "deep");
    for name in [&b"a\nb"[..], b"\xff\xfe\x80", b"  ", b"%41", "\u{e9}".as_bytes(), &[b'n'; 255]] {
        program.write(&job.home("out").join(OsStr::from_bytes(name)), name);
    }
    symlink("a\nb", local(program.change(&job.home("out/link"), Change::Create))).unwrap();
    symlink("/none/\u{1}", local(program.change(&job.home("out/far"), Change::Create))).unwrap();
    let closed = program.make_dir(&job.home("out/closed"));
    program.write(&job.home("out/closed/file"), "in it");
    fs::set_permissions(closed, Permissions::from_mode(0o555)).unwrap();
    job.program(1).make_dir(&job.home("out/directory-0"));

    let report = job.stage_out();
    assert_eq!(right(&report).0, 8);
    assert_eq!((report.directories, report.links), (61, 2));
    assert_eq!(fs::read(directory.join("deep")).unwrap(), b"deep");
    assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o777, 0o750);
    assert_eq!(fs::metadata(job.home("out/closed")).unwrap().mode() & 0o777, 0o555);
    for name in [&b"a\nb"[..], b"\xff\xfe\x80", b"  ", b"%41", "\u{e9}".as_bytes(), &[b'n'; 255]] {
        assert_eq!(fs::read(job.home("out").join(OsStr::from_bytes(name))).unwrap(), name);
    }
    assert_eq!(fs::read_link(job.home("out/link")).unwrap(), Path::new("a\nb"));
    assert_eq!(fs::read_link(job.home("out/far")).unwrap(), Path::new("/none/\u{1}"));
    nothing(&job.stage_out());
    job.end();
}

#[test]
fn thousands_of_small_files_come_home() {
    const FILES: usize = 5000;
    let job = setting(2).start();
    let names = |node: u16| (0..FILES / 2).map(move |number| format!("{node}-{number}"));
    for node in 0..2 {
        let program = job.program(node);
        let here = program.make_dir(&job.home("out/many"));
        for name in names(node) {
            fs::write(here.join(&name), name.repeat(100)).unwrap();
        }
    }
    assert_eq!(right(&job.stage_out()).0, FILES as u64);
    for name in (0..2).flat_map(names) {
        let home = fs::read(job.home("out/many").join(&name)).unwrap();
        assert_eq!(home, name.repeat(100).as_bytes());
    }
    nothing(&job.stage_out());
    job.end();
}

#[test]
fn what_two_nodes_have_written_is_kept_under_two_names() {
    let job = setting(3).start();
    let path = job.home("out/x");
    for node in 0..2 {
        job.program(node).write(&path, format!("from {node}"));
        // What is equal is a conflict too.
        job.program(node).write(&job.home("out/equal"), "equal");
    }
    job.program(2).write(&job.home("out/y"), "only here");
    let report = job.stage_out();
    assert!(!report.is_right());
    assert_eq!((report.files, report.failed.len(), report.conflicts.len()), (5, 0, 2));
    assert_eq!(report.conflicts[1].path, path.to_str().unwrap());
    let kept = ["out/x.host-0", "out/x.host-1"].map(|name| job.home(name));
    assert_eq!(report.conflicts[1].kept, kept.each_ref().map(|path| path.to_str().unwrap()));
    assert!(!path.exists());
    assert_eq!(fs::read(&kept[0]).unwrap(), b"from 0");
    assert_eq!(fs::read(&kept[1]).unwrap(), b"from 1");
    let again = job.stage_out();
    assert_eq!((again.files, again.conflicts.len()), (0, 2), "it is still not right");
    job.end();
}

#[test]
fn what_an_earlier_job_has_kept_is_not_replaced() {
    let job = setting(2).start();
    let path = job.home("out/x");
    let earlier = ["out/x.host-0", "out/x.host-0.2", "out/x.host-1"];
    for name in earlier {
        job.write(name, format!("earlier {name}"));
    }
    for round in ["first", "second"] {
        for node in 0..2 {
            job.program(node).write(&path, format!("{round} of {node}"));
        }
        let report = job.stage_out();
        assert_eq!((report.files, report.failed.len(), report.conflicts.len()), (2, 0, 1));
        let kept = ["out/x.host-0.3", "out/x.host-1.2"].map(|name| job.home(name));
        assert_eq!(report.conflicts[0].kept, kept.each_ref().map(|path| path.to_str().unwrap()));
        for (node, path) in kept.iter().enumerate() {
            assert_eq!(fs::read_to_string(path).unwrap(), format!("{round} of {node}"));
        }
    }
    for name in earlier {
        assert_eq!(fs::read_to_string(job.home(name)).unwrap(), format!("earlier {name}"));
    }
    assert!(!path.exists());
    job.end();
}

#[test]
fn a_node_that_writes_what_another_has_sent_does_not_replace_it() {
    let job = setting(2).start();
    let path = job.home("data/x");
    job.write("data/x", "old");
    job.program(0).write(&path, "first");
    assert_eq!(right(&job.stage_out()).0, 1);
    assert_eq!(fs::read(&path).unwrap(), b"first");
    job.program(1).write(&path, "second");
    let report = job.stage_out();
    assert_eq!((report.files, report.conflicts.len()), (2, 1));
    assert_eq!(fs::read(job.home("data/x.host-0")).unwrap(), b"first");
    assert_eq!(fs::read(job.home("data/x.host-1")).unwrap(), b"second");
    assert!(!path.exists(), "neither of them has the name");
    job.end();
}

#[test]
fn what_is_removed_on_a_node_is_removed_at_home() {
    let job = setting(2).start();
    for name in ["file", "dir/sub/a", "dir/b", "moved/c", "becomes-dir", "becomes-file/d", "keep"] {
        job.write(&format!("data/{name}"), name);
    }
    let out = job.write("out/old", "of an earlier job");
    let program = job.program(0);
    let home = |name: &str| job.home("data").join(name);
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
    rustix::fs::mknodat(rustix::fs::CWD, home("pipe"), kind, mode, 0).unwrap();
    program.remove_file(&home("pipe"));
    program.remove_file(&home("file"));
    program.remove_file(&home("dir/sub/a"));
    program.remove_file(&home("dir/b"));
    for name in ["dir/sub", "dir"] {
        fs::remove_dir(local(program.change(&home(name), Change::Remove))).unwrap();
    }
    program.rename(&home("moved"), &home("new"));
    program.remove_file(&home("becomes-dir"));
    program.make_dir(&home("becomes-dir"));
    program.write(&home("becomes-dir/e"), "e");
    program.remove_file(&home("becomes-file/d"));
    fs::remove_dir(local(program.change(&home("becomes-file"), Change::Remove))).unwrap();
    program.write(&home("becomes-file"), "f");
    // A result that is written and removed does not touch what was there.
    program.write(&out, "short");
    program.remove_file(&out);
    // What nobody has seen stays.
    fs::write(home("new-at-home"), "").unwrap();

    let report = job.stage_out();
    assert_eq!(right(&report).0, 3, "{report:?}");
    let mut names: Vec<_> =
        fs::read_dir(job.home("data")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["becomes-dir", "becomes-file", "keep", "new", "new-at-home"]);
    assert_eq!(fs::read(home("new/c")).unwrap(), b"moved/c");
    assert_eq!(fs::read(home("becomes-dir/e")).unwrap(), b"e");
    assert_eq!(fs::read(home("becomes-file")).unwrap(), b"f");
    assert_eq!(fs::read(&out).unwrap(), b"of an earlier job");
    nothing(&job.stage_out());
    job.end();
}

#[test]
fn what_was_sent_and_is_removed_later_is_removed_at_home() {
    let job = setting(1).start();
    let program = job.program(0);
    program.make_dir(&job.home("out/dir"));
    program.write(&job.home("out/dir/file"), "content");
    program.write(&job.home("out/stays"), "content");
    assert_eq!(right(&job.stage_out()).0, 2);
    program.remove_file(&job.home("out/dir/file"));
    fs::remove_dir(local(program.change(&job.home("out/dir"), Change::Remove))).unwrap();
    let report = job.stage_out();
    assert_eq!((right(&report).0, report.removed), (0, 2));
    assert!(!job.home("out/dir").exists());
    assert!(job.home("out/stays").exists());
    nothing(&job.stage_out());
    job.end();
}

#[test]
fn what_is_renamed_and_renamed_back_stays() {
    let job = setting(1).start();
    job.write("data/dir/file", "content");
    let program = job.program(0);
    program.rename(&job.home("data/dir"), &job.home("data/other"));
    program.rename(&job.home("data/other"), &job.home("data/dir"));
    nothing(&job.stage_out());
    assert_eq!(fs::read(job.home("data/dir/file")).unwrap(), b"content");
    job.end();
}

#[test]
fn pipes_are_left_where_they_are_and_named() {
    let job = setting(1).start();
    let program = job.program(0);
    let pipe = local(program.change(&job.home("out/pipe"), Change::Create));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    program.write(&job.home("out/file"), "content");
    let report = job.stage_out();
    assert_eq!(right(&report), (1, 7));
    assert_eq!(report.left.len(), 1);
    assert!(report.left[0].path.ends_with("out/pipe"));
    assert!(!job.home("out/pipe").exists());
    job.end();
}

#[test]
fn nodes_send_one_after_the_other_if_they_are_to() {
    let mut agents = setting(4).start_agents();
    agents.out.concurrency = 1;
    let job = agents.start_front();
    for node in 0..4 {
        job.program(node)
            .write(&job.home(&format!("out/{node}")), noise(LARGE / 4, u64::from(node)));
    }
    assert_eq!(right(&job.stage_out()).0, 4);
    let sent = job.events_so_far().into_iter().filter_map(|event| match event {
        azekura_stage::front::Event::Sent { node, .. } => Some(node.0),
        _ => None,
    });
    assert_eq!(sent.collect::<Vec<_>>(), [0, 1, 2, 3]);
    job.end();
}

#[test]
fn a_job_that_may_write_nothing_has_nothing_to_send() {
    let job = Setting::read_only(1, Recipients::All).start();
    let file = job.write("data/file", "content");
    job.program(0).stage(&file);
    nothing(&job.stage_out());
    job.end();
}

#[test]
fn names_of_one_file_stay_names_of_one_file() {
    let job = setting(2).start();
    let program = job.program(0);
    let inode = |name: &str| fs::metadata(job.home("out").join(name)).unwrap().ino();
    for bytes in [100, LARGE / 4] {
        let (dir, content) = (format!("out/{bytes}"), noise(bytes, 3));
        let here = program.make_dir(&job.home(&dir));
        fs::create_dir(here.join("sub")).unwrap();
        fs::write(here.join("a"), &content).unwrap();
        for name in ["sub/b", "c"] {
            fs::hard_link(here.join("a"), here.join(name)).unwrap();
        }
        // The same path on another node is another file.
        program.write(&job.home(&format!("{dir}/other")), &content);
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(right(&job.stage_out()), (4, 2 * bytes as u64), "sent once");
        let of = |name: &str| inode(&format!("{bytes}/{name}"));
        assert_eq!((of("sub/b"), of("c")), (of("a"), of("a")));
        assert_ne!(of("other"), of("a"));
        assert!(fs::read(job.home(&dir).join("c")).unwrap() == content);
        nothing(&job.stage_out());

        fs::hard_link(here.join("a"), here.join("later")).unwrap();
        assert_eq!(right(&job.stage_out()), (1, 0));
        assert_eq!(of("later"), of("a"));
        fs::write(here.join("c"), "new").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(right(&job.stage_out()), (4, 3));
        assert_eq!(fs::read(job.home(&dir).join("sub/b")).unwrap(), b"new");
        assert_eq!((of("sub/b"), of("later")), (of("a"), of("a")));
    }
    job.end();
}

#[test]
fn names_of_one_file_come_one_by_one_where_home_cannot_link() {
    let (job, _hook) = setting(1).start_agents().start_hooked();
    let here = job.program(0).make_dir(&job.home("out/dir"));
    fs::write(here.join("a"), "content").unwrap();
    fs::hard_link(here.join("a"), here.join("b")).unwrap();
    assert_eq!(right(&job.stage_out()), (2, 14));
    assert_eq!(fs::read(job.home("out/dir/b")).unwrap(), b"content");
    job.end();
}

#[test]
fn extended_attributes_and_owners_come_home() {
    let job = setting(1).start();
    let program = job.program(0);
    let long = vec![b'v'; 1000];
    let is_root = rustix::process::geteuid().is_root();
    // So many that they do not fit one message.
    let names: Vec<_> = (0..200).map(|number| format!("out/{number}")).collect();
    for name in names.iter().map(String::as_str).chain(["out/large"]) {
        let bytes = if name == "out/large" { LARGE / 4 } else { 50 };
        let here = program.write(&job.home(name), noise(bytes, 3));
        for (attribute, value) in [("user.name", name.as_bytes()), ("user.long", &long)] {
            let flags = rustix::fs::XattrFlags::empty();
            if rustix::fs::setxattr(&here, attribute, value, flags).is_err() {
                return eprintln!("skipped: the file system has no extended attributes");
            }
        }
        if is_root {
            std::os::unix::fs::chown(&here, Some(1234), Some(4321)).unwrap();
        }
    }
    assert_eq!(right(&job.stage_out()).0, 201);
    for name in names.iter().map(String::as_str).chain(["out/large"]) {
        let mut value = vec![0; 2000];
        let home = job.home(name);
        for (attribute, expected) in [("user.name", name.as_bytes()), ("user.long", &long)] {
            let bytes = rustix::fs::getxattr(&home, attribute, &mut value[..]).unwrap();
            assert!(value[..bytes] == *expected, "{name}");
        }
        let home = fs::metadata(home).unwrap();
        assert!(!is_root || (home.uid(), home.gid()) == (1234, 4321), "{name}");
    }
    job.end();
}

#[test]
fn directories_keep_the_times_that_programs_gave_them() {
    let job = setting(1).start();
    let here = job.program(0).make_dir(&job.home("out/dir"));
    let set = |path: &Path, secs: u64| {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(secs);
        fs::File::open(path).unwrap().set_modified(time).unwrap();
    };
    fs::create_dir(here.join("sub")).unwrap();
    for round in 0..2u64 {
        fs::write(here.join(format!("sub/{round}")), "content").unwrap();
        set(&here.join("sub"), 1_000_000_000 + round);
        set(&here, 1_100_000_000 + round);
        assert_eq!(right(&job.stage_out()).0, 1);
        let time = |name: &str| fs::metadata(job.home(name)).unwrap().mtime();
        assert_eq!(time("out/dir/sub"), 1_000_000_000 + round as i64);
        assert_eq!(time("out/dir"), 1_100_000_000 + round as i64);
        nothing(&job.stage_out());
    }
    job.end();
}
