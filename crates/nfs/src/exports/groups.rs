//! The groups that this host says a user is in, for exports that do not believe the client or whose
//! users are in more groups than the 16 that fit into a credential. Owns how long an answer is
//! believed; the lookup itself may go over a network and is never made under the lock.

use std::collections::HashMap;
use std::ffi::CString;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::unistd::{Uid, User, getgrouplist};
use parking_lot::Mutex;

/// How long a user who has been added to a group may have to wait.
const BELIEVED: Duration = Duration::from_secs(60);
/// A client that makes up users must not fill the memory.
const USERS_MAX: usize = 4096;

type Lookup = fn(u32) -> Vec<u32>;

/// Groups by user, for a while.
pub(super) struct GroupCache {
    lookup: Lookup,
    known: Mutex<HashMap<u32, Known>>,
}

struct Known {
    since: Instant,
    groups: Arc<[u32]>,
}

impl fmt::Debug for GroupCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GroupCache({} users)", self.known.lock().len())
    }
}

impl GroupCache {
    /// What the user database of this host says.
    pub(super) fn of_host() -> Self {
        Self { lookup: groups_on_host, known: Mutex::default() }
    }

    /// All groups of the user; none if the host does not know the user.
    pub(super) fn groups_of(&self, uid: u32) -> Arc<[u32]> {
        self.groups_at(uid, Instant::now())
    }

    fn groups_at(&self, uid: u32, now: Instant) -> Arc<[u32]> {
        let is_fresh = |known: &Known| now.saturating_duration_since(known.since) < BELIEVED;
        if let Some(known) = self.known.lock().get(&uid).filter(|known| is_fresh(known)) {
            return Arc::clone(&known.groups);
        }
        let groups: Arc<[u32]> = (self.lookup)(uid).into();
        let mut known = self.known.lock();
        if known.len() >= USERS_MAX {
            known.retain(|_, one| is_fresh(one));
        }
        if known.len() >= USERS_MAX {
            known.clear();
        }
        known.insert(uid, Known { since: now, groups: Arc::clone(&groups) });
        groups
    }
}

fn groups_on_host(uid: u32) -> Vec<u32> {
    let user = match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => user,
        Ok(None) => return Vec::new(),
        Err(error) => {
            tracing::warn!(uid, %error, "cannot look up a user; it is taken to be in no groups");
            return Vec::new();
        }
    };
    let Ok(name) = CString::new(user.name) else { return Vec::new() };
    match getgrouplist(&name, user.gid) {
        Ok(groups) => groups.into_iter().map(nix::unistd::Gid::as_raw).collect(),
        Err(error) => {
            tracing::warn!(uid, %error, "cannot look up the groups of a user; none are taken");
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn the_host_knows_roots_groups_and_not_those_of_nobody_it_has_heard_of() {
        let cache = GroupCache::of_host();
        assert!(cache.groups_of(0).contains(&0), "{:?}", cache.groups_of(0));
        assert!(cache.groups_of(3_999_999_999).is_empty());
    }

    #[test]
    fn an_answer_is_believed_for_a_minute() {
        static ASKED: AtomicU32 = AtomicU32::new(0);
        let lookup = |_| vec![ASKED.fetch_add(1, Ordering::Relaxed)];
        let cache = GroupCache { lookup, known: Mutex::default() };
        let start = Instant::now();
        let at = |s| cache.groups_at(7, start + Duration::from_secs(s))[0];
        assert_eq!([at(0), at(59), at(61), at(62)], [0, 0, 1, 1]);
    }

    #[test]
    fn made_up_users_do_not_fill_the_memory() {
        let cache = GroupCache { lookup: |uid| vec![uid], known: Mutex::default() };
        for uid in 0..3 * USERS_MAX as u32 {
            assert_eq!(*cache.groups_of(uid), [uid]);
        }
        assert!(cache.known.lock().len() <= USERS_MAX);
    }
}
