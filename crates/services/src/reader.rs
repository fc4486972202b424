//! A file of a service that is being read. Owns the reading ahead: who reads in order finds several ranges on
//! their way already, as a service that is far away gives one range after the other too slowly. Never gives
//! bytes of two versions where the service can tell them apart.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use azekura_stage::source::{FileState, SourceFile};
use opendal::{Buffer, ErrorKind};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::address::Kind;
use crate::budget::Share;
use crate::link::{Link, state_of};

/// The first range, for a first byte that comes soon; each is twice as long as all before it, up to the longest.
const RANGE_BYTES_MIN: u64 = 512 * 1024;
const RANGE_BYTES_MAX: u64 = 4 << 20;
/// Ranges of one reader that are on their way.
const RANGES_MAX: usize = 8;
/// Readers of one file at different places that are read ahead for.
const WAYS_MAX: usize = 4;

/// An open file.
pub(crate) struct Reader {
    link: Arc<Link>,
    path: String,
    state: FileState,
    /// Nothing has been read since that state was asked for.
    is_fresh: AtomicBool,
    /// With this the service gives ranges of that version only.
    etag: Option<String>,
    /// Those in use are taken out.
    ways: Mutex<VecDeque<Way>>,
}

/// Somebody's way through the file.
struct Way {
    begun: u64,
    ranges: VecDeque<Range>,
}

/// A part of the file, on its way or here.
struct Range {
    offset: u64,
    bytes: u64,
    coming: Option<JoinHandle<opendal::Result<Buffer>>>,
    here: Buffer,
    _share: Share,
}

impl Drop for Range {
    fn drop(&mut self) {
        if let Some(coming) = &self.coming {
            coming.abort();
        }
    }
}

impl Reader {
    pub(crate) fn open(link: &Arc<Link>, path: String) -> io::Result<Self> {
        let found = link.look(&path);
        let found = found.map_err(|error| link.called.errno(&format!("open '{path}'"), &error))?;
        let etag = found.etag().map(ToOwned::to_owned).filter(|_| link.kind() == Kind::S3);
        let state = state_of(&found);
        let (link, is_fresh) = (Arc::clone(link), AtomicBool::new(true));
        Ok(Self { link, path, state, is_fresh, etag, ways: Mutex::default() })
    }

    /// A way on which an offset comes next.
    fn take_way(&self, offset: u64) -> Way {
        let mut ways = self.ways.lock();
        let leads = |way: &Way| {
            way.ranges
                .front()
                .is_some_and(|range| range.offset <= offset && offset < range.offset + range.bytes)
        };
        let place = ways.iter().position(leads);
        let found = place.and_then(|place| ways.remove(place));
        found.unwrap_or_else(|| Way { begun: offset, ranges: VecDeque::new() })
    }

    fn put_back(&self, way: Way) {
        if way.ranges.is_empty() {
            return;
        }
        let mut ways = self.ways.lock();
        ways.push_back(way);
        if ways.len() > WAYS_MAX {
            let oldest = ways.pop_front();
            drop(ways);
            drop(oldest);
        }
    }

    /// Asks for more, as far as there may be more at once.
    fn ask(&self, way: &mut Way, offset: u64) -> io::Result<()> {
        let size = self.state.attributes.size;
        while way.ranges.len() < RANGES_MAX {
            let last = way.ranges.back();
            let next = last.map_or(offset, |range| range.offset + range.bytes);
            let bytes = (next - way.begun)
                .clamp(RANGE_BYTES_MIN, RANGE_BYTES_MAX)
                .min(size.saturating_sub(next));
            if bytes == 0 {
                break;
            }
            let is_waited_for = way.ranges.is_empty();
            let Some(share) = self.link.budget.take(bytes as usize, is_waited_for) else { break };
            let (operator, path) = (self.link.operator.clone(), self.path.clone());
            let etag = self.etag.clone();
            let coming = self.link.spawn(async move {
                let read = operator.read_with(&path).range(next..next + bytes);
                match etag {
                    Some(etag) => read.if_match(&etag).await,
                    None => read.await,
                }
            })?;
            let coming = Some(coming);
            let here = Buffer::new();
            way.ranges.push_back(Range { offset: next, bytes, coming, here, _share: share });
        }
        Ok(())
    }

    /// Takes what there is at an offset; how many bytes that are.
    fn take(&self, way: &mut Way, buffer: &mut [u8], offset: u64) -> opendal::Result<usize> {
        let Some(range) = way.ranges.front_mut() else { return Ok(0) };
        if let Some(coming) = &mut range.coming {
            let came = self.link.wait(range.bytes, async {
                coming.await.unwrap_or_else(|error| {
                    Err(opendal::Error::new(ErrorKind::Unexpected, error.to_string()))
                })
            });
            range.here = came?;
            range.coming = None;
        }
        let from = (offset - range.offset) as usize;
        let bytes = buffer.len().min(range.here.len().saturating_sub(from));
        let mut rest = range.here.slice(from..from + bytes);
        bytes::Buf::copy_to_slice(&mut rest, &mut buffer[..bytes]);
        if from + bytes >= range.bytes as usize {
            way.ranges.pop_front();
        }
        Ok(bytes)
    }

    /// What an error means: no bytes, if the file is not any more what it was.
    fn failed(&self, error: &opendal::Error) -> io::Result<usize> {
        let is_other = match error.kind() {
            ErrorKind::ConditionNotMatch | ErrorKind::RangeNotSatisfied => true,
            ErrorKind::NotFound | ErrorKind::PermissionDenied => false,
            _ => self.link.look(&self.path).is_ok_and(|found| state_of(&found) != self.state),
        };
        if is_other {
            return Ok(0);
        }
        Err(self.link.called.errno(&format!("read '{}'", self.path), error))
    }
}

impl SourceFile for Reader {
    fn state(&self) -> io::Result<FileState> {
        // What came was asked for of this version; and what opening has found need not be asked for again.
        if self.etag.is_some() || self.is_fresh.load(Ordering::Acquire) {
            return Ok(self.state.clone());
        }
        let found = self.link.look(&self.path);
        let doing = || format!("look at '{}'", self.path);
        found
            .map(|found| state_of(&found))
            .map_err(|error| self.link.called.errno(&doing(), &error))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.is_fresh.store(false, Ordering::Release);
        let left = self.state.attributes.size.saturating_sub(offset);
        let bytes = buffer.len().min(left as usize);
        let buffer = &mut buffer[..bytes];
        let mut way = self.take_way(offset);
        let mut filled = 0;
        while filled < buffer.len() {
            let at = offset + filled as u64;
            self.ask(&mut way, at)?;
            match self.take(&mut way, &mut buffer[filled..], at) {
                // Shorter than it was.
                Ok(0) => break,
                Ok(bytes) => filled += bytes,
                Err(error) => return self.failed(&error),
            }
        }
        if filled == buffer.len() {
            self.put_back(way);
        }
        Ok(filled)
    }
}
