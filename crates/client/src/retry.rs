//! One request from the first attempt to its answer. Owns the connecting, asking and refreshing of the
//! map that the policy of [`azekura_rpc::Attempts`] calls for.

use std::sync::Arc;
use std::time::Duration;

use azekura_proto::Status;
use azekura_proto::TargetId;
use azekura_proto::message::typed::{Map, TypedRequest as _};
use azekura_proto::message::{Answer, Reply, Request};
use azekura_rpc::{Attempt, Attempts, Destination, Failure, Patience, Slot, Step};

use crate::error::{ClientError, Result};
use crate::link::{Borrowed, Link};
use crate::session::Session;

/// Requests with so many bytes of data are answered in about a round trip, whatever the rate.
const SMALL_BYTES: usize = 16 * 1024;

/// Whether the answer may be late for other reasons than the way and the engine's work.
fn may_wait(request: &Request<'_>) -> bool {
    request.may_be_slow() || matches!(request, Request::LockAcquire { .. })
}

/// A request with its bulk data both ways.
#[derive(Debug)]
pub(crate) struct Exchange<'x, 'r> {
    pub(crate) target: TargetId,
    pub(crate) request: &'x Request<'r>,
    pub(crate) bulk_out: &'x [u8],
    pub(crate) bulk_in: &'x mut [u8],
    /// Among several to an engine, it must not be carried out after a later one.
    pub(crate) is_ordered: bool,
}

impl<'x, 'r> Exchange<'x, 'r> {
    /// One without bulk data.
    pub(crate) fn new(target: TargetId, request: &'x Request<'r>) -> Self {
        Self { target, request, bulk_out: &[], bulk_in: &mut [], is_ordered: false }
    }

    /// Whether it takes its time for the data, and not for the way alone.
    pub(crate) fn has_data(&self) -> bool {
        self.bulk_out.len() + self.bulk_in.len() > SMALL_BYTES
    }
}

impl Session {
    /// One request on a slot of its engine.
    pub(crate) fn call(&self, exchange: &mut Exchange<'_, '_>) -> Result<Reply> {
        let (link, map_version) = self.link(exchange.target)?;
        let mut borrowed = self.borrow(link)?;
        let sequence = borrowed.sequence_for(exchange.request);
        let attempt = Attempt { sequence, resent: false };
        let attempts = Attempts::new(attempt, exchange.request, self.identity().platform.now());
        self.drive(&mut borrowed, exchange, attempts, map_version)
    }

    /// A slot of the link.
    pub(crate) fn borrow(&self, link: Arc<Link>) -> Result<Borrowed> {
        link.borrow().map_err(|link| self.unreachable(&link, "all connections to it are busy"))
    }

    /// Repeats the request until it has an answer that is the caller's, or time is up.
    pub(crate) fn drive(
        &self,
        borrowed: &mut Borrowed,
        exchange: &mut Exchange<'_, '_>,
        mut attempts: Attempts,
        mut map_version: u32,
    ) -> Result<Reply> {
        loop {
            let (link, slot) = borrowed.parts();
            let step = match self.attempt(link, slot, exchange, &attempts, map_version) {
                Ok(Ok(reply)) => return Ok(reply),
                Ok(Err(status)) => self.after_status(link, &mut attempts, status)?,
                Err(failure) => {
                    slot.disconnect();
                    self.after_failure(link, &mut attempts, &failure)?
                }
            };
            match step {
                Step::Again => {}
                Step::Anew { reconnect } => {
                    if reconnect {
                        slot.disconnect();
                    }
                    attempts.renumber(slot.sequence_for(exchange.request));
                }
                Step::Refresh => {
                    self.refresh(link, slot, map_version);
                    let (link, version) = self.link(exchange.target)?;
                    map_version = version;
                    if link.engine != borrowed.link.engine {
                        *borrowed = self.borrow(link)?;
                        attempts.renumber(borrowed.sequence_for(exchange.request));
                    }
                }
            }
        }
    }

