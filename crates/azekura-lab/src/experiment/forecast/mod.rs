//! `forecast-*`: forecasts of batch I/O, published and ours.

mod accuracy;
mod paper;

use super::frame::Experiment;

/// The experiments.
pub(super) fn every() -> [Box<dyn Experiment>; 2] {
    [Box::new(paper::Paper), Box::new(accuracy::Accuracy)]
}
