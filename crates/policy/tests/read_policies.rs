//! The read policies on simulated links: how fast each pattern is read, and what a link does to them that
//! changes in mid-stream. What the adaptive method chooses stands in `adaptive_paper.rs`.

#![allow(clippy::unwrap_used, reason = "a test stops where something is missing")]

use std::sync::Arc;

use azekura_policy::simulation::{
    AccessPattern, GIGABIT_GOODPUT, LOCAL_ROUND_TRIP_US, LinkPhase, Outcome, Reader, SimulatedLink,
    Workload,
};
use azekura_policy::{
    Actions, Budget, ByteRange, LinkEstimate, PredictiveParameters, ReadAhead, ReadPolicy,
};

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;
const DELAYS_MS: [u64; 6] = [0, 10, 25, 50, 75, 100];

fn pattern(name: &str) -> AccessPattern {
    AccessPattern::ALL.iter().find(|(known, _)| *known == name).unwrap().1
}

fn link(delay_ms: u64) -> SimulatedLink {
    SimulatedLink::new(GIGABIT_GOODPUT, delay_ms * 1000 + LOCAL_ROUND_TRIP_US)
}

fn workload(name: &str, read_bytes: u64) -> Workload {
    let (file_bytes, useful_bytes) = match name {
        "sequential" => (1 << 30, 1 << 30),
        "stride-256M-768M" => (24 << 30, 6 << 30),
        "random-8M" => (4 << 30, 2 << 30),
        "shift" => (8 << 30, 3 << 29),
        _ => (6 << 30, 1 << 30),
    };
    Workload { pattern: pattern(name), file_bytes, useful_bytes, read_bytes, seed: 7 }
}

fn run(policy: &str, name: &str, delay_ms: u64, read_bytes: u64) -> Outcome {
    let workload = workload(name, read_bytes);
    let policy: ReadPolicy = policy.parse().unwrap();
    Reader::new(link(delay_ms)).run(&policy, workload.file_bytes, workload.reads())
}

/// Useful bytes as a share of what the link can carry.
fn share(outcome: &Outcome) -> f64 {
    outcome.bytes_per_second() / GIGABIT_GOODPUT as f64
}

#[test]
fn prediction_fills_the_link() {
    let cells = [
        ("sequential", 0.93),
        ("stride-512K-3M", 0.9),
        ("stride-3M-6M", 0.9),
        ("stride-256M-768M", 0.9),
        ("mixed", 0.85),
        ("mixed-p", 0.85),
        ("shift", 0.85),
    ];
    for (name, least) in cells {
        for delay_ms in DELAYS_MS {
            let read_bytes = if name == "stride-256M-768M" { 256 * K } else { 64 * K };
            let outcome = run("predictive", name, delay_ms, read_bytes);
            let share = share(&outcome);
            println!("{name} {delay_ms} ms: {share:.3} {:?}", outcome.counts);
            assert!(share >= least, "{name} {delay_ms} ms: {share:.3}");
            let wasted = outcome.counts.wasted_bytes as f64 / outcome.useful_bytes as f64;
            assert!(wasted < 0.05, "{name} {delay_ms} ms: {wasted:.3} wasted");
            assert!(outcome.held_max_bytes <= 64 * M, "{} held", outcome.held_max_bytes);
        }
    }
}

#[test]
fn prediction_is_best_where_nothing_can_be_predicted() {
    for read_bytes in [64 * K, M] {
        for delay_ms in [10, 25, 50, 75, 100] {
            for name in ["random-stride", "random-8M"] {
                let predictive = share(&run("predictive", name, delay_ms, read_bytes));
                for other in ["sync-adaptive", "fixed=1M"] {
                    let other_share = share(&run(other, name, delay_ms, read_bytes));
                    assert!(
                        predictive >= other_share,
                        "{name} {delay_ms} ms: {predictive:.3}, {other} {other_share:.3}"
                    );
                }
            }
            let region_us = (8 * M) as f64 * 1e6 / GIGABIT_GOODPUT as f64;
            let one_request = region_us / (region_us + delay_ms as f64 * 1e3);
            let predictive = share(&run("predictive", "random-8M", delay_ms, read_bytes));
            assert!(predictive >= 0.9 * one_request, "{delay_ms} ms: {predictive:.3}");
        }
    }
}

