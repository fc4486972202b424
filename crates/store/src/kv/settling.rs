//! How the commits of several targets become durable together. A commit that relies on one of another
//! target goes to the database only when that is durable, and is taken back when it is lost; and what
//! another target relies on here is synced when that asks. Owns both, for one target. Nothing waits for
//! an answer under the lock by which others are answered, so that no two targets wait for each other.

use std::sync::Weak;
use std::sync::atomic::Ordering;

use azekura_proto::Dependence;

use super::front::Promise;
use super::history::{HISTORY_KEY, TAKEN_BACK_KEY};
use super::reliance::{Unsettled, Witnesses};
use super::{Health, KeyValues, draw_epoch};
use crate::error::StoreError;

impl KeyValues {
    /// Says who makes durable what commits rely on.
    pub(crate) fn set_witnesses(&self, witnesses: Weak<dyn Witnesses>) {
        let is_first = self.witnesses.set(witnesses).is_ok();
        assert!(is_first, "a store has one set of witnesses");
    }

    /// Returns when everything is durable that commits rely on so far.
    pub(super) fn settle(&self) -> Result<(), StoreError> {
        let _settling = self.settling.lock();
        let wanted = self.front.reliance.unsettled();
        let Some(first) = wanted.iter().next() else { return Ok(()) };
        let waits = |target| StoreError::Waits { path: self.dir.clone(), target };
        let Some(witnesses) = self.witnesses.get().and_then(Weak::upgrade) else {
            return Err(waits(first.target));
        };
        match witnesses.make_durable(&wanted) {
            Ok(()) => {
                self.front.reliance.settle(&wanted);
                Ok(())
            }
            Err(Unsettled::Silent(target)) => Err(waits(target)),
            Err(Unsettled::Lost(lost)) => Err(self.roll_back(lost)),
        }
    }

    /// Makes a commit of this target durable, so that commits of others that rely on it may be. Its own
    /// reliance is left to whoever asks. False if there is no such commit any more.
    pub(crate) fn hold(&self, epoch: u64, seq: u64) -> Result<bool, StoreError> {
        if !self.front.has(epoch, seq) {
            return Ok(false);
        }
        if self.front.held() >= seq {
            return Ok(true);
        }
        self.hold_all(seq)?;
        Ok(self.front.has(epoch, seq))
    }

    /// Makes every commit up to `seq` durable, whatever it relies on.
    fn hold_all(&self, seq: u64) -> Result<(), StoreError> {
        let mut has_failed = self.front.holding.lock();
        if *has_failed {
            return Err(StoreError::given_up(&self.dir, "sync the journal of"));
        }
        if self.front.held() >= seq {
            return Ok(());
        }
        let Promise { last, applied, journal } = self.front.promise();
        journal.sync(true).map_err(|error| {
            *has_failed = true;
            StoreError::system(&self.dir, "sync the journal of", error)
        })?;
        if self.front.synced() < applied {
            self.sync_database()?;
            self.front.set_synced(applied);
        }
        self.front.set_held(last);
        Ok(())
    }

    /// Makes every commit durable; whatever waits for another target that does not answer goes on
    /// waiting after the next opening.
    pub(crate) fn sync_at_end(&self) -> Result<(), StoreError> {
        match self.sync() {
            Err(StoreError::Waits { .. }) => {
                let last = self.front.log().last_seq();
                self.hold_all(last)
            }
            synced => synced,
        }
    }

    /// Takes back every commit that relies on what another target has lost, and all after the first.
    #[cold]
    fn roll_back(&self, lost: Dependence) -> StoreError {
        let _applying = self.front.applying.lock();
        while matches!(self.apply_oldest(), Ok(true)) {}
        let rolled_back = StoreError::RolledBack { path: self.dir.clone() };
        let note = || {
            let epoch = draw_epoch(&*self.platform, &self.dir)?;
            let mut log = self.front.log();
            if self.health.swap(Health::RolledBack as u8, Ordering::AcqRel)
                == Health::RolledBack as u8
            {
                return Ok(());
            }
            let history = log.cut(epoch);
            let live = self.live()?;
            live.note(HISTORY_KEY, &history.to_bytes())?;
            live.note(TAKEN_BACK_KEY, &(self.taken_back + 1).to_le_bytes())?;
            drop(live);
            self.sync_database()
        };
        let noted: Result<(), StoreError> = note();
        tracing::warn!(
            path = %self.dir.display(), target = lost.target.0, commit = lost.seq,
            "target {} lost its last commits, and those of this target that rely on them are taken back",
            lost.target.0
        );
        if let Err(error) = noted {
            // What is not noted is found, and taken back, once more after the next opening.
            tracing::error!(%error, "cannot note which commits were taken back");
        }
        rolled_back
    }

    /// Whether commits were taken back, so that the store has to be opened anew.
    pub(crate) fn is_rolled_back(&self) -> bool {
        self.health.load(Ordering::Acquire) == Health::RolledBack as u8
    }
}
