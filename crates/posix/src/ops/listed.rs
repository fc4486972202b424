//! Looks at what a listing has brought along, and what is asked for so that it brings more: directories that
//! are opened and listed in one round trip, with those beside them. Owns the requests; what is kept of the
//! answers, and for how long, is the business of [`crate::listed`]. Only for front ends that ask for it
//! ([`crate::FsConfig::listed_from_us`]), of pools that are far.

use std::sync::Arc;
use std::time::{Duration, Instant};

use azekura_client::{Batch, Call, Opened};
use azekura_proto::attr::FileKind;
use azekura_proto::limits::NAME_BYTES_MAX;
use azekura_proto::message::ShardRef;
use azekura_proto::message::typed::{
    EntryPage, Found, GetAttr, LeaseAllNames, Lookup, ReadDirectory,
};
use azekura_proto::{Attr, Oid};

use super::readdir::{
    ATTR_BYTES, DOT_DOT, DirPage, ENTRY_BYTES, Filling, SHARDS_AT_ONCE, shard_page_bytes,
};
use crate::errno::{of_client, of_entry};
use crate::listed::{Asked, Given, Listed, Look, Part, PartOf};
use crate::{Credentials, Errno, FileSystem, Result};

/// Names and attributes that are asked for at a time, in bytes: what an engine gives at most.
const PAGE_BYTES: u32 = azekura_proto::limits::PAGE_BYTES_MAX;
/// The same for each directory that is brought along.
const BESIDE_BYTES: u32 = 32 * 1024;
/// Requests of one exchange that lists directories under leases.
const REQUESTS_MAX: usize = 128;

impl FileSystem {
    /// Whether what listings bring along is believed for a moment, as the pool is far now.
    pub fn keeps_listed(&self) -> bool {
        self.listed.is_on(|from_us| self.pool().far_us(from_us))
    }

    /// Whether the pool is as far now as where what listings bring along is believed, also by a process that has children,
    /// and so keeps nothing: it asks for as much at a time as the others.
    pub(crate) fn lists_far(&self) -> bool {
        self.listed.is_for_far(|from_us| self.pool().far_us(from_us))
    }

    /// Attributes of a name, and when they were asked for, if a listing has brought them along and they are
    /// believed still. Of names that are looked at one after the other more than this one is asked for at a
    /// time.
    pub(crate) fn look_at_listed(
        &self,
        caller: &Credentials,
        dir: Oid,
        name: &[u8],
    ) -> Result<Option<(Box<Attr>, Instant)>> {
        if !self.keeps_listed() || name.len() > NAME_BYTES_MAX {
            return Ok(None);
        }
        self.check_search(caller, dir)?;
        if self.is_absent(dir, name) || self.newborn_named(dir, name).is_some() {
            // That is known better than any listing has it.
            return Ok(None);
        }
        let look = match self.listed.look(dir, name, false) {
            Look::Old { after, until, name_bytes, entries } => {
                // Twice as much as there is, since some shards have more of it than others.
                let bytes = 2 * (name_bytes + entries * (ENTRY_BYTES + ATTR_BYTES));
                // Whatever fails here shows when the name is looked up by itself.
                let _ = self.list_and_keep(dir, after, until, (PartOf::Looks, bytes as u32));
                self.listed.look(dir, name, true)
            }
            Look::Incomplete(oids) => {
                self.complete_listed(dir, &oids);
                self.listed.look(dir, name, true)
            }
            Look::Unlisted => {
                let at = self.now();
                let looked = self.list_walked(dir, name);
                match (self.listed.look(dir, name, true), looked) {
                    (Look::Unknown, Some(Err(Errno::NOENT))) => return Err(Errno::NOENT),
                    (Look::Unknown, Some(Ok(Found { attr: Some(attr), .. }))) => {
                        Look::Known(attr, at)
                    }
                    (look, _) => look,
                }
            }
            look => look,
        };
        Ok(match look {
            Look::Absent => return Err(Errno::NOENT),
            // What this process has written and has not arrived is not in it.
            Look::Known(attr, since) if !self.writing.has_unsettled(attr.oid) => {
                Some((attr, since))
            }
            _ => None,
        })
    }

    /// Lists a directory whose names are looked at one after the other, and those beside it if one directory
    /// after the other is; where these stand as well, to know which are next. Whatever fails here shows when a name is
    /// looked up by itself; where no lease will tell that it is not there, this one is looked up in the same exchange.
    fn list_walked(&self, dir: Oid, name: &[u8]) -> Option<Result<Found>> {
        let mut dirs = vec![dir];
        dirs.extend(self.listed.beside(dir));
        let above = self.cache.dir(dir).and_then(|attr| attr.parent);
        dirs.extend(above.filter(|above| self.listed.is_above_wanted(dir, *above)));
        for other in self.listed.worth_renewing(dir) {
            if !dirs.contains(&other) {
                dirs.push(other);
            }
        }
        self.list_together(dirs, Some((dir, name)))
    }

