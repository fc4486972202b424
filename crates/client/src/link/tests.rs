//! Links against engines that are played here.

use std::sync::Barrier;

use azekura_platform::system;
use azekura_proto::message::{Answer, Refusal, Reply, RequestHead, Role, Welcome};
use azekura_proto::{ContainerId, ObjectClass, Oid, PoolId, SessionId};
use azekura_rpc::transport::{Data, Direct, Guest, Service, Sockets, Visit};
use azekura_wire::{Acceptor, Arrival, Listener, Secret, Tickets};
use parking_lot::Mutex;

use super::connecting::{FirstWords, Lacking, connect_lacking};
use super::*;

const SECOND: Duration = Duration::from_secs(1);

pub(super) fn link_to(address: Address, secret: &Secret) -> Link {
    let identity = Identity {
        caller: Caller {
            pool: PoolId([1; 16]),
            session: SessionId([2; 16]),
            role: Role::Client,
            secret: secret.clone(),
            timeout: 10 * SECOND,
        },
        pool_name: "p".to_owned(),
        network: Arc::new(Sockets { settle_descriptor: Some(|descriptor| descriptor) }),
        platform: system(),
        is_guest: true,
        memory: Arc::new(LinkMemory::of_this_process()),
    };
    let (engine, target) = (EngineId(0), TargetId(0));
    Link::new(engine, target, vec![address], Arc::new(identity), OpenReferences::default())
}

fn free_slots(link: &Link, count: u16) -> Vec<Slot> {
    (0..count).map(|_| *link.slots.take(&*system(), SECOND).unwrap()).collect()
}

fn connect_several(link: &Link, slots: &mut [Slot], timeout: Duration) -> Result<(), Failure> {
    let slots = slots.iter_mut().collect();
    connect_lacking(vec![Lacking { link, slots, timeout }]).pop().unwrap()
}

pub(super) fn borrow(link: Link, count: usize) -> Vec<Borrowed> {
    let link = Arc::new(link);
    (0..count).map(|_| Arc::clone(&link).borrow().unwrap()).collect()
}

/// Lets `count` callers in at once, as the engines named, and keeps them until all are in.
fn serve(listener: &Listener, secret: &Secret, engines: &[u16]) {
    std::thread::scope(|scope| {
        for (number, engine) in engines.iter().enumerate() {
            let socket = listener.accept().unwrap();
            let welcome = Welcome {
                engine: EngineId(*engine),
                incarnation: Incarnation(1),
                map_version: 1,
                fresh_session: number == 0,
            };
            scope.spawn(move || {
                let gate = Acceptor { secret, pool: PoolId([1; 16]), tickets: None };
                gate.receive(socket, |_| Ok(welcome)).map(|arrival| arrival.connection)
            });
        }
    });
}

fn connect_to_engines(engines: &[u16], slot_count: u16) -> (Link, Vec<Slot>, bool) {
    let secret = Secret::generate().unwrap();
    let listener = Listener::bind(&Address::Tcp("127.0.0.1:0".to_owned())).unwrap();
    let link = link_to(listener.address().unwrap(), &secret);
    let mut slots = free_slots(&link, slot_count);
    let done = std::thread::scope(|scope| {
        scope.spawn(|| serve(&listener, &secret, engines));
        connect_several(&link, &mut slots, 10 * SECOND)
    });
    (link, slots, done.is_ok())
}

#[test]
fn several_slots_are_connected_at_once() {
    let (link, slots, is_good) = connect_to_engines(&[0; 8], 8);
    assert!(is_good && slots.iter().all(Slot::is_connected));
    assert_eq!(link.slots.conversations().open_count(), 8);
    assert!(link.round_trip_us().is_some());
    for slot in slots {
        link.slots.put(Box::new(slot));
    }
    // Nobody listens any more, and nobody is asked.
    let mut again = borrow(link, 8);
    connect_all(&mut again, Duration::ZERO);
    assert!(again.iter().all(|slot| slot.is_connected()));
    connect_all([], Duration::ZERO);
}

