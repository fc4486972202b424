//! Single questions to single engines, outside of any pool that is in use. Owns how long an answer may
//! take, and that a person hears of it when it does.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use azekura_platform::System;
use azekura_proto::message::typed::Report;
use azekura_proto::message::{EngineReport, TypedRequest};
use azekura_proto::pool_map::{Address, PoolMap};
use azekura_proto::{EngineId, PoolId, Status, TargetId};
use azekura_rpc::Dialogue;
use azekura_wire::Secret;

use crate::waiting::{self, Waiting};

/// One connection to one engine, outside of any pool session: for questions about the engine.
pub(crate) struct EngineLine(Dialogue);

impl EngineLine {
    /// Calls an engine of a pool; without a map, one that belongs to no pool yet.
    ///
    /// # Errors
    /// If nobody answers there, or not as an engine of this pool.
    pub(crate) fn dial(
        address: &Address,
        map: Option<&PoolMap>,
        secret: &Secret,
        timeout: Duration,
    ) -> Result<Self> {
        let pool = map.map_or(PoolId::NONE, |map| map.pool);
        let mut dialogue = Dialogue::open(address, pool, secret, timeout, &System)
            .map_err(|error| anyhow!("{address}: {error}"))?;
        // Questions to an engine go to any target that it has.
        let target = map.and_then(|map| map.targets_of(dialogue.welcome.engine).next());
        dialogue.target = target.unwrap_or(TargetId(0));
        Ok(Self(dialogue))
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// If the engine refuses it or does not answer in time.
    pub(crate) fn ask<'a, R: TypedRequest<'a>>(&mut self, request: R) -> Result<R::Reply> {
        self.try_ask(request)?.map_err(|status| anyhow!("the engine answered: {status}"))
    }

    /// The same; the inner error is what the engine answered.
    ///
    /// # Errors
    /// If the engine does not answer in time.
    pub(crate) fn try_ask<'a, R: TypedRequest<'a>>(
        &mut self,
        request: R,
    ) -> Result<Result<R::Reply, Status>> {
        Ok(self.0.ask(request)?)
    }

    /// Which engine of its pool it says that it is.
    pub(crate) fn engine(&self) -> EngineId {
        self.0.welcome.engine
    }

    /// What the engine says of itself.
    ///
    /// # Errors
    /// If it does not answer in time.
    pub(crate) fn report(&mut self) -> Result<EngineReport> {
        Ok(*self.ask(Report)?)
    }
}

/// What is wrong with an engine that listens at sockets of this machine only, if their files are gone.
pub(crate) fn without_sockets(map: &PoolMap, engine: EngineId) -> Option<String> {
    let addresses = &map.engines.get(usize::from(engine.0))?.addresses;
    let gone = addresses.iter().all(|address| match address {
        Address::Unix(path) => !path.exists(),
        Address::Tcp(_) => false,
    });
    let shown: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    gone.then(|| {
        format!(
            "there is no {} any more (a runtime directory goes at the end of a login)",
            shown.join(" ")
        )
    })
}

/// Addresses to try one after the other, each with its share of the time that is left by then.
pub(crate) fn with_timeouts(addresses: &[Address]) -> impl Iterator<Item = (&Address, Duration)> {
    let began = Instant::now();
    addresses.iter().enumerate().map(move |(index, address)| {
        let left = waiting::LIMIT.saturating_sub(began.elapsed());
        let share = left / (addresses.len() - index) as u32;
        (address, share.max(Duration::from_secs(1)))
    })
}

/// Asks an engine of a pool how it is, at the first of its addresses where it answers.
///
/// # Errors
/// What went wrong at the last address.
pub(crate) fn ask_engine(
    map: &PoolMap,
    engine: EngineId,
    secret: &Secret,
) -> Result<(Address, EngineReport)> {
    let mut last = anyhow!("the engine has no address");
    let entry = map.engines.get(usize::from(engine.0));
    let addresses = entry.map(|entry| entry.addresses.as_slice()).unwrap_or_default();
    let _waiting = Waiting::begin(waiting::line_of(map, engine));
    for (address, timeout) in with_timeouts(addresses) {
        let report = || {
            let mut line = EngineLine::dial(address, Some(map), secret, timeout)?;
            let found = line.engine();
            if found != engine {
                bail!("{address}: engine {} of the pool listens there", found.0);
            }
            line.report()
        };
        match report() {
            Ok(report) => return Ok((address.clone(), report)),
            Err(error) => last = error,
        }
    }
    Err(last)
}
