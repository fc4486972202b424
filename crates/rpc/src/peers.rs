//! How an engine asks other engines of its pool. Owns how long it waits: a peer that does not answer in
//! time is unreachable, and the operation fails rather than hangs; one that was just silent is not waited
//! for again. Everything that engines ask of each other may be done twice, so a request that a dead
//! connection has lost is sent again.

use std::collections::HashMap;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use azekura_platform::SharedPlatform;
use azekura_proto::limits::{PEER_ANSWER_MS, RECORD_WAIT_MS};
use azekura_proto::message::{Answer, Request, Role};
use azekura_proto::{EngineId, PoolMap, SessionId, Status, TargetId};
use azekura_wire::Secret;
use parking_lot::Mutex;

use crate::channel::{Channel, Outgoing};
use crate::failure::Failure;
use crate::slot::{Attempt, Destination, Slot};
use crate::transport::{Caller, Network, Wanted};

/// How long asking peers may take, connecting included. Longer than a peer waits for a record that a
/// transaction keeps, so that a busy peer does not look like a silent one.
const PEER_TIMEOUT: Duration = Duration::from_millis(PEER_ANSWER_MS);
/// A peer that was silent for all of that is not asked again before this time is over.
const SILENCE_MEMORY: Duration = Duration::from_secs(1);
/// How long finding out whether such a peer is back may take: whoever waits for the answer has little
/// time left.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// Of its time a peer may need so much before it says that it is busy; one that was given less is not
/// known to be silent.
const BUSY_PERCENT: u32 = 70;
const _: () = assert!(RECORD_WAIT_MS < PEER_ANSWER_MS * BUSY_PERCENT as u64 / 100);
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
    platform: SharedPlatform,
    /// [`PEER_TIMEOUT`], but in tests.
    timeout: Duration,
    peers: Mutex<HashMap<EngineId, Peer>>,
}

/// What is kept of a peer.
#[derive(Debug, Default)]
struct Peer {
    idle: Vec<Slot>,
    /// It was silent: unreachable until then for all but who finds out.
    avoided_until: Option<Instant>,
}

impl PeerClient {
    /// No connection yet.
    pub fn new(
        network: Arc<dyn Network>,
        secret: Secret,
        session: SessionId,
        platform: SharedPlatform,
    ) -> Self {
        let peers = Mutex::default();
        Self { network, secret, session, platform, timeout: PEER_TIMEOUT, peers }
    }

    /// Asks a target of another engine. A connection that turns out to be dead is replaced and the
    /// request sent again.
    ///
    /// # Errors
    /// What the target answered, or that it cannot be reached.
    pub fn call(&self, map: &PoolMap, asked: &mut PeerRequest<'_>, limit: Duration) -> Answer {
        self.call_since(map, asked, self.beginning(limit))
    }

    /// From when on the time of a call is counted that may take so long from now.
    fn beginning(&self, limit: Duration) -> Instant {
        let now = self.platform.now();
        now.checked_sub(self.timeout.saturating_sub(limit)).unwrap_or(now)
    }

