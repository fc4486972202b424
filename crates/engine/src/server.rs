//! Listening and letting peers in: a thread for each address, and one for each connection. Owns the
//! bound on connections and the waking of idle ones when the engine stops.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use azekura_proto::frame;
use azekura_proto::limits::{CONNECTIONS_MAX, FRAME_MS};
use azekura_proto::message::{
    Answer, EngineReport, Refusal, Reply, Request, RequestHead, TargetReport, Welcome,
};
use azekura_proto::pool_map::Address;
use azekura_proto::{EngineId, Incarnation, PoolId, Status, TargetId};
use azekura_wire::{Connection, Gate, Listener, Socket};
use parking_lot::Mutex;

use crate::connection::serve;
use crate::engine::{Shared, adopt, target_dir};
use crate::sessions::Session;

/// A connection's thread does not nest deeply; thousands of them must not cost much.
const STACK_BYTES: usize = 512 * 1024;

/// Sockets of the open connections, to wake their threads.
#[derive(Default)]
struct OpenSockets {
    next: AtomicU64,
    sockets: Mutex<HashMap<u64, OwnedFd>>,
}

impl OpenSockets {
    fn add(&self, socket: &Socket) -> io::Result<u64> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let copy = socket.as_fd().try_clone_to_owned()?;
        self.sockets.lock().insert(id, copy);
        Ok(id)
    }

    fn remove(&self, id: u64) {
        self.sockets.lock().remove(&id);
    }

    /// Threads that wait for a request see the end; those that work may still answer.
    fn close_inputs(&self) {
        for socket in self.sockets.lock().values() {
            // A peer may have closed it already.
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Read);
        }
    }
}

/// The listening side of an engine.
pub(crate) struct Server {
    listeners: Vec<Arc<Listener>>,
    threads: Vec<JoinHandle<()>>,
    open: Arc<OpenSockets>,
}

impl Server {
    pub(crate) fn start(shared: &Arc<Shared>, listeners: Vec<Listener>) -> io::Result<Self> {
        let open = Arc::new(OpenSockets::default());
        let listeners: Vec<Arc<Listener>> = listeners.into_iter().map(Arc::new).collect();
        let mut threads = Vec::new();
        for listener in &listeners {
            let (shared, listener) = (Arc::clone(shared), Arc::clone(listener));
            let open = Arc::clone(&open);
            let thread = std::thread::Builder::new().name("listen".to_owned());
            threads.push(thread.spawn(move || accept_all(&shared, &listener, &open))?);
        }
        Ok(Self { listeners, threads, open })
    }

    pub(crate) fn addresses(&self) -> Vec<Address> {
        self.listeners.iter().filter_map(|listener| listener.address().ok()).collect()
    }

    /// Takes no more connections and lets idle ones end.
    pub(crate) fn stop(self) {
        for listener in &self.listeners {
            if let Ok(Address::Unix(path)) = listener.address() {
                // Somebody else may have taken it away; clients will not find it either way.
                let _ = std::fs::remove_file(path);
            }
            listener.shut_down();
        }
        self.open.close_inputs();
        for thread in self.threads {
            // It ends with the listener; if it panicked, that was logged.
            let _ = thread.join();
        }
        // Connections that came in between.
        self.open.close_inputs();
    }
}

fn accept_all(shared: &Arc<Shared>, listener: &Listener, open: &Arc<OpenSockets>) {
    loop {
        let socket = match listener.accept() {
            Ok(socket) => socket,
            Err(_) if shared.stopping.load(Ordering::Relaxed) => return,
            Err(error) => {
                tracing::warn!("cannot take a connection: {error}");
                // Out of descriptors, most likely: give others time to close theirs.
                std::thread::sleep(Duration::from_millis(50));
                continue;
            }
        };
        if shared.stopping.load(Ordering::Relaxed) {
            return;
        }
        let worker = Arc::clone(shared);
        let open = Arc::clone(open);
        shared.open_connections.fetch_add(1, Ordering::AcqRel);
        let spawned = std::thread::Builder::new()
            .name("connection".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                handle(&worker, socket, &open);
                worker.open_connections.fetch_sub(1, Ordering::AcqRel);
            });
        if let Err(error) = spawned {
            shared.open_connections.fetch_sub(1, Ordering::AcqRel);
            tracing::warn!("cannot start a thread for a connection: {error}");
        }
    }
}