    /// Lists directories in one round trip, as if they had come along, and looks a name up beside that.
    fn list_together(
        &self,
        mut dirs: Vec<Oid>,
        look: Option<(Oid, &[u8])>,
    ) -> Option<Result<Found>> {
        dirs.retain(|dir| self.pool().placement().shards(*dir) <= SHARDS_AT_ONCE);
        if self.listed.are_leased() {
            self.list_under_leases(dirs);
            return None;
        }
        let asked = self.listed.ask();
        let mut lists: Vec<_> =
            dirs.iter().flat_map(|of| self.lists(*of, *of == dirs[0])).collect();
        let look =
            look.map(|(dir, name)| Call::new(self.entry_target(dir, name), Lookup { dir, name }));
        let mut looks = Vec::from_iter(look);
        let (pages, mut looked) = self.pool().call_mixed(&mut lists, &mut looks);
        let mut pages = pages.into_iter().map(std::result::Result::ok);
        for of in dirs {
            let shards = usize::from(self.pool().placement().shards(of));
            let pages: Vec<Option<EntryPage>> = pages.by_ref().take(shards).collect();
            self.keep_brought(&asked, of, pages.into_iter().collect(), None);
        }
        looked.pop().map(|looked| looked.map_err(|error| of_entry(&error)))
    }

    /// The same with leases of all names, each asked for in front of what is listed under it.
    fn list_under_leases(&self, mut dirs: Vec<Oid>) {
        let (asked, at) = (self.listed.ask(), self.now());
        let placement = self.pool().placement();
        let mut requests = 0;
        dirs.retain(|dir| {
            requests += 2 * usize::from(placement.shards(*dir));
            requests <= REQUESTS_MAX
        });
        let mut batch = Batch::with_capacity(requests);
        let mut tickets = Vec::with_capacity(dirs.len());
        for (place, dir) in dirs.iter().enumerate() {
            let shards = 0..placement.shards(*dir);
            let lease = |shard| {
                let names = ShardRef { oid: *dir, shard, is_file: false };
                batch.add(Call::new(placement.shard_target(*dir, shard), LeaseAllNames { names }))
            };
            let leases: Vec<_> = shards.map(lease).collect();
            let lists = self.lists(*dir, place == 0).into_iter();
            tickets.push((*dir, leases, lists.map(|list| batch.add(list)).collect::<Vec<_>>()));
        }
        let mut replies = self.pool().call_batch(batch);
        let are_in_order = replies.are_in_order();
        for (dir, leases, lists) in tickets {
            let lease_ms =
                leases.into_iter().map(|ticket| replies.take(ticket).map(|l| l.lease_ms));
            let lease_ms = lease_ms.map(|lease_ms| lease_ms.unwrap_or(0)).min().unwrap_or(0);
            let is_leased = are_in_order && lease_ms > 0;
            let until = is_leased.then(|| at + Duration::from_millis(lease_ms.into()));
            if until.is_none() {
                self.listed.note_refused(dir);
            }
            let pages = lists.into_iter().map(|ticket| replies.take(ticket).ok()).collect();
            self.keep_brought(&asked, dir, pages, until);
        }
    }

    /// A page of a directory after a cookie as it came along, with the attributes that are believed still. Where one
    /// directory after the other is listed those that come next come along. `None` if it is to be asked for by itself.
    pub(super) fn readdir_brought(
        &self,
        caller: &Credentials,
        dir: Oid,
        cookie: u64,
    ) -> Result<Option<DirPage>> {
        let after = if cookie <= DOT_DOT { 0 } else { cookie };
        let asked = self.cache.ask_any_dir();
        let mut found = self.listed.take(dir, after, true);
        if found.is_none() && after == 0 {
            let beside = self.listed.beside(dir);
            if !beside.is_empty() {
                self.list_together([&[dir], &*beside].concat(), None);
                found = self.listed.take(dir, after, true);
            }
        }
        let Some(Given { entries, end, since }) = found else { return Ok(None) };
        let mut page = Filling::new(0);
        if cookie < DOT_DOT {
            self.list_dots(caller, dir, cookie, &mut page)?;
        }
        let mut page = page.into_page();
        page.entries.extend(entries);
        (page.end, page.since) = (end, Some(since));
        let age = self.now().saturating_duration_since(since);
        self.keep_met_dirs(asked.earlier_by(age), &page);
        Ok(Some(page))
    }

    /// Attributes that listings had not brought along, asked for all at once.
    fn complete_listed(&self, dir: Oid, oids: &[Oid]) {
        let asked = self.listed.ask();
        let mut calls: Vec<_> =
            oids.iter().map(|&oid| Call::new(oid.home(), GetAttr { oid })).collect();
        let attrs = self.pool().call_all(&mut calls).into_iter().map(|attr| Some(*attr.ok()?));
        self.listed.complete(&asked, dir, oids.iter().copied().zip(attrs).collect());
    }

