//! Connecting. Owns how many connections, to several addresses as well, are made at once without threads, and that
//! each is given up when its time is over, whatever the others do.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::path::Path;
use std::time::{Duration, Instant};

use azekura_proto::pool_map::Address;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::socket::{Socket, poll};

/// A socket that has just been connected.
#[derive(Debug)]
pub struct Dialled {
    /// The socket.
    pub socket: Socket,
    /// How long the connecting itself took, without the look-up of the host's name and without
    /// addresses that did not answer: over a network, about a round trip.
    pub took: Duration,
}

/// Whom to connect to.
#[derive(Clone, Copy, Debug)]
pub struct Dialling<'a> {
    /// The address.
    pub address: &'a Address,
    /// How many connections there are to be.
    pub count: usize,
    /// How long that may take.
    pub timeout: Duration,
}

/// Connects to an address.
///
/// # Errors
/// If nobody listens there or no answer comes within `timeout`.
pub fn dial(address: &Address, timeout: Duration) -> io::Result<Socket> {
    dial_timed(address, timeout).map(|dialled| dialled.socket)
}

/// Connects to an address, and tells how long that took.
///
/// # Errors
/// As [`dial`].
pub fn dial_timed(address: &Address, timeout: Duration) -> io::Result<Dialled> {
    let mut all = dial_all(&[Dialling { address, count: 1, timeout }]);
    let dialled = all.pop().unwrap_or_else(|| Ok(Vec::new()))?.pop();
    dialled.ok_or_else(|| io::ErrorKind::NotConnected.into())
}

