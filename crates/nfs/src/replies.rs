//! The duplicate request cache (RFC 1813, section 4.5). Owns the answers of the last requests that
//! must not be carried out twice, so that one that is sent again gets the first answer. What it keeps
//! is bounded in number, bytes and time; a request that is being carried out is always in it.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

/// A client that has not sent a request again by now has given up or has its answer, and may use the
/// number for another one.
const KEPT: Duration = Duration::from_secs(120);
/// What an answer takes besides its bytes.
const ENTRY_BYTES: usize = 256;
/// Two minutes of a few hundred changes per second.
const ENTRIES_MAX: usize = 1 << 16;
const BYTES_MAX: usize = 64 << 20;

/// What makes two requests one. The xid alone does not: clients start to count anywhere. The port is
/// not part of it, since a client that has lost its connection comes back from another one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ReplyKey {
    client: IpAddr,
    xid: u32,
    program: u32,
    procedure: u32,
    arguments: (usize, u64),
    caller: (u32, u32),
}

impl ReplyKey {
    /// The key of a request with these arguments, as they came over the wire.
    pub fn new(
        client: IpAddr,
        xid: u32,
        (program, procedure): (u32, u32),
        arguments: &[u8],
        (uid, gid): (u32, u32),
    ) -> Self {
        let arguments = (arguments.len(), xxh3_64(arguments));
        Self { client, xid, program, procedure, arguments, caller: (uid, gid) }
    }
}

/// The duplicate request cache.
#[derive(Debug)]
pub struct ReplyCache {
    entries_max: usize,
    bytes_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<ReplyKey, Entry>,
    /// The answered ones, the oldest first.
    answered: VecDeque<(Instant, ReplyKey)>,
    bytes: usize,
}

#[derive(Debug)]
enum Entry {
    InProgress,
    Answered(Arc<[u8]>),
}

/// What is to be done with a request.
#[derive(Debug)]
pub enum Turn<'a> {
    /// Carry it out; it has not been here.
    First(FirstTurn<'a>),
    /// Drop it: its answer is on the way.
    InProgress,
    /// Send this.
    Answered(Arc<[u8]>),
}

/// A request that is carried out. Dropped without an answer, it has not been here: whoever sends it
/// again is the first.
#[derive(Debug)]
pub struct FirstTurn<'a> {
    cache: &'a ReplyCache,
    key: ReplyKey,
    is_answered: bool,
}

impl Default for ReplyCache {
    fn default() -> Self {
        Self::new(ENTRIES_MAX, BYTES_MAX)
    }
}

impl ReplyCache {
    /// A cache of so many answers, which take no more than `bytes_max` together.
    pub fn new(entries_max: usize, bytes_max: usize) -> Self {
        Self { entries_max, bytes_max, state: Mutex::default() }
    }

    /// Takes in a request.
    pub fn begin(&self, key: ReplyKey) -> Turn<'_> {
        self.begin_at(key, Instant::now())
    }

    fn begin_at(&self, key: ReplyKey, now: Instant) -> Turn<'_> {
        let mut state = self.state.lock();
        state.forget_old(now);
        match state.entries.get(&key) {
            Some(Entry::InProgress) => Turn::InProgress,
            Some(Entry::Answered(reply)) => Turn::Answered(Arc::clone(reply)),
            None => {
                state.entries.insert(key, Entry::InProgress);
                Turn::First(FirstTurn { cache: self, key, is_answered: false })
            }
        }
    }
}

impl FirstTurn<'_> {
    /// Keeps the answer: the bytes that [`Turn::Answered`] is to give. One that would push out all
    /// others is not kept.
    pub fn answer(self, reply: Arc<[u8]>) {
        self.answer_at(reply, Instant::now());
    }

    fn answer_at(mut self, reply: Arc<[u8]>, now: Instant) {
        let bytes = reply.len() + ENTRY_BYTES;
        if bytes > self.cache.bytes_max {
            return;
        }
        let mut state = self.cache.state.lock();
        state.bytes += bytes;
        state.entries.insert(self.key, Entry::Answered(reply));
        state.answered.push_back((now, self.key));
        while state.answered.len() > self.cache.entries_max || state.bytes > self.cache.bytes_max {
            state.forget_oldest();
        }
        self.is_answered = true;
    }
}

impl Drop for FirstTurn<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.cache.state.lock().entries.remove(&self.key);
        }
    }
}

