//! Leases of all names of a directory in which this process makes things. Owns when one is worth its round trip, and
//! what is asked for with it: the names that are there, and numbers for new objects. What is done under it is the
//! business of [`super::in_flight`].

use std::sync::Arc;
use std::time::Duration;

use azekura_client::{Batch, Call, ClientError, LeasedNames};
use azekura_proto::attr::FileKind;
use azekura_proto::limits::SERIALS_MAX;
use azekura_proto::message::typed::{
    AllocateSerials, Found, GetAttr, LeaseWrite, Leased, Lookup, ReadDirectory, Time,
};
use azekura_proto::message::{DirEntry, ShardRef};
use azekura_proto::{Attr, EngineId, Oid, TargetId};

use crate::errno::{of_client, of_entry};
use crate::newborn::{Cradle, Moment, Name};
use crate::{Errno, FileSystem, Result};

/// Directories of more shards are not leased, nor are numbers drawn from more targets.
const SHARDS_MAX: u16 = 16;
/// Bytes of names of one shard that are asked for at once: larger directories are not leased.
const NAMES_BYTES: u32 = 128 * 1024;
/// Numbers of objects that are drawn with a lease, and when fewer than a quarter of these are left.
const SERIALS: u32 = 1024;

const _: () = assert!(SERIALS <= SERIALS_MAX);

/// The shard of an object that lies at its home.
const HOME_SHARD: u16 = 0;

/// What came of looking a name up.
type Looked = std::result::Result<Found, ClientError>;

/// What came of asking for leases of a directory's names.
struct Asked {
    /// The directory and all names in it; `None` if something is missing.
    dir: Option<(Arc<Attr>, Vec<DirEntry>)>,
    looked: Option<Looked>,
}

impl FileSystem {
    /// A place for a name in a directory whose names are leased, or are so now.
    pub(super) fn cradle(&self, dir: Oid, name: &[u8], target: TargetId) -> Result<Option<Cradle>> {
        let Some(shard) = self.pool().placement().shard_on_target(dir, target) else {
            return Ok(None);
        };
        // The second time for one whose lease is about to run out.
        for _ in 0..2 {
            let generation = self.pool().names_generation();
            if !self.newborns.knows_names(generation, dir) && !self.lease_names(dir, None)?.0 {
                return Ok(None);
            }
            let generation = self.pool().names_generation();
            let Some(root) = self.newborns.root(generation, dir, shard) else { continue };
            if self.pool().holds_names(root) && self.holds_home(dir, root, target) {
                let at = self.moment(target);
                return Ok(self.newborns.cradle(generation, (dir, name), shard, at));
            }
            self.pool().renew_names().map_err(|error| of_client(&error))?;
        }
        Ok(None)
    }

    /// Whether what names in a directory are judged by stays so, as far as the target that makes one cannot tell: whoever
    /// wants to change that asks for leases at the engine of the directory's home alone.
    fn holds_home(&self, dir: Oid, root: LeasedNames, target: TargetId) -> bool {
        let (pool, map) = (self.pool(), self.pool().map());
        let is_newborn = root.0 != dir;
        is_newborn
            || map.engine_of(dir.home()) == map.engine_of(target)
            || pool.holds_names((dir, HOME_SHARD))
    }

    /// Now, seen from here by the engine of a target.
    pub(super) fn moment(&self, target: TargetId) -> Moment {
        let (pool, now) = (self.pool(), self.now());
        let round_trip = Duration::from_micros(pool.round_trip_us_to(target));
        Moment { engine: pool.map().engine_of(target), round_trip, now }
    }

    /// A target of each engine whose time is not known well enough to count on.
    fn untimed(&self) -> Vec<TargetId> {
        let map = self.pool().map();
        let engines = (0..map.engines.len()).map(|index| EngineId(index as u16));
        let of_each = engines.filter_map(|engine| map.targets_of(engine).next());
        of_each.filter(|target| self.newborns.wants_time(self.moment(*target))).collect()
    }

    /// A number for an object; draws more of them before they run out.
    pub(super) fn serial_at(&self, target: TargetId) -> Result<Option<u64>> {
        if self.newborns.serials_left(target) == 0 {
            let first = self.call(target, AllocateSerials { count: SERIALS })?;
            self.newborns.keep_serials(target, first..first + u64::from(SERIALS));
        }
        Ok(self.newborns.take_serial(target))
    }

    /// Looks a name up in a directory in which something was made a moment ago, and leases all names of it in the same
    /// exchange: what is not there is known from then on. `None` if it is to be looked up by itself.
    pub(super) fn look_and_lease(&self, dir: Oid, name: &[u8]) -> Result<Option<Result<Found>>> {
        if !self.changes_fly() {
            return Ok(None);
        }
        let target = self.entry_target(dir, name);
        if self.newborns.knows_names(self.pool().names_generation(), dir) {
            let is_absent = self.is_absent_once_renewed(dir, name, target)?;
            return Ok(is_absent.then_some(Err(Errno::NOENT)));
        }
        let round_trip = Duration::from_micros(self.pool().round_trip_us_to(target));
        // Where the pool is near nothing further is looked at.
        if !self.writing.changes_may_fly(target)
            || !self.newborns.was_made_in(dir, round_trip, self.now())
        {
            return Ok(None);
        }
        // Whoever is about to make something here leases the names by itself.
        let Some(_making) = self.newborns.try_make() else { return Ok(None) };
        let (_, looked) = self.lease_names(dir, Some(name))?;
        Ok(looked.map(|looked| looked.map_err(|error| of_entry(&error))))
    }

