//! Connections over which something is asked before their engine, which is played here, has let them in.

use azekura_proto::PoolId;
use azekura_proto::message::{Answer, Reply, Request, RequestHead, Welcome};
use azekura_rpc::{Channel, Outgoing};
use azekura_wire::{Acceptor, Arrival, Listener, Secret, Tickets};

use super::tests::{borrow, link_to};
use super::*;

const KNOWN: Incarnation = Incarnation(7);

/// An engine that has let the session in before.
struct Engine {
    secret: Secret,
    tickets: Tickets,
    listener: Listener,
}

impl Engine {
    fn start() -> Self {
        Self {
            secret: Secret::generate().unwrap(),
            tickets: Tickets::new().unwrap(),
            listener: Listener::bind(&Address::Tcp("127.0.0.1:0".to_owned())).unwrap(),
        }
    }

    /// A link to it as it is after its first answer, which has brought the ticket.
    fn known_link(&self) -> Link {
        let link = link_to(self.listener.address().unwrap(), &self.secret);
        let ticket = self.tickets.current();
        link.identity.memory.links().note_ticket(&link.shown_addresses(), ticket, 50_000);
        link.claims.note_first(KNOWN);
        link.health.note_answered(1);
        link
    }

    /// Lets one caller in, as this run.
    fn let_in(&self, incarnation: Incarnation, fresh_session: bool) -> Arrival {
        let welcome = Welcome { engine: EngineId(0), incarnation, map_version: 1, fresh_session };
        let tickets = Some(&self.tickets);
        let acceptor = Acceptor { secret: &self.secret, pool: PoolId([1; 16]), tickets };
        acceptor.receive(self.listener.accept().unwrap(), |_| Ok(welcome)).unwrap()
    }
}

/// Answers everything that is asked, and counts it.
fn answer_all(mut arrival: Arrival, secret: &Secret) -> usize {
    let answer = |arrival: &mut Arrival, body: &[u8]| {
        let (_, request): (RequestHead, Request<'_>) =
            azekura_proto::frame::decode_borrowed(body).unwrap();
        assert_eq!(request, Request::Ping);
        arrival.connection.queue(&Answer::Ok(Reply::Done), 0).unwrap();
        arrival.connection.flush(&[]).unwrap();
    };
    assert!(arrival.is_to_prove());
    let first = arrival.first.take().unwrap();
    answer(&mut arrival, &first);
    arrival.take_proof(secret).unwrap();
    let mut count = 1;
    while let Ok((_, body)) = arrival.connection.recv() {
        let body = body.to_vec();
        answer(&mut arrival, &body);
        count += 1;
    }
    count
}

fn ping(channel: &Channel<Borrowed, u32>, number: u32) {
    let to = Destination { target: TargetId(0), map_version: 1 };
    let request = &Request::Ping;
    channel.post(Outgoing { to, request, bulk: &[], reply_bytes_max: 0 }, number).unwrap();
}

#[test]
fn several_requests_go_out_before_an_engine_that_is_known_has_said_anything() {
    let engine = Engine::start();
    let mut borrowed = borrow(engine.known_link(), 2);
    // Nobody lets them in yet.
    connect_for_looks(&mut borrowed);
    assert!(borrowed.iter().all(|slot| slot.is_connected()));
    let channels: Vec<Channel<Borrowed, u32>> =
        borrowed.into_iter().map(|slot| Channel::open(slot).unwrap()).collect();
    for channel in &channels {
        assert!(channel.is_silent());
        ping(channel, 1);
        assert!(!channel.is_silent());
        // These wait for the engine's challenge.
        ping(channel, 2);
        ping(channel, 3);
    }
    let counts = std::thread::scope(|scope| {
        let serving: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| answer_all(engine.let_in(KNOWN, false), &engine.secret)))
            .collect();
        for channel in &channels {
            for number in 1..=3 {
                assert!(matches!(channel.reader().wait().unwrap(), (n, Ok(_)) if n == number));
            }
            ping(channel, 4);
            assert!(matches!(channel.reader().wait().unwrap(), (4, Ok(_))));
        }
        drop(channels);
        serving.into_iter().map(|serving| serving.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(counts, [4, 4]);
}

#[test]
fn an_engine_that_has_forgotten_the_session_is_not_believed_and_told_what_there_is() {
    for (incarnation, fresh_session) in [(KNOWN, true), (Incarnation(8), false)] {
        let engine = Engine::start();
        let link = Arc::new(engine.known_link());
        let claims = link.claim_count();
        let mut borrowed = vec![Arc::clone(&link).borrow().unwrap()];
        connect_for_looks(&mut borrowed);
        let channel: Channel<Borrowed, u32> = Channel::open(borrowed.remove(0)).unwrap();
        ping(&channel, 1);
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| {
                let mut arrival = engine.let_in(incarnation, fresh_session);
                arrival.connection.queue(&Answer::Ok(Reply::Done), 0).unwrap();
                arrival.connection.flush(&[]).unwrap();
                arrival
            });
            assert!(channel.reader().wait().is_err());
            serving.join().unwrap();
        });
        // It says nothing of that any more to the next one.
        let mut slot = Arc::clone(&link).borrow().unwrap();
        assert!(link.entry().is_none());
        std::thread::scope(|scope| {
            scope.spawn(|| engine.let_in(incarnation, false));
            link.connect(&mut slot, Duration::from_secs(10)).unwrap();
        });
        assert_eq!((link.claim_count(), link.incarnation()), (claims + 1, Some(incarnation)));
        assert!(link.entry().is_some(), "it is known again");
    }
}

#[test]
fn only_an_engine_that_has_just_answered_is_asked_before_it_lets_a_connection_in() {
    let engine = Engine::start();
    assert!(engine.known_link().entry().is_some());
    let is_known = |change: fn(&mut Link)| {
        let mut link = engine.known_link();
        change(&mut link);
        link.entry().is_some()
    };
    assert!(is_known(|_| {}));
    assert!(!is_known(|link| link.claims = Claims::default()));
    assert!(!is_known(|link| link.health = Health::default()));
    assert!(!is_known(|link| link.set_addresses(vec![Address::Tcp("other:1".to_owned())])));
    assert!(!is_known(|link| {
        link.started -= Duration::from_secs(11);
    }));
    assert!(!is_known(|link| link.note_down("it is silent")));
    // What was asked so before was not answered, or but for a long time.
    let mut link = engine.known_link();
    *link.early.lock() = Some(EarlySaid::new(Arc::default(), 0));
    assert!(link.entry().is_none());
    link.started -= Duration::from_secs(61);
    link.health.note_answered(link.us(Instant::now()));
    assert!(link.entry().is_some());
}

#[test]
fn where_nobody_listens_no_slot_is_connected_early() {
    let engine = Engine::start();
    let mut borrowed = borrow(engine.known_link(), 2);
    drop(engine);
    connect_for_looks(&mut borrowed);
    assert!(borrowed.iter().all(|slot| !slot.is_connected()));
}