#[test]
fn a_random_walk_is_read_through_as_fast_as_by_the_best_fixed_size() {
    for read_bytes in [64 * K, M] {
        for delay_ms in [25, 50, 75, 100] {
            let predictive = share(&run("predictive", "random-stride", delay_ms, read_bytes));
            for other in ["fixed=16M", "fixed=64M", "fixed=256M", "fixed=512M"] {
                let other_share = share(&run(other, "random-stride", delay_ms, read_bytes));
                println!("{delay_ms} ms: {predictive:.3}, {other} {other_share:.3}");
                assert!(
                    predictive >= other_share,
                    "{delay_ms} ms: {predictive:.3}, {other} {other_share:.3}"
                );
            }
        }
    }
}

/// Slices of a table that lies in a file row by row, read one after the other.
struct Slices {
    rows: u64,
    row_bytes: u64,
    /// Runs of a slice in each row, and from one to the next.
    runs: u64,
    run_step_bytes: u64,
    run_bytes: u64,
    /// From the beginning of one slice to that of the next.
    slice_step_bytes: u64,
}

const SLICES: u64 = 15;

impl Slices {
    /// The reads of all slices, of at most 64 KiB.
    fn reads(&self) -> Vec<ByteRange> {
        let mut reads = Vec::new();
        for slice in 0..SLICES {
            for row in 0..self.rows {
                for run in 0..self.runs {
                    let start = slice * self.slice_step_bytes
                        + row * self.row_bytes
                        + run * self.run_step_bytes;
                    let pieces = (0..self.run_bytes).step_by(64 << 10);
                    reads.extend(
                        pieces.map(|at| {
                            ByteRange::new(start + at, (64 * K).min(self.run_bytes - at))
                        }),
                    );
                }
            }
        }
        reads
    }
}

#[test]
fn slices_of_a_table_are_read_at_the_rate_of_the_link() {
    let neighbours = |rows, row_bytes, run_bytes| Slices {
        rows,
        row_bytes,
        runs: 1,
        run_step_bytes: 0,
        run_bytes,
        slice_step_bytes: run_bytes,
    };
    let nested = |rows, runs, run_bytes| Slices {
        rows,
        row_bytes: 16 * M,
        runs,
        run_step_bytes: M,
        run_bytes,
        slice_step_bytes: run_bytes,
    };
    // The rate at 50 and 100 ms. Where each slice begins where the one before ended in the same row, it
    // takes a few rows to see that these are no readers in turn.
    let cases = [
        ("256 rows", neighbours(256, 4 * M, 256 * K), [0.93, 0.9]),
        ("1024 rows", neighbours(1024, M, 64 * K), [0.93, 0.9]),
        ("32 rows", neighbours(32, 32 * M, 2 * M), [0.92, 0.89]),
        ("60 rows", neighbours(60, 16 * M, M), [0.92, 0.89]),
        ("32 rows of 8", nested(32, 8, 256 * K), [0.93, 0.9]),
        ("120 rows of 8", nested(120, 8, 64 * K), [0.93, 0.9]),
        ("400 rows of 3", nested(400, 3, 64 * K), [0.93, 0.9]),
    ];
    for (name, slices, least) in cases {
        for (delay_ms, least) in [50, 100].into_iter().zip(least) {
            let reads = slices.reads();
            let file_bytes = reads.iter().map(|read| read.end()).max().unwrap();
            let mut reader = Reader::new(link(delay_ms));
            let outcome = reader.run(&ReadPolicy::default(), file_bytes, reads.into_iter());
            let share = share(&outcome);
            println!("{name}, {delay_ms} ms: {share:.3} {:?}", outcome.counts);
            assert!(share >= least, "{name}, {delay_ms} ms: {share:.3}");
        }
    }
}

