//! `staging-*`: how contents come to the nodes of a job.

mod bandwidth;
mod copy;
mod fixture;
mod plan;
mod small;

use super::frame::Experiment;

/// The experiments.
pub(super) fn every() -> [Box<dyn Experiment>; 3] {
    [Box::new(plan::Plan), Box::new(bandwidth::StageIn), Box::new(small::Small)]
}
