//! What programs see of names, and what they change.

mod fixture;

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::PathBuf;

use azekura_proto::FileKind;
use azekura_proto::staging::MapKind;
use azekura_proto::staging::local::{Change, LocalReply, LocalRequest};
use azekura_stage::front::Recipients;
use fixture::{Setting, local};

fn setting(kind: MapKind) -> Setting {
    let maps = vec![("data", kind)];
    Setting { maps, ..Setting::read_only(1, Recipients::Requesters) }
}

const NOENT: LocalReply = LocalReply::Failed(2);

#[test]
fn names_are_known_before_files_come() {
    let job = setting(MapKind::ReadOnly).start();
    let file = job.write("data/dir/file", "content");
    let odd = job.write("data/dir/a\nb", "odd");
    let bytes = job.home("data/dir").join(std::ffi::OsStr::from_bytes(b"\xff\xfe"));
    fs::write(&bytes, "bytes").unwrap();
    symlink("dir/file", job.home("data/link")).unwrap();
    let program = job.program(0);

    let found = |reply| match reply {
        LocalReply::Found { attributes, inode, .. } => (attributes, inode),
        other => panic!("{other:?}"),
    };
    let (attributes, inode) = found(program.look(&file, true));
    assert_eq!((attributes.kind, attributes.size), (FileKind::Regular, 7));
    assert_eq!(found(program.look(&job.home("data/link"), true)), (attributes, inode));
    let (link, other) = found(program.look(&job.home("data/link"), false));
    assert_eq!((link.kind, link.link), (FileKind::Symlink, b"dir/file".to_vec()));
    assert_ne!(inode, other);
    assert_eq!(program.look(&job.home("data/dir/none"), true), NOENT);
    assert_eq!(program.look(&job.home("data/file/none"), true), NOENT);

    assert_eq!(program.names(&job.home("data")), ["dir", "link"]);
    let list = local(program.read(&job.home("data/dir")));
    let standing = fs::metadata(list.join("file")).unwrap();
    assert_eq!((standing.len(), standing.mode() & 0o777), (7, 0));
    assert_eq!(fs::read_dir(&list).unwrap().count(), 3);

    let here = program.stage(&job.home("data/link"));
    assert_eq!(fs::read(&here).unwrap(), b"content");
    assert!(here.ends_with("tree/0/dir/file"));
    assert_eq!(fs::metadata(&here).unwrap().ino(), inode, "the file that was looked at");
    let (directory, read) = found(program.look(&job.home("data/dir"), true));
    let mtime = fs::metadata(job.home("data/dir")).unwrap().mtime();
    assert_eq!(directory.mtime.secs, mtime, "as at home, also where a part of it is here");
    assert_eq!(fs::metadata(&list).unwrap().ino(), read, "the directory that is read");
    assert_eq!(local(program.look(&file, true)), here);
    local(program.read(&job.home("data/dir")));
    let come = fs::metadata(&here).unwrap();
    assert_eq!((come.ino(), come.nlink()), (inode, 1), "as it was looked at, and with one name");
    assert_eq!(fs::metadata(list.join("file")).unwrap().len(), 7);
    assert_eq!(fs::read(program.stage(&odd)).unwrap(), b"odd");
    assert_eq!(fs::read(program.stage(&bytes)).unwrap(), b"bytes");
    job.end();
}

#[test]
fn paths_lead_out_of_a_map_and_back() {
    let job = setting(MapKind::ReadOnly).start();
    let file = job.write("data/dir/file", "content");
    job.write("other/outside", "");
    symlink("../other/outside", job.home("data/out")).unwrap();
    symlink(job.home("data/dir"), job.home("other/into")).unwrap();
    let program = job.program(0);
    let outside = job.home("other/outside").as_os_str().as_bytes().to_vec();
    assert_eq!(program.read(&job.home("data/out")), LocalReply::Outside(outside));
    let around = job.home("data/../other/into/../dir/./file");
    assert_eq!(program.stage(&around), program.stage(&file));
    job.end();
}

