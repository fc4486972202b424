//! What has happened in a job so far, in numbers: counted from its events, told by `status`, the lines of a
//! terminal and the summary. Decides nothing.

use std::collections::HashMap;
use std::time::Instant;

use azekura_proto::staging::{JobId, NodeId};
use azekura_stage::front::{Event, Supplier};
use serde::{Deserialize, Serialize};

/// A node so far.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct NodeStatus {
    pub(super) host: String,
    /// Whether it takes part.
    pub(super) up: bool,
    /// Files that have come. One that came again, as there was no room for it meanwhile, counts once.
    pub(super) files: u64,
    /// What has come of these and of those that still come, in bytes.
    pub(super) bytes: u64,
    /// How often it had to turn to another supplier, or ask for a piece again.
    pub(super) stalls: u64,
    /// Files that could not come.
    pub(super) failed: u64,
}

/// A job so far.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct JobStatus {
    pub(super) job: String,
    /// Since the nodes were up.
    pub(super) elapsed_s: f64,
    pub(super) nodes: Vec<NodeStatus>,
    /// Files that have begun to travel; one that was begun again counts again.
    pub(super) files: u64,
    /// Their length in bytes.
    pub(super) bytes: u64,
    /// Files that changed while they were read.
    pub(super) restarted: u64,
    /// Files that have been sent home.
    pub(super) sent_files: u64,
    /// Their length in bytes.
    pub(super) sent_bytes: u64,
}

/// Counts events.
#[derive(Debug)]
pub(super) struct Tally {
    status: JobStatus,
    since: Instant,
    /// What has been counted of contents on nodes.
    counted: HashMap<(u64, NodeId), Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    bytes: u64,
    is_whole: bool,
}

impl Tally {
    /// Nothing has happened yet.
    pub(super) fn new(job: JobId, hosts: &[String]) -> Self {
        let node = |host: &String| NodeStatus { host: host.clone(), ..NodeStatus::default() };
        let status = JobStatus {
            job: job.to_hex(),
            elapsed_s: 0.0,
            nodes: hosts.iter().map(node).collect(),
            files: 0,
            bytes: 0,
            restarted: 0,
            sent_files: 0,
            sent_bytes: 0,
        };
        Self { status, since: Instant::now(), counted: HashMap::new() }
    }

    /// How it stands.
    pub(super) fn status(&self) -> JobStatus {
        JobStatus { elapsed_s: self.elapsed_s(), ..self.status.clone() }
    }

    /// Since the beginning, in seconds.
    pub(super) fn elapsed_s(&self) -> f64 {
        self.since.elapsed().as_secs_f64()
    }

    fn node(&mut self, node: NodeId) -> Option<&mut NodeStatus> {
        self.status.nodes.get_mut(usize::from(node.0))
    }

    /// So many bytes of a content are on a node, and so many whole files.
    fn came(&mut self, content: u64, node: NodeId, files: usize, bytes: u64) {
        let counted = self.counted.entry((content, node)).or_default();
        let new_bytes = bytes.saturating_sub(counted.bytes);
        let new_files = if counted.is_whole { 0 } else { files as u64 };
        counted.bytes += new_bytes;
        counted.is_whole |= files > 0;
        if let Some(node) = self.node(node) {
            node.files += new_files;
            node.bytes += new_bytes;
        }
    }

