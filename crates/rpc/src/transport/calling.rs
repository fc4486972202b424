//! Calling engines. Owns which of an engine's addresses is tried first, and that all of them together have one bound of
//! time.

use std::io;
use std::time::{Duration, Instant};

use azekura_proto::EngineId;
use azekura_proto::pool_map::Address;
use azekura_wire::{ConnectError, Dialled, Dialling};

use super::Wanted;

/// How far the opening of an engine's conversations has come.
pub(super) struct Call<'a, T> {
    /// Which of those that were wanted it is.
    pub(super) number: usize,
    wanted: Wanted<'a>,
    /// One bound for all addresses, dialling and introductions.
    deadline: Instant,
    /// Those that were not tried yet.
    addresses: std::vec::IntoIter<&'a Address>,
    called: Called<T>,
}

/// What has come of it.
pub(super) struct Called<T> {
    /// The conversations.
    pub(super) good: Vec<T>,
    /// Why there are fewer than were asked for.
    pub(super) first_error: Option<io::Error>,
    /// About a round trip to the engine, if there are any.
    pub(super) round_trip: Option<Duration>,
}

impl<'a, T> Call<'a, T> {
    pub(super) fn new((number, wanted): (usize, &Wanted<'a>)) -> Self {
        Self {
            number,
            wanted: *wanted,
            deadline: Instant::now() + wanted.timeout,
            addresses: in_order_of_preference(wanted.addresses).into_iter(),
            called: Called { good: Vec::new(), first_error: None, round_trip: None },
        }
    }

    pub(super) fn engine(&self) -> EngineId {
        self.wanted.engine
    }

    pub(super) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// What is to be dialled next, while no conversation was opened.
    pub(super) fn next_dialling(&mut self) -> Option<Dialling<'a>> {
        let address = self.called.good.is_empty().then(|| self.addresses.next()).flatten()?;
        let timeout = self.left();
        if timeout.is_zero() {
            self.note(Err(io::ErrorKind::TimedOut.into()));
            return None;
        }
        Some(Dialling { address, count: self.wanted.count, timeout })
    }

    /// Takes what has come of the dialling.
    pub(super) fn take(
        &mut self,
        dialled: io::Result<Vec<Dialled>>,
    ) -> std::vec::IntoIter<Dialled> {
        let dialled = dialled.unwrap_or_else(|error| {
            self.note(Err(error));
            Vec::new()
        });
        let round_trip = dialled.iter().map(|dialled| dialled.took).min();
        self.called.round_trip = round_trip.or(self.called.round_trip);
        dialled.into_iter()
    }

    /// Takes a conversation, or why there is none.
    pub(super) fn note(&mut self, opened: io::Result<T>) {
        match opened {
            Ok(opened) => self.called.good.push(opened),
            Err(error) => {
                self.called.first_error.get_or_insert(error);
            }
        }
    }

    pub(super) fn note_failure(&mut self, error: ConnectError) {
        self.note(Err(as_io(error)));
    }

    pub(super) fn end(mut self) -> Called<T> {
        let Self { wanted, called, .. } = &mut self;
        if called.good.is_empty() {
            called.round_trip = None;
            called.first_error.get_or_insert_with(no_address);
        } else if called.good.len() < wanted.count {
            let fewer = || io::Error::other("fewer connections came through");
            called.first_error.get_or_insert_with(fewer);
        } else {
            // An address that was tried before was no good.
            called.first_error = None;
        }
        self.called
    }
}

fn no_address() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the pool map gives no address")
}

/// What was refused stays to be seen in it.
pub(super) fn as_io(error: ConnectError) -> io::Error {
    match error {
        ConnectError::Io(error) => error,
        refused @ (ConnectError::Refused(_) | ConnectError::Impostor) => io::Error::other(refused),
    }
}

/// UNIX sockets that exist on this host first, those that do not last.
fn in_order_of_preference(addresses: &[Address]) -> Vec<&Address> {
    let mut ordered: Vec<&Address> = addresses.iter().collect();
    ordered.sort_by_cached_key(|address| match address {
        Address::Unix(path) => {
            if path.exists() {
                0
            } else {
                2
            }
        }
        Address::Tcp(_) => 1,
    });
    ordered
}
