//! What runs of a program came to: seconds, and bytes on the link. Owns how several runs of one point become figures;
//! knows no experiment.

use std::time::Duration;

use super::run::End;

/// What one run came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Outcome {
    pub(super) end: End,
    /// On the wire, in both directions, with all framing.
    pub(super) link_bytes: u64,
}

/// Mean, least and most seconds of runs, of which one that was ended counts as long as it might take.
pub(super) fn spread_s(runs: &[Outcome], limit: Duration) -> [f64; 3] {
    let seconds = || runs.iter().map(|run| run.end.seconds(limit));
    let mean_s = seconds().sum::<f64>() / runs.len().max(1) as f64;
    let least_s = seconds().reduce(f64::min).unwrap_or(0.0);
    let most_s = seconds().reduce(f64::max).unwrap_or(0.0);
    [mean_s, least_s, most_s]
}

/// What passed the link in a run, in MB: the mean of them.
pub(super) fn link_mb(runs: &[Outcome]) -> f64 {
    runs.iter().map(|run| run.link_bytes as f64).sum::<f64>() / runs.len().max(1) as f64 / 1e6
}
