//! What a job is. Owns the description that an agent gets when it starts, which travels as one line of
//! JSON into its standard input: the secret is in it, and must never be seen in a list of processes.

use std::io;
use std::path::PathBuf;

use azekura_proto::staging::{JobId, MapKind, NodeId};
use serde::{Deserialize, Serialize};

/// Draws a job and its secret.
///
/// # Errors
/// If the system has no random bytes to give.
pub fn draw() -> io::Result<(JobId, String)> {
    let (mut job, mut secret) = ([0; 16], [0; 32]);
    getrandom::fill(&mut job).map_err(io::Error::other)?;
    getrandom::fill(&mut secret).map_err(io::Error::other)?;
    let halves = secret.split_at(16);
    let hex = |half: &[u8]| JobId(std::array::from_fn(|index| half[index])).to_hex();
    Ok((JobId(job), hex(halves.0) + &hex(halves.1)))
}

/// A directory that programs of the job reach on every node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MapDescription {
    /// The path by which programs name it: absolute, without dots, repeated or trailing slashes.
    pub dir: Vec<u8>,
    /// What may be done below it.
    pub kind: MapKind,
}

/// How an agent takes in what comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Keeping {
    /// Programs wait for all of a file when they open it, however large it is.
    pub whole: bool,
    /// Large files are written past the page cache (`O_DIRECT`).
    pub direct: bool,
}

/// What an agent has to know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AgentDescription {
    /// The job.
    pub job: JobId,
    /// What its processes know and nobody else, as hexadecimal digits.
    pub secret: String,
    /// The node that the agent stands on.
    pub node: NodeId,
    /// The node's name in the list of hosts, for messages.
    pub host: String,
    /// The directory of the node in which the agent makes its own.
    pub cache: PathBuf,
    /// The directories.
    pub maps: Vec<MapDescription>,
    /// Whether the agent leaves what has come where it is when the job ends.
    pub keeps_cache: bool,
    /// How files come in.
    #[serde(default)]
    pub keeping: Keeping,
    /// Goes behind the name of the socket for local programs. Empty, but for agents that stand in one
    /// network name space, as in tests.
    #[serde(default)]
    pub socket_suffix: String,
}
