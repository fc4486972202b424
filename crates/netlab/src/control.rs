//! How a lab in another process is talked to: an abstract UNIX socket, one line of JSON each way. The
//! socket is no file, so nothing stays of it; only the same user is let in, and only let itself be
//! told by the same user. A lab listens in each of its hosts as well, whose names of abstract sockets are
//! their own; who asks from there and wants a command run in another host leaves that to the lab.

use std::collections::BTreeSet;
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Arc, Weak, mpsc};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use serde::{Deserialize, Serialize};

use crate::errand::{self, Errand, Outcome, Underway, WithStreams};
use crate::error::LabError;
use crate::lab::Lab;
use crate::status::LabStatus;
use crate::topology::Change;

/// A lab that does not answer within this is stuck.
const PATIENCE: Duration = Duration::from_secs(40);
/// Longest line.
const LINE_BYTES_MAX: u64 = 8 << 20;

/// What a lab is asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// How it is.
    Status,
    /// Changes a link.
    Set {
        /// The link.
        link: String,
        /// The words of the change.
        words: Vec<String>,
    },
    /// Takes a host off its links.
    Cut(String),
    /// Puts it back.
    Mend(String),
    /// Stops its processes.
    Freeze(String),
    /// Lets them go on.
    Thaw(String),
    /// Kills them.
    Kill(String),
    /// Which process holds a host.
    Enter(String),
    /// Runs a command in a host for somebody who is in another, and cannot enter. Three descriptors come
    /// with it.
    Run(Errand),
    /// The end. The connection closes when everything is removed, and the process that served the lab ends.
    Down,
}

/// What a lab answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// It is done.
    Done,
    /// How the lab is.
    Status(Box<LabStatus>),
    /// The holder of a host.
    Holder(u32),
    /// Who asks is in a host, from which no way leads into others: `Run` does it.
    Within,
    /// What became of the command that was to run.
    Ran(Outcome),
    /// It cannot be done, for this reason.
    Failed(String),
}

/// The lab cannot be reached, or says no.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No lab has that name.
    #[error("no lab '{0}' is running: start it with 'azekura-lab netlab up FILE.toml'")]
    Absent(String),
    /// A lab with that name runs already.
    #[error("a lab '{0}' runs already: 'azekura-lab netlab down {0}' ends it")]
    Taken(String),
    /// The connection broke.
    #[error("lab '{name}' does not answer: {source}")]
    Io {
        /// The lab.
        name: String,
        /// What happened.
        source: io::Error,
    },
    /// The lab says why not.
    #[error("{0}")]
    Refused(String),
}

/// A hash (FNV-1a) of the scope, because a socket's name is short.
fn prefix(scope: &str) -> String {
    let hash = scope.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("azekura-netlab/{hash:016x}/")
}

fn address(scope: &str, name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("{}{name}", prefix(scope)))
}

/// Whether the other side is a process of this user.
fn is_own_user(stream: &UnixStream) -> bool {
    crate::sys::peer(stream).is_ok_and(|(_, user)| user == rustix::process::geteuid().as_raw())
}

/// Names of the labs that run in a scope, sorted.
///
/// # Errors
/// If the kernel's list of sockets cannot be read.
pub fn names(scope: &str) -> io::Result<Vec<String>> {
    let prefix = format!("@{}", prefix(scope));
    let sockets = std::fs::read_to_string("/proc/net/unix")?;
    let names: BTreeSet<&str> = sockets
        .lines()
        .filter_map(|line| line.split_whitespace().last()?.strip_prefix(&prefix))
        .collect();
    Ok(names.into_iter().map(str::to_owned).collect())
}

/// The socket of a lab that is about to start. Takes the name.
#[derive(Debug)]
pub struct Reception {
    listener: UnixListener,
    address: SocketAddr,
}

