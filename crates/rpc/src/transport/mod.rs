//! How messages get to an engine. Owns the traits that stand between the protocol and what carries it:
//! sockets ([`Sockets`]), a call into an engine of this process ([`Direct`]), or a simulation. Requests
//! go in as values and answers come out in the same order; nothing here tries anything again.

mod bell;
mod calling;
mod direct;
#[cfg(test)]
mod direct_tests;
mod socket;
mod visit;

use std::any::Any;
use std::fmt::Debug;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use azekura_proto::message::{Answer, Request, RequestHead, Role, Ticket, Welcome};
use azekura_proto::pool_map::Address;
use azekura_proto::{EngineId, Incarnation, PoolId, SessionId};
use azekura_wire::{Incoming, Look, Outgoing, Secret};

use crate::failure::Failure;

pub use direct::Direct;
pub use socket::Sockets;
pub(crate) use socket::open_at;
pub use visit::{Data, Guest, Kept, Service, Visit};

/// Who calls.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The pool that is meant.
    pub pool: PoolId,
    /// The session that the conversations belong to.
    pub session: SessionId,
    /// Client or engine.
    pub role: Role,
    /// The pool's secret.
    pub secret: Secret,
    /// How long a send or a wait for an answer may take.
    pub timeout: Duration,
}

/// The half of a conversation that sends. It is a thread's own, and may be at work while another
/// thread receives.
pub trait SendHalf: Debug + Send {
    /// Sends a request with its bulk data. With `more`, a request without bulk data may wait to be
    /// sent together with what follows, until [`SendHalf::flush`] at the latest.
    ///
    /// # Errors
    /// [`Failure::TooLarge`], and nothing is sent; else the conversation is over.
    fn send(
        &mut self,
        head: &RequestHead,
        request: &Request<'_>,
        bulk: &[u8],
        more: bool,
    ) -> Result<(), Failure>;

    /// Sends what waits.
    ///
    /// # Errors
    /// The conversation is over.
    fn flush(&mut self) -> Result<(), Failure>;

    /// Whether the engine has heard nothing yet of the conversation: it does not wait for that for long, and the first
    /// request is to be one that changes nothing.
    fn is_silent(&self) -> bool {
        false
    }

    /// What is sent from here on goes by a ring, where the other end has agreed to that.
    fn use_ring(&mut self, _ring: Outgoing) {}
}

/// The half of a conversation that receives.
pub trait ReceiveHalf: Debug + Send {
    /// Waits for the next answer, through so many time-outs less what of the call's time is `gone`;
    /// tells how many bulk bytes follow, which are to be read next.
    ///
    /// # Errors
    /// The conversation is over.
    fn receive(&mut self, timeouts: u32, gone: Duration) -> Result<(Answer, usize), Failure>;

    /// As [`ReceiveHalf::receive`] through one time-out, for an answer that may bring a descriptor and is the
    /// only one that is waited for. Where none can come there is none.
    ///
    /// # Errors
    /// The conversation is over.
    fn receive_with_descriptor(
        &mut self,
        gone: Duration,
    ) -> Result<(Answer, Option<OwnedFd>), Failure> {
        match self.receive(1, gone)? {
            (answer, 0) => Ok((answer, None)),
            _ => Err(Failure::UNASKED_DATA),
        }
    }

    /// Takes the next answer if it is there; never waits.
    ///
    /// # Errors
    /// The conversation is over.
    fn try_receive(&mut self) -> Result<Option<(Answer, usize)>, Failure>;

    /// Reads bulk bytes of the current answer.
    ///
    /// # Errors
    /// The conversation is over.
    fn read_bulk(&mut self, buffer: &mut [u8]) -> Result<(), Failure>;

    /// Reads of the current answer's bulk bytes what is there; 0 if nothing is.
    ///
    /// # Errors
    /// The conversation is over.
    fn try_read_bulk(&mut self, buffer: &mut [u8]) -> Result<usize, Failure>;

    /// Whether something has come that waiting on the line would not show.
    fn has_buffered_input(&self) -> bool;

    /// What comes from here on comes by a ring, where the other end has agreed to that.
    fn use_ring(&mut self, _ring: Incoming) {}
}

/// What the halves of a conversation have in common; any thread may use it at any time.
pub trait Line: Any + Debug + Send + Sync {
    /// Ends the conversation, which wakes a thread that receives.
    fn shut_down(&self);

    /// The descriptor that shows when something has come; none where no descriptor is behind it.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Whether something has come that the descriptor does not show. If not, the descriptor shows the next thing
    /// that does.
    fn is_ready(&self) -> bool {
        false
    }

    /// What comes from here on comes by a ring.
    fn use_ring(&self, _ring: Look) {}
}

/// Two halves and their line.
#[derive(Debug)]
pub struct Conversation {
    /// Away while a channel has it.
    pub(crate) sender: Option<Box<dyn SendHalf>>,
    pub(crate) receiver: Box<dyn ReceiveHalf>,
    pub(crate) line: Arc<dyn Line>,
    /// After so many exchanges the engine is asked for memory to share.
    share_after: Option<u32>,
}

