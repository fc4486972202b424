//! What a read of far data needs of one open file: where its shards are, the connections to them, and the
//! read leases under which bytes of them may be kept. Owns the way from ranges to requests and back to a
//! buffer, and the answer to "may these bytes be used now". What to ask for is decided elsewhere.

use std::sync::Arc;
use std::time::{Duration, Instant};

use azekura_client::{Fetch, Pipeline, Pool};
use azekura_platform::SharedPlatform;
use azekura_policy::{ByteRange, LinkEstimate};
use azekura_proto::limits::READ_BULK_BYTES_MAX;
use azekura_proto::message::typed::{FileLeased, GetAttr, Leased};
use azekura_proto::{Attr, Layout};

use super::leased_attr::{AttrAsked, LeasedAttr};
use super::reading::Reading;
use super::waits::Waits;
use crate::changes::ChangeCount;
use crate::layout::{FileLayout, Piece};

/// Most bytes of one request: small enough that the first bytes of a long range can be used early.
const REQUEST_BYTES: u64 = 256 * 1024;
/// The same while it is not known what the link can carry: the parts are dealt to several connections,
/// all of which are slow at first.
const FIRST_REQUEST_BYTES: u64 = 64 * 1024;
/// Then the first request for what is read next is for no more than this: a new connection brings so little in a round
/// trip that who reads on in small steps would wait long for the last byte of a larger one.
const FIRST_BYTES: u64 = 16 * 1024;
/// A lease is asked for again when less than this is left of it.
const RENEW: Duration = Duration::from_millis(600);
/// For this long after leases could not be had at all nothing is read ahead.
const GIVEN_UP: Duration = Duration::from_millis(azekura_proto::limits::LEASE_REFUSAL_MS);
/// The same after the engine has refused one. How long others go on writing is for the engine to know;
/// to ask costs no time, as it travels beside what is read.
const REFUSED: Duration = Duration::from_secs(1);
/// A lease that is lost with its connection is asked for once more, over another.
const ATTEMPTS: u32 = 2;

/// Why a read is done by requests of just its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direct {
    /// Files are read so, or the data are so near that nothing is gained by asking early.
    Near,
    /// This is a forked child: a thread that is not there may hold the lock of what was read ahead.
    Forked,
    /// Only the pool knows what lies behind the end that is known.
    BeyondKnownEnd,
    /// Others write to the file, or its leases cannot be had, so that nothing may be kept of it.
    NoLease,
    /// What was asked for is not there: the end of a file that was cut, lost on the way, or what may be a
    /// hole while that is not certain.
    NotThere,
}

/// A range as a whole, or its start apart from the rest.
fn head_and_rest(range: ByteRange, is_apart: bool) -> impl Iterator<Item = ByteRange> {
    let head_bytes = if is_apart { FIRST_BYTES } else { range.bytes };
    let head = ByteRange::new(range.offset, range.bytes.min(head_bytes));
    let rest = ByteRange::between(head.end(), range.end());
    [head, rest].into_iter().filter(|run| !run.is_empty())
}

/// What came of copying a read out of its parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Copied {
    /// All of it was there.
    All,
    /// Shards end before some of it, which was filled with zeros: right, if the file does not end there.
    WithHoles,
    /// Some of it was not there.
    NotAll,
}

/// How long the file was, and when that holds.
#[derive(Debug)]
struct Length {
    bytes: u64,
    /// The versions of all shards' data, under whose leases it was asked for.
    versions: Vec<u64>,
    /// The count of own changes then.
    changes: u64,
}

/// A part of a range: what one request brings.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Where it lies in the file.
    pub(super) range: ByteRange,
    shard: u16,
    /// The version of the shard's data that the lease named when it was asked for.
    version: Option<u64>,
    pub(super) fetch: Arc<Fetch>,
    /// Whether its coming has been told to the policy.
    pub(super) counted: bool,
}

/// The read lease of one shard.
#[derive(Clone, Debug, Default)]
struct Lease {
    until: Option<Instant>,
    version: u64,
    /// What it was asked for with, until the answer has been taken in.
    request: Option<Arc<Fetch>>,
}

/// An open file whose data are far away.
#[derive(Debug)]
pub(super) struct FarFile {
    pub(super) layout: Layout,
    pub(super) pipeline: Arc<Pipeline>,
    /// How often its data were changed from here.
    pub(super) changes: ChangeCount,
    /// Its length as last heard of, in bytes.
    pub(super) bytes: u64,
    /// Whether a range is cut into no more requests than it has pieces.
    is_whole: bool,
    /// Whether its shards are at several engines: the home asks the others for what it tells of the whole.
    is_spread: bool,
    leases: Vec<Lease>,
    refused_until: Option<Instant>,
    /// The question for attributes that is under way with the home's lease.
    attr_asked: Option<AttrAsked>,
    attr: Option<LeasedAttr>,
    /// Its length as it was asked for, where holes were met.
    length: Option<Length>,
    pool: Arc<Pool>,
    platform: SharedPlatform,
    pub(super) waits: Arc<Waits>,
}