impl Reception {
    /// Takes a name within a scope, which is any text that those who use the lab know too.
    ///
    /// # Errors
    /// If a lab has the name.
    pub fn open(scope: &str, name: &str) -> Result<Self, ControlError> {
        let opened = address(scope, name)
            .and_then(|address| Ok((UnixListener::bind_addr(&address)?, address)));
        match opened {
            Ok((listener, address)) => Ok(Self { listener, address }),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                Err(ControlError::Taken(name.to_owned()))
            }
            Err(source) => Err(ControlError::Io { name: name.to_owned(), source }),
        }
    }

    /// Serves the lab in threads of its own, outside and in its hosts. `ended` hears of it when somebody
    /// asks for the end.
    ///
    /// # Errors
    /// If no thread can be started, or a host's socket cannot be made.
    pub fn serve(self, lab: &Arc<Lab>, ended: &mpsc::Sender<UnixStream>) -> io::Result<()> {
        for host in lab.host_names() {
            let listener = lab
                .within(host, || UnixListener::bind_addr(&self.address))
                .map_err(io::Error::other)??;
            admit(listener, Place::Host, Arc::downgrade(lab), ended.clone())?;
        }
        admit(self.listener, Place::Outside, Arc::downgrade(lab), ended.clone())
    }
}

/// Where those who ask are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Outside,
    Host,
}

fn admit(
    listener: UnixListener,
    place: Place,
    lab: Weak<Lab>,
    ended: mpsc::Sender<UnixStream>,
) -> io::Result<()> {
    std::thread::Builder::new().name("netlab control".to_owned()).spawn(move || {
        for stream in listener.incoming().flatten().filter(is_own_user) {
            let (lab, ended) = (lab.clone(), ended.clone());
            // A thread that cannot be started closes the connection, which tells the client.
            let _ = std::thread::Builder::new().spawn(move || attend(stream, place, &lab, &ended));
        }
    })?;
    Ok(())
}

fn attend(
    stream: UnixStream,
    place: Place,
    lab: &Weak<Lab>,
    ended: &mpsc::Sender<UnixStream>,
) -> Option<()> {
    let mut from = WithStreams::new(&stream);
    let request = receive::<Request>(&stream, &mut from)?;
    let lab = lab.upgrade()?;
    if let Request::Run(errand) = &request {
        let spaces = lab.name_spaces(&errand.host);
        drop(lab);
        let answer = match spaces {
            Ok(spaces) => errand::carry_out(errand, &spaces, from.into_streams(), &stream),
            Err(error) => Outcome::Failed(error.to_string()),
        };
        return send(&stream, &Answer::Ran(answer)).ok();
    }
    let answer = match (&request, place) {
        (Request::Enter(_), Place::Host) => Answer::Within,
        _ => answer(&lab, &request),
    };
    // The lab goes when its owner lets go of it: not held a moment longer.
    drop(lab);
    let _ = send(&stream, &answer);
    if matches!(request, Request::Down) {
        let _ = ended.send(stream);
    }
    Some(())
}

fn answer(lab: &Lab, request: &Request) -> Answer {
    let result = match request {
        Request::Status => lab.status().map(|status| Answer::Status(Box::new(status))),
        Request::Set { link, words } => match Change::parse(words) {
            Ok(change) => lab.set(link, &change).map(|()| Answer::Done),
            Err(error) => return Answer::Failed(error.to_string()),
        },
        Request::Cut(host) => lab.cut(host).map(|()| Answer::Done),
        Request::Mend(host) => lab.mend(host).map(|()| Answer::Done),
        Request::Freeze(host) => lab.freeze(host).map(|()| Answer::Done),
        Request::Thaw(host) => lab.thaw(host).map(|()| Answer::Done),
        Request::Kill(host) => lab.kill(host).map(|()| Answer::Done),
        Request::Enter(host) => lab.holder_pid(host).map(Answer::Holder),
        Request::Down | Request::Run(_) => Ok(Answer::Done),
    };
    result.unwrap_or_else(|error: LabError| Answer::Failed(error.to_string()))
}

fn line_of(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

fn send(mut stream: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    stream.write_all(&line_of(message)?)
}

fn receive<T: for<'de> Deserialize<'de>>(stream: &UnixStream, from: &mut impl Read) -> Option<T> {
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut line = String::new();
    BufReader::new(Read::take(from, LINE_BYTES_MAX)).read_line(&mut line).ok()?;
    serde_json::from_str(&line).ok()
}

fn call(scope: &str, name: &str) -> Result<UnixStream, ControlError> {
    let connected = address(scope, name).and_then(|address| UnixStream::connect_addr(&address));
    let stream = match connected {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            return Err(ControlError::Absent(name.to_owned()));
        }
        other => other.map_err(|source| ControlError::Io { name: name.to_owned(), source })?,
    };
    if !is_own_user(&stream) {
        return Err(ControlError::Refused(format!("lab '{name}' is another user's")));
    }
    Ok(stream)
}

