//! What the kernel's congestion control is helped with, or spared. Owns two cases, and leaves every control as the system
//! has it.
//!
//! *Bursts.* A control that does not pace (Reno, CUBIC) sends what it may as fast as the host can. After a pause that is
//! all that the last round trips have allowed, at once: more than the queues of a long way hold, and for each such loss
//! the connection is slow for many round trips. So the kernel is asked to spread it over the round trip, where that is
//! long enough for it to matter; on short ways it would cost the processor more than it brings.
//!
//! *The looking for the round trip.* BBR forgets the smallest round trip when ten seconds have brought no smaller one,
//! and then sends next to nothing for a fifth of a second to measure it
//! (draft-cardwell-iccrg-bbr-congestion-control-00, 4.3.5, `ProbeRTT`). Connections that were made together do that
//! together, so that a stream over all of them stops. For what an engine answers that is of no use: whoever asks bounds
//! what is on its way, by a round trip of its own measuring. So the control is taken up anew before: it begins with the
//! round trip and the window that the kernel knows, and forgets nothing else that it would not learn again within some
//! round trips. What is sent without being asked for (writes) is left alone: there the control is what bounds it.

use std::net::TcpStream;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{set_tcp_congestion, tcp_congestion};

use crate::{Socket, sys};

const BBR: &str = "bbr";
/// Always there, and allowed to everybody.
const ANOTHER: &str = "reno";
/// Before the ten seconds are over, also where data are sent at some distance.
const SEEN_TO_EVERY: Duration = Duration::from_secs(7);
/// Fewer bytes at a time are no long stream.
const STREAM_BYTES: usize = 16 * 1024;
/// What goes over shorter ways is not paced.
const PACED_FROM: Duration = Duration::from_millis(1);

/// The congestion control of one connection.
#[derive(Debug)]
pub(crate) struct Congestion {
    /// What is sent was asked for by a peer who bounds what is on its way.
    answers: bool,
    has_sent: bool,
    is_paced: bool,
    seen: Instant,
}

impl Congestion {
    /// That of a connection that was made just now.
    pub(crate) fn new() -> Self {
        Self { answers: false, has_sent: false, is_paced: false, seen: Instant::now() }
    }

    /// From now on what is sent was asked for by a peer who bounds what is on its way.
    pub(crate) fn only_answers(&mut self) {
        self.answers = true;
    }

    /// So many bytes are about to be sent.
    pub(crate) fn before_sending(&mut self, socket: &Socket, bytes: usize) {
        let Socket::Tcp(stream) = socket else { return };
        if bytes < STREAM_BYTES {
            return;
        }
        let is_due = self.seen.elapsed() >= SEEN_TO_EVERY;
        if std::mem::replace(&mut self.has_sent, true) && !is_due {
            return;
        }
        // What cannot be had is done without: more is lost in bursts, a stream stops for a moment now and then.
        if !self.is_paced && is_far(stream) {
            self.is_paced = sys::pace(stream).is_ok();
        }
        if is_due {
            self.seen = Instant::now();
            if self.answers {
                let _ = take_up_anew(stream);
            }
        }
    }
}

fn is_far(stream: &TcpStream) -> bool {
    matches!(sys::smallest_round_trip(stream), Ok(Some(round_trip)) if round_trip >= PACED_FROM)
}

fn take_up_anew(stream: &TcpStream) -> Result<(), Errno> {
    if tcp_congestion(stream)? == BBR && is_allowed() {
        set_tcp_congestion(stream, ANOTHER)?;
        set_tcp_congestion(stream, BBR)?;
    }
    Ok(())
}

/// Whether anybody may choose it: whoever may not would not get it back.
fn is_allowed() -> bool {
    static IS_ALLOWED: OnceLock<bool> = OnceLock::new();
    *IS_ALLOWED.get_or_init(|| {
        let allowed = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
        allowed.is_ok_and(|allowed| allowed.split_whitespace().any(|name| name == BBR))
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn every_control_stays_what_it_is() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        for name in [ANOTHER, BBR, "cubic"] {
            let stream = TcpStream::connect(address).unwrap();
            if set_tcp_congestion(&stream, name).is_err() {
                continue;
            }
            let socket = Socket::Tcp(stream);
            let long_ago = Instant::now().checked_sub(SEEN_TO_EVERY).unwrap();
            let mut congestion = Congestion { answers: true, seen: long_ago, ..Congestion::new() };
            congestion.before_sending(&socket, STREAM_BYTES - 1);
            assert_eq!(congestion.seen, long_ago, "{name}");
            congestion.before_sending(&socket, STREAM_BYTES);
            assert!(congestion.seen > long_ago, "{name}");
            let Socket::Tcp(stream) = &socket else { unreachable!() };
            assert_eq!(tcp_congestion(stream).unwrap(), name);
        }
    }

    #[test]
    fn what_goes_over_a_short_way_is_not_paced() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(!is_far(&stream));
        let socket = Socket::Tcp(stream);
        Congestion::new().before_sending(&socket, STREAM_BYTES);
        let Socket::Tcp(stream) = socket else { unreachable!() };
        assert_eq!(sys::pace_of(&stream).unwrap(), libc::c_ulong::MAX);
        sys::pace(&stream).unwrap();
        assert_eq!(sys::pace_of(&stream).unwrap(), sys::FASTEST);
    }
}
