//! Files that go home when programs close them.

#![allow(clippy::unwrap_used)]

mod fixture;

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use azekura_proto::staging::MapKind;
use azekura_proto::staging::local::Change;
use azekura_stage::front::{Event, OutReport, Recipients};
use fixture::{Agents, Job, LARGE, Setting, local, noise};

/// Longer than what is closed waits to go home together.
const A_WHILE: Duration = Duration::from_millis(800);

fn agents(nodes: u16) -> Agents {
    let maps = vec![("data", MapKind::ReadWrite), ("out", MapKind::Out), ("in", MapKind::ReadOnly)];
    let setting = Setting { maps, ..Setting::read_only(nodes, Recipients::Requesters) };
    let mut agents = setting.start_agents();
    agents.out.on_close = true;
    agents
}

fn start(nodes: u16) -> Job {
    agents(nodes).start_front()
}

fn comes(path: &Path, content: impl AsRef<[u8]>) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while fs::read(path).ok().as_deref() != Some(content.as_ref()) {
        assert!(Instant::now() < deadline, "{} does not come", path.display());
        thread::sleep(Duration::from_millis(20));
    }
}

fn goes(path: &Path) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while path.exists() {
        assert!(Instant::now() < deadline, "{} stays", path.display());
        thread::sleep(Duration::from_millis(20));
    }
}

/// What the end of a job still has to send.
fn rest(job: &Job) -> OutReport {
    thread::sleep(A_WHILE);
    job.stage_out()
}

#[test]
fn a_file_goes_home_when_it_is_closed_and_when_it_is_written_again() {
    let job = start(2);
    for (name, bytes) in [("small", 100), ("large", LARGE)] {
        let path = job.home(&format!("out/{name}"));
        let content = noise(bytes, 3);
        let here = job.program(0).write(&path, &content);
        comes(&path, &content);
        fs::write(&here, "other").unwrap();
        comes(&path, "other");
        File::options().append(true).open(&here).unwrap().write_all(b" and more").unwrap();
        comes(&path, "other and more");
    }
    let report = rest(&job);
    assert!(report.is_right(), "{report:?}");
    assert_eq!(report.files, 0, "nothing is left for the end");
    job.end();
}

#[test]
fn a_file_that_somebody_still_writes_does_not_go() {
    let job = start(1);
    let path = job.home("out/file");
    let here = local(job.program(0).change(&path, Change::Replace));
    let mut one = File::create(&here).unwrap();
    let mut other = File::options().append(true).open(&here).unwrap();
    one.write_all(b"one").unwrap();
    drop(one);
    thread::sleep(A_WHILE);
    assert!(!path.exists());
    other.write_all(b", other").unwrap();
    drop(other);
    comes(&path, "one, other");
    job.end();
}

#[test]
fn new_directories_and_renamed_ones_are_followed() {
    let job = start(1);
    let here = job.program(0).make_dir(&job.home("out/new"));
    fs::create_dir_all(here.join("a/b/c")).unwrap();
    fs::write(here.join("a/b/c/deep"), "deep").unwrap();
    fs::set_permissions(here.join("a"), fs::Permissions::from_mode(0o750)).unwrap();
    fs::write(here.join("a/file.part"), "whole").unwrap();
    fs::rename(here.join("a/file.part"), here.join("a/file")).unwrap();
    comes(&job.home("out/new/a/b/c/deep"), "deep");
    comes(&job.home("out/new/a/file"), "whole");
    fs::rename(here.join("a/b"), here.join("moved")).unwrap();
    comes(&job.home("out/new/moved/c/deep"), "deep");
    fs::write(here.join("moved/c/later"), "later").unwrap();
    comes(&job.home("out/new/moved/c/later"), "later");
    let report = rest(&job);
    assert!(report.is_right(), "{report:?}");
    // What has another name now, and its directories, are removed at the end.
    assert!(!job.home("out/new/a/b").exists() && !job.home("out/new/a/file.part").exists());
    assert_eq!(fs::metadata(job.home("out/new/a")).unwrap().mode() & 0o777, 0o750);
    job.end();
}

#[test]
fn what_has_come_from_home_does_not_go_there_until_it_is_changed() {
    let job = start(1);
    let program = job.program(0);
    let (staged, changed) = (job.write("data/staged", "staged"), job.write("data/changed", "old"));
    let times = fs::metadata(&staged).unwrap().ino();
    program.stage(&staged);
    fs::write(local(program.change(&changed, Change::Write { follow: true })), "new").unwrap();
    comes(&changed, "new");
    assert_eq!(fs::metadata(&staged).unwrap().ino(), times, "it was never written at home");
    let is_sent = |event: &Event| matches!(event, Event::Sent { .. });
    assert_eq!(job.events_so_far().iter().filter(|event| is_sent(event)).count(), 1);
    job.end();
}

#[test]
fn what_two_nodes_close_is_kept_under_two_names_whoever_was_first() {
    let job = start(2);
    let path = job.home("out/x");
    job.program(0).write(&path, "first");
    comes(&path, "first");
    let second = job.program(1).write(&path, "second");
    comes(&job.home("out/x.host-1"), "second");
    comes(&job.home("out/x.host-0"), "first");
    goes(&path);
    fs::write(&second, "again").unwrap();
    comes(&job.home("out/x.host-1"), "again");
    assert!(!path.exists());
    job.event(|event| matches!(event, Event::Conflict { .. }));
    let report = rest(&job);
    assert!(!report.is_right());
    assert_eq!((report.files, report.conflicts.len()), (0, 1));
    job.end();
}

#[test]
fn what_a_lost_node_has_sent_is_not_replaced() {
    let job = start(2);
    let path = job.home("out/x");
    job.program(0).write(&path, "first");
    comes(&path, "first");
    job.agents.running[0].stop();
    job.event(|event| matches!(event, Event::NodeGone { .. }));
    job.program(1).write(&path, "second");
    comes(&job.home("out/x.host-1"), "second");
    assert_eq!(fs::read(&path).unwrap(), b"first");
    let report = rest(&job);
    assert_eq!(report.conflicts.len(), 1);
    assert_eq!(report.conflicts[0].kept.len(), 2);
    assert_eq!(fs::read(&path).unwrap(), b"first");
    job.end();
}

#[test]
fn many_files_of_several_nodes_go_home_and_the_manifest_says_so() {
    let mut agents = agents(3);
    let manifest = agents.dir.path().join("manifest");
    agents.out.manifest = Some(manifest.clone());
    let job = agents.start_front();
    thread::scope(|scope| {
        for node in 0..3 {
            let here = job.program(node).make_dir(&job.home(&format!("out/{node}")));
            scope.spawn(move || {
                for number in 0..400 {
                    fs::write(here.join(number.to_string()), format!("{node} {number}")).unwrap();
                }
            });
        }
    });
    for node in 0..3 {
        for number in 0..400 {
            let path = job.home(&format!("out/{node}/{number}"));
            comes(&path, format!("{node} {number}"));
        }
    }
    let report = rest(&job);
    assert!(report.is_right(), "{report:?}");
    let lines = fs::read_to_string(&manifest).unwrap();
    let sent = lines.lines().filter(|line| line.contains(r#""line":"sent""#));
    assert_eq!(sent.filter(|line| line.contains(r#""kind":"file""#)).count(), 1200);
    job.end();
}
