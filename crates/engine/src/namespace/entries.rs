//! Entries of directories: finding, making, removing and linking. Owns which request is a change of
//! one target and which is a transaction. Who may do what was decided by the client.

use std::time::Duration;

use azekura_proto::attr::{DirectoryChange, DirectoryGuard, FileKind, NewInode};
use azekura_proto::limits::{
    CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, DIRECTORY_BYTES, NAME_BYTES_MAX, PATH_BYTES_MAX,
};
use azekura_proto::message::{Answer, Reply, Request, check_name};
use azekura_proto::transaction::{Action, Entry};
use azekura_proto::{Attr, ContainerId, Oid, SessionId, Status, Timestamp};
use azekura_store::Space;

use crate::namespace::attributes::{complete, load_inode, local_attributes};
use crate::namespace::leased_names;
use crate::node::Node;
use crate::records::record::{Bucket, Inode, Orphan, entry_key};
use crate::records::stored::load_unless;
use crate::records::update::Update;
use crate::requests::retry::{Caller, FirstAnswer};
use crate::requests::sessions::Session;
use crate::target::{Guard, LeaseKind, RECORD_WAIT, Target};
use crate::transaction::action::{Actor, put_inode};
use crate::transaction::coordinator::{Parts, run};
use crate::transaction::key_locks::LockKey;
use crate::transaction::participant::ask_homes;

/// The entry under a name, once no transaction is about to change it, nor a client other than `who` has
/// names of the directory on their way.
pub(crate) fn find_entry(
    node: &Node,
    target: &Target,
    who: Option<SessionId>,
    (dir, name): (Oid, &[u8]),
) -> Result<Option<Entry>, Status> {
    leased_names::wait_for_holder(node, target, dir, who);
    let key = entry_key(dir, name);
    target.wait_free(&[(LockKey::Entry(key), true)])?;
    let bucket: Option<Bucket> =
        load_unless(&target.store, Space::Entry, &key, || target.lacks_bucket(&key))?;
    Ok(bucket.and_then(|bucket| bucket.find(name).map(|slot| slot.entry)))
}

/// Answer to `Lookup`.
pub(crate) fn lookup(
    node: &Node,
    target: &Target,
    asker: Option<SessionId>,
    dir: Oid,
    name: &[u8],
) -> Answer {
    let (entry, attr) = look(node, target, asker, (dir, name))?;
    Ok(Reply::Entry { entry, attr })
}

/// What is under a name, with attributes if its inode is here.
///
/// # Errors
/// `NotFound` if nothing is.
pub(super) fn look(
    node: &Node,
    target: &Target,
    asker: Option<SessionId>,
    (dir, name): (Oid, &[u8]),
) -> Result<(Entry, Option<Box<Attr>>), Status> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Status::NameTooLong);
    }
    let entry = find_entry(node, target, asker, (dir, name))?.ok_or(Status::NotFound)?;
    Ok((entry, attributes_here(node, asker, entry)?))
}

/// The attributes of an entry's object, if its inode is here.
fn attributes_here(
    node: &Node,
    asker: Option<SessionId>,
    entry: Entry,
) -> Result<Option<Box<Attr>>, Status> {
    match local_attributes(node, asker, entry.oid) {
        // Removed since the entry was read.
        Err(Status::Stale) => Err(Status::NotFound),
        attr => attr,
    }
}

pub(super) fn check_new(new: &NewInode) -> Result<(), Status> {
    let chunk_bytes =
        new.inheritance.map_or(new.chunk_bytes, |inheritance| inheritance.chunk_bytes);
    let needs_chunks = matches!(new.kind, FileKind::Regular | FileKind::Directory);
    if needs_chunks && !(CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&chunk_bytes) {
        return Err(Status::Invalid);
    }
    if new.symlink_text.len() >= PATH_BYTES_MAX {
        return Err(Status::NameTooLong);
    }
    Ok(())
}

