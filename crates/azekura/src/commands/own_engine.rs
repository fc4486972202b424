//! The engine of this process, as what this process serves beside it reaches it: what is asked there is a call into
//! the engine and no message. Owns whether the engine is there; it belongs to somebody else, who says so. Engines
//! of the pool in other processes are asked over sockets, as ever.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use azekura_client::{ClientConfig, Pool, PoolFile, SecretSource};
use azekura_engine::{Engine, Watch};
use azekura_proto::{EngineId, PoolId};
use azekura_rpc::transport::{Direct, Sockets};
use parking_lot::{Condvar, Mutex};

/// How long an engine that is starting anew is waited for.
const ANEW_TIMEOUT: Duration = Duration::from_secs(15);

/// The engine of this process.
#[derive(Debug)]
pub(crate) struct OwnEngine {
    network: Arc<Direct>,
    secret_file: PathBuf,
    reach: Mutex<Reach>,
    /// The engine is there again, or nobody need wait for it any more.
    is_there: Condvar,
}

/// How the engine is reached.
#[derive(Debug, Default)]
struct Reach {
    /// `None` while it is not there.
    watch: Option<Watch>,
    /// Its pool, as far as anybody has asked.
    pool: Option<PoolId>,
    /// By calls, under this number, since somebody needed it.
    added: Option<EngineId>,
    /// Nobody begins to use it any more.
    is_ending: bool,
}

impl OwnEngine {
    /// An engine that has started.
    pub(crate) fn of(engine: &Engine, secret_file: PathBuf) -> Self {
        let pool = engine.map().map(|map| map.pool);
        let reach = Reach { watch: Some(engine.watch()), pool, ..Reach::default() };
        Self {
            network: Arc::new(Direct::beside(Arc::new(Sockets::default()))),
            secret_file,
            reach: Mutex::new(reach),
            is_there: Condvar::new(),
        }
    }

    /// Whether the engine is of the pool with this id. One that is starting anew is still of its pool.
    pub(crate) fn is_of(&self, pool: &str) -> bool {
        let mut reach = self.reach.lock();
        if let Some((_, map)) = reach.watch.as_ref().and_then(Watch::place) {
            reach.pool = Some(map.pool);
        }
        reach.pool.is_some_and(|own| own.to_string() == pool)
    }

    /// Connects to the engine's pool, by calls to this engine. One that is starting anew is waited for.
    ///
    /// # Errors
    /// If it belongs to no pool, ends, or does not come back.
    pub(crate) fn connect(&self) -> Result<(PoolFile, Arc<Pool>)> {
        let file = self.pool_file()?;
        let network = Some(Arc::clone(&self.network) as Arc<_>);
        let pool = Pool::connect(&file, ClientConfig { network, ..ClientConfig::default() })?;
        Ok((file, pool))
    }

    /// Sees to it that the engine is reached by calls.
    fn pool_file(&self) -> Result<PoolFile> {
        let deadline = Instant::now() + ANEW_TIMEOUT;
        let mut reach = self.reach.lock();
        while reach.watch.is_none() && !reach.is_ending {
            if self.is_there.wait_until(&mut reach, deadline).timed_out() {
                bail!("the engine is starting anew: try again");
            }
        }
        if reach.is_ending {
            bail!("the engine ends");
        }
        let watch = reach.watch.clone();
        let Some((id, map)) = watch.as_ref().and_then(Watch::place) else {
            bail!(
                "the engine belongs to no pool yet: start it without --mount, run 'azekura pool create', and \
                 start it again with --mount"
            )
        };
        if reach.added.is_none()
            && let Some(door) = watch.as_ref().and_then(Watch::door)
        {
            self.network.add(id, door);
            reach.added = Some(id);
        }
        Ok(PoolFile { map, secret: SecretSource::File(self.secret_file.clone()) })
    }

    /// Has everybody do without the engine until [`OwnEngine::go_on`]: what is asked meanwhile waits, as for an
    /// engine that was killed.
    pub(crate) fn pause(&self) {
        let mut reach = self.reach.lock();
        reach.watch = None;
        if let Some(id) = reach.added {
            self.network.remove(id);
        }
    }

    /// The engine is there again.
    pub(crate) fn go_on(&self, started: &Engine) {
        let mut reach = self.reach.lock();
        reach.watch = Some(started.watch());
        if let Some(id) = reach.added {
            self.network.add(id, started.door());
        }
        self.is_there.notify_all();
    }

    /// From now on nobody begins to use it who has not.
    pub(crate) fn begin_to_end(&self) {
        self.reach.lock().is_ending = true;
        self.is_there.notify_all();
    }

    /// Whether it ends.
    pub(crate) fn is_ending(&self) -> bool {
        self.reach.lock().is_ending
    }
}
