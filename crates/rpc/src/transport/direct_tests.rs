//! Calls as whoever has a conversation sees them.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use azekura_proto::message::{Answer, Refusal, Reply, Request, RequestHead, Role, Welcome};
use azekura_proto::{EngineId, Incarnation, PoolId, SessionId, Status, TargetId};
use azekura_wire::Secret;
use parking_lot::Mutex;

use super::{Caller, Data, Direct, Guest, Kept, Line, Met, Network, Service, Visit, Wanted};
use crate::failure::Failure;
use crate::slot::{Attempt, Slot};
use crate::test_engine::{TARGET_0, TestEngine, shard};

const SECOND: Duration = Duration::from_secs(1);
const ENGINE: EngineId = EngineId(0);
const NONE: Attempt = Attempt { sequence: 0, resent: false };

fn caller() -> Caller {
    Caller {
        pool: PoolId([1; 16]),
        session: SessionId([2; 16]),
        role: Role::Client,
        secret: Secret::generate().unwrap(),
        timeout: 5 * SECOND,
    }
}

fn open(network: &dyn Network, engine: EngineId) -> Met {
    network.open(&Wanted { engine, addresses: &[], count: 1, timeout: SECOND }, &caller())
}

fn slot(network: &dyn Network) -> Slot {
    Slot::single(open(network, ENGINE).good.pop().unwrap().0)
}

fn ask(slot: &mut Slot, request: &Request<'_>, data: &mut [u8]) -> Result<Answer, Failure> {
    slot.exchange(TARGET_0, NONE, request, &[], data, Duration::ZERO)
}

/// An engine whose answers to `Read` wait until they are let go, and whose data are kept. It tells when
/// a visit begins to serve, and when it has gone.
#[derive(Clone)]
struct Slow {
    told: Sender<&'static str>,
    gate: Arc<Mutex<Receiver<()>>>,
    /// As many more as there are data that somebody keeps.
    kept: Arc<()>,
}

impl Slow {
    fn new() -> (Self, Receiver<&'static str>, Sender<()>) {
        let (told, hears) = channel();
        let (lets_go, gate) = channel();
        (Self { told, gate: Arc::new(Mutex::new(gate)), kept: Arc::default() }, hears, lets_go)
    }
}

#[derive(Debug)]
struct Counted(usize, #[expect(dead_code, reason = "counts what is kept")] Arc<()>);

impl Kept for Counted {
    fn bytes(&self) -> usize {
        self.0
    }

    fn read(&self, at: usize, buffer: &mut [u8]) -> io::Result<()> {
        for (byte, number) in buffer.iter_mut().zip(at..) {
            *byte = number as u8;
        }
        Ok(())
    }
}

impl Service for Slow {
    fn admit(&self, _: Guest) -> Result<(Box<dyn Visit>, Welcome), Refusal> {
        let welcome = Welcome {
            engine: ENGINE,
            incarnation: Incarnation(1),
            map_version: 1,
            fresh_session: false,
        };
        Ok((Box::new(SlowVisit(self.clone())), welcome))
    }
}

struct SlowVisit(Slow);

impl Drop for SlowVisit {
    fn drop(&mut self) {
        let _ = self.0.told.send("gone");
    }
}

impl Visit for SlowVisit {
    fn serve(
        &mut self,
        _: &RequestHead,
        request: &Request<'_>,
        _: &[u8],
    ) -> io::Result<Option<(Answer, Data)>> {
        if matches!(request, Request::ShardDescriptor { .. }) {
            let file = std::fs::File::open("/dev/null")?;
            return Ok(Some((Ok(Reply::Done), Data::Descriptor(file.into()))));
        }
        let Request::Read { bytes, .. } = request else {
            return Ok(Some((Ok(Reply::Done), Data::default())));
        };
        self.0.told.send("serves").unwrap();
        self.0.gate.lock().recv().unwrap();
        let data = Data::Kept(Box::new(Counted(*bytes as usize, Arc::clone(&self.0.kept))));
        Ok(Some((Ok(Reply::Data { bytes: *bytes, striped: false }), data)))
    }
}

fn read(bytes: u32) -> Request<'static> {
    Request::Read { data: shard(), offset: 0, bytes }
}

