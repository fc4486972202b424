//! The search for what the paper on adaptive remote access leaves open: every reading of it is run over
//! the simulated link of its experiments, and scored on its tables 1 to 5 and on the shape of its figures
//! 10 and 13. Prints the best readings, and for the default one all 30 cells with the best fixed size of
//! the same simulation, the trace of figure 10 and the points of figure 13.
//!
//! `cargo run --release -p azekura-policy --example fit_adaptive [READINGS-TO-SHOW]`

#![allow(clippy::print_stdout, reason = "that is what it is for")]

use std::collections::BTreeMap;

use azekura_policy::simulation::published::{DELAYS_MS, TABLES};
use azekura_policy::simulation::{
    AccessPattern, GIGABIT_GOODPUT, LOCAL_ROUND_TRIP_US, Outcome, Reader, SimulatedLink, Workload,
};
use azekura_policy::{
    AdaptiveParameters, Fall, Interpretation, ReadPolicy, Rounding, ShrinkMean, Trial,
};

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;
const G: u64 = 1 << 30;
/// Where figure 10 has the last request of its sequential part.
const SEQUENTIAL_REQUESTS: usize = 30;
/// A cell that is further off costs no more than this.
const OFF_MAX: u32 = 4;
/// What a shape that is not the paper's costs.
const SHAPE: f64 = 4.0;
const SHOWN: usize = 20;

/// A pattern as the paper runs it: the file, and as much of it as settles the size.
fn workload(name: &str) -> Option<Workload> {
    let (_, pattern) = AccessPattern::ALL.into_iter().find(|(known, _)| *known == name)?;
    let (file_bytes, useful_bytes) = match name {
        "sequential" => (6 * G, 6 * G),
        "random-8M" => (4 * G, 2 * G),
        "shift" => (2 * G, 2 * G),
        _ => (24 * G, 24 * G),
    };
    Some(Workload { pattern, file_bytes, useful_bytes, read_bytes: M, seed: 7 })
}

fn run(policy: &ReadPolicy, name: &str, delay_ms: u64) -> Outcome {
    let Some(workload) = workload(name) else { return Outcome::default() };
    let link = SimulatedLink::new(GIGABIT_GOODPUT, delay_ms * 1000 + LOCAL_ROUND_TRIP_US);
    Reader::new(link).run(policy, workload.file_bytes, workload.reads())
}

fn adaptive(parameters: &AdaptiveParameters, name: &str, delay_ms: u64) -> Outcome {
    run(&ReadPolicy::SyncAdaptive(parameters.clone()), name, delay_ms)
}

/// The best fixed size and what it reaches, in bytes and bytes per second.
fn optimal(name: &str, delay_ms: u64) -> (u64, f64) {
    let reached = |shift: u32| {
        let bytes = 1u64 << shift;
        (bytes, run(&ReadPolicy::Fixed(bytes), name, delay_ms).bytes_per_second())
    };
    (16..=29).map(reached).max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or_default()
}

/// How one reading of the paper compares with it.
struct Score {
    /// Powers of two off the paper's Adaptive, for each of the 30 cells.
    off: Vec<i32>,
    /// Requests in the sequential part of figure 10.
    sequential_requests: usize,
    /// Whether figure 10 ends as described: p requests of full use, then a larger one.
    is_steady: bool,
    /// Whether figure 13 falls behind the best size as the delay grows, and stays above 1 MB.
    falls_behind: bool,
}

impl Score {
    fn of(parameters: &AdaptiveParameters, sequential_optimal: &[f64], one_mb: &[f64]) -> Self {
        let off = cells().map(|(name, delay_ms, size, _)| {
            let chosen = adaptive(parameters, name, delay_ms).chosen_size_bytes().unwrap_or(1);
            chosen.ilog2() as i32 - size.ilog2() as i32
        });
        let shift = adaptive(parameters, "shift", 0);
        let speeds = DELAYS_MS
            .map(|delay_ms| adaptive(parameters, "sequential", delay_ms).bytes_per_second());
        let shares: Vec<f64> =
            speeds.iter().zip(sequential_optimal).map(|(speed, best)| speed / best).collect();
        Self {
            off: off.collect(),
            sequential_requests: sequential_requests(&shift),
            is_steady: is_steady(&shift, parameters.p),
            falls_behind: shares.windows(2).all(|pair| pair[1] <= pair[0])
                && speeds.iter().zip(one_mb).skip(1).all(|(speed, fixed)| speed > fixed),
        }
    }

