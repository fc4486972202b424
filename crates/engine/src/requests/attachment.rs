//! A session's way into an engine: a connection of a socket, or a caller in the same process. Owns
//! which request is carried out once only, however often it comes, and what a request is refused for
//! before anybody looks at what it asks.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use azekura_proto::message::{Answer, Reply, Request, RequestHead, Role};
use azekura_proto::{SessionId, Status, TargetId};

use crate::namespace::set_id;
use crate::node::Node;
use crate::requests::bulk::{Bulk, BulkIn, BulkOut, Response};
use crate::requests::dispatch::{Asker, dispatch};
use crate::requests::gate::{HangUp, Pass, Refused};
use crate::requests::on_behalf::{self, Nested};
use crate::requests::retry::Caller;
use crate::requests::sessions::Session;

/// A session that has been let in. Dropping it is the end of a connection, not of the session.
pub struct Attachment {
    node: Node,
    session: Arc<Session>,
    role: Role,
    /// The connection, where its end can be brought about.
    line: Option<Arc<dyn HangUp>>,
    /// Whether the connection carries descriptors.
    carries_descriptors: bool,
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let was_last = self.node.sessions.detach(&self.session);
        if was_last && self.session.reads_ahead.load(Ordering::Relaxed) {
            for target in self.node.local_targets() {
                target.leases.reader_left(self.session.id);
            }
        }
    }
}

impl Attachment {
    /// For a session that counts this as a connection.
    pub(crate) fn new(node: Node, session: Arc<Session>, role: Role) -> Self {
        Self { node, session, role, line: None, carries_descriptors: false }
    }

    /// How to end the connection when a newer one has taken its place.
    pub(crate) fn set_line(&mut self, line: Arc<dyn HangUp>) {
        self.line = Some(line);
    }

    /// The connection carries descriptors.
    pub(crate) fn carry_descriptors(&mut self) {
        self.carries_descriptors = true;
    }

    /// Whose it is.
    pub fn session(&self) -> SessionId {
        self.session.id
    }

