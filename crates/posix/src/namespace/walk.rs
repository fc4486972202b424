//! The path walk (`path_resolution(7)`): symlinks, dots, trailing slashes. Owns what stands at the
//! end of a path: a name in a directory, or a directory that no name stands for; and the paths that
//! lead out of the file system, where it stands at a place of a larger tree.

use std::sync::Arc;

use azekura_proto::attr::FileKind;
use azekura_proto::limits::{NAME_BYTES_MAX, PATH_BYTES_MAX, SYMLINKS_MAX};
use azekura_proto::message::typed::{Found, Lookup};
use azekura_proto::transaction::Entry;
use azekura_proto::{Attr, Oid};

use super::Namespace;
use crate::cache::Step;
use crate::walked::{End, Told, names_at_once};
use crate::{Errno, Result};

/// What stands at the end of a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// A name in a directory, whether it is there or not.
    Name {
        dir: Oid,
        name: Vec<u8>,
        /// The path ends with a slash, so the name must lead to a directory.
        slash: bool,
    },
    /// The directory itself: the path ends with `.`, or is the root.
    Dot(Oid),
    /// The path ends with `..`.
    DotDot(Oid),
}

/// A walk under way: the rest of the path, last component first, and the symlinks followed.
struct Walk {
    rest: Vec<Vec<u8>>,
    links: u32,
    slash: bool,
    /// Where an engine's walk along several names has ended.
    end: Option<End>,
    /// Whether it is to be told of the last name too.
    wants_last: bool,
}

/// What a call fails with whose path leaves the file system; see [`Namespace::standing_at`]. Nothing
/// else gives this errno.
pub const LEFT: Errno = Errno::REMOTE;

/// Why a walk ends before the end of its path.
pub(super) enum Stop {
    /// It leads out of the file system, to this path of the larger tree.
    Left(Vec<u8>),
    Failed(Errno),
}

/// What a step of a walk comes to.
type Walked<T> = std::result::Result<T, Stop>;

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno)
    }
}

/// An errno has no room for the path: [`Namespace::way_out`] tells it.
impl From<Stop> for Errno {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Left(_) => LEFT,
            Stop::Failed(errno) => errno,
        }
    }
}

/// The rest of a path below `prefix`, by whole components: empty or with a leading slash. Repeated
/// slashes count as one; dots are not resolved.
pub fn below_prefix<'a>(prefix: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let mut rest = path;
    for component in prefix.split(|byte| *byte == b'/').filter(|c| !c.is_empty()) {
        let slashes = rest.iter().take_while(|byte| **byte == b'/').count();
        if slashes == 0 {
            return None;
        }
        rest = rest[slashes..].strip_prefix(component)?;
    }
    (rest.is_empty() || rest[0] == b'/').then_some(rest)
}

fn ends_with_slash(path: &[u8]) -> bool {
    path.last() == Some(&b'/')
}

impl Walk {
    fn new(path: &[u8], links: u32) -> Self {
        let (rest, end, slash) = (Vec::new(), None, ends_with_slash(path));
        let mut walk = Self { rest, links, slash, end, wants_last: false };
        walk.push(path);
        walk
    }

    /// The names from this one on that may be asked for at once.
    fn names_from<'n>(&'n self, name: &'n [u8]) -> Vec<u8> {
        let rest = if self.wants_last { &self.rest[..] } else { self.rest.get(1..).unwrap_or(&[]) };
        names_at_once(std::iter::once(name).chain(rest.iter().rev().map(Vec::as_slice)))
    }

    /// What is left, as the end of a path.
    fn remainder(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for component in self.rest.iter().rev() {
            text.push(b'/');
            text.extend_from_slice(component);
        }
        if self.slash {
            text.push(b'/');
        }
        text
    }

    /// Puts a path in front of what is left. `.` counts only as the last component.
    fn push(&mut self, path: &[u8]) {
        for component in path.split(|byte| *byte == b'/').rev() {
            if !component.is_empty() {
                self.rest.push(component.to_vec());
            }
        }
    }
}

impl Namespace {
    /// Walks up to the last name of a path, which is not looked up.
    pub(super) fn place(&self, path: &[u8]) -> Walked<Place> {
        self.place_from(self.base, path, &mut 0)
    }

    fn place_from(&self, base: Oid, path: &[u8], links: &mut u32) -> Walked<Place> {
        let mut walk = Walk::new(path, *links);
        let place = self.walk(base, path, &mut walk)?;
        *links = walk.links;
        Ok(place)
    }

