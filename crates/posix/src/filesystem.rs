//! The file system object: a pool, one of its containers, and how they are used. Owns what all
//! operations share: requests about entries and inodes, and what is known of directories. The
//! operations themselves stand in [`crate::ops`].

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use azekura_client::{ClientError, Objects as _, OpenReference, Pool};
use azekura_platform::SharedPlatform;
use azekura_policy::{ReadPolicy, WritePolicy};
use azekura_proto::attr::FileKind;
use azekura_proto::message::typed::GetAttr;
use azekura_proto::message::{Container, TypedRequest};
use azekura_proto::{Attr, Oid, Status, TargetId};

use crate::cache::DirCache;
use crate::changes::Changes;
use crate::errno::of_client;
use crate::known_files::KnownFiles;
use crate::layout::FileLayout;
use crate::listed::{Listings, Trust};
use crate::looked_up::LookedUpFiles;
use crate::newborn::Newborns;
use crate::privileges::AtFirstWrite;
use crate::read_lately::ReadLately;
use crate::reader::{Reading, Trace};
use crate::reopened::ReopenedFiles;
use crate::unsynced::Unsynced;
use crate::walked::FirstWalk;
use crate::writer::{Settled, Writing};
use crate::{Access, Credentials, Errno, OFlags, OpenFile, Result, permission};

/// How long what an engine said may be believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CachePolicy {
    /// Every operation asks the engines.
    None,
    /// Facts about directories, and names on the way of a path, are kept for up to this time.
    Auto {
        /// How long.
        ttl: Duration,
    },
}

impl CachePolicy {
    /// [`CachePolicy::Auto`] with its usual lifetime of one second.
    pub const AUTO: Self = Self::Auto { ttl: Duration::from_secs(1) };
}

/// How a file system is used.
#[derive(Clone, Debug)]
pub struct FsConfig {
    /// What is cached on the client's side.
    pub cache: CachePolicy,
    /// Check permissions here. Off where the kernel does it (`default_permissions`); ownership and
    /// setgid rules of new entries apply always.
    pub check_permissions: bool,
    /// How files are read whose data are far away.
    pub read_policy: ReadPolicy,
    /// How they are written.
    pub write_policy: WritePolicy,
    /// Whether open files whose engine is on this host may be read past it, through descriptors that it
    /// passes.
    pub descriptors: bool,
    /// What listings of directories bring along (attributes, and the directories beside those that are
    /// listed) is believed for as long as `cache` says, where a round trip over a network takes at least so many
    /// microseconds (with 0 everywhere): for calls by path that only look. `None`: never. It also needs a `read_policy` that
    /// reads ahead.
    pub listed_from_us: Option<u64>,
    /// Whether it is believed for that long in any case, or only under leases.
    pub listed_trust: Trust,
    /// Whether changes of names and of new objects are answered before they have arrived, where the pool is
    /// far and `write_policy` keeps writes in flight. Only for front ends that call [`FileSystem::drain`]
    /// before anything else could miss them.
    pub changes_in_flight: bool,
    /// Where requests for far files are written down, and why they were made.
    pub trace: Option<Arc<Trace>>,
    /// The clock and the threads.
    pub platform: SharedPlatform,
}

impl FsConfig {
    /// What processes that believe listings by themselves take for [`FsConfig::listed_from_us`], in microseconds: what
    /// a network takes.
    pub const LISTED_FROM_US: u64 = 50;
    /// What front ends take under whose leases others wait, or whose kernel believes as well.
    pub const LISTED_FOR_ALL_FROM_US: u64 = 1_000;
}

impl Default for FsConfig {
    fn default() -> Self {
        Self {
            cache: CachePolicy::AUTO,
            check_permissions: true,
            read_policy: ReadPolicy::default(),
            write_policy: WritePolicy::default(),
            descriptors: true,
            listed_from_us: None,
            listed_trust: Trust::ForAWhile,
            changes_in_flight: false,
            trace: None,
            platform: azekura_platform::system(),
        }
    }
}

