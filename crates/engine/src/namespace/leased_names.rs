//! Leases of all names of a directory. With a write lease its holder makes objects in it, and below it, that are on
//! their way when its programs have them already; with a read lease its holders know what is there, and what is not.
//! Owns that everybody else, who looks at the names or makes some, or changes what those that are made are judged by,
//! waits; and that whoever gets such a lease finds all names that were there before it.

use std::time::Duration;

use azekura_proto::message::{Answer, Reply, ShardRef};
use azekura_proto::{Oid, SessionId, Status};

use crate::node::Node;
use crate::target::{Guard, LeaseKind, RECORD_WAIT, Target};

/// Waits until nobody but `who` has names of the directory on their way to this target.
pub(crate) fn wait_for_holder(node: &Node, target: &Target, dir: Oid, who: Option<SessionId>) {
    if let Some(shard) = node.shard_on_target(dir, target.id) {
        target.leases.before_look_up((dir, shard), who);
    }
}

/// The same, until nobody but `who` relies on names not being there.
pub(crate) fn wait_to_insert(node: &Node, target: &Target, dir: Oid, who: Option<SessionId>) {
    wait_for_holder(node, target, dir, who);
    if let Some(shard) = node.shard_on_target(dir, target.id) {
        target.leases.before_insert((dir, shard), who);
    }
}

/// Whether somebody but `who` has a lease now by which no name can be made or go, and is waited for.
pub(crate) fn are_withheld(node: &Node, target: &Target, dir: Oid, who: Option<SessionId>) -> bool {
    node.shard_on_target(dir, target.id).is_some_and(|shard| {
        target.leases.is_withheld((dir, shard), who)
            || target.leases.keeps_names_away((dir, shard), who)
    })
}

/// The namespace lock of a directory's home, while nobody but `who` makes names in the directory that are on their way
/// and judged by what it is. Whoever gets leases of all its names waits for this lock before they are told, since one of
/// them is at home, and asks what the directory is after that.
pub(crate) fn lock_to_rejudge<'t>(
    node: &Node,
    home: &'t Target,
    dir: Oid,
    who: Option<SessionId>,
) -> Result<Guard<'t>, Status> {
    let deadline = home.platform.now() + RECORD_WAIT;
    let shards = || {
        let place = |shard| Some((shard, node.local(node.shard_target(dir, shard))?));
        (0..node.shards(dir)).filter_map(place)
    };
    loop {
        for (shard, target) in shards() {
            target.leases.before_look_up((dir, shard), who);
        }
        let state = home.lock();
        if !shards().any(|(shard, target)| target.leases.is_withheld((dir, shard), who)) {
            return Ok(state);
        }
        drop(state);
        if home.platform.now() > deadline {
            return Err(Status::Busy);
        }
        home.platform.sleep(Duration::from_millis(1));
    }
}

/// Answer to `LeaseAllNames`. What is being changed just then is waited for, as for a write lease.
pub(crate) fn lease_to_read(target: &Target, session: SessionId, names: ShardRef) -> Answer {
    if names.is_file {
        return Err(Status::Invalid);
    }
    target.record_leases(LeaseKind::Read)?;
    let granted = target.leases.grant_all_names((names.oid, names.shard), session);
    if granted.lease.is_zero() {
        return Ok(granted.into());
    }
    match target.wait_for_changes(names.oid) {
        // It stays, and is told to nobody.
        Err(Status::Busy) => Ok(Reply::Leased { lease_ms: 0, version: 0 }),
        waited => waited.map(|()| granted.into()),
    }
}

/// Answer to `LeaseWrite` of names. Whoever is changing one has looked for leases with the namespace locked,
/// or with its key: once both are free, what has missed this lease is there to be listed, or is gone.
pub(crate) fn lease(
    target: &Target,
    session: SessionId,
    names: ShardRef,
    instead_of: Option<u64>,
) -> Answer {
    let key = (names.oid, names.shard);
    target.record_leases(LeaseKind::Names)?;
    let granted = target.leases.grant_names(key, session, instead_of);
    if !granted.lease.is_zero()
        && let Err(status) = target.wait_for_changes(names.oid)
    {
        target.leases.release(key, session, granted.version);
        return if status == Status::Busy {
            Ok(Reply::Leased { lease_ms: 0, version: 0 })
        } else {
            Err(status)
        };
    }
    Ok(granted.into())
}
