//! The sockets of a gateway. Owns which threads serve which connections, and the bounds on both; knows
//! messages by their length only. All threads wait on one epoll; whoever is woken for a connection takes
//! one message off it, lets others go on with the next, and answers it. So calls of one connection are
//! worked in parallel, and answered as they are done.

mod connection;
mod memory;
mod state;
mod turns;
mod worker;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, epoll, eventfd};

use crate::gateway::Gateway;
use memory::Memory;
use rustix::event::epoll::EventFlags;
pub use state::ServerConfig;
use state::{STOP_TOKEN, Shared};
use turns::{ALONE_MAX, Turn};

/// Threads that answer calls; so many are worked at a time, in all.
const THREADS: usize = 32;
/// Connections at a time.
const CONNECTIONS_MAX: usize = 16 * 1024;
/// What connections take together with messages that have not come completely, and answers that are not
/// sent.
const MEMORY_BYTES_MAX: usize = 512 << 20;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 4096;
/// How often the acceptor looks after other things.
const TICK: Duration = Duration::from_millis(500);
/// A client that takes nothing of an answer for so long has gone.
const UNREAD_MAX: Duration = Duration::from_secs(60);

/// A gateway that serves.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Serves on these sockets; each answers for all programs.
    ///
    /// # Errors
    /// If a thread or an epoll cannot be had.
    pub fn start(
        gateway: Arc<Gateway>,
        listeners: Vec<TcpListener>,
        config: ServerConfig,
    ) -> io::Result<Self> {
        let origin = Instant::now();
        let shared = Arc::new(Shared {
            gateway,
            config,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            connections: Mutex::default(),
            next_token: AtomicU64::new(0),
            memory: Memory::new(MEMORY_BYTES_MAX),
            turns: (0..THREADS).map(|_| Turn::new(origin)).collect(),
            stop: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            in_flight: AtomicUsize::new(0),
            is_draining: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
        });
        // Not for one event only, so that it wakes every thread.
        let data = epoll::EventData::new_u64(STOP_TOKEN);
        epoll::add(&shared.epoll, &shared.stop, data, epoll::EventFlags::IN)?;
        let mut server = Self { shared, threads: Vec::new() };
        for number in 0..THREADS {
            let shared = Arc::clone(&server.shared);
            let thread = std::thread::Builder::new().name(format!("nfs-{number}"));
            let work = move || worker::run(&shared, &shared.turns[number]);
            server.threads.push(thread.spawn(work)?);
        }
        for listener in listeners {
            listener.set_nonblocking(true)?;
            // Many clients come at once when a gateway takes over from another.
            rustix::net::listen(&listener, BACKLOG)?;
            let shared = Arc::clone(&server.shared);
            let thread = std::thread::Builder::new().name("nfs-accept".to_owned());
            server.threads.push(thread.spawn(move || accept_all(&shared, &listener))?);
        }
        let shared = Arc::clone(&server.shared);
        let thread = std::thread::Builder::new().name("nfs-turns".to_owned());
        server.threads.push(thread.spawn(move || watch_turns(&shared))?);
        let shared = Arc::clone(&server.shared);
        let thread = std::thread::Builder::new().name("nfs-upkeep".to_owned());
        server.threads.push(thread.spawn(move || keep_up(&shared))?);
        Ok(server)
    }

    /// What tells the addresses that are connected at a moment, one for each connection.
    pub fn clients(&self) -> impl Fn() -> Vec<SocketAddr> + Send + Sync + use<> {
        let shared = Arc::clone(&self.shared);
        move || shared.connections.lock().values().map(|connection| connection.peer()).collect()
    }

    /// Begins nothing new, waits for the calls that are being worked, at most for this time, sends on
    /// what was gathered, and ends all connections.
    pub fn stop(mut self, patience: Duration) {
        let shared = &self.shared;
        shared.is_draining.store(true, Ordering::Release);
        let deadline = Instant::now() + patience;
        while shared.in_flight.load(Ordering::Acquire) > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        shared.gateway.flush();
        shared.send_rest(deadline);
        shared.is_stopping.store(true, Ordering::Release);
        // It counts to 2^64 before it fails.
        let _ = rustix::io::write(&shared.stop, &1_u64.to_ne_bytes());
        let is_idle = shared.in_flight.load(Ordering::Acquire) == 0;
        for (_, connection) in shared.connections.lock().drain() {
            connection.shut_down();
        }
        // A thread that still waits for an engine ends with the process.
        if is_idle {
            for thread in self.threads.drain(..) {
                let _ = thread.join();
            }
        }
    }
}

fn accept_all(shared: &Shared, listener: &TcpListener) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let tick = Timespec { tv_sec: 0, tv_nsec: TICK.as_nanos() as i64 };
    while !shared.is_stopping() && !shared.is_draining.load(Ordering::Acquire) {
        let mut polled = [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)];
        if !matches!(poll(&mut polled, Some(&tick)), Ok(1..)) {
            continue;
        }
        match listener.accept() {
            Ok((socket, peer)) => {
                let is_full = shared.connections.lock().len() >= CONNECTIONS_MAX;
                if is_full || shared.add(socket, peer).is_err() {
                    shared.gateway.metrics.refused_connections.fetch_add(1, Ordering::Relaxed);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                // No descriptors are left, most likely; some will be when connections end.
                tracing::warn!("a connection cannot be accepted: {error}");
                shared.gateway.metrics.refused_connections.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

/// Passes connections on that one thread has served alone for too long.
fn watch_turns(shared: &Shared) {
    let mut last_busy = Instant::now();
    while !shared.is_stopping() {
        // While calls are worked somebody may be waiting behind one; else nothing is urgent.
        let is_quiet = last_busy.elapsed() > TICK;
        std::thread::sleep(if is_quiet { TICK / 10 } else { ALONE_MAX });
        for turn in shared.turns.iter().filter(|turn| turn.is_busy()) {
            last_busy = Instant::now();
            if let Some(connection) = turn.pass_on()
                && shared.watch(&connection, EventFlags::IN | EventFlags::OUT).is_err()
            {
                shared.remove(&connection);
            }
        }
    }
}

/// What has to be done from time to time, and may have to wait for engines.
fn keep_up(shared: &Shared) {
    let mut last_tick = Instant::now();
    while !shared.is_stopping() {
        std::thread::sleep(TICK / 10);
        if last_tick.elapsed() < TICK {
            continue;
        }
        last_tick = Instant::now();
        let all: Vec<_> = shared.connections.lock().values().cloned().collect();
        for connection in all {
            connection.rest();
            if connection.unread_for().is_some_and(|time| time > UNREAD_MAX) {
                tracing::warn!(client = %connection.peer(), "takes no answers: the connection ends");
                shared.remove(&connection);
            }
        }
        shared.gateway.tick();
    }
}