/// Why a file system cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The pool has no such container.
    #[error("pool '{pool}' has no container '{container}': see 'azekura container list {pool}'")]
    NoContainer {
        /// The pool's name.
        pool: String,
        /// The container's name.
        container: String,
    },
    /// The pool did not answer.
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// One container seen as a file system. Shared by all threads of a front end.
#[derive(Debug)]
pub struct FileSystem {
    /// Itself, for what goes on beside the one who has begun it.
    pub(crate) me: Weak<Self>,
    pool: Arc<Pool>,
    container: Container,
    config: FsConfig,
    pub(crate) cache: DirCache,
    /// What listings have brought along.
    pub(crate) listed: Listings,
    /// Where a path led that was asked for with the container.
    pub(crate) first_walk: FirstWalk,
    /// Far files that were opened a moment ago.
    pub(crate) read_lately: ReadLately,
    pub(crate) reopened: ReopenedFiles,
    /// Far files that were looked up a moment ago, and opened with that.
    pub(crate) looked_up: LookedUpFiles,
    /// Files that nobody here has open.
    pub(crate) files: KnownFiles,
    /// Objects that nobody else can reach yet.
    pub(crate) newborns: Newborns,
    /// The own changes of files' data.
    pub(crate) changes: Arc<Changes>,
    /// What of them, and of other changes, may not be durable.
    pub(crate) unsynced: Unsynced,
    pub(crate) reading: Reading,
    pub(crate) writing: Arc<Writing>,
}

/// Why a container could not be opened.
pub(crate) fn not_mounted(pool: &Pool, name: &str, error: ClientError) -> MountError {
    match error {
        ClientError::Status(Status::NotFound) => {
            let (pool, container) = (pool.map().name.clone(), name.to_owned());
            MountError::NoContainer { pool, container }
        }
        other => MountError::Client(other),
    }
}

impl FileSystem {
    /// Opens a container of the pool (the one that each pool starts with is called `default`).
    ///
    /// # Errors
    /// If there is no such container, or the pool does not answer.
    pub fn mount(
        pool: Arc<Pool>,
        name: &str,
        config: FsConfig,
    ) -> std::result::Result<Arc<Self>, MountError> {
        let container = pool.container_open(name);
        let container = container.map_err(|error| not_mounted(&pool, name, error))?;
        Ok(Self::of_container(pool, container, config))
    }