/// Asks the lab `name` of a scope.
///
/// # Errors
/// If there is no such lab, it does not answer, or it refuses.
pub fn ask(scope: &str, name: &str, request: &Request) -> Result<Answer, ControlError> {
    let broken = |source| ControlError::Io { name: name.to_owned(), source };
    let stream = call(scope, name)?;
    let is_end = matches!(request, Request::Down);
    let server = if is_end { server_of(&stream).map_err(broken)? } else { None };
    send(&stream, request).map_err(broken)?;
    let answer = receive(&stream, &mut &stream)
        .ok_or_else(|| broken(io::Error::from(io::ErrorKind::UnexpectedEof)))?;
    if let Answer::Failed(why) = answer {
        return Err(ControlError::Refused(why));
    }
    if is_end {
        // The end of the stream: everything is removed. The name is free when the process is gone.
        let _ = io::copy(&mut &stream, &mut io::sink());
        if let Some(server) = &server {
            wait_for_end(server).map_err(broken)?;
        }
    }
    Ok(answer)
}

/// The process that serves a lab. `None` if it cannot be seen from here, is this one, or is gone.
fn server_of(stream: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let (pid, _) = crate::sys::peer(stream)?;
    let Some(pid) = pid.filter(|pid| *pid != getpid()) else { return Ok(None) };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(server) => Ok(Some(server)),
        Err(Errno::SRCH) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn wait_for_end(process: &OwnedFd) -> io::Result<()> {
    let mut polled = [PollFd::new(process, PollFlags::IN)];
    rustix::io::retry_on_intr(|| poll(&mut polled, None))?;
    Ok(())
}

/// Has the lab run a command in a host, with this process's standard streams. The command dies with what
/// this gives back.
///
/// # Errors
/// If there is no such lab, or it cannot be told.
pub fn begin(scope: &str, name: &str, errand: Errand) -> Result<Underway, ControlError> {
    let broken = |source| ControlError::Io { name: name.to_owned(), source };
    let stream = call(scope, name)?;
    let line = line_of(&Request::Run(errand)).map_err(broken)?;
    errand::send_with_streams(&stream, &line).map_err(broken)?;
    Ok(Underway::new(stream))
}

/// What became of what [`begin`] began, when it has ended.
///
/// # Errors
/// If the lab is gone, or refuses.
pub fn finish(name: &str, underway: &Underway) -> Result<Outcome, ControlError> {
    let broken = |source| ControlError::Io { name: name.to_owned(), source };
    let mut line = String::new();
    let mut from = BufReader::new(Read::take(underway.stream(), LINE_BYTES_MAX));
    from.read_line(&mut line).map_err(broken)?;
    match serde_json::from_str(&line).map_err(|error| broken(error.into()))? {
        Answer::Ran(Outcome::Failed(why)) | Answer::Failed(why) => Err(ControlError::Refused(why)),
        Answer::Ran(outcome) => Ok(outcome),
        _ => Err(broken(io::ErrorKind::InvalidData.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_keep_names_apart() {
        let scope = format!("test {}", std::process::id());
        let _taken = Reception::open(&scope, "lab").unwrap();
        assert!(matches!(Reception::open(&scope, "lab"), Err(ControlError::Taken(_))));
        let _other = Reception::open(&format!("{scope}+"), "lab").unwrap();
        assert_eq!(names(&scope).unwrap(), ["lab"]);
        assert!(matches!(
            ask(&scope, "none", &Request::Status),
            Err(ControlError::Absent(name)) if name == "none"
        ));
    }

    #[test]
    fn messages_survive_the_wire() {
        for request in [
            Request::Status,
            Request::Set { link: "a-b".to_owned(), words: vec!["delay=1ms".to_owned()] },
            Request::Kill("a".to_owned()),
        ] {
            let text = serde_json::to_string(&request).unwrap();
            let back: Request = serde_json::from_str(&text).unwrap();
            assert_eq!(format!("{back:?}"), format!("{request:?}"));
        }
    }
}
