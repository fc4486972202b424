//! Conversations with engines of this process: a request is a call, made by the thread that sends it,
//! and its answer lies ready when the call returns. Owns which engines are called, how one is cut off,
//! and that no caller is taken down by what happens in a call. Engines that are not of this process may
//! be reached another way beside.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use azekura_proto::EngineId;
use azekura_proto::limits::FRAME_BULK_BYTES_MAX;
use azekura_proto::message::{Answer, Request, RequestHead, Welcome};
use azekura_proto::pool_map::Address;
use parking_lot::{Mutex, RwLock};

use super::bell::Bell;
use super::visit::{Data, Guest, Service, Visit};
use super::{
    Caller, Conversation, EarlyMet, EarlyWanted, Line, Met, Network, ReceiveHalf, SendHalf, Wanted,
};
use crate::failure::Failure;

/// Whoever waits for engines of this process and for others looks after the first so often.
const TURN: Duration = Duration::from_millis(1);

/// The engines of this process.
#[derive(Default)]
pub struct Direct {
    engines: RwLock<HashMap<EngineId, Engine>>,
    others: Option<Arc<dyn Network>>,
    bell: Arc<Bell>,
}

impl Debug for Direct {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Direct").finish_non_exhaustive()
    }
}

struct Engine {
    /// `None` while it is away.
    service: Option<Arc<dyn Service>>,
    calls: Vec<Weak<Call>>,
}

/// Where an engine is.
enum Found {
    /// In this process.
    Here(Arc<dyn Service>),
    /// In this process, but not just now.
    Away,
    /// It never was in this process.
    Elsewhere,
}

impl Direct {
    /// No engine.
    pub fn new() -> Self {
        Self::default()
    }

    /// No engine of this process yet, which are to be added before any client is made; `others` leads to
    /// those that never are of this process.
    pub fn beside(others: Arc<dyn Network>) -> Self {
        Self { others: Some(others), ..Self::default() }
    }

    /// Makes an engine reachable, in place of an earlier one of that number.
    pub fn add(&self, engine: EngineId, service: Arc<dyn Service>) {
        self.remove(engine);
        self.engines.write().insert(engine, Engine { service: Some(service), calls: Vec::new() });
    }

    /// Cuts an engine off, with all conversations, as if it had been killed. It is away until it is
    /// added again. What is being carried out goes on to its end, and keeps what it needs of the engine
    /// until then.
    pub fn remove(&self, engine: EngineId) {
        let calls = match self.engines.write().get_mut(&engine) {
            Some(found) => {
                found.service = None;
                std::mem::take(&mut found.calls)
            }
            None => return,
        };
        for call in calls.iter().filter_map(Weak::upgrade) {
            call.shut_down();
            call.end_if_idle();
        }
    }

    fn find(&self, engine: EngineId) -> Found {
        match self.engines.read().get(&engine) {
            Some(Engine { service: Some(service), .. }) => Found::Here(Arc::clone(service)),
            Some(_) => Found::Away,
            None => Found::Elsewhere,
        }
    }

    fn open_one(
        &self,
        engine: EngineId,
        service: &dyn Service,
        caller: &Caller,
    ) -> io::Result<(Conversation, Welcome)> {
        let Caller { pool, session, role, .. } = *caller;
        let (visit, welcome) =
            service.admit(Guest { session, role, pool }).map_err(io::Error::other)?;
        let call = Arc::new(Call {
            visit: Mutex::new(Some(visit)),
            letters: Mutex::default(),
            bell: Arc::clone(&self.bell),
        });
        match self.engines.write().get_mut(&engine).filter(|found| found.service.is_some()) {
            Some(found) => {
                found.calls.retain(|call| call.strong_count() > 0);
                found.calls.push(Arc::downgrade(&call));
            }
            None => return Err(io::ErrorKind::ConnectionReset.into()),
        }
        let receiver = Receiver {
            call: Arc::clone(&call),
            timeout: caller.timeout,
            data: Data::default(),
            read: 0,
        };
        let sender = Box::new(Sender(Arc::clone(&call)));
        Ok((Conversation::new(sender, Box::new(receiver), call), welcome))
    }
}

