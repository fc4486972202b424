//! Which files are read next, and which of them together: what is wanted waits here until it may be opened or
//! read. Owns the bounds on that. What stalls does not count among them, up to a bound of its own, and a small
//! file that stalls does not hold up those that it was to travel with.

use std::sync::Arc;
use std::time::Instant;

use azekura_proto::staging::NodeId;
use rustix::io::Errno;

use super::bundling::{Bundling, PATIENCE};
use super::{Recipients, Scheduler, State, text_of};
use crate::front::event::Event;
use crate::front::word::Word;
use crate::message::{
    BUNDLE_BYTES_MAX, BUNDLE_NAMES_BYTES_MAX, ContentId, PARTS_MAX, PLACE_BYTES, Place,
    SMALL_BYTES_MAX, ToAgent,
};
use crate::stock::{Audience, Bundled};

/// Large files that travel at once: more would only make each of them later.
const LARGE_MAX: usize = 4;
/// Bundles that travel at once; the nodes hold them in memory.
const BUNDLES_MAX: usize = 16;
/// Bundles that are read at once. Files that are wanted meanwhile wait, and travel together.
const READING_MAX: usize = 2;
/// Waiting small files that are counted when the way of a bundle is chosen: more do not change it.
const LOOKED_AT: usize = 4096;
/// Openings that stall beside those that do not, at most; and as many bundles, and contents.
const STALLED_MAX: usize = 16;

impl Scheduler {
    pub(super) fn want(&mut self, node: NodeId, place: Place, bytes: u64) {
        let wanted = self.state.files.entry(place.clone()).or_default();
        if let Some(content) = wanted.content {
            return self.join(node, content);
        }
        wanted.by.insert(node);
        if !wanted.is_queued {
            wanted.is_queued = true;
            wanted.bytes = bytes;
            self.queue(place, bytes);
        }
    }

    pub(super) fn queue(&mut self, place: Place, bytes: u64) {
        let is_small = bytes <= SMALL_BYTES_MAX;
        let queue = if is_small { &mut self.state.small } else { &mut self.state.large };
        queue.push_back(place);
    }

    /// Begins what may begin.
    pub(super) fn begin_waiting(&mut self) {
        let large = self.large_under_way();
        let bundles = self.state.under_way.len() - large.len();
        let stalls = |id: &&ContentId| self.stock.stalls(**id, PATIENCE);
        let stalled = large.iter().filter(stalls).count().min(STALLED_MAX);
        let since = self.state.opening.values();
        let late = since.filter(|since| since.elapsed() > PATIENCE).count().min(STALLED_MAX);
        let travelling = large.len() - stalled;
        while travelling + self.state.opening.len() - late < LARGE_MAX
            && let Some(place) = self.state.large.pop_front()
        {
            self.open(place);
        }
        let is_split = |bundling: &&Arc<Bundling>| bundling.is_split();
        let split = self.state.reading.values().filter(is_split).count();
        while bundles + self.state.reading.len() - split < BUNDLES_MAX
            && self.state.reading.len() - split < READING_MAX
            && !self.state.small.is_empty()
        {
            self.read_bundle();
        }
    }

    /// Bytes of small files that travel or wait to, as far as they change the way of a bundle.
    pub(super) fn small_bytes_beside(&self) -> u64 {
        let State { files, contents, small, under_way, .. } = &self.state;
        let travelling = under_way.iter().filter_map(|id| contents.get(id));
        let travelling = travelling.map(|content| &content.description);
        let travelling = travelling.filter(|content| content.is_small());
        let waiting = small.iter().take(LOOKED_AT).filter_map(|place| files.get(place));
        travelling.map(|content| content.bytes()).sum::<u64>()
            + waiting.map(|wanted| wanted.bytes).sum::<u64>()
    }

    fn large_under_way(&self) -> Vec<ContentId> {
        let is_large = |id: &ContentId| {
            let content = self.state.contents.get(id);
            content.is_some_and(|content| !content.description.is_small())
        };
        self.state.under_way.iter().copied().filter(is_large).collect()
    }

