//! A link that is only arithmetic, the access patterns of the experiments, and a reader that
//! drives a read policy through them on a clock of its own; and a cluster of such links, on which a
//! content is spread while nodes stall, die and come late. Owns the shape of the simulated world;
//! must never touch a real clock, file or socket. Tests stand on it, and whoever wants to know
//! what a policy would do on a link that is not there.

mod link;
mod machines;
pub mod published;
mod random;
mod reader;
mod staging;
mod workload;

pub use link::{LinkPhase, SimulatedLink, Transfer};
pub use reader::{Outcome, Reader};
pub use staging::{Staging, StagingOutcome};
pub use workload::{AccessPattern, Workload};

/// What is left of 1 Gbit/s for contents, in bytes per second.
pub const GIGABIT_GOODPUT: u64 = 117_700_000;

/// Round trip of a local network without added delay, in microseconds.
pub const LOCAL_ROUND_TRIP_US: u64 = 200;
