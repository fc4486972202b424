//! Frames onto a socket. Owns the buffer in which small messages wait to be sent together.

use std::io::{self, IoSlice};
use std::sync::Arc;

use azekura_proto::frame::{self, FrameError};
use serde::Serialize;

use crate::socket::Socket;

/// The writing side of a socket that carries frames.
#[derive(Debug)]
pub struct FrameWriter {
    socket: Arc<Socket>,
    output: Vec<u8>,
}

impl FrameWriter {
    pub(crate) fn new(socket: Arc<Socket>) -> Self {
        Self { socket, output: Vec::with_capacity(512) }
    }

    /// Encodes a message behind those that wait to be sent.
    ///
    /// # Errors
    /// If the message passes the bounds of a frame.
    pub fn queue<T: Serialize>(&mut self, message: &T, bulk_bytes: u32) -> Result<(), FrameError> {
        frame::encode_into(&mut self.output, message, bulk_bytes)
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
        self.flush_with(bulk, false)
    }

    /// Sends the waiting messages; bulk data follow at once through the socket.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn flush_before_bulk(&mut self) -> io::Result<()> {
        self.flush_with(&[], true)
    }

    fn flush_with(&mut self, bulk: &[u8], more: bool) -> io::Result<()> {
        if self.output.is_empty() && bulk.is_empty() {
            return Ok(());
        }
        let sent =
            self.socket.write_all(&mut [IoSlice::new(&self.output), IoSlice::new(bulk)], more);
        self.output.clear();
        sent
    }
}
