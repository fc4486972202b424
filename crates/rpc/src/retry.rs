//! What follows an attempt that brought no answer for the caller. Owns when to send again and as which
//! request, how long to rest in between, and when to give up. It sends nothing itself.

use std::io;
use std::time::{Duration, Instant};

use azekura_platform::Platform;
use azekura_proto::Status;
use azekura_proto::limits::LEASE_MS;
use azekura_proto::message::Request;
use azekura_proto::status::StatusClass;

use crate::failure::Failure;
use crate::slot::Attempt;

/// First and longest wait before a connection is tried again.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));
/// First and longest wait before a busy engine is asked again.
const BUSY: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(50));

/// How long a call may take with all its attempts.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For an engine that cannot be reached.
    pub engine: Duration,
    /// For an engine that another engine cannot reach.
    pub peer: Duration,
    /// For an engine that is busy.
    pub request: Duration,
}

/// What to do next where it is not over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Send it again, as the request that the attempts say.
    Again,
    /// It was not carried out: send it again as a new request, over a new connection if so told.
    Anew {
        /// The engine is about to stop.
        reconnect: bool,
    },
    /// Get the pool map first, and send it as what the target's engine of that map takes it for.
    Refresh,
}

/// How far the attempts at one request have come.
#[derive(Debug)]
pub struct Attempts {
    attempt: Attempt,
    /// From when on the call's time is counted; none before the first failure of a request that may
    /// rightly take long.
    counted_from: Option<Instant>,
    /// Set at the first failure, and not by what becomes known later.
    deadline: Option<Instant>,
    wait: Duration,
    refreshed: bool,
}

impl Attempts {
    /// Before the first attempt, or after one that is `resent` now, of a call that began at `started`.
    pub fn new(attempt: Attempt, request: &Request<'_>, started: Instant) -> Self {
        let counted_from = (!request.may_be_slow()).then_some(started);
        Self { attempt, counted_from, deadline: None, wait: Duration::ZERO, refreshed: false }
    }

    /// As which request it is sent.
    pub fn attempt(&self) -> Attempt {
        self.attempt
    }

    /// It is a new request from here on.
    pub fn renumber(&mut self, sequence: u64) {
        self.attempt = Attempt { sequence, resent: false };
    }

    /// Whether this is not the first any more.
    pub fn have_failed(&self) -> bool {
        self.deadline.is_some()
    }

    /// How much of the call's time has gone.
    pub fn gone(&self, platform: &dyn Platform) -> Duration {
        self.counted_from.map_or(Duration::ZERO, |began| platform.elapsed(began))
    }

    /// After an answer other than a reply: what to do, having rested where that is due, or nothing if
    /// the answer is the caller's.
    pub fn after_status(
        &mut self,
        status: Status,
        platform: &dyn Platform,
        patience: &Patience,
    ) -> Option<Step> {
        if status == Status::PeerUnreachable {
            // The engines find each other again, as this caller does. It may have been carried out in
            // part: the same request again ends it.
            return self.again_after(platform, RECONNECT, patience.peer);
        }
        match status.class() {
            StatusClass::Caller | StatusClass::Fatal => None,
            StatusClass::Retry => {
                let limit = match status {
                    // The engine waits that long for earlier holders of locks.
                    Status::Grace => Duration::from_millis(LEASE_MS) + patience.request,
                    _ => patience.request,
                };
                let anew = Step::Anew { reconnect: status == Status::Stopping };
                self.pause(platform, BUSY, limit).then_some(anew)
            }
            StatusClass::RefreshMap => {
                (!std::mem::replace(&mut self.refreshed, true)).then_some(Step::Refresh)
            }
        }
    }

    /// After an exchange that failed: what to do, or nothing if it is over.
    pub fn after_failure(
        &mut self,
        failure: &Failure,
        platform: &dyn Platform,
        patience: &Patience,
    ) -> Option<Step> {
        match failure {
            // The whole time-out went by in waiting for the answer.
            Failure::Late | Failure::TooLarge | Failure::Protocol(_) => None,
            Failure::Broken(error) if self.deadline.is_none() && is_stale(error) => {
                // A connection that lay idle while the engine restarted: connect anew at once.
                self.note_failure(platform.now(), patience.engine);
                self.note_resent();
                Some(Step::Again)
            }
            Failure::Broken(_) => self.again_after(platform, RECONNECT, patience.engine),
        }
    }

    fn again_after(
        &mut self,
        platform: &dyn Platform,
        bounds: (Duration, Duration),
        limit: Duration,
    ) -> Option<Step> {
        if !self.pause(platform, bounds, limit) {
            return None;
        }
        self.note_resent();
        Some(Step::Again)
    }

    /// Tells until when attempts go on.
    fn note_failure(&mut self, now: Instant, limit: Duration) -> Instant {
        let counted_from = *self.counted_from.get_or_insert(now);
        *self.deadline.get_or_insert(counted_from + limit)
    }

    fn note_resent(&mut self) {
        self.attempt.resent = self.attempt.sequence > 0;
    }

    /// Rests before the next attempt; false when the time is up.
    fn pause(
        &mut self,
        platform: &dyn Platform,
        bounds: (Duration, Duration),
        limit: Duration,
    ) -> bool {
        let now = platform.now();
        let deadline = self.note_failure(now, limit);
        if now >= deadline {
            return false;
        }
        self.wait = (self.wait * 2).clamp(bounds.0, bounds.1);
        platform.sleep(self.wait.min(deadline - now));
        true
    }
}

