//! Serves one mount: the handshake, the threads that read requests and hand them to a
//! [`Handler`], and the end when the kernel says that the mount is gone.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::channel::{Channel, Received};
use crate::negotiate::{Negotiated, SessionConfig, negotiate};
use crate::notify::Notifier;
use crate::operation::{Operation, Write};
use crate::reply::Replier;
use crate::request::{Message, ParseError, Request, parse};
use crate::session_error::SessionError;

/// Room for headers and arguments beside the data of a write request, in bytes.
const HEAD_ROOM_BYTES: usize = 64 * 1024;

/// Carries out requests. Called from many threads at once.
pub trait Handler: Send + Sync + 'static {
    /// Carries out `request` and answers it through `replier`, now or later, here or on another
    /// thread. What may wait for long must go to a thread of the handler's own, since the threads
    /// that call this are few.
    fn handle(&self, request: Request<'_>, replier: Replier);

    /// Whoever sent request `unique` does not want to wait any longer. May arrive before the
    /// request itself, or after its answer.
    fn interrupt(&self, unique: u64);

    /// The kernel has dropped `count` references to `node`.
    fn forget(&self, node: u64, count: u64);

    /// The file system goes away; no request follows.
    fn destroy(&self) {}
}

/// A mount that is being served.
#[derive(Debug)]
pub struct Session {
    pool: Arc<dyn Workers>,
    channel: Arc<Channel>,
    negotiated: Negotiated,
    over: Arc<AtomicBool>,
}

impl Session {
    /// Shakes hands with the kernel over `device` and starts to serve. Returns when the file
    /// system is ready for use.
    ///
    /// # Errors
    /// If the handshake fails or no thread can be started.
    pub fn start<H: Handler>(
        device: OwnedFd,
        config: &SessionConfig,
        handler: Arc<H>,
    ) -> Result<Self, SessionError> {
        let channel = Arc::new(Channel::new(device));
        let mut buffer = vec![0; config.max_write_bytes as usize + HEAD_ROOM_BYTES];
        let negotiated = negotiate(&channel, config, &mut buffer)?;
        let over = Arc::new(AtomicBool::new(false));
        let pool = Arc::new(Pool {
            channel: Arc::clone(&channel),
            over: Arc::clone(&over),
            handler,
            buffer_bytes: buffer.len(),
            threads_max: config.threads.max(1),
            threads: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            joins: Mutex::new(Vec::new()),
        });
        Pool::spawn(&pool).map_err(SessionError::Thread)?;
        Ok(Self { pool, channel, negotiated, over })
    }

    /// What the kernel has agreed to.
    pub fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    /// A sender of invalidations.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(Arc::clone(&self.channel))
    }

    /// Becomes true when the mount is gone.
    pub fn over(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.over)
    }

    /// Waits until the mount is gone and all threads have ended.
    pub fn wait(&self) {
        self.pool.join();
    }
}

/// The threads of a mount, whatever their handler is.
trait Workers: Send + Sync + std::fmt::Debug {
    fn join(&self);
}

struct Pool<H> {
    channel: Arc<Channel>,
    /// The kernel has said that the mount is gone.
    over: Arc<AtomicBool>,
    handler: Arc<H>,
    buffer_bytes: usize,
    threads_max: usize,
    threads: AtomicUsize,
    /// Threads that wait for a request.
    idle: AtomicUsize,
    joins: Mutex<Vec<JoinHandle<()>>>,
}

impl<H> std::fmt::Debug for Pool<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl<H: Handler> Workers for Pool<H> {
    fn join(&self) {
        loop {
            // A thread puts in the handle of one it starts before it ends itself, so an empty
            // list means that nobody is left.
            let Some(join) = self.joins.lock().pop() else { return };
            if join.join().is_err() {
                tracing::error!("a FUSE thread has panicked");
            }
        }
    }
}

impl<H: Handler> Pool<H> {
    /// Starts one more thread, unless there are enough.
    fn spawn(pool: &Arc<Self>) -> std::io::Result<()> {
        let number = pool.threads.fetch_add(1, Ordering::Relaxed);
        if number >= pool.threads_max {
            pool.threads.fetch_sub(1, Ordering::Relaxed);
            return Ok(());
        }
        pool.idle.fetch_add(1, Ordering::Relaxed);
        let worker = Arc::clone(pool);
        let mut joins = pool.joins.lock();
        let spawned = std::thread::Builder::new()
            .name(format!("fuse-{number}"))
            .spawn(move || Self::work(&worker));
        match spawned {
            Ok(join) => {
                joins.push(join);
                Ok(())
            }
            Err(error) => {
                pool.idle.fetch_sub(1, Ordering::Relaxed);
                pool.threads.fetch_sub(1, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    fn work(pool: &Arc<Self>) {
        let mut buffer = vec![0; pool.buffer_bytes];
        loop {
            match pool.channel.receive(&mut buffer) {
                Ok(Received::Message(count)) => {
                    // Threads are added only when the last idle one has got work, so that a lone
                    // caller is always served by the same few threads with their warm caches.
                    if pool.idle.fetch_sub(1, Ordering::Relaxed) == 1
                        && pool.threads.load(Ordering::Relaxed) < pool.threads_max
                        && let Err(error) = Self::spawn(pool)
                    {
                        tracing::warn!("cannot start another FUSE thread: {error}");
                    }
                    pool.dispatch(&buffer[..count]);
                    pool.idle.fetch_add(1, Ordering::Relaxed);
                }
                Ok(Received::Unmounted) => {
                    pool.over.store(true, Ordering::Release);
                    return;
                }
                Err(errno) => {
                    tracing::error!("reading /dev/fuse failed, a FUSE thread ends: {errno}");
                    return;
                }
            }
        }
    }

    fn dispatch(&self, bytes: &[u8]) {
        match parse(bytes) {
            Ok(Message::Request(request)) => {
                let unique = request.header.unique;
                tracing::trace!(unique, node = request.header.node, "{:?}", Brief(&request));
                let replier = Replier::new(Arc::clone(&self.channel), unique);
                self.handler.handle(request, replier);
            }
            Ok(Message::Forget(forgets)) => {
                forgets.for_each(|node, count| self.handler.forget(node, count));
            }
            Ok(Message::Interrupt { target }) => self.handler.interrupt(target),
            Ok(Message::Destroy { unique }) => {
                self.handler.destroy();
                self.channel.reply(unique, [&[], &[]]);
            }
            Ok(Message::Ignored) => {}
            // A second handshake on a served mount has no meaning.
            Ok(Message::Init { unique, .. }) => self.channel.reply_error(unique, Errno::IO),
            Err(ParseError::NoHeader) => {
                tracing::warn!(bytes = bytes.len(), "a FUSE message without a whole header");
            }
            Err(ParseError::Malformed { unique, opcode }) => {
                tracing::warn!(unique, opcode, bytes = bytes.len(), "malformed FUSE message");
                self.channel.reply_error(unique, Errno::IO);
            }
            Err(ParseError::Unknown { unique, opcode }) => {
                tracing::debug!(unique, opcode, "FUSE operation that is not served");
                self.channel.reply_error(unique, Errno::NOSYS);
            }
        }
    }
}

/// Shows a request in the log without the data of a write.
struct Brief<'a>(&'a Request<'a>);

impl std::fmt::Debug for Brief<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.operation {
            Operation::Write(Write { fh, offset, data, flags, .. }) => {
                write!(f, "Write {{ fh: {fh}, offset: {offset}, ")?;
                write!(f, "bytes: {}, flags: {flags:#x} }}", data.len())
            }
            ref other => std::fmt::Debug::fmt(other, f),
        }
    }
}
