//! Changes that are answered before they have arrived: new objects in directories whose names this process
//! has leased, and below, and what is done to these objects next. Owns when that can be done. What is not said
//! here is done by requests that are waited for, and they come after everything that is in flight.

use std::sync::Arc;
use std::time::Duration;

use azekura_client::{Change, ClientError, OpenReference};
use azekura_proto::attr::{AttrChange, DirectoryGuard, FileGuard, FileKind, SetTime};
use azekura_proto::{Attr, Oid};
use rustix::fs::OFlags;

use super::attr::AttrUpdate;
use super::create::{NewEntry, Striping};
use crate::cache::Step;
use crate::errno::of_client;
use crate::newborn::{Name, Naming, Newborn};
use crate::{Credentials, Errno, FileSystem, OpenFile, Result};

/// Bytes of a new file that are sent so; larger ones are written as any file is.
const FILE_BYTES: u64 = 4 << 20;

/// So much a change adds to the count of an object's changes; if that is another one, somebody else has
/// changed it as well.
const CHANGE: u64 = 2;

/// A new object that was answered for before it has arrived.
pub(super) struct Made {
    pub(super) attr: Attr,
    pub(super) reference: Option<Arc<OpenReference>>,
}

impl FileSystem {
    /// Whether changes are answered early at all.
    pub(super) fn changes_fly(&self) -> bool {
        self.config().changes_in_flight
    }

    /// What this process was told of an earlier change of an object, or of one in a directory, was wrong: it
    /// has failed since.
    pub(crate) fn tell_failed(&self, oid: Oid) -> Result<()> {
        if !self.changes_fly() {
            return Ok(());
        }
        match self.pool().take_failed_change(oid) {
            Some(failed) => Err(of_client(&failed.error)),
            None => Ok(()),
        }
    }

    /// Makes an object in a directory whose names this process has leased, and is answered for before it has
    /// arrived. `None` if it has to be made by a request that is waited for. `opens`: a regular file is held
    /// open.
    pub(super) fn make_in_flight(
        &self,
        caller: &Credentials,
        (dir, name): (Oid, &[u8]),
        (mode, what): (u32, NewEntry<'_>),
        striping: Striping,
        opens: bool,
    ) -> Result<Option<Made>> {
        if !self.changes_fly() || matches!(what, NewEntry::Exclusive(_)) {
            return Ok(None);
        }
        let target = self.entry_target(dir, name);
        if !self.writing.changes_may_fly(target) {
            return Ok(None);
        }
        self.tell_failed(dir)?;
        let _making = self.newborns.make();
        let Some(cradle) = self.cradle(dir, name, target)? else { return Ok(None) };
        let root = cradle.root;
        if self.check_change(caller, &cradle.dir).is_err() {
            return Ok(None);
        }
        let Some(serial) = self.serial_at(target)? else { return Ok(None) };
        let inode = self.new_inode(caller, &cradle.dir, what, mode, striping);
        let oid = Oid::new(dir.container(), inode.class, target, serial);
        let attr = Attr::of_new(oid, &inode, dir, cradle.born);
        let reference = if opens {
            let counted = self.pool().count_open(oid);
            Some(Arc::new(counted.map_err(|error| of_client(&error))?))
        } else {
            None
        };
        let (asked_step, asked_text) = (self.cache.ask_step(dir, name), inode.symlink_text.clone());
        let change = Change::Create {
            dir,
            name: name.into(),
            oid,
            inode: Box::new(inode),
            born: cradle.born,
            guard: DirectoryGuard::of(&cradle.dir),
        };
        let _change = self.listed.make_name(dir);
        self.note_unsynced(dir);
        // A listing of the one above it has the directory's times.
        let dirs = [dir, cradle.dir.parent.unwrap_or(dir)];
        match self.pool().post_change(change, (dirs, root), reference.clone()) {
            Ok(true) => {}
            // It had to be waited for, and others were there first: looked at as ever, the name may be theirs.
            Ok(false) | Err(ClientError::Status(_)) => return Ok(None),
            Err(error) => return Err(of_client(&error)),
        }
        let is_exact = cradle.is_clock_new;
        let changes = self.changes.now_of(oid);
        let generation = self.pool().names_generation();
        self.newborns.add(generation, (dir, name), root, &attr, (is_exact, changes), self.now());
        let step = (attr.kind == FileKind::Directory).then_some((asked_step, Step::Directory(oid)));
        self.cache.renew_step(dir, name, step);
        self.note_made_in(dir, &attr);
        if attr.kind == FileKind::Symlink {
            self.cache.keep_text(oid, &Arc::from(asked_text));
        }
        Ok(Some(Made { attr, reference }))
    }

    /// An object was made in a directory. A kernel asks for both again and again, in order to judge by them
    /// what is made next: so they are believed for a moment, with the engine's time as it was counted on.
    fn note_made_in(&self, dir: Oid, made: &Attr) {
        if self.checks() {
            return self.cache.age_dir(dir);
        }
        let is_directory = made.kind == FileKind::Directory;
        self.cache.touch_dir(dir, made.ctime, u32::from(is_directory));
        if is_directory {
            let asked = self.cache.ask_dir(made.oid);
            self.cache.keep_dir(asked, made.oid, &Arc::new(made.clone()));
        }
    }

    /// A change of names by a request that is waited for begins; `new`: one that may be made.
    pub(super) fn begin_naming(&self, new: Option<(Oid, &[u8])>) -> Option<Naming<'_>> {
        self.changes_fly().then(|| self.newborns.begin_naming(new))
    }

