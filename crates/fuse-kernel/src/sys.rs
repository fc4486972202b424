//! The system calls of an io_uring with one command under way, memory that the kernel knows by its address, and
//! the device's own `ioctl`s. Owns the only unsafe code of this crate; what the calls are for is not known here.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::io_uring::{
    IORING_OFF_SQ_RING, IORING_OFF_SQES, IoringEnterFlags, IoringFeatureFlags, IoringSetupFlags,
    io_uring_enter, io_uring_params, io_uring_setup,
};
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl, opcode};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::abi::{BackingMap, device};

/// An `ioctl` of the device that takes a value and answers by its result.
struct DeviceCall<T> {
    command: u8,
    value: T,
}

// SAFETY: the commands of this group read one structure of the type that their number is made with, and write to
// no memory of this process.
unsafe impl<T> Ioctl for DeviceCall<T> {
    type Output = i32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        opcode::write::<T>(device::GROUP, self.command)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut self.value).cast()
    }

    unsafe fn output_from_ptr(result: IoctlOutput, _: *mut c_void) -> Result<i32, Errno> {
        Ok(result)
    }
}

/// Gives the device a file; its number there.
pub(crate) fn lend_file(device: BorrowedFd<'_>, file: BorrowedFd<'_>) -> Result<i32, Errno> {
    let value = BackingMap { fd: file.as_raw_fd(), flags: 0, padding: 0 };
    // SAFETY: the device takes the structure in; a descriptor that is open is all that it names.
    unsafe { ioctl(device, DeviceCall { command: device::BACKING_OPEN, value }) }
}

/// The device forgets a file's number.
pub(crate) fn take_file_back(device: BorrowedFd<'_>, number: i32) -> Result<(), Errno> {
    // SAFETY: the device takes a number in.
    unsafe { ioctl(device, DeviceCall { command: device::BACKING_CLOSE, value: number }) }.map(drop)
}

/// `IORING_OP_URING_CMD`: a command to the file itself.
const OP_COMMAND: u8 = 46;
/// Bytes of a submission that carries a command.
const SUBMISSION_BYTES: usize = 128;

/// Mapped memory of this process's own. It lies still, so that the kernel can know its address.
#[derive(Debug)]
pub(crate) struct Pages {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone, and any thread may use and unmap it.
unsafe impl Send for Pages {}
// SAFETY: through a shared reference it can only be read, or changed by atomic operations.
unsafe impl Sync for Pages {}

impl Pages {
    /// `bytes` of zeros, which take up memory when they are first written to.
    ///
    /// # Errors
    /// If there is no memory.
    pub(crate) fn new(bytes: usize) -> Result<Self, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the place, so that nothing that is in use is replaced.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, MapFlags::PRIVATE) }?;
        Self::from_mapping(start, bytes)
    }

    /// What the kernel shows of a ring at `offset`.
    fn of_ring(ring: &OwnedFd, bytes: usize, offset: u64) -> Result<Self, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: as above.
        let start = unsafe { mmap(ptr::null_mut(), bytes, access, flags, ring, offset) }?;
        Self::from_mapping(start, bytes)
    }

    fn from_mapping(start: *mut c_void, bytes: usize) -> Result<Self, Errno> {
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { start, bytes })
    }

    /// Where it lies, for the kernel.
    pub(crate) fn address(&self) -> usize {
        self.start.as_ptr() as usize
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: the mapping is this long, holds initialized bytes and lives as long as `self`.
        // The kernel writes to it only while a ring has it lent (see `Ring::wait`).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else has a reference to it.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }

    /// A number that the kernel reads or writes at the same time.
    fn number(&self, offset: u32) -> &AtomicU32 {
        let offset = offset as usize;
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.bytes, "a ring within its pages");
        // SAFETY: it lies within the mapping, which begins at a page, and is aligned.
        unsafe { self.start.cast::<AtomicU32>().add(offset / 4).as_ref() }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and no reference to it outlives it.
        if let Err(errno) = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) } {
            tracing::warn!(bytes = self.bytes, "cannot give memory back: {errno}");
        }
    }
}

/// A command to an open file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    /// What is to be done, in the file's own numbers.
    pub(crate) code: u32,
    /// Address of an argument of the command's.
    pub(crate) address: usize,
    /// Number of things there.
    pub(crate) count: u32,
    /// The command's own arguments.
    pub(crate) arguments: [u8; 80],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Submission {
    opcode: u8,
    flags: u8,
    ioprio: u16,
    fd: i32,
    code: u32,
    pad: u32,
    address: u64,
    count: u32,
    command_flags: u32,
    user_data: u64,
    buffer_index: u16,
    personality: u16,
    file_index: u32,
    arguments: [u8; 80],
}

const _: () = assert!(size_of::<Submission>() == SUBMISSION_BYTES);

/// An io_uring for one command at a time. Everything on it has to be done by one thread, which is
/// the one that the kernel copies requests for.
#[derive(Debug)]
pub(crate) struct Ring {
    descriptor: OwnedFd,
    shared: Pages,
    submissions: Pages,
    offsets: Offsets,
}

/// Where things lie in the ring's pages.
#[derive(Clone, Copy, Debug)]
struct Offsets {
    submission_head: u32,
    submission_tail: u32,
    completion_head: u32,
    completion_tail: u32,
    completions: u32,
    completion_mask: u32,
}

