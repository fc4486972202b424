//! Changes that touch several targets, each with its part, its locks and its outcome. What a crash
//! leaves of them is finished in `background`.

pub(crate) mod action;
pub(crate) mod coordinator;
pub(crate) mod finished;
pub(crate) mod key_locks;
pub(crate) mod participant;
pub(crate) mod relied_names;
mod witnesses;
