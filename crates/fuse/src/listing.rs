//! Listing directories. The kernel asks for a few entries at a time, so that a handle keeps the
//! page that it has got and hands it out bit by bit. A page goes out of use soon; its attributes
//! already when anything is changed through this mount, since the kernel would take them for news.

use std::time::{Duration, Instant};

use azekura_posix::{AttrsWanted, Errno, Listed, Oid};
use parking_lot::Mutex;

use crate::handler::{Door, Result, settle};
use crate::kernel::{DirentWriter, Entry, Full, Header, ListedEntry, Replier, with_reply_buffer};

/// What is asked of the engines at once, in bytes.
const PAGE_BYTES: u32 = 128 * 1024;
/// A page is good for this long.
const PAGE_AGE: Duration = Duration::from_secs(1);
/// Its attributes are good for this long.
const ATTR_AGE: Duration = Duration::from_millis(200);

/// A directory that the kernel has open.
#[derive(Debug)]
pub(crate) struct DirHandle {
    oid: Oid,
    page: Mutex<Option<Page>>,
}

#[derive(Debug)]
struct Page {
    /// Cookie after which its entries come.
    after: u64,
    entries: Vec<Listed>,
    end: bool,
    /// When it was asked for.
    since: Instant,
    /// How many changes there had been then.
    changes: u64,
}

impl Page {
    /// The place of the first entry after a cookie, if the page knows it.
    fn place_after(&self, cookie: u64) -> Option<usize> {
        if cookie == self.after {
            return Some(0);
        }
        let place = self.entries.iter().position(|entry| entry.cookie == cookie)? + 1;
        // After its last entry another page has to be had, unless there is none.
        (place < self.entries.len() || self.end).then_some(place)
    }
}

impl Door {
    /// Opening a directory asks nobody: the kernel has checked permissions, and listings keep no
    /// state at the engines.
    pub(crate) fn opendir(&self, header: &Header<'_>) -> Result<u64> {
        let oid = self.object(header.node)?;
        Ok(self.dirs.insert(DirHandle { oid, page: Mutex::new(None) }))
    }

    pub(crate) fn fsyncdir(&self, header: &Header<'_>) -> Result<()> {
        self.fs.fsync_dir(self.object(header.node)?)
    }

    pub(crate) fn readdir(
        &self,
        header: &Header<'_>,
        replier: Replier,
        fh: u64,
        (cookie, size, plus): (u64, u32, bool),
    ) {
        with_reply_buffer(size as usize, |buffer| {
            let mut writer = DirentWriter::new(buffer);
            let result = self.list(header, fh, (cookie, plus), &mut writer);
            settle(replier, result, |replier, ()| replier.data(writer.bytes()));
        });
    }

    fn list(
        &self,
        header: &Header<'_>,
        fh: u64,
        (cookie, plus): (u64, bool),
        writer: &mut DirentWriter<'_>,
    ) -> Result<()> {
        let handle = self.dirs.get(fh)?;
        let mut kept = handle.page.lock();
        // From the start, programs expect to see the directory as it is now.
        let usable = kept
            .as_ref()
            .filter(|page| cookie != 0 && page.since.elapsed() < PAGE_AGE)
            .and_then(|page| page.place_after(cookie));
        let start = if let Some(start) = usable {
            start
        } else {
            *kept = Some(self.fetch(header, handle.oid, cookie, plus)?);
            0
        };
        let Some(page) = kept.as_ref() else { return Ok(()) };
        let with_attrs =
            plus && page.changes == self.changes.count() && page.since.elapsed() < ATTR_AGE;
        for listed in &page.entries[start..] {
            if self.put(listed, plus, with_attrs, writer) == Err(Full) {
                // The kernel's buffer holds the longest name, so something has gone in.
                return Ok(());
            }
        }
        if page.end && start == page.entries.len() {
            *kept = None;
        }
        Ok(())
    }

    fn fetch(&self, header: &Header<'_>, dir: Oid, after: u64, plus: bool) -> Result<Page> {
        let (since, changes) = (Instant::now(), self.changes.count());
        let attrs = if plus { AttrsWanted::AtHand } else { AttrsWanted::No };
        let page = self.fs.readdir(&self.caller(header), dir, after, PAGE_BYTES, attrs).map_err(
            |errno| match errno {
                // As with other file systems, where a removed directory is still open.
                Errno::STALE => Errno::NOENT,
                other => other,
            },
        )?;
        Ok(Page { after, entries: page.entries, end: page.end, since, changes })
    }

    fn put(
        &self,
        listed: &Listed,
        plus: bool,
        with_attrs: bool,
        writer: &mut DirentWriter<'_>,
    ) -> std::result::Result<(), Full> {
        let entry = ListedEntry {
            ino: self.number(listed.oid),
            next_cookie: listed.cookie,
            mode: listed.kind.mode_bits(),
            name: &listed.name,
        };
        if !plus {
            return writer.push(&entry);
        }
        let node = match &listed.attr {
            Some(attr) if with_attrs => self.entry(attr),
            _ => Entry::default(),
        };
        writer.push_plus(&entry, &node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_posix::FileKind;
    use azekura_proto::{ContainerId, ObjectClass, TargetId};

    fn page(cookies: &[u64], end: bool) -> Page {
        let oid = Oid::new(ContainerId(1), ObjectClass::S1, TargetId(0), 1);
        let listed = |&cookie: &u64| Listed {
            name: b"n".to_vec(),
            oid,
            kind: FileKind::Regular,
            cookie,
            attr: None,
        };
        let entries = cookies.iter().map(listed).collect();
        Page { after: 2, entries, end, since: Instant::now(), changes: 0 }
    }

    #[test]
    fn a_page_is_entered_at_any_of_its_cookies() {
        let some = page(&[10, 20, 30], false);
        assert_eq!(some.place_after(2), Some(0));
        assert_eq!(some.place_after(10), Some(1));
        assert_eq!(some.place_after(20), Some(2));
        assert_eq!(some.place_after(30), None);
        assert_eq!(some.place_after(15), None);
        assert_eq!(page(&[10, 20, 30], true).place_after(30), Some(3));
    }
}
