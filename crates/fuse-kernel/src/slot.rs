//! The answer to one request that came over io_uring. Owns the memory that carries the data of both,
//! and what is known of the answer until the thread of the ring sends it; knows neither rings nor
//! meanings. Whoever answers may be another thread, and may come late.

use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;

use crate::sys::Pages;

/// Where a request's data lie, and where its answer goes.
#[derive(Debug)]
pub(crate) struct Slot {
    /// Taken by the ring's thread while the kernel has it lent, or the request is being read from it.
    payload: Mutex<Pages>,
    answer: Mutex<Answer>,
    answered: Condvar,
}

/// What is known of an answer.
#[derive(Debug, Default)]
struct Answer {
    is_there: bool,
    error: i32,
    /// Bytes of it that lie in the payload already.
    in_place: usize,
    /// Or the bytes, if the payload could not be written to, since the request lay in it.
    apart: Vec<u8>,
}

/// An answer that is ready to be sent: its data lie in the payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ready {
    /// 0, or an error as a negative number.
    pub(crate) error: i32,
    /// Length of the data.
    pub(crate) bytes: usize,
}

impl Slot {
    pub(crate) fn new(payload: Pages) -> Self {
        Self { payload: Mutex::new(payload), answer: Mutex::default(), answered: Condvar::new() }
    }

    /// The memory. An answer that comes while this is held is put down apart from it.
    pub(crate) fn payload(&self) -> MutexGuard<'_, Pages> {
        self.payload.lock()
    }

    /// Answers with `parts`.
    pub(crate) fn reply(&self, parts: [&[u8]; 2]) {
        let bytes = parts[0].len() + parts[1].len();
        if let Some(mut payload) = self.payload.try_lock()
            && let Some(room) = payload.as_mut_slice().get_mut(..bytes)
        {
            let (first, second) = room.split_at_mut(parts[0].len());
            first.copy_from_slice(parts[0]);
            second.copy_from_slice(parts[1]);
            drop(payload);
            return self.finish(|answer| answer.in_place = bytes);
        }
        self.finish(|answer| {
            answer.apart.extend_from_slice(parts[0]);
            answer.apart.extend_from_slice(parts[1]);
        });
    }

    /// Answers with an error.
    pub(crate) fn reply_error(&self, errno: Errno) {
        self.finish(|answer| answer.error = -errno.raw_os_error());
    }

    /// Answers with what `fill` puts into `size` bytes of the memory itself. Gives `fill` back if
    /// that is not possible, since the request lies there or there is less room.
    pub(crate) fn fill<F>(&self, size: usize, fill: F) -> Result<(), F>
    where
        F: FnOnce(&mut [u8]) -> Result<usize, Errno>,
    {
        let Some(mut payload) = self.payload.try_lock() else { return Err(fill) };
        let Some(room) = payload.as_mut_slice().get_mut(..size) else { return Err(fill) };
        let filled = fill(room);
        drop(payload);
        match filled {
            Ok(bytes) => self.finish(|answer| answer.in_place = bytes.min(size)),
            Err(errno) => self.reply_error(errno),
        }
        Ok(())
    }

    fn finish(&self, set: impl FnOnce(&mut Answer)) {
        let mut answer = self.answer.lock();
        set(&mut answer);
        answer.is_there = true;
        drop(answer);
        self.answered.notify_one();
    }

    /// Whether the answer is there.
    pub(crate) fn is_answered(&self) -> bool {
        self.answer.lock().is_there
    }

    /// Waits for the answer.
    pub(crate) fn wait(&self) {
        let mut answer = self.answer.lock();
        while !answer.is_there {
            self.answered.wait(&mut answer);
        }
    }

    /// The same, for so long at most; whether it is there.
    pub(crate) fn wait_for(&self, time: Duration) -> bool {
        let mut answer = self.answer.lock();
        if !answer.is_there {
            self.answered.wait_for(&mut answer, time);
        }
        answer.is_there
    }

    /// Puts the answer's data, after waiting for it, where the kernel looks for them. After this the
    /// slot is ready for the next request.
    pub(crate) fn take(&self) -> Ready {
        self.wait();
        let mut answer = self.answer.lock();
        answer.is_there = false;
        let mut ready = Ready {
            error: std::mem::take(&mut answer.error),
            bytes: std::mem::take(&mut answer.in_place),
        };
        if !answer.apart.is_empty() {
            let mut payload = self.payload.lock();
            let bytes = answer.apart.len();
            if let Some(room) = payload.as_mut_slice().get_mut(..bytes) {
                room.copy_from_slice(&answer.apart);
                ready.bytes = bytes;
            } else {
                tracing::warn!(bytes, "a FUSE reply is longer than any request allows");
                ready.error = -Errno::IO.raw_os_error();
            }
            answer.apart.clear();
        }
        ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot() -> Slot {
        Slot::new(Pages::new(4096).unwrap())
    }

    #[test]
    fn an_answer_lies_in_the_payload_whoever_holds_it() {
        let slot = slot();
        slot.reply([b"ab", b"c"]);
        assert_eq!(slot.take(), Ready { error: 0, bytes: 3 });
        assert_eq!(&slot.payload().as_slice()[..3], b"abc");

        let held = slot.payload();
        slot.reply([b"xy", b""]);
        assert_eq!(&held.as_slice()[..3], b"abc", "the request is not written over");
        drop(held);
        assert_eq!(slot.take(), Ready { error: 0, bytes: 2 });
        assert_eq!(&slot.payload().as_slice()[..3], b"xyc");
        assert!(!slot.is_answered());
    }

    #[test]
    fn data_are_filled_in_where_they_are_sent_from() {
        let slot = slot();
        let filled = slot.fill(4096, |room| {
            room.fill(5);
            Ok(4000)
        });
        assert!(filled.is_ok());
        assert_eq!(slot.take(), Ready { error: 0, bytes: 4000 });
        assert!(slot.fill(4097, |_| Ok(0)).is_err(), "there is not so much room");
        assert!(slot.fill(1, |_| Err(Errno::NOSPC)).is_ok());
        assert_eq!(slot.take(), Ready { error: -Errno::NOSPC.raw_os_error(), bytes: 0 });
    }

    #[test]
    fn an_answer_that_is_too_long_is_an_error_and_leaves_nothing_behind() {
        let slot = slot();
        slot.reply([&[1; 5000], &[]]);
        assert_eq!(slot.take().error, -Errno::IO.raw_os_error());
        slot.reply([&[], &[]]);
        assert_eq!(slot.take(), Ready { error: 0, bytes: 0 });
    }

    #[test]
    fn an_answer_of_another_thread_is_waited_for() {
        let slot = slot();
        std::thread::scope(|scope| {
            scope.spawn(|| slot.reply_error(Errno::INTR));
            assert_eq!(slot.take().error, -Errno::INTR.raw_os_error());
        });
    }
}
