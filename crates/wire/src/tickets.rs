//! The tickets of an engine, by which callers that know its pool's secret may ask something with their first
//! words. Owns which tickets are good, and that each hello counts once: what somebody has overheard and says
//! again is challenged like any other call. Bounded in memory and time.

use std::collections::HashSet;
use std::io;
use std::time::{Duration, Instant};

use azekura_proto::message::{NONCE_BYTES, Ticket};
use parking_lot::Mutex;

use crate::secret::draw;

/// A new ticket is given out after this time; the one before stays good for as long.
const PERIOD: Duration = Duration::from_secs(6 * 3600);
/// So many hellos are taken with a ticket; later ones are challenged.
const HELLOS_MAX: usize = 64 * 1024;

/// A nonce of a caller.
type Nonce = [u8; NONCE_BYTES];

#[derive(Debug)]
struct Period {
    ticket: Ticket,
    begun: Instant,
    /// What was said with it.
    hellos: HashSet<Nonce>,
}

/// The tickets of one run of an engine.
#[derive(Debug)]
pub struct Tickets {
    /// The one that is given out, and the one before.
    periods: Mutex<(Period, Option<Period>)>,
}

impl Period {
    fn begin(now: Instant) -> io::Result<Self> {
        Ok(Self { ticket: Ticket(draw()?), begun: now, hellos: HashSet::new() })
    }

    fn take(&mut self, nonce: &Nonce) -> bool {
        self.hellos.len() < HELLOS_MAX && self.hellos.insert(*nonce)
    }
}

impl Tickets {
    /// None of an earlier run are good.
    ///
    /// # Errors
    /// If there is no randomness.
    pub fn new() -> io::Result<Self> {
        Ok(Self { periods: Mutex::new((Period::begin(Instant::now())?, None)) })
    }

    /// The ticket for callers to come.
    pub fn current(&self) -> Ticket {
        self.current_at(Instant::now())
    }

    fn current_at(&self, now: Instant) -> Ticket {
        let (current, before) = &mut *self.periods.lock();
        // Without randomness the old one goes on.
        if now.saturating_duration_since(current.begun) >= PERIOD
            && let Ok(next) = Period::begin(now)
        {
            *before = Some(std::mem::replace(current, next));
        }
        current.ticket
    }

    /// Whether a hello with this nonce counts: its ticket is good, and it is said for the first time. Only for
    /// one that was proven: strangers must not fill the memory.
    pub(crate) fn take(&self, ticket: Ticket, nonce: &Nonce) -> bool {
        self.take_at(Instant::now(), ticket, nonce)
    }

    fn take_at(&self, now: Instant, ticket: Ticket, nonce: &Nonce) -> bool {
        self.current_at(now);
        let (current, before) = &mut *self.periods.lock();
        let is_young =
            |period: &&mut Period| now.saturating_duration_since(period.begun) < 2 * PERIOD;
        let mut good = [Some(current), before.as_mut()].into_iter().flatten();
        good.find(|period| period.ticket == ticket)
            .filter(is_young)
            .is_some_and(|period| period.take(nonce))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_counts_once() {
        let tickets = Tickets::new().unwrap();
        let ticket = tickets.current();
        assert!(tickets.take(ticket, &[1; NONCE_BYTES]));
        assert!(!tickets.take(ticket, &[1; NONCE_BYTES]));
        assert!(tickets.take(ticket, &[2; NONCE_BYTES]));
        assert!(!tickets.take(Ticket([0; NONCE_BYTES]), &[3; NONCE_BYTES]));
        assert!(!Tickets::new().unwrap().take(ticket, &[4; NONCE_BYTES]), "another run");
    }

    #[test]
    fn a_ticket_is_good_for_two_periods() {
        let tickets = Tickets::new().unwrap();
        let now = Instant::now();
        let first = tickets.current_at(now);
        assert_eq!(tickets.current_at(now + PERIOD / 2), first);
        let second = tickets.current_at(now + PERIOD);
        assert_ne!(second, first);
        assert!(tickets.take_at(now + PERIOD, first, &[1; NONCE_BYTES]));
        assert!(!tickets.take_at(now + PERIOD, first, &[1; NONCE_BYTES]));
        assert!(tickets.take_at(now + PERIOD, second, &[1; NONCE_BYTES]));
        assert!(!tickets.take_at(
            now + 2 * PERIOD + Duration::from_secs(1),
            first,
            &[2; NONCE_BYTES]
        ));
        assert!(!tickets.take_at(now + 9 * PERIOD, second, &[2; NONCE_BYTES]));
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let tickets = Tickets::new().unwrap();
        let ticket = tickets.current();
        let nonce = |number: usize| {
            let mut nonce = [0; NONCE_BYTES];
            nonce[..8].copy_from_slice(&number.to_le_bytes());
            nonce
        };
        assert!((0..HELLOS_MAX).all(|number| tickets.take(ticket, &nonce(number))));
        assert!(!tickets.take(ticket, &nonce(HELLOS_MAX)));
    }
}
