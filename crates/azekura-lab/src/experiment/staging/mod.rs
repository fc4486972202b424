//! `staging-*`: how contents come to the nodes of a job, and go home.

mod bandwidth;
mod copy;
mod fixture;
mod job;
mod out;
mod plan;
mod small;

use super::frame::Experiment;

/// The experiments.
pub(super) fn every() -> [Box<dyn Experiment>; 4] {
    [
        Box::new(plan::Plan),
        Box::new(bandwidth::StageIn),
        Box::new(small::Small),
        Box::new(out::StageOut),
    ]
}
