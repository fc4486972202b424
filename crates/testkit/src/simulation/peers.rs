//! What engines of a simulated pool ask of each other. Owns the rule that nothing leaves an engine that
//! has ended.

use std::sync::Weak;
use std::time::Duration;

use azekura_engine::Peers;
use azekura_proto::message::{Answer, Request, RequestHead};
use azekura_proto::{EngineId, PoolMap, Status, TargetId};

/// Where an engine's questions to others go.
pub(crate) trait PeerNetwork: Send + Sync {
    /// What one run of an engine asks a target of another.
    fn call_peer(
        &self,
        from: (EngineId, u64),
        to: EngineId,
        head: RequestHead,
        request: &Request<'_>,
        bulk: &[u8],
    ) -> Answer;
}

/// How one run of an engine asks the others.
pub(crate) struct PeerCalls {
    pool: Weak<dyn PeerNetwork>,
    engine: EngineId,
    run: u64,
}

impl PeerCalls {
    /// Those of a run.
    pub(crate) fn new(pool: Weak<dyn PeerNetwork>, engine: EngineId, run: u64) -> Self {
        Self { pool, engine, run }
    }
}

impl Peers for PeerCalls {
    fn call(
        &self,
        map: &PoolMap,
        target: TargetId,
        request: &Request<'_>,
        bulk: &[u8],
        limit: Duration,
    ) -> Answer {
        if limit.is_zero() {
            return Err(Status::PeerUnreachable);
        }
        let to = map.engine_of(target).ok_or(Status::WrongTarget)?;
        let head = RequestHead {
            target,
            map_version: map.version,
            slot: 0,
            sequence: 0,
            resent: false,
            connection: 0,
        };
        // Nothing leaves an engine that unwinds because it has ended.
        let pool = self.pool.upgrade().filter(|_| !std::thread::panicking());
        let pool = pool.ok_or(Status::PeerUnreachable)?;
        pool.call_peer((self.engine, self.run), to, head, request, bulk)
    }

    fn call_all(
        &self,
        map: &PoolMap,
        wanted: &[(TargetId, &Request<'_>)],
        meanwhile: &mut dyn FnMut(),
        limit: Duration,
    ) -> Vec<Answer> {
        // In any order in truth; here the caller's own part comes between.
        let (first, second) = wanted.split_at(wanted.len() / 2);
        let ask = |part: &[(TargetId, &Request<'_>)]| -> Vec<Answer> {
            part.iter()
                .map(|(target, request)| self.call(map, *target, request, &[], limit))
                .collect()
        };
        let mut answers = ask(first);
        meanwhile();
        answers.extend(ask(second));
        answers
    }
}
