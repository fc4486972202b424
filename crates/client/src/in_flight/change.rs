//! One change that is on its way: what is asked, of whom, and what has to live until it is answered.

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use azekura_proto::attr::{AttrChange, DirectoryGuard, NewInode};
use azekura_proto::message::{NamesLease, Request, ShardRef};
use azekura_proto::{Oid, TargetId, Timestamp};

use super::concern::Concern;

/// What has to live until a change is answered, to be dropped after it.
pub(crate) type Held = Arc<dyn Any + Send + Sync>;

/// A shard of a directory whose names are leased.
pub type Leased = (Oid, u16);

/// What is changed. Doing one of these again, with all that came after it, leads to the same.
#[derive(Clone, Debug)]
pub enum Change {
    /// A new object with its entry.
    Create {
        /// The directory.
        dir: Oid,
        /// The name.
        name: Box<[u8]>,
        /// The object's number, which this session has drawn.
        oid: Oid,
        /// What it starts with.
        inode: Box<NewInode>,
        /// When it was made, in the engine's time.
        born: Timestamp,
        /// By what of the directory it was judged.
        guard: DirectoryGuard,
    },
    /// Attributes of an object that was made so.
    SetAttr {
        /// The object.
        oid: Oid,
        /// Which.
        change: Box<AttrChange>,
    },
    /// Times of a file that was made so, as they have been told.
    SettleTimes {
        /// The file.
        oid: Oid,
        /// When its contents were last changed, in the engine's time.
        mtime: Timestamp,
        /// When anything of it was.
        ctime: Timestamp,
    },
    /// Data of a file that was made so.
    Write {
        /// The shard.
        data: ShardRef,
        /// Where in the shard's file, in bytes.
        offset: u64,
        /// What is written.
        bytes: Vec<u8>,
    },
}

impl Change {
    /// The object that is changed.
    pub fn oid(&self) -> Oid {
        match self {
            Self::Create { oid, .. }
            | Self::SetAttr { oid, .. }
            | Self::SettleTimes { oid, .. } => *oid,
            Self::Write { data, .. } => data.oid,
        }
    }

    /// The directory that gets an entry.
    pub fn dir(&self) -> Option<Oid> {
        match self {
            Self::Create { dir, .. } => Some(*dir),
            Self::SetAttr { .. } | Self::SettleTimes { .. } | Self::Write { .. } => None,
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Write { bytes, .. } => bytes,
            Self::Create { .. } | Self::SetAttr { .. } | Self::SettleTimes { .. } => &[],
        }
    }
}

/// A change that has been sent, or is to be sent again.
#[derive(Debug)]
pub(crate) struct Posted {
    pub(crate) change: Change,
    pub(crate) target: TargetId,
    /// The lease that keeps others from the object.
    pub(crate) root: Leased,
    /// What is held open from its birth on: not released before the engine has opened it.
    pub(crate) reference: Option<Held>,
    pub(crate) sent: Instant,
    #[expect(dead_code, reason = "it counts for as long as it is here")]
    pub(crate) concern: Concern,
}

impl Posted {
    /// The request, under the lease of this epoch if there is one.
    pub(super) fn request(&self, epoch: Option<u64>) -> Request<'_> {
        match &self.change {
            Change::Create { dir, name, oid, inode, born, guard } => Request::CreateNumbered {
                dir: *dir,
                name,
                oid: *oid,
                inode: NewInode::clone(inode),
                born: *born,
                open: self.reference.is_some(),
                guard: *guard,
                under: epoch.map(|epoch| {
                    let (dir, shard) = self.root;
                    NamesLease { dir, shard, epoch }
                }),
            },
            Change::SetAttr { oid, change } => {
                Request::SetAttr { oid: *oid, change: AttrChange::clone(change) }
            }
            Change::SettleTimes { oid, mtime, ctime } => {
                Request::SettleTimes { oid: *oid, mtime: *mtime, ctime: *ctime }
            }
            Change::Write { data, offset, .. } => Request::Write { data: *data, offset: *offset },
        }
    }
}
