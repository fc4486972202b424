//! Reading by prediction: ranges that are on their way or have come, and the read that takes what it
//! needs of them. Several threads may read through one handle, as a kernel's read-ahead does: the state
//! is locked only to plan and to look things up, never while bytes are waited for.

use std::collections::BTreeMap;
use std::sync::Arc;

use azekura_policy::{Actions, ByteRange, LinkEstimate, PredictiveParameters, ReadAhead};
use azekura_proto::Attr;
use azekura_proto::message::typed::FileLeased;
use parking_lot::Mutex;

use super::brought::Brought;
use super::brought_bytes::{BroughtBytes, BroughtRoom, Counted, FILE_BYTES_MAX, START_BYTES_MAX};
use super::expected::Expected;
use super::far_file::{Copied, Direct, FarFile, Part, copy_out};
use super::leased_attr::AttrAsked;
use super::reading::Reading;
use super::short_files::ShortFile;
use super::trace::Trace;
use super::whole::Whole;

/// A near link is looked at again after so many microseconds.
const LOOK_AGAIN_US: u64 = 100_000;
/// A read that is larger than this is taken in steps that end at multiples of it, in bytes.
const STEP_BYTES: u64 = 1 << 20;

/// What an open file has ahead.
#[derive(Debug)]
pub(super) struct Readahead {
    file: FarFile,
    plan: ReadAhead,
    /// Ranges of the plan by their start, each with its requests.
    entries: BTreeMap<u64, (ByteRange, Vec<Part>)>,
    /// What has come with the answer to the file's opening.
    brought: Option<Brought>,
    /// The file, if it is one that can come whole, and it is to be seen whether it is read.
    short: Option<ShortFile>,
    /// All of the file, if it was asked for before the file was opened.
    whole: Option<Whole>,
    /// The start of the file, among the entries, if it was asked for before the file was opened.
    start: Option<Counted>,
    actions: Actions,
    /// A link with a shorter round trip than this is near, in microseconds.
    near_us: u64,
    /// The count of own changes when what is kept was asked for.
    changes: u64,
    /// Until then, on the pipeline's clock, the link is near.
    near_until_us: u64,
    /// Files to go on with while this one is read.
    expected: Arc<Expected>,
    trace: Option<Arc<Trace>>,
}

/// What a read waits for.
struct Awaited {
    /// Out of what was asked for before: usable only under a lease.
    kept: Vec<Part>,
    /// Asked for by this very read.
    fresh: Vec<Part>,
}

impl Readahead {
    pub(super) fn new(parameters: &PredictiveParameters, reading: &Reading, file: FarFile) -> Self {
        let mut plan = ReadAhead::new(parameters.clone(), Arc::clone(&reading.budget));
        let mut actions = Actions::default();
        plan.on_eof(file.bytes, &mut actions);
        Self {
            changes: file.changes.now(),
            file,
            plan,
            entries: BTreeMap::new(),
            brought: None,
            short: None,
            whole: None,
            start: None,
            actions,
            near_us: parameters.round_trip_min_us,
            near_until_us: 0,
            expected: Arc::clone(&reading.expected),
            trace: reading.trace.clone(),
        }
    }

