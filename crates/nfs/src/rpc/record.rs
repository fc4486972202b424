//! Records over a stream (RFC 5531, section 11). Owns the bytes of a connection that were received and
//! not dealt with yet, and finds messages in them; bounded, whatever the peer sends.

use std::ops::Range;

/// Longest message, in bytes: a write of 1 MiB, and its header.
pub const RECORD_BYTES_MAX: usize = (1 << 20) + (64 << 10);
/// Most fragments of one message.
const FRAGMENTS_MAX: u32 = 4096;
/// How much room there is for small messages.
const SMALL_BYTES: usize = 16 << 10;
const MARK_BYTES: usize = 4;
const LAST_FRAGMENT: u32 = 1 << 31;

/// The peer breaks the protocol: its connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// A message that is too long.
    #[error("a message of over {RECORD_BYTES_MAX} bytes")]
    TooLong,
    /// A message in too many pieces.
    #[error("a message in over {FRAGMENTS_MAX} fragments")]
    TooManyFragments,
}

/// What was received.
#[derive(Debug, Default)]
pub struct Records {
    memory: Vec<u8>,
    /// Where the message begins that is being received: first `joined` bytes of its earlier fragments,
    /// without marks, then the mark of the next fragment.
    start: usize,
    joined: usize,
    fragments: u32,
    end: usize,
}

