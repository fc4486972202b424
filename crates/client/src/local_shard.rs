//! Files of shards that an engine of this host lets a client read or write by itself. Owns how such a file is
//! asked for, and the bound on how many a process has; nothing is asked again here, since whoever gets none uses
//! requests.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use azekura_proto::limits::{
    LOCAL_DESCRIPTORS_MAX, LOCAL_DESCRIPTORS_PART, READ_LEASE_MS, WRITE_LEASE_MS,
};
use azekura_proto::message::typed::{ShardDescriptor, ShardWriteDescriptor, TypedRequest as _};
use azekura_proto::message::{Request, ShardRef};
use azekura_proto::{Oid, Status, TargetId};
use azekura_rpc::Destination;
use rustix::io::{Errno, pread, pwrite};
use rustix::process::{Resource, getrlimit};

use crate::pool::Pool;
use crate::session::Session;

/// How long an engine may take to pass a descriptor where it waits for nobody.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long it waits for others at most: for the leases that they have.
const LEASES: Duration = Duration::from_millis(READ_LEASE_MS + WRITE_LEASE_MS);

/// A host's own numbers lie below its limit and this.
const GUEST_NUMBERS: u64 = 4096;
/// So many numbers are needed above them.
const GUEST_ROOM: u64 = 1024;

/// Those of this process, which a forked child has as well.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// A place for one descriptor.
#[derive(Debug)]
struct Place;

