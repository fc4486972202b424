//! Changes that are answered before they have arrived: new objects in directories whose names this process
//! has leased, and below, and what is done to these objects next. Owns when that can be done. What is not said
//! here is done by requests that are waited for, and they come after everything that is in flight.

use std::sync::Arc;
use std::time::Duration;

use azekura_client::{Batch, Call, Change, ClientError, OpenReference};
use azekura_proto::attr::{AttrChange, DirectoryGuard, FileGuard, FileKind, SetTime};
use azekura_proto::limits::SERIALS_MAX;
use azekura_proto::message::typed::{AllocateSerials, GetAttr, LeaseWrite, Leased, ReadDirectory};
use azekura_proto::message::{DirEntry, ShardRef};
use azekura_proto::{Attr, Oid, TargetId};
use rustix::fs::OFlags;

use super::attr::AttrUpdate;
use super::create::{NewEntry, Striping};
use crate::cache::Step;
use crate::errno::of_client;
use crate::newborn::{Cradle, Name, Naming, Newborn};
use crate::{Credentials, Errno, FileSystem, OpenFile, Result};

/// Directories of more shards are not leased, nor are numbers drawn from more targets.
const SHARDS_MAX: u16 = 16;
/// Bytes of names of one shard that are asked for at once: larger directories are not leased.
const NAMES_BYTES: u32 = 128 * 1024;
/// Numbers of objects that are drawn with a lease, and when fewer than a quarter of these are left.
const SERIALS: u32 = 1024;
/// Bytes of a new file that are sent so; larger ones are written as any file is.
const FILE_BYTES: u64 = 4 << 20;
/// From this round trip on the engine's time as it is counted here is certainly not later than that of the
/// engine when the change arrives there, in microseconds.
const EXACT_FROM_US: u64 = 5_000;

/// So much a change adds to the count of an object's changes; if that is another one, somebody else has
/// changed it as well.
const CHANGE: u64 = 2;

const _: () = assert!(SERIALS <= SERIALS_MAX);

/// A new object that was answered for before it has arrived.
pub(super) struct Made {
    pub(super) attr: Attr,
    pub(super) reference: Option<Arc<OpenReference>>,
}

impl FileSystem {
    /// Whether changes are answered early at all.
    fn changes_fly(&self) -> bool {
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
        let _change = self.listed.change_names();
        self.note_unsynced(dir);
        // A listing of the one above it has the directory's times.
        let dirs = [dir, cradle.dir.parent.unwrap_or(dir)];
        match self.pool().post_change(change, (dirs, root), reference.clone()) {
            Ok(true) => {}
            // It had to be waited for, and others were there first: looked at as ever, the name may be theirs.
            Ok(false) | Err(ClientError::Status(_)) => return Ok(None),
            Err(error) => return Err(of_client(&error)),
        }
        let is_exact = cradle.is_clock_new && self.pool().round_trip_us_to(target) >= EXACT_FROM_US;
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

    /// A place for a name in a directory whose names are leased, or are so now.
    fn cradle(&self, dir: Oid, name: &[u8], target: TargetId) -> Result<Option<Cradle>> {
        let Some(shard) = self.pool().placement().shard_on_target(dir, target) else {
            return Ok(None);
        };
        // The second time for one whose lease is about to run out.
        for _ in 0..2 {
            let generation = self.pool().names_generation();
            if !self.newborns.knows_names(generation, dir) && !self.lease_names(dir)? {
                return Ok(None);
            }
            let generation = self.pool().names_generation();
            match self.newborns.cradle(generation, (dir, name), shard, self.now()) {
                Some(cradle) if self.pool().holds_names(cradle.root) => return Ok(Some(cradle)),
                Some(_) => self.pool().publish().map_err(|error| of_client(&error))?,
                None => return Ok(None),
            }
        }
        Ok(None)
    }

    /// A change of names by a request that is waited for begins; `new`: one that may be made.
    pub(super) fn begin_naming(&self, new: Option<(Oid, &[u8])>) -> Option<Naming<'_>> {
        self.changes_fly().then(|| self.newborns.begin_naming(new))
    }

    /// A number for an object; draws more of them before they run out.
    fn serial_at(&self, target: TargetId) -> Result<Option<u64>> {
        if self.newborns.serials_left(target) == 0 {
            let first = self.call(target, AllocateSerials { count: SERIALS })?;
            self.newborns.keep_serials(target, first..first + u64::from(SERIALS));
        }
        Ok(self.newborns.take_serial(target))
    }

