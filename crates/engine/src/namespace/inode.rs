//! Changing inodes: attributes, length, extended attributes. Owns the truncation of striped files,
//! which their home carries out. Who may change what was decided by the client.

use std::ops::ControlFlow;

use azekura_proto::attr::{AttrChange, CAPABILITY_XATTR, FileGuard, FileKind, SetTime};
use azekura_proto::limits::{
    CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, FILE_BYTES_MAX, XATTR_LIST_BYTES_MAX, XATTR_NAME_BYTES_MAX,
    XATTR_VALUE_BYTES_MAX,
};
use azekura_proto::message::{Answer, Reply, Request, ShardRef, XattrMode};
use azekura_proto::{Geometry, Oid, SessionId, Status, Timestamp};
use azekura_store::Space;

use crate::data::descriptors;
use crate::data::leases::Change;
use crate::namespace::attributes::{self, complete, load_inode};
use crate::namespace::leased_names;
use crate::node::Node;
use crate::records::record::{Inode, xattr_key};
use crate::records::stored::store_status;
use crate::records::update::Update;
use crate::requests::retry::{Caller, FirstAnswer};
use crate::target::{Guard, Target};

fn resolve(time: SetTime, now: Timestamp) -> Timestamp {
    match time {
        SetTime::Now => now,
        SetTime::At(time) => time,
    }
}

/// Reads, changes and writes an inode in one atomic step.
pub(crate) fn change_inode(
    target: &Target,
    oid: Oid,
    change: impl FnOnce(&mut Inode) -> Result<(), Status>,
) -> Result<Inode, Status> {
    change_inode_for(target, target.lock(), None, oid, change)
}

/// The same under the namespace lock, with a record of the answer for a caller who may ask twice.
fn change_inode_for(
    target: &Target,
    _state: Guard<'_>,
    caller: Option<&Caller>,
    oid: Oid,
    change: impl FnOnce(&mut Inode) -> Result<(), Status>,
) -> Result<Inode, Status> {
    let mut inode = load_inode(target, oid)?;
    let before = inode.clone();
    change(&mut inode)?;
    if inode != before || caller.is_some() {
        let mut update = Update::new(target);
        update.put(Space::Inode, &oid.to_bytes(), &inode);
        if let Some(caller) = caller {
            caller.record(&mut update, FirstAnswer::Done);
        }
        update.commit()?;
    }
    Ok(inode)
}

/// Waits until nobody but `who` relies on the attributes of a file, and keeps others from it until what it
/// gives is dropped. To be called without the namespace lock.
pub(crate) fn before_change(
    target: &Target,
    who: Option<SessionId>,
    oid: Oid,
) -> Result<Option<Change<'_>>, Status> {
    let is_file = load_inode(target, oid)?.kind == FileKind::Regular;
    Ok(is_file.then(|| target.leases.before_write((oid, 0), who)))
}

/// Answer to `SetAttr`.
pub(crate) fn set_attr(
    node: &Node,
    target: &Target,
    asker: Option<SessionId>,
    oid: Oid,
    change: &AttrChange,
) -> Answer {
    let _size_guard = change.size.map(|_| target.lock_size(oid));
    change_attr(node, target, asker, oid, change, None)
}

/// Answer to `SetAttrIf`.
pub(crate) fn set_attr_if(
    node: &Node,
    target: &Target,
    (caller, asker): (&Caller, Option<SessionId>),
    oid: Oid,
    change: &AttrChange,
    ctime: Timestamp,
) -> Answer {
    if caller.first_answer(&target.store)?.is_some() {
        return attributes::get(node, target, asker, oid);
    }
    let _size_guard = change.size.map(|_| target.lock_size(oid));
    let inode = load_inode(target, oid)?;
    if complete(node, target, asker, oid, &inode)?.ctime != ctime {
        return Err(Status::ConditionFailed);
    }
    change_attr(node, target, asker, oid, change, Some((caller, Seen::Ctime(inode.ctime))))
}

/// Answer to `SetAttrGuarded`.
pub(crate) fn set_attr_guarded(
    node: &Node,
    target: &Target,
    (caller, asker): (&Caller, Option<SessionId>),
    oid: Oid,
    change: &AttrChange,
    guard: &FileGuard,
) -> Answer {
    if change.chunk_bytes.is_some() {
        return Err(Status::Invalid);
    }
    if caller.first_answer(&target.store)?.is_some() {
        // The first time may have ended before the file's own times were set.
        let _change = before_change(target, asker, oid)?;
        let inode = load_inode(target, oid)?;
        return finish_change(node, target, asker, (oid, &inode), change, target.now());
    }
    let _size_guard = change.size.map(|_| target.lock_size(oid));
    if change.size.is_some() && load_inode(target, oid)?.guard() != *guard {
        // Before anything is cut.
        return Err(Status::ConditionFailed);
    }
    change_attr(node, target, asker, oid, change, Some((caller, Seen::Guard(*guard))))
}

