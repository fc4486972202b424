//! A cache that is too small. The test runs itself again where it may mount one: in a user name space.

#![allow(clippy::unwrap_used)]

mod fixture;

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;

use azekura_proto::staging::MapKind;
use azekura_proto::staging::local::{Change, LocalReply};
use azekura_stage::front::{Event, Recipients};
use fixture::{Program, Setting, local, noise};

const INSIDE: &str = "AZEKURA_STAGE_TEST_FULL";

/// Runs a test of this file with a cache of 24 MiB. `unshare` is of util-linux.
fn run_again(test: &str) {
    let directory = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=24m tmpfs \"$0\" || exit 99; exec \"$@\"";
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
    unshare.arg(directory.path()).arg(std::env::current_exe().unwrap());
    unshare.args(["--exact", "--nocapture", test]).env(INSIDE, directory.path());
    match unshare.output() {
        Ok(done) if done.status.success() => {
            assert!(String::from_utf8_lossy(&done.stdout).contains("1 passed"));
        }
        Ok(done) if done.status.code() == Some(101) => {
            panic!("{}", String::from_utf8_lossy(&done.stderr))
        }
        // As `azekura_testkit::skip` says it.
        failed => {
            let line = format!("skipped: {test}: no file system can be mounted: {failed:?}\n");
            std::io::stderr().write_all(line.as_bytes()).unwrap();
        }
    }
}

const MIB: usize = 1 << 20;

#[test]
fn what_nobody_has_open_makes_room() {
    let Some(cache) = std::env::var_os(INSIDE) else {
        return run_again("what_nobody_has_open_makes_room");
    };
    let job = Setting::read_only(1, Recipients::All).start_agents_in(Path::new(&cache));
    let job = job.start_front();
    for number in 0..8 {
        job.write(&format!("data/{number}"), noise(6 * MIB, number));
    }
    for number in 0..40 {
        job.write(&format!("data/small/{number}"), noise(60_000, number));
    }
    let program = job.program(0);
    let path = |number: u64| job.home(&format!("data/{number}"));
    let first = program.stage(&path(0));
    let open = File::open(&first).unwrap();
    // Every name has a second one, that would keep the bytes.
    assert_eq!(program.names(&job.home("data")).len(), 9);
    for number in 1..8 {
        let here = program.stage(&path(number));
        assert!(fs::read(here).unwrap() == noise(6 * MIB, number), "{number}");
        program.names(&job.home("data"));
    }
    assert!(first.exists(), "somebody has it open");
    drop(open);
    for number in 0..40 {
        program.stage(&job.home(&format!("data/small/{number}")));
    }
    assert!(fs::read(program.stage(&path(1))).unwrap() == noise(6 * MIB, 1), "it comes again");
    job.end();
}

#[test]
fn nobody_gets_all_of_a_file_that_is_larger_than_the_cache() {
    let Some(cache) = std::env::var_os(INSIDE) else {
        return run_again("nobody_gets_all_of_a_file_that_is_larger_than_the_cache");
    };
    let job = Setting::read_only(1, Recipients::All).start_agents_in(Path::new(&cache));
    let job = job.start_front();
    let large = job.write("data/large", noise(30 * MIB, 1));
    let other = job.write("data/other", noise(6 * MIB, 2));
    let program = job.program(0);
    assert_eq!(program.read(&large), LocalReply::Failed(5));
    let event = job.event(|event| matches!(event, Event::ReadThrough { .. }));
    assert!(matches!(event, Event::ReadThrough { why, .. } if why.contains("the cache is full")));
    // However often it is asked for.
    assert_eq!(program.read(&large), LocalReply::Failed(5));
    assert!(fs::read(program.stage(&other)).unwrap() == noise(6 * MIB, 2));
    job.end();
}

/// Reads a file from its beginning to its end and then here and there.
fn check(program: &Program, path: &Path, content: &[u8]) {
    let file = program.open(path);
    assert_eq!(file.metadata().unwrap().len(), content.len() as u64);
    let mut buffer = vec![0; 300_000];
    let mut places: Vec<usize> = (0..content.len()).step_by(buffer.len()).collect();
    places.extend([content.len() - 10, 5, content.len() / 2, content.len() / 3, 0]);
    for place in places {
        let wanted = &content[place..content.len().min(place + buffer.len())];
        file.read_exact_at(&mut buffer[..wanted.len()], place as u64).unwrap();
        assert!(&buffer[..wanted.len()] == wanted, "at {place}");
    }
}

#[test]
fn files_that_are_larger_than_the_cache_are_read_through() {
    let Some(cache) = std::env::var_os(INSIDE) else {
        return run_again("files_that_are_larger_than_the_cache_are_read_through");
    };
    let job = Setting::read_only(1, Recipients::All).start_agents_in(Path::new(&cache));
    let job = job.start_front();
    let files = [(30, 1), (41, 2)].map(|(mib, seed)| {
        let content = noise(mib * MIB + 77, seed);
        (job.write(&format!("data/{seed}"), &content), content)
    });
    let other = job.write("data/other", noise(6 * MIB, 3));
    std::thread::scope(|scope| {
        for (path, content) in files.iter().chain(&files) {
            let program = job.program(0);
            scope.spawn(move || check(&program, path, content));
        }
    });
    // A file that has room comes in beside them, and stays.
    let kept = job.program(0).open(&files[0].0);
    assert!(fs::read(job.program(0).stage(&other)).unwrap() == noise(6 * MIB, 3));
    drop(kept);
    job.end();
}

