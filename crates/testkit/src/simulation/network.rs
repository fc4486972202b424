//! The way of one simulated client to the engines, as the client library takes it: what is sent waits in
//! a queue; who receives carries it to the engine, with all that may go wrong, and the answer back. Owns
//! that a client which was killed reaches nobody any more.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use azekura_proto::message::{Answer, Request, RequestHead, Welcome};
use azekura_proto::pool_map::Address;
use azekura_proto::{EngineId, SessionId, frame};
use azekura_rpc::Failure;
use azekura_rpc::transport::{
    Caller, Conversation, Line, Met, Network, ReceiveHalf, SendHalf, Wanted,
};
use parking_lot::Mutex;

use super::pool::{Connection, Pool};

/// A round trip to engines that are far away.
const FAR: Duration = Duration::from_millis(10);

/// How one client reaches the engines.
pub(crate) struct ClientNetwork {
    pool: Weak<Pool>,
    is_cut: Arc<AtomicBool>,
    /// Whether the engines are far away: then an answer may be on its way when somebody looks for it.
    is_far: bool,
    /// Whether everything that was sent has arrived by now.
    has_arrived: Arc<AtomicBool>,
}

impl fmt::Debug for ClientNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientNetwork").finish_non_exhaustive()
    }
}

impl ClientNetwork {
    pub(crate) fn new(pool: &Arc<Pool>, is_far: bool) -> Self {
        let (is_cut, has_arrived) = (Arc::default(), Arc::new(AtomicBool::new(!is_far)));
        Self { pool: Arc::downgrade(pool), is_cut, is_far, has_arrived }
    }

    /// Everything that was sent before arrives while this is done.
    pub(crate) fn with_all_arrived(&self, act: impl FnOnce()) {
        self.has_arrived.store(true, Ordering::Relaxed);
        act();
        self.has_arrived.store(!self.is_far, Ordering::Relaxed);
    }

    /// Nothing the client does is heard of from now on.
    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
    }

    fn open_one(&self, engine: EngineId, session: SessionId) -> Option<(Conversation, Welcome)> {
        let pool = self.pool.upgrade().filter(|_| !self.is_cut.load(Ordering::Relaxed))?;
        let (connection, welcome) = pool.connect(engine, session)?;
        let queue = Arc::new(Queue {
            pool: self.pool.clone(),
            connection,
            is_cut: Arc::clone(&self.is_cut),
            is_far: self.is_far,
            has_arrived: Arc::clone(&self.has_arrived),
            is_closed: AtomicBool::new(false),
            sent: Mutex::default(),
        });
        let sender = Box::new(Sender(Arc::clone(&queue)));
        let receiver = Receiver { queue: Arc::clone(&queue), bulk: Vec::new(), read: 0 };
        Some((Conversation::new(sender, Box::new(receiver), queue), welcome))
    }
}

impl Network for ClientNetwork {
    fn open(&self, wanted: &Wanted<'_>, caller: &Caller) -> Met {
        let round_trip = self.is_far.then_some(FAR);
        let mut met = Met { round_trip, ..Met::default() };
        for _ in 0..wanted.count {
            match self.open_one(wanted.engine, caller.session) {
                Some(opened) => met.good.push(opened),
                None => {
                    met.first_error.get_or_insert(io::ErrorKind::ConnectionRefused.into());
                }
            }
        }
        met
    }

    /// Whoever has sent something has an answer as soon as he receives.
    fn wait_for_any(&self, lines: &[Arc<dyn Line>], limit: Duration) -> Vec<bool> {
        let is_ready = |line: &Arc<dyn Line>| {
            let line: &dyn Any = &**line;
            line.downcast_ref::<Queue>().is_some_and(|queue| queue.is_closed() || queue.has_sent())
        };
        let ready: Vec<bool> = lines.iter().map(is_ready).collect();
        if !ready.contains(&true)
            && let Some(pool) = self.pool.upgrade()
        {
            pool.sleep(limit);
        }
        ready
    }

    fn is_near(&self, _addresses: &[Address]) -> bool {
        !self.is_far
    }
}

/// A request on its way.
struct Sent {
    frame: Vec<u8>,
    bulk: Vec<u8>,
}

