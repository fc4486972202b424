//! Giving back the space of what was removed, in the background. What has to go is on record, so a
//! restart goes on where it stopped. Also gives up what sessions leave behind when they end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use azekura_proto::limits::CONTAINERS_MAX;
use azekura_proto::message::{Request, ShardRef};
use azekura_proto::{ContainerId, Oid, Status};
use azekura_store::Space;

use crate::node::Node;
use crate::records::record::{Inode, Reclaim, decode};
use crate::records::stored::{load, store_status};
use crate::records::update::Update;
use crate::requests::retry::forget_session;
use crate::requests::sessions::Session;
use crate::target::Target;
use crate::transaction::action::remove_inode;

/// Records handled before others get a turn.
const ROUND: usize = 1024;
/// Key under which a target remembers that a container has to go.
const CONTAINER_TAG: &[u8] = b"reclaim-container/";

/// How far the records of what has to go have been gone through.
#[derive(Default)]
pub(crate) struct Sweep {
    /// The record that was dealt with last; `None` before the first.
    after: Option<Vec<u8>>,
    /// How many were left behind.
    left: u64,
}

/// Goes on with a sweep until all is done or the time is up. Tells whether it came to the end; the next
/// one begins anew.
pub(crate) fn sweep(
    node: &Node,
    target: &Target,
    sweep: &mut Sweep,
    deadline: Instant,
) -> Result<bool, Status> {
    loop {
        let after = sweep.after.as_deref();
        let records = target.store.scan(Space::Reclaim, &[], after, ROUND).map_err(store_status)?;
        if records.is_empty() {
            target.reclaim_backlog.store(sweep.left, Ordering::Relaxed);
            *sweep = Sweep::default();
            return Ok(true);
        }
        // Only what is durably free: after a loss of power the record that freed it might be gone, and a
        // name lead to an object without its data.
        target.store.sync().map_err(store_status)?;
        let mut done = Update::new(target);
        let is_over = || node.is_stopping() || node.platform.now() >= deadline;
        let mut is_first = true;
        for (key, value) in &records {
            if !std::mem::take(&mut is_first) && is_over() {
                break;
            }
            if reclaim_record(node, target, key, value) {
                done.delete(Space::Reclaim, key);
            } else {
                sweep.left += 1;
            }
            sweep.after = Some(key.clone());
        }
        done.commit()?;
        if is_over() {
            // Of what lies behind only this much is known: there may be some.
            target.reclaim_backlog.store(sweep.left + 1, Ordering::Relaxed);
            return Ok(false);
        }
    }
}

/// Deals with one record. Tells whether it is done.
fn reclaim_record(node: &Node, target: &Target, key: &[u8], value: &[u8]) -> bool {
    let now = node.platform.now();
    if !target.set_aside.is_due(Space::Reclaim, key, now) {
        return false;
    }
    let reclaimed = Oid::from_bytes(key)
        .ok_or(Status::Damaged)
        .and_then(|oid| reclaim_object(node, target, oid, decode(value)?));
    // An engine that is away says nothing about the record.
    if reclaimed != Err(Status::PeerUnreachable) {
        target.set_aside.note(Space::Reclaim, key, now, reclaimed);
    }
    reclaimed.is_ok()
}

fn reclaim_object(node: &Node, target: &Target, oid: Oid, record: Reclaim) -> Result<(), Status> {
    remove_prefix(target, Space::Xattr, &oid.to_bytes())?;
    target.store.shard_remove_freed(oid, 0).map_err(store_status)?;
    if record.striped {
        node.call_shards(oid, |shard| Request::ShardRemove {
            data: ShardRef { oid, shard, is_file: true },
        })?;
    }
    Ok(())
}

/// Deletes all records under a prefix, in bounded batches.
fn remove_prefix(target: &Target, space: Space, prefix: &[u8]) -> Result<(), Status> {
    loop {
        let page = target.store.scan(space, prefix, None, 1024).map_err(store_status)?;
        if page.is_empty() {
            return Ok(());
        }
        let mut batch = azekura_store::Batch::new();
        for (key, _) in &page {
            batch.delete(space, key);
        }
        target.store.commit(batch).map_err(store_status)?;
    }
}

/// The session no longer has the object open: an unlinked one goes with its last open reference.
pub(crate) fn release(node: &Node, session: &Session, oid: Oid) {
    if !node.sessions.release(session, oid) {
        return;
    }
    if let Some(home) = node.local_home(oid)
        && let Err(status) = drop_orphan(node, home, oid)
    {
        tracing::warn!(%oid, "an unlinked object stays until it is checked: {status}");
    }
}

/// Removes an inode that has no link and no open reference.
fn drop_orphan(node: &Node, target: &Target, oid: Oid) -> Result<(), Status> {
    let key = oid.to_bytes();
    let state = target.lock();
    let Some(inode) = load::<Inode>(&target.store, Space::Inode, &key)? else { return Ok(()) };
    let being_linked =
        !state.locks.are_free(&[(crate::transaction::key_locks::LockKey::Inode(oid), true)]);
    if inode.nlink > 0 || node.sessions.is_open(oid) || being_linked {
        return Ok(());
    }
    let mut update = Update::new(target);
    remove_inode(target, &mut update, oid, &inode)?;
    update.delete(Space::Orphan, &key);
    target.removed(&update.commit()?);
    Ok(())
}

