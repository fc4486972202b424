//! The pool as its users see it. Owns the public calls; the work is done by [`crate::session`],
//! [`crate::retry`] and [`crate::fan_out`].

use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use azekura_platform::{SharedPlatform, system};
use azekura_proto::message::typed::Ping;
use azekura_proto::message::{Reply, Request, Role, TypedRequest};
use azekura_proto::pool_map::PoolMap;
use azekura_proto::{EngineId, Incarnation, Placement, SessionId, TargetId};
use azekura_rpc::transport::{Caller, Network, Sockets};
use azekura_rpc::{Attempt, Destination, Failure, Releases as _};

use crate::error::{ClientError, PoolFileError, Result};
use crate::fan_out::Call;
use crate::in_flight::ChangesInFlight;
use crate::lending::Lenders;
use crate::link::{Identity, Link};
use crate::pool_file::PoolFile;
use crate::remembered_links::LinkMemory;
use crate::retry::Exchange;
use crate::session::{Session, draw_session_id};

/// How long [`Pool::tick`] waits for a sign of life of an engine.
const TICK_LIMIT: Duration = Duration::from_secs(1);

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// How long a request may take, with all attempts to reach the engine.
    pub request_timeout: Duration,
    /// What is done to the descriptor of each new connection, for a client that lives in somebody
    /// else's process and must keep out of the way of its numbers.
    pub settle_descriptor: Option<fn(OwnedFd) -> OwnedFd>,
    /// The client lives in somebody else's process, where it starts no threads.
    pub is_guest: bool,
    /// The way to engines in place of sockets.
    pub network: Option<Arc<dyn Network>>,
    /// Clock, chance and threads.
    pub platform: SharedPlatform,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            request_timeout: Duration::from_secs(10),
            settle_descriptor: None,
            is_guest: false,
            network: None,
            platform: system(),
        }
    }
}

/// A pool. Shared by all threads; each call borrows a connection of its own.
#[derive(Debug)]
pub struct Pool {
    session: Session,
    /// Spreads objects that may live anywhere.
    homes: AtomicU32,
    /// Counts [`Pool::tick`].
    ticks: AtomicU32,
    lenders: Lenders,
    /// What was answered to the program and is on its way: whatever is asked comes after it.
    pub(crate) changes: ChangesInFlight,
    attached: OnceLock<Arc<dyn Any + Send + Sync>>,
}

/// What several calls have brought, in their order.
type Replies<R> = Vec<Result<R>>;

impl Pool {
    /// A pool to be used with this configuration. Engines are connected to when they are first
    /// asked something.
    ///
    /// # Errors
    /// If the secret cannot be read, or the system has no random bytes for a session id.
    pub fn connect(
        file: &PoolFile,
        config: ClientConfig,
    ) -> std::result::Result<Arc<Self>, PoolFileError> {
        let ClientConfig { request_timeout, settle_descriptor, is_guest, network, platform } =
            config;
        let io = |source| PoolFileError::Io {
            path: PoolFile::path_of(&file.map.name).display().to_string(),
            source,
        };
        let session = draw_session_id(&*platform).map_err(io)?;
        let identity = Identity {
            caller: Caller {
                pool: file.map.pool,
                session,
                role: Role::Client,
                secret: file.secret()?,
                timeout: request_timeout,
            },
            pool_name: file.map.name.clone(),
            // What is known of a way that somebody has made is of no use to others.
            memory: Arc::new(match network {
                None => LinkMemory::of(file.map.pool),
                Some(_) => LinkMemory::of_this_process(),
            }),
            network: network.unwrap_or_else(|| Arc::new(Sockets { settle_descriptor })),
            platform,
            is_guest,
        };
        let seed = u32::from_ne_bytes([0, 1, 2, 3].map(|at| session.0[at]));
        let session = Session::new(identity, file.map.clone());
        let (homes, ticks, lenders) = (AtomicU32::new(seed), AtomicU32::new(0), Lenders::default());
        let changes = ChangesInFlight::default();
        Ok(Arc::new(Self { session, homes, ticks, lenders, changes, attached: OnceLock::new() }))
    }

    /// What the layer above keeps for the session as a whole, however many file systems it makes of it:
    /// engines tell apart sessions only. Made at the first call; `None` if it is of another type.
    pub fn attached<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Option<Arc<T>> {
        Arc::clone(self.attached.get_or_init(|| Arc::new(make()))).downcast().ok()
    }

    /// Who keeps connections that serve other requests while they are not in use.
    pub(crate) fn lenders(&self) -> &Lenders {
        &self.lenders
    }