impl Ring {
    /// Makes a ring.
    ///
    /// # Errors
    /// If the kernel or a policy of the machine does not allow it, or descriptors have run out.
    pub(crate) fn new() -> Result<Self, Errno> {
        let mut params = io_uring_params::default();
        params.flags = IoringSetupFlags::SQE128;
        // SAFETY: the parameters are valid, and the ring uses none of this process's memory yet.
        let descriptor = unsafe { io_uring_setup(1, &mut params) }?;
        if !params.features.contains(IoringFeatureFlags::SINGLE_MMAP) {
            return Err(Errno::NOSYS);
        }
        let end_of_submissions = params.sq_off.array + params.sq_entries * 4;
        let end_of_completions = params.cq_off.cqes + params.cq_entries * 16;
        let shared_bytes = end_of_submissions.max(end_of_completions) as usize;
        let shared = Pages::of_ring(&descriptor, shared_bytes, IORING_OFF_SQ_RING)?;
        let submission_bytes = params.sq_entries as usize * SUBMISSION_BYTES;
        let submissions = Pages::of_ring(&descriptor, submission_bytes, IORING_OFF_SQES)?;
        let offsets = Offsets {
            submission_head: params.sq_off.head,
            submission_tail: params.sq_off.tail,
            completion_head: params.cq_off.head,
            completion_tail: params.cq_off.tail,
            completions: params.cq_off.cqes,
            completion_mask: shared.number(params.cq_off.ring_mask).load(Ordering::Relaxed),
        };
        // With one place there is one index.
        shared.number(params.sq_off.array).store(0, Ordering::Relaxed);
        Ok(Self { descriptor, shared, submissions, offsets })
    }

    /// Puts a command to `file` down, to go out with the next [`Ring::submit`] or [`Ring::wait`].
    /// The one before it has to have ended.
    pub(crate) fn put(&mut self, file: BorrowedFd<'_>, command: &Command) {
        let submission = Submission {
            opcode: OP_COMMAND,
            flags: 0,
            ioprio: 0,
            fd: file.as_raw_fd(),
            code: command.code,
            pad: 0,
            address: command.address as u64,
            count: command.count,
            command_flags: 0,
            user_data: 0,
            buffer_index: 0,
            personality: 0,
            file_index: 0,
            arguments: command.arguments,
        };
        self.submissions.as_mut_slice()[..SUBMISSION_BYTES].copy_from_slice(submission.as_bytes());
        let tail = self.shared.number(self.offsets.submission_tail);
        tail.store(tail.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// Sends the command off, and does not wait for its end: gives its result if that is there already.
    /// Otherwise the memory that it names is the kernel's from now on, until [`Ring::wait`] returns.
    ///
    /// # Errors
    /// If the ring itself fails.
    pub(crate) fn submit(&mut self) -> Result<Option<i32>, Errno> {
        self.enter(0)?;
        Ok(self.completion())
    }

    /// Waits for the end of the command, after sending it off if need be; gives its result, which is
    /// negative for an error. The memory that it names is lent to the kernel meanwhile: `_lent`.
    ///
    /// # Errors
    /// If the ring itself fails.
    pub(crate) fn wait(&mut self, _lent: [&mut Pages; 2]) -> Result<i32, Errno> {
        loop {
            if let Some(result) = self.completion() {
                return Ok(result);
            }
            self.enter(1)?;
        }
    }

    fn enter(&mut self, completions: u32) -> Result<(), Errno> {
        let tail = self.shared.number(self.offsets.submission_tail).load(Ordering::Relaxed);
        let head = self.shared.number(self.offsets.submission_head).load(Ordering::Acquire);
        let waiting = tail.wrapping_sub(head);
        let flags = IoringEnterFlags::GETEVENTS;
        // SAFETY: the command's memory lies in `Pages`, which its user keeps at least as long as the
        // ring, and does not touch before it has ended.
        match unsafe { io_uring_enter(&self.descriptor, waiting, completions, flags) } {
            // A signal, or no memory for a moment: whoever waits tries again.
            Ok(_) | Err(Errno::INTR | Errno::AGAIN | Errno::BUSY) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    fn completion(&mut self) -> Option<i32> {
        let head = self.shared.number(self.offsets.completion_head);
        let tail = self.shared.number(self.offsets.completion_tail).load(Ordering::Acquire);
        let at = head.load(Ordering::Relaxed);
        if at == tail {
            return None;
        }
        // A completion is 16 bytes, with the result in the third word.
        let word = self.offsets.completions + (at & self.offsets.completion_mask) * 16 + 8;
        let result = self.shared.number(word).load(Ordering::Relaxed);
        head.store(at.wrapping_add(1), Ordering::Release);
        Some(result as i32)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn pages_begin_as_zeros_and_keep_what_is_written() {
        let mut pages = Pages::new(8192).unwrap();
        assert!(pages.as_slice().iter().all(|byte| *byte == 0));
        pages.as_mut_slice()[8191] = 7;
        assert_eq!(pages.as_slice()[8191], 7);
        assert_eq!(pages.address() % 4096, 0);
    }

    #[test]
    fn a_file_that_takes_no_commands_says_so_again_and_again() {
        let mut ring = match Ring::new() {
            Ok(ring) => ring,
            Err(errno) => return azekura_testkit::skip(&format!("no io_uring: {errno}")),
        };
        let (mut one, mut other) = (Pages::new(4096).unwrap(), Pages::new(4096).unwrap());
        let (end, _other_end) = rustix::pipe::pipe().unwrap();
        let command = Command { code: 1, address: 0, count: 0, arguments: [0; 80] };
        for _ in 0..5 {
            ring.put(end.as_fd(), &command);
            let result = ring.wait([&mut one, &mut other]).unwrap();
            assert_eq!(result, -Errno::OPNOTSUPP.raw_os_error());
        }
    }
}
