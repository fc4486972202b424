//! Where the bytes of frames come from: the socket, or a ring that stands before it. Owns which of both has the next
//! ones, and what wakes who waits for them. It knows nothing of frames.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::ring::{Incoming, NUDGE, Next, broken};
use crate::socket::Socket;

/// A ring that never runs empty would hide that the socket has been shut down.
pub(crate) const RECORDS_BETWEEN_LOOKS: u32 = 64;

/// One order of bytes that come in.
#[derive(Debug)]
pub(crate) struct Source {
    socket: Arc<Socket>,
    ring: Option<Box<RingReader>>,
}

impl Source {
    pub(crate) fn new(socket: Arc<Socket>) -> Self {
        Self { socket, ring: None }
    }

    pub(crate) fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }

    /// From here on bytes come by a ring.
    pub(crate) fn use_ring(&mut self, incoming: Incoming) {
        self.ring = Some(Box::new(RingReader::new(incoming)));
    }

    /// Whether there is something that the socket does not show.
    pub(crate) fn has_input(&self) -> bool {
        self.ring.as_ref().is_some_and(|ring| ring.has_input())
    }

    /// Reads what is there, at least a byte unless the peer has closed.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.ring {
            Some(ring) => {
                let by = |socket: &Socket, part: &mut [u8]| Ok((socket.read(part)?, ()));
                Ok(ring.read(&self.socket, buffer, by)?.0)
            }
            None => self.socket.read(buffer),
        }
    }

    /// Reads what is there now; `None` if nothing is. For one who looks again at once: with a ring, that the peer has
    /// gone is not seen.
    pub(crate) fn look(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match &mut self.ring {
            Some(ring) => ring.look(&self.socket, buffer),
            None => self.socket.try_read(buffer),
        }
    }

    /// Reads what is there now; `None` if nothing is: then the socket shows when something has come.
    pub(crate) fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match &mut self.ring {
            Some(ring) => ring.try_read(&self.socket, buffer),
            None => self.socket.try_read(buffer),
        }
    }

    /// As [`Source::read`], with a descriptor that comes with what is read.
    pub(crate) fn read_with_descriptor(
        &mut self,
        buffer: &mut [u8],
    ) -> io::Result<(usize, Option<OwnedFd>)> {
        match &mut self.ring {
            Some(ring) => ring.read(&self.socket, buffer, Socket::read_with_descriptor),
            None => self.socket.read_with_descriptor(buffer),
        }
    }
}

/// What is read where a ring stands before the socket.
#[derive(Debug)]
struct RingReader {
    incoming: Incoming,
    /// Bytes that come next, on the socket.
    on_socket: u64,
    /// How many have been read from the socket.
    nudges: u64,
    until_look: u32,
}

impl RingReader {
    fn new(incoming: Incoming) -> Self {
        Self { incoming, on_socket: 0, nudges: 0, until_look: RECORDS_BETWEEN_LOOKS }
    }

    fn has_input(&self) -> bool {
        self.on_socket > 0 || !self.incoming.is_empty()
    }

    /// What the ring itself has next; `None` if it has nothing, or that is on the socket.
    fn take(&mut self, socket: &Socket, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        if self.on_socket > 0 {
            return Ok(None);
        }
        if self.is_over(socket) {
            return Ok(Some(0));
        }
        match self.incoming.next(buffer)? {
            Next::Taken(count) => return Ok(Some(count)),
            Next::Nothing => {}
            Next::OnSocket { bytes, nudges } => self.go_to_socket(socket, bytes, nudges)?,
        }
        Ok(None)
    }

    /// It does not see that the peer has gone as long as nothing else makes it look at the socket.
    fn look(&mut self, socket: &Socket, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let taken = self.take(socket, buffer)?;
        if taken.is_some() || self.on_socket == 0 {
            return Ok(taken);
        }
        let read = socket.try_read(self.part_on_socket(buffer))?;
        self.on_socket -= read.unwrap_or(0) as u64;
        Ok(read)
    }

    /// As [`RingReader::look`], and sees that the peer has gone.
    fn try_read(&mut self, socket: &Socket, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            let seen = self.look(socket, buffer)?;
            if seen.is_some() || self.on_socket > 0 {
                return Ok(seen);
            }
            if !self.incoming.falls_asleep() {
                continue;
            }
            // With an empty ring nothing but nudges can be there.
            match socket.try_read(&mut [0; NUDGE.len()])? {
                Some(0) => return Ok(Some(0)),
                Some(_) => self.nudges += 1,
                None => return Ok(None),
            }
        }
    }

    /// Sleeps until there is something, at least a byte unless the peer has closed. What is on the socket is read as
    /// `by` does.
    fn read<T: Default>(
        &mut self,
        socket: &Socket,
        buffer: &mut [u8],
        by: impl FnOnce(&Socket, &mut [u8]) -> io::Result<(usize, T)>,
    ) -> io::Result<(usize, T)> {
        loop {
            if let Some(count) = self.take(socket, buffer)? {
                return Ok((count, T::default()));
            }
            if self.on_socket > 0 {
                let read = by(socket, self.part_on_socket(buffer))?;
                self.on_socket -= read.0 as u64;
                return Ok(read);
            }
            if self.incoming.falls_asleep() {
                match socket.read(&mut [0; NUDGE.len()])? {
                    0 => return Ok((0, T::default())),
                    _ => self.nudges += 1,
                }
            }
        }
    }

    fn part_on_socket<'b>(&self, buffer: &'b mut [u8]) -> &'b mut [u8] {
        let count = self.on_socket.min(buffer.len() as u64) as usize;
        &mut buffer[..count]
    }

    /// Passes over the nudges that lie on the socket before the bytes that were announced.
    fn go_to_socket(&mut self, socket: &Socket, bytes: u64, nudges: u64) -> io::Result<()> {
        let due = nudges.checked_sub(self.nudges).ok_or_else(|| broken("a ring lacks nudges"))?;
        for _ in 0..due {
            if socket.read(&mut [0; NUDGE.len()])? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        (self.nudges, self.on_socket) = (nudges, bytes);
        Ok(())
    }

    /// Whether this end is to take nothing more, seen now and then. What a peer left behind that has gone is read to
    /// the end.
    fn is_over(&mut self, socket: &Socket) -> bool {
        if self.incoming.is_empty() || self.incoming.is_amid_a_record() {
            return false;
        }
        self.until_look -= 1;
        if self.until_look > 0 {
            return false;
        }
        self.until_look = RECORDS_BETWEEN_LOOKS;
        socket.takes_nothing_more()
    }
}