#[test]
fn single_random_reads_cost_nothing_extra() {
    let workload = Workload {
        pattern: AccessPattern::Random { read_bytes: 4 * K },
        file_bytes: 1 << 30,
        useful_bytes: 64 * M,
        read_bytes: 4 * K,
        seed: 3,
    };
    let run = |policy: &str| {
        let mut reader = Reader::new(link(50));
        reader.threads = 16;
        reader.run(&policy.parse().unwrap(), workload.file_bytes, workload.reads())
    };
    let (predictive, off) = (run("predictive"), run("off"));
    assert!(predictive.elapsed_us <= off.elapsed_us * 101 / 100);
    assert!(predictive.sent_bytes - predictive.useful_bytes <= predictive.useful_bytes / 50);
}

/// The window that reading from front to back over such a link comes to, in bytes.
fn window_bytes(link: LinkEstimate) -> u64 {
    let budget = Arc::new(Budget::new(256 * M));
    let mut plan = ReadAhead::new(PredictiveParameters::default(), budget);
    let mut actions = Actions::default();
    for turn in 0..8 {
        plan.on_read(turn * 1000, turn * M, M, link, &mut actions);
    }
    plan.last_plan().unwrap().window_bytes
}

#[test]
fn a_link_that_was_never_kept_full_may_have_more_on_its_way_than_one_that_was() {
    let of = |untried| LinkEstimate { untried, ..LinkEstimate::of(100_000_000, 100_000) };
    // What comes out of order from young connections takes up some of it.
    assert!(window_bytes(of(true)) > window_bytes(of(false)) * 5 / 4);
}

#[test]
fn several_links_are_kept_busy_while_the_slowest_of_them_is_waited_for() {
    let one = LinkEstimate::of(25_000_000, 50_000);
    let four = one.with(one).with(one.with(one));
    let of_the_same_rate = window_bytes(LinkEstimate::of(100_000_000, 50_000));
    assert_eq!(window_bytes(four), 4 * of_the_same_rate);
    // A file on one engine is read no further ahead for this.
    assert_eq!(window_bytes(LinkEstimate::default().with(one)), window_bytes(one));
}

#[test]
fn nothing_is_read_ahead_on_the_own_host() {
    let workload = workload("sequential", 64 * K);
    let mut reader = Reader::new(SimulatedLink::new(3_000_000_000, 40));
    reader.link.request_cost_us = 10;
    let outcome = reader.run(&ReadPolicy::default(), workload.file_bytes, workload.reads());
    assert!(outcome.counts.ahead_bytes <= 64 * M, "{:?}", outcome.counts);
    assert_eq!(outcome.useful_bytes, 1 << 30);
}

/// Reads of several sequential readers in turn, each split in two parts that come in the wrong
/// order, as a kernel's read-ahead sends them.
fn interleaved(readers: u64, bytes_each: u64) -> Vec<ByteRange> {
    let mut reads = Vec::new();
    for round in 0..bytes_each / (256 * K) {
        for reader in 0..readers {
            let at = (reader << 30) + round * 256 * K;
            reads.push(ByteRange::new(at + 128 * K, 128 * K));
            reads.push(ByteRange::new(at, 128 * K));
        }
    }
    reads
}

#[test]
fn interleaved_and_reordered_readers_fill_the_link() {
    for readers in [1, 3, 8] {
        let reads = interleaved(readers, (1 << 30) / readers);
        let outcome =
            Reader::new(link(50)).run(&ReadPolicy::default(), 16 << 30, reads.into_iter());
        let share = share(&outcome);
        println!("{readers} readers: {share:.3} {:?}", outcome.counts);
        assert!(share >= 0.85, "{readers} readers: {share:.3}");
    }
}

#[test]
fn a_small_budget_is_kept() {
    let workload = workload("sequential", 64 * K);
    let mut reader = Reader::new(link(100));
    reader.budget_bytes = 4 * M;
    let outcome = reader.run(&ReadPolicy::default(), workload.file_bytes, workload.reads());
    assert!(outcome.held_max_bytes <= 4 * M);
    assert_eq!(outcome.useful_bytes, 1 << 30);
}

