//! The link to one engine: its lanes, its addresses, and what is known of its health. Owns
//! connecting, and the rule that an engine which may have forgotten this session is told what it
//! has open before anything else is asked.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use azekura_proto::limits::SLOTS_MAX;
use azekura_proto::message::{Lock, Request, RequestHead, Role, Welcome};
use azekura_proto::pool_map::Address;
use azekura_proto::{EngineId, Incarnation, Oid, PoolId, SessionId, Status, TargetId};
use azekura_wire::{ConnectError, Connection, Dialled, ProofSent, Secret, Socket};
use parking_lot::{Condvar, Mutex, RwLock};

use crate::holds::Holds;
use crate::lane::{self, Lane, LaneError};

/// How long a thread looks for an answer from an engine on its own host before it sleeps: about what
/// a creation takes.
const LOCAL_PATIENCE: Duration = Duration::from_micros(20);

/// How long a lane that is given back waits for a lock that nobody keeps for long.
const RETURN_PATIENCE: Duration = Duration::from_secs(1);

/// Holds and locks in one claim: keeps the message far below the bound of a frame.
const CLAIM_ITEMS: usize = 4096;

/// What all links of a session share.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) pool: PoolId,
    pub(crate) pool_name: String,
    pub(crate) session: SessionId,
    pub(crate) secret: Secret,
    pub(crate) request_timeout: Duration,
    pub(crate) settle_descriptor: Option<fn(OwnedFd) -> OwnedFd>,
}

#[derive(Debug, Default)]
struct Lanes {
    #[expect(
        clippy::vec_box,
        reason = "a lane moves in and out with each call; a pointer is cheap"
    )]
    idle: Vec<Box<Lane>>,
    made: u16,
}

/// The link to one engine.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) engine: EngineId,
    identity: Arc<Identity>,
    addresses: RwLock<Vec<Address>>,
    /// Any target of the engine, to address what concerns the engine as a whole.
    pub(crate) any_target: TargetId,
    lanes: Mutex<Lanes>,
    returned: Condvar,
    /// The run of the engine that knows what this session has open.
    claimed: Mutex<Option<Incarnation>>,
    /// The engine was not to be reached for a whole request time-out.
    down: AtomicBool,
    connections: AtomicUsize,
    /// The quickest dialling in microseconds, about a round trip; 0 before the first.
    dialled_us: AtomicU64,
    pub(crate) holds: Holds,
}

/// What came of dialling an engine.
#[derive(Debug, Default)]
struct Met {
    good: Vec<(Connection, Welcome)>,
    first_error: Option<io::Error>,
}

impl Met {
    fn note(&mut self, error: ConnectError) {
        self.first_error.get_or_insert_with(|| match error {
            ConnectError::Io(error) => error,
            ConnectError::Refused(_) | ConnectError::Impostor => {
                io::Error::other(error.to_string())
            }
        });
    }
}

/// A lane borrowed by a calling thread; given back on drop.
#[derive(Debug)]
pub(crate) struct Borrowed {
    pub(crate) link: Arc<Link>,
    lane: Option<Box<Lane>>,
}

impl Borrowed {
    /// The link and the lane.
    #[expect(clippy::expect_used, reason = "the lane is taken only by drop")]
    pub(crate) fn parts(&mut self) -> (&Link, &mut Lane) {
        (&self.link, self.lane.as_mut().expect("a borrowed lane is there until drop"))
    }

    /// The lane.
    pub(crate) fn lane(&mut self) -> &mut Lane {
        self.parts().1
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        // In a forked child the lock may be held by a thread that is not there; the lane is lost then.
        if let Some(lane) = self.lane.take()
            && let Some(mut lanes) = self.link.lanes.try_lock_for(RETURN_PATIENCE)
        {
            lanes.idle.push(lane);
            drop(lanes);
            self.link.returned.notify_one();
        }
    }
}

impl Link {
    pub(crate) fn new(
        engine: EngineId,
        any_target: TargetId,
        addresses: Vec<Address>,
        identity: Arc<Identity>,
        holds: Holds,
    ) -> Self {
        Self {
            engine,
            identity,
            addresses: RwLock::new(addresses),
            any_target,
            lanes: Mutex::default(),
            returned: Condvar::new(),
            claimed: Mutex::new(None),
            down: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            dialled_us: AtomicU64::new(0),
            holds,
        }
    }

