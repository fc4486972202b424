//! A directory that the kernel has open. The kernel asks for a few entries at a time, so that a
//! handle keeps the page that it has got and hands it out bit by bit. A page goes out of use soon; its
//! attributes already when anything is changed through this mount, since the kernel would take them
//! for news. What is old already is believed for the rest of its time alone.

use std::time::{Duration, Instant};

use azekura_posix::{Listed, Oid};
use parking_lot::Mutex;

/// A page is good for this long.
const PAGE_AGE: Duration = Duration::from_secs(1);

/// An open directory.
#[derive(Debug)]
pub(crate) struct DirHandle {
    pub(crate) oid: Oid,
    pub(crate) page: Mutex<Option<Page>>,
}

impl DirHandle {
    pub(crate) fn new(oid: Oid) -> Self {
        Self { oid, page: Mutex::new(None) }
    }
}

/// Some entries of a directory.
#[derive(Debug)]
pub(crate) struct Page {
    /// Cookie after which its entries come.
    pub(crate) after: u64,
    pub(crate) entries: Vec<Listed>,
    pub(crate) end: bool,
    /// When it was asked for.
    pub(crate) since: Instant,
    /// How many changes there had been then.
    pub(crate) changes: u64,
}

impl Page {
    /// The place of the first entry after a cookie, if the page knows it and is not too old.
    pub(crate) fn place_after(&self, cookie: u64, now: Instant) -> Option<usize> {
        // From the start, programs expect to see the directory as it is now.
        if cookie == 0 || self.age(now) >= PAGE_AGE {
            return None;
        }
        if cookie == self.after {
            return Some(0);
        }
        let place = self.entries.iter().position(|entry| entry.cookie == cookie)? + 1;
        // After its last entry another page has to be had, unless there is none.
        (place < self.entries.len() || self.end).then_some(place)
    }

    /// For how long its attributes may be believed, after so many changes, where attributes are believed for
    /// `ttl` from when they were asked for: far away that may have been a while ago. `None`: not any more.
    pub(crate) fn attrs_left(&self, changes: u64, now: Instant, ttl: Duration) -> Option<Duration> {
        let left = ttl.saturating_sub(self.age(now));
        (self.changes == changes && !left.is_zero()).then_some(left)
    }

    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_posix::FileKind;
    use azekura_proto::{ContainerId, ObjectClass, TargetId};

    fn page(cookies: &[u64], end: bool, since: Instant) -> Page {
        let oid = Oid::new(ContainerId(1), ObjectClass::S1, TargetId(0), 1);
        let listed = |&cookie: &u64| Listed {
            name: b"n".to_vec(),
            oid,
            kind: FileKind::Regular,
            cookie,
            attr: None,
        };
        let entries = cookies.iter().map(listed).collect();
        Page { after: 2, entries, end, since, changes: 0 }
    }

    #[test]
    fn a_page_is_entered_at_any_of_its_cookies() {
        let now = Instant::now();
        let some = page(&[10, 20, 30], false, now);
        assert_eq!(some.place_after(2, now), Some(0));
        assert_eq!(some.place_after(10, now), Some(1));
        assert_eq!(some.place_after(20, now), Some(2));
        assert_eq!(some.place_after(30, now), None);
        assert_eq!(some.place_after(15, now), None);
        assert_eq!(page(&[10, 20, 30], true, now).place_after(30, now), Some(3));
    }

    #[test]
    fn a_page_goes_out_of_use_and_its_attributes_with_a_change() {
        let begun = Instant::now();
        let page = page(&[10, 20], false, begun);
        let (ttl, age) = (PAGE_AGE, Duration::from_millis(300));
        assert_eq!(page.attrs_left(0, begun, ttl), Some(ttl));
        assert_eq!(page.attrs_left(1, begun, ttl), None);
        assert_eq!(page.attrs_left(0, begun + age, ttl), ttl.checked_sub(age));
        assert_eq!(page.attrs_left(0, begun + ttl, ttl), None);
        assert_eq!(page.attrs_left(0, begun, Duration::ZERO), None, "where nothing is believed");
        assert_eq!(page.place_after(10, begun + PAGE_AGE), None);
        assert_eq!(page.place_after(0, begun), None, "from the start it is asked for anew");
    }
}
