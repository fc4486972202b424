//! `forecast-*`: forecasts of batch I/O, published and ours.

mod paper;

use super::frame::Experiment;

/// The experiments.
pub(super) fn every() -> [Box<dyn Experiment>; 1] {
    [Box::new(paper::Paper)]
}
