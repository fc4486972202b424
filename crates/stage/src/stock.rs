//! The contents that come out of files: large ones are read when they are fetched, small ones given from
//! memory. The front has one over the sources, an agent one over its tree. Owns the promise that what is given is one version: the attributes at the end are those of the
//! beginning, and what is read a second time is what was read the first time.

mod stocked;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use azekura_proto::FileKind;
use azekura_proto::staging::Attributes;
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::ahead::Ahead;
use crate::front::plan::Known;
use crate::message::{
    ContentDescription, ContentId, PIECE_BYTES_MAX, Part, Place, SMALL_BYTES_MAX,
};
use crate::piece::Buffers;
use crate::source::Source;
use crate::stock::stocked::{Fault, Origin, Stocked};
use crate::supply::{Bell, Offer, Shelf};
use crate::workers::Workers;

/// Small contents that stay in memory for nodes that come later, in bytes.
const KEPT_BYTES_MAX: u64 = 64 << 20;
/// Pieces of files that stay in memory, of all files together.
const READ_MAX: usize = 256;
const _: () = assert!(READ_MAX * PIECE_BYTES_MAX as usize <= 64 << 20);
/// A small file that changes whenever it is read is given up after so many times.
const SMALL_TRIES: u32 = 5;

/// To how many nodes a content goes, and over which links.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Audience {
    pub(crate) nodes: usize,
    pub(crate) links: Known,
    /// An earlier version that some of them have begun to read.
    pub(crate) before: Option<Cut>,
}

/// How a content is cut into pieces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// All of it.
    pub(crate) bytes: u64,
    pub(crate) piece_bytes: u32,
}

impl Audience {
    /// The front alone.
    pub(crate) fn home() -> Self {
        Self { nodes: 1, links: Known::default(), before: None }
    }

    /// The length of a piece. Who has read of a version goes on with the next if its pieces can be compared with
    /// those that were given, so these are as long as before if all of it is.
    fn piece_bytes(self, bytes: u64) -> u32 {
        let before = self.before.filter(|before| before.bytes == bytes);
        before
            .map_or_else(|| self.links.piece_bytes(bytes, self.nodes), |before| before.piece_bytes)
    }
}

/// What became of small files.
#[derive(Default)]
pub(crate) struct Bundled {
    pub(crate) content: Option<Arc<ContentDescription>>,
    pub(crate) failed: Vec<(Place, i32)>,
    /// These are not small any more.
    pub(crate) grown: Vec<Place>,
}

/// Small files that have been read.
#[derive(Default)]
pub(crate) struct Bundle {
    parts: Vec<Part>,
    /// Of all parts, one behind the other.
    bytes: Vec<u8>,
    failed: Vec<(Place, i32)>,
    grown: Vec<Place>,
}

/// A small file as it was read; none if it is not small.
pub(crate) type SmallRead = io::Result<Option<(Attributes, Vec<u8>)>>;

impl Bundle {
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.failed.is_empty() && self.grown.is_empty()
    }

    pub(crate) fn first(&self) -> Option<&Place> {
        self.parts.first().map(|part| &part.place)
    }

    pub(crate) fn put(&mut self, place: Place, read: SmallRead) {
        match read {
            Ok(Some((attributes, content))) => {
                self.bytes.extend_from_slice(&content);
                self.parts.push(Part { place, attributes });
            }
            Ok(None) => self.grown.push(place),
            Err(error) => {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                self.failed.push((place, errno.raw_os_error()));
            }
        }
    }
}

/// Why a content can be given no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spoilt {
    /// A file changed while it was read.
    Changed,
    /// A file cannot be read; the number of the errno.
    Unreadable(i32),
}

/// Who is told of contents that can be given no more.
type Tell = Box<dyn Fn(ContentId, Spoilt) + Send + Sync>;

/// The contents that a process has.
pub(crate) struct Stock {
    pub(crate) sources: Vec<Arc<dyn Source>>,
    tell: Tell,
    buffers: Buffers,
    next: AtomicU64,
    workers: Workers,
    table: Mutex<Table>,
    /// Pieces of files that have been read and may still be in memory, the oldest first.
    read: Mutex<VecDeque<(Weak<Stocked>, u32)>>,
    me: Weak<Self>,
}

#[derive(Default)]
struct Table {
    contents: HashMap<ContentId, Arc<Stocked>>,
    /// Small contents that all nodes have that want them, the oldest first.
    kept: VecDeque<(ContentId, u64)>,
    kept_bytes: u64,
}

