//! Many histories, on all processors. Owns the bounds of a series and the watch over a history that
//! does not end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::run::{Setting, Violation, run};

/// A history takes milliseconds. One that takes this long hangs, and the whole program with it.
const HANGS_AFTER: Duration = Duration::from_secs(100);

/// How many histories to play.
#[derive(Clone, Copy, Debug)]
pub struct Series {
    /// The first seed; the others follow.
    pub first: u64,
    /// At most so many.
    pub count: u64,
    /// None is begun after this time.
    pub time: Duration,
}

/// Plays histories until one fails or the series is at its end. Gives the number of those that were
/// right, and the one that was not.
pub fn run_series(series: Series, setting: &Setting) -> (u64, Option<Box<Violation>>) {
    let began = Instant::now();
    let next = AtomicU64::new(series.first);
    let right = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let found: Mutex<Option<Box<Violation>>> = Mutex::new(None);
    let work = |watched: &Mutex<Option<(u64, Instant)>>| {
        while !is_over.load(Ordering::Relaxed) && began.elapsed() < series.time {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed - series.first >= series.count {
                break;
            }
            *watched.lock() = Some((seed, Instant::now()));
            match run(seed, setting) {
                Ok(_) => drop(right.fetch_add(1, Ordering::Relaxed)),
                Err(violation) => {
                    is_over.store(true, Ordering::Relaxed);
                    let mut found = found.lock();
                    if found.as_ref().is_none_or(|other| other.seed > seed) {
                        *found = Some(violation);
                    }
                }
            }
        }
        *watched.lock() = None;
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let watched: Vec<_> = (0..threads).map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        let workers: Vec<_> = watched.iter().map(|watched| scope.spawn(|| work(watched))).collect();
        while !workers.iter().all(ScopedJoinHandle::is_finished) {
            std::thread::sleep(Duration::from_millis(20));
            watch(&watched);
        }
    });
    (right.into_inner(), found.into_inner())
}

/// Ends the program if a history hangs: nothing can interrupt it, and its seed must not be lost.
fn watch(watched: &[Mutex<Option<(u64, Instant)>>]) {
    for (seed, since) in watched.iter().filter_map(|watched| *watched.lock()) {
        if since.elapsed() > HANGS_AFTER {
            eprintln!("AZEKURA_SEED={seed}: the history does not end");
            std::process::abort();
        }
    }
}
