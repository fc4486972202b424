//! What `azekura run` and the child that becomes the command say to each other: a closed set of
//! messages over a socket pair, some of which carry a descriptor.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::{Context as _, Result, bail};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

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

const BEGIN: u8 = b'b';
const GO: u8 = b'g';
const MOUNTED_FOR_EVERYBODY: u8 = b'm';
const MOUNTED_FOR_ONE_USER: u8 = b'u';
const REFUSED: u8 = b'r';

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

/// Hands the device of the mount to the front.
pub(super) fn send_mounted(socket: impl AsFd, device: BorrowedFd<'_>, users: Users) -> Result<()> {
    let kind = match users {
        Users::Everybody => MOUNTED_FOR_EVERYBODY,
        Users::OneUser => MOUNTED_FOR_ONE_USER,
    };
    send(socket, kind, &[], Some(device))
}

/// Tells the front why there is no mount.
pub(super) fn send_refused(socket: impl AsFd, reason: &str) -> Result<()> {
    let text = reason.as_bytes();
    send(socket, REFUSED, &text[..text.len().min(TEXT_BYTES_MAX)], None)
}

/// The next message from the front; `None` if it is gone.
pub(super) fn receive_as_child(socket: impl AsFd) -> Result<Option<ToChild>> {
    match receive(socket)? {
        None => Ok(None),
        Some((BEGIN, _, Some(stdin))) => Ok(Some(ToChild::Begin(stdin))),
        Some((GO, _, None)) => Ok(Some(ToChild::Go)),
        Some(_) => bail!("'azekura run' sent something that is not understood"),
    }
}

/// The next message from the child; `None` if it is gone.
pub(super) fn receive_as_front(socket: impl AsFd) -> Result<Option<ToFront>> {
    match receive(socket)? {
        None => Ok(None),
        Some((MOUNTED_FOR_EVERYBODY, _, Some(device))) => {
            Ok(Some(ToFront::Mounted(device, Users::Everybody)))
        }
        Some((MOUNTED_FOR_ONE_USER, _, Some(device))) => {
            Ok(Some(ToFront::Mounted(device, Users::OneUser)))
        }
        Some((REFUSED, text, None)) => {
            Ok(Some(ToFront::Refused(String::from_utf8_lossy(&text).into_owned())))
        }
        Some(_) => bail!("the child sent something that is not understood"),
    }
}

fn send(socket: impl AsFd, kind: u8, text: &[u8], with: Option<BorrowedFd<'_>>) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if let Some(descriptor) = &with {
        control.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(descriptor)));
    }
    let parts = [IoSlice::new(std::slice::from_ref(&kind)), IoSlice::new(text)];
    rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(&socket, &parts, &mut control, SendFlags::NOSIGNAL)
    })
    .context("the other half of 'azekura run' is gone")?;
    Ok(())
}

type Raw = (u8, Vec<u8>, Option<OwnedFd>);

fn receive(socket: impl AsFd) -> Result<Option<Raw>> {
    let mut bytes = vec![0; TEXT_BYTES_MAX + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        rustix::net::recvmsg(&socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)
    });
    let count = match received {
        Ok(message) => message.bytes,
        Err(rustix::io::Errno::CONNRESET) => 0,
        Err(error) => return Err(error).context("cannot hear the other half of 'azekura run'"),
    };
    if count == 0 {
        return Ok(None);
    }
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
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
}