    fn call_since(&self, map: &PoolMap, asked: &mut PeerRequest<'_>, began: Instant) -> Answer {
        let engine = map.engine_of(asked.target).ok_or(Status::WrongTarget)?;
        let to = Destination { target: asked.target, map_version: map.version };
        loop {
            let mut slot = self.borrow(map, engine, began)?;
            let PeerRequest { request, bulk_out, bulk_in, .. } = &mut *asked;
            let gone = self.platform.elapsed(began);
            match slot.exchange(to, Attempt::default(), request, bulk_out, bulk_in, gone) {
                Ok(answer) => return answer,
                Err(failure) => {
                    let is_over = slot.is_fresh || matches!(failure, Failure::Late);
                    slot.fail(&failure);
                    if is_over {
                        return Err(Status::PeerUnreachable);
                    }
                }
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
        limit: Duration,
    ) -> Vec<Answer> {
        let began = self.beginning(limit);
        let mut answers: Vec<Option<Answer>> = asked.iter().map(|_| None).collect();
        let mut open: HashMap<EngineId, Option<Channel<Borrowed<'_>, usize>>> = HashMap::new();
        for index in 0..asked.len() {
            let Some(engine) = map.engine_of(asked[index].target) else { continue };
            let channel = open.entry(engine).or_insert_with(|| {
                let slot = self.borrow(map, engine, began).ok()?;
                Channel::open(slot).ok()
            });
            let Some(channel) = channel else {
                answers[index] = Some(Err(Status::PeerUnreachable));
                continue;
            };
            while !channel.has_room(asked[index].request, asked[index].bulk_out)
                && self.collect_one(channel, asked, &mut answers, began)
            {}
            let PeerRequest { target, request, bulk_out, bulk_in } = &asked[index];
            let to = Destination { target: *target, map_version: map.version };
            let reply_bytes_max = bulk_in.len();
            let outgoing = Outgoing { to, request, bulk: bulk_out, reply_bytes_max };
            if channel.is_whole() && channel.submit(outgoing, Attempt::default(), index).is_err() {
                channel.end();
            }
        }
        let mut open: Vec<_> = open.into_values().flatten().collect();
        for channel in open.iter_mut().filter(|channel| channel.is_whole()) {
            if channel.flush().is_err() {
                channel.end();
            }
        }
        meanwhile();
        for channel in &mut open {
            while self.collect_one(channel, asked, &mut answers, began) {}
        }
        drop(open);
        // What an old connection lost is asked again, one by one.
        let answers = answers.into_iter().zip(asked);
        let again = |asked| self.call_since(map, asked, began);
        answers.map(|(answer, asked)| answer.unwrap_or_else(|| again(asked))).collect()
    }

    /// Takes one answer in; false where none will come any more.
    fn collect_one(
        &self,
        channel: &mut Channel<Borrowed<'_>, usize>,
        asked: &mut [PeerRequest<'_>],
        answers: &mut [Option<Answer>],
        began: Instant,
    ) -> bool {
        let Some(&mut oldest) = channel.oldest() else { return false };
        let gone = self.platform.elapsed(began);
        let answer = channel.flush().and_then(|()| channel.wait(asked[oldest].bulk_in, gone));
        match answer {
            Ok((index, answer)) => {
                answers[index] = Some(answer);
                true
            }
            Err(failure) => {
                let lost = channel.end();
                if matches!(failure, Failure::Late) {
                    channel.slot().fail(&failure);
                    for index in lost {
                        answers[index] = Some(Err(Status::PeerUnreachable));
                    }
                }
                false
            }
        }
    }

    /// A connection to a peer, of those kept or a new one.
    fn borrow(
        &self,
        map: &PoolMap,
        engine: EngineId,
        began: Instant,
    ) -> Result<Borrowed<'_>, Status> {
        let had = self.timeout.saturating_sub(self.platform.elapsed(began));
        if had.is_zero() {
            return Err(Status::PeerUnreachable);
        }
        let mut left = had;
        {
            let mut peers = self.peers.lock();
            let peer = peers.entry(engine).or_default();
            if let Some(slot) = peer.idle.pop() {
                return Ok(Borrowed { peers: self, engine, slot, is_fresh: false, had });
            }
            if let Some(until) = peer.avoided_until {
                let now = self.platform.now();
                if now < until {
                    return Err(Status::PeerUnreachable);
                }
                // The first who asks again finds out, in little time; the others avoid it meanwhile.
                left = left.min(PROBE_TIMEOUT);
                peer.avoided_until = Some(now + 2 * PROBE_TIMEOUT);
            }
        }
        let entry = map.engines.get(usize::from(engine.0)).ok_or(Status::WrongTarget)?;
        let caller = Caller {
            pool: map.pool,
            session: self.session,
            role: Role::Engine,
            secret: self.secret.clone(),
            timeout: self.timeout,
        };
        let wanted = Wanted { engine, addresses: &entry.addresses, count: 1, timeout: left };
        let mut met = self.network.open(&wanted, &caller);
        let Some((conversation, _)) = met.good.pop() else {
            if let Some(error) = met.first_error {
                let is_late = error.kind() == io::ErrorKind::TimedOut;
                if is_late && left < PROBE_TIMEOUT.min(self.timeout) {
                    // In so little time nobody has found out anything.
                    return Err(Status::PeerUnreachable);
                }
                let failure = if is_late { Failure::Late } else { error.into() };
                self.note_unreachable(engine, &failure);
            }
            return Err(Status::PeerUnreachable);
        };
        // It lets callers in, which it does however busy it is with what they ask.
        self.peers.lock().entry(engine).or_default().avoided_until = None;
        let slot = Slot::single(conversation);
        Ok(Borrowed { peers: self, engine, slot, is_fresh: true, had })
    }

    /// A peer could not be reached: where that took time, nobody else is to wait as long.
    fn note_unreachable(&self, engine: EngineId, failure: &Failure) {
        let mut peers = self.peers.lock();
        let peer = peers.entry(engine).or_default();
        let is_silent = matches!(failure, Failure::Late);
        if is_silent {
            // The others lead to the same silence.
            peer.idle.clear();
        }
        peer.avoided_until = is_silent.then(|| self.platform.now() + SILENCE_MEMORY);
        drop(peers);
        tracing::warn!(engine = engine.0, "engine cannot be reached: {failure}");
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
    /// How much time there was for the call.
    had: Duration,
}

impl Borrowed<'_> {
    /// The connection is of no further use.
    fn fail(&mut self, failure: &Failure) {
        self.slot.disconnect();
        // In less time than a busy peer may rightly need nobody has found out anything.
        let had_time = self.had >= self.peers.timeout * BUSY_PERCENT / 100;
        let is_silent = matches!(failure, Failure::Late) && had_time;
        if is_silent || self.is_fresh && !matches!(failure, Failure::Late) {
            self.peers.note_unreachable(self.engine, failure);
        }
    }
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
        let mut peers = self.peers.peers.lock();
        let idle = &mut peers.entry(self.engine).or_default().idle;
        if idle.len() < IDLE_MAX {
            idle.push(std::mem::take(&mut self.slot));
        }
    }
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
        let secret = Secret::generate().unwrap();
        (PeerClient::new(network, secret, SessionId([7; 16]), azekura_platform::system()), map)
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
        let answers = peers.call_all(
            &map,
            &mut asked,
            || {
                asked_before = logs.iter().map(|log| log.lock().len()).sum();
            },
            PEER_TIMEOUT,
        );
        assert_eq!(asked_before, 6);
        let serials: Vec<Answer> =
            map.targets.iter().zip(0..).map(|(_, target)| Ok(Reply::Serial(target))).collect();
        assert_eq!(answers[..4], serials);
        assert_eq!(answers[4], Ok(Reply::Done));
        assert_eq!(answers[5], Ok(Reply::Data { bytes: 4, striped: false }));
        assert_eq!(data, [6; 4]);
        assert!(logs[0].lock().iter().any(|(_, bulk_bytes)| *bulk_bytes == 3));
        assert_eq!(
            peers.peers.lock().values().map(|peer| peer.idle.len()).collect::<Vec<_>>(),
            [1, 1]
        );
    }

