//! Leases on shards: promises to a client that may be far away. Owns the rules that keep them without
//! a call back to anybody; what they are for is the client's business.
//!
//! A *read lease* says that the data do not change for a moment, so that what was read ahead may be used
//! without asking again. A change by anybody else waits until it has run out, and after that none is given
//! for a while: a shard that is read by some and written by others is simply not read ahead. Of a directory's
//! shard it says that names in it which do not lead to directories stay, and lead where they lead; or, if it is one of
//! *all names*, that no name there comes, goes or leads elsewhere.
//!
//! A *write lease* says that nobody else looks at the shard or changes it for a moment, so that writes may
//! be answered to a program before they are here. It has one holder. Anybody else waits until it has run
//! out or was given back; once somebody has, its epoch is over, and writes under it are refused. Of a
//! directory's shard it says so of the names in it, and what is written under it are new objects.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use azekura_platform::{SharedPlatform, Signal};
use azekura_proto::limits::{LEASE_REFUSAL_MS, LEASES_MAX, READ_LEASE_MS, WRITE_LEASE_MS};
use azekura_proto::message::Reply;
use azekura_proto::{Oid, SessionId};
use parking_lot::{Mutex, MutexGuard};

#[cfg(test)]
mod tests;

const READ: Duration = Duration::from_millis(READ_LEASE_MS);
const WRITE: Duration = Duration::from_millis(WRITE_LEASE_MS);
/// For this long after somebody else had to wait for a lease none is given; and as long as changes follow
/// each other faster than that.
const REFUSAL: Duration = Duration::from_millis(LEASE_REFUSAL_MS);
/// So often it is tried to have a shard alone once the leases of others were waited for.
const TRIES_AFTER_WAITING: usize = 20;
const PAUSE_BETWEEN_TRIES: Duration = Duration::from_millis(1);
/// Counters of changes under way.
const STRIPES: usize = 256;
/// Bits of a version below the number of the boot.
const BOOT_SHIFT: u32 = 40;

/// A shard of an object: of a file's data, or of a directory's names.
pub(crate) type Key = (Oid, u16);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Readers {
    One(SessionId),
    Several,
}

/// The holder of a write lease. Stays, also when the lease has run out, until somebody else comes.
#[derive(Debug)]
struct Writer {
    session: SessionId,
    epoch: u64,
    until: Instant,
    /// Writes under the lease that are being carried out.
    under_way: u32,
    /// Somebody waits: it is not renewed any more.
    waited_for: bool,
}

impl Writer {
    fn is_over(&self, now: Instant) -> bool {
        self.until <= now && self.under_way == 0
    }
}

#[derive(Debug)]
struct Entry {
    readers: Readers,
    /// The one reader has gone, and nobody has asked for a lease since.
    reader_left: bool,
    read_until: Instant,
    /// The same of those who rely on all names, also on what is not there.
    all_names_until: Instant,
    reading_refused_until: Option<Instant>,
    version: u64,
    writer: Option<Writer>,
    writing_refused_until: Option<Instant>,
}

impl Entry {
    /// Somebody waits for the readers: for a while they get no lease.
    fn refuse_readers(&mut self) {
        // Whoever has gone shares the shard with nobody; but the lease is kept.
        let pause = if self.reader_left { Duration::ZERO } else { REFUSAL };
        self.reading_refused_until = self.reading_refused_until.max(Some(self.read_until + pause));
    }

    /// Somebody else changes the shard and waits for nobody: as long as that goes on the readers get no lease.
    fn go_on_refusing(&mut self, now: Instant) {
        if self.reading_refused_until.is_some_and(|until| until > now) {
            self.reading_refused_until = Some(now + REFUSAL);
        }
    }

    /// Whether a session has the read lease alone.
    fn is_read_by(&self, who: Option<SessionId>) -> bool {
        who.is_some_and(|session| self.readers == Readers::One(session))
    }

