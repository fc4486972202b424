//! One run of an engine: the real one, called without a socket. Owns where it is opened, and what a
//! client and another engine reach it by.

use std::path::PathBuf;
use std::sync::Arc;

use azekura_engine::{Attachment, EngineDir, EngineError, Peers, Service, ServiceParts};
use azekura_proto::message::{Answer, Request, RequestHead, Role, Welcome};
use azekura_proto::{EngineId, PoolMap, SessionId};
use azekura_store::Environment;

/// Where an engine's directory is on its disk.
const DIR: &str = "/engine";

/// A session that an engine has let in, for as long as its connection is there.
pub(crate) type Guest = Arc<Attachment>;

fn engine_dir(environment: Environment) -> EngineDir {
    EngineDir::new(environment, PathBuf::from(DIR), Vec::new())
}

/// One run of an engine. It ends as by a crash unless it is finished first.
pub(crate) struct Run {
    service: Service,
    /// The connection of all other engines.
    peer: Guest,
}

impl Run {
    /// Makes an engine's directory.
    pub(crate) fn format(environment: Environment, map: &PoolMap, engine: EngineId) {
        engine_dir(environment).format(map, engine).unwrap();
    }

    /// Starts an engine on what is on its disk.
    pub(crate) fn open(
        environment: Environment,
        peers: Box<dyn Peers>,
    ) -> Result<Self, EngineError> {
        let service = Service::open(ServiceParts { dir: engine_dir(environment), peers })?;
        let session = SessionId([0xee; 16]);
        let (peer, _) = service.attach(session, Role::Engine, true).unwrap();
        Ok(Self { service, peer: Arc::new(peer) })
    }

    /// Opens a connection of a session, unless the engine is about to end.
    pub(crate) fn let_in(&self, session: SessionId) -> Option<(Guest, Welcome)> {
        let (guest, welcome) = self.service.attach(session, Role::Client, true).ok()?;
        Some((Arc::new(guest), welcome))
    }

    /// Serves what another engine asks.
    pub(crate) fn serve_peer(
        &self,
        head: RequestHead,
        request: &Request<'_>,
        bulk: &[u8],
    ) -> Answer {
        self.peer.call(&head, request, bulk).0
    }

    pub(crate) fn background_pass(&self) {
        self.service.background_pass();
    }

    /// Whether the engine has to start anew.
    pub(crate) fn is_rolled_back(&self) -> bool {
        self.service.is_rolled_back()
    }

    /// Leaves everything in order.
    pub(crate) fn finish(&self) {
        self.service.finish();
    }

    /// Transactions that have no end yet.
    pub(crate) fn unfinished(&self) -> u64 {
        self.service.report().targets.iter().map(|target| target.transactions).sum()
    }
}
