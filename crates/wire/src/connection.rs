//! A socket that carries frames both ways, as one thread uses it. Owns nothing but the two halves,
//! which go apart where one thread sends while another reads.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use azekura_proto::frame::{FrameError, FrameHead};
use serde::Serialize;

use crate::frames::{FrameReader, FrameWriter, RecvError};
use crate::ring::Rings;
use crate::socket::Socket;

/// A socket that carries frames.
#[derive(Debug)]
pub struct Connection {
    writer: FrameWriter,
    reader: FrameReader,
}

impl Connection {
    /// Wraps a socket.
    pub fn new(socket: Socket) -> Self {
        let socket = Arc::new(socket);
        Self { writer: FrameWriter::new(Arc::clone(&socket)), reader: FrameReader::new(socket) }
    }

    /// The two halves.
    pub fn split(self) -> (FrameWriter, FrameReader) {
        (self.writer, self.reader)
    }

    /// The socket, for options and shutdown.
    pub fn socket(&self) -> &Socket {
        self.reader.socket()
    }

    pub(crate) fn reader(&mut self) -> &mut FrameReader {
        &mut self.reader
    }

    /// The socket, to be waited on beside others.
    pub(crate) fn shared_socket(&self) -> Arc<Socket> {
        Arc::clone(self.reader.socket())
    }

    /// As [`FrameReader::distrust`].
    pub fn distrust(&mut self, deadline: Instant, body_bytes_max: u32) {
        self.reader.distrust(deadline, body_bytes_max);
    }

    /// As [`FrameReader::trust`].
    pub fn trust(&mut self) {
        self.reader.trust();
    }

    /// As [`FrameReader::set_frame_time`].
    pub fn set_frame_time(&mut self, limit: Duration) {
        self.reader.set_frame_time(limit);
    }

    /// What is sent was asked for, and whoever asks bounds how much of it is on its way: a long stream of that is not
    /// held up by the kernel's looking for the round trip.
    pub fn only_answers(&mut self) {
        self.writer.only_answers();
    }

    /// As [`FrameReader::has_buffered_input`].
    pub fn has_buffered_input(&self) -> bool {
        self.reader.has_buffered_input()
    }

    /// As [`FrameWriter::queue`].
    ///
    /// # Errors
    /// If the message passes the bounds of a frame.
    pub fn queue<T: Serialize>(&mut self, message: &T, bulk_bytes: u32) -> Result<(), FrameError> {
        self.writer.queue(message, bulk_bytes)
    }

    /// As [`FrameWriter::queue_bulk`].
    pub fn queue_bulk(&mut self, bulk: &[u8]) {
        self.writer.queue_bulk(bulk);
    }

    /// As [`FrameWriter::queued_bytes`].
    pub fn queued_bytes(&self) -> usize {
        self.writer.queued_bytes()
    }

    /// As [`FrameWriter::flush`].
    ///
    /// # Errors
    /// If the socket fails.
    pub fn flush(&mut self, bulk: &[u8]) -> io::Result<()> {
        self.writer.flush(bulk)
    }

