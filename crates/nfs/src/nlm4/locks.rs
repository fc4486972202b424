//! Locks of NFS clients, made from those of the pool. Owns waiting in the name of clients, in threads of
//! its own, and calling them back; what is locked by whom the engines decide.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use azekura_posix::{ClientError, Errno, FileSystem, Lock, LockKind, Oid, errno};
use parking_lot::Mutex;

use super::held::{Client, Held};
use super::types::{self, Status};
use super::waiting::{Next, Offer, Waiting};
use crate::procedures::NLM;
use crate::rpc::client;
use crate::xdr::Reader;

/// As many wait at once; each has a thread, and a slot at an engine.
const WAITING_MAX: usize = 64;
/// As many results of `_MSG` procedures are on their way at once; clients ask again for what is dropped.
const RESULTS_MAX: usize = 32;
/// A cancelled wait is over within this time, or goes on being given back afterwards.
const CANCEL_PATIENCE: Duration = Duration::from_millis(1500);
const CANCEL_STEP: Duration = Duration::from_millis(2);
/// How long a LOCK that has to wait is looked at before it is answered.
const PATIENCE: Duration = Duration::from_millis(50);
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait before each call of a client that the lock is its own.
const CALL_PAUSES_S: [u64; 5] = [0, 1, 2, 4, 8];
const GRANTED: u32 = 5;

/// The locks of all clients of this gateway.
#[derive(Debug)]
pub(crate) struct Locks {
    fs: Arc<FileSystem>,
    held: Held,
    waiting: Mutex<Vec<Arc<Waiting>>>,
    results: AtomicUsize,
    is_stopping: AtomicBool,
    /// Where the port mappers of clients listen.
    portmap_port: u16,
}

impl Locks {
    pub(crate) fn new(fs: Arc<FileSystem>, portmap_port: u16) -> Self {
        Self {
            fs,
            held: Held::default(),
            waiting: Mutex::default(),
            results: AtomicUsize::new(0),
            is_stopping: AtomicBool::new(false),
            portmap_port,
        }
    }

    /// What is in the way of a lock.
    pub(super) fn test(&self, oid: Oid, lock: Lock) -> Result<Option<Lock>, Status> {
        self.fs.test_lock(oid, lock).map_err(patient)
    }

    /// Takes a lock. With an `offer`, a call back, the client waits if it has to.
    pub(super) fn acquire(
        self: &Arc<Self>,
        client: &Client,
        oid: Oid,
        lock: Lock,
        offer: Option<Offer>,
    ) -> Result<(), Status> {
        let known = self.waiting.lock().iter().find(|one| one.is(oid, &lock)).cloned();
        if let Some(waiting) = known {
            return waiting.ask_again();
        }
        if !self.held.note(client, oid, lock.owner) {
            return Err(Status::NoLocks);
        }
        let done = match (self.fs.lock(oid, lock, false, &|| false), offer) {
            (Err(Errno::AGAIN), Some(offer)) => {
                self.wait(Waiting::new(client.clone(), oid, lock, offer))
            }
            (done, _) => done.map_err(patient),
        };
        self.note_what_is_held(client, oid, lock.owner);
        done
    }

    /// The client does not want any more what it waits for. When that is answered nobody waits for it, so
    /// that the lock does not go to who has left the queue.
    pub(super) fn cancel(&self, oid: Oid, lock: &Lock) -> Result<(), Status> {
        let waiting = self.waiting.lock().iter().find(|one| one.is(oid, lock)).cloned();
        let Some(waiting) = waiting.filter(|one| one.cancel()) else { return Err(Status::Denied) };
        // The unlock of nothing takes the owner off the engine's list of waiters. If it fails the thread
        // that waits does so itself, somewhat later.
        let nothing = Lock { start: u64::MAX, end: u64::MAX, ..*lock };
        if let Err(error) = self.fs.unlock(oid, nothing) {
            tracing::debug!(%oid, %error, "a cancelled lock is still waited for");
        }
        let deadline = Instant::now() + CANCEL_PATIENCE;
        while Instant::now() < deadline
            && self.waiting.lock().iter().any(|other| Arc::ptr_eq(other, &waiting))
        {
            thread::sleep(CANCEL_STEP);
        }
        Ok(())
    }

    /// Gives back a range.
    pub(super) fn release(&self, client: &Client, oid: Oid, lock: Lock) -> Result<(), Status> {
        for waiting in self.waiting.lock().iter().filter(|one| one.concerns(oid, &lock)) {
            // Who gives it back has had it, whether the answer to the call back has come or not.
            waiting.answered(true);
        }
        let done = self.fs.unlock(oid, lock).map_err(patient);
        self.note_what_is_held(client, oid, lock.owner);
        done
    }

