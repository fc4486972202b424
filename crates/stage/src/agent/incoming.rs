//! What comes to a node: takes pieces from a supplier, checks them, and passes them to whoever fetches them here
//! and to the writing threads. Never passes on what has not been checked.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::agent::content::{Awaited, Content, Have, Stage, State};
use crate::agent::disk::Disk;
use crate::agent::eviction::{full, with_room};
use crate::agent::partial::Partial;
use crate::agent::progress::{Progress, WHOLE};
use crate::agent::succession::Outdated;
use crate::agent::tree::Tree;
use crate::agent::wants::Wants;
use crate::agent::window::Windows;
use crate::fetch::{After, EndHead, Fetcher, PieceHead, Receiver, Wish};
use crate::message::{ContentDescription, ContentId, Part, Place, Supplier, ToFront};
use crate::outbox::Outbox;
use crate::piece::{self, Buffer, Buffers};
use crate::supply::{Bell, Offer, Shelf};

/// A supplier that gives so many wrong pieces one after the other is left.
pub(super) const WRONG_MAX: u32 = 3;

/// All contents of a node.
pub(crate) struct Incoming {
    pub(super) tree: Arc<Tree>,
    pub(super) wants: Arc<Wants>,
    pub(super) outbox: Outbox<ToFront>,
    pub(super) disk: Disk,
    pub(super) buffers: Buffers,
    pub(super) fetcher: Arc<Fetcher>,
    progress: Arc<Progress>,
    contents: Mutex<HashMap<ContentId, Arc<Content>>>,
    /// What is in memory of contents that are read through.
    pub(super) windows: Windows,
    pub(super) outdated: Outdated,
    /// Of each map, whether its files may be read as they come; nothing until that is known.
    readable: OnceLock<Vec<bool>>,
    pub(super) is_over: AtomicBool,
    /// Large contents are written past the page cache.
    is_direct: bool,
    /// Where the homes of the maps are, on a host that has them.
    pub(super) dirs: Vec<Vec<u8>>,
    pub(super) me: Weak<Self>,
}

impl Incoming {
    pub(crate) fn new(
        tree: Arc<Tree>,
        wants: Arc<Wants>,
        outbox: Outbox<ToFront>,
        buffers: Buffers,
        fetcher: Arc<Fetcher>,
        is_direct: bool,
        dirs: Vec<Vec<u8>>,
    ) -> io::Result<Arc<Self>> {
        let disk = Disk::start()?;
        let progress = Progress::start(outbox.clone())?;
        let contents = Mutex::default();
        Ok(Arc::new_cyclic(|me| {
            let me = Weak::clone(me);
            let (readable, is_over) = (OnceLock::new(), AtomicBool::new(false));
            Self {
                tree,
                wants,
                outbox,
                disk,
                buffers,
                fetcher,
                progress,
                contents,
                windows: Windows::default(),
                outdated: Outdated::default(),
                readable,
                is_over,
                is_direct,
                dirs,
                me,
            }
        }))
    }

    /// Files of these maps may be read as they come from now on.
    pub(crate) fn may_be_read(&self, maps: Vec<bool>) {
        // It is said once.
        let _ = self.readable.set(maps);
    }

    fn open_direct(&self, partial: &Partial) -> Option<Arc<File>> {
        if !self.is_direct {
            return None;
        }
        let opened = partial.open_direct().inspect_err(|error| {
            tracing::info!("the cache is written through memory, it does not do without: {error}");
        });
        opened.ok().map(Arc::new)
    }

    /// The place of a content that may be read as it comes.
    pub(super) fn readable(&self, content: &ContentDescription) -> Option<Place> {
        let [part] = &content.parts[..] else { return None };
        let maps = self.readable.get()?;
        let is_readable = maps.get(usize::from(part.place.map)).copied().unwrap_or(false);
        (is_readable && !content.is_small()).then(|| part.place.clone())
    }