#[test]
fn links_that_change_in_mid_stream_are_followed() {
    let phase = |from_us, bytes_per_second, round_trip_us| LinkPhase {
        from_us,
        bytes_per_second,
        round_trip_us,
    };
    let links = [
        vec![phase(0, GIGABIT_GOODPUT, 10_000), phase(4_000_000, GIGABIT_GOODPUT, 80_000)],
        vec![phase(0, GIGABIT_GOODPUT, 80_000), phase(4_000_000, GIGABIT_GOODPUT, 10_000)],
        vec![phase(0, GIGABIT_GOODPUT, 50_000), phase(4_000_000, GIGABIT_GOODPUT / 10, 50_000)],
        vec![phase(0, GIGABIT_GOODPUT / 10, 50_000), phase(4_000_000, GIGABIT_GOODPUT, 50_000)],
    ];
    for phases in links {
        let (first, last) = (phases[0], phases[1]);
        let workload = workload("sequential", 256 * K);
        let mut reader = Reader::new(SimulatedLink::changing(phases));
        let outcome = reader.run(&ReadPolicy::default(), workload.file_bytes, workload.reads());
        let before = 4 * first.bytes_per_second;
        let full_us = 4_000_000 + ((1 << 30) - before) * 1_000_000 / last.bytes_per_second;
        let share = full_us as f64 / outcome.elapsed_us as f64;
        assert!(share >= 0.85, "{first:?} to {last:?}: {share:.3}");
        let estimate = reader.estimator.estimate();
        let near = |value: u64, real: u64| value >= real / 10 * 8 && value <= real / 10 * 13;
        assert!(near(estimate.bytes_per_second, last.bytes_per_second), "{estimate:?} {last:?}");
        // A shorter path shows only when the link next runs empty; until then more than needed
        // is in flight, which costs nothing but memory.
        let shorter = last.round_trip_us < first.round_trip_us;
        let told = near(estimate.round_trip_us, last.round_trip_us);
        let between = estimate.round_trip_us < first.round_trip_us;
        assert!(told || shorter && between, "{estimate:?} {last:?}");
    }
}

#[test]
fn a_long_stream_hardly_stops_to_look_for_the_round_trip() {
    for delay_ms in [25, 100] {
        let workload =
            Workload { file_bytes: 1 << 40, useful_bytes: 5 << 30, ..workload("sequential", M) };
        let mut reader = Reader::new(link(delay_ms));
        let outcome = reader.run(&ReadPolicy::default(), workload.file_bytes, workload.reads());
        let full_us = outcome.useful_bytes * 1_000_000 / GIGABIT_GOODPUT;
        let lost_round_trips = (outcome.elapsed_us - full_us) / (delay_ms * 1000);
        println!("{delay_ms} ms: {lost_round_trips} round trips lost");
        assert!(lost_round_trips <= 5, "{delay_ms} ms: {lost_round_trips}");
        assert_eq!(outcome.counts.wasted_bytes, 0);
    }
}

#[test]
fn losses_do_not_break_the_estimate() {
    for loss_per_million in [10, 1000] {
        let workload = Workload { useful_bytes: 128 * M, ..workload("sequential", 256 * K) };
        let mut reader = Reader::new(link(10));
        reader.link.loss_per_million = loss_per_million;
        let outcome = reader.run(&ReadPolicy::default(), workload.file_bytes, workload.reads());
        assert_eq!(outcome.useful_bytes, 128 * M);
        let estimate = reader.estimator.estimate();
        assert!(estimate.bytes_per_second <= GIGABIT_GOODPUT * 11 / 10, "{estimate:?}");
        assert!((10_000..30_000).contains(&estimate.round_trip_us), "{estimate:?}");
    }
}

/// Regions at irregular gaps, each of which takes less time than a round trip.
#[test]
fn what_lies_between_is_read_through_by_one_reader_and_not_by_several_at_a_time() {
    let link = LinkEstimate::of(118_000_000, 50_000);
    let through_bytes = |at_a_time: u64| {
        let parameters = PredictiveParameters::default();
        let mut plan = ReadAhead::new(parameters, Arc::new(Budget::new(256 << 20)));
        let mut actions = Actions::default();
        let (mut offset, mut state) = (0, 1_u64);
        for turn in 0..48 {
            let now_us = turn / at_a_time * 60_000 + turn % at_a_time * 100;
            plan.on_read(now_us, offset, 400_000, link, &mut actions);
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            offset += 400_000 + M + state % (5 * M);
        }
        plan.counts().through_bytes
    };
    assert!(through_bytes(1) > 100 * M, "{}", through_bytes(1));
    assert_eq!(through_bytes(8), 0);
}
