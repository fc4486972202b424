//! Rings in memory that both ends of a UNIX socket share: bytes go from one process to the other without the kernel.
//! Owns how records lie in a ring, when the other end has to be woken, and which bytes go over the socket all the
//! same. What a peer writes is checked as what comes over a socket is: it can end its own connection and nothing else.
//!
//! A ring is an order of records. One carries bytes, or says how many follow on the socket: what is large, and
//! descriptors. Who finds nothing says that it sleeps, looks once more, and waits for a byte on the socket; who
//! puts something into the ring of a sleeper sends it that byte, the nudge. So the end of a peer is seen where it always was.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use azekura_platform::SharedMemory;

use crate::socket::Socket;

/// Bytes of a word.
const WORD: usize = size_of::<u64>();
/// Words of records in a ring; a power of two.
const RING_WORDS: u64 = 4096;
/// Where the parts of a ring are, in words. Each that another end writes has a line of the cache to itself.
const TAIL: usize = 0;
const HEAD: usize = 8;
const SLEEPS: usize = 16;
const RECORDS: usize = 24;
const WORDS_EACH: usize = RECORDS + RING_WORDS as usize;
/// More bytes than this at a time go over the socket, where the kernel can send them out of a file.
const RECORD_BYTES_MAX: usize = 16 * 1024;
/// Words that are kept for records which say what is on the socket. As many messages as a conversation has under way
/// at most find room there, so that nobody waits for a reader who waits for the same writer to read.
const WORDS_FOR_SOCKET: u64 = 512;
/// What a record is, in the upper half of its first word; the lower half counts bytes.
const BYTES: u64 = 0;
const ON_SOCKET: u64 = 1;
/// What wakes a sleeper.
pub(crate) const NUDGE: [u8; 1] = [0];
/// How long a full ring is waited for.
const ROOM_PATIENCE: Duration = Duration::from_secs(10);

/// One of the two rings of a connection.
#[derive(Clone, Debug)]
struct Ring {
    memory: Arc<SharedMemory>,
    first: usize,
}

impl Ring {
    fn word(&self, at: usize) -> &AtomicU64 {
        &self.memory.words()[self.first + at]
    }

    /// A word of a record: words are counted from the beginning of the ring's life.
    fn record(&self, at: u64) -> &AtomicU64 {
        self.word(RECORDS + (at % RING_WORDS) as usize)
    }

    fn is_empty(&self) -> bool {
        self.word(TAIL).load(Ordering::Acquire) == self.word(HEAD).load(Ordering::Relaxed)
    }

    /// Says that its reader is going to sleep. What is put in from now on wakes it; what was put in before is to be
    /// looked for after this.
    fn arm(&self) {
        self.word(SLEEPS).store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
}

/// What an end of a connection has of its rings.
#[derive(Debug)]
pub struct Rings {
    /// What it reads from.
    pub incoming: Incoming,
    /// What it writes into.
    pub outgoing: Outgoing,
}

impl Rings {
    /// Makes both rings, for the end that does, and the descriptor by which the other end gets at them.
    ///
    /// # Errors
    /// If there is no memory or no descriptor left.
    pub fn create() -> io::Result<(Self, OwnedFd)> {
        let (memory, descriptor) = SharedMemory::create(2 * WORDS_EACH)?;
        Ok((Self::over(memory, 0, WORDS_EACH), descriptor))
    }

    /// The other end of rings that a peer has made.
    ///
    /// # Errors
    /// If the descriptor is of something else.
    pub fn open(descriptor: impl AsFd) -> io::Result<Self> {
        Ok(Self::over(SharedMemory::open(descriptor, 2 * WORDS_EACH)?, WORDS_EACH, 0))
    }