    /// As [`Namespace::place`], for a call that looks at the last name next: with what has been told of it.
    fn place_to_look_at(&self, path: &[u8]) -> Walked<(Place, Option<End>)> {
        let mut walk = Walk { wants_last: true, ..Walk::new(path, 0) };
        let place = self.walk(self.base, path, &mut walk)?;
        if let (Place::Name { dir, name, .. }, None) = (&place, &walk.end) {
            walk.end = self.fs.first_end(*dir, name);
        }
        Ok((place, walk.end))
    }

    fn walk(&self, base: Oid, path: &[u8], walk: &mut Walk) -> Walked<Place> {
        if path.is_empty() {
            return Err(Errno::NOENT.into());
        }
        if path.len() >= PATH_BYTES_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        if path.contains(&0) {
            return Err(Errno::INVAL.into());
        }
        let mut at = if path[0] == b'/' { self.fs.root() } else { base };
        let mut last = Place::Dot(at);
        while let Some(name) = walk.rest.pop() {
            match name.as_slice() {
                b"." => last = Place::Dot(at),
                b".." => {
                    at = self.step_up(at, walk)?;
                    last = Place::DotDot(at);
                }
                _ if walk.rest.is_empty() => {
                    last = Place::Name { dir: at, name, slash: walk.slash };
                }
                _ => {
                    at = self.step(at, &name, walk)?;
                    last = Place::Dot(at);
                }
            }
        }
        Ok(last)
    }

    /// One step up, out of the file system from its root.
    fn step_up(&self, dir: Oid, walk: &Walk) -> Walked<Oid> {
        self.fs.check_search(&self.caller, dir)?;
        if let Some(prefix) = self.prefix.as_deref().filter(|_| dir == self.fs.root()) {
            let cut = prefix.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            let mut out = prefix[..cut].to_vec();
            out.extend_from_slice(&walk.remainder());
            return Err(Stop::Left(if out.is_empty() { b"/".to_vec() } else { out }));
        }
        Ok(self.fs.parent_of(dir)?)
    }

    /// One step along a symlink with this text, in `dir`.
    fn follow_step(&self, dir: Oid, text: &[u8], walk: &mut Walk) -> Walked<Oid> {
        walk.links += 1;
        if walk.links > SYMLINKS_MAX {
            return Err(Errno::LOOP.into());
        }
        if text.first() != Some(&b'/') {
            walk.push(text);
            return Ok(dir);
        }
        walk.push(self.inside(text, || walk.remainder())?);
        Ok(self.fs.root())
    }

    /// The names of a walk from this one on that are looked up together; `None` if this one is looked up by itself. What is
    /// looked up together comes after all that is on its way to the engine, which a single name need not.
    fn names_together(&self, walk: &Walk, name: &[u8]) -> Option<Vec<u8>> {
        if !self.fs.lists_far() {
            return None;
        }
        let names = walk.names_from(name);
        (self.fs.newborns.are_none() || names.contains(&b'/')).then_some(names)
    }

    /// One step down, along a symlink if there is one.
    fn step(&self, dir: Oid, name: &[u8], walk: &mut Walk) -> Walked<Oid> {
        if name.len() > NAME_BYTES_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        let step = match self.known_step(dir, name) {
            None => {
                let path = self.names_together(walk, name);
                // Before the check, which may go by what it brings.
                path.map(|path| self.step_along((dir, name), &path, &mut walk.end))
            }
            known => known.map(Ok),
        };
        self.fs.check_search(&self.caller, dir)?;
        match step.unwrap_or_else(|| self.look(dir, name))? {
            Step::Directory(oid) => Ok(oid),
            Step::Symlink(text) => self.follow_step(dir, &text, walk),
        }
    }

