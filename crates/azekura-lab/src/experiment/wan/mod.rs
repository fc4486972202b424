//! Reading far files: the evaluation of the paper on adaptive remote access (Ohtsuji and Tatebe), over
//! links made on this machine. Needs root.

mod fixed;
mod fixture;
mod p;
mod pattern;
mod policies;
mod reader;
mod sizes;
mod trace;

use super::frame::Experiment;
pub(crate) use reader::{READER_COMMAND, ReaderArgs, read};

/// All of them.
pub(super) fn every() -> Vec<Box<dyn Experiment>> {
    vec![
        Box::new(fixed::Fixed),
        Box::new(policies::Policies),
        Box::new(sizes::Sizes),
        Box::new(p::Patience),
        Box::new(trace::Shifting),
    ]
}