    /// Sends the request and reads its answer, connecting first if need be.
    fn attempt(
        &self,
        link: &Link,
        slot: &mut Slot,
        exchange: &mut Exchange<'_, '_>,
        attempts: &Attempts,
        map_version: u32,
    ) -> std::result::Result<Answer, Failure> {
        let platform = &*self.identity().platform;
        let (mut gone, mut first) = (Duration::ZERO, None);
        // The usual first attempt has all its time before it, and need not look at the clock.
        let changes = exchange.request.is_fenced();
        if attempts.have_failed() || !link.is_ready(slot, changes) {
            if !attempts.have_failed() {
                let only_looks = !changes && exchange.bulk_out.is_empty();
                first = link.connect_first(slot, only_looks, attempts.gone(platform))?;
            }
            if first.is_none() {
                link.reach(slot, map_version, changes, attempts.gone(platform))?;
            }
            gone = attempts.gone(platform);
        }
        let to = Destination { target: exchange.target, map_version };
        let has_data = exchange.has_data();
        let Exchange { request, bulk_out, bulk_in, .. } = exchange;
        let is_small = !has_data && !may_wait(request);
        let timing = if is_small && first.is_none() { link.begin_timing() } else { None };
        let sent = has_data.then(|| platform.now());
        let answer = slot.exchange(to, attempts.attempt(), request, bulk_out, bulk_in, gone)?;
        if let Some(sent) = timing {
            link.note_answer(sent);
        }
        if sent.is_some_and(|sent| link.doubts_distance(sent)) {
            link.ask_distance(slot, map_version);
        }
        if let Some(words) = first {
            link.note_first(&words);
        }
        link.note_up();
        Ok(answer)
    }

    fn after_status(&self, link: &Link, attempts: &mut Attempts, status: Status) -> Result<Step> {
        let platform = &*self.identity().platform;
        if let Some(step) = attempts.after_status(status, platform, &self.patience(link)) {
            return Ok(step);
        }
        if status == Status::PeerUnreachable {
            self.note_peer_failure();
            self.tell_peer_failure(link);
        }
        Err(status.into())
    }

    fn after_failure(
        &self,
        link: &Link,
        attempts: &mut Attempts,
        failure: &Failure,
    ) -> Result<Step> {
        // Once the engine has let this session in, it may be another one that answers at its address for a moment.
        if failure.is_refusal() && link.incarnation().is_none() {
            return Err(self.failed(link, failure));
        }
        let platform = &*self.identity().platform;
        match attempts.after_failure(failure, platform, &self.patience(link)) {
            Some(step) => Ok(step),
            None => Err(self.failed(link, failure)),
        }
    }

    /// Says between which engines something is wrong, as far as this side can tell.
    fn tell_peer_failure(&self, link: &Link) {
        let links = self.links();
        let silent: Vec<String> = links
            .iter()
            .filter(|other| other.is_down())
            .map(|other| format!("{} at {}", other.engine.0, other.shown_addresses()))
            .collect();
        let (engine, pool) = (link.engine.0, &self.identity().pool_name);
        if silent.is_empty() {
            tracing::warn!(
                "engine {engine} of pool '{pool}' cannot reach another one, which answers here: look into the log of engine {engine}, which names it, and at the network between them",
            );
        } else {
            tracing::warn!(
                "engine {engine} of pool '{pool}' cannot reach another one; from here these are silent, too: {}; see 'azekura status {pool}'",
                silent.join(", "),
            );
        }
    }

    fn patience(&self, link: &Link) -> Patience {
        let request = self.identity().caller.timeout;
        Patience { engine: link.patience(), peer: self.peer_patience(), request }
    }

    /// What a failure means that nothing more is tried after.
    pub(crate) fn failed(&self, link: &Link, failure: &Failure) -> ClientError {
        match failure {
            Failure::TooLarge => ClientError::TooLarge,
            Failure::Protocol(what) => ClientError::Protocol { engine: link.engine, what },
            Failure::Late | Failure::Broken(_) => {
                let cause = failure.to_string();
                link.note_down(&cause);
                self.unreachable(link, &cause)
            }
        }
    }

    fn unreachable(&self, link: &Link, cause: &str) -> ClientError {
        ClientError::Unreachable {
            pool: self.identity().pool_name.clone(),
            engine: link.engine,
            addresses: link.shown_addresses(),
            cause: cause.to_owned(),
        }
    }

    /// Asks the engine for its map; if that fails the old one is tried once more.
    fn refresh(&self, link: &Link, slot: &mut Slot, map_version: u32) {
        let to = Destination { target: link.any_target, map_version };
        match slot.exchange(to, Attempt::default(), &Request::Map, &[], &mut [], Duration::ZERO) {
            Ok(answer) => {
                if let Some(map) = answer.ok().and_then(Map::read) {
                    self.adopt(map);
                }
            }
            Err(_) => slot.disconnect(),
        }
    }
}
