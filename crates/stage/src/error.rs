//! Why a process of a job cannot start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use azekura_wire::ConnectError;

/// Why a front or an agent cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The secret is not 64 hexadecimal digits.
    #[error("the job's secret is not 64 hexadecimal digits")]
    Secret,
    /// A directory of the node cannot be made.
    #[error("cannot make {}: {source}; name another directory as the cache", path.display())]
    Cache {
        /// The directory.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// The process cannot listen, or start its threads.
    #[error("cannot {what}: {source}")]
    System {
        /// What could not be done.
        what: &'static str,
        /// What happened.
        source: io::Error,
    },
    /// An agent does not answer.
    #[error(
        "the agent on {host} at {address} does not answer: {source}; can this host reach the ports of that one?"
    )]
    Agent {
        /// The node's name in the list of hosts.
        host: String,
        /// Where it should listen.
        address: SocketAddr,
        /// What happened.
        source: ConnectError,
    },
}

impl Error {
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}