    fn is_of_use(&self, now: Instant) -> bool {
        let lies_ahead = |until: Option<Instant>| until.is_some_and(|until| until > now);
        self.read_until > now
            || lies_ahead(self.reading_refused_until)
            || lies_ahead(self.writing_refused_until)
            || self.writer.as_ref().is_some_and(|writer| !writer.is_over(now))
    }
}

/// What a client is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Granted {
    /// How long the promise holds; zero if there is none.
    pub(crate) lease: Duration,
    /// Of a read lease: differs from an earlier one if the data may have changed in between. Of a
    /// write lease: its epoch.
    pub(crate) version: u64,
}

impl From<Granted> for Reply {
    fn from(granted: Granted) -> Self {
        Self::Leased { lease_ms: granted.lease.as_millis() as u32, version: granted.version }
    }
}

/// Which leases an earlier run of the engine may have given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Given {
    pub(crate) read: bool,
    /// Of data.
    pub(crate) write: bool,
    /// Write leases of names.
    pub(crate) names: bool,
}

/// What a write lease is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Of {
    Data,
    Names,
}

type Entries = HashMap<Key, Entry>;

/// The leases of a target.
#[derive(Debug)]
pub(crate) struct Leases {
    platform: SharedPlatform,
    entries: Mutex<Entries>,
    ended: Signal,
    /// Lets changes pass without the lock while nobody has a lease.
    count: AtomicUsize,
    /// Lets reads pass without the lock while nobody has a write lease.
    writers: AtomicUsize,
    /// Changes that are being carried out without a lease, by a part of the key: while there are any no
    /// read lease is given, since what is read then may change under it.
    changing: [AtomicUsize; STRIPES],
    /// Never the same for two states of one shard, in this run or an earlier one.
    versions: AtomicU64,
    boot: u64,
    /// Until then leases of an earlier run of the engine may hold.
    read_grace_until: Option<Instant>,
    write_grace_until: Option<Instant>,
    names_grace_until: Option<Instant>,
}

/// A change without a lease that is being carried out; over when dropped.
#[derive(Debug)]
pub(crate) struct Change<'l> {
    changing: &'l AtomicUsize,
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.changing.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The numbers of objects that are made side by side differ by whole blocks of numbers, or by little: neither may decide
/// (Knuth, The Art of Computer Programming, 6.4: multiplicative hashing).
fn stripe((oid, shard): Key) -> usize {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let key = oid.inode_number().wrapping_add(u64::from(shard));
    (key.wrapping_mul(GOLDEN) >> 32) as usize % STRIPES
}

impl Leases {
    /// Without leases. `boot`: how often the target has been started; `earlier`: what the run before
    /// may have given that still holds.
    pub(crate) fn new(platform: SharedPlatform, boot: u64, earlier: Given) -> Self {
        let now = platform.now();
        Self {
            entries: Mutex::default(),
            ended: Signal::new(),
            count: AtomicUsize::new(0),
            writers: AtomicUsize::new(0),
            changing: std::array::from_fn(|_| AtomicUsize::new(0)),
            versions: AtomicU64::new(boot << BOOT_SHIFT),
            boot,
            read_grace_until: earlier.read.then(|| now + READ),
            write_grace_until: earlier.write.then(|| now + WRITE),
            names_grace_until: earlier.names.then(|| now + WRITE),
            platform,
        }
    }

