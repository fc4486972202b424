//! The staging mode: programs of a job find the directories that it maps, whose files an agent brings to
//! this node when they are asked for. Owns the job of this process and the way of a path: one below a map
//! is replaced by the path in the agent's own directories at which the C library is to make the call. A
//! file that has come costs no question. Nothing here may happen in a process without a job, or in one in
//! whose network name space no agent of the job listens.

mod call;
mod found;
mod job;
pub(crate) mod launch;
mod link;
mod maps;
mod questions;
mod standing;
mod text;

pub(crate) use call::{Open, Pair, Purpose, by_path, by_two_paths, resolve};
pub(crate) use found::Found;
pub(crate) use job::{Job, active, after_fork_in_child, get, refuse_writing, start};
pub(crate) use standing::{moved, renewed};