    /// The session, about to ask a target for something.
    fn session_for(&self, target: TargetId) -> &Session {
        let session = self.session();
        self.free_connection(session, target);
        session
    }

    /// Where all connections to a target's engine are kept for a purpose, takes one of them that is not in use for others.
    fn free_connection(&self, session: &Session, target: TargetId) {
        let is_lacking = |link: &Link| link.is_connected() && !link.slots.has_idle_connection();
        if self.lenders.are_there()
            && let Ok((link, _)) = session.link(target)
            && is_lacking(&link)
        {
            self.changes.lend(link.engine);
            if is_lacking(&link) {
                self.lenders.ask(link.engine);
            }
        }
    }

    /// The pool map as it is known now.
    pub fn map(&self) -> Arc<PoolMap> {
        self.session().map()
    }

    /// Where objects lie.
    pub fn placement(&self) -> Placement {
        // The same in a forked child, so whose session it is need not be asked.
        self.session.placement()
    }

    /// Number of targets.
    pub fn target_count(&self) -> u16 {
        // The same in a forked child, so whose session it is need not be asked.
        self.session.target_count()
    }

    /// A home for an object that may live anywhere; each target in turn.
    pub fn next_home(&self) -> TargetId {
        let turn = self.homes.fetch_add(1, Ordering::Relaxed);
        TargetId((turn % u32::from(self.target_count())) as u16)
    }

    /// Whether this client lives in somebody else's process, where it starts no threads.
    pub fn is_guest(&self) -> bool {
        self.session().identity().is_guest
    }

    /// Whether a target's engine is reached over a network: no socket of its host is in sight.
    pub fn is_remote(&self, target: TargetId) -> bool {
        self.link(target).is_ok_and(|link| link.is_remote())
    }

    /// How often a target's engine may have lost what it had answered and nobody had synced, as far as this client
    /// has heard from it since: its machine was started anew, or commits were taken back.
    pub fn losses(&self, target: TargetId) -> u64 {
        self.link(target).map_or(0, |link| link.losses())
    }

    /// The run of a target's engine that this client was last connected to. It differs from an earlier
    /// one if the engine has been started anew since.
    ///
    /// # Errors
    /// As [`Pool::call`].
    pub fn incarnation(&self, target: TargetId) -> Result<Incarnation> {
        let link = self.link(target)?;
        if link.incarnation().is_none() {
            self.call(target, Ping)?;
        }
        let what = "an answer without a handshake";
        link.incarnation().ok_or(ClientError::Protocol { engine: link.engine, what })
    }

    /// About how long a round trip to the farthest engine takes that has been met, in microseconds; 0 before
    /// the first. Follows the network: see [`azekura_policy::Distance`].
    pub fn round_trip_us(&self) -> u64 {
        self.session().links().iter().filter_map(|link| link.round_trip_us()).max().unwrap_or(0)
    }

    /// [`Pool::round_trip_us`] if that is `from_us` at least and the engine is reached over a network; 0 otherwise.
    pub fn far_us(&self, from_us: u64) -> u64 {
        let links = self.session().links();
        let far = links.iter().filter_map(|link| {
            let us = link.round_trip_us().filter(|us| *us >= from_us)?;
            // Last, since it may take looking at the host's files.
            link.is_remote().then_some(us)
        });
        far.max().unwrap_or(0)
    }

    /// How long a round trip took to the farthest engine when this user's processes last met it, in microseconds; 0 where
    /// all are on this host. `None` if that is not on record for one of them, as of those that are near.
    pub fn remembered_round_trip_us(&self) -> Option<u64> {
        let session = self.session();
        let known = session.identity().memory.links();
        let links = session.links();
        let remote = links.iter().filter(|link| link.is_remote());
        remote
            .map(|link| known.round_trip_us(&link.shown_addresses()))
            .try_fold(0, |most, us| Some(us?.max(most)))
    }

    /// [`Pool::round_trip_us`] for a target's engine.
    pub fn round_trip_us_to(&self, target: TargetId) -> u64 {
        self.link(target).ok().and_then(|link| link.round_trip_us()).unwrap_or(0)
    }

    /// Somebody else has found out how long a round trip takes: that counts of engines that nobody here has met yet.
    /// In microseconds; 0 says nothing.
    pub fn suppose_round_trip_us(&self, round_trip_us: u64) {
        for link in self.session().links() {
            link.suppose_round_trip(Some(round_trip_us));
        }
    }

    /// A request to a target was answered after so long, which was a round trip or more.
    pub fn note_round_trip(&self, target: TargetId, took: Duration) {
        if let Ok(link) = self.link(target) {
            link.note_at_most(took);
        }
    }

