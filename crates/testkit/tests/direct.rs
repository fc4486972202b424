//! A pool whose engines and client are in one process and talk by calls: no socket, and no thread but
//! the test's own.

#![allow(clippy::unwrap_used)] // a test

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use azekura_client::{ClientConfig, Objects as _, Pool, PoolFile, SecretSource};
use azekura_engine::{EngineDir, Service, ServiceParts};
use azekura_proto::attr::Inheritance;
use azekura_proto::pool_map::EngineEntry;
use azekura_proto::{EngineId, FileKind, ObjectClass, PoolId, PoolMap, SessionId, TargetId};
use azekura_rpc::PeerClient;
use azekura_rpc::transport::Direct;
use azekura_store::Environment;
use azekura_wire::Secret;

const CHUNK_BYTES: u32 = 4096;

struct Engines {
    dir: tempfile::TempDir,
    network: Arc<Direct>,
    map: PoolMap,
}

impl Engines {
    fn format() -> Self {
        let engines = vec![EngineEntry { addresses: Vec::new() }; 2];
        let map = PoolMap::deal(PoolId([3; 16]), "p".to_owned(), engines, &[2, 2]);
        let this = Self { dir: tempfile::tempdir().unwrap(), network: Arc::default(), map };
        for engine in [EngineId(0), EngineId(1)] {
            this.dir_of(engine).format(&this.map, engine).unwrap();
        }
        this
    }

    fn dir_of(&self, engine: EngineId) -> EngineDir {
        EngineDir::new(
            Environment::system(),
            Path::join(self.dir.path(), engine.0.to_string()),
            Vec::new(),
        )
    }

    fn start(&self, engine: EngineId) {
        let network = Arc::clone(&self.network) as Arc<_>;
        let session = SessionId([engine.0 as u8 + 1; 16]);
        let secret = Secret::generate().unwrap();
        let peers = Box::new(PeerClient::new(network, secret, session, azekura_platform::system()));
        let parts = ServiceParts { dir: self.dir_of(engine), peers };
        self.network.add(engine, Arc::new(Service::open(parts).unwrap()));
    }

    fn client(&self) -> Arc<Pool> {
        let file =
            PoolFile { map: self.map.clone(), secret: SecretSource::Inline("ab".repeat(32)) };
        let config = ClientConfig {
            request_timeout: Duration::from_millis(200),
            network: Some(Arc::clone(&self.network) as Arc<_>),
            ..ClientConfig::default()
        };
        Pool::connect(&file, config).unwrap()
    }
}

#[test]
fn a_pool_is_used_by_calls_alone_and_survives_the_end_of_an_engine() {
    let engines = Engines::format();
    engines.start(EngineId(0));
    engines.start(EngineId(1));
    let pool = engines.client();
    assert!(!pool.is_remote(TargetId(3)));
    let container = pool.container_create("c", Inheritance::default()).unwrap();
    assert_eq!(pool.container_list().unwrap().len(), 1);
    let (class, home) = (ObjectClass::SX, Some(TargetId(3)));
    let oid = pool.allocate(container.id, class, 0, home).unwrap();
    let data: Vec<u8> = (0..50_000u32).map(|number| (number % 251) as u8).collect();
    pool.array_write(oid, CHUNK_BYTES, 1000, &data).unwrap();
    pool.put(oid, b"dkey", b"akey", b"value").unwrap();

    let (attr, hold) = pool.open(container.root).unwrap();
    assert_eq!(attr.kind, FileKind::Directory);

    let home = pool.map().engine_of(container.root.home()).unwrap();
    let first = pool.incarnation(container.root.home()).unwrap();
    engines.network.remove(home);
    let error = pool.open(container.root).unwrap_err();
    assert!(error.is_unreached() && error.status().is_none(), "{error}");
    engines.start(home);
    drop(pool.open(container.root).unwrap());
    assert_ne!(pool.incarnation(container.root.home()).unwrap(), first);
    drop(hold);

    let mut back = vec![1; 60_000];
    assert_eq!(pool.array_read(oid, CHUNK_BYTES, 0, &mut back).unwrap(), 51_000);
    assert!(back[..1000].iter().all(|byte| *byte == 0) && back[1000..51_000] == data);
    assert_eq!(pool.get(oid, b"dkey", b"akey").unwrap().unwrap(), b"value");
    // Its root's shards lie at both engines, so the engines ask each other.
    pool.container_destroy("c").unwrap();
    assert!(pool.container_list().unwrap().is_empty());
}
