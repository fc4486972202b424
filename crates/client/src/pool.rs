//! The pool as its users see it. Owns the public calls; the work is done by [`crate::session`],
//! [`crate::retry`] and [`crate::fan_out`].

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use azekura_proto::message::{Answer, Reply, Request};
use azekura_proto::pool_map::PoolMap;
use azekura_proto::{EngineId, SessionId, TargetId};

use crate::error::{ClientError, PoolFileError, Result};
use crate::fan_out::Call;
use crate::link::{Identity, Link};
use crate::pool_file::PoolFile;
use crate::retry::Job;
use crate::session::{Session, draw_session_id};

/// How a client behaves.
#[derive(Clone, Copy, Debug)]
pub struct ClientConfig {
    /// How long a request may take, with all attempts to reach the engine.
    pub request_timeout: Duration,
    /// What is done to the descriptor of each new connection, for a client that lives in somebody
    /// else's process and must keep out of the way of its numbers.
    pub settle_descriptor: Option<fn(OwnedFd) -> OwnedFd>,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self { request_timeout: Duration::from_secs(10), settle_descriptor: None }
    }
}

/// A pool. Shared by all threads; each call borrows a connection of its own.
#[derive(Debug)]
pub struct Pool {
    session: Session,
    /// Spreads objects that may live anywhere.
    homes: AtomicU32,
}

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
        let ClientConfig { request_timeout, settle_descriptor } = config;
        let io = |source| PoolFileError::Io {
            path: PoolFile::path_of(&file.map.name).display().to_string(),
            source,
        };
        let identity = Identity {
            pool: file.map.pool,
            pool_name: file.map.name.clone(),
            session: draw_session_id().map_err(io)?,
            secret: file.secret()?,
            request_timeout,
            settle_descriptor,
        };
        let seed = u32::from_ne_bytes([0, 1, 2, 3].map(|at| identity.session.0[at]));
        let session = Session::new(identity, file.map.clone());
        Ok(Arc::new(Self { session, homes: AtomicU32::new(seed) }))
    }

    /// The pool map as it is known now.
    pub fn map(&self) -> Arc<PoolMap> {
        self.session().map()
    }

    /// Number of targets, on which placement rests.
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
        self.session().identity().settle_descriptor.is_some()
    }

    /// Whether a target's engine is reached over a network: no socket of its host is in sight.
    pub fn is_remote(&self, target: TargetId) -> bool {
        self.link(target).is_ok_and(|link| link.is_remote())
    }

    /// About the longest round trip to an engine that has been met, in microseconds; 0 before the
    /// first.
    pub fn round_trip_us(&self) -> u64 {
        self.session().links().iter().filter_map(|link| link.dialled_us()).max().unwrap_or(0)
    }

    /// This process's session.
    pub fn session_id(&self) -> SessionId {
        self.session().identity().session
    }

    pub(crate) fn session(&self) -> &Session {
        self.session.of_process()
    }

    pub(crate) fn link(&self, target: TargetId) -> Result<Arc<Link>> {
        Ok(self.session().link(target)?.0)
    }

    /// Asks a target for something without bulk data.
    ///
    /// # Errors
    /// [`ClientError::Status`] with what the engine answered, or why there is no answer.
    pub fn call(&self, target: TargetId, request: &Request<'_>) -> Result<Reply> {
        self.session().call(&mut Job { target, request, bulk_out: &[], bulk_in: &mut [] })
    }

    /// Asks a target for something, with bulk data to send.
    ///
    /// # Errors
    /// As [`Pool::call`].
    pub fn send(&self, target: TargetId, request: &Request<'_>, bulk: &[u8]) -> Result<Reply> {
        self.session().call(&mut Job { target, request, bulk_out: bulk, bulk_in: &mut [] })
    }

    /// Asks a target for bulk data; they go straight into `bulk`. `Reply::Data` says how many.
    ///
    /// # Errors
    /// As [`Pool::call`].
    pub fn fetch(&self, target: TargetId, request: &Request<'_>, bulk: &mut [u8]) -> Result<Reply> {
        self.session().call(&mut Job { target, request, bulk_out: &[], bulk_in: bulk })
    }

    /// Asks an engine, not one of its targets in particular.
    ///
    /// # Errors
    /// As [`Pool::call`].
    pub fn call_engine(&self, engine: EngineId, request: &Request<'_>) -> Result<Reply> {
        let links = self.session().links();
        let link = links.iter().find(|link| link.engine == engine);
        let target = link.ok_or(ClientError::NoSuchTarget(engine.0))?.any_target;
        self.call(target, request)
    }

    /// Sends all calls at once and collects their results. Calls to one target are carried out
    /// in the order given.
    pub fn fan_out(&self, calls: &mut [Call<'_>]) {
        self.session().fan_out(calls);
    }

    /// Sends waiting releases, and looks after engines that have failed. To be called about every
    /// second by a door that has a thread to spare; nothing depends on it.
    pub fn tick(&self) {
        let session = self.session();
        for link in session.links() {
            if link.holds.has_closed() && link.is_connected() || link.is_down() {
                let target = link.any_target;
                let request = &Request::Ping;
                // A failure has been logged; the next request tries again.
                let _ = session.call(&mut Job { target, request, bulk_out: &[], bulk_in: &mut [] });
            }
        }
    }

    /// Tells the engines that the session ends, without waiting for an answer: for a process that is
    /// about to end. A request after it begins the session anew.
    pub fn leave(&self) {
        let version = self.map().version;
        for link in self.session().links() {
            let mut lanes = link.take_idle();
            // The engine ends the session with its last connection.
            let last = lanes.iter().rposition(|lane| lane.is_connected());
            for (lane, place) in lanes.iter_mut().zip(0..) {
                if Some(place) == last {
                    let head = lane.head(link.any_target, version, 0, false);
                    // An engine that does not hear it ends the session when the lease is over.
                    let _ = lane
                        .queue(&link.holds, head, &Request::Goodbye, 0)
                        .and_then(|()| lane.flush(&[]));
                }
                link.disconnect(lane);
            }
            link.give_back(lanes);
        }
    }

    /// Starts a thread that calls [`Pool::tick`] every second as long as the pool is in use.
    ///
    /// # Errors
    /// If the system has no thread to give.
    pub fn spawn_ticker(self: &Arc<Self>) -> std::io::Result<()> {
        let pool = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("azekura-ticker".to_owned());
        thread.spawn(move || {
            loop {
                std::thread::sleep(Duration::from_secs(1));
                match pool.upgrade() {
                    Some(pool) => pool.tick(),
                    None => return,
                }
            }
        })?;
        Ok(())
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
    let mut lanes = link.take_idle();
    let Some(place) = lanes.iter().position(|lane| lane.is_connected()) else { return };
    let mut last = lanes.swap_remove(place);
    // The engine ends the session with its last connection.
    drop(lanes);
    let head = last.head(link.any_target, map_version, 0, false);
    let said = last
        .queue(&link.holds, head, &Request::Goodbye, 0)
        .and_then(|()| last.flush(&[]))
        .and_then(|()| last.receive(&link.holds, link.engine, &mut [], 1));
    match said {
        Ok(Answer::Ok(_)) => {}
        other => tracing::debug!("engine {} did not take the goodbye: {other:?}", link.engine.0),
    }
}
