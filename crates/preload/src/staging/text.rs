//! A path in the making. Owns its room, which lies on the stack: hooks are called in signal handlers and
//! for every name that a program looks for, so none of this may take memory of an allocator.

use std::ffi::c_char;

use azekura_posix::{Errno, Result};

const ROOM: usize = libc::PATH_MAX as usize;

/// A path that ends with a zero byte, as C wants it.
pub(super) struct Text {
    bytes: [u8; ROOM],
    length: usize,
}

impl Text {
    /// An empty one.
    pub(super) fn new() -> Self {
        Self { bytes: [0; ROOM], length: 0 }
    }

    /// Adds to the end.
    ///
    /// # Errors
    /// `ENAMETOOLONG` for more than any path can have.
    pub(super) fn push(&mut self, part: &[u8]) -> Result<()> {
        let end = self.length + part.len();
        if end >= ROOM {
            return Err(Errno::NAMETOOLONG);
        }
        self.bytes[self.length..end].copy_from_slice(part);
        self.bytes[end] = 0;
        self.length = end;
        Ok(())
    }

    /// Cuts it.
    pub(super) fn truncate(&mut self, length: usize) {
        if length < self.length {
            self.bytes[length] = 0;
            self.length = length;
        }
    }

    /// Puts something else in place of the first bytes.
    ///
    /// # Errors
    /// As for [`Text::push`].
    pub(super) fn replace_start(&mut self, bytes: usize, by: &[u8]) -> Result<()> {
        let end = self.length - bytes + by.len();
        if end >= ROOM {
            return Err(Errno::NAMETOOLONG);
        }
        self.bytes.copy_within(bytes..self.length, by.len());
        self.bytes[..by.len()].copy_from_slice(by);
        self.bytes[end] = 0;
        self.length = end;
        Ok(())
    }

    /// Fills it with what `fill` writes; `fill` gives how many bytes that are.
    ///
    /// # Errors
    /// That of `fill`; `ENAMETOOLONG` if it took all the room.
    pub(super) fn fill(&mut self, fill: impl FnOnce(&mut [u8]) -> Result<usize>) -> Result<()> {
        let got = fill(&mut self.bytes)?;
        if got >= ROOM {
            self.length = 0;
            return Err(Errno::NAMETOOLONG);
        }
        self.length = got;
        self.bytes[got] = 0;
        Ok(())
    }

    /// Without the zero byte.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// With the zero byte.
    pub(super) fn as_ptr(&self) -> *const c_char {
        debug_assert_eq!(self.bytes[self.length], 0, "no end");
        self.bytes.as_ptr().cast()
    }
}
