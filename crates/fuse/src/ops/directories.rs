//! Listing directories: pages of entries, packed as the kernel wants them.

use std::time::Duration;

use azekura_posix::{AttrsWanted, Errno, Listed, Oid};

use crate::answer::{self, Result};
use crate::dir_handle::{DirHandle, Page};
use crate::front_end::FrontEnd;
use crate::kernel::{
    DirentWriter, Entry, Full, Header, ListedEntry, OpenFlags, ReadDir, Replier, with_reply_buffer,
};

/// What is asked of the engines at once, in bytes.
const PAGE_BYTES: u32 = 128 * 1024;

impl FrontEnd {
    /// Opening a directory asks nobody: the kernel has checked permissions, and listings keep no
    /// state at the engines.
    pub(crate) fn opendir(&self, header: &Header<'_>) -> Result<(u64, OpenFlags)> {
        let oid = self.object(header.node)?;
        Ok((self.dirs.insert(DirHandle::new(oid)), OpenFlags::default()))
    }

    pub(crate) fn fsyncdir(&self, header: &Header<'_>) -> Result<()> {
        let oid = self.object(header.node)?;
        self.or_removed(self.fs.fsync_dir(oid), oid, |_| Ok(()))
    }

    pub(crate) fn readdir(&self, header: &Header<'_>, replier: Replier, wanted: &ReadDir) {
        with_reply_buffer(wanted.size as usize, |buffer| {
            let mut writer = DirentWriter::new(buffer);
            let result = self.list(header, wanted, &mut writer);
            answer::with(replier, result, |replier, ()| replier.data(writer.bytes()));
        });
    }

    fn list(
        &self,
        header: &Header<'_>,
        wanted: &ReadDir,
        writer: &mut DirentWriter<'_>,
    ) -> Result<()> {
        let ReadDir { fh, cookie, plus, size: _ } = *wanted;
        let handle = self.dirs.get(fh)?;
        let mut kept = handle.page.lock();
        let start = kept.as_ref().and_then(|page| page.place_after(cookie, self.now()));
        if start.is_none() {
            *kept = Some(self.fetch(header, handle.oid, cookie, plus)?);
        }
        let (Some(page), start) = (kept.as_ref(), start.unwrap_or(0)) else { return Ok(()) };
        let attrs_left = page.attrs_left(self.changes.count(), self.now(), self.ttl());
        for listed in &page.entries[start..] {
            if self.put(handle.oid, listed, (plus, attrs_left), writer) == Err(Full) {
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
        let (since, changes) = (self.now(), self.changes.count());
        let attrs = if plus { AttrsWanted::AtHand } else { AttrsWanted::No };
        let page = self.fs.readdir(&self.caller(header), dir, after, PAGE_BYTES, attrs).map_err(
            |errno| match errno {
                // As with other file systems, where a removed directory is still open.
                Errno::STALE => Errno::NOENT,
                other => other,
            },
        )?;
        // What came along is as old as it was then.
        let since = page.since.map_or(since, |before| before.min(since));
        Ok(Page { after, entries: page.entries, end: page.end, since, changes })
    }

    fn put(
        &self,
        dir: Oid,
        listed: &Listed,
        (plus, attrs_left): (bool, Option<Duration>),
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
        if !writer.has_room_plus(&entry) {
            return Err(Full);
        }
        let node = match (&listed.attr, attrs_left) {
            // The page may be older than what the kernel was told since, and would take it back.
            (Some(attr), Some(left)) if !self.told.is_past(attr) => {
                self.entry_told(dir, &listed.name, attr, left)
            }
            _ => Entry::default(),
        };
        writer.push_plus(&entry, &node)
    }
}
