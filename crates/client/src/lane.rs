//! One lane to an engine: a slot of the session with its sequence numbers, and a connection while
//! there is one. Owns how a request is written and its reply read; whether to try again is decided
//! in [`crate::retry`].

use std::io;
use std::sync::Arc;

use azekura_proto::frame::{self, FrameError, FrameHead};
use azekura_proto::message::{Answer, Reply, Request, RequestHead};
use azekura_proto::{EngineId, Oid, TargetId};
use azekura_wire::{Connection, RecvError, Socket};

use crate::error::ClientError;
use crate::holds::Holds;

/// A slot of the session at one engine, used by one thread at a time.
#[derive(Debug)]
pub(crate) struct Lane {
    slot: u16,
    sequence: u64,
    connection: Option<Connection>,
    /// Releases sent on this connection since the last reply.
    released: Vec<Oid>,
}

/// Why an exchange did not end with an answer.
#[derive(Debug)]
pub(crate) enum LaneError {
    /// The connection failed. Whether the request was carried out is not known.
    Broken(io::Error),
    /// No answer came within the time-out of the socket.
    Late,
    /// Trying again would not help.
    Final(ClientError),
}

impl From<io::Error> for LaneError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Late,
            _ => Self::Broken(error),
        }
    }
}

impl Lane {
    pub(crate) fn new(slot: u16) -> Self {
        Self { slot, sequence: 0, connection: None, released: Vec::new() }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// The slot of the session.
    pub(crate) fn slot(&self) -> u16 {
        self.slot
    }

    /// The socket, to be written to while another thread reads.
    pub(crate) fn shared_socket(&self) -> Option<Arc<Socket>> {
        self.connection.as_ref().map(Connection::shared_socket)
    }

    /// Whether bytes have been taken off the socket that nobody has looked at yet.
    pub(crate) fn has_buffered_input(&self) -> bool {
        self.connection.as_ref().is_some_and(Connection::has_buffered_input)
    }

    pub(crate) fn attach(&mut self, connection: Connection) {
        self.connection = Some(connection);
    }

    /// Closes the connection; releases that it carried are queued again. Tells whether there was
    /// one.
    pub(crate) fn detach(&mut self, holds: &Holds) -> bool {
        holds.settle(&mut self.released, false);
        self.connection.take().is_some()
    }

    /// The sequence number for a request: a new one if it needs an exact retry, else 0.
    pub(crate) fn sequence_for(&mut self, request: &Request<'_>) -> u64 {
        if !request.needs_exact_retry() {
            return 0;
        }
        self.sequence += 1;
        self.sequence
    }

    /// The head of a request on this lane.
    pub(crate) fn head(
        &self,
        target: TargetId,
        map_version: u32,
        sequence: u64,
        resent: bool,
    ) -> RequestHead {
        RequestHead { target, map_version, slot: self.slot, sequence, resent }
    }

    /// Writes a request behind those that wait to be sent, with waiting releases in front of it.
    pub(crate) fn queue(
        &mut self,
        holds: &Holds,
        head: RequestHead,
        request: &Request<'_>,
        bulk_bytes: usize,
    ) -> Result<(), LaneError> {
        if holds.has_closed() {
            self.queue_releases(holds, head)?;
        }
        let connection = self.connected()?;
        let bulk_bytes = u32::try_from(bulk_bytes).unwrap_or(u32::MAX);
        let queued: Result<(), FrameError> = connection.queue(&(head, request), bulk_bytes);
        queued.map_err(|_| LaneError::Final(ClientError::TooLarge))
    }

    fn queue_releases(&mut self, holds: &Holds, head: RequestHead) -> Result<(), LaneError> {
        if !self.released.is_empty() {
            // Earlier ones have not been answered yet; the next request takes these along.
            return Ok(());
        }
        let mut released = std::mem::take(&mut self.released);
        holds.take_closed(&mut released);
        if released.is_empty() {
            self.released = released;
            return Ok(());
        }
        let request = Request::Release { oids: released };
        let head = RequestHead { sequence: 0, resent: false, ..head };
        let queued = self.connected().and_then(|connection| {
            connection
                .queue(&(head, &request), 0)
                .map_err(|_| LaneError::Final(ClientError::TooLarge))
        });
        if let Request::Release { oids } = request {
            self.released = oids;
        }
        queued
    }

    /// Bytes that wait to be sent.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.connection.as_ref().map_or(0, Connection::queued_bytes)
    }

