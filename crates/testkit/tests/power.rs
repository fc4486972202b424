//! Losses of power at chosen moments, of an engine with one target on a disk that loses what was not
//! synced, or a part of it, seed after seed.

#![allow(clippy::unwrap_used)] // a test

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use azekura_client::{ClientConfig, Objects as _, Pool, PoolFile, SecretSource};
use azekura_engine::{EngineDir, Service, ServiceParts};
use azekura_platform::system;
use azekura_posix::{
    AttrUpdate, Credentials, Errno, FileSystem, FsConfig, Namespace, OFlags, OpenOptions,
    RenameMode, SetTime, Timestamp, XattrMode,
};
use azekura_proto::attr::Inheritance;
use azekura_proto::pool_map::EngineEntry;
use azekura_proto::{EngineId, Oid, PoolId, PoolMap, SessionId};
use azekura_rpc::PeerClient;
use azekura_rpc::transport::Direct;
use azekura_store::{Environment, SimulatedDisk};
use azekura_wire::Secret;

const SEEDS: u64 = 60;

/// A pool of one engine.
struct Machine {
    disk: SimulatedDisk,
    network: Arc<Direct>,
    map: PoolMap,
}

impl Machine {
    fn new(seed: u64) -> Self {
        Self::with_targets(seed, 1)
    }

    fn with_targets(seed: u64, targets: u16) -> Self {
        let engines = vec![EngineEntry { addresses: Vec::new() }];
        let map = PoolMap::deal(PoolId([3; 16]), "p".to_owned(), engines, &[targets]);
        let disk = SimulatedDisk::new(system(), seed);
        let machine = Self { disk, network: Arc::default(), map };
        machine.dir().format(&machine.map, EngineId(0)).unwrap();
        machine
    }

    fn dir(&self) -> EngineDir {
        let environment = Environment::simulated(system(), &self.disk);
        EngineDir::new(environment, PathBuf::from("/engine"), Vec::new())
    }

    /// Starts the engine on what is on the disk.
    fn start(&self) -> Arc<Service> {
        let (network, secret) = (Arc::clone(&self.network), Secret::generate().unwrap());
        let peers = PeerClient::new(network, secret, SessionId([1; 16]), system());
        let parts = ServiceParts { dir: self.dir(), peers: Box::new(peers) };
        let service = Arc::new(Service::open(parts).unwrap());
        self.network.add(EngineId(0), Arc::clone(&service) as Arc<_>);
        service
    }

    fn mount(&self) -> Namespace {
        let secret = SecretSource::Inline("ab".repeat(32));
        let file = PoolFile { map: self.map.clone(), secret };
        let network = Some(Arc::clone(&self.network) as Arc<_>);
        let pool = Pool::connect(&file, ClientConfig { network, ..ClientConfig::default() });
        let pool = pool.unwrap();
        if pool.container_list().unwrap().is_empty() {
            pool.container_create("c", Inheritance::default()).unwrap();
        }
        let fs = FileSystem::mount(pool, "c", FsConfig::default()).unwrap();
        Namespace::new(fs, Credentials::ROOT)
    }

    fn cut_power(&self, service: Arc<Service>) {
        self.disk.cut_power();
        self.network.remove(EngineId(0));
        drop(service);
    }
}

fn write_synced(names: &Namespace, path: &str, data: &[u8]) {
    let file = names.open(path, &OpenOptions::create()).unwrap();
    file.write_all_at(data, 0).unwrap();
    file.sync().unwrap();
    file.close().unwrap();
}

#[test]
fn what_a_rename_replaces_goes_after_the_rename_is_durable() {
    for seed in 0..SEEDS {
        let machine = Machine::new(seed);
        let service = machine.start();
        let names = machine.mount();
        write_synced(&names, "/f", b"old contents");
        write_synced(&names, "/tmp", b"new contents");
        names.filesystem().syncfs().unwrap();
        names.rename("/tmp", "/f", RenameMode::Replace).unwrap();
        for _ in 0..4 {
            service.background_pass();
        }
        drop(names);
        machine.cut_power(service);
        let service = machine.start();
        let names = machine.mount();
        let found = names.read("/f").unwrap();
        assert!(found == b"old contents" || found == b"new contents", "seed {seed}: {found:?}");
        drop(names);
        machine.cut_power(service);
    }
}

#[test]
fn numbers_of_objects_are_given_once_also_after_a_loss_of_power() {
    for seed in 0..SEEDS {
        let machine = Machine::new(seed);
        let mut seen: BTreeSet<Oid> = BTreeSet::new();
        for run in 0..4 {
            let service = machine.start();
            let names = machine.mount();
            for number in 0..3 {
                let path = format!("/f.{run}.{number}");
                names.write(&path, path.as_bytes()).unwrap();
                let oid = names.metadata(&path).unwrap().oid;
                assert!(seen.insert(oid), "seed {seed}: {oid} was given twice");
            }
            drop(names);
            machine.cut_power(service);
        }
    }
}