/// Bytes of memory that this process has, in which the agent is.
fn memory() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

#[test]
fn however_many_files_are_read_through_memory_is_bounded() {
    const FILES: u64 = 48;
    const READ: usize = 7 * MIB;
    let Some(cache) = std::env::var_os(INSIDE) else {
        return run_again("however_many_files_are_read_through_memory_is_bounded");
    };
    let job = Setting::read_only(1, Recipients::All).start_agents_in(Path::new(&cache));
    let job = job.start_front();
    let content = noise(READ, 1);
    let paths: Vec<_> = (0..FILES)
        .map(|number| {
            let path = job.write(&format!("data/{number}"), &content);
            // Larger than the cache, and each of them another one.
            let file = File::options().write(true).open(&path).unwrap();
            file.set_len(30 * MIB as u64).unwrap();
            file.write_all_at(&number.to_le_bytes(), 5 * MIB as u64).unwrap();
            path
        })
        .collect();
    let before = memory();
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    let most = std::thread::scope(|scope| {
        for (number, path) in paths.iter().enumerate() {
            let (program, content, done) = (job.program(0), &content, done.clone());
            scope.spawn(move || {
                let file = program.open(path);
                let mut some = vec![0; MIB / 2];
                for from in (0..READ).step_by(some.len()) {
                    file.read_exact_at(&mut some, from as u64).unwrap();
                    let mut wanted = content[from..from + some.len()].to_vec();
                    if from == 5 * MIB {
                        wanted[..8].copy_from_slice(&number.to_le_bytes());
                    }
                    assert!(some == wanted, "{number} at {from}");
                }
                drop(done);
            });
        }
        drop(done);
        let mut most = 0;
        // Until all have dropped their ends.
        while let Err(std::sync::mpsc::RecvTimeoutError::Timeout) =
            is_done.recv_timeout(std::time::Duration::from_millis(5))
        {
            most = most.max(memory());
        }
        most
    });
    let most = most.saturating_sub(before) / MIB;
    // 64 of windows, 64 of what the front keeps, 32 of buffers that wait, what the readers have; not 672.
    assert!(most < 64 + 64 + 32 + 48 + 32, "{most} MiB");
    job.end();
}

#[test]
fn what_finds_no_room_while_it_comes_is_read_through_by_those_who_have_it_open() {
    let Some(cache) = std::env::var_os(INSIDE) else {
        return run_again(
            "what_finds_no_room_while_it_comes_is_read_through_by_those_who_have_it_open",
        );
    };
    let job = Setting::read_only(1, Recipients::All).start_agents_in(Path::new(&cache));
    let (job, gate) = job.start_gated();
    let kept = job.write("data/kept", noise(14 * MIB, 1));
    let content = noise(20 * MIB, 2);
    let path = job.write("data/large", &content);
    let program = job.program(0);
    let open = File::open(program.stage(&kept)).unwrap();
    gate.close(2 * MIB as u64);
    let file = program.open(&path);
    let mut first = vec![0; MIB];
    file.read_exact_at(&mut first, 0).unwrap();
    assert!(first == content[..MIB]);
    gate.open();
    let mut all = vec![0; content.len()];
    file.read_exact_at(&mut all, 0).unwrap();
    assert!(all == content);
    check(&program, &path, &content);
    drop((open, file));
    // Now there is room, since nobody has the other open.
    assert!(fs::read(program.stage(&path)).unwrap() == content);
    job.end();
}

#[test]
fn what_a_program_is_about_to_change_stays() {
    let Some(cache) = std::env::var_os(INSIDE) else {
        return run_again("what_a_program_is_about_to_change_stays");
    };
    let maps = vec![("data", MapKind::ReadWrite)];
    let setting = Setting { maps, ..Setting::read_only(1, Recipients::All) };
    let job = setting.start_agents_in(Path::new(&cache)).start_front();
    for number in 0..8 {
        job.write(&format!("data/{number}"), noise(6 * MIB, number));
    }
    let program = job.program(0);
    let path = |number: u64| job.home(&format!("data/{number}"));
    let written = local(program.change(&path(0), Change::Write { follow: true }));
    let removed = local(program.change(&path(1), Change::Remove));
    for number in 2..8 {
        program.stage(&path(number));
    }
    assert!(fs::read(&written).unwrap() == noise(6 * MIB, 0));
    fs::remove_file(removed).unwrap();
    job.end();
}

#[test]
fn a_file_that_its_only_holders_have_dropped_comes_from_the_source() {
    let Some(cache) = std::env::var_os(INSIDE) else {
        return run_again("a_file_that_its_only_holders_have_dropped_comes_from_the_source");
    };
    let setting = Setting::read_only(2, Recipients::Requesters);
    let job = setting.start_agents_in(Path::new(&cache)).start_front();
    for number in 0..8 {
        job.write(&format!("data/{number}"), noise(6 * MIB, number));
    }
    let path = |number: u64| job.home(&format!("data/{number}"));
    // One node after the other drops what it had.
    for round in 0..20 {
        let number = round % 8;
        let here = job.program(round as u16 % 2).stage(&path(number));
        assert!(fs::read(here).unwrap() == noise(6 * MIB, number), "{round}");
    }
    job.end();
}
