//! Listening and letting peers in: a thread for each address, and one for each connection. Owns the
//! bound on connections and the waking of idle ones when the engine stops.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use azekura_proto::limits::CONNECTIONS_MAX;
use azekura_proto::message::Refusal;
use azekura_proto::pool_map::Address;
use azekura_wire::{Acceptor, Listener, Socket};
use parking_lot::Mutex;

use crate::engine_state::EngineState;
use crate::listen::adoption;
use crate::listen::connection::{bound_frames, serve, serve_first};
use crate::listen::handshakes::HandshakePermit;
use crate::requests::attachment::Attachment;
use crate::requests::gate::HangUp;
use crate::service::Service;

/// A connection's thread does not nest deeply; thousands of them must not cost much.
const STACK_BYTES: usize = 512 * 1024;

/// The socket of an open connection.
#[derive(Debug)]
struct OpenSocket(OwnedFd);

impl HangUp for OpenSocket {
    fn hang_up(&self) {
        // A peer may have closed it already.
        let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Both);
    }
}

/// Sockets of the open connections, to wake their threads.
#[derive(Default)]
struct OpenSockets {
    next: AtomicU64,
    sockets: Mutex<HashMap<u64, Arc<OpenSocket>>>,
}

impl OpenSockets {
    fn add(&self, socket: &Socket) -> io::Result<(u64, Arc<OpenSocket>)> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let copy = Arc::new(OpenSocket(socket.as_fd().try_clone_to_owned()?));
        self.sockets.lock().insert(id, Arc::clone(&copy));
        Ok((id, copy))
    }

    fn remove(&self, id: u64) {
        self.sockets.lock().remove(&id);
    }

    /// Threads that wait for a request see the end; those that work may still answer.
    fn close_inputs(&self) {
        for socket in self.sockets.lock().values() {
            // A peer may have closed it already.
            let _ = rustix::net::shutdown(&socket.0, rustix::net::Shutdown::Read);
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
    pub(crate) fn start(state: &Arc<EngineState>, listeners: Vec<Listener>) -> io::Result<Self> {
        let open = Arc::new(OpenSockets::default());
        let listeners: Vec<Arc<Listener>> = listeners.into_iter().map(Arc::new).collect();
        let mut threads = Vec::new();
        for listener in &listeners {
            let (state, listener) = (Arc::clone(state), Arc::clone(listener));
            let open = Arc::clone(&open);
            let thread = std::thread::Builder::new().name("listen".to_owned());
            threads.push(thread.spawn(move || accept_all(&state, &listener, &open))?);
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

fn accept_all(state: &Arc<EngineState>, listener: &Listener, open: &Arc<OpenSockets>) {
    loop {
        let socket = match listener.accept() {
            Ok(socket) => socket,
            Err(_) if state.is_stopping() => return,
            Err(error) => {
                tracing::warn!("cannot take a connection: {error}");
                // Out of descriptors, most likely: give others time to close theirs.
                state.platform.sleep(Duration::from_millis(50));
                continue;
            }
        };
        let is_local = matches!(socket, Socket::Unix(_));
        let Some(handshake) = HandshakePermit::wait_for(state, is_local) else { return };
        let worker = Arc::clone(state);
        let open = Arc::clone(open);
        state.open_connections.fetch_add(1, Ordering::AcqRel);
        let spawned = std::thread::Builder::new()
            .name("connection".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                handle(&worker, socket, &open, handshake);
                worker.open_connections.fetch_sub(1, Ordering::AcqRel);
            });
        if let Err(error) = spawned {
            state.open_connections.fetch_sub(1, Ordering::AcqRel);
            tracing::warn!("cannot start a thread for a connection: {error}");
        }
    }
}

fn handle(
    state: &Arc<EngineState>,
    socket: Socket,
    open: &OpenSockets,
    handshake: HandshakePermit,
) {
    let Ok((id, line)) = open.add(&socket) else {
        tracing::warn!("no descriptor left for a connection");
        return;
    };
    match state.service() {
        Some(service) => handle_guest(state, &service, (socket, line), handshake),
        None => adoption::serve(state, socket, handshake),
    }
    open.remove(id);
}

fn handle_guest(
    state: &EngineState,
    service: &Service,
    (socket, line): (Socket, Arc<OpenSocket>),
    handshake: HandshakePermit,
) {
    let (secret, tickets) = (&state.config.secret, Some(&state.tickets));
    let acceptor = Acceptor { secret, pool: service.pool(), tickets };
    let remote = matches!(socket, Socket::Tcp(_));
    let mut attached: Option<Attachment> = None;
    let admitted = acceptor.receive(socket, |guest| {
        if state.open_connections.load(Ordering::Relaxed) > CONNECTIONS_MAX {
            return Err(Refusal::Full);
        }
        let (mut attachment, welcome) = service.attach(guest.session, guest.role, remote)?;
        attachment.set_line(Arc::clone(&line) as Arc<dyn HangUp>);
        if !remote {
            attachment.carry_descriptors();
        }
        attached = Some(attachment);
        Ok(welcome)
    });
    drop(handshake);
    match (admitted, &mut attached) {
        (Ok(mut arrival), Some(attachment)) => {
            state.metrics.connections.fetch_add(1, Ordering::Relaxed);
            match serve_first(attachment, &mut arrival, secret) {
                Ok(()) if bound_frames(&mut arrival.connection).is_ok() => {
                    arrival.connection.only_answers();
                    serve(attachment, &mut arrival.connection);
                }
                Ok(()) => {}
                Err(error) => refuse(state, &error),
            }
            state.metrics.connections.fetch_sub(1, Ordering::Relaxed);
        }
        (Err(error), _) => refuse(state, &error),
        (Ok(_), None) => {}
    }
}

fn refuse(state: &EngineState, error: &dyn std::error::Error) {
    state.metrics.refused_count.fetch_add(1, Ordering::Relaxed);
    tracing::warn!("connection refused: {error}");
}
