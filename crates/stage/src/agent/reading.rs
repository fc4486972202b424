//! Reading what has not all come: what programs get of a content before it has its name in the tree, and of
//! one that there is no room for. Owns the rule that they get pieces of one version, each with a checksum that
//! was right, and an error instead of anything else.

use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use azekura_proto::staging::Attributes;
use rustix::io::Errno;

use crate::agent::content::{Content, Have, Stage, State};
use crate::agent::eviction::is_full;
use crate::agent::incoming::{Incoming, WRONG_MAX};
use crate::agent::window::Glance;
use crate::fetch::{After, PieceHead, Wish};
use crate::message::{ContentDescription, ContentId, Supplier, ToFront};
use crate::piece::{self, Buffer};
use crate::supply::Bell;

/// What came of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reading {
    /// So many bytes are there.
    Done(usize),
    /// Some have still to come; the bell rings when there is more.
    NotYet,
    /// It is of no use to wait.
    Failed,
}

/// What came of a read of a content itself, whatever comes after it.
pub(super) enum Own {
    Read(Reading),
    /// It does not come any more.
    Gone,
}

/// What can be opened.
pub(crate) struct Openable {
    pub(crate) attributes: Attributes,
    pub(crate) inode: u64,
}

impl Incoming {
    /// What programs are told of a content that they have open, or may open.
    pub(crate) fn openable(&self, id: ContentId, is_open: bool) -> Option<Openable> {
        let content = self.known(id)?;
        let state = content.lock();
        let may_be_opened = match state.stage {
            Stage::Coming | Stage::Whole => !state.is_doubtful,
            Stage::Through => true,
            // The name in the tree is better.
            Stage::InTree => state.whole.is_some(),
            Stage::Expected | Stage::Gone => false,
        };
        let description = state.description.as_ref().filter(|_| is_open || may_be_opened)?;
        let [part] = &description.parts[..] else { return None };
        Some(Openable { attributes: part.attributes.clone(), inode: state.inode })
    }

    /// A program opens a content; false if it has to ask for it again.
    pub(crate) fn open_reader(&self, id: ContentId) -> bool {
        if self.openable(id, false).is_none() {
            return false;
        }
        self.content(id).lock().readers += 1;
        true
    }

    /// A program has closed it.
    pub(crate) fn close_reader(&self, id: ContentId) {
        let Some(content) = self.known(id) else { return };
        let mut state = content.lock();
        state.readers = state.readers.saturating_sub(1);
        if state.readers > 0 {
            return;
        }
        state.whole = None;
        if state.stage == Stage::Through {
            // Whoever opens it next may find that there is room.
            self.give_up(&mut state, id, "nobody has it open");
            self.fetcher.give_up(Supplier::Front, id);
        }
        let succession = state.succession.take();
        drop(state);
        if let Some(succession) = succession {
            self.forget_succession(&succession, id);
        }
    }

    /// Whether some program has something open that has not come.
    pub(crate) fn has_readers(&self) -> bool {
        self.all().iter().any(|content| content.lock().readers > 0)
    }

    /// Reads bytes of a content.
    pub(crate) fn read(
        self: &Arc<Self>,
        id: ContentId,
        offset: u64,
        into: &mut [u8],
        bell: &Arc<Bell>,
    ) -> Reading {
        if self.is_over.load(Ordering::Acquire) {
            return Reading::Failed;
        }
        let Some(content) = self.known(id) else { return Reading::Failed };
        let Some(description) = content.lock().description.clone() else { return Reading::Failed };
        let end = (offset + into.len() as u64).min(description.bytes());
        if offset >= end {
            return Reading::Done(0);
        }
        let piece_bytes = u64::from(description.piece_bytes);
        let (first, last) = ((offset / piece_bytes) as u32, ((end - 1) / piece_bytes) as u32);
        for index in first..=last {
            let from = description.offset_of(index);
            let to = from + description.bytes_of(index) as u64;
            let (begin, stop) = (offset.max(from), end.min(to));
            let target = &mut into[(begin - offset) as usize..(stop - offset) as usize];
            let read = self.read_piece(&content, id, index, (begin - from) as usize, target, bell);
            if read != Reading::Done(0) {
                return read;
            }
        }
        Reading::Done((end - offset) as usize)
    }

    /// Reads a part of a piece; `Done(0)` if it is there.
    fn read_piece(
        self: &Arc<Self>,
        content: &Content,
        id: ContentId,
        index: u32,
        from: usize,
        into: &mut [u8],
        bell: &Arc<Bell>,
    ) -> Reading {
        match self.read_own(content, id, index, from, into, bell) {
            Own::Read(read) => read,
            Own::Gone => self.read_later(content, id, index, from, into, bell),
        }
    }

    /// The same, as long as this content comes.
    pub(super) fn read_own(
        self: &Arc<Self>,
        content: &Content,
        id: ContentId,
        index: u32,
        from: usize,
        into: &mut [u8],
        bell: &Arc<Bell>,
    ) -> Own {
        let (file, offset) = match content.have(index, bell) {
            Have::Nothing(Stage::Gone) => return Own::Gone,
            Have::End { .. } | Have::InTree { .. } => return Own::Read(Reading::Failed),
            Have::Nothing(_) if content.lock().is_doubtful => return Own::Read(Reading::Failed),
            Have::Nothing(_) => return Own::Read(Reading::NotYet),
            Have::Through => {
                return Own::Read(self.read_through_window(content, id, index, from, into, bell));
            }
            Have::Memory { bytes, .. } => {
                into.copy_from_slice(&bytes[from..from + into.len()]);
                return given(content, index);
            }
            Have::Partial { file, description, .. } => (file, description.offset_of(index)),
        };
        match file.read_exact_at(into, offset + from as u64) {
            Ok(()) => given(content, index),
            Err(error) => {
                tracing::error!("cannot read what has come of content {}: {error}", id.0);
                Own::Read(Reading::Failed)
            }
        }
    }

