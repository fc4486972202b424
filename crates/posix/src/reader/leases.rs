//! The read leases of one open file, shard by shard. Owns the answer to "may these bytes be used now".
//! They are asked for in one way: by requests in flight, which nobody has to wait for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use azekura_client::{Fetch, Pipeline, Wanted};
use azekura_platform::SharedPlatform;

use crate::layout::FileLayout;

/// A lease is asked for again when less than this is left of it.
const RENEW: Duration = Duration::from_millis(600);
/// For this long after a refusal nothing is read ahead.
const REFUSAL: Duration = Duration::from_millis(azekura_proto::limits::LEASE_REFUSAL_MS);
/// A request that is lost with its connection is sent once more, over another.
const ATTEMPTS: u32 = 2;

#[derive(Clone, Debug, Default)]
struct Lease {
    until: Option<Instant>,
    version: u64,
    /// What it was asked for with, until the answer has been taken in.
    request: Option<Arc<Fetch>>,
}

/// The leases of a file.
#[derive(Debug)]
pub(super) struct ReadLeases {
    shards: Vec<Lease>,
    refused_until: Option<Instant>,
    platform: SharedPlatform,
}

impl ReadLeases {
    pub(super) fn new(shards: u16, platform: SharedPlatform) -> Self {
        let shards = vec![Lease::default(); usize::from(shards)];
        Self { shards, refused_until: None, platform }
    }

    /// Takes in the answers that have come. False if others write to the file, so that nothing may be
    /// kept of it.
    pub(super) fn take_in(&mut self) -> bool {
        for lease in &mut self.shards {
            let Some(request) = lease.request.take_if(|request| request.is_over()) else {
                continue;
            };
            let (Some((lease_ms, version)), Some(asked)) = (request.lease(), request.asked())
            else {
                continue;
            };
            lease.version = version;
            lease.until = None;
            if lease_ms == 0 {
                self.refused_until = Some(asked + REFUSAL);
            } else {
                lease.until = Some(asked + Duration::from_millis(lease_ms.into()));
            }
        }
        !self.are_refused()
    }

    fn are_refused(&self) -> bool {
        self.refused_until.is_some_and(|until| until > self.platform.now())
    }

    /// The version of a shard's data, if its lease holds now.
    pub(super) fn version(&self, shard: u16) -> Option<u64> {
        let lease = self.shards.get(usize::from(shard))?;
        lease.until.is_some_and(|until| until > self.platform.now()).then_some(lease.version)
    }

    /// Whether the leases of all shards hold now.
    pub(super) fn all_hold(&self) -> bool {
        (0..self.shards.len() as u16).all(|shard| self.version(shard).is_some())
    }

    /// Asks, without waiting, for leases that are not there or end soon.
    pub(super) fn request(&mut self, pipeline: &Arc<Pipeline>, layout: &FileLayout) {
        let soon = self.platform.now() + RENEW;
        let mut requests = Vec::new();
        for (lease, shard) in self.shards.iter_mut().zip(0..) {
            if lease.request.is_none() && lease.until.is_none_or(|until| until < soon) {
                let request = Fetch::new(layout.target(shard), layout.shard(shard), Wanted::Lease);
                lease.request = Some(Arc::clone(&request));
                requests.push(request);
            }
        }
        pipeline.send(&requests);
    }

    /// Sees to it that all leases hold: asks for those that do not, and waits for them. False if not
    /// all can be had; then none is asked for in a while.
    pub(super) fn acquire(&mut self, pipeline: &Arc<Pipeline>, layout: &FileLayout) -> bool {
        if self.all_hold() {
            return true;
        }
        if self.are_refused() {
            return false;
        }
        for _ in 0..ATTEMPTS {
            self.request(pipeline, layout);
            for (lease, shard) in self.shards.iter().zip(0..) {
                if let Some(request) =
                    lease.request.as_ref().filter(|_| self.version(shard).is_none())
                {
                    pipeline.wait(request);
                }
            }
            if !self.take_in() {
                return false;
            }
            if self.all_hold() {
                return true;
            }
        }
        // An engine is away, or of an earlier release.
        self.refused_until = Some(self.platform.now() + REFUSAL);
        false
    }
}