    /// The part of a symlink's absolute text that counts from the root of the file system.
    fn inside<'a>(&self, text: &'a [u8], rest: impl FnOnce() -> Vec<u8>) -> Walked<&'a [u8]> {
        let Some(prefix) = &self.prefix else { return Ok(text) };
        match below_prefix(prefix, text) {
            Some(below) => Ok(below),
            None => Err(Stop::Left([text, &rest()].concat())),
        }
    }

    /// Where a name leads, if that is believed for a moment.
    pub(super) fn known_step(&self, dir: Oid, name: &[u8]) -> Option<Step> {
        let step = self.fs.cache.step(dir, name);
        let certain = || self.fs.certain_directory(dir, name).map(Step::Directory);
        step.or_else(certain).or_else(|| {
            let found =
                if self.fs.keeps_listed() { self.fs.listed.directory(dir, name) } else { None };
            found.map(Step::Directory)
        })
    }

    /// The directory that stands at the end of a path, where front ends list far directories and it is
    /// believed for a moment where its name leads.
    pub(super) fn known_directory(&self, place: &Place) -> Result<Option<Oid>> {
        if !self.fs.keeps_listed() {
            return Ok(None);
        }
        match place {
            Place::Dot(oid) | Place::DotDot(oid) => Ok(Some(*oid)),
            Place::Name { dir, name, .. } => self.known_directory_named(*dir, name),
        }
    }

    /// The directory that a name leads to, if that is believed for a moment.
    fn known_directory_named(&self, dir: Oid, name: &[u8]) -> Result<Option<Oid>> {
        self.fs.check_search(&self.caller, dir)?;
        Ok(match self.known_step(dir, name) {
            Some(Step::Directory(oid)) => Some(oid),
            Some(Step::Symlink(_)) | None => None,
        })
    }

    /// The attributes of the directory that a name leads to, where front ends list far directories and both are
    /// believed for a moment.
    fn believed_directory(&self, dir: Oid, name: &[u8]) -> Result<Option<Attr>> {
        if self.fs.keeps_listed() { self.told_directory(dir, name) } else { Ok(None) }
    }

    /// The same of what this very call may have been told.
    fn told_directory(&self, dir: Oid, name: &[u8]) -> Result<Option<Attr>> {
        let known = self.known_directory_named(dir, name)?;
        let told = known.and_then(|oid| self.fs.cache.dir_with_age(oid));
        Ok(told.map(|(attr, _)| Attr::clone(&attr)))
    }

    /// Looks one name up that a walk goes on by.
    pub(super) fn look(&self, dir: Oid, name: &[u8]) -> Result<Step> {
        let cache = &self.fs.cache;
        let (asked, asked_dir) = (cache.ask_step(dir, name), cache.ask_any_dir());
        let Found { entry, attr } = self.fs.call_entry(dir, name, Lookup { dir, name })?;
        // Whatever comes next is judged by them.
        if let Some(attr) = attr.filter(|_| entry.kind == FileKind::Directory) {
            cache.keep_met_dir(asked_dir, entry.oid, attr);
        }
        let step = self.step_of(entry)?;
        cache.keep_step(asked, dir, name, step.clone());
        Ok(step)
    }

    /// Where a name leads that was found to be this.
    pub(super) fn step_of(&self, entry: Entry) -> Result<Step> {
        match entry.kind {
            FileKind::Directory => Ok(Step::Directory(entry.oid)),
            FileKind::Symlink => Ok(Step::Symlink(self.text_of(entry.oid)?)),
            _ => Err(Errno::NOTDIR),
        }
    }

    /// The text of a symlink that a name has just led to.
    pub(super) fn text_of(&self, link: Oid) -> Result<Arc<[u8]>> {
        if let Some(text) = self.fs.cache.text(link) {
            return Ok(text);
        }
        let text = Arc::from(self.fs.readlink(link)?);
        self.fs.cache.keep_text(link, &text);
        Ok(text)
    }

    /// The place that a path leads to once a symlink at its end is followed, as `open` with
    /// `O_CREAT` needs it: the last name need not be there.
    pub(super) fn followed(&self, dir: Oid, link: Oid, links: &mut u32) -> Walked<Place> {
        *links += 1;
        if *links > SYMLINKS_MAX {
            return Err(Errno::LOOP.into());
        }
        let text = self.text_of(link)?;
        if text.first() != Some(&b'/') {
            return self.place_from(dir, &text, links);
        }
        match self.inside(&text, Vec::new)? {
            b"" => Ok(Place::Dot(self.fs.root())),
            below => self.place_from(dir, below, links),
        }
    }

    /// The object that a path leads to; a symlink at its end is followed if `follow`.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ELOOP`, `ENAMETOOLONG`, `EACCES`.
    pub fn resolve(&self, path: impl AsRef<[u8]>, follow: bool) -> Result<Attr> {
        let (place, end) = self.place_to_look_at(path.as_ref())?;
        Ok(self.resolve_from(place, end, follow, &mut 0)?)
    }

    /// As [`Namespace::resolve`], for a call that only looks: where listings are believed for a moment
    /// ([`crate::FsConfig::listed_from_us`]) the attributes may be those that one has brought along.
    ///
    /// # Errors
    /// Those of [`Namespace::resolve`].
    pub fn look_at(&self, path: impl AsRef<[u8]>, follow: bool) -> Result<Attr> {
        let (place, end) = self.place_to_look_at(path.as_ref())?;
        match &place {
            Place::Dot(dir) | Place::DotDot(dir) => return self.fs.getattr_listed(*dir),
            // It has just been asked for.
            Place::Name { .. } if end.is_some() => {}
            Place::Name { dir, name, slash } => {
                let found = self.fs.look_at_listed(&self.caller, *dir, name)?;
                let is_end = |attr: &Attr| match attr.kind {
                    FileKind::Directory => true,
                    FileKind::Symlink => !follow && !slash,
                    _ => !slash,
                };
                if let Some((attr, _)) = found.filter(|(attr, _)| is_end(attr)) {
                    return Ok(*attr);
                }
                // Programs look at a directory again and again (is it as it was when it was listed?).
                if let Some(attr) = self.believed_directory(*dir, name)? {
                    return Ok(attr);
                }
            }
        }
        Ok(self.resolve_from(place, end, follow, &mut 0)?)
    }

    /// The path of the larger tree to which a path leads, if it leads out; see
    /// [`Namespace::standing_at`]. For a path with which a call has failed with [`LEFT`].
    pub fn way_out(&self, path: impl AsRef<[u8]>) -> Option<Vec<u8>> {
        let place = self.place(path.as_ref());
        // Whatever a call does with the end of a path, it leaves where a symlink there would be followed.
        match place.and_then(|place| self.resolve_place(place, true, &mut 0)) {
            Err(Stop::Left(path)) => Some(path),
            Ok(_) | Err(Stop::Failed(_)) => None,
        }
    }

    pub(super) fn resolve_place(
        &self,
        place: Place,
        follow: bool,
        links: &mut u32,
    ) -> Walked<Attr> {
        self.resolve_from(place, None, follow, links)
    }

    /// The object at a place, of which a walk to it may have told.
    fn resolve_from(
        &self,
        mut place: Place,
        mut end: Option<End>,
        follow: bool,
        links: &mut u32,
    ) -> Walked<Attr> {
        let mut must_be_dir = false;
        loop {
            let (dir, name, slash) = match place {
                Place::Dot(oid) | Place::DotDot(oid) => {
                    // What is done in it next is judged by them.
                    let asked = self.fs.cache.ask_dir(oid);
                    let attr = self.fs.getattr(oid)?;
                    self.fs.cache.keep_dir(asked, oid, &Arc::new(attr.clone()));
                    return Ok(attr);
                }
                Place::Name { dir, name, slash } => (dir, name, slash),
            };
            must_be_dir |= slash;
            let attr = self.look_as_told(end.take(), dir, &name)?;
            match attr.kind {
                FileKind::Symlink if follow || must_be_dir => {
                    place = self.followed(dir, attr.oid, links)?;
                }
                FileKind::Directory => return Ok(attr),
                _ if must_be_dir => return Err(Errno::NOTDIR.into()),
                _ => return Ok(attr),
            }
        }
    }

    /// Looks up the last name of a path.
    fn look_at_last(&self, dir: Oid, name: &[u8]) -> Result<Attr> {
        let cache = &self.fs.cache;
        let asked = cache.ask_step(dir, name);
        let asked_dir = self.fs.keeps_listed().then(|| cache.ask_any_dir());
        let attr = self.fs.lookup(&self.caller, dir, name)?;
        if let Some(asked_dir) = asked_dir.filter(|_| attr.kind == FileKind::Directory) {
            cache.keep_step(asked, dir, name, Step::Directory(attr.oid));
            // What is done in it next is judged by them.
            cache.keep_met_dir(asked_dir, attr.oid, Box::new(attr.clone()));
        }
        Ok(attr)
    }

    /// Looks at a name of a path of which each is looked at, for a call that only looks: what lies far away is asked for
    /// together with the names behind it, or has come with a listing.
    fn look_on(&self, dir: Oid, name: &[u8], walk: &mut Walk) -> Result<Attr> {
        let Some(path) = self.names_together(walk, name) else {
            return self.look_at_last(dir, name);
        };
        if walk.end.is_none() {
            if let Some((attr, _)) = self.fs.look_at_listed(&self.caller, dir, name)? {
                return Ok(*attr);
            }
            if !walk.rest.is_empty() {
                walk.end = self.look_along(dir, &path)?;
                if let Some(attr) = self.told_directory(dir, name)? {
                    return Ok(attr);
                }
            }
        }
        self.look_as_told(walk.end.take(), dir, name)
    }

    /// A name of which a walk may just have told; else it is looked up.
    fn look_as_told(&self, end: Option<End>, dir: Oid, name: &[u8]) -> Result<Attr> {
        match end.and_then(|end| end.of(dir, name)) {
            Some(Told::There(found, _)) => self.fs.lookup_met(&self.caller, dir, name, found),
            Some(Told::Absent) => {
                self.fs.check_search(&self.caller, dir)?;
                Err(Errno::NOENT)
            }
            None => self.look_at_last(dir, name),
        }
    }

    /// The absolute path of what `path` leads to, below the root, without symlinks, dots and repeated
    /// slashes (empty for the root itself), and its attributes. `base` is that path of the directory
    /// that relative paths count from.
    ///
    /// # Errors
    /// Those of [`Namespace::resolve`].
    pub fn canonicalize(&self, base: &[u8], path: impl AsRef<[u8]>) -> Result<(Vec<u8>, Attr)> {
        let path = path.as_ref();
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        if path.len() >= PATH_BYTES_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let mut walk = Walk { wants_last: true, ..Walk::new(path, 0) };
        let (mut at, mut done) =
            if path[0] == b'/' { (self.fs.root(), Vec::new()) } else { (self.base, base.to_vec()) };
        // The attributes of `at`, where they have come along.
        let mut met = None;
        while let Some(name) = walk.rest.pop() {
            match name.as_slice() {
                b"." => continue,
                b".." => {
                    at = self.step_up(at, &walk)?;
                    met = None;
                    done.truncate(done.iter().rposition(|byte| *byte == b'/').unwrap_or(0));
                    continue;
                }
                _ => {}
            }
            let is_last = walk.rest.is_empty() && !walk.slash;
            let believed = match self.believed_directory(at, &name)? {
                None if is_last => self.fs.opened_just_now(at, &name),
                believed => believed,
            };
            let attr = match believed {
                Some(attr) => attr,
                None => self.look_on(at, &name, &mut walk)?,
            };
            if attr.kind == FileKind::Symlink {
                let text = self.text_of(attr.oid)?;
                walk.slash |= walk.rest.is_empty() && ends_with_slash(&text);
                if text.first() == Some(&b'/') {
                    done.clear();
                }
                let led = self.follow_step(at, &text, &mut walk)?;
                met = met.filter(|_| led == at);
                at = led;
                continue;
            }
            done.push(b'/');
            done.extend_from_slice(&name);
            if attr.kind == FileKind::Directory {
                at = attr.oid;
                met = Some(attr);
            } else if is_last {
                return Ok((done, attr));
            } else {
                return Err(Errno::NOTDIR);
            }
        }
        Ok((done, met.map_or_else(|| self.fs.getattr(at), Ok)?))
    }

    /// The directory that a path leads to.
    pub(super) fn resolve_dir(&self, path: &[u8]) -> Result<Oid> {
        match self.place(path)? {
            Place::Dot(oid) | Place::DotDot(oid) => Ok(oid),
            place @ Place::Name { .. } => {
                if let Place::Name { dir, name, .. } = &place
                    && let Some(Step::Directory(oid)) = self.fs.cache.step(*dir, name)
                {
                    self.fs.check_search(&self.caller, *dir)?;
                    return Ok(oid);
                }
                let attr = self.resolve_place(place, true, &mut 0)?;
                if attr.kind == FileKind::Directory { Ok(attr.oid) } else { Err(Errno::NOTDIR) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_matched_by_whole_components() {
        let below = |path: &'static str| below_prefix(b"/mnt/azekura", path.as_bytes());
        assert_eq!(below("/mnt/azekura"), Some(&b""[..]));
        assert_eq!(below("//mnt///azekura/"), Some(&b"/"[..]));
        assert_eq!(below("/mnt/azekura/a/../b"), Some(&b"/a/../b"[..]));
        assert_eq!(below("/mnt/azekura2"), None);
        assert_eq!(below("/mnt"), None);
        assert_eq!(below("mnt/azekura"), None);
        assert_eq!(below("/mntazekura"), None);
    }
}
