//! Conversations over sockets. Owns the handshakes side by side, and the time-outs of sockets.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use azekura_proto::frame;
use azekura_proto::limits::{FRAME_BULK_BYTES_MAX, READ_BULK_BYTES_MAX};
use azekura_proto::message::{Answer, Request, RequestHead, Role, Ticket, Welcome};
use azekura_proto::pool_map::Address;
use azekura_proto::{EngineId, Incarnation};
use azekura_wire::{
    ConnectError, Connection, Dialled, EarlyCaller, FrameReader, FrameWriter, Incoming, Look,
    Outgoing, ProofSent, RecvError, Socket,
};

use super::calling::{Call, Called, as_io};
use super::{
    Caller, Conversation, EarlyMet, EarlyWanted, Line, Met, Network, ReceiveHalf, Said, SendHalf,
    Wanted,
};
use crate::failure::Failure;

/// Small requests are sent together up to this size.
const QUEUE_BYTES: usize = 32 * 1024;
/// How long a look for what has come already may take.
const LOOK: Duration = Duration::from_millis(20);
/// How long a client's thread looks for an answer from an engine on its own host before it sleeps:
/// about what a creation takes.
const LOCAL_PATIENCE: Duration = Duration::from_micros(20);

/// Who has asked an engine on its own host for so much asks it for memory to share.
const EXCHANGES_BEFORE_SHARING: u32 = 32;

/// Engines behind sockets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sockets {
    /// What is done to the descriptor of each new connection, and to each that an engine passes.
    pub settle_descriptor: Option<fn(OwnedFd) -> OwnedFd>,
}

