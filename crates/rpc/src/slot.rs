//! A slot of a session at one engine: its sequence numbers and, while there is one, its conversation.
//! Owns how a request's head is made, and that releases travel in front of another request. Whether to
//! try again is decided in [`crate::retry`].

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use azekura_proto::message::{Answer, Reply, Request, RequestHead};
use azekura_proto::{Oid, TargetId};
use azekura_wire::Rings;

use crate::conversations::Conversations;
use crate::failure::Failure;
use crate::transport::{Conversation, SendHalf};

/// How many time-outs of the transport a slow request may take while its connection is whole.
const SLOW_TIMEOUTS: u32 = 12;

/// Where a request goes, and by which map that was computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Destination {
    /// The target that is to do it.
    pub target: TargetId,
    /// Version of the pool map.
    pub map_version: u32,
}

/// Which request of its slot it is, for requests that need an exact retry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Attempt {
    /// Number within the slot; 0 where no exact retry is needed.
    pub sequence: u64,
    /// It may have been carried out already.
    pub resent: bool,
}

/// Objects that a session has open no longer, whose release travels with other requests.
pub trait Releases: std::fmt::Debug + Send + Sync {
    /// Whether any wait to be sent.
    fn are_waiting(&self) -> bool;
    /// Moves waiting ones into `out`, which goes out at once.
    fn take(&self, out: &mut Vec<Oid>);
    /// They have arrived, or their connection failed before that is known.
    fn settle(&self, released: &mut Vec<Oid>, arrived: bool);
}

/// Releases that travel over one conversation.
#[derive(Debug)]
struct Leaving {
    source: Arc<dyn Releases>,
    /// Sent since the last reply.
    sent: Vec<Oid>,
}

/// A slot of a session at one engine, used by one thread at a time.
#[derive(Debug, Default)]
pub struct Slot {
    number: u16,
    sequence: u64,
    conversation: Option<Conversation>,
    /// The number of the last conversation.
    connection: u32,
    /// A change that was sent over it may be under way.
    awaits_change: bool,
    /// Those of all slots of the session at the engine.
    all: Arc<Conversations>,
    leaving: Option<Leaving>,
    /// The process had no room for memory that an engine shared.
    shares_no_memory: bool,
}

impl Slot {
    /// A slot without a conversation.
    pub fn new(number: u16, all: Arc<Conversations>, releases: Option<Arc<dyn Releases>>) -> Self {
        let leaving = releases.map(|source| Leaving { source, sent: Vec::new() });
        Self {
            number,
            sequence: 0,
            conversation: None,
            connection: 0,
            awaits_change: false,
            all,
            leaving,
            shares_no_memory: false,
        }
    }

    /// The only slot of a caller that asks and goes.
    pub(crate) fn single(conversation: Conversation) -> Self {
        let mut slot = Self::new(0, Arc::default(), None);
        slot.attach(conversation);
        slot
    }

    /// Whether there is a conversation.
    pub fn is_connected(&self) -> bool {
        self.conversation.is_some()
    }

    /// Gives it a conversation.
    pub fn attach(&mut self, conversation: Conversation) {
        self.disconnect();
        self.all.note_opened();
        self.connection += 1;
        self.conversation = Some(conversation);
    }

    /// Ends the conversation; releases that it carried are queued again.
    pub fn disconnect(&mut self) {
        if let Some(leaving) = &mut self.leaving {
            leaving.source.settle(&mut leaving.sent, false);
        }
        if self.conversation.take().is_some() {
            self.all.note_closed();
        }
        if std::mem::take(&mut self.awaits_change) {
            self.all.give_up(self.number, self.connection);
        }
    }

    /// Ends the conversation, over which something that was sent may still be under way.
    pub(crate) fn give_up(&mut self) {
        self.awaits_change = self.is_connected();
        self.disconnect();
    }

    /// The sequence number for a request: a new one if it needs an exact retry, else 0.
    pub fn sequence_for(&mut self, request: &Request<'_>) -> u64 {
        if !request.needs_exact_retry() {
            return 0;
        }
        self.sequence += 1;
        self.sequence
    }

    /// Sends a request and waits for its answer, as long as is left when so much of the call's time is
    /// `gone`. Bulk data of the reply go to `bulk_in`.
    ///
    /// # Errors
    /// [`Failure`]; after all but `TooLarge` the conversation is of no further use.
    pub fn exchange(
        &mut self,
        to: Destination,
        attempt: Attempt,
        request: &Request<'_>,
        bulk_out: &[u8],
        bulk_in: &mut [u8],
        gone: Duration,
    ) -> Result<Answer, Failure> {
        if self.connected()?.is_to_share() && !self.shares_no_memory {
            self.share_memory(to, gone)?;
        }
        self.send(to, attempt, request, bulk_out)?;
        let answer = self.receive(bulk_in, request.may_be_slow(), gone)?;
        self.awaits_change = false;
        Ok(answer)
    }

    /// Sends a request whose answer may bring a descriptor, and waits for that.
    ///
    /// # Errors
    /// As [`Slot::exchange`].
    pub fn exchange_for_descriptor(
        &mut self,
        to: Destination,
        request: &Request<'_>,
        gone: Duration,
    ) -> Result<(Answer, Option<OwnedFd>), Failure> {
        self.send(to, Attempt::default(), request, &[])?;
        let came = self.connected()?.receiver.receive_with_descriptor(gone)?;
        self.note_reply();
        self.awaits_change = false;
        Ok(came)
    }