/// What an inode was when its change was judged.
#[derive(Clone, Copy)]
enum Seen {
    /// Its time of last change.
    Ctime(Timestamp),
    /// What decides who may change it.
    Guard(FileGuard),
}

impl Seen {
    fn still_holds(self, inode: &Inode) -> bool {
        match self {
            Self::Ctime(ctime) => inode.ctime == ctime,
            Self::Guard(guard) => inode.guard() == guard,
        }
    }
}

/// The caller has the file's size lock if its length changes. `seen`: who asks for the change of an inode
/// that is as it was seen, and may ask twice.
fn change_attr(
    node: &Node,
    target: &Target,
    asker: Option<SessionId>,
    oid: Oid,
    change: &AttrChange,
    seen: Option<(&Caller, Seen)>,
) -> Answer {
    if let Some(size) = change.size {
        truncate(node, target, asker, oid, size)?;
    }
    let _change = before_change(target, asker, oid)?;
    let decides = change.mode.is_some()
        || change.clear_mode_bits != 0
        || change.uid.is_some()
        || change.gid.is_some()
        || change.inheritance.is_some();
    // Nobody gets a descriptor while the change is under way.
    let withheld_bits = descriptors::withheld_bits(target, oid, change.mode);
    let still_owed = owed_after(node, target, oid, change)?;
    let state = if decides && load_inode(target, oid)?.kind == FileKind::Directory {
        leased_names::lock_to_rejudge(node, target, oid, asker)?
    } else {
        target.lock()
    };
    let stamp = target.now();
    let fine_stamp = target.fine_now();
    let caller = seen.map(|(caller, _)| caller);
    let inode = change_inode_for(target, state, caller, oid, |inode| {
        // Once a file has been cut there is no way back.
        if change.size.is_none() && seen.is_some_and(|(_, seen)| !seen.still_holds(inode)) {
            return Err(Status::ConditionFailed);
        }
        if change.chunk_bytes.is_some() {
            // Under the lock that an open takes: whoever comes after it has the new size.
            refuse_if_used(node, target, oid)?;
        }
        apply(inode, change, stamp, fine_stamp)?;
        if inode.kind == FileKind::Regular {
            inode.mode &= !withheld_bits;
        }
        Ok(())
    })?;
    let answer = finish_change(node, target, asker, (oid, &inode), change, stamp);
    let owed = still_owed | change.mode.map_or(0, |mode| mode & withheld_bits);
    if let Ok(Reply::Attr(attr)) = &answer
        && attr.kind == FileKind::Regular
    {
        node.owed_bits.set(attr, owed);
    }
    answer
}

/// The set-id bits that a file is owed still once its attributes have changed so: those that it is owed now, after a
/// change of nothing but times.
fn owed_after(node: &Node, target: &Target, oid: Oid, change: &AttrChange) -> Result<u16, Status> {
    let AttrChange { mode, uid, gid, size, clear_mode_bits, .. } = change;
    let is_of_times = (mode, uid, gid, size, *clear_mode_bits) == (&None, &None, &None, &None, 0);
    let all = node.owed_bits.all();
    let Some(owed) = all.iter().find(|owed| is_of_times && owed.oid == oid) else { return Ok(0) };
    let attr = complete(node, target, None, oid, &load_inode(target, oid)?)?;
    Ok(if owed.is_as_seen(&attr) { owed.bits } else { 0 })
}

/// What a changed inode entails for the files of its data; and the answer.
fn finish_change(
    node: &Node,
    target: &Target,
    asker: Option<SessionId>,
    (oid, inode): (Oid, &Inode),
    change: &AttrChange,
    stamp: Timestamp,
) -> Answer {
    if inode.kind == FileKind::Regular {
        if let Some(mtime) = change.mtime {
            touch_shards(node, target, asker, (oid, inode), resolve(mtime, stamp))?;
        } else if change.size.is_some() {
            touch_shards(node, target, asker, (oid, inode), stamp)?;
        }
    }
    Ok(Reply::Attr(Box::new(complete(node, target, asker, oid, inode)?)))
}

