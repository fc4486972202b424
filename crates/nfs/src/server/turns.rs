//! Which thread serves which connection alone, and since when. A thread that answers short calls keeps
//! the connection for itself; if one takes long after all, the connection is passed on, so that what else
//! has come over it is not held up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::connection::Connection;

/// After so long other threads go on with a connection.
pub(super) const ALONE_MAX: Duration = Duration::from_millis(2);
/// Stands for no time.
const NEVER: u64 = 0;

/// What one thread does. The time alone is looked at by others all the time.
#[derive(Debug)]
pub(super) struct Turn {
    origin: Instant,
    since_us: AtomicU64,
    connection: Mutex<Option<Arc<Connection>>>,
}

impl Turn {
    pub(super) fn new(origin: Instant) -> Self {
        Self { origin, since_us: AtomicU64::new(NEVER), connection: Mutex::new(None) }
    }

    fn now_us(&self) -> u64 {
        self.origin.elapsed().as_micros() as u64 + 1
    }

    /// The thread begins to serve a connection alone.
    pub(super) fn begin(&self, connection: &Arc<Connection>) {
        *self.connection.lock() = Some(Arc::clone(connection));
        self.since_us.store(self.now_us(), Ordering::Release);
    }

    /// It has ended. Tells whether the connection was passed on before.
    pub(super) fn end(&self) -> bool {
        self.since_us.store(NEVER, Ordering::Release);
        self.connection.lock().take().is_none()
    }

    /// Whether the thread serves a connection alone.
    pub(super) fn is_busy(&self) -> bool {
        self.since_us.load(Ordering::Acquire) != NEVER
    }

    /// The connection, if it has been served alone for too long: others may serve it from now on.
    pub(super) fn pass_on(&self) -> Option<Arc<Connection>> {
        let since_us = self.since_us.load(Ordering::Acquire);
        if since_us == NEVER || self.now_us() - since_us < ALONE_MAX.as_micros() as u64 {
            return None;
        }
        let mut connection = self.connection.lock();
        // It may be another turn by now.
        if self.since_us.load(Ordering::Acquire) == since_us { connection.take() } else { None }
    }
}
