//! A target's part in a transaction that another target coordinates. Prepared parts are stored, so
//! that they survive a crash, and keep their records locked until the outcome is known. Never
//! waits for a lock: it answers `Busy`, and the coordinator tries again.

use azekura_proto::message::{Answer, Reply, Request};
use azekura_proto::transaction::{Action, Outcome, TransactionId};
use azekura_proto::{Dependences, Oid, Status};
use azekura_store::Space;

use crate::node::Node;
use crate::records::record::{decided_key, decode, encode, parse_transaction_key, prepared_key};
use crate::records::stored::store_status;
use crate::records::update::Update;
use crate::target::{Prepared, State, Target};
use crate::transaction::action::Actor;
use crate::transaction::key_locks::{Wanted, keys_of_all};
use crate::transaction::relied_names::keep_from_leases;

/// Whether the directory is there, asked by a target that is about to take its first entry of it.
/// Answers the directory above.
pub(crate) fn ask_directory(target: &Target, dir: Oid) -> Answer {
    let state = target.lock();
    if !state.locks.are_free(&[(crate::transaction::key_locks::LockKey::Inode(dir), true)]) {
        return Err(Status::Busy);
    }
    let inode: crate::records::record::Inode =
        crate::records::stored::load(&target.store, Space::Inode, &dir.to_bytes())?
            .ok_or(Status::NotFound)?;
    drop(state);
    match inode.parent {
        Some(parent) if inode.nlink > 0 => {
            Ok(Reply::Parent { parent, after: target.store.position() })
        }
        Some(_) => Err(Status::NotFound),
        None => Err(Status::NotDirectory),
    }
}

/// Asks the home of a directory which one is above it. What `target` commits from now on relies on
/// both being there.
pub(crate) fn directory_above(node: &Node, target: &Target, dir: Oid) -> Result<Oid, Status> {
    match node.call(dir.home(), &Request::AskDirectory { dir })? {
        Reply::Parent { parent, after } => {
            target.rely_on(&after)?;
            Ok(parent)
        }
        _ => Err(Status::Damaged),
    }
}

/// Asks the homes of directories that this target has no shard of yet. The caller keeps the shards
/// from being sealed meanwhile.
pub(crate) fn ask_homes(node: &Node, target: &Target, actions: &[Action]) -> Result<(), Status> {
    for action in actions {
        let Action::InsertEntry { dir, .. } = action else { continue };
        if target.dir_shards.get(&target.store, *dir)?.is_none() {
            directory_above(node, target, *dir)?;
        }
    }
    Ok(())
}

/// Tries the actions without writing.
pub(crate) fn check(node: &Node, target: &Target, actions: &[Action]) -> Result<(), Status> {
    let actor = Actor::new(target, &node.sessions);
    let mut update = Update::new(target);
    actions.iter().try_for_each(|action| actor.apply(&mut update, action))
}

/// First phase. A second part of the same transaction adds to the first; the same part again, from a
/// coordinator that has had no answer, adds nothing.
pub(crate) fn prepare(
    node: &Node,
    target: &Target,
    id: TransactionId,
    actions: &[Action],
) -> Result<(), Status> {
    let keys = keys_of_all(actions);
    {
        let mut state = target.lock();
        if state.prepared.get(&id).is_some_and(|prepared| prepared.has_part(actions)) {
            return Ok(());
        }
        // Another copy is being prepared, or it is over and nobody waits for this one any more.
        if state.preparing.contains(&id) || state.finished.contains(id) {
            return Err(Status::Busy);
        }
        target.take_keys(&mut state, id, &keys)?;
        state.preparing.insert(id);
    }
    // Whoever looks the names up from here on waits for the keys.
    let is_possible = keep_from_leases(node, target, node.client(), actions)
        .and_then(|_names| ask_homes(node, target, actions))
        .and_then(|()| check(node, target, actions));
    let mut state = target.lock();
    state.preparing.remove(&id);
    let prepared =
        is_possible.and_then(|()| store_prepared(target, &mut state, id, actions, &keys));
    if prepared.is_err() {
        target.give_back_keys(&mut state, id, &keys);
    }
    prepared
}

fn store_prepared(
    target: &Target,
    state: &mut State,
    id: TransactionId,
    actions: &[Action],
    keys: &[Wanted],
) -> Result<(), Status> {
    if state.finished.contains(id) {
        // It was given up meanwhile.
        return Err(Status::Busy);
    }
    let entry = state.prepared.entry(id).or_insert_with(|| Prepared {
        actions: Vec::new(),
        keys: Vec::new(),
        since: target.platform.now(),
    });
    let before = entry.actions.len();
    entry.actions.extend_from_slice(actions);
    let mut update = Update::new(target);
    update.put_bytes(Space::Transaction, &prepared_key(id), encode(&entry.actions));
    if let Err(status) = update.commit() {
        entry.actions.truncate(before);
        if before == 0 {
            state.prepared.remove(&id);
        }
        return Err(status);
    }
    entry.keys.extend_from_slice(keys);
    Ok(())
}

/// Second phase: does what was prepared, which relies on the decision. Doing it again does nothing.
pub(crate) fn commit(
    node: &Node,
    target: &Target,
    id: TransactionId,
    after: &Dependences,
) -> Result<(), Status> {
    target.rely_on(after)?;
    let mut state = target.lock();
    let Some(prepared) = state.prepared.get(&id) else { return Ok(()) };
    let actor = Actor::new(target, &node.sessions);
    let mut update = Update::new(target);
    for action in &prepared.actions {
        actor.apply(&mut update, action)?;
    }
    update.delete(Space::Transaction, &prepared_key(id));
    target.removed(&update.commit()?);
    forget(target, &mut state, id);
    Ok(())
}

/// The transaction will not be.
pub(crate) fn abort(target: &Target, id: TransactionId) -> Result<(), Status> {
    let mut state = target.lock();
    // Also where nothing is prepared yet: the part may be on its way.
    state.finished.insert(id);
    if !state.prepared.contains_key(&id) {
        return Ok(());
    }
    let mut update = Update::new(target);
    update.delete(Space::Transaction, &prepared_key(id));
    update.commit()?;
    forget(target, &mut state, id);
    Ok(())
}

fn forget(target: &Target, state: &mut State, id: TransactionId) {
    state.finished.insert(id);
    if let Some(prepared) = state.prepared.remove(&id) {
        target.give_back_keys(state, id, &prepared.keys);
    }
}

/// What this target, as coordinator, knows of a transaction.
pub(crate) fn outcome(node: &Node, target: &Target, id: TransactionId) -> Result<Outcome, Status> {
    if node.undecided.lock().contains(&id) {
        return Ok(Outcome::Pending);
    }
    let decided = target.store.get(Space::Transaction, &decided_key(id));
    Ok(match decided.map_err(store_status)? {
        Some(_) => Outcome::Committed,
        None => Outcome::Aborted,
    })
}

/// Locks again what was prepared before a restart.
pub(crate) fn reload(target: &Target) -> Result<(), Status> {
    let records =
        target.store.scan(Space::Transaction, b"p", None, usize::MAX).map_err(store_status)?;
    let mut state = target.lock();
    for (key, value) in records {
        let id = parse_transaction_key(&key).ok_or(Status::Damaged)?;
        let actions: Vec<Action> = decode(&value)?;
        let keys = keys_of_all(&actions);
        target.take_keys(&mut state, id, &keys)?;
        state.prepared.insert(id, Prepared { actions, keys, since: target.platform.now() });
    }
    Ok(())
}
