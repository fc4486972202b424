//! One request at a time, of the size that the policy says, kept as a window of one. As in the method's
//! paper, a read that is not in the window throws it away and waits for the whole of the next one.

use std::sync::Arc;

use azekura_policy::{ByteRange, LinkEstimate, Plan, ReadPolicy, SyncAdaptive};

use super::leases::ReadLeases;
use super::parts::{Direct, FarRead, Part, cut};
use super::reading::Reading;
use crate::layout::FileLayout;

/// The window of an open file.
#[derive(Debug)]
pub(super) struct Window {
    policy: SyncAdaptive,
    parts: Vec<Part>,
    hit_bytes: u64,
    leases: ReadLeases,
    /// The length of the file as last heard of, in bytes.
    file_bytes: u64,
    /// The counter of own changes when the window was filled.
    changes: u64,
}

impl Window {
    pub(super) fn new(
        policy: SyncAdaptive,
        reading: &Reading,
        layout: &FileLayout,
        file_bytes: u64,
    ) -> Self {
        Self {
            policy,
            parts: Vec::new(),
            hit_bytes: 0,
            leases: ReadLeases::new(layout.shards(), Arc::clone(&reading.platform)),
            file_bytes,
            changes: reading.changes.of(layout.oid()),
        }
    }

    /// Reads through the window.
    pub(super) fn read(
        &mut self,
        reading: &Reading,
        layout: &FileLayout,
        offset: u64,
        buffer: &mut [u8],
    ) -> FarRead {
        let changes = reading.changes.of(layout.oid());
        if self.changes != changes {
            self.changes = changes;
            self.invalidate();
        }
        if offset + buffer.len() as u64 > self.file_bytes {
            return FarRead::Direct(Direct::BeyondKnownEnd);
        }
        if !self.have_leases(reading, layout) {
            return FarRead::Direct(Direct::NoLease);
        }
        let link = || reading.pipeline().estimate(layout.shard_targets());
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            let left = (buffer.len() - done) as u64;
            let now_us = reading.pipeline().now_us();
            let before = link();
            match self.policy.plan(now_us, at, left, self.file_bytes, before) {
                Plan::Nothing => break,
                Plan::Hit { bytes } => {
                    let read = ByteRange::new(at, bytes);
                    let into = &mut buffer[done..done + bytes as usize];
                    if !self.parts.iter().all(|part| part.copy(read, into)) {
                        self.invalidate();
                        return FarRead::Direct(Direct::NotThere);
                    }
                    self.policy.touched(at, bytes);
                    self.hit_bytes += bytes;
                    done += bytes as usize;
                }
                Plan::Fetch(range) => {
                    self.note(reading, layout, ByteRange::new(at, left));
                    self.fetch(reading, layout, before, range);
                    self.policy.fetched(range, link());
                }
            }
        }
        FarRead::Done(done)
    }

    /// Sees to it that the leases hold, if others let it; what is in the window goes where they did
    /// not all the time.
    fn have_leases(&mut self, reading: &Reading, layout: &FileLayout) -> bool {
        if !self.leases.take_in() {
            self.invalidate();
            return false;
        }
        if !self.leases.all_hold()
            && (!self.leases.acquire(reading.pipeline(), layout)
                || !self.parts.iter().all(|part| part.is_good(&self.leases)))
        {
            self.invalidate();
        }
        true
    }

    /// Fills the window, and waits for it.
    fn fetch(
        &mut self,
        reading: &Reading,
        layout: &FileLayout,
        link: LinkEstimate,
        range: ByteRange,
    ) {
        let pipeline = reading.pipeline();
        self.leases.request(pipeline, layout);
        let mut fetches = Vec::new();
        self.parts = cut(layout, &self.leases, link, range, &mut fetches);
        pipeline.send(&fetches);
        for fetch in &fetches {
            pipeline.wait(fetch);
        }
    }

    /// Writes the request into the trace, if there is one.
    fn note(&self, reading: &Reading, layout: &FileLayout, read: ByteRange) {
        if let (Some(trace), Some(record)) = (reading.trace(), self.policy.last_decision()) {
            let fixed = matches!(reading.policy, ReadPolicy::Fixed(_));
            trace.request(layout.oid(), read, fixed, record, self.hit_bytes);
        }
    }

    fn invalidate(&mut self) {
        self.policy.invalidate();
        self.parts.clear();
    }

    /// The file is at least this long.
    pub(super) fn learn_length(&mut self, file_bytes: u64) {
        self.file_bytes = self.file_bytes.max(file_bytes);
    }
}
