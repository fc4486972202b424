//! From a request to the function that answers it: one arm each. Owns nothing else.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use azekura_proto::limits::SERIALS_MAX;
use azekura_proto::message::{Answer, Lock, Reply, Request, Role};
use azekura_proto::{Oid, PoolMap, Status};

use crate::background::reclaim;
use crate::check;
use crate::data::{append, descriptors, files, shards, values};
use crate::namespace::entries::Opening;
use crate::namespace::numbered::{self, Numbered, Times};
use crate::namespace::rename::{EntryName, rename};
use crate::namespace::{
    attributes, containers, entries, inode, leased_names, listing, open_entry, walk,
};
use crate::node::{LocalTargets, Node};
use crate::records::stored::store_status;
use crate::report;
use crate::requests::bulk::{Bulk, BulkIn};
use crate::requests::retry::Caller;
use crate::requests::sessions::Session;
use crate::target::Target;
use crate::transaction::participant;

/// Serves requests between targets of one engine.
pub(crate) struct Dispatcher;

impl LocalTargets for Dispatcher {
    fn serve(&self, node: &Node, target: &Target, request: &Request<'_>) -> Answer {
        let asker = Asker { caller: Caller::engine(), session: None, role: Role::Engine };
        dispatch(node, target, &asker, request, &mut Bulk::new(BulkIn::Bytes(&[]), &mut Vec::new()))
    }
}

/// Who asks.
pub(crate) struct Asker<'a> {
    pub(crate) caller: Caller,
    /// `None`: another target of this engine.
    pub(crate) session: Option<&'a Arc<Session>>,
    pub(crate) role: Role,
}

fn need(session: Option<&Arc<Session>>) -> Result<&Arc<Session>, Status> {
    session.ok_or(Status::Invalid)
}

