//! Telling an engine what this session has open there. Owns the rule that an engine which may have
//! forgotten the session hears it before anything else is asked.

use std::io;
use std::time::Duration;

use azekura_proto::message::{Request, Welcome};
use azekura_proto::{Incarnation, Status, TargetId};
use azekura_rpc::{Attempt, Destination, Failure, Slot};
use parking_lot::Mutex;

use crate::open_references::OpenReferences;

/// Open references and locks in one claim: keeps the message far below the bound of a frame.
const CLAIM_ITEMS: usize = 4096;

/// Which run of the engine knows what this session has open.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    claimed: Mutex<Option<Incarnation>>,
}

impl Claims {
    /// The run of the engine that this session is known to, if it is known to one.
    pub(crate) fn incarnation(&self) -> Option<Incarnation> {
        *self.claimed.lock()
    }

    /// Tells the engine what this session has open there, if it may not know. The other threads
    /// wait meanwhile. What it could not take back as a whole is told to `on_loss`.
    pub(crate) fn make(
        &self,
        slot: &mut Slot,
        welcome: &Welcome,
        target: TargetId,
        open_references: &OpenReferences,
        on_loss: impl Fn(Status),
    ) -> Result<(), Failure> {
        let mut claimed = self.claimed.lock();
        if *claimed == Some(welcome.incarnation) && !welcome.fresh_session {
            return Ok(());
        }
        *claimed = None;
        let (oids, locks) = open_references.claims();
        let (mut oids, mut locks) = (oids.as_slice(), locks.as_slice());
        let to = Destination { target, map_version: welcome.map_version };
        while !oids.is_empty() || !locks.is_empty() {
            let (some_oids, other_oids) = oids.split_at(oids.len().min(CLAIM_ITEMS));
            let (some_locks, other_locks) = locks.split_at(locks.len().min(CLAIM_ITEMS));
            (oids, locks) = (other_oids, other_locks);
            let request = Request::Claim { open: some_oids.to_vec(), locks: some_locks.to_vec() };
            match slot.exchange(to, Attempt::default(), &request, &[], &mut [], Duration::ZERO)? {
                Ok(_) => {}
                Err(status @ (Status::Stopping | Status::Busy | Status::Grace)) => {
                    return Err(Failure::Broken(io::Error::other(status.to_string())));
                }
                Err(status) => on_loss(status),
            }
        }
        *claimed = Some(welcome.incarnation);
        Ok(())
    }
}
