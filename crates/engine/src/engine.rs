//! A listening engine: its threads, and how it starts and stops. Owns the order of draining. What is
//! served stands in `service`, who may come in in `server`.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use azekura_platform::Thread;
use azekura_proto::limits::{DRAIN_MS, PEER_ANSWER_MS};
use azekura_proto::pool_map::Address;
use azekura_proto::{EngineId, PoolMap};
use azekura_rpc::transport;
use azekura_store::{Environment, StoreError};
use azekura_wire::Listener;

use crate::background::passes::PASS_INTERVAL;
use crate::direct::Door;
use crate::engine_dir::EngineDir;
use crate::engine_state::{EngineConfig, EngineState};
use crate::error::{EngineError, io_error};
use crate::listen::metrics_server;
use crate::listen::server::Server;
use crate::service::Service;

/// How long an engine that starts anew waits for its targets.
const RESTART_PATIENCE: Duration = Duration::from_millis(2 * PEER_ANSWER_MS);
/// Between two tries to start.
const RESTART_PAUSE: Duration = Duration::from_millis(50);
/// How long an engine that stops waits for its background work.
const BACKGROUND_PATIENCE: Duration = Duration::from_secs(1);

/// A running engine. Dropping it without [`Engine::stop`] is like a crash, but for the threads.
pub struct Engine {
    state: Arc<EngineState>,
    server: Server,
    background: Vec<Thread>,
}

impl Engine {
    /// Makes the targets of a new pool and remembers the engine's place in it.
    ///
    /// # Errors
    /// If a directory is in use or cannot be written.
    pub fn format(
        config: &EngineConfig,
        map: &PoolMap,
        engine: EngineId,
    ) -> Result<(), EngineError> {
        config.engine_dir().format(map, engine)
    }

    /// Whether making the targets in this directory was interrupted: [`Engine::format`] begins
    /// anew then.
    pub fn is_half_formatted(dir: &Path) -> bool {
        of_this_machine(dir).is_half_formatted()
    }

    /// The pool map in an engine's directory; `None` if it belongs to no pool yet.
    ///
    /// # Errors
    /// If the file cannot be read or makes no sense.
    pub fn read_place(dir: &Path) -> Result<Option<(EngineId, PoolMap)>, EngineError> {
        of_this_machine(dir).read_place()
    }

    /// Opens the targets, recovers, and listens. An engine whose directory has no pool yet waits
    /// to be adopted by one.
    ///
    /// # Errors
    /// If a target is damaged or in use, or an address cannot be listened at.
    pub fn start(config: EngineConfig) -> Result<Self, EngineError> {
        raise_file_limit();
        let state = Arc::new(EngineState::open(config)?);
        let mut background = vec![
            spawn("upkeep", &state, |state| repeat(state, Service::upkeep_pass))?,
            spawn("settling", &state, |state| repeat(state, Service::settling_pass))?,
        ];
        if let Some(address) = &state.config.metrics_listen {
            let server = metrics_server::listen(address)?;
            let serve = move |state: &EngineState| metrics_server::serve(&server, state);
            background.push(spawn("metrics", &state, serve)?);
        }
        let mut listeners = Vec::new();
        for address in &state.config.listen {
            let path = PathBuf::from(address.to_string());
            listeners.push(Listener::bind(address).map_err(io_error("cannot listen at", &path))?);
        }
        let server = Server::start(&state, listeners)
            .map_err(io_error("cannot serve in", &state.config.dir))?;
        Ok(Self { state, server, background })
    }

    /// Where the engine listens, with the ports that were taken.
    pub fn addresses(&self) -> Vec<Address> {
        self.server.addresses()
    }

    /// The pool map; `None` before a pool has adopted the engine.
    pub fn map(&self) -> Option<PoolMap> {
        self.state.service().map(|service| service.map())
    }

    /// The engine's number in its pool; `None` before a pool has adopted it.
    pub fn id(&self) -> Option<EngineId> {
        self.state.service().map(|service| service.node().engine)
    }