impl Place {
    /// `is_guest`: the process is somebody else's, whose own numbers are left to it.
    fn take(is_guest: bool) -> Option<Self> {
        let limit = getrlimit(Resource::Nofile);
        let allowed = limit.current.unwrap_or(u64::MAX);
        let above_them = allowed.min(GUEST_NUMBERS) + GUEST_ROOM;
        if is_guest && limit.maximum.is_some_and(|most| most < above_them) {
            return None;
        }
        let most = LOCAL_DESCRIPTORS_MAX.min(allowed / LOCAL_DESCRIPTORS_PART);
        let more = |taken| (taken < most).then_some(taken + 1);
        let taken = TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        // Not made before it is known: one that is dropped gives a place back.
        taken.is_ok().then(|| Self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        TAKEN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the file of a shard is wanted for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalUse {
    /// To be read. The engine waits for nobody.
    Read,
    /// To be read and written; made if it is not there. That of shard 0 comes before others.
    Write {
        /// The engine may wait for the leases of others, which takes seconds.
        wait: bool,
    },
}

impl LocalUse {
    fn request(self, data: ShardRef) -> Request<'static> {
        match self {
            Self::Read => ShardDescriptor { data }.into_request(),
            Self::Write { wait } => ShardWriteDescriptor { data, wait }.into_request(),
        }
    }

    fn patience(self) -> Duration {
        match self {
            Self::Write { wait: true } => PATIENCE + LEASES,
            Self::Write { wait: false } | Self::Read => PATIENCE,
        }
    }
}

/// The file of a shard, open for reading and perhaps for writing.
#[derive(Debug)]
pub struct LocalShard {
    file: OwnedFd,
    _place: Place,
}

impl LocalShard {
    /// Fills the buffer from an offset of the file on; false if that could not be done. What the buffer has
    /// then means nothing: the engine knows why there are fewer bytes.
    pub fn fill(&self, buffer: &mut [u8], offset: u64) -> bool {
        let mut done = 0;
        while done < buffer.len() {
            match pread(&self.file, &mut buffer[done..], offset + done as u64) {
                Ok(0) => return false,
                Ok(bytes) => done += bytes,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Writes data from an offset of the file on; gives how many bytes could be written. Why there are fewer
    /// the engine knows.
    pub fn put(&self, data: &[u8], offset: u64) -> usize {
        let mut done = 0;
        while done < data.len() {
            match pwrite(&self.file, &data[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        done
    }

    /// The descriptor, to map the file.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The descriptor, which does not count as one of this process's any more.
    pub fn into_descriptor(self) -> OwnedFd {
        self.file
    }
}

impl Pool {
    /// The file of a shard, if its engine is on this host and lets this client use it by itself just now.
    pub fn local_shard(
        &self,
        target: TargetId,
        data: ShardRef,
        purpose: LocalUse,
    ) -> Option<LocalShard> {
        self.session().local_shard(target, data, purpose)
    }

    /// Whether this client has anything locked on an object.
    pub fn is_locked(&self, oid: Oid) -> bool {
        self.link(oid.home()).is_ok_and(|link| link.open_references.is_locked(oid))
    }
}

impl Session {
    fn local_shard(
        &self,
        target: TargetId,
        data: ShardRef,
        purpose: LocalUse,
    ) -> Option<LocalShard> {
        let (link, map_version) = self.link(target).ok()?;
        if !link.may_pass_descriptors() {
            return None;
        }
        let place = Place::take(self.identity().is_guest)?;
        let mut borrowed = link.borrow_idle()?;
        let (link, slot) = borrowed.parts();
        if !link.is_ready(slot, false) {
            return None;
        }
        let to = Destination { target, map_version };
        let gone = self.identity().caller.timeout.saturating_sub(purpose.patience());
        match slot.exchange_for_descriptor(to, &purpose.request(data), gone) {
            Ok((Ok(reply), file)) => {
                ShardDescriptor::read(reply)?;
                Some(LocalShard { file: file?, _place: place })
            }
            Ok((Err(status), _)) => {
                if status == Status::Unsupported {
                    link.note_descriptors_refused();
                }
                None
            }
            Err(failure) => {
                // An engine of an earlier release hangs up on what it does not know.
                tracing::debug!("engine {} passes no descriptor: {failure}", link.engine.0);
                slot.disconnect();
                link.note_descriptors_refused();
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use azekura_proto::message::{Answer, Reply, Request, RequestHead, Welcome};
    use azekura_proto::pool_map::Address;
    use azekura_proto::{ContainerId, EngineId, Incarnation, ObjectClass, PoolId, frame};
    use azekura_rpc::transport::Sockets;
    use azekura_wire::{Acceptor, Listener, Secret};

    use super::*;
    use crate::retry::Exchange;

    const POOL: PoolId = PoolId([1; 16]);

    fn session(socket: &Path, secret: &Secret) -> Session {
        let network = std::sync::Arc::new(Sockets::default());
        Session::to_one_engine(network, vec![Address::Unix(socket.to_owned())], secret.clone())
    }

    /// An engine that serves so many connections, one after the other. It hangs up when it is asked for a
    /// descriptor, or says that it passes none, or that it has passed one. Gives what it was asked for.
    fn serve(
        listener: &Listener,
        secret: &Secret,
        connections: usize,
        how: Option<&Answer>,
    ) -> usize {
        let mut asked = 0;
        for _ in 0..connections {
            let welcome = Welcome {
                engine: EngineId(0),
                incarnation: Incarnation(7),
                map_version: 1,
                fresh_session: true,
            };
            let gate = Acceptor { secret, pool: POOL, tickets: None };
            let arrival = gate.receive(listener.accept().unwrap(), |_| Ok(welcome)).unwrap();
            let mut connection = arrival.connection;
            while let Ok((_, body)) = connection.recv() {
                let (_, request): (RequestHead, Request<'_>) =
                    frame::decode_borrowed(body).unwrap();
                let answer = if matches!(request, Request::ShardDescriptor { .. }) {
                    asked += 1;
                    let Some(answer) = how.cloned() else { break };
                    answer
                } else {
                    Ok(Reply::Done)
                };
                connection.queue(&answer, 0).unwrap();
                connection.flush(&[]).unwrap();
            }
        }
        asked
    }

    #[test]
    fn an_engine_that_passes_none_is_asked_once() {
        let hangs_up = (None, 2, 1);
        let refuses = (Some(Err(Status::Unsupported)), 1, 1);
        let not_now = (Some(Err(Status::ConditionFailed)), 1, 3);
        // The socket may be carried here from another host.
        let loses_it = (Some(Ok(Reply::Done)), 1, 3);
        for (how, connections, wanted) in [hangs_up, refuses, not_now, loses_it] {
            let dir = tempfile::tempdir().unwrap();
            let socket = dir.path().join("socket");
            let secret = Secret::generate().unwrap();
            let listener = Listener::bind(&Address::Unix(socket.clone())).unwrap();
            let asked = std::thread::scope(|scope| {
                let engine = scope.spawn(|| serve(&listener, &secret, connections, how.as_ref()));
                let session = session(&socket, &secret);
                let ping =
                    || session.call(&mut Exchange::new(TargetId(0), &Request::Ping)).unwrap();
                let oid = Oid::new(ContainerId(1), ObjectClass::S1, TargetId(0), 5);
                let data = ShardRef { oid, shard: 0, is_file: true };
                // Never by the first request to an engine.
                assert!(session.local_shard(TargetId(0), data, LocalUse::Read).is_none());
                for _ in 0..3 {
                    assert_eq!(ping(), Reply::Done);
                    assert!(session.local_shard(TargetId(0), data, LocalUse::Read).is_none());
                }
                assert_eq!(ping(), Reply::Done);
                drop(session);
                engine.join().unwrap()
            });
            assert_eq!(asked, wanted, "{how:?}");
        }
    }
}
