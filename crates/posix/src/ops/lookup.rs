//! `lookup` and `readlink`. Owns how an answer without attributes is completed.

use std::sync::Arc;
use std::time::Duration;

use azekura_client::{Batch, Call};
use azekura_proto::attr::FileKind;
use azekura_proto::limits::NAME_BYTES_MAX;
use azekura_proto::message::typed::{Found, Lookup, ReadLink, Walk, WalkedPath};
use azekura_proto::{Attr, Oid};

use crate::errno::of_entry;
use crate::listed::{Asked, FoundName, NameIn};
use crate::writer::WriteLeases;
use crate::{CachePolicy, Credentials, Errno, FileSystem, Result};

/// A name that is moved away again and again is given up after so many looks.
const LOOKS: u32 = 4;

/// What whoever looks a name up is likely to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// Open it, as a kernel does that looks up what it opens.
    Open,
    Anything,
}

impl FileSystem {
    /// What a name leads to, with attributes. `.` and `..` are understood.
    ///
    /// # Errors
    /// `ENOENT`; `EACCES` if the caller may not search the directory.
    pub fn lookup(&self, caller: &Credentials, dir: Oid, name: &[u8]) -> Result<Attr> {
        if name.len() > NAME_BYTES_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        self.check_search(caller, dir)?;
        match name {
            b"." => return self.getattr(dir),
            b".." => return self.getattr(self.parent_of(dir)?),
            _ => {}
        }
        self.lookup_unchecked(dir, name).map(|attr| *attr)
    }

    /// As [`FileSystem::lookup`], for a front end that keeps the answer: and for how much longer it may be
    /// believed. Where listings of far directories are believed for a moment
    /// ([`crate::FsConfig::listed_from_us`]) one may have brought it along.
    ///
    /// # Errors
    /// Those of [`FileSystem::lookup`].
    pub fn lookup_for(
        &self,
        caller: &Credentials,
        dir: Oid,
        name: &[u8],
    ) -> Result<(Attr, Duration)> {
        let CachePolicy::Auto { ttl } = self.config().cache else {
            return Ok((self.lookup(caller, dir, name)?, Duration::ZERO));
        };
        let is_dot = matches!(name, b"." | b"..");
        if is_dot || name.len() > NAME_BYTES_MAX {
            return Ok((self.lookup(caller, dir, name)?, ttl));
        }
        if !self.keeps_listed() {
            let attr = self.lookup(caller, dir, name)?;
            if attr.kind == FileKind::Regular && self.reading.is_far(attr.oid.home()) {
                let looked_up = Some(self.now());
                self.listed.note_name(attr.oid, FoundName { dir, name: name.into(), looked_up });
            }
            return Ok((attr, ttl));
        }
        let asked = self.cache.ask_any_dir();
        let (attr, left, is_listed) = self.look_for(caller, dir, name, ttl)?;
        match attr.kind {
            FileKind::Regular => {
                let looked_up = (!is_listed).then(|| self.now());
                self.listed.note_name(attr.oid, FoundName { dir, name: name.into(), looked_up });
            }
            // It is going to be listed, with what stands in its attributes.
            FileKind::Directory => {
                self.listed.note_directory(dir, name, attr.oid);
                let asked = asked.earlier_by(ttl.saturating_sub(left));
                self.cache.keep_met_dir(asked, attr.oid, Box::new(attr.clone()));
            }
            _ => {}
        }
        Ok((attr, left))
    }