    fn open(&mut self, place: Place) {
        self.state.opening.insert(place.clone(), Instant::now());
        let audience = self.audience(Some(&place));
        let (stock, words) = (Arc::clone(&self.stock), self.words.clone());
        self.workers.give(move || {
            let opened = stock
                .open(&place, audience)
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO).raw_os_error());
            // If nobody listens the job is over.
            let _ = words.send(Word::Opened { place, opened });
        });
    }

    fn read_bundle(&mut self) {
        let places = self.gather();
        let audience = self.audience(places.first());
        let is_far = places.iter().any(|place| self.stock.is_far(place));
        let bundling = Bundling::new(places, is_far);
        let number = self.state.next_bundle;
        self.state.next_bundle += 1;
        self.state.reading.insert(number, Arc::clone(&bundling));
        let (stock, words) = (Arc::clone(&self.stock), self.words.clone());
        self.workers.give(move || {
            let bundle = bundling.read(&stock);
            let _ = words.send(Word::Bundled(number, stock.add_bundle(bundle, audience)));
        });
    }

    /// Bundles go on without files that stall.
    pub(super) fn split_stalled(&mut self) {
        let reading: Vec<_> = self.state.reading.values().cloned().collect();
        let mut split = reading.iter().filter(|bundling| bundling.is_split()).count();
        for bundling in reading {
            if split >= STALLED_MAX {
                return;
            }
            let is_new = !bundling.is_split();
            let Some((read, left)) = bundling.split() else { continue };
            split += usize::from(is_new);
            for place in left.into_iter().rev() {
                self.state.small.push_front(place);
            }
            let audience = self.audience(read.first());
            let bundled = self.stock.add_bundle(read, audience);
            self.bundled(bundled);
        }
    }

    /// To how many nodes a file goes; to none if there is no file.
    fn audience(&self, place: Option<&Place>) -> Audience {
        let wanted = place.and_then(|place| self.state.files.get(place));
        let nodes = match self.recipients {
            Recipients::All => self.agents.len(),
            Recipients::Requesters => wanted.map_or(0, |wanted| wanted.by.len()),
        };
        let before = wanted.and_then(|wanted| wanted.before);
        Audience { nodes, links: self.links, before }
    }

    /// Small files that the same nodes want, as many as go into one content.
    pub(super) fn gather(&mut self) -> Vec<Place> {
        let State { files, small, .. } = &mut self.state;
        let mut gathered = Vec::new();
        let (mut bytes, mut names) = (0, 0);
        let mut by = None;
        while let Some(place) = small.front() {
            let Some(wanted) = files.get(place) else {
                small.pop_front();
                continue;
            };
            bytes += wanted.bytes;
            names += place.path.len() + PLACE_BYTES;
            let others_want_it = by.as_ref().is_some_and(|by| *by != wanted.by);
            let is_full = bytes > BUNDLE_BYTES_MAX || names > BUNDLE_NAMES_BYTES_MAX;
            if gathered.len() >= PARTS_MAX || !gathered.is_empty() && (is_full || others_want_it) {
                break;
            }
            by.get_or_insert_with(|| wanted.by.clone());
            gathered.extend(small.pop_front());
        }
        gathered
    }

    pub(super) fn bundled(&mut self, bundled: Bundled) {
        for (place, errno) in bundled.failed {
            self.refuse(&place, errno, "it cannot be read");
        }
        self.state.large.extend(bundled.grown);
        if let Some(content) = bundled.content {
            self.begin(content);
        }
    }

    /// A file does not come. Who asks for it later, has it tried again.
    pub(super) fn refuse(&mut self, place: &Place, errno: i32, why: &str) {
        let Some(wanted) = self.state.files.remove(place) else { return };
        for node in wanted.by {
            self.say(node, ToAgent::Refuse { place: place.clone(), errno });
        }
        let error = std::io::Error::from_raw_os_error(errno);
        let why = format!("{why}: {error}");
        self.tell(Event::Failed { path: text_of(place), node: None, why });
    }
}