    fn forget_writer(&self) {
        let before = self.writers.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "every holder of a write lease is counted");
    }

    fn draw_version(&self) -> u64 {
        self.versions.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn write_grace_until(&self, of: Of) -> Option<Instant> {
        match of {
            Of::Data => self.write_grace_until,
            Of::Names => self.names_grace_until,
        }
    }

    fn is_in_write_grace(&self, of: Of, now: Instant) -> bool {
        self.write_grace_until(of).is_some_and(|until| until > now)
    }

    /// The entry of a shard, made for a session if there is room.
    fn entry<'e>(
        &self,
        entries: &'e mut Entries,
        key: Key,
        session: SessionId,
    ) -> Option<&'e mut Entry> {
        let now = self.platform.now();
        if entries.len() >= LEASES_MAX && !entries.contains_key(&key) {
            entries.retain(|_, entry| entry.is_of_use(now));
            let writers = entries.values().filter(|entry| entry.writer.is_some()).count();
            self.writers.store(writers, Ordering::SeqCst);
            if entries.len() >= LEASES_MAX {
                return None;
            }
        }
        let count = entries.len();
        Some(entries.entry(key).or_insert_with(|| {
            self.count.store(count + 1, Ordering::SeqCst);
            Entry {
                readers: Readers::One(session),
                reader_left: false,
                read_until: now,
                all_names_until: now,
                reading_refused_until: None,
                version: self.draw_version(),
                writer: None,
                writing_refused_until: None,
            }
        }))
    }

    /// Gives or renews a read lease. `others_write`: whether somebody may change the data who does not ask here.
    pub(crate) fn grant_read(
        &self,
        key: Key,
        session: SessionId,
        others_write: impl FnOnce() -> bool,
    ) -> Granted {
        self.sit_out_write_grace(Of::Data, key, Some(session));
        self.grant_read_of(key, session, others_write, false)
    }

    /// Gives or renews a read lease of all names of a directory's shard. Who is making a name just then has not seen
    /// it: what is looked up under it has to wait for that.
    pub(crate) fn grant_all_names(&self, key: Key, session: SessionId) -> Granted {
        self.sit_out_write_grace(Of::Names, key, Some(session));
        self.grant_read_of(key, session, || false, true)
    }

    fn grant_read_of(
        &self,
        key: Key,
        session: SessionId,
        others_write: impl FnOnce() -> bool,
        of_all_names: bool,
    ) -> Granted {
        let mut entries = self.entries.lock();
        self.wait_for_writer(&mut entries, key, Some(session));
        let Some(entry) = self.entry(&mut entries, key, session) else {
            return Granted { lease: Duration::ZERO, version: self.draw_version() };
        };
        let now = self.platform.now();
        let version = entry.version;
        // After the entry is there: a change that has not seen it is counted.
        if self.changing[stripe(key)].load(Ordering::SeqCst) > 0 || others_write() {
            return Granted { lease: Duration::ZERO, version: self.draw_version() };
        }
        if entry.reading_refused_until.is_some_and(|until| until > now) {
            return Granted { lease: Duration::ZERO, version };
        }
        entry.reading_refused_until = None;
        if entry.read_until <= now {
            entry.readers = Readers::One(session);
        } else if entry.readers != Readers::One(session) {
            entry.readers = Readers::Several;
        }
        entry.reader_left = false;
        entry.read_until = now + READ;
        if of_all_names {
            entry.all_names_until = entry.read_until;
        }
        Granted { lease: READ, version }
    }

    /// Gives a write lease, never by waiting for others; always under a new epoch, so that nothing of
    /// an earlier one that comes late (a write, a release) has to do with it. `instead_of`: the epoch
    /// that the client had. What is under way of it is waited for, what comes later is refused; if
    /// somebody else has been here since, the client gets no lease. `others_look`: whether somebody may look
    /// at the shard who does not ask here.
    pub(crate) fn grant_write(
        &self,
        key: Key,
        session: SessionId,
        instead_of: Option<u64>,
        others_look: impl FnOnce() -> bool,
    ) -> Granted {
        self.grant_write_of(Of::Data, key, (session, instead_of), others_look)
    }

    /// The same, of names.
    pub(crate) fn grant_names(
        &self,
        key: Key,
        session: SessionId,
        instead_of: Option<u64>,
    ) -> Granted {
        self.grant_write_of(Of::Names, key, (session, instead_of), || false)
    }

    fn grant_write_of(
        &self,
        of: Of,
        key: Key,
        (session, instead_of): (SessionId, Option<u64>),
        others_look: impl FnOnce() -> bool,
    ) -> Granted {
        let refused = Granted { lease: Duration::ZERO, version: 0 };
        let mut entries = self.entries.lock();
        self.await_own(&mut entries, key, session);
        let writer = entries.get(&key).and_then(|entry| entry.writer.as_ref());
        if let Some(old) = instead_of {
            let is_current = match writer {
                Some(writer) => writer.session == session && writer.epoch == old,
                None => self.was_given_before(of, old),
            };
            if !is_current {
                return refused;
            }
        } else if self.is_in_write_grace(of, self.platform.now())
            // What is written under it would not wait for those who read under leases of an earlier run.
            || of == Of::Data && self.is_in_read_grace()
        {
            return refused;
        }
        let Some(entry) = self.entry(&mut entries, key, session) else { return refused };
        let now = self.platform.now();
        let others_read = entry.read_until > now && entry.readers != Readers::One(session);
        let is_refused = entry.writing_refused_until.is_some_and(|until| until > now);
        if others_read || is_refused || others_look() {
            if let Some(writer) = entry.writer.as_mut().filter(|w| w.session == session) {
                // Others wait for it as before, but what comes late under the old epoch must not
                // land on what the client writes from now on. The new one is told to nobody.
                writer.epoch = self.draw_version();
            }
            return refused;
        }
        match &entry.writer {
            Some(writer) if writer.session != session && !writer.is_over(now) => return refused,
            Some(_) => {}
            None => {
                self.writers.fetch_add(1, Ordering::SeqCst);
            }
        }
        let epoch = self.draw_version();
        assert!(entry.writer.as_ref().is_none_or(|old| old.epoch < epoch && old.under_way == 0));
        let until = now + WRITE;
        entry.writer = Some(Writer { session, epoch, until, under_way: 0, waited_for: false });
        Granted { lease: WRITE, version: epoch }
    }

    /// Does something that lets others look at a shard without asking here, while nobody gets a write lease
    /// of it. `None`, and it is not done, while anybody has one.
    pub(crate) fn while_unwritten<T>(&self, key: Key, act: impl FnOnce() -> T) -> Option<T> {
        let mut entries = self.entries.lock();
        self.has_no_writer(&mut entries, key).then(act)
    }

    /// Does something that lets a session change a shard without asking here, while nobody else gets a lease
    /// of it. `None`, and it is not done, while anybody else relies on the shard or changes it; with `wait`
    /// their leases are waited for.
    pub(crate) fn while_unused<T>(
        &self,
        key: Key,
        session: SessionId,
        wait: bool,
        act: impl FnOnce() -> T,
    ) -> Option<T> {
        let tries = if wait { TRIES_AFTER_WAITING } else { 1 };
        for _ in 0..tries {
            if wait {
                drop(self.before_write(key, Some(session)));
            }
            let mut entries = self.entries.lock();
            if self.is_unused(&mut entries, key, session) {
                return Some(act());
            }
            drop(entries);
            if wait {
                self.platform.sleep(PAUSE_BETWEEN_TRIES);
            }
        }
        None
    }

    /// Whether nobody but a session relies on a shard or changes it. What was known of it before is not true for
    /// long then.
    fn is_unused(&self, entries: &mut Entries, key: Key, session: SessionId) -> bool {
        if self.is_in_read_grace()
            || !self.has_no_writer(entries, key)
            || self.changing[stripe(key)].load(Ordering::SeqCst) > 0
        {
            return false;
        }
        let Some(entry) = entries.get_mut(&key) else { return true };
        let is_read = entry.read_until > self.platform.now();
        if is_read && entry.readers != Readers::One(session) {
            return false;
        }
        // Its own lease, too, says more than is true from now on.
        entry.read_until = entry.read_until.min(self.platform.now());
        entry.version = self.draw_version();
        true
    }

    /// Whether nobody has the write lease of a shard. One that is over is forgotten: what comes late under its
    /// epoch would not be waited for.
    fn has_no_writer(&self, entries: &mut Entries, key: Key) -> bool {
        let now = self.platform.now();
        if self.is_in_write_grace(Of::Data, now) {
            return false;
        }
        if let Some(entry) = entries.get_mut(&key)
            && let Some(writer) = &entry.writer
        {
            if !writer.is_over(now) {
                return false;
            }
            entry.writer = None;
            self.forget_writer();
        }
        true
    }

    /// Whether the last run may have given this epoch, and nobody but its holder can have come since.
    fn was_given_before(&self, of: Of, epoch: u64) -> bool {
        self.is_in_write_grace(of, self.platform.now())
            && epoch >> BOOT_SHIFT == self.boot.wrapping_sub(1)
    }

    /// A write under a lease begins; to be ended by [`Leases::end_write`]. Renews the lease. `None` if
    /// the epoch is over: nothing may be written.
    pub(crate) fn begin_write(&self, key: Key, session: SessionId, epoch: u64) -> Option<Granted> {
        let mut entries = self.entries.lock();
        let entry = entries.get_mut(&key)?;
        let writer = entry.writer.as_mut()?;
        if writer.session != session || writer.epoch != epoch {
            return None;
        }
        writer.under_way += 1;
        let lease = if writer.waited_for { Duration::ZERO } else { WRITE };
        if !writer.waited_for {
            writer.until = self.platform.now() + WRITE;
        }
        entry.version = self.draw_version();
        Some(Granted { lease, version: epoch })
    }

    /// The write that was begun under this epoch has been carried out.
    pub(crate) fn end_write(&self, key: Key, epoch: u64) {
        let mut entries = self.entries.lock();
        let writer = entries.get_mut(&key).and_then(|entry| entry.writer.as_mut());
        // The session may be over, and somebody else have the lease.
        if let Some(writer) = writer.filter(|writer| writer.epoch == epoch) {
            assert!(writer.under_way > 0, "an epoch ends after the writes under it");
            writer.under_way -= 1;
            if writer.under_way == 0 {
                self.ended.notify_all();
            }
        }
    }

    /// The holder gives its lease back.
    pub(crate) fn release(&self, key: Key, session: SessionId, epoch: u64) {
        let mut entries = self.entries.lock();
        self.await_own(&mut entries, key, session);
        let Some(entry) = entries.get_mut(&key) else { return };
        let is_held = |writer: &mut Writer| writer.session == session && writer.epoch == epoch;
        if entry.writer.take_if(is_held).is_some() {
            self.forget_writer();
            self.ended.notify_all();
        }
    }

    /// The last connection of a session has closed: nobody reads under its leases now. They hold all the
    /// same, as its client may come back.
    pub(crate) fn reader_left(&self, session: SessionId) {
        for entry in self.entries.lock().values_mut() {
            entry.reader_left |= entry.readers == Readers::One(session);
        }
    }

    /// A session is over: nobody relies on its leases any more.
    pub(crate) fn drop_session(&self, session: SessionId) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut entries = self.entries.lock();
        let now = self.platform.now();
        for entry in entries.values_mut() {
            if entry.readers == Readers::One(session) {
                entry.read_until = entry.read_until.min(now);
                entry.all_names_until = entry.all_names_until.min(now);
            }
            if entry.writer.take_if(|writer| writer.session == session).is_some() {
                self.forget_writer();
            }
        }
        self.ended.notify_all();
    }

    /// To be called before somebody looks at a shard: waits for the write lease of anybody else.
    /// `who`: the session, if it is a client that has one.
    pub(crate) fn before_read(&self, key: Key, who: Option<SessionId>) {
        self.wait_to_look(Of::Data, key, who);
    }

    /// The same before somebody looks at names of a directory's shard, or changes some.
    pub(crate) fn before_look_up(&self, key: Key, who: Option<SessionId>) {
        self.wait_to_look(Of::Names, key, who);
    }

    fn wait_to_look(&self, of: Of, key: Key, who: Option<SessionId>) {
        self.sit_out_write_grace(of, key, who);
        if self.writers.load(Ordering::SeqCst) > 0 {
            self.wait_for_writer(&mut self.entries.lock(), key, who);
        }
    }

    /// To be called before a shard changes: waits until nobody but the writer relies on it, and keeps
    /// others from it until what it gives is dropped. `writer`: its session, if it is a client that has
    /// one.
    pub(crate) fn before_write(&self, key: Key, writer: Option<SessionId>) -> Change<'_> {
        let changing = &self.changing[stripe(key)];
        // Before it is seen whether anybody has a lease.
        changing.fetch_add(1, Ordering::SeqCst);
        let change = Change { changing };
        self.wait_to_write(key, writer);
        change
    }

    /// To be called, with a name of a directory's shard kept from everybody else, before that name goes or
    /// leads elsewhere: `None` while somebody but `who` relies on the names, so that whoever asks has to
    /// come back. Until then nobody gets a lease of them, nor until what this gives is dropped.
    pub(crate) fn try_change(&self, key: Key, who: Option<SessionId>) -> Option<Change<'_>> {
        let changing = &self.changing[stripe(key)];
        // Before it is seen whether anybody has a lease.
        changing.fetch_add(1, Ordering::SeqCst);
        let change = Change { changing };
        let now = self.platform.now();
        if self.is_in_read_grace() {
            return None;
        }
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(&key) else { return Some(change) };
        if entry.read_until <= now || entry.is_read_by(who) {
            entry.version = self.draw_version();
            return Some(change);
        }
        entry.refuse_readers();
        None
    }

    /// Whether somebody but `who` has the write lease of a shard of names, who is told then that it is waited for: so
    /// whoever asks has to come back.
    pub(crate) fn is_withheld(&self, key: Key, who: Option<SessionId>) -> bool {
        let now = self.platform.now();
        let in_grace = self.is_in_write_grace(Of::Names, now);
        if !in_grace && self.writers.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let mut entries = self.entries.lock();
        if self.ask_to_end(&mut entries, key, who).is_some() {
            return true;
        }
        let writer = entries.get(&key).and_then(|entry| entry.writer.as_ref());
        in_grace && writer.is_none()
    }

    /// Whether somebody but `who` relies on a name of a directory's shard not being there: so whoever wants to make one
    /// has to come back. Until then nobody gets a lease of the names.
    pub(crate) fn keeps_names_away(&self, key: Key, who: Option<SessionId>) -> bool {
        self.is_in_read_grace()
            || self.count.load(Ordering::SeqCst) > 0
                && self.keeps_away_until(&mut self.entries.lock(), key, who).is_some()
    }

    /// Waits until nobody does. To be called without the namespace lock, before [`Leases::keeps_names_away`].
    pub(crate) fn before_insert(&self, key: Key, who: Option<SessionId>) {
        if let Some(until) = self.read_grace_until {
            self.sleep_until(until);
        }
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut entries = self.entries.lock();
        while let Some(until) = self.keeps_away_until(&mut entries, key, who) {
            self.ended.wait_until(&*self.platform, &mut entries, until);
        }
    }

    fn keeps_away_until(
        &self,
        entries: &mut Entries,
        key: Key,
        who: Option<SessionId>,
    ) -> Option<Instant> {
        let entry = entries.get_mut(&key)?;
        if entry.is_read_by(who) {
            return None;
        }
        let (until, now) = (entry.all_names_until, self.platform.now());
        if until <= now {
            entry.go_on_refusing(now);
            return None;
        }
        entry.refuse_readers();
        Some(until)
    }

    /// Whether read leases of an earlier run of the engine may hold.
    fn is_in_read_grace(&self) -> bool {
        self.read_grace_until.is_some_and(|until| until > self.platform.now())
    }

    fn wait_to_write(&self, key: Key, writer: Option<SessionId>) {
        if let Some(until) = self.read_grace_until {
            self.sleep_until(until);
        }
        self.sit_out_write_grace(Of::Data, key, writer);
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut entries = self.entries.lock();
        loop {
            self.wait_for_writer(&mut entries, key, writer);
            let Some(entry) = entries.get_mut(&key) else { return };
            let now = self.platform.now();
            let is_own = entry.is_read_by(writer);
            if entry.read_until <= now || is_own {
                // Whoever waits for nobody shares the file with nobody: leases go on being given.
                if !is_own {
                    entry.go_on_refusing(now);
                }
                entry.version = self.draw_version();
                return;
            }
            let until = entry.read_until;
            entry.refuse_readers();
            self.ended.wait_until(&*self.platform, &mut entries, until);
        }
    }

    /// Whether whoever looks at a shard has to wait for the write lease of somebody else. `who`: as
    /// for [`Leases::before_read`].
    pub(crate) fn would_wait(&self, key: Key, who: Option<SessionId>) -> bool {
        let now = self.platform.now();
        let in_grace = self.is_in_write_grace(Of::Data, now);
        if !in_grace && self.writers.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let entries = self.entries.lock();
        match entries.get(&key).and_then(|entry| entry.writer.as_ref()) {
            Some(writer) => who != Some(writer.session) && (in_grace || !writer.is_over(now)),
            None => in_grace,
        }
    }

    /// After a restart everybody waits for the write leases of the last run, but for whoever has
    /// taken its own up again.
    fn sit_out_write_grace(&self, of: Of, key: Key, who: Option<SessionId>) {
        let Some(until) = self.write_grace_until(of) else { return };
        if until <= self.platform.now() {
            return;
        }
        let entries = self.entries.lock();
        let holder = entries.get(&key).and_then(|entry| entry.writer.as_ref());
        let is_own = holder.is_some_and(|writer| who == Some(writer.session));
        drop(entries);
        if !is_own {
            self.sleep_until(until);
        }
    }

    /// Waits until nobody else has the write lease; its epoch is over then.
    fn wait_for_writer(
        &self,
        entries: &mut MutexGuard<'_, Entries>,
        key: Key,
        who: Option<SessionId>,
    ) {
        while let Some(until) = self.ask_to_end(entries, key, who) {
            self.ended.wait_until(&*self.platform, entries, until);
        }
    }

    /// Tells whoever else has the write lease that it is waited for: until when to wait for its end. `None` if
    /// nobody has it (any more).
    fn ask_to_end(
        &self,
        entries: &mut Entries,
        key: Key,
        who: Option<SessionId>,
    ) -> Option<Instant> {
        let entry = entries.get_mut(&key)?;
        let writer = entry.writer.as_mut().filter(|writer| who != Some(writer.session))?;
        let now = self.platform.now();
        if writer.is_over(now) {
            entry.writer = None;
            self.forget_writer();
            return None;
        }
        writer.waited_for = true;
        // A write under way that outlasts its lease says when it ends.
        let until = writer.until.max(now + Duration::from_millis(1));
        entry.writing_refused_until = Some(until + REFUSAL);
        Some(until)
    }

    /// Waits until no write of the holder's own is under way: one that came over another connection.
    fn await_own(&self, entries: &mut MutexGuard<'_, Entries>, key: Key, session: SessionId) {
        let is_busy = |entry: &Entry| {
            entry.writer.as_ref().is_some_and(|w| w.session == session && w.under_way > 0)
        };
        while entries.get(&key).is_some_and(is_busy) {
            // Its end is announced; the limit only bounds how long a lost word is waited for.
            self.ended.wait_for(&*self.platform, entries, WRITE);
        }
    }

    fn sleep_until(&self, until: Instant) {
        let left = until.saturating_duration_since(self.platform.now());
        if !left.is_zero() {
            self.platform.sleep(left);
        }
    }
}
