//! Files come to the nodes when programs ask for them.

#![allow(clippy::unwrap_used)]

mod fixture;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::thread;

use azekura_proto::staging::MapKind;
use azekura_proto::staging::local::{LocalReply, LocalRequest};
use azekura_stage::front::{Event, Recipients};
use azekura_stage::job::Keeping;
use fixture::{LARGE, Setting, noise};

#[test]
fn a_file_that_is_asked_for_comes_whole_with_its_attributes() {
    let job = Setting::read_only(2, Recipients::All).start();
    let files = [("small", 10), ("none", 0), ("piece", 65_536), ("large", 20_000_001)]
        .map(|(name, bytes)| (name, noise(bytes, 7)));
    for (name, content) in &files {
        job.write(&format!("data/{name}"), content);
    }
    for (name, content) in &files {
        let path = job.home(&format!("data/{name}"));
        let home = fs::metadata(&path).unwrap();
        for node in 0..2 {
            let here = job.program(node).stage(&path);
            assert!(fs::read(&here).unwrap() == *content, "{name} on node {node}");
            let here = fs::metadata(here).unwrap();
            assert_eq!((here.mode(), here.mtime()), (home.mode(), home.mtime()));
            assert_eq!(here.mtime_nsec(), home.mtime_nsec());
        }
    }
    job.end();
}

fn begun(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event, Event::ContentBegun { .. })).count()
}

#[test]
fn requests_at_the_same_time_are_one_transfer() {
    let (job, gate) = Setting::read_only(3, Recipients::All).start_agents().start_gated();
    let content = noise(LARGE, 1);
    let path = job.write("data/file", &content);
    gate.close(LARGE as u64 / 2);
    thread::scope(|scope| {
        for program in 0..12 {
            let (path, content) = (&path, &content);
            let program = job.program(program % 3);
            scope.spawn(move || assert!(fs::read(program.stage(path)).unwrap() == *content));
        }
        gate.wait_for_reader();
        gate.open();
    });
    assert_eq!(gate.bytes_read(), LARGE as u64, "the source is read once");
    assert_eq!(begun(&job.events_so_far()), 1);
    job.end();
}

#[test]
fn only_those_who_ask_get_a_file_and_later_ones_from_a_neighbour() {
    let kind = MapKind::ReadOnly;
    let maps = vec![("large", kind), ("small", kind)];
    let setting = Setting { maps, ..Setting::read_only(3, Recipients::Requesters) };
    let (job, gate) = setting.start_agents().start_gated();
    for (name, bytes) in [("large", LARGE), ("small", 100)] {
        let content = noise(bytes, 2);
        // A directory of its own: that of the first is known by then.
        let path = job.write(&format!("{name}/file"), &content);
        let before = gate.bytes_read();
        let program = job.program(1);
        let here = program.stage(&path);
        let elsewhere = here.to_string_lossy().replace("/1/tree/", "/2/tree/");
        assert!(!fs::exists(elsewhere).unwrap());
        assert_eq!(gate.bytes_read() - before, content.len() as u64);
        for node in [2, 0] {
            assert!(fs::read(job.program(node).stage(&path)).unwrap() == content);
        }
        assert_eq!(gate.bytes_read() - before, content.len() as u64, "{name}");
    }
    job.end();
}

#[test]
fn small_files_that_are_wanted_together_travel_together() {
    let job = Setting::read_only(3, Recipients::All).start();
    let content = |number: usize| noise(number * 37 % 9000, number as u64);
    for number in 0..500 {
        job.write(&format!("data/{}/{number}", number % 7), content(number));
    }
    let program = job.program(0);
    let prefetch = LocalRequest::Prefetch { paths: vec![job.agents.maps[0].dir.clone()] };
    assert_eq!(program.ask(&prefetch), LocalReply::Done);
    for node in 0..3 {
        let program = job.program(node);
        for number in 0..500 {
            let here = program.stage(&job.home(&format!("data/{}/{number}", number % 7)));
            assert!(fs::read(here).unwrap() == content(number), "{number}");
        }
    }
    let contents = begun(&job.events_so_far());
    assert!(contents < 25, "500 files are {contents} contents");
    job.end();
}

