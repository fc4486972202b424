//! A lock that a client waits for, from the moment it was told so until it has heard that it has the lock
//! or does not want it any more. Owns the order of these events, of which several may happen at once: the
//! lock comes free, the client asks again, cancels, answers, or is gone. Asks neither engines nor clients.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use azekura_posix::{Errno, Lock, Oid};
use parking_lot::{Condvar, Mutex};

use super::held::Client;
use super::types::Status;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    /// Somebody else has the lock. `is_told`: the client has been answered that it has to wait.
    Waiting {
        is_told: bool,
    },
    /// The lock is here, and the client has not said that it knows.
    Offered,
    /// The client has the lock.
    Taken,
    /// The client does not want it any more.
    Cancelled,
    /// It is being given back.
    Ending,
    Failed(Errno),
}

/// What the thread that waits has to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// Wait on.
    WaitOn,
    /// Call the client.
    Offer,
    /// Give the lock back.
    GiveBack,
    /// Nothing.
    End,
}

/// The call back.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) args: Vec<u8>,
    /// The address that the client has asked at: kernels take locks from no other.
    pub(super) from: Option<IpAddr>,
}

/// A lock that a client waits for.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) client: Client,
    pub(super) oid: Oid,
    pub(super) lock: Lock,
    pub(super) offer: Offer,
    progress: Mutex<Progress>,
    changed: Condvar,
}

impl Waiting {
    pub(super) fn new(client: Client, oid: Oid, lock: Lock, offer: Offer) -> Self {
        let progress = Mutex::new(Progress::Waiting { is_told: false });
        Self { client, oid, lock, offer, progress, changed: Condvar::new() }
    }

    /// Whether it is about the owner's locks on this object, somewhere in the range of `lock`.
    pub(super) fn concerns(&self, oid: Oid, lock: &Lock) -> bool {
        self.oid == oid
            && self.lock.owner == lock.owner
            && self.lock.start <= lock.end
            && lock.start <= self.lock.end
    }

    /// Whether it is this very lock.
    pub(super) fn is(&self, oid: Oid, lock: &Lock) -> bool {
        self.oid == oid && self.lock == *lock
    }

    /// The first answer to the client. A moment's patience: a lock that would never come, since its
    /// owners wait for each other, is known after one round trip, and can be refused only now.
    pub(super) fn answer(&self, patience: Duration) -> Result<(), Status> {
        let deadline = Instant::now() + patience;
        let mut progress = self.progress.lock();
        while matches!(*progress, Progress::Waiting { .. }) {
            if self.changed.wait_until(&mut progress, deadline).timed_out() {
                break;
            }
        }
        Self::tell(&mut progress)
    }

    /// The client asks again for what it waits for.
    pub(super) fn ask_again(&self) -> Result<(), Status> {
        let mut progress = self.progress.lock();
        if *progress == Progress::Cancelled {
            *progress = Progress::Waiting { is_told: true };
        }
        let told = Self::tell(&mut progress);
        self.changed.notify_all();
        told
    }

    fn tell(progress: &mut Progress) -> Result<(), Status> {
        match *progress {
            Progress::Offered | Progress::Taken => {
                *progress = Progress::Taken;
                Ok(())
            }
            Progress::Waiting { .. } => {
                *progress = Progress::Waiting { is_told: true };
                Err(Status::Blocked)
            }
            Progress::Failed(errno) => Err(errno.into()),
            // In a moment it is over, and the client may begin anew.
            Progress::Cancelled | Progress::Ending => Err(Status::Grace),
        }
    }

    /// What follows for the thread that waits.
    pub(super) fn came_to(&self, outcome: Result<(), Errno>) -> Next {
        let mut progress = self.progress.lock();
        let (now, next) = match (*progress, outcome) {
            // It is told when it is answered, or waits for that now.
            (Progress::Waiting { is_told: false }, Ok(())) => (Progress::Offered, Next::End),
            (Progress::Waiting { is_told: true }, Ok(())) => (Progress::Offered, Next::Offer),
            (Progress::Waiting { .. }, Err(Errno::INTR)) => (*progress, Next::WaitOn),
            (Progress::Waiting { .. }, Err(errno)) => (Progress::Failed(errno), Next::End),
            (_, Ok(())) => (Progress::Ending, Next::GiveBack),
            (_, Err(_)) => (Progress::Ending, Next::End),
        };
        *progress = now;
        self.changed.notify_all();
        next
    }

    /// The client says whether it takes what was offered.
    pub(super) fn answered(&self, takes: bool) {
        let mut progress = self.progress.lock();
        if *progress == Progress::Offered {
            *progress = if takes { Progress::Taken } else { Progress::Cancelled };
            self.changed.notify_all();
        }
    }

    /// Waits as long as the offer stands, but no longer than `time`; whether it still does.
    pub(super) fn is_open_after(&self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        let mut progress = self.progress.lock();
        while *progress == Progress::Offered {
            if self.changed.wait_until(&mut progress, deadline).timed_out() {
                break;
            }
        }
        *progress == Progress::Offered
    }

