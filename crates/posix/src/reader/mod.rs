//! Reading far files: what an open file has in flight and read ahead. Owns the bytes and the leases under
//! which they may be used; what to ask for is decided in the `policy` crate, and how it travels in the
//! client's pipeline. Whenever something here does not come out, the read is done in the ordinary way.

mod ahead;
mod leases;
mod parts;
mod trace;
mod window;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use azekura_client::{Pipeline, Pool, this_process};
use azekura_policy::{Budget, ReadAhead, ReadPolicy, SyncAdaptive};
use azekura_proto::placement::name_hash;
use azekura_proto::{EngineId, Oid, TargetId};
use parking_lot::Mutex;

use crate::{FileSystem, OpenFile, Result};
use ahead::Ahead;
use leases::Leases;
pub use trace::Trace;
use window::Window;

/// Memory that all files of a file system may take for what is read ahead, in bytes.
const BUDGET_BYTES: u64 = 512 << 20;
/// Length of a file, in bytes, from which on connections are made when it is opened.
const EXPECT_BYTES: u64 = 4 << 20;
/// Engines of a pool up to which connections are made before it is known which of them has a file.
const EXPECT_ENGINES: usize = 2;
/// Counters of own writes; several files share one.
const COUNTERS: usize = 256;
/// Reads after which a near link is looked at again.
const LOOK_AGAIN: u32 = 256;

/// How the files of a file system are read.
#[derive(Debug)]
pub(crate) struct Reading {
    policy: ReadPolicy,
    trace: Option<Arc<Trace>>,
    pipeline: OnceLock<Arc<Pipeline>>,
    budget: Arc<Budget>,
    /// Whether it was seen that something may be read.
    expects: AtomicBool,
    /// Moved by every own change of a file's data.
    changes: Box<[AtomicU64]>,
}