    /// Attributes of a name, for how long they may be believed, and whether they are out of a listing.
    fn look_for(
        &self,
        caller: &Credentials,
        dir: Oid,
        name: &[u8],
        ttl: Duration,
    ) -> Result<(Attr, Duration, bool)> {
        self.check_search(caller, dir)?;
        if self.listed.told(dir, name).is_none() {
            self.listed.wait_for_coming(dir, name);
        }
        let brought = self.listed.brought_attr(dir, name);
        if let Some(attr) = brought.filter(|attr| !self.writing.has_unsettled(attr.oid)) {
            return Ok((attr, ttl, false));
        }
        if let Some((attr, since)) = self.look_at_listed(caller, dir, name)? {
            let age = self.now().saturating_duration_since(since);
            if let Some(left) = ttl.checked_sub(age) {
                return Ok((*attr, left, true));
            }
        }
        if let Some((attr, since)) = self.listed.told(dir, name)
            && let Some(left) = ttl.checked_sub(self.now().saturating_duration_since(since))
        {
            return Ok((*attr, left, true));
        }
        Ok((*self.look_up(dir, name, Next::Open)?, ttl, false))
    }

    /// What a name leads to, as an engine has it; and in the same exchange those that were looked up below it last, which
    /// are going to be looked up next.
    fn ask_along(&self, dir: Oid, name: &[u8], next: Next) -> Result<Found> {
        let along =
            if self.keeps_listed() { self.listed.names_along(dir, name) } else { Vec::new() };
        let beside = along.first().map(|name| self.listed.names_beside(name)).unwrap_or_default();
        if along.len() < 2 && beside.is_empty() {
            let found = match next {
                Next::Open => self.look_and_open(dir, name)?,
                Next::Anything => None,
            };
            return found.map_or_else(|| self.call_entry(dir, name, Lookup { dir, name }), Ok);
        }
        let (asked, asked_dir) = (self.listed.ask(), self.cache.ask_dir(dir));
        // Who looks at names of a directory has its attributes looked at as well, to see whether that is allowed.
        let WalkedPath { dir: attr, steps, is_absent } = self.walk(&asked, &along, beside)?;
        if let Some(attr) = attr {
            self.cache.keep_dir(asked_dir, dir, &Arc::from(attr));
        }
        let mut steps = steps.into_iter();
        let first = match steps.next() {
            Some(first) => first,
            None if is_absent => return Err(Errno::NOENT),
            None => return self.call_entry(dir, name, Lookup { dir, name }),
        };
        self.keep_told(&asked, first.entry.oid, steps.zip(along.into_iter().skip(1)));
        Ok(first)
    }

    /// Attributes of a directory as an engine has them; and in the same exchange where the names lead that were looked up
    /// below it last. `None` if it is to be asked for by itself.
    pub(super) fn directory_and_along(&self, dir: Oid) -> Option<Attr> {
        // At several engines they are not at hand.
        if !self.keeps_listed() || self.pool().map().engines.len() != 1 {
            return None;
        }
        let along = self.listed.names_below(dir);
        let first = along.first()?;
        if self.newborn(dir).is_some() {
            // Nobody need be asked.
            return None;
        }
        let (asked, beside) = (self.listed.ask(), self.listed.names_beside(first));
        // What goes wrong shows when it is asked for by itself.
        let walked = self.walk(&asked, &along, beside).ok()?;
        self.keep_told(&asked, dir, walked.steps.into_iter().zip(along));
        walked.dir.map(|attr| *attr)
    }

    /// Walks along names, each in the directory to which the one before is to lead; with the attributes of the first
    /// directory. Along the names `beside` them from there as well, of which is kept what is told: the same
    /// exchange tells of both.
    fn walk(&self, asked: &Asked, names: &[NameIn], beside: Vec<NameIn>) -> Result<WalkedPath> {
        let [(dir, name), ..] = names else { return Err(Errno::INVAL) };
        let path = path_of(names);
        let walk = Walk { dir: *dir, path: &path, with_dir: true };
        // Behind changes on their way several requests would wait for these first.
        let is_alone = beside.is_empty()
            || self.pool().has_changes_in_flight()
            || self.pool().map().engines.len() != 1;
        if is_alone {
            return self.call_entry(*dir, name, walk);
        }
        let other_path = path_of(&beside);
        let other = Walk { dir: *dir, path: &other_path, with_dir: false };
        let mut batch = Batch::with_capacity(2);
        let ticket = batch.add(Call::new(self.entry_target(*dir, name), walk));
        let other = batch.add(Call::new(self.entry_target(*dir, &beside[0].1), other));
        let mut replies = self.pool().call_batch(batch);
        if let Ok(walked) = replies.take(other) {
            self.keep_told(asked, *dir, walked.steps.into_iter().zip(beside));
        }
        replies.take(ticket).map_err(|error| of_entry(&error))
    }

