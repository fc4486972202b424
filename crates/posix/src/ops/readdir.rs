//! Listing directories. Owns the walk over shards: a cookie names the shard and the place in it, so
//! any page can be had without a word about earlier ones. The dot entries are made here.

use std::time::Instant;

use azekura_client::Call;
use azekura_proto::Oid;
use azekura_proto::attr::FileKind;
use azekura_proto::message::typed::{GetAttr, ReadDirectory};
use azekura_proto::message::{DirCookie, DirEntry};

use crate::cache::AskedAny;
use crate::errno::of_client;
use crate::listed::{Listed, Part, PartOf};
use crate::{Access, Credentials, Errno, FileSystem, Result, permission};

/// Cookie of `.`.
const DOT: u64 = 1;
/// Cookie of `..`.
pub(super) const DOT_DOT: u64 = 2;
/// Bytes counted for an entry besides its name.
pub(super) const ENTRY_BYTES: usize = 24;
/// Bytes counted for attributes.
pub(super) const ATTR_BYTES: usize = 160;
/// Shards asked at once.
pub(super) const SHARDS_AT_ONCE: u16 = 32;
/// Smallest page asked of one shard, in bytes.
const SHARD_PAGE_BYTES: u32 = 4 * 1024;

/// Which attributes a listing brings along.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttrsWanted {
    /// None.
    No,
    /// Those that cost nothing: of objects whose home has the entry.
    AtHand,
    /// All of them, with further requests where need be.
    All,
}

/// A page of a directory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DirPage {
    /// The entries, in cookie order. An empty page is the end.
    pub entries: Vec<Listed>,
    /// Nothing follows after these.
    pub end: bool,
    /// From when it is, if it came along with something else before it was wanted: it may be believed for as much
    /// shorter.
    pub since: Option<Instant>,
}

/// A page that is being filled.
pub(super) struct Filling {
    page: DirPage,
    used: usize,
    budget: usize,
}

impl Filling {
    pub(super) fn new(page_bytes: u32) -> Self {
        Self { page: DirPage::default(), used: 0, budget: page_bytes.max(512) as usize }
    }

    pub(super) fn into_page(self) -> DirPage {
        self.page
    }

    fn push(&mut self, entry: Listed) {
        self.used += entry.name.len() + ENTRY_BYTES;
        self.used += entry.attr.as_ref().map_or(0, |_| ATTR_BYTES);
        self.page.entries.push(entry);
    }

    pub(super) fn extend(&mut self, entries: Vec<DirEntry>) {
        for found in entries {
            self.push(Listed {
                name: found.name,
                oid: found.entry.oid,
                kind: found.entry.kind,
                cookie: found.cookie,
                attr: found.attr,
            });
        }
    }

    fn is_full(&self) -> bool {
        self.used >= self.budget
    }

    fn room(&self) -> u32 {
        (self.budget - self.used.min(self.budget)) as u32
    }
}

/// How much to ask of each of several shards.
pub(super) fn shard_page_bytes(page_bytes: u32, shards: u16) -> u32 {
    (page_bytes / u32::from(shards.max(1))).max(SHARD_PAGE_BYTES)
}

impl FileSystem {
    /// A page of a directory after `cookie`: 0 from the start, with `.` (cookie 1) and `..`
    /// (cookie 2) first. Any cookie given out before stays good while others insert and remove.
    /// `page_bytes`: about how many bytes of names to bring, with 24 counted for each entry and
    /// 160 for its attributes. A page may be larger: take what fits, and go on at its cookie.
    ///
    /// # Errors
    /// `EACCES` at the start if the caller may not read the directory; `EIO`.
    pub fn readdir(
        &self,
        caller: &Credentials,
        dir: Oid,
        cookie: u64,
        page_bytes: u32,
        attrs: AttrsWanted,
    ) -> Result<DirPage> {
        let keeps = self.keeps_listed();
        if keeps && attrs == AttrsWanted::No {
            return self.readdir_listed(caller, dir, cookie);
        }
        let brought = if keeps { self.readdir_brought(caller, dir, cookie)? } else { None };
        let mut page = match brought {
            Some(page) => page,
            None => self.readdir_asked(caller, dir, cookie, page_bytes, attrs)?,
        };
        if attrs == AttrsWanted::All {
            self.complete(&mut page.entries)?;
        }
        for entry in page.entries.iter_mut().filter(|entry| self.writing.has_unsettled(entry.oid)) {
            if entry.attr.is_some() {
                // What this client has written meanwhile counts.
                entry.attr = self.getattr(entry.oid).ok();
            }
        }
        Ok(page)
    }

    /// The same, of which nothing has come along.
    fn readdir_asked(
        &self,
        caller: &Credentials,
        dir: Oid,
        cookie: u64,
        page_bytes: u32,
        attrs: AttrsWanted,
    ) -> Result<DirPage> {
        let mut filling = Filling::new(page_bytes);
        if cookie < DOT_DOT {
            self.list_dots(caller, dir, cookie, &mut filling)?;
        }
        let after = if cookie > DOT_DOT { cookie } else { 0 };
        let with_attrs = attrs != AttrsWanted::No;
        let keeps = with_attrs && self.keeps_listed();
        let asked = keeps.then(|| (self.listed.ask(), self.cache.ask_any_dir()));
        let end = self.list(dir, after, with_attrs, &mut filling)?;
        let page = DirPage { end, ..filling.page };
        if let Some((asked, asked_dir)) = asked {
            self.keep_met_dirs(asked_dir, &page);
            let entries = page.entries.iter().filter(|entry| entry.cookie > DOT_DOT).cloned();
            let (entries, until, what) = (entries.collect(), None, PartOf::Listing);
            let part = Part { after, until, entries, end, what, leased_until: None };
            self.listed.keep(&asked, dir, part);
        }
        Ok(page)
    }

