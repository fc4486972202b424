//! From a request to the function that answers it: one arm each. Owns nothing else. Requests that
//! move bulk data are the connection's business and do not come here, but for those between
//! targets of one engine.

use std::sync::Arc;

use azekura_proto::message::{Answer, Lock, Reply, Request};
use azekura_proto::{Oid, Status};

use crate::node::Node;
use crate::rename::{Place, rename};
use crate::retry::Caller;
use crate::sessions::Session;
use crate::target::Target;
use crate::{
    attributes, check, containers, data, inode, listing, namespace, participant, reclaim, report,
    values,
};

/// Serves a request between targets of one engine.
pub(crate) fn local_call(node: &Node, target: &Target, request: &Request<'_>) -> Answer {
    dispatch(node, target, &Caller::engine(), None, request)
}

fn need(session: Option<&Arc<Session>>) -> Result<&Arc<Session>, Status> {
    session.ok_or(Status::Invalid)
}

/// Answers a request.
#[allow(clippy::too_many_lines)] // One arm a request: the table is the point.
pub(crate) fn dispatch(
    node: &Node,
    target: &Target,
    caller: &Caller,
    session: Option<&Arc<Session>>,
    request: &Request<'_>,
) -> Answer {
    let asker = session.map(|session| session.id);
    match request {
        Request::Ping | Request::Goodbye => Ok(Reply::Done),
        Request::Claim { holds, locks } => claim(node, need(session)?, holds, locks),
        Request::Map => Ok(Reply::Map(node.map.clone())),
        // Only an engine without a pool takes one; the server sees to that.
        Request::Adopt { .. } => Err(Status::Exists),
        Request::Report => Ok(Reply::Report(Box::new(report::report(node)))),
        Request::Space => report::space(target),

        Request::ContainerCreate { name, inheritance } => {
            containers::create(target, caller, name, *inheritance)
        }
        Request::ContainerOpen { name } => containers::open(target, name),
        Request::ContainerList => containers::list(target),
        Request::ContainerDestroy { name } => containers::destroy(node, target, caller, name),
        Request::ContainerReclaim { container } => {
            reclaim::mark_container(target, *container).map(|()| Reply::Done)
        }
        Request::ContainerChange { name, inheritance } => {
            containers::change(target, name, *inheritance)
        }

        Request::Lookup { dir, name } => namespace::lookup(node, target, asker, *dir, name),
        Request::Create { dir, name, inode, hold } => {
            let session = if *hold { Some(need(session)?) } else { None };
            namespace::create(node, target, caller, session.map(AsRef::as_ref), (*dir, name), inode)
        }
        Request::CreateUnlinked { container, inode } => {
            namespace::create_unlinked(node, target, caller, need(session)?, *container, inode)
        }
        Request::Unlink { dir, name } => namespace::unlink(node, target, caller, *dir, name),
        Request::RemoveDirectory { dir, name } => {
            namespace::remove_directory(node, target, caller, *dir, name)
        }
        Request::Link { oid, dir, name } => {
            namespace::link(node, target, caller, *oid, (*dir, name))
        }
        Request::Rename { from_dir, from_name, to_dir, to_name, mode } => {
            let from = Place { dir: *from_dir, name: from_name };
            let to = Place { dir: *to_dir, name: to_name };
            rename(node, target, caller, from, to, *mode)
        }
        Request::ReadDirectory { dir, after, page_bytes, with_attrs } => {
            listing::read_directory(node, target, asker, *dir, *after, *page_bytes, *with_attrs)
        }
        Request::DirShard { dir } => listing::shard(target, *dir),

        Request::GetAttr { oid } => attributes::get(node, target, asker, *oid),
        Request::SetAttr { oid, change } => inode::set_attr(node, target, asker, *oid, change),
        Request::Open { oid } => namespace::open(node, target, need(session)?, *oid),
        Request::Release { oids } => {
            let session = need(session)?;
            for oid in oids {
                reclaim::release(node, session, *oid);
            }
            Ok(Reply::Done)
        }
        Request::Widen { oid } => inode::widen(target, *oid).map(|()| Reply::Done),
        Request::ReadLink { oid } => inode::read_link(target, *oid),
        Request::GetXattr { oid, name } => inode::get_xattr(target, *oid, name),
        Request::SetXattr { oid, name, value, mode } => {
            inode::set_xattr(target, caller, *oid, name, value, *mode)
        }
        Request::RemoveXattr { oid, name } => inode::remove_xattr(target, caller, *oid, name),
        Request::ListXattrs { oid } => inode::list_xattrs(target, *oid),

        // Bulk data is read and sent by the connection.
        Request::Read { .. }
        | Request::Write { .. }
        | Request::WriteLeased { .. }
        | Request::Append { .. } => Err(Status::Invalid),
        Request::LeaseRead { data } => data::lease_read(target, need(session)?.id, *data),
        Request::LeaseWrite { data, instead_of } => {
            data::lease_write(target, need(session)?.id, *data, *instead_of)
        }
        Request::ReleaseWrite { data, epoch } => {
            target.leases.release((data.oid, data.shard), need(session)?.id, *epoch);
            Ok(Reply::Done)
        }
        Request::ShardTruncate { data, bytes, exactly } => {
            data::truncate(target, *data, *bytes, *exactly)
        }
        Request::ShardStat { data, asker: on_behalf } => {
            data::stat(target, on_behalf.or(asker), *data)
        }
        Request::ShardAllocate { data, offset, bytes, what } => {
            data::allocate(target, *data, *offset, *bytes, *what)
        }
        Request::ShardSeek { data, offset, hole } => {
            data::seek(target, asker, *data, *offset, *hole)
        }
        Request::ShardTouch { data, mtime } => data::touch(target, *data, *mtime),
        Request::Sync { data } => data::sync(target, asker, *data),
        Request::SyncAll => data::sync_all(target),
        Request::ShardRemove { data } => data::remove(target, *data),

        Request::AllocateSerial => target.draw_serial().map(Reply::Serial),
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
        Request::LockTest { oid, lock } => {
            Ok(Reply::LockInTheWay(node.locks.test(need(session)?.id, *oid, lock)))
        }

        Request::Prepare { id, actions } => {
            if actions.len() > azekura_proto::limits::ACTIONS_MAX {
                return Err(Status::TooLarge);
            }
            participant::prepare(node, target, *id, actions).map(|()| Reply::Done)
        }
        Request::Commit { id } => participant::commit(node, target, *id).map(|()| Reply::Done),
        Request::Abort { id } => participant::abort(target, *id).map(|()| Reply::Done),
        Request::AskOutcome { id } => participant::outcome(node, target, *id).map(Reply::Outcome),
        Request::AskDirectory { dir } => participant::ask_directory(target, *dir),

        Request::Scan { kind, container, after } => {
            check::scan(target, *kind, *container, after.as_deref())
        }
        Request::Repair { repair } => check::repair(node, target, repair),
    }
}

/// A session that this run of the engine does not know had these open and locked.
fn claim(node: &Node, session: &Arc<Session>, holds: &[Oid], locks: &[(Oid, Lock)]) -> Answer {
    let mut answer = Ok(Reply::Done);
    for oid in holds {
        let Some(home) = node.local_home(*oid) else { continue };
        let _state = home.lock();
        match attributes::load_inode(home, *oid) {
            Ok(_) => node.sessions.hold(session, *oid)?,
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