impl Stock {
    /// Its contents have numbers from the first one on.
    pub(crate) fn new(
        sources: Vec<Arc<dyn Source>>,
        first: ContentId,
        workers: Workers,
        tell: Tell,
    ) -> Arc<Self> {
        let (buffers, next) = (Buffers::default(), AtomicU64::new(first.0));
        Arc::new_cyclic(|me| Self {
            sources,
            tell,
            buffers,
            next,
            workers,
            table: Mutex::default(),
            read: Mutex::default(),
            me: Weak::clone(me),
        })
    }

    fn source(&self, place: &Place) -> io::Result<&Arc<dyn Source>> {
        self.sources.get(usize::from(place.map)).ok_or(io::ErrorKind::NotFound.into())
    }

    fn source_of(&self, stocked: &Stocked) -> io::Result<&Arc<dyn Source>> {
        let part = stocked.description.parts.first().ok_or(io::ErrorKind::NotFound)?;
        self.source(&part.place)
    }

    /// Whether its home is far.
    pub(crate) fn is_far(&self, place: &Place) -> bool {
        self.source(place).is_ok_and(|source| source.is_far())
    }

    fn draw(&self) -> ContentId {
        ContentId(self.next.fetch_add(1, Ordering::Relaxed))
    }

    fn add(&self, parts: Vec<Part>, audience: Audience, origin: Origin) -> Arc<ContentDescription> {
        let bytes = parts.iter().map(|part| part.attributes.size).sum();
        let piece_bytes = audience.piece_bytes(bytes);
        let description = Arc::new(ContentDescription { id: self.draw(), piece_bytes, parts });
        let checksums = Mutex::new(vec![None; description.pieces() as usize]);
        let stocked = Stocked { description: Arc::clone(&description), checksums, origin };
        self.table.lock().contents.insert(description.id, Arc::new(stocked));
        description
    }

    /// Opens a file; it is read when it is fetched.
    pub(crate) fn open(
        &self,
        place: &Place,
        audience: Audience,
    ) -> io::Result<Arc<ContentDescription>> {
        let file = self.source(place)?.open(&place.path)?;
        let before = file.state()?;
        let attributes = before.attributes.clone();
        check_regular(&attributes)?;
        let is_at_hand = file.is_at_hand();
        let open = Mutex::new(Some(Arc::from(file)));
        let part = Part { place: place.clone(), attributes };
        let ahead = Box::default();
        Ok(self.add(vec![part], audience, Origin::File { open, before, ahead, is_at_hand }))
    }

    /// Reads small files into one content.
    pub(crate) fn bundle(&self, places: Vec<Place>, audience: Audience) -> Bundled {
        let mut bundle = Bundle::default();
        for place in places {
            let read = self.read_small(&place);
            bundle.put(place, read);
        }
        self.add_bundle(bundle, audience)
    }

    /// Makes one content of what has been read.
    pub(crate) fn add_bundle(&self, bundle: Bundle, audience: Audience) -> Bundled {
        let Bundle { parts, bytes, failed, grown } = bundle;
        let content = (!parts.is_empty()).then(|| self.add(parts, audience, Origin::Memory(bytes)));
        Bundled { content, failed, grown }
    }

    /// One version of a small file; none if it is not small.
    pub(crate) fn read_small(&self, place: &Place) -> SmallRead {
        for _ in 0..SMALL_TRIES {
            let file = self.source(place)?.open(&place.path)?;
            let before = file.state()?;
            check_regular(&before.attributes)?;
            if before.attributes.size > SMALL_BYTES_MAX {
                return Ok(None);
            }
            let mut bytes = vec![0; before.attributes.size as usize];
            let read = file.read_at(&mut bytes, 0)?;
            if read == bytes.len() && file.state()? == before {
                return Ok(Some((before.attributes, bytes)));
            }
        }
        Err(io::Error::from(Errno::IO))
    }

    /// Whether it can be given.
    pub(crate) fn has(&self, id: ContentId) -> bool {
        self.table.lock().contents.contains_key(&id)
    }

    /// Everybody has it who wants it. A file is closed, to be opened again if need be; what is in memory is
    /// kept as long as there is room.
    pub(crate) fn settle(&self, id: ContentId) {
        let mut table = self.table.lock();
        let Some(stocked) = table.contents.get(&id) else { return };
        match &stocked.origin {
            // A reader that has it locked closes it when the content is forgotten.
            Origin::File { open, ahead, .. } => {
                ahead.empty();
                _ = open.try_lock().map(|mut open| *open = None);
            }
            Origin::Memory(bytes) => {
                let bytes = bytes.len() as u64;
                if table.kept.iter().any(|(kept, _)| *kept == id) {
                    return;
                }
                table.kept.push_back((id, bytes));
                table.kept_bytes += bytes;
                while table.kept_bytes > KEPT_BYTES_MAX {
                    let Some((oldest, bytes)) = table.kept.pop_front() else { return };
                    table.kept_bytes -= bytes;
                    table.contents.remove(&oldest);
                }
            }
        }
    }

