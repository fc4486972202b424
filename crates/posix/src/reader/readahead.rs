//! Reading by prediction: ranges that are on their way or have come, and the read that takes what it
//! needs of them. Several threads may read through one handle, as a kernel's read-ahead does: the state
//! is locked only to plan and to look things up, never while bytes are waited for.

use std::collections::BTreeMap;
use std::sync::Arc;

use azekura_client::Pipeline;
use azekura_policy::{Actions, ByteRange, LinkEstimate, PredictiveParameters, ReadAhead};
use parking_lot::Mutex;

use super::leases::ReadLeases;
use super::parts::{Direct, FarRead, Part, cut};
use super::reading::Reading;
use crate::layout::FileLayout;

/// Reads after which a near link is looked at again.
const LOOK_AGAIN: u32 = 256;

/// What an open file has ahead.
#[derive(Debug)]
pub(super) struct Readahead {
    plan: ReadAhead,
    /// Ranges of the plan by their start, each with its requests.
    entries: BTreeMap<u64, (ByteRange, Vec<Part>)>,
    actions: Actions,
    leases: ReadLeases,
    /// A link with a shorter round trip than this is near, in microseconds.
    near_us: u64,
    /// The length of the file as last heard of, in bytes.
    file_bytes: u64,
    /// The counter of own changes when what is kept was asked for.
    changes: u64,
    /// Reads left until a near link is looked at again.
    near_reads: u32,
}

/// What a read waits for.
struct Awaited {
    /// Out of what was asked for before: usable only under a lease.
    kept: Vec<Part>,
    /// Asked for by this very read.
    fresh: Vec<Part>,
}

impl Readahead {
    pub(super) fn new(
        parameters: &PredictiveParameters,
        reading: &Reading,
        layout: &FileLayout,
        file_bytes: u64,
    ) -> Self {
        let mut readahead = Self {
            plan: ReadAhead::new(parameters.clone(), Arc::clone(&reading.budget)),
            entries: BTreeMap::new(),
            actions: Actions::default(),
            leases: ReadLeases::new(layout.shards(), Arc::clone(&reading.platform)),
            near_us: parameters.round_trip_min_us,
            file_bytes,
            changes: reading.changes.of(layout.oid()),
            near_reads: 0,
        };
        readahead.plan.on_eof(file_bytes, &mut readahead.actions);
        readahead
    }

    /// Reads by prediction.
    pub(super) fn read(
        state: &Mutex<Self>,
        reading: &Reading,
        layout: &FileLayout,
        offset: u64,
        buffer: &mut [u8],
    ) -> FarRead {
        let read = ByteRange::new(offset, buffer.len() as u64);
        let mut readahead = state.lock();
        if readahead.near_reads > 0 {
            readahead.near_reads -= 1;
            return FarRead::Direct(Direct::Near);
        }
        let changes = reading.changes.of(layout.oid());
        readahead.forget_changed(changes);
        if read.end() > readahead.file_bytes {
            return FarRead::Direct(Direct::BeyondKnownEnd);
        }
        let pipeline = reading.pipeline();
        let link = pipeline.estimate(layout.shard_targets());
        if link.round_trip_us > 0 && link.round_trip_us < readahead.near_us {
            readahead.near_reads = LOOK_AGAIN;
            return FarRead::Direct(Direct::Near);
        }
        let begun = readahead.begin(reading, layout, link, read);
        drop(readahead);
        let Some(Awaited { kept, fresh }) = begun else {
            return FarRead::Direct(Direct::NoLease);
        };
        for part in fresh.iter().chain(&kept) {
            pipeline.wait(&part.fetch);
        }
        if !kept.is_empty() {
            let now = reading.changes.of(layout.oid());
            if now != changes || !state.lock().confirm(pipeline, layout, &kept, now) {
                return FarRead::Direct(Direct::NoLease);
            }
        }
        let covered_bytes: u64 =
            fresh.iter().chain(&kept).map(|part| part.range.intersection(read).bytes).sum();
        if covered_bytes >= read.bytes
            && fresh.iter().chain(&kept).all(|part| part.copy(read, buffer))
        {
            FarRead::Done(buffer.len())
        } else {
            FarRead::Direct(Direct::NotThere)
        }
    }

