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
/// No client.
const NOBODY: usize = usize::MAX;
/// Where directories lead is believed for so long by clients that are far away.
const BELIEVED: Duration = Duration::from_millis(20);

/// What one client is to the pool.
struct User {
    is_far: bool,
    client: Arc<azekura_client::Pool>,
    network: Arc<ClientNetwork>,
}

/// The clients, and what they have open.
pub(crate) struct Users {
    pool: Arc<Pool>,
    is_far: bool,
    /// Who has done something last.
    last: usize,
    each: Vec<User>,
    remote: Remote,
}

impl User {
    fn new(pool: &Arc<Pool>, is_far: bool) -> Self {
        let secret = SecretSource::Inline("ab".repeat(32));
        let file = PoolFile { map: pool.map().clone(), secret };
        let network = Arc::new(ClientNetwork::new(pool, is_far));
        let config = ClientConfig {
            request_timeout: PATIENCE,
            network: Some(Arc::clone(&network) as Arc<_>),
            platform: pool.client_platform(),
            ..ClientConfig::default()
        };
        let client = azekura_client::Pool::connect(&file, config).unwrap();
        Self { is_far, client, network }
    }

    /// The file system: a near one asks the engines about everything each time, a far one believes and answers early
    /// whatever leases allow.
    fn mount(&self) -> Namespace {
        let is_far = self.is_far;
        let config = FsConfig {
            cache: if is_far { CachePolicy::Auto { ttl: BELIEVED } } else { CachePolicy::None },
            check_permissions: true,
            read_policy: if is_far { ReadPolicy::default() } else { ReadPolicy::Off },
            write_policy: if is_far { WritePolicy::Always } else { WritePolicy::Auto },
            descriptors: true,
            listed_from_us: is_far.then_some(0),
            listed_trust: if is_far { Trust::Leased } else { Trust::ForAWhile },
            changes_in_flight: is_far,
            trace: None,
            platform: Arc::clone(self.client.platform()),
        };
        let fs = FileSystem::mount(Arc::clone(&self.client), CONTAINER, config);
        Namespace::new(fs.expect("the container is there"), Credentials::ROOT)
    }
}

impl Users {
    /// So many sessions on an empty container.
    pub(crate) fn new(pool: &Arc<Pool>, count: usize, is_far: bool) -> Self {
        let users: Vec<User> = (0..count).map(|_| User::new(pool, is_far)).collect();
        let inheritance = Inheritance { chunk_bytes: CHUNK_BYTES_MIN, ..Inheritance::default() };
        users[0].client.container_create(CONTAINER, inheritance).unwrap();
        let remote = Remote::new(users.iter().map(User::mount).collect());
        let users = Self { pool: Arc::clone(pool), is_far, last: 0, each: users, remote };
        (0..count).for_each(|client| users.start_thread(client));
        users
    }

    /// Lets a far client's thread look after what it has in flight.
    fn start_thread(&self, client: usize) {
        if self.is_far {
            let fs = Arc::downgrade(self.remote.client(client).filesystem());
            let network = Arc::clone(&self.each[client].network);
            let upkeep = move || {
                if let Some(fs) = fs.upgrade() {
                    let_arrive(&fs, &network);
                }
            };
            self.pool.look_after(client, Arc::new(upkeep));
        }
    }

    /// Kills a client; another takes its place.
    pub(crate) fn replace(&mut self, client: usize) {
        self.pool.act_as(client);
        // What was answered and has not arrived would be lost with it.
        let_arrive(self.remote.client(client).filesystem(), &self.each[client].network);
        let next = User::new(&self.pool, self.is_far);
        let mounted = next.mount();
        let killed = std::mem::replace(&mut self.each[client], next);
        killed.network.cut();
        self.remote.replace(client, mounted);
        self.start_thread(client);
        self.pool.act_as(NOBODY);
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
    pub(crate) fn sync_all(&mut self, client: usize) -> Outcome {
        self.act(client, |remote| {
            remote.client(client).filesystem().syncfs().map(|()| Answer::Done)
        })
    }

    /// Lets a client do something. If it is another one than before, so much time has gone by before that nothing is
    /// believed without a lease. Before and after that everybody's threads go on.
    fn act<T>(&mut self, client: usize, act: impl FnOnce(&mut Remote) -> T) -> T {
        let is_other = std::mem::replace(&mut self.last, client) != client;
        if self.is_far && is_other {
            self.pool.sleep(BELIEVED + Duration::from_millis(1));
        }
        self.pool.act_as(client);
        let done = act(&mut self.remote);
        self.pool.act_as(NOBODY);
        done
    }

    /// Carries out an operation.
    pub(crate) fn apply(&mut self, client: usize, op: &Op) -> Outcome {
        self.act(client, |remote| remote.apply(client, op))
    }
}

/// What a client has been answered arrives.
fn let_arrive(fs: &FileSystem, network: &ClientNetwork) {
    network.with_all_arrived(|| {
        // What fails here is told to whoever goes on with the object.
        let _ = fs.look_after_changes();
        fs.look_after_writes();
    });
}

impl Drop for Users {
    fn drop(&mut self) {
        // The history is over: nobody says goodbye.
        for user in &self.each {
            user.network.cut();
        }
    }
}