    /// Begins to fetch a content, unless it is coming or here.
    pub(crate) fn take(self: &Arc<Self>, description: ContentDescription, supplier: Supplier) {
        let id = description.id;
        let content = self.content(id);
        let mut state = content.lock();
        match state.stage {
            Stage::Coming | Stage::Whole => return,
            // There still is no room for it: somebody asks for all of it, and does not get it.
            Stage::Through => {
                drop(state);
                return self.tell_through(&description, &full());
            }
            Stage::Expected => {}
            Stage::InTree if self.is_in_tree(&description) => {
                drop(state);
                return self.arrived(&description, 0);
            }
            // It was here, and is not whole any more.
            Stage::InTree | Stage::Gone => state.give_up(),
        }
        let place = self.readable(&description);
        let (id, bytes, is_small) = (description.id, description.bytes(), description.is_small());
        let description = Arc::new(description);
        if place.is_some() && self.tree.capacity().is_ok_and(|capacity| capacity < bytes) {
            state.description = Some(description);
            drop(state);
            return self.read_through(&content, id, &full());
        }
        if !is_small {
            let partial = || match &description.parts[..] {
                [part] => self.tree.partial_of(&part.place),
                _ => self.tree.partial(),
            };
            let opened = with_room(&self.tree, || {
                let partial = partial()?;
                Ok((partial.reading()?, partial))
            });
            match opened {
                Ok((file, partial)) => {
                    state.inode = file.metadata().map_or(0, |found| found.ino());
                    state.direct = self.open_direct(&partial);
                    state.file = Some(Arc::new(file));
                    state.partial = Some(partial);
                }
                Err(error) => {
                    state.description = Some(description);
                    drop(state);
                    return self.cannot_keep(&content, id, &error);
                }
            }
        }
        state.description = Some(Arc::clone(&description));
        state.supplier = Some(supplier);
        state.stage = Stage::Coming;
        state.wrong = 0;
        state.is_doubtful = false;
        drop(state);
        if let Some(place) = place {
            self.wants.begin(&place, id);
        }
        for part in &description.parts {
            self.succeed(&part.place, &description);
        }
        self.fetcher.fetch(supplier, id, 0, Wish::of(supplier, is_small), self);
    }

    /// Fetches the rest of a content from another supplier.
    pub(crate) fn resupply(self: &Arc<Self>, id: ContentId, supplier: Supplier) {
        let content = self.content(id);
        let mut state = content.lock();
        if state.stage != Stage::Coming {
            return;
        }
        let before = state.supplier.replace(supplier);
        state.wrong = 0;
        let next = state.checksums.len() as u32;
        let is_small = state.description.as_ref().is_none_or(|content| content.is_small());
        drop(state);
        if let Some(before) = before.filter(|before| *before != supplier) {
            self.fetcher.give_up(before, id);
        }
        self.fetcher.fetch(supplier, id, next, Wish::of(supplier, is_small), self);
    }

    /// Forgets a content that will never be whole.
    pub(crate) fn abandon(&self, id: ContentId) {
        let content = self.content(id);
        let mut state = content.lock();
        if matches!(state.stage, Stage::Expected | Stage::Coming) {
            let supplier = state.supplier;
            self.outdate(&mut state, id);
            self.give_up(&mut state, id, "it is not what it was at home any more");
            drop(state);
            if let Some(supplier) = supplier {
                self.fetcher.give_up(supplier, id);
            }
        }
    }

    /// Takes in a piece whose checksum is right.
    pub(super) fn keep(
        &self,
        content: Arc<Content>,
        description: &ContentDescription,
        head: PieceHead,
        bytes: Buffer,
    ) -> After {
        let PieceHead { content: id, index, checksum } = head;
        // Waits if the disk is far behind; small contents are bounded by how many are under way.
        let room = (!description.is_small()).then(|| self.disk.room(bytes.len()));
        let mut state = content.lock();
        if state.stage != Stage::Coming || index as usize != state.checksums.len() {
            // Read through by now, it may be asked for from the same supplier.
            return if state.stage == Stage::Through { After::Next } else { After::Enough };
        }
        state.wrong = 0;
        state.checksums.push(checksum);
        state.held.insert(index, Arc::new(bytes));
        state.ring();
        drop(state);
        self.progress.came(id, index + 1);
        if let Some(room) = room {
            self.write(content, id, index, room);
        }
        After::Next
    }