    #[test]
    fn an_old_connection_that_has_died_is_replaced() {
        let (network, _) = network(2);
        let (peers, map) = peers(&network);
        let ask =
            |target| peers.call(&map, &mut PeerRequest::new(target, &Request::Ping), PEER_TIMEOUT);
        assert_eq!(ask(TargetId(3)), Ok(Reply::Done));
        network.add(EngineId(1), Arc::new(TestEngine::new(1)));
        assert_eq!(ask(TargetId(3)), Ok(Reply::Done));
        network.add(EngineId(1), Arc::new(TestEngine::new(1)));
        let ping = Request::Ping;
        let mut asked = [TargetId(3), TargetId(0)].map(|target| PeerRequest::new(target, &ping));
        assert_eq!(
            peers.call_all(&map, &mut asked, || {}, PEER_TIMEOUT),
            [Ok(Reply::Done), Ok(Reply::Done)]
        );
        network.remove(EngineId(1));
        assert_eq!(ask(TargetId(3)), Err(Status::PeerUnreachable));
        assert_eq!(ask(TargetId(9)), Err(Status::WrongTarget));
        assert_eq!(
            peers.call_all(&map, &mut asked, || {}, PEER_TIMEOUT)[0],
            Err(Status::PeerUnreachable)
        );
    }

