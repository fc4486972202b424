//! The one connection over which changes are sent, to one engine. Owns how a change reaches its own: that of the
//! connection carries it out or hands it on, waits for each answer before it goes on, and takes up nothing more behind
//! what could not be carried out. So there is one order, that of the connection, whatever becomes of it and of the
//! engines.

use std::time::Duration;

use azekura_proto::frame::encode_nested;
use azekura_proto::message::{Answer, ChangeStream, Reply, Request};
use azekura_proto::status::StatusClass;
use azekura_proto::{EngineId, TargetId};
use azekura_rpc::{Attempt, Channel, Destination, Failure, Outgoing, Reader};

use crate::error::Result;
use crate::link::Borrowed;
use crate::session::Session;

/// The connection, with the changes that are under way over it.
#[derive(Debug)]
pub(super) struct Stream {
    channel: Channel<Borrowed, ()>,
    engine: EngineId,
    to: Destination,
    /// Streams of a session are numbered upwards.
    number: u32,
}

impl Stream {
    /// A stream to a target's engine, if that can be reached.
    pub(super) fn open(session: &Session, target: TargetId, number: u32) -> Option<Self> {
        let (link, map_version) = session.link(target).ok()?;
        let engine = link.engine;
        let mut borrowed = session.borrow(link).ok()?;
        let (link, slot) = borrowed.parts();
        if let Err(failure) = link.reach(slot, map_version, true, Duration::ZERO) {
            tracing::debug!("no connection to keep changes in flight over: {failure}");
            return None;
        }
        let channel = Channel::open(borrowed).ok()?;
        Some(Self { channel, engine, to: Destination { target, map_version }, number })
    }

    /// The engine of the connection.
    pub(super) fn engine(&self) -> EngineId {
        self.engine
    }

    /// Whether a target is at the engine of the connection.
    pub(super) fn is_to(&self, session: &Session, target: TargetId) -> bool {
        session.map().engine_of(target) == Some(self.engine)
    }

    /// What a change of this number to a target belongs to; `None` if this session has not met its engine.
    pub(super) fn of_change(
        &self,
        session: &Session,
        target: TargetId,
        sequence: u64,
    ) -> Option<ChangeStream> {
        let run = session.link(target).ok()?.0.incarnation()?;
        Some(ChangeStream { number: self.number, sequence, run })
    }

    /// Whether something with so much data may be sent before anything is taken in.
    pub(super) fn has_room(&mut self, data: &[u8]) -> bool {
        self.channel.has_room(&Request::Ping, data)
    }

    /// Sends a change.
    pub(super) fn send(
        &mut self,
        stream: ChangeStream,
        to: TargetId,
        request: &Request<'_>,
        bulk: &[u8],
    ) -> std::result::Result<(), Failure> {
        let request = encode_nested(request).map_err(|_| Failure::TooLarge)?;
        self.submit(self.to.target, &Request::Relay { to, stream, request }, bulk, 0)
    }

    fn submit(
        &mut self,
        target: TargetId,
        request: &Request<'_>,
        bulk: &[u8],
        reply_bytes_max: usize,
    ) -> std::result::Result<(), Failure> {
        let to = Destination { target, ..self.to };
        let outgoing = Outgoing { to, request, bulk, reply_bytes_max };
        self.channel.submit(outgoing, Attempt::default(), ())?;
        self.channel.flush()
    }

    /// The side on which answers to changes come.
    pub(super) fn reader(&self) -> Reader<'_, Borrowed, ()> {
        self.channel.reader()
    }

    /// Waits for the answer to the oldest change.
    pub(super) fn wait(&mut self) -> std::result::Result<Answer, Failure> {
        self.channel.wait(&mut [], Duration::ZERO).map(|((), answer)| answer)
    }

    /// Asks a target of the connection's engine for something, with room for so many bytes of data. False if that does
    /// not go now.
    pub(super) fn ask(&mut self, target: TargetId, request: &Request<'_>, bytes: usize) -> bool {
        self.channel.has_room(request, &[]) && self.submit(target, request, &[], bytes).is_ok()
    }

    /// Waits for what was asked, once all changes before it are answered. `None` if it is to be asked as ever; the
    /// connection is of no further use after a failure.
    pub(super) fn wait_for_asked(
        &mut self,
        bulk_in: &mut [u8],
    ) -> std::result::Result<Option<Result<Reply>>, Failure> {
        let ((), answer) = self.channel.wait(bulk_in, Duration::ZERO)?;
        Ok(match answer {
            Ok(reply) => Some(Ok(reply)),
            Err(status) => match status.class() {
                StatusClass::Caller | StatusClass::Fatal => Some(Err(status.into())),
                StatusClass::Retry | StatusClass::RefreshMap => None,
            },
        })
    }
}