#[test]
fn what_an_engine_keeps_is_let_go_of_when_it_is_read_or_will_not_be() {
    let network = Direct::new();
    let (engine, _hears, lets_go) = Slow::new();
    let kept = Arc::clone(&engine.kept);
    network.add(ENGINE, Arc::new(engine));
    let mut slot = slot(&network);
    let nobody_keeps_any = Arc::strong_count(&kept);
    lets_go.send(()).unwrap();
    let mut data = [0; 100];
    ask(&mut slot, &read(100), &mut data).unwrap().unwrap();
    assert_eq!(Arc::strong_count(&kept), nobody_keeps_any, "the conversation is idle");

    let mut conversation = open(&network, ENGINE).good.pop().unwrap().0;
    let nobody_keeps_any = Arc::strong_count(&kept);
    lets_go.send(()).unwrap();
    let place = crate::slot::Place { slot: 0, connection: 0 };
    let head = crate::slot::head(place, TARGET_0, NONE);
    let sender = conversation.sender.as_mut().unwrap();
    sender.send(&head, &read(100), &[], false).unwrap();
    assert_eq!(Arc::strong_count(&kept), nobody_keeps_any + 1);
    network.remove(ENGINE);
    // Nor do its visits, or what was to be read.
    assert_eq!(Arc::strong_count(&kept), 1);
}

#[test]
fn what_an_engine_keeps_goes_straight_to_where_it_is_wanted() {
    let network = Direct::new();
    let (engine, _hears, lets_go) = Slow::new();
    network.add(ENGINE, Arc::new(engine));
    let mut slot = slot(&network);
    lets_go.send(()).unwrap();
    let mut data = [9; 6];
    let answer = ask(&mut slot, &read(5), &mut data).unwrap().unwrap();
    assert_eq!(answer, Reply::Data { bytes: 5, striped: false });
    assert_eq!(data, [0, 1, 2, 3, 4, 9]);
}

#[test]
fn a_conversation_that_the_engine_ends_is_broken_and_others_go_on() {
    let network = Direct::new();
    network.add(ENGINE, Arc::new(TestEngine::new(0)));
    let (mut one, mut other) = (slot(&network), slot(&network));
    let over = Request::Fence { slots: Vec::new() };
    assert!(matches!(ask(&mut one, &over, &mut []), Err(Failure::Broken(_))));
    assert!(matches!(ask(&mut one, &Request::Ping, &mut []), Err(Failure::Broken(_))));
    ask(&mut other, &Request::Ping, &mut []).unwrap().unwrap();
    // It panics in there.
    let fails = Request::Append { oid: shard().oid };
    assert!(matches!(ask(&mut other, &fails, &mut []), Err(Failure::Broken(_))));
    let mut third = slot(&network);
    ask(&mut third, &Request::Ping, &mut []).unwrap().unwrap();
    let refused = ask(&mut third, &Request::ContainerList, &mut []).unwrap();
    assert_eq!(refused, Err(Status::Busy));
}

