//! What all threads of a server share: the connections, and the epoll that says which can be served.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::epoll;

use super::connection::Connection;
use super::memory::Memory;
use super::turns::Turn;
use crate::gateway::Gateway;

/// Stands for no connection.
pub(super) const STOP_TOKEN: u64 = u64::MAX;

/// How the sockets are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerConfig {
    /// Send small messages at once (`TCP_NODELAY`).
    pub no_delay: bool,
    /// Send the head of an answer and its body by two calls, as the servers of old did.
    pub splits_answers: bool,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self { no_delay: true, splits_answers: false }
    }
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) gateway: Arc<Gateway>,
    pub(super) config: ServerConfig,
    pub(super) epoll: rustix::fd::OwnedFd,
    pub(super) connections: Mutex<HashMap<u64, Arc<Connection>>>,
    pub(super) next_token: AtomicU64,
    pub(super) memory: Memory,
    /// What each thread does.
    pub(super) turns: Vec<Turn>,
    /// Wakes all threads for the end.
    pub(super) stop: rustix::fd::OwnedFd,
    /// Calls that are being worked.
    pub(super) in_flight: AtomicUsize,
    /// No further call is begun.
    pub(super) is_draining: AtomicBool,
    pub(super) is_stopping: AtomicBool,
}

impl Shared {
    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Sends the answers that wait, as far as clients take them.
    pub(super) fn send_rest(&self, deadline: Instant) {
        let mut waiting: Vec<_> = self.connections.lock().values().cloned().collect();
        loop {
            waiting.retain(|connection| matches!(connection.flush(), Ok(false)));
            if waiting.is_empty() || Instant::now() >= deadline {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Has some thread woken when this can be done with the connection, once, or when an answer that waits can be
    /// sent: what is wanted takes the place of what another thread wanted, which may have been just that.
    pub(super) fn watch(
        &self,
        connection: &Connection,
        wanted: epoll::EventFlags,
    ) -> io::Result<()> {
        let data = epoll::EventData::new_u64(connection.token());
        connection.with_output(|is_waiting| {
            let rest = if is_waiting { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
            let wanted = wanted | rest | epoll::EventFlags::ONESHOT;
            match epoll::modify(&self.epoll, connection.socket(), data, wanted) {
                // Another thread has ended it.
                Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
                Err(errno) => Err(errno.into()),
            }
        })
    }

    pub(super) fn find(&self, token: u64) -> Option<Arc<Connection>> {
        self.connections.lock().get(&token).cloned()
    }

    pub(super) fn remove(&self, connection: &Connection) {
        let _ = epoll::delete(&self.epoll, connection.socket());
        connection.shut_down();
        if self.connections.lock().remove(&connection.token()).is_some() {
            self.gateway.metrics.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(super) fn add(&self, socket: TcpStream, peer: SocketAddr) -> io::Result<()> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(self.config.no_delay)?;
        let token = self.next_token.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(Connection::new(socket, peer, token, &self.memory));
        self.connections.lock().insert(token, Arc::clone(&connection));
        self.gateway.metrics.connections.fetch_add(1, Ordering::Relaxed);
        let wanted = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
        let data = epoll::EventData::new_u64(token);
        let added = epoll::add(&self.epoll, connection.socket(), data, wanted);
        if let Err(errno) = added {
            self.remove(&connection);
            return Err(errno.into());
        }
        Ok(())
    }
}
