//! What `azekura run` says to its two children, the one that becomes the command and the one that serves its
//! mount, and they to it: closed sets of messages over socket pairs, some of which carry a descriptor.

use std::io::{ErrorKind, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::{Context as _, Result, bail};
use azekura_wire::{receive_with_descriptor, send_with_descriptor};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::namespace::Users;

/// An error text is cut off at this length, in bytes.
const TEXT_BYTES_MAX: usize = 4096;

/// A message from the front to the child.
#[derive(Debug)]
pub(super) enum ToChild {
    /// The standard input that the command is to have; the child's own is the socket.
    Begin(OwnedFd),
    /// The mount is served: become the command.
    Go,
}

/// A message from the child to the front.
#[derive(Debug)]
pub(super) enum ToFront {
    /// The device of the mount, to be served for these users.
    Mounted(OwnedFd, Users),
    /// There is no mount, for this reason.
    Refused(String),
}

/// The device of a mount, and for whom it is to be served.
pub(super) type MountedDevice = (OwnedFd, Users);

/// A message from the process that serves the mount.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FromServer {
    /// The mount is ready for use.
    Serving,
    /// It cannot be served, for this reason.
    Refused(String),
    /// Nobody uses it any more.
    Gone,
    /// Nobody does, and all that was written through it has arrived.
    Arrived,
    /// Not all has, for this reason.
    Lost(String),
}

const BEGIN: u8 = b'b';
const GO: u8 = b'g';
const MOUNTED_FOR_EVERYBODY: u8 = b'm';
const MOUNTED_FOR_ONE_USER: u8 = b'u';
const REFUSED: u8 = b'r';
const SERVING: u8 = b's';
const GONE: u8 = b'o';
const ARRIVED: u8 = b'a';
const LOST: u8 = b'l';

const NOT_UNDERSTOOD: &str =
    "the other half of 'azekura run' sent something that is not understood";

/// A connected pair: the front's end and the child's.
pub(super) fn pair() -> Result<(OwnedFd, OwnedFd)> {
    let kind = SocketType::SEQPACKET;
    rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
        .context("cannot make a socket pair")
}

/// Tells the child its standard input.
pub(super) fn send_begin(socket: impl AsFd, stdin: BorrowedFd<'_>) -> Result<()> {
    send(socket, BEGIN, &[], Some(stdin))
}

/// Tells the child to become the command.
pub(super) fn send_go(socket: impl AsFd) -> Result<()> {
    send(socket, GO, &[], None)
}

/// Hands the device of the mount to the front, or on to whoever serves it.
pub(super) fn send_mounted(socket: impl AsFd, device: BorrowedFd<'_>, users: Users) -> Result<()> {
    let kind = match users {
        Users::Everybody => MOUNTED_FOR_EVERYBODY,
        Users::OneUser => MOUNTED_FOR_ONE_USER,
    };
    send(socket, kind, &[], Some(device))
}

/// Tells the front why there is no mount.
pub(super) fn send_refused(socket: impl AsFd, reason: &str) -> Result<()> {
    send(socket, REFUSED, cut(reason), None)
}

/// Tells the front how it is with the mount that this process serves.
pub(super) fn send_as_server(socket: impl AsFd, message: &FromServer) -> Result<()> {
    match message {
        FromServer::Serving => send(socket, SERVING, &[], None),
        FromServer::Refused(reason) => send_refused(socket, reason),
        FromServer::Gone => send(socket, GONE, &[], None),
        FromServer::Arrived => send(socket, ARRIVED, &[], None),
        FromServer::Lost(reason) => send(socket, LOST, cut(reason), None),
    }
}

fn cut(text: &str) -> &[u8] {
    let bytes = text.as_bytes();
    &bytes[..bytes.len().min(TEXT_BYTES_MAX)]
}

/// The next message from the front; `None` if it is gone.
pub(super) fn receive_as_child(socket: impl AsFd) -> Result<Option<ToChild>> {
    match receive(socket)? {
        None => Ok(None),
        Some((BEGIN, _, Some(stdin))) => Ok(Some(ToChild::Begin(stdin))),
        Some((GO, _, None)) => Ok(Some(ToChild::Go)),
        Some(_) => bail!(NOT_UNDERSTOOD),
    }
}

