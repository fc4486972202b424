//! Files that the kernel reads and writes by itself, in the file of this host that has their data. Owns which open
//! files those are: all of a node at once, since the kernel takes no other open of it beside; so what was decided
//! first holds until the last of them is closed. Whether anybody else may rely on the data meanwhile is the engine's
//! business.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use azekura_posix::{Errno, Oid};
use parking_lot::Mutex;

use crate::kernel::LentFile;

/// For files that are shorter, asking the engine and lending costs more than it saves.
pub(crate) const WORTH_BYTES: u64 = 64 * 1024;
/// After so many new files in a row that stayed shorter the next ones are taken to stay so, too.
const SHORT_IN_A_ROW: u32 = 4;

/// How the kernel uses a node that is open.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    /// It keeps pages and asks for what it does not have.
    Cached,
    /// By itself.
    Past(Arc<Past>),
}

/// A file that the kernel has been lent.
#[derive(Debug)]
pub(crate) struct Past {
    lent: LentFile,
    /// The engine knows that it may be written to.
    is_writable: AtomicBool,
}

#[derive(Debug)]
struct Node {
    opens: usize,
    way: Way,
}

/// The nodes that are open, and what new files have turned out to be.
#[derive(Debug, Default)]
pub(crate) struct Passthrough {
    nodes: Mutex<HashMap<Oid, Node>>,
    /// The kernel has refused a file in a way that will not change.
    is_refused: AtomicBool,
    short_in_a_row: AtomicU32,
}

/// An open file among those of its node.
#[derive(Debug)]
pub(crate) struct Opened {
    all: Arc<Passthrough>,
    oid: Oid,
    way: Way,
    /// It began empty.
    is_new: bool,
    /// How far it was written through requests.
    written_bytes: AtomicU64,
}

impl Passthrough {
    /// Adds an open file of a node; how the kernel uses it is decided with the first one.
    pub(crate) fn open(
        self: &Arc<Self>,
        oid: Oid,
        is_new: bool,
        decide: impl FnOnce() -> Way,
    ) -> Opened {
        let known = self.nodes.lock().get_mut(&oid).map(Node::join);
        let way = known.unwrap_or_else(|| {
            let decided = decide();
            let mut nodes = self.nodes.lock();
            // Another thread may have been first.
            nodes.entry(oid).or_insert(Node { opens: 0, way: decided }).join()
        });
        Opened { all: Arc::clone(self), oid, way, is_new, written_bytes: AtomicU64::new(0) }
    }

    /// Whether a node is open, and the kernel keeps pages of it.
    pub(crate) fn has_pages(&self, oid: Oid) -> bool {
        self.nodes.lock().get(&oid).is_some_and(|node| matches!(node.way, Way::Cached))
    }

    pub(crate) fn expects_long_files(&self) -> bool {
        self.short_in_a_row.load(Ordering::Relaxed) < SHORT_IN_A_ROW
    }

    /// A new file is so long by now; `is_over`: it stays so.
    fn note_length(&self, bytes: u64, is_over: bool) {
        if bytes >= WORTH_BYTES {
            self.short_in_a_row.store(0, Ordering::Relaxed);
        } else if is_over && self.expects_long_files() {
            self.short_in_a_row.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether the kernel may take files.
    pub(crate) fn may_lend(&self) -> bool {
        !self.is_refused.load(Ordering::Relaxed)
    }

    /// The kernel does not take a file.
    pub(crate) fn note_refused(&self, errno: Errno) {
        tracing::debug!("the kernel does not take a file to read and write by itself: {errno}");
        let is_for_good = matches!(errno, Errno::PERM | Errno::LOOP | Errno::OPNOTSUPP);
        if is_for_good && !self.is_refused.swap(true, Ordering::Relaxed) {
            tracing::info!("files are read and written through the mount's process: {errno}");
        }
    }
}

impl Past {
    /// The kernel has this file; `is_writable`: the engine knows that it may be written to.
    pub(crate) fn new(lent: LentFile, is_writable: bool) -> Arc<Self> {
        Arc::new(Self { lent, is_writable: AtomicBool::new(is_writable) })
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.is_writable.load(Ordering::Acquire)
    }

    /// The engine has been told.
    pub(crate) fn note_writable(&self) {
        self.is_writable.store(true, Ordering::Release);
    }
}

impl Node {
    fn join(&mut self) -> Way {
        self.opens += 1;
        self.way.clone()
    }
}

impl Opened {
    /// What the kernel has of the node, if it reads and writes by itself.
    pub(crate) fn past(&self) -> Option<&Past> {
        match &self.way {
            Way::Cached => None,
            Way::Past(past) => Some(past),
        }
    }

    /// The file that the kernel has, if it reads and writes by itself.
    pub(crate) fn lent(&self) -> Option<&LentFile> {
        self.past().map(|past| &past.lent)
    }

    /// The kernel has had data written up to here.
    pub(crate) fn note_written(&self, end: u64) {
        if self.is_new && self.written_bytes.fetch_max(end, Ordering::Relaxed) < WORTH_BYTES {
            self.all.note_length(end, false);
        }
    }

    /// The file is about to be closed; `length` tells how long it is.
    pub(crate) fn end(&self, length: impl FnOnce() -> Option<u64>) {
        if !self.is_new {
            return;
        }
        let bytes = match &self.way {
            Way::Cached => Some(self.written_bytes.load(Ordering::Relaxed)),
            Way::Past(_) => length(),
        };
        if let Some(bytes) = bytes {
            self.all.note_length(bytes, true);
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let mut nodes = self.all.nodes.lock();
        let Some(node) = nodes.get_mut(&self.oid) else { return };
        node.opens -= 1;
        // What it was lent is taken back without the lock.
        let gone = if node.opens == 0 { nodes.remove(&self.oid) } else { None };
        drop(nodes);
        drop(gone);
    }
}
