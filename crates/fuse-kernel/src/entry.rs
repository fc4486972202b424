//! One entry of a queue: a ring, the memory that carries a request and its answer, and the commands
//! that pass it to the kernel and back. Owns how these lie in memory; knows nothing of what they mean.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{self, InHeader, OutHeader, RingCommand, RingEntry};
use crate::slot::Slot;
use crate::sys::{Command, Pages, Ring};

/// The header is smaller; what the kernel needs once, when it is registered, lies behind it.
const HEAD_BYTES: usize = 4096;
const VECTORS_AT: usize = 2048;
/// Room of an operation's own structure, in bytes.
const ARGUMENT_BYTES: usize = abi::ring::ENTRY_AT - abi::ring::ARGUMENTS_AT;

/// An entry. Everything is done by one thread.
#[derive(Debug)]
pub(crate) struct Entry {
    // First, so that it is gone before the memory that it names.
    ring: Ring,
    head: Pages,
    slot: Arc<Slot>,
    /// A message came while the entry was being registered.
    is_early: bool,
}

/// What waiting for a message gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fetched {
    /// One is there.
    Message,
    /// The mount is gone.
    Unmounted,
}

/// The head of a message; the rest lies in the payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageHead {
    pub(crate) header: InHeader,
    pub(crate) arguments: [u8; ARGUMENT_BYTES],
    pub(crate) payload_bytes: usize,
}

impl Entry {
    /// An entry with room for `payload_bytes`, on a ring of its own.
    ///
    /// # Errors
    /// If io_uring is not allowed, or memory or descriptors have run out.
    pub(crate) fn new(payload_bytes: usize) -> Result<Self, Errno> {
        let (head, payload) = (Pages::new(HEAD_BYTES)?, Pages::new(payload_bytes)?);
        let slot = Arc::new(Slot::new(payload));
        Ok(Self { ring: Ring::new()?, head, slot, is_early: false })
    }

    /// Hands the entry to `queue` of the mount behind `device`.
    ///
    /// # Errors
    /// If the kernel does not take it, or the ring fails.
    pub(crate) fn register(&mut self, device: BorrowedFd<'_>, queue: u16) -> Result<(), Errno> {
        let payload = self.slot.payload();
        let vectors =
            [self.head.address(), HEAD_BYTES, payload.address(), payload.as_slice().len()];
        drop(payload);
        let bytes = vectors.as_bytes();
        self.head.as_mut_slice()[VECTORS_AT..][..bytes.len()].copy_from_slice(bytes);
        let command = Command {
            code: abi::ring::REGISTER,
            address: self.head.address() + VECTORS_AT,
            count: 2,
            arguments: arguments(queue, 0),
        };
        self.ring.put(device, &command);
        match self.ring.submit()? {
            None => Ok(()),
            Some(result) if result < 0 => Err(Errno::from_raw_os_error(-result)),
            Some(_) => {
                self.is_early = true;
                Ok(())
            }
        }
    }

    /// Sends what was put down, and waits for a message.
    ///
    /// # Errors
    /// If the kernel does not take the answer, or the ring fails.
    pub(crate) fn fetch(&mut self) -> Result<Fetched, Errno> {
        if std::mem::take(&mut self.is_early) {
            return Ok(Fetched::Message);
        }
        let result = self.ring.wait([&mut self.head, &mut self.slot.payload()])?;
        if result >= 0 {
            return Ok(Fetched::Message);
        }
        match Errno::from_raw_os_error(-result) {
            Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED | Errno::NODEV => {
                Ok(Fetched::Unmounted)
            }
            errno => Err(errno),
        }
    }

    /// Where the answer goes.
    pub(crate) fn slot(&self) -> Arc<Slot> {
        Arc::clone(&self.slot)
    }

    /// What has come.
    pub(crate) fn message(&self) -> MessageHead {
        let head = self.head.as_slice();
        let mut arguments = [0; ARGUMENT_BYTES];
        arguments.copy_from_slice(&head[abi::ring::ARGUMENTS_AT..abi::ring::ENTRY_AT]);
        let (header, entry) = (read::<InHeader>(head), read(&head[abi::ring::ENTRY_AT..]));
        let RingEntry { payload_bytes, .. } = entry;
        MessageHead { header, arguments, payload_bytes: payload_bytes as usize }
    }

    /// Puts the answer down, which has to be in the slot; it goes out with the next [`Entry::fetch`].
    pub(crate) fn put_answer(&mut self, device: BorrowedFd<'_>, queue: u16) {
        let answer = self.slot.take();
        let head = self.head.as_mut_slice();
        let unique = read::<InHeader>(head).unique;
        let commit_id = read::<RingEntry>(&head[abi::ring::ENTRY_AT..]).commit_id;
        let len = (size_of::<OutHeader>() + answer.bytes) as u32;
        let header = OutHeader { len, error: answer.error, unique };
        let payload_bytes = answer.bytes as u32;
        let entry = RingEntry { flags: 0, commit_id, payload_bytes, padding: 0, reserved: 0 };
        head[..size_of::<OutHeader>()].copy_from_slice(header.as_bytes());
        head[abi::ring::ENTRY_AT..][..size_of::<RingEntry>()].copy_from_slice(entry.as_bytes());
        let command = Command {
            code: abi::ring::COMMIT_AND_FETCH,
            address: 0,
            count: 0,
            arguments: arguments(queue, commit_id),
        };
        self.ring.put(device, &command);
    }
}

fn arguments(queue: u16, commit_id: u64) -> [u8; 80] {
    let mut bytes = [0; 80];
    let command = RingCommand { flags: 0, commit_id, queue, padding: [0; 6] };
    bytes[..size_of::<RingCommand>()].copy_from_slice(command.as_bytes());
    bytes
}

/// A structure at the beginning of `bytes`, which has room for it.
fn read<T: FromBytes>(bytes: &[u8]) -> T {
    match T::read_from_prefix(bytes) {
        Ok((value, _)) => value,
        Err(_) => T::new_zeroed(),
    }
}