    /// A piece is not what it is said to be: it is asked for again, unless that was of no use before.
    fn wrong(&self, content: &Content, from: Supplier, id: ContentId, index: u32) -> After {
        self.outbox.say(ToFront::WrongPiece { content: id, index, culprit: from });
        let mut state = content.lock();
        state.wrong += 1;
        if state.wrong < WRONG_MAX {
            return After::Again(state.checksums.len() as u32);
        }
        self.tell_lost(&state, id, from);
        After::Enough
    }

    /// Ends a content; programs that read it get errors for what has not come.
    pub(super) fn give_up(&self, state: &mut State, id: ContentId, why: &str) {
        let fails_readers = state.readers > 0 && state.succession.is_none();
        state.give_up();
        self.windows.forget(id);
        for part in state.description.iter().flat_map(|description| &description.parts) {
            self.wants.stop(&part.place, id);
            if fails_readers {
                let path = String::from_utf8_lossy(&part.place.path).into_owned();
                tracing::error!("{path}: {why}: programs that have it open get EIO");
            }
        }
    }

    /// Writes what has come, and nothing more.
    pub(crate) fn end(&self) {
        self.disk.end();
    }

    pub(super) fn content(&self, id: ContentId) -> Arc<Content> {
        Arc::clone(self.contents.lock().entry(id).or_default())
    }

    pub(super) fn all(&self) -> Vec<Arc<Content>> {
        self.contents.lock().values().cloned().collect()
    }

    pub(super) fn known(&self, id: ContentId) -> Option<Arc<Content>> {
        self.contents.lock().get(&id).cloned()
    }

    /// The node cannot keep it: programs that wait for it get an error.
    pub(super) fn fail(&self, content: &Content, id: ContentId, error: &io::Error) {
        let mut state = content.lock();
        let description = state.description.clone();
        self.give_up(&mut state, id, "it cannot be kept");
        drop(state);
        let errno = Errno::from_io_error(error).unwrap_or(Errno::IO).raw_os_error();
        for part in description.iter().flat_map(|description| &description.parts) {
            self.wants.decide(&part.place, Err(Errno::IO.raw_os_error()));
            self.end_successions(&part.place);
        }
        self.outbox.say(ToFront::Failed { content: id, errno, why: error.to_string() });
    }

    /// The supplier gives no more of it; the front knows another.
    fn tell_lost(&self, state: &State, id: ContentId, supplier: Supplier) {
        let at_piece = state.checksums.len() as u32;
        self.outbox.say(ToFront::SupplierLost { content: id, supplier, at_piece });
    }

    fn is_in_tree(&self, content: &ContentDescription) -> bool {
        let stands = |part: &Part| matches!(self.tree.look(&part.place), Ok(Some(_)));
        content.parts.iter().all(stands)
    }

    pub(super) fn arrived(&self, content: &ContentDescription, bytes_per_second: u64) {
        for part in &content.parts {
            self.wants.decide(&part.place, Ok(()));
        }
        self.outbox.say(ToFront::Arrived { content: content.id, bytes_per_second });
    }

    /// Reads a piece out of the files of the tree. A program may have changed them since.
    fn read_in_tree(&self, content: &ContentDescription, index: u32) -> io::Result<Buffer> {
        let mut bytes = self.buffers.take(content.bytes_of(index));
        let (from, to) = (content.offset_of(index), content.offset_of(index) + bytes.len() as u64);
        let mut part_from = 0;
        for part in &content.parts {
            let part_to = part_from + part.attributes.size;
            let (begin, end) = (from.max(part_from), to.min(part_to));
            if begin < end {
                let file = File::open(self.tree.path_of(&part.place))?;
                let target = &mut bytes[(begin - from) as usize..(end - from) as usize];
                file.read_exact_at(target, begin - part_from)?;
            }
            part_from = part_to;
        }
        Ok(bytes)
    }
}