impl Lease {
    /// A lease has come that was asked for then.
    fn renew(&mut self, asked: Instant, granted: Leased) {
        let Leased { lease_ms, version } = granted;
        self.version = version;
        self.until = (lease_ms > 0).then(|| asked + Duration::from_millis(lease_ms.into()));
    }
}

impl FarFile {
    pub(super) fn new(reading: &Reading, layout: &FileLayout, bytes: u64) -> Self {
        let map = reading.pool().map();
        let mut engines = layout.shard_targets().map(|target| map.engine_of(target));
        let first = engines.next();
        Self {
            layout: **layout,
            pipeline: Arc::clone(reading.pipeline()),
            changes: reading.changes.count_of(layout.oid()),
            bytes,
            is_whole: reading.policy.is_one_at_a_time(),
            is_spread: engines.any(|engine| Some(engine) != first),
            leases: vec![Lease::default(); usize::from(layout.shards())],
            refused_until: None,
            attr_asked: None,
            attr: None,
            length: None,
            pool: Arc::clone(reading.pool()),
            platform: Arc::clone(&reading.platform),
            waits: Arc::clone(&reading.waits),
        }
    }

    /// Most bytes of a request.
    fn request_bytes(&self, link: LinkEstimate) -> u64 {
        match (self.is_whole, link.untried) {
            (true, _) => READ_BULK_BYTES_MAX.into(),
            (false, true) => FIRST_REQUEST_BYTES,
            (false, false) => REQUEST_BYTES,
        }
    }

    /// Asks for ranges without waiting, each in as many requests as its size takes.
    pub(super) fn send(
        &self,
        link: LinkEstimate,
        ranges: &[ByteRange],
    ) -> Vec<(ByteRange, Vec<Part>)> {
        self.deal(link, ranges, None)
    }

    /// The same of ranges of which the one that begins at this offset is what the program reads next.
    pub(super) fn send_ahead(
        &self,
        link: LinkEstimate,
        ranges: &[ByteRange],
        next: u64,
    ) -> Vec<(ByteRange, Vec<Part>)> {
        self.deal(link, ranges, Some(next).filter(|_| link.untried && !self.is_whole))
    }

    /// The start of the range that begins at `apart` is asked for by itself.
    fn deal(
        &self,
        link: LinkEstimate,
        ranges: &[ByteRange],
        apart: Option<u64>,
    ) -> Vec<(ByteRange, Vec<Part>)> {
        let request_bytes = self.request_bytes(link);
        let mut fetches = Vec::new();
        let mut part = |piece: Piece| {
            let Piece { target, data, local_offset, .. } = piece;
            let fetch = Fetch::data(target, data, local_offset, piece.bytes as u32);
            fetches.push(Arc::clone(&fetch));
            Part {
                range: ByteRange::new(piece.offset, piece.bytes),
                shard: piece.data.shard,
                version: self.leased_version(piece.data.shard),
                fetch,
                counted: false,
            }
        };
        let mut sent = Vec::with_capacity(ranges.len());
        for range in ranges {
            let pieces = head_and_rest(*range, apart == Some(range.offset))
                .flat_map(|run| self.layout.pieces(run.offset, run.bytes, request_bytes));
            sent.push((*range, pieces.map(&mut part).collect()));
        }
        self.pipeline.send(&fetches);
        sent
    }

    /// A part that has come along with the leases, all of which lies in one shard.
    pub(super) fn come(&self, range: ByteRange, bytes: Vec<u8>) -> Option<Part> {
        let piece = self.layout.pieces(range.offset, range.bytes, range.bytes).next()?;
        if piece.bytes != range.bytes {
            return None;
        }
        let Piece { target, data, local_offset, .. } = piece;
        let version = Some(self.leased_version(data.shard)?);
        let fetch = Fetch::come(target, data, local_offset, bytes);
        Some(Part { range, shard: data.shard, version, fetch, counted: true })
    }

    /// Whether all of a range lies in shards whose leases hold now.
    pub(super) fn is_leased(&self, range: ByteRange) -> bool {
        let mut pieces = self.layout.pieces(range.offset, range.bytes, range.bytes);
        pieces.all(|piece| self.leased_version(piece.data.shard).is_some())
    }