    /// Keeps what was told of names of directories, each of which lies in the one before, the first in `at`.
    fn keep_told(&self, asked: &Asked, mut at: Oid, steps: impl Iterator<Item = (Found, NameIn)>) {
        for (Found { entry, attr }, name) in steps {
            // Where one leads elsewhere now, the names behind it are others.
            let Some(attr) = attr.filter(|attr| at == name.0 && attr.kind == FileKind::Directory)
            else {
                break;
            };
            self.listed.keep_told(asked, name, *attr);
            at = entry.oid;
        }
    }

    /// As [`FileSystem::lookup`] of a name of which a walk along it has just told what it leads to.
    pub(crate) fn lookup_met(
        &self,
        caller: &Credentials,
        dir: Oid,
        name: &[u8],
        found: Found,
    ) -> Result<Attr> {
        match found.attr {
            Some(attr) if !self.writing.has_unsettled(found.entry.oid) => {
                self.check_search(caller, dir)?;
                Ok(*attr)
            }
            _ => self.lookup(caller, dir, name),
        }
    }

    pub(crate) fn lookup_unchecked(&self, dir: Oid, name: &[u8]) -> Result<Box<Attr>> {
        self.look_up(dir, name, Next::Anything)
    }

    fn look_up(&self, dir: Oid, name: &[u8], next: Next) -> Result<Box<Attr>> {
        if let Some(attr) = self.newborn_attr_named(dir, name) {
            return Ok(Box::new(attr));
        }
        if self.is_absent(dir, name) {
            return Err(Errno::NOENT);
        }
        for _ in 0..LOOKS {
            let looked = match self.look_and_lease(dir, name)? {
                Some(looked) => looked,
                None => self.ask_along(dir, name, next),
            };
            let Found { entry, attr } = looked?;
            if let Some(attr) = attr
                && !self.writing.has_unsettled(entry.oid)
            {
                return Ok(attr);
            }
            let settled = self.writing.settle(entry.oid, WriteLeases::Keep)?;
            match self.attr_of(settled) {
                // Removed, or replaced by a rename, between the two requests.
                Err(Errno::STALE) => {}
                other => return other,
            }
        }
        Err(Errno::NOENT)
    }

    /// The directory above a directory. Always asked, since a rename by anybody changes it.
    pub(crate) fn parent_of(&self, dir: Oid) -> Result<Oid> {
        let attr = self.getattr(dir)?;
        if attr.kind == FileKind::Directory {
            Ok(attr.parent.unwrap_or(dir))
        } else {
            Err(Errno::NOTDIR)
        }
    }

    /// The text of a symlink.
    ///
    /// # Errors
    /// `EINVAL` for anything else.
    pub fn readlink(&self, oid: Oid) -> Result<Vec<u8>> {
        self.call(oid.home(), ReadLink { oid })
    }

    /// What kind of object a name leads to, by the entry alone.
    pub(crate) fn entry_kind(&self, dir: Oid, name: &[u8]) -> Result<(Oid, FileKind)> {
        let entry = self.call_entry(dir, name, Lookup { dir, name })?.entry;
        Ok((entry.oid, entry.kind))
    }
}

fn path_of(names: &[NameIn]) -> Vec<u8> {
    names.iter().map(|(_, name)| &**name).collect::<Vec<_>>().join(&b'/')
}
