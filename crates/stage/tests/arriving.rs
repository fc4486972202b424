//! Programs read files while they come.

#![allow(clippy::unwrap_used)]

mod fixture;

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use azekura_proto::staging::local::LocalReply;
use azekura_proto::staging::{MapKind, NodeId};
use azekura_stage::front::{Event, Recipients};
use azekura_stage::job::Keeping;
use fixture::gated::Gate;
use fixture::{Job, LARGE, Program, Setting, local, noise};

/// Where the home stops in most tests, in bytes.
const HALF: u64 = LARGE as u64 / 2;
/// Long enough to see that something waits.
const MOMENT: Duration = Duration::from_millis(200);
const EIO: i32 = 5;

/// Whether this machine lets files be read as they come.
fn is_arriving(file: &File, tree: &Path) -> bool {
    file.metadata().unwrap().dev() != fs::metadata(tree).unwrap().dev()
}

/// `None`, with a word about it, where the machine does not let it be.
fn try_open(program: &Program, path: &Path, cache: &Path) -> Option<File> {
    let file = program.open(path);
    if is_arriving(&file, cache) {
        return Some(file);
    }
    eprintln!("skipped: no FUSE file system can be mounted in a user name space here");
    None
}

fn read_at(file: &File, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; bytes];
    file.read_exact_at(&mut buffer, offset).map(|()| buffer)
}

fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> Option<i32> {
    result.unwrap_err().raw_os_error()
}

#[test]
fn a_read_waits_for_the_pieces_that_it_needs_and_for_no_others() {
    let (job, gate) = Setting::read_only(2, Recipients::All).start_agents().start_gated();
    let content = noise(LARGE + 3, 1);
    let path = job.write("data/f", &content);
    gate.close(HALF);
    for node in [1, 0] {
        let program = job.program(node);
        let LocalReply::Found { inode, .. } = program.look(&path, true) else { panic!() };
        let Some(mut file) = try_open(&program, &path, &job.agents.cache) else { return };
        assert_eq!(file.metadata().unwrap().len(), content.len() as u64);
        assert_eq!(file.metadata().unwrap().ino(), inode);
        assert!(read_at(&file, 100_000, 1_000_000).unwrap() == content[100_000..1_100_000]);
        file.seek(SeekFrom::Start(7)).unwrap();
        let mut some = [0; 9];
        file.read_exact(&mut some).unwrap();
        assert_eq!(some, content[7..16]);
        // While it comes it is told to be what it will be.
        let LocalReply::Found { inode: later, .. } = program.look(&path, true) else { panic!() };
        assert_eq!(later, inode);
    }
    let program = job.program(0);
    let file = program.open(&path);
    thread::scope(|scope| {
        let reading = scope.spawn(|| read_at(&file, HALF + 1_000_000, 500_000).unwrap());
        let (other, path) = (job.program(0), &path);
        let whole = scope.spawn(move || fs::read(other.stage(path)).unwrap());
        thread::sleep(MOMENT);
        assert!(!reading.is_finished() && !whole.is_finished());
        gate.open();
        let from = HALF as usize + 1_000_000;
        assert!(reading.join().unwrap() == content[from..from + 500_000]);
        assert!(whole.join().unwrap() == content);
    });
    // What was opened before goes on, as the file that is now in the tree.
    let tree = program.stage(&path);
    assert_eq!(fs::metadata(&tree).unwrap().ino(), file.metadata().unwrap().ino());
    assert!(read_at(&file, 0, content.len()).unwrap() == content);
    assert_eq!(local(program.opens(&path)), tree);
    assert_eq!(gate.bytes_read(), content.len() as u64, "the source is read once");
    drop(file);
    job.end();
}

