//! A file that the kernel has open.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use azekura_posix::{OpenFile, Privileges};
use parking_lot::Mutex;

use crate::cache::Version;
use crate::passthrough::Opened;

/// What is known of the privileges of a file.
#[derive(Clone, Copy, Debug)]
struct Seen {
    privileges: Privileges,
    since: Instant,
}

/// What is known of the privileges, and how often they have changed here since the file was opened.
#[derive(Debug)]
struct SeenPrivileges {
    seen: Option<Seen>,
    changes: u64,
}

/// A file's privileges are about to be looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    changes: u64,
}

/// An open file, and what the kernel has left to the server to remember about it.
#[derive(Debug)]
pub(crate) struct FileHandle {
    pub(crate) open: OpenFile,
    privileges: Mutex<SeenPrivileges>,
    /// The version for which the kernel was told to drop what it had; and whether that is still to be
    /// noted as done, which the first read shows.
    drops: Option<Version>,
    is_dropping: AtomicBool,
    /// Who has locked ranges through this handle and has not closed a descriptor of it since: at its
    /// end only the open file itself (`F_OFD_SETLK`), of whose end the kernel says nothing else.
    range_owners: Mutex<Vec<u64>>,
    /// How the kernel was told to use the file; `None` where it keeps nothing.
    pub(crate) opened: Option<Opened>,
}

impl FileHandle {
    /// A file that was opened just now, its privileges then, and the version for which the kernel drops
    /// what it has.
    pub(crate) fn new(
        open: OpenFile,
        privileges: Privileges,
        now: Instant,
        drops: Option<Version>,
        opened: Option<Opened>,
    ) -> Self {
        let seen = Some(Seen { privileges, since: now });
        Self {
            open,
            privileges: Mutex::new(SeenPrivileges { seen, changes: 0 }),
            drops,
            is_dropping: AtomicBool::new(drops.is_some()),
            range_owners: Mutex::default(),
            opened,
        }
    }

    /// The file is read through this handle: the version for which the kernel has dropped what it had, if
    /// that is news.
    pub(crate) fn take_dropped(&self) -> Option<Version> {
        let is_news = self.is_dropping.load(Ordering::Relaxed)
            && self.is_dropping.swap(false, Ordering::Relaxed);
        self.drops.filter(|_| is_news)
    }

    /// This owner is about to lock a range.
    pub(crate) fn add_range_owner(&self, owner: u64) {
        let mut owners = self.range_owners.lock();
        if !owners.contains(&owner) {
            owners.push(owner);
        }
    }

    /// This owner has no locked range any more.
    pub(crate) fn remove_range_owner(&self, owner: u64) {
        self.range_owners.lock().retain(|other| *other != owner);
    }

    /// Whose ranges have to be free when the handle goes.
    pub(crate) fn take_range_owners(&self) -> Vec<u64> {
        std::mem::take(&mut *self.range_owners.lock())
    }

    /// The file's privileges, unless somebody has to look again, for the first time or after `ttl`.
    pub(crate) fn privileges(&self, now: Instant, ttl: Duration) -> Option<Privileges> {
        let seen = self.privileges.lock().seen?;
        (now.saturating_duration_since(seen.since) < ttl).then_some(seen.privileges)
    }

    /// To be called before the privileges are looked at or taken.
    pub(crate) fn begin_look(&self) -> Look {
        Look { changes: self.privileges.lock().changes }
    }

    /// The file has these privileges, unless they have changed since the look began.
    pub(crate) fn end_look(&self, look: Look, privileges: Privileges, now: Instant) {
        let mut kept = self.privileges.lock();
        if kept.changes == look.changes {
            kept.seen = Some(Seen { privileges, since: now });
        }
    }

    /// The file has been given other privileges: the next write has to look.
    pub(crate) fn forget_privileges(&self) {
        let mut kept = self.privileges.lock();
        kept.changes += 1;
        kept.seen = None;
    }
}
