//! How commands reach pools: connections to whole pools, and single questions to single engines. What
//! people call them stands in `names`.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use azekura_client::{ClientConfig, Pool, PoolFile};
use azekura_platform::System;
use azekura_posix::{CachePolicy, FileSystem, FsConfig};
use azekura_proto::message::typed::Report;
use azekura_proto::message::{EngineReport, TypedRequest};
use azekura_proto::pool_map::{Address, PoolMap};
use azekura_proto::{EngineId, PoolId, Status, TargetId};
use azekura_rpc::Dialogue;
use azekura_wire::Secret;

use crate::names;
use crate::outcome::usage;
use crate::reading::ReadArgs;
use crate::waiting::{self, Waiting};

/// An engine that is asked something has this long to answer, at all of its addresses together: as long
/// as an operation waits for it.
pub(crate) const ASK_TIMEOUT: Duration = Duration::from_secs(10);

/// The pool file that a person means by a name, a file or a URL.
///
/// # Errors
/// If there is none; for a place in a pool, what to write instead.
pub(crate) fn pool_file(name: &str) -> Result<PoolFile> {
    match names::instead_of_place(name) {
        Some(instead) if !Path::new(name).exists() => Err(usage(instead)),
        _ => Ok(PoolFile::find(name)?),
    }
}

/// Connects to a pool given by name, file or URL.
///
/// # Errors
/// If it is not known or its engines cannot be reached.
pub fn pool(name: &str) -> Result<Arc<Pool>> {
    let file = pool_file(name)?;
    waiting::watch(&file);
    Ok(Pool::connect(&file, ClientConfig::default())?)
}

/// Opens a container as a file system for use within this process.
///
/// # Errors
/// If there is no such container, the engines cannot be reached, or the trace cannot be written.
pub(crate) fn file_system(
    pool: Arc<Pool>,
    container: &str,
    cache: CachePolicy,
    reading: &ReadArgs,
) -> Result<Arc<FileSystem>> {
    let config = FsConfig { cache, check_permissions: true, ..FsConfig::default() };
    Ok(FileSystem::mount(pool, container, reading.apply(config)?)?)
}

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

/// Addresses to try one after the other, each with its share of the time that is left by then.
pub(crate) fn with_timeouts(addresses: &[Address]) -> impl Iterator<Item = (&Address, Duration)> {
    let began = Instant::now();
    addresses.iter().enumerate().map(move |(index, address)| {
        let left = ASK_TIMEOUT.saturating_sub(began.elapsed());
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
