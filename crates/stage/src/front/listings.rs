//! Directories of the source, as all agents are told of them. The first answer is kept, so that all nodes
//! see the same names.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use azekura_proto::FileKind;
use azekura_proto::staging::Attributes;
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::message::{Entry, Place, ToAgent};
use crate::outbox::Outbox;
use crate::resolve::{Led, Names, resolve};
use crate::source::Source;

/// Names that are kept of all directories; beyond that, directories are read again.
const NAMES_MAX: usize = 4 << 20;
/// A page of names, in bytes.
const PAGE_BYTES: usize = 128 * 1024;
/// What a name takes beside its own letters, in bytes.
const ENTRY_BYTES: usize = 48;

type Answer = Result<Arc<Vec<Entry>>, i32>;

/// The directories that were asked for.
pub(crate) struct Listings {
    sources: Vec<Arc<dyn Source>>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    answers: HashMap<Place, Answer>,
    names: usize,
}

impl Listings {
    pub(crate) fn new(sources: Vec<Arc<dyn Source>>) -> Self {
        Self { sources, kept: Mutex::default() }
    }

    /// Tells an agent of a directory. Waits for the source.
    pub(crate) fn tell(&self, place: &Place, agent: &Outbox<ToAgent>) {
        let place = place.clone();
        match self.get(&place) {
            Err(errno) => {
                agent.say(ToAgent::Listing { place, page: Err(errno), is_last: true });
            }
            Ok(entries) => {
                let mut pages = pages(&entries).peekable();
                while let Some(page) = pages.next() {
                    let is_last = pages.peek().is_none();
                    let (place, page) = (place.clone(), Ok(page.to_vec()));
                    agent.say(ToAgent::Listing { place, page, is_last });
                }
            }
        }
    }

    /// Gives all regular files at and below a path, with their lengths, in batches. Symlinks on the way are
    /// followed; those in a directory are not, as their ends may be anywhere.
    pub(crate) fn walk(
        &self,
        path: &[u8],
        dirs: &[Vec<u8>],
        give: &mut dyn FnMut(Vec<(Place, u64)>),
    ) {
        let Ok(Led::Inside(place, Some(found))) = resolve(path, true, dirs, self) else { return };
        if found.kind == FileKind::Regular {
            return give(vec![(place, found.size)]);
        }
        let mut left = vec![place];
        while let Some(directory) = left.pop() {
            let Ok(entries) = self.get(&directory) else { continue };
            let mut files = Vec::new();
            for (name, attributes) in entries.iter() {
                let place = directory.join(name);
                match attributes.kind {
                    FileKind::Regular => files.push((place, attributes.size)),
                    FileKind::Directory => left.push(place),
                    _ => {}
                }
            }
            give(files);
        }
    }

    fn get(&self, place: &Place) -> Answer {
        if let Some(answer) = self.kept.lock().answers.get(place) {
            return answer.clone();
        }
        let answer = match self.sources.get(usize::from(place.map)) {
            Some(source) => {
                source.list(&place.path).map(Arc::new).map_err(|error| errno_of(&error))
            }
            None => Err(Errno::NOENT.raw_os_error()),
        };
        let mut kept = self.kept.lock();
        if let Some(answer) = kept.answers.get(place) {
            return answer.clone();
        }
        let names = answer.as_ref().map_or(1, |entries| entries.len() + 1);
        if kept.names + names > NAMES_MAX {
            *kept = Kept::default();
        }
        kept.names += names;
        kept.answers.insert(place.clone(), answer.clone());
        answer
    }
}

impl Names for Listings {
    fn look(&self, place: &Place) -> Result<Option<Attributes>, i32> {
        let source = self.sources.get(usize::from(place.map)).ok_or(Errno::NOENT.raw_os_error())?;
        match source.attributes(&place.path) {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(errno_of(&error)),
        }
    }
}

fn errno_of(error: &io::Error) -> i32 {
    Errno::from_io_error(error).unwrap_or(Errno::IO).raw_os_error()
}

/// The names in pages; one page for an empty directory.
fn pages(entries: &[Entry]) -> impl Iterator<Item = &[Entry]> {
    let mut rest = Some(entries);
    std::iter::from_fn(move || {
        let entries = rest?;
        let mut bytes = 0;
        let fits = |(name, attributes): &&Entry| {
            bytes += name.len() + attributes.link.len() + ENTRY_BYTES;
            bytes <= PAGE_BYTES
        };
        let count = entries.iter().take_while(fits).count().max(1).min(entries.len());
        let (page, others) = entries.split_at(count);
        rest = (!others.is_empty()).then_some(others);
        Some(page)
    })
}
