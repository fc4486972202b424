//! Frames off a socket and onto it. Owns how a frame is read without asking the kernel more often than
//! needed: what comes in behind it is kept for the next one; how long a peer may keep a frame
//! incomplete; and the buffer in which small messages wait to be sent together. After any error but
//! `Idle` a reader is of no further use.

use std::io::{self, IoSlice};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use azekura_proto::frame::{self, FrameError, FrameHead, HEAD_BYTES};
use azekura_proto::limits::FRAME_BULK_BYTES_MAX;
use serde::Serialize;

use crate::congestion::Congestion;
use crate::patience::Patience;
use crate::ring::{Incoming, NUDGE, Outgoing};
use crate::socket::Socket;
use crate::source::Source;

/// Holds any small frame and the head of a large one, so that those need one read. Bulk data that
/// comes in behind a head is copied out of here, so it should not be much.
const INPUT_BYTES: usize = 16 * 1024;

/// Why no frame came.
#[derive(Debug, thiserror::Error)]
pub enum RecvError {
    /// The peer closed between two frames.
    #[error("the peer closed the connection")]
    Closed,
    /// No byte of a frame came within the socket's time-out.
    #[error("no message came in time")]
    Idle,
    /// The peer sent something that is no frame.
    #[error(transparent)]
    Protocol(#[from] FrameError),
    /// The socket failed, or the peer stopped in the middle of a frame.
    #[error("connection failed: {0}")]
    Io(#[from] io::Error),
}

/// The reading side of a socket that carries frames.
#[derive(Debug)]
pub struct FrameReader {
    source: Source,
    input: Box<[u8]>,
    start: usize,
    end: usize,
    body: Vec<u8>,
    patience: Patience,
    stranger: Option<StrangerBounds>,
    /// Most bulk bytes of a frame.
    bulk_bytes_max: u32,
    /// How long the rest of a frame that has begun may be waited for, but for its size.
    frame_time: Option<Duration>,
    /// The same for the current frame, and how much of it has gone.
    allowed: Duration,
    waited: Duration,
}

/// What a peer may do that has not proven yet who it is.
#[derive(Clone, Copy, Debug)]
struct StrangerBounds {
    deadline: Instant,
    body_bytes_max: u32,
}

/// A peer that sends more slowly than this stands still, in bytes a second.
const RATE_MIN: u32 = 64 * 1024;

impl FrameReader {
    pub(crate) fn new(socket: Arc<Socket>) -> Self {
        Self {
            source: Source::new(socket),
            input: vec![0; INPUT_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            body: Vec::new(),
            patience: Patience::default(),
            stranger: None,
            bulk_bytes_max: FRAME_BULK_BYTES_MAX,
            frame_time: None,
            allowed: Duration::MAX,
            waited: Duration::ZERO,
        }
    }

    /// Until [`FrameReader::trust`], frames come before this instant whatever the pauses between their
    /// bytes, and are no larger than this.
    pub fn distrust(&mut self, deadline: Instant, body_bytes_max: u32) {
        self.stranger = Some(StrangerBounds { deadline, body_bytes_max });
    }

    /// The peer has proven who it is. The socket's time-outs are to be set again.
    pub fn trust(&mut self) {
        self.stranger = None;
    }

    /// Frames may have so much bulk data: for a side that asks for them, and checks what came against
    /// what it has asked for.
    pub fn accept_bulk(&mut self, bytes_max: u32) {
        self.bulk_bytes_max = bytes_max;
    }

    /// Bounds the time that waiting for the rest of a frame may take in all, beside what a slow link
    /// needs for its size.
    pub fn set_frame_time(&mut self, limit: Duration) {
        self.frame_time = Some(limit);
    }

    /// The socket, for options and shutdown.
    pub fn socket(&self) -> &Arc<Socket> {
        self.source.socket()
    }

    /// The peer's next bytes come by a ring.
    pub fn use_ring(&mut self, incoming: Incoming) {
        self.source.use_ring(incoming);
    }

    /// Before it sleeps, a wait for a frame looks again and again for this long at most, letting others run in between.
    /// Waking a sleeper costs more than a short answer from the same host takes.
    pub fn set_patience(&mut self, most: Duration) {
        self.patience = Patience::new(most);
    }

    /// Whether bytes of a further frame have been read already.
    pub fn has_buffered_input(&self) -> bool {
        self.start < self.end || self.source.has_input()
    }

    /// Waits for a frame and reads its head and body; the bulk part is to be read next, by
    /// [`FrameReader::read_bulk`] or [`FrameReader::discard_bulk`].
    ///
    /// # Errors
    /// [`RecvError`]; after all but `Idle` the connection is dead.
    pub fn recv(&mut self) -> Result<(FrameHead, &[u8]), RecvError> {
        self.waited = Duration::ZERO;
        self.allowed = self.frame_time.unwrap_or(Duration::MAX);
        while self.end - self.start < HEAD_BYTES {
            self.fill()?;
        }
        let mut head = [0; HEAD_BYTES];
        head.copy_from_slice(&self.input[self.start..self.start + HEAD_BYTES]);
        let head = FrameHead::decode_within(head, self.bulk_bytes_max)?;
        self.check_stranger(head)?;
        if let Some(limit) = self.frame_time {
            let bytes = head.body_bytes + head.bulk_bytes;
            self.allowed = limit + Duration::from_secs(u64::from(bytes / RATE_MIN));
        }
        let body_bytes = head.body_bytes as usize;
        if HEAD_BYTES + body_bytes <= INPUT_BYTES {
            while self.end - self.start < HEAD_BYTES + body_bytes {
                self.fill()?;
            }
            let from = self.start + HEAD_BYTES;
            self.start = from + body_bytes;
            return Ok((head, &self.input[from..from + body_bytes]));
        }
        self.start += HEAD_BYTES;
        let mut body = std::mem::take(&mut self.body);
        body.resize(body_bytes, 0);
        let filled = self.read_bulk(&mut body);
        self.body = body;
        filled?;
        Ok((head, &self.body))
    }

    /// As [`FrameReader::recv`], for a frame that may carry a descriptor, and before which nothing else is to
    /// come: bytes that were read in advance would have lost it.
    ///
    /// # Errors
    /// As [`FrameReader::recv`].
    pub fn recv_with_descriptor(
        &mut self,
    ) -> Result<(FrameHead, &[u8], Option<OwnedFd>), RecvError> {
        let mut descriptor = None;
        if self.start == self.end {
            self.make_room();
            match self.source.read_with_descriptor(&mut self.input) {
                Ok((0, _)) => return Err(RecvError::Closed),
                Ok((bytes, taken)) => (self.end, descriptor) = (bytes, taken),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(RecvError::Idle);
                }
                Err(error) => return Err(RecvError::Io(error)),
            }
        }
        let (head, body) = self.recv()?;
        Ok((head, body, descriptor))
    }

    /// Takes the head and body of a frame if they are there; never waits. The bulk part is to be read
    /// next, by [`FrameReader::try_read_bulk`].
    ///
    /// # Errors
    /// [`RecvError`], never `Idle`; the connection is dead then.
    pub fn try_recv(&mut self) -> Result<Option<(FrameHead, &[u8])>, RecvError> {
        while self.end - self.start < HEAD_BYTES {
            if !self.fill_now()? {
                return Ok(None);
            }
        }
        let mut head = [0; HEAD_BYTES];
        head.copy_from_slice(&self.input[self.start..self.start + HEAD_BYTES]);
        let head = FrameHead::decode_within(head, self.bulk_bytes_max)?;
        let body_bytes = head.body_bytes as usize;
        if HEAD_BYTES + body_bytes > INPUT_BYTES {
            // Only a listing is as long as this; what is asked for without waiting is short.
            return Err(RecvError::Protocol(FrameError::Malformed));
        }
        while self.end - self.start < HEAD_BYTES + body_bytes {
            if !self.fill_now()? {
                return Ok(None);
            }
        }
        let from = self.start + HEAD_BYTES;
        self.start = from + body_bytes;
        Ok(Some((head, &self.input[from..from + body_bytes])))
    }

    /// Reads of the current frame's bulk bytes what is there; 0 if nothing is.
    ///
    /// # Errors
    /// If the socket fails or the peer stops half-way.
    pub fn try_read_bulk(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let buffered = buffer.len().min(self.end - self.start);
        if buffered > 0 {
            buffer[..buffered].copy_from_slice(&self.input[self.start..self.start + buffered]);
            self.start += buffered;
            return Ok(buffered);
        }
        match self.source.try_read(buffer)? {
            Some(0) if !buffer.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
            read => Ok(read.unwrap_or(0)),
        }
    }

    /// Reads bulk bytes of the current frame.
    ///
    /// # Errors
    /// If the socket fails or the peer stops half-way.
    pub fn read_bulk(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let buffered = buffer.len().min(self.end - self.start);
        buffer[..buffered].copy_from_slice(&self.input[self.start..self.start + buffered]);
        self.start += buffered;
        let mut rest = &mut buffer[buffered..];
        while !rest.is_empty() {
            match self.read_on(rest)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                bytes => rest = &mut rest[bytes..],
            }
        }
        Ok(())
    }

    /// Reads bulk bytes of the current frame and forgets them.
    ///
    /// # Errors
    /// If the socket fails or the peer stops half-way.
    pub fn discard_bulk(&mut self, bytes: u64) -> io::Result<()> {
        let mut left = bytes;
        let mut scratch = vec![0; left.min(64 * 1024) as usize];
        while left > 0 {
            let part = left.min(scratch.len() as u64) as usize;
            self.read_bulk(&mut scratch[..part])?;
            left -= part as u64;
        }
        Ok(())
    }

    fn check_stranger(&self, head: FrameHead) -> Result<(), FrameError> {
        let FrameHead { body_bytes, bulk_bytes } = head;
        match self.stranger {
            Some(bounds) if body_bytes > bounds.body_bytes_max || bulk_bytes > 0 => {
                Err(FrameError::TooLarge { body_bytes, bulk_bytes })
            }
            _ => Ok(()),
        }
    }

    /// Reads more of a frame that has begun.
    fn read_on(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stranger.is_some() || self.allowed == Duration::MAX {
            return self.read_in_time(buffer);
        }
        let began = Instant::now();
        let read = self.source.read(buffer);
        self.waited += began.elapsed();
        if self.waited > self.allowed { Err(io::ErrorKind::TimedOut.into()) } else { read }
    }

    /// Reads within a stranger's deadline, if there is one.
    fn read_in_time(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(StrangerBounds { deadline, .. }) = self.stranger {
            let left = deadline.saturating_duration_since(Instant::now());
            // What lies there already is taken in any case; no time at all would mean for ever.
            self.socket().set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        }
        self.source.read(buffer)
    }

    /// Looks for what comes before it is slept for; `None` if that is to be slept for.
    fn read_patiently(&mut self) -> io::Result<Option<usize>> {
        let mut wait = self.patience.begin();
        while wait.goes_on() {
            if let Some(bytes) = self.source.look(&mut self.input[self.end..])? {
                return Ok(Some(bytes));
            }
            rustix::thread::sched_yield();
        }
        Ok(None)
    }

    /// Takes in what is there; false if nothing is.
    fn fill_now(&mut self) -> Result<bool, RecvError> {
        self.make_room();
        match self.source.try_read(&mut self.input[self.end..]) {
            Ok(None) => Ok(false),
            Ok(Some(0)) if self.start == self.end => Err(RecvError::Closed),
            Ok(Some(0)) => Err(RecvError::Io(io::ErrorKind::UnexpectedEof.into())),
            Ok(Some(bytes)) => {
                self.end += bytes;
                Ok(true)
            }
            Err(error) => Err(RecvError::Io(error)),
        }
    }

    fn make_room(&mut self) {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        } else if self.start > 0 && self.end == self.input.len() {
            self.input.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
    }

    /// [`FrameReader::read_on`] behind what has come.
    fn fill_on(&mut self) -> io::Result<usize> {
        let mut input = std::mem::take(&mut self.input);
        let read = self.read_on(&mut input[self.end..]);
        self.input = input;
        read
    }

    fn fill(&mut self) -> Result<(), RecvError> {
        self.make_room();
        let at_frame_start = self.start == self.end;
        let read = match self.read_patiently()? {
            Some(bytes) => Ok(bytes),
            None if at_frame_start && self.stranger.is_none() => {
                self.patience.watch(|| self.source.read(&mut self.input[self.end..]))
            }
            None => self.fill_on(),
        };
        match read {
            Ok(0) if at_frame_start => Err(RecvError::Closed),
            Ok(0) => Err(RecvError::Io(io::ErrorKind::UnexpectedEof.into())),
            Ok(bytes) => {
                self.end += bytes;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && at_frame_start => {
                Err(RecvError::Idle)
            }
            Err(error) => Err(RecvError::Io(error)),
        }
    }
}

/// The writing side of a socket that carries frames.
#[derive(Debug)]
pub struct FrameWriter {
    socket: Arc<Socket>,
    output: Vec<u8>,
    ring: Option<Outgoing>,
    congestion: Congestion,
}

impl FrameWriter {
    pub(crate) fn new(socket: Arc<Socket>) -> Self {
        Self { socket, output: Vec::with_capacity(512), ring: None, congestion: Congestion::new() }
    }

    /// What is sent was asked for by a peer who bounds what is on its way: see [`Congestion`].
    pub(crate) fn only_answers(&mut self) {
        self.congestion.only_answers();
    }

    /// What is sent from here on goes by a ring. Nothing may wait to be sent.
    pub fn use_ring(&mut self, outgoing: Outgoing) {
        debug_assert!(self.output.is_empty(), "what waits belongs on the socket");
        self.ring = Some(outgoing);
    }

    pub(crate) fn has_ring(&self) -> bool {
        self.ring.is_some()
    }

    /// Encodes a message behind those that wait to be sent.
    ///
    /// # Errors
    /// If the message passes the bounds of a frame.
    pub fn queue<T: Serialize>(&mut self, message: &T, bulk_bytes: u32) -> Result<(), FrameError> {
        frame::encode_into(&mut self.output, message, bulk_bytes)
    }

    /// Has bulk data wait right behind the message that announced them: for few bytes, which are copied.
    pub fn queue_bulk(&mut self, bulk: &[u8]) {
        self.output.extend_from_slice(bulk);
    }

    /// Bytes that wait to be sent.
    pub fn queued_bytes(&self) -> usize {
        self.output.len()
    }

    /// Sends the waiting messages and, right behind them, bulk data.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn flush(&mut self, bulk: &[u8]) -> io::Result<()> {
        self.congestion.before_sending(&self.socket, bulk.len());
        let parts = [self.output.as_slice(), bulk];
        let sent = match &mut self.ring {
            _ if self.output.is_empty() && bulk.is_empty() => Ok(()),
            Some(ring) => ring.send(&self.socket, parts),
            None => self.socket.write_all(&mut parts.map(IoSlice::new), false),
        };
        self.output.clear();
        sent
    }

    /// Sends bulk data on the socket, where those that were announced by [`FrameWriter::flush_before_bulk`] go.
    ///
    /// # Errors
    /// If the socket fails.
    pub(crate) fn continue_bulk(&mut self, bulk: &[u8]) -> io::Result<()> {
        self.socket.write_all(&mut [IoSlice::new(bulk)], false)
    }

    /// Sends the waiting message, whose first byte carries a descriptor.
    ///
    /// # Errors
    /// If the socket fails, or is none that carries any.
    pub fn flush_with_descriptor(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let sent = self
            .announce(self.output.len())
            .and_then(|()| self.socket.write_with_descriptor(&self.output, descriptor));
        self.output.clear();
        sent
    }

    /// So many bytes go over the socket next, whatever the others do.
    fn announce(&mut self, bytes: usize) -> io::Result<()> {
        let Some(ring) = &mut self.ring else { return Ok(()) };
        ring.announce(bytes)?;
        self.socket.write_all(&mut [IoSlice::new(&NUDGE)], true)
    }

    /// Sends the waiting messages; so many bytes of bulk data follow at once through the socket.
    ///
    /// # Errors
    /// If the socket fails.
    pub(crate) fn flush_before_bulk(&mut self, bulk_bytes: usize) -> io::Result<()> {
        self.congestion.before_sending(&self.socket, bulk_bytes);
        let sent = self
            .announce(self.output.len() + bulk_bytes)
            .and_then(|()| self.socket.write_all(&mut [IoSlice::new(&self.output)], true));
        self.output.clear();
        sent
    }
}
