//! What all files of a file system share for reading far data: the policy, the connections, the memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use azekura_client::{Pipeline, Pool};
use azekura_platform::SharedPlatform;
use azekura_policy::{Budget, LinkEstimate, ReadPolicy};
use azekura_proto::{EngineId, TargetId};

use super::expected::Expected;
use super::short_files::ShortFiles;
use super::trace::Trace;
use super::waits::Waits;
use crate::changes::Changes;
use crate::layout::FileLayout;

/// Memory that all files of a file system may take for what is read ahead, in bytes.
const BUDGET_BYTES: u64 = 512 << 20;
/// Length of a file, in bytes, from which on connections are made when it is opened.
const EXPECT_BYTES: u64 = 4 << 20;
/// What comes with the answer to an opening is at most this part of what the link carries in a round trip.
const BROUGHT_SHARE: u64 = 64;
/// Engines of a pool up to which connections are made before it is known which of them has a file.
const EXPECT_ENGINES: usize = 2;

/// How the files of a file system are read.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(super) policy: ReadPolicy,
    pub(super) budget: Arc<Budget>,
    /// The own changes of files' data.
    pub(super) changes: Arc<Changes>,
    pub(super) platform: SharedPlatform,
    pub(crate) waits: Arc<Waits>,
    /// Files that wait for leases, to be asked for ahead.
    pub(crate) expected: Arc<Expected>,
    /// Where requests are written down, if they are.
    pub(super) trace: Option<Arc<Trace>>,
    pub(super) short_files: Arc<ShortFiles>,
    pool: Arc<Pool>,
    pipeline: OnceLock<Arc<Pipeline>>,
    /// Whether it was seen that something may be read.
    expects: AtomicBool,
}

impl Reading {
    pub(crate) fn new(
        pool: Arc<Pool>,
        policy: ReadPolicy,
        trace: Option<Arc<Trace>>,
        changes: Arc<Changes>,
        platform: SharedPlatform,
    ) -> Self {
        Self {
            policy,
            budget: Arc::new(Budget::new(BUDGET_BYTES)),
            changes,
            waits: Arc::new(Waits::new(Arc::clone(&platform))),
            expected: Arc::default(),
            short_files: Arc::default(),
            platform,
            trace,
            pool,
            pipeline: OnceLock::new(),
            expects: AtomicBool::new(false),
        }
    }

    pub(super) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The connections for reads in flight.
    pub(super) fn pipeline(&self) -> &Arc<Pipeline> {
        self.pipeline.get_or_init(|| {
            let pool = Arc::clone(&self.pool);
            if self.policy.is_one_at_a_time() {
                Pipeline::single(pool)
            } else {
                Pipeline::new(pool)
            }
        })
    }

    /// This process is about to end: what it has found out about links is for the next one.
    pub(crate) fn remember_links(&self) {
        if let Some(pipeline) = self.pipeline.get() {
            pipeline.remember_links();
        }
    }

    /// Whether any of the file's data are reached over a network.
    pub(super) fn is_remote(&self, layout: &FileLayout) -> bool {
        layout.shard_targets().any(|target| self.pool.is_remote(target))
    }

    /// Whether files are read ahead whose data are as far away as this target is known to be.
    pub(crate) fn is_far(&self, target: TargetId) -> bool {
        let ReadPolicy::Predictive(parameters) = &self.policy else { return false };
        let round_trip_us = self.pool.round_trip_us_to(target);
        // Whether it is remote may take looking at the host's files: last.
        round_trip_us >= parameters.round_trip_min_us.max(1) && self.pool.is_remote(target)
    }

    /// What is known of the link to a target.
    pub(crate) fn link(&self, target: TargetId) -> LinkEstimate {
        self.pipeline().estimate(std::iter::once(target))
    }

    /// How many bytes of a file are worth coming with the answer to its opening, in the sense of
    /// [`azekura_proto::Geometry::brought`]: what costs the link to this target next to nothing.
    pub(crate) fn bring_bytes(&self, target: TargetId) -> u32 {
        let round_trip_us = self.link(target).round_trip_us;
        // What short files have brought says little of what it carries.
        let proven = self.pipeline().proven_rate(target);
        let cheap = proven.map_or(u64::MAX, |rate| {
            let product = u128::from(rate) * u128::from(round_trip_us) / 1_000_000;
            u64::try_from(product).unwrap_or(u64::MAX) / BROUGHT_SHARE
        });
        u32::try_from(cheap).unwrap_or(u32::MAX).min(self.short_files.bring_bytes())
    }

    /// A file is about to be found and opened for reading. Where that takes long, what it takes to read
    /// ahead is made ready meanwhile, once; in a pool of many engines only when it is known which.
    pub(crate) fn expect_reads(&self) {
        if matches!(self.policy, ReadPolicy::Off) || self.expects.swap(true, Ordering::Relaxed) {
            return;
        }
        let map = self.pool.map();
        if map.engines.len() <= EXPECT_ENGINES {
            let engines = 0..map.engines.len() as u16;
            self.expect(engines.filter_map(|engine| map.targets_of(EngineId(engine)).next()));
        }
    }

    /// A file was opened for reading: if it is long and far away, what it takes to read it ahead is made
    /// ready.
    pub(crate) fn expect_reads_of(&self, layout: &FileLayout, file_bytes: u64) {
        if file_bytes >= EXPECT_BYTES && !matches!(self.policy, ReadPolicy::Off) {
            self.expect(layout.shard_targets());
        }
    }

    fn expect(&self, targets: impl Iterator<Item = TargetId>) {
        let remote: Vec<TargetId> = targets.filter(|target| self.pool.is_remote(*target)).collect();
        if !remote.is_empty() {
            self.pipeline().expect(&remote);
        }
    }
}