/// The namespace lock, with the directory's shard known to be there, the entry's key free, and nobody but
/// `who` with names of the directory on their way.
pub(crate) fn lock_for_insert<'a>(
    node: &Node,
    target: &'a Target,
    who: Option<SessionId>,
    (dir, name): (Oid, &[u8]),
) -> Result<Guard<'a>, Status> {
    let wanted = [(LockKey::Entry(entry_key(dir, name)), true), (LockKey::Shard(dir), false)];
    let deadline = target.platform.now() + RECORD_WAIT;
    loop {
        leased_names::wait_to_insert(node, target, dir, who);
        let mut state = target.lock_free(&wanted)?;
        let mut asked = Ok(());
        if target.dir_shards.get(&target.store, dir)?.is_none() {
            // The first entry of the directory here: its home has to be asked, and meanwhile the
            // shard kept from being sealed.
            let id = target.draw_transaction();
            let share = [(LockKey::Shard(dir), false)];
            target.take_keys(&mut state, id, &share)?;
            drop(state);
            let entry = Entry { oid: dir, kind: FileKind::Regular };
            let probe = [Action::InsertEntry { dir, name: name.to_vec(), entry, replaces: None }];
            asked = ask_homes(node, target, &probe);
            state = target.lock();
            target.give_back_keys(&mut state, id, &share);
        }
        // Whoever gets a lease of the names waits for this lock before it is told.
        let is_free =
            state.locks.are_free(&wanted) && !leased_names::are_withheld(node, target, dir, who);
        match asked {
            Ok(()) if is_free => return Ok(state),
            Ok(()) | Err(Status::Busy) => {}
            Err(status) => return Err(status),
        }
        drop(state);
        if target.platform.now() > deadline {
            return Err(Status::Busy);
        }
        target.platform.sleep(Duration::from_millis(1));
    }
}

/// Whether a directory still is what a creation in it was judged by.
pub(super) fn directory_is(node: &Node, dir: Oid, guard: &DirectoryGuard) -> Result<bool, Status> {
    let found = match node.local_home(dir) {
        Some(home) => DirectoryGuard::of(&load_inode(home, dir)?.attr(dir)),
        None => match node.call(dir.home(), &Request::GetAttr { oid: dir })? {
            Reply::Attr(attr) => DirectoryGuard::of(&attr),
            _ => return Err(Status::Damaged),
        },
    };
    Ok(found == *guard)
}

/// What becomes of an object for its maker.
#[derive(Clone, Copy)]
pub(crate) enum Opening<'s> {
    Not,
    /// It is held open.
    Open(&'s Session),
    /// A file is held open, and its shard here leased to be written.
    ToWrite(&'s Session),
}

impl<'s> Opening<'s> {
    fn session(self) -> Option<&'s Session> {
        match self {
            Self::Not => None,
            Self::Open(session) | Self::ToWrite(session) => Some(session),
        }
    }
}

/// Answer to `Create`, with a guard of the directory to `CreateGuarded`, and to `CreateToWrite`.
pub(crate) fn create(
    node: &Node,
    target: &Target,
    caller: &Caller,
    opening: Opening<'_>,
    place: (Oid, &[u8], Option<&DirectoryGuard>),
    new: &NewInode,
) -> Answer {
    let (dir, name, guard) = place;
    check_name(name)?;
    check_new(new)?;
    let session = opening.session();
    if matches!(opening, Opening::ToWrite(_)) {
        if new.kind != FileKind::Regular {
            return Err(Status::Invalid);
        }
        target.record_leases(LeaseKind::Write)?;
    }
    let again = |oid| created_again(node, target, session, oid, (Some(dir), new));
    let created_before = || match caller.first_answer(&target.store)? {
        Some(FirstAnswer::Created(oid)) => Ok(Some(oid)),
        _ => Ok::<_, Status>(caller.created.filter(|_| caller.resent)),
    };
    if let Some(oid) = created_before()? {
        return again(oid);
    }
    // Without the lock: its home may be at another engine.
    let holds = guard.map_or(Ok(true), |guard| directory_is(node, dir, guard))?;
    let state = lock_for_insert(node, target, caller.client(), (dir, name))?;
    let holds = match guard.filter(|_| node.local_home(dir).is_some()) {
        // Others may have been waited for.
        Some(guard) => directory_is(node, dir, guard)?,
        None => holds,
    };
    // It may have been taken away meanwhile.
    if let Some(oid) = created_before()? {
        drop(state);
        return again(oid);
    }
    let actor = Actor::new(target, &node.sessions);
    let mut update = Update::new(target);
    let bucket: Option<Bucket> = update.get(Space::Entry, &entry_key(dir, name))?;
    if let Some(slot) = bucket.and_then(|bucket| bucket.find(name).cloned()) {
        drop(state);
        if caller.resent && is_own_work(target, caller, slot.entry.oid) {
            return again(slot.entry.oid);
        }
        if !holds {
            return Err(Status::ConditionFailed);
        }
        return existing(node, caller.client(), session, slot.entry);
    }
    if !holds {
        return Err(Status::ConditionFailed);
    }
    let oid = Oid::new(dir.container(), new.class, target.id, target.draw_serial()?);
    let entry = Entry { oid, kind: new.kind };
    actor.insert_entry(&mut update, dir, name, entry, None)?;
    let mut inode = Inode::new(new, Some(dir), actor.now);
    inode.born_of = caller.origin();
    put_inode(&mut update, oid, &inode);
    target.store.shard_is_new(oid);
    if let Some(session) = session {
        node.sessions.open(session, oid)?;
    }
    // Before anybody else can find it.
    let lease = match opening {
        Opening::ToWrite(session) => {
            Some(target.leases.grant_write((oid, 0), session.id, None, || false))
        }
        Opening::Not | Opening::Open(_) => None,
    };
    if let Err(status) = update.commit() {
        if let Some(session) = session {
            if let Some(lease) = lease {
                target.leases.release((oid, 0), session.id, lease.version);
            }
            node.sessions.release(session, oid);
        }
        return Err(status);
    }
    drop(state);
    target.objects.add(oid);
    let mut attr = newborn(oid, &inode);
    // In the answer alone: the exact time is later than the others of the new object.
    attr.btime = DirectoryChange { time: actor.changed }.as_birth();
    let attr = Box::new(attr);
    Ok(match lease {
        Some(lease) => Reply::CreatedToWrite {
            attr,
            lease_ms: lease.lease.as_millis() as u32,
            version: lease.version,
        },
        None => Reply::Created(attr),
    })
}

