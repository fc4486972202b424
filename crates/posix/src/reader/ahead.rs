//! Reading by prediction: ranges that are on their way or have come, and the read that takes what it
//! needs of them. Several threads may read through one handle, as a kernel's read-ahead does: the state
//! is locked only to plan and to look things up, never while bytes are waited for.

use std::collections::BTreeMap;
use std::sync::Arc;

use azekura_client::Pipeline;
use azekura_policy::{Actions, ByteRange, LinkEstimate, ReadAhead};
use parking_lot::Mutex;

use super::leases::Leases;
use super::parts::{self, Part};
use super::{ByPolicy, Method};
use crate::{FileSystem, OpenFile};

/// What an open file has ahead.
#[derive(Debug)]
pub(super) struct Ahead {
    plan: ReadAhead,
    /// Ranges of the plan by their start, each with its requests.
    entries: BTreeMap<u64, (ByteRange, Vec<Part>)>,
    actions: Actions,
}

impl Ahead {
    pub(super) fn new(plan: ReadAhead, file_bytes: u64) -> Self {
        let mut ahead = Self { plan, entries: BTreeMap::new(), actions: Actions::default() };
        ahead.end_at(file_bytes);
        ahead
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

    pub(super) fn invalidate(&mut self) {
        let Self { plan, actions, .. } = self;
        plan.on_invalidate(actions);
        self.drop_given_up();
    }

    pub(super) fn end_at(&mut self, file_bytes: u64) {
        let Self { plan, actions, .. } = self;
        plan.on_eof(file_bytes, actions);
        self.drop_given_up();
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

    /// Asks for what the read needs and nobody has asked for before.
    fn send_demand(
        &mut self,
        fs: &FileSystem,
        file: &OpenFile,
        pipeline: &Arc<Pipeline>,
        leases: &Leases,
        link: LinkEstimate,
        read: ByteRange,
    ) -> Vec<Part> {
        let (mut fresh, mut sent) = (Vec::new(), Vec::new());
        for range in &self.actions.demand {
            let parts = parts::cut(fs, file, leases, link, *range);
            sent.extend(parts::fetches(&parts));
            fresh.extend(parts.iter().filter(|part| part.range.overlaps(read)).cloned());
            if self.actions.keep_demand {
                self.entries.insert(range.offset, (*range, parts));
            }
        }
        pipeline.send(&sent);
        fresh
    }

    /// Asks for what is expected to be read.
    fn send_ahead(
        &mut self,
        fs: &FileSystem,
        file: &OpenFile,
        pipeline: &Arc<Pipeline>,
        leases: &Leases,
        link: LinkEstimate,
    ) {
        let mut sent = Vec::new();
        for range in self.actions.ahead.drain(..) {
            let parts = parts::cut(fs, file, leases, link, range);
            sent.extend(parts::fetches(&parts));
            self.entries.insert(range.offset, (range, parts));
        }
        pipeline.send(&sent);
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
}

/// What a read waits for.
struct Awaited {
    /// Out of what was asked for before: usable only under a lease.
    kept: Vec<Part>,
    /// Asked for by this very read.
    fresh: Vec<Part>,
}

impl ByPolicy {
    /// Plans a read and sends what it takes. `None` if nothing may be kept of the file now.
    fn begin(
        &mut self,
        fs: &FileSystem,
        file: &OpenFile,
        pipeline: &Arc<Pipeline>,
        link: LinkEstimate,
        read: ByteRange,
    ) -> Option<Awaited> {
        let Self { method: Method::Ahead(ahead), leases, .. } = self else { return None };
        leases.take_renewals();
        if leases.are_refused() {
            ahead.invalidate();
            return None;
        }
        leases.renew(fs, file, pipeline);
        ahead.count_arrivals();
        let now_us = pipeline.now_us();
        let Ahead { plan, actions, .. } = &mut **ahead;
        plan.on_read(now_us, read.offset, read.bytes, link, actions);
        ahead.drop_given_up();
        if let (Some(trace), Some(record)) = (fs.reading().trace(), ahead.plan.last_plan())
            && record.now_us == now_us
        {
            trace.plan(file.oid(), &ahead.plan, record, &ahead.actions);
        }
        if ahead.actions.keep_demand && !leases.all_hold() {
            // What is to be kept must be asked for under a lease.
            leases.settle(fs, file, pipeline);
        }
        let kept = ahead.parts_of(read);
        let fresh = ahead.send_demand(fs, file, pipeline, leases, link, read);
        if !leases.all_hold() {
            // The leases travel beside what the read itself needs.
            leases.settle(fs, file, pipeline);
        }
        if !leases.all_hold() {
            ahead.invalidate();
            return kept.is_empty().then_some(Awaited { kept, fresh });
        }
        ahead.send_ahead(fs, file, pipeline, leases, link);
        Some(Awaited { kept, fresh })
    }

    /// Whether kept parts may be used now; if not, they are thrown away.
    fn confirm(&mut self, fs: &FileSystem, file: &OpenFile, kept: &[Part], changes: u64) -> bool {
        self.forget_changed(changes);
        let Self { method: Method::Ahead(ahead), leases, .. } = self else { return false };
        let good = |leases: &Leases| kept.iter().all(|part| part.is_good(leases));
        leases.take_renewals();
        if good(leases) {
            return true;
        }
        if !leases.all_hold() && !leases.are_refused() {
            leases.acquire(fs, file);
        }
        if good(leases) {
            return true;
        }
        ahead.invalidate();
        false
    }
}

impl FileSystem {
    /// Reads by prediction; `None` if the read is to be done in the ordinary way.
    pub(super) fn read_ahead(
        &self,
        file: &OpenFile,
        state: &Mutex<ByPolicy>,
        link: LinkEstimate,
        offset: u64,
        buffer: &mut [u8],
    ) -> Option<usize> {
        let pipeline = self.reading().pipeline(self.pool());
        let read = ByteRange::new(offset, buffer.len() as u64);
        let changes = self.reading().changes_of(file.oid());
        let awaited = state.lock().begin(self, file, pipeline, link, read)?;
        for part in awaited.fresh.iter().chain(&awaited.kept) {
            pipeline.wait(&part.fetch);
        }
        let now = self.reading().changes_of(file.oid());
        if !awaited.kept.is_empty()
            && (now != changes || !state.lock().confirm(self, file, &awaited.kept, now))
        {
            return None;
        }
        let mut parts = awaited.fresh.iter().chain(&awaited.kept);
        let covered_bytes: u64 =
            parts.clone().map(|part| part.range.intersection(read).bytes).sum();
        if covered_bytes < read.bytes {
            return None;
        }
        // What is not there is a hole, the end of a file that was cut, or was lost on the way.
        let whole = parts.all(|part| parts::copy(part, read, buffer));
        whole.then_some(buffer.len())
    }
}
