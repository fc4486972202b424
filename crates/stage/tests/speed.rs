//! How fast a file comes to one node over loopback, against a copy of it by `cp`. For an optimized build on a
//! machine that does nothing else: `cargo test --release -p azekura-stage --test speed -- --ignored`.

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
