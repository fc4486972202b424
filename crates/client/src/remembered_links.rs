//! What earlier processes of this user have found out about the links to a pool's engines, in a small file beside
//! the pool files. Owns its form, and that it is a guess and nothing more: whoever cannot read or write it does
//! without, and says nothing. It never holds anything that a wrong value could do harm with: a ticket shows an
//! engine nothing without the pool's secret.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use azekura_proto::PoolId;
use azekura_proto::message::Ticket;
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use serde::{Deserialize, Serialize};

use crate::pool_file::{pools_dir, replace};

/// Links with such a round trip, in microseconds, are worth remembering.
pub(crate) const FAR_US: u64 = 1_000;

/// The form of the file; another one is not read.
const VERSION: u32 = 1;
/// After this time nobody knows whether the link is still the same.
const LIFE: Duration = Duration::from_secs(24 * 3600);
/// A link that is known this well is not noted again before this time has passed.
const FRESH: Duration = Duration::from_secs(3600);
/// A longer file is none of ours.
const FILE_BYTES_MAX: u64 = 256 * 1024;
/// So many links are kept, the latest.
const LINKS_MAX: usize = 256;

#[derive(Default, Serialize, Deserialize)]
struct OnDisk {
    version: u32,
    #[serde(default)]
    links: Vec<RememberedLink>,
    #[serde(default)]
    tickets: Vec<RememberedTicket>,
}

/// One link, as it was found to be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct RememberedLink {
    /// The addresses of the engine, as one text: an engine with others is reached another way.
    addresses: String,
    bytes_per_second: u64,
    round_trip_us: u64,
    /// When, in seconds since 1970.
    seen_s: u64,
}

/// What an engine has given for the next call.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct RememberedTicket {
    /// As in [`RememberedLink`].
    addresses: String,
    ticket: Ticket,
    /// How long a round trip took then; 0 where an older version did not note it.
    #[serde(default)]
    round_trip_us: u64,
    /// When, in seconds since 1970.
    seen_s: u64,
}

/// Whether something was noted no longer ago than this.
fn is_younger_than(seen_s: u64, age: Duration, now_s: u64) -> bool {
    // What is of the future was noted by another clock.
    seen_s <= now_s && now_s - seen_s < age.as_secs()
}

/// Whether two round trips may be those of one link.
fn is_like(one_us: u64, other_us: u64) -> bool {
    (one_us / 2..=one_us.saturating_mul(2)).contains(&other_us)
}

impl RememberedLink {
    /// Whether it is about the link that has this round trip now.
    fn is_like(&self, round_trip_us: u64) -> bool {
        is_like(self.round_trip_us, round_trip_us)
    }

    fn is_younger_than(&self, age: Duration, now_s: u64) -> bool {
        is_younger_than(self.seen_s, age, now_s)
    }
}

/// What a session remembers of the links to its pool's engines, looked up when it is first wanted.
#[derive(Debug)]
pub(crate) struct LinkMemory {
    /// `None`: nothing of earlier processes.
    pool: Option<PoolId>,
    links: Mutex<Option<RememberedLinks>>,
}

/// The links of a pool.
#[derive(Debug, Default)]
pub(crate) struct RememberedLinks {
    /// None where nothing is on record.
    path: Option<PathBuf>,
    links: Vec<RememberedLink>,
    tickets: Vec<RememberedTicket>,
}

impl LinkMemory {
    pub(crate) fn of(pool: PoolId) -> Self {
        Self { pool: Some(pool), links: Mutex::default() }
    }

    /// One without a file.
    pub(crate) fn of_this_process() -> Self {
        Self { pool: None, links: Mutex::default() }
    }