#[test]
fn descriptors_are_as_those_of_other_files() {
    let (job, gate) = Setting::read_only(1, Recipients::All).start_agents().start_gated();
    let content = noise(LARGE, 2);
    let path = job.write("data/f", &content);
    gate.close(HALF);
    let program = job.program(0);
    let Some(file) = try_open(&program, &path, &job.agents.cache) else { return };
    assert_eq!(errno(File::options().write(true).open(local(program.opens(&path)))), Some(30));
    // Copied.
    let copy = file.try_clone().unwrap();
    assert!(read_at(&copy, 5, 5).unwrap() == content[5..10]);
    // Given to another process, which has another place in the file by opening it again.
    let head = Command::new("head").args(["-c", "100000"]).stdin(copy).output().unwrap();
    assert!(head.stdout == content[..100_000]);
    let shell = "head -c 10; head -c 10 /proc/self/fd/0; (head -c 10)";
    (&file).seek(SeekFrom::Start(50)).unwrap();
    let again = Command::new("sh").args(["-c", shell]).stdin(file.try_clone().unwrap()).output();
    let again = again.unwrap().stdout;
    assert!(again[..10] == content[50..60] && again[10..20] == content[..10]);
    // Sent without being seen.
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut from = 1000;
    let sent = rustix::fs::sendfile(&ours, &file, Some(&mut from), 5000).unwrap();
    let mut got = vec![0; sent];
    (&theirs).read_exact(&mut got).unwrap();
    assert!(got == content[1000..1000 + sent]);
    // Mapped: a page is there as soon as its piece is.
    let map = format!(
        "import mmap,sys,time\nm=mmap.mmap(0,0,prot=mmap.PROT_READ)\n\
         print(m[3]);sys.stdout.flush();print(m[{}],m[{}])",
        HALF + 4_000_000,
        content.len() - 1
    );
    let mut mapping = Command::new("python3");
    mapping.args(["-c", &map]).stdin(file.try_clone().unwrap()).stdout(Stdio::piped());
    let mut mapping = mapping.spawn().unwrap();
    let mut said = mapping.stdout.take().unwrap();
    let mut line = vec![0; content[3].to_string().len() + 1];
    said.read_exact(&mut line).unwrap();
    assert_eq!(line, format!("{}\n", content[3]).into_bytes());
    thread::sleep(MOMENT);
    assert!(mapping.try_wait().unwrap().is_none());
    gate.open();
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    let (one, other) = (content[HALF as usize + 4_000_000], content[content.len() - 1]);
    assert_eq!(rest, format!("{one} {other}\n"));
    assert!(mapping.wait().unwrap().success());
    drop(file);
    job.end();
}

#[test]
fn a_home_that_fails_is_an_error_for_what_has_not_come() {
    let (job, gate) = Setting::read_only(1, Recipients::All).start_agents().start_gated();
    let content = noise(LARGE, 3);
    let path = job.write("data/f", &content);
    gate.close(HALF);
    let program = job.program(0);
    let Some(file) = try_open(&program, &path, &job.agents.cache) else { return };
    assert!(read_at(&file, 0, 1000).unwrap() == content[..1000]);
    thread::scope(|scope| {
        let reading = scope.spawn(|| read_at(&file, HALF + 1_000_000, 100));
        thread::sleep(MOMENT);
        gate.fail();
        assert_eq!(errno(reading.join().unwrap()), Some(EIO));
    });
    assert_eq!(errno(read_at(&file, LARGE as u64 - 100, 100)), Some(EIO));
    assert_eq!(file.metadata().unwrap().len(), LARGE as u64);
    drop(file);
    job.end();
}

#[test]
fn nobody_reads_bytes_of_two_versions() {
    let (job, gate) = Setting::read_only(1, Recipients::All).start_agents().start_gated();
    let (old, new) = (vec![b'o'; LARGE], vec![b'n'; LARGE]);
    let path = job.write("data/f", &old);
    gate.close(HALF);
    let program = job.program(0);
    let Some(file) = try_open(&program, &path, &job.agents.cache) else { return };
    assert!(read_at(&file, 0, 1000).unwrap() == old[..1000]);
    gate.wait_for_reader();
    fs::write(&path, &new).unwrap();
    gate.open();
    job.event(|event| matches!(event, Event::Restarted { .. }));
    // Some of the old may be there, and nothing of the new.
    for from in (0..LARGE as u64).step_by(100_000) {
        match read_at(&file, from, 1000) {
            Ok(bytes) => assert!(bytes == old[..1000], "at {from}"),
            Err(error) => assert_eq!(error.raw_os_error(), Some(EIO)),
        }
    }
    assert_eq!(errno(read_at(&file, LARGE as u64 - 1000, 1000)), Some(EIO));
    // Who opens it now has the new.
    assert!(read_at(&program.open(&path), 0, LARGE).unwrap() == new);
    drop(file);
    job.end();
}

