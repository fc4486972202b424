//! A simulator: the engines of a pool, their clients and a reference in one thread, under one seed.
//! Time passes only when somebody waits; requests get lost, come late or twice; engines are killed and
//! started again. Every answer is compared with what the reference says may come out. A seed gives the
//! same history again. Owns no file of the machine and no socket; what an engine stores is its real store
//! on a disk in memory.

mod check;
mod clock;
mod engine;
mod exchange;
mod faults;
mod history;
mod network;
mod peer_faults;
mod peers;
mod platform;
mod pool;
mod possible;
mod power;
mod run;
mod seeds;
mod tree;
mod users;
mod workload;

pub use faults::{Faults, KnownDefect};
pub use history::History;
pub use run::{Setting, Violation, run};
pub use seeds::{Series, run_series};