    /// Whether a name is not there by what was known under a lease that is about to be over, or just is. It is renewed for
    /// that, which takes as long as asking for the name does, and the next one is known again.
    fn is_absent_once_renewed(&self, dir: Oid, name: &[u8], target: TargetId) -> Result<bool> {
        let Some(shard) = self.pool().placement().shard_on_target(dir, target) else {
            return Ok(false);
        };
        let generation = self.pool().names_generation();
        if !matches!(self.newborns.named(generation, (dir, name), shard), Name::Absent(_)) {
            return Ok(false);
        }
        // Whoever is making something here renews it as well.
        let Some(_making) = self.newborns.try_make() else { return Ok(false) };
        self.pool().renew_names().map_err(|error| of_client(&error))?;
        Ok(self.is_absent(dir, name))
    }

    /// Leases the names of a directory, if that is worth it: then all that are there are known. Tells whether it
    /// is so, and what came of a name that was to be looked up, if anybody was asked. The caller keeps others
    /// from making names ([`crate::newborn::Newborns::make`]).
    fn lease_names(&self, dir: Oid, look: Option<&[u8]>) -> Result<(bool, Option<Looked>)> {
        let pool = self.pool();
        let round_trip = Duration::from_micros(pool.round_trip_us_to(dir.home()));
        if !self.newborns.is_worth_a_lease(dir, round_trip, self.now())
            || pool.names_are_refused()
            || pool.placement().shards(dir) > SHARDS_MAX
            || pool.target_count() > SHARDS_MAX
        {
            return Ok((false, None));
        }
        let Some(namings_begun) = self.newborns.namings_begun() else { return Ok((false, None)) };
        let Asked { dir: found, looked } = self.ask_for_names(dir, look);
        if let Some((attr, entries)) = found {
            let names = entries.into_iter().map(|found| (found.name, found.entry));
            let generation = pool.names_generation();
            if self.newborns.keep_leased(generation, attr, names, namings_begun) {
                return Ok((true, looked));
            }
        }
        self.newborns.refuse(dir, self.now());
        pool.publish().map_err(|error| of_client(&error))?;
        Ok((false, looked))
    }

    /// Asks for leases of a directory's names, then for the directory and all names in it, for numbers where
    /// few are left, and for the time, at once; and looks up one of them. Leases that were given are held also if something is missing.
    fn ask_for_names(&self, dir: Oid, look: Option<&[u8]>) -> Asked {
        let (pool, asked, asked_listed) = (self.pool(), self.now(), self.listed.ask());
        let shards: Vec<(u16, TargetId)> = {
            let placement = pool.placement();
            let with_target = |shard| (shard, placement.shard_target(dir, shard));
            (0..placement.shards(dir)).map(with_target).collect()
        };
        let few = |target: &TargetId| self.newborns.serials_left(*target) < u64::from(SERIALS) / 4;
        let mut batch = Batch::with_capacity(4 * shards.len() + 2);
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
        // Whoever looks at one name looks at others, and names that are there have attributes.
        let lists =
            if look.is_some() && self.keeps_listed() { self.lists(dir, false) } else { Vec::new() };
        let lists: Vec<_> = lists.into_iter().map(|list| batch.add(list)).collect();
        let look = look
            .map(|name| batch.add(Call::new(self.entry_target(dir, name), Lookup { dir, name })));
        let serials: Vec<_> = (0..pool.target_count())
            .map(TargetId)
            .filter(few)
            .map(|target| {
                let request = AllocateSerials { count: SERIALS };
                (target, batch.add(Call::new(target, request)))
            })
            .collect();
        let times: Vec<_> = self
            .untimed()
            .into_iter()
            .map(|target| (target, batch.add(Call::new(target, Time))))
            .collect();
        let mut replies = pool.call_batch(batch);
        for (target, ticket) in times {
            if let Ok(time) = replies.take(ticket) {
                self.newborns.note_time(time, self.moment(target));
            }
        }
        let mut is_whole = replies.are_in_order();
        let mut leased_ms = u32::MAX;
        for ((shard, target), ticket) in shards.into_iter().zip(leases) {
            match replies.take(ticket) {
                Ok(Leased { lease_ms, version }) if lease_ms > 0 => {
                    pool.hold_names((dir, shard), target, version, asked, lease_ms);
                    leased_ms = leased_ms.min(lease_ms);
                }
                _ => is_whole = false,
            }
        }
        if is_whole && !lists.is_empty() {
            let until = asked + Duration::from_millis(leased_ms.into());
            let pages = lists.into_iter().map(|ticket| replies.take(ticket).ok()).collect();
            self.keep_brought(&asked_listed, dir, pages, Some(until));
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
        let looked = look.map(|ticket| replies.take(ticket));
        let dir = attr.filter(|_| is_whole).map(|attr| (Arc::from(attr), names));
        Asked { dir, looked }
    }
}
