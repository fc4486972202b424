//! Descriptors that go from one process of a host to another beside the bytes of a UNIX socket
//! (`SCM_RIGHTS`). Owns how one is sent and taken in; what it is of, and who may have it, is decided above.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

use crate::socket::Socket;

impl Socket {
    /// Writes bytes, the first of which carries a descriptor.
    pub(crate) fn write_with_descriptor(
        &self,
        bytes: &[u8],
        descriptor: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let descriptors = [descriptor];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let sent = loop {
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
                return Err(io::ErrorKind::Unsupported.into());
            }
            let parts = [IoSlice::new(bytes)];
            match rustix::net::sendmsg(self.as_fd(), &parts, &mut ancillary, SendFlags::NOSIGNAL) {
                Ok(sent) => break sent,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        };
        self.write_all(&mut [IoSlice::new(&bytes[sent..])], false)
    }

    /// Reads what is there, as [`Socket::read`], and takes a descriptor that comes with it.
    pub(crate) fn read_with_descriptor(
        &self,
        buffer: &mut [u8],
    ) -> io::Result<(usize, Option<OwnedFd>)> {
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [IoSliceMut::new(buffer)];
            let flags = RecvFlags::CMSG_CLOEXEC;
            match rustix::net::recvmsg(self.as_fd(), &mut parts, &mut ancillary, flags) {
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
}
