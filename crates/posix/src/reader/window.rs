//! One request at a time, of the size that the policy says, kept as a window of one. As in the method's
//! paper, a read that is not in the window throws it away and waits for the whole of the next one.

use azekura_client::Pipeline;
use azekura_policy::{ByteRange, Plan, ReadPolicy, SyncAdaptive};

use super::parts::{self, Part};
use super::{ByPolicy, Method};
use crate::{FileSystem, OpenFile};

/// The window of an open file.
#[derive(Debug)]
pub(super) struct Window {
    policy: SyncAdaptive,
    parts: Vec<Part>,
    hit_bytes: u64,
}

impl Window {
    pub(super) fn new(policy: SyncAdaptive) -> Self {
        Self { policy, parts: Vec::new(), hit_bytes: 0 }
    }

    pub(super) fn invalidate(&mut self) {
        self.policy.invalidate();
        self.parts.clear();
    }

    /// Copies from the window; false if something of it is missing.
    fn copy(&self, read: ByteRange, buffer: &mut [u8]) -> bool {
        self.parts.iter().all(|part| parts::copy(part, read, buffer))
    }

    /// Writes the request into the trace, if there is one.
    fn note(&self, fs: &FileSystem, file: &OpenFile, read: ByteRange) {
        if let (Some(trace), Some(record)) = (fs.reading().trace(), self.policy.last_decision()) {
            let fixed = matches!(fs.reading().policy, ReadPolicy::Fixed(_));
            trace.request(file.oid(), read, fixed, record, self.hit_bytes);
        }
    }

    fn fetch(&mut self, pipeline: &std::sync::Arc<Pipeline>, fetched: Vec<Part>) {
        self.parts = fetched;
        pipeline.send(&parts::fetches(&self.parts));
        for part in &self.parts {
            pipeline.wait(&part.fetch);
        }
    }
}

impl FileSystem {
    /// Reads through the window; `None` if the read is to be done in the ordinary way.
    pub(super) fn read_window(
        &self,
        file: &OpenFile,
        state: &mut ByPolicy,
        offset: u64,
        buffer: &mut [u8],
    ) -> Option<usize> {
        let pipeline = self.reading().pipeline(self.pool());
        let ByPolicy { method: Method::Window(window), leases, file_bytes, .. } = state else {
            return None;
        };
        leases.take_renewals();
        if leases.are_refused() {
            window.invalidate();
            return None;
        }
        if !leases.all_hold() {
            leases.acquire(self, file);
            if !leases.all_hold() || !window.parts.iter().all(|part| part.is_good(leases)) {
                window.invalidate();
            }
        }
        let targets = self.file_targets(file);
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            let left = (buffer.len() - done) as u64;
            let link = pipeline.estimate(targets.iter().copied());
            match window.policy.plan(pipeline.now_us(), at, left, *file_bytes, link) {
                Plan::Nothing => break,
                Plan::Hit { bytes } => {
                    let read = ByteRange::new(at, bytes);
                    let into = &mut buffer[done..done + bytes as usize];
                    if !window.copy(read, into) {
                        // A hole, a shorter file, or an engine that is away.
                        window.invalidate();
                        return None;
                    }
                    window.policy.touched(at, bytes);
                    window.hit_bytes += bytes;
                    done += bytes as usize;
                }
                Plan::Fetch(range) => {
                    window.note(self, file, ByteRange::new(at, left));
                    leases.renew(self, file, pipeline);
                    window.fetch(pipeline, parts::cut(self, file, leases, link, range));
                    let link = pipeline.estimate(targets.iter().copied());
                    window.policy.fetched(range, link);
                }
            }
        }
        Some(done)
    }
}
