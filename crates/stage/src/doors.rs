//! Coming in and going out: the listening socket of a process of the job, the handshake on both sides,
//! and the table of open sockets by which all threads that wait on one are woken at the end. Nobody
//! gets past here who does not know the job's secret.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use azekura_proto::frame;
use azekura_proto::message::{Role, Welcome};
use azekura_proto::pool_map::Address;
use azekura_proto::staging::JobId;
use azekura_proto::{EngineId, Incarnation, SessionId};
use azekura_wire::{Acceptor, ConnectError, Connection, Listener, Secret, Socket};
use parking_lot::{Condvar, Mutex};
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::Shutdown;

use crate::message::Opening;

/// Callers that have not proven yet who they are, at most.
const STRANGERS_MAX: usize = 64;
/// How long a stranger has before it makes room for others.
const STRANGER_TIME: Duration = Duration::from_millis(250);
/// Threads of the job do not nest deeply.
const STACK_BYTES: usize = 512 * 1024;
/// How long a supplier or an agent may take to answer a call.
pub(crate) const DIAL_TIME: Duration = Duration::from_secs(3);

/// Starts a thread.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new()
        .name(format!("stage-{name}"))
        .stack_size(STACK_BYTES)
        .spawn(run)
        .map(|_| ())
}

/// The sockets of a process, to be closed when it ends.
#[derive(Default)]
pub(crate) struct OpenSockets {
    is_closed: AtomicBool,
    sockets: Mutex<Vec<(usize, OwnedFd)>>,
    next: AtomicUsize,
}

/// A socket's place in the table, for as long as it is used.
pub(crate) struct Entered {
    number: usize,
    table: Arc<OpenSockets>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.table.sockets.lock().retain(|(number, _)| *number != self.number);
    }
}

impl OpenSockets {
    pub(crate) fn enter(self: &Arc<Self>, socket: impl AsFd) -> io::Result<Entered> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.sockets.lock().push((number, socket.as_fd().try_clone_to_owned()?));
        let entered = Entered { number, table: Arc::clone(self) };
        // Looked at after the socket is in the table: whoever closes all comes before or sees it.
        if self.is_closed() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        Ok(entered)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Ends all connections, now and later.
    pub(crate) fn close(&self) {
        self.shut_down(Shutdown::Both);
    }

    /// Takes in nothing more; answers may still be sent.
    pub(crate) fn close_inputs(&self) {
        self.shut_down(Shutdown::Read);
    }

    fn shut_down(&self, how: Shutdown) {
        self.is_closed.store(true, Ordering::Release);
        for (_, socket) in &*self.sockets.lock() {
            // The peer may have closed it already.
            let _ = rustix::net::shutdown(socket, how);
        }
    }
}

/// What proves that a process is one of the job.
#[derive(Clone, Debug)]
pub(crate) struct Pass {
    pub(crate) job: JobId,
    pub(crate) secret: Secret,
}

impl Pass {
    /// Calls a process of the job.
    pub(crate) fn dial(
        &self,
        address: &str,
        opening: &Opening,
    ) -> Result<Connection, ConnectError> {
        self.dial_timed(address, opening).map(|(connection, _)| connection)
    }

    /// The same, with the time that the way there and back took.
    pub(crate) fn dial_timed(
        &self,
        address: &str,
        opening: &Opening,
    ) -> Result<(Connection, Duration), ConnectError> {
        let begun = Instant::now();
        let socket = azekura_wire::dial(&Address::Tcp(address.to_owned()), DIAL_TIME)?;
        let round_trip = begun.elapsed();
        let session = SessionId([0; 16]);
        let (mut connection, _) = azekura_wire::connect(
            socket,
            self.job.as_pool(),
            session,
            Role::Engine,
            &self.secret,
            DIAL_TIME,
        )?;
        connection.queue(opening, 0)?;
        connection.flush(&[])?;
        Ok((connection, round_trip))
    }

