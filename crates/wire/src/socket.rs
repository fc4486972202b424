//! Sockets of both kinds behind one type. Owns their options (no delay, keep-alive, time-outs) and
//! the rule that a dead peer never raises SIGPIPE.

use std::io::{self, IoSlice};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use azekura_proto::pool_map::Address;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};

/// A connected stream socket.
#[derive(Debug)]
pub enum Socket {
    /// On the same host.
    Unix(UnixStream),
    /// Over the network.
    Tcp(TcpStream),
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl Socket {
    /// A pair of connected sockets, for an engine in the same process.
    ///
    /// # Errors
    /// If the process has no descriptors left.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = UnixStream::pair()?;
        Ok((Self::Unix(one), Self::Unix(other)))
    }

    /// Sets how long a read waits; `None`: for ever.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_read_timeout(timeout),
            Self::Tcp(stream) => stream.set_read_timeout(timeout),
        }
    }

    /// Sets how long a write waits; `None`: for ever.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_write_timeout(timeout),
            Self::Tcp(stream) => stream.set_write_timeout(timeout),
        }
    }

    /// The same socket under the descriptor that `change` makes of its own.
    #[must_use]
    pub fn map_descriptor(self, change: impl FnOnce(OwnedFd) -> OwnedFd) -> Self {
        match self {
            Self::Unix(stream) => Self::Unix(change(stream.into()).into()),
            Self::Tcp(stream) => Self::Tcp(change(stream.into()).into()),
        }
    }

    /// Closes both directions, which wakes a thread that reads.
    pub fn shut_down(&self) {
        // The peer may have closed it first; either way it is closed.
        let _ = rustix::net::shutdown(self.as_fd(), rustix::net::Shutdown::Both);
    }

    /// Whether one of the ends wants nothing more to come, though both are there.
    pub(crate) fn takes_nothing_more(&self) -> bool {
        let mut polled = [PollFd::new(self, PollFlags::RDHUP)];
        let seen = poll(&mut polled, Duration::ZERO);
        let events = polled[0].revents();
        seen.is_ok() && events.contains(PollFlags::RDHUP) && !events.contains(PollFlags::HUP)
    }

    /// Reads what is there, at least a byte unless the peer has closed.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::net::recv(self.as_fd(), &mut *buffer, RecvFlags::empty()) {
                Ok((bytes, _)) => return Ok(bytes),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads what is there now; `None` if nothing is.
    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match rustix::net::recv(self.as_fd(), &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((bytes, _)) => Ok(Some(bytes)),
            Err(Errno::INTR | Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes all of the parts in order. `more`: further bytes follow at once.
    pub(crate) fn write_all(&self, parts: &mut [IoSlice<'_>], more: bool) -> io::Result<()> {
        let flags = SendFlags::NOSIGNAL | if more { SendFlags::MORE } else { SendFlags::empty() };
        let mut parts = parts;
        IoSlice::advance_slices(&mut parts, 0);
        while !parts.is_empty() {
            let sent = rustix::net::sendmsg(
                self.as_fd(),
                parts,
                &mut SendAncillaryBuffer::default(),
                flags,
            );
            match sent {
                Ok(bytes) => IoSlice::advance_slices(&mut parts, bytes),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    pub(crate) fn tune(&self) -> io::Result<()> {
        use rustix::net::sockopt;
        let big = 4 << 20;
        match self {
            Self::Tcp(stream) => {
                stream.set_nodelay(true)?;
                sockopt::set_socket_keepalive(stream, true)?;
                sockopt::set_tcp_keepidle(stream, Duration::from_secs(10))?;
                sockopt::set_tcp_keepintvl(stream, Duration::from_secs(5))?;
                sockopt::set_tcp_keepcnt(stream, 4)?;
            }
            Self::Unix(stream) => {
                // The default of 208 KiB makes a 1 MiB transfer switch tasks five times.
                sockopt::set_socket_send_buffer_size(stream, big)?;
            }
        }
        Ok(())
    }
}

/// More seconds than this are no time-out that anybody sees the end of.
const MOST_SECONDS: u64 = 1 << 30;

/// Waits until there is something to read on one of the sockets, or a peer has closed, or a signal came
/// in, or `timeout` is over. Tells on which there is.
pub fn wait_for_any<S: AsFd>(sockets: &[S], timeout: Duration) -> Vec<bool> {
    let mut polled: Vec<_> =
        sockets.iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
    match poll(&mut polled, timeout) {
        Ok(_) => polled.iter().map(|fd| !fd.revents().is_empty()).collect(),
        Err(Errno::INTR) => vec![false; sockets.len()],
        // It is met again by whoever reads.
        Err(_) => vec![true; sockets.len()],
    }
}

pub(crate) fn poll(polled: &mut [PollFd<'_>], timeout: Duration) -> rustix::io::Result<usize> {
    let limit = rustix::event::Timespec {
        tv_sec: timeout.as_secs().min(MOST_SECONDS) as i64,
        tv_nsec: timeout.subsec_nanos().into(),
    };
    rustix::event::poll(polled, Some(&limit))
}

/// A listening socket of either kind.
#[derive(Debug)]
pub enum Listener {
    /// On the same host.
    Unix(UnixListener),
    /// Over the network.
    Tcp(TcpListener),
}

impl Listener {
    /// Listens at an address. A UNIX socket file that a dead engine left behind is replaced; one
    /// that still answers is not. Port 0 takes any free port.
    ///
    /// # Errors
    /// If the address is in use or not this host's.
    pub fn bind(address: &Address) -> io::Result<Self> {
        match address {
            Address::Unix(path) => {
                clear_dead_socket(path)?;
                let listener = UnixListener::bind(path)?;
                // Who may connect is decided by the handshake, not by the file's mode; a mount
                // run by another user that has the secret must get in.
                Ok(Self::Unix(listener))
            }
            Address::Tcp(host_port) => Ok(Self::Tcp(TcpListener::bind(host_port.as_str())?)),
        }
    }

    /// The address in use, with the port that was taken.
    ///
    /// # Errors
    /// If the system does not tell.
    pub fn address(&self) -> io::Result<Address> {
        Ok(match self {
            Self::Unix(listener) => {
                let address = listener.local_addr()?;
                Address::Unix(address.as_pathname().unwrap_or(Path::new("")).to_owned())
            }
            Self::Tcp(listener) => Address::Tcp(listener.local_addr()?.to_string()),
        })
    }

    /// Waits for a peer.
    ///
    /// # Errors
    /// Whatever the system reports, such as too many open files.
    pub fn accept(&self) -> io::Result<Socket> {
        let socket = match self {
            Self::Unix(listener) => Socket::Unix(listener.accept()?.0),
            Self::Tcp(listener) => Socket::Tcp(listener.accept()?.0),
        };
        socket.tune()?;
        Ok(socket)
    }

    /// Makes a waiting `accept` return with an error.
    pub fn shut_down(&self) {
        let fd = match self {
            Self::Unix(listener) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        };
        // Nothing to do if it is shut down already.
        let _ = rustix::net::shutdown(fd, rustix::net::Shutdown::Both);
    }
}

fn clear_dead_socket(path: &Path) -> io::Result<()> {
    match UnixStream::connect(path) {
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!("another engine listens at {}", path.display()),
        )),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
