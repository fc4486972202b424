//! Serves one mount: the handshake, the threads that read the device and hand requests to a
//! [`Handler`], and the end when the kernel says that the mount is gone. Requests that come over
//! io_uring instead are [`crate::queues`]' work.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use crate::channel::{Channel, Received};
use crate::dispatch::Dispatcher;
use crate::handler::{Handler, Workers};
use crate::latch::Latch;
use crate::lent::Lender;
use crate::negotiate::{Negotiated, RingOffer, SessionConfig, negotiate};
use crate::notify::Notifier;
use crate::queues::{Queues, QueuesConfig};
use crate::reply::Way;
use crate::request::{Message, parse};
use crate::session_error::SessionError;
use crate::transport::{Transport, possible_processors, uring_refusal};

/// Where requests come over io_uring, the device is read this long after names were forgotten: the kernel sends
/// together what it forgets meanwhile, and wakes nobody for each.
const FORGET_PAUSE: Duration = Duration::from_millis(1);
/// Room for headers and arguments beside the data of a write request, in bytes.
const HEAD_ROOM_BYTES: usize = 64 * 1024;

/// A mount that is being served.
#[derive(Debug)]
pub struct Session {
    pool: Arc<dyn Workers>,
    queues: Option<Arc<dyn Workers>>,
    channel: Arc<Channel>,
    negotiated: Negotiated,
    over: Arc<AtomicBool>,
    /// No further request comes from the device.
    ended: Arc<Latch>,
}

impl Session {
    /// Shakes hands with the kernel over `device` and starts to serve. Returns when the file
    /// system is ready for use.
    ///
    /// # Errors
    /// If the handshake fails or no thread can be started, or requests shall go over io_uring and
    /// cannot.
    pub fn start<H: Handler>(
        device: OwnedFd,
        config: &SessionConfig,
        handler: Arc<H>,
    ) -> Result<Self, SessionError> {
        let channel = Arc::new(Channel::new(device));
        let dispatcher = Arc::new(Dispatcher { channel: Arc::clone(&channel), handler });
        let (over, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(Latch::default()));
        let mut buffer = vec![0; config.max_write_bytes as usize + HEAD_ROOM_BYTES];
        let mut queues = None;
        let mut negotiated = negotiate(&channel, config, &mut buffer, |offer| {
            queues = prepare_queues(&dispatcher, config, offer, &over)?;
            Ok(queues.is_some())
        })?;
        let pool = Arc::new(Pool {
            dispatcher,
            over: Arc::clone(&over),
            ended: Arc::clone(&ended),
            buffer_bytes: buffer.len(),
            threads_max: config.threads.max(1),
            over_io_uring: AtomicBool::new(false),
            threads: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            joins: Mutex::new(Vec::new()),
        });
        Pool::spawn(&pool).map_err(SessionError::Thread)?;
        if let Some(Err(reason)) = queues.as_ref().map(|queues| queues.open()) {
            if config.transport == Transport::Uring {
                return Err(SessionError::Uring(reason));
            }
            tracing::warn!("FUSE requests go over /dev/fuse, not over io_uring: {reason}");
            negotiated.over_io_uring = false;
        }
        pool.over_io_uring.store(negotiated.over_io_uring, Ordering::Relaxed);
        let queues = queues.map(|queues| queues as Arc<dyn Workers>);
        Ok(Self { pool, queues, channel, negotiated, over, ended })
    }

    /// What the kernel has agreed to.
    pub fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    /// A sender of invalidations.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(Arc::clone(&self.channel))
    }

    /// What lends files to the kernel.
    pub fn lender(&self) -> Lender {
        Lender::new(Arc::clone(&self.channel))
    }

    /// Becomes true when the mount is gone.
    pub fn over(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.over)
    }

    /// Waits until the mount is gone; what has been asked before may still be worked at, and nobody waits for it.
    pub fn wait_gone(&self) {
        self.ended.wait();
    }

    /// Waits until the mount is gone and all threads have ended.
    pub fn wait(&self) {
        self.pool.join();
        if let Some(queues) = &self.queues {
            queues.join();
        }
    }
}

/// Makes the queues of io_uring, if they are wanted and the kernel offers to use them.
fn prepare_queues<H: Handler>(
    dispatcher: &Arc<Dispatcher<H>>,
    config: &SessionConfig,
    offer: RingOffer,
    over: &Arc<AtomicBool>,
) -> Result<Option<Arc<Queues<H>>>, SessionError> {
    if config.transport == Transport::Device {
        return Ok(None);
    }
    let made = match (offer.is_made, possible_processors()) {
        (false, _) => Err(uring_refusal().unwrap_or_else(|| "the kernel offers none".to_owned())),
        (true, None) => Err("the kernel does not tell how many processors there are".to_owned()),
        (true, Some(queues)) => {
            let config = QueuesConfig {
                queues,
                payload_bytes: offer.payload_bytes,
                threads_max: config.queue_threads.max(1),
            };
            Queues::prepare(Arc::clone(dispatcher), config, Arc::clone(over))
        }
    };
    match made {
        Ok(queues) => Ok(Some(queues)),
        Err(reason) if config.transport == Transport::Uring => Err(SessionError::Uring(reason)),
        Err(reason) => {
            tracing::info!("FUSE requests go over /dev/fuse, not over io_uring: {reason}");
            Ok(None)
        }
    }
}

struct Pool<H> {
    dispatcher: Arc<Dispatcher<H>>,
    /// The kernel has said that the mount is gone.
    over: Arc<AtomicBool>,
    ended: Arc<Latch>,
    buffer_bytes: usize,
    threads_max: usize,
    /// Requests come another way.
    over_io_uring: AtomicBool,
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
            let channel = &pool.dispatcher.channel;
            match channel.receive(&mut buffer) {
                Ok(Received::Message(count)) => {
                    // Threads are added only when the last idle one has got work, so that a lone
                    // caller is always served by the same few threads with their warm caches.
                    if pool.idle.fetch_sub(1, Ordering::Relaxed) == 1
                        && pool.threads.load(Ordering::Relaxed) < pool.threads_max
                        && let Err(error) = Self::spawn(pool)
                    {
                        tracing::warn!("cannot start another FUSE thread: {error}");
                    }
                    let parsed = parse(&buffer[..count]);
                    let is_forget = matches!(parsed, Ok(Message::Forget(_)));
                    pool.dispatcher.dispatch(parsed, || Way::Device(Arc::clone(channel)));
                    if is_forget && pool.over_io_uring.load(Ordering::Relaxed) {
                        std::thread::sleep(FORGET_PAUSE);
                    }
                    pool.idle.fetch_add(1, Ordering::Relaxed);
                }
                Ok(Received::Unmounted) => {
                    pool.over.store(true, Ordering::Release);
                    pool.ended.set();
                    return;
                }
                Err(errno) => {
                    if pool.threads.fetch_sub(1, Ordering::Relaxed) == 1 {
                        // Nobody is left who could hear that the mount is gone.
                        pool.ended.set();
                    }
                    tracing::error!("reading /dev/fuse failed, a FUSE thread ends: {errno}");
                    return;
                }
            }
        }
    }
}