    /// The version of a shard's data, if its lease holds now.
    fn leased_version(&self, shard: u16) -> Option<u64> {
        let lease = self.leases.get(usize::from(shard)).filter(|_| self.changes.may_be_leased())?;
        lease.until.is_some_and(|until| until > self.platform.now()).then_some(lease.version)
    }

    /// Whether its shards are at several engines.
    pub(super) fn is_spread(&self) -> bool {
        self.is_spread
    }

    /// Waits for the home's lease, if it is on its way.
    pub(super) fn await_home(&self) {
        if let Some(request) = self.leases.first().and_then(|home| home.request.as_ref()) {
            self.pipeline.wait(request);
        }
    }

    /// Whether the bytes of a part may be used now: they are of the version that a lease holds for.
    pub(super) fn is_good(&self, part: &Part) -> bool {
        part.version.is_some() && self.leased_version(part.shard) == part.version
    }

    /// The same of several.
    pub(super) fn are_good(&self, parts: &[Part]) -> bool {
        parts.iter().all(|part| self.is_good(part))
    }

    /// Takes in the answers to requests for leases that have come. False if others write to the file,
    /// so that nothing may be kept of it.
    pub(super) fn take_in_leases(&mut self) -> bool {
        let mut home = None;
        for lease in &mut self.leases {
            let Some(request) = lease.request.take_if(|request| request.is_over()) else {
                continue;
            };
            let (Some(granted), Some(at)) = (request.granted(), request.asked()) else {
                continue;
            };
            lease.renew(at, granted);
            if granted.lease_ms == 0 {
                self.refused_until = Some(at + REFUSED);
            }
            // Only the request for the home's brings it.
            home = request.take_file_lease().or(home);
        }
        if let Some(leased) = home
            && let Some(asked) = self.attr_asked.take()
        {
            self.take_attr(asked, leased);
        }
        self.refused_until.is_none_or(|until| until <= self.platform.now())
    }

    /// To be called before the home's lease is asked for with the attributes.
    pub(super) fn ask_attr(&self) -> AttrAsked {
        let others = (1..self.leases.len() as u16).map(|shard| self.leased_version(shard));
        AttrAsked {
            at: self.platform.now(),
            changes: self.changes.of_attributes(),
            others: others.collect(),
        }
    }

    /// The home's lease has come with the attributes.
    pub(super) fn take_attr(&mut self, asked: AttrAsked, leased: FileLeased) {
        let lease_ms = leased.lease.lease_ms;
        let versions = std::iter::once(leased.lease.version).chain(leased.others.iter().copied());
        for (lease, version) in self.leases.iter_mut().zip(versions) {
            lease.renew(asked.at, Leased { lease_ms, version });
        }
        if leased.lease.lease_ms == 0 {
            self.refused_until = Some(asked.at + REFUSED);
        }
        self.attr = LeasedAttr::new(asked, leased);
    }

    /// The attributes, if the leases say that they are as they were.
    pub(super) fn attr(&mut self) -> Option<&Attr> {
        self.take_in_leases();
        self.known_attr()
    }

    fn known_attr(&self) -> Option<&Attr> {
        let changes = self.changes.of_attributes();
        self.attr.as_ref()?.get(changes, |shard| self.leased_version(shard))
    }

    /// Whether only the attributes are lacking: all leases that they rely on are there.
    pub(super) fn lacks_attr(&self) -> bool {
        let mut shards = 0..self.leases.len() as u16;
        self.attr.is_none() && shards.all(|shard| self.leased_version(shard).is_some())
    }

    /// Asks, without waiting, for leases that are not there or end soon.
    pub(super) fn request_leases(&mut self) {
        let soon = self.platform.now() + RENEW;
        let is_due = |lease: &Lease| lease.until.is_none_or(|until| until < soon);
        let is_idle = |lease: &Lease| lease.request.is_none();
        let lacks_attr = self.lacks_attr();
        let home = self.leases.first().filter(|home| is_idle(home));
        let asks_home = home.is_some_and(|home| is_due(home) || lacks_attr);
        // What is read over the same connection would wait while the home asks other engines.
        let asks_attr = asks_home && !(self.is_spread && self.known_attr().is_some());
        if asks_attr {
            self.attr_asked = Some(self.ask_attr());
        }
        let mut requests = Vec::new();
        for (lease, (target, data)) in self.leases.iter_mut().zip(self.layout.all_shards()) {
            let request = match data.shard {
                0 if asks_attr => Fetch::file_lease(data.oid),
                0 if asks_home => Fetch::lease(target, data),
                0 => continue,
                _ if is_idle(lease) && is_due(lease) => Fetch::lease(target, data),
                _ => continue,
            };
            lease.request = Some(Arc::clone(&request));
            requests.push(request);
        }
        self.pipeline.send(&requests);
    }

