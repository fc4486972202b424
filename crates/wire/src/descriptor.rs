//! Descriptors that go from one process of a host to another beside the bytes of a UNIX socket
//! (`SCM_RIGHTS`). Owns how one is sent and taken in; what it is of, and who may have it, is decided above.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

use crate::socket::Socket;

/// Sends bytes by one call, the first of which carries the descriptor, if there is one. Gives how many bytes
/// went: all of them where the socket keeps messages apart.
///
/// # Errors
/// Those of `sendmsg(2)` but `EINTR`.
pub fn send_with_descriptor(
    socket: impl AsFd,
    parts: &[IoSlice<'_>],
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    loop {
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if let Some(descriptor) = &descriptor
            && !ancillary.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(descriptor)))
        {
            return Err(io::ErrorKind::Unsupported.into());
        }
        match rustix::net::sendmsg(&socket, parts, &mut ancillary, SendFlags::NOSIGNAL) {
            Ok(sent) => return Ok(sent),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives what is there, at most as much as fits, and a descriptor that comes with it. No bytes are the end.
///
/// # Errors
/// Those of `recvmsg(2)` but `EINTR`.
pub fn receive_with_descriptor(
    socket: impl AsFd,
    buffer: &mut [u8],
) -> io::Result<(usize, Option<OwnedFd>)> {
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(buffer)];
        match rustix::net::recvmsg(&socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => {
                // What is more than one was not asked for, and is closed.
                let mut taken = None;
                for message in ancillary.drain() {
                    if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                        descriptors.for_each(|descriptor| {
                            taken.get_or_insert(descriptor);
                        });
                    }
                }
                return Ok((received.bytes, taken));
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

impl Socket {
    /// Writes bytes, the first of which carries a descriptor.
    pub(crate) fn write_with_descriptor(
        &self,
        bytes: &[u8],
        descriptor: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let sent = send_with_descriptor(self, &[IoSlice::new(bytes)], Some(descriptor))?;
        self.write_all(&mut [IoSlice::new(&bytes[sent..])], false)
    }

    /// Reads what is there, as [`Socket::read`], and takes a descriptor that comes with it.
    pub(crate) fn read_with_descriptor(
        &self,
        buffer: &mut [u8],
    ) -> io::Result<(usize, Option<OwnedFd>)> {
        receive_with_descriptor(self, buffer)
    }
}
