//! How fast four nodes send home over loopback, against a copy of the same files by `cp`. For an optimized build
//! on a machine that does nothing else: `cargo test --release -p azekura-stage --test speed_out -- --ignored`.

#![allow(clippy::unwrap_used)]

mod fixture;

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use azekura_proto::staging::MapKind;
use azekura_stage::front::Recipients;
use fixture::{Setting, noise};

const BYTES: usize = 64 << 20;
const NODES: u16 = 4;
/// Each way is tried so often, in turn; the best time of each counts.
const TRIES: usize = 3;

#[test]
#[ignore = "measures: needs an optimized build and an idle machine"]
fn four_nodes_send_at_most_three_times_as_long_as_cp_and_sync_take() {
    let mut best = [Duration::MAX; 3];
    for _ in 0..TRIES {
        let maps = vec![("out", MapKind::Out)];
        let job = Setting { maps, ..Setting::read_only(NODES, Recipients::All) }.start();
        let written: Vec<_> = (0..NODES)
            .map(|node| {
                let path = job.home(&format!("out/{node}"));
                job.program(node).write(&path, noise(BYTES, u64::from(node)))
            })
            .collect();
        let copies = job.agents.dir.path().join("copies");
        fs::create_dir(&copies).unwrap();
        let begun = Instant::now();
        assert!(Command::new("cp").args(&written).arg(&copies).status().unwrap().success());
        best[0] = best[0].min(begun.elapsed());
        // What is sent home is on the disk when it is said to be there.
        let files = fs::read_dir(&copies).unwrap().map(|copy| copy.unwrap().path());
        assert!(Command::new("sync").args(files).status().unwrap().success());
        best[1] = best[1].min(begun.elapsed());
        fs::remove_dir_all(&copies).unwrap();
        let begun = Instant::now();
        let report = job.stage_out();
        best[2] = best[2].min(begun.elapsed());
        assert!(report.is_right(), "{report:?}");
        assert_eq!(report.bytes, u64::from(NODES) * BYTES as u64);
        job.end();
    }
    let [copied, synced, sent] = best;
    println!("cp {copied:?}, cp and sync {synced:?}, sent home {sent:?}");
    assert!(sent < 3 * synced);
}