    /// Nothing of it is given any more.
    pub(crate) fn forget(&self, id: ContentId) {
        self.table.lock().contents.remove(&id);
    }
}

fn check_regular(attributes: &Attributes) -> io::Result<()> {
    match attributes.kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(Errno::ISDIR.into()),
        _ => Err(Errno::OPNOTSUPP.into()),
    }
}

impl Shelf for Stock {
    fn offer(&self, id: ContentId, index: u32, bell: &Arc<Bell>) -> Offer {
        let Some(stocked) = self.table.lock().contents.get(&id).cloned() else {
            return Offer::Gone;
        };
        match &stocked.origin {
            Origin::Memory(bytes) => stocked.offer_of(bytes, index, &self.buffers),
            Origin::File { ahead, .. } => self.offer_ahead(&stocked, ahead, index, bell),
        }
    }

    fn is_at_hand(&self, id: ContentId) -> bool {
        let is_at_hand = |stocked: &Arc<Stocked>| {
            matches!(stocked.origin, Origin::File { is_at_hand: true, .. })
        };
        self.table.lock().contents.get(&id).is_some_and(is_at_hand)
    }
}

impl Stock {
    fn offer_ahead(
        &self,
        stocked: &Arc<Stocked>,
        ahead: &Ahead,
        index: u32,
        bell: &Arc<Bell>,
    ) -> Offer {
        let last = stocked.description.pieces();
        // Whoever has not asked for all of it has no use for its end.
        if index > last || index == last && stocked.whole_checksums().is_none() {
            return Offer::Gone;
        }
        let (ready, starts) = ahead.ask(index, last, bell);
        if starts {
            let (stock, stocked) = (Weak::clone(&self.me), Arc::clone(stocked));
            self.workers.give(move || read_ahead(&stock, &stocked));
        }
        ready.map_or(Offer::NotYet, Offer::from)
    }

    /// How many pieces of it are known, from the first on.
    pub(crate) fn pieces_read(&self, id: ContentId) -> u32 {
        let stocked = self.table.lock().contents.get(&id).cloned();
        stocked.map_or(0, |stocked| match &stocked.origin {
            Origin::Memory(_) => stocked.description.pieces(),
            Origin::File { .. } => {
                stocked.checksums.lock().iter().take_while(|known| known.is_some()).count() as u32
            }
        })
    }

    /// Whether one read of it has taken longer than this.
    pub(crate) fn stalls(&self, id: ContentId, limit: Duration) -> bool {
        let stocked = self.table.lock().contents.get(&id).cloned();
        stocked.is_some_and(|stocked| match &stocked.origin {
            Origin::Memory(_) => false,
            Origin::File { ahead, .. } => ahead.stalls(limit),
        })
    }

    /// A piece has been read, for which one that was read long ago makes room.
    fn keep(&self, stocked: &Arc<Stocked>, index: u32) {
        let mut read = self.read.lock();
        read.push_back((Arc::downgrade(stocked), index));
        let oldest = if read.len() > READ_MAX { read.pop_front() } else { None };
        drop(read);
        if let Some((stocked, index)) = oldest
            && let Some(stocked) = stocked.upgrade()
            && let Origin::File { ahead, .. } = &stocked.origin
        {
            ahead.discard(index);
        }
    }

    fn spoil(&self, stocked: &Stocked, fault: Fault) {
        let id = stocked.description.id;
        let spoilt = match fault {
            Fault::Changed => Spoilt::Changed,
            Fault::Io(error) => {
                tracing::error!("cannot read content {} of the source: {error}", id.0);
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                Spoilt::Unreadable(errno.raw_os_error())
            }
        };
        // It may have been forgotten while it was read.
        if self.table.lock().contents.remove(&id).is_some() {
            (self.tell)(id, spoilt);
        }
    }
}

/// Reads what is wanted of a file next, until there is nothing.
fn read_ahead(stock: &Weak<Stock>, stocked: &Arc<Stocked>) {
    let Origin::File { ahead, .. } = &stocked.origin else { return };
    while let Some(index) = ahead.next() {
        let Some(stock) = stock.upgrade() else { return ahead.end() };
        if !stock.has(stocked.description.id) {
            return ahead.end();
        }
        let source = stock.source_of(stocked).map_err(Fault::from);
        match source.and_then(|source| stocked.read(index, &**source, &stock.buffers)) {
            Ok(Some(ready)) => {
                ahead.put(index, ready);
                stock.keep(stocked, index);
            }
            Ok(None) => ahead.skip(),
            Err(fault) => {
                stock.spoil(stocked, fault);
                return ahead.end();
            }
        }
    }
}
