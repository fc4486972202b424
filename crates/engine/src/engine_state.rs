//! What the threads of a listening engine share, also before it belongs to a pool. Owns the moment in
//! which an engine takes its place in a pool: from then on there is a service.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use azekura_platform::{SharedPlatform, system};
use azekura_proto::pool_map::Address;
use azekura_proto::{EngineId, PoolMap, SessionId, Status};
use azekura_rpc::PeerClient;
use azekura_rpc::transport::Sockets;
use azekura_store::Environment;
use azekura_wire::{Secret, Tickets};
use parking_lot::RwLock;

use crate::engine_dir::EngineDir;
use crate::error::{EngineError, io_error};
use crate::metrics::Metrics;
use crate::service::{Service, ServiceParts};

/// What an engine needs to know.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The engine's directory: `pool.json`, and `targets/N` where `target_dirs` names none.
    pub dir: PathBuf,
    /// Directories of the targets, in order; missing ones are `dir/targets/N`.
    pub target_dirs: Vec<PathBuf>,
    /// Targets to make when a pool adopts this engine.
    pub target_count: u16,
    /// Where to listen.
    pub listen: Vec<Address>,
    /// The pool's secret.
    pub secret: Secret,
    /// `host:port` for the metrics, if any.
    pub metrics_listen: Option<String>,
}

impl EngineConfig {
    /// The directories, as one thing.
    pub(crate) fn engine_dir(&self) -> EngineDir {
        EngineDir::new(Environment::system(), self.dir.clone(), self.target_dirs.clone())
    }
}

/// What the threads of an engine share.
pub(crate) struct EngineState {
    pub(crate) platform: SharedPlatform,
    pub(crate) config: EngineConfig,
    service: RwLock<Option<Arc<Service>>>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) stopping: Arc<AtomicBool>,
    pub(crate) open_connections: AtomicUsize,
    /// Connections that are in the middle of the handshake, over a network and on this host.
    pub(crate) handshakes: [AtomicUsize; 2],
    /// For callers that come again.
    pub(crate) tickets: Tickets,
}

impl EngineState {
    /// Opens the targets if the engine belongs to a pool.
    pub(crate) fn open(config: EngineConfig) -> Result<Self, EngineError> {
        let platform = system();
        let tickets = Tickets::new()
            .map_err(io_error("cannot draw random numbers for", config.engine_dir().path()))?;
        let state = Self {
            config,
            service: RwLock::new(None),
            metrics: Arc::new(Metrics::new(platform.now())),
            platform,
            stopping: Arc::new(AtomicBool::new(false)),
            open_connections: AtomicUsize::new(0),
            handshakes: Default::default(),
            tickets,
        };
        if let Some((engine, map)) = state.config.engine_dir().read_place()? {
            *state.service.write() = Some(state.open_service(engine, map)?);
        }
        Ok(state)
    }

    fn open_service(&self, engine: EngineId, map: PoolMap) -> Result<Arc<Service>, EngineError> {
        let dir = self.config.engine_dir();
        let mut session = [0; 16];
        self.platform
            .fill_random(&mut session)
            .map_err(io_error("cannot draw random numbers for", dir.path()))?;
        let (network, secret) = (Arc::new(Sockets::default()), self.config.secret.clone());
        let peers =
            PeerClient::new(network, secret, SessionId(session), Arc::clone(&self.platform));
        let (metrics, stopping) = (Arc::clone(&self.metrics), Arc::clone(&self.stopping));
        let parts = ServiceParts { dir, peers: Box::new(peers) };
        Ok(Arc::new(Service::open_at(parts, (engine, map), metrics, stopping)?))
    }

    /// The service; `None` before a pool has adopted the engine.
    pub(crate) fn service(&self) -> Option<Arc<Service>> {
        self.service.read().clone()
    }

    /// Takes the service away: the engine goes down.
    pub(crate) fn take_service(&self) -> Option<Arc<Service>> {
        self.service.write().take()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Takes a place in a new pool.
    pub(crate) fn adopt(&self, map: &PoolMap, engine: EngineId) -> Result<(), Status> {
        map.validate().map_err(|_| Status::Invalid)?;
        let mut service = self.service.write();
        if service.is_some() {
            return Err(Status::Exists);
        }
        if map.targets_of(engine).count() != usize::from(self.config.target_count) {
            return Err(Status::Invalid);
        }
        let opened = self.config.engine_dir().format(map, engine);
        match opened.and_then(|()| self.open_service(engine, map.clone())) {
            Ok(opened) => {
                *service = Some(opened);
                tracing::info!(pool = %map.pool, name = map.name, "the engine belongs to a pool now");
                Ok(())
            }
            Err(error) => {
                tracing::error!("{error}");
                Err(Status::Io)
            }
        }
    }
}