    /// A newborn object of which everything is known that an answer of the engine would tell but its times.
    pub(super) fn newborn(&self, oid: Oid) -> Option<Newborn> {
        if self.newborns.are_none() {
            return None;
        }
        let newborn = self.newborns.known(self.pool().names_generation(), oid)?;
        // What is written in the other way goes over other connections.
        let is_so = newborn.changes == self.changes.now_of(oid)
            && !self.writing.has_unsettled(oid)
            && self.pool().holds_names(newborn.root);
        is_so.then_some(newborn)
    }

    /// Whether the times of an object are a guess, since changes of it are on their way: whoever is told them
    /// has to ask again.
    pub fn has_guessed_times(&self, oid: Oid) -> bool {
        self.newborn(oid).is_some_and(|newborn| !newborn.is_exact)
    }

    /// The attributes of a file whose changes are on their way, without asking: all but its times, which are those
    /// that were known last. For whoever wants to know how long it is, and shows the rest to nobody.
    pub fn attr_but_for_times(&self, file: &OpenFile) -> Option<Attr> {
        let newborn = self.newborn(file.oid()).map(|newborn| newborn.attr);
        newborn.or_else(|| self.writing.own_attr(file.oid()))
    }

    /// Looks after what is in flight while nobody asks for anything: sends again what was lost, and lets others at
    /// what they wait for.
    ///
    /// # Errors
    /// If the engine cannot be reached.
    pub fn look_after_changes(&self) -> Result<()> {
        if self.newborns.are_none() {
            return Ok(());
        }
        let round_trip = Duration::from_micros(self.pool().round_trip_us());
        let looked = if self.newborns.are_idle(round_trip, self.now()) {
            self.pool().publish()
        } else {
            self.pool().look_after_changes()
        };
        looked.map_err(|error| of_client(&error))
    }

    /// Reads at an offset what is in a newborn file, if that is known; fewer bytes only at the end.
    pub(super) fn read_newborn(&self, oid: Oid, offset: u64, buffer: &mut [u8]) -> Option<usize> {
        if self.newborns.are_none() {
            return None;
        }
        // Most files have none kept. What was read counts if nobody has changed the file in another way by now:
        // that stays seen.
        let got = self.newborns.read(oid, offset, buffer)?;
        self.newborn(oid)?;
        Some(got)
    }

    /// The attributes of a newborn object, if an engine would tell the same. Of a file it does once it has been told
    /// its times.
    pub(crate) fn newborn_attr(&self, oid: Oid) -> Option<Attr> {
        let newborn = self.newborn(oid)?;
        if newborn.is_exact { Some(newborn.attr) } else { self.settle_times(oid) }
    }

