//! How an engine asks other engines of its pool. Owns how long it waits: a peer that does not answer in
//! time is unreachable, and the operation fails rather than hangs. Everything that engines ask of each
//! other may be done twice, so a request that a dead connection has lost is sent again.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use azekura_proto::message::{Answer, Request, Role};
use azekura_proto::{EngineId, PoolMap, SessionId, Status, TargetId};
use azekura_wire::Secret;
use parking_lot::Mutex;

use crate::channel::{Channel, Outgoing};
use crate::slot::{Attempt, Destination, Slot};
use crate::transport::{Caller, Network};

/// How long to wait for a peer to accept or to answer.
const PEER_TIMEOUT: Duration = Duration::from_secs(5);
/// Idle connections kept for each peer.
const IDLE_MAX: usize = 32;

/// A request to a target of another engine, with bulk data both ways.
#[derive(Debug)]
pub struct PeerRequest<'a> {
    /// The target.
    pub target: TargetId,
    /// What is asked.
    pub request: &'a Request<'a>,
    /// Bulk data to send.
    pub bulk_out: &'a [u8],
    /// Where bulk data of the answer go.
    pub bulk_in: &'a mut [u8],
}

impl<'a> PeerRequest<'a> {
    /// A request without bulk data.
    pub fn new(target: TargetId, request: &'a Request<'a>) -> Self {
        Self { target, request, bulk_out: &[], bulk_in: &mut [] }
    }
}

/// The way to the other engines.
#[derive(Debug)]
pub struct PeerClient {
    network: Arc<dyn Network>,
    secret: Secret,
    session: SessionId,
    idle: Mutex<HashMap<EngineId, Vec<Slot>>>,
}

impl PeerClient {
    /// No connection yet.
    pub fn new(network: Arc<dyn Network>, secret: Secret, session: SessionId) -> Self {
        Self { network, secret, session, idle: Mutex::default() }
    }

    /// Asks a target of another engine. A connection that turns out to be dead is replaced and the
    /// request sent again.
    ///
    /// # Errors
    /// What the target answered, or that it cannot be reached.
    pub fn call(&self, map: &PoolMap, asked: &mut PeerRequest<'_>) -> Answer {
        let engine = map.engine_of(asked.target).ok_or(Status::WrongTarget)?;
        let to = Destination { target: asked.target, map_version: map.version };
        loop {
            let mut slot = self.borrow(map, engine)?;
            let PeerRequest { request, bulk_out, bulk_in, .. } = &mut *asked;
            match slot.exchange(to, Attempt::default(), request, bulk_out, bulk_in) {
                Ok(answer) => return answer,
                Err(failure) if slot.is_fresh => {
                    slot.disconnect();
                    tracing::warn!(engine = engine.0, "engine does not answer: {failure}");
                    return Err(Status::PeerUnreachable);
                }
                Err(_) => slot.disconnect(),
            }
        }
    }

    /// Asks many targets at once: everything is sent first, then `meanwhile` is done, which is where
    /// an engine does its own part, then the answers are collected, in the order of the requests.
    pub fn call_all(
        &self,
        map: &PoolMap,
        asked: &mut [PeerRequest<'_>],
        meanwhile: impl FnOnce(),
    ) -> Vec<Answer> {
        let mut answers: Vec<Option<Answer>> = asked.iter().map(|_| None).collect();
        let mut open: HashMap<EngineId, Channel<Borrowed<'_>, usize>> = HashMap::new();
        for index in 0..asked.len() {
            let Some(engine) = map.engine_of(asked[index].target) else { continue };
            if !open.contains_key(&engine)
                && let Ok(slot) = self.borrow(map, engine)
                && let Ok(channel) = Channel::open(slot)
            {
                open.insert(engine, channel);
            }
            let Some(channel) = open.get_mut(&engine) else { continue };
            while !channel.has_room(asked[index].request, asked[index].bulk_out)
                && collect_one(channel, asked, &mut answers)
            {}
            let PeerRequest { target, request, bulk_out, bulk_in } = &asked[index];
            let to = Destination { target: *target, map_version: map.version };
            let reply_bytes_max = bulk_in.len();
            let outgoing = Outgoing { to, request, bulk: bulk_out, reply_bytes_max };
            if channel.is_whole() && channel.submit(outgoing, Attempt::default(), index).is_err() {
                channel.end();
            }
        }
        for channel in open.values_mut().filter(|channel| channel.is_whole()) {
            if channel.flush().is_err() {
                channel.end();
            }
        }
        meanwhile();
        for channel in open.values_mut() {
            while collect_one(channel, asked, &mut answers) {}
        }
        drop(open);
        // What an old connection lost is asked again, one by one.
        let answers = answers.into_iter().zip(asked);
        answers.map(|(answer, asked)| answer.unwrap_or_else(|| self.call(map, asked))).collect()
    }

    fn borrow(&self, map: &PoolMap, engine: EngineId) -> Result<Borrowed<'_>, Status> {
        if let Some(slot) = self.idle.lock().get_mut(&engine).and_then(Vec::pop) {
            return Ok(Borrowed { peers: self, engine, slot, is_fresh: false });
        }
        let entry = map.engines.get(usize::from(engine.0)).ok_or(Status::WrongTarget)?;
        let caller = Caller {
            pool: map.pool,
            session: self.session,
            role: Role::Engine,
            secret: self.secret.clone(),
            timeout: PEER_TIMEOUT,
        };
        let mut met = self.network.open(engine, &entry.addresses, 1, &caller, PEER_TIMEOUT);
        let Some((conversation, _)) = met.good.pop() else {
            let cause = met.first_error.map(|error| error.to_string()).unwrap_or_default();
            tracing::warn!(engine = engine.0, "engine cannot be reached: {cause}");
            return Err(Status::PeerUnreachable);
        };
        Ok(Borrowed { peers: self, engine, slot: Slot::single(conversation), is_fresh: true })
    }
}