/// The attributes of an object that nobody has done anything with.
fn newborn(oid: Oid, inode: &Inode) -> Attr {
    let mut attr = inode.attr(oid);
    if inode.kind == FileKind::Directory {
        attr.size = DIRECTORY_BYTES;
        attr.blocks_512 = DIRECTORY_BYTES / 512;
    }
    attr
}

/// The name is taken: the caller gets what is there, opened if that can be done here.
fn existing(
    node: &Node,
    asker: Option<SessionId>,
    session: Option<&Session>,
    entry: Entry,
) -> Answer {
    if let (Some(session), Some(home)) = (session, node.local_home(entry.oid))
        && entry.kind == FileKind::Regular
    {
        match open(node, home, session, entry.oid) {
            Ok(Reply::Attr(attr)) => {
                return Ok(Reply::Entry { entry, attr: Some(attr) });
            }
            Ok(_) | Err(Status::Stale) => return Err(Status::Busy),
            Err(status) => return Err(status),
        }
    }
    Ok(Reply::Entry { entry, attr: attributes_here(node, asker, entry)? })
}

/// Whether the object was made by the first sending of this very request. The inode itself says so,
/// which spares every creation a record of its own.
fn is_own_work(target: &Target, caller: &Caller, oid: Oid) -> bool {
    let origin = caller.origin();
    origin.is_some() && load_inode(target, oid).is_ok_and(|inode| inode.born_of == origin)
}

/// The answer to a request that has made an object before, whatever has become of that since.
fn created_again(
    node: &Node,
    target: &Target,
    session: Option<&Session>,
    oid: Oid,
    (parent, new): (Option<Oid>, &NewInode),
) -> Answer {
    let state = target.lock();
    let inode = match load_inode(target, oid) {
        // Others have removed it, and nobody wants it open.
        Err(Status::Stale) if session.is_none() => {
            let inode = Inode::new(new, parent, target.now());
            return Ok(Reply::Created(Box::new(newborn(oid, &inode))));
        }
        inode => inode?,
    };
    if let Some(session) = session {
        node.sessions.open(session, oid)?;
    }
    drop(state);
    let asker = session.map(|session| session.id);
    Ok(Reply::Created(Box::new(complete(node, target, asker, oid, &inode)?)))
}

/// Answer to `CreateUnlinked`.
pub(crate) fn create_unlinked(
    node: &Node,
    target: &Target,
    caller: &Caller,
    session: &Session,
    container: ContainerId,
    new: &NewInode,
) -> Answer {
    check_new(new)?;
    // A character device becomes the whiteout of a rename.
    if !matches!(new.kind, FileKind::Regular | FileKind::CharDevice) {
        return Err(Status::Invalid);
    }
    if let Some(FirstAnswer::Created(oid)) = caller.first_answer(&target.store)? {
        return created_again(node, target, Some(session), oid, (None, new));
    }
    let oid = Oid::new(container, new.class, target.id, target.draw_serial()?);
    let mut inode = Inode::new(new, None, target.now());
    inode.nlink = 0;
    let state = target.lock();
    node.sessions.open(session, oid)?;
    let mut update = Update::new(target);
    update.put(Space::Inode, &oid.to_bytes(), &inode);
    update.put(Space::Orphan, &oid.to_bytes(), &Orphan::Temporary);
    caller.record(&mut update, FirstAnswer::Created(oid));
    update.commit()?;
    drop(state);
    target.objects.add(oid);
    Ok(Reply::Created(Box::new(inode.attr(oid))))
}