    /// A container of the pool that somebody has opened before.
    pub fn of_container(pool: Arc<Pool>, container: Container, config: FsConfig) -> Arc<Self> {
        let ttl = match config.cache {
            CachePolicy::None => None,
            CachePolicy::Auto { ttl } => Some(ttl),
        };
        let cache = DirCache::new(ttl, Arc::clone(&config.platform));
        let files = KnownFiles::new(ttl, Arc::clone(&config.platform));
        // Leases are the session's, and what one file system of it changes, another one may have read
        // ahead.
        let changes = pool.attached(|| Changes::new(true));
        let changes = changes.unwrap_or_else(|| Arc::new(Changes::new(true)));
        let reads_ahead = !matches!(config.read_policy, ReadPolicy::Off);
        let listed = Listings::new(
            ttl,
            (config.listed_trust, config.listed_from_us.filter(|_| reads_ahead)),
            Arc::clone(&config.platform),
            Arc::clone(&changes),
        );
        let reading = Reading::new(
            Arc::clone(&pool),
            config.read_policy.clone(),
            config.trace.clone(),
            Arc::clone(&changes),
            Arc::clone(&config.platform),
        );
        let writing = Writing::new(
            Arc::clone(&pool),
            config.write_policy,
            Arc::clone(&changes),
            Arc::clone(&config.platform),
        );
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            pool,
            container,
            config,
            cache,
            listed,
            first_walk: FirstWalk::default(),
            read_lately: ReadLately::default(),
            reopened: ReopenedFiles::default(),
            looked_up: LookedUpFiles::default(),
            files,
            newborns: Newborns::default(),
            changes,
            unsynced: Unsynced::new(),
            reading,
            writing,
        })
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The container as it was at mount.
    pub fn container(&self) -> &Container {
        &self.container
    }

    /// The root directory.
    pub fn root(&self) -> Oid {
        self.container.root
    }

    /// The configuration.
    pub fn config(&self) -> &FsConfig {
        &self.config
    }

    /// The object with this inode number; 1 is the root (the number that FUSE gives it).
    ///
    /// # Errors
    /// `ESTALE` for a number that no object can have.
    pub fn object(&self, inode_number: u64) -> Result<Oid> {
        if inode_number == 1 {
            return Ok(self.root());
        }
        let oid = Oid::from_inode_number(self.container.id, inode_number).ok_or(Errno::STALE)?;
        if oid.home().0 < self.pool.target_count() { Ok(oid) } else { Err(Errno::STALE) }
    }

    /// An object that was opened just now, as a handle for this caller.
    pub(crate) fn handle(
        &self,
        reference: impl Into<Arc<OpenReference>>,
        attr: &Attr,
        caller: &Credentials,
        flags: OFlags,
    ) -> OpenFile {
        // Where the kernel checks, it also says of each write who writes: see `take_privileges`.
        let first = if self.checks() { AtFirstWrite::of(attr, caller) } else { None };
        OpenFile::new(
            reference.into(),
            attr,
            self.layout_of(attr),
            first,
            flags,
            self.writing.errors(),
        )
    }

    /// Where the data of a file with these attributes lie.
    pub(crate) fn layout_of(&self, attr: &Attr) -> FileLayout {
        FileLayout::new(attr, self.pool.placement(), self.pool.losses(attr.oid.home()))
    }

    pub(crate) fn now(&self) -> Instant {
        self.config.platform.now()
    }

    pub(crate) fn checks(&self) -> bool {
        self.config.check_permissions
    }

    /// The target that holds an entry.
    pub(crate) fn entry_target(&self, dir: Oid, name: &[u8]) -> TargetId {
        self.pool.placement().entry_target(dir, name)
    }

    pub(crate) fn call<'a, R: TypedRequest<'a>>(
        &self,
        target: TargetId,
        request: R,
    ) -> Result<R::Reply> {
        self.pool.call(target, request).map_err(|error| self.errno_of(&error))
    }

    /// The errno of a failure. Whoever asks for an object that is gone may have got it out of a listing.
    pub(crate) fn errno_of(&self, error: &ClientError) -> Errno {
        let errno = of_client(error);
        if errno == Errno::STALE {
            self.listed.doubt();
        }
        errno
    }

    /// A request about an entry. The directory being gone reads as the name not being there.
    pub(crate) fn call_entry<'a, R: TypedRequest<'a>>(
        &self,
        dir: Oid,
        name: &[u8],
        request: R,
    ) -> Result<R::Reply> {
        self.call(self.entry_target(dir, name), request).map_err(|errno| match errno {
            Errno::STALE => Errno::NOENT,
            other => other,
        })
    }

    /// The attributes of an object, whose own writes have arrived.
    pub(crate) fn attr_of(&self, settled: Settled) -> Result<Box<Attr>> {
        let oid = settled.oid();
        self.call(oid.home(), GetAttr { oid })
    }

    /// Attributes of a directory, kept for a moment; `ENOTDIR` for anything else. Only for what
    /// may be as old as the policy allows: mode, owner, inheritance, parent.
    pub(crate) fn dir_attr(&self, dir: Oid) -> Result<Arc<Attr>> {
        if let Some(attr) = self.cache.dir(dir) {
            return Ok(attr);
        }
        if let Some(attr) = self.newborn_directory(dir) {
            return Ok(attr);
        }
        let asked = self.cache.ask_dir(dir);
        let attr: Arc<Attr> = Arc::from(self.call(dir.home(), GetAttr { oid: dir })?);
        if attr.kind != FileKind::Directory {
            return Err(Errno::NOTDIR);
        }
        self.cache.keep_dir(asked, dir, &attr);
        Ok(attr)
    }

    /// Checks that the caller may look names up in a directory, if that is checked here.
    pub(crate) fn check_search(&self, caller: &Credentials, dir: Oid) -> Result<()> {
        if !self.checks() || caller.is_root() {
            return Ok(());
        }
        let wanted = Access { execute: true, ..Access::default() };
        permission::check(caller, &*self.parent_attr(dir)?, wanted)
    }

    /// Checks that the caller may make and remove names in a directory, if that is checked here.
    pub(crate) fn check_change(&self, caller: &Credentials, dir: &Attr) -> Result<()> {
        if !self.checks() {
            return Ok(());
        }
        permission::check(caller, dir, Access { write: true, execute: true, read: false })
    }

    /// As [`FileSystem::dir_attr`], for a directory in which a name is made, found or removed.
    pub(crate) fn parent_attr(&self, dir: Oid) -> Result<Arc<Attr>> {
        self.dir_attr(dir).map_err(|errno| match errno {
            Errno::STALE => Errno::NOENT,
            other => other,
        })
    }
}