fn is_stale(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::TimedOut
    )
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use azekura_platform::{Thread, WallTime};

    use super::*;

    /// Time passes only in sleeps.
    #[derive(Debug)]
    struct Virtual(Instant, AtomicU64);

    impl Virtual {
        fn passed(&self) -> Duration {
            Duration::from_micros(self.1.load(Ordering::Relaxed))
        }
    }

    impl Platform for Virtual {
        fn now(&self) -> Instant {
            self.0 + self.passed()
        }
        fn wall_time(&self) -> WallTime {
            WallTime::default()
        }
        fn coarse_wall_time(&self) -> WallTime {
            WallTime::default()
        }
        fn sleep(&self, time: Duration) {
            self.1.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
        }
        fn fill_random(&self, _: &mut [u8]) -> io::Result<()> {
            Ok(())
        }
        fn spawn(&self, _: &str, _: Box<dyn FnOnce() + Send>) -> io::Result<Thread> {
            Err(io::ErrorKind::Unsupported.into())
        }
        fn is_simulated(&self) -> bool {
            true
        }
    }

    const PATIENCE: Patience = Patience {
        engine: Duration::from_secs(2),
        peer: Duration::from_secs(1),
        request: Duration::from_secs(3),
    };

    fn start(sequence: u64) -> (Attempts, Virtual) {
        start_of(&Request::Ping, sequence)
    }

    fn start_of(request: &Request<'_>, sequence: u64) -> (Attempts, Virtual) {
        let platform = Virtual(Instant::now(), AtomicU64::new(0));
        let attempt = Attempt { sequence, resent: false };
        (Attempts::new(attempt, request, platform.now()), platform)
    }

    fn refused() -> Failure {
        Failure::Broken(io::ErrorKind::ConnectionRefused.into())
    }

    #[test]
    fn a_busy_engine_is_asked_anew_until_the_time_for_the_whole_call_is_up() {
        let (mut attempts, platform) = start(4);
        let mut count = 0;
        while let Some(step) = attempts.after_status(Status::Busy, &platform, &PATIENCE) {
            assert_eq!(step, Step::Anew { reconnect: false });
            count += 1;
        }
        assert_eq!(platform.passed(), PATIENCE.request);
        assert!((60..90).contains(&count), "{count} attempts");
        let (mut attempts, platform) = start(4);
        let step = attempts.after_status(Status::Stopping, &platform, &PATIENCE);
        assert_eq!(step, Some(Step::Anew { reconnect: true }));
        let grace = Duration::from_millis(LEASE_MS) + PATIENCE.request;
        let (mut attempts, platform) = start(4);
        while attempts.after_status(Status::Grace, &platform, &PATIENCE).is_some() {}
        assert_eq!(platform.passed(), grace);
    }

    #[test]
    fn what_may_have_been_done_is_sent_as_the_same_request() {
        let (mut attempts, platform) = start(4);
        let stale = Failure::Broken(io::ErrorKind::BrokenPipe.into());
        let step = attempts.after_failure(&stale, &platform, &PATIENCE);
        assert_eq!((step, platform.passed()), (Some(Step::Again), Duration::ZERO));
        assert_eq!(attempts.attempt(), Attempt { sequence: 4, resent: true });
        while attempts.after_failure(&refused(), &platform, &PATIENCE).is_some() {}
        assert_eq!(platform.passed(), PATIENCE.engine);
        assert_eq!(attempts.gone(&platform), PATIENCE.engine);
        attempts.renumber(5);
        assert_eq!(attempts.attempt(), Attempt { sequence: 5, resent: false });
        let (mut attempts, platform) = start(4);
        let step = attempts.after_status(Status::PeerUnreachable, &platform, &PATIENCE);
        assert!(step == Some(Step::Again) && attempts.attempt().resent);
    }

    #[test]
    fn the_time_of_the_whole_call_counts_unless_it_may_be_slow() {
        let (mut attempts, platform) = start(4);
        platform.sleep(PATIENCE.engine);
        assert_eq!(attempts.after_failure(&refused(), &platform, &PATIENCE), None);
        let sync = Request::Sync { data: Some(crate::test_engine::shard()), data_only: false };
        let (mut attempts, platform) = start_of(&sync, 0);
        platform.sleep(10 * PATIENCE.engine);
        assert_eq!(attempts.gone(&platform), Duration::ZERO);
        while attempts.after_failure(&refused(), &platform, &PATIENCE).is_some() {}
        assert_eq!(platform.passed(), 11 * PATIENCE.engine);
    }

    #[test]
    fn a_request_that_may_be_repeated_is_never_marked_as_resent() {
        let (mut attempts, platform) = start(0);
        assert_eq!(attempts.after_failure(&refused(), &platform, &PATIENCE), Some(Step::Again));
        assert_eq!(attempts.attempt(), Attempt::default());
    }

    #[test]
    fn the_map_is_refreshed_once_and_what_is_the_callers_ends_it() {
        let (mut attempts, platform) = start(0);
        let mut after = |status| attempts.after_status(status, &platform, &PATIENCE);
        assert_eq!(after(Status::WrongTarget), Some(Step::Refresh));
        assert_eq!(after(Status::Refresh), None);
        assert_eq!(after(Status::NotFound), None);
        assert_eq!(after(Status::Io), None);
        for failure in [Failure::Late, Failure::TooLarge, Failure::Protocol("")] {
            assert_eq!(attempts.after_failure(&failure, &platform, &PATIENCE), None);
        }
        assert_eq!(platform.passed(), Duration::ZERO);
    }
}