    fn over(memory: SharedMemory, incoming: usize, outgoing: usize) -> Self {
        let memory = Arc::new(memory);
        let ring = |first| Ring { memory: Arc::clone(&memory), first };
        Self {
            incoming: Incoming { ring: ring(incoming), head: 0, left: 0, taken: 0 },
            outgoing: Outgoing { ring: ring(outgoing), tail: 0, nudges: 0 },
        }
    }
}

pub(crate) fn broken(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

fn words_of(bytes: usize) -> u64 {
    bytes.div_ceil(WORD) as u64
}

/// The end of a ring that writes.
#[derive(Debug)]
pub struct Outgoing {
    ring: Ring,
    tail: u64,
    /// How many have gone over the socket.
    nudges: u64,
}

impl Outgoing {
    /// Sends bytes in order behind all that was sent before.
    pub(crate) fn send(&mut self, socket: &Socket, parts: [&[u8]; 2]) -> io::Result<()> {
        let bytes = parts[0].len() + parts[1].len();
        if bytes <= RECORD_BYTES_MAX && self.room()? > words_of(bytes) + WORDS_FOR_SOCKET {
            self.put_header(BYTES, bytes as u64);
            let mut at = WordWriter { ring: &self.ring, at: self.tail + 1, word: 0, filled: 0 };
            for part in parts {
                at.put(part);
            }
            let tail = at.finish();
            return self.publish(tail, socket);
        }
        self.announce(bytes)?;
        let [first, second] = parts.map(io::IoSlice::new);
        socket.write_all(&mut [io::IoSlice::new(&NUDGE), first, second], false)
    }

    /// Says that the next bytes come over the socket: the caller sends them there right away, behind one nudge.
    pub(crate) fn announce(&mut self, bytes: usize) -> io::Result<()> {
        let begun = Instant::now();
        while self.room()? < 2 {
            if begun.elapsed() > ROOM_PATIENCE {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        self.nudges += 1;
        self.put_header(ON_SOCKET, bytes as u64);
        self.ring.record(self.tail + 1).store(self.nudges, Ordering::Relaxed);
        self.tail += 2;
        self.ring.word(TAIL).store(self.tail, Ordering::Release);
        Ok(())
    }

    /// Words that are free.
    fn room(&self) -> io::Result<u64> {
        let used = self.tail.wrapping_sub(self.ring.word(HEAD).load(Ordering::Acquire));
        RING_WORDS.checked_sub(used).ok_or_else(|| broken("a ring's head is beyond its end"))
    }

    fn put_header(&self, kind: u64, bytes: u64) {
        self.ring.record(self.tail).store(kind << 32 | bytes, Ordering::Relaxed);
    }

    /// Shows what was put up to `tail`, and wakes the reader if it sleeps.
    fn publish(&mut self, tail: u64, socket: &Socket) -> io::Result<()> {
        self.tail = tail;
        self.ring.word(TAIL).store(tail, Ordering::Release);
        fence(Ordering::SeqCst);
        let sleeps = self.ring.word(SLEEPS);
        if sleeps.load(Ordering::Relaxed) == 0 || sleeps.swap(0, Ordering::AcqRel) == 0 {
            return Ok(());
        }
        self.nudges += 1;
        socket.write_all(&mut [io::IoSlice::new(&NUDGE)], false)
    }
}

/// Puts bytes into words, one behind the other.
struct WordWriter<'r> {
    ring: &'r Ring,
    at: u64,
    word: u64,
    filled: usize,
}

impl WordWriter<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let until_full = (WORD - self.filled) % WORD;
        let (first, rest) = bytes.split_at(until_full.min(bytes.len()));
        for byte in first {
            self.put_byte(*byte);
        }
        let whole = rest.chunks_exact(WORD);
        let last = whole.remainder();
        for chunk in whole {
            let mut word = [0; WORD];
            word.copy_from_slice(chunk);
            self.store(u64::from_le_bytes(word));
        }
        for byte in last {
            self.put_byte(*byte);
        }
    }

    fn put_byte(&mut self, byte: u8) {
        self.word |= u64::from(byte) << (8 * self.filled);
        self.filled += 1;
        if self.filled == WORD {
            self.store(self.word);
            (self.word, self.filled) = (0, 0);
        }
    }

    fn store(&mut self, word: u64) {
        self.ring.record(self.at).store(word, Ordering::Relaxed);
        self.at += 1;
    }

    /// The word behind all that was put.
    fn finish(mut self) -> u64 {
        if self.filled > 0 {
            self.store(self.word);
        }
        self.at
    }
}

/// What is next in a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next {
    /// So many bytes were taken.
    Taken(usize),
    /// So many follow on the socket, behind so many nudges in all.
    OnSocket {
        bytes: u64,
        nudges: u64,
    },
    Nothing,
}