impl Records {
    /// Room for what comes next. What follows a large message is left where it is, so that the message
    /// can be taken out without a copy.
    pub fn room(&mut self) -> &mut [u8] {
        if self.start == self.end && self.joined == 0 {
            (self.start, self.end) = (0, 0);
        }
        // A peer that only announces a long message gets no memory for it.
        let trusted = (2 * (self.end - self.start)).max(self.memory.len() - self.end);
        let wanted = self.missing().min(trusted).max(SMALL_BYTES);
        if self.end + wanted > self.memory.len() && self.start > 0 {
            self.memory.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end + wanted > self.memory.len() {
            self.memory.resize(self.end + wanted, 0);
        }
        &mut self.memory[self.end..self.end + wanted]
    }

    /// Counts what was received into the room.
    pub fn received(&mut self, bytes: usize) {
        self.end += bytes;
    }

    /// Bytes that are held.
    pub fn held(&self) -> usize {
        self.memory.len()
    }

    /// Gives memory back that an idle connection does not need.
    pub fn shrink(&mut self) {
        if self.start == self.end && self.joined == 0 && !self.memory.is_empty() {
            *self = Self::default();
        }
    }

    /// How many bytes of the present fragment are missing, as far as is known.
    fn missing(&self) -> usize {
        let at = self.start + self.joined;
        match self.mark(at) {
            Some((length, _)) => (at + MARK_BYTES + length).saturating_sub(self.end),
            None => 0,
        }
    }

    fn mark(&self, at: usize) -> Option<(usize, bool)> {
        let mark = self.memory.get(at..self.end)?.first_chunk()?;
        let mark = u32::from_be_bytes(*mark);
        Some(((mark & !LAST_FRAGMENT) as usize, mark & LAST_FRAGMENT != 0))
    }

    /// The next whole message, if there is one: where it lies in [`Records::message`].
    ///
    /// # Errors
    /// If the peer breaks the protocol; also before all of the message has come.
    pub fn next_message(&mut self) -> Result<Option<Range<usize>>, RecordError> {
        loop {
            let at = self.start + self.joined;
            let Some((length, is_last)) = self.mark(at) else { return Ok(None) };
            if self.joined + length > RECORD_BYTES_MAX {
                return Err(RecordError::TooLong);
            }
            let data = at + MARK_BYTES..at + MARK_BYTES + length;
            if data.end > self.end {
                return Ok(None);
            }
            if is_last && self.joined == 0 {
                self.start = data.end;
                self.fragments = 0;
                return Ok(Some(data));
            }
            self.fragments += 1;
            if self.fragments > FRAGMENTS_MAX {
                return Err(RecordError::TooManyFragments);
            }
            // The fragment moves up to those before it.
            self.memory.copy_within(data.start..self.end, at);
            self.end -= MARK_BYTES;
            self.joined += length;
            if is_last {
                let message = self.start..self.start + self.joined;
                self.start = message.end;
                (self.joined, self.fragments) = (0, 0);
                return Ok(Some(message));
            }
        }
    }

    /// Whether [`Records::next_message`] would give a message or an error without anything being received.
    pub fn has_more(&self) -> bool {
        let at = self.start + self.joined;
        self.mark(at).is_some_and(|(length, _)| {
            self.joined + length > RECORD_BYTES_MAX || at + MARK_BYTES + length <= self.end
        })
    }

    /// The bytes of a message that [`Records::next_message`] has found just now.
    pub fn message(&self, range: Range<usize>) -> &[u8] {
        &self.memory[range]
    }

    /// As [`Records::message`], for a large one: gives the memory away with it, for one that `spare` has
    /// had. What has come behind the message is kept.
    pub fn take_message(&mut self, spare: &mut Vec<u8>) {
        let behind = self.start..self.end;
        if spare.len() < behind.len() {
            spare.resize(behind.len(), 0);
        }
        spare[..behind.len()].copy_from_slice(&self.memory[behind.clone()]);
        std::mem::swap(&mut self.memory, spare);
        (self.start, self.end) = (0, behind.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(records: &mut Records, bytes: &[u8]) {
        for part in bytes.chunks(1000) {
            records.room()[..part.len()].copy_from_slice(part);
            records.received(part.len());
        }
    }

    fn fragment(data: &[u8], is_last: bool) -> Vec<u8> {
        let mark = data.len() as u32 | if is_last { LAST_FRAGMENT } else { 0 };
        [&mark.to_be_bytes(), data].concat()
    }

    fn next(records: &mut Records) -> Option<Vec<u8>> {
        let range = records.next_message().unwrap()?;
        Some(records.message(range).to_vec())
    }

    #[test]
    fn messages_come_out_one_by_one() {
        let mut records = Records::default();
        let stream =
            [fragment(b"one", true), fragment(b"", true), fragment(b"three", true)].concat();
        for (index, byte) in stream.iter().enumerate() {
            receive(&mut records, &[*byte]);
            assert_eq!(records.has_more(), [6, 10, 19].contains(&index), "{index}");
            match index {
                6 => assert_eq!(next(&mut records).unwrap(), b"one"),
                10 => assert_eq!(next(&mut records).unwrap(), b""),
                19 => assert_eq!(next(&mut records).unwrap(), b"three"),
                _ => assert_eq!(next(&mut records), None),
            }
        }
    }

    #[test]
    fn fragments_are_joined() {
        let mut records = Records::default();
        let parts = [fragment(b"ab", false), fragment(b"", false), fragment(b"cde", true)];
        receive(&mut records, &[parts.concat(), fragment(b"next", true)].concat());
        assert_eq!(next(&mut records).unwrap(), b"abcde");
        assert_eq!(next(&mut records).unwrap(), b"next");
        assert_eq!(next(&mut records), None);
    }

    #[test]
    fn a_large_message_goes_with_its_memory() {
        let mut records = Records::default();
        let large: Vec<u8> =
            (0..=RECORD_BYTES_MAX).map(|i| i as u8).take(RECORD_BYTES_MAX).collect();
        receive(&mut records, &fragment(&large, true));
        receive(&mut records, &fragment(b"behind", true)[..7]);
        let range = records.next_message().unwrap().unwrap();
        let mut memory = vec![9; 3];
        records.take_message(&mut memory);
        assert_eq!(memory[range], large);
        receive(&mut records, &fragment(b"behind", true)[7..]);
        assert_eq!(next(&mut records).unwrap(), b"behind");
    }

    #[test]
    fn what_is_too_long_is_refused_at_its_mark() {
        let mut records = Records::default();
        receive(&mut records, &(LAST_FRAGMENT | (RECORD_BYTES_MAX as u32 + 1)).to_be_bytes());
        assert!(records.has_more());
        assert_eq!(records.next_message(), Err(RecordError::TooLong));
        let mut records = Records::default();
        receive(&mut records, &fragment(&vec![0; RECORD_BYTES_MAX], false));
        assert_eq!(records.next_message(), Ok(None));
        receive(&mut records, &fragment(&[0], true));
        assert_eq!(records.next_message(), Err(RecordError::TooLong));
        let mut records = Records::default();
        for _ in 0..=FRAGMENTS_MAX {
            receive(&mut records, &fragment(b"", false));
        }
        assert_eq!(records.next_message(), Err(RecordError::TooManyFragments));
    }
}