    /// Tells the engine the times of a newborn file that has been changed, since somebody wants to know them; that is
    /// not waited for.
    fn settle_times(&self, oid: Oid) -> Option<Attr> {
        // What is told is the last that is sent.
        let _making = self.newborns.try_make()?;
        let newborn = self.newborn(oid).filter(|newborn| newborn.attr.kind == FileKind::Regular)?;
        if !self.writing.changes_may_fly(oid.home()) {
            return None;
        }
        let ctime = self.newborns.engine_time(self.moment(oid.home()))?;
        let mut attr = newborn.attr;
        let mtime = if newborn.is_mtime_exact { attr.mtime } else { ctime };
        (attr.mtime, attr.ctime) = (mtime, ctime);
        let begun = self.begin_change(oid);
        let change = Change::SettleTimes { oid, mtime, ctime };
        let posted = self.pool().post_change(change, ([newborn.dir; 2], newborn.root), None);
        drop(begun);
        if !posted.is_ok_and(|is_sent| is_sent) {
            return None;
        }
        self.newborns.settle(&attr, newborn.changes.wrapping_add(CHANGE));
        Some(attr)
    }

    /// What is known of a name, also for how long it may be believed.
    fn name(&self, dir: Oid, name: &[u8]) -> Name {
        if self.newborns.are_none() {
            return Name::Unknown;
        }
        let target = self.entry_target(dir, name);
        let Some(shard) = self.pool().placement().shard_on_target(dir, target) else {
            return Name::Unknown;
        };
        match self.newborns.named(self.pool().names_generation(), (dir, name), shard) {
            Name::Absent(root) | Name::Entry(root, _) if !self.pool().holds_names(root) => {
                Name::Unknown
            }
            known => known,
        }
    }

    /// The newborn object of this name; its times, links and length may be others.
    pub(crate) fn newborn_named(&self, dir: Oid, name: &[u8]) -> Option<Newborn> {
        match self.name(dir, name) {
            Name::Newborn(oid) => self.newborn(oid),
            Name::Unknown | Name::Absent(_) | Name::Entry(..) => None,
        }
    }

    /// As [`FileSystem::newborn_attr`], of the object of this name.
    pub(crate) fn newborn_attr_named(&self, dir: Oid, name: &[u8]) -> Option<Attr> {
        match self.name(dir, name) {
            Name::Newborn(oid) => self.newborn_attr(oid),
            Name::Unknown | Name::Absent(_) | Name::Entry(..) => None,
        }
    }

    /// Whether it is certain that a name is not there, without asking.
    pub(crate) fn is_absent(&self, dir: Oid, name: &[u8]) -> bool {
        matches!(self.name(dir, name), Name::Absent(_))
    }

    /// The directory of this name, if that is certain without asking.
    pub(crate) fn certain_directory(&self, dir: Oid, name: &[u8]) -> Option<Oid> {
        match self.name(dir, name) {
            Name::Newborn(oid) => {
                self.newborn(oid).filter(|newborn| newborn.attr.kind == FileKind::Directory)?;
                Some(oid)
            }
            Name::Entry(_, entry) if entry.kind == FileKind::Directory => Some(entry.oid),
            Name::Unknown | Name::Absent(_) | Name::Entry(..) => None,
        }
    }

    /// A newborn directory, as far as what is done in it is judged by it.
    pub(crate) fn newborn_directory(&self, dir: Oid) -> Option<Arc<Attr>> {
        if self.newborns.are_none() {
            return None;
        }
        let (root, attr) = self.newborns.directory(self.pool().names_generation(), dir)?;
        self.pool().holds_names(root).then_some(attr)
    }

    /// Changes attributes of a newborn object, and is answered for before that has arrived. `None` if that
    /// has to be waited for.
    pub(super) fn set_attr_in_flight(
        &self,
        oid: Oid,
        update: &AttrUpdate,
        judge: impl FnOnce(FileKind, &FileGuard) -> Option<AttrChange>,
    ) -> Result<Option<Attr>> {
        if self.newborns.are_none() {
            return Ok(None);
        }
        // What it is judged by is changed by one at a time.
        let _making = self.newborns.make();
        let Some(newborn) = self.newborn(oid) else { return Ok(None) };
        if update.size.is_some() || !self.writing.changes_may_fly(oid.home()) {
            return Ok(None);
        }
        self.tell_failed(oid)?;
        let mut attr = newborn.attr;
        let Some(change) = judge(attr.kind, &FileGuard::of(&attr)) else { return Ok(None) };
        apply(&mut attr, &change);
        let begun = self.begin_change(oid);
        let change = Change::SetAttr { oid, change: Box::new(change) };
        let posted = self.pool().post_change(change, ([newborn.dir; 2], newborn.root), None);
        drop(begun);
        if !posted.map_err(|error| of_client(&error))? {
            return Ok(None);
        }
        let changes = newborn.changes.wrapping_add(CHANGE);
        self.newborns.change(&attr, changes, update.mtime);
        self.files.forget(oid);
        self.cache.forget_dir(oid);
        Ok(Some(attr))
    }