    pub(crate) fn session(&self) -> &Session {
        self.session.of_process()
    }

    pub(crate) fn link(&self, target: TargetId) -> Result<Arc<Link>> {
        Ok(self.session().link(target)?.0)
    }

    /// The session of the calling process, which engines know it by.
    pub fn session_id(&self) -> SessionId {
        self.session().identity().caller.session
    }

    /// Clock, chance and threads, as the client was told to take them.
    pub fn platform(&self) -> &SharedPlatform {
        &self.session.identity().platform
    }

    /// Asks a target for something without bulk data.
    ///
    /// # Errors
    /// [`ClientError::Status`] with what the engine answered, or why there is no answer.
    pub fn call<'a, R: TypedRequest<'a>>(&self, target: TargetId, request: R) -> Result<R::Reply> {
        self.exchange::<R>(&mut Exchange::new(target, &request.into_request()))
    }

    /// Asks a target for something, with bulk data to send.
    ///
    /// # Errors
    /// As [`Pool::call`].
    pub fn send<'a, R: TypedRequest<'a>>(
        &self,
        target: TargetId,
        request: R,
        bulk_out: &[u8],
    ) -> Result<R::Reply> {
        let request = &request.into_request();
        self.exchange::<R>(&mut Exchange { bulk_out, ..Exchange::new(target, request) })
    }

    /// Asks a target for bulk data; they go straight into `bulk_in`. The reply says how many.
    ///
    /// # Errors
    /// As [`Pool::call`].
    pub fn fetch<'a, R: TypedRequest<'a>>(
        &self,
        target: TargetId,
        request: R,
        bulk_in: &mut [u8],
    ) -> Result<R::Reply> {
        let request = &request.into_request();
        self.exchange::<R>(&mut Exchange { bulk_in, ..Exchange::new(target, request) })
    }

    fn exchange<'a, R: TypedRequest<'a>>(
        &self,
        exchange: &mut Exchange<'_, 'a>,
    ) -> Result<R::Reply> {
        if self.comes_after_changes(exchange.request) {
            if exchange.bulk_out.is_empty()
                && let Some(reply) =
                    self.ask_behind_changes(exchange.target, exchange.request, exchange.bulk_in)
            {
                return self.typed::<R>(exchange.target, reply);
            }
            self.arrive()?;
        }
        let reply = self.session_for(exchange.target).call(exchange);
        self.typed::<R>(exchange.target, reply)
    }

    /// The reply as its request has it: the one place where a reply of another request is met.
    pub(crate) fn typed<'a, R: TypedRequest<'a>>(
        &self,
        target: TargetId,
        reply: Result<Reply>,
    ) -> Result<R::Reply> {
        R::read(reply?).ok_or_else(|| self.broken_protocol(target, Failure::OTHER_REPLY))
    }

    /// The engine of a target has answered what no engine of this release does.
    pub(crate) fn broken_protocol(&self, target: TargetId, what: &'static str) -> ClientError {
        let engine = self.map().engine_of(target).unwrap_or(EngineId(0));
        ClientError::Protocol { engine, what }
    }

    /// Asks an engine, not one of its targets in particular.
    ///
    /// # Errors
    /// As [`Pool::call`].
    pub fn call_engine<'a, R: TypedRequest<'a>>(
        &self,
        engine: EngineId,
        request: R,
    ) -> Result<R::Reply> {
        let links = self.session().links();
        let link = links.iter().find(|link| link.engine == engine);
        let target = link.ok_or(ClientError::NoSuchTarget(engine.0))?.any_target;
        self.call(target, request)
    }

