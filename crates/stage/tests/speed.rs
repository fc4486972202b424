//! How fast a file comes to one node over loopback, against a copy of it by `cp`; and what time of processors it
//! takes, which says more on a machine that does other things too. For an optimized build:
//! `cargo test --release -p azekura-stage --test speed -- --ignored --nocapture --test-threads 1`.

#![allow(clippy::unwrap_used)]

mod fixture;

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use azekura_stage::front::Recipients;
use fixture::{Setting, noise};

const BYTES: usize = 1 << 30;
/// Each way is tried so often, in turn; the best time of each counts.
const TRIES: usize = 3;

#[test]
#[ignore = "measures: needs an optimized build and an idle machine"]
fn staging_a_large_file_takes_at_most_twice_as_long_as_cp() {
    let (mut copying, mut staging) = (Duration::MAX, Duration::MAX);
    for _ in 0..TRIES {
        let job = Setting::read_only(1, Recipients::All).start();
        let path = job.write("data/file", noise(BYTES, 3));
        // All of it is in the page cache, and what is written waits there too.
        let copied = job.agents.dir.path().join("cache/copy");
        let begun = Instant::now();
        assert!(Command::new("cp").arg(&path).arg(&copied).status().unwrap().success());
        copying = copying.min(begun.elapsed());
        fs::remove_file(&copied).unwrap();
        let program = job.program(0);
        let begun = Instant::now();
        program.stage(&path);
        staging = staging.min(begun.elapsed());
        job.end();
    }
    let share = copying.as_secs_f64() / staging.as_secs_f64();
    println!("cp {copying:?}, staged {staging:?}: {share:.2}");
    assert!(share >= 0.5, "{share:.2}");
}

/// Ticks of the clock by which the kernel counts processor time, a second.
const TICKS_PER_S: f64 = 100.0;

/// What this process has used: processor seconds in user mode and in the kernel, page faults.
fn used() -> [f64; 3] {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    // Behind the name, which may have anything in it; the first field there is the third of all.
    let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let field = |number: usize| fields[number - 3].parse::<f64>().unwrap();
    [field(14) / TICKS_PER_S, field(15) / TICKS_PER_S, field(10)]
}

/// Stages a file to all nodes; what that takes for each GiB that comes to a node.
fn cost_of(nodes: u16, bytes: usize, is_sent: bool) -> [f64; 3] {
    let agents = Setting::read_only(nodes, Recipients::All).start_agents();
    // What comes from a home that is not this host's own directory is sent.
    let job = if is_sent { agents.start_gated().0 } else { agents.start_front() };
    let path = job.write("data/file", noise(bytes, 3));
    let before = used();
    let staged = |node| fs::metadata(job.program(node).stage(&path)).unwrap().len();
    assert!((0..nodes).all(|node| staged(node) == bytes as u64));
    let after = used();
    job.end();
    let arrived = f64::from(nodes) * bytes as f64 / f64::from(1 << 30);
    std::array::from_fn(|at| (after[at] - before[at]) / arrived)
}

#[test]
#[ignore = "measures: needs an optimized build"]
fn what_staging_costs_of_the_processors() {
    let cases = [(1, BYTES, false), (1, BYTES, true), (4, BYTES / 4, false), (4, BYTES / 4, true)];
    for _ in 0..TRIES {
        for (nodes, bytes, is_sent) in cases {
            let [user, system, faults] = cost_of(nodes, bytes, is_sent);
            let (both, size) = (user + system, bytes >> 20);
            let way = if is_sent { ", all sent" } else { "" };
            println!(
                "{size} MiB to {nodes}{way}: {both:.2} s/GiB (user {user:.2}, system {system:.2}), \
                 {faults:.0} page faults/GiB"
            );
        }
    }
}
