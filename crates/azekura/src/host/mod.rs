//! This machine: where files belong, programs, processes, mounts, and programs that run in the
//! background. Knows nothing of pools beyond their names.

pub(crate) mod cpu_time;
pub mod daemon;
pub mod date;
pub(crate) mod engines;
pub(crate) mod gateways;
pub mod interrupt;
pub mod machine;
pub(crate) mod mounts;
pub mod places;
pub(crate) mod process;
pub mod programs;
pub(crate) mod records;
pub(crate) mod unit;
