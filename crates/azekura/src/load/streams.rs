//! Buffered streams of records over a [`FileSpace`], as the C library's are: a buffer of the application's
//! size for each file, filled and emptied as a whole. Own code, since the standard library's readers
//! and writers do not tell how long requests took, and clear a buffer before they fill it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Result, bail};

use super::order::Spent;
use super::space::FileSpace;

/// Whether the work is to go on.
#[derive(Debug, Default)]
pub(super) struct Watch(AtomicBool);

impl Watch {
    /// Nobody wants the work any more.
    pub(super) fn end(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn look(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) {
            bail!("the worker was told to end");
        }
        Ok(())
    }
}

/// A file that is read from front to back.
pub(super) struct Input<F> {
    file: F,
    offset: u64,
    buffer: Vec<u8>,
    at: usize,
    filled: usize,
    has_ended: bool,
}

impl<F> Input<F> {
    pub(super) fn open<S: FileSpace<File = F>>(
        space: &mut S,
        path: &str,
        buffer: Vec<u8>,
        spent: &mut Spent,
    ) -> Result<Self> {
        let file = timed(&mut spent.open_ns, || space.open_input(path))?;
        Ok(Self { file, offset: 0, buffer, at: 0, filled: 0, has_ended: false })
    }

    /// The next record; false if the file ends before it does.
    pub(super) fn read<S: FileSpace<File = F>>(
        &mut self,
        space: &mut S,
        record: &mut [u8],
        watch: &Watch,
        spent: &mut Spent,
    ) -> Result<bool> {
        let mut done = 0;
        while done < record.len() {
            if self.at == self.filled {
                watch.look()?;
                if self.has_ended {
                    return Ok(false);
                }
                let (file, buffer, offset) = (&self.file, &mut self.buffer, self.offset);
                self.filled = timed(&mut spent.read_ns, || space.read_at(file, buffer, offset))?;
                self.has_ended = self.filled < self.buffer.len();
                self.offset += self.filled as u64;
                self.at = 0;
                continue;
            }
            let bytes = (record.len() - done).min(self.filled - self.at);
            record[done..done + bytes].copy_from_slice(&self.buffer[self.at..self.at + bytes]);
            done += bytes;
            self.at += bytes;
        }
        Ok(true)
    }

    /// Closes the file, and gives its buffer back.
    pub(super) fn close<S: FileSpace<File = F>>(
        self,
        space: &mut S,
        spent: &mut Spent,
    ) -> Result<Vec<u8>> {
        let file = self.file;
        timed(&mut spent.close_ns, || space.close(file))?;
        Ok(self.buffer)
    }
}

/// A file that is written from front to back.
pub(super) struct Output<F> {
    file: F,
    offset: u64,
    buffer: Vec<u8>,
    filled: usize,
}

impl<F> Output<F> {
    pub(super) fn create<S: FileSpace<File = F>>(
        space: &mut S,
        path: &str,
        buffer: Vec<u8>,
        spent: &mut Spent,
    ) -> Result<Self> {
        let file = timed(&mut spent.create_ns, || space.create_output(path))?;
        Ok(Self { file, offset: 0, buffer, filled: 0 })
    }

    /// Another record.
    pub(super) fn write<S: FileSpace<File = F>>(
        &mut self,
        space: &mut S,
        record: &[u8],
        watch: &Watch,
        spent: &mut Spent,
    ) -> Result<()> {
        let mut rest = record;
        while !rest.is_empty() {
            let bytes = rest.len().min(self.buffer.len() - self.filled);
            self.buffer[self.filled..self.filled + bytes].copy_from_slice(&rest[..bytes]);
            self.filled += bytes;
            rest = &rest[bytes..];
            if self.filled == self.buffer.len() {
                watch.look()?;
                let spent = &mut spent.write_ns;
                timed(spent, || space.write_at(&self.file, &self.buffer, self.offset))?;
                self.offset += self.filled as u64;
                self.filled = 0;
            }
        }
        Ok(())
    }

    /// Writes what is still in the buffer, closes the file, and gives the buffer back.
    pub(super) fn close<S: FileSpace<File = F>>(
        self,
        space: &mut S,
        sync: bool,
        spent: &mut Spent,
    ) -> Result<Vec<u8>> {
        let Self { file, offset, buffer, filled } = self;
        if filled > 0 {
            timed(&mut spent.flush_ns, || space.write_at(&file, &buffer[..filled], offset))?;
        }
        if sync {
            timed(&mut spent.sync_ns, || space.sync(&file))?;
        }
        timed(&mut spent.close_ns, || space.close(file))?;
        Ok(buffer)
    }
}

/// Measures time into a counter of [`Spent`].
fn timed<T>(nanoseconds: &mut u64, work: impl FnOnce() -> T) -> T {
    let since = Instant::now();
    let result = work();
    *nanoseconds += u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
    result
}