    /// The page of a directory after a cookie: one that was brought along, or else one that is asked for
    /// with attributes.
    pub(super) fn readdir_listed(
        &self,
        caller: &Credentials,
        dir: Oid,
        cookie: u64,
    ) -> Result<DirPage> {
        let mut dots = Filling::new(0);
        if cookie < DOT_DOT {
            self.list_dots(caller, dir, cookie, &mut dots)?;
        }
        let after = if cookie <= DOT_DOT { 0 } else { cookie };
        let (entries, end) = match self.listed.take(dir, after, false) {
            Some(Given { entries, end, .. }) => (entries, end),
            None => self.list_and_keep(dir, after, None, (PartOf::Listing, PAGE_BYTES))?,
        };
        let mut page = dots.into_page();
        page.entries.extend(entries.into_iter().map(|entry| Listed { attr: None, ..entry }));
        page.end = end;
        Ok(page)
    }

    /// Lists a part of a directory, up to the cookie `until`, and keeps what came. Tells whether the
    /// directory ends with it.
    pub(super) fn list_and_keep(
        &self,
        dir: Oid,
        after: u64,
        until: Option<u64>,
        (what, page_bytes): (PartOf, u32),
    ) -> Result<(Vec<Listed>, bool)> {
        let asked = self.listed.ask();
        let mut filling = Filling::new(page_bytes);
        let end = self.list(dir, after, true, &mut filling)?;
        let mut entries = filling.into_page().entries;
        if let Some(until) = until {
            entries.retain(|entry| entry.cookie <= until);
        }
        let end = end && until.is_none();
        let leased_until = None;
        let part = Part { after, until, entries: entries.clone(), end, what, leased_until };
        self.listed.keep(&asked, dir, part);
        Ok((entries, end))
    }

    /// Opens a directory that is going to be listed: its listing comes along, and so do the directories
    /// beside it where one after the other is opened.
    pub(super) fn open_listed(&self, dir: Oid) -> Result<Opened> {
        if let Some(opened) = self.listed.take_open(dir) {
            return Ok(opened);
        }
        let mut dirs = vec![dir];
        dirs.extend(self.listed.beside(dir));
        dirs.retain(|dir| self.pool().placement().shards(*dir) <= SHARDS_AT_ONCE);
        if dirs.first() != Some(&dir) {
            return self.pool().open(dir).map_err(|error| of_client(&error));
        }
        let asked = self.listed.ask();
        let asked_dirs: Vec<_> = dirs.iter().map(|dir| self.cache.ask_dir(*dir)).collect();
        let mut lists: Vec<_> = dirs.iter().flat_map(|of| self.lists(*of, *of == dir)).collect();
        let (opened, pages) = self.pool().open_and(&dirs, &mut lists);
        let mut pages = pages.into_iter().map(std::result::Result::ok);
        let mut found = None;
        for ((of, asked_dir), opened) in dirs.iter().zip(asked_dirs).zip(opened) {
            let shards = usize::from(self.pool().placement().shards(*of));
            let pages: Vec<Option<EntryPage>> = pages.by_ref().take(shards).collect();
            if let Ok((attr, _)) = &opened
                && attr.kind == FileKind::Directory
            {
                self.cache.keep_dir(asked_dir, *of, &Arc::new(Attr::clone(attr)));
                self.keep_brought(&asked, *of, pages.into_iter().collect(), None);
            }
            match opened {
                opened if *of == dir => found = Some(opened),
                Ok((attr, reference)) => self.listed.keep_open(&asked, *attr, reference),
                Err(_) => {}
            }
        }
        match found {
            Some(opened) => opened.map_err(|error| of_client(&error)),
            None => self.pool().open(dir).map_err(|error| of_client(&error)),
        }
    }

    /// What asks for the beginning of a directory, one request for each of its shards.
    pub(super) fn lists<'a>(&self, dir: Oid, is_wanted: bool) -> Vec<Call<'a, ReadDirectory>> {
        let placement = self.pool().placement();
        let shards = placement.shards(dir);
        let bytes = if is_wanted { PAGE_BYTES } else { BESIDE_BYTES };
        let page_bytes = shard_page_bytes(bytes, shards);
        let request = || ReadDirectory { dir, after: 0, page_bytes, with_attrs: true };
        let targets = (0..shards).map(|shard| placement.shard_target(dir, shard));
        targets.map(|target| Call::new(target, request())).collect()
    }

    /// Keeps the beginning of a directory as its shards have told it, if all of them have.
    pub(super) fn keep_brought(
        &self,
        asked: &Asked,
        dir: Oid,
        pages: Option<Vec<EntryPage>>,
        leased_until: Option<Instant>,
    ) {
        let Some(pages) = pages else { return };
        let mut filling = Filling::new(0);
        let mut end = true;
        for page in pages {
            filling.extend(page.entries);
            if !page.end {
                // Later shards are asked again once this one is through.
                end = false;
                break;
            }
        }
        let entries = filling.into_page().entries;
        if end || !entries.is_empty() {
            let what = PartOf::Gift;
            let part = Part { after: 0, until: None, entries, end, what, leased_until };
            self.listed.keep(asked, dir, part);
        }
    }

    /// As [`FileSystem::getattr`]; of a directory what is known may be believed for a moment.
    pub(crate) fn getattr_listed(&self, oid: Oid) -> Result<Attr> {
        if self.keeps_listed()
            && let Some((attr, _)) = self.cache.dir_with_age(oid)
        {
            return Ok(Attr::clone(&attr));
        }
        self.getattr(oid)
    }
}