    /// What is known.
    pub(crate) fn links(&self) -> MappedMutexGuard<'_, RememberedLinks> {
        MutexGuard::map(self.links.lock(), |links| {
            links.get_or_insert_with(|| self.pool.map(RememberedLinks::load).unwrap_or_default())
        })
    }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl RememberedLinks {
    /// Those that are on record.
    pub(crate) fn load(pool: PoolId) -> Self {
        Self::load_from(pools_dir().with_file_name("links").join(format!("{pool}.toml")))
    }

    fn load_from(path: PathBuf) -> Self {
        let OnDisk { links, tickets, .. } = read(&path).unwrap_or_default();
        Self { path: Some(path), links, tickets }
    }

    /// The ticket of an engine with these addresses.
    pub(crate) fn ticket(&self, addresses: &str) -> Option<Ticket> {
        self.call(addresses).map(|known| known.ticket)
    }

    /// How long a round trip took to an engine with these addresses when it was called last, in microseconds.
    pub(crate) fn round_trip_us(&self, addresses: &str) -> Option<u64> {
        self.call(addresses).map(|known| known.round_trip_us).filter(|us| *us > 0)
    }

    fn call(&self, addresses: &str) -> Option<&RememberedTicket> {
        let now_s = now_s();
        let known = self.tickets.iter().find(|known| known.addresses == addresses)?;
        is_younger_than(known.seen_s, LIFE, now_s).then_some(known)
    }

    /// Puts on record what an engine has given, and how long a round trip to it took. An engine that is near is put on
    /// record only if it was far, or seemed so.
    pub(crate) fn note_ticket(&mut self, addresses: &str, ticket: Ticket, round_trip_us: u64) {
        let is_near = round_trip_us < FAR_US;
        let is_known = self.call(addresses).map_or(is_near, |known| {
            let are_both_near = is_near && (1..FAR_US).contains(&known.round_trip_us);
            known.ticket == ticket && (are_both_near || is_like(known.round_trip_us, round_trip_us))
        });
        if is_known {
            return;
        }
        self.renew();
        let now_s = now_s();
        let tickets = &mut self.tickets;
        tickets.retain(|known| {
            known.addresses != addresses && is_younger_than(known.seen_s, LIFE, now_s)
        });
        tickets.sort_by_key(|known| std::cmp::Reverse(known.seen_s));
        tickets.truncate(LINKS_MAX - 1);
        let addresses = addresses.to_owned();
        tickets.push(RememberedTicket { addresses, ticket, round_trip_us, seen_s: now_s });
        self.save();
    }

    /// Others may have written since.
    fn renew(&mut self) {
        if let Some(OnDisk { links, tickets, .. }) = self.path.as_deref().and_then(read) {
            (self.links, self.tickets) = (links, tickets);
        }
    }

    /// The rate of the link to an engine with these addresses, in bytes per second, if it has about this round trip
    /// as it had then.
    pub(crate) fn rate(&self, addresses: &str, round_trip_us: u64) -> Option<u64> {
        let now_s = now_s();
        let known = self.links.iter().find(|link| link.addresses == addresses)?;
        let counts = known.is_like(round_trip_us) && known.is_younger_than(LIFE, now_s);
        counts.then_some(known.bytes_per_second)
    }

    /// Puts on record what a link was found to be, unless that is known well enough.
    pub(crate) fn note(&mut self, addresses: &str, bytes_per_second: u64, round_trip_us: u64) {
        let now_s = now_s();
        let near = bytes_per_second / 4;
        let is_known = self.links.iter().any(|link| {
            link.addresses == addresses
                && link.is_like(round_trip_us)
                && link.bytes_per_second.abs_diff(bytes_per_second) <= near
                && link.is_younger_than(FRESH, now_s)
        });
        if is_known || bytes_per_second == 0 {
            return;
        }
        self.renew();
        let links = &mut self.links;
        links.retain(|link| link.addresses != addresses && link.is_younger_than(LIFE, now_s));
        links.sort_by_key(|link| std::cmp::Reverse(link.seen_s));
        links.truncate(LINKS_MAX - 1);
        let addresses = addresses.to_owned();
        links.push(RememberedLink { addresses, bytes_per_second, round_trip_us, seen_s: now_s });
        self.save();
    }

    fn save(&self) {
        let Some(path) = &self.path else { return };
        let (links, tickets) = (self.links.clone(), self.tickets.clone());
        let disk = OnDisk { version: VERSION, links, tickets };
        let written = toml::to_string(&disk).map_err(std::io::Error::other);
        // A guess may be lost with the machine's power.
        let written = written.and_then(|text| replace(path, &text, |_| Ok(())));
        if let Err(error) = written {
            tracing::debug!("{} cannot be written: {error}", path.display());
        }
    }
}

