//! An agent on the front's host reads large files at home itself; what it finds there that is not what the front has
//! read is sent to it.

#![allow(clippy::unwrap_used)]

mod fixture;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use azekura_stage::front::{Event, Recipients};
use azekura_stage::source::Source;
use fixture::gated::{Gate, Gated};
use fixture::{Job, LARGE, Setting, noise};

/// A job whose front has its home elsewhere than where the agents look for it; and the path of a file there.
fn start(nodes: u16, content: &[u8]) -> (Job, Arc<Gate>, PathBuf) {
    let agents = Setting::read_only(nodes, Recipients::All).start_agents();
    let home = agents.dir.path().join("other");
    fs::create_dir(&home).unwrap();
    fs::write(home.join("file"), content).unwrap();
    let gate = Arc::new(Gate::default());
    gate.put_at_hand();
    let source: Arc<dyn Source> = Arc::new(Gated::new(&home, &gate));
    let maps = agents.maps.iter().map(|map| (map.clone(), Arc::clone(&source))).collect();
    (agents.start_front_over(maps), gate, home.join("file"))
}

fn has_open(path: &Path) -> bool {
    let path = fs::canonicalize(path).unwrap();
    fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
        .any(|open| open == path)
}

#[test]
fn what_is_at_home_on_this_host_is_read_there() {
    let content = noise(LARGE, 5);
    let (job, gate, _) = start(2, &content);
    // The front has another file open: this one only an agent can have.
    let path = job.write("data/file", &content);
    gate.close(LARGE as u64 / 2);
    let (first, second) = (job.program(0), job.program(1));
    thread::scope(|scope| {
        let staged = scope.spawn(|| fs::read(first.stage(&path)).unwrap());
        gate.wait_for_reader();
        while !has_open(&path) {
            assert!(!staged.is_finished());
            thread::yield_now();
        }
        gate.open();
        assert!(staged.join().unwrap() == content);
    });
    assert!(fs::read(second.stage(&path)).unwrap() == content, "passed on by the first node");
    assert!(!has_open(&path), "it is closed again");
    let events = job.events_so_far();
    assert!(!events.iter().any(|event| matches!(event, Event::WrongPiece { .. })), "{events:?}");
    job.end();
}

#[test]
fn what_is_not_the_same_at_home_is_sent() {
    let content = noise(LARGE, 6);
    let mut late = content.clone();
    late[LARGE / 3] ^= 1;
    // Nothing at all, the beginning alone, another file, one that differs further on.
    let others = [None, Some(&content[..LARGE / 2]), Some(&noise(LARGE, 7)[..]), Some(&late[..])];
    for (number, other) in others.iter().enumerate() {
        let (job, gate, _) = start(1, &content);
        let path = job.home("data/file");
        if let Some(other) = other {
            fs::write(&path, other).unwrap();
        }
        assert!(fs::read(job.program(0).stage(&path)).unwrap() == content, "{number}");
        let events = job.events_so_far();
        assert_eq!(gate.bytes_read(), LARGE as u64, "{number}: read once: {events:?}");
        let is_wrong = |event: &Event| matches!(event, Event::WrongPiece { .. });
        assert!(!events.iter().any(is_wrong), "{number}: the front is not to blame: {events:?}");
        job.end();
    }
}

#[test]
fn a_file_that_changes_while_it_is_read_at_home_comes_in_one_version() {
    let (before, after) = (noise(LARGE, 8), noise(LARGE, 9));
    let (job, gate, home) = start(1, &before);
    let path = job.home("data/file");
    std::os::unix::fs::symlink(home.parent().unwrap(), job.home("link")).unwrap();
    fs::remove_dir(job.home("data")).unwrap();
    fs::rename(job.home("link"), job.home("data")).unwrap();
    gate.close(LARGE as u64 / 2);
    let program = job.program(0);
    thread::scope(|scope| {
        let staged = scope.spawn(|| fs::read(program.stage(&path)).unwrap());
        gate.wait_for_reader();
        fs::write(&home, &after).unwrap();
        gate.open();
        assert!(staged.join().unwrap() == after);
    });
    job.event(|event| matches!(event, Event::Restarted { .. }));
    job.end();
}