    /// Sends the waiting messages; so many bytes of bulk data follow at once through the socket.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn flush_before_bulk(&mut self, bulk_bytes: usize) -> io::Result<()> {
        self.writer.flush_before_bulk(bulk_bytes)
    }

    /// Sends bulk data that were announced by [`Connection::flush_before_bulk`].
    ///
    /// # Errors
    /// If the socket fails.
    pub fn continue_bulk(&mut self, bulk: &[u8]) -> io::Result<()> {
        self.writer.continue_bulk(bulk)
    }

    /// What comes and goes from here on does so by rings; the socket wakes who sleeps, and carries what is large. Nothing
    /// may wait to be sent, and the peer has to do the same at this place.
    pub fn use_rings(&mut self, rings: Rings) {
        self.reader.use_ring(rings.incoming);
        self.writer.use_ring(rings.outgoing);
    }

    /// Whether it does.
    pub fn goes_by_rings(&self) -> bool {
        self.writer.has_ring()
    }

    /// As [`FrameReader::set_patience`].
    pub fn set_patience(&mut self, patience: Duration) {
        self.reader.set_patience(patience);
    }

    /// As [`FrameWriter::flush_with_descriptor`].
    ///
    /// # Errors
    /// If the socket fails, or is none that carries any.
    pub fn flush_with_descriptor(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.writer.flush_with_descriptor(descriptor)
    }

    /// As [`FrameReader::recv`].
    ///
    /// # Errors
    /// [`RecvError`]; after all but `Idle` the connection is dead.
    pub fn recv(&mut self) -> Result<(FrameHead, &[u8]), RecvError> {
        self.reader.recv()
    }

    /// As [`FrameReader::read_bulk`].
    ///
    /// # Errors
    /// If the socket fails or the peer stops half-way.
    pub fn read_bulk(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        self.reader.read_bulk(buffer)
    }

    /// As [`FrameReader::discard_bulk`].
    ///
    /// # Errors
    /// If the socket fails or the peer stops half-way.
    pub fn discard_bulk(&mut self, bytes: u64) -> io::Result<()> {
        self.reader.discard_bulk(bytes)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::os::fd::OwnedFd;

    use azekura_proto::frame::{self, HEAD_BYTES};

    use super::*;

    fn pair() -> (Connection, Connection) {
        let (one, other) = Socket::pair().unwrap();
        (Connection::new(one), Connection::new(other))
    }

    #[test]
    fn what_is_there_is_taken_without_waiting_for_the_rest() {
        let (one, mut other) = pair();
        assert!(other.reader.try_recv().unwrap().is_none());
        let mut frame = Vec::new();
        frame::encode_into(&mut frame, &"first", 6).unwrap();
        let (early, late) = frame.split_at(HEAD_BYTES + 2);
        one.socket().write_all(&mut [IoSlice::new(early)], false).unwrap();
        assert!(other.reader.try_recv().unwrap().is_none());
        one.socket().write_all(&mut [IoSlice::new(late)], false).unwrap();
        one.socket().write_all(&mut [IoSlice::new(b"abc")], false).unwrap();
        let (head, body) = other.reader.try_recv().unwrap().unwrap();
        assert_eq!(head.bulk_bytes, 6);
        assert_eq!(frame::decode::<String>(body).unwrap(), "first");
        let mut bulk = [0; 6];
        assert_eq!(other.reader.try_read_bulk(&mut bulk).unwrap(), 3);
        assert_eq!(other.reader.try_read_bulk(&mut bulk[3..]).unwrap(), 0);
        one.socket().write_all(&mut [IoSlice::new(b"def")], false).unwrap();
        assert_eq!(other.reader.try_read_bulk(&mut bulk[3..]).unwrap(), 3);
        assert_eq!(&bulk, b"abcdef");
        one.socket().write_all(&mut [IoSlice::new(&frame)], false).unwrap();
        drop(one);
        assert!(other.reader.try_recv().unwrap().is_some());
        assert!(
            other.reader.try_read_bulk(&mut bulk).is_err(),
            "the peer has gone in the middle of it"
        );
        assert!(matches!(other.reader.try_recv(), Err(RecvError::Closed)));
    }

    /// A file with some text, as a descriptor of its own.
    fn file_with(text: &str) -> OwnedFd {
        let file = rustix::fs::memfd_create("text", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::io::pwrite(&file, text.as_bytes(), 0).unwrap();
        file
    }

    #[test]
    fn a_descriptor_arrives_with_its_frame() {
        let (mut one, mut other) = pair();
        // Longer than what is read at once.
        for answer in ["short".to_owned(), "long".repeat(10_000)] {
            one.queue(&answer, 0).unwrap();
            one.flush_with_descriptor(file_with("inside").as_fd()).unwrap();
            one.queue(&"next", 0).unwrap();
            one.flush(&[]).unwrap();
            let (_, body, descriptor) = other.reader().recv_with_descriptor().unwrap();
            assert_eq!(frame::decode::<String>(body).unwrap(), answer);
            let descriptor = descriptor.unwrap();
            let flags = rustix::io::fcntl_getfd(&descriptor).unwrap();
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
            let mut text = [0; 6];
            assert_eq!(rustix::io::pread(&descriptor, &mut text, 0), Ok(6));
            assert_eq!(&text, b"inside");
            // The next frame has none, whoever looks for one.
            let (_, body, descriptor) = other.reader().recv_with_descriptor().unwrap();
            assert_eq!(frame::decode::<String>(body).unwrap(), "next");
            assert!(descriptor.is_none());
        }
        // Who does not look for one gets the frame all the same.
        one.queue(&"last", 0).unwrap();
        one.flush_with_descriptor(file_with("lost").as_fd()).unwrap();
        assert_eq!(frame::decode::<String>(other.recv().unwrap().1).unwrap(), "last");
        other.socket().set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        assert!(matches!(other.reader().recv_with_descriptor(), Err(RecvError::Idle)));
        drop(one);
        assert!(matches!(other.reader().recv_with_descriptor(), Err(RecvError::Closed)));
    }

    #[test]
    fn frames_arrive_in_order_with_their_bulk() {
        let (mut one, mut other) = pair();
        one.queue(&"first", 3).unwrap();
        one.flush(b"abc").unwrap();
        one.queue(&"second", 2).unwrap();
        one.queue_bulk(b"de");
        one.queue(&vec![7u8; 100_000], 0).unwrap();
        let sender = std::thread::spawn(move || one.flush(&[]).map(|()| one));
        let (head, body) = other.recv().unwrap();
        assert_eq!(frame::decode::<String>(body).unwrap(), "first");
        let mut bulk = vec![0; head.bulk_bytes as usize];
        other.read_bulk(&mut bulk).unwrap();
        assert_eq!(bulk, b"abc");
        let (head, body) = other.recv().unwrap();
        assert_eq!(frame::decode::<String>(body).unwrap(), "second");
        let mut bulk = vec![0; head.bulk_bytes as usize];
        other.read_bulk(&mut bulk).unwrap();
        assert_eq!(bulk, b"de");
        let (_, body) = other.recv().unwrap();
        assert_eq!(frame::decode::<Vec<u8>>(body).unwrap(), vec![7u8; 100_000]);
        drop(sender.join().unwrap().unwrap());
        assert!(matches!(other.recv(), Err(RecvError::Closed)));
    }

    #[test]
    fn a_frame_that_comes_byte_by_byte_has_its_time() {
        let (one, mut other) = pair();
        other.set_frame_time(Duration::from_millis(200));
        let mut frame = Vec::new();
        frame::encode_into(&mut frame, &vec![7u8; 100], 0).unwrap();
        let begun = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for byte in frame.chunks(1) {
                    if one.socket().write_all(&mut [IoSlice::new(byte)], false).is_err() {
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
            assert!(matches!(other.recv(), Err(RecvError::Io(_))));
            assert!(begun.elapsed() < Duration::from_secs(2));
            drop(other);
        });
        // The time between two frames is not counted.
        let (mut one, mut other) = pair();
        other.set_frame_time(Duration::from_millis(50));
        for _ in 0..2 {
            std::thread::scope(|scope| {
                let received = scope.spawn(|| other.recv().is_ok());
                std::thread::sleep(Duration::from_millis(150));
                one.queue(&"late", 0).unwrap();
                one.flush(&[]).unwrap();
                assert!(received.join().unwrap());
            });
        }
    }

    #[test]
    fn a_peer_that_stops_inside_a_frame_is_an_error() {
        let (one, mut other) = pair();
        one.socket().write_all(&mut [IoSlice::new(&[9, 0, 0, 0, 0, 0, 0, 0, 1])], false).unwrap();
        drop(one);
        assert!(matches!(other.recv(), Err(RecvError::Io(_))));
        let (one, mut other) = pair();
        one.socket().write_all(&mut [IoSlice::new(&[255; 8])], false).unwrap();
        assert!(matches!(other.recv(), Err(RecvError::Protocol(_))));
    }
}