/// A file of which a program has read the beginning, and which comes no further for now.
fn begun(content: &[u8]) -> Option<(Job, Arc<Gate>, PathBuf, File)> {
    let (job, gate) = Setting::read_only(1, Recipients::All).start_agents().start_gated();
    let path = job.write("data/f", content);
    gate.close(HALF);
    let program = job.program(0);
    let file = try_open(&program, &path, &job.agents.cache)?;
    assert!(read_at(&file, 0, 1000).unwrap() == content[..1000]);
    gate.wait_for_reader();
    Some((job, gate, path, file))
}

#[test]
fn a_file_that_changes_behind_what_was_read_is_read_on() {
    let old = noise(LARGE, 8);
    let Some((job, gate, path, file)) = begun(&old) else { return };
    let mut new = noise(LARGE, 9);
    new[..4 << 20].copy_from_slice(&old[..4 << 20]);
    thread::scope(|scope| {
        // It waits while the version changes.
        let reading = scope.spawn(|| read_at(&file, HALF + 1_000_000, 100_000).unwrap());
        thread::sleep(MOMENT);
        fs::write(&path, &new).unwrap();
        gate.open();
        job.event(|event| matches!(event, Event::Restarted { .. }));
        let from = HALF as usize + 1_000_000;
        assert!(reading.join().unwrap() == new[from..from + 100_000]);
    });
    assert!(read_at(&file, 0, LARGE).unwrap() == new, "all of it is the later version");
    assert!(read_at(&job.program(0).open(&path), 0, LARGE).unwrap() == new);
    let tree = job.program(0).stage(&path);
    assert!(fs::read(tree).unwrap() == new);
    drop(file);
    job.end();
}

/// Lengths of the pieces of the contents that have begun to travel.
fn piece_bytes(events: &[Event]) -> Vec<u32> {
    let of = |event: &Event| match event {
        Event::ContentBegun { piece_bytes, .. } => Some(*piece_bytes),
        _ => None,
    };
    events.iter().filter_map(of).collect()
}

#[test]
fn a_file_that_more_nodes_read_by_the_time_it_changes_is_read_on() {
    let (job, gate) = Setting::read_only(16, Recipients::Requesters).start_agents().start_gated();
    let old = noise(LARGE, 14);
    let path = job.write("data/f", &old);
    gate.close(HALF);
    let programs: Vec<_> = (0..16).map(|node| job.program(node)).collect();
    let Some(first) = try_open(&programs[0], &path, &job.agents.cache) else { return };
    let mut files = vec![first];
    for program in &programs[1..] {
        files.push(program.open(&path));
    }
    for file in &files {
        assert!(read_at(file, 0, 1000).unwrap() == old[..1000]);
    }
    gate.wait_for_reader();
    let mut new = old.clone();
    new[LARGE - 1000..].copy_from_slice(&noise(1000, 15));
    fs::write(&path, &new).unwrap();
    gate.open();
    for file in &files {
        assert!(read_at(file, 0, LARGE).unwrap() == new);
    }
    let begun = piece_bytes(&job.events_so_far());
    assert!(begun.len() > 1 && begun.iter().all(|bytes| *bytes == begun[0]), "{begun:?}");
    drop(files);
    job.end();
}

