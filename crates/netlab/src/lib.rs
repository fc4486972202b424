//! Hosts and links on one machine, for tests and experiments. A host is a set of name spaces (network,
//! processes, mounts, host name); a link joins two hosts with a delay, jitter, rate, loss, reordering
//! and queue limit. Needs root. Leaves nothing behind: everything a lab makes hangs on processes and
//! open descriptors of the process that made it, so it goes when that process goes, SIGKILL included.
//!
//! ```no_run
//! use azekura_netlab::{Change, Lab, Topology};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let text = "hosts = ['client', 'server']
//!             links = [{ name = 'wan', between = ['client', 'server'], delay = '50ms' }]";
//! let lab = Lab::up(&Topology::parse(text, "example")?)?;
//! lab.exec("client", std::process::Command::new("ping").args(["-c1", "server"]))?;
//! lab.set("wan", &Change::parse(&["delay=5ms", "loss=1%"])?)?;
//! # Ok(()) }
//! ```

#![deny(unsafe_code)]

pub mod control; //   a lab in another process
pub mod errand; //    a command in another host than one's own
mod error; //         what can go wrong
mod host; //          name spaces, and the way into them
mod lab; //           hosts and relay together
mod mounts; //        which of this machine a host has
pub mod quantity; //  delays, rates, shares as text
mod random;
mod relay; //         the thread that carries packets
mod routes; //        which link leads where
mod segment; //       frames of segments
pub mod selftest; //  how exact it all is
mod shape; //         what a link does to packets
mod status; //        how a lab is
#[allow(unsafe_code)]
mod sys; //           system calls
mod topology; //      the TOML file, changes

pub use error::LabError;
pub use host::NameSpaces;
pub use lab::Lab;
pub use shape::{Counters, Shape};
pub use status::{DirectionStatus, HostState, HostStatus, LabStatus, LinkStatus};
pub use sys::spawn_bound;
pub use topology::{Change, HOSTS_MAX, LINKS_MAX, Link, Topology, TopologyError, check_name};