/// Each engine lets callers in once the others have been called: one after another none would be.
#[test]
fn several_engines_are_connected_to_at_once() {
    let secret = Secret::generate().unwrap();
    let called = Barrier::new(3);
    let bind = || Listener::bind(&Address::Tcp("127.0.0.1:0".to_owned())).unwrap();
    let listeners: Vec<Listener> = (0..4).map(|_| bind()).collect();
    let mut borrowed = Vec::new();
    for (engine, listener) in listeners.iter().enumerate() {
        let engine = EngineId(engine as u16);
        let mut link = link_to(listener.address().unwrap(), &secret);
        link.engine = engine;
        borrowed.append(&mut borrow(link, 2));
    }
    std::thread::scope(|scope| {
        let mut listeners = listeners.into_iter();
        // Nobody is there.
        drop(listeners.next());
        for (number, listener) in listeners.enumerate() {
            let (called, secret) = (&called, &secret);
            scope.spawn(move || {
                // The last one has other numbers than it should.
                let engine = if number == 2 { 7 } else { number as u16 + 1 };
                let first = listener.accept().unwrap();
                called.wait();
                for (number, socket) in [first, listener.accept().unwrap()].into_iter().enumerate()
                {
                    let welcome = Welcome {
                        engine: EngineId(engine),
                        incarnation: Incarnation(1),
                        map_version: 1,
                        fresh_session: number == 0,
                    };
                    let acceptor = Acceptor { secret, pool: PoolId([1; 16]), tickets: None };
                    acceptor.receive(socket, |_| Ok(welcome)).unwrap();
                }
            });
        }
        connect_all(&mut borrowed, Duration::ZERO);
    });
    let connected: Vec<_> =
        borrowed.iter().filter(|one| one.is_connected()).map(|one| one.link.engine.0).collect();
    assert_eq!(connected, [1, 1, 2, 2]);
}

#[test]
fn who_has_time_leaves_a_connection_to_others() {
    let (link, slots, _) = connect_to_engines(&[0; 2], 2);
    for slot in slots {
        link.slots.put(Box::new(slot));
    }
    let spare: Vec<_> = (0..3).map(|_| link.slots.take_spare().unwrap()).collect();
    let are_connected: Vec<_> = spare.iter().map(|slot| slot.is_connected()).collect();
    assert_eq!(are_connected, [true, false, false]);
    assert!(link.slots.take(&*system(), SECOND).unwrap().is_connected());
}

/// A frozen engine: its connections stand, and nobody answers on them.
#[test]
fn one_known_as_silent_is_asked_for_a_sign_of_life_only() {
    let secret = Secret::generate().unwrap();
    let listener = Listener::bind(&Address::Tcp("127.0.0.1:0".to_owned())).unwrap();
    let link = link_to(listener.address().unwrap(), &secret);
    let mut slots = free_slots(&link, 1);
    let slot = &mut slots[0];
    let welcome = Welcome {
        engine: EngineId(0),
        incarnation: Incarnation(1),
        map_version: 1,
        fresh_session: false,
    };
    let acceptor = Acceptor { secret: &secret, pool: PoolId([1; 16]), tickets: None };
    let _frozen = std::thread::scope(|scope| {
        let accepted = || acceptor.receive(listener.accept().unwrap(), |_| Ok(welcome));
        let engine = scope.spawn(accepted);
        link.reach(slot, 1, true, Duration::ZERO).unwrap();
        engine.join().unwrap().unwrap()
    });
    link.reach(slot, 1, true, Duration::ZERO).unwrap();
    link.note_down("it was silent");
    let begun = std::time::Instant::now();
    assert!(matches!(link.reach(slot, 1, true, Duration::ZERO), Err(Failure::Late)));
    assert!((SECOND..5 * SECOND).contains(&begun.elapsed()), "{:?}", begun.elapsed());
}

