//! What reaches an engine through another one: changes of a client that come behind others, and the parts of an
//! operation that is done for a client. Owns that a change which its client has given up is not carried out any
//! more, nor what comes behind one that could not be carried out, and that no other request comes this way. The order
//! of changes is that in which they reach the engine that hands them on, which waits for each.

use azekura_proto::frame::decode_borrowed;
use azekura_proto::limits::RELAY_SLOT;
use azekura_proto::message::{Answer, ChangeStream, Request, Role};
use azekura_proto::status::StatusClass;
use azekura_proto::{SessionId, Status, TargetId};

use crate::node::Node;
use crate::requests::bulk::Bulk;
use crate::requests::dispatch::{Asker, dispatch};
use crate::requests::retry::Caller;
use crate::requests::sessions::Session;
use crate::target::Target;

/// A request that stands in another one.
#[derive(Clone, Copy)]
pub(crate) struct Nested<'r> {
    /// On whose behalf.
    pub(crate) client: SessionId,
    /// Of a change, what it belongs to.
    pub(crate) stream: Option<ChangeStream>,
    /// The request, encoded.
    pub(crate) request: &'r [u8],
}

/// Answer to `Relay`.
pub(crate) fn relay(
    node: &Node,
    session: &Session,
    to: TargetId,
    nested: Nested<'_>,
    bulk: &mut Bulk<'_, '_>,
) -> Answer {
    let Nested { client, stream: Some(ChangeStream { number, .. }), request } = nested else {
        return Err(Status::Invalid);
    };
    let gate = session.gate(RELAY_SLOT).ok_or(Status::Invalid)?;
    let pass = gate.enter(&*node.platform, number, None).map_err(|_| Status::Busy)?;
    let answer = if let Some(target) = node.local(to) {
        carry_out(node, target, nested, bulk)
    } else {
        let stream = nested.stream;
        let request = Request::OnBehalf { client, stream, request: request.to_vec() };
        node.call_remote(to, &request, bulk.take_all()?)
    };
    drop(pass);
    if answer.as_ref().is_err_and(|status| is_to_come(*status)) {
        // Its client sends it again with all that comes behind it, which is not to be there before.
        gate.close(&*node.platform, number).map_err(|_| Status::Busy)?;
    }
    answer
}

/// Whether a change with this answer will be sent again.
fn is_to_come(status: Status) -> bool {
    status == Status::ConditionFailed
        || matches!(status.class(), StatusClass::Retry | StatusClass::RefreshMap)
}

/// Answer to `OnBehalf`, and to `Relay` at the engine that has the target.
pub(crate) fn carry_out(
    node: &Node,
    target: &Target,
    nested: Nested<'_>,
    bulk: &mut Bulk<'_, '_>,
) -> Answer {
    let Nested { client, stream, request } = nested;
    let request: Request<'_> = decode_borrowed(request).map_err(|_| Status::Invalid)?;
    let node = node.on_behalf_of(Some(client));
    let session = node.sessions.get(client);
    let asker = |role| Asker { caller: Caller::engine(), session: session.as_ref(), role };
    let Some(ChangeStream { number, sequence, run }) = stream else {
        return match request {
            Request::Prepare { .. } | Request::Lookup { .. } => {
                dispatch(&node, target, &asker(Role::Engine), &request, bulk)
            }
            _ => Err(Status::Invalid),
        };
    };
    if !request.may_be_relayed() {
        return Err(Status::Invalid);
    }
    // The client asks by itself then, and is met.
    let session = session.as_ref().filter(|_| run == node.incarnation).ok_or(Status::Busy)?;
    let gate = session.gate(RELAY_SLOT).ok_or(Status::Invalid)?;
    let _pass = gate.enter(&*node.platform, number, None).map_err(|_| Status::Busy)?;
    let _alone = session.enter_relayed(sequence)?;
    node.metrics.count(request.name());
    dispatch(&node, target, &asker(Role::Client), &request, bulk)
}
