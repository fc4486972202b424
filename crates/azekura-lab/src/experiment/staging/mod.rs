//! `staging-*`: how contents come to the nodes of a job.

mod plan;

use super::frame::Experiment;

/// The experiments.
pub(super) fn every() -> [Box<dyn Experiment>; 1] {
    [Box::new(plan::Plan)]
}