/// What is in a file; `None` if that makes no sense.
fn read(path: &Path) -> Option<OnDisk> {
    let length = std::fs::metadata(path).ok()?.len();
    if length > FILE_BYTES_MAX {
        return None;
    }
    let disk: OnDisk = toml::from_str(&std::fs::read_to_string(path).ok()?).ok()?;
    (disk.version == VERSION).then_some(disk)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(dir: &Path) -> RememberedLinks {
        RememberedLinks::load_from(dir.join("links").join("pool.toml"))
    }

    #[test]
    fn a_ticket_is_there_for_the_next_process_beside_what_the_link_carries() {
        let dir = tempfile::tempdir().unwrap();
        let mut one = links(dir.path());
        assert_eq!(one.ticket("10.0.0.1:7070"), None);
        one.note("10.0.0.1:7070", 100_000_000, 50_000);
        links(dir.path()).note_ticket("10.0.0.1:7070", Ticket([1; 32]), 50_000);
        one.note_ticket("10.0.0.2:7070", Ticket([2; 32]), 2_000);
        one.note_ticket("10.0.0.2:7070", Ticket([3; 32]), 3_000);
        one.note("10.0.0.3:7070", 5_000_000, 9_000);
        let next = links(dir.path());
        assert_eq!(next.ticket("10.0.0.1:7070"), Some(Ticket([1; 32])));
        assert_eq!(next.ticket("10.0.0.2:7070"), Some(Ticket([3; 32])));
        assert_eq!(next.ticket("10.0.0.3:7070"), None);
        let round_trips_us =
            ["1", "2", "3"].map(|end| next.round_trip_us(&format!("10.0.0.{end}:7070")));
        assert_eq!(round_trips_us, [Some(50_000), Some(3_000), None]);
        one.note_ticket("10.0.0.2:7070", Ticket([3; 32]), 4_000);
        assert_eq!(one.round_trip_us("10.0.0.2:7070"), Some(3_000), "that is no other link");
        one.note_ticket("10.0.0.2:7070", Ticket([3; 32]), 9_000);
        assert_eq!(one.round_trip_us("10.0.0.2:7070"), Some(9_000));
        one.note_ticket("10.0.0.2:7070", Ticket([3; 32]), 100);
        one.note_ticket("10.0.0.2:7070", Ticket([3; 32]), 900);
        assert_eq!(one.round_trip_us("10.0.0.2:7070"), Some(100), "it is near now, and stays so");
        one.note_ticket("10.0.0.4:7070", Ticket([4; 32]), 100);
        assert_eq!(one.ticket("10.0.0.4:7070"), None, "it has always been near");
        assert_eq!(next.rate("10.0.0.1:7070", 60_000), Some(100_000_000));
        assert_eq!(next.rate("10.0.0.3:7070", 9_000), Some(5_000_000));
        let memory = LinkMemory::of_this_process();
        memory.links().note_ticket("10.0.0.1:7070", Ticket([1; 32]), 50_000);
        assert!(memory.links().ticket("10.0.0.1:7070").is_some());
    }

    #[test]
    fn the_next_process_knows_what_one_has_found_out() {
        let dir = tempfile::tempdir().unwrap();
        let mut one = links(dir.path());
        assert_eq!(one.rate("10.0.0.1:7070", 50_000), None);
        one.note("10.0.0.1:7070", 100_000_000, 50_000);
        one.note("10.0.0.2:7070", 5_000_000, 9_000);
        let next = links(dir.path());
        assert_eq!(next.rate("10.0.0.1:7070", 60_000), Some(100_000_000));
        assert_eq!(next.rate("10.0.0.2:7070", 9_000), Some(5_000_000));
        assert_eq!(next.rate("10.0.0.1:7070", 400), None, "it is another way now");
        assert_eq!(next.rate("10.0.0.3:7070", 50_000), None);
        // Two at a time keep what each has found out.
        let (mut other, mut third) = (links(dir.path()), links(dir.path()));
        other.note("10.0.0.1:7070", 10_000_000, 50_000);
        third.note("10.0.0.9:7070", 1_000_000, 2_000);
        let next = links(dir.path());
        assert_eq!(next.rate("10.0.0.1:7070", 50_000), Some(10_000_000));
        assert_eq!(next.rate("10.0.0.9:7070", 2_000), Some(1_000_000));
        let names = std::fs::read_dir(dir.path().join("links")).unwrap().count();
        assert_eq!(names, 1, "nothing else is left");
    }

    #[test]
    fn what_makes_no_sense_or_is_old_is_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("links").join("pool.toml");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let old = now_s() - LIFE.as_secs() - 1;
        let ahead = now_s() + 1000;
        let link = |seen_s| {
            format!(
                "version = 1\n[[links]]\naddresses = \"a\"\nbytes_per_second = 7\nround_trip_us = 9\nseen_s = {seen_s}\n"
            )
        };
        for text in ["no toml", "version = 2", "", &link(old), &link(ahead)] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(links(dir.path()).rate("a", 9), None, "{text}");
        }
        std::fs::write(&path, link(now_s())).unwrap();
        assert_eq!(links(dir.path()).rate("a", 9), Some(7));
        // A place that cannot be written to is none.
        let mut nowhere = RememberedLinks::load_from(PathBuf::from("/proc/none/pool.toml"));
        nowhere.note("a", 1, 1);
        assert_eq!(nowhere.rate("a", 1), Some(1), "for this process");
    }
}
