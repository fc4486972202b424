//! What one process has with the pool: its session id, its links, and the pool map. Owns what
//! happens after a fork, where the child must not touch the parent's connections.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use azekura_platform::{Platform, this_process};
use azekura_proto::pool_map::PoolMap;
use azekura_proto::{EngineId, Placement, SessionId, TargetId};
use parking_lot::RwLock;

use crate::error::{ClientError, Result};
use crate::link::{Identity, Link};
use crate::open_references::OpenReferences;
#[cfg(test)]
use {
    crate::remembered_links::LinkMemory,
    azekura_proto::PoolId,
    azekura_proto::message::Role,
    azekura_proto::pool_map::{Address, EngineEntry},
    azekura_rpc::transport::{Caller, Network},
    azekura_wire::Secret,
};

/// For this long after a failure between engines, requests that meet it wait less, in
/// milliseconds.
const PEER_MEMORY_MS: u64 = 10_000;

#[derive(Clone, Debug)]
struct Topology {
    map: Arc<PoolMap>,
    links: Vec<Arc<Link>>,
}

/// The session of one process.
#[derive(Debug)]
pub(crate) struct Session {
    process: u32,
    identity: Arc<Identity>,
    topology: RwLock<Topology>,
    started: Instant,
    /// When an engine last could not reach another one for a whole time-out: milliseconds after
    /// `started`, and 1 more; 0 for never.
    peer_failure_ms: AtomicU64,
    /// The session of the child, in the child.
    child: OnceLock<Box<Session>>,
}

/// A random session id.
pub(crate) fn draw_session_id(platform: &dyn Platform) -> std::io::Result<SessionId> {
    let mut bytes = [0; 16];
    platform.fill_random(&mut bytes)?;
    Ok(SessionId(bytes))
}

#[cfg(test)]
impl Session {
    /// Of a library in somebody else's process, with a pool of one engine of one target.
    pub(crate) fn to_one_engine(
        network: Arc<dyn Network>,
        addresses: Vec<Address>,
        secret: Secret,
    ) -> Self {
        let (pool, platform) = (PoolId([1; 16]), azekura_platform::system());
        let caller = Caller {
            pool,
            session: draw_session_id(&*platform).unwrap(),
            role: Role::Client,
            secret,
            timeout: Duration::from_secs(10),
        };
        let (pool_name, memory) = ("p".to_owned(), Arc::new(LinkMemory::of_this_process()));
        let map = PoolMap::deal(pool, "p".to_owned(), vec![EngineEntry { addresses }], &[1]);
        let identity = Identity { caller, pool_name, network, platform, is_guest: true, memory };
        Self::new(identity, map)
    }
}

impl Session {
    pub(crate) fn new(identity: Identity, map: PoolMap) -> Self {
        let identity = Arc::new(identity);
        let links = (0..map.engines.len())
            .map(|index| {
                new_link(
                    EngineId(index as u16),
                    &map,
                    Arc::clone(&identity),
                    OpenReferences::default(),
                )
            })
            .collect();
        let topology = RwLock::new(Topology { map: Arc::new(map), links });
        Self::with(this_process(), identity, topology)
    }

    fn with(process: u32, identity: Arc<Identity>, topology: RwLock<Topology>) -> Self {
        let started = identity.platform.now();
        Self {
            process,
            identity,
            topology,
            started,
            peer_failure_ms: AtomicU64::new(0),
            child: OnceLock::new(),
        }
    }

    /// The session of the calling process: this one, or, in a forked child, its own.
    pub(crate) fn of_process(&self) -> &Self {
        let process = this_process();
        let mut session = self;
        while session.process != process {
            session = session.child.get_or_init(|| Box::new(session.fork(process)));
        }
        session
    }