#[test]
fn how_far_a_file_has_come_is_told() {
    let old = noise(LARGE, 16);
    let Some((job, gate, path, file)) = begun(&old) else { return };
    let told = job.event(|event| matches!(event, Event::ContentComing { .. }));
    let Event::ContentComing { bytes, node: NodeId(0), .. } = told else { panic!("{told:?}") };
    assert!(bytes > 0 && bytes <= HALF + (1 << 20), "{bytes}");
    gate.open();
    job.event(|event| matches!(event, Event::ContentArrived { .. }));
    assert!(read_at(&file, 0, LARGE).unwrap() == fs::read(path).unwrap());
    drop(file);
    job.end();
}

#[test]
fn a_file_that_changes_again_and_again_is_compared_with_each_version() {
    let old = noise(LARGE, 10);
    let Some((job, gate, path, file)) = begun(&old) else { return };
    let change = |from: usize, seed| {
        let mut new = old.clone();
        let noise = noise(LARGE - from, seed);
        new[from..].copy_from_slice(&noise);
        fs::write(&path, &new).unwrap();
        new
    };
    // What is touched is another version of the same bytes.
    change(LARGE, 0);
    gate.close(HALF + 1);
    job.event(|event| matches!(event, Event::Restarted { .. }));
    assert!(read_at(&file, 2 << 20, 1000).unwrap() == old[2 << 20..(2 << 20) + 1000]);
    gate.wait_for_reader();
    let new = change(HALF as usize, 11);
    gate.open();
    job.event(|event| matches!(event, Event::Restarted { .. }));
    assert!(read_at(&file, 0, LARGE).unwrap() == new);
    // By now it has been given all of it.
    fs::write(&path, noise(LARGE, 12)).unwrap();
    assert!(read_at(&file, 0, LARGE).unwrap() == new);
    drop(file);
    job.end();
}

#[test]
fn a_file_that_gets_another_length_or_is_removed_is_an_error_for_what_has_not_come() {
    for is_removed in [false, true] {
        let old = noise(LARGE, 13);
        let Some((job, gate, path, file)) = begun(&old) else { return };
        thread::scope(|scope| {
            let reading = scope.spawn(|| read_at(&file, HALF + 1_000_000, 100));
            thread::sleep(MOMENT);
            if is_removed {
                fs::remove_file(&path).unwrap();
            } else {
                File::options().write(true).open(&path).unwrap().set_len(LARGE as u64 + 1).unwrap();
            }
            gate.open();
            assert_eq!(errno(reading.join().unwrap()), Some(EIO), "removed: {is_removed}");
        });
        assert_eq!(errno(read_at(&file, LARGE as u64 - 1000, 1000)), Some(EIO));
        drop(file);
        job.end();
    }
}

#[test]
fn the_end_of_a_job_ends_all_waiting() {
    let (job, gate) = Setting::read_only(1, Recipients::All).start_agents().start_gated();
    let path = job.write("data/f", noise(LARGE, 4));
    gate.close(HALF);
    let program = job.program(0);
    let Some(file) = try_open(&program, &path, &job.agents.cache) else { return };
    thread::scope(|scope| {
        let readings: Vec<_> =
            (0..8).map(|_| scope.spawn(|| read_at(&file, HALF + 1_000_000, 100))).collect();
        thread::sleep(MOMENT);
        job.agents.running[0].stop();
        for reading in readings {
            assert_eq!(errno(reading.join().unwrap()), Some(EIO));
        }
    });
    gate.open();
    drop(file);
    // Nothing serves any more, nothing is mounted.
    let deadline = Instant::now() + Duration::from_secs(5);
    let is_serving = || {
        let tasks = fs::read_dir("/proc/self/task").unwrap();
        tasks.flatten().any(|task| {
            fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name == "arriving\n")
        })
    };
    while std::env::args().any(|arg| arg == "--test-threads=1") && is_serving() {
        assert!(Instant::now() < deadline, "threads that serve are left");
        thread::sleep(Duration::from_millis(20));
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains("azekura-stage"), "{mounts}");
}