/// The slot, its connection, and the name of a request.
type WasAsked = (u16, u32, &'static str);

/// What an engine was asked. It answers no `Release`.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<Vec<WasAsked>>>);

impl Service for Asked {
    fn admit(&self, _: Guest) -> Result<(Box<dyn Visit>, Welcome), Refusal> {
        let (engine, incarnation) = (EngineId(0), Incarnation(1));
        let welcome = Welcome { engine, incarnation, map_version: 1, fresh_session: false };
        Ok((Box::new(self.clone()), welcome))
    }
}

impl Visit for Asked {
    fn serve(
        &mut self,
        head: &RequestHead,
        request: &Request<'_>,
        _: &[u8],
    ) -> io::Result<Option<(Answer, Data)>> {
        self.0.lock().push((head.slot, head.connection, request.name()));
        Ok(request.has_reply().then(|| (Ok(Reply::Done), Data::default())))
    }
}

#[test]
fn what_was_given_up_is_fenced_before_anything_is_changed_over_another_slot() {
    let (network, asked) = (Arc::new(Direct::new()), Asked::default());
    network.add(EngineId(0), Arc::new(asked.clone()));
    let secret = Secret::generate().unwrap();
    let mut link = link_to(Address::Tcp("none".to_owned()), &secret);
    let mut identity = Identity::clone(&link.identity);
    (identity.network, identity.caller.timeout) = (network, SECOND / 10);
    link.identity = Arc::new(identity);
    let mut slots = free_slots(&link, 2);
    let [one, other] = slots.as_mut_slice() else { panic!("two slots") };
    for slot in [&mut *one, &mut *other] {
        link.reach(slot, 1, true, Duration::ZERO).unwrap();
    }
    let to = Destination { target: TargetId(0), map_version: 1 };
    let unanswered = Request::Release { oids: Vec::new() };
    let none = Attempt::default();
    one.exchange(to, none, &unanswered, &[], &mut [], Duration::ZERO).unwrap_err();
    one.disconnect();
    assert!(link.is_ready(other, false) && !link.is_ready(other, true));
    link.reach(other, 1, true, Duration::ZERO).unwrap();
    assert!(link.is_ready(other, true));
    link.reach(one, 1, true, Duration::ZERO).unwrap();
    one.exchange(to, none, &Request::Ping, &[], &mut [], Duration::ZERO).unwrap().unwrap();
    let wanted = [(0, 1, "release"), (1, 1, "fence"), (0, 2, "ping")];
    assert_eq!(*asked.0.lock(), wanted);
}

/// Lets one caller in who asks before that, as this engine, and answers it once.
fn serve_early(listener: &Listener, secret: &Secret, engine: u16, refuses: bool) {
    let acceptor = Acceptor { secret, pool: PoolId([1; 16]), tickets: None };
    let welcome = Welcome {
        engine: EngineId(engine),
        incarnation: Incarnation(7),
        map_version: 1,
        fresh_session: true,
    };
    // Long enough for the request to be there as well.
    let pause = Duration::from_millis(50);
    let admitted = acceptor.receive(listener.accept().unwrap(), |_| {
        std::thread::sleep(pause);
        if refuses { Err(Refusal::Full) } else { Ok(welcome) }
    });
    let Ok(Arrival { mut connection, .. }) = admitted else { return };
    connection.recv().unwrap();
    connection.queue(&Answer::Ok(Reply::Done), 0).unwrap();
    connection.flush(&[]).unwrap();
}

/// What comes of the first request of all, to an engine of this number.
fn ask_early(engine: u16, refuses: bool) -> (Link, Result<Answer, Failure>) {
    let secret = Secret::generate().unwrap();
    let listener = Listener::bind(&Address::Tcp("127.0.0.1:0".to_owned())).unwrap();
    let link = link_to(listener.address().unwrap(), &secret);
    let mut slots = free_slots(&link, 1);
    let answer = std::thread::scope(|scope| {
        scope.spawn(|| serve_early(&listener, &secret, engine, refuses));
        let slot = &mut slots[0];
        let words = link.connect_first(slot, true, Duration::ZERO).unwrap().unwrap();
        assert!(slot.is_connected() && words.said.welcome.get().is_none());
        let to = Destination { target: TargetId(0), map_version: 1 };
        let none = Attempt::default();
        let ping = Request::Ping;
        let answer = slot.exchange(to, none, &ping, &[], &mut [], Duration::ZERO);
        link.note_first(&words);
        answer
    });
    (link, answer)
}

#[test]
fn the_first_request_goes_out_with_the_proof() {
    let (link, answer) = ask_early(0, false);
    assert!(matches!(answer, Ok(Ok(Reply::Done))), "{answer:?}");
    assert_eq!((link.incarnation(), link.claim_count()), (Some(Incarnation(7)), 0));
    // Once only: later connections are made as ever.
    let mut slots = free_slots(&link, 1);
    assert!(link.connect_first(&mut slots[0], true, Duration::ZERO).unwrap().is_none());
}

/// What comes of a first request by the ticket of an engine, or of one that has been started anew since.
fn ask_with_ticket(is_good: bool) -> (bool, Result<Answer, Failure>) {
    let (secret, tickets) = (Secret::generate().unwrap(), Tickets::new().unwrap());
    let listener = Listener::bind(&Address::Tcp("127.0.0.1:0".to_owned())).unwrap();
    let link = link_to(listener.address().unwrap(), &secret);
    let welcome = Welcome {
        engine: EngineId(0),
        incarnation: Incarnation(7),
        map_version: 1,
        fresh_session: true,
    };
    let receive = |tickets: &Tickets| {
        let tickets = Some(tickets);
        let acceptor = Acceptor { secret: &secret, pool: PoolId([1; 16]), tickets };
        acceptor.receive(listener.accept().unwrap(), |_| Ok(welcome.clone())).unwrap()
    };
    let slots = &mut free_slots(&link, 2);
    let ask = |slot: &mut Slot, words: &FirstWords| {
        let to = Destination { target: TargetId(0), map_version: 1 };
        let (none, ping) = (Attempt::default(), Request::Ping);
        let answer = slot.exchange(to, none, &ping, &[], &mut [], Duration::ZERO);
        link.note_first(words);
        answer
    };
    let given = std::thread::scope(|scope| {
        let engine = scope.spawn(|| {
            let others = Tickets::new().unwrap();
            let mut arrival = receive(if is_good { &tickets } else { &others });
            arrival.connection.recv().unwrap();
            arrival.connection.queue(&Answer::Ok(Reply::Done), 0).unwrap();
            arrival.connection.flush(&[]).unwrap();
        });
        let words = link.connect_first(&mut slots[0], true, Duration::ZERO).unwrap().unwrap();
        ask(&mut slots[0], &words).unwrap().unwrap();
        engine.join().unwrap();
        *words.said.ticket.get().unwrap()
    });
    link.identity.memory.links().note_ticket(&link.shown_addresses(), given, 50_000);
    let next = link_to(listener.address().unwrap(), &secret);
    let mut identity = Identity::clone(&next.identity);
    identity.memory = Arc::clone(&link.identity.memory);
    let next = Link { identity: Arc::new(identity), ..next };
    std::thread::scope(|scope| {
        let engine = scope.spawn(|| {
            let mut arrival = receive(&tickets);
            let (is_early, first) = (arrival.is_to_prove(), arrival.first.take());
            let (_, request): (RequestHead, Request<'_>) =
                azekura_proto::frame::decode_borrowed(first.as_ref().unwrap()).unwrap();
            assert_eq!(request, Request::Ping);
            arrival.connection.queue(&Answer::Ok(Reply::Done), 0).unwrap();
            arrival.connection.flush(&[]).unwrap();
            arrival.take_proof(&secret).unwrap();
            is_early
        });
        let words = next.connect_first(&mut slots[1], true, Duration::ZERO).unwrap().unwrap();
        let answer = ask(&mut slots[1], &words);
        assert_eq!(words.said.welcome.get(), Some(&welcome));
        (engine.join().unwrap(), answer)
    })
}

#[test]
fn the_first_request_goes_out_with_the_hello_where_an_engine_has_given_a_ticket() {
    for is_good in [true, false] {
        let (is_early, answer) = ask_with_ticket(is_good);
        assert!(matches!(answer, Ok(Ok(Reply::Done))), "{answer:?}");
        assert_eq!(is_early, is_good);
    }
}

#[test]
fn who_asks_before_being_let_in_hears_why_it_is_not() {
    for (engine, refuses) in [(0, true), (3, false)] {
        let (link, answer) = ask_early(engine, refuses);
        assert!(matches!(answer, Err(Failure::Broken(_))), "{answer:?}");
        assert_eq!(link.incarnation(), None);
    }
    let listener = Listener::bind(&Address::Tcp("127.0.0.1:0".to_owned())).unwrap();
    let (address, secret) = (listener.address().unwrap(), Secret::generate().unwrap());
    // What does not know the secret is asked nothing at all.
    let link = link_to(address, &Secret::generate().unwrap());
    let mut slots = free_slots(&link, 1);
    std::thread::scope(|scope| {
        scope.spawn(|| serve_early(&listener, &secret, 0, false));
        assert!(link.connect_first(&mut slots[0], true, Duration::ZERO).is_err());
        slots.clear();
    });
}

#[test]
fn what_is_held_from_before_is_claimed_before_anything_is_asked() {
    let secret = Secret::generate().unwrap();
    let link = link_to(Address::Tcp("127.0.0.1:1".to_owned()), &secret);
    let oid = Oid::new(ContainerId(1), ObjectClass::S1, TargetId(0), 5);
    link.open_references.open(oid, &*system());
    let mut slots = free_slots(&link, 1);
    assert!(link.connect_first(&mut slots[0], true, Duration::ZERO).unwrap().is_none());
}

#[test]
fn one_that_meets_another_engine_leaves_the_others_good() {
    let (link, slots, is_good) = connect_to_engines(&[0, 7, 0], 3);
    assert!(!is_good);
    assert_eq!(slots.iter().filter(|slot| slot.is_connected()).count(), 2);
    assert_eq!(link.slots.conversations().open_count(), 2);
}

#[test]
fn where_nobody_listens_no_slot_is_connected() {
    let listener = Listener::bind(&Address::Tcp("127.0.0.1:0".to_owned())).unwrap();
    let link = link_to(listener.address().unwrap(), &Secret::generate().unwrap());
    drop(listener);
    let mut slots = free_slots(&link, 2);
    let done = connect_several(&link, &mut slots, SECOND);
    assert!(matches!(done, Err(Failure::Broken(_))));
    assert!(slots.iter().all(|slot| !slot.is_connected()) && !link.is_connected());
}
