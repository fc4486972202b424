//! One connection of a client. Owns what was received and not taken, what was answered and not sent, and
//! the bounds on both. Any thread may answer; bytes of two answers are never mixed.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::memory::{Memory, Share};
use crate::dispatch;
use crate::owner::Owner;
use crate::rpc::Records;

/// Calls of one connection that are worked at a time, so that it leaves threads for others.
const IN_FLIGHT_MAX: usize = 16;
/// Short messages that are taken off at a time.
const TAKEN_MAX: usize = 16;

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    socket: TcpStream,
    peer: SocketAddr,
    owner: Owner,
    token: u64,
    input: Mutex<Input>,
    output: Mutex<Output>,
    in_flight: AtomicUsize,
}

#[derive(Debug)]
struct Input {
    records: Records,
    share: Share,
}

#[derive(Debug)]
struct Output {
    /// Bytes of answers that the socket has not taken.
    waiting: VecDeque<u8>,
    share: Share,
    /// Since when none have gone.
    stuck_since: Option<Instant>,
}

/// Messages that were taken off. Keeps its memory from one time to the next.
#[derive(Debug, Default)]
pub(super) struct Taken {
    memory: Vec<u8>,
    short: Vec<Range<usize>>,
    long_memory: Vec<u8>,
    long: Option<Range<usize>>,
    /// Another message has come completely.
    pub(super) has_more: bool,
}

impl Taken {
    /// Those that will not take long.
    pub(super) fn short(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.short.iter().map(|range| &self.memory[range.clone()])
    }

    /// The one behind them that may.
    pub(super) fn long(&self) -> Option<&[u8]> {
        self.long.clone().map(|range| &self.long_memory[range])
    }

    pub(super) fn is_empty(&self) -> bool {
        self.short.is_empty() && self.long.is_none()
    }

    fn clear(&mut self) {
        self.short.clear();
        self.memory.clear();
        self.long = None;
        self.has_more = false;
    }

    fn add(&mut self, message: &[u8]) {
        let start = self.memory.len();
        self.memory.extend_from_slice(message);
        self.short.push(start..self.memory.len());
    }
}

impl Connection {
    pub(super) fn new(socket: TcpStream, peer: SocketAddr, token: u64, memory: &Memory) -> Self {
        let owner =
            socket.local_addr().map_or_else(|_| Owner::unknown(), |here| Owner::of(peer, here));
        Self {
            socket,
            peer,
            owner,
            token,
            input: Mutex::new(Input { records: Records::default(), share: memory.share() }),
            output: Mutex::new(Output {
                waiting: VecDeque::new(),
                share: memory.share(),
                stuck_since: None,
            }),
            in_flight: AtomicUsize::new(0),
        }
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The user at the other end.
    pub(super) fn owner(&self) -> &Owner {
        &self.owner
    }

    pub(super) fn token(&self) -> u64 {
        self.token
    }

    pub(super) fn shut_down(&self) {
        // It may be at its end already.
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Takes messages off, receiving what there is: several short ones, or up to the first long one.
    ///
    /// # Errors
    /// If the client has ended the connection or breaks the protocol.
    pub(super) fn take(&self, taken: &mut Taken) -> io::Result<()> {
        taken.clear();
        let mut input = self.input.lock();
        let Input { records, share } = &mut *input;
        loop {
            while taken.short.len() < TAKEN_MAX
                && let Some(range) = records.next_message().map_err(io::Error::other)?
            {
                if dispatch::is_long(records.message(range.clone())) {
                    taken.has_more = records.has_more();
                    records.take_message(&mut taken.long_memory);
                    taken.long = Some(range);
                    return Ok(());
                }
                taken.add(records.message(range));
            }
            if !taken.short.is_empty() {
                taken.has_more = records.has_more();
                return Ok(());
            }
            match (&self.socket).read(records.room()) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => records.received(bytes),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return share.set(records.held());
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Gives memory back if nothing has come that was not taken.
    pub(super) fn rest(&self) {
        if let Some(mut input) = self.input.try_lock() {
            let Input { records, share } = &mut *input;
            records.shrink();
            // Less than before is never refused.
            let _ = share.set(records.held());
        }
    }

    /// Sends an answer, after those that wait. Tells whether all is sent.
    ///
    /// # Errors
    /// If the connection has ended, or too much is waiting.
    pub(super) fn send(&self, answer: &[u8], in_parts: bool) -> io::Result<bool> {
        /// Where the head of an answer ends.
        const HEAD_BYTES: usize = 28;
        let mut output = self.output.lock();
        if in_parts {
            let (head, body) = answer.split_at(HEAD_BYTES.min(answer.len()));
            output.send(&self.socket, head)?;
            return output.send(&self.socket, body);
        }
        output.send(&self.socket, answer)
    }

    /// Does something while no answer is added and none is sent. It hears whether any waits.
    pub(super) fn with_output<T>(&self, act: impl FnOnce(bool) -> T) -> T {
        let output = self.output.lock();
        act(!output.waiting.is_empty())
    }

    /// Sends what waits. Tells whether all is sent.
    ///
    /// # Errors
    /// If the connection has ended.
    pub(super) fn flush(&self) -> io::Result<bool> {
        self.output.lock().flush(&self.socket)
    }

    /// For how long the client has taken nothing, if it should.
    pub(super) fn unread_for(&self) -> Option<Duration> {
        self.output.lock().stuck_since.map(|since| since.elapsed())
    }

    /// Counts a call that begins. Tells whether a further one may begin beside it.
    pub(super) fn begin(&self) -> bool {
        self.in_flight.fetch_add(1, Ordering::AcqRel) + 1 < IN_FLIGHT_MAX
    }

    /// Counts a call that has ended. Tells whether others have waited for that.
    pub(super) fn end(&self) -> bool {
        self.in_flight.fetch_sub(1, Ordering::AcqRel) == IN_FLIGHT_MAX
    }
}

impl Output {
    fn send(&mut self, socket: &TcpStream, mut bytes: &[u8]) -> io::Result<bool> {
        if self.waiting.is_empty() {
            while !bytes.is_empty() {
                match write(socket, bytes)? {
                    Some(sent) => bytes = &bytes[sent..],
                    None => break,
                }
            }
        }
        if bytes.is_empty() {
            return Ok(self.waiting.is_empty());
        }
        self.share.set(self.waiting.len() + bytes.len())?;
        self.waiting.extend(bytes);
        self.stuck_since.get_or_insert_with(Instant::now);
        Ok(false)
    }

    fn flush(&mut self, socket: &TcpStream) -> io::Result<bool> {
        while !self.waiting.is_empty() {
            let Some(sent) = write(socket, self.waiting.as_slices().0)? else { break };
            self.waiting.drain(..sent);
            self.stuck_since = Some(Instant::now());
        }
        self.share.set(self.waiting.len())?;
        if self.waiting.is_empty() && self.stuck_since.take().is_some() {
            self.waiting = VecDeque::new();
        }
        Ok(self.waiting.is_empty())
    }
}

/// Writes what the socket takes; `None` if that is nothing now.
fn write(mut socket: &TcpStream, bytes: &[u8]) -> io::Result<Option<usize>> {
    loop {
        match socket.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(sent) => return Ok(Some(sent)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}