    /// Counts one.
    pub(super) fn take(&mut self, event: &Event) {
        match event {
            Event::NodeUp { node, .. } => {
                if !self.status.nodes.iter().any(|node| node.up) {
                    self.since = Instant::now();
                }
                _ = self.node(*node).map(|node| node.up = true);
            }
            Event::NodeGone { node, .. } => _ = self.node(*node).map(|node| node.up = false),
            Event::ContentBegun { files, bytes, .. } => {
                self.status.files += *files as u64;
                self.status.bytes += bytes;
            }
            Event::ContentComing { content, node, bytes } => {
                self.came(*content, *node, 0, *bytes);
            }
            Event::ContentArrived { content, node, files, bytes } => {
                self.came(*content, *node, *files, *bytes);
            }
            Event::SupplierLost { node, .. } | Event::WrongPiece { node, .. } => {
                _ = self.node(*node).map(|node| node.stalls += 1);
            }
            Event::Sent { files, bytes, .. } => {
                self.status.sent_files += *files as u64;
                self.status.sent_bytes += bytes;
            }
            Event::WrongPieceHome { node, .. } => {
                _ = self.node(*node).map(|node| node.stalls += 1);
            }
            Event::InAsked { .. }
            | Event::OutAsked
            | Event::OutBegun { .. }
            | Event::OutEnded { .. }
            | Event::Conflict { .. }
            | Event::ReadThrough { .. }
            | Event::OutFailed { .. }
            | Event::ManifestFailed { .. } => {}
            Event::Restarted { .. } => self.status.restarted += 1,
            Event::Failed { node, .. } => {
                if let Some(node) = node.and_then(|node| self.node(node)) {
                    node.failed += 1;
                }
            }
        }
    }
}

/// A line for a terminal about what should not go by unseen; `None` for what is as it should be.
pub(super) fn warning(event: &Event, hosts: &[String]) -> Option<String> {
    let host = |node: &NodeId| hosts.get(usize::from(node.0)).map_or("?", String::as_str);
    Some(match event {
        Event::NodeGone { node, why } => format!("node '{}' is gone: {why}", host(node)),
        Event::Restarted { path } => {
            format!("{path} changed while it was read: it is read again")
        }
        Event::ReadThrough { path, node, why } => {
            format!("{path} is not kept on '{}', and read from here instead: {why}", host(node))
        }
        Event::Failed { path, node: Some(node), why } => {
            format!("{path} does not come to '{}': {why}", host(node))
        }
        Event::Failed { path, node: None, why } => format!("{path} does not come: {why}"),
        Event::WrongPiece { index, node, culprit, .. } => {
            let from = match culprit {
                Supplier::Front => "the front",
                Supplier::Node(node) => host(node),
            };
            format!(
                "'{}' got piece {index} from '{from}' with a wrong checksum, and asks again",
                host(node)
            )
        }
        Event::WrongPieceHome { index, node, .. } => {
            format!(
                "piece {index} from '{}' has a wrong checksum, and is asked for again",
                host(node)
            )
        }
        Event::Conflict { path, kept } => {
            format!("{path} was written on several nodes: kept as {}", kept.join(", "))
        }
        Event::OutFailed { path, node, why } => {
            let what = if path.is_empty() { "what programs wrote" } else { path };
            let from = node.map_or_else(String::new, |node| format!(" on '{}'", host(&node)));
            format!("{what}{from} was not sent home: {why}")
        }
        Event::ManifestFailed { why } => {
            format!("what is not sent home now cannot be sent later, without a manifest: {why}")
        }
        Event::NodeUp { .. }
        | Event::InAsked { .. }
        | Event::OutAsked
        | Event::ContentBegun { .. }
        | Event::ContentComing { .. }
        | Event::ContentArrived { .. }
        | Event::SupplierLost { .. }
        | Event::OutBegun { .. }
        | Event::Sent { .. }
        | Event::OutEnded { .. } => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_as_they_come_and_files_once() {
        let mut tally = Tally::new(JobId([0; 16]), &["n1".to_owned(), "n2".to_owned()]);
        let node = NodeId(1);
        let coming = |bytes| Event::ContentComing { content: 7, node, bytes };
        let arrived = Event::ContentArrived { content: 7, node, files: 1, bytes: 100 };
        let mut counted = |event: &Event| {
            tally.take(event);
            let node = tally.status().nodes.swap_remove(1);
            (node.files, node.bytes)
        };
        assert_eq!(counted(&coming(30)), (0, 30));
        // It has another supplier, and says again what it has.
        assert_eq!(counted(&coming(20)), (0, 30));
        assert_eq!(counted(&coming(60)), (0, 60));
        assert_eq!(counted(&arrived), (1, 100));
        assert_eq!(counted(&arrived), (1, 100));
        let other = Event::ContentArrived { content: 8, node, files: 3, bytes: 5 };
        assert_eq!(counted(&other), (4, 105));
    }
}