    /// Serves a request. `buffer` is where data of the answer may lie, and serves for the next
    /// request again. Data that a refused request has not taken are still to be read.
    ///
    /// # Errors
    /// If the bulk data break off, or the client has given the connection up.
    pub(crate) fn serve<'b>(
        &mut self,
        head: &RequestHead,
        request: &Request<'_>,
        bulk: BulkIn<'_>,
        buffer: &'b mut Vec<u8>,
    ) -> io::Result<Response<'b>> {
        self.node.refresh();
        self.serve_under(&self.node, head, request, bulk, buffer)
    }

    /// Serves a request of a caller in the same process: answers with the data that go with it.
    pub fn call(
        &self,
        head: &RequestHead,
        request: &Request<'_>,
        bulk: &[u8],
    ) -> (Answer, Vec<u8>) {
        let mut node = self.node.clone();
        node.refresh();
        let mut buffer = Vec::new();
        match self.serve_under(&node, head, request, BulkIn::Bytes(bulk), &mut buffer) {
            Ok(Response { answer, bulk }) => {
                let answer = answer.unwrap_or(Ok(Reply::Done));
                match bulk {
                    BulkOut::None | BulkOut::Descriptor(_) => (answer, Vec::new()),
                    BulkOut::Bytes(data) => (answer, data.to_vec()),
                    BulkOut::File(range) => match range.read() {
                        Ok(data) => (answer, data),
                        Err(status) => (Err(status), Vec::new()),
                    },
                }
            }
            // What is in memory does not break off: nobody waits for the answer.
            Err(_) => (Err(Status::Io), Vec::new()),
        }
    }

    fn serve_under<'b>(
        &self,
        node: &Node,
        head: &RequestHead,
        request: &Request<'_>,
        mut input: BulkIn<'_>,
        buffer: &'b mut Vec<u8>,
    ) -> io::Result<Response<'b>> {
        if let (Request::Append { .. }, BulkIn::Stream { bytes, read }) = (request, &mut input) {
            // All of it has to be here before its slot is entered and its place is taken: a slow peer
            // must not hold up the others that append, nor its own second try.
            let mut data = vec![0; *bytes as usize];
            read(&mut data)?;
            return self.serve_under(node, head, request, BulkIn::Bytes(&data), buffer);
        }
        let pass = self.pass(node, head, request)?;
        let (Some(pass), BulkIn::Stream { bytes, read }) = (&pass, &mut input) else {
            return self.serve_admitted(node, head, request, input, buffer);
        };
        // A piece may come when its client has long given up.
        let mut checked = |piece: &mut [u8]| {
            read(piece)?;
            if pass.is_superseded() { Err(given_up(Refused::Superseded)) } else { Ok(()) }
        };
        let input = BulkIn::Stream { bytes: *bytes, read: &mut checked };
        self.serve_admitted(node, head, request, input, buffer)
    }

    fn serve_admitted<'b>(
        &self,
        node: &Node,
        head: &RequestHead,
        request: &Request<'_>,
        input: BulkIn<'_>,
        buffer: &'b mut Vec<u8>,
    ) -> io::Result<Response<'b>> {
        let is_here = |to: &TargetId| node.local(*to).is_some();
        // What stands in one is counted where it is carried out.
        let (is_counted, writes) = match request {
            Request::Relay { to, .. } if is_here(to) => (false, true),
            Request::Relay { .. } => (true, false),
            _ => (true, true),
        };
        if is_counted {
            node.metrics.count(request.name());
        }
        let bulk_bytes = u64::from(input.bytes());
        let mut bulk = Bulk::new(input, buffer);
        let answer = self.answer(node, head, request, &mut bulk);
        if bulk_bytes > 0 && writes {
            node.metrics.written_bytes.fetch_add(bulk_bytes, Ordering::Relaxed);
        }
        if !request.has_reply() {
            return bulk.respond(None);
        }
        if answer.is_err() {
            node.metrics.failed_count.fetch_add(1, Ordering::Relaxed);
        }
        bulk.respond(Some(answer))
    }

    /// Lets a change in, if its connection has not been given up.
    fn pass(
        &self,
        node: &Node,
        head: &RequestHead,
        request: &Request<'_>,
    ) -> io::Result<Option<Pass<'_>>> {
        if self.session.is_over() {
            return Err(given_up(Refused::Superseded));
        }
        let Some(gate) = self.session.gate(head.slot) else { return Ok(None) };
        if self.role == Role::Engine || !request.is_fenced() {
            return Ok(None);
        }
        let passed = gate.enter(&*node.platform, head.connection, self.line.as_ref());
        passed.map(Some).map_err(given_up)
    }

    fn answer(
        &self,
        node: &Node,
        head: &RequestHead,
        request: &Request<'_>,
        bulk: &mut Bulk<'_, '_>,
    ) -> Answer {
        let for_engine = request.is_for_engine();
        if head.map_version != node.map.version && !for_engine {
            return Err(Status::Refresh);
        }
        let any = || node.local_targets().next().filter(|_| for_engine);
        let wants_descriptor = matches!(
            request,
            Request::ShardDescriptor { .. } | Request::ShardWriteDescriptor { .. }
        );
        if wants_descriptor && !(self.carries_descriptors && self.role == Role::Client) {
            return Err(Status::Unsupported);
        }
        let target = node.local(head.target).or_else(any).ok_or(Status::WrongTarget)?;
        set_id::give_due(node);
        let asker = |caller| Asker { caller, session: Some(&self.session), role: self.role };
        if self.role == Role::Engine {
            let node = node.on_behalf_of_peer();
            if let Request::OnBehalf { client, stream, request } = request {
                let nested = Nested { client: *client, stream: *stream, request };
                return on_behalf::carry_out(&node, target, nested, bulk);
            }
            return dispatch(&node, target, &asker(Caller::engine()), request, bulk);
        }
        if let Request::Relay { to, stream, request } = request {
            let nested = Nested { client: self.session.id, stream: Some(*stream), request };
            return on_behalf::relay(node, &self.session, *to, nested, bulk);
        }
        if !request.needs_exact_retry() {
            return dispatch(node, target, &asker(Caller::engine()), request, bulk);
        }
        let (mut slot, seen) = self.session.enter_slot(head.slot, head.sequence)?;
        let caller = Caller {
            session: self.session.id,
            slot: head.slot,
            sequence: head.sequence,
            resent: head.resent || seen,
            created: slot.created.filter(|_| slot.sequence == head.sequence),
        };
        let answer = dispatch(node, target, &asker(caller), request, bulk);
        if let Ok(Reply::Created(attr) | Reply::CreatedToWrite { attr, .. }) = &answer {
            slot.created = Some(attr.oid);
        }
        answer
    }
}

/// The connection is of no use to anybody any more.
fn given_up(refused: Refused) -> io::Error {
    match refused {
        Refused::Superseded => {
            io::Error::new(io::ErrorKind::ConnectionAborted, "the client uses a newer connection")
        }
        Refused::Stuck => io::Error::new(
            io::ErrorKind::TimedOut,
            "a request of a connection that the client has given up does not end",
        ),
    }
}