/// Answers a request.
#[allow(clippy::too_many_lines)] // One arm a request: the table is the point.
pub(crate) fn dispatch(
    node: &Node,
    target: &Target,
    asker: &Asker<'_>,
    request: &Request<'_>,
    bulk: &mut Bulk<'_, '_>,
) -> Answer {
    let Asker { caller, session, role } = asker;
    let session = *session;
    let asker = session.map(|session| session.id);
    match request {
        Request::Ping => Ok(Reply::Done),
        Request::Goodbye => {
            if let Some(session) = session.and_then(|session| node.sessions.take(session)) {
                reclaim::end_session(node, &session);
            }
            Ok(Reply::Done)
        }
        Request::Claim { open, locks } => claim(node, need(session)?, open, locks),
        Request::Map => Ok(Reply::Map(PoolMap::clone(&node.map))),
        Request::Adopt { map, engine } => node.adopt_again(map, *engine).map(|()| Reply::Done),
        Request::Report => Ok(Reply::Report(Box::new(report::report(node)))),
        Request::Space => report::space(target),

        Request::ContainerCreate { name, inheritance } => {
            containers::create(target, caller, name, *inheritance)
        }
        Request::ContainerOpen { name } => containers::open(target, name),
        Request::ContainerWalk { name, path } => {
            let container = containers::find(target, name)?;
            Ok(walk::walk_container(node, asker, container, path))
        }
        Request::ContainerList => containers::list(target),
        Request::ContainerDestroy { name } => containers::destroy(node, target, caller, name),
        Request::ContainerReclaim { container } => {
            reclaim::mark_container(target, *container).map(|()| Reply::Done)
        }
        Request::ContainerChange { name, inheritance } => {
            containers::change(node, target, asker, name, *inheritance)
        }

        Request::OpenEntry { dir, name, lease, bring_bytes } => {
            let session = need(session)?;
            session.reads_ahead.fetch_or(*lease, Ordering::Relaxed);
            let wanted = open_entry::Wanted { lease: *lease, bring_bytes: *bring_bytes };
            open_entry::open_entry(node, target, session, (*dir, name), wanted, bulk)
        }
        Request::Lookup { dir, name } => entries::lookup(node, target, asker, *dir, name),
        Request::Walk { dir, path, with_dir } => {
            walk::walk(node, target, asker, (*dir, path), *with_dir)
        }
        Request::Create { dir, name, inode, open } => {
            let opening = if *open { Opening::Open(need(session)?) } else { Opening::Not };
            entries::create(node, target, caller, opening, (*dir, name, None), inode)
        }
        Request::CreateGuarded { dir, name, inode, open, guard } => {
            let opening = if *open { Opening::Open(need(session)?) } else { Opening::Not };
            entries::create(node, target, caller, opening, (*dir, name, Some(guard)), inode)
        }
        Request::CreateToWrite { dir, name, inode, guard } => {
            let opening = Opening::ToWrite(need(session)?);
            entries::create(node, target, caller, opening, (*dir, name, guard.as_ref()), inode)
        }
        Request::CreateNumbered { dir, name, oid, inode, born, open, guard, under } => {
            let (dir, oid, born, is_opened) = (*dir, *oid, *born, *open);
            let new = Numbered { dir, name, oid, inode, born, is_opened, guard };
            numbered::create(node, target, need(session)?, new, *under)
        }
        Request::SettleTimes { oid, mtime, ctime } => {
            let times = Times { mtime: *mtime, ctime: *ctime };
            numbered::settle_times(target, need(session)?.id, *oid, times)
        }
        Request::CreateUnlinked { container, inode } => {
            entries::create_unlinked(node, target, caller, need(session)?, *container, inode)
        }
        Request::Unlink { dir, name } => entries::unlink(node, target, caller, *dir, name),
        Request::RemoveDirectory { dir, name } => {
            entries::remove_directory(node, target, caller, *dir, name)
        }
        Request::Link { oid, dir, name } => entries::link(node, target, caller, *oid, (*dir, name)),
        Request::Rename { from_dir, from_name, to_dir, to_name, mode } => {
            let from = EntryName { dir: *from_dir, name: from_name };
            let to = EntryName { dir: *to_dir, name: to_name };
            rename(node, target, caller, from, to, *mode)
        }
        Request::ReadDirectory { dir, after, page_bytes, with_attrs } => {
            listing::read_directory(node, target, asker, *dir, *after, *page_bytes, *with_attrs)
        }
        Request::DirShard { dir } => listing::shard(target, *dir),

        Request::GetAttr { oid } => attributes::get(node, target, asker, *oid),
        Request::SetAttr { oid, change } => inode::set_attr(node, target, asker, *oid, change),
        Request::SetAttrIf { oid, change, ctime } => {
            inode::set_attr_if(node, target, (caller, asker), *oid, change, *ctime)
        }
        Request::SetAttrGuarded { oid, change, guard } => {
            inode::set_attr_guarded(node, target, (caller, asker), *oid, change, guard)
        }
        Request::Open { oid } => entries::open(node, target, need(session)?, *oid),
        Request::Release { oids } => {
            let session = need(session)?;
            for oid in oids {
                reclaim::release(node, session, *oid);
            }
            Ok(Reply::Done)
        }
        Request::SetStriped { oid } => {
            inode::set_striped(target, asker, *oid).map(|()| Reply::Done)
        }
        Request::ReadLink { oid } => inode::read_link(target, *oid),
        Request::GetXattr { oid, name } => inode::get_xattr(target, *oid, name),
        Request::SetXattr { oid, name, value, mode } => {
            inode::set_xattr(target, caller, *oid, name, value, *mode)
        }
        Request::RemoveXattr { oid, name } => inode::remove_xattr(target, caller, *oid, name),
        Request::ListXattrs { oid } => inode::list_xattrs(target, *oid),

        Request::Read { data, offset, bytes } => {
            shards::read(node, target, asker, *data, (*offset, *bytes), bulk)
        }
        Request::Write { data, offset } => {
            let writer = asker.filter(|_| *role == Role::Client);
            shards::write(target, writer, *data, *offset, bulk)
        }
        Request::ReadFile { oid, offset, bytes } => {
            files::read(node, target, asker, *oid, (*offset, *bytes), bulk)
        }
        Request::WriteFile { oid, offset, guard } => {
            let writer = asker.filter(|_| *role == Role::Client);
            files::write(node, target, writer, *oid, (*offset, guard), bulk)
        }
        Request::WriteLeased { data, offset, epoch } => {
            shards::write_leased(target, need(session)?.id, *data, (*offset, *epoch), bulk)
        }
        Request::Append { oid } => append::append(node, target, caller, *oid, bulk.take_all()?),
        Request::LeaseFile { oid } => {
            let session = need(session)?;
            session.reads_ahead.store(true, Ordering::Relaxed);
            files::lease(node, target, session.id, *oid)
        }
        Request::LeaseRead { data } => {
            let session = need(session)?;
            session.reads_ahead.store(true, Ordering::Relaxed);
            shards::lease_read(target, session.id, *data)
        }
        Request::LeaseAllNames { names } => {
            let session = need(session)?;
            session.reads_ahead.store(true, Ordering::Relaxed);
            leased_names::lease_to_read(target, session.id, *names)
        }
        Request::LeaseWrite { data, instead_of } => {
            shards::lease_write(target, need(session)?.id, *data, *instead_of)
        }
        Request::ReleaseWrite { data, epoch } => {
            target.leases.release((data.oid, data.shard), need(session)?.id, *epoch);
            Ok(Reply::Done)
        }
        Request::ShardTruncate { data, bytes, exactly } => {
            shards::truncate(target, *data, *bytes, *exactly)
        }
        Request::ShardExtend { data, from, to, token } => {
            shards::extend(target, *data, (*from, *to), *token)
        }
        Request::ShardStat { data, asker: on_behalf } => {
            shards::stat(target, on_behalf.or(asker), *data)
        }
        Request::ShardAllocate { data, offset, bytes, what } => {
            let writer = asker.filter(|_| *role == Role::Client);
            shards::allocate(target, writer, *data, (*offset, *bytes), *what)
        }
        Request::ShardSeek { data, offset, hole } => {
            shards::seek(target, asker, *data, *offset, *hole)
        }
        Request::ShardTouch { data, mtime, asker: on_behalf } => {
            shards::touch(target, on_behalf.or(asker), *data, *mtime)
        }
        Request::ShardDescriptor { data } => {
            let open = || descriptors::open(target, data.oid, data.shard);
            shards::descriptor(node, target, *data, bulk, open)
        }
        Request::ShardWriteDescriptor { data, wait } => {
            let session = need(session)?.id;
            let open = || descriptors::open_to_write(target, session, *data, *wait);
            shards::descriptor(node, target, *data, bulk, open)
        }
        Request::Sync { data, data_only } => shards::sync(target, asker, *data, *data_only),
        Request::SyncAll => shards::sync_all(target),
        Request::ShardRemove { data } => shards::remove(target, *data),

        Request::AllocateSerial => target.draw_serial().map(Reply::Serial),
        Request::AllocateSerials { count: count @ 1..=SERIALS_MAX } => {
            target.draw_serials(*count).map(Reply::Serial)
        }
        Request::AllocateSerials { .. } => Err(Status::TooLarge),
        Request::ValueGet { oid, dkey, akey } => values::get(target, *oid, dkey, akey),
        Request::ValueUpdate { oid, updates } => values::update(target, caller, *oid, updates),
        Request::ValuePunch { oid, dkey } => values::punch(target, *oid, *dkey),
        Request::ValueList { oid, dkey, after, limit } => {
            values::list(target, *oid, *dkey, *after, *limit)
        }

        Request::LockAcquire { oid, lock, wait } => {
            let session = need(session)?;
            attributes::load_inode(target, *oid)?;
            node.locks.acquire(session.id, *oid, lock, *wait)?;
            Ok(Reply::Done)
        }
        Request::LockRelease { oid, lock } => {
            node.locks.release(need(session)?.id, *oid, lock);
            Ok(Reply::Done)
        }
        Request::LockTest { .. } if node.locks.is_in_grace() => Err(Status::Grace),
        Request::LockTest { oid, lock } => {
            Ok(Reply::LockInTheWay(node.locks.test(need(session)?.id, *oid, lock)))
        }

        Request::Prepare { id, actions } => {
            if actions.len() > azekura_proto::limits::ACTIONS_MAX {
                return Err(Status::TooLarge);
            }
            participant::prepare(node, target, *id, actions)?;
            Ok(Reply::DoneAfter(target.store.position()))
        }
        Request::Commit { id, after } => {
            participant::commit(node, target, *id, after)?;
            Ok(Reply::DoneAfter(target.store.position()))
        }
        Request::Hold { epoch, seq } => {
            target.store.hold(*epoch, *seq).map(Reply::Held).map_err(store_status)
        }
        Request::Abort { id } => participant::abort(target, *id).map(|()| Reply::Done),
        Request::AskOutcome { id } => {
            let outcome = participant::outcome(node, target, *id)?;
            Ok(Reply::Outcome { outcome, after: target.store.position() })
        }
        Request::AskDirectory { dir } => participant::ask_directory(target, *dir),

        Request::Scan { kind, container, after } => {
            check::scan(target, *kind, *container, after.as_deref())
        }
        Request::Repair { repair } => check::repair(node, target, repair),
        Request::Fence { slots } => fence(node, need(session)?, slots),
        Request::Time => Ok(Reply::Time(target.fine_now())),
        // It is the connection's, where there is one that can.
        Request::ShareMemory => Err(Status::Unsupported),
        // What stands in them is dispatched, for whoever may ask so.
        Request::Relay { .. } | Request::OnBehalf { .. } => Err(Status::Invalid),
    }
}

/// The session has given connections up: what they still bring is not carried out any more.
fn fence(node: &Node, session: &Session, slots: &[(u16, u32)]) -> Answer {
    for (slot, connection) in slots {
        let gate = session.gate(*slot).ok_or(Status::Invalid)?;
        gate.close(&*node.platform, *connection).map_err(|_| Status::Busy)?;
    }
    Ok(Reply::Done)
}

/// A session that this run of the engine does not know had these open and locked.
fn claim(node: &Node, session: &Arc<Session>, open: &[Oid], locks: &[(Oid, Lock)]) -> Answer {
    let mut answer = Ok(Reply::Done);
    for oid in open {
        let Some(home) = node.local_home(*oid) else { continue };
        let _state = home.lock();
        match attributes::load_inode(home, *oid) {
            Ok(_) => node.sessions.open(session, *oid)?,
            Err(status) => answer = Err(status),
        }
    }
    for (oid, lock) in locks {
        if let Err(status) = node.locks.claim(session.id, *oid, lock) {
            answer = Err(status);
        }
    }
    answer
}
