//! A pool in this process, and mounts of it. Owns the start and end of both.

#![allow(clippy::unwrap_used, reason = "a failure here fails the test, with its place")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use azekura_client::{ClientConfig, Objects as _, Pool, PoolFile, SecretSource};
use azekura_engine::{Engine, EngineConfig};
use azekura_fuse::{CacheMode, Mount, MountConfig, mount};
use azekura_posix::{CachePolicy, FileSystem, FsConfig};
use azekura_proto::attr::Inheritance;
use azekura_proto::pool_map::{Address, EngineEntry};
use azekura_proto::{EngineId, PoolId, PoolMap};
use azekura_wire::Secret;

const TARGETS: u16 = 4;

/// An engine with four targets, and directories to mount on.
pub(crate) struct Stand {
    dir: tempfile::TempDir,
    engine: Option<Engine>,
    file: PoolFile,
}

/// A mount that ends with the test.
pub(crate) struct Mounted {
    mount: Mount,
    dir: PathBuf,
}

impl Mounted {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn mount(&self) -> &Mount {
        &self.mount
    }
}

/// Whether this machine lets this process mount; if not, says so.
pub(crate) fn can_mount() -> bool {
    let device = std::fs::File::options().read(true).write(true).open("/dev/fuse");
    let root = rustix::process::geteuid().is_root();
    match (device, root) {
        (Ok(_), true) => true,
        (Err(error), _) => {
            eprintln!("skipped: /dev/fuse cannot be opened: {error}");
            false
        }
        (_, false) => {
            eprintln!("skipped: mounting in tests needs root");
            false
        }
    }
}

/// A directory in memory, if there is one: the tests are not about disks.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

impl Stand {
    pub(crate) fn start() -> Self {
        let dir = scratch();
        let secret_file = dir.path().join("secret");
        let secret = Secret::generate().unwrap();
        secret.save_new(&secret_file).unwrap();
        let address = Address::Unix(dir.path().join("engine.sock"));
        let entry = EngineEntry { addresses: vec![address.clone()] };
        let map = PoolMap::deal(PoolId([9; 16]), "test".into(), vec![entry], &[TARGETS]);
        let config = EngineConfig {
            dir: dir.path().join("engine"),
            target_dirs: Vec::new(),
            target_count: TARGETS,
            listen: vec![address],
            secret,
            metrics_listen: None,
        };
        Engine::format(&config, &map, EngineId(0)).unwrap();
        let engine = Engine::start(config).unwrap();
        let file = PoolFile { map, secret: SecretSource::File(secret_file) };
        let stand = Self { dir, engine: Some(engine), file };
        stand.pool().container_create("default", Inheritance::default()).unwrap();
        stand
    }

    fn pool(&self) -> Arc<Pool> {
        let config =
            ClientConfig { request_timeout: Duration::from_secs(20), ..ClientConfig::default() };
        Pool::connect(&self.file, config).unwrap()
    }

    /// Mounts the pool, in a session of its own, on a new directory `name`.
    pub(crate) fn mount(&self, name: &str, cache: CacheMode) -> Mounted {
        self.mount_as(name, |config| config.cache = cache)
    }

    /// As [`Stand::mount`], with any configuration.
    pub(crate) fn mount_as(&self, name: &str, adjust: impl FnOnce(&mut MountConfig)) -> Mounted {
        let dir = self.dir.path().join(name);
        std::fs::create_dir(&dir).unwrap();
        let fs_config =
            FsConfig { cache: CachePolicy::None, check_permissions: false, ..FsConfig::default() };
        let fs = FileSystem::mount(self.pool(), "default", fs_config).unwrap();
        let mut config = MountConfig {
            mountpoint: dir.clone(),
            cache: CacheMode::Auto,
            allow_other: true,
            read_only: false,
            threads: None,
            fsname: "azekura:test".into(),
        };
        adjust(&mut config);
        Mounted { mount: mount(fs, config).unwrap(), dir }
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.take() {
            engine.stop();
        }
    }
}
