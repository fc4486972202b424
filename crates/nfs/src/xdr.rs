//! XDR (RFC 4506), as far as the protocols here use it. Owns how numbers and opaque data lie in a
//! message, without knowing any message; it reads from bytes that others have, and never copies them.

/// What was read is no message of the kind that was expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the message cannot be decoded")]
pub struct Garbage;

/// Bytes that follow something of this length, so that what comes next is aligned.
pub const fn padding(length: usize) -> usize {
    length.wrapping_neg() & 3
}

/// Takes a message apart from the front.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Begins with these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What was not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// An unsigned integer of 32 bits.
    ///
    /// # Errors
    /// If the message ends before.
    pub fn u32(&mut self) -> Result<u32, Garbage> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(Garbage)?;
        self.rest = rest;
        Ok(u32::from_be_bytes(*head))
    }

    /// An unsigned hyper integer.
    ///
    /// # Errors
    /// If the message ends before.
    pub fn u64(&mut self) -> Result<u64, Garbage> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(Garbage)?;
        self.rest = rest;
        Ok(u64::from_be_bytes(*head))
    }

    /// A boolean.
    ///
    /// # Errors
    /// If it is neither 0 nor 1.
    pub fn bool(&mut self) -> Result<bool, Garbage> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Garbage),
        }
    }

    /// Opaque data of a length that both sides know, a multiple of four.
    ///
    /// # Errors
    /// If the message ends before.
    pub fn fixed<const N: usize>(&mut self) -> Result<&'a [u8; N], Garbage> {
        const { assert!(N.is_multiple_of(4)) };
        let (head, rest) = self.rest.split_first_chunk().ok_or(Garbage)?;
        self.rest = rest;
        Ok(head)
    }

    /// Opaque data, or a string, of at most this many bytes.
    ///
    /// # Errors
    /// If it is longer, or the message ends before.
    pub fn opaque(&mut self, bytes_max: usize) -> Result<&'a [u8], Garbage> {
        let length = self.u32()? as usize;
        if length > bytes_max {
            return Err(Garbage);
        }
        let all = length + padding(length);
        if all > self.rest.len() {
            return Err(Garbage);
        }
        let opaque = &self.rest[..length];
        self.rest = &self.rest[all..];
        Ok(opaque)
    }

    /// An optional value, which is there if a boolean before it says so.
    ///
    /// # Errors
    /// Those of the boolean and the value.
    pub fn optional<T>(
        &mut self,
        value: impl FnOnce(&mut Self) -> Result<T, Garbage>,
    ) -> Result<Option<T>, Garbage> {
        if self.bool()? { value(self).map(Some) } else { Ok(None) }
    }
}

/// Puts a message together. Keeps its memory from one message to the next, so that a large one costs no
/// clearing of memory.
#[derive(Debug, Default)]
pub struct Writer {
    /// Initialised up to its length; what counts are the first `end` bytes.
    memory: Vec<u8>,
    end: usize,
}

impl Writer {
    /// Forgets what was written.
    pub fn clear(&mut self) {
        self.end = 0;
    }

    /// What was written.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[..self.end]
    }

    /// How many bytes were written.
    pub fn len(&self) -> usize {
        self.end
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.end == 0
    }

    /// Forgets all but the first `length` bytes.
    pub fn truncate(&mut self, length: usize) {
        self.end = self.end.min(length);
    }

    /// The next `length` bytes, whose content is arbitrary until it is written.
    pub fn take(&mut self, length: usize) -> &mut [u8] {
        let start = self.end;
        self.end += length;
        if self.end > self.memory.len() {
            self.memory.resize(self.end.next_power_of_two().max(1024), 0);
        }
        &mut self.memory[start..self.end]
    }

    /// Bytes as they are, without length or padding.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.take(bytes.len()).copy_from_slice(bytes);
    }

    /// An unsigned integer of 32 bits.
    pub fn u32(&mut self, value: u32) {
        self.raw(&value.to_be_bytes());
    }

    /// Several unsigned integers of 32 bits.
    pub fn numbers(&mut self, values: &[u32]) {
        for value in values {
            self.u32(*value);
        }
    }

    /// Several of them.
    pub fn u32s(&mut self, values: &[u32]) {
        for value in values {
            self.u32(*value);
        }
    }

    /// An unsigned hyper integer.
    pub fn u64(&mut self, value: u64) {
        self.raw(&value.to_be_bytes());
    }

    /// A boolean.
    pub fn bool(&mut self, value: bool) {
        self.u32(u32::from(value));
    }

    /// Opaque data or a string, with its length.
    pub fn opaque(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.raw(bytes);
        self.pad(bytes.len());
    }

    /// The zeros that follow opaque data of this length.
    pub fn pad(&mut self, length: usize) {
        self.take(padding(length)).fill(0);
    }

    /// Overwrites a number that was written at this place before.
    pub fn set_u32(&mut self, at: usize, value: u32) {
        self.memory[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut writer = Writer::default();
        writer.u32(7);
        writer.bool(true);
        writer.opaque(b"hello");
        writer.u64(u64::MAX - 1);
        assert_eq!(writer.len(), 4 + 4 + 4 + 8 + 8);
        let mut reader = Reader::new(writer.bytes());
        assert_eq!(reader.u32(), Ok(7));
        assert_eq!(reader.bool(), Ok(true));
        assert_eq!(reader.opaque(5), Ok(&b"hello"[..]));
        assert_eq!(reader.u64(), Ok(u64::MAX - 1));
        assert!(reader.rest().is_empty());
        assert_eq!(reader.u32(), Err(Garbage));
    }

    #[test]
    fn old_content_does_not_show() {
        let mut writer = Writer::default();
        writer.raw(&[0xff; 64]);
        writer.clear();
        writer.opaque(b"a");
        assert_eq!(writer.bytes(), [0, 0, 0, 1, b'a', 0, 0, 0]);
    }

    #[test]
    fn lengths_beyond_the_message_are_refused() {
        for bytes in [&[0xff; 4][..], &[0, 0, 0, 5, 1, 2, 3, 4], &[0, 0, 0, 3, 1, 2, 3]] {
            assert_eq!(Reader::new(bytes).opaque(usize::MAX), Err(Garbage));
        }
        assert_eq!(Reader::new(&[0, 0, 0, 5, 1, 2, 3, 4, 5, 0, 0, 0]).opaque(4), Err(Garbage));
        assert_eq!(Reader::new(&[0, 0, 0, 2]).bool(), Err(Garbage));
    }
}