impl Network for Direct {
    fn open_early(&self, wanted: &[EarlyWanted<'_>], caller: &Caller) -> Option<Vec<EarlyMet>> {
        let is_called = |early: &EarlyWanted<'_>| self.is_called(early.wanted.engine);
        let others = self.others.as_ref().filter(|_| !wanted.iter().any(is_called))?;
        others.open_early(wanted, caller)
    }

    fn open(&self, wanted: &Wanted<'_>, caller: &Caller) -> Met {
        let service = match (self.find(wanted.engine), &self.others) {
            (Found::Here(service), _) => service,
            (Found::Elsewhere, Some(others)) => return others.open(wanted, caller),
            (Found::Elsewhere, None) | (Found::Away, _) => {
                let refused = Some(io::ErrorKind::ConnectionRefused.into());
                return Met { first_error: refused, ..Met::default() };
            }
        };
        let mut met = Met { round_trip: Some(Duration::ZERO), ..Met::default() };
        for _ in 0..wanted.count {
            match self.open_one(wanted.engine, &*service, caller) {
                Ok(opened) => met.good.push(opened),
                Err(error) => {
                    met.first_error.get_or_insert(error);
                }
            }
        }
        met
    }

    fn open_all(&self, wanted: &[Wanted<'_>], caller: &Caller) -> Vec<Met> {
        // Looked at once: an engine may be added meanwhile.
        let are_called: Vec<bool> =
            wanted.iter().map(|wanted| self.is_called(wanted.engine)).collect();
        let elsewhere = wanted.iter().zip(&are_called).filter(|(_, is_called)| !**is_called);
        let elsewhere: Vec<_> = elsewhere.map(|(wanted, _)| *wanted).collect();
        let met = self.others.as_ref().map(|others| others.open_all(&elsewhere, caller));
        let mut met_elsewhere = met.unwrap_or_default().into_iter();
        let met = wanted.iter().zip(are_called).map(|(wanted, is_called)| {
            if is_called {
                self.open(wanted, caller)
            } else {
                met_elsewhere.next().unwrap_or_default()
            }
        });
        met.collect()
    }

    /// Whatever this thread has sent has been answered; what another thread sends comes when its call
    /// has returned.
    fn wait_for_any(&self, lines: &[Arc<dyn Line>], limit: Duration) -> Vec<bool> {
        let calls: Option<Vec<&Call>> = lines.iter().map(call_of).collect();
        match (calls, &self.others) {
            (Some(calls), _) => {
                self.bell.wait(limit, || calls.iter().any(|call| call.is_ready()));
                calls.iter().map(|call| call.is_ready()).collect()
            }
            (None, Some(others)) => wait_among_others(&**others, lines, limit),
            // What is no call has no place here; whoever reads finds out.
            (None, None) => vec![true; lines.len()],
        }
    }

    /// Of engines that are not called.
    fn is_near(&self, addresses: &[Address]) -> bool {
        self.others.as_ref().is_none_or(|others| others.is_near(addresses))
    }

    /// Of engines that are not called.
    fn passes_descriptors(&self) -> bool {
        self.others.as_ref().is_some_and(|others| others.passes_descriptors())
    }

    /// Where there are others, for engines that were added before.
    fn is_called(&self, engine: EngineId) -> bool {
        self.others.is_none() || self.engines.read().contains_key(&engine)
    }
}

/// Waits where there are lines of other engines too: for those by their own means, in short turns.
fn wait_among_others(others: &dyn Network, lines: &[Arc<dyn Line>], limit: Duration) -> Vec<bool> {
    let deadline = Instant::now() + limit;
    let far: Vec<_> = lines.iter().filter(|line| call_of(line).is_none()).cloned().collect();
    loop {
        let called: Vec<_> = lines.iter().map(|line| call_of(line).map(Call::is_ready)).collect();
        let is_any = called.contains(&Some(true));
        let left = deadline.saturating_duration_since(Instant::now());
        let turn = if is_any { Duration::ZERO } else { left.min(TURN) };
        let mut seen = others.wait_for_any(&far, turn).into_iter();
        let ready: Vec<bool> =
            called.iter().map(|own| own.unwrap_or_else(|| seen.next() == Some(true))).collect();
        if left.is_zero() || ready.contains(&true) {
            return ready;
        }
    }
}

/// One conversation, as both its halves and whoever cuts the engine off see it.
struct Call {
    /// Locked while a request is carried out; `None` once it is over for the engine.
    visit: Mutex<Option<Box<dyn Visit>>>,
    letters: Mutex<Letters>,
    bell: Arc<Bell>,
}

/// Answers that nobody has taken yet.
#[derive(Debug, Default)]
struct Letters {
    answers: VecDeque<(Answer, Data)>,
    is_closed: bool,
}

impl Letters {
    /// Nothing is read any more. Gives back what was not, to be dropped without the lock: it may keep
    /// the engine's files.
    fn close(&mut self) -> VecDeque<(Answer, Data)> {
        self.is_closed = true;
        std::mem::take(&mut self.answers)
    }
}

fn call_of(line: &Arc<dyn Line>) -> Option<&Call> {
    let line: &dyn Any = &**line;
    line.downcast_ref()
}

impl Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").field("letters", &self.letters).finish_non_exhaustive()
    }
}

impl Call {
    /// Whether there is anything to hear.
    fn is_ready(&self) -> bool {
        let letters = self.letters.lock();
        letters.is_closed || !letters.answers.is_empty()
    }

    /// Ends it for the engine, unless a request is being carried out: who does that sees to it.
    fn end_if_idle(&self) {
        let visit = self.visit.try_lock().and_then(|mut visit| visit.take());
        drop(visit);
    }