#[test]
fn a_map_for_reading_refuses_changes() {
    let job = setting(MapKind::ReadOnly).start();
    let file = job.write("data/file", "content");
    let program = job.program(0);
    let write = Change::Write { follow: true };
    for change in [Change::Create, write, Change::Replace, Change::Remove] {
        assert_eq!(program.change(&file, change), LocalReply::Failed(30));
    }
    job.end();
}

#[test]
fn a_symlink_that_is_not_followed_is_there_itself() {
    for kind in [MapKind::ReadOnly, MapKind::ReadWrite] {
        let job = setting(kind).start();
        fs::create_dir_all(job.home("data/dir")).unwrap();
        let link = job.home("data/dir/link");
        symlink("none", &link).unwrap();
        let program = job.program(0);
        let opened = local(program.ask(&LocalRequest::Open {
            path: link.as_os_str().as_bytes().to_vec(),
            follow: false,
        }));
        assert_eq!(fs::read_link(opened).unwrap(), PathBuf::from("none"));
        let changed = program.change(&link, Change::Write { follow: false });
        match kind {
            MapKind::ReadOnly => assert_eq!(changed, LocalReply::Failed(30)),
            _ => assert_eq!(fs::read_link(local(changed)).unwrap(), PathBuf::from("none")),
        }
        job.end();
    }
}

#[test]
fn what_a_program_changes_is_seen_on_its_node_and_not_at_home() {
    let job = setting(MapKind::ReadWrite).start();
    let file = job.write("data/dir/file", "content");
    let gone = job.write("data/dir/gone", "gone");
    let program = job.program(0);

    let here = local(program.change(&file, Change::Write { follow: true }));
    assert_eq!(fs::read(&here).unwrap(), b"content");
    fs::write(&here, "changed").unwrap();
    assert_eq!(program.stage(&file), here);
    assert_eq!(fs::read(&file).unwrap(), b"content", "home is as it was");

    fs::remove_file(local(program.change(&gone, Change::Remove))).unwrap();
    assert_eq!(program.look(&gone, true), NOENT);
    assert_eq!(program.read(&gone), NOENT);

    let new = job.home("data/dir/new");
    fs::write(local(program.change(&new, Change::Create)), "new").unwrap();
    assert_eq!(program.names(&job.home("data/dir")), ["file", "new"]);
    let nowhere = job.home("data/none/new");
    assert_eq!(program.change(&nowhere, Change::Create), NOENT);
    job.end();
}

#[test]
fn a_directory_that_is_moved_takes_all_of_the_source_with_it() {
    let job = setting(MapKind::ReadWrite).start();
    job.write("data/dir/sub/file", "content");
    symlink("sub/file", job.home("data/dir/link")).unwrap();
    let program = job.program(0);
    let from = local(program.change(&job.home("data/dir"), Change::Remove));
    assert!(fs::remove_dir(&from).is_err(), "it is not empty");
    let to = local(program.change(&job.home("data/moved"), Change::Create));
    fs::rename(from, to).unwrap();
    assert_eq!(program.names(&job.home("data")), ["moved"]);
    let read = program.stage(&job.home("data/moved/link"));
    assert_eq!(fs::read(read).unwrap(), b"content");
    // The name may be used again, and shows nothing of what was there.
    fs::create_dir(local(program.change(&job.home("data/dir"), Change::Create))).unwrap();
    assert_eq!(program.names(&job.home("data/dir")), Vec::<String>::new());
    assert_eq!(program.look(&job.home("data/dir/sub/file"), true), NOENT);
    job.end();
}

#[test]
fn a_map_for_results_shows_directories_and_what_is_written() {
    let job = setting(MapKind::Out).start();
    let old = job.write("data/dir/old", "old");
    let program = job.program(0);
    assert_eq!(program.read(&old), NOENT);
    assert_eq!(program.names(&job.home("data/dir")), Vec::<String>::new());
    let new: PathBuf = job.home("data/dir/new");
    fs::write(local(program.change(&new, Change::Replace)), "new").unwrap();
    fs::write(local(program.change(&old, Change::Write { follow: true })), "mine").unwrap();
    assert_eq!(program.names(&job.home("data/dir")), ["new", "old"]);
    assert_eq!(fs::read(program.stage(&old)).unwrap(), b"mine");
    job.end();
}