#[test]
fn a_program_that_waits_can_be_killed() {
    let (job, gate) = Setting::read_only(1, Recipients::All).start_agents().start_gated();
    let path = job.write("data/f", noise(LARGE, 5));
    gate.close(HALF);
    let program = job.program(0);
    let Some(file) = try_open(&program, &path, &job.agents.cache) else { return };
    // Read, and touched in a mapping: the kernel waits differently.
    let touch = format!("import mmap\nmmap.mmap(0,0,prot=mmap.PROT_READ)[{}]", HALF + 5_000_000);
    let read = format!("import os\nos.pread(0,100,{})", HALF + 3_000_000);
    let random = format!(
        "import os\nos.posix_fadvise(0,0,0,os.POSIX_FADV_RANDOM)\nos.pread(0,100,{})",
        HALF + 7_000_000
    );
    for script in [touch, read, random] {
        let mut child = Command::new("python3");
        let mut child =
            child.args(["-c", &script]).stdin(file.try_clone().unwrap()).spawn().unwrap();
        thread::sleep(Duration::from_millis(500));
        assert!(child.try_wait().unwrap().is_none(), "it waits");
        let begun = Instant::now();
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert!(begun.elapsed() < Duration::from_secs(2), "{script}");
    }
    // Others are not disturbed by it, nor by signals that they handle.
    let script = format!(
        "import os,signal\nsignal.signal(signal.SIGALRM,lambda *_:None)\n\
         signal.setitimer(signal.ITIMER_REAL,0.01,0.01)\n\
         os.posix_fadvise(0,0,0,os.POSIX_FADV_RANDOM)\nprint(len(os.pread(0,100,{})))",
        HALF + 3_000_000
    );
    let mut child = Command::new("python3");
    child.args(["-c", &script]).stdin(file.try_clone().unwrap()).stdout(Stdio::piped());
    let child = child.spawn().unwrap();
    thread::sleep(Duration::from_millis(700));
    gate.open();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"100\n");
    drop(file);
    job.end();
}

#[test]
fn a_hundred_files_are_open_while_they_come() {
    let (job, gate) = Setting::read_only(1, Recipients::All).start_agents().start_gated();
    let bytes = 5 << 20;
    let path = |number: u64| job.home(&format!("data/{number}"));
    for number in 0..100 {
        job.write(&format!("data/{number}"), noise(bytes, number + 1));
    }
    gate.close(4 << 20);
    // The front sends four at a time.
    let Some(first) = try_open(&job.program(0), &path(0), &job.agents.cache) else { return };
    gate.open();
    thread::scope(|scope| {
        for number in 0..100 {
            let (program, path) = (job.program(0), path(number));
            scope.spawn(move || {
                let (one, other) = (program.open(&path), program.open(&path));
                assert!(read_at(&one, 0, bytes).unwrap() == noise(bytes, number + 1));
                assert!(read_at(&other, 0, bytes).unwrap() == noise(bytes, number + 1));
            });
        }
    });
    drop(first);
    job.end();
}

#[test]
fn who_wants_whole_files_waits_for_them() {
    let keeping = Keeping { whole: true, ..Keeping::default() };
    let agents = Setting::read_only(1, Recipients::All).start_keeping(keeping);
    let (job, gate) = agents.start_gated();
    let content = noise(LARGE, 6);
    let path = job.write("data/f", &content);
    gate.close(HALF);
    thread::scope(|scope| {
        let (program, path) = (job.program(0), &path);
        let opening = scope.spawn(move || local(program.opens(path)));
        thread::sleep(MOMENT);
        assert!(!opening.is_finished());
        gate.open();
        let opened = opening.join().unwrap();
        assert!(opened.starts_with(&job.agents.cache));
        assert!(fs::read(opened).unwrap() == content);
    });
    job.end();
}

#[test]
fn files_that_may_be_written_come_whole() {
    let maps = vec![("data", MapKind::ReadWrite)];
    let setting = Setting { maps, ..Setting::read_only(1, Recipients::All) };
    let job = setting.start();
    let path = job.write("data/f", noise(LARGE, 7));
    assert!(local(job.program(0).opens(&path)).starts_with(&job.agents.cache));
    job.end();
}
