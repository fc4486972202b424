//! Objects that this process has made and that nobody else can reach yet, since it has a write lease of the
//! names under which they lie. Owns what is known of them without asking: their names, their attributes, and
//! the numbers for more of them. What is known counts only while the lease holds.

mod clocks;
mod moves;

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use azekura_client::{LeasedNames, this_process};
use azekura_policy::Budget;
use azekura_proto::attr::{FileKind, SetTime};
use azekura_proto::limits::WRITE_LEASE_MS;
use azekura_proto::transaction::Entry;
use azekura_proto::{Attr, Oid, TargetId, Timestamp};
use parking_lot::{Mutex, MutexGuard};

use crate::contents::Contents;
use clocks::Clocks;
pub(crate) use clocks::Moment;
pub(crate) use moves::Going;
pub(crate) use moves::Move;

/// Directories in which something was made lately, at most so many.
const LATELY_MAX: usize = 32;
/// The second name that is made in a directory within this time asks for a lease of its names,
const LATELY: Duration = Duration::from_secs(1);
/// or within so many round trips, of which whoever makes something takes some for each.
const LATELY_ROUND_TRIPS: u32 = 60;
/// Whoever has made something under a lease so lately goes on with that elsewhere,
const ON_AND_ON: Duration = Duration::from_millis(500);
/// or within so many round trips; but a lease serves for no longer than this without being renewed.
const ON_AND_ON_ROUND_TRIPS: u32 = 20;
const ON_AND_ON_MAX: Duration = Duration::from_millis(WRITE_LEASE_MS / 2);
/// For this long after names of a directory were changed in ways that its lease is no good for, none is
/// asked for.
const REFUSAL: Duration = Duration::from_secs(5);
/// Bytes of all newborn files whose contents are kept.
const CONTENTS_BYTES: u64 = 16 << 20;
/// What a file takes on disk is taken to be a multiple of this.
const BLOCK_BYTES: u64 = 4096;
/// Objects that are known at once, at most.
const OBJECTS_MAX: usize = 64 * 1024;

/// Which lease keeps others from the names of a directory.
#[derive(Clone, Copy, Debug)]
enum Root {
    /// Each of its shards has its own.
    Own,
    /// It lies below this one.
    Above(LeasedNames),
}

/// A directory all of whose names are known.
#[derive(Debug)]
struct Known {
    root: Root,
    /// By what creations in it are judged.
    attr: Arc<Attr>,
    names: HashMap<Box<[u8]>, There>,
}

/// What is known of a name that is there.
#[derive(Clone, Copy, Debug)]
enum There {
    /// It leads to this newborn object.
    Newborn(Oid),
    /// It leads to this object.
    Entry(Entry),
    /// Where it leads has to be asked for.
    Unclear,
}

/// What is known of a name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Name {
    /// Nothing.
    Unknown,
    /// It is not there, as long as this lease holds.
    Absent(LeasedNames),
    /// It leads to this newborn object.
    Newborn(Oid),
    /// It leads to this object, as long as this lease holds.
    Entry(LeasedNames, Entry),
}

impl Root {
    /// The lease of a name in this shard of a directory.
    fn of(self, dir: Oid, shard: u16) -> LeasedNames {
        match self {
            Self::Own => (dir, shard),
            Self::Above(root) => root,
        }
    }
}

/// A newborn object.
#[derive(Clone, Debug)]
pub(crate) struct Newborn {
    /// The lease that keeps others from it.
    pub(crate) root: LeasedNames,
    /// Where it was made.
    pub(crate) dir: Oid,
    pub(crate) attr: Attr,
    /// Whether an engine would tell the same attributes; else only owner, mode and length are so.
    pub(crate) is_exact: bool,
    /// Whether it would tell the same time of last change of its contents, even so.
    pub(crate) is_mtime_exact: bool,
    /// How often the object had been changed when they were.
    pub(crate) changes: u64,
    /// Bytes that have been sent to it.
    pub(crate) sent_bytes: u64,
}

