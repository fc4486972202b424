//! Pure decisions on remote reads and writes: what to ask for next, how much, of whom, and what to
//! give up. Owns the estimate of a link, the detection of access patterns, the adaptive request
//! size, the plan of what is read ahead, the window of writes in flight and the tree by which a
//! content comes to many nodes. Must never do I/O, look at a clock, start a thread or hold file
//! contents: time comes in as microseconds, results go out as byte ranges and node numbers.
//!
//! # How a client uses it
//!
//! One [`LinkEstimator`] per engine, one [`Budget`] per process, one [`ReadAhead`] or
//! [`SyncAdaptive`] per open file (by [`ReadPolicy`]), one [`WriteWindow`] per engine that is written
//! to; one [`spread::Spread`] per content that goes to many nodes. [`predict`] describes the reading
//! side step by step, [`writing`] the writing side, [`spread`] the many nodes. [`simulation`] drives
//! the same objects over links that exist only as arithmetic.

mod adaptive;
mod budget;
mod choice;
mod distance;
mod link;
mod misses;
mod pattern;
mod pieces;
pub mod predict;
mod range;
pub mod simulation;
pub mod spread;
pub mod writing;

pub use adaptive::{
    AdaptiveParameters, Decision, DecisionRecord, Fall, Interpretation, Plan, Rounding, ShrinkMean,
    SyncAdaptive, Trial,
};
pub use budget::Budget;
pub use choice::{ReadPolicy, ReadPolicyError};
pub use distance::Distance;
pub use link::{LinkEstimate, LinkEstimator, Probe, SentRequest};
pub use pattern::Knowledge;
pub use predict::{Actions, PredictiveParameters, ReadAhead};
pub use range::ByteRange;
pub use writing::{WritePolicy, WritePolicyError, WriteWindow};