    /// Sees to it that all leases hold: asks for those that do not, and waits for them. False if not
    /// all can be had; then none is asked for in a while.
    pub(super) fn acquire_leases(&mut self) -> bool {
        let mut attempts = 0;
        while self.take_in_leases() {
            let is_lacking = |shard: &u16| self.leased_version(*shard).is_none();
            let lacking: Vec<u16> = (0..self.leases.len() as u16).filter(is_lacking).collect();
            if lacking.is_empty() {
                return true;
            }
            if attempts == ATTEMPTS {
                // An engine is away, or of an earlier release.
                self.refused_until = Some(self.platform.now() + GIVEN_UP);
                break;
            }
            attempts += 1;
            self.request_leases();
            for shard in lacking {
                if let Some(request) = &self.leases[usize::from(shard)].request {
                    self.pipeline.wait(request);
                }
            }
        }
        false
    }

    /// Whether what is missing of the parts of a read are holes: they were asked for under leases that
    /// still hold, and by these the file does not end there. `changes` is the count when the read began.
    pub(super) fn are_holes<'p>(
        &mut self,
        mut parts: impl Iterator<Item = &'p Part>,
        read: ByteRange,
        changes: u64,
    ) -> bool {
        self.reaches(read.end())
            && self.changes.now() == changes
            && parts.all(|part| self.is_good(part))
    }

    /// Whether the file is at least this long, by leases that hold when this returns: what its shards lack
    /// before that are holes. Costs a round trip only when others have changed the file since the last time.
    fn reaches(&mut self, end: u64) -> bool {
        if !self.acquire_leases() {
            return false;
        }
        if let Some(attr) = self.attr() {
            return end <= attr.size;
        }
        let Some(versions) = self.leased_versions() else { return false };
        let changes = self.changes.now();
        if let Some(length) = &self.length
            && length.versions == versions
            && length.changes == changes
        {
            return end <= length.bytes;
        }
        let oid = self.layout.oid();
        // What cannot be had here is asked for in the ordinary way, which tells the error.
        let Ok(attr) = self.pool.call(oid.home(), GetAttr { oid }) else { return false };
        self.length = Some(Length { bytes: attr.size, versions, changes });
        // Both may have ended while the answer was on its way.
        self.take_in_leases();
        let holds = self.length.as_ref().is_some_and(|length| {
            self.leased_versions().as_ref() == Some(&length.versions)
                && self.changes.now() == changes
        });
        holds && end <= attr.size
    }

    /// The versions of all shards' data, if all leases hold now.
    fn leased_versions(&self) -> Option<Vec<u64>> {
        (0..self.leases.len() as u16).map(|shard| self.leased_version(shard)).collect()
    }
}

/// Copies what parts have of a read into its buffer, and zeros where their shards end before.
pub(super) fn copy_out<'p>(
    parts: impl Iterator<Item = &'p Part>,
    read: ByteRange,
    buffer: &mut [u8],
) -> Copied {
    let mut missing_bytes = read.bytes;
    let mut has_holes = false;
    for part in parts {
        let within = part.range.intersection(read);
        if within.is_empty() {
            continue;
        }
        let from = (within.offset - part.range.offset) as usize;
        let to = (within.offset - read.offset) as usize;
        let into = &mut buffer[to..to + within.bytes as usize];
        let Some(there) = part.fetch.copy(from, into) else { return Copied::NotAll };
        into[there..].fill(0);
        has_holes |= there < into.len();
        missing_bytes = missing_bytes.saturating_sub(within.bytes);
    }
    match (missing_bytes, has_holes) {
        (0, false) => Copied::All,
        (0, true) => Copied::WithHoles,
        _ => Copied::NotAll,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_that_are_read_next_come_alone() {
        let range = ByteRange::new(5, 300 << 10);
        assert_eq!(head_and_rest(range, false).collect::<Vec<_>>(), [range]);
        let head = ByteRange::new(5, FIRST_BYTES);
        let rest = ByteRange::between(head.end(), range.end());
        assert_eq!(head_and_rest(range, true).collect::<Vec<_>>(), [head, rest]);
        assert_eq!(head_and_rest(head, true).collect::<Vec<_>>(), [head]);
        assert_eq!(head_and_rest(ByteRange::new(7, 0), true).count(), 0);
    }
}