#[test]
fn attributes_that_were_synced_survive_a_loss_of_power() {
    let times = [1_000_000_001, 2_000_000_002].map(|secs| Timestamp { secs, nanos: 7 });
    for seed in 0..SEEDS {
        let machine = Machine::new(seed);
        let service = machine.start();
        let names = machine.mount();
        for (path, data) in [("/empty", &b""[..]), ("/file", b"data")] {
            names.write(path, data).unwrap();
        }
        names.filesystem().syncfs().unwrap();
        for path in ["/empty", "/file"] {
            let file = names.open(path, &OpenOptions::create()).unwrap();
            let [atime, mtime] = times.map(|time| Some(SetTime::At(time)));
            let (mode, uid) = (Some(0o640), Some(17));
            let update = AttrUpdate { mode, uid, atime, mtime, ..AttrUpdate::default() };
            file.set_attr(&update).unwrap();
            names.set_xattr(path, b"user.x", b"value", XattrMode::Set).unwrap();
            file.sync().unwrap();
        }
        drop(names);
        machine.cut_power(service);
        let service = machine.start();
        let names = machine.mount();
        for path in ["/empty", "/file"] {
            let attr = names.metadata(path).unwrap();
            assert_eq!([attr.atime, attr.mtime], times, "seed {seed}: {path}");
            assert_eq!((attr.mode, attr.uid), (0o640, 17), "seed {seed}: {path}");
            assert_eq!(names.get_xattr(path, b"user.x").unwrap(), b"value", "seed {seed}: {path}");
        }
        drop(names);
        machine.cut_power(service);
    }
}

fn for_writing() -> OpenOptions {
    OpenOptions::new(OFlags::RDWR, 0)
}

/// What a client changed under an engine whose machine loses its power, or which is only killed.
fn changed_and_lost(power: bool, check: impl FnOnce(&Namespace)) {
    let machine = Machine::new(1);
    let service = machine.start();
    let names = machine.mount();
    for path in ["/written", "/clean", "/attributes"] {
        write_synced(&names, path, b"synced");
    }
    names.filesystem().fsync_dir(names.filesystem().root()).unwrap();
    names.write("/written", b"not synced").unwrap();
    let file = names.open("/attributes", &for_writing()).unwrap();
    file.set_attr(&AttrUpdate { mode: Some(0o600), ..AttrUpdate::default() }).unwrap();
    names.rename("/clean", "/renamed", RenameMode::Replace).unwrap();
    let before = names.open("/written", &for_writing()).unwrap();
    if power {
        machine.disk.cut_power();
    }
    machine.network.remove(EngineId(0));
    drop(service);
    let service = machine.start();
    check(&names);
    drop((file, before, names));
    machine.cut_power(service);
}

fn sync_of(names: &Namespace, path: &str) -> Result<(), Errno> {
    names.open(path, &for_writing())?.sync()
}

#[test]
fn a_sync_after_a_loss_of_power_tells_that_changes_are_lost_once() {
    changed_and_lost(true, |names| {
        let root = names.filesystem().root();
        // Whoever asks, and by whatever descriptor.
        assert_eq!(sync_of(names, "/written"), Err(Errno::IO));
        assert_eq!(sync_of(names, "/attributes"), Err(Errno::IO));
        assert_eq!(names.filesystem().fsync_dir(root), Err(Errno::IO));
        for path in ["/written", "/attributes"] {
            assert_eq!(sync_of(names, path), Ok(()), "it was told");
        }
        assert_eq!(names.filesystem().fsync_dir(root), Ok(()));
        // What is written anew counts again.
        write_synced(names, "/written", b"again");
        assert_eq!(names.read("/written").unwrap(), b"again");
    });
}

#[test]
fn what_a_killed_engine_has_answered_is_synced_by_the_next_run() {
    changed_and_lost(false, |names| {
        for path in ["/written", "/attributes", "/renamed"] {
            assert_eq!(sync_of(names, path), Ok(()));
        }
        names.filesystem().fsync_dir(names.filesystem().root()).unwrap();
        assert_eq!(names.read("/written").unwrap(), b"not synced");
    });
}

#[test]
fn what_is_written_after_a_loss_of_power_is_found_though_the_file_was_narrow_again() {
    for seed in 0..SEEDS {
        let machine = Machine::with_targets(seed, 4);
        let service = machine.start();
        let names = machine.mount();
        let chunk = u64::from(Inheritance::default().chunk_bytes);
        write_synced(&names, "/file", b"narrow");
        names.filesystem().syncfs().unwrap();
        let file = names.open("/file", &for_writing()).unwrap();
        file.write_all_at(b"wide", 2 * chunk).unwrap();
        machine.cut_power(service);
        let service = machine.start();
        // The engine knows nothing of the wide part, and is not told of it by any of these.
        file.write_all_at(b"again", 3 * chunk).unwrap();
        assert_eq!(file.sync(), Err(Errno::IO), "something was lost");
        file.write_all_at(b"once more", 2 * chunk).unwrap();
        file.sync().unwrap();
        let other = machine.mount();
        let seen = other.read("/file").unwrap();
        assert_eq!(seen.len() as u64, 3 * chunk + 5);
        assert_eq!(&seen[3 * chunk as usize..], b"again");
        assert_eq!(&seen[2 * chunk as usize..][..9], b"once more");
        drop((file, names, other));
        machine.cut_power(service);
    }
}
