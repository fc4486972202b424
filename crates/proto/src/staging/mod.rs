//! The language of a staging job: what the front, its agents and the hooks in programs have to agree
//! on. Owns the names of jobs, nodes and places, and the messages of [`local`]. Paths are bytes: names may
//! hold anything but a slash and a zero byte.

pub mod local;

use serde::{Deserialize, Serialize};

use crate::{FileKind, PoolId, Timestamp, hex};

/// The variable that tells the programs of a job which job it is: the digits of a [`JobId`].
pub const JOB_VARIABLE: &str = "AZEKURA_STAGE";

/// A job. Random, so that jobs of one user on one node never meet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct JobId(pub [u8; 16]);

impl JobId {
    /// 32 hexadecimal digits.
    pub fn to_hex(self) -> String {
        hex::digits(&self.0)
    }

    /// The reverse of [`JobId::to_hex`].
    pub fn from_hex(text: &str) -> Option<Self> {
        hex::bytes(text.as_bytes())?.try_into().ok().map(Self)
    }

    /// What stands for the job in the handshake between its processes.
    pub fn as_pool(self) -> PoolId {
        PoolId(self.0)
    }

    /// The name in Linux's abstract name space under which a node's agent listens to the programs there
    /// (unix(7)). It goes with the agent, and each network name space has its own.
    pub fn socket_name(self) -> String {
        format!("azekura-stage-{}", self.to_hex())
    }
}

/// A node of the job: its place in the list of hosts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct NodeId(pub u16);

/// What programs may do below a mapped directory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum MapKind {
    /// Files come to the nodes; nothing is written (`EROFS`).
    ReadOnly,
    /// What programs write goes home; files that are there already do not come.
    Out,
    /// Both.
    ReadWrite,
}

/// What is known of a file of the source.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attributes {
    /// What it is.
    pub kind: FileKind,
    /// Permission bits, set-id bits left out.
    pub mode: u32,
    /// Length in bytes.
    pub size: u64,
    /// When its content last changed.
    pub mtime: Timestamp,
    /// The text of a symlink; empty for anything else.
    pub link: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_read_back_from_its_digits() {
        let job = JobId(std::array::from_fn(|index| index as u8 * 17));
        assert_eq!(JobId::from_hex(&job.to_hex()), Some(job));
        assert_eq!(JobId::from_hex("00"), None);
        assert_eq!(JobId::from_hex(&"+0".repeat(16)), None);
    }
}
