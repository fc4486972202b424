//! On-demand staging: files of a home directory come to a job's nodes when its programs open them, and
//! what the programs write goes home (Matsuba et al., Catwalk). The *front* is the job's one server,
//! beside the files; an *agent* stands on each node. Everything ends with the job.
//!
//! [`job`] is what a job is; what must never happen here is that a name in a tree leads to part of a file.

pub mod agent;
mod ahead;
mod doors;
mod error;
mod fetch;
pub mod front;
pub mod job;
mod lumps;
mod message;
mod outbox;
pub mod peer;
mod piece;
mod resolve;
pub mod source;
mod stamp;
mod stock;
mod supply;
mod sys;
pub mod trap;
mod workers;

pub use error::Error;
