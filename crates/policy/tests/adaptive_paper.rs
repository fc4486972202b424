//! The adaptive method against its paper, on simulated links: the sizes of tables 1 to 5, the traces of
//! figures 10 and 13, and what it is to be better than. The search for what the paper leaves open is
//! `examples/fit_adaptive.rs`.

#![allow(clippy::unwrap_used, reason = "a test stops where something is missing")]

use std::fmt::Write;

use azekura_policy::simulation::published::{DELAYS_MS, TABLES};
use azekura_policy::simulation::{
    AccessPattern, GIGABIT_GOODPUT, LOCAL_ROUND_TRIP_US, LinkPhase, Outcome, Reader, SimulatedLink,
    Workload,
};
use azekura_policy::{AdaptiveParameters, Decision, ReadPolicy};

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;
const G: u64 = 1 << 30;

fn workload(name: &str) -> Workload {
    let (_, pattern) = AccessPattern::ALL.into_iter().find(|(known, _)| *known == name).unwrap();
    let (file_bytes, useful_bytes) = match name {
        "sequential" => (6 * G, 6 * G),
        "random-8M" => (4 * G, 2 * G),
        "shift" => (2 * G, 2 * G),
        _ => (24 * G, 24 * G),
    };
    Workload { pattern, file_bytes, useful_bytes, read_bytes: M, seed: 7 }
}

fn link(delay_ms: u64) -> SimulatedLink {
    SimulatedLink::new(GIGABIT_GOODPUT, delay_ms * 1000 + LOCAL_ROUND_TRIP_US)
}

fn run_over(link: SimulatedLink, policy: &str, workload: Workload) -> Outcome {
    Reader::new(link).run(&policy.parse().unwrap(), workload.file_bytes, workload.reads())
}

fn run(policy: &str, name: &str, delay_ms: u64) -> Outcome {
    run_over(link(delay_ms), policy, workload(name))
}

fn best_fixed(name: &str, delay_ms: u64) -> f64 {
    (16..=29)
        .map(|power| run(&format!("fixed={}", 1u64 << power), name, delay_ms).bytes_per_second())
        .fold(0.0, f64::max)
}

/// The sizes asked for, each with the number of requests in a row.
fn runs(outcome: &Outcome) -> Vec<(u64, usize)> {
    let mut runs: Vec<(u64, usize)> = Vec::new();
    for record in &outcome.decisions {
        match runs.last_mut().filter(|run| run.0 == record.size_bytes) {
            Some(run) => run.1 += 1,
            None => runs.push((record.size_bytes, 1)),
        }
    }
    runs
}

#[test]
fn sizes_are_those_of_tables_1_to_5() {
    let (mut near, mut equal) = (0, 0);
    let mut text = String::new();
    for table in TABLES {
        for (delay_ms, published) in DELAYS_MS.into_iter().zip(table.adaptive_bytes) {
            let chosen = run("sync-adaptive", table.pattern, delay_ms).chosen_size_bytes().unwrap();
            near += u32::from(chosen.ilog2().abs_diff(published.ilog2()) <= 1);
            equal += u32::from(chosen == published);
            let (chosen, published) = (chosen / K, published / K);
            writeln!(text, "{} {delay_ms} ms: {chosen}K, {published}K", table.pattern).unwrap();
        }
    }
    println!("{text}{near} of 30 within a power of two, {equal} equal");
    // What decision 0017 says.
    assert_eq!((equal, near), (25, 29), "{text}");
}

#[test]
fn figure_10_grows_shrinks_and_settles() {
    let outcome = run("sync-adaptive", "shift", 0);
    let runs = runs(&outcome);
    let growing: Vec<_> = (0..8).map(|power| (M << power, 4)).collect();
    assert_eq!(runs[..8], growing, "a full m at each size");
    let sequential = outcome.decisions.iter().take_while(|record| record.range.end() <= G).count();
    assert_eq!(sequential, 32, "the paper: 30");
    // From there on mostly gaps: down by eighths to what is all used.
    let settled = runs.iter().position(|(bytes, _)| *bytes == 64 * K).unwrap();
    println!("{:?}", &runs[8..settled + 4]);
    assert_eq!(runs[8], (256 * M, 1));
    assert!(settled <= 14, "{runs:?}");
    assert!(runs[8..settled].iter().all(|(_, requests)| *requests <= 4), "{runs:?}");
    // And then p requests of full use, of every one that is larger.
    let mut turns = runs[settled + 1..].chunks_exact(2);
    // The last one is cut short by the end of the file.
    assert!(turns.next_back().is_some() && turns.len() >= 18, "{runs:?}");
    assert!(turns.all(|turn| turn == [(128 * K, 1), (64 * K, 16)]), "{runs:?}");
    let full = outcome.decisions.windows(2).skip(100).filter(|pair| pair[0].size_bytes == 64 * K);
    assert!(full.clone().count() > 300);
    assert!(full.into_iter().all(|pair| pair[1].utilisation == Some(1.0)));
}