/// The end of a ring that reads.
#[derive(Debug)]
pub struct Incoming {
    ring: Ring,
    /// The first word that is not consumed.
    head: u64,
    /// Bytes of the record there that are still to be taken, and those that were.
    left: usize,
    taken: usize,
}

impl Incoming {
    /// Shows whether there is something, to whoever waits for several at once.
    pub fn look(&self) -> Look {
        Look { ring: self.ring.clone() }
    }

    /// Whether nothing is left to be taken, not even of a record that has begun.
    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Whether a part of a record has been taken, and the rest is still there.
    pub(crate) fn is_amid_a_record(&self) -> bool {
        self.left > 0
    }

    /// Says that its reader is going to sleep; whether that is so, since nothing has come before.
    pub(crate) fn falls_asleep(&self) -> bool {
        self.ring.arm();
        self.is_empty()
    }

    /// Takes what is next, as far as it fits.
    pub(crate) fn next(&mut self, buffer: &mut [u8]) -> io::Result<Next> {
        if self.left == 0 {
            let tail = self.ring.word(TAIL).load(Ordering::Acquire);
            if tail == self.head {
                return Ok(Next::Nothing);
            }
            let header = self.ring.record(self.head).load(Ordering::Relaxed);
            let (kind, bytes) = (header >> 32, header & u64::from(u32::MAX));
            let there = tail.wrapping_sub(self.head);
            let is_whole = |words: u64| there <= RING_WORDS && words < there;
            match kind {
                BYTES if bytes > 0 && is_whole(bytes.div_ceil(WORD as u64)) => {
                    (self.left, self.taken) = (bytes as usize, 0);
                }
                ON_SOCKET if bytes > 0 && is_whole(1) => {
                    let nudges = self.ring.record(self.head + 1).load(Ordering::Relaxed);
                    self.consume(2);
                    return Ok(Next::OnSocket { bytes, nudges });
                }
                _ => return Err(broken("a ring has a record that is none")),
            }
        }
        let count = self.left.min(buffer.len());
        self.copy_out(&mut buffer[..count]);
        self.left -= count;
        self.taken += count;
        if self.left == 0 {
            self.consume(1 + words_of(self.taken));
        }
        Ok(Next::Taken(count))
    }

    /// Whoever has said that it sleeps is still woken by what comes next: it may be another thread.
    fn consume(&mut self, words: u64) {
        self.head += words;
        self.ring.word(HEAD).store(self.head, Ordering::Release);
    }

    /// The bytes of the record behind those that were taken.
    fn copy_out(&self, buffer: &mut [u8]) {
        let word = |at: usize| {
            self.ring.record(self.head + 1 + at as u64).load(Ordering::Relaxed).to_le_bytes()
        };
        let (mut at, within) = (self.taken / WORD, self.taken % WORD);
        let until_next = (WORD - within) % WORD;
        let (first, rest) = buffer.split_at_mut(until_next.min(buffer.len()));
        if !first.is_empty() {
            first.copy_from_slice(&word(at)[within..within + first.len()]);
            at += 1;
        }
        let mut whole = rest.chunks_exact_mut(WORD);
        for chunk in &mut whole {
            chunk.copy_from_slice(&word(at));
            at += 1;
        }
        let last = whole.into_remainder();
        if !last.is_empty() {
            last.copy_from_slice(&word(at)[..last.len()]);
        }
    }
}

/// Whether there is something in a ring, for any thread.
#[derive(Debug)]
pub struct Look {
    ring: Ring,
}

impl Look {
    /// Whether something has come. If not, the socket shows the next thing that does.
    pub fn is_ready(&self) -> bool {
        if self.ring.is_empty() {
            self.ring.arm();
        }
        !self.ring.is_empty()
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
