//! A small pool in this process: engines in a temporary directory, killed and started again when a
//! test says so. Owns their start and end.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use azekura_client::{ClientConfig, Objects as _, Pool, PoolFile, SecretSource};
use azekura_engine::{Engine, EngineConfig};
use azekura_posix::{
    CachePolicy, Credentials, FileSystem, FsConfig, Namespace, ReadPolicy, WritePolicy,
};
use azekura_proto::attr::Inheritance;
use azekura_proto::pool_map::{Address, EngineEntry};
use azekura_proto::{EngineId, PoolId, PoolMap};
use azekura_wire::Secret;

/// The engines of a pool.
pub struct Cluster {
    dir: tempfile::TempDir,
    configs: Vec<EngineConfig>,
    engines: Vec<Option<Engine>>,
    file: PoolFile,
}

/// A directory in memory, if there is one: the tests are not about disks.
pub(crate) fn scratch() -> tempfile::TempDir {
    let memory = PathBuf::from("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.unwrap()
}

/// An address of this machine on which nobody listens. Of numbers that the kernel does not give to
/// outgoing connections: those of other tests would take one in the moment before the engine does.
fn free_port() -> String {
    const FIRST: u32 = 15_000;
    const COUNT: u32 = 15_000;
    static DRAWN: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(97);
    (0..COUNT)
        .map(|_| start.wrapping_add(DRAWN.fetch_add(1, Ordering::Relaxed)) % COUNT + FIRST)
        .map(|port| format!("127.0.0.1:{port}"))
        .find(|address| TcpListener::bind(address).is_ok())
        .expect("some port is free")
}

fn unix_socket(dir: &Path, index: u16) -> Vec<Address> {
    vec![Address::Unix(dir.join(format!("{index}.sock")))]
}

impl Cluster {
    /// Starts a pool with the container `default` on UNIX sockets.
    pub fn start(engines: u16, targets_each: u16, inheritance: Inheritance) -> Self {
        Self::start_on(scratch(), engines, targets_each, inheritance, false, unix_socket)
    }

    /// The same, below a directory that somebody else removes: for programs that end without dropping
    /// what they have.
    pub fn start_below(parent: &Path, engines: u16, targets_each: u16) -> Self {
        let dir = tempfile::tempdir_in(parent).unwrap();
        Self::start_on(dir, engines, targets_each, Inheritance::default(), false, unix_socket)
    }

    /// The same, reached over the loopback interface only, with metrics.
    pub fn start_far(engines: u16, targets_each: u16, inheritance: Inheritance) -> Self {
        let address = |_: &Path, _| vec![Address::Tcp(free_port())];
        Self::start_on(scratch(), engines, targets_each, inheritance, true, address)
    }

    /// Starts a pool on UNIX sockets, which others reach over the loopback interface ([`Self::far_pool`]), with
    /// metrics.
    pub fn start_near_and_far(engines: u16, targets_each: u16, inheritance: Inheritance) -> Self {
        let address = |dir: &Path, index| {
            let mut all = unix_socket(dir, index);
            all.push(Address::Tcp(free_port()));
            all
        };
        Self::start_on(scratch(), engines, targets_each, inheritance, true, address)
    }

    /// How often the first engine has been asked for something since it started; it has metrics.
    pub fn count(&self, request: &str) -> u64 {
        self.counts().get(request).copied().unwrap_or(0)
    }

    /// What the first engine has been asked for since it started, and how often; it has metrics.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.counts_of(0)
    }

    /// As [`Self::count`], of all engines; they have metrics.
    pub fn count_at_all(&self, request: &str) -> u64 {
        let of_each = (0..self.configs.len())
            .map(|engine| self.counts_of(engine).get(request).copied().unwrap_or(0));
        of_each.sum()
    }

    fn counts_of(&self, engine: usize) -> BTreeMap<String, u64> {
        let text = self.metrics(engine);
        let counts = text.lines().filter_map(|line| {
            let (kind, count) = line.split_once("_requests_total{kind=\"")?.1.split_once("\"} ")?;
            Some((kind.to_owned(), count.parse().unwrap()))
        });
        counts.collect()
    }

    /// What the first engine is asked for meanwhile, but for what is given back: that travels along
    /// with something else, or when the client has time for it, and then nobody waits for it.
    pub fn asked(&self, act: impl FnOnce()) -> BTreeMap<String, u64> {
        let before = self.counts();
        act();
        let mut news = self.counts();
        news.retain(|kind, _| !["release", "release_write"].contains(&kind.as_str()));
        for (kind, count) in &mut news {
            *count -= before.get(kind).copied().unwrap_or(0);
        }
        news.retain(|_, count| *count > 0);
        news
    }

    /// How many connections the first engine has; it has metrics.
    pub fn connections(&self) -> u64 {
        let text = self.metrics(0);
        let line = text.lines().find_map(|line| line.strip_prefix("azekura_engine_connections "));
        line.unwrap().parse().unwrap()
    }

    fn metrics(&self, engine: usize) -> String {
        let address = self.configs[engine].metrics_listen.as_ref().unwrap();
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    fn start_on(
        dir: tempfile::TempDir,
        engines: u16,
        targets_each: u16,
        inheritance: Inheritance,
        metrics: bool,
        addresses: impl Fn(&Path, u16) -> Vec<Address>,
    ) -> Self {
        // Shown with the output of a test that fails. Another test may have set it up.
        let _ = tracing_subscriber::fmt().with_test_writer().try_init();
        let secret_file = dir.path().join("secret");
        let secret = Secret::generate().unwrap();
        secret.save_new(&secret_file).unwrap();
        let addresses: Vec<Vec<Address>> =
            (0..engines).map(|index| addresses(dir.path(), index)).collect();
        let entries = addresses
            .iter()
            .map(|addresses| EngineEntry { addresses: addresses.clone() })
            .collect();
        let counts = vec![targets_each; usize::from(engines)];
        let map = PoolMap::deal(PoolId([7; 16]), "test".to_owned(), entries, &counts);
        let configs: Vec<EngineConfig> = (0..engines)
            .map(|index| EngineConfig {
                dir: dir.path().join(format!("engine{index}")),
                target_dirs: Vec::new(),
                target_count: targets_each,
                listen: addresses[usize::from(index)].clone(),
                secret: secret.clone(),
                metrics_listen: metrics.then(free_port),
            })
            .collect();
        let mut running = Vec::new();
        for (index, config) in configs.iter().enumerate() {
            Engine::format(config, &map, EngineId(index as u16)).unwrap();
            running.push(Some(Engine::start(config.clone()).unwrap()));
        }
        let file = PoolFile { map, secret: SecretSource::File(secret_file) };
        let cluster = Self { dir, configs, engines: running, file };
        cluster.pool().container_create("default", inheritance).unwrap();
        cluster
    }

    /// A session of its own.
    pub fn pool(&self) -> Arc<Pool> {
        let config =
            ClientConfig { request_timeout: Duration::from_secs(20), ..ClientConfig::default() };
        Pool::connect(&self.file, config).unwrap()
    }

    /// A session that sees no socket of this host.
    pub fn far_pool(&self) -> Arc<Pool> {
        let mut file = self.file.clone();
        for engine in &mut file.map.engines {
            engine.addresses.retain(|address| matches!(address, Address::Tcp(_)));
        }
        Pool::connect(&file, ClientConfig::default()).unwrap()
    }

    /// How to reach the pool.
    pub fn file(&self) -> &PoolFile {
        &self.file
    }

    /// A file system over a session of its own.
    pub fn mount(&self, cache: CachePolicy) -> Arc<FileSystem> {
        self.mount_reading(cache, ReadPolicy::default())
    }

    /// The same, with files read by a policy.
    pub fn mount_reading(&self, cache: CachePolicy, read_policy: ReadPolicy) -> Arc<FileSystem> {
        let config = FsConfig { cache, read_policy, ..FsConfig::default() };
        FileSystem::mount(self.pool(), "default", config).unwrap()
    }

    /// The same, with writes kept in flight whatever the link.
    pub fn mount_writing(&self, cache: CachePolicy, read_policy: ReadPolicy) -> Arc<FileSystem> {
        let write_policy = WritePolicy::Always;
        let config = FsConfig { cache, read_policy, write_policy, ..FsConfig::default() };
        FileSystem::mount(self.pool(), "default", config).unwrap()
    }

    /// The file system by path, as root, in a session of its own.
    pub fn root(&self) -> Namespace {
        Namespace::new(self.mount(CachePolicy::None), Credentials::ROOT)
    }

    /// A directory that goes with the cluster.
    pub fn scratch(&self) -> PathBuf {
        self.dir.path().join("scratch")
    }

    /// Stops an engine.
    pub fn stop(&mut self, engine: usize) {
        if let Some(engine) = self.engines[engine].take() {
            engine.stop();
        }
    }

    /// Starts a stopped engine again.
    pub fn restart(&mut self, engine: usize) {
        self.stop(engine);
        self.engines[engine] = Some(Engine::start(self.configs[engine].clone()).unwrap());
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for engine in self.engines.iter_mut().filter_map(Option::take) {
            engine.stop();
        }
    }
}
