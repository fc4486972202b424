//! The open `/dev/fuse` descriptor of one mount. Owns reading requests and writing replies, each
//! with exactly one system call; knows nothing of their meaning.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::abi::OutHeader;

/// One end of the conversation with the kernel. All threads share the descriptor: the kernel
/// hands each request to exactly one reader.
#[derive(Debug)]
pub(crate) struct Channel {
    device: OwnedFd,
}

/// What a read of the device gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Received {
    /// A message of this many bytes lies in the buffer.
    Message(usize),
    /// The mount is gone.
    Unmounted,
}

impl Channel {
    pub(crate) fn new(device: OwnedFd) -> Self {
        Self { device }
    }

    /// The device, for rings.
    pub(crate) fn device(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }

    /// Waits for the next message.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Result<Received, Errno> {
        loop {
            match rustix::io::read(&self.device, &mut *buffer) {
                Ok(0) | Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(Received::Unmounted),
                Ok(count) => return Ok(Received::Message(count)),
                // NOENT: the request was withdrawn while it was being read.
                Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Sends an answer to request `unique` that consists of `parts`, at most two.
    pub(crate) fn reply(&self, unique: u64, parts: [&[u8]; 2]) {
        let length = size_of::<OutHeader>() + parts[0].len() + parts[1].len();
        let header = OutHeader { len: length as u32, error: 0, unique };
        self.send(&header, parts);
    }

    /// Sends an error in answer to request `unique`.
    pub(crate) fn reply_error(&self, unique: u64, errno: Errno) {
        let length = size_of::<OutHeader>() as u32;
        let header = OutHeader { len: length, error: -errno.raw_os_error(), unique };
        self.send(&header, [&[], &[]]);
    }

    fn send(&self, header: &OutHeader, parts: [&[u8]; 2]) {
        match self.write(header, parts) {
            // NOENT: the caller was interrupted and waits no longer. NODEV: unmounted.
            Ok(()) | Err(Errno::NOENT | Errno::NODEV) => {}
            Err(errno) => {
                tracing::warn!(
                    unique = header.unique,
                    bytes = header.len,
                    "the kernel refused a FUSE reply: {errno}"
                );
                if errno != Errno::INVAL || header.error != 0 {
                    return;
                }
                // It did not like the form, and the caller still waits: let it go with an error.
                let length = size_of::<OutHeader>() as u32;
                let error = -Errno::IO.raw_os_error();
                let header = OutHeader { len: length, error, unique: header.unique };
                let _ = self.write(&header, [&[], &[]]);
            }
        }
    }

    /// Sends a message of the server's own accord; `code` says of which kind.
    pub(crate) fn notify(&self, code: i32, parts: [&[u8]; 2]) -> Result<(), Errno> {
        let length = size_of::<OutHeader>() + parts[0].len() + parts[1].len();
        self.write(&OutHeader { len: length as u32, error: code, unique: 0 }, parts)
    }

    fn write(&self, header: &OutHeader, parts: [&[u8]; 2]) -> Result<(), Errno> {
        let slices =
            [IoSlice::new(header.as_bytes()), IoSlice::new(parts[0]), IoSlice::new(parts[1])];
        let used = match parts {
            [[], []] => 1,
            [_, []] => 2,
            [_, _] => 3,
        };
        rustix::io::retry_on_intr(|| rustix::io::writev(&self.device, &slices[..used])).map(drop)
    }
}
