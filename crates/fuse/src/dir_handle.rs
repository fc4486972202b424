//! A directory that the kernel has open. The kernel asks for a few entries at a time, so that a
//! handle keeps the page that it has got and hands it out bit by bit. A page goes out of use soon; its
//! attributes already when anything is changed through this mount, since the kernel would take them
//! for news.

use std::time::{Duration, Instant};

use azekura_posix::{Listed, Oid};
use parking_lot::Mutex;

/// A page is good for this long.
const PAGE_AGE: Duration = Duration::from_secs(1);
/// Its attributes are good for this long.
const ATTR_AGE: Duration = Duration::from_millis(200);

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

    /// Whether its attributes may be handed out, after so many changes.
    pub(crate) fn has_good_attrs(&self, changes: u64, now: Instant) -> bool {
        self.changes == changes && self.age(now) < ATTR_AGE
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
    fn a_page_goes_out_of_use_and_its_attributes_before_it() {
        let begun = Instant::now();
        let page = page(&[10, 20], false, begun);
        let (soon, later) = (begun + ATTR_AGE, begun + PAGE_AGE);
        assert!(page.has_good_attrs(0, begun) && !page.has_good_attrs(1, begun));
        assert!(!page.has_good_attrs(0, soon) && page.place_after(10, soon).is_some());
        assert_eq!(page.place_after(10, later), None);
        assert_eq!(page.place_after(0, begun), None, "from the start it is asked for anew");
    }
}