/// `fine_stamp`: the exact time, by which a directory's shards are judged, and by which every change shows: in the
/// steps of the coarse clock a time that is set back right after a write would hide both.
fn apply(
    inode: &mut Inode,
    change: &AttrChange,
    stamp: Timestamp,
    fine_stamp: Timestamp,
) -> Result<(), Status> {
    if let Some(mode) = change.mode {
        inode.mode = mode & 0o7777;
    }
    inode.mode &= !change.clear_mode_bits;
    inode.uid = change.uid.unwrap_or(inode.uid);
    inode.gid = change.gid.unwrap_or(inode.gid);
    if let Some(atime) = change.atime {
        inode.atime = resolve(atime, stamp);
    }
    if let Some(mtime) = change.mtime {
        inode.mtime = resolve(mtime, stamp);
        inode.mtime_set = (inode.kind == FileKind::Directory).then_some(fine_stamp);
    } else if change.size.is_some() {
        inode.mtime = stamp;
    }
    if let Some(inheritance) = change.inheritance {
        if inode.kind != FileKind::Directory {
            return Err(Status::NotDirectory);
        }
        check_chunk(inheritance.chunk_bytes)?;
        inode.inheritance = Some(inheritance);
    }
    if let Some(chunk_bytes) = change.chunk_bytes {
        if inode.kind != FileKind::Regular || inode.striped {
            return Err(Status::Invalid);
        }
        check_chunk(chunk_bytes)?;
        inode.chunk_bytes = chunk_bytes;
    }
    inode.ctime = fine_stamp;
    Ok(())
}

fn check_chunk(chunk_bytes: u32) -> Result<(), Status> {
    let valid = (CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&chunk_bytes);
    if valid { Ok(()) } else { Err(Status::Invalid) }
}

/// Whoever has the file open computes places with the chunk size that it had then.
fn refuse_if_used(node: &Node, target: &Target, oid: Oid) -> Result<(), Status> {
    if node.sessions.awaits_claims() {
        // Somebody who has not come back yet may have it open.
        return Err(Status::Grace);
    }
    if node.sessions.is_open(oid) {
        return Err(Status::Invalid);
    }
    let stat = target.store.shard_stat(oid, 0).map_err(store_status)?;
    if stat.is_some_and(|stat| stat.bytes > 0) { Err(Status::Invalid) } else { Ok(()) }
}

/// Gives every shard that exists the time of last write.
fn touch_shards(
    node: &Node,
    target: &Target,
    asker: Option<SessionId>,
    (oid, inode): (Oid, &Inode),
    mtime: Timestamp,
) -> Result<(), Status> {
    if !inode.striped {
        // Writes that were answered before this must not be later than it.
        target.leases.before_read((oid, 0), asker);
    }
    if inode.striped {
        node.call_shards(oid, |shard| Request::ShardTouch {
            data: ShardRef { oid, shard, is_file: false },
            mtime,
            asker,
        })?;
    } else if let Some(file) = target.store.shard(oid, 0).map_err(store_status)? {
        file.set_mtime(mtime).map_err(store_status)?;
    }
    Ok(())
}

/// Cuts or extends a file. The caller has its size lock.
fn truncate(
    node: &Node,
    target: &Target,
    asker: Option<SessionId>,
    oid: Oid,
    size: u64,
) -> Result<(), Status> {
    if size > FILE_BYTES_MAX {
        return Err(Status::FileTooBig);
    }
    let inode = load_inode(target, oid)?;
    match inode.kind {
        FileKind::Regular => {}
        FileKind::Directory => return Err(Status::IsDirectory),
        _ => return Err(Status::Invalid),
    }
    if size < complete(node, target, asker, oid, &inode)?.size {
        // Before anything is cut: a recorded append must never make the file long again, nor be written
        // where it was.
        change_inode(target, oid, |inode| {
            inode.truncations = inode.truncations.wrapping_add(1);
            Ok(())
        })?;
    }
    let geometry = Geometry::new(inode.chunk_bytes, node.shards(oid));
    if !inode.striped && geometry.is_within_first_chunk(size) {
        let _change = target.leases.before_write((oid, 0), asker);
        let file = if size > 0 {
            Some(target.store.shard_create(oid, 0).map_err(store_status)?)
        } else {
            target.store.shard(oid, 0).map_err(store_status)?
        };
        return match file {
            Some(file) => file.truncate(size).map_err(store_status),
            None => Ok(()),
        };
    }
    set_striped(target, asker, oid)?;
    let last = geometry.last_shard(size);
    node.call_shards(oid, |shard| Request::ShardTruncate {
        data: ShardRef { oid, shard, is_file: false },
        bytes: geometry.local_bytes(shard, size),
        exactly: size > 0 && shard == last,
    })
    .map(drop)
}

/// The file may have data beyond chunk 0 from now on, at the wish of the session `who`. A lease of the home
/// alone says nothing about its length any more.
pub(crate) fn set_striped(target: &Target, who: Option<SessionId>, oid: Oid) -> Result<(), Status> {
    if load_inode(target, oid)?.striped {
        return Ok(());
    }
    let _change = before_change(target, who, oid)?;
    change_inode(target, oid, |inode| {
        if inode.kind != FileKind::Regular {
            return Err(Status::Invalid);
        }
        inode.striped = true;
        Ok(())
    })
    .map(drop)
}

