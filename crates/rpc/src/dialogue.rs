//! A few questions to one engine, outside of any pool that is in use: what a command asks, or how a
//! client gets its first map. Owns that such a caller says goodbye, so that the engine need not
//! remember a session that never comes back.

use std::time::Duration;

use azekura_platform::Platform;
use azekura_proto::message::typed::Goodbye;
use azekura_proto::message::{Role, TypedRequest, Welcome};
use azekura_proto::pool_map::Address;
use azekura_proto::{PoolId, SessionId, Status, TargetId};
use azekura_wire::{ConnectError, Secret};

use crate::failure::Failure;
use crate::slot::{Attempt, Destination, Slot};
use crate::transport::{Caller, open_at};

/// A conversation with one engine.
#[derive(Debug)]
pub struct Dialogue {
    slot: Slot,
    /// What the engine said of itself.
    pub welcome: Welcome,
    /// Where questions go.
    pub target: TargetId,
}

impl Dialogue {
    /// Calls whatever engine listens at an address; `PoolId::NONE` for any pool, or none. Each step
    /// may take as long as `timeout`.
    ///
    /// # Errors
    /// If nobody answers there, or not as an engine of this pool.
    pub fn open(
        address: &Address,
        pool: PoolId,
        secret: &Secret,
        timeout: Duration,
        platform: &dyn Platform,
    ) -> Result<Self, ConnectError> {
        let mut session = [0; 16];
        platform.fill_random(&mut session)?;
        let (session, secret) = (SessionId(session), secret.clone());
        let caller = Caller { pool, session, role: Role::Client, secret, timeout };
        let (conversation, welcome) = open_at(address, &caller)?;
        Ok(Self { slot: Slot::single(conversation), welcome, target: TargetId(0) })
    }

    /// Asks the engine; the inner error is what it answered.
    ///
    /// # Errors
    /// If there is no answer, or one that belongs to another request.
    pub fn ask<'a, R: TypedRequest<'a>>(
        &mut self,
        request: R,
    ) -> Result<Result<R::Reply, Status>, Failure> {
        let to = Destination { target: self.target, map_version: self.welcome.map_version };
        let request = request.into_request();
        let attempt = Attempt { sequence: self.slot.sequence_for(&request), resent: false };
        match self.slot.exchange(to, attempt, &request, &[], &mut [], Duration::ZERO)? {
            Ok(reply) => R::read(reply).map(Ok).ok_or(Failure::Protocol(Failure::OTHER_REPLY)),
            Err(status) => Ok(Err(status)),
        }
    }
}

impl Drop for Dialogue {
    fn drop(&mut self) {
        // An engine that does not hear it forgets the session when its lease is over.
        let _ = self.ask(Goodbye);
    }
}