    fn receive(&self, socket: Socket) -> Result<(Connection, Opening), ConnectError> {
        let acceptor = Acceptor { secret: &self.secret, pool: self.job.as_pool(), tickets: None };
        let arrival = acceptor.receive(socket, |_| {
            Ok(Welcome {
                engine: EngineId(0),
                incarnation: Incarnation(0),
                map_version: 0,
                fresh_session: true,
            })
        })?;
        let mut connection = arrival.connection;
        connection.socket().set_read_timeout(Some(DIAL_TIME))?;
        let opening = frame::decode(connection.recv()?.1)?;
        connection.socket().set_read_timeout(None)?;
        Ok((connection, opening))
    }
}

/// Where a process of the job listens: on any free port, for callers from everywhere.
pub(crate) struct Door {
    listener: Listener,
    pass: Pass,
    open: Arc<OpenSockets>,
    strangers: Mutex<VecDeque<Stranger>>,
    /// One of them is none any more.
    known: Condvar,
    next: AtomicUsize,
}

/// A caller who has not proven yet who it is.
struct Stranger {
    number: usize,
    since: Instant,
    socket: OwnedFd,
}

impl Door {
    pub(crate) fn open(pass: Pass, open: &Arc<OpenSockets>) -> io::Result<Arc<Self>> {
        // Hosts without IPv6 have no such socket.
        let bound = Listener::bind(&Address::Tcp("[::]:0".to_owned()))
            .or_else(|_| Listener::bind(&Address::Tcp("0.0.0.0:0".to_owned())));
        Ok(Arc::new(Self {
            listener: bound?,
            pass,
            open: Arc::clone(open),
            strangers: Mutex::default(),
            known: Condvar::new(),
            next: AtomicUsize::new(0),
        }))
    }

    pub(crate) fn port(&self) -> io::Result<u16> {
        match &self.listener {
            Listener::Tcp(listener) => Ok(listener.local_addr()?.port()),
            Listener::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    pub(crate) fn close(&self) {
        self.listener.shut_down();
    }

    /// Lets callers in until the door is closed: each has a thread, in which `serve` is called.
    pub(crate) fn let_in(
        self: &Arc<Self>,
        serve: impl Fn(Connection, Opening) + Clone + Send + 'static,
    ) -> io::Result<()> {
        let door = Arc::clone(self);
        spawn("accept", move || {
            while !door.open.is_closed() {
                match door.listener.accept() {
                    Ok(socket) => door.welcome(socket, serve.clone()),
                    Err(_) if door.open.is_closed() => return,
                    Err(error) => {
                        tracing::warn!("cannot take a connection: {error}");
                        std::thread::sleep(Duration::from_millis(50));
                    }
                }
            }
        })
    }

    fn welcome(
        self: &Arc<Self>,
        socket: Socket,
        serve: impl Fn(Connection, Opening) + Send + 'static,
    ) {
        let Some(number) = self.make_room(&socket) else { return };
        let door = Arc::clone(self);
        let spawned = spawn("connection", move || {
            let entered = door.open.enter(&socket);
            let received = door.pass.receive(socket);
            door.forget(number);
            match (entered, received) {
                (Ok(_entered), Ok((connection, opening))) => serve(connection, opening),
                (Ok(_), Err(error)) => tracing::warn!("a caller was not let in: {error}"),
                (Err(_), _) => {}
            }
        });
        if spawned.is_err() {
            self.forget(number);
        }
    }

    /// Enters a caller among the strangers. If there are too many it waits for one that proves who it is, or
    /// sends away the oldest: callers who say nothing keep nobody out.
    fn make_room(&self, socket: impl AsFd) -> Option<usize> {
        let socket = socket.as_fd().try_clone_to_owned().ok()?;
        let mut strangers = self.strangers.lock();
        while strangers.len() >= STRANGERS_MAX && !self.open.is_closed() {
            let left = STRANGER_TIME.saturating_sub(strangers.front()?.since.elapsed());
            if left.is_zero() {
                let oldest = strangers.pop_front()?;
                // Its thread finds that out; the peer may have closed it already.
                let _ = rustix::net::shutdown(&oldest.socket, Shutdown::Both);
            } else {
                self.known.wait_for(&mut strangers, left);
            }
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        strangers.push_back(Stranger { number, since: Instant::now(), socket });
        Some(number)
    }

    fn forget(&self, number: usize) {
        self.strangers.lock().retain(|stranger| stranger.number != number);
        self.known.notify_one();
    }
}