    /// The less the better: powers of two, half of the requests that figure 10 is off, and shapes.
    fn penalty(&self) -> f64 {
        let off: u32 = self.off.iter().map(|off| off.unsigned_abs().min(OFF_MAX)).sum();
        let requests = self.sequential_requests.abs_diff(SEQUENTIAL_REQUESTS);
        let shapes = u32::from(!self.is_steady) + u32::from(!self.falls_behind);
        f64::from(off) + requests as f64 / 2.0 + SHAPE * f64::from(shapes)
    }

    fn within(&self, powers: u32) -> usize {
        self.off.iter().filter(|off| off.unsigned_abs() <= powers).count()
    }
}

/// The cells of the tables: pattern, delay, Adaptive and Optimal.
fn cells() -> impl Iterator<Item = (&'static str, u64, u64, u64)> {
    TABLES.into_iter().flat_map(|table| {
        (0..DELAYS_MS.len()).map(move |at| {
            (table.pattern, DELAYS_MS[at], table.adaptive_bytes[at], table.optimal_bytes[at])
        })
    })
}

/// Requests that lie in the first GiB of shift, where it is read front to back.
fn sequential_requests(shift: &Outcome) -> usize {
    shift.decisions.iter().take_while(|record| record.range.end() <= G).count()
}

fn is_steady(shift: &Outcome, p: u32) -> bool {
    let turn = p as usize + 1;
    let Some(from) = shift.decisions.len().checked_sub(2 * turn) else { return false };
    let sizes: Vec<u64> =
        shift.decisions[from..from + turn].iter().map(|record| record.size_bytes).collect();
    let least = sizes.iter().min().copied().unwrap_or(0);
    sizes.iter().filter(|size| **size != least).eq([&(2 * least)])
}

fn readings() -> Vec<AdaptiveParameters> {
    let mut all = Vec::new();
    for rounding in [Rounding::Down, Rounding::Nearest, Rounding::Up] {
        for trial in [Trial::FirstRequest, Trial::MeanSoFar, Trial::MeanOfAll] {
            for fall in [Fall::NotHigh, Fall::Low, Fall::Below] {
                for shrink in [ShrinkMean::Full, ShrinkMean::SoFar, ShrinkMean::Across] {
                    for shrinks_in_hold in [true, false] {
                        let interpretation =
                            Interpretation { rounding, trial, fall, shrink, shrinks_in_hold };
                        let with = |shift: u32| AdaptiveParameters {
                            initial_bufsize_bytes: 1 << shift,
                            interpretation,
                            ..AdaptiveParameters::default()
                        };
                        all.extend((16..=23).map(with));
                    }
                }
            }
        }
    }
    all
}

fn size(bytes: u64) -> String {
    if bytes >= M { format!("{}M", bytes / M) } else { format!("{}K", bytes / K) }
}