    /// Takes the lane that was used last, makes one, or waits for one until the request time-out.
    /// Then, the link itself is given back.
    pub(crate) fn borrow(self: Arc<Self>) -> Result<Borrowed, Arc<Self>> {
        let lane = {
            let mut lanes = self.lanes.lock();
            loop {
                if let Some(lane) = lanes.idle.pop() {
                    break Some(lane);
                }
                if lanes.made < SLOTS_MAX {
                    lanes.made += 1;
                    break Some(Box::new(Lane::new(lanes.made - 1)));
                }
                let timeout = self.identity.request_timeout;
                if self.returned.wait_for(&mut lanes, timeout).timed_out() {
                    break None;
                }
            }
        };
        match lane {
            Some(_) => Ok(Borrowed { link: self, lane }),
            None => Err(self),
        }
    }

    /// Takes every lane that nobody uses just now.
    #[expect(clippy::vec_box, reason = "as they are kept")]
    pub(crate) fn take_idle(&self) -> Vec<Box<Lane>> {
        // In a forked child the lock may be held by a thread that is not there.
        self.lanes.try_lock().map(|mut lanes| std::mem::take(&mut lanes.idle)).unwrap_or_default()
    }

    /// Gives back what [`Link::take_idle`] took.
    #[expect(clippy::vec_box, reason = "as they are kept")]
    pub(crate) fn give_back(&self, mut lanes: Vec<Box<Lane>>) {
        self.lanes.lock().idle.append(&mut lanes);
        self.returned.notify_all();
    }

