//! Files of shards that an engine of this host lets a client read by itself. Owns how such a file is asked for,
//! and the bound on how many a process has; nothing is asked again or waited for here, since whoever gets none
//! reads by requests.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use azekura_proto::limits::{LOCAL_DESCRIPTORS_MAX, LOCAL_DESCRIPTORS_PART};
use azekura_proto::message::ShardRef;
use azekura_proto::message::typed::{ShardDescriptor, TypedRequest as _};
use azekura_proto::{Oid, Status, TargetId};
use azekura_rpc::Destination;
use rustix::io::{Errno, pread};
use rustix::process::{Resource, getrlimit};

use crate::pool::Pool;
use crate::session::Session;

/// How long an engine may take to pass a descriptor, for which it waits for nobody.
const PATIENCE: Duration = Duration::from_secs(1);

/// Those of this process, which a forked child has as well.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// A place for one descriptor.
#[derive(Debug)]
struct Place;

impl Place {
    fn take() -> Option<Self> {
        let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
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

/// The file of a shard, open for reading.
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
}

impl Pool {
    /// The file of a shard, if its engine is on this host and lets this client read it by itself just now.
    pub fn local_shard(&self, target: TargetId, data: ShardRef) -> Option<LocalShard> {
        self.session().local_shard(target, data)
    }

    /// Whether this client has anything locked on an object.
    pub fn is_locked(&self, oid: Oid) -> bool {
        self.link(oid.home()).is_ok_and(|link| link.open_references.is_locked(oid))
    }
}

impl Session {
    fn local_shard(&self, target: TargetId, data: ShardRef) -> Option<LocalShard> {
        let (link, map_version) = self.link(target).ok()?;
        if !link.may_pass_descriptors() {
            return None;
        }
        let place = Place::take()?;
        let mut borrowed = link.borrow_idle()?;
        let (link, slot) = borrowed.parts();
        if !link.is_ready(slot, false) {
            return None;
        }
        let to = Destination { target, map_version };
        let gone = self.identity().caller.timeout.saturating_sub(PATIENCE);
        match slot.exchange_for_descriptor(to, &ShardDescriptor { data }.into_request(), gone) {
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
