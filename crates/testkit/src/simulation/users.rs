//! The clients of a simulated pool: the real client library and the real file system on it, over a
//! simulated network. Owns how they are set up and how they are killed.

use std::sync::Arc;
use std::time::Duration;

use azekura_client::{ClientConfig, Objects as _, PoolFile, SecretSource};
use azekura_posix::{
    CachePolicy, Credentials, FileSystem, FsConfig, Namespace, ReadPolicy, Trust, WritePolicy,
};
use azekura_proto::ContainerId;
use azekura_proto::attr::Inheritance;
use azekura_proto::limits::CHUNK_BYTES_MIN;

use super::network::ClientNetwork;
use super::pool::Pool;
use crate::model::{Answer, Op, Outcome, Remote, Subject as _};

/// A request that has had no answer for so long has failed.
const PATIENCE: Duration = Duration::from_secs(20);
const CONTAINER: &str = "default";

/// What one client is to the pool.
struct User {
    client: Arc<azekura_client::Pool>,
    network: Arc<ClientNetwork>,
}

/// The clients, and what they have open.
pub(crate) struct Users {
    pool: Arc<Pool>,
    each: Vec<User>,
    remote: Remote,
}

impl User {
    fn new(pool: &Arc<Pool>) -> Self {
        let secret = SecretSource::Inline("ab".repeat(32));
        let file = PoolFile { map: pool.map().clone(), secret };
        let network = Arc::new(ClientNetwork::new(pool));
        let config = ClientConfig {
            request_timeout: PATIENCE,
            network: Some(Arc::clone(&network) as Arc<_>),
            platform: pool.client_platform(),
            ..ClientConfig::default()
        };
        let client = azekura_client::Pool::connect(&file, config).unwrap();
        Self { client, network }
    }

    /// The file system, which asks the engines about everything each time.
    fn mount(&self) -> Namespace {
        let config = FsConfig {
            cache: CachePolicy::None,
            check_permissions: true,
            read_policy: ReadPolicy::Off,
            write_policy: WritePolicy::Auto,
            descriptors: true,
            listed_from_us: None,
            listed_trust: Trust::ForAWhile,
            changes_in_flight: false,
            trace: None,
            platform: Arc::clone(self.client.platform()),
        };
        let fs = FileSystem::mount(Arc::clone(&self.client), CONTAINER, config);
        Namespace::new(fs.expect("the container is there"), Credentials::ROOT)
    }
}

impl Users {
    /// So many sessions on an empty container.
    pub(crate) fn new(pool: &Arc<Pool>, count: usize) -> Self {
        let users: Vec<User> = (0..count).map(|_| User::new(pool)).collect();
        let inheritance = Inheritance { chunk_bytes: CHUNK_BYTES_MIN, ..Inheritance::default() };
        users[0].client.container_create(CONTAINER, inheritance).unwrap();
        let remote = Remote::new(users.iter().map(User::mount).collect());
        Self { pool: Arc::clone(pool), each: users, remote }
    }

    /// Kills a client; another takes its place.
    pub(crate) fn replace(&mut self, client: usize) {
        let next = User::new(&self.pool);
        let mounted = next.mount();
        let killed = std::mem::replace(&mut self.each[client], next);
        killed.network.cut();
        self.remote.replace(client, mounted);
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.each.len()
    }

    /// The container that all of them use.
    pub(crate) fn container(&self) -> ContainerId {
        self.remote.client(0).filesystem().root().container()
    }

    /// Syncs the whole container.
    pub(crate) fn sync_all(&self, client: usize) -> Outcome {
        self.remote.client(client).filesystem().syncfs().map(|()| Answer::Done)
    }

    /// Carries out an operation.
    pub(crate) fn apply(&mut self, client: usize, op: &Op) -> Outcome {
        self.remote.apply(client, op)
    }
}

impl Drop for Users {
    fn drop(&mut self) {
        // The history is over: nobody says goodbye.
        for user in &self.each {
            user.network.cut();
        }
    }
}