    /// Sends what waits, and bulk data right behind it.
    pub(crate) fn flush(&mut self, bulk: &[u8]) -> Result<(), LaneError> {
        Ok(self.connected()?.flush(bulk)?)
    }

    /// Reads the next reply; its bulk data go to `bulk_in`. `patience`: how many time-outs of the
    /// socket to wait.
    pub(crate) fn receive(
        &mut self,
        holds: &Holds,
        engine: EngineId,
        bulk_in: &mut [u8],
        patience: u32,
    ) -> Result<Answer, LaneError> {
        let answer = receive(self.connected()?, engine, bulk_in, patience)?;
        holds.settle(&mut self.released, true);
        Ok(answer)
    }

    /// Takes the next reply without its data, and how many bytes of data follow, if it is there.
    /// Never waits.
    pub(crate) fn try_receive(
        &mut self,
        holds: &Holds,
        engine: EngineId,
        bulk_bytes_max: usize,
    ) -> Result<Option<(Answer, usize)>, LaneError> {
        let Some((head, body)) =
            self.connected()?.try_recv().map_err(|error| lane_error(error, engine))?
        else {
            return Ok(None);
        };
        let answer = checked_answer(head, body, engine, bulk_bytes_max)?;
        holds.settle(&mut self.released, true);
        Ok(Some((answer, head.bulk_bytes as usize)))
    }

    /// Reads of the current reply's data what is there; 0 if nothing is.
    pub(crate) fn try_receive_bulk(&mut self, bulk_in: &mut [u8]) -> Result<usize, LaneError> {
        Ok(self.connected()?.try_read_bulk(bulk_in)?)
    }

    fn connected(&mut self) -> Result<&mut Connection, LaneError> {
        self.connection
            .as_mut()
            .ok_or_else(|| LaneError::Broken(io::Error::from(io::ErrorKind::NotConnected)))
    }
}

/// Reads one reply from a connection.
pub(crate) fn receive(
    connection: &mut Connection,
    engine: EngineId,
    bulk_in: &mut [u8],
    patience: u32,
) -> Result<Answer, LaneError> {
    let mut waits = 1;
    let (head, body) = loop {
        match connection.recv() {
            Ok(frame) => break frame,
            Err(RecvError::Idle) if waits < patience => waits += 1,
            Err(error) => return Err(lane_error(error, engine)),
        }
    };
    let answer = checked_answer(head, body, engine, bulk_in.len())?;
    let bulk_bytes = head.bulk_bytes as usize;
    if bulk_bytes > 0 {
        connection.read_bulk(&mut bulk_in[..bulk_bytes])?;
    }
    Ok(answer)
}

/// The answer in a frame, if the data behind it are as many as it says and fit.
fn checked_answer(
    head: FrameHead,
    body: &[u8],
    engine: EngineId,
    bulk_bytes_max: usize,
) -> Result<Answer, LaneError> {
    let broke = |what| LaneError::Final(ClientError::Protocol { engine, what });
    let answer =
        frame::decode::<Answer>(body).map_err(|_| broke("a reply that cannot be decoded"))?;
    let bulk_bytes = head.bulk_bytes as usize;
    let announced = match &answer {
        Ok(Reply::Data { bytes, .. }) => *bytes as usize,
        _ => 0,
    };
    if announced != bulk_bytes || bulk_bytes > bulk_bytes_max {
        return Err(broke("more or less data than announced"));
    }
    Ok(answer)
}

fn lane_error(error: RecvError, engine: EngineId) -> LaneError {
    match error {
        RecvError::Closed => LaneError::Broken(io::ErrorKind::ConnectionReset.into()),
        RecvError::Idle => LaneError::Late,
        RecvError::Io(error) => error.into(),
        RecvError::Protocol(_) => {
            LaneError::Final(ClientError::Protocol { engine, what: "bytes that are no message" })
        }
    }
}
