//! Writing far files: writes that were answered to the program and are on their way to the engine. Owns
//! when a write may be answered early, what is kept until the engine has it, and the errors that nobody
//! has been told yet. Every write is sent at once; nothing is held back here.
//!
//! A write is answered early only under a write lease of the shard, and only while there is time left for
//! it to arrive under it. So whoever else wants to look at the shard waits for it. Everything that this
//! process does with a file otherwise comes after its writes: it needs a [`Settled`] of the file.

mod file;
mod links;
mod own;
mod queue;
mod writing;

pub(crate) use file::{FileWriter, Written};
pub(crate) use queue::LeaseOfNew;
pub(crate) use writing::{Settled, WriteLeases, Writing};