    /// How callers of this process reach the engine. What it was added to has to be rid of it before
    /// [`Engine::stop`] and [`Engine::restart`], which wait for every conversation to end.
    pub fn door(&self) -> Arc<dyn transport::Service> {
        Arc::new(Door::of(&self.state))
    }

    /// For whoever looks at the engine from another thread.
    pub fn watch(&self) -> Watch {
        Watch(Arc::downgrade(&self.state))
    }

    /// Stops, and starts on the same directory and addresses.
    ///
    /// # Errors
    /// As [`Engine::start`], if that is so for some time: a thread that waits for another engine keeps the
    /// targets until it has its answer.
    pub fn restart(self) -> Result<Self, EngineError> {
        let config = EngineConfig { listen: self.addresses(), ..self.state.config.clone() };
        let platform = Arc::clone(&self.state.platform);
        self.stop();
        let deadline = platform.now() + RESTART_PATIENCE;
        loop {
            match Self::start(config.clone()) {
                Err(EngineError::Store(StoreError::InUse { .. })) if platform.now() < deadline => {
                    platform.sleep(RESTART_PAUSE);
                }
                started => return started,
            }
        }
    }

    /// Drains: takes no more connections, lets requests under way end, makes everything durable.
    pub fn stop(self) {
        self.state.stopping.store(true, Ordering::Relaxed);
        self.server.stop();
        let platform = &self.state.platform;
        let deadline = platform.now() + Duration::from_millis(DRAIN_MS);
        while self.state.open_connections.load(Ordering::Acquire) > 0 && platform.now() < deadline {
            platform.sleep(Duration::from_millis(5));
        }
        let deadline = platform.now() + BACKGROUND_PATIENCE;
        for thread in self.background {
            while !thread.is_finished() && platform.now() < deadline {
                platform.sleep(Duration::from_millis(5));
            }
            if thread.is_finished() {
                // A background thread that panicked has said so already.
                let _ = thread.join();
            }
            // One that waits for another engine ends by itself, and finds nothing more to do.
        }
        if let Some(service) = self.state.take_service() {
            service.finish();
        }
    }
}

/// Sees from another thread how an engine is, and keeps it from nothing.
#[derive(Clone, Debug)]
pub struct Watch(Weak<EngineState>);

impl Watch {
    /// The engine's number in its pool, and the pool's map. `None` once it has stopped, or before a pool
    /// has adopted it.
    pub fn place(&self) -> Option<(EngineId, PoolMap)> {
        let service = self.0.upgrade()?.service()?;
        Some((service.node().engine, service.map()))
    }

    /// As [`Engine::door`]; `None` once the engine has stopped.
    pub fn door(&self) -> Option<Arc<dyn transport::Service>> {
        Some(Arc::new(Door::of(&self.0.upgrade()?)))
    }

    /// Whether it has to: another engine lost its last commits with its power, and those of this one
    /// that rely on them were taken back. It lets nobody in any more. `None` once it has stopped.
    pub fn is_rolled_back(&self) -> Option<bool> {
        let state = self.0.upgrade()?;
        Some(state.service().is_some_and(|service| service.is_rolled_back()))
    }
}

fn of_this_machine(dir: &Path) -> EngineDir {
    EngineDir::new(Environment::system(), dir.to_owned(), Vec::new())
}

fn spawn(
    name: &str,
    state: &Arc<EngineState>,
    work: impl FnOnce(&EngineState) + Send + 'static,
) -> Result<Thread, EngineError> {
    let shared = Arc::clone(state);
    let spawned = state.platform.spawn(name, Box::new(move || work(&shared)));
    spawned.map_err(io_error("cannot start a thread for", Path::new(name)))
}

/// Thousands of clients need thousands of descriptors.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if setrlimit(Resource::Nofile, limit).is_err() {
        tracing::warn!("the limit of open files could not be raised");
    }
}

fn repeat(state: &EngineState, pass: impl Fn(&Service)) {
    while !state.is_stopping() {
        state.platform.sleep(PASS_INTERVAL);
        if let Some(service) = state.service() {
            pass(&service);
        }
    }
}