impl Receiver for Incoming {
    fn piece(&self, from: Supplier, head: PieceHead, bytes: Buffer) -> After {
        let PieceHead { content: id, index, checksum } = head;
        let content = self.content(id);
        let awaited = content.lock().awaits(from, index);
        let description = match awaited {
            Awaited::It(description) => description,
            Awaited::Through => return self.piece_through(&content, from, head, bytes),
            Awaited::Not(after) => return after,
        };
        let is_long = !bytes.is_empty() && bytes.len() == description.bytes_of(index);
        if !is_long || piece::checksum(&bytes) != checksum {
            return self.wrong(&content, from, id, index);
        }
        self.keep(content, &description, head, bytes)
    }

    fn piece_at_home(&self, from: Supplier, head: PieceHead) -> After {
        self.take_at_home(from, head)
    }

    fn end(&self, from: Supplier, end: EndHead) -> After {
        let EndHead { content: id, digest, bytes_per_second } = end;
        let content = self.content(id);
        let mut state = content.lock();
        if state.stage == Stage::Through {
            return After::Next;
        }
        if state.stage != Stage::Coming || state.supplier != Some(from) {
            return After::Enough;
        }
        let pieces = state.description.as_ref().map(|content| content.pieces() as usize);
        if pieces != Some(state.checksums.len()) || piece::digest(&state.checksums) != digest {
            // Pieces agree with checksums that are not those of the source: none of them is to be trusted.
            let index = state.checksums.len() as u32;
            state.checksums.clear();
            state.held.clear();
            state.is_doubtful = true;
            for part in state.description.iter().flat_map(|description| &description.parts) {
                self.wants.stop(&part.place, id);
            }
            drop(state);
            self.progress.came(id, 0);
            return self.wrong(&content, from, id, index);
        }
        state.stage = Stage::Whole;
        state.bytes_per_second = bytes_per_second;
        state.ring();
        drop(state);
        self.progress.came(id, WHOLE);
        self.finish(content, id);
        After::Enough
    }

    fn lost(&self, from: Supplier, id: ContentId, why: &str) {
        tracing::info!("{from:?} gives no more of content {}: {why}", id.0);
        let content = self.content(id);
        let state = content.lock();
        if state.stage == Stage::Through {
            drop(state);
            return self.lost_through(&content, from, id);
        }
        if state.stage == Stage::Coming && state.supplier == Some(from) {
            self.tell_lost(&state, id, from);
        }
    }
}

impl Shelf for Incoming {
    fn offer(&self, id: ContentId, index: u32, bell: &Arc<Bell>) -> Offer {
        let content = self.content(id);
        let (checksum, read) = match content.have(index, bell) {
            Have::Nothing(Stage::Gone) | Have::Through => return Offer::Gone,
            Have::Nothing(_) => return Offer::NotYet,
            Have::End { digest } => return Offer::End { digest },
            Have::Memory { checksum, bytes } => return Offer::Piece { checksum, bytes },
            Have::Partial { checksum, file, description } => {
                let mut bytes = self.buffers.take(description.bytes_of(index));
                let read = file.read_exact_at(&mut bytes, description.offset_of(index));
                (checksum, read.map(|()| bytes))
            }
            Have::InTree { checksum, description } => {
                (checksum, self.read_in_tree(&description, index))
            }
        };
        match read {
            Ok(bytes) if piece::checksum(&bytes) == checksum => {
                Offer::Piece { checksum, bytes: Arc::new(bytes) }
            }
            _ => Offer::Gone,
        }
    }
}