fn search(shown: usize, best: &[f64], one_mb: &[f64]) {
    let all = readings();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut scored: Vec<(f64, Score, AdaptiveParameters)> = std::thread::scope(|scope| {
        let parts = all.chunks(all.len().div_ceil(threads));
        let workers: Vec<_> = parts
            .map(|part| {
                scope.spawn(move || {
                    let score = |parameters: &AdaptiveParameters| {
                        let score = Score::of(parameters, best, one_mb);
                        (score.penalty(), score, parameters.clone())
                    };
                    part.iter().map(score).collect::<Vec<_>>()
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap_or_default()).collect()
    });
    scored.sort_by(|a, b| a.0.total_cmp(&b.0));
    println!("{} readings; penalty, cells equal and within a power of two, figure 10:", all.len());
    for (rank, (penalty, score, parameters)) in scored.iter().enumerate() {
        let is_default = *parameters == AdaptiveParameters::default();
        if rank < shown || is_default {
            println!(
                "{}{rank:4} {penalty:5.1} {:2} {:2} {:3} {} {} first {} {:?}",
                if is_default { "*" } else { " " },
                score.within(0),
                score.within(1),
                score.sequential_requests,
                if score.is_steady { "steady" } else { "-" },
                if score.falls_behind { "behind" } else { "-" },
                size(parameters.initial_bufsize_bytes),
                parameters.interpretation
            );
        }
    }
}

fn show_default(best: &BTreeMap<(&str, u64), (u64, f64)>) {
    let parameters = AdaptiveParameters::default();
    println!("\ntables 1 to 5: ours, the paper's; of Adaptive and Optimal; speed of Adaptive");
    for (name, delay_ms, paper_adaptive, paper_optimal) in cells() {
        let outcome = adaptive(&parameters, name, delay_ms);
        let chosen = outcome.chosen_size_bytes().unwrap_or(0);
        let (own_optimal, speed) = best.get(&(name, delay_ms)).copied().unwrap_or_default();
        println!(
            "{name:17} {delay_ms:3} ms  {:>5} {:>5} {}  {:>5} {:>5} {}  {:3.0} % of Optimal",
            size(chosen),
            size(paper_adaptive),
            if chosen == paper_adaptive { " " } else { "!" },
            size(own_optimal),
            size(paper_optimal),
            if own_optimal == paper_optimal { " " } else { "!" },
            outcome.bytes_per_second() / speed * 100.0,
        );
    }
    let equal = |is_optimal: bool| {
        let is_equal = |cell: &(&str, u64, u64, u64)| {
            let own_optimal = best.get(&(cell.0, cell.1)).map(|best| best.0);
            let chosen = || adaptive(&parameters, cell.0, cell.1).chosen_size_bytes();
            if is_optimal { own_optimal == Some(cell.3) } else { chosen() == Some(cell.2) }
        };
        cells().filter(is_equal).count()
    };
    println!("equal: {} of Adaptive, {} of Optimal", equal(false), equal(true));
    println!("\nfigure 10: requests of each size in turn, of how much use");
    let shift = adaptive(&parameters, "shift", 0);
    let mut runs: Vec<(u64, usize, f64)> = Vec::new();
    for pair in shift.decisions.windows(2) {
        let used = pair[1].utilisation.unwrap_or(0.0);
        match runs.last_mut() {
            Some((bytes, count, sum)) if *bytes == pair[0].size_bytes => {
                *count += 1;
                *sum += used;
            }
            _ => runs.push((pair[0].size_bytes, 1, used)),
        }
    }
    for (bytes, count, sum) in runs.iter().take(28) {
        println!("{:>5} x{count:3} {:4.0} %", size(*bytes), sum / *count as f64 * 100.0);
    }
    println!(
        "{} requests are sequential; the paper: {SEQUENTIAL_REQUESTS}",
        sequential_requests(&shift)
    );
    println!("\nfigure 13: MB/s of Optimal, Adaptive, 1 MB; requests of Adaptive");
    for delay_ms in DELAYS_MS {
        let outcome = adaptive(&parameters, "sequential", delay_ms);
        let fixed = run(&ReadPolicy::Fixed(M), "sequential", delay_ms).bytes_per_second();
        let (_, speed) = best.get(&("sequential", delay_ms)).copied().unwrap_or_default();
        println!(
            "{delay_ms:3} ms {:6.1} {:6.1} {:6.1} {:4}",
            speed / 1e6,
            outcome.bytes_per_second() / 1e6,
            fixed / 1e6,
            outcome.requests
        );
    }
}

fn main() {
    let shown = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(SHOWN);
    let best: BTreeMap<_, _> =
        cells().map(|(name, delay_ms, ..)| ((name, delay_ms), optimal(name, delay_ms))).collect();
    let speed_of = |delay_ms| best.get(&("sequential", delay_ms)).map_or(0.0, |best| best.1);
    let sequential = DELAYS_MS.map(speed_of);
    let one_mb = DELAYS_MS
        .map(|delay_ms| run(&ReadPolicy::Fixed(M), "sequential", delay_ms).bytes_per_second());
    if shown > 0 {
        search(shown, &sequential, &one_mb);
    }
    show_default(&best);
}
