//! One request from the first attempt to its answer. Owns when to connect anew, when to send
//! again, how long to wait between attempts, and when to give up.

use std::io;
use std::time::{Duration, Instant};

use azekura_proto::limits::LEASE_MS;
use azekura_proto::message::{Reply, Request};
use azekura_proto::status::StatusClass;
use azekura_proto::{Status, TargetId};

use crate::error::{ClientError, Result};
use crate::lane::{Lane, LaneError};
use crate::link::{Borrowed, Link};
use crate::session::Session;

/// First and longest wait before a connection is tried again.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));
/// First and longest wait before a busy engine is asked again.
const BUSY: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(50));

/// A request with its bulk data.
#[derive(Debug)]
pub(crate) struct Job<'j, 'r> {
    pub(crate) target: TargetId,
    pub(crate) request: &'j Request<'r>,
    pub(crate) bulk_out: &'j [u8],
    pub(crate) bulk_in: &'j mut [u8],
}

/// How many time-outs of the socket a request may take while its connection is whole.
pub(crate) fn patience(request: &Request<'_>) -> u32 {
    match request {
        // A slow disk may need minutes for these, and giving up would be a false failure.
        Request::Sync { .. } | Request::SetAttr { .. } | Request::ContainerDestroy { .. } => 12,
        _ => 1,
    }
}

/// How far the attempts have come.
#[derive(Debug)]
pub(crate) struct Attempts {
    /// 0 where no exact retry is needed.
    pub(crate) sequence: u64,
    /// It may have been carried out already.
    pub(crate) resent: bool,
    deadline: Option<Instant>,
    wait: Duration,
    refreshed: bool,
}

impl Attempts {
    pub(crate) fn new(sequence: u64) -> Self {
        Self { sequence, resent: false, deadline: None, wait: Duration::ZERO, refreshed: false }
    }

    /// Waits before the next attempt; false when the time is up.
    fn pause(&mut self, bounds: (Duration, Duration), limit: Duration) -> bool {
        let now = Instant::now();
        let deadline = *self.deadline.get_or_insert(now + limit);
        if now >= deadline {
            return false;
        }
        self.wait = (self.wait * 2).clamp(bounds.0, bounds.1);
        std::thread::sleep(self.wait.min(deadline - now));
        true
    }

    fn time_left(&self, limit: Duration) -> Duration {
        self.deadline
            .map_or(limit, |deadline| deadline.saturating_duration_since(Instant::now()))
            .max(Duration::from_millis(1))
    }
}

impl Session {
    /// One request on a lane of its engine.
    pub(crate) fn call(&self, job: &mut Job<'_, '_>) -> Result<Reply> {
        let (link, map_version) = self.link(job.target)?;
        let mut borrowed = self.borrow(link)?;
        let attempts = Attempts::new(borrowed.lane().sequence_for(job.request));
        self.drive(&mut borrowed, job, attempts, map_version)
    }

    /// A lane of the link.
    pub(crate) fn borrow(&self, link: std::sync::Arc<Link>) -> Result<Borrowed> {
        link.borrow().map_err(|link| self.unreachable(&link, "all connections to it are busy"))
    }

