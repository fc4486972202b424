//! What the tests of several crates share: pools whose engines run in this process, attributes and
//! a trace to start from, a reference model, and the way in which a test says that it could not run. Owns
//! nothing that is in a program or library that people use: other crates depend on it for their
//! tests only.

#![allow(clippy::unwrap_used, reason = "a fixture that fails fails the test that it is for")]
#![allow(clippy::missing_panics_doc, reason = "the same")]

mod attr;
mod cluster;
mod fragile;
pub mod model;
mod random;
mod rounds;
pub mod simulation;
mod skip;
mod trace;
mod uring;

pub use attr::attr;
pub use cluster::Cluster;
pub use fragile::Fragile;
pub use random::Random;
pub use rounds::Rounds;
pub use skip::{mounts_are_possible, skip};
pub use trace::TRACE_LINES;
pub use uring::UringAllowed;