impl Reading {
    pub(crate) fn new(policy: ReadPolicy, trace: Option<Arc<Trace>>) -> Self {
        Self {
            policy,
            trace,
            pipeline: OnceLock::new(),
            expects: AtomicBool::new(false),
            budget: Arc::new(Budget::new(BUDGET_BYTES)),
            changes: (0..COUNTERS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Where requests are written down, if they are.
    fn trace(&self) -> Option<&Trace> {
        self.trace.as_deref()
    }

    fn counter(&self, oid: Oid) -> &AtomicU64 {
        &self.changes[name_hash(&oid.to_bytes()) as usize % COUNTERS]
    }

    /// This client changes the data of a file, or has just done so.
    pub(crate) fn note_change(&self, oid: Oid) {
        if !matches!(self.policy, ReadPolicy::Off) {
            self.counter(oid).fetch_add(1, Ordering::SeqCst);
        }
    }

    fn changes_of(&self, oid: Oid) -> u64 {
        self.counter(oid).load(Ordering::SeqCst)
    }

    fn pipeline(&self, pool: &Arc<Pool>) -> &Arc<Pipeline> {
        self.pipeline.get_or_init(|| Pipeline::new(Arc::clone(pool)))
    }
}

/// What an open file has read ahead, if it is read that way.
#[derive(Debug)]
pub(crate) enum Reader {
    /// Every read is a request of its own.
    Direct,
    /// By a policy, in the process that began it: in a forked child the lock may be held by a thread
    /// that is not there.
    ByPolicy(u32, Box<Mutex<ByPolicy>>),
}

/// The state of a file that is read by a policy.
#[derive(Debug)]
pub(crate) struct ByPolicy {
    method: Method,
    leases: Leases,
    /// The length of the file as last heard of, in bytes.
    file_bytes: u64,
    /// The counter of own changes when the state was made.
    changes: u64,
    /// Reads left until a near link is looked at again.
    near_reads: u32,
}

#[derive(Debug)]
enum Method {
    Ahead(Box<Ahead>),
    Window(Box<Window>),
}

impl ByPolicy {
    /// Throws away what own writes have made old.
    fn forget_changed(&mut self, changes: u64) {
        if self.changes == changes {
            return;
        }
        self.changes = changes;
        match &mut self.method {
            Method::Ahead(ahead) => ahead.invalidate(),
            Method::Window(window) => window.invalidate(),
        }
    }

    /// The file is this long now.
    fn learn_length(&mut self, file_bytes: u64) {
        self.file_bytes = file_bytes;
        if let Method::Ahead(ahead) = &mut self.method {
            ahead.end_at(file_bytes);
        }
    }
}

impl FileSystem {
    /// How this file is read; decided at its first read.
    fn new_reader(&self, file: &OpenFile) -> Reader {
        let reading = self.reading();
        let targets = self.file_targets(file);
        let method = match &reading.policy {
            ReadPolicy::Off => return Reader::Direct,
            ReadPolicy::Predictive(parameters) => {
                if !targets.iter().any(|target| self.pool().is_remote(*target)) {
                    return Reader::Direct;
                }
                let plan = ReadAhead::new(parameters.clone(), Arc::clone(&reading.budget));
                Method::Ahead(Box::new(Ahead::new(plan, file.bytes_at_open())))
            }
            ReadPolicy::SyncAdaptive(parameters) => {
                Method::Window(Box::new(Window::new(SyncAdaptive::new(parameters.clone()))))
            }
            ReadPolicy::Fixed(bytes) => {
                Method::Window(Box::new(Window::new(SyncAdaptive::fixed(*bytes))))
            }
        };
        let state = Mutex::new(ByPolicy {
            method,
            leases: Leases::new(file.geometry().shards()),
            file_bytes: file.bytes_at_open(),
            changes: reading.changes_of(file.oid()),
            near_reads: 0,
        });
        Reader::ByPolicy(this_process(), Box::new(state))
    }

    /// A file is about to be found and opened for reading. Where that takes long, what it takes to read
    /// ahead is made ready meanwhile, once; in a pool of many engines only when it is known which.
    pub(crate) fn expect_reads(&self) {
        let reading = self.reading();
        if matches!(reading.policy, ReadPolicy::Off)
            || reading.expects.swap(true, Ordering::Relaxed)
        {
            return;
        }
        let map = self.pool().map();
        let engines = 0..map.engines.len() as u16;
        let mut targets: Vec<TargetId> =
            engines.filter_map(|engine| map.targets_of(EngineId(engine)).next()).collect();
        targets.retain(|target| self.pool().is_remote(*target));
        if !targets.is_empty() && map.engines.len() <= EXPECT_ENGINES {
            reading.pipeline(self.pool()).expect(&targets);
        }
    }

    /// A file was opened: if it is long and far away, what it takes to read it ahead is made ready.
    pub(crate) fn expect_reads_of(&self, file: &OpenFile) {
        if file.bytes_at_open() < EXPECT_BYTES
            || !file.is_readable()
            || matches!(self.reading().policy, ReadPolicy::Off)
        {
            return;
        }
        let mut targets = self.file_targets(file);
        targets.retain(|target| self.pool().is_remote(*target));
        if !targets.is_empty() {
            self.reading().pipeline(self.pool()).expect(&targets);
        }
    }

    /// The targets that may have data of the file.
    fn file_targets(&self, file: &OpenFile) -> Vec<TargetId> {
        (0..file.geometry().shards()).map(|shard| self.shard_target(file.oid(), shard)).collect()
    }

    /// Reads by the file's policy. `None` if the read is to be done in the ordinary way.
    pub(crate) fn read_by_policy(
        &self,
        file: &OpenFile,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<Option<usize>> {
        let Reader::ByPolicy(process, state) = file.reader(|| self.new_reader(file)) else {
            return Ok(None);
        };
        if *process != this_process() {
            return Ok(None);
        }
        let end = offset + buffer.len() as u64;
        let mut by_policy = state.lock();
        if by_policy.near_reads > 0 {
            by_policy.near_reads -= 1;
            return Ok(None);
        }
        by_policy.forget_changed(self.reading().changes_of(file.oid()));
        if end > by_policy.file_bytes {
            // Only the pool knows what lies behind the end that is known.
            drop(by_policy);
            let got = self.read_now(file, offset, buffer)?;
            let mut by_policy = state.lock();
            let seen = offset + got as u64;
            if seen > by_policy.file_bytes {
                by_policy.learn_length(seen);
            }
            return Ok(Some(got));
        }
        let pipeline = self.reading().pipeline(self.pool());
        if let ReadPolicy::Predictive(parameters) = &self.reading().policy {
            let near_us = parameters.round_trip_min_us;
            let link = pipeline.estimate(self.file_targets(file).into_iter());
            if link.round_trip_us > 0 && link.round_trip_us < near_us {
                by_policy.near_reads = LOOK_AGAIN;
                return Ok(None);
            }
            drop(by_policy);
            return Ok(self.read_ahead(file, state, link, offset, buffer));
        }
        Ok(self.read_window(file, &mut by_policy, offset, buffer))
    }
}