/// Answer to `Open`: registers the open reference under the namespace lock, so that an unlink sees it.
pub(crate) fn open(node: &Node, target: &Target, session: &Session, oid: Oid) -> Answer {
    let state = target.lock();
    let inode = load_inode(target, oid)?;
    node.sessions.open(session, oid)?;
    drop(state);
    Ok(Reply::Attr(Box::new(complete(node, target, Some(session.id), oid, &inode)?)))
}

/// Takes a name away in one transaction with `further`, which adds what else is to be done or says why
/// not. `None` if an earlier sending of the request has done it.
fn remove_entry(
    node: &Node,
    target: &Target,
    caller: &Caller,
    (dir, name): (Oid, &[u8]),
    further: impl Fn(&mut Parts, Entry) -> Result<(), Status>,
) -> Result<Option<Timestamp>, Status> {
    check_name(name)?;
    if caller.first_answer(&target.store)?.is_some() {
        return Ok(None);
    }
    let stamp = run(node, target, caller, || {
        let found = find_entry(node, target, caller.client(), (dir, name))?;
        let entry = found.ok_or(Status::NotFound)?;
        let mut parts = Parts::default();
        parts.add(target.id, Action::RemoveEntry { dir, name: name.to_vec(), entry });
        further(&mut parts, entry)?;
        Ok(parts)
    })?;
    Ok(Some(stamp))
}

/// Answer to `Unlink`.
pub(crate) fn unlink(
    node: &Node,
    target: &Target,
    caller: &Caller,
    dir: Oid,
    name: &[u8],
) -> Answer {
    let stamp = remove_entry(node, target, caller, (dir, name), |parts, entry| {
        if entry.kind == FileKind::Directory {
            return Err(Status::IsDirectory);
        }
        parts.add(entry.oid.home(), Action::AddLinks { oid: entry.oid, links: -1 });
        Ok(())
    })?;
    Ok(stamp.map_or(Reply::Done, Reply::Changed))
}

/// The actions that remove an empty directory, but for its entry.
pub(crate) fn add_directory_removal(node: &Node, parts: &mut Parts, dir: Oid) {
    parts.add(dir.home(), Action::RemoveDirectory { dir });
    for shard in 0..node.shards(dir) {
        parts.add(node.shard_target(dir, shard), Action::SealShard { dir });
    }
}

/// Answer to `RemoveDirectory`.
pub(crate) fn remove_directory(
    node: &Node,
    target: &Target,
    caller: &Caller,
    dir: Oid,
    name: &[u8],
) -> Answer {
    let stamp = remove_entry(node, target, caller, (dir, name), |parts, entry| {
        if entry.kind != FileKind::Directory {
            return Err(Status::NotDirectory);
        }
        add_directory_removal(node, parts, entry.oid);
        Ok(())
    })?;
    Ok(stamp.map_or(Reply::Done, Reply::Changed))
}

/// Answer to `Link`.
pub(crate) fn link(
    node: &Node,
    target: &Target,
    caller: &Caller,
    oid: Oid,
    place: (Oid, &[u8]),
) -> Answer {
    let (dir, name) = place;
    check_name(name)?;
    if caller.first_answer(&target.store)?.is_some() {
        return Ok(Reply::Done);
    }
    if oid.container() != dir.container() {
        return Err(Status::Invalid);
    }
    let stamp = run(node, target, caller, || {
        if find_entry(node, target, caller.client(), (dir, name))?.is_some() {
            return Err(Status::Exists);
        }
        let kind = match node.call(oid.home(), &Request::GetAttr { oid })? {
            Reply::Attr(attr) => attr.kind,
            _ => return Err(Status::Damaged),
        };
        if kind == FileKind::Directory {
            return Err(Status::IsDirectory);
        }
        let entry = Entry { oid, kind };
        let mut parts = Parts::default();
        let name = name.to_vec();
        parts.add(target.id, Action::InsertEntry { dir, name, entry, replaces: None });
        parts.add(oid.home(), Action::AddLinks { oid, links: 1 });
        Ok(parts)
    })?;
    Ok(Reply::Changed(stamp))
}
