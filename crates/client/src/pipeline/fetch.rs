//! One request in flight and what came of it. Owns the bytes until somebody has copied them; knows
//! nothing of connections.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use azekura_proto::message::typed::{FileLeased, LeaseFile, LeaseRead, Leased, Read};
use azekura_proto::message::{Answer, Request, ShardRef, TypedRequest as _};
use azekura_proto::{Oid, TargetId};
use parking_lot::Mutex;

/// What came of a request.
#[derive(Debug)]
enum State {
    /// Not sent yet, or no reply yet.
    Waiting,
    /// The bytes of a shard: fewer than asked for where its file ends.
    Data(Vec<u8>),
    Lease(Leased),
    /// A lease with the file's attributes; once given, the lease alone is left.
    FileLease(Box<FileLeased>),
    Failed,
}

/// A request in flight, or about to be.
#[derive(Debug)]
pub struct Fetch {
    pub(super) target: TargetId,
    /// For bytes, or for a lease.
    pub(super) request: Request<'static>,
    /// When it was given to the pipeline.
    asked: OnceLock<Instant>,
    /// The connection that it went over; 0 until it was sent.
    channel: AtomicU64,
    state: Mutex<State>,
}

impl Fetch {
    /// A request for bytes of a shard, to the target that has it.
    pub fn data(target: TargetId, data: ShardRef, offset: u64, bytes: u32) -> Arc<Self> {
        Self::new(target, Request::Read { data, offset, bytes })
    }

    /// Bytes of a shard that have come along with the answer to something else.
    pub fn come(target: TargetId, data: ShardRef, offset: u64, bytes: Vec<u8>) -> Arc<Self> {
        let fetch = Self::data(target, data, offset, bytes.len() as u32);
        *fetch.state.lock() = State::Data(bytes);
        fetch
    }

    /// A request for a read lease of a shard, to the target that has it.
    pub fn lease(target: TargetId, data: ShardRef) -> Arc<Self> {
        Self::new(target, Request::LeaseRead { data })
    }

    /// A request for a sign of life, whose answer nobody waits for.
    pub(super) fn greeting(target: TargetId) -> Arc<Self> {
        Self::new(target, Request::Ping)
    }

    /// A request for a read lease of a file's shard at its home, with the file's attributes under it.
    pub fn file_lease(oid: Oid) -> Arc<Self> {
        Self::new(oid.home(), Request::LeaseFile { oid })
    }

    fn new(target: TargetId, request: Request<'static>) -> Arc<Self> {
        let state = Mutex::new(State::Waiting);
        let channel = AtomicU64::new(0);
        Arc::new(Self { target, request, asked: OnceLock::new(), channel, state })
    }

    /// When it was asked for, not later than it was sent; nothing before that.
    pub fn asked(&self) -> Option<Instant> {
        self.asked.get().copied()
    }

    pub(super) fn note_asked(&self, now: Instant) {
        self.asked.get_or_init(|| now);
    }

    /// Whether nothing more will come.
    pub fn is_over(&self) -> bool {
        !matches!(*self.state.lock(), State::Waiting)
    }

    /// Whether it came to nothing.
    pub fn has_failed(&self) -> bool {
        matches!(*self.state.lock(), State::Failed)
    }

    /// Copies bytes of the reply from `from` on; gives how many there are, fewer than `to` takes where the
    /// shard's file ends. `None` if there is no reply.
    pub fn copy(&self, from: usize, to: &mut [u8]) -> Option<usize> {
        match &*self.state.lock() {
            State::Data(data) => {
                let rest = data.get(from..).unwrap_or_default();
                let there = rest.len().min(to.len());
                to[..there].copy_from_slice(&rest[..there]);
                Some(there)
            }
            _ => None,
        }
    }

    /// The lease that has come.
    pub fn granted(&self) -> Option<Leased> {
        match *self.state.lock() {
            State::Lease(lease) => Some(lease),
            State::FileLease(ref leased) => Some(leased.lease),
            _ => None,
        }
    }

    /// What has come with the lease of a file; given once.
    pub fn take_file_lease(&self) -> Option<FileLeased> {
        let mut state = self.state.lock();
        let State::FileLease(leased) = &*state else { return None };
        let left = State::Lease(leased.lease);
        match std::mem::replace(&mut *state, left) {
            State::FileLease(leased) => Some(*leased),
            _ => None,
        }
    }

    /// The bytes are not wanted any more: it is not sent if it has not been. What has come stays for those who still hold
    /// it: they may be about to copy it.
    pub fn abandon(&self) {
        let mut state = self.state.lock();
        if matches!(*state, State::Waiting) && self.channel() == 0 {
            *state = State::Failed;
        }
    }

    /// The connection that it went over; 0 until it was sent.
    pub(super) fn channel(&self) -> u64 {
        self.channel.load(Ordering::Relaxed)
    }

    pub(super) fn note_sent(&self, channel: u64) {
        self.channel.store(channel, Ordering::Relaxed);
    }

    /// Bytes of data that it asks for.
    pub(super) fn asked_bytes(&self) -> u32 {
        match self.request {
            Request::Read { bytes, .. } => bytes,
            _ => 0,
        }
    }

    /// The answer has come, with its data.
    pub(super) fn complete(&self, answer: Answer, data: Vec<u8>) {
        let state = answer.ok().and_then(|reply| match self.request {
            Request::Read { .. } => Read::read(reply).map(|_| State::Data(data)),
            Request::LeaseFile { .. } => {
                LeaseFile::read(reply).map(|leased| State::FileLease(Box::new(leased)))
            }
            _ => LeaseRead::read(reply).map(State::Lease),
        });
        // Otherwise the connection is whole, and what was asked for cannot be had.
        *self.state.lock() = state.unwrap_or(State::Failed);
    }

    pub(super) fn fail(&self) {
        let mut state = self.state.lock();
        if matches!(*state, State::Waiting) {
            *state = State::Failed;
        }
    }
}

#[cfg(test)]
mod tests {
    use azekura_proto::{ContainerId, ObjectClass};

    use super::*;

    #[test]
    fn what_has_come_stays_for_who_still_holds_it_when_it_is_given_up() {
        let oid = Oid::new(ContainerId(1), ObjectClass::S1, TargetId(0), 5);
        let shard = ShardRef { oid, shard: 0, is_file: true };
        let come = Fetch::come(TargetId(0), shard, 0, vec![7; 4]);
        come.abandon();
        let mut bytes = [0; 4];
        assert_eq!((come.copy(0, &mut bytes), bytes), (Some(4), [7; 4]));
        let unsent = Fetch::data(TargetId(0), shard, 0, 4);
        unsent.abandon();
        assert!(unsent.has_failed());
        let sent = Fetch::data(TargetId(0), shard, 0, 4);
        sent.note_sent(1);
        sent.abandon();
        assert!(!sent.is_over(), "whoever waits for it gets it");
    }
}
