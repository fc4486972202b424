//! Work that no request waits for, and what has to be done before the first one after a restart.

pub(crate) mod passes;
pub(crate) mod reclaim;
pub(crate) mod recovery;
pub(crate) mod set_aside;
