//! A listening engine, with one client that calls it and another that asks over its socket.

#![allow(clippy::unwrap_used)] // a test

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use azekura_client::{ClientConfig, Objects as _, Pool, PoolFile, SecretSource};
use azekura_engine::{Engine, EngineConfig};
use azekura_proto::attr::Inheritance;
use azekura_proto::pool_map::{Address, EngineEntry};
use azekura_proto::{EngineId, ObjectClass, Oid, PoolId, PoolMap, TargetId};
use azekura_rpc::transport::{Direct, Network, Sockets};
use azekura_wire::Secret;

const ENGINE: EngineId = EngineId(0);
const CHUNK_BYTES: u32 = 64 * 1024;
const TARGETS: u16 = 3;

struct Host {
    engine: Engine,
    network: Arc<Direct>,
    file: PoolFile,
}

impl Host {
    fn start(dir: &Path) -> Self {
        let secret = dir.join("secret");
        Secret::generate().unwrap().save_new(&secret).unwrap();
        let config = EngineConfig {
            dir: dir.join("engine"),
            target_dirs: Vec::new(),
            target_count: TARGETS,
            listen: vec![Address::Unix(dir.join("socket"))],
            secret: Secret::load(&secret).unwrap(),
            metrics_listen: None,
        };
        let engines = vec![EngineEntry { addresses: config.listen.clone() }];
        let map = PoolMap::deal(PoolId([5; 16]), "p".to_owned(), engines, &[TARGETS]);
        Engine::format(&config, &map, ENGINE).unwrap();
        let engine = Engine::start(config).unwrap();
        assert_eq!(engine.id(), Some(ENGINE));
        let network = Arc::new(Direct::beside(Arc::new(Sockets::default())));
        network.add(ENGINE, engine.door());
        let file = PoolFile { map, secret: SecretSource::File(secret) };
        Self { engine, network, file }
    }

    /// A client that calls the engine, and one that knows its socket only.
    fn clients(&self) -> [Arc<Pool>; 2] {
        let network: Arc<dyn Network> = Arc::clone(&self.network) as _;
        [Some(network), None].map(|network| {
            Pool::connect(&self.file, ClientConfig { network, ..ClientConfig::default() }).unwrap()
        })
    }
}

fn some_data(count: usize, seed: u8) -> Vec<u8> {
    (0..count).map(|index| (index % 251) as u8 ^ seed).collect()
}

fn new_array(pool: &Pool) -> Oid {
    let container = pool.container_create("c", Inheritance::default()).unwrap();
    pool.allocate(container.id, ObjectClass::SX, 0, Some(TargetId(1))).unwrap()
}

#[test]
fn whoever_calls_and_whoever_asks_see_what_the_other_has_written() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::start(dir.path());
    let [calls, asks] = host.clients();
    let oid = new_array(&calls);
    // Small enough to be copied by the engine, and so large that it stays where it is.
    for (turn, count) in [(1, 100), (2, 30_000), (3, 900_000)] {
        for (writer, reader) in [(&calls, &asks), (&asks, &calls)] {
            let data = some_data(count, turn);
            writer.array_write(oid, CHUNK_BYTES, 77, &data).unwrap();
            let mut back = vec![0; count + 77];
            assert_eq!(reader.array_read(oid, CHUNK_BYTES, 0, &mut back).unwrap(), count + 77);
            assert!(back[..77].iter().all(|byte| *byte == 0) && back[77..] == data);
        }
    }
    assert!(!calls.is_remote(TargetId(0)) && calls.round_trip_us() <= 1);
    assert_eq!(calls.incarnation(TargetId(0)).unwrap(), asks.incarnation(TargetId(0)).unwrap());
    drop(calls);
    host.network.remove(ENGINE);
    let mut back = [0; 3];
    assert_eq!(asks.array_read(oid, CHUNK_BYTES, 77, &mut back).unwrap(), 3);
    drop(asks);
    host.engine.stop();
}

/// Calls under way, idle conversations and sockets alike let go of the engine that starts anew, and go on
/// with the one that has started.
#[test]
fn an_engine_that_starts_anew_is_called_on() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::start(dir.path());
    let clients = host.clients();
    let oid = new_array(&clients[0]);
    let (is_over, done) = (AtomicBool::new(false), AtomicU32::new(0));
    let Host { engine, network, .. } = host;
    let engine = std::thread::scope(|scope| {
        for (number, pool) in clients.iter().chain(&clients).enumerate() {
            let (is_over, done) = (&is_over, &done);
            scope.spawn(move || {
                let place = number as u64 * 300_000;
                for seed in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    let data = some_data(200_000, seed as u8);
                    pool.array_write(oid, CHUNK_BYTES, place, &data).unwrap();
                    let mut back = vec![0; data.len()];
                    pool.array_read(oid, CHUNK_BYTES, place, &mut back).unwrap();
                    assert!(back == data, "what was answered is there");
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut engine = engine;
        for _ in 0..3 {
            let before = done.load(Ordering::Relaxed);
            while done.load(Ordering::Relaxed) < before + 20 {
                std::thread::sleep(Duration::from_millis(1));
            }
            network.remove(ENGINE);
            engine = engine.restart().unwrap();
            network.add(ENGINE, engine.door());
        }
        is_over.store(true, Ordering::Relaxed);
        engine
    });
    drop(clients);
    network.remove(ENGINE);
    engine.stop();
}
