//! The contents that come out of files: large ones are read when they are fetched, small ones given from
//! memory. The front has one over the sources, an agent one over its tree. Owns the promise that what is given is one version: the attributes at the end are those of the
//! beginning, and what is read a second time is what was read the first time.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use azekura_proto::FileKind;
use azekura_proto::staging::Attributes;
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::front::plan::Known;
use crate::message::{ContentDescription, ContentId, Part, Place, SMALL_BYTES_MAX};
use crate::piece::{self, Buffers};
use crate::source::{FileState, Source, SourceFile};
use crate::supply::{Bell, Offer, Shelf};

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
    table: Mutex<Table>,
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
    checksums: Mutex<Vec<u64>>,
    origin: Origin,
}

enum Origin {
    Memory(Vec<u8>),
    File { open: Mutex<Option<Arc<dyn SourceFile>>>, before: FileState },
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
    pub(crate) fn new(sources: Vec<Arc<dyn Source>>, first: ContentId, tell: Tell) -> Self {
        Self {
            sources,
            tell,
            buffers: Buffers::default(),
            next: AtomicU64::new(first.0),
            table: Mutex::default(),
        }
    }

    fn source(&self, place: &Place) -> io::Result<&Arc<dyn Source>> {
        self.sources.get(usize::from(place.map)).ok_or(io::ErrorKind::NotFound.into())
    }

    fn draw(&self) -> ContentId {
        ContentId(self.next.fetch_add(1, Ordering::Relaxed))
    }

    fn add(&self, parts: Vec<Part>, audience: Audience, origin: Origin) -> Arc<ContentDescription> {
        let bytes = parts.iter().map(|part| part.attributes.size).sum();
        let piece_bytes = audience.links.piece_bytes(bytes, audience.nodes);
        let description = Arc::new(ContentDescription { id: self.draw(), piece_bytes, parts });
        let checksums = Mutex::default();
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
        Ok(self.add(vec![part], audience, Origin::File { open, before }))
    }

    /// Reads small files into one content.
    pub(crate) fn bundle(&self, places: Vec<Place>, audience: Audience) -> Bundled {
        let (mut bundled, mut parts, mut bytes) = (Bundled::default(), Vec::new(), Vec::new());
        for place in places {
            match self.read_small(&place) {
                Ok(Some((attributes, content))) => {
                    bytes.extend_from_slice(&content);
                    parts.push(Part { place, attributes });
                }
                Ok(None) => bundled.grown.push(place),
                Err(error) => {
                    let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                    bundled.failed.push((place, errno.raw_os_error()));
                }
            }
        }
        if !parts.is_empty() {
            bundled.content = Some(self.add(parts, audience, Origin::Memory(bytes)));
        }
        bundled
    }

    /// One version of a small file; none if it is not small.
    fn read_small(&self, place: &Place) -> io::Result<Option<(Attributes, Vec<u8>)>> {
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
            Origin::File { open, .. } => *open.lock() = None,
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
    fn offer(&self, id: ContentId, index: u32, _bell: &Arc<Bell>) -> Offer {
        let Some(stocked) = self.table.lock().contents.get(&id).cloned() else {
            return Offer::Gone;
        };
        let offered = stocked.offer(index, &self.buffers, self);
        let spoilt = match offered {
            Ok(offer) => return offer,
            Err(Fault::Changed) => Spoilt::Changed,
            Err(Fault::Io(error)) => {
                tracing::error!("cannot read content {} of the source: {error}", id.0);
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                Spoilt::Unreadable(errno.raw_os_error())
            }
        };
        self.forget(id);
        (self.tell)(id, spoilt);
        Offer::Gone
    }
}

impl Stocked {
    fn offer(&self, index: u32, buffers: &Buffers, stock: &Stock) -> Result<Offer, Fault> {
        let pieces = self.description.pieces();
        if index >= pieces {
            let checksums = self.checksums.lock();
            if checksums.len() != pieces as usize {
                return Ok(Offer::Gone);
            }
            let digest = piece::digest(&checksums);
            drop(checksums);
            self.check_unchanged(stock)?;
            return Ok(Offer::End { digest });
        }
        let mut bytes = buffers.take(self.description.bytes_of(index));
        let offset = self.description.offset_of(index);
        match &self.origin {
            Origin::Memory(all) => {
                let from = offset as usize;
                let length = bytes.len();
                bytes.copy_from_slice(&all[from..from + length]);
            }
            Origin::File { .. } => {
                if self.open(stock)?.read_at(&mut bytes, offset)? != bytes.len() {
                    return Err(Fault::Changed);
                }
            }
        }
        let checksum = piece::checksum(&bytes);
        let mut checksums = self.checksums.lock();
        match checksums.get(index as usize) {
            Some(before) if *before != checksum => return Err(Fault::Changed),
            Some(_) => {}
            None if checksums.len() == index as usize => checksums.push(checksum),
            // Nobody has the pieces before it, so nobody can ask for this one.
            None => return Ok(Offer::Gone),
        }
        Ok(Offer::Piece { checksum, bytes: Arc::new(bytes) })
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
        let (Origin::File { open, before }, [part]) = (&self.origin, &self.description.parts[..])
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
