//! Reading pieces in lumps. A reader that takes every packet as it comes makes its kernel acknowledge every
//! second one, and a node that hands on what it gets sends these over the link that the pieces go out by:
//! 2.5 % of it, and a waking for each. So this lets some come together first; it owns how long that takes,
//! and what that says of the link, and must never wait where the link is so fast that there is something to read at once.

use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

use azekura_wire::{FrameReader, wait_for_any};

/// What is to come together, in bytes: at 100 Mbit/s it takes 2.8 ms, and 23 packets. Half of the shortest piece:
/// who always waits for all of one never learns that the link has become faster.
const LUMP_BYTES: usize = 32 * 1024;
/// A shorter pause costs more than it saves.
const PAUSE_MIN: Duration = Duration::from_micros(100);
/// What comes before so much counts half for the speed of a connection.
const REMEMBERED_BYTES: f64 = 4.0 * 1024.0 * 1024.0;
/// A longer one keeps a sender waiting that has little on its way.
const PAUSE_MAX: Duration = Duration::from_millis(3);

/// Reads the pieces of one connection.
#[derive(Default)]
pub(crate) struct Lumps {
    /// How long a byte has taken lately, in seconds; 0 until it is known.
    byte_s: f64,
    /// What has come of late, and how long that took.
    bytes: f64,
    took_s: f64,
}

impl Lumps {
    /// Reads bulk bytes of the current frame. Between two of them pass at most `silence`.
    ///
    /// # Errors
    /// If the socket fails, or the peer stops half-way.
    pub(crate) fn read(
        &mut self,
        reader: &mut FrameReader,
        bytes: &mut [u8],
        silence: Duration,
    ) -> io::Result<()> {
        let begun = Instant::now();
        self.fill(reader, bytes, silence)?;
        // A shorter piece may have come in with its head.
        if bytes.len() > LUMP_BYTES {
            self.count(bytes.len() as f64, begun.elapsed().as_secs_f64());
        }
        Ok(())
    }

    /// How fast the connection is, over some pieces; 0 if that is not known.
    pub(crate) fn bytes_per_second(&self) -> u64 {
        if self.took_s > 0.0 { (self.bytes / self.took_s) as u64 } else { 0 }
    }

    fn count(&mut self, bytes: f64, seconds: f64) {
        let now_s = seconds / bytes;
        self.byte_s = if self.byte_s > 0.0 { f64::midpoint(self.byte_s, now_s) } else { now_s };
        if self.bytes > REMEMBERED_BYTES {
            self.bytes /= 2.0;
            self.took_s /= 2.0;
        }
        self.bytes += bytes;
        self.took_s += seconds;
    }

    fn fill(
        &self,
        reader: &mut FrameReader,
        bytes: &mut [u8],
        silence: Duration,
    ) -> io::Result<()> {
        let mut filled = 0;
        while filled < bytes.len() {
            let read = reader.try_read_bulk(&mut bytes[filled..])?;
            filled += read;
            let pause = self.pause(bytes.len() - filled);
            if pause < PAUSE_MIN {
                return reader.read_bulk(&mut bytes[filled..]);
            }
            if read == 0 && !wait_for_any(&[reader.socket()], silence)[0] {
                return Err(io::ErrorKind::TimedOut.into());
            }
            sleep(pause);
        }
        Ok(())
    }

    /// How long as much takes as is worth reading, when so many bytes are missing.
    fn pause(&self, missing: usize) -> Duration {
        let pause_s = self.byte_s * missing.min(LUMP_BYTES) as f64;
        Duration::from_secs_f64(pause_s.min(PAUSE_MAX.as_secs_f64()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;
    use std::thread;

    use azekura_wire::{Connection, Socket};

    use super::*;
    use crate::message::Supplied;

    const PIECE_BYTES: usize = 64 * 1024;
    const PACKET_BYTES: usize = 1448;
    const SILENCE: Duration = Duration::from_secs(3);

    /// How often this thread has waited.
    fn waits() -> u64 {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse().unwrap()
    }

    fn pair() -> (Connection, FrameReader) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let reader = Connection::new(Socket::Unix(theirs)).split().1;
        (Connection::new(Socket::Unix(ours)), reader)
    }

    /// Sends pieces with a pause after each packet, and hangs up in the middle of the last if so many
    /// bytes of it are missing.
    fn send(mut connection: Connection, pieces: usize, missing: usize) {
        for piece in 1..=pieces {
            connection.queue(&Supplied::Beat, PIECE_BYTES as u32).unwrap();
            connection.flush(&[]).unwrap();
            let Socket::Unix(stream) = connection.socket() else { return };
            let mut stream: &UnixStream = stream;
            let bytes = if piece == pieces { PIECE_BYTES - missing } else { PIECE_BYTES };
            for packet in vec![piece as u8; bytes].chunks(PACKET_BYTES) {
                stream.write_all(packet).unwrap();
                sleep(Duration::from_micros(100));
            }
        }
    }

    /// How often a slow piece of several is waited for, at the least.
    fn fewest_waits() -> u64 {
        let (connection, mut reader) = pair();
        let sending = thread::spawn(move || send(connection, 8, 0));
        let (mut lumps, mut bytes) = (Lumps::default(), vec![0; PIECE_BYTES]);
        let mut fewest = u64::MAX;
        for piece in 1..=8 {
            reader.recv().unwrap();
            let before = waits();
            lumps.read(&mut reader, &mut bytes, SILENCE).unwrap();
            fewest = fewest.min(waits() - before);
            assert!(bytes.iter().all(|byte| *byte == piece));
        }
        sending.join().unwrap();
        fewest
    }

    #[test]
    fn a_slow_piece_is_read_in_few_lumps_and_not_packet_by_packet() {
        // A piece has 46 packets. On a busy machine these may come much later than they should.
        assert!((0..5).any(|_| fewest_waits() < 20));
    }

    #[test]
    fn a_peer_that_hangs_up_in_a_piece_is_an_error() {
        let (connection, mut reader) = pair();
        let sending = thread::spawn(move || send(connection, 2, 10_000));
        let (mut lumps, mut bytes) = (Lumps::default(), vec![0; PIECE_BYTES]);
        reader.recv().unwrap();
        lumps.read(&mut reader, &mut bytes, SILENCE).unwrap();
        reader.recv().unwrap();
        lumps.read(&mut reader, &mut bytes, SILENCE).unwrap_err();
        sending.join().unwrap();
    }

    #[test]
    fn the_speed_is_that_of_the_last_pieces() {
        let mut lumps = Lumps::default();
        assert_eq!(lumps.bytes_per_second(), 0);
        lumps.count(65_536.0, 0.005);
        assert_eq!(lumps.bytes_per_second(), 13_107_200);
        for _ in 0..400 {
            lumps.count(65_536.0, 0.05);
        }
        assert_eq!(lumps.bytes_per_second() / 10_000, 131);
    }

    #[test]
    fn only_a_slow_link_is_waited_for_and_not_for_long() {
        let at = |bytes_per_s: f64| Lumps { byte_s: 1.0 / bytes_per_s, ..Lumps::default() };
        assert_eq!(Lumps::default().pause(PIECE_BYTES), Duration::ZERO);
        assert!(at(1e9).pause(PIECE_BYTES) < PAUSE_MIN);
        assert_eq!(at(11.77e6).pause(PIECE_BYTES).as_micros(), 2784);
        assert_eq!(at(11.77e6).pause(1500).as_micros(), 127);
        assert_eq!(at(1e5).pause(PIECE_BYTES), PAUSE_MAX);
    }
}
