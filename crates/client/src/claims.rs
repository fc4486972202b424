//! Telling an engine what this session has open there. Owns the rule that an engine which may have
//! forgotten the session hears it before anything else is asked, and finds out which locks are lost.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use azekura_platform::Platform;
use azekura_proto::message::{Answer, Lock, Request, Welcome};
use azekura_proto::{Incarnation, Oid, Status, TargetId};
use azekura_rpc::{Attempt, Destination, Failure, Slot};
use parking_lot::Mutex;

use crate::open_references::OpenReferences;

/// Open references and locks in one claim: keeps the message far below the bound of a frame.
const CLAIM_ITEMS: usize = 4096;

/// Which run of the engine knows what this session has open.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    claimed: Mutex<Option<Incarnation>>,
    /// The run of the engine that was met last.
    met: Mutex<Option<Incarnation>>,
    /// How often an engine was met that may have lost something since.
    losses: AtomicU64,
    /// How often claims were made.
    count: AtomicU64,
    /// The engine has been spoken to, or somebody is about to.
    has_begun: AtomicBool,
}

/// One that claims are made to, and the time that is left for it.
struct Claiming<'c> {
    slot: &'c mut Slot,
    to: Destination,
    platform: &'c dyn Platform,
    /// The request time-out.
    limit: Duration,
    deadline: Instant,
}

impl Claiming<'_> {
    fn ask(&mut self, open: &[Oid], locks: &[(Oid, Lock)]) -> Result<Answer, Failure> {
        let request = Request::Claim { open: open.to_vec(), locks: locks.to_vec() };
        let left = self.deadline.saturating_duration_since(self.platform.now());
        let gone = self.limit.saturating_sub(left);
        match self.slot.exchange(self.to, Attempt::default(), &request, &[], &mut [], gone)? {
            Err(status @ (Status::Stopping | Status::Busy | Status::Grace)) => {
                Err(Failure::Broken(io::Error::other(status.to_string())))
            }
            answer => Ok(answer),
        }
    }

    /// Claims locks, and gives those away that are lost. An answer is for all locks of a claim: halves
    /// of those that are not whole are claimed anew, which changes nothing about the others.
    fn claim_locks(
        &mut self,
        locks: &[(Oid, Lock)],
        lose: &mut dyn FnMut(Oid, Lock, Status),
    ) -> Result<(), Failure> {
        if locks.is_empty() {
            return Ok(());
        }
        match (self.ask(&[], locks)?, locks) {
            (Ok(_), _) => Ok(()),
            (Err(status), [(oid, lock)]) => {
                lose(*oid, *lock, status);
                Ok(())
            }
            (Err(_), _) => {
                let (one, other) = locks.split_at(locks.len() / 2);
                self.claim_locks(one, lose)?;
                self.claim_locks(other, lose)
            }
        }
    }
}

impl Claims {
    /// The run of the engine that this session is known to, if it is known to one.
    pub(crate) fn incarnation(&self) -> Option<Incarnation> {
        *self.claimed.lock()
    }

    /// Whether nobody has spoken to the engine yet; only who asks first is told so. To be followed by
    /// [`Claims::note_first`], once the engine has answered.
    pub(crate) fn begin_first(&self) -> bool {
        !self.has_begun.swap(true, Ordering::SeqCst)
    }

    /// How often the engine may have lost what was not synced, as far as it was met since.
    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(Ordering::SeqCst)
    }

    /// This run of the engine is there.
    fn note_met(&self, incarnation: Incarnation) {
        let before = self.met.lock().replace(incarnation);
        if before.is_some_and(|before| incarnation.may_have_lost(before)) {
            self.losses.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// This run of the engine has let the session in before anything was open or locked there.
    pub(crate) fn note_first(&self, incarnation: Incarnation) {
        // Whoever has the lock is telling a run of the engine what there is by now.
        if let Some(mut claimed) = self.claimed.try_lock()
            && claimed.is_none()
        {
            self.note_met(incarnation);
            *claimed = Some(incarnation);
        }
    }

    /// The engine has let the session in anew, over a connection that was of no use.
    pub(crate) fn forget(&self) {
        // Whoever has the lock is telling the engine.
        if let Some(mut claimed) = self.claimed.try_lock() {
            *claimed = None;
        }
    }

    /// How often claims were made: what was granted while this grew may have been granted by a run of the
    /// engine that is over, and not be among what was claimed.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Tells the engine what this session has open there, if it may not know. The other threads
    /// wait meanwhile. Locks that it did not take back are lost; what is not whole is told to `on_loss`.
    pub(crate) fn make(
        &self,
        slot: &mut Slot,
        (welcome, target): (&Welcome, TargetId),
        open_references: &OpenReferences,
        (platform, limit, left): (&dyn Platform, Duration, Duration),
        on_loss: impl Fn(Status),
    ) -> Result<(), Failure> {
        let deadline = platform.now() + left;
        self.has_begun.store(true, Ordering::SeqCst);
        // Whoever has it is telling the engine.
        let mut claimed = self.claimed.try_lock_for(left).ok_or(Failure::Late)?;
        if *claimed == Some(welcome.incarnation) && !welcome.fresh_session {
            return Ok(());
        }
        *claimed = None;
        self.note_met(welcome.incarnation);
        // Before what there is is looked at.
        self.count.fetch_add(1, Ordering::SeqCst);
        let (oids, locks) = open_references.claims();
        let to = Destination { target, map_version: welcome.map_version };
        let mut claiming = Claiming { slot, to, platform, limit, deadline };
        for oids in oids.chunks(CLAIM_ITEMS) {
            if let Err(status) = claiming.ask(oids, &[])? {
                on_loss(status);
            }
        }
        for locks in locks.chunks(CLAIM_ITEMS) {
            claiming.claim_locks(locks, &mut |oid, lock, status| {
                open_references.lose(oid, lock);
                on_loss(status);
            })?;
        }
        *claimed = Some(welcome.incarnation);
        Ok(())
    }
}