#[derive(Debug, Default)]
struct State {
    /// A forked child knows nothing of what its parent does, and has numbers of its own.
    process: u32,
    /// Of the leases that this relies on.
    generation: u64,
    dirs: HashMap<Oid, Known>,
    objects: HashMap<Oid, Newborn>,
    /// What is in newborn files, where there is room for it.
    contents: HashMap<Oid, Contents>,
    serials: HashMap<TargetId, Range<u64>>,
    clocks: Clocks,
    lately: VecDeque<(Oid, Instant)>,
    /// When something was made under a lease last.
    last_made: Option<Instant>,
    refused: VecDeque<(Oid, Instant)>,
    /// Changes of names by requests that are waited for: how many are under way, and how many there were.
    namings: usize,
    namings_begun: u64,
}

impl State {
    /// Whether something has been made under a lease so lately that more of it is to be expected.
    fn goes_on(&self, round_trip: Duration, now: Instant) -> bool {
        let time = ON_AND_ON.max((round_trip * ON_AND_ON_ROUND_TRIPS).min(ON_AND_ON_MAX));
        self.last_made.is_some_and(|at| now.saturating_duration_since(at) < time)
    }
}

/// What is known of newborn objects.
#[derive(Debug)]
pub(crate) struct Newborns {
    state: Mutex<State>,
    contents_budget: Arc<Budget>,
    /// How many directories are known, to be read without the lock.
    count: AtomicUsize,
    /// Whoever answers for a new name has this until it is on its way.
    making: Mutex<()>,
}

impl Default for Newborns {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            contents_budget: Arc::new(Budget::new(CONTENTS_BYTES)),
            count: AtomicUsize::new(0),
            making: Mutex::new(()),
        }
    }
}

/// A change of names by a request that is waited for; over when dropped.
#[must_use = "the change is over when this is dropped"]
#[derive(Debug)]
pub(crate) struct Naming<'n>(&'n Newborns);

impl Drop for Naming<'_> {
    fn drop(&mut self) {
        self.0.state.lock().namings -= 1;
    }
}

/// A place for a new object.
#[derive(Clone, Debug)]
pub(crate) struct Cradle {
    pub(crate) root: LeasedNames,
    pub(crate) dir: Arc<Attr>,
    pub(crate) born: Timestamp,
    /// Whether that is not later than the engine's time when the change arrives there.
    pub(crate) is_clock_new: bool,
}

impl Newborns {
    /// Whether nothing is known.
    pub(crate) fn are_none(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// The state of this process.
    fn own_state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        if state.process != this_process() {
            *state = State { process: this_process(), ..State::default() };
            self.count.store(0, Ordering::SeqCst);
        }
        state
    }