impl Network for Sockets {
    fn open_early(&self, wanted: &[EarlyWanted<'_>], caller: &Caller) -> Option<Vec<EarlyMet>> {
        let said: Vec<Arc<Said>> = wanted.iter().map(|_| Arc::default()).collect();
        let whom: Vec<Wanted<'_>> = wanted.iter().map(|early| early.wanted).collect();
        let outcomes = self.call_all(&whom, |calls, sockets| {
            let early = |call: &Call<'_, _>| (wanted[call.number], Arc::clone(&said[call.number]));
            self.begin_early(calls, sockets, early, caller);
        });
        let met = outcomes.into_iter().zip(&said).map(|(called, said)| EarlyMet {
            conversations: called.good,
            first_error: called.first_error,
            said: Arc::clone(said),
            round_trip: called.round_trip,
        });
        Some(met.collect())
    }

    fn open(&self, wanted: &Wanted<'_>, caller: &Caller) -> Met {
        self.open_all(&[*wanted], caller).pop().unwrap_or_default()
    }

    fn open_all(&self, wanted: &[Wanted<'_>], caller: &Caller) -> Vec<Met> {
        let outcomes = self.call_all(wanted, |calls, sockets| self.meet(calls, sockets, caller));
        let met = outcomes.into_iter().map(|called| Met {
            good: called.good,
            first_error: called.first_error,
            round_trip: called.round_trip,
        });
        met.collect()
    }

    fn wait_for_any(&self, lines: &[Arc<dyn Line>], limit: Duration) -> Vec<bool> {
        let descriptors: Option<Vec<_>> = lines.iter().map(|line| line.descriptor()).collect();
        // What is no socket has no place here; whoever reads finds out.
        let Some(descriptors) = descriptors else { return vec![true; lines.len()] };
        let mut ready: Vec<bool> = lines.iter().map(|line| line.is_ready()).collect();
        let limit = if ready.contains(&true) { Duration::ZERO } else { limit };
        let shown = azekura_wire::wait_for_any(&descriptors, limit);
        for (ready, shown) in ready.iter_mut().zip(shown) {
            *ready |= shown;
        }
        ready
    }

    fn is_near(&self, addresses: &[Address]) -> bool {
        addresses.iter().any(is_here)
    }

    fn passes_descriptors(&self) -> bool {
        true
    }
}

impl Sockets {
    /// Calls all of the engines at once, each at one of its addresses after the other until `introduce` has opened a
    /// conversation there.
    fn call_all<'a, T>(
        self,
        wanted: &[Wanted<'a>],
        introduce: impl Fn(&mut [&mut Call<'a, T>], Vec<(usize, Socket)>),
    ) -> Vec<Called<T>> {
        let mut calls: Vec<Call<'a, T>> = wanted.iter().enumerate().map(Call::new).collect();
        loop {
            // Those that are not met yet, each at the next of its addresses.
            let trying = calls.iter_mut().filter_map(|call| {
                let dialling = call.next_dialling()?;
                Some((call, dialling))
            });
            let (mut trying, dialling): (Vec<&mut Call<'_, T>>, Vec<_>) = trying.unzip();
            if trying.is_empty() {
                return calls.into_iter().map(Call::end).collect();
            }
            // All are settled before any can fail: a socket of ours is closed as one of ours.
            let mut settled = Vec::new();
            let dialled = azekura_wire::dial_all(&dialling);
            for (place, (call, dialled)) in trying.iter_mut().zip(dialled).enumerate() {
                settled.extend(call.take(dialled).map(|one| (place, self.settle(one))));
            }
            introduce(&mut trying, settled);
        }
    }

    fn settle(self, dialled: Dialled) -> Socket {
        match self.settle_descriptor {
            Some(settle) => dialled.socket.map_descriptor(settle),
            None => dialled.socket,
        }
    }

    /// Makes conversations of fresh sockets, on which the handshake has come as far as the caller's proof; with a
    /// ticket that follows the first request.
    fn begin_early<'a>(
        self,
        calls: &mut [&mut Call<'_, Conversation>],
        sockets: Vec<(usize, Socket)>,
        early: impl Fn(&Call<'_, Conversation>) -> (EarlyWanted<'a>, Arc<Said>),
        caller: &Caller,
    ) {
        let Caller { pool, session, role, ref secret, .. } = *caller;
        let converse = |call: &mut Call<'_, Conversation>, connection, by: Option<EarlyCaller>| {
            let (EarlyWanted { wanted, known_to, .. }, said) = early(call);
            let awaited = Awaited { engine: wanted.engine, known_to, by: by.map(Arc::new), said };
            call.note(converse(connection, caller, Some(awaited), self.settle_descriptor));
        };
        let mut challenged = Vec::new();
        for (place, socket) in sockets {
            let call = &mut *calls[place];
            let left = call.left();
            if let Some(ticket) = early(call).0.ticket {
                let who = (pool, session, role);
                match azekura_wire::begin_early(socket, who, ticket, secret, left) {
                    Ok((by, connection)) => converse(call, connection, Some(by)),
                    Err(error) => call.note_failure(error.into()),
                }
            } else {
                match azekura_wire::begin(socket, pool, session, role, left) {
                    Ok(caller) => challenged.push((place, caller)),
                    Err(error) => call.note_failure(error),
                }
            }
        }
        for (place, proven) in azekura_wire::prove_all(challenged, secret) {
            let call = &mut *calls[place];
            match proven.map(ProofSent::go_on) {
                Ok((connection, ticket)) => {
                    note_ticket(&early(call).1, ticket);
                    converse(call, connection, None);
                }
                Err(error) => call.note_failure(error),
            }
        }
    }

    /// Takes the handshakes on fresh sockets through their steps side by side.
    fn meet(
        self,
        calls: &mut [&mut Call<'_, (Conversation, Welcome)>],
        sockets: Vec<(usize, Socket)>,
        caller: &Caller,
    ) {
        let mut begun = Vec::with_capacity(sockets.len());
        for (place, socket) in sockets {
            let Caller { pool, session, role, .. } = *caller;
            match azekura_wire::begin(socket, pool, session, role, calls[place].left()) {
                Ok(caller) => begun.push((place, caller)),
                Err(error) => calls[place].note_failure(error),
            }
        }
        for (place, proven) in azekura_wire::prove_all(begun, &caller.secret) {
            let call = &mut *calls[place];
            let ready = proven.and_then(ProofSent::finish).and_then(|(connection, welcome)| {
                check_engine(&welcome, call.engine())?;
                Ok((converse(connection, caller, None, self.settle_descriptor)?, welcome))
            });
            match ready {
                Ok(ready) => call.note(Ok(ready)),
                Err(error) => call.note_failure(error),
            }
        }
    }
}

fn note_ticket(said: &Said, ticket: Option<Ticket>) {
    if let Some(ticket) = ticket {
        // Several that are let in are told the same.
        said.ticket.get_or_init(|| ticket);
    }
}

fn check_engine(welcome: &Welcome, engine: EngineId) -> io::Result<()> {
    if welcome.engine == engine {
        return Ok(());
    }
    Err(io::Error::other(format!("engine {} answers there", welcome.engine.0)))
}

/// Opens one conversation with whatever engine listens at an address.
pub(crate) fn open_at(
    address: &Address,
    caller: &Caller,
) -> Result<(Conversation, Welcome), ConnectError> {
    let socket = azekura_wire::dial(address, caller.timeout)?;
    let Caller { pool, session, role, secret, timeout } = caller;
    let (connection, welcome) =
        azekura_wire::connect(socket, *pool, *session, *role, secret, *timeout)?;
    Ok((converse(connection, caller, None, None)?, welcome))
}

/// Sets how long requests wait, and takes the connection apart.
fn converse(
    connection: Connection,
    caller: &Caller,
    awaited: Option<Awaited>,
    settle: Option<fn(OwnedFd) -> OwnedFd>,
) -> io::Result<Conversation> {
    connection.socket().set_read_timeout(Some(caller.timeout))?;
    connection.socket().set_write_timeout(Some(caller.timeout))?;
    let (writer, mut reader) = connection.split();
    let socket = Arc::clone(reader.socket());
    let is_local = caller.role == Role::Client && matches!(*socket, Socket::Unix(_));
    if is_local {
        reader.set_patience(LOCAL_PATIENCE);
    }
    // A reply is checked against what its request allows it.
    reader.accept_bulk(READ_BULK_BYTES_MAX);
    let (timeout, turn) = (caller.timeout, caller.timeout);
    let early = awaited.as_ref().and_then(|awaited| awaited.by.clone());
    let receiver = Receiver { reader, timeout, turn, awaited, settle };
    let line = Arc::new(SocketLine { socket, ring: OnceLock::new() });
    let conversation =
        Conversation::new(Box::new(Sender { writer, early }), Box::new(receiver), line);
    Ok(if is_local { conversation.sharing_after(EXCHANGES_BEFORE_SHARING) } else { conversation })
}

#[derive(Debug)]
struct SocketLine {
    socket: Arc<Socket>,
    /// Where a ring stands before the socket.
    ring: OnceLock<Look>,
}

impl Line for SocketLine {
    fn shut_down(&self) {
        self.socket.shut_down();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn is_ready(&self) -> bool {
        self.ring.get().is_some_and(Look::is_ready)
    }

    fn use_ring(&self, ring: Look) {
        // A conversation gets one at most.
        let _first = self.ring.set(ring);
    }
}

#[derive(Debug)]
struct Sender {
    writer: FrameWriter,
    /// What requests go out by until the caller has proven who it is.
    early: Option<Arc<EarlyCaller>>,
}

impl SendHalf for Sender {
    fn send(
        &mut self,
        head: &RequestHead,
        request: &Request<'_>,
        bulk: &[u8],
        more: bool,
    ) -> Result<(), Failure> {
        let bulk_bytes = u32::try_from(bulk.len()).unwrap_or(u32::MAX);
        if bulk_bytes > FRAME_BULK_BYTES_MAX {
            return Err(Failure::TooLarge);
        }
        self.early.take_if(|early| early.is_proven());
        if let Some(early) = &self.early {
            if bulk_bytes > 0 || request.is_fenced() {
                return Err(Failure::Broken(io::ErrorKind::InvalidInput.into()));
            }
            if early.send(&mut self.writer, &(head, request))? {
                return Ok(());
            }
            self.early = None;
        }
        self.writer.queue(&(head, request), bulk_bytes).map_err(|_| Failure::TooLarge)?;
        if more && bulk.is_empty() && self.writer.queued_bytes() <= QUEUE_BYTES {
            return Ok(());
        }
        Ok(self.writer.flush(bulk)?)
    }

    fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.writer.flush(&[])?)
    }

    fn is_silent(&self) -> bool {
        self.early.as_ref().is_some_and(|early| early.is_silent())
    }

    fn use_ring(&mut self, ring: Outgoing) {
        self.writer.use_ring(ring);
    }
}

#[derive(Debug)]
struct Receiver {
    reader: FrameReader,
    /// How long a wait for an answer may take.
    timeout: Duration,
    /// How long the socket waits now.
    turn: Duration,
    awaited: Option<Awaited>,
    /// What is done to a descriptor that comes in.
    settle: Option<fn(OwnedFd) -> OwnedFd>,
}

/// The welcome of an engine that has been asked something already.
#[derive(Debug)]
struct Awaited {
    engine: EngineId,
    /// See [`EarlyWanted::known_to`].
    known_to: Option<Incarnation>,
    /// Its challenge comes before.
    by: Option<Arc<EarlyCaller>>,
    said: Arc<Said>,
}

impl Receiver {
    /// Waits for the engine's welcome, if that has not come yet.
    fn be_let_in(&mut self) -> Result<(), Failure> {
        let Some(Awaited { engine, known_to, by, said }) = self.awaited.take() else {
            return Ok(());
        };
        // Like a connection that was not made at all.
        let broken = |error| Failure::Broken(as_io(error));
        if let Some(by) = by {
            note_ticket(&said, by.prove(&mut self.reader).map_err(broken)?);
        }
        let welcome = azekura_wire::receive_welcome(&mut self.reader).map_err(broken)?;
        check_engine(&welcome, engine).map_err(Failure::Broken)?;
        let knows = |run| welcome.incarnation == run && !welcome.fresh_session;
        if known_to.is_some_and(|run| !knows(run)) {
            said.has_forgotten.store(true, Ordering::Release);
            let forgotten = "the engine does not know any more what this session has there";
            return Err(Failure::Broken(io::Error::other(forgotten)));
        }
        // Several that are let in are told the same.
        said.welcome.get_or_init(|| welcome);
        // Reading from a stranger has set another one.
        self.reader.socket().set_read_timeout(Some(self.timeout))?;
        self.turn = self.timeout;
        Ok(())
    }

    /// Lets the socket wait for as much of a time-out as is left. Whole seconds, so that a call which
    /// has just begun changes nothing at the socket.
    fn set_turn(&mut self, left: Duration) -> Result<(), Failure> {
        let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
        // What lies there already is taken also when nothing is left.
        let turn = Duration::from_secs(seconds).clamp(LOOK, self.timeout.max(LOOK));
        if turn != self.turn {
            self.reader.socket().set_read_timeout(Some(turn))?;
            self.turn = turn;
        }
        Ok(())
    }
}

impl ReceiveHalf for Receiver {
    fn receive(&mut self, timeouts: u32, gone: Duration) -> Result<(Answer, usize), Failure> {
        self.be_let_in()?;
        let mut left = (self.timeout * timeouts).saturating_sub(gone);
        self.set_turn(left)?;
        let (head, body) = loop {
            match self.reader.recv() {
                Ok(frame) => break frame,
                Err(RecvError::Idle) if left > self.turn => left -= self.turn,
                Err(error) => return Err(error.into()),
            }
        };
        Ok((decode(body)?, head.bulk_bytes as usize))
    }

    fn receive_with_descriptor(
        &mut self,
        gone: Duration,
    ) -> Result<(Answer, Option<OwnedFd>), Failure> {
        self.be_let_in()?;
        self.set_turn(self.timeout.saturating_sub(gone))?;
        let (head, body, descriptor) = self.reader.recv_with_descriptor()?;
        // As one of ours, whatever becomes of it.
        let descriptor = match self.settle {
            Some(settle) => descriptor.map(settle),
            None => descriptor,
        };
        if head.bulk_bytes > 0 {
            return Err(Failure::UNASKED_DATA);
        }
        Ok((decode(body)?, descriptor))
    }

    fn try_receive(&mut self) -> Result<Option<(Answer, usize)>, Failure> {
        self.be_let_in()?;
        match self.reader.try_recv()? {
            Some((head, body)) => Ok(Some((decode(body)?, head.bulk_bytes as usize))),
            None => Ok(None),
        }
    }

    fn read_bulk(&mut self, buffer: &mut [u8]) -> Result<(), Failure> {
        Ok(self.reader.read_bulk(buffer)?)
    }

    fn try_read_bulk(&mut self, buffer: &mut [u8]) -> Result<usize, Failure> {
        Ok(self.reader.try_read_bulk(buffer)?)
    }

    fn has_buffered_input(&self) -> bool {
        self.reader.has_buffered_input()
    }

    fn use_ring(&mut self, ring: Incoming) {
        self.reader.use_ring(ring);
    }
}

fn decode(body: &[u8]) -> Result<Answer, Failure> {
    frame::decode(body).map_err(|_| Failure::Protocol("a reply that cannot be decoded"))
}

fn is_here(address: &Address) -> bool {
    matches!(address, Address::Unix(path) if path.exists())
}
