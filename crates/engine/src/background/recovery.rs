//! What a restart or a lost peer has left unfinished: decisions that were not told, parts whose
//! outcome is not known, appends that were promised. Runs before the first request and then in the
//! background. Owns the order in which that happens.

use std::time::Duration;

use azekura_proto::limits::OUTCOME_WAIT_MS;
use azekura_proto::message::{Reply, Request};
use azekura_proto::transaction::{Outcome, TransactionId};
use azekura_proto::{Geometry, Oid, Status, TargetId};
use azekura_store::{Space, StoreError};

use crate::background::reclaim::doomed_containers;
use crate::namespace::dir_shards;
use crate::node::Node;
use crate::records::record::{Inode, decode, parse_transaction_key};
use crate::records::stored::{for_each_page, load, store_status};
use crate::requests::retry::{RecordedAppend, recorded_appends};
use crate::target::Target;
use crate::transaction::coordinator::{forget_decision, tell_commit};
use crate::transaction::participant::{abort, commit, reload};

/// Brings a target of this engine into a state in which it can serve.
pub(crate) fn recover(target: &Target) -> Result<(), Status> {
    reload(target)?;
    dir_shards::recover(&target.store, target.now())?;
    extend_promised_appends(target)?;
    count_objects(target)
}

/// An append that is on record was given its place: the file is at least that long, so that no
/// later append lands on the same bytes. Striped files are checked where their last shard is.
fn extend_promised_appends(target: &Target) -> Result<(), Status> {
    for RecordedAppend { oid, end, truncations } in recorded_appends(&target.store)? {
        let Some(inode) = load::<Inode>(&target.store, Space::Inode, &oid.to_bytes())? else {
            continue;
        };
        let unstriped =
            Geometry::new(inode.chunk_bytes, 1).is_within_first_chunk(end) && !inode.striped;
        if !unstriped || inode.truncations != truncations {
            continue;
        }
        let file = target.store.shard_create(oid, 0).map_err(store_status)?;
        if file.stat().map_err(store_status)?.bytes < end {
            match file.truncate(end) {
                // What is lost stays known as that; the others can be served.
                Err(error @ StoreError::Lost { .. }) => tracing::error!("{error}"),
                made => made.map_err(store_status)?,
            }
        }
    }
    Ok(())
}

fn count_objects(target: &Target) -> Result<(), Status> {
    for_each_page(&target.store, (Space::Inode, &[]), 4096, |page| {
        for oid in page.iter().filter_map(|(key, _)| Oid::from_bytes(key)) {
            target.objects.add(oid);
        }
        Ok(())
    })?;
    for container in doomed_containers(target)? {
        target.objects.forget(container);
    }
    Ok(())
}

/// One round over everything unfinished.
pub(crate) fn finish_transactions(node: &Node, target: &Target) {
    if let Err(status) = tell_decisions(node, target) {
        tracing::warn!(target = target.id.0, "transactions stay unfinished: {status}");
    }
    for id in waiting_parts(target) {
        if node.is_stopping() {
            return;
        }
        let finished = match node.call(id.coordinator, &Request::AskOutcome { id }) {
            Ok(Reply::Outcome { outcome: Outcome::Committed, after }) => {
                commit(node, target, id, &after)
            }
            Ok(Reply::Outcome { outcome: Outcome::Aborted, .. }) => abort(target, id),
            // Not decided, or the coordinator is away: ask again in the next round.
            Ok(_) | Err(_) => Ok(()),
        };
        if let Err(status) = finished {
            tracing::warn!(target = target.id.0, ?id, "a transaction stays unfinished: {status}");
        }
    }
}

fn tell_decisions(node: &Node, target: &Target) -> Result<(), Status> {
    let mut after: Option<Vec<u8>> = None;
    loop {
        let page = target.store.scan(Space::Transaction, b"c", after.as_deref(), 1024);
        let decided = page.map_err(store_status)?;
        for (key, value) in &decided {
            if node.is_stopping() {
                return Ok(());
            }
            let now = node.platform.now();
            if !target.set_aside.is_due(Space::Transaction, key, now) {
                continue;
            }
            match read_decision(key, value) {
                Ok((id, participants)) if tell_commit(node, target, id, &participants) => {
                    forget_decision(target, id);
                }
                // Somebody is away.
                Ok(_) => {}
                Err(status) => {
                    target.set_aside.note(Space::Transaction, key, now, Err(status));
                }
            }
        }
        match decided.last() {
            Some((key, _)) => after = Some(key.clone()),
            None => return Ok(()),
        }
    }
}

fn read_decision(key: &[u8], value: &[u8]) -> Result<(TransactionId, Vec<TargetId>), Status> {
    Ok((parse_transaction_key(key).ok_or(Status::Damaged)?, decode(value)?))
}

fn waiting_parts(target: &Target) -> Vec<TransactionId> {
    let state = target.lock();
    let now = target.platform.now();
    let waits =
        |since| now.saturating_duration_since(since) > Duration::from_millis(OUTCOME_WAIT_MS);
    let waiting = state.prepared.iter().filter(|(_, part)| waits(part.since));
    waiting.map(|(id, _)| *id).collect()
}