/// The next message from the child; `None` if it is gone.
pub(super) fn receive_as_front(socket: impl AsFd) -> Result<Option<ToFront>> {
    Ok(match receive(socket)? {
        None => None,
        Some((REFUSED, text, None)) => Some(ToFront::Refused(words(&text))),
        Some(other) => {
            let (device, users) = mounted(other)?;
            Some(ToFront::Mounted(device, users))
        }
    })
}

/// The device of the mount that is to be served; `None` if the front needs nobody for that.
pub(super) fn receive_as_server(socket: impl AsFd) -> Result<Option<MountedDevice>> {
    receive(socket)?.map(mounted).transpose()
}

/// The next message from the process that serves the mount; `None` if it is gone.
pub(super) fn receive_from_server(socket: impl AsFd) -> Result<Option<FromServer>> {
    let Some(message) = receive(socket)? else { return Ok(None) };
    Ok(Some(match message {
        (SERVING, _, None) => FromServer::Serving,
        (REFUSED, text, None) => FromServer::Refused(words(&text)),
        (GONE, _, None) => FromServer::Gone,
        (ARRIVED, _, None) => FromServer::Arrived,
        (LOST, text, None) => FromServer::Lost(words(&text)),
        _ => bail!(NOT_UNDERSTOOD),
    }))
}

fn mounted(message: Raw) -> Result<MountedDevice> {
    match message {
        (MOUNTED_FOR_EVERYBODY, _, Some(device)) => Ok((device, Users::Everybody)),
        (MOUNTED_FOR_ONE_USER, _, Some(device)) => Ok((device, Users::OneUser)),
        _ => bail!(NOT_UNDERSTOOD),
    }
}

fn words(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

fn send(socket: impl AsFd, kind: u8, text: &[u8], with: Option<BorrowedFd<'_>>) -> Result<()> {
    let parts = [IoSlice::new(std::slice::from_ref(&kind)), IoSlice::new(text)];
    send_with_descriptor(socket, &parts, with)
        .context("the other half of 'azekura run' is gone")?;
    Ok(())
}

type Raw = (u8, Vec<u8>, Option<OwnedFd>);

fn receive(socket: impl AsFd) -> Result<Option<Raw>> {
    let mut bytes = vec![0; TEXT_BYTES_MAX + 1];
    let (count, descriptor) = match receive_with_descriptor(socket, &mut bytes) {
        Ok(received) => received,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(None),
        Err(error) => return Err(error).context("cannot hear the other half of 'azekura run'"),
    };
    if count == 0 {
        return Ok(None);
    }
    Ok(Some((bytes[0], bytes[1..count].to_vec(), descriptor)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_whole_and_with_their_descriptor() {
        let (front, child) = pair().unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        send_begin(&front, null.as_fd()).unwrap();
        send_go(&front).unwrap();
        assert!(matches!(receive_as_child(&child).unwrap(), Some(ToChild::Begin(_))));
        assert!(matches!(receive_as_child(&child).unwrap(), Some(ToChild::Go)));
        send_refused(&child, "no\nreason").unwrap();
        send_mounted(&child, null.as_fd(), Users::OneUser).unwrap();
        let Some(ToFront::Refused(text)) = receive_as_front(&front).unwrap() else { panic!() };
        assert_eq!(text, "no\nreason");
        let message = receive_as_front(&front).unwrap();
        assert!(matches!(message, Some(ToFront::Mounted(_, Users::OneUser))));
        drop(child);
        assert!(receive_as_front(&front).unwrap().is_none());
    }

    #[test]
    fn the_server_is_told_what_to_serve_and_tells_how_that_went() {
        let (front, server) = pair().unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        send_mounted(&front, null.as_fd(), Users::Everybody).unwrap();
        let given = receive_as_server(&server).unwrap();
        assert!(matches!(given, Some((_, Users::Everybody))));
        let said = [
            FromServer::Serving,
            FromServer::Refused("why".to_owned()),
            FromServer::Gone,
            FromServer::Arrived,
            FromServer::Lost("no space".to_owned()),
        ];
        for message in &said {
            send_as_server(&server, message).unwrap();
            assert_eq!(receive_from_server(&front).unwrap().as_ref(), Some(message));
        }
        send_go(&front).unwrap();
        assert!(receive_as_server(&server).is_err(), "that is none of its business");
        drop(front);
        assert!(receive_as_server(&server).unwrap().is_none());
        assert!(send_as_server(&server, &FromServer::Gone).is_err());
    }
}
