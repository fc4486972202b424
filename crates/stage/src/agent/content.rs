//! One content on a node: how much of it has come, and where its bytes are: in memory until they are written,
//! in a file without a name, in the files of the tree. Owns that state and nothing else.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::agent::partial::Partial;
use crate::agent::succession::Succession;
use crate::fetch::After;
use crate::message::{ContentDescription, Supplier};
use crate::piece::{self, Buffer};
use crate::source::SourceFile;
use crate::supply::Bell;

/// A content.
#[derive(Default)]
pub(crate) struct Content(Mutex<State>);

/// How far it has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Stage {
    /// Another node has asked for it, and the front has not said yet what it is.
    #[default]
    Expected,
    /// Pieces come.
    Coming,
    /// All have come; they are being written.
    Whole,
    /// All of it has its names.
    InTree,
    /// There is no room for it: pieces come when programs read them, and are not kept.
    Through,
    /// It never will be whole, or it is here no more.
    Gone,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) stage: Stage,
    pub(crate) description: Option<Arc<ContentDescription>>,
    pub(crate) supplier: Option<Supplier>,
    /// Of the pieces that have come, in order.
    pub(crate) checksums: Vec<u64>,
    /// Pieces that are not written yet.
    pub(crate) held: BTreeMap<u32, Arc<Buffer>>,
    /// The name under which it is written; its bytes are read from `file`, which is open for nothing else.
    pub(crate) partial: Option<Partial>,
    pub(crate) file: Option<Arc<File>>,
    /// The same, written past the page cache.
    pub(crate) direct: Option<Arc<File>>,
    /// The file at home, if that is on this host and can be read.
    pub(crate) home: Option<Arc<dyn SourceFile>>,
    /// What programs read that have it open as it came, once it has its name.
    pub(crate) whole: Option<Arc<File>>,
    /// Programs that have it open as it comes.
    pub(crate) readers: usize,
    /// Of the pieces, whether programs were given some of them.
    pub(crate) given: Vec<bool>,
    /// How programs that have it open go on if it does not come any more.
    pub(crate) succession: Option<Succession>,
    /// The inode number that it has or will have.
    pub(crate) inode: u64,
    /// Pieces were given to programs that turned out to be none of this content.
    pub(crate) is_doubtful: bool,
    /// How fast its supplier's connection was; 0 if that is not known.
    pub(crate) bytes_per_second: u64,
    /// Wrong pieces since the last right one.
    pub(crate) wrong: u32,
    bells: Vec<Arc<Bell>>,
}

/// Whether a piece is what a content waits for.
pub(crate) enum Awaited {
    It(Arc<ContentDescription>),
    /// Whoever reads through knows.
    Through,
    Not(After),
}

/// What is known of a piece before its bytes are read.
pub(crate) enum Have {
    Nothing(Stage),
    End { digest: u64 },
    Memory { checksum: u64, bytes: Arc<Buffer> },
    Partial { checksum: u64, file: Arc<File>, description: Arc<ContentDescription> },
    InTree { checksum: u64, description: Arc<ContentDescription> },
    Through,
}

impl Content {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// What there is of a piece; the bell is kept if it has still to come.
    pub(crate) fn have(&self, index: u32, bell: &Arc<Bell>) -> Have {
        let mut state = self.lock();
        let Some(description) = state.description.clone() else {
            return state.wait(bell);
        };
        let place = index as usize;
        match state.stage {
            Stage::Expected => state.wait(bell),
            Stage::Gone => Have::Nothing(Stage::Gone),
            Stage::Through => Have::Through,
            Stage::Coming if place >= state.checksums.len() => state.wait(bell),
            _ if place >= state.checksums.len() => {
                Have::End { digest: piece::digest(&state.checksums) }
            }
            so_far => {
                let checksum = state.checksums[place];
                if let Some(bytes) = state.held.get(&index) {
                    Have::Memory { checksum, bytes: Arc::clone(bytes) }
                } else if let Some(file) = &state.file {
                    Have::Partial { checksum, file: Arc::clone(file), description }
                } else if let Some(file) = &state.whole {
                    Have::Partial { checksum, file: Arc::clone(file), description }
                } else if so_far == Stage::InTree {
                    Have::InTree { checksum, description }
                } else {
                    Have::Nothing(Stage::Gone)
                }
            }
        }
    }
}

impl State {
    /// Whether a piece is the next one, and from whom it is to come.
    pub(crate) fn awaits(&self, from: Supplier, index: u32) -> Awaited {
        match &self.description {
            _ if self.stage == Stage::Through => Awaited::Through,
            Some(description) if self.stage == Stage::Coming && self.supplier == Some(from) => {
                // Others were sent before the supplier heard that a piece is wanted again.
                let is_next = index as usize == self.checksums.len();
                if is_next {
                    Awaited::It(Arc::clone(description))
                } else {
                    Awaited::Not(After::Next)
                }
            }
            _ => Awaited::Not(After::Enough),
        }
    }

    /// Keeps a bell until there is more of it.
    pub(crate) fn keep(&mut self, bell: &Arc<Bell>) {
        if !self.bells.iter().any(|other| Arc::ptr_eq(other, bell)) {
            self.bells.push(Arc::clone(bell));
        }
    }

    /// Programs are given something of a piece.
    pub(crate) fn give(&mut self, index: u32) {
        let index = index as usize;
        if self.given.len() <= index {
            self.given.resize(index + 1, false);
        }
        self.given[index] = true;
    }

    fn wait(&mut self, bell: &Arc<Bell>) -> Have {
        self.keep(bell);
        Have::Nothing(self.stage)
    }

    /// Wakes those who wait for more of it.
    pub(crate) fn ring(&mut self) {
        for bell in self.bells.drain(..) {
            bell.ring();
        }
    }

    /// Ends it; nothing of it is kept.
    pub(crate) fn give_up(&mut self) {
        self.stage = Stage::Gone;
        self.held.clear();
        self.partial = None;
        self.file = None;
        self.direct = None;
        self.home = None;
        self.whole = None;
        self.checksums = Vec::new();
        self.given = Vec::new();
        self.ring();
    }
}