    /// A session for a forked child: it has open what the parent has open, over connections of its
    /// own. The parent's are closed here without a word to the engine.
    fn fork(&self, process: u32) -> Self {
        let mut identity = Identity::clone(&self.identity);
        let id = &mut identity.caller.session;
        match draw_session_id(&*self.identity.platform) {
            Ok(drawn) => *id = drawn,
            Err(_) => {
                for (byte, other) in id.0.iter_mut().zip(process.to_be_bytes()) {
                    *byte ^= other;
                }
            }
        }
        let identity = Arc::new(identity);
        // Another thread of the parent may have held the lock for writing at the fork; that
        // happens only while a new map comes in.
        let topology = self.topology.read();
        let links = topology
            .links
            .iter()
            .map(|link| {
                drop(link.slots.take_idle());
                let own = new_link(
                    link.engine,
                    &topology.map,
                    Arc::clone(&identity),
                    link.open_references.fork(),
                );
                // The engine is as far from here.
                own.suppose_round_trip(link.round_trip_us());
                own
            })
            .collect();
        let topology = RwLock::new(Topology { map: Arc::clone(&topology.map), links });
        Self::with(process, identity, topology)
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// How long to wait for an engine that another engine cannot reach.
    pub(crate) fn peer_patience(&self) -> Duration {
        let timeout = self.identity.caller.timeout;
        let failed_ms = self.peer_failure_ms.load(Ordering::Relaxed);
        let now_ms = self.identity.platform.elapsed(self.started).as_millis() as u64;
        if failed_ms > 0 && now_ms < failed_ms + PEER_MEMORY_MS {
            timeout.min(Duration::from_secs(1))
        } else {
            timeout
        }
    }

    /// Waiting for such an engine was in vain.
    pub(crate) fn note_peer_failure(&self) {
        let now_ms = self.identity.platform.elapsed(self.started).as_millis() as u64;
        self.peer_failure_ms.store(now_ms + 1, Ordering::Relaxed);
    }

    pub(crate) fn map(&self) -> Arc<PoolMap> {
        Arc::clone(&self.topology.read().map)
    }

    pub(crate) fn placement(&self) -> Placement {
        Placement::of(&self.topology.read().map)
    }

    pub(crate) fn target_count(&self) -> u16 {
        self.topology.read().map.target_count()
    }

    /// The link to the engine of a target, and the version of the map that says so.
    pub(crate) fn link(&self, target: TargetId) -> Result<(Arc<Link>, u32)> {
        let topology = self.topology.read();
        let link = topology
            .map
            .engine_of(target)
            .and_then(|engine| topology.links.get(usize::from(engine.0)))
            .ok_or(ClientError::NoSuchTarget(target.0))?;
        Ok((Arc::clone(link), topology.map.version))
    }

    /// Whether this session has been let in by the engine of a target.
    pub(crate) fn has_met(&self, target: TargetId) -> bool {
        self.link(target).is_ok_and(|(link, _)| link.incarnation().is_some())
    }

    pub(crate) fn links(&self) -> Vec<Arc<Link>> {
        self.topology.read().links.clone()
    }

    /// Takes over a newer map.
    pub(crate) fn adopt(&self, map: PoolMap) {
        let mut topology = self.topology.write();
        if map.pool != self.identity.caller.pool
            || map.version <= topology.map.version
            || map.validate().is_err()
        {
            return;
        }
        tracing::info!("pool '{}' has a new map, version {}", map.name, map.version);
        for (index, entry) in map.engines.iter().enumerate() {
            if let Some(link) = topology.links.get(index) {
                link.set_addresses(entry.addresses.clone());
            } else {
                let identity = Arc::clone(&self.identity);
                let link =
                    new_link(EngineId(index as u16), &map, identity, OpenReferences::default());
                topology.links.push(link);
            }
        }
        topology.map = Arc::new(map);
    }
}

fn new_link(
    engine: EngineId,
    map: &PoolMap,
    identity: Arc<Identity>,
    open_references: OpenReferences,
) -> Arc<Link> {
    let target = map.targets_of(engine).next().unwrap_or(TargetId(0));
    let addresses =
        map.engines.get(usize::from(engine.0)).map(|e| e.addresses.clone()).unwrap_or_default();
    Arc::new(Link::new(engine, target, addresses, identity, open_references))
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_platform::{System, system};
    use azekura_proto::message::{Request, Role};
    use azekura_proto::pool_map::EngineEntry;
    use azekura_proto::{ContainerId, ObjectClass, Oid, PoolId};
    use azekura_rpc::transport::{Caller, Sockets};
    use azekura_wire::Secret;

    use crate::remembered_links::LinkMemory;
    use crate::retry::Exchange;

    fn session() -> Session {
        let engines = vec![EngineEntry { addresses: Vec::new() }; 2];
        let map = PoolMap::deal(PoolId([1; 16]), "p".to_owned(), engines, &[1, 1]);
        let identity = Identity {
            caller: Caller {
                pool: map.pool,
                session: draw_session_id(&System).unwrap(),
                role: Role::Client,
                secret: Secret::generate().unwrap(),
                timeout: Duration::from_millis(50),
            },
            pool_name: map.name.clone(),
            network: Arc::new(Sockets::default()),
            platform: system(),
            is_guest: false,
            memory: Arc::new(LinkMemory::of_this_process()),
        };
        Session::new(identity, map)
    }

    #[test]
    fn a_forked_child_is_a_session_of_its_own_with_the_same_open_files() {
        let parent = session();
        let oid = Oid::new(ContainerId(1), ObjectClass::S1, TargetId(1), 5);
        parent.link(TargetId(1)).unwrap().0.open_references.open(oid, &System);
        parent.link(TargetId(1)).unwrap().0.suppose_round_trip(Some(7_000));
        let child = parent.fork(this_process() + 1);
        assert_eq!(child.link(TargetId(1)).unwrap().0.round_trip_us(), Some(7_000));
        assert_eq!(child.link(TargetId(0)).unwrap().0.round_trip_us(), None);
        assert_ne!(child.identity.caller.session, parent.identity.caller.session);
        assert_eq!(child.link(TargetId(1)).unwrap().0.open_references.claims().0, [oid]);
        assert!(child.link(TargetId(0)).unwrap().0.open_references.claims().0.is_empty());
        assert!(std::ptr::eq(parent.of_process(), &raw const parent));
    }

    #[test]
    fn an_engine_without_a_working_address_is_named_in_the_error() {
        let session = session();
        let mut exchange = Exchange::new(TargetId(1), &Request::Ping);
        let error = session.call(&mut exchange).unwrap_err();
        assert!(matches!(error, ClientError::Unreachable { engine: EngineId(1), .. }), "{error}");
        assert!(session.link(TargetId(1)).unwrap().0.is_down());
    }
}