    /// Plans a read and sends what it takes. `None` if nothing may be kept of the file now.
    fn begin(
        &mut self,
        reading: &Reading,
        layout: &FileLayout,
        link: LinkEstimate,
        read: ByteRange,
    ) -> Option<Awaited> {
        let pipeline = reading.pipeline();
        if !self.leases.take_in() {
            self.invalidate();
            return None;
        }
        self.leases.request(pipeline, layout);
        self.count_arrivals();
        let now_us = pipeline.now_us();
        self.plan.on_read(now_us, read.offset, read.bytes, link, &mut self.actions);
        self.drop_given_up();
        if let (Some(trace), Some(record)) = (reading.trace(), self.plan.last_plan())
            && record.now_us == now_us
        {
            trace.plan(layout.oid(), &self.plan, record, &self.actions);
        }
        let keeps = self.actions.keep_demand;
        if keeps {
            // What is to be kept must be asked for under a lease.
            self.leases.acquire(pipeline, layout);
        }
        let kept = self.parts_of(read);
        let demand = std::mem::take(&mut self.actions.demand);
        let mut fresh = self.send(pipeline, layout, link, &demand, keeps);
        self.actions.demand = demand;
        fresh.retain(|part| part.range.overlaps(read));
        // Otherwise the leases travel beside what the read itself needs.
        if !self.leases.acquire(pipeline, layout) {
            self.invalidate();
            return kept.is_empty().then_some(Awaited { kept, fresh });
        }
        let mut ahead = std::mem::take(&mut self.actions.ahead);
        self.send(pipeline, layout, link, &ahead, true);
        ahead.clear();
        self.actions.ahead = ahead;
        Some(Awaited { kept, fresh })
    }

    /// Asks for ranges, and keeps what comes of them if `keeps`.
    fn send(
        &mut self,
        pipeline: &Arc<Pipeline>,
        layout: &FileLayout,
        link: LinkEstimate,
        ranges: &[ByteRange],
        keeps: bool,
    ) -> Vec<Part> {
        let (mut sent, mut fetches) = (Vec::new(), Vec::new());
        for range in ranges {
            let parts = cut(layout, &self.leases, link, *range, &mut fetches);
            sent.extend(parts.iter().cloned());
            if keeps {
                self.entries.insert(range.offset, (*range, parts));
            }
        }
        pipeline.send(&fetches);
        sent
    }

    /// Whether kept parts may be used now; if not, they are thrown away.
    fn confirm(
        &mut self,
        pipeline: &Arc<Pipeline>,
        layout: &FileLayout,
        kept: &[Part],
        changes: u64,
    ) -> bool {
        self.forget_changed(changes);
        self.leases.take_in();
        let good = |leases: &ReadLeases| kept.iter().all(|part| part.is_good(leases));
        if good(&self.leases) {
            return true;
        }
        // A lease may have run out while the bytes were on their way, and nothing have changed.
        self.leases.acquire(pipeline, layout);
        if good(&self.leases) {
            return true;
        }
        self.invalidate();
        false
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

    /// Throws away what own writes have made old.
    fn forget_changed(&mut self, changes: u64) {
        if self.changes != changes {
            self.changes = changes;
            self.invalidate();
        }
    }

    fn invalidate(&mut self) {
        self.plan.on_invalidate(&mut self.actions);
        self.drop_given_up();
    }

    /// The file is at least this long.
    pub(super) fn learn_length(&mut self, file_bytes: u64) {
        if file_bytes > self.file_bytes {
            self.file_bytes = file_bytes;
            self.plan.on_eof(file_bytes, &mut self.actions);
            self.drop_given_up();
        }
    }

    fn drop_given_up(&mut self) {
        for range in self.actions.drop.drain(..) {
            if let Some((_, parts)) = self.entries.remove(&range.offset) {
                for part in parts {
                    part.fetch.abandon();
                }
            }
        }
    }
}
