//! One request at a time, of the size that the policy says, kept as a window of one. As in the method's
//! paper, a read that is not in the window throws it away and waits for the whole of the next one. The
//! window is one request over one connection where the file has one shard, and one for each piece of a
//! striped file; a policy that is called striped cuts it into parts for several connections.

use std::sync::Arc;

use azekura_policy::{ByteRange, LinkEstimate, Plan, ReadPolicy, SyncAdaptive};

use super::far_file::{Copied, Direct, FarFile, Part, copy_out};
use super::reading::Reading;
use super::trace::Trace;

/// The window of an open file.
#[derive(Debug)]
pub(super) struct Window {
    file: FarFile,
    policy: SyncAdaptive,
    is_fixed: bool,
    parts: Vec<Part>,
    hit_bytes: u64,
    /// The count of own changes when the window was filled.
    changes: u64,
    trace: Option<Arc<Trace>>,
}

impl Window {
    pub(super) fn new(policy: SyncAdaptive, reading: &Reading, file: FarFile) -> Self {
        Self {
            changes: file.changes.now(),
            file,
            policy,
            is_fixed: matches!(reading.policy.unstriped(), ReadPolicy::Fixed(_)),
            parts: Vec::new(),
            hit_bytes: 0,
            trace: reading.trace.clone(),
        }
    }

    /// Reads through the window.
    pub(super) fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, Direct> {
        let changes = self.file.changes.now();
        if std::mem::replace(&mut self.changes, changes) != changes {
            self.invalidate();
        }
        if offset + buffer.len() as u64 > self.file.bytes {
            return Err(Direct::BeyondKnownEnd);
        }
        if !self.file.acquire_leases() {
            self.invalidate();
            return Err(Direct::NoLease);
        }
        if !self.file.are_good(&self.parts) {
            self.invalidate();
        }
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            let left = (buffer.len() - done) as u64;
            let now_us = self.file.pipeline.now_us();
            let link = self.link();
            match self.policy.plan(now_us, at, left, self.file.bytes, link) {
                Plan::Nothing => break,
                Plan::Hit { bytes } => {
                    let read = ByteRange::new(at, bytes);
                    let into = &mut buffer[done..done + bytes as usize];
                    let is_there = match copy_out(self.parts.iter(), read, into) {
                        Copied::All => true,
                        Copied::WithHoles => self.file.are_holes(self.parts.iter(), read, changes),
                        Copied::NotAll => false,
                    };
                    if !is_there {
                        self.invalidate();
                        return Err(Direct::NotThere);
                    }
                    self.policy.touched(at, bytes);
                    self.hit_bytes += bytes;
                    done += bytes as usize;
                }
                Plan::Fetch(range) => {
                    self.note(ByteRange::new(at, left));
                    self.fetch(link, range);
                    self.policy.fetched(range, self.link());
                }
            }
        }
        Ok(done)
    }

    fn link(&self) -> LinkEstimate {
        self.file.pipeline.estimate(self.file.layout.shard_targets())
    }

    /// Fills the window, and waits for it.
    fn fetch(&mut self, link: LinkEstimate, range: ByteRange) {
        self.file.request_leases();
        let sent = self.file.send(link, &[range]);
        self.parts = sent.into_iter().flat_map(|(_, parts)| parts).collect();
        for part in &self.parts {
            self.file.pipeline.wait(&part.fetch);
        }
    }

    /// Writes the request into the trace, if there is one.
    fn note(&self, read: ByteRange) {
        if let (Some(trace), Some(record)) = (&self.trace, self.policy.last_decision()) {
            trace.request(self.file.layout.oid(), read, self.is_fixed, record, self.hit_bytes);
        }
    }

    fn invalidate(&mut self) {
        self.policy.invalidate();
        self.parts.clear();
    }

    /// The file is at least this long.
    pub(super) fn learn_length(&mut self, file_bytes: u64) {
        self.file.bytes = self.file.bytes.max(file_bytes);
    }
}
