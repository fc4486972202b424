//! Objects whose makers have numbered them, so that they can be told of before they are here. Owns that making
//! one again does nothing, and that nothing is made under a lease that is over.

use azekura_proto::attr::{DirectoryGuard, FileKind, NewInode};
use azekura_proto::ids::SERIAL_MAX;
use azekura_proto::limits::SLOTS_MAX;
use azekura_proto::message::{Answer, NamesLease, Reply, check_name};
use azekura_proto::transaction::Entry;
use azekura_proto::{Oid, SessionId, Status, Timestamp};
use azekura_store::Space;

use crate::namespace::attributes::load_inode;
use crate::namespace::entries::{check_new, directory_is, lock_for_insert};
use crate::namespace::inode::change_inode;
use crate::node::Node;
use crate::records::record::{Bucket, Inode, Origin, entry_key};
use crate::records::stored::store_status;
use crate::records::update::Update;
use crate::requests::sessions::Session;
use crate::target::Target;
use crate::transaction::action::{Actor, put_inode};

/// An object as its maker has it.
#[derive(Clone, Copy)]
pub(crate) struct Numbered<'r> {
    pub(crate) dir: Oid,
    pub(crate) name: &'r [u8],
    pub(crate) oid: Oid,
    pub(crate) inode: &'r NewInode,
    pub(crate) born: Timestamp,
    pub(crate) is_opened: bool,
    pub(crate) guard: &'r DirectoryGuard,
}

/// What a maker has told of when its file was last changed.
#[derive(Clone, Copy)]
pub(crate) struct Times {
    pub(crate) mtime: Timestamp,
    pub(crate) ctime: Timestamp,
}

/// Answer to `SettleTimes`.
pub(crate) fn settle_times(target: &Target, session: SessionId, oid: Oid, times: Times) -> Answer {
    let _change = target.leases.before_write((oid, 0), Some(session));
    let now = target.fine_now();
    let Times { mtime, ctime } = Times { mtime: times.mtime, ctime: times.ctime.min(now) };
    change_inode(target, oid, |inode| {
        let is_own = inode.born_of.is_some_and(|origin| origin.session == session);
        if !is_own || inode.kind != FileKind::Regular || inode.striped {
            return Err(Status::Invalid);
        }
        (inode.mtime, inode.ctime) = (mtime, ctime);
        Ok(())
    })?;
    // By the same time of last change the inode's counts: see `attributes::complete`.
    if let Some(file) = target.store.shard(oid, 0).map_err(store_status)? {
        file.set_mtime(mtime).map_err(store_status)?;
    }
    Ok(Reply::Done)
}

/// Answer to `CreateNumbered`.
pub(crate) fn create(
    node: &Node,
    target: &Target,
    session: &Session,
    new: Numbered<'_>,
    under: Option<NamesLease>,
) -> Answer {
    check_name(new.name)?;
    check_new(new.inode)?;
    let fits = new.oid.home() == target.id
        && new.oid.container() == new.dir.container()
        && new.oid.class() == new.inode.class
        && target.has_given(new.oid.inode_number() & SERIAL_MAX);
    if !fits {
        return Err(Status::Invalid);
    }
    let Some(NamesLease { dir, shard, epoch }) = under else {
        make(node, target, session, new)?;
        return Ok(Reply::Leased { lease_ms: 0, version: 0 });
    };
    // Of a directory above it may be on another target of the engine.
    let leases = &node.local(node.shard_target(dir, shard)).ok_or(Status::Invalid)?.leases;
    let granted =
        leases.begin_write((dir, shard), session.id, epoch).ok_or(Status::ConditionFailed)?;
    let made = make(node, target, session, new);
    leases.end_write((dir, shard), epoch);
    made.map(|()| granted.into())
}

fn make(node: &Node, target: &Target, session: &Session, new: Numbered<'_>) -> Result<(), Status> {
    let Numbered { dir, name, oid, .. } = new;
    // Without the lock: its home may be at another engine.
    let holds = directory_is(node, dir, new.guard)?;
    let state = lock_for_insert(node, target, Some(session.id), (dir, name))?;
    // Others may have been waited for.
    let holds =
        if node.local_home(dir).is_some() { directory_is(node, dir, new.guard)? } else { holds };
    let mut update = Update::new(target);
    let bucket: Option<Bucket> = update.get(Space::Entry, &entry_key(dir, name))?;
    let there = bucket.and_then(|bucket| bucket.find(name).map(|slot| slot.entry.oid));
    // Made before, and by the same client; it may have been given another name since.
    let is_made = match load_inode(target, oid) {
        Ok(inode) if inode.born_of.is_some_and(|origin| origin.session == session.id) => true,
        // Somebody else has made an object of this number.
        Ok(_) => return Err(Status::Invalid),
        Err(Status::Stale) => false,
        Err(status) => return Err(status),
    };
    if !is_made && there.is_some() {
        return Err(Status::Exists);
    }
    if !is_made && !holds {
        return Err(Status::ConditionFailed);
    }
    let actor = Actor::new(target, &node.sessions);
    if !is_made {
        let entry = Entry { oid, kind: new.inode.kind };
        actor.insert_entry(&mut update, dir, name, entry, None)?;
        let mut inode = Inode::new(new.inode, Some(dir), new.born.min(actor.now));
        inode.born_of = Some(Origin { session: session.id, slot: SLOTS_MAX, sequence: 0 });
        put_inode(&mut update, oid, &inode);
        target.store.shard_is_new(oid);
    }
    if new.is_opened {
        node.sessions.open(session, oid)?;
    }
    if is_made {
        return Ok(());
    }
    if let Err(status) = update.commit() {
        if new.is_opened {
            node.sessions.release(session, oid);
        }
        return Err(status);
    }
    drop(state);
    target.objects.add(oid);
    Ok(())
}
