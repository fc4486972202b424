//! Slots over UNIX sockets with an engine that shares memory, or not.

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use azekura_proto::frame::decode_borrowed;
use azekura_proto::message::{Answer, Reply, Request, RequestHead, Role, Welcome};
use azekura_proto::pool_map::Address;
use azekura_proto::{EngineId, Incarnation, PoolId, SessionId, Status};
use azekura_wire::{Acceptor, Connection, Listener, Rings, Secret};
use parking_lot::Mutex;

use crate::failure::Failure;
use crate::slot::{Attempt, Slot};
use crate::test_engine::TARGET_0;
use crate::transport::{Caller, Network as _, Sockets, Wanted};

const LIMIT: Duration = Duration::from_secs(10);
const POOL: PoolId = PoolId([1; 16]);

/// What the engine says to a client that asks for memory.
#[derive(Clone, Copy, Debug)]
enum Sharing {
    Shares,
    /// As it looks to a client that can have no more descriptors.
    PassesNothing,
    Refuses,
}

/// An engine that answers everything, and notes what came by rings.
struct Engine {
    address: Address,
    listener: Arc<Listener>,
    thread: JoinHandle<()>,
    asked: Arc<Mutex<Vec<(&'static str, bool)>>>,
    secret: Secret,
    _dir: tempfile::TempDir,
}

impl Engine {
    fn start(sharing: Sharing) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let address = Address::Unix(dir.path().join("engine"));
        let listener = Arc::new(Listener::bind(&address).unwrap());
        let (asked, secret) = (Arc::<Mutex<Vec<_>>>::default(), Secret::generate().unwrap());
        let (accepting, log, known) = (Arc::clone(&listener), Arc::clone(&asked), secret.clone());
        let thread = std::thread::spawn(move || {
            while let Ok(socket) = accepting.accept() {
                let acceptor = Acceptor { secret: &known, pool: POOL, tickets: None };
                let welcome = Welcome {
                    engine: EngineId(0),
                    incarnation: Incarnation(1),
                    map_version: 1,
                    fresh_session: true,
                };
                let mut arrival = acceptor.receive(socket, |_| Ok(welcome)).unwrap();
                while serve_one(&mut arrival.connection, sharing, &log) {}
            }
        });
        Self { address, listener, thread, asked, secret, _dir: dir }
    }

    /// Gives a slot a new conversation; the engine has one at a time.
    fn call(&self, slot: &mut Slot) {
        slot.disconnect();
        let caller = Caller {
            pool: POOL,
            session: SessionId([2; 16]),
            role: Role::Client,
            secret: self.secret.clone(),
            timeout: LIMIT,
        };
        let addresses = std::slice::from_ref(&self.address);
        let wanted = Wanted { engine: EngineId(0), addresses, count: 1, timeout: LIMIT };
        let mut met = Sockets::default().open(&wanted, &caller);
        slot.attach(met.good.pop().unwrap().0);
    }

    /// How often memory was asked for, and how many requests came by rings.
    fn end(self) -> (usize, usize) {
        self.listener.shut_down();
        self.thread.join().unwrap();
        let asked = self.asked.lock();
        let shared = asked.iter().filter(|(name, _)| *name == "share_memory").count();
        (shared, asked.iter().filter(|(_, by_ring)| *by_ring).count())
    }
}

fn serve_one(
    connection: &mut Connection,
    sharing: Sharing,
    log: &Mutex<Vec<(&'static str, bool)>>,
) -> bool {
    let Ok((_, body)) = connection.recv() else { return false };
    let (_, request): (RequestHead, Request<'_>) = decode_borrowed(body).unwrap();
    let is_asked = matches!(request, Request::ShareMemory);
    let name = request.name();
    log.lock().push((name, connection.goes_by_rings()));
    let answer = match sharing {
        Sharing::Refuses if is_asked => Answer::Err(Status::Unsupported),
        _ => Answer::Ok(Reply::Done),
    };
    connection.queue(&answer, 0).unwrap();
    if is_asked && matches!(sharing, Sharing::Shares) {
        let (rings, descriptor) = Rings::create().unwrap();
        connection.flush_with_descriptor(descriptor.as_fd()).unwrap();
        connection.use_rings(rings);
        return true;
    }
    connection.flush(&[]).is_ok()
}

/// An engine, and a slot with a conversation with it.
fn meet(sharing: Sharing) -> (Engine, Slot) {
    let (engine, mut slot) = (Engine::start(sharing), Slot::new(3, Arc::default(), None));
    engine.call(&mut slot);
    (engine, slot)
}

fn ask(slot: &mut Slot) -> Result<Answer, Failure> {
    slot.exchange(TARGET_0, Attempt::default(), &Request::Ping, &[], &mut [], Duration::ZERO)
}

#[test]
fn who_asks_for_much_goes_on_through_memory() {
    let (engine, mut slot) = meet(Sharing::Shares);
    for _ in 0..100 {
        assert_eq!(ask(&mut slot).unwrap(), Ok(Reply::Done));
    }
    // A new connection begins on its socket.
    engine.call(&mut slot);
    assert_eq!(ask(&mut slot).unwrap(), Ok(Reply::Done));
    slot.disconnect();
    let (shared, by_ring) = engine.end();
    assert_eq!(shared, 1);
    assert!((60..100).contains(&by_ring), "{by_ring}");
}

#[test]
fn who_cannot_have_the_memory_calls_anew_and_does_without() {
    let (engine, mut slot) = meet(Sharing::PassesNothing);
    let mut failed = 0;
    for _ in 0..200 {
        match ask(&mut slot) {
            Ok(answer) => assert_eq!(answer, Ok(Reply::Done)),
            Err(Failure::Broken(error)) => {
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionAborted);
                failed += 1;
                engine.call(&mut slot);
            }
            Err(error) => panic!("{error}"),
        }
    }
    slot.disconnect();
    assert_eq!((failed, engine.end()), (1, (1, 0)));
}

#[test]
fn an_engine_that_refuses_is_not_asked_again() {
    let (engine, mut slot) = meet(Sharing::Refuses);
    for _ in 0..200 {
        assert_eq!(ask(&mut slot).unwrap(), Ok(Reply::Done));
    }
    slot.disconnect();
    assert_eq!(engine.end(), (1, 0));
}
