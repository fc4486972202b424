//! What all programs of a gateway share: the file system, who may use what of it, the key of the
//! handles, the answers that were given. Owns no socket, and knows no procedure.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use azekura_posix::{Errno, FileSystem, Oid};
use parking_lot::{Mutex, RwLock};

use crate::exports::{Export, Exports};
use crate::gather::Gather;
use crate::handle::{ExportId, HandleKey};
use crate::metrics::Metrics;
use crate::mounts::Mounts;
use crate::nlm4::Locks;
use crate::owner::Owner;
use crate::portmap::Mappings;
use crate::replies::ReplyCache;
use crate::rpc::{Auth, Call, RECORD_BYTES_MAX};

/// Longest READ and WRITE, in bytes.
pub(crate) const TRANSFER_BYTES_MAX: u32 = 1 << 20;
const _: () = assert!((TRANSFER_BYTES_MAX as usize) < RECORD_BYTES_MAX);

/// Answers that are kept for requests that come again.
const REPLIES_MAX: usize = 64 << 10;
/// How much memory they take at most, in bytes.
const REPLY_BYTES_MAX: usize = 64 << 20;

/// How a gateway serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GatewayConfig {
    /// Longest READ and WRITE that clients are told of, in bytes; `None` for the largest.
    pub block_bytes: Option<u32>,
    /// Whether UNSTABLE writes are gathered into whole chunks. Off, each goes to the engines by itself.
    pub coalesces: bool,
    /// Where the port mappers of clients listen, that lock managers are found by; 111, but for tests.
    pub client_portmap_port: u16,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self { block_bytes: None, coalesces: true, client_portmap_port: crate::portmap::PORT }
    }
}

/// One gateway to one container.
#[derive(Debug)]
pub struct Gateway {
    pub(crate) fs: Arc<FileSystem>,
    pub(crate) config: GatewayConfig,
    pub(crate) key: HandleKey,
    pub(crate) replies: ReplyCache,
    pub(crate) metrics: Metrics,
    pub(crate) mounts: Mounts,
    pub(crate) gather: Gather,
    pub(crate) locks: Arc<Locks>,
    pub(crate) mappings: RwLock<Mappings>,
    exports: RwLock<Arc<Exports>>,
    /// Where the exports begin, as far as somebody has asked.
    roots: Mutex<HashMap<ExportId, Oid>>,
    /// Names the file system to clients, together with the export.
    fsid: u64,
}

impl Gateway {
    /// A gateway to this file system. `secret`: the pool's, so that all its gateways make the same
    /// handles.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub fn new(
        fs: Arc<FileSystem>,
        exports: Exports,
        secret: &[u8],
        config: GatewayConfig,
    ) -> io::Result<Arc<Self>> {
        let pool = fs.pool().map().pool.0;
        let pool = u64::from_be_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|at: usize| pool[at]));
        Ok(Arc::new(Self {
            config,
            key: HandleKey::derive(secret),
            replies: ReplyCache::new(REPLIES_MAX, REPLY_BYTES_MAX),
            metrics: Metrics::default(),
            mounts: Mounts::default(),
            gather: Gather::new(Arc::clone(&fs), config.coalesces)?,
            locks: Arc::new(Locks::new(Arc::clone(&fs), config.client_portmap_port)),
            mappings: RwLock::default(),
            exports: RwLock::new(Arc::new(exports)),
            roots: Mutex::default(),
            fsid: pool ^ u64::from(fs.container().id.0),
            fs,
        }))
    }

    /// The file system behind it.
    pub fn file_system(&self) -> &FileSystem {
        &self.fs
    }

    /// What is exported now.
    pub fn exports(&self) -> Arc<Exports> {
        Arc::clone(&self.exports.read())
    }

    /// Exports something else from now on. Handles of what is exported no more are stale.
    pub fn set_exports(&self, exports: Exports) {
        *self.exports.write() = Arc::new(exports);
        self.roots.lock().clear();
    }

    /// What the numbers of programs and procedures were asked for how often, and how long that took.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// What has to be done about twice a second.
    pub fn tick(&self) {
        self.gather.tick();
        self.fs.pool().tick();
    }

    /// Sends on what was gathered, before the gateway ends, and waits for no more locks.
    pub fn flush(&self) {
        self.locks.stop();
        self.gather.flush_all();
    }

    /// How the export's objects are told from those of other file systems.
    pub(crate) fn fsid(&self, export: ExportId) -> u64 {
        self.fsid ^ export.0
    }

    /// The directory in which an export begins.
    pub(crate) fn root_of(&self, export: &Export) -> Result<Oid, Errno> {
        if let Some(root) = self.roots.lock().get(&export.id()) {
            return Ok(*root);
        }
        let root = self.walk(export.path())?;
        self.roots.lock().insert(export.id(), root);
        Ok(root)
    }

    /// Forgets where exports begin: their directories may have been made anew.
    pub(crate) fn forget_roots(&self) {
        self.roots.lock().clear();
    }

    /// The object at a path of the container; links are not followed, so that no export leads out of
    /// itself.
    pub(crate) fn walk(&self, path: &str) -> Result<Oid, Errno> {
        use azekura_posix::Credentials;
        path.split('/').filter(|name| !name.is_empty()).try_fold(self.fs.root(), |dir, name| {
            Ok(self.fs.lookup(&Credentials::ROOT, dir, name.as_bytes())?.oid)
        })
    }
}

/// Who asks, as far as a connection tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker<'c> {
    /// The address.
    pub(crate) address: IpAddr,
    /// The user, if the client is on this host.
    pub(crate) owner: &'c Owner,
}

/// What a procedure knows besides its arguments.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) gateway: &'a Gateway,
    /// Whose host asks.
    pub(crate) peer: IpAddr,
    pub(crate) auth: &'a Auth,
    pub(crate) exports: Arc<Exports>,
    /// Which user that is, if the host is this one.
    pub(crate) owner: &'a Owner,
}

impl<'a> Request<'a> {
    /// What a call is carried out with.
    pub(crate) fn new(
        gateway: &'a Gateway,
        asker: Asker<'a>,
        call: &'a Call<'_>,
        exports: Arc<Exports>,
    ) -> Self {
        Self { gateway, peer: asker.address, auth: &call.auth, exports, owner: asker.owner }
    }
}
