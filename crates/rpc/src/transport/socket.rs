//! Conversations over sockets. Owns which of an engine's addresses is tried first, the handshakes side
//! by side, and the time-outs of sockets.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use azekura_proto::EngineId;
use azekura_proto::frame;
use azekura_proto::limits::{FRAME_BULK_BYTES_MAX, READ_BULK_BYTES_MAX};
use azekura_proto::message::{Answer, Request, RequestHead, Role, Ticket, Welcome};
use azekura_proto::pool_map::Address;
use azekura_wire::{
    ConnectError, Connection, Dialled, EarlyCaller, FrameReader, FrameWriter, Incoming, Look,
    Outgoing, ProofSent, RecvError, Socket,
};

use super::{Caller, Conversation, Early, Line, Met, Network, ReceiveHalf, Said, SendHalf};
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
    fn open_early(
        &self,
        engine: EngineId,
        addresses: &[Address],
        caller: &Caller,
        ticket: Option<Ticket>,
        timeout: Duration,
    ) -> Option<io::Result<Early>> {
        let mut first_error = None;
        let deadline = Instant::now() + timeout;
        for address in in_order_of_preference(addresses) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                first_error.get_or_insert_with(|| io::ErrorKind::TimedOut.into());
                break;
            }
            match self.begin_early(engine, address, caller, ticket, left) {
                Ok(early) => return Some(Ok(early)),
                Err(error) => first_error = first_error.or_else(|| Some(as_io(error))),
            }
        }
        Some(Err(first_error.unwrap_or_else(no_address)))
    }

    fn open(
        &self,
        engine: EngineId,
        addresses: &[Address],
        count: usize,
        caller: &Caller,
        timeout: Duration,
    ) -> Met {
        let mut first_error = None;
        // One bound for all addresses, dialling and introductions.
        let deadline = Instant::now() + timeout;
        let left = || deadline.saturating_duration_since(Instant::now());
        for address in in_order_of_preference(addresses) {
            if left().is_zero() {
                first_error.get_or_insert_with(|| io::ErrorKind::TimedOut.into());
                break;
            }
            let mut met = match azekura_wire::dial_several(address, count, left()) {
                Ok(dialled) => self.meet(engine, dialled, caller, left()),
                Err(error) => Met { first_error: Some(error), ..Met::default() },
            };
            if !met.good.is_empty() {
                if met.good.len() < count {
                    let fewer = || io::Error::other("fewer connections came through");
                    met.first_error.get_or_insert_with(fewer);
                }
                return met;
            }
            first_error = first_error.or(met.first_error);
        }
        Met { first_error: Some(first_error.unwrap_or_else(no_address)), ..Met::default() }
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
    fn settle(self, dialled: Dialled) -> Socket {
        match self.settle_descriptor {
            Some(settle) => dialled.socket.map_descriptor(settle),
            None => dialled.socket,
        }
    }

    /// A conversation on which the handshake has come as far as the caller's proof; with a ticket it goes out
    /// with the first request.
    fn begin_early(
        self,
        engine: EngineId,
        address: &Address,
        caller: &Caller,
        ticket: Option<Ticket>,
        timeout: Duration,
    ) -> Result<Early, ConnectError> {
        let deadline = Instant::now() + timeout;
        let dialled = azekura_wire::dial_several(address, 1, timeout)?.pop();
        let dialled = dialled.ok_or_else(no_address)?;
        let round_trip = dialled.took;
        let left = deadline.saturating_duration_since(Instant::now());
        let Caller { pool, session, role, secret, .. } = caller;
        let socket = self.settle(dialled);
        let said = Arc::new(Said::default());
        let (connection, early) = if let Some(ticket) = ticket {
            let who = (*pool, *session, *role);
            let (early, connection) = azekura_wire::begin_early(socket, who, ticket, secret, left)?;
            (connection, Some(Arc::new(early)))
        } else {
            let begun = azekura_wire::begin(socket, *pool, *session, *role, left)?;
            let (connection, ticket) = begun.prove(secret)?.go_on();
            note_ticket(&said, ticket);
            (connection, None)
        };
        let awaited = Awaited { engine, early, said: Arc::clone(&said) };
        let conversation = converse(connection, caller, Some(awaited), self.settle_descriptor)?;
        Ok(Early { conversation, said, round_trip })
    }

    /// Takes the handshakes on fresh sockets through their steps side by side.
    fn meet(
        self,
        engine: EngineId,
        dialled: Vec<Dialled>,
        caller: &Caller,
        timeout: Duration,
    ) -> Met {
        let round_trip = dialled.iter().map(|dialled| dialled.took).min();
        let mut met = Met { round_trip, ..Met::default() };
        // All are settled before any can fail: a socket of ours is closed as one of ours.
        let settled: Vec<Socket> =
            dialled.into_iter().map(|dialled| self.settle(dialled)).collect();
        let mut begun = Vec::with_capacity(settled.len());
        for socket in settled {
            match azekura_wire::begin(socket, caller.pool, caller.session, caller.role, timeout) {
                Ok(caller) => begun.push(caller),
                Err(error) => note(&mut met, error),
            }
        }
        for proven in azekura_wire::prove_all(begun, &caller.secret) {
            let ready = proven.and_then(ProofSent::finish).and_then(|(connection, welcome)| {
                check_engine(&welcome, engine)?;
                Ok((converse(connection, caller, None, self.settle_descriptor)?, welcome))
            });
            match ready {
                Ok(ready) => met.good.push(ready),
                Err(error) => note(&mut met, error),
            }
        }
        met
    }
}