#[test]
fn an_engine_that_is_cut_off_is_let_go_when_its_last_call_has_ended() {
    let network = Direct::new();
    let (engine, hears, lets_go) = Slow::new();
    network.add(ENGINE, Arc::new(engine));
    let (mut busy, _idle) = (slot(&network), slot(&network));
    std::thread::scope(|scope| {
        let asks = scope.spawn(|| ask(&mut busy, &read(1), &mut [0]));
        assert_eq!(hears.recv_timeout(5 * SECOND), Ok("serves"));
        network.remove(ENGINE);
        assert_eq!(hears.recv_timeout(5 * SECOND), Ok("gone"), "the idle one, though it is there");
        assert!(hears.try_recv().is_err(), "the other is in the midst of it");
        lets_go.send(()).unwrap();
        assert_eq!(hears.recv_timeout(5 * SECOND), Ok("gone"));
        // The answer is lost, as that of an engine that was killed.
        assert!(matches!(asks.join().unwrap(), Err(Failure::Broken(_))));
    });
    let refused = open(&network, ENGINE).first_error.unwrap();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    network.add(ENGINE, Arc::new(TestEngine::new(0)));
    ask(&mut slot(&network), &Request::Ping, &mut []).unwrap().unwrap();
}

#[test]
fn who_gives_a_conversation_up_keeps_nothing_of_the_engine() {
    let network = Direct::new();
    let (engine, hears, _lets_go) = Slow::new();
    network.add(ENGINE, Arc::new(engine));
    let met = open(&network, ENGINE).good.pop().unwrap().0;
    let line = Arc::clone(&met.line);
    drop(met);
    assert_eq!(hears.try_recv(), Ok("gone"));
    assert!(line.descriptor().is_none());
}

#[test]
fn a_call_brings_a_descriptor_to_whoever_asks_for_one_and_to_nobody_else() {
    let network = Direct::new();
    let (engine, _hears, _lets_go) = Slow::new();
    network.add(ENGINE, Arc::new(engine));
    let mut slot = slot(&network);
    let asked = Request::ShardDescriptor { data: shard() };
    for (request, brings_one) in [(asked, true), (Request::Ping, false)] {
        let came = slot.exchange_for_descriptor(TARGET_0, &request, Duration::ZERO).unwrap();
        assert_eq!((came.0, came.1.is_some()), (Ok(Reply::Done), brings_one));
    }
}

#[test]
fn engines_of_other_processes_are_reached_another_way() {
    let others = Direct::new();
    others.add(EngineId(1), Arc::new(TestEngine::new(1)));
    let network = Direct::beside(Arc::new(others));
    network.add(ENGINE, Arc::new(TestEngine::new(0)));
    assert_eq!(open(&network, EngineId(1)).good[0].1.engine, EngineId(1));
    assert_eq!(open(&network, ENGINE).good[0].1.engine, ENGINE);
    assert!(network.is_called(ENGINE) && !network.is_called(EngineId(1)));
    // While it is away nobody looks for it elsewhere.
    network.remove(ENGINE);
    assert!(network.is_called(ENGINE));
    let refused = open(&network, ENGINE).first_error.unwrap();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
}

#[test]
fn who_waits_hears_of_a_call_of_another_thread_when_it_has_returned() {
    let own_engine = || {
        let (engine, hears, lets_go) = Slow::new();
        let network = Direct::beside(Arc::new(Direct::new()));
        network.add(ENGINE, Arc::new(engine));
        (network, hears, lets_go)
    };
    let (network, hears, lets_go) = own_engine();
    let (met, idle) = (open(&network, ENGINE).good.pop().unwrap().0, slot(&network));
    let lines: Vec<Arc<dyn Line>> = vec![Arc::clone(&met.line)];
    drop(idle);
    let mut slot = Slot::single(met);
    assert_eq!(network.wait_for_any(&lines, Duration::from_millis(10)), [false]);
    let begun = Instant::now();
    let _ = hears.try_recv();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(network.wait_for_any(&lines, 60 * SECOND), [true]);
            assert!(begun.elapsed() < 30 * SECOND);
        });
        lets_go.send(()).unwrap();
        slot.send(TARGET_0, NONE, &read(1), &[]).unwrap();
    });
    let mut data = [7];
    slot.receive(&mut data, false, Duration::ZERO).unwrap().unwrap();
    assert_eq!((data, TARGET_0.target), ([0], TargetId(0)));
}
