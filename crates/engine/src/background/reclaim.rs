//! Giving back the space of what was removed, in the background. What has to go is on record, so a
//! restart goes on where it stopped. Also gives up what sessions leave behind when they end.

use std::sync::Arc;
use std::sync::atomic::Ordering;

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

/// One round. Tells whether there is more to do.
pub(crate) fn reclaim_some(node: &Node, target: &Target) -> Result<bool, Status> {
    let records = target.store.scan(Space::Reclaim, &[], None, ROUND).map_err(store_status)?;
    if !records.is_empty() {
        // Only what is durably free: after a loss of power the record that freed it might be gone, and a
        // name lead to an object without its data.
        target.store.sync().map_err(store_status)?;
    }
    let mut done = Update::new(target);
    let mut waiting = 0;
    for (key, value) in &records {
        let oid = Oid::from_bytes(key).ok_or(Status::Damaged)?;
        let record: Reclaim = decode(value)?;
        match reclaim_object(node, target, oid, record) {
            Ok(()) => done.delete(Space::Reclaim, key),
            // An engine is away: this one later, the others now.
            Err(Status::PeerUnreachable) => waiting += 1,
            Err(status) => return Err(status),
        }
    }
    done.commit()?;
    let more = records.len() == ROUND;
    // Of what lies behind a full round only this much is known: it is there.
    target.reclaim_backlog.store(waiting + u64::from(more), Ordering::Relaxed);
    Ok(more && waiting == 0)
}

fn reclaim_object(node: &Node, target: &Target, oid: Oid, record: Reclaim) -> Result<(), Status> {
    remove_prefix(target, Space::Xattr, &oid.to_bytes())?;
    target.store.shard_remove(oid, 0).map_err(store_status)?;
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
    target.removed(update.commit()?);
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
        drop_orphan(node, target, Oid::from_bytes(&key).ok_or(Status::Damaged)?)?;
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
    target.reclaim_wanted.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Removes everything of the containers that are marked.
pub(crate) fn reclaim_containers(target: &Target) -> Result<(), Status> {
    let marked = target.store.scan(Space::System, CONTAINER_TAG, None, 64).map_err(store_status)?;
    if !marked.is_empty() {
        target.store.sync().map_err(store_status)?;
    }
    for (key, _) in marked {
        let id: [u8; 4] = key
            .get(CONTAINER_TAG.len()..)
            .and_then(|id| id.try_into().ok())
            .ok_or(Status::Damaged)?;
        for space in [
            Space::Entry,
            Space::Inode,
            Space::DirShard,
            Space::Xattr,
            Space::Kv,
            Space::Orphan,
            Space::Reclaim,
        ] {
            remove_prefix(target, space, &id)?;
        }
        target.dir_shards.forget_container(ContainerId(u32::from_be_bytes(id)));
        let container = ContainerId(u32::from_be_bytes(id));
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
            target.store.shard_remove(oid, shard).map_err(store_status)?;
        }
        let mut update = Update::new(target);
        update.delete(Space::System, &key);
        update.commit()?;
    }
    Ok(())
}
