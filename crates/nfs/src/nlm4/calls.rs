//! What the procedures of the lock manager do, whether they answer at once or, as the `_MSG` ones, by a
//! call of their own. Owns who may lock what: a genuine handle, an export that admits the client, and a
//! caller who may read or write the file.

use std::net::IpAddr;

use azekura_posix::{Access, FileKind, Lock, may_change};

use super::held::Client;
use super::types::{self, LockArgs, LockCall, Status};
use crate::gateway::Request;
use crate::nfs3;
use crate::nfs3::place::Place;
use crate::xdr::{Garbage, Reader, Writer};

/// What an asynchronous procedure's results are sent to: the number of the one is so much greater.
const MSG_TO_RES: u32 = 5;

type Call = fn(&Request<'_>, &mut Reader<'_>, &mut Writer) -> Result<(), Garbage>;

pub(super) fn test(
    request: &Request<'_>,
    args: &mut Reader<'_>,
    reply: &mut Writer,
) -> Result<(), Garbage> {
    let call = LockCall::decode_test(args)?;
    let found = place(request, call.lock.handle).and_then(|place| {
        let lock = wanted(request, &call)?;
        check(&place)?;
        request.gateway.locks.test(place.oid, lock)
    });
    types::test_result(reply, call.cookie, found);
    Ok(())
}

pub(super) fn lock(
    request: &Request<'_>,
    args: &mut Reader<'_>,
    reply: &mut Writer,
) -> Result<(), Garbage> {
    let call = LockCall::decode(args)?;
    types::result(reply, call.cookie, acquire(request, &call, call.blocks));
    Ok(())
}

/// As LOCK, for clients that nobody watches: they never wait, and tell themselves when they have been
/// started anew.
pub(super) fn nm_lock(
    request: &Request<'_>,
    args: &mut Reader<'_>,
    reply: &mut Writer,
) -> Result<(), Garbage> {
    let call = LockCall::decode(args)?;
    types::result(reply, call.cookie, acquire(request, &call, false));
    Ok(())
}

fn acquire(request: &Request<'_>, call: &LockCall<'_>, waits: bool) -> Status {
    let done = place(request, call.lock.handle).and_then(|place| {
        let lock = wanted(request, call)?;
        if call.is_exclusive && place.export().is_read_only() {
            return Err(Status::ReadOnly);
        }
        check(&place)?;
        let offer = waits.then(|| {
            let mut offer = Writer::default();
            call.encode_granted(&mut offer);
            offer.bytes().to_vec()
        });
        request.gateway.locks.acquire(&client(request, &call.lock), place.oid, lock, offer)
    });
    done.err().unwrap_or(Status::Granted)
}

pub(super) fn cancel(
    request: &Request<'_>,
    args: &mut Reader<'_>,
    reply: &mut Writer,
) -> Result<(), Garbage> {
    let call = LockCall::decode_cancel(args)?;
    let done = place(request, call.lock.handle)
        .and_then(|place| request.gateway.locks.cancel(place.oid, &wanted(request, &call)?));
    types::result(reply, call.cookie, done.err().unwrap_or(Status::Granted));
    Ok(())
}

pub(super) fn unlock(
    request: &Request<'_>,
    args: &mut Reader<'_>,
    reply: &mut Writer,
) -> Result<(), Garbage> {
    let call = LockCall::decode_unlock(args)?;
    let done = place(request, call.lock.handle).and_then(|place| {
        let client = client(request, &call.lock);
        // Whoever gets it next sees what was written under it.
        request.gateway.gather.flush_before_look(place.oid);
        request.gateway.locks.release(&client, place.oid, wanted(request, &call)?)
    });
    types::result(reply, call.cookie, done.err().unwrap_or(Status::Granted));
    Ok(())
}

/// This host is nobody's client: there is no lock that it waits for.
pub(super) fn granted(
    _: &Request<'_>,
    args: &mut Reader<'_>,
    reply: &mut Writer,
) -> Result<(), Garbage> {
    let call = LockCall::decode_test(args)?;
    types::result(reply, call.cookie, Status::Denied);
    Ok(())
}

/// A share reservation would have to hold against all clients of all gateways, which the pool has
/// nothing for; one that held here alone would be a promise not kept.
pub(super) fn share(
    _: &Request<'_>,
    args: &mut Reader<'_>,
    reply: &mut Writer,
) -> Result<(), Garbage> {
    const SEQUENCE: u32 = 0;
    types::result(reply, types::share_cookie(args)?, Status::Failed);
    reply.u32(SEQUENCE);
    Ok(())
}

/// `FREE_ALL`, and NOTIFY of the status monitor: the client was started anew, and has no locks.
pub(super) fn release_all(
    request: &Request<'_>,
    args: &mut Reader<'_>,
    _: &mut Writer,
) -> Result<(), Garbage> {
    let name = types::notifier(args)?;
    let peer = peer(request);
    request.gateway.locks.release_all(|client| client.is_meant(peer, name));
    Ok(())
}

/// Answers by a call of the client's procedure for results.
fn answer_by_call(
    request: &Request<'_>,
    args: &mut Reader<'_>,
    procedure: u32,
    call: Call,
) -> Result<(), Garbage> {
    let mut results = Writer::default();
    call(request, args, &mut results)?;
    let results = results.bytes().to_vec();
    request.gateway.locks.send_results(peer(request), procedure + MSG_TO_RES, results);
    Ok(())
}

macro_rules! asynchronous {
    ($($name:ident = $procedure:literal: $call:ident;)*) => {
        $(pub(super) fn $name(
            request: &Request<'_>,
            args: &mut Reader<'_>,
            _: &mut Writer,
        ) -> Result<(), Garbage> {
            answer_by_call(request, args, $procedure, $call)
        })*
    };
}

asynchronous! {
    test_msg = 6: test;
    lock_msg = 7: lock;
    cancel_msg = 8: cancel;
    unlock_msg = 9: unlock;
    granted_msg = 10: granted;
}

fn place<'a>(request: &'a Request<'_>, handle: &[u8]) -> Result<Place<'a>, Status> {
    Place::of(request, handle).map_err(|status| match status {
        nfs3::status::Status::BadHandle | nfs3::status::Status::Stale => Status::StaleHandle,
        nfs3::status::Status::Access => Status::Denied,
        _ => Status::Failed,
    })
}

/// Whether the file is there, and the caller's to lock. The owner may, whatever the mode says, since
/// nobody knows how the file was when it was opened.
fn check(place: &Place<'_>) -> Result<(), Status> {
    let attr = place.fs().getattr(place.oid)?;
    if attr.kind != FileKind::Regular {
        return Err(Status::Failed);
    }
    if !may_change(&place.caller, &attr) {
        let wanted = Access { read: true, ..Access::default() };
        place.fs().access(&place.caller, place.oid, wanted)?;
    }
    Ok(())
}

fn wanted(request: &Request<'_>, call: &LockCall<'_>) -> Result<Lock, Status> {
    call.lock.lock(peer(request).to_string().as_bytes(), call.is_exclusive)
}

fn client(request: &Request<'_>, lock: &LockArgs<'_>) -> Client {
    Client { address: peer(request), name: lock.caller_name.into() }
}

fn peer(request: &Request<'_>) -> IpAddr {
    request.peer.to_canonical()
}