    /// Whether any connection is open.
    pub(crate) fn is_connected(&self) -> bool {
        self.connections.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn is_down(&self) -> bool {
        self.down.load(Ordering::Relaxed)
    }

    /// How long a request may try to reach the engine.
    pub(crate) fn patience(&self) -> Duration {
        let timeout = self.identity.request_timeout;
        if self.is_down() { timeout.min(Duration::from_secs(1)) } else { timeout }
    }

    pub(crate) fn addresses(&self) -> Vec<Address> {
        self.addresses.read().clone()
    }

    /// How long the quickest dialling of the engine has taken, in microseconds: about a round trip.
    pub(crate) fn dialled_us(&self) -> Option<u64> {
        Some(self.dialled_us.load(Ordering::Relaxed)).filter(|us| *us > 0)
    }

    /// Whether it is reached over a network.
    pub(crate) fn is_remote(&self) -> bool {
        let is_here = |address: &Address| matches!(address, Address::Unix(path) if path.exists());
        !self.addresses.read().iter().any(is_here)
    }

    pub(crate) fn set_addresses(&self, addresses: Vec<Address>) {
        *self.addresses.write() = addresses;
    }

    /// The addresses as one text, for messages.
    pub(crate) fn shown_addresses(&self) -> String {
        let shown: Vec<String> = self.addresses.read().iter().map(Address::to_string).collect();
        shown.join(", ")
    }

    /// The engine was not to be reached in time: logged once until it is back.
    pub(crate) fn note_down(&self, cause: &str) {
        if !self.down.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "engine {} of pool '{}' at {} cannot be reached: {cause}",
                self.engine.0,
                self.identity.pool_name,
                self.shown_addresses(),
            );
        }
    }

    fn note_up(&self) {
        if self.down.swap(false, Ordering::Relaxed) {
            tracing::info!(
                "engine {} of pool '{}' at {} is back",
                self.engine.0,
                self.identity.pool_name,
                self.shown_addresses(),
            );
        }
    }

    /// Closes the lane's connection after a failure.
    pub(crate) fn disconnect(&self, lane: &mut Lane) {
        if lane.detach(&self.holds) {
            self.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Gives the lane a connection if it has none.
    pub(crate) fn connect(&self, lane: &mut Lane, timeout: Duration) -> Result<(), LaneError> {
        self.connect_several(&mut [lane], timeout)
    }

    /// Gives connections to those of the lanes that have none: all at once, in the round trips of
    /// one, and without threads. If some fail, as many lanes as did not are connected, the first
    /// ones; the error is that of the first failure.
    pub(crate) fn connect_several(
        &self,
        lanes: &mut [&mut Lane],
        timeout: Duration,
    ) -> Result<(), LaneError> {
        let mut lacking: Vec<_> = lanes.iter_mut().filter(|lane| !lane.is_connected()).collect();
        if lacking.is_empty() {
            return Ok(());
        }
        let mut met = self.dial(lacking.len(), timeout)?;
        // Whoever was told that the engine knows nothing of the session says first what is open.
        met.good.sort_by_key(|(_, welcome)| !welcome.fresh_session);
        let mut first_failure = met.first_error.map(LaneError::Broken);
        let mut free_lanes = lacking.iter_mut();
        for (mut connection, welcome) in met.good {
            match self.claim(&mut connection, &welcome) {
                Ok(()) => {}
                // It would be as late for the others, one after another.
                Err(LaneError::Late) => {
                    first_failure.get_or_insert(LaneError::Late);
                    break;
                }
                Err(error) => {
                    first_failure.get_or_insert(error);
                    continue;
                }
            }
            let Some(lane) = free_lanes.next() else { break };
            self.connections.fetch_add(1, Ordering::Relaxed);
            lane.attach(connection);
            self.note_up();
        }
        first_failure.map_or(Ok(()), Err)
    }

    /// Connections to the first address at which the engine answers; at least one.
    fn dial(&self, count: usize, timeout: Duration) -> Result<Met, LaneError> {
        let mut first_error = None;
        for address in in_order_of_preference(self.addresses()) {
            let mut met = match azekura_wire::dial_several(&address, count, timeout) {
                Ok(dialled) => self.meet(dialled),
                Err(error) => Met { good: Vec::new(), first_error: Some(error) },
            };
            if !met.good.is_empty() {
                if met.good.len() < count {
                    let fewer = || io::Error::other("fewer connections came through");
                    met.first_error.get_or_insert_with(fewer);
                }
                return Ok(met);
            }
            first_error = first_error.or(met.first_error);
        }
        let none = || io::Error::new(io::ErrorKind::NotFound, "the pool map gives no address");
        // Not `From`: a time-out of the dialling is a broken link like any other.
        Err(LaneError::Broken(first_error.unwrap_or_else(none)))
    }

    /// Takes the handshakes on fresh sockets through their steps side by side.
    fn meet(&self, dialled: Vec<Dialled>) -> Met {
        let identity = &self.identity;
        if let Some(took) = dialled.iter().map(|dialled| dialled.took).min() {
            self.note_dialled(took);
        }
        // All are settled before any can fail: a socket of ours is closed as one of ours.
        let settled: Vec<Socket> = dialled
            .into_iter()
            .map(|dialled| match identity.settle_descriptor {
                Some(settle) => dialled.socket.map_descriptor(settle),
                None => dialled.socket,
            })
            .collect();
        let mut met = Met::default();
        let mut begun = Vec::with_capacity(settled.len());
        for socket in settled {
            match azekura_wire::begin(socket, identity.pool, identity.session, Role::Client) {
                Ok(caller) => begun.push(caller),
                Err(error) => met.note(error),
            }
        }
        for proven in azekura_wire::prove_all(begun, &identity.secret) {
            let ready = proven
                .and_then(ProofSent::finish)
                .and_then(|(connection, welcome)| self.check(connection, welcome));
            match ready {
                Ok(ready) => met.good.push(ready),
                Err(error) => met.note(error),
            }
        }
        met
    }

    /// Makes sure that it is the right engine, and sets how long requests wait for it.
    fn check(
        &self,
        mut connection: Connection,
        welcome: Welcome,
    ) -> Result<(Connection, Welcome), ConnectError> {
        if welcome.engine != self.engine {
            let found = format!("engine {} answers there", welcome.engine.0);
            return Err(io::Error::other(found).into());
        }
        if matches!(connection.socket(), Socket::Unix(_)) {
            connection.set_patience(LOCAL_PATIENCE);
        }
        let timeout = Some(self.identity.request_timeout);
        connection.socket().set_read_timeout(timeout)?;
        connection.socket().set_write_timeout(timeout)?;
        Ok((connection, welcome))
    }

    fn note_dialled(&self, took: Duration) {
        let us = (took.as_micros() as u64).max(1);
        let quicker = |known: u64| (known == 0 || us < known).then_some(us);
        // Another thread's value is as good.
        let _known = self.dialled_us.fetch_update(Ordering::Relaxed, Ordering::Relaxed, quicker);
    }

    /// Tells the engine what this session has open there, if it may not know. The other threads
    /// wait meanwhile.
    fn claim(&self, connection: &mut Connection, welcome: &Welcome) -> Result<(), LaneError> {
        let mut claimed = self.claimed.lock();
        if *claimed == Some(welcome.incarnation) && !welcome.fresh_session {
            return Ok(());
        }
        *claimed = None;
        let (holds, locks) = self.holds.claims();
        self.send_claims(connection, welcome, &holds, &locks)?;
        *claimed = Some(welcome.incarnation);
        Ok(())
    }

    fn send_claims(
        &self,
        connection: &mut Connection,
        welcome: &Welcome,
        mut holds: &[Oid],
        mut locks: &[(Oid, Lock)],
    ) -> Result<(), LaneError> {
        while !holds.is_empty() || !locks.is_empty() {
            let (some_holds, other_holds) = holds.split_at(holds.len().min(CLAIM_ITEMS));
            let (some_locks, other_locks) = locks.split_at(locks.len().min(CLAIM_ITEMS));
            (holds, locks) = (other_holds, other_locks);
            let request = Request::Claim { holds: some_holds.to_vec(), locks: some_locks.to_vec() };
            let head = RequestHead {
                target: self.any_target,
                map_version: welcome.map_version,
                slot: 0,
                sequence: 0,
                resent: false,
            };
            connection
                .queue(&(head, &request), 0)
                .map_err(|error| LaneError::Broken(io::Error::other(error)))?;
            connection.flush(&[])?;
            match lane::receive(connection, self.engine, &mut [], 1)? {
                Ok(_) => {}
                Err(status @ (Status::Stopping | Status::Busy | Status::Grace)) => {
                    return Err(LaneError::Broken(io::Error::other(status.to_string())));
                }
                Err(status) => tracing::warn!(
                    "engine {} of pool '{}' has restarted or the session's lease ran out, and what it had open or locked there is not whole: {status}",
                    self.engine.0,
                    self.identity.pool_name,
                ),
            }
        }
        Ok(())
    }
}

/// UNIX sockets that exist on this host first, those that do not last.
fn in_order_of_preference(addresses: Vec<Address>) -> Vec<Address> {
    let (mut here, mut far, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    for address in addresses {
        match &address {
            Address::Unix(path) if path.exists() => here.push(address),
            Address::Unix(_) => missing.push(address),
            Address::Tcp(_) => far.push(address),
        }
    }
    here.append(&mut far);
    here.append(&mut missing);
    here
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_wire::{Gate, Listener};

    const SECOND: Duration = Duration::from_secs(1);

    fn link_to(address: Address, secret: &Secret) -> Link {
        let identity = Identity {
            pool: PoolId([1; 16]),
            pool_name: "p".to_owned(),
            session: SessionId([2; 16]),
            secret: secret.clone(),
            request_timeout: 10 * SECOND,
            settle_descriptor: Some(|descriptor| descriptor),
        };
        let (engine, target) = (EngineId(0), TargetId(0));
        Link::new(engine, target, vec![address], Arc::new(identity), Holds::default())
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
                    let gate = Gate { secret, pool: PoolId([1; 16]) };
                    gate.receive(socket, |_| Ok(welcome)).map(|(connection, _)| connection)
                });
            }
        });
    }

    fn connect_to_engines(engines: &[u16], lane_count: u16) -> (Link, Vec<Lane>, bool) {
        let secret = Secret::generate().unwrap();
        let listener = Listener::bind(&Address::Tcp("127.0.0.1:0".to_owned())).unwrap();
        let link = link_to(listener.address().unwrap(), &secret);
        let mut lanes: Vec<Lane> = (0..lane_count).map(Lane::new).collect();
        let done = std::thread::scope(|scope| {
            scope.spawn(|| serve(&listener, &secret, engines));
            let mut borrowed: Vec<&mut Lane> = lanes.iter_mut().collect();
            link.connect_several(&mut borrowed, 10 * SECOND)
        });
        (link, lanes, done.is_ok())
    }

    #[test]
    fn several_lanes_are_connected_at_once() {
        let (link, mut lanes, is_good) = connect_to_engines(&[0; 8], 8);
        assert!(is_good && lanes.iter().all(Lane::is_connected));
        assert_eq!(link.connections.load(Ordering::Relaxed), 8);
        assert!(link.dialled_us().is_some());
        // Nobody listens any more, and nobody is asked.
        let mut again: Vec<&mut Lane> = lanes.iter_mut().collect();
        assert!(link.connect_several(&mut again, SECOND).is_ok());
        assert!(link.connect_several(&mut [], SECOND).is_ok());
    }

    #[test]
    fn one_that_meets_another_engine_leaves_the_others_good() {
        let (link, lanes, is_good) = connect_to_engines(&[0, 7, 0], 3);
        assert!(!is_good);
        assert_eq!(lanes.iter().filter(|lane| lane.is_connected()).count(), 2);
        assert_eq!(link.connections.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn where_nobody_listens_no_lane_is_connected() {
        let listener = Listener::bind(&Address::Tcp("127.0.0.1:0".to_owned())).unwrap();
        let link = link_to(listener.address().unwrap(), &Secret::generate().unwrap());
        drop(listener);
        let (mut one, mut other) = (Lane::new(0), Lane::new(1));
        let done = link.connect_several(&mut [&mut one, &mut other], SECOND);
        assert!(matches!(done, Err(LaneError::Broken(_))));
        assert!(!one.is_connected() && !other.is_connected() && !link.is_connected());
    }
}