fn note_ticket(said: &Said, ticket: Option<Ticket>) {
    if let Some(ticket) = ticket {
        // Nobody else sets it.
        let _said = said.ticket.set(ticket);
    }
}

fn no_address() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the pool map gives no address")
}

fn note(met: &mut Met, error: ConnectError) {
    met.first_error.get_or_insert_with(|| as_io(error));
}

fn as_io(error: ConnectError) -> io::Error {
    match error {
        ConnectError::Io(error) => error,
        ConnectError::Refused(_) | ConnectError::Impostor => io::Error::other(error.to_string()),
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
    let early = awaited.as_ref().and_then(|awaited| awaited.early.clone());
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
    /// What the first request goes out with, while nothing was said.
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
        if let Some(early) = self.early.take() {
            if bulk_bytes > 0 {
                return Err(Failure::Broken(io::ErrorKind::InvalidInput.into()));
            }
            return Ok(early.send(&mut self.writer, &(head, request))?);
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
    /// Its challenge comes before.
    early: Option<Arc<EarlyCaller>>,
    said: Arc<Said>,
}

impl Receiver {
    /// Waits for the engine's welcome, if that has not come yet.
    fn be_let_in(&mut self) -> Result<(), Failure> {
        let Some(Awaited { engine, early, said }) = self.awaited.take() else { return Ok(()) };
        // Like a connection that was not made at all.
        let broken = |error| Failure::Broken(as_io(error));
        if let Some(early) = early {
            note_ticket(&said, early.prove(&mut self.reader).map_err(broken)?);
        }
        let welcome = azekura_wire::receive_welcome(&mut self.reader).map_err(broken)?;
        check_engine(&welcome, engine).map_err(Failure::Broken)?;
        // Nobody else sets it.
        let _said = said.welcome.set(welcome);
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

/// UNIX sockets that exist on this host first, those that do not last.
fn in_order_of_preference(addresses: &[Address]) -> Vec<&Address> {
    let mut ordered: Vec<&Address> = addresses.iter().collect();
    ordered.sort_by_cached_key(|address| match address {
        Address::Unix(path) => {
            if path.exists() {
                0
            } else {
                2
            }
        }
        Address::Tcp(_) => 1,
    });
    ordered
}