#[test]
fn what_is_fetched_before_anybody_asks_is_there_on_all_nodes() {
    let (job, gate) = Setting::read_only(2, Recipients::Requesters).start_agents().start_gated();
    job.write("data/dir/one", noise(1000, 1));
    job.write("data/dir/sub/two", noise(3_000_000, 2));
    job.write("data/not", "wanted");
    let path = |name: &str| job.home(name).into_os_string().into_encoded_bytes();
    let front = job.front.as_ref().unwrap();
    front.prefetch(vec![path("data/none"), b"/no-such".to_vec(), path("data/dir")]);
    // Two contents on two nodes.
    for _ in 0..4 {
        job.event(|event| matches!(event, Event::ContentArrived { .. }));
    }
    let read = gate.bytes_read();
    assert_eq!(read, 3_001_000);
    for node in 0..2 {
        job.program(node).stage(&job.home("data/dir/one"));
        job.program(node).stage(&job.home("data/dir/sub/two"));
    }
    assert_eq!(gate.bytes_read(), read);
    job.end();
}

#[test]
fn a_file_that_is_gone_when_it_is_wanted_is_not_there() {
    let job = Setting::read_only(1, Recipients::All).start();
    let path = job.write("data/file", "content");
    let large = job.write("data/large", noise(LARGE, 3));
    let program = job.program(0);
    program.look(&path, true);
    fs::remove_file(&path).unwrap();
    fs::remove_file(&large).unwrap();
    assert_eq!(program.read(&path), LocalReply::Failed(2));
    assert_eq!(program.read(&large), LocalReply::Failed(2));
    // Whoever makes it again is heard.
    fs::write(&path, "again").unwrap();
    assert_eq!(fs::read(program.stage(&path)).unwrap(), b"again");
    job.end();
}

/// Threads of this process, as the kernel counts them.
fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

#[test]
fn many_contents_on_many_nodes_do_not_make_many_threads() {
    const NODES: u16 = 8;
    const FILES: usize = 300;
    let job = Setting::read_only(NODES, Recipients::All).start();
    for number in 0..FILES {
        job.write(&format!("data/{number}"), noise(70_000 + number, number as u64));
    }
    job.front.as_ref().unwrap().prefetch(vec![job.agents.maps[0].dir.clone()]);
    let mut most = 0;
    for _ in 0..FILES * usize::from(NODES) {
        job.event(|event| matches!(event, Event::ContentArrived { .. }));
        most = most.max(threads());
    }
    // Other tests of this file may run beside it; with a thread for each content there were thousands.
    assert!(most < 600, "{most} threads");
    for node in 0..NODES {
        let program = job.program(node);
        for number in (0..FILES).step_by(29) {
            let here = program.stage(&job.home(&format!("data/{number}")));
            assert!(fs::read(here).unwrap() == noise(70_000 + number, number as u64));
        }
    }
    job.end();
}

#[test]
fn files_come_right_past_the_page_cache() {
    let keeping = Keeping { direct: true, ..Keeping::default() };
    // Not in memory, where there is nothing to go past.
    let cache = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let setting = Setting { keeping, ..Setting::read_only(2, Recipients::All) };
    let job = setting.start_agents_in(cache.path()).start_front();
    for (number, bytes) in [(1, 3 << 20), (2, LARGE + 4095), (3, 10_000)] {
        job.write(&format!("data/{number}"), noise(bytes, number));
    }
    for (number, bytes) in [(1, 3 << 20), (2, LARGE + 4095), (3, 10_000)] {
        for node in 0..2 {
            let here = job.program(node).stage(&job.home(&format!("data/{number}")));
            assert!(fs::read(here).unwrap() == noise(bytes, number), "{number} on {node}");
        }
    }
    job.end();
}