fn handle(shared: &Arc<Shared>, socket: Socket, open: &OpenSockets) {
    let Ok(id) = open.add(&socket) else {
        tracing::warn!("no descriptor left for a connection");
        return;
    };
    if shared.node.read().is_some() {
        handle_guest(shared, socket);
    } else {
        handle_adoption(shared, socket);
    }
    open.remove(id);
}

fn handle_guest(shared: &Shared, socket: Socket) {
    let Some(node) = shared.node.read().clone() else { return };
    let gate = Gate { secret: &shared.config.secret, pool: node.map.pool };
    let remote = matches!(socket, Socket::Tcp(_));
    let mut attached: Option<Arc<Session>> = None;
    let admitted = gate.receive(socket, |guest| {
        if node.is_stopping() {
            return Err(Refusal::Stopping);
        }
        if shared.open_connections.load(Ordering::Relaxed) > CONNECTIONS_MAX {
            return Err(Refusal::Full);
        }
        let (session, fresh_session) =
            node.sessions.attach(guest.session, remote).ok_or(Refusal::Full)?;
        attached = Some(session);
        Ok(Welcome {
            engine: node.engine,
            incarnation: node.incarnation,
            map_version: node.map.version,
            fresh_session,
        })
    });
    match (admitted, &attached) {
        (Ok((mut connection, guest)), Some(session)) => {
            // An idle peer is fine; one that stops inside a frame is not.
            let timeout = Some(Duration::from_millis(FRAME_MS));
            let socket = connection.socket();
            if socket.set_read_timeout(timeout).and(socket.set_write_timeout(timeout)).is_ok() {
                shared.metrics.connections.fetch_add(1, Ordering::Relaxed);
                serve(&node, &mut connection, session, guest.role);
                shared.metrics.connections.fetch_sub(1, Ordering::Relaxed);
            }
        }
        (Err(error), _) => {
            shared.metrics.refused_count.fetch_add(1, Ordering::Relaxed);
            tracing::warn!("connection refused: {error}");
        }
        (Ok(_), None) => {}
    }
    if let Some(session) = attached {
        session.detach();
    }
}

/// Before the engine belongs to a pool it answers two requests only: what it has, and `Adopt`.
fn handle_adoption(shared: &Shared, socket: Socket) {
    let gate = Gate { secret: &shared.config.secret, pool: PoolId::NONE };
    let welcome = Welcome {
        engine: EngineId(0),
        incarnation: Incarnation(0),
        map_version: 0,
        fresh_session: true,
    };
    let mut connection = match gate.receive(socket, |_| Ok(welcome)) {
        Ok((connection, _)) => connection,
        Err(error) => {
            tracing::warn!("connection refused: {error}");
            return;
        }
    };
    while answer_adoption(shared, &mut connection).is_some() {}
}

fn answer_adoption(shared: &Shared, connection: &mut Connection) -> Option<()> {
    let (_, body) = connection.recv().ok()?;
    let (_, request): (RequestHead, Request<'_>) = frame::decode_borrowed(body).ok()?;
    let answer: Answer = match request {
        Request::Ping => Ok(Reply::Done),
        Request::Report => Ok(Reply::Report(Box::new(report_unclaimed(shared)))),
        Request::Adopt { map, engine } => adopt(shared, &map, engine).map(|()| Reply::Done),
        _ => Err(Status::Unsupported),
    };
    connection.queue(&answer, 0).ok()?;
    connection.flush(&[]).ok()
}

fn report_unclaimed(shared: &Shared) -> EngineReport {
    let targets = (0..shared.config.target_count).map(|index| TargetReport {
        target: TargetId(index),
        path: target_dir(&shared.config, usize::from(index)).display().to_string(),
        space: azekura_proto::message::SpaceStat::default(),
        reclaim_backlog: 0,
        transactions: 0,
    });
    EngineReport {
        engine: EngineId(0),
        pid: std::process::id(),
        uptime_s: 0,
        stopping: shared.stopping.load(Ordering::Relaxed),
        targets: targets.collect(),
        sessions: 0,
        connections: 0,
        requests: 0,
        read_bytes: 0,
        written_bytes: 0,
        requests_per_s: 0,
        read_bytes_per_s: 0,
        written_bytes_per_s: 0,
        resident_bytes: crate::report::resident_bytes(),
    }
}
