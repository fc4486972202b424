//! A cache that is too small. The test runs itself again where it may mount one: in a user name space.

#![allow(clippy::unwrap_used)]

mod fixture;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use azekura_proto::staging::MapKind;
use azekura_proto::staging::local::{Change, LocalReply};
use azekura_stage::front::{Event, Recipients};
use fixture::{Setting, local, noise};

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
fn a_file_that_is_larger_than_the_cache_fails_with_a_line() {
    let Some(cache) = std::env::var_os(INSIDE) else {
        return run_again("a_file_that_is_larger_than_the_cache_fails_with_a_line");
    };
    let job = Setting::read_only(1, Recipients::All).start_agents_in(Path::new(&cache));
    let job = job.start_front();
    let large = job.write("data/large", noise(30 * MIB, 1));
    let other = job.write("data/other", noise(6 * MIB, 2));
    let program = job.program(0);
    assert_eq!(program.read(&large), LocalReply::Failed(5));
    let event = job.event(|event| matches!(event, Event::Failed { .. }));
    assert!(matches!(event, Event::Failed { why, .. } if why.contains("the cache is full")));
    assert!(fs::read(program.stage(&other)).unwrap() == noise(6 * MIB, 2));
    job.end();
}

#[test]
fn what_a_program_is_about_to_change_stays() {
    let Some(cache) = std::env::var_os(INSIDE) else {
        return run_again("what_a_program_is_about_to_change_stays");
    };
    let maps = vec![("data", MapKind::ReadWrite)];
    let setting = Setting { nodes: 1, recipients: Recipients::All, maps };
    let job = setting.start_agents_in(Path::new(&cache)).start_front();
    for number in 0..8 {
        job.write(&format!("data/{number}"), noise(6 * MIB, number));
    }
    let program = job.program(0);
    let path = |number: u64| job.home(&format!("data/{number}"));
    let written = local(program.change(&path(0), Change::Write));
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
