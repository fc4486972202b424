//! A pool in this process, and mounts of it. Owns the start and end of both.

use std::path::{Path, PathBuf};

use azekura_fuse::{CacheMode, Mount, MountConfig, Transport, mount};
use azekura_posix::{CachePolicy, FileSystem, FsConfig};
use azekura_proto::attr::Inheritance;
use azekura_testkit::{Cluster, UringAllowed};

const TARGETS: u16 = 4;

/// A pool with four targets, and directories to mount it on.
pub(crate) struct Mounts {
    cluster: Cluster,
    /// What `AZEKURA_FUSE_TRANSPORT=uring` asks for.
    uring: Option<UringAllowed>,
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

impl Mounts {
    pub(crate) fn start() -> Self {
        let is_asked_for = std::env::var("AZEKURA_FUSE_TRANSPORT").is_ok_and(|way| way == "uring");
        Self {
            cluster: Cluster::start(1, TARGETS, Inheritance::default()),
            uring: is_asked_for.then(UringAllowed::new).flatten(),
        }
    }

    /// Mounts the pool, in a session of its own, on a new directory `name`.
    pub(crate) fn mount(&self, name: &str, cache: CacheMode) -> Mounted {
        self.mount_as(name, |config| config.cache = cache)
    }

    /// As [`Mounts::mount`], with any configuration.
    pub(crate) fn mount_as(&self, name: &str, adjust: impl FnOnce(&mut MountConfig)) -> Mounted {
        let dir = self.cluster.scratch().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        let fs_config =
            FsConfig { cache: CachePolicy::None, check_permissions: false, ..FsConfig::default() };
        let fs = FileSystem::mount(self.cluster.pool(), "default", fs_config).unwrap();
        let mut config = MountConfig {
            mountpoint: dir.clone(),
            cache: CacheMode::Auto,
            allow_other: true,
            read_only: false,
            allow_suid: false,
            allow_devices: false,
            threads: None,
            transport: if self.uring.is_some() { Transport::Uring } else { Transport::Device },
            passthrough: true,
            fsname: "azekura:test".into(),
        };
        adjust(&mut config);
        Mounted { mount: mount(fs, config).unwrap(), dir }
    }
}