/// What was sent over a connection and has not been carried to the engine yet.
struct Queue {
    pool: Weak<Pool>,
    connection: Connection,
    is_cut: Arc<AtomicBool>,
    is_far: bool,
    has_arrived: Arc<AtomicBool>,
    is_closed: AtomicBool,
    sent: Mutex<VecDeque<Sent>>,
}

impl Queue {
    fn has_sent(&self) -> bool {
        !self.sent.lock().is_empty()
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed) || self.is_cut.load(Ordering::Relaxed)
    }

    /// The pool, as long as the connection is there on this side.
    fn pool(&self, kind: io::ErrorKind) -> Result<Arc<Pool>, Failure> {
        let pool = self.pool.upgrade().filter(|_| !self.is_closed());
        pool.ok_or_else(|| Failure::Broken(kind.into()))
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.connection)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.disconnect(self.connection);
        }
    }
}

impl Line for Queue {
    fn shut_down(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[derive(Debug)]
struct Sender(Arc<Queue>);

impl SendHalf for Sender {
    fn send(
        &mut self,
        head: &RequestHead,
        request: &Request<'_>,
        bulk: &[u8],
        _more: bool,
    ) -> Result<(), Failure> {
        self.flush()?;
        let mut frame = Vec::new();
        frame::encode_into(&mut frame, &(head, request), bulk.len() as u32)
            .map_err(|_| Failure::TooLarge)?;
        frame.drain(..frame::HEAD_BYTES);
        self.0.sent.lock().push_back(Sent { frame, bulk: bulk.to_vec() });
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.0.pool(io::ErrorKind::BrokenPipe).map(drop)
    }
}

#[derive(Debug)]
struct Receiver {
    queue: Arc<Queue>,
    /// Data of the current answer, and how many of them have been read.
    bulk: Vec<u8>,
    read: usize,
}

impl Receiver {
    /// Carries the next request to its engine, and brings the answer; `None` if none is on its way.
    fn carry(&mut self) -> Result<Option<(Answer, usize)>, Failure> {
        let broken = io::ErrorKind::ConnectionReset;
        loop {
            let pool = self.queue.pool(broken)?;
            let Some(Sent { frame, bulk }) = self.queue.sent.lock().pop_front() else {
                return Ok(None);
            };
            let (head, request): (RequestHead, Request<'_>) =
                frame::decode_borrowed(&frame).unwrap();
            if self.queue.is_far {
                pool.sleep(FAR);
            }
            let Some((answer, bulk)) = pool.exchange(self.queue.connection, head, &request, &bulk)
            else {
                self.queue.shut_down();
                return Err(Failure::Broken(broken.into()));
            };
            if request.has_reply() {
                (self.bulk, self.read) = (bulk, 0);
                return Ok(Some((answer, self.bulk.len())));
            }
        }
    }
}

impl ReceiveHalf for Receiver {
    fn receive(&mut self, _timeouts: u32, _gone: Duration) -> Result<(Answer, usize), Failure> {
        self.carry()?.ok_or(Failure::Late)
    }

    fn try_receive(&mut self) -> Result<Option<(Answer, usize)>, Failure> {
        let pool = self.queue.pool(io::ErrorKind::ConnectionReset)?;
        let is_on_its_way = !self.queue.has_arrived.load(Ordering::Relaxed)
            && self.queue.has_sent()
            && pool.below(3) > 0;
        if is_on_its_way { Ok(None) } else { self.carry() }
    }

    fn read_bulk(&mut self, buffer: &mut [u8]) -> Result<(), Failure> {
        match self.try_read_bulk(buffer)? {
            read if read == buffer.len() => Ok(()),
            _ => Err(Failure::Broken(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    fn try_read_bulk(&mut self, buffer: &mut [u8]) -> Result<usize, Failure> {
        let bytes = buffer.len().min(self.bulk.len() - self.read);
        buffer[..bytes].copy_from_slice(&self.bulk[self.read..self.read + bytes]);
        self.read += bytes;
        Ok(bytes)
    }

    fn has_buffered_input(&self) -> bool {
        self.queue.has_sent()
    }
}
