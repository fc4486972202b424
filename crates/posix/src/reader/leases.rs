//! The read leases of one open file, shard by shard. Owns the answer to "may these bytes be used now".

use std::sync::Arc;
use std::time::{Duration, Instant};

use azekura_client::{Call, Fetch, Pipeline, Wanted};
use azekura_proto::message::{Reply, Request, ShardRef};

use crate::{FileSystem, OpenFile};

/// A lease is renewed when less than this is left.
const RENEW: Duration = Duration::from_millis(600);
/// For this long after a refusal nothing is read ahead.
const REFUSAL: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, Default)]
struct Lease {
    until: Option<Instant>,
    version: u64,
    /// A renewal that is under way.
    renewal: Option<Arc<Fetch>>,
}

/// The leases of a file.
#[derive(Debug)]
pub(super) struct Leases {
    shards: Vec<Lease>,
    refused_until: Option<Instant>,
}

impl Leases {
    pub(super) fn new(shards: u16) -> Self {
        Self { shards: vec![Lease::default(); usize::from(shards)], refused_until: None }
    }

    fn enter(&mut self, shard: usize, asked: Instant, lease_ms: u32, version: u64) {
        if lease_ms == 0 {
            self.refused_until = Some(asked + REFUSAL);
        }
        let lease = &mut self.shards[shard];
        lease.until = (lease_ms > 0).then(|| asked + Duration::from_millis(lease_ms.into()));
        lease.version = version;
    }

    /// Takes in renewals that have come.
    pub(super) fn take_renewals(&mut self) {
        for shard in 0..self.shards.len() {
            let Some(renewal) = self.shards[shard].renewal.take_if(|fetch| fetch.is_over()) else {
                continue;
            };
            if let Some((lease_ms, version)) = renewal.lease() {
                self.enter(shard, renewal.made(), lease_ms, version);
            }
        }
    }

    /// Whether others write to the file, so that nothing may be kept of it.
    pub(super) fn are_refused(&self) -> bool {
        self.refused_until.is_some_and(|until| until > Instant::now())
    }

    /// The version of a shard's data, if its lease holds now.
    pub(super) fn version(&self, shard: u16) -> Option<u64> {
        let lease = self.shards.get(usize::from(shard))?;
        lease.until.is_some_and(|until| until > Instant::now()).then_some(lease.version)
    }

    /// Whether the leases of all shards hold now.
    pub(super) fn all_hold(&self) -> bool {
        (0..self.shards.len() as u16).all(|shard| self.version(shard).is_some())
    }

    /// Asks, without waiting, for leases that are not there or end soon.
    pub(super) fn renew(&mut self, fs: &FileSystem, file: &OpenFile, pipeline: &Arc<Pipeline>) {
        let soon = Instant::now() + RENEW;
        let mut renewals = Vec::new();
        for (lease, shard) in self.shards.iter_mut().zip(0..) {
            if lease.renewal.is_none() && lease.until.is_none_or(|until| until < soon) {
                let data = ShardRef { oid: file.oid(), shard, is_file: true };
                let target = fs.shard_target(file.oid(), shard);
                let renewal = Fetch::new(target, data, Wanted::Lease);
                lease.renewal = Some(Arc::clone(&renewal));
                renewals.push(renewal);
            }
        }
        pipeline.send(&renewals);
    }

    /// Waits for leases that were asked for and do not hold; asks for them in the ordinary way where
    /// that failed.
    pub(super) fn settle(&mut self, fs: &FileSystem, file: &OpenFile, pipeline: &Pipeline) {
        for (shard, lease) in (0..).zip(&self.shards) {
            if let Some(renewal) = lease.renewal.as_ref().filter(|_| self.version(shard).is_none())
            {
                pipeline.wait(renewal);
            }
        }
        self.take_renewals();
        if !self.all_hold() && !self.are_refused() {
            self.acquire(fs, file);
        }
    }

    /// Asks for the leases of all shards, and waits.
    pub(super) fn acquire(&mut self, fs: &FileSystem, file: &OpenFile) {
        let asked = Instant::now();
        let mut calls: Vec<Call<'_>> = (0..self.shards.len() as u16)
            .map(|shard| {
                let data = ShardRef { oid: file.oid(), shard, is_file: true };
                Call::new(fs.shard_target(file.oid(), shard), Request::LeaseRead { data })
            })
            .collect();
        fs.pool().fan_out(&mut calls);
        for (call, shard) in calls.iter_mut().zip(0..) {
            match call.take_result() {
                Ok(Reply::Leased { lease_ms, version }) => {
                    self.enter(shard, asked, lease_ms, version);
                }
                // An engine that is away, or of an earlier release.
                _ => self.refused_until = Some(asked + REFUSAL),
            }
        }
    }
}
