//! A phase: the same work by all processes, in whole turns until it has lasted long enough, since what memory
//! does in less than seconds is mostly chance.

use anyhow::Result;
use azekura::load::{Order, Speed, Tally, WorkerPool};

use crate::experiment::frame::Settings;

/// How long a phase lasts at least, in seconds, unless a run is quick.
const PHASE_S: f64 = 3.0;

/// How long a point takes with that many phases, in seconds.
pub(super) fn least_point_s(phases: usize, rounds: usize) -> f64 {
    PHASE_S * (phases * rounds) as f64
}

/// How long a turn may last and a phase has to, with that many phases, as a sentence for a page.
pub(super) fn described(settings: &Settings, phases: usize) -> String {
    let limit_s = settings.share_ms(phases * settings.rounds()) as f64 / 1000.0;
    format!(
        "A phase is done again, in whole turns, until it has lasted {limit_s:.2} s; a turn ends after that time."
    )
}

/// What a phase came to.
pub(super) struct Phase {
    /// Bytes moved per second, in MiB, over all turns.
    pub(super) mib_per_s: f64,
    /// Operations per second, over all turns.
    pub(super) operations_per_s: f64,
    /// What the last turn did.
    pub(super) last: Vec<Tally>,
}

/// Has the workers do the same turn until `limit_ms` have passed in turns; `before` is done before each, and
/// not timed.
///
/// # Errors
/// If an operation fails.
pub(super) fn run(
    workers: &mut WorkerPool,
    orders: &[Order],
    limit_ms: u64,
    before: impl Fn(),
) -> Result<Phase> {
    let (mut seconds, mut mib, mut operations) = (0.0, 0.0, 0.0);
    loop {
        before();
        let last = workers.run(orders)?;
        let (speed, turn_s) = (Speed::of(&last), lasted_s(&last));
        seconds += turn_s;
        mib += speed.mib_per_s * turn_s;
        operations += speed.operations_per_s * turn_s;
        // A turn that was cut by time lasts a little more or less than its limit.
        if seconds * 1000.0 >= limit_ms as f64 * 0.9 || turn_s <= 0.0 {
            let (mib_per_s, operations_per_s) = (mib / seconds, operations / seconds);
            return Ok(Phase { mib_per_s, operations_per_s, last });
        }
    }
}

/// From the first start to the last end.
fn lasted_s(tallies: &[Tally]) -> f64 {
    let start = tallies.iter().map(|tally| tally.start_ns).min().unwrap_or(0);
    let end = tallies.iter().map(|tally| tally.end_ns).max().unwrap_or(0);
    end.saturating_sub(start).max(1) as f64 / 1e9
}
