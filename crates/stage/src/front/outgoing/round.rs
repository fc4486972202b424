//! One stage-out: keeps account of what becomes of each task, in the report, the manifest and for the node.
//! Whatever fails is in the report; nothing of it ends the rest.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use azekura_proto::staging::NodeId;
use parking_lot::Mutex;

use crate::front::event::Event;
use crate::front::outgoing::compare::{Job, Memory, Task};
use crate::front::outgoing::homewards;
use crate::front::outgoing::manifest::{Outcome, Writer};
use crate::front::outgoing::report::{NotSent, OutReport};
use crate::front::outgoing::setup::Setup;
use crate::message::{Home, Order, Place};
use crate::source::Source;

/// What is done in one stage-out.
pub(crate) struct Round<'a> {
    pub(crate) out: &'a Setup,
    pub(crate) memory: &'a Mutex<Memory>,
    keeps_unsent: bool,
    manifest: Mutex<Option<Writer>>,
    report: Mutex<OutReport>,
    /// Nodes of which something has not come home.
    failed_nodes: Mutex<BTreeSet<NodeId>>,
    /// Files that have not come: what stands under their names at home is older.
    missing: Mutex<BTreeSet<(NodeId, u16, Vec<u8>)>>,
    begun: Instant,
}

/// What came home.
pub(crate) struct Came {
    pub(crate) bytes: u64,
    pub(crate) digest: Option<u64>,
    pub(crate) home: Home,
}

impl<'a> Round<'a> {
    pub(crate) fn new(out: &'a Setup, memory: &'a Mutex<Memory>, manifest: Option<Writer>) -> Self {
        Self {
            out,
            memory,
            keeps_unsent: manifest.is_some() || out.options.manifest.is_some(),
            manifest: Mutex::new(manifest),
            report: Mutex::default(),
            failed_nodes: Mutex::default(),
            missing: Mutex::default(),
            begun: Instant::now(),
        }
    }

    pub(crate) fn source(&self, place: &Place) -> &Arc<dyn Source> {
        &self.out.sources[usize::from(place.map)]
    }

    /// Changes the report.
    pub(crate) fn note(&self, change: impl FnOnce(&mut OutReport)) {
        change(&mut self.report.lock());
    }

    /// Writes to the manifest. If that fails it is said once, and the files go home all the same.
    pub(crate) fn write(&self, write: impl FnOnce(&mut Writer) -> std::io::Result<()>) {
        let mut manifest = self.manifest.lock();
        let Some(writer) = &mut *manifest else { return };
        if let Err(error) = write(writer) {
            *manifest = None;
            drop(manifest);
            self.without_manifest(format!("it cannot be written any more: {error}"));
        }
    }

    /// Something is done; the node hears of it from the caller.
    pub(crate) fn came(&self, task: &Task, came: &Came) -> (Place, Home) {
        let is_file = matches!(task.job, Job::File { .. } | Job::Linked { .. });
        let outcome = Outcome::Sent { bytes: is_file.then_some(came.bytes), digest: came.digest };
        self.write(|manifest| manifest.record(task, &outcome));
        self.note(|report| match task.job {
            Job::File { .. } | Job::Linked { .. } => {
                report.files += 1;
                report.bytes += came.bytes;
            }
            Job::Directory { .. } => report.directories += 1,
            Job::Link { .. } => report.links += 1,
            Job::Remove => report.removed += 1,
        });
        self.remember(task);
        (task.place.clone(), came.home)
    }

    /// Keeps where it stands at home, and removes what stood elsewhere before.
    fn remember(&self, task: &Task) {
        let key = (task.place.clone(), task.node);
        let mut memory = self.memory.lock();
        if task.at == task.place.path || task.job == Job::Remove {
            memory.sent_as.remove(&key);
            memory.own(task);
        } else {
            memory.sent_as.insert(key, task.at.clone());
        }
        if task.before.as_ref() == Some(&task.place.path) {
            memory.owner.remove(&task.place);
        }
        drop(memory);
        if let Some(before) = &task.before
            && let Err(error) = homewards::remove(&**self.source(&task.place), before)
        {
            let path = self.out.text_of(&Place { map: task.place.map, path: before.clone() });
            self.fail(path, Some(task.node), format!("an earlier version stays: {error}"));
        }
    }

    fn miss(&self, task: &Task) {
        self.missing.lock().insert((task.node, task.place.map, task.at.clone()));
    }

    /// Whether a file that a node was to send did not come to this path.
    pub(crate) fn is_missing(&self, node: NodeId, map: u16, at: &[u8]) -> bool {
        self.missing.lock().contains(&(node, map, at.to_vec()))
    }

    /// A file was deleted before it was sent.
    pub(crate) fn deleted(&self, task: &Task) {
        self.miss(task);
        self.write(|manifest| manifest.record(task, &Outcome::Deleted));
        let path = self.out.text_of(&task.place);
        let why = "it was deleted before it was sent".to_owned();
        self.note(|report| report.deleted.push(NotSent { path, node: Some(task.node), why }));
    }

    /// Something does not come home.
    pub(crate) fn failed(&self, task: &Task, why: &str) {
        self.miss(task);
        self.write(|manifest| manifest.record(task, &Outcome::Failed(why)));
        self.fail(self.out.text_of(&task.place), Some(task.node), why.to_owned());
    }

    /// Something fails, that may be no task.
    pub(crate) fn fail(&self, path: String, node: Option<NodeId>, why: String) {
        self.failed_nodes.lock().extend(node);
        self.out.tell(Event::OutFailed { path: path.clone(), node, why: why.clone() });
        self.note(|report| report.failed.push(NotSent { path, node, why }));
    }

    /// The manifest is not whole; that keeps nothing from coming home.
    pub(crate) fn without_manifest(&self, why: String) {
        self.out.tell(Event::ManifestFailed { why: why.clone() });
        self.note(|report| report.manifest_fault = Some(why));
    }

    pub(crate) fn has_failed(&self, node: NodeId) -> bool {
        self.failed_nodes.lock().contains(&node)
    }

    /// Whether nodes keep what does not come home: it is to be sent later, even if the manifest broke off.
    pub(crate) fn keeps_unsent(&self) -> bool {
        self.keeps_unsent
    }

    /// The end of it; the manifest stays open for the next.
    pub(crate) fn end(self) -> (OutReport, Option<Writer>) {
        let seconds = self.begun.elapsed().as_secs_f64();
        self.note(|report| {
            report.seconds = seconds;
            report
                .failed
                .sort_by(|one, other| (&one.path, one.node).cmp(&(&other.path, other.node)));
        });
        let so_far = self.report.lock().clone();
        self.write(|manifest| manifest.end(&so_far));
        if self.keeps_unsent {
            let failed = self.failed_nodes.lock();
            for node in self.out.nodes.keys() {
                self.out.order(*node, Order::Keep { keeps: failed.contains(node) });
            }
        }
        let report = self.report.into_inner();
        self.out.tell(Event::OutEnded {
            files: report.files,
            bytes: report.bytes,
            failed: report.failed.len(),
            conflicts: report.conflicts.len(),
        });
        (report, self.manifest.into_inner())
    }
}
