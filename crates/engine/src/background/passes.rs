//! Work that no request waits for: telling the outcome of transactions, writing directory times,
//! giving back space, ending sessions, noting how long data are. Owns how often each of these
//! is due, and that what needs no other engine does not wait for one. It has no threads: an engine calls
//! [`Upkeep::pass`] and [`Settling::pass`] from one each, a simulation by hand.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use azekura_platform::Platform;
use azekura_proto::TargetId;
use azekura_proto::limits::LEASE_MS;

use crate::background::reclaim::Sweep;
use crate::background::{reclaim, recovery};
use crate::data::descriptors;
use crate::namespace::set_id;
use crate::node::Node;
use crate::target::Target;

/// Time between two passes.
pub(crate) const PASS_INTERVAL: Duration = Duration::from_millis(50);
/// Passes from one look at transactions and at directory times to the next.
const TRANSACTIONS_EVERY: u64 = 5;
/// Passes from one look at rates, sessions and lengths to the next.
const SAMPLE_EVERY: u64 = 20;
/// Passes from one look for space to give back to the next, if nobody has announced any.
const RECLAIM_EVERY: u64 = 100;

/// How long one pass gives back the space of one target.
const RECLAIM_TIME: Duration = Duration::from_millis(200);

/// What an engine does for itself: it asks no other one, and is never held up by one.
pub(crate) struct Upkeep {
    passes: u64,
    /// When what sessions of an earlier run have not claimed goes; `None` once it has.
    orphans_due: Option<Instant>,
}

/// What may have to wait for other engines.
#[derive(Default)]
pub(crate) struct Settling {
    passes: u64,
    sweeps: HashMap<TargetId, Sweep>,
}

impl Upkeep {
    pub(crate) fn new(platform: &dyn Platform) -> Self {
        let orphans_due = Some(platform.now() + Duration::from_millis(LEASE_MS));
        Self { passes: 0, orphans_due }
    }

    /// Does what is due.
    pub(crate) fn pass(&mut self, node: &Node) {
        self.passes += 1;
        for target in node.local_targets() {
            if let Err(error) = target.store.pass() {
                tracing::error!("the store of target {} cannot go on: {error}", target.id.0);
            }
            target.reserve_serials_ahead();
            if self.passes.is_multiple_of(TRANSACTIONS_EVERY) {
                write_back(target, Some(node.platform.now()));
            }
        }
        if self.passes.is_multiple_of(SAMPLE_EVERY) {
            node.local_targets().for_each(|target| note_lengths(target));
            set_id::give_due(node);
            node.metrics.sample(node.platform.now());
            end_expired_sessions(node);
            node.locks.clear_note();
            node.sessions.clear_note();
        }
        if self.orphans_due.is_some_and(|due| node.platform.now() > due) {
            self.orphans_due = None;
            drop_leftovers(node);
        }
    }
}

impl Settling {
    /// Does what is due.
    pub(crate) fn pass(&mut self, node: &Node) {
        self.passes += 1;
        for target in node.local_targets() {
            // After a restart there may be records that nobody has announced.
            let wanted = target.reclaim_wanted.swap(0, Ordering::Relaxed) > 0;
            if wanted || self.passes % RECLAIM_EVERY == 1 {
                reclaim_target(node, target, self.sweeps.entry(target.id).or_default());
            }
            if self.passes.is_multiple_of(TRANSACTIONS_EVERY) {
                recovery::finish_transactions(node, target);
            }
        }
    }
}

/// Leaves everything in order for the next run of the engine.
pub(crate) fn finish(node: &Node) {
    node.locks.clear_note();
    node.sessions.clear_note();
    for target in node.local_targets() {
        write_back(target, None);
        note_lengths(target);
        if let Err(error) = target.store.sync_at_end() {
            tracing::error!("{error}");
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
        for dropped in
            [reclaim::drop_orphans(node, target), reclaim::forget_strangers(node, target)]
        {
            if let Err(status) = dropped {
                tracing::warn!(target = target.id.0, "leftovers stay: {status}");
            }
        }
    }
}

fn write_back(target: &Target, quiet_at: Option<Instant>) {
    let _state = target.lock();
    if let Err(status) = target.dir_shards.write_back(&target.store, quiet_at) {
        tracing::warn!(target = target.id.0, "directory times wait to be written: {status}");
    }
}

fn note_lengths(target: &Target) {
    descriptors::look_through(target);
    if let Err(error) = target.store.note_shard_lengths() {
        tracing::warn!(target = target.id.0, "lengths of data are not on record: {error}");
    }
}

/// Gives space back for a while; what is left is for the next pass, so that other work has its turn.
fn reclaim_target(node: &Node, target: &Target, sweep: &mut Sweep) {
    reclaim::reclaim_containers(node, target);
    let deadline = node.platform.now() + RECLAIM_TIME;
    match reclaim::sweep(node, target, sweep, deadline) {
        Ok(true) => {}
        Ok(false) => {
            target.reclaim_wanted.fetch_add(1, Ordering::Relaxed);
        }
        Err(status) => tracing::warn!(target = target.id.0, "reclaim waits: {status}"),
    }
}