/// A slot with a connection to a peer; given back on drop, if the connection is good.
#[derive(Debug)]
struct Borrowed<'p> {
    peers: &'p PeerClient,
    engine: EngineId,
    slot: Slot,
    /// The connection has just been made, so that it cannot have died of age.
    is_fresh: bool,
}

impl Deref for Borrowed<'_> {
    type Target = Slot;

    fn deref(&self) -> &Slot {
        &self.slot
    }
}

impl DerefMut for Borrowed<'_> {
    fn deref_mut(&mut self) -> &mut Slot {
        &mut self.slot
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        if !self.slot.is_connected() {
            return;
        }
        let mut idle = self.peers.idle.lock();
        let stack = idle.entry(self.engine).or_default();
        if stack.len() < IDLE_MAX {
            stack.push(std::mem::take(&mut self.slot));
        }
    }
}

/// Takes one answer in; false where none will come any more.
fn collect_one(
    channel: &mut Channel<Borrowed<'_>, usize>,
    asked: &mut [PeerRequest<'_>],
    answers: &mut [Option<Answer>],
) -> bool {
    let Some(&mut oldest) = channel.oldest() else { return false };
    let answer = channel.flush().and_then(|()| channel.wait(asked[oldest].bulk_in));
    let Ok((index, answer)) = answer else {
        channel.end();
        return false;
    };
    answers[index] = Some(answer);
    true
}

#[cfg(test)]
mod tests {
    use azekura_proto::PoolId;
    use azekura_proto::message::Reply;
    use azekura_proto::pool_map::EngineEntry;

    use super::*;
    use crate::test_engine::{TestEngine, network, shard};
    use crate::transport::Direct;

    fn peers(network: &Arc<Direct>) -> (PeerClient, PoolMap) {
        let engines = vec![EngineEntry { addresses: Vec::new() }; 2];
        let map = PoolMap::deal(PoolId([1; 16]), "p".to_owned(), engines, &[2, 2]);
        let network = Arc::clone(network) as Arc<dyn Network>;
        (PeerClient::new(network, Secret::generate().unwrap(), SessionId([7; 16])), map)
    }

    #[test]
    fn all_are_asked_before_the_callers_own_work_and_answer_in_order() {
        let (network, logs) = network(2);
        let (peers, map) = peers(&network);
        let (serial, write) =
            (Request::AllocateSerial, Request::Write { data: shard(), offset: 0 });
        let read = Request::Read { data: shard(), offset: 6, bytes: 4 };
        let mut data = [0; 4];
        let mut asked: Vec<_> =
            (0..4).map(|target| PeerRequest::new(TargetId(target), &serial)).collect();
        asked.push(PeerRequest { bulk_out: b"abc", ..PeerRequest::new(TargetId(0), &write) });
        asked.push(PeerRequest { bulk_in: &mut data, ..PeerRequest::new(TargetId(3), &read) });
        let mut asked_before = 0;
        let answers = peers.call_all(&map, &mut asked, || {
            asked_before = logs.iter().map(|log| log.lock().len()).sum();
        });
        assert_eq!(asked_before, 6);
        let serials: Vec<Answer> =
            map.targets.iter().zip(0..).map(|(_, target)| Ok(Reply::Serial(target))).collect();
        assert_eq!(answers[..4], serials);
        assert_eq!(answers[4], Ok(Reply::Done));
        assert_eq!(answers[5], Ok(Reply::Data { bytes: 4, striped: false }));
        assert_eq!(data, [6; 4]);
        assert!(logs[0].lock().iter().any(|(_, bulk_bytes)| *bulk_bytes == 3));
        assert_eq!(peers.idle.lock().values().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
    }

    #[test]
    fn an_old_connection_that_has_died_is_replaced() {
        let (network, _) = network(2);
        let (peers, map) = peers(&network);
        let ask = |target| peers.call(&map, &mut PeerRequest::new(target, &Request::Ping));
        assert_eq!(ask(TargetId(3)), Ok(Reply::Done));
        network.add(EngineId(1), Arc::new(TestEngine::new(1)));
        assert_eq!(ask(TargetId(3)), Ok(Reply::Done));
        network.add(EngineId(1), Arc::new(TestEngine::new(1)));
        let ping = Request::Ping;
        let mut asked = [TargetId(3), TargetId(0)].map(|target| PeerRequest::new(target, &ping));
        assert_eq!(peers.call_all(&map, &mut asked, || {}), [Ok(Reply::Done), Ok(Reply::Done)]);
        network.remove(EngineId(1));
        assert_eq!(ask(TargetId(3)), Err(Status::PeerUnreachable));
        assert_eq!(ask(TargetId(9)), Err(Status::WrongTarget));
        assert_eq!(peers.call_all(&map, &mut asked, || {})[0], Err(Status::PeerUnreachable));
    }

    #[test]
    fn more_than_a_window_goes_out_in_turns() {
        let (network, logs) = network(2);
        let (peers, map) = peers(&network);
        let ping = Request::Ping;
        let mut asked: Vec<_> =
            (0..200).map(|number| PeerRequest::new(TargetId(number % 4), &ping)).collect();
        let answers = peers.call_all(&map, &mut asked, || {});
        assert!(answers.len() == 200 && answers.iter().all(|answer| *answer == Ok(Reply::Done)));
        assert_eq!(logs.iter().map(|log| log.lock().len()).collect::<Vec<_>>(), [100, 100]);
    }
}
