//! The contents that come out of files: large ones are read when they are fetched, small ones given from
//! memory. The front has one over the sources, an agent one over its tree. Owns the promise that what is given is one version: the attributes at the end are those of the
//! beginning, and what is read a second time is what was read the first time.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use azekura_proto::FileKind;
use azekura_proto::staging::Attributes;
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::ahead::{Ahead, Ready};
use crate::front::plan::Known;
use crate::message::{ContentDescription, ContentId, Part, Place, SMALL_BYTES_MAX};
use crate::piece::{self, Buffers};
use crate::source::{FileState, Source, SourceFile};
use crate::supply::{Bell, Offer, Shelf};
use crate::workers::Workers;

/// Small contents that stay in memory for nodes that come later, in bytes.
const KEPT_BYTES_MAX: u64 = 64 << 20;
/// A small file that changes whenever it is read is given up after so many times.
const SMALL_TRIES: u32 = 5;

/// To how many nodes a content goes, and over which links.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Audience {
    pub(crate) nodes: usize,
    pub(crate) links: Known,
}

impl Audience {
    /// The front alone.
    pub(crate) fn home() -> Self {
        Self { nodes: 1, links: Known::default() }
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
    me: Weak<Self>,
}

#[derive(Default)]
struct Table {
    contents: HashMap<ContentId, Arc<Stocked>>,
    /// Small contents that all nodes have that want them, the oldest first.
    kept: VecDeque<(ContentId, u64)>,
    kept_bytes: u64,
}

struct Stocked {
    description: Arc<ContentDescription>,
    /// Of the pieces that have been read.
    checksums: Mutex<Vec<Option<u64>>>,
    origin: Origin,
}

enum Origin {
    Memory(Vec<u8>),
    File { open: Mutex<Option<Arc<dyn SourceFile>>>, before: FileState, ahead: Box<Ahead> },
}

/// Why a piece cannot be read.
enum Fault {
    Changed,
    Io(io::Error),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
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
            me: Weak::clone(me),
        })
    }

    fn source(&self, place: &Place) -> io::Result<&Arc<dyn Source>> {
        self.sources.get(usize::from(place.map)).ok_or(io::ErrorKind::NotFound.into())
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
        let piece_bytes = audience.links.piece_bytes(bytes, audience.nodes);
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
        let open = Mutex::new(Some(Arc::from(file)));
        let part = Part { place: place.clone(), attributes };
        let ahead = Box::default();
        Ok(self.add(vec![part], audience, Origin::File { open, before, ahead }))
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
fn read_ahead(stock: &Weak<Stock>, stocked: &Stocked) {
    let Origin::File { ahead, .. } = &stocked.origin else { return };
    while let Some(index) = ahead.next() {
        let Some(stock) = stock.upgrade() else { return ahead.end() };
        if !stock.has(stocked.description.id) {
            return ahead.end();
        }
        match stocked.read(index, &stock) {
            Ok(Some(ready)) => ahead.put(index, ready),
            Ok(None) => ahead.skip(),
            Err(fault) => {
                stock.spoil(stocked, fault);
                return ahead.end();
            }
        }
    }
}

impl Stocked {
    /// The checksums of all pieces; `None` if some have not been read.
    fn whole_checksums(&self) -> Option<Vec<u64>> {
        self.checksums.lock().iter().copied().collect()
    }

    fn offer_of(&self, all: &[u8], index: u32, buffers: &Buffers) -> Offer {
        if index >= self.description.pieces() {
            let end = |checksums: Vec<u64>| Offer::End { digest: piece::digest(&checksums) };
            return self.whole_checksums().map_or(Offer::Gone, end);
        }
        let mut bytes = buffers.take(self.description.bytes_of(index));
        let (from, length) = (self.description.offset_of(index) as usize, bytes.len());
        bytes.copy_from_slice(&all[from..from + length]);
        let checksum = piece::checksum(&bytes);
        if let Some(known) = self.checksums.lock().get_mut(index as usize) {
            *known = Some(checksum);
        }
        Offer::Piece { checksum, bytes: Arc::new(bytes) }
    }

    /// Reads a piece, or what is at the end.
    fn read(&self, index: u32, stock: &Stock) -> Result<Option<Ready>, Fault> {
        let pieces = self.description.pieces();
        if index >= pieces {
            // Some of it was asked for and not all: there is no use for its end yet.
            let Some(checksums) = self.whole_checksums() else { return Ok(None) };
            let digest = piece::digest(&checksums);
            self.check_unchanged(stock)?;
            return Ok(Some(Ready::End { digest }));
        }
        let mut bytes = stock.buffers.take(self.description.bytes_of(index));
        let offset = self.description.offset_of(index);
        if self.open(stock)?.read_at(&mut bytes, offset)? != bytes.len() {
            return Err(Fault::Changed);
        }
        // Programs may read a piece before the last one has been read here.
        if self.tells_changes_at_once(stock) {
            self.check_unchanged(stock)?;
        }
        let checksum = piece::checksum(&bytes);
        match self.checksums.lock().get_mut(index as usize) {
            Some(Some(before)) if *before != checksum => return Err(Fault::Changed),
            Some(known) => *known = Some(checksum),
            None => return Ok(None),
        }
        Ok(Some(Ready::Piece { checksum, bytes: Arc::new(bytes) }))
    }

    fn tells_changes_at_once(&self, stock: &Stock) -> bool {
        let place = self.description.parts.first().map(|part| &part.place);
        let source = place.and_then(|place| stock.source(place).ok());
        source.is_some_and(|source| source.tells_changes_at_once())
    }

    fn check_unchanged(&self, stock: &Stock) -> Result<(), Fault> {
        match &self.origin {
            Origin::Memory(_) => Ok(()),
            Origin::File { before, .. } if self.open(stock)?.state()? == *before => Ok(()),
            Origin::File { .. } => Err(Fault::Changed),
        }
    }

    /// The file, open. One that was closed must be as it was.
    fn open(&self, stock: &Stock) -> Result<Arc<dyn SourceFile>, Fault> {
        let (Origin::File { open, before, .. }, [part]) =
            (&self.origin, &self.description.parts[..])
        else {
            return Err(Fault::Changed);
        };
        let mut open = open.lock();
        if let Some(file) = &*open {
            return Ok(Arc::clone(file));
        }
        let file = stock.source(&part.place)?.open(&part.place.path)?;
        if file.state()? != *before {
            return Err(Fault::Changed);
        }
        let file: Arc<dyn SourceFile> = Arc::from(file);
        *open = Some(Arc::clone(&file));
        Ok(file)
    }
}