    /// Keeps the directories that a page has: names that come next are looked at, files opened and directories listed.
    pub(super) fn keep_met_dirs(&self, asked: AskedAny, page: &DirPage) {
        for (oid, attr) in page.entries.iter().filter_map(|e| Some((e.oid, e.attr.as_ref()?))) {
            if attr.kind == FileKind::Directory {
                self.cache.keep_met_dir(asked, oid, Box::new(attr.clone()));
            }
        }
    }

    /// The entries after a cookie, or from the start after 0, until the page is full. Tells whether the
    /// directory ends with them.
    pub(super) fn list(
        &self,
        dir: Oid,
        mut after: u64,
        with_attrs: bool,
        filling: &mut Filling,
    ) -> Result<bool> {
        let mut shard = if after == 0 { 0 } else { DirCookie::decode(after).shard };
        let shards = self.pool().placement().shards(dir);
        while shard < shards && !filling.is_full() {
            let (ended, goes_on) = if after == 0 {
                self.list_shards(dir, (shard, shards), with_attrs, filling)?
            } else {
                let ends = self.list_shard(dir, (shard, after), with_attrs, filling)?;
                (u16::from(ends), !ends)
            };
            shard += ended;
            after = 0;
            if goes_on {
                // The page has the beginning of this shard: its rest is for the next page's cookie.
                break;
            }
        }
        Ok(shard >= shards)
    }

    pub(super) fn list_dots(
        &self,
        caller: &Credentials,
        dir: Oid,
        cookie: u64,
        filling: &mut Filling,
    ) -> Result<()> {
        // The directory above is shown: what judging by it allows may be older.
        let (attr, _) = self.getattr_for(dir)?;
        if attr.kind != FileKind::Directory {
            return Err(Errno::NOTDIR);
        }
        if self.checks() && cookie == 0 {
            permission::check(caller, &attr, Access { read: true, ..Access::default() })?;
        }
        let kind = FileKind::Directory;
        if cookie < DOT {
            filling.push(Listed { name: b".".to_vec(), oid: dir, kind, cookie: DOT, attr: None });
        }
        let above = attr.parent.unwrap_or(dir);
        let name = b"..".to_vec();
        filling.push(Listed { name, oid: above, kind, cookie: DOT_DOT, attr: None });
        Ok(())
    }

    /// Entries of one shard after a cookie. Tells whether it ended.
    fn list_shard(
        &self,
        dir: Oid,
        (shard, after): (u16, u64),
        with_attrs: bool,
        filling: &mut Filling,
    ) -> Result<bool> {
        let page_bytes = filling.room().max(SHARD_PAGE_BYTES);
        let request = ReadDirectory { dir, after, page_bytes, with_attrs };
        let page = self.call(self.pool().placement().shard_target(dir, shard), request)?;
        filling.extend(page.entries);
        Ok(page.end)
    }

    /// The first entries of several shards at once: a small directory is listed in one round trip.
    /// Tells how many shards ended, and whether the one after them has only begun.
    fn list_shards(
        &self,
        dir: Oid,
        (first, shards): (u16, u16),
        with_attrs: bool,
        filling: &mut Filling,
    ) -> Result<(u16, bool)> {
        let last = shards.min(first + SHARDS_AT_ONCE);
        let page_bytes = shard_page_bytes(filling.room(), last - first);
        let placement = self.pool().placement();
        let mut calls: Vec<_> = (first..last)
            .map(|shard| {
                let request = ReadDirectory { dir, after: 0, page_bytes, with_attrs };
                Call::new(placement.shard_target(dir, shard), request)
            })
            .collect();
        for (page, ended) in self.pool().call_all(&mut calls).into_iter().zip(0..) {
            let page = page.map_err(|error| of_client(&error))?;
            filling.extend(page.entries);
            if !page.end {
                // Later shards are asked again once this one is through.
                return Ok((ended, true));
            }
        }
        Ok((last - first, false))
    }

    /// Asks for the attributes that are missing. An object that is gone has none.
    fn complete(&self, entries: &mut [Listed]) -> Result<()> {
        let missing: Vec<usize> = entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.attr.is_none() && entry.cookie > DOT_DOT)
            .map(|(index, _)| index)
            .collect();
        let mut calls: Vec<_> = missing
            .iter()
            .map(|&index| entries[index].oid)
            .map(|oid| Call::new(oid.home(), GetAttr { oid }))
            .collect();
        for (attr, index) in self.pool().call_all(&mut calls).into_iter().zip(missing) {
            match attr {
                Ok(attr) => entries[index].attr = Some(*attr),
                Err(error) => match of_client(&error) {
                    Errno::STALE => {}
                    errno => return Err(errno),
                },
            }
        }
        Ok(())
    }
}
