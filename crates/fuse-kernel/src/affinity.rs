//! On which processor a thread of a queue runs. The first thread of a queue stays on the queue's processor, where
//! whoever asks is: a request then costs no call to another processor, which takes longer than most requests do. The
//! kernel gives a request to the thread that has answered last, whichever that is; so further threads go there too
//! while there is little to do, and anywhere while several requests or many bytes are dealt with at once. Owns that
//! choice; knows nothing of requests but how many there are and how long.

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};

/// A queue whose threads are dealing with fewer requests than this has little to do: one for which a program waits, and
/// the end of a file's use before it, for which nobody does.
const FEW: usize = 3;
/// A request of so many bytes is worth another processor.
const LONG_BYTES: usize = 32 * 1024;
/// After so many requests that find little to do a thread moves to its queue's processor.
const LIGHT_IN_A_ROW: u32 = 32;

/// Where a thread is kept.
#[derive(Debug)]
pub(crate) struct Affinity {
    queue: u16,
    /// Where the thread may run while there is much to do.
    anywhere: CpuSet,
    stay: Stay,
}

/// Whether a thread is on its queue's processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stay {
    /// For good.
    Always,
    /// Until there is much to do.
    Now,
    /// Not yet: so many requests in a row found little to do.
    Not { light: u32 },
    /// Never, since it may not run there.
    Never,
}

impl Affinity {
    /// For the first thread of a queue, which is on its processor now. `allowed` are those that the process may run on.
    pub(crate) fn first(queue: u16, allowed: &CpuSet) -> Self {
        Self::kept(queue, allowed, Stay::Always)
    }

    /// For a further thread. Whoever started it may have been kept to a processor.
    pub(crate) fn further(queue: u16, allowed: &CpuSet) -> Self {
        Self::kept(queue, allowed, Stay::Not { light: 0 })
    }

    fn kept(queue: u16, allowed: &CpuSet, stay: Stay) -> Self {
        let stay = if allowed.is_set(usize::from(queue)) { stay } else { Stay::Never };
        let affinity = Self { queue, anywhere: *allowed, stay };
        affinity.go_back();
        affinity
    }

    /// The thread is about to deal with a request that moves so many bytes, and `busy` threads of the queue, with this
    /// one, deal with some.
    pub(crate) fn note(&mut self, busy: usize, bytes: usize) {
        let before = self.stay;
        self.stay = before.after(busy < FEW && bytes < LONG_BYTES);
        if (before == Stay::Now) != (self.stay == Stay::Now) {
            self.go_back();
        }
    }

    /// Does something on the queue's processor.
    ///
    /// # Errors
    /// If the thread may not run there, or `act` fails.
    pub(crate) fn on_queue<T>(&self, act: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        let done = pin(self.queue).and_then(|()| act());
        self.go_back();
        done
    }

    /// To where the thread is kept.
    fn go_back(&self) {
        let went = match self.stay {
            Stay::Always | Stay::Now => pin(self.queue),
            Stay::Not { .. } | Stay::Never => sched_setaffinity(None, &self.anywhere),
        };
        if let Err(errno) = went {
            tracing::debug!("a FUSE thread stays on its processor: {errno}");
        }
    }
}

impl Stay {
    fn after(self, is_light: bool) -> Self {
        match (self, is_light) {
            (Self::Always | Self::Never, _) | (Self::Now, true) => self,
            (Self::Now | Self::Not { .. }, false) => Self::Not { light: 0 },
            (Self::Not { light }, true) if light + 1 >= LIGHT_IN_A_ROW => Self::Now,
            (Self::Not { light }, true) => Self::Not { light: light + 1 },
        }
    }
}

/// Keeps the calling thread on a processor.
///
/// # Errors
/// If it may not run there.
pub(crate) fn pin(processor: u16) -> Result<(), Errno> {
    let processor = usize::from(processor);
    if processor >= CpuSet::MAX_CPU {
        return Err(Errno::INVAL);
    }
    let mut only = CpuSet::new();
    only.set(processor);
    sched_setaffinity(None, &only)
}

#[cfg(test)]
mod tests {
    use rustix::thread::sched_getaffinity;

    use super::*;

    fn is_kept(processor: usize) -> bool {
        let now = sched_getaffinity(None).unwrap();
        now.count() == 1 && now.is_set(processor)
    }

    #[test]
    fn a_further_thread_is_where_little_is_asked_for_and_elsewhere_while_much_is() {
        let allowed = sched_getaffinity(None).unwrap();
        let Some(processor) = (0..CpuSet::MAX_CPU).find(|one| allowed.is_set(*one)) else { return };
        if allowed.count() == 1 {
            azekura_testkit::skip("this process may run on one processor only");
            return;
        }
        let test = move || {
            let mut affinity = Affinity::further(processor as u16, &allowed);
            let much = [(1, LONG_BYTES), (FEW, 0)];
            for (busy, bytes) in much {
                for _ in 0..LIGHT_IN_A_ROW {
                    assert!(!is_kept(processor));
                    affinity.note(1, 100);
                }
                assert!(is_kept(processor));
                affinity.note(2, 0);
                affinity.on_queue(|| Ok(())).unwrap();
                assert!(is_kept(processor));
                affinity.note(busy, bytes);
                assert!(!is_kept(processor));
            }
            for _ in 1..LIGHT_IN_A_ROW {
                affinity.note(1, 0);
            }
            affinity.note(FEW, 0);
            affinity.note(1, 0);
            assert!(!is_kept(processor), "not in a row");
        };
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn the_first_thread_stays() {
        let allowed = sched_getaffinity(None).unwrap();
        let Some(processor) = (0..CpuSet::MAX_CPU).find(|one| allowed.is_set(*one)) else { return };
        let test = move || {
            let mut affinity = Affinity::first(processor as u16, &allowed);
            affinity.note(FEW, LONG_BYTES);
            assert!(is_kept(processor));
        };
        std::thread::spawn(test).join().unwrap();
    }
}