    /// Reads by prediction. A large read is taken in steps as its bytes come, so that the plan goes on
    /// meanwhile: what is asked for in one great burst is dealt to connections that end at different times.
    pub(super) fn read(
        state: &Mutex<Self>,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, Direct> {
        let (read, mut link) = state.lock().known_part(offset, buffer.len() as u64)?;
        let buffer = &mut buffer[..read.bytes as usize];
        let mut done = 0;
        while done < buffer.len() {
            if done > 0 {
                link = state.lock().link();
            }
            let rest = ByteRange::between(read.offset + done as u64, read.end());
            done += Self::take_step(state, link, rest, &mut buffer[done..])?;
        }
        Ok(done)
    }

    /// The part of a read before the file's end, and the link to it.
    fn known_part(&mut self, offset: u64, bytes: u64) -> Result<(ByteRange, LinkEstimate), Direct> {
        let now_us = self.file.pipeline.now_us();
        if now_us < self.near_until_us {
            return Err(Direct::Near);
        }
        self.take_in_changes();
        let link = self.link();
        if link.is_nearer_than(self.near_us) {
            self.near_until_us = now_us + LOOK_AGAIN_US;
            return Err(Direct::Near);
        }
        let read = ByteRange::new(offset, bytes);
        if read.end() <= self.file.bytes {
            return Ok((read, link));
        }
        let end = self.leased_end().ok_or(Direct::BeyondKnownEnd)?;
        Ok((ByteRange::between(offset, read.end().min(end)), link))
    }

    /// Reads the first bytes of what is left of a read; gives how many. Plans and asks under the lock, waits
    /// without it.
    fn take_step(
        state: &Mutex<Self>,
        link: LinkEstimate,
        rest: ByteRange,
        buffer: &mut [u8],
    ) -> Result<usize, Direct> {
        let mut readahead = state.lock();
        let changes = readahead.take_in_changes();
        let read = readahead.step_of(rest);
        let buffer = &mut buffer[..read.bytes as usize];
        let pipeline = Arc::clone(&readahead.file.pipeline);
        let waits = Arc::clone(&readahead.file.waits);
        let expected = Arc::clone(&readahead.expected);
        let Awaited { kept, fresh } = readahead.begin(link, read).ok_or(Direct::NoLease)?;
        drop(readahead);
        let parts = || fresh.iter().chain(&kept);
        waits.during(|| parts().for_each(|part| pipeline.wait(&part.fetch)));
        expected.go_on();
        if !kept.is_empty() && !state.lock().may_use(&kept, changes) {
            return Err(Direct::NoLease);
        }
        match copy_out(parts(), read, buffer) {
            Copied::All => Ok(buffer.len()),
            Copied::WithHoles if state.lock().file.are_holes(parts(), read, changes) => {
                Ok(buffer.len())
            }
            Copied::WithHoles | Copied::NotAll => Err(Direct::NotThere),
        }
    }

    /// How much of a read is waited for at once: up to the next whole step where that and the step behind it
    /// are on their way; else all of it, so that it is asked for at once.
    fn step_of(&self, rest: ByteRange) -> ByteRange {
        let end = (rest.offset / STEP_BYTES + 1) * STEP_BYTES;
        let with_next = ByteRange::between(rest.offset, rest.end().min(end + STEP_BYTES));
        if end < rest.end() && self.plan.has_all_of(with_next) {
            ByteRange::between(rest.offset, end)
        } else {
            rest
        }
    }

    fn link(&self) -> LinkEstimate {
        self.file.pipeline.estimate(self.file.layout.shard_targets())
    }

    /// Throws away what is from before own changes; gives their count.
    fn take_in_changes(&mut self) -> u64 {
        let changes = self.file.changes.now();
        if std::mem::replace(&mut self.changes, changes) != changes {
            self.invalidate();
        }
        changes
    }

    /// Plans a read and sends what it takes. `None` if nothing may be kept of the file now.
    fn begin(&mut self, link: LinkEstimate, read: ByteRange) -> Option<Awaited> {
        if let Some(short) = &mut self.short {
            short.note_read(read.offset);
        }
        if !self.file.take_in_leases() {
            self.invalidate();
            return None;
        }
        if let Some(whole) = &mut self.whole {
            return Some(Awaited { kept: whole.parts_of(read), fresh: Vec::new() });
        }
        if let Some(kept) = self.brought_parts(link, read) {
            return Some(Awaited { kept, fresh: Vec::new() });
        }
        self.start.take_if(|start| {
            start.note_read(read.bytes);
            start.is_all_read()
        });
        self.file.request_leases();
        self.count_arrivals();
        let now_us = self.file.pipeline.now_us();
        self.plan.on_read(now_us, read.offset, read.bytes, link, &mut self.actions);
        self.drop_given_up();
        if let (Some(trace), Some(record)) = (&self.trace, self.plan.last_plan())
            && record.now_us == now_us
        {
            trace.plan(self.file.layout.oid(), &self.plan, record, &self.actions);
        }
        let keeps = self.actions.keep_demand;
        if keeps {
            // What is to be kept must be asked for under a lease.
            self.file.acquire_leases();
        }
        let kept = self.parts_of(read);
        let mut fresh = Vec::new();
        for (range, parts) in self.file.send(link, &self.actions.demand) {
            fresh.extend(parts.iter().filter(|part| part.range.overlaps(read)).cloned());
            if keeps {
                self.entries.insert(range.offset, (range, parts));
            }
        }
        // Otherwise the leases travel beside what the read itself needs.
        if !self.file.acquire_leases() {
            self.invalidate();
            return kept.is_empty().then_some(Awaited { kept, fresh });
        }
        let ahead = self.file.send_ahead(link, &self.actions.ahead, read.end());
        self.entries.extend(ahead.into_iter().map(|entry| (entry.0.offset, entry)));
        Some(Awaited { kept, fresh })
    }

    /// The parts of a read that lies at the end of the file, where the last bytes came with its opening; asks for what
    /// lacks before them, up to where they begin. `None` if it is to be read as ever.
    fn brought_parts(&mut self, link: LinkEstimate, read: ByteRange) -> Option<Vec<Part>> {
        self.brought.take_if(|brought| brought.has_failed());
        let brought = self.brought.as_mut()?;
        // What is read ahead has come this far by itself.
        let is_first = self.entries.is_empty() && self.file.is_good(brought.came());
        // Of a file on several engines the home's lease alone has come with the opening.
        if is_first
            && let Some(lacking) = brought.lacking_before(read)
            && self.file.is_leased(lacking)
            && brought.take_room(lacking)
        {
            let sent = self.file.send(link, &[lacking]);
            brought.put_before(lacking, sent.into_iter().flat_map(|(_, parts)| parts));
        }
        brought.all_of(read).filter(|parts| self.file.are_good(parts))
    }

    /// Whether parts that were kept before a read may be used now; if not, all is thrown away. `changes`
    /// is the count when the read began.
    fn may_use(&mut self, kept: &[Part], changes: u64) -> bool {
        if self.file.changes.now() != changes {
            // The next read throws away what is old.
            return false;
        }
        self.file.take_in_leases();
        if self.file.are_good(kept) {
            return true;
        }
        // A lease may have run out while the bytes were on their way, and nothing have changed.
        self.file.acquire_leases();
        let are_good = self.file.are_good(kept);
        if !are_good {
            self.invalidate();
        }
        are_good
    }

    /// The parts of entries that a read needs.
    fn parts_of(&self, read: ByteRange) -> Vec<Part> {
        let before = self.entries.range(..=read.offset).next_back();
        let after = self.entries.range(read.offset + 1..read.end().max(read.offset + 1));
        before
            .into_iter()
            .chain(after)
            .flat_map(|(_, (_, parts))| parts.iter())
            .filter(|part| part.range.overlaps(read))
            .cloned()
            .collect()
    }

    /// Tells the plan what has come, and what will not come.
    fn count_arrivals(&mut self) {
        let Self { plan, entries, .. } = self;
        let mut failed = Vec::new();
        for (range, parts) in entries.values_mut() {
            for part in parts.iter_mut().filter(|part| !part.counted) {
                if !part.fetch.is_over() {
                    // Later parts may have come over another connection; they are counted later.
                    break;
                }
                if part.fetch.has_failed() {
                    failed.push(*range);
                    break;
                }
                part.counted = true;
                plan.on_arrival(part.range);
            }
        }
        for range in failed {
            plan.on_failure(range);
            entries.remove(&range.offset);
        }
    }

    /// Where the file ends, if the leases say so.
    fn leased_end(&mut self) -> Option<u64> {
        let end = self.file.attr()?.size;
        self.learn_length(end);
        Some(end)
    }

    /// The attributes, if the leases say that they are as they were.
    pub(super) fn attr(&mut self) -> Option<Attr> {
        self.file.attr().cloned()
    }

    /// Whether all bytes from an offset on were asked for with the opening of the file, or before.
    pub(super) fn has_brought(&self, offset: u64) -> bool {
        let reaches_back = |brought: &Brought| brought.begins_at_most_at(offset);
        self.whole.is_some() || self.brought.as_ref().is_some_and(reaches_back)
    }

    /// To be called before the home's lease is asked for with the attributes, beside other requests.
    /// `None` if none is to be had now.
    pub(super) fn ask_attr(&mut self) -> Option<AttrAsked> {
        self.file.take_in_leases().then(|| self.file.ask_attr())
    }

    /// The home's lease has come with the attributes.
    pub(super) fn take_attr(&mut self, asked: AttrAsked, leased: FileLeased) {
        self.file.take_attr(asked, leased);
    }

    /// The same of a file that was brought and is opened now: waits for what is on its way of leases and attributes, and
    /// asks for what was not asked for yet.
    pub(super) fn await_attr(
        &mut self,
        counts: &Arc<BroughtBytes>,
        room: &mut BroughtRoom,
    ) -> Option<Attr> {
        let is_lacking = self.file.is_spread() && self.file.attr().is_none();
        if is_lacking && self.file.acquire_leases() {
            self.bring(counts, room);
            self.file.await_home();
        }
        self.attr()
    }

    /// Asks for a file that is expected to be read, without waiting, under the leases that it was found with, as far as
    /// there is room: for all bytes, if it is short and lies at home as a whole, or for its start. Of a striped file at
    /// several engines the leases of the others are asked for before: true as long as they have not come.
    pub(super) fn bring(&mut self, counts: &Arc<BroughtBytes>, room: &mut BroughtRoom) -> bool {
        if self.start.is_some() || self.whole.is_some() {
            // Whoever opened it meanwhile has asked.
            return false;
        }
        let Some(attr) = self.file.attr() else { return self.bring_spread(counts, room) };
        let (bytes, is_whole) = (attr.size, !attr.striped && attr.size <= FILE_BYTES_MAX);
        if is_whole && bytes > 0 && room.take(bytes) {
            let sent = self.file.send(self.link(), &[ByteRange::new(0, bytes)]);
            let parts = sent.into_iter().flat_map(|(_, parts)| parts).collect();
            self.whole = Some(Whole::new(parts, bytes, counts));
        } else if !is_whole {
            self.bring_start(counts, room.take_start(bytes));
        }
        false
    }

    fn bring_spread(&mut self, counts: &Arc<BroughtBytes>, room: &mut BroughtRoom) -> bool {
        if !self.file.is_spread() || !self.file.take_in_leases() {
            return false;
        }
        let is_leased = self.file.lacks_attr();
        // Of the others, or, once theirs have come, of the home with the attributes, which rely on those.
        self.file.request_leases();
        if is_leased {
            self.bring_start(counts, room.take_start(self.file.bytes));
        }
        !is_leased
    }

    fn bring_start(&mut self, counts: &Arc<BroughtBytes>, bytes: u64) {
        let sent_bytes = self.expect(bytes);
        self.start = Some(Counted::new(sent_bytes, counts));
    }

    /// The file, whose start was brought, is opened: asks for what lies behind, before others are brought.
    pub(super) fn go_on(&mut self) {
        if self.start.as_ref().is_some_and(Counted::are_read) && self.file.take_in_leases() {
            self.count_arrivals();
            self.expect(2 * START_BYTES_MAX);
        }
    }

    /// Asks for what is worth it of a file that will be read from its start on, so far at least; gives how much.
    fn expect(&mut self, bytes: u64) -> u64 {
        let (now_us, link) = (self.file.pipeline.now_us(), self.link());
        self.plan.on_expected(now_us, bytes, link, &mut self.actions);
        self.drop_given_up();
        let sent = self.file.send(link, &self.actions.ahead);
        let sent_bytes = sent.iter().map(|(range, _)| range.bytes).sum();
        self.entries.extend(sent.into_iter().map(|entry| (entry.0.offset, entry)));
        sent_bytes
    }

    /// Bytes have come with the answer to the file's opening, under the lease that it brought.
    pub(super) fn take_brought(&mut self, reading: &Reading, range: ByteRange, bytes: Vec<u8>) {
        self.short = ShortFile::new(range.end(), &reading.short_files);
        let part = self.file.come(range, bytes);
        self.brought = part.and_then(|part| Brought::new(part, &reading.budget));
    }

    fn invalidate(&mut self) {
        self.brought = None;
        self.whole = None;
        self.start = None;
        self.plan.on_invalidate(&mut self.actions);
        self.drop_given_up();
    }

    /// The file is at least this long.
    pub(super) fn learn_length(&mut self, file_bytes: u64) {
        if file_bytes > self.file.bytes {
            self.file.bytes = file_bytes;
            self.plan.on_eof(file_bytes, &mut self.actions);
            self.drop_given_up();
        }
    }

    fn drop_given_up(&mut self) {
        for range in self.actions.drop.drain(..) {
            let (_, parts) = self.entries.remove(&range.offset).unwrap_or_default();
            for part in parts {
                part.fetch.abandon();
            }
        }
    }
}
