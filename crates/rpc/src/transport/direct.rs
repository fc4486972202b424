//! Conversations with engines of this process: a request is a call, made by the thread that sends it,
//! and its answer lies ready when the call returns. Owns the trait by which an engine is called.

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use azekura_proto::EngineId;
use azekura_proto::message::{Answer, Refusal, Request, RequestHead, Welcome};
use azekura_proto::pool_map::Address;
use parking_lot::{Condvar, Mutex};

use super::{Caller, Conversation, Line, Met, Network, ReceiveHalf, SendHalf};
use crate::failure::Failure;

pub use azekura_wire::Guest;

/// An engine that can be called.
pub trait Service: Send + Sync {
    /// Lets a caller in, who has shown already that it belongs to the pool.
    ///
    /// # Errors
    /// Why it is not let in.
    fn admit(&self, guest: Guest) -> Result<(Box<dyn Visit>, Welcome), Refusal>;
}

/// One caller's conversation with an engine; dropping it ends the conversation.
pub trait Visit: Send {
    /// Carries out a request with its bulk data; the answer comes with its own. None for a request
    /// that has no answer.
    fn serve(
        &mut self,
        head: &RequestHead,
        request: &Request<'_>,
        bulk: &[u8],
    ) -> Option<(Answer, Vec<u8>)>;
}

/// The engines of this process.
#[derive(Default)]
pub struct Direct {
    engines: Mutex<HashMap<EngineId, Engine>>,
}

impl Debug for Direct {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Direct").finish_non_exhaustive()
    }
}

struct Engine {
    service: Arc<dyn Service>,
    lines: Vec<Weak<Mailbox>>,
}

impl Direct {
    /// No engine.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes an engine reachable, in place of an earlier one of that number.
    pub fn add(&self, engine: EngineId, service: Arc<dyn Service>) {
        self.remove(engine);
        self.engines.lock().insert(engine, Engine { service, lines: Vec::new() });
    }

    /// Cuts an engine off, with all conversations, as if it had been killed.
    pub fn remove(&self, engine: EngineId) {
        let gone = self.engines.lock().remove(&engine);
        for line in gone.into_iter().flat_map(|engine| engine.lines) {
            if let Some(line) = line.upgrade() {
                line.shut_down();
            }
        }
    }

    fn open_one(&self, engine: EngineId, caller: &Caller) -> io::Result<(Conversation, Welcome)> {
        let service = match self.engines.lock().get(&engine) {
            Some(found) => Arc::clone(&found.service),
            None => return Err(io::ErrorKind::ConnectionRefused.into()),
        };
        let Caller { pool, session, role, .. } = *caller;
        let (visit, welcome) =
            service.admit(Guest { session, role, pool }).map_err(io::Error::other)?;
        let mailbox = Arc::new(Mailbox::default());
        match self.engines.lock().get_mut(&engine) {
            Some(found) => {
                found.lines.retain(|line| line.strong_count() > 0);
                found.lines.push(Arc::downgrade(&mailbox));
            }
            None => return Err(io::ErrorKind::ConnectionReset.into()),
        }
        let sender = Sender { visit, mailbox: Arc::clone(&mailbox) };
        let receiver = Receiver {
            mailbox: Arc::clone(&mailbox),
            timeout: caller.timeout,
            bulk: Vec::new(),
            read: 0,
        };
        Ok((Conversation::new(Box::new(sender), Box::new(receiver), mailbox), welcome))
    }
}

impl Network for Direct {
    fn open(
        &self,
        engine: EngineId,
        _addresses: &[Address],
        count: usize,
        caller: &Caller,
        _timeout: Duration,
    ) -> Met {
        let mut met = Met::default();
        for _ in 0..count {
            match self.open_one(engine, caller) {
                Ok(opened) => met.good.push(opened),
                Err(error) => {
                    met.first_error.get_or_insert(error);
                }
            }
        }
        met
    }

    /// Whatever was sent has been answered.
    fn wait_for_any(&self, lines: &[Arc<dyn Line>], _limit: Duration) -> Vec<bool> {
        vec![true; lines.len()]
    }

    fn is_near(&self, _addresses: &[Address]) -> bool {
        true
    }
}

/// Answers that nobody has taken yet.
#[derive(Debug, Default)]
struct Mailbox {
    state: Mutex<Letters>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Letters {
    answers: VecDeque<(Answer, Vec<u8>)>,
    is_closed: bool,
}

impl Line for Mailbox {
    fn shut_down(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

struct Sender {
    visit: Box<dyn Visit>,
    mailbox: Arc<Mailbox>,
}

impl Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl SendHalf for Sender {
    fn send(
        &mut self,
        head: &RequestHead,
        request: &Request<'_>,
        bulk: &[u8],
        _more: bool,
    ) -> Result<(), Failure> {
        self.flush()?;
        let answer = self.visit.serve(head, request, bulk);
        if let Some(answer) = answer {
            self.mailbox.state.lock().answers.push_back(answer);
            self.mailbox.changed.notify_all();
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        if self.mailbox.state.lock().is_closed {
            return Err(Failure::Broken(io::ErrorKind::BrokenPipe.into()));
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Receiver {
    mailbox: Arc<Mailbox>,
    timeout: Duration,
    /// Data of the current answer, and how many of them have been read.
    bulk: Vec<u8>,
    read: usize,
}

impl Receiver {
    fn take(&mut self, limit: Duration) -> Result<Option<(Answer, usize)>, Failure> {
        let mut letters = self.mailbox.state.lock();
        loop {
            // What an engine that was cut off has answered is lost, as in a socket that is reset.
            if letters.is_closed {
                return Err(Failure::Broken(io::ErrorKind::ConnectionReset.into()));
            }
            if let Some((answer, bulk)) = letters.answers.pop_front() {
                (self.bulk, self.read) = (bulk, 0);
                return Ok(Some((answer, self.bulk.len())));
            }
            if limit.is_zero() || self.mailbox.changed.wait_for(&mut letters, limit).timed_out() {
                return Ok(None);
            }
        }
    }
}

impl ReceiveHalf for Receiver {
    fn receive(&mut self, timeouts: u32, gone: Duration) -> Result<(Answer, usize), Failure> {
        self.take((self.timeout * timeouts).saturating_sub(gone))?.ok_or(Failure::Late)
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
        let bytes = buffer.len().min(self.bulk.len() - self.read);
        buffer[..bytes].copy_from_slice(&self.bulk[self.read..self.read + bytes]);
        self.read += bytes;
        Ok(bytes)
    }

    fn has_buffered_input(&self) -> bool {
        !self.mailbox.state.lock().answers.is_empty()
    }
}