impl State {
    fn forget_old(&mut self, now: Instant) {
        while self
            .answered
            .front()
            .is_some_and(|(since, _)| now.saturating_duration_since(*since) >= KEPT)
        {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some((_, key)) = self.answered.pop_front() else { return };
        if let Some(Entry::Answered(reply)) = self.entries.remove(&key) {
            self.bytes -= reply.len() + ENTRY_BYTES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn key(xid: u32) -> ReplyKey {
        ReplyKey::new(Ipv4Addr::LOCALHOST.into(), xid, (100_003, 8), b"arguments", (1, 2))
    }

    fn cache() -> ReplyCache {
        ReplyCache::new(100, 1 << 20)
    }

    fn answer(cache: &ReplyCache, key: ReplyKey, reply: &[u8], now: Instant) {
        match cache.begin_at(key, now) {
            Turn::First(turn) => turn.answer_at(reply.into(), now),
            other => panic!("{other:?}"),
        }
    }

    fn is_kept(cache: &ReplyCache, key: ReplyKey, now: Instant) -> bool {
        matches!(cache.begin_at(key, now), Turn::Answered(_))
    }

    #[test]
    fn a_request_that_comes_again_gets_the_first_answer() {
        let cache = cache();
        let Turn::First(turn) = cache.begin(key(1)) else { panic!("it was not here") };
        assert!(matches!(cache.begin(key(1)), Turn::InProgress));
        turn.answer(Arc::from(*b"done"));
        for _ in 0..2 {
            let Turn::Answered(reply) = cache.begin(key(1)) else { panic!("it was answered") };
            assert_eq!(*reply, *b"done");
        }
    }

    #[test]
    fn requests_that_differ_in_anything_are_two() {
        let cache = cache();
        let now = Instant::now();
        answer(&cache, key(1), b"done", now);
        let of = |ip: [u8; 4], xid, procedure, arguments: &[u8], caller| {
            ReplyKey::new(IpAddr::from(ip), xid, (100_003, procedure), arguments, caller)
        };
        let others = [
            of([127, 0, 0, 2], 1, 8, b"arguments", (1, 2)),
            of([127, 0, 0, 1], 2, 8, b"arguments", (1, 2)),
            of([127, 0, 0, 1], 1, 9, b"arguments", (1, 2)),
            of([127, 0, 0, 1], 1, 8, b"argumentz", (1, 2)),
            of([127, 0, 0, 1], 1, 8, b"arguments", (2, 1)),
        ];
        assert!(is_kept(&cache, of([127, 0, 0, 1], 1, 8, b"arguments", (1, 2)), now));
        for other in others {
            assert!(matches!(cache.begin(other), Turn::First(_)), "{other:?}");
        }
    }

    #[test]
    fn a_request_without_an_answer_has_not_been_here() {
        let cache = cache();
        drop(cache.begin(key(1)));
        assert!(matches!(cache.begin(key(1)), Turn::First(_)));
        assert!(cache.state.lock().entries.is_empty());
    }

    #[test]
    fn answers_die_after_two_minutes() {
        let cache = cache();
        let start = Instant::now();
        let later = |s| start + Duration::from_secs(s);
        answer(&cache, key(1), b"one", start);
        answer(&cache, key(2), b"two", later(60));
        assert!(is_kept(&cache, key(1), later(119)));
        assert!(!is_kept(&cache, key(1), later(120)));
        assert!(is_kept(&cache, key(2), later(179)) && !is_kept(&cache, key(2), later(180)));
        assert_eq!(cache.state.lock().bytes, 0);
    }

    #[test]
    fn the_oldest_go_first_when_there_are_too_many() {
        let cache = ReplyCache::new(3, 1 << 20);
        let now = Instant::now();
        for xid in 0..5 {
            answer(&cache, key(xid), b"reply", now);
        }
        assert_eq!(
            [0, 1, 2, 3, 4].map(|xid| is_kept(&cache, key(xid), now)),
            [false, false, true, true, true]
        );
    }

    #[test]
    fn bytes_are_bounded_and_a_request_in_progress_is_never_forgotten() {
        let cache = ReplyCache::new(1000, 10_000);
        let now = Instant::now();
        let slow = cache.begin_at(key(0), now);
        for xid in 1..100 {
            answer(&cache, key(xid), &[0; 1000], now);
        }
        let state = cache.state.lock();
        assert!(state.bytes <= 10_000 && state.entries.len() == state.answered.len() + 1);
        drop(state);
        assert!(matches!(cache.begin_at(key(0), now), Turn::InProgress));
        answer(&cache, key(200), &[0; 10_000], now);
        assert!(!is_kept(&cache, key(200), now), "it takes more than there is");
        assert!(is_kept(&cache, key(99), now), "and pushes nothing out");
        drop(slow);
        assert!(matches!(cache.begin_at(key(0), now), Turn::First(_)));
    }
}