    /// Leases the names of a directory, if that is worth it: then all that are there are known.
    fn lease_names(&self, dir: Oid) -> Result<bool> {
        let pool = self.pool();
        let round_trip = Duration::from_micros(pool.round_trip_us_to(dir.home()));
        if !self.newborns.is_worth_a_lease(dir, round_trip, self.now())
            || pool.names_are_refused()
            // Changes at several engines arrive in no order.
            || pool.map().engines.len() != 1
            || pool.placement().shards(dir) > SHARDS_MAX
            || pool.target_count() > SHARDS_MAX
        {
            return Ok(false);
        }
        let Some(namings_begun) = self.newborns.namings_begun() else { return Ok(false) };
        if let Some((attr, entries)) = self.ask_for_names(dir) {
            let names = entries.into_iter().map(|found| (found.name, found.entry));
            let generation = pool.names_generation();
            if self.newborns.keep_leased(generation, attr, names, namings_begun) {
                return Ok(true);
            }
        }
        self.newborns.refuse(dir, self.now());
        pool.publish().map_err(|error| of_client(&error))?;
        Ok(false)
    }

    /// Asks for leases of a directory's names, then for the directory and all names in it, and for numbers where
    /// few are left, at once. `None` if something of it is missing; leases that were given are held all the same.
    fn ask_for_names(&self, dir: Oid) -> Option<(Arc<Attr>, Vec<DirEntry>)> {
        let (pool, asked) = (self.pool(), self.now());
        let shards: Vec<(u16, TargetId)> = {
            let placement = pool.placement();
            let with_target = |shard| (shard, placement.shard_target(dir, shard));
            (0..placement.shards(dir)).map(with_target).collect()
        };
        let few = |target: &TargetId| self.newborns.serials_left(*target) < u64::from(SERIALS) / 4;
        let mut batch = Batch::with_capacity(3 * shards.len() + 1);
        let leases: Vec<_> = shards
            .iter()
            .map(|(shard, target)| {
                let data = ShardRef { oid: dir, shard: *shard, is_file: false };
                batch.add(Call::new(*target, LeaseWrite { data, instead_of: None }))
            })
            .collect();
        let attr = batch.add(Call::new(dir.home(), GetAttr { oid: dir }));
        let pages: Vec<_> = shards
            .iter()
            .map(|(_, target)| {
                let (after, page_bytes, with_attrs) = (0, NAMES_BYTES, false);
                let request = ReadDirectory { dir, after, page_bytes, with_attrs };
                batch.add(Call::new(*target, request))
            })
            .collect();
        let serials: Vec<_> = (0..pool.target_count())
            .map(TargetId)
            .filter(few)
            .map(|target| {
                let request = AllocateSerials { count: SERIALS };
                (target, batch.add(Call::new(target, request)))
            })
            .collect();
        let mut replies = pool.call_batch(batch);
        let mut is_whole = replies.are_in_order();
        for ((shard, target), ticket) in shards.into_iter().zip(leases) {
            match replies.take(ticket) {
                Ok(Leased { lease_ms, version }) if lease_ms > 0 => {
                    pool.hold_names((dir, shard), target, version, asked, lease_ms);
                }
                _ => is_whole = false,
            }
        }
        for (target, ticket) in serials {
            if let Ok(first) = replies.take(ticket) {
                self.newborns.keep_serials(target, first..first + u64::from(SERIALS));
            }
        }
        let attr = replies.take(attr).ok().filter(|attr| attr.kind == FileKind::Directory);
        let mut names = Vec::new();
        for ticket in pages {
            let page = replies.take(ticket).ok().filter(|page| page.end);
            is_whole &= page.is_some();
            names.extend(page.into_iter().flat_map(|page| page.entries));
        }
        attr.filter(|_| is_whole).map(|attr| (Arc::from(attr), names))
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

    /// Looks after what is in flight while nobody asks for anything: sends again what was lost, and lets others at
    /// what they wait for.
    ///
    /// # Errors
    /// If the engine cannot be reached.
    pub fn look_after_changes(&self) -> Result<()> {
        if self.newborns.are_none() {
            return Ok(());
        }
        let looked = if self.newborns.are_idle(self.now()) {
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

    /// The attributes of a newborn object, if an engine would tell the same.
    pub(crate) fn newborn_attr(&self, oid: Oid) -> Option<Attr> {
        self.newborn(oid).filter(|newborn| newborn.is_exact).map(|newborn| newborn.attr)
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
        self.newborns.change(&attr, newborn.changes.wrapping_add(CHANGE));
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

    /// Names are about to change in a way that leases of names are no good for: everything in flight arrives
    /// and all of them are given back. None is asked for in these directories for a while.
    pub(super) fn publish_names(&self, dirs: &[Oid]) -> Result<()> {
        if !self.changes_fly() {
            return Ok(());
        }
        let now = self.now();
        for dir in dirs {
            self.newborns.refuse(*dir, now);
        }
        if self.newborns.are_none() {
            return Ok(());
        }
        self.pool().publish().map_err(|error| of_client(&error))
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
