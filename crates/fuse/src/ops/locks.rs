//! `fcntl` ranges and `flock`. Waiting happens on a thread of its own, since the threads that serve
//! requests are few, and one of them has to carry out the unlock that is waited for.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use azekura_posix::{Errno, LockKind};

use crate::answer::{Result, done};
use crate::convert;
use crate::front_end::FrontEnd;
use crate::kernel::{self, Header, Replier};

impl FrontEnd {
    pub(crate) fn test_lock(
        &self,
        header: &Header<'_>,
        lock: &kernel::Lock,
    ) -> Result<Option<kernel::Lock>> {
        let conflict = self.fs.test_lock(self.object(header.node)?, convert::lock(lock))?;
        Ok(conflict.map(|other| convert::lock_in_the_way(lock, &other)))
    }

    pub(crate) fn set_lock(
        &self,
        header: &Header<'_>,
        replier: Replier,
        lock: &kernel::Lock,
        wait: bool,
    ) {
        let oid = match self.object(header.node) {
            Ok(oid) => oid,
            Err(errno) => return replier.error(errno),
        };
        let wanted = convert::lock(lock);
        if lock.kind == kernel::LockKind::Unlock {
            return done(replier, self.fs.unlock(oid, wanted));
        }
        if wanted.kind == LockKind::Range {
            self.has_ranges.store(true, Ordering::Relaxed);
            match self.files.get(lock.fh) {
                Ok(file) => file.add_range_owner(lock.owner),
                Err(errno) => return replier.error(errno),
            }
        }
        let at_once = self.fs.lock(oid, wanted, false, &|| false);
        if !wait || at_once != Err(Errno::AGAIN) {
            return done(replier, at_once);
        }
        let Some(waiter) = self.waiters.enter(header.unique) else {
            return replier.error(Errno::NOLCK);
        };
        let fs = Arc::clone(&self.fs);
        let thread = std::thread::Builder::new().name("fuse-lock".into());
        let started = thread.spawn(move || {
            let result = fs.lock(oid, wanted, true, &|| waiter.is_interrupted());
            done(replier, result);
        });
        if let Err(error) = started {
            // The replier went with the thread's closure and has answered with EIO.
            tracing::warn!("cannot start a thread that waits for a lock: {error}");
        }
    }
}