impl Conversation {
    /// Puts the parts together.
    pub fn new(
        sender: Box<dyn SendHalf>,
        receiver: Box<dyn ReceiveHalf>,
        line: Arc<dyn Line>,
    ) -> Self {
        Self { sender: Some(sender), receiver, line, share_after: None }
    }

    /// One over which the engine's memory can be shared. That takes a round trip, and pays for whoever has more to
    /// ask than `exchanges`.
    #[must_use]
    pub fn sharing_after(mut self, exchanges: u32) -> Self {
        self.share_after = Some(exchanges);
        self
    }

    /// Counts an exchange. Whether the engine is to be asked for memory before it: true once at most.
    pub(crate) fn is_to_share(&mut self) -> bool {
        match &mut self.share_after {
            None => false,
            Some(0) => {
                self.share_after = None;
                true
            }
            Some(left) => {
                *left -= 1;
                false
            }
        }
    }

    /// What shows that something has come, and ends it.
    pub fn line(&self) -> &Arc<dyn Line> {
        &self.line
    }
}

/// An engine to call.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The engine.
    pub engine: EngineId,
    /// Where it may be reached.
    pub addresses: &'a [Address],
    /// How many conversations there are to be.
    pub count: usize,
    /// How long all of that may take.
    pub timeout: Duration,
}

/// What came of calling an engine.
#[derive(Debug, Default)]
pub struct Met {
    /// The conversations that were opened.
    pub good: Vec<(Conversation, Welcome)>,
    /// Why there are fewer than were asked for.
    pub first_error: Option<io::Error>,
    /// About a round trip to the engine, where that is known.
    pub round_trip: Option<Duration>,
}

/// An engine to call that is asked something before it has let the caller in.
#[derive(Clone, Copy, Debug)]
pub struct EarlyWanted<'a> {
    /// The engine, and how many conversations there are to be.
    pub wanted: Wanted<'a>,
    /// What the engine has given for it; without, its challenge is waited for. With it the first request of each
    /// conversation is to be a short one that changes nothing.
    pub ticket: Option<Ticket>,
    /// The run of the engine that knows what there is of the session. If it is another one that answers, or it has
    /// forgotten the session, the conversation breaks off. `None` where there is nothing that it would have to know.
    pub known_to: Option<Incarnation>,
}

/// What came of calling an engine so.
#[derive(Debug)]
pub struct EarlyMet {
    /// The conversations. Until its first answer is there nothing but that may be waited for on one of them.
    pub conversations: Vec<Conversation>,
    /// Why there are fewer than were asked for.
    pub first_error: Option<io::Error>,
    /// What the engine says when it lets one of them in: there with its first answer.
    pub said: Arc<Said>,
    /// About a round trip to the engine, where that is known.
    pub round_trip: Option<Duration>,
}

/// What an engine says to a caller before its first answer.
#[derive(Debug, Default)]
pub struct Said {
    /// That it is let in.
    pub welcome: OnceLock<Welcome>,
    /// That it is let in, but not by the run that knows what there is of the session, or only anew.
    pub has_forgotten: AtomicBool,
    /// What its next call may begin with.
    pub ticket: OnceLock<Ticket>,
}

/// The way to engines.
pub trait Network: Debug + Send + Sync {
    /// Opens conversations with engines, with all at once, that are asked something without waiting for their
    /// welcome. Gives what came of each, in their order; `None` where there is nothing to save: then
    /// [`Network::open_all`] is to be asked.
    fn open_early(&self, _wanted: &[EarlyWanted<'_>], _caller: &Caller) -> Option<Vec<EarlyMet>> {
        None
    }

    /// Opens conversations with an engine at once, introductions included.
    fn open(&self, wanted: &Wanted<'_>, caller: &Caller) -> Met;

    /// Opens conversations with several engines; where that takes round trips, with all at once. Gives what came
    /// of each, in their order.
    fn open_all(&self, wanted: &[Wanted<'_>], caller: &Caller) -> Vec<Met> {
        wanted.iter().map(|wanted| self.open(wanted, caller)).collect()
    }

    /// Waits until there is something to receive on one of the lines, or a peer has gone, or `limit`
    /// is over. Tells on which there is.
    fn wait_for_any(&self, lines: &[Arc<dyn Line>], limit: Duration) -> Vec<bool>;

    /// Whether an engine with these addresses is reached without a network.
    fn is_near(&self, addresses: &[Address]) -> bool;

    /// Whether descriptors come through from engines that are near.
    fn passes_descriptors(&self) -> bool {
        false
    }

    /// Whether requests to an engine are carried out by the thread that sends them, before it goes on. That
    /// never changes.
    fn is_called(&self, _engine: EngineId) -> bool {
        false
    }
}