/// Answer to `ReadLink`.
pub(crate) fn read_link(target: &Target, oid: Oid) -> Answer {
    let inode = load_inode(target, oid)?;
    if inode.kind != FileKind::Symlink {
        return Err(Status::Invalid);
    }
    Ok(Reply::Bytes(inode.symlink_text))
}

/// Answer to `GetXattr`.
pub(crate) fn get_xattr(target: &Target, oid: Oid, name: &[u8]) -> Answer {
    if !load_inode(target, oid)?.has_xattrs {
        return Err(Status::NotFound);
    }
    let value = target.store.get(Space::Xattr, &xattr_key(oid, name)).map_err(store_status)?;
    value.map(|value| Reply::Bytes(value.to_vec())).ok_or(Status::NotFound)
}

fn xattr_names(target: &Target, oid: Oid) -> Result<Vec<Vec<u8>>, Status> {
    let mut names = Vec::new();
    // The values may be thousands of times as long.
    let visit = |key: &[u8], _| {
        names.push(key.get(16..).unwrap_or_default().to_vec());
        ControlFlow::Continue(())
    };
    target.store.scan_visit(Space::Xattr, &oid.to_bytes(), None, visit).map_err(store_status)?;
    Ok(names)
}

/// Answer to `ListXattrs`.
pub(crate) fn list_xattrs(target: &Target, oid: Oid) -> Answer {
    if !load_inode(target, oid)?.has_xattrs {
        return Ok(Reply::Bytes(Vec::new()));
    }
    let mut list = Vec::new();
    for name in xattr_names(target, oid)? {
        list.extend_from_slice(&name);
        list.push(0);
    }
    Ok(Reply::Bytes(list))
}

/// Answer to `SetXattr`.
pub(crate) fn set_xattr(
    target: &Target,
    caller: &Caller,
    oid: Oid,
    name: &[u8],
    value: &[u8],
    mode: XattrMode,
) -> Answer {
    if name.is_empty() || name.len() > XATTR_NAME_BYTES_MAX || name.contains(&0) {
        return Err(Status::Invalid);
    }
    if value.len() > XATTR_VALUE_BYTES_MAX {
        return Err(Status::TooLarge);
    }
    if caller.first_answer(&target.store)?.is_some() {
        return Ok(Reply::Done);
    }
    let _change = before_change(target, caller.client(), oid)?;
    if name == CAPABILITY_XATTR && descriptors::may_be_written(target, oid, 0) {
        // A write would have to take it away, and those past the engine are not seen.
        return Err(Status::Busy);
    }
    let _state = target.lock();
    let mut inode = load_inode(target, oid)?;
    let key = xattr_key(oid, name);
    let exists = target.store.get(Space::Xattr, &key).map_err(store_status)?.is_some();
    match (mode, exists) {
        (XattrMode::Create, true) => return Err(Status::Exists),
        (XattrMode::Replace, false) => return Err(Status::NotFound),
        _ => {}
    }
    if !exists {
        let names = if inode.has_xattrs { xattr_names(target, oid)? } else { Vec::new() };
        let used: usize = names.iter().map(|name| name.len() + 1).sum();
        if used + name.len() + 1 > XATTR_LIST_BYTES_MAX {
            return Err(Status::NoSpace);
        }
    }
    inode.has_xattrs = true;
    inode.ctime = target.fine_now();
    let mut update = Update::new(target);
    update.put_bytes(Space::Xattr, &key, value.to_vec());
    update.put(Space::Inode, &oid.to_bytes(), &inode);
    caller.record(&mut update, FirstAnswer::Done);
    update.commit()?;
    Ok(Reply::Done)
}

/// Answer to `RemoveXattr`.
pub(crate) fn remove_xattr(target: &Target, caller: &Caller, oid: Oid, name: &[u8]) -> Answer {
    if caller.first_answer(&target.store)?.is_some() {
        return Ok(Reply::Done);
    }
    let _change = before_change(target, caller.client(), oid)?;
    let _state = target.lock();
    let mut inode = load_inode(target, oid)?;
    let key = xattr_key(oid, name);
    if target.store.get(Space::Xattr, &key).map_err(store_status)?.is_none() {
        return Err(Status::NotFound);
    }
    inode.has_xattrs = xattr_names(target, oid)?.len() > 1;
    inode.ctime = target.fine_now();
    let mut update = Update::new(target);
    update.delete(Space::Xattr, &key);
    update.put(Space::Inode, &oid.to_bytes(), &inode);
    caller.record(&mut update, FirstAnswer::Done);
    update.commit()?;
    Ok(Reply::Done)
}
