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
    ConnectError, Connection, Dialled, Dialling, EarlyCaller, FrameReader, FrameWriter, Incoming,
    Look, Outgoing, ProofSent, RecvError, Socket,
};

use super::{Caller, Conversation, Early, Line, Met, Network, ReceiveHalf, Said, SendHalf, Wanted};
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
        let mut call = Call::new(&Wanted { engine, addresses, count: 1, timeout });
        while let Some(Dialling { address, timeout, .. }) = call.next_dialling() {
            match self.begin_early(engine, address, caller, ticket, timeout) {
                Ok(early) => return Some(Ok(early)),
                Err(error) => call.note(error),
            }
        }
        Some(Err(call.end().first_error.unwrap_or_else(no_address)))
    }

    fn open(&self, wanted: &Wanted<'_>, caller: &Caller) -> Met {
        self.open_all(&[*wanted], caller).pop().unwrap_or_default()
    }

    fn open_all(&self, wanted: &[Wanted<'_>], caller: &Caller) -> Vec<Met> {
        let mut calls: Vec<Call<'_>> = wanted.iter().map(Call::new).collect();
        loop {
            // Those that are not met yet, each at the next of its addresses.
            let trying = calls.iter_mut().filter_map(|call| {
                let dialling = call.next_dialling()?;
                Some((call, dialling))
            });
            let (mut trying, dialling): (Vec<&mut Call<'_>>, Vec<_>) = trying.unzip();
            if trying.is_empty() {
                return calls.into_iter().map(Call::end).collect();
            }
            self.meet(&mut trying, azekura_wire::dial_all(&dialling), caller);
        }
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
        let dialled = azekura_wire::dial_timed(address, timeout)?;
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
        calls: &mut [&mut Call<'_>],
        dialled: Vec<io::Result<Vec<Dialled>>>,
        caller: &Caller,
    ) {
        // All are settled before any can fail: a socket of ours is closed as one of ours.
        let mut settled = Vec::new();
        for (place, (call, dialled)) in calls.iter_mut().zip(dialled).enumerate() {
            match dialled {
                Ok(dialled) => {
                    call.met.round_trip = dialled.iter().map(|dialled| dialled.took).min();
                    settled.extend(dialled.into_iter().map(|one| (place, self.settle(one))));
                }
                Err(error) => call.note(error.into()),
            }
        }
        let mut begun = Vec::with_capacity(settled.len());
        for (place, socket) in settled {
            let Caller { pool, session, role, .. } = *caller;
            match azekura_wire::begin(socket, pool, session, role, calls[place].left()) {
                Ok(caller) => begun.push((place, caller)),
                Err(error) => calls[place].note(error),
            }
        }
        for (place, proven) in azekura_wire::prove_all(begun, &caller.secret) {
            let call = &mut *calls[place];
            let ready = proven.and_then(ProofSent::finish).and_then(|(connection, welcome)| {
                check_engine(&welcome, call.wanted.engine)?;
                Ok((converse(connection, caller, None, self.settle_descriptor)?, welcome))
            });
            match ready {
                Ok(ready) => call.met.good.push(ready),
                Err(error) => call.note(error),
            }
        }
    }
}

/// How far the opening of an engine's conversations has come.
struct Call<'a> {
    wanted: Wanted<'a>,
    /// One bound for all addresses, dialling and introductions.
    deadline: Instant,
    /// Those that were not tried yet.
    addresses: std::vec::IntoIter<&'a Address>,
    met: Met,
}

impl<'a> Call<'a> {
    fn new(wanted: &Wanted<'a>) -> Self {
        Self {
            wanted: *wanted,
            deadline: Instant::now() + wanted.timeout,
            addresses: in_order_of_preference(wanted.addresses).into_iter(),
            met: Met::default(),
        }
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// What is to be dialled next, while no conversation was opened.
    fn next_dialling(&mut self) -> Option<Dialling<'a>> {
        let address = self.met.good.is_empty().then(|| self.addresses.next()).flatten()?;
        let timeout = self.left();
        if timeout.is_zero() {
            self.note(io::Error::from(io::ErrorKind::TimedOut).into());
            return None;
        }
        Some(Dialling { address, count: self.wanted.count, timeout })
    }

    fn note(&mut self, error: ConnectError) {
        self.met.first_error.get_or_insert_with(|| as_io(error));
    }

    fn end(mut self) -> Met {
        let Self { wanted, met, .. } = &mut self;
        if met.good.is_empty() {
            met.round_trip = None;
            met.first_error.get_or_insert_with(no_address);
        } else if met.good.len() < wanted.count {
            let fewer = || io::Error::other("fewer connections came through");
            met.first_error.get_or_insert_with(fewer);
        } else {
            // An address that was tried before was no good.
            met.first_error = None;
        }
        self.met
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