#[test]
fn figure_13_reaches_the_largest_size_after_1_gb_and_loses_little() {
    let mut before = 1.0;
    for delay_ms in DELAYS_MS {
        let outcome = run("sync-adaptive", "sequential", delay_ms);
        let mut expected: Vec<_> = (0..8).map(|power| (M << power, 4)).collect();
        expected.extend([(256 * M, 1), (512 * M, 10)]);
        assert_eq!(runs(&outcome), expected, "{delay_ms} ms");
        // "The gap to Optimal grows with the delay, since it takes time until the size has grown."
        let of_best = outcome.bytes_per_second() / best_fixed("sequential", delay_ms);
        assert!(of_best <= before && of_best > 0.9, "{delay_ms} ms: {of_best}");
        before = of_best;
        let fixed = run("fixed=1M", "sequential", delay_ms).bytes_per_second();
        assert!(outcome.bytes_per_second() > fixed || delay_ms == 0);
    }
    // "With a larger file the gap is smaller."
    let long = Workload { file_bytes: 24 * G, useful_bytes: 24 * G, ..workload("sequential") };
    let adaptive = run_over(link(100), "sync-adaptive", long).bytes_per_second();
    assert!(adaptive / run_over(link(100), "fixed=512M", long).bytes_per_second() > before);
}

#[test]
fn sizes_are_near_the_best_fixed_ones() {
    let cells = [
        ("sequential", 0.9),
        ("stride-3M-6M", 0.8),
        ("stride-256M-768M", 0.8),
        ("mixed", 0.7),
        ("mixed-p", 0.7),
    ];
    for (name, least) in cells {
        for delay_ms in [0, 25, 100] {
            let adaptive = run("sync-adaptive", name, delay_ms).bytes_per_second();
            let of_best = adaptive / best_fixed(name, delay_ms);
            println!("{name} {delay_ms} ms: {of_best:.3}");
            assert!(of_best >= least, "{name} {delay_ms} ms: {of_best:.3}");
        }
    }
}

#[test]
fn one_mebibyte_is_beaten_where_the_paper_says_so() {
    for delay_ms in [10, 25, 50, 75, 100] {
        for name in ["random-8M", "stride-3M-6M", "mixed"] {
            let adaptive = run("sync-adaptive", name, delay_ms).bytes_per_second();
            let fixed = run("fixed=1M", name, delay_ms).bytes_per_second();
            assert!(adaptive > fixed, "{name} {delay_ms} ms: {adaptive:.0}, fixed {fixed:.0}");
        }
    }
}

#[test]
fn the_block_follows_the_link_at_other_rates() {
    // The same pattern is read through, or not, by what a round trip is worth: 6 MiB is less than the
    // bandwidth-delay product of the first link, and more than that of the others.
    let cells = [
        (2_500, 50, 512 * M),
        (1_000, 25, 4 * M),
        (100, 50, 4 * M),
        (100, 10, 4 * M),
        (2_500, 2, 4 * M),
    ];
    for (rate_mbit, delay_ms, largest) in cells {
        let rate = GIGABIT_GOODPUT / 1000 * rate_mbit;
        let link = SimulatedLink::new(rate, delay_ms * 1000 + LOCAL_ROUND_TRIP_US);
        let outcome = run_over(link, "sync-adaptive", workload("stride-3M-6M"));
        let chosen = outcome.chosen_size_bytes().unwrap();
        let fits = if largest == 512 * M { chosen == largest } else { chosen <= largest };
        assert!(fits, "{rate_mbit} Mbit/s, {delay_ms} ms: {}K", chosen / K);
    }
}

#[test]
fn a_path_that_becomes_longer_is_followed() {
    let phase = |from_us, round_trip_us| LinkPhase {
        from_us,
        bytes_per_second: GIGABIT_GOODPUT,
        round_trip_us,
    };
    let link = SimulatedLink::changing(vec![phase(0, 200), phase(3_000_000, 100_000)]);
    let outcome = run_over(link, "sync-adaptive", workload("stride-512K-3M"));
    assert!(outcome.decisions.iter().any(|record| record.size_bytes == 512 * K));
    assert_eq!(outcome.decisions.last().unwrap().size_bytes, 512 * M);
}

#[test]
fn a_rate_that_falls_is_followed() {
    let phase =
        |from_us, bytes_per_second| LinkPhase { from_us, bytes_per_second, round_trip_us: 50_000 };
    let fast = GIGABIT_GOODPUT;
    let link = SimulatedLink::changing(vec![phase(0, fast), phase(30_000_000, fast / 20)]);
    let outcome = run_over(link, "sync-adaptive", workload("stride-3M-6M"));
    assert!(outcome.decisions.iter().any(|record| record.size_bytes >= 128 * M));
    assert!(outcome.decisions.last().unwrap().size_bytes <= 4 * M);
    assert!(outcome.decisions.iter().any(|record| record.decision == Decision::Shrink));
}

#[test]
fn p_changes_little() {
    // Figures 11 and 12: "within 10 %". Here a request costs nothing but its bytes, so that one too large
    // among p + 1 is felt more; and with p below m it takes m requests to grow.
    for (name, least) in [("stride-512K-3M", 0.86), ("mixed-p", 0.9)] {
        let speeds = [2, 4, 8, 16, 32].map(|p| {
            let policy = ReadPolicy::SyncAdaptive(AdaptiveParameters { p, ..Default::default() });
            let workload = workload(name);
            Reader::new(link(0))
                .run(&policy, workload.file_bytes, workload.reads())
                .bytes_per_second()
        });
        println!("{name}: {speeds:?}");
        let most = speeds.into_iter().fold(0.0, f64::max);
        assert!(speeds.into_iter().all(|speed| speed >= least * most), "{name}: {speeds:?}");
    }
}