    fn carry_out(
        &self,
        head: &RequestHead,
        request: &Request<'_>,
        bulk: &[u8],
    ) -> io::Result<Option<(Answer, Data)>> {
        let mut visit = self.visit.lock();
        let guest = visit.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        // As the thread of a connection would end, and its peer go on.
        let served = catch_unwind(AssertUnwindSafe(|| guest.serve(head, request, bulk)));
        served.unwrap_or_else(|_| Err(io::Error::other("the engine failed in the midst of it")))
    }
}

impl Line for Call {
    fn shut_down(&self) {
        let unread = self.letters.lock().close();
        self.bell.ring();
        drop(unread);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[derive(Debug)]
struct Sender(Arc<Call>);

impl SendHalf for Sender {
    fn send(
        &mut self,
        head: &RequestHead,
        request: &Request<'_>,
        bulk: &[u8],
        _more: bool,
    ) -> Result<(), Failure> {
        if bulk.len() > FRAME_BULK_BYTES_MAX as usize {
            return Err(Failure::TooLarge);
        }
        self.flush()?;
        let served = self.0.carry_out(head, request, bulk);
        let (answer, error) = match served {
            Ok(answer) => (answer, None),
            Err(error) => (None, Some(error)),
        };
        let (is_closed, unread) = {
            let mut letters = self.0.letters.lock();
            letters.answers.extend(answer);
            let is_closed = letters.is_closed || error.is_some();
            (is_closed, is_closed.then(|| letters.close()))
        };
        self.0.bell.ring();
        drop(unread);
        if is_closed {
            // Whoever closed it found the request under way.
            self.0.end_if_idle();
        }
        error.map_or(Ok(()), |error| Err(Failure::Broken(error)))
    }

    fn flush(&mut self) -> Result<(), Failure> {
        if self.0.letters.lock().is_closed {
            return Err(Failure::Broken(io::ErrorKind::BrokenPipe.into()));
        }
        Ok(())
    }
}

impl Drop for Sender {
    /// Nothing more is sent: a line or a receiver that somebody still has does not keep the engine.
    fn drop(&mut self) {
        self.0.end_if_idle();
    }
}

#[derive(Debug)]
struct Receiver {
    call: Arc<Call>,
    timeout: Duration,
    /// Data of the current answer, and how many of them have been read.
    data: Data,
    read: usize,
}

impl Receiver {
    fn take(&mut self, limit: Duration) -> Result<Option<(Answer, usize)>, Failure> {
        if !self.call.is_ready() {
            self.call.bell.wait(limit, || self.call.is_ready());
        }
        let mut letters = self.call.letters.lock();
        // What an engine that was cut off has answered is lost, as in a socket that is reset.
        if letters.is_closed {
            return Err(Failure::Broken(io::ErrorKind::ConnectionReset.into()));
        }
        let Some((answer, data)) = letters.answers.pop_front() else {
            return Ok(None);
        };
        (self.data, self.read) = (data, 0);
        Ok(Some((answer, self.data.bytes())))
    }
}

impl ReceiveHalf for Receiver {
    fn receive(&mut self, timeouts: u32, gone: Duration) -> Result<(Answer, usize), Failure> {
        self.take((self.timeout * timeouts).saturating_sub(gone))?.ok_or(Failure::Late)
    }

    fn receive_with_descriptor(
        &mut self,
        gone: Duration,
    ) -> Result<(Answer, Option<OwnedFd>), Failure> {
        match self.receive(1, gone)? {
            (answer, 0) => match std::mem::take(&mut self.data) {
                Data::Descriptor(descriptor) => Ok((answer, Some(descriptor))),
                Data::Bytes(_) | Data::Kept(_) => Ok((answer, None)),
            },
            _ => Err(Failure::UNASKED_DATA),
        }
    }

    fn try_receive(&mut self) -> Result<Option<(Answer, usize)>, Failure> {
        self.take(Duration::ZERO)
    }

    fn read_bulk(&mut self, buffer: &mut [u8]) -> Result<(), Failure> {
        match self.try_read_bulk(buffer)? {
            read if read == buffer.len() => Ok(()),
            _ => Err(Failure::Broken(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    fn try_read_bulk(&mut self, buffer: &mut [u8]) -> Result<usize, Failure> {
        let bytes = buffer.len().min(self.data.bytes() - self.read);
        self.data.read(self.read, &mut buffer[..bytes]).map_err(Failure::Broken)?;
        self.read += bytes;
        if self.read == self.data.bytes() {
            // They keep a file of the engine, and with it all that is open there: a conversation that has
            // nothing to do keeps neither.
            (self.data, self.read) = (Data::default(), 0);
        }
        Ok(bytes)
    }

    fn has_buffered_input(&self) -> bool {
        !self.call.letters.lock().answers.is_empty()
    }
}
