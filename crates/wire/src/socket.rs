//! Sockets of both kinds behind one type. Owns their options (no delay, keep-alive, time-outs) and
//! the rule that a dead peer never raises SIGPIPE.

use std::io::{self, IoSlice};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use azekura_proto::pool_map::Address;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType,
};

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

    fn tune(&self) -> io::Result<()> {
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

fn poll(polled: &mut [PollFd<'_>], timeout: Duration) -> rustix::io::Result<usize> {
    let limit = rustix::event::Timespec {
        tv_sec: timeout.as_secs().min(MOST_SECONDS) as i64,
        tv_nsec: timeout.subsec_nanos().into(),
    };
    rustix::event::poll(polled, Some(&limit))
}

/// A socket that has just been connected.
#[derive(Debug)]
pub struct Dialled {
    /// The socket.
    pub socket: Socket,
    /// How long the connecting itself took, without the look-up of the host's name and without
    /// addresses that did not answer: over a network, about a round trip.
    pub took: Duration,
}

/// Connects to an address.
///
/// # Errors
/// If nobody listens there or no answer comes within `timeout`.
pub fn dial(address: &Address, timeout: Duration) -> io::Result<Socket> {
    let dialled = dial_several(address, 1, timeout)?.pop();
    dialled.map(|dialled| dialled.socket).ok_or_else(|| io::ErrorKind::NotConnected.into())
}

/// Makes `count` connections to an address at once, without threads. Gives as many as came through.
///
/// # Errors
/// If nobody listens there or no answer comes within `timeout`, so that none came through.
pub fn dial_several(
    address: &Address,
    count: usize,
    timeout: Duration,
) -> io::Result<Vec<Dialled>> {
    let deadline = Instant::now() + timeout;
    let left = || deadline.saturating_duration_since(Instant::now());
    match address {
        Address::Unix(path) => came_through((0..count).map(|_| dial_unix(path, left())).collect()),
        Address::Tcp(host_port) => {
            let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
            for address in host_port.to_socket_addrs()? {
                match came_through(dial_tcp(&address, count, left())) {
                    Ok(dialled) => return Ok(dialled),
                    Err(error) => last = error,
                }
            }
            Err(last)
        }
    }
}

/// The good ones among those that were tried; if there is none, why the first failed.
fn came_through(tried: Vec<io::Result<Dialled>>) -> io::Result<Vec<Dialled>> {
    let (mut good, mut first_error) = (Vec::with_capacity(tried.len()), None);
    for one in tried {
        match one.and_then(|dialled| dialled.socket.tune().map(|()| dialled)) {
            Ok(dialled) => good.push(dialled),
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
    }
    match first_error {
        Some(error) if good.is_empty() => Err(error),
        _ => Ok(good),
    }
}

/// A listener whose queue is full lets callers wait; so long at most.
fn dial_unix(path: &Path, timeout: Duration) -> io::Result<Dialled> {
    let begun = Instant::now();
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC;
    let descriptor =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let limit = Some(timeout.max(Duration::from_millis(1)));
    set_socket_timeout(&descriptor, Timeout::Send, limit)?;
    match rustix::net::connect(&descriptor, &address) {
        Err(Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
        connected => connected?,
    }
    set_socket_timeout(&descriptor, Timeout::Send, None)?;
    Ok(Dialled { socket: Socket::Unix(descriptor.into()), took: begun.elapsed() })
}

/// A connection that the kernel is making.
struct Attempt {
    stream: TcpStream,
    begun: Instant,
}

impl Attempt {
    fn begin(address: &SocketAddr) -> io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let descriptor = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        let begun = Instant::now();
        match rustix::net::connect(&descriptor, address) {
            // After a signal, too, the kernel goes on with it.
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {
                Ok(Self { stream: descriptor.into(), begun })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// What came of it, once the socket can be written to.
    fn finish(self) -> io::Result<Dialled> {
        let took = self.begun.elapsed();
        if let Some(error) = self.stream.take_error()? {
            return Err(error);
        }
        self.stream.set_nonblocking(false)?;
        Ok(Dialled { socket: Socket::Tcp(self.stream), took })
    }
}

fn dial_tcp(address: &SocketAddr, count: usize, timeout: Duration) -> Vec<io::Result<Dialled>> {
    let begun = Instant::now();
    let mut tried = Vec::with_capacity(count);
    let mut waiting = Vec::with_capacity(count);
    for _ in 0..count {
        match Attempt::begin(address) {
            Ok(attempt) => waiting.push(attempt),
            Err(error) => tried.push(Err(error)),
        }
    }
    while !waiting.is_empty() {
        let mut polled: Vec<_> =
            waiting.iter().map(|attempt| PollFd::new(&attempt.stream, PollFlags::OUT)).collect();
        let failure = match poll(&mut polled, timeout.saturating_sub(begun.elapsed())) {
            Ok(0) => Some(Errno::TIMEDOUT),
            Ok(_) => None,
            Err(Errno::INTR) => continue,
            Err(error) => Some(error),
        };
        if let Some(failure) = failure {
            tried.extend(waiting.iter().map(|_| Err(failure.into())));
            return tried;
        }
        let ready: Vec<bool> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut still_waiting = Vec::with_capacity(waiting.len());
        for (attempt, ready) in waiting.into_iter().zip(ready) {
            if ready {
                tried.push(attempt.finish());
            } else {
                still_waiting.push(attempt);
            }
        }
        waiting = still_waiting;
    }
    tried
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

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn check_several(listener: &Listener) {
        let address = listener.address().unwrap();
        let dialled = dial_several(&address, 8, TIMEOUT).unwrap();
        assert_eq!(dialled.len(), 8);
        for one in &dialled {
            let status = rustix::fs::fcntl_getfl(&one.socket).unwrap();
            assert!(!status.contains(rustix::fs::OFlags::NONBLOCK), "reads must wait");
            let flags = rustix::io::fcntl_getfd(&one.socket).unwrap();
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
            assert!(one.took < TIMEOUT);
            one.socket.write_all(&mut [IoSlice::new(b"x")], false).unwrap();
            let accepted = listener.accept().unwrap();
            assert_eq!(accepted.read(&mut [0; 4]).unwrap(), 1);
        }
        assert!(dial_several(&address, 0, TIMEOUT).unwrap().is_empty());
        assert!(dial(&address, TIMEOUT).is_ok());
    }

    #[test]
    fn several_are_dialled_at_once() {
        check_several(&Listener::bind(&Address::Tcp("127.0.0.1:0".to_owned())).unwrap());
        let directory = tempfile::tempdir().unwrap();
        check_several(&Listener::bind(&Address::Unix(directory.path().join("s"))).unwrap());
    }

    #[test]
    fn where_nobody_listens_there_is_an_error() {
        let listener = Listener::bind(&Address::Tcp("127.0.0.1:0".to_owned())).unwrap();
        let address = listener.address().unwrap();
        drop(listener);
        let error = dial_several(&address, 3, TIMEOUT).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert!(dial(&address, TIMEOUT).is_err());
        let directory = tempfile::tempdir().unwrap();
        let missing = Address::Unix(directory.path().join("s"));
        let error = dial_several(&missing, 3, TIMEOUT).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn who_does_not_answer_in_time_is_given_up() {
        // A queue of one place that is full: the kernel drops what comes further.
        let full = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        rustix::net::bind(&full, &any_port).unwrap();
        rustix::net::listen(&full, 0).unwrap();
        let address = Address::Tcp(
            TcpListener::from(full.try_clone().unwrap()).local_addr().unwrap().to_string(),
        );
        let came = dial_several(&address, 8, Duration::from_millis(200)).unwrap();
        assert!((1..8).contains(&came.len()), "{} came through", came.len());
        let error = dial_several(&address, 2, Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_unix_listener_that_takes_nobody_in_is_waited_for_in_bounds() {
        let dir = std::env::temp_dir().join(format!("azekura-dial-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("full");
        let descriptor =
            rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&descriptor, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&descriptor, 0).unwrap();
        let address = Address::Unix(path.clone());
        let limit = Duration::from_millis(100);
        let begun = Instant::now();
        let kept: Vec<_> = (0..4).map(|_| dial(&address, limit)).collect();
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
        let late = kept.iter().filter_map(|dialled| dialled.as_ref().err());
        assert!(late.clone().count() > 0, "its queue has an end");
        assert!(late.clone().all(|error| error.kind() == io::ErrorKind::TimedOut));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