    /// Sends all calls at once and collects their results, in the order of the calls. Calls to one
    /// target are carried out in the order given.
    pub fn call_all<'a, R: TypedRequest<'a>>(
        &self,
        calls: &mut [Call<'a, R>],
    ) -> Vec<Result<R::Reply>> {
        let mut exchanges: Vec<_> = calls.iter_mut().map(Call::exchange).collect();
        let replies = self.fan_out(&mut exchanges).0;
        let replies = calls.iter().zip(replies);
        replies.map(|(call, reply)| self.typed::<R>(call.target, reply)).collect()
    }

    /// Several requests at once, behind the changes in flight. Tells whether none had to be repeated.
    pub(crate) fn fan_out(&self, exchanges: &mut [Exchange<'_, '_>]) -> (Vec<Result<Reply>>, bool) {
        let comes_after =
            exchanges.iter().any(|exchange| self.comes_after_changes(exchange.request));
        match if comes_after { self.arrive() } else { Ok(()) } {
            Ok(()) => {
                let session = self.session();
                // A fan-out takes a connection to each engine.
                for alike in exchanges.chunk_by(|one, next| one.target == next.target) {
                    self.free_connection(session, alike[0].target);
                }
                session.fan_out_once(exchanges)
            }
            Err(error) => (exchanges.iter().map(|_| Err(error.clone())).collect(), false),
        }
    }

    /// As [`Pool::call_all`] for requests of two kinds: those of `first` before those of `then`.
    pub fn call_mixed<'a, R: TypedRequest<'a>, S: TypedRequest<'a>>(
        &self,
        first: &mut [Call<'a, R>],
        then: &mut [Call<'a, S>],
    ) -> (Replies<R::Reply>, Replies<S::Reply>) {
        let mut exchanges: Vec<_> = first.iter_mut().map(Call::exchange).collect();
        exchanges.extend(then.iter_mut().map(Call::exchange));
        let mut replies = self.fan_out(&mut exchanges).0;
        let last = replies.split_off(first.len());
        let first = first.iter().zip(replies);
        let then = then.iter().zip(last);
        (
            first.map(|(call, reply)| self.typed::<R>(call.target, reply)).collect(),
            then.map(|(call, reply)| self.typed::<S>(call.target, reply)).collect(),
        )
    }

    /// As [`Pool::call_all`] for two requests of different kinds.
    pub fn call_both<'a, R: TypedRequest<'a>, S: TypedRequest<'a>>(
        &self,
        one: &mut Call<'a, R>,
        other: &mut Call<'a, S>,
    ) -> (Result<R::Reply>, Result<S::Reply>) {
        let targets = (one.target, other.target);
        if let Err(error) = self.arrive() {
            return (Err(error.clone()), Err(error));
        }
        let session = self.session_for(one.target);
        let (reply, other_reply) = session.both(one.exchange(), other.exchange());
        (self.typed::<R>(targets.0, reply), self.typed::<S>(targets.1, other_reply))
    }

    /// Looks after the engines where something is open or locked, and those that have failed; sends
    /// waiting releases. To be called about every second by a front end that has a thread to spare: an
    /// engine that was started again hears in time what this client holds there. Without, it hears that
    /// with the next request.
    pub fn tick(&self) {
        let session = self.session();
        let map_version = session.map().version;
        let (silent, up): (Vec<_>, Vec<_>) =
            session.links().into_iter().partition(|link| link.is_down());
        // Those that are there first, and of the others one at a time: each costs its time.
        let turn = self.ticks.fetch_add(1, Ordering::Relaxed) as usize;
        let one = silent.len().checked_sub(1).map(|last| silent[turn % (last + 1)].clone());
        for link in up.into_iter().chain(one) {
            let references = &link.open_references;
            let is_wanted = link.is_down()
                || references.holds_anything()
                || references.are_waiting() && link.is_connected();
            // Where all slots are busy it is spoken to anyway.
            if is_wanted && let Some(mut borrowed) = link.borrow_idle() {
                let (link, slot) = borrowed.parts();
                link.look_after(slot, map_version, TICK_LIMIT);
            }
        }
    }

    /// Tells the engines that the session ends, without waiting for an answer: for a process that is
    /// about to end. A request after it begins the session anew.
    pub fn leave(&self) {
        let map_version = self.map().version;
        for link in self.session().links() {
            let mut slots = link.slots.take_idle();
            // The engine ends the session with its last connection.
            let last = slots.iter().rposition(|slot| slot.is_connected());
            for (slot, place) in slots.iter_mut().zip(0..) {
                if Some(place) == last {
                    let to = Destination { target: link.any_target, map_version };
                    // An engine that does not hear it ends the session when the lease is over.
                    let _ = slot.send(to, Attempt::default(), &Request::Goodbye, &[]);
                }
                slot.disconnect();
            }
            link.slots.put_idle(slots);
        }
    }
}

impl Drop for Pool {
    /// Ends the session at every engine that knows it, so that it need not wait for the lease.
    fn drop(&mut self) {
        let version = self.map().version;
        for link in self.session().links() {
            say_goodbye(&link, version);
        }
    }
}

fn say_goodbye(link: &Link, map_version: u32) {
    let mut slots = link.slots.take_idle();
    let Some(place) = slots.iter().position(|slot| slot.is_connected()) else { return };
    let mut last = slots.swap_remove(place);
    // The engine ends the session with its last connection.
    drop(slots);
    let to = Destination { target: link.any_target, map_version };
    match last.exchange(to, Attempt::default(), &Request::Goodbye, &[], &mut [], Duration::ZERO) {
        Ok(Ok(_)) => {}
        other => tracing::debug!("engine {} did not take the goodbye: {other:?}", link.engine.0),
    }
}
