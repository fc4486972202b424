//! The state of one mount, as its requests see it: the file system behind it, what the kernel has
//! open, what it may keep, who waits. Owns the numbers of nodes. They are computed, not kept: a
//! node's number is its object's inode number, but for the root, which the protocol calls 1; so
//! there is no table of nodes and nothing to forget.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use azekura_posix::{Attr, Credentials, Errno, FileSystem, Oid};

use crate::answer::Result;
use crate::background::{Drops, Stale};
use crate::cache::{CacheMode, Changes, PlainFiles, Told, Versions};
use crate::convert;
use crate::dir_handle::DirHandle;
use crate::directories::{Directories, Removed, Xattrs};
use crate::file_handle::FileHandle;
use crate::handles::Handles;
use crate::kernel::{self, Entry, Header, Lender, Notifier};
use crate::passthrough::Passthrough;
use crate::view::View;
use crate::waiters::Waiters;

/// What the protocol calls the root.
const ROOT: u64 = 1;
const PRIVILEGES_TTL: Duration = Duration::from_secs(1);

/// One mount. Its operations stand in [`crate::ops`].
#[derive(Debug)]
pub(crate) struct FrontEnd {
    pub(crate) fs: Arc<FileSystem>,
    pub(crate) cache: CacheMode,
    pub(crate) files: Handles<FileHandle>,
    pub(crate) dirs: Handles<DirHandle>,
    pub(crate) versions: Versions,
    pub(crate) told: Told,
    pub(crate) changes: Changes,
    pub(crate) waiters: Arc<Waiters>,
    /// Whether anybody has ever locked a range here; until then closing has nothing to unlock.
    pub(crate) has_ranges: AtomicBool,
    pub(crate) drops: Drops,
    pub(crate) view: View,
    /// How long an open file is believed to have no set-id bits and capabilities from another client.
    pub(crate) privileges_ttl: Duration,
    pub(crate) plain: PlainFiles,
    pub(crate) directories: Directories,
    pub(crate) passthrough: Arc<Passthrough>,
    /// The kernel, once it has shaken hands.
    pub(crate) kernel: OnceLock<KernelSide>,
}

/// What requests need of the kernel beside their own answers.
#[derive(Debug)]
pub(crate) struct KernelSide {
    pub(crate) notifier: Notifier,
    /// It says with each write whether set-id bits have to go.
    pub(crate) tells_of_set_id: bool,
    /// What lends it files, if it takes any.
    pub(crate) lender: Option<Lender>,
}

impl FrontEnd {
    /// For a pool that is far nothing is asked while a file is written.
    pub(crate) fn new(
        fs: Arc<FileSystem>,
        is_far: bool,
        cache: CacheMode,
        drops: Drops,
        view: View,
    ) -> Self {
        Self {
            fs,
            cache,
            files: Handles::default(),
            dirs: Handles::default(),
            versions: Versions::new(),
            told: Told::new(),
            changes: Changes::default(),
            waiters: Arc::default(),
            has_ranges: AtomicBool::new(false),
            drops,
            view,
            privileges_ttl: if is_far { Duration::MAX } else { PRIVILEGES_TTL },
            plain: PlainFiles::new(),
            directories: Directories::new(),
            passthrough: Arc::default(),
            kernel: OnceLock::new(),
        }
    }

    /// Who asks.
    pub(crate) fn caller(&self, header: &Header<'_>) -> Credentials {
        self.view.caller(header)
    }

    /// The object of a node.
    pub(crate) fn object(&self, node: u64) -> Result<Oid> {
        self.fs.object(node)
    }

    /// The node of an object, which is also the inode number that programs are shown.
    pub(crate) fn number(&self, oid: Oid) -> u64 {
        if oid == self.fs.root() { ROOT } else { oid.inode_number() }
    }

    pub(crate) fn now(&self) -> Instant {
        self.fs.config().platform.now()
    }

    pub(crate) fn ttl(&self) -> Duration {
        self.cache.ttl()
    }

    /// How long the kernel may keep attributes that a change has brought about.
    pub(crate) fn life_of(&self, attr: &Attr) -> Duration {
        if self.fs.has_guessed_times(attr.oid) { Duration::ZERO } else { self.ttl() }
    }

    pub(crate) fn kernel_attr(&self, attr: &Attr) -> kernel::Attr {
        self.plain.note(attr, self.now());
        if self.told.note(attr) {
            self.drop_pages(attr.oid);
        }
        self.directories.note(attr);
        self.view.show(attr, convert::attr(attr, self.number(attr.oid)))
    }

    pub(crate) fn entry(&self, attr: &Attr) -> Entry {
        Entry {
            node: self.number(attr.oid),
            // Serial numbers are never used again.
            generation: 0,
            entry_ttl: self.ttl(),
            attr_ttl: self.life_of(attr),
            attr: self.kernel_attr(attr),
        }
    }

    /// As [`FrontEnd::entry`], for what a name of a directory leads to.
    pub(crate) fn named_entry(&self, dir: Oid, name: &[u8], attr: &Attr) -> Entry {
        let entry = self.entry(attr);
        self.directories.note_name(dir, name, attr);
        entry
    }

    /// The same of what was asked for a while ago, and may be believed for so long from now on.
    pub(crate) fn entry_told(&self, dir: Oid, name: &[u8], attr: &Attr, left: Duration) -> Entry {
        let entry = self.named_entry(dir, name, attr);
        let left = left.min(self.ttl());
        if let Some(asked) = self.now().checked_sub(self.ttl().saturating_sub(left)) {
            // Not known since now.
            self.plain.note(attr, asked);
        }
        entry.believed_for(left)
    }

    /// What came of asking for an object, or what `act` says if that is a directory which was removed
    /// while the kernel has it in use. One that another client has removed counts while it is open
    /// here: of one that is not, the kernel has to hear that the name is gone.
    pub(crate) fn or_removed<T>(
        &self,
        asked: Result<T>,
        oid: Oid,
        act: impl FnOnce(&mut Removed) -> Result<T>,
    ) -> Result<T> {
        if !matches!(asked, Err(Errno::STALE)) {
            return asked;
        }
        if !self.directories.has_removed(oid) {
            let mut is_open = false;
            self.dirs.for_each(|dir| is_open |= dir.oid == oid);
            if let (true, Some(attr)) = (is_open, self.directories.last_known(oid)) {
                self.directories.remove(attr, Xattrs::new());
            }
        }
        self.directories.with_removed(oid, act).unwrap_or(asked)
    }

    /// The kernel's pages of a file that is open may be old, and it does not see that by its attributes.
    pub(crate) fn drop_pages(&self, oid: Oid) {
        if self.passthrough.has_pages(oid) {
            self.drops.send(Stale { node: self.number(oid), offset: 0 });
        }
    }

    /// The kernel's attributes of a node are not true any more, from before this request's answer on.
    pub(crate) fn drop_attributes(&self, node: u64) {
        let Some(kernel) = self.kernel.get() else { return };
        // A negative offset leaves the data alone, so that the kernel waits for nobody.
        if let Err(errno) = kernel.notifier.invalidate_node(node, -1, 0) {
            tracing::debug!("the kernel did not drop the attributes of node {node}: {errno}");
        }
    }

    /// Carries out a change; what was read before it is not handed out any more.
    pub(crate) fn change<T>(&self, change: impl FnOnce() -> Result<T>) -> Result<T> {
        let result = change();
        self.changes.add();
        result
    }
}
