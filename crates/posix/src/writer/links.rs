//! The ways to the engines, as writes in flight use them: their connections, how far they are, how much
//! may be on its way. Knows no file.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use azekura_client::{Outbox, Pool, Posted};
use azekura_platform::SharedPlatform;
use azekura_policy::{Budget, WritePolicy, WriteWindow};
use azekura_proto::limits::WRITES_IN_FLIGHT_FROM_US;
use azekura_proto::{EngineId, TargetId};
use parking_lot::Mutex;

use crate::changes::Changes;

/// Bytes of all files that may be in flight.
const BUDGET_BYTES: u64 = 64 << 20;

/// Bytes of all files whose contents are kept while they are written.
const OWN_BYTES: u64 = 16 << 20;

/// What all files of a file system share for writing.
#[derive(Debug)]
pub(super) struct Links {
    pub(super) policy: WritePolicy,
    pub(super) outbox: Arc<Outbox>,
    pub(super) budget: Budget,
    /// For the contents of files that are kept while they are written.
    pub(super) own_budget: Arc<Budget>,
    /// The own changes of files' data, which readers have to hear of.
    pub(super) changes: Arc<Changes>,
    pub(super) platform: SharedPlatform,
    started: Instant,
    windows: Mutex<HashMap<EngineId, WriteWindow>>,
    /// Counts errors, so that each open file is told of each once.
    errors: AtomicU64,
}

impl Links {
    pub(super) fn new(
        pool: Arc<Pool>,
        policy: WritePolicy,
        changes: Arc<Changes>,
        platform: SharedPlatform,
    ) -> Self {
        Self {
            policy,
            outbox: Outbox::new(pool),
            budget: Budget::new(BUDGET_BYTES),
            own_budget: Arc::new(Budget::new(OWN_BYTES)),
            changes,
            started: platform.now(),
            platform,
            windows: Mutex::default(),
            errors: AtomicU64::new(0),
        }
    }

    pub(super) fn pool(&self) -> &Arc<Pool> {
        self.outbox.pool()
    }

    /// How many errors there have been.
    pub(super) fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// The number of one more error.
    pub(super) fn count_error(&self) -> u64 {
        self.errors.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn now(&self) -> Instant {
        self.platform.now()
    }

    fn us(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.started).as_micros() as u64
    }

    /// The window to the engine of a target.
    pub(super) fn window<T>(
        &self,
        target: TargetId,
        act: impl FnOnce(&mut WriteWindow) -> T,
    ) -> Option<T> {
        let engine = self.pool().map().engine_of(target)?;
        Some(act(self.windows.lock().entry(engine).or_default()))
    }

    /// Whether the way to a target is so long that writes are kept in flight.
    pub(super) fn is_far(&self, target: TargetId) -> bool {
        match self.policy {
            WritePolicy::Always => true,
            WritePolicy::Through => false,
            WritePolicy::Auto => {
                // Whether it is remote may take looking at the host's files: last.
                let round_trip_us = self.pool().round_trip_us_to(target);
                let is_far = round_trip_us >= WRITES_IN_FLIGHT_FROM_US;
                if is_far {
                    self.window(target, |window| window.has_moved_away(round_trip_us));
                }
                is_far && self.pool().is_remote(target)
            }
        }
    }

    /// Whether it has been found to be short.
    pub(super) fn is_near(&self, target: TargetId) -> bool {
        self.policy == WritePolicy::Auto
            && (1..WRITES_IN_FLIGHT_FROM_US).contains(&self.pool().round_trip_us_to(target))
    }

    /// A request to a target was answered after this time.
    pub(super) fn saw_round_trip(&self, target: TargetId, took: Duration) {
        self.window(target, |window| window.saw_round_trip(took.as_micros() as u64));
        self.pool().note_round_trip(target, took);
    }

    /// So many bytes were sent to a target.
    pub(super) fn note_sent(&self, target: TargetId, bytes: u64) {
        self.window(target, |window| window.sent(self.us(self.now()), bytes));
    }

    /// A write is no longer in flight.
    pub(super) fn land(&self, posted: &Posted, answered: Option<Instant>) {
        let bytes = posted.bytes().len() as u64;
        self.budget.give_back(bytes);
        if let Some(at) = answered {
            let took = at.saturating_duration_since(posted.sent());
            self.pool().note_round_trip(posted.target(), took);
        }
        self.window(posted.target(), |window| match answered {
            Some(at) => window.answered(self.us(at), self.us(posted.sent()), bytes),
            None => window.failed(bytes),
        });
    }
}
