//! What long streams are spared of the kernel's congestion control. Owns one case, and leaves every other control as
//! the system has it. BBR forgets the smallest round trip when ten seconds have brought no smaller one, and then sends
//! next to nothing for a fifth of a second to measure it (draft-cardwell-iccrg-bbr-congestion-control-00, 4.3.5,
//! `ProbeRTT`). Connections that were made together do that together, so that a stream over all of them stops. For what
//! an engine answers that is of no use: whoever asks bounds what is on its way, by a round trip of its own measuring. So
//! the control is taken up anew before: it begins with the round trip and the window that the kernel knows, and forgets
//! nothing else that it would not learn again within some round trips. What is sent without being asked for (writes) is
//! left alone: there the control is what bounds it.

use std::net::TcpStream;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{set_tcp_congestion, tcp_congestion};

use crate::Socket;

const BBR: &str = "bbr";
/// Always there, and allowed to everybody.
const ANOTHER: &str = "reno";
/// Before the ten seconds are over, also where data are sent at some distance.
const TAKEN_UP_EVERY: Duration = Duration::from_secs(7);
/// Fewer bytes at a time are no long stream.
const STREAM_BYTES: usize = 16 * 1024;

/// The congestion control of one connection.
#[derive(Debug)]
pub(crate) struct Congestion {
    taken_up: Instant,
}

impl Congestion {
    /// That of a connection that was made just now.
    pub(crate) fn new() -> Self {
        Self { taken_up: Instant::now() }
    }

    /// So many bytes are about to be sent.
    pub(crate) fn before_sending(&mut self, socket: &Socket, bytes: usize) {
        let Socket::Tcp(stream) = socket else { return };
        if bytes < STREAM_BYTES || self.taken_up.elapsed() < TAKEN_UP_EVERY {
            return;
        }
        self.taken_up = Instant::now();
        // Else it stays as it is, and the stream stops for a moment now and then.
        let _ = take_up_anew(stream);
    }
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
            let long_ago = Instant::now().checked_sub(TAKEN_UP_EVERY).unwrap();
            let mut congestion = Congestion { taken_up: long_ago };
            congestion.before_sending(&socket, STREAM_BYTES - 1);
            assert_eq!(congestion.taken_up, long_ago, "{name}");
            congestion.before_sending(&socket, STREAM_BYTES);
            assert!(congestion.taken_up > long_ago, "{name}");
            let Socket::Tcp(stream) = &socket else { unreachable!() };
            assert_eq!(tcp_congestion(stream).unwrap(), name);
        }
    }
}
