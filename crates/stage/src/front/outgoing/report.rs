//! What became of files that went home, for whoever started the job.

use azekura_proto::staging::NodeId;
use serde::Serialize;

/// What a stage-out has done.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct OutReport {
    /// Files that have come home.
    pub files: u64,
    /// Their length in bytes.
    pub bytes: u64,
    /// Directories that were made.
    pub directories: u64,
    /// Symlinks that were made.
    pub links: u64,
    /// Names that were removed.
    pub removed: u64,
    /// Paths that several nodes have written: none of them has its name.
    pub conflicts: Vec<Conflict>,
    /// What should have come home and has not.
    pub failed: Vec<NotSent>,
    /// Files that were not there any more when they were to be sent.
    pub deleted: Vec<NotSent>,
    /// What no other host can have: pipes, sockets, devices.
    pub left: Vec<NotSent>,
    /// Why there is no whole manifest, if there was to be one. What has come home is there all the same.
    pub manifest_fault: Option<String>,
    /// How long it took.
    pub seconds: f64,
}

/// A path that several nodes have written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Conflict {
    /// The path, as programs name it; bytes that are no text are replaced.
    pub path: String,
    /// The paths that stand at home instead.
    pub kept: Vec<String>,
}

/// Something that has not come home.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct NotSent {
    /// Its path, as programs name it; bytes that are no text are replaced. Empty if it is all of a node.
    pub path: String,
    /// The node on which it stands, if it is on one.
    pub node: Option<NodeId>,
    /// What is known of the cause.
    pub why: String,
}

impl OutReport {
    /// Whether all that programs wrote is at home under its own name.
    pub fn is_right(&self) -> bool {
        self.conflicts.is_empty() && self.failed.is_empty()
    }
}