    fn read_through_window(
        self: &Arc<Self>,
        content: &Content,
        id: ContentId,
        index: u32,
        from: usize,
        into: &mut [u8],
        bell: &Arc<Bell>,
    ) -> Reading {
        let mut state = content.lock();
        if state.stage != Stage::Through {
            return Reading::Failed;
        }
        let Some(pieces) = state.description.as_ref().map(|content| content.pieces()) else {
            return Reading::Failed;
        };
        let piece = match self.windows.read(id, index, pieces) {
            Glance::Here(piece) => Some(piece),
            Glance::Wait => None,
            Glance::Ask(next, piece) => {
                // Under the lock: what is asked for and what is given up keep their order.
                self.fetcher.fetch(Supplier::Front, id, next, Wish::Bytes, self);
                piece
            }
        };
        let Some(piece) = piece else {
            state.keep(bell);
            return Reading::NotYet;
        };
        into.copy_from_slice(&piece[from..from + into.len()]);
        Reading::Done(0)
    }

    /// The node cannot keep a content. If there is no room it is read through, if it may be.
    pub(crate) fn cannot_keep(&self, content: &Content, id: ContentId, error: &io::Error) {
        let description = content.lock().description.clone();
        let may_be_read =
            description.is_some_and(|description| self.readable(&description).is_some());
        if may_be_read && is_full(error) {
            self.read_through(content, id, error);
        } else {
            self.fail(content, id, error);
        }
    }

    /// From now on pieces come when programs read them, and are not kept.
    pub(crate) fn read_through(&self, content: &Content, id: ContentId, why: &io::Error) {
        let mut state = content.lock();
        let Some(description) = state.description.clone() else { return };
        let Some(place) = self.readable(&description) else { return };
        let supplier = state.supplier.take();
        state.become_through();
        if state.inode == 0 {
            state.inode = self.tree.foresee(&place).ok().flatten().unwrap_or(1 << 63 | id.0);
        }
        if let Some(supplier) = supplier {
            self.fetcher.give_up(supplier, id);
        }
        state.ring();
        drop(state);
        self.end_successions(&place);
        self.wants.begin(&place, id);
        self.tell_through(&description, why);
    }

    /// Whoever waits for all of it does not get it.
    pub(crate) fn tell_through(&self, content: &ContentDescription, why: &io::Error) {
        for part in &content.parts {
            self.wants.refuse_whole(&part.place, Errno::IO.raw_os_error());
        }
        self.outbox.say(ToFront::ReadThrough { content: content.id, why: why.to_string() });
    }

    /// Takes a piece of what is read through.
    pub(crate) fn piece_through(
        &self,
        content: &Content,
        from: Supplier,
        head: PieceHead,
        bytes: Buffer,
    ) -> After {
        let PieceHead { content: id, index, checksum } = head;
        let is_right = piece::checksum(&bytes) == checksum;
        let mut state = content.lock();
        if state.stage != Stage::Through || !self.windows.expects(id, index) {
            return After::Next;
        }
        let expected = state.description.as_ref().map(|content| content.bytes_of(index));
        if !is_right || bytes.is_empty() || Some(bytes.len()) != expected {
            self.outbox.say(ToFront::WrongPiece { content: id, index, culprit: from });
            state.wrong += 1;
            if state.wrong >= WRONG_MAX {
                self.give_up(&mut state, id, "its pieces come with wrong checksums");
                self.fetcher.give_up(from, id);
                return After::Next;
            }
            return After::Again(index);
        }
        if state.checksums.get(index as usize).is_some_and(|before| *before != checksum) {
            self.give_up(&mut state, id, "it is not what it was at home any more");
            self.fetcher.give_up(from, id);
            return After::Next;
        }
        state.wrong = 0;
        if self.windows.take(id, index, bytes) {
            // Not by what is returned: another reader may have asked for more by then.
            self.fetcher.give_up(from, id);
        }
        state.ring();
        After::Next
    }

    /// What is read through does not come any more: it is asked for again a few times.
    pub(crate) fn lost_through(&self, content: &Content, from: Supplier, id: ContentId) {
        let Some(me) = self.me.upgrade() else { return };
        let mut state = content.lock();
        if from != Supplier::Front || state.stage != Stage::Through {
            return;
        }
        match self.windows.lost(id) {
            Ok(Some(next)) => self.fetcher.fetch(from, id, next, Wish::Bytes, &me),
            Ok(None) => {}
            Err(()) => self.give_up(&mut state, id, "it does not come from home any more"),
        }
    }

    /// Nobody gets anything any more.
    pub(crate) fn end_reading(&self) {
        self.is_over.store(true, Ordering::Release);
    }
}

impl State {
    fn become_through(&mut self) {
        self.stage = Stage::Through;
        self.held.clear();
        self.partial = None;
        self.file = None;
        self.direct = None;
        self.home = None;
        self.wrong = 0;
    }
}

/// Gives what was read of a content, if that is good: a file that it was read from may be another's since, if the
/// content was given up.
fn given(content: &Content, index: u32) -> Own {
    let mut state = content.lock();
    match state.stage {
        Stage::Gone => Own::Gone,
        _ if state.is_doubtful || state.stage == Stage::Expected => Own::Read(Reading::Failed),
        _ => {
            state.give(index);
            Own::Read(Reading::Done(0))
        }
    }
}