    /// Two peers that take requests and answer none, each behind several connections that were good.
    #[test]
    fn a_silent_peer_costs_its_time_once_and_is_then_known() {
        let (network, _) = network(3);
        let (mut peers, mut map) = peers(&network);
        let engines = vec![EngineEntry { addresses: Vec::new() }; 3];
        map = PoolMap::deal(map.pool, map.name, engines, &[2, 2, 2]);
        peers.timeout = Duration::from_millis(300);
        let (ping, unanswered) = (Request::Ping, Request::Release { oids: Vec::new() });
        for engine in [EngineId(1), EngineId(2)] {
            let kept: Vec<_> = (0..4)
                .map(|_| peers.borrow(&map, engine, Instant::now()).unwrap())
                .map(|mut slot| std::mem::take(&mut slot.slot))
                .collect();
            peers.peers.lock().entry(engine).or_default().idle = kept;
        }
        let took = |began: Instant| began.elapsed().as_millis();
        let began = Instant::now();
        let targets = [0, 1, 2, 4, 5].map(TargetId);
        let mut asked = targets.map(|target| PeerRequest::new(target, &unanswered));
        asked[0].request = &ping;
        let answers = peers.call_all(&map, &mut asked, || {}, PEER_TIMEOUT);
        assert_eq!(answers[0], Ok(Reply::Done));
        assert!(answers[1..].iter().all(|answer| *answer == Err(Status::PeerUnreachable)));
        assert!(took(began) < 2 * 300, "one bound for all, not {} ms", took(began));
        let began = Instant::now();
        for target in targets {
            let answer = peers.call(&map, &mut PeerRequest::new(target, &ping), peers.timeout);
            assert_eq!(answer.is_ok(), target.0 == 0);
        }
        assert!(took(began) < 300, "they are known, but it took {} ms", took(began));
        std::thread::sleep(SILENCE_MEMORY);
        let ask = |target| {
            peers.call(&map, &mut PeerRequest::new(TargetId(target), &ping), peers.timeout)
        };
        assert_eq!((ask(1), ask(2)), (Ok(Reply::Done), Ok(Reply::Done)), "and found when back");
    }

    #[test]
    fn more_than_a_window_goes_out_in_turns() {
        let (network, logs) = network(2);
        let (peers, map) = peers(&network);
        let ping = Request::Ping;
        let mut asked: Vec<_> =
            (0..200).map(|number| PeerRequest::new(TargetId(number % 4), &ping)).collect();
        let answers = peers.call_all(&map, &mut asked, || {}, PEER_TIMEOUT);
        assert!(answers.len() == 200 && answers.iter().all(|answer| *answer == Ok(Reply::Done)));
        assert_eq!(logs.iter().map(|log| log.lock().len()).collect::<Vec<_>>(), [100, 100]);
    }

    #[test]
    fn a_call_that_has_little_time_does_not_make_a_peer_a_silent_one() {
        let (network, _) = network(2);
        let (mut peers, map) = peers(&network);
        peers.timeout = Duration::from_secs(4);
        let (ping, unanswered) = (Request::Ping, Request::Release { oids: Vec::new() });
        let began = Instant::now();
        let limit = Duration::from_millis(200);
        let answer = peers.call(&map, &mut PeerRequest::new(TargetId(3), &unanswered), limit);
        assert_eq!(answer, Err(Status::PeerUnreachable));
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        let ask = |limit| peers.call(&map, &mut PeerRequest::new(TargetId(3), &ping), limit);
        assert_eq!(ask(peers.timeout), Ok(Reply::Done), "the others go on asking it");
        assert_eq!(ask(Duration::ZERO), Err(Status::PeerUnreachable));
    }
}