/// Makes connections to all of the addresses at once, without threads. Gives for each address as many as came
/// through.
///
/// # Errors
/// For an address where nobody listens or from which no answer comes in time, so that none came through.
pub fn dial_all(wanted: &[Dialling<'_>]) -> Vec<io::Result<Vec<Dialled>>> {
    let mut calls: Vec<Call> = wanted.iter().map(Call::new).collect();
    loop {
        let mut attempts = Vec::new();
        let mut is_over = true;
        for (place, call) in calls.iter_mut().enumerate() {
            let Some(address) = call.next_address() else { continue };
            is_over = false;
            for _ in 0..call.count {
                match Attempt::begin(&address, call.deadline) {
                    Ok(attempt) => attempts.push((place, attempt)),
                    Err(error) => call.note(Err(error)),
                }
            }
        }
        if is_over {
            return calls.into_iter().map(|call| call.result).collect();
        }
        finish_all(attempts, |place, tried| calls[place].note(tried));
        for call in &mut calls {
            call.settle();
        }
    }
}

/// How far the connections to one address have come.
struct Call {
    count: usize,
    deadline: Instant,
    /// Where the host may be reached besides.
    addresses: std::vec::IntoIter<SocketAddr>,
    /// What came of the attempts at an address, while one is tried.
    tried: Option<Vec<io::Result<Dialled>>>,
    result: io::Result<Vec<Dialled>>,
}

impl Call {
    fn new(wanted: &Dialling<'_>) -> Self {
        let Dialling { address, count, timeout } = *wanted;
        let deadline = Instant::now() + timeout;
        let left = || deadline.saturating_duration_since(Instant::now());
        let no_address = || io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        let (result, addresses) = match address {
            Address::Unix(path) => {
                (came_through((0..count).map(|_| dial_unix(path, left())).collect()), Vec::new())
            }
            Address::Tcp(host_port) => match host_port.to_socket_addrs() {
                Ok(addresses) => (Err(no_address()), addresses.collect()),
                Err(error) => (Err(error), Vec::new()),
            },
        };
        let addresses = addresses.into_iter();
        Self { count, deadline, addresses, tried: None, result }
    }

    /// Where to try next, if the address before was no good.
    fn next_address(&mut self) -> Option<SocketAddr> {
        let address = self.result.is_err().then(|| self.addresses.next()).flatten();
        self.tried = address.map(|_| Vec::with_capacity(self.count));
        address
    }

    fn note(&mut self, tried: io::Result<Dialled>) {
        self.tried.get_or_insert_default().push(tried);
    }

    /// Looks at what came of the address that was tried.
    fn settle(&mut self) {
        if let Some(tried) = self.tried.take() {
            self.result = came_through(tried);
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
    deadline: Instant,
}

impl Attempt {
    fn begin(address: &SocketAddr, deadline: Instant) -> io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let descriptor = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        let begun = Instant::now();
        match rustix::net::connect(&descriptor, address) {
            // After a signal, too, the kernel goes on with it.
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {
                Ok(Self { stream: descriptor.into(), begun, deadline })
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

/// Waits until something has come of every attempt, and tells what, with the number that it has.
fn finish_all(attempts: Vec<(usize, Attempt)>, mut done: impl FnMut(usize, io::Result<Dialled>)) {
    let mut waiting = attempts;
    while let Some(deadline) = waiting.iter().map(|(_, attempt)| attempt.deadline).min() {
        let polled = waiting.iter().map(|(_, attempt)| &attempt.stream);
        let mut polled: Vec<_> = polled.map(|stream| PollFd::new(stream, PollFlags::OUT)).collect();
        let left = deadline.saturating_duration_since(Instant::now());
        let failure = match poll(&mut polled, left) {
            Ok(_) => None,
            Err(Errno::INTR) => continue,
            Err(error) => Some(error),
        };
        let ready: Vec<bool> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
        let now = Instant::now();
        let mut still_waiting = Vec::with_capacity(waiting.len());
        for ((place, attempt), ready) in waiting.into_iter().zip(ready) {
            let is_late = || (attempt.deadline <= now).then_some(Errno::TIMEDOUT);
            if ready {
                done(place, attempt.finish());
            } else if let Some(failure) = failure.or_else(is_late) {
                done(place, Err(failure.into()));
            } else {
                still_waiting.push((place, attempt));
            }
        }
        waiting = still_waiting;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::Listener;
    use std::io::IoSlice;
    use std::net::TcpListener;

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn dial_several(
        address: &Address,
        count: usize,
        timeout: Duration,
    ) -> io::Result<Vec<Dialled>> {
        dial_all(&[Dialling { address, count, timeout }]).pop().unwrap()
    }

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

    /// A queue of one place: once that is full the kernel drops what comes further.
    fn full_listener() -> (TcpListener, Address) {
        let full = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        rustix::net::bind(&full, &any_port).unwrap();
        rustix::net::listen(&full, 0).unwrap();
        let full = TcpListener::from(full);
        let address = Address::Tcp(full.local_addr().unwrap().to_string());
        (full, address)
    }

    #[test]
    fn who_does_not_answer_in_time_is_given_up() {
        let (_full, address) = full_listener();
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

    #[test]
    fn of_several_addresses_each_has_its_own_end() {
        let listeners: Vec<Listener> = (0..3)
            .map(|_| Listener::bind(&Address::Tcp("127.0.0.1:0".to_owned())).unwrap())
            .collect();
        let mut addresses: Vec<Address> =
            listeners.iter().map(|listener| listener.address().unwrap()).collect();
        drop(listeners.into_iter().nth(1));
        let listener = Listener::bind(&Address::Tcp("127.0.0.1:0".to_owned())).unwrap();
        addresses[0] = listener.address().unwrap();
        let (_full, full) = full_listener();
        addresses.push(full);
        addresses.push(Address::Tcp("nowhere.invalid:1".to_owned()));
        let dialling =
            |place: usize, count, timeout| Dialling { address: &addresses[place], count, timeout };
        let short = Duration::from_millis(200);
        let begun = Instant::now();
        let came = dial_all(&[
            dialling(0, 2, TIMEOUT),
            dialling(1, 2, TIMEOUT),
            dialling(3, 8, short),
            dialling(4, 1, TIMEOUT),
            dialling(0, 1, TIMEOUT),
        ]);
        assert!((short..TIMEOUT).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        let counts: Vec<_> = came.iter().map(|came| came.as_ref().map_or(0, Vec::len)).collect();
        assert_eq!([counts[0], counts[1], counts[3], counts[4]], [2, 0, 0, 1]);
        assert!((1..8).contains(&counts[2]), "{counts:?}");
        assert!(dial_all(&[]).is_empty());
    }
}
