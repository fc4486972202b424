//! Reading far files: the evaluation of the paper on adaptive remote access (Ohtsuji and Tatebe), over
//! links made on this machine. Needs root.

mod change;
mod engines;
mod existing;
mod fixed;
mod fixture;
mod overhead;
mod p;
mod pattern;
mod policies;
mod rates;
mod reader;
mod sizes;
mod trace;

use super::frame::Experiment;
pub(super) use fixture::{DELAY, GOODPUT_MB_PER_S, congestion_control};
pub(crate) use reader::{READER_COMMAND, ReaderArgs, read};

/// All of them.
pub(super) fn every() -> Vec<Box<dyn Experiment>> {
    vec![
        Box::new(existing::Existing),
        Box::new(fixed::Fixed),
        Box::new(policies::Policies),
        Box::new(sizes::Sizes),
        Box::new(p::Patience),
        Box::new(trace::Shifting),
        Box::new(rates::Rates),
        Box::new(change::Changing),
        Box::new(engines::SeveralEngines),
        Box::new(overhead::Overhead),
    ]
}
