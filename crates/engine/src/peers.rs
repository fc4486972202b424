//! How an engine reaches the others of its pool. Owns the seam at which a simulation stands in; what
//! goes over sockets is [`azekura_rpc::PeerClient`]'s.

use std::time::Duration;

use azekura_proto::message::{Answer, Request};
use azekura_proto::{PoolMap, TargetId};
use azekura_rpc::{PeerClient, PeerRequest};

/// How an engine asks the targets of others: over sockets, or as a simulation pleases. Everything
/// that engines ask of each other may be done twice. `limit` is how long it may take, at most.
pub trait Peers: Send + Sync {
    /// Asks one target and waits for its answer.
    fn call(
        &self,
        map: &PoolMap,
        target: TargetId,
        request: &Request<'_>,
        bulk: &[u8],
        limit: Duration,
    ) -> Answer;

    /// Asks several targets at once: sends everything, does what the caller has to do `meanwhile`,
    /// then collects. Answers come in the order of what was wanted.
    fn call_all(
        &self,
        map: &PoolMap,
        wanted: &[(TargetId, &Request<'_>)],
        meanwhile: &mut dyn FnMut(),
        limit: Duration,
    ) -> Vec<Answer>;
}

impl Peers for PeerClient {
    fn call(
        &self,
        map: &PoolMap,
        target: TargetId,
        request: &Request<'_>,
        bulk: &[u8],
        limit: Duration,
    ) -> Answer {
        let mut asked = PeerRequest { bulk_out: bulk, ..PeerRequest::new(target, request) };
        PeerClient::call(self, map, &mut asked, limit)
    }

    fn call_all(
        &self,
        map: &PoolMap,
        wanted: &[(TargetId, &Request<'_>)],
        meanwhile: &mut dyn FnMut(),
        limit: Duration,
    ) -> Vec<Answer> {
        let mut asked: Vec<_> =
            wanted.iter().map(|(target, request)| PeerRequest::new(*target, request)).collect();
        PeerClient::call_all(self, map, &mut asked, meanwhile, limit)
    }
}
