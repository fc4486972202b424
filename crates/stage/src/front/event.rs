//! What happens in a job, for whoever shows it: a terminal, a file of JSON lines. Nothing depends on whether
//! anybody listens.

use azekura_proto::staging::NodeId;
use serde::Serialize;

use crate::message::Supplier;

/// Something that has happened.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// A node takes part.
    NodeUp {
        /// Which.
        node: NodeId,
        /// Its name in the list of hosts.
        host: String,
    },
    /// A node takes part no more.
    NodeGone {
        /// Which.
        node: NodeId,
        /// What is known of the cause.
        why: String,
    },
    /// Somebody asks for files before programs open them.
    InAsked {
        /// How many files or directories.
        paths: usize,
    },
    /// A file, or a bundle of small ones, begins to travel.
    ContentBegun {
        /// Its number in the job.
        content: u64,
        /// The file, or the first one.
        path: String,
        /// How many there are.
        files: usize,
        /// Their length in bytes.
        bytes: u64,
        /// To how many nodes.
        nodes: usize,
        /// How many get it from one supplier at most: 1 is a chain, more a tree.
        fan_out: u64,
        /// In pieces of this length, in bytes.
        piece_bytes: u32,
    },
    /// Some of a large file is on a node.
    ContentComing {
        /// Its number in the job.
        content: u64,
        /// Where.
        node: NodeId,
        /// How much of it, in bytes.
        bytes: u64,
    },
    /// All of it is on a node.
    ContentArrived {
        /// Its number in the job.
        content: u64,
        /// Where it is now.
        node: NodeId,
        /// How many files.
        files: usize,
        /// Their length in bytes.
        bytes: u64,
    },
    /// A node was given no more of a content, and gets the rest from another.
    SupplierLost {
        /// The number of the content.
        content: u64,
        /// The node that waited.
        node: NodeId,
        /// Who was lost.
        supplier: Supplier,
        /// How many pieces had come.
        at_piece: u32,
    },
    /// A piece was not what its checksum says; it was asked for again.
    WrongPiece {
        /// The number of the content.
        content: u64,
        /// Which piece.
        index: u32,
        /// The node that got it.
        node: NodeId,
        /// Who sent it.
        culprit: Supplier,
    },
    /// A file changed while it was read: it is read again from its beginning.
    Restarted {
        /// The file.
        path: String,
    },
    /// A node has no room for a file: programs read it from here, and it is not kept there.
    ReadThrough {
        /// The file.
        path: String,
        /// The node.
        node: NodeId,
        /// What is known of the cause.
        why: String,
    },
    /// A file does not come.
    Failed {
        /// The file.
        path: String,
        /// The node, if it is one of them only.
        node: Option<NodeId>,
        /// What is known of the cause.
        why: String,
    },
    /// Files are to go home.
    OutAsked,
    /// Files begin to go home.
    OutBegun {
        /// How many.
        files: usize,
        /// Their length in bytes.
        bytes: u64,
    },
    /// Files of a node are at home.
    Sent {
        /// The node.
        node: NodeId,
        /// How many.
        files: usize,
        /// Their length in bytes.
        bytes: u64,
    },
    /// A piece that came from a node was not what its checksum says; it was asked for again.
    WrongPieceHome {
        /// The node's number of the content.
        content: u64,
        /// Which piece.
        index: u32,
        /// Who sent it.
        node: NodeId,
    },
    /// Several nodes have written a path.
    Conflict {
        /// The path.
        path: String,
        /// The paths that stand at home instead.
        kept: Vec<String>,
    },
    /// Something does not come home.
    OutFailed {
        /// Its path; empty if it is all of a node.
        path: String,
        /// The node, if it is on one.
        node: Option<NodeId>,
        /// What is known of the cause.
        why: String,
    },
    /// It cannot be written down what is sent home, so that what does not come cannot be sent later.
    ManifestFailed {
        /// What is known of the cause.
        why: String,
    },
    /// All is at home that comes.
    OutEnded {
        /// How many files came.
        files: u64,
        /// Their length in bytes.
        bytes: u64,
        /// How much did not come.
        failed: usize,
        /// How many paths several nodes have written.
        conflicts: usize,
    },
}