    /// Nobody calls the client any more; whether the lock has to be given back.
    pub(super) fn ends_without_taker(&self) -> bool {
        let mut progress = self.progress.lock();
        if *progress == Progress::Taken {
            return false;
        }
        *progress = Progress::Ending;
        true
    }

    /// The client does not want it any more; whether it had not got it yet.
    pub(super) fn cancel(&self) -> bool {
        let mut progress = self.progress.lock();
        let was_open = matches!(*progress, Progress::Waiting { .. } | Progress::Offered);
        if was_open {
            *progress = Progress::Cancelled;
            self.changed.notify_all();
        }
        was_open || *progress == Progress::Cancelled
    }

    pub(super) fn is_cancelled(&self) -> bool {
        *self.progress.lock() == Progress::Cancelled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_posix::{LockKind, LockMode};
    use azekura_proto::{ContainerId, ObjectClass, TargetId};

    const NOW: Duration = Duration::ZERO;

    fn waiting() -> Waiting {
        let oid = Oid::new(ContainerId(0), ObjectClass::S1, TargetId(0), 1);
        let (kind, mode) = (LockKind::Range, LockMode::Exclusive);
        let lock = Lock { kind, owner: 7, pid: 1, mode, start: 10, end: 19 };
        let client = Client { address: IpAddr::from([127, 0, 0, 1]), name: Box::from(*b"host") };
        Waiting::new(client, oid, lock, Offer { args: Vec::new(), from: None })
    }

    #[test]
    fn a_client_that_waits_is_called() {
        let one = waiting();
        assert_eq!(one.answer(NOW), Err(Status::Blocked));
        assert_eq!(one.came_to(Ok(())), Next::Offer);
        assert!(one.is_open_after(NOW));
        one.answered(true);
        assert!(!one.is_open_after(Duration::from_secs(60)), "it does not wait");
        assert!(!one.ends_without_taker());
    }

    #[test]
    fn what_comes_before_the_answer_is_the_answer() {
        let one = waiting();
        assert_eq!(one.came_to(Ok(())), Next::End);
        assert_eq!(one.answer(NOW), Ok(()));
        let one = waiting();
        assert_eq!(one.came_to(Err(Errno::DEADLK)), Next::End);
        assert_eq!(one.answer(NOW), Err(Status::Deadlock));
    }

    #[test]
    fn a_client_that_asks_again_has_its_answer_and_keeps_the_lock() {
        let one = waiting();
        assert_eq!(one.answer(NOW), Err(Status::Blocked));
        assert_eq!(one.ask_again(), Err(Status::Blocked));
        assert_eq!(one.came_to(Ok(())), Next::Offer);
        assert_eq!(one.ask_again(), Ok(()));
        one.answered(false);
        assert!(!one.ends_without_taker(), "a call back that failed takes nothing from it");
    }

    #[test]
    fn who_does_not_answer_does_not_get_it() {
        let one = waiting();
        let _ = one.answer(NOW);
        assert_eq!(one.came_to(Ok(())), Next::Offer);
        assert!(one.ends_without_taker());
        assert_eq!(one.ask_again(), Err(Status::Grace), "it is being given back");
    }

    #[test]
    fn a_cancelled_lock_is_given_back() {
        let one = waiting();
        let _ = one.answer(NOW);
        assert!(one.cancel() && one.is_cancelled() && one.cancel());
        assert_eq!(one.came_to(Ok(())), Next::GiveBack);
        let one = waiting();
        let _ = one.answer(NOW);
        assert!(one.cancel());
        assert_eq!(one.came_to(Err(Errno::INTR)), Next::End);
    }

    #[test]
    fn one_that_is_wanted_again_in_time_is_waited_for() {
        let one = waiting();
        let _ = one.answer(NOW);
        assert!(one.cancel());
        assert_eq!(one.ask_again(), Err(Status::Blocked));
        assert_eq!(one.came_to(Err(Errno::INTR)), Next::WaitOn);
    }

    #[test]
    fn what_was_taken_cannot_be_cancelled() {
        let one = waiting();
        let _ = one.came_to(Ok(()));
        assert_eq!(one.answer(NOW), Ok(()));
        assert!(!one.cancel());
    }

    #[test]
    fn it_concerns_its_owner_where_ranges_meet() {
        let one = waiting();
        let other = |start, end, owner| Lock { start, end, owner, ..one.lock };
        assert!(
            one.concerns(one.oid, &other(19, 30, 7)) && one.concerns(one.oid, &other(0, 10, 7))
        );
        assert!(
            !one.concerns(one.oid, &other(20, 30, 7)) && !one.concerns(one.oid, &other(10, 19, 8))
        );
        assert!(one.is(one.oid, &one.lock) && !one.is(one.oid, &other(10, 18, 7)));
    }
}