    /// The state, if it relies on leases of this generation; else nothing is known.
    fn state(&self, generation: u64) -> MutexGuard<'_, State> {
        let mut state = self.own_state();
        if state.generation != generation {
            state.generation = generation;
            state.dirs.clear();
            state.objects.clear();
            state.contents.clear();
            self.count.store(0, Ordering::SeqCst);
        }
        state
    }

    /// Something was made in a directory by a request that was waited for; the engine's time was that of its
    /// birth, or later.
    pub(crate) fn note_made(&self, dir: Oid, made: &Attr, at: Moment) {
        let (mut state, now) = (self.own_state(), at.now);
        state.clocks.set(made.ctime, at);
        put_last(&mut state.lately, dir, now);
        if made.kind == FileKind::Directory {
            // It is there to be filled.
            put_last(&mut state.lately, made.oid, now);
        }
    }

    /// Where a name leads that was made by a request that was waited for.
    pub(crate) fn note_entry(&self, dir: Oid, name: &[u8], made: &Attr) {
        if !self.are_none()
            && let Some(known) = self.own_state().dirs.get_mut(&dir)
            && let Some(there) = known.names.get_mut(name)
        {
            *there = There::Entry(Entry { oid: made.oid, kind: made.kind });
        }
    }

    /// Whether something was made in a directory a moment ago, so that more of it is to be expected.
    pub(crate) fn was_made_in(&self, dir: Oid, round_trip: Duration, now: Instant) -> bool {
        let time = LATELY.max(round_trip * LATELY_ROUND_TRIPS);
        is_within(&self.own_state().lately, dir, time, now)
    }

    /// Whether it is worth to lease the names of a directory in which something is made.
    pub(crate) fn is_worth_a_lease(&self, dir: Oid, round_trip: Duration, now: Instant) -> bool {
        let state = self.own_state();
        let within = |list, time| is_within(list, dir, time, now);
        let goes_on = state.goes_on(round_trip, now);
        (goes_on || within(&state.lately, LATELY.max(round_trip * LATELY_ROUND_TRIPS)))
            && !within(&state.refused, REFUSAL)
    }

    /// Whether nothing has been made for a while.
    pub(crate) fn are_idle(&self, round_trip: Duration, now: Instant) -> bool {
        !self.own_state().goes_on(round_trip, now)
    }

    /// No lease of the names of this directory is to be asked for, for a while.
    pub(crate) fn refuse(&self, dir: Oid, now: Instant) {
        put_last(&mut self.own_state().refused, dir, now);
    }

    /// Keeps other threads from making names that are answered for before they have arrived.
    pub(crate) fn make(&self) -> MutexGuard<'_, ()> {
        self.making.lock()
    }

    /// The same, unless another thread has it just now.
    pub(crate) fn try_make(&self) -> Option<MutexGuard<'_, ()>> {
        self.making.try_lock()
    }

    /// Names are about to change by a request that is waited for; `new`: one that may be made.
    pub(crate) fn begin_naming(&self, new: Option<(Oid, &[u8])>) -> Naming<'_> {
        // Who answers for this name has sent it, or finds it here.
        let _alone = self.making.lock();
        let mut state = self.own_state();
        state.namings += 1;
        state.namings_begun += 1;
        if let Some((dir, name)) = new
            && let Some(known) = state.dirs.get_mut(&dir)
        {
            known.names.insert(name.into(), There::Unclear);
        }
        Naming(self)
    }

    /// How often names had been changed, unless some are being changed now: to be asked before a directory is
    /// listed.
    pub(crate) fn namings_begun(&self) -> Option<u64> {
        let state = self.own_state();
        (state.namings == 0).then_some(state.namings_begun)
    }

    /// The names of a directory are leased, and these are all that are there, unless this process has changed
    /// some meanwhile: false then.
    pub(crate) fn keep_leased(
        &self,
        generation: u64,
        attr: Arc<Attr>,
        names: impl Iterator<Item = (Vec<u8>, Entry)>,
        namings_begun: u64,
    ) -> bool {
        let mut state = self.state(generation);
        if state.namings_begun != namings_begun {
            return false;
        }
        let names = names.map(|(name, entry)| (name.into(), There::Entry(entry))).collect();
        state.dirs.insert(attr.oid, Known { root: Root::Own, attr, names });
        self.count.store(state.dirs.len(), Ordering::SeqCst);
        true
    }

    /// Where a name can be made, if it is certain that it is not there; from now on it is. `shard`: that of
    /// the name.
    pub(crate) fn cradle(
        &self,
        generation: u64,
        (dir, name): (Oid, &[u8]),
        shard: u16,
        at: Moment,
    ) -> Option<Cradle> {
        let mut state = self.state(generation);
        let is_full = state.objects.len() >= OBJECTS_MAX;
        let (born, is_clock_new) = state.clocks.time(at)?;
        let known = state.dirs.get_mut(&dir)?;
        if is_full || known.names.contains_key(name) {
            return None;
        }
        known.names.insert(name.into(), There::Unclear);
        let root = known.root.of(dir, shard);
        Some(Cradle { root, dir: Arc::clone(&known.attr), born, is_clock_new })
    }

    /// The lease on which what is known of a name in this shard of a directory relies.
    pub(crate) fn root(&self, generation: u64, dir: Oid, shard: u16) -> Option<LeasedNames> {
        Some(self.state(generation).dirs.get(&dir)?.root.of(dir, shard))
    }

    /// Whether all names of a directory are known.
    pub(crate) fn knows_names(&self, generation: u64, dir: Oid) -> bool {
        self.state(generation).dirs.contains_key(&dir)
    }

    /// The directory whose names are known, as far as creations in it are judged by it, if it is newborn.
    pub(crate) fn directory(&self, generation: u64, dir: Oid) -> Option<(LeasedNames, Arc<Attr>)> {
        let state = self.state(generation);
        let Known { root: Root::Above(root), attr, .. } = state.dirs.get(&dir)? else {
            return None;
        };
        Some((*root, Arc::clone(attr)))
    }

    /// A number for an object at this target.
    pub(crate) fn take_serial(&self, target: TargetId) -> Option<u64> {
        self.own_state().serials.get_mut(&target).and_then(Iterator::next)
    }

    /// How many numbers are left.
    pub(crate) fn serials_left(&self, target: TargetId) -> u64 {
        self.own_state().serials.get(&target).map_or(0, |left| left.end - left.start)
    }

    /// Numbers for objects at a target, in place of those that are left.
    pub(crate) fn keep_serials(&self, target: TargetId, serials: Range<u64>) {
        self.own_state().serials.insert(target, serials);
    }

    /// A newborn object, with its name; made just now.
    pub(crate) fn add(
        &self,
        generation: u64,
        (dir, name): (Oid, &[u8]),
        root: LeasedNames,
        attr: &Attr,
        (is_exact, changes): (bool, u64),
        now: Instant,
    ) {
        let mut state = self.state(generation);
        state.last_made = Some(now);
        // Once the lease has been given back its next one is worth it as before.
        put_last(&mut state.lately, root.0, now);
        let Some(above) = state.dirs.get_mut(&dir) else { return };
        above.names.insert(name.into(), There::Newborn(attr.oid));
        if let Some(parent) = state.objects.get_mut(&dir) {
            // Its times and links are others now.
            parent.is_exact = false;
        }
        let newborn = Newborn {
            root,
            dir,
            attr: attr.clone(),
            is_exact,
            is_mtime_exact: is_exact,
            changes,
            sent_bytes: 0,
        };
        state.objects.insert(attr.oid, newborn);
        if attr.kind == FileKind::Regular {
            state.contents.insert(attr.oid, Contents::of_empty(&self.contents_budget));
        }
        if attr.inheritance.is_some() {
            let attr = Arc::new(attr.clone());
            let known = Known { root: Root::Above(root), attr, names: HashMap::new() };
            state.dirs.insert(known.attr.oid, known);
        }
        self.count.store(state.dirs.len(), Ordering::SeqCst);
    }

    /// A newborn object.
    pub(crate) fn known(&self, generation: u64, oid: Oid) -> Option<Newborn> {
        self.state(generation).objects.get(&oid).cloned()
    }

    /// What is known of a name. `shard`: that of the name.
    pub(crate) fn named(&self, generation: u64, (dir, name): (Oid, &[u8]), shard: u16) -> Name {
        let state = self.state(generation);
        let Some(known) = state.dirs.get(&dir) else { return Name::Unknown };
        let root = known.root.of(dir, shard);
        match known.names.get(name) {
            None => Name::Absent(root),
            Some(There::Newborn(oid)) => Name::Newborn(*oid),
            Some(There::Entry(entry)) => Name::Entry(root, *entry),
            Some(There::Unclear) => Name::Unknown,
        }
    }

    /// The attributes of a newborn object have changed; only its times are not certain, that of the last change of
    /// its contents perhaps.
    pub(crate) fn change(&self, attr: &Attr, changes: u64, mtime: Option<SetTime>) {
        let mut state = self.own_state();
        if let Some(newborn) = state.objects.get_mut(&attr.oid) {
            newborn.attr = attr.clone();
            (newborn.is_exact, newborn.changes) = (false, changes);
            match mtime {
                None => {}
                Some(SetTime::At(_)) => newborn.is_mtime_exact = true,
                Some(SetTime::Now) => newborn.is_mtime_exact = false,
            }
        }
        if let Some(names) = state.dirs.get_mut(&attr.oid) {
            names.attr = Arc::new(attr.clone());
        }
    }

    /// Bytes were sent to a newborn file.
    pub(crate) fn note_sent(&self, oid: Oid, (offset, data): (u64, &[u8]), changes: u64) {
        let mut state = self.own_state();
        if let Some(newborn) = state.objects.get_mut(&oid) {
            newborn.sent_bytes += data.len() as u64;
            newborn.attr.size = newborn.attr.size.max(offset + data.len() as u64);
            // As most file systems would have it without holes.
            newborn.attr.blocks_512 = newborn.attr.size.div_ceil(BLOCK_BYTES) * (BLOCK_BYTES / 512);
            (newborn.is_exact, newborn.is_mtime_exact) = (false, false);
            newborn.changes = changes;
        }
        if state.contents.get_mut(&oid).is_some_and(|contents| !contents.write(offset, data)) {
            state.contents.remove(&oid);
        }
    }

    /// Whether an engine is to be asked for its time.
    pub(crate) fn wants_time(&self, at: Moment) -> bool {
        self.own_state().clocks.is_wanted(at)
    }

    /// An engine has told its time.
    pub(crate) fn note_time(&self, time: Timestamp, at: Moment) {
        self.own_state().clocks.set(time, at);
    }

    /// An engine has told when something was changed that has just been sent.
    pub(crate) fn note_change(&self, changed: Timestamp, at: Moment) {
        self.own_state().clocks.note_change(changed, at);
    }

    /// The engine's time as it is counted on here, if that is not later than it will be there.
    pub(crate) fn engine_time(&self, at: Moment) -> Option<Timestamp> {
        let (time, is_new) = self.own_state().clocks.time(at)?;
        is_new.then_some(time)
    }

    /// The times of a newborn file are told to the engine as those in these attributes: so they are exact.
    pub(crate) fn settle(&self, attr: &Attr, changes: u64) {
        let mut state = self.own_state();
        if let Some(newborn) = state.objects.get_mut(&attr.oid) {
            newborn.attr = attr.clone();
            (newborn.is_exact, newborn.is_mtime_exact) = (true, true);
            newborn.changes = changes;
        }
    }

    /// Reads at an offset what was sent to a newborn file, if all of it is kept; fewer bytes only at the end.
    pub(crate) fn read(&self, oid: Oid, offset: u64, buffer: &mut [u8]) -> Option<usize> {
        Some(self.own_state().contents.get(&oid)?.read(offset, buffer))
    }
}

/// Whether something happened to a directory within a time.
fn is_within(list: &VecDeque<(Oid, Instant)>, dir: Oid, time: Duration, now: Instant) -> bool {
    let is_young = |at: Instant| now.saturating_duration_since(at) < time;
    list.iter().any(|(other, at)| *other == dir && is_young(*at))
}

/// Puts a directory at the end of those that something happened to.
fn put_last(list: &mut VecDeque<(Oid, Instant)>, dir: Oid, now: Instant) {
    list.retain(|(other, _)| *other != dir);
    if list.len() >= LATELY_MAX {
        list.pop_front();
    }
    list.push_back((dir, now));
}