    /// Clients have been started anew: gives back what they had.
    pub(super) fn release_all(&self, is_meant: impl Fn(&Client) -> bool) {
        for waiting in self.waiting.lock().iter().filter(|one| is_meant(&one.client)) {
            waiting.cancel();
        }
        for (client, oid, owner) in self.held.take(is_meant) {
            if let Err(error) = self.fs.unlock_owner(oid, LockKind::Range, owner) {
                tracing::warn!(client = %client.address, %oid, %error, "a lock was not given back");
            }
            self.note_what_is_held(&client, oid, owner);
        }
    }

    /// Ends all waiting. What clients hold goes with the session.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        for waiting in self.waiting.lock().iter() {
            waiting.cancel();
        }
    }

    /// Sends the results of a `_MSG` procedure to the client; nothing if too many are on their way.
    pub(super) fn send_results(
        self: &Arc<Self>,
        client: IpAddr,
        from: Option<IpAddr>,
        procedure: u32,
        results: Vec<u8>,
    ) {
        if self.results.fetch_add(1, Ordering::Relaxed) >= RESULTS_MAX {
            self.results.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let locks = Arc::clone(self);
        let sending = thread::Builder::new().name("nlm-results".to_owned()).spawn(move || {
            if let Err(error) = locks.call(client, from, procedure, &results) {
                tracing::debug!(%client, %error, "a lock manager does not take results");
            }
            locks.results.fetch_sub(1, Ordering::Relaxed);
        });
        if sending.is_err() {
            self.results.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Notes what there is now: an owner may have several ranges, and other calls may be under way.
    fn note_what_is_held(&self, client: &Client, oid: Oid, owner: u64) {
        if self.fs.pool().has_locks(oid, LockKind::Range, owner) {
            self.held.note(client, oid, owner);
        } else {
            self.held.forget(client, oid, owner);
        }
    }

    fn wait(self: &Arc<Self>, waiting: Waiting) -> Result<(), Status> {
        let waiting = Arc::new(waiting);
        {
            let mut all = self.waiting.lock();
            if all.len() >= WAITING_MAX || self.is_stopping.load(Ordering::Relaxed) {
                return Err(Status::NoLocks);
            }
            all.push(Arc::clone(&waiting));
        }
        let (locks, waits) = (Arc::clone(self), Arc::clone(&waiting));
        let spawned = thread::Builder::new().name("nlm-wait".to_owned()).spawn(move || {
            locks.wait_and_offer(&waits);
            locks.end_waiting(&waits);
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "no thread to wait for a lock");
            self.end_waiting(&waiting);
            return Err(Status::NoLocks);
        }
        waiting.answer(PATIENCE)
    }

    fn end_waiting(&self, waiting: &Arc<Waiting>) {
        self.waiting.lock().retain(|other| !Arc::ptr_eq(other, waiting));
    }

    fn wait_and_offer(&self, waiting: &Waiting) {
        let Waiting { client, oid, lock, .. } = waiting;
        let gives_back = loop {
            let done = self.fs.lock(*oid, *lock, true, &|| waiting.is_cancelled());
            self.note_what_is_held(client, *oid, lock.owner);
            match waiting.came_to(done) {
                Next::WaitOn => {}
                Next::Offer => break !self.offer(waiting),
                Next::GiveBack => break true,
                Next::End => break false,
            }
        };
        if gives_back {
            if let Err(error) = self.fs.unlock(*oid, *lock) {
                tracing::warn!(client = %client.address, %oid, %error, "a lock was not given back");
            }
            self.note_what_is_held(client, *oid, lock.owner);
        }
    }

    /// Tells the client that the lock is its own; whether it has taken it.
    fn offer(&self, waiting: &Waiting) -> bool {
        let address = waiting.client.address;
        for pause_s in CALL_PAUSES_S {
            if !waiting.is_open_after(Duration::from_secs(pause_s)) {
                break;
            }
            let Offer { args, from } = &waiting.offer;
            let answer = self.call(address, *from, GRANTED, args).and_then(|results| {
                types::is_granted(Reader::new(&results)).map_err(io::Error::other)
            });
            match answer {
                Ok(takes) => waiting.answered(takes),
                Err(error) => {
                    tracing::debug!(client = %address, %error, "a client does not take its lock");
                }
            }
        }
        if waiting.ends_without_taker() {
            tracing::info!(client = %address, "a client that waited for a lock has not taken it");
            return false;
        }
        true
    }

    /// Calls a client's lock manager.
    fn call(
        &self,
        client: IpAddr,
        from: Option<IpAddr>,
        procedure: u32,
        args: &[u8],
    ) -> io::Result<Vec<u8>> {
        let address = SocketAddr::new(client, self.portmap_port);
        let portmap = client::Callee { address, from, timeout: CALL_TIMEOUT };
        client::find(portmap, &NLM)?.call(&NLM, procedure, args)
    }
}

/// An engine that does not answer now may do so later: then the client asks again by itself, and its
/// program waits.
fn patient(error: Errno) -> Status {
    match (error, errno::take_cause()) {
        (Errno::IO, Some(ClientError::Unreachable { .. })) => Status::Grace,
        _ => error.into(),
    }
}