/// A session is over: its locks and open references go. Its client, if it comes back, waits for that.
pub(crate) fn end_session(node: &Node, session: &Arc<Session>) {
    node.locks.drop_session(session.id);
    for oid in session.open_objects() {
        release(node, session, oid);
    }
    for target in node.local_targets() {
        target.leases.drop_session(session.id);
        if let Err(status) = forget_session(target, session.id) {
            tracing::warn!(session = %session.id, "answers stay on record: {status}");
        }
    }
    node.sessions.forget(session);
}

/// After a restart nobody is known to have the unlinked objects open that are on record. Those that
/// their sessions have not claimed when the lease is over go.
pub(crate) fn drop_orphans(node: &Node, target: &Target) -> Result<(), Status> {
    let records = target.store.scan(Space::Orphan, &[], None, usize::MAX).map_err(store_status)?;
    for (key, _) in records {
        let dropped = Oid::from_bytes(&key)
            .ok_or(Status::Damaged)
            .and_then(|oid| drop_orphan(node, target, oid));
        if let Err(status) = dropped {
            // Tried again by the next run of the engine, or by a check.
            target.set_aside.note(Space::Orphan, &key, node.platform.now(), Err(status));
        }
    }
    Ok(())
}

/// Forgets the answers of sessions that have not come back when the lease is over.
pub(crate) fn forget_strangers(node: &Node, target: &Target) -> Result<(), Status> {
    let mut after: Option<Vec<u8>> = None;
    loop {
        let page =
            target.store.scan(Space::Reply, &[], after.as_deref(), 1).map_err(store_status)?;
        let Some((key, _)) = page.first() else { return Ok(()) };
        let id: [u8; 16] =
            key.get(..16).and_then(|id| id.try_into().ok()).ok_or(Status::Damaged)?;
        let session = azekura_proto::SessionId(id);
        if !node.sessions.is_known(session) {
            forget_session(target, session)?;
        }
        let mut last = id.to_vec();
        last.extend_from_slice(&[0xff; 3]);
        after = Some(last);
    }
}

/// Marks a container of this target for removal.
pub(crate) fn mark_container(target: &Target, container: ContainerId) -> Result<(), Status> {
    let mut update = Update::new(target);
    let key = [CONTAINER_TAG, &container.0.to_be_bytes()].concat();
    update.put_bytes(Space::System, &key, Vec::new());
    update.commit()?;
    target.objects.forget(container);
    target.reclaim_wanted.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Removes everything of the containers that are marked.
pub(crate) fn reclaim_containers(node: &Node, target: &Target) {
    let now = node.platform.now();
    for key in marked_containers(target).unwrap_or_default() {
        if target.set_aside.is_due(Space::System, &key, now) {
            let reclaimed = reclaim_container(target, &key);
            target.set_aside.note(Space::System, &key, now, reclaimed);
        }
    }
}

/// The containers that have to go.
pub(crate) fn doomed_containers(target: &Target) -> Result<Vec<ContainerId>, Status> {
    let marks = marked_containers(target)?;
    let ids = marks.iter().filter_map(|key| marked_container(key).ok());
    Ok(ids.map(|id| ContainerId(u32::from_be_bytes(id))).collect())
}

/// The marks of the containers that have to go.
fn marked_containers(target: &Target) -> Result<Vec<Vec<u8>>, Status> {
    let marked = target.store.scan(Space::System, CONTAINER_TAG, None, CONTAINERS_MAX);
    Ok(marked.map_err(store_status)?.into_iter().map(|(key, _)| key).collect())
}

fn marked_container(key: &[u8]) -> Result<[u8; 4], Status> {
    let id = key.get(CONTAINER_TAG.len()..).and_then(|id| id.try_into().ok());
    id.ok_or(Status::Damaged)
}

fn reclaim_container(target: &Target, key: &[u8]) -> Result<(), Status> {
    let id = marked_container(key)?;
    // As for single objects.
    target.store.sync().map_err(store_status)?;
    for space in [
        Space::Entry,
        Space::Inode,
        Space::DirShard,
        Space::Xattr,
        Space::Kv,
        Space::Orphan,
        Space::Reclaim,
        Space::Shard,
    ] {
        remove_prefix(target, space, &id)?;
    }
    let container = ContainerId(u32::from_be_bytes(id));
    target.dir_shards.forget_container(container);
    let mut files = Vec::new();
    target
        .store
        .shard_list(&mut |oid, shard, _| {
            if oid.container() == container {
                files.push((oid, shard));
            }
        })
        .map_err(store_status)?;
    for (oid, shard) in files {
        target.store.shard_remove_freed(oid, shard).map_err(store_status)?;
    }
    let mut update = Update::new(target);
    update.delete(Space::System, key);
    update.commit()?;
    // What was made in it by those who did not know yet.
    target.objects.forget(container);
    Ok(())
}
