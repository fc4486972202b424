//! Who gets a file's content from whom, when many nodes are to have it. Owns the choice between a
//! chain and a tree, the piece size, and the supplier of every node whatever dies, stalls or comes
//! late. Must never move a byte, look at a clock or know a node by more than its number.
//!
//! # How it is used
//!
//! [`Spread::plan`] gives every node a supplier. Receivers *pull*: each asks its supplier for the
//! pieces from its own watermark on, so that a new supplier is all that a fault ever means to it.
//! Events ([`Spread::node_failed`], [`Spread::node_is_slow`], [`Spread::node_joined`],
//! [`Spread::node_done`]) answer with the [`Assignment`]s that changed; a node that is not named
//! goes on as before. An event costs some steps per receiver of the node, not per node of the job.
//!
//! # What holds at any time
//!
//! - Every node that still receives is led by its suppliers to one that has all of the content.
//! - A node supplies at most [`Shape::fan_out`] others that may supply in turn, the source at most
//!   [`Shape::source_fan_out`], and each of them at most [`SLOW_RECEIVERS_MAX`] slow ones.
//! - A slow node that still receives supplies slow nodes only.
//! - The source is asked by a node that joins only when no other that is alive and fast can be.

mod growth;
mod peers;
mod shape;
mod state;

pub use peers::SLOW_RECEIVERS_MAX;
pub use shape::{FAN_OUT_MAX, Link, Links, PIECE_BYTES_MAX, PIECE_BYTES_MIN, Shape};
pub use state::{Assignment, Candidate, NodeId, Spread, Supplier};