    /// Repeats the request until it has an answer that is the caller's, or time is up.
    pub(crate) fn drive(
        &self,
        borrowed: &mut Borrowed,
        job: &mut Job<'_, '_>,
        mut attempts: Attempts,
        mut map_version: u32,
    ) -> Result<Reply> {
        loop {
            let (link, lane) = borrowed.parts();
            let status = match exchange(link, lane, job, &attempts, map_version) {
                Ok(Ok(reply)) => return Ok(reply),
                Ok(Err(status)) => status,
                Err(error) => {
                    link.disconnect(lane);
                    attempts.resent = attempts.sequence > 0;
                    self.after_failure(link, &mut attempts, error)?;
                    continue;
                }
            };
            if status == Status::PeerUnreachable {
                // The engines find each other again, as this client does.
                if !attempts.pause(RECONNECT, self.peer_patience()) {
                    self.note_peer_failure();
                    return Err(status.into());
                }
                // It may have been carried out in part: the same request again ends it.
                attempts.resent = attempts.sequence > 0;
                continue;
            }
            match status.class() {
                StatusClass::Caller | StatusClass::Fatal => return Err(status.into()),
                StatusClass::Retry => {
                    let limit = retry_limit(status, self.identity().request_timeout);
                    if status == Status::Stopping {
                        link.disconnect(lane);
                    }
                    if !attempts.pause(BUSY, limit) {
                        return Err(status.into());
                    }
                    if attempts.sequence > 0 {
                        // It was not carried out, so it is a new request.
                        attempts.sequence = lane.sequence_for(job.request);
                        attempts.resent = false;
                    }
                }
                StatusClass::RefreshMap => {
                    if std::mem::replace(&mut attempts.refreshed, true) {
                        return Err(status.into());
                    }
                    self.refresh(link, lane, map_version);
                    let (link, version) = self.link(job.target)?;
                    map_version = version;
                    if link.engine != borrowed.link.engine {
                        *borrowed = self.borrow(link)?;
                        attempts.sequence = borrowed.lane().sequence_for(job.request);
                        attempts.resent = false;
                    }
                }
            }
        }
    }

    fn after_failure(&self, link: &Link, attempts: &mut Attempts, error: LaneError) -> Result<()> {
        let cause = match error {
            LaneError::Final(error) => return Err(error),
            LaneError::Late => {
                // The whole request time-out went by in waiting for the answer.
                let cause = "it does not answer";
                link.note_down(cause);
                return Err(self.unreachable(link, cause));
            }
            LaneError::Broken(error) => error,
        };
        if attempts.deadline.is_none() && is_stale(&cause) {
            // A connection that lay idle while the engine restarted: connect anew at once.
            attempts.deadline = Some(Instant::now() + link.patience());
            return Ok(());
        }
        if attempts.pause(RECONNECT, link.patience()) {
            return Ok(());
        }
        let cause = cause.to_string();
        link.note_down(&cause);
        Err(self.unreachable(link, &cause))
    }

    pub(crate) fn unreachable(&self, link: &Link, cause: &str) -> ClientError {
        ClientError::Unreachable {
            pool: self.identity().pool_name.clone(),
            engine: link.engine,
            addresses: link.shown_addresses(),
            cause: cause.to_owned(),
        }
    }

    /// Asks the engine for its map; if that fails the old one is tried once more.
    fn refresh(&self, link: &Link, lane: &mut Lane, map_version: u32) {
        let mut job = Job {
            target: link.any_target,
            request: &Request::Map,
            bulk_out: &[],
            bulk_in: &mut [],
        };
        match exchange(link, lane, &mut job, &Attempts::new(0), map_version) {
            Ok(Ok(Reply::Map(map))) => self.adopt(map),
            Ok(_) => {}
            Err(_) => link.disconnect(lane),
        }
    }
}

fn is_stale(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionAborted
    )
}

fn retry_limit(status: Status, request_timeout: Duration) -> Duration {
    match status {
        // The engine waits that long for earlier holders of locks.
        Status::Grace => Duration::from_millis(LEASE_MS) + request_timeout,
        _ => request_timeout,
    }
}

/// Sends the request and reads its answer, connecting first if need be.
fn exchange(
    link: &Link,
    lane: &mut Lane,
    job: &mut Job<'_, '_>,
    attempts: &Attempts,
    map_version: u32,
) -> std::result::Result<azekura_proto::message::Answer, LaneError> {
    if !lane.is_connected() {
        link.connect(lane, attempts.time_left(link.patience()))?;
    }
    let head = lane.head(job.target, map_version, attempts.sequence, attempts.resent);
    lane.queue(&link.holds, head, job.request, job.bulk_out.len())?;
    lane.flush(job.bulk_out)?;
    lane.receive(&link.holds, link.engine, job.bulk_in, patience(job.request))
}