    /// Asks the engine for memory by which requests and answers go from here on. It may refuse.
    fn share_memory(&mut self, to: Destination, gone: Duration) -> Result<(), Failure> {
        let (answer, descriptor) = self.exchange_for_descriptor(to, &Request::ShareMemory, gone)?;
        if answer.is_err() {
            return Ok(());
        }
        // The engine goes on by that memory, so that a client that has no room for it has to call anew.
        let opened = descriptor.and_then(|descriptor| Rings::open(descriptor).ok());
        let Some(Rings { incoming, outgoing }) = opened else {
            self.shares_no_memory = true;
            return Err(Failure::Broken(io::ErrorKind::ConnectionAborted.into()));
        };
        let conversation = self.connected()?;
        conversation.line.use_ring(incoming.look());
        conversation.receiver.use_ring(incoming);
        let sender = conversation.sender.as_mut().ok_or_else(Failure::not_connected)?;
        sender.use_ring(outgoing);
        Ok(())
    }

    /// Sends a request whose answer nobody waits for.
    ///
    /// # Errors
    /// As [`Slot::exchange`].
    pub fn send(
        &mut self,
        to: Destination,
        attempt: Attempt,
        request: &Request<'_>,
        bulk_out: &[u8],
    ) -> Result<(), Failure> {
        let mut sender = self.take_sender()?;
        self.awaits_change |= request.is_fenced();
        let sent = self
            .send_releases(&mut *sender, to)
            .and_then(|()| sender.send(&self.head(to, attempt), request, bulk_out, false));
        self.put_sender(sender);
        sent
    }

    pub(crate) fn receive(
        &mut self,
        bulk_in: &mut [u8],
        is_slow: bool,
        gone: Duration,
    ) -> Result<Answer, Failure> {
        let conversation = self.connected()?;
        let timeouts = if is_slow { SLOW_TIMEOUTS } else { 1 };
        let (answer, bulk_bytes) = conversation.receiver.receive(timeouts, gone)?;
        let bulk_bytes = checked(&answer, bulk_bytes, bulk_in.len())?;
        if bulk_bytes > 0 {
            conversation.receiver.read_bulk(&mut bulk_in[..bulk_bytes])?;
        }
        self.note_reply();
        Ok(answer)
    }

    /// Takes the next reply without its data, and how many bytes of data follow, if it is there.
    pub(crate) fn try_receive(
        &mut self,
        bulk_bytes_max: usize,
    ) -> Result<Option<(Answer, usize)>, Failure> {
        let Some((answer, bulk_bytes)) = self.connected()?.receiver.try_receive()? else {
            return Ok(None);
        };
        let bulk_bytes = checked(&answer, bulk_bytes, bulk_bytes_max)?;
        self.note_reply();
        Ok(Some((answer, bulk_bytes)))
    }

    pub(crate) fn connected(&mut self) -> Result<&mut Conversation, Failure> {
        self.conversation.as_mut().ok_or_else(Failure::not_connected)
    }

    /// The sending half, for a channel on which one thread sends while another reads.
    pub(crate) fn take_sender(&mut self) -> Result<Box<dyn SendHalf>, Failure> {
        self.connected()?.sender.take().ok_or_else(Failure::not_connected)
    }

    pub(crate) fn put_sender(&mut self, sender: Box<dyn SendHalf>) {
        if let Some(conversation) = &mut self.conversation {
            conversation.sender = Some(sender);
        }
    }

    /// Queues waiting releases in front of what is sent next.
    pub(crate) fn send_releases(
        &mut self,
        sender: &mut dyn SendHalf,
        to: Destination,
    ) -> Result<(), Failure> {
        let at = self.place();
        let Some(leaving) = &mut self.leaving else { return Ok(()) };
        // While earlier ones have not been answered the next request takes these along.
        if !leaving.source.are_waiting() || !leaving.sent.is_empty() {
            return Ok(());
        }
        let mut oids = std::mem::take(&mut leaving.sent);
        leaving.source.take(&mut oids);
        let request = Request::Release { oids };
        let mut sent = Ok(());
        if let Request::Release { oids } = &request
            && !oids.is_empty()
        {
            self.awaits_change = true;
            sent = sender.send(&head(at, to, Attempt::default()), &request, &[], true);
        }
        if let Request::Release { oids } = request {
            leaving.sent = oids;
        }
        sent
    }

    /// Which connection of which slot it has.
    pub(crate) fn place(&self) -> Place {
        Place { slot: self.number, connection: self.connection }
    }

    fn head(&self, to: Destination, attempt: Attempt) -> RequestHead {
        head(self.place(), to, attempt)
    }

    fn note_reply(&mut self) {
        if let Some(leaving) = &mut self.leaving {
            leaving.source.settle(&mut leaving.sent, true);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.conversation.is_some() {
            self.all.note_closed();
        }
    }
}

/// A connection of a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) slot: u16,
    pub(crate) connection: u32,
}

/// The head of a request: the one place where it is made.
pub(crate) fn head(at: Place, to: Destination, attempt: Attempt) -> RequestHead {
    let Place { slot, connection } = at;
    let Destination { target, map_version } = to;
    let Attempt { sequence, resent } = attempt;
    RequestHead { target, map_version, slot, sequence, resent, connection }
}

/// How many data stand behind an answer, if they are as many as it says and fit.
fn checked(answer: &Answer, bulk_bytes: usize, bulk_bytes_max: usize) -> Result<usize, Failure> {
    let announced = answer.as_ref().map_or(0, Reply::bulk_bytes) as usize;
    if announced != bulk_bytes || bulk_bytes > bulk_bytes_max {
        return Err(Failure::UNASKED_DATA);
    }
    Ok(bulk_bytes)
}
