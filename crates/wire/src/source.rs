//! Where the bytes of frames come from: the socket, or a ring that stands before it. Owns nothing of frames.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::ring::{Incoming, RingReader};
use crate::socket::Socket;

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
            Some(ring) => ring.read(&self.socket, buffer),
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
            Some(ring) => ring.read_with_descriptor(&self.socket, buffer),
            None => self.socket.read_with_descriptor(buffer),
        }
    }
}
