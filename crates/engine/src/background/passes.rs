//! Work that no request waits for: telling the outcome of transactions, writing directory times,
//! giving back space, ending sessions, noting whether locks are held. Owns how often each of these
//! is due. It has no thread: an engine calls [`Background::pass`] from one, a simulation by hand.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use azekura_platform::Platform;
use azekura_proto::limits::LEASE_MS;

use crate::background::{reclaim, recovery};
use crate::engine_dir::EngineDir;
use crate::node::Node;
use crate::target::Target;

/// Time between two passes.
pub(crate) const PASS_INTERVAL: Duration = Duration::from_millis(50);
/// Passes from one look at transactions and at directory times to the next.
const TRANSACTIONS_EVERY: u64 = 5;
/// Passes from one look at rates and sessions to the next.
const SAMPLE_EVERY: u64 = 20;
/// Passes from one look for space to give back to the next, if nobody has announced any.
const RECLAIM_EVERY: u64 = 100;

/// How long one pass gives back the space of one target.
const RECLAIM_TIME: Duration = Duration::from_millis(200);

/// Where the background work of an engine stands.
pub(crate) struct Background {
    dir: EngineDir,
    passes: u64,
    /// When what sessions of an earlier run have not claimed goes; `None` once it has.
    orphans_due: Option<Instant>,
    locks_noted: bool,
}

impl Background {
    pub(crate) fn new(dir: EngineDir, platform: &dyn Platform) -> Self {
        let orphans_due = Some(platform.now() + Duration::from_millis(LEASE_MS));
        Self { dir, passes: 0, orphans_due, locks_noted: false }
    }

    /// Does what is due.
    pub(crate) fn pass(&mut self, node: &Node) {
        self.passes += 1;
        // First: a crash before it is noted costs the holders their grace.
        if self.locks_noted == node.locks.is_empty() {
            self.locks_noted = !self.locks_noted;
            self.dir.note_locks(self.locks_noted);
        }
        for target in node.local_targets() {
            if let Err(error) = target.store.pass() {
                tracing::error!("the store of target {} cannot go on: {error}", target.id.0);
            }
            target.reserve_serials_ahead();
            // After a restart there may be records that nobody has announced.
            let wanted = target.reclaim_wanted.swap(0, Ordering::Relaxed) > 0;
            if wanted || self.passes % RECLAIM_EVERY == 1 {
                reclaim_target(node, target);
            }
            if self.passes.is_multiple_of(TRANSACTIONS_EVERY) {
                recovery::finish_transactions(node, target);
                write_back(target, Some(node.platform.now()));
            }
        }
        if self.passes.is_multiple_of(SAMPLE_EVERY) {
            node.metrics.sample(node.platform.now());
            end_expired_sessions(node);
        }
        if self.orphans_due.is_some_and(|due| node.platform.now() > due) {
            self.orphans_due = None;
            drop_leftovers(node);
        }
    }

    /// Leaves everything in order for the next run of the engine.
    pub(crate) fn finish(&self, node: &Node) {
        self.dir.note_locks(!node.locks.is_empty());
        for target in node.local_targets() {
            write_back(target, None);
            if let Err(error) = target.store.sync() {
                tracing::error!("{error}");
            }
        }
    }
}

fn end_expired_sessions(node: &Node) {
    for session in node.sessions.take_expired() {
        tracing::info!(session = %session.id, "lease ran out");
        reclaim::end_session(node, &session);
    }
}

fn drop_leftovers(node: &Node) {
    for target in node.local_targets() {
        let dropped = reclaim::drop_orphans(node, target)
            .and_then(|()| reclaim::forget_strangers(node, target));
        if let Err(status) = dropped {
            tracing::warn!(target = target.id.0, "leftovers stay: {status}");
        }
    }
}

fn write_back(target: &Target, quiet_at: Option<Instant>) {
    let _state = target.lock();
    if let Err(status) = target.dir_shards.write_back(&target.store, quiet_at) {
        tracing::warn!(target = target.id.0, "directory times wait to be written: {status}");
    }
}

/// Gives space back for a while; what is left is for the next pass, so that other work has its turn.
fn reclaim_target(node: &Node, target: &Target) {
    if let Err(status) = reclaim::reclaim_containers(target) {
        tracing::warn!(target = target.id.0, "a container stays: {status}");
    }
    let began = node.platform.now();
    while !node.is_stopping() {
        if node.platform.elapsed(began) > RECLAIM_TIME {
            target.reclaim_wanted.fetch_add(1, Ordering::Relaxed);
            return;
        }
        match reclaim::reclaim_some(node, target) {
            Ok(true) => {}
            Ok(false) => return,
            Err(status) => {
                tracing::warn!(target = target.id.0, "reclaim waits: {status}");
                return;
            }
        }
    }
}