    /// Writes to a newborn file, and is answered for before that has arrived. False if that has to be done as
    /// with any file.
    pub(super) fn write_in_flight(
        &self,
        file: &OpenFile,
        offset: u64,
        data: &[u8],
    ) -> Result<bool> {
        let oid = file.oid();
        let Some(newborn) = self.newborn(oid) else { return Ok(false) };
        let bytes = data.len() as u64;
        let end = offset.saturating_add(bytes);
        if newborn.sent_bytes + bytes > FILE_BYTES
            || file.is_synchronous()
            || file.flags().contains(OFlags::APPEND)
            || file.layout.is_striped()
            || file.layout.needs_striping(end)
            || !self.writing.changes_may_fly(oid.home())
        {
            return Ok(false);
        }
        self.tell_failed(oid)?;
        self.before_write(file)?;
        let begun = self.begin_change(oid);
        let change = Change::Write { data: file.layout.shard(0), offset, bytes: data.to_vec() };
        let posted = self.pool().post_change(change, ([newborn.dir; 2], newborn.root), None);
        drop(begun);
        if !posted.map_err(|error| of_client(&error))? {
            return Ok(false);
        }
        self.newborns.note_sent(oid, (offset, data), newborn.changes.wrapping_add(CHANGE));
        Ok(true)
    }

    /// A directory is about to be changed by a request that is waited for. If its names are leased, what is
    /// made in it would be judged by what it was before: the leases are given back, and none is taken until what
    /// this gives is dropped.
    pub(super) fn before_change_of(&self, oid: Oid) -> Result<Option<Naming<'_>>> {
        if self.newborns.are_none()
            || !self.newborns.knows_names(self.pool().names_generation(), oid)
        {
            return Ok(None);
        }
        let naming = self.begin_naming(None);
        self.pool().publish().map_err(|error| of_client(&error))?;
        Ok(naming)
    }

    /// Everything in flight arrives, and nobody waits for leases of names any more.
    pub(super) fn publish_all(&self) -> Result<()> {
        if !self.changes_fly() {
            return Ok(());
        }
        if !self.newborns.are_none() {
            // Whoever is started next may look at what is made: with leases each would wait for the other.
            self.pool().refuse_names();
        }
        let published = self.pool().publish().map_err(|error| of_client(&error));
        self.pool().close_changes();
        published
    }

    /// Nobody will ask any more what has failed.
    pub(super) fn tell_all_failed(&self) -> Result<()> {
        if !self.changes_fly() {
            return Ok(());
        }
        let failed = self.pool().take_failed_changes();
        for change in &failed {
            tracing::error!(
                "a change of {} that was answered is lost: {}",
                change.oid,
                change.error
            );
        }
        match failed.first() {
            Some(failed) => Err(of_client(&failed.error)),
            None => Ok(()),
        }
    }

    /// A new file as its maker has it open.
    pub(super) fn made_handle(
        &self,
        made: Made,
        caller: &Credentials,
        flags: OFlags,
    ) -> Result<(Attr, OpenFile)> {
        let reference = made.reference.ok_or(Errno::IO)?;
        let file = self.handle(reference, &made.attr, caller, flags);
        Ok((made.attr, file))
    }
}

/// What a change makes of attributes. The times are those of before, but where they are said.
fn apply(attr: &mut Attr, change: &AttrChange) {
    if let Some(mode) = change.mode {
        attr.mode = mode & 0o7777;
    }
    attr.mode &= !change.clear_mode_bits;
    attr.uid = change.uid.unwrap_or(attr.uid);
    attr.gid = change.gid.unwrap_or(attr.gid);
    if let Some(SetTime::At(time)) = change.atime {
        attr.atime = time;
    }
    if let Some(SetTime::At(time)) = change.mtime {
        attr.mtime = time;
    }
}
