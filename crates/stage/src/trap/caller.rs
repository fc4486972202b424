//! The thread whose call waits: its memory, and what its paths mean. Owns the rule that nothing read from a
//! process counts before the call has been seen to wait still, as another process may have its number.

use std::fs;
use std::os::unix::ffi::OsStringExt as _;

use rustix::io::Errno;

use super::calls::Named;
use crate::sys::memory::{self, Plain};
use crate::sys::notify::{Listener, Notification};

/// The longest path of a call, with the zero byte at its end.
const PATH_BYTES_MAX: usize = libc::PATH_MAX as usize;

/// A call that waits, with its caller.
#[derive(Clone, Copy)]
pub(super) struct Caller<'a> {
    pub(super) listener: &'a Listener,
    pub(super) call: Notification,
}

impl Caller<'_> {
    /// Reads a text from the caller's memory; `None` if it cannot be read: the kernel will say why.
    pub(super) fn text(&self, address: u64) -> Option<Vec<u8>> {
        if address == 0 {
            return None;
        }
        let mut text = vec![0; PATH_BYTES_MAX];
        let bytes = memory::read(self.call.tid, address, &mut text)
            .inspect_err(|error| {
                if error.raw_os_error() == Some(libc::EPERM) {
                    tracing::debug!(tid = self.call.tid, "may not be looked into: not served");
                }
            })
            .ok()?;
        let end = text[..bytes].iter().position(|byte| *byte == 0)?;
        text.truncate(end);
        Some(text)
    }

    /// Reads numbers from the caller's memory.
    pub(super) fn numbers<const COUNT: usize>(&self, address: u64) -> Result<[u64; COUNT], Errno> {
        let bytes = self.bytes(address, COUNT * 8)?;
        let mut numbers = [0; COUNT];
        for (number, eight) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
            *number = u64::from_ne_bytes(eight.try_into().unwrap_or_default());
        }
        Ok(numbers)
    }

    /// Reads bytes from the caller's memory, all of them.
    pub(super) fn bytes(&self, address: u64, bytes: usize) -> Result<Vec<u8>, Errno> {
        let mut read = vec![0; bytes];
        let got = if bytes == 0 { 0 } else { self.read(address, &mut read)? };
        if got == bytes { Ok(read) } else { Err(Errno::FAULT) }
    }

    fn read(&self, address: u64, into: &mut [u8]) -> Result<usize, Errno> {
        memory::read(self.call.tid, address, into).map_err(|error| errno(&error))
    }

    /// Writes a structure into the caller's memory.
    pub(super) fn put(&self, address: u64, value: &impl Plain) -> Result<(), Errno> {
        self.put_bytes(address, value.as_bytes())
    }

    /// Writes bytes into the caller's memory.
    pub(super) fn put_bytes(&self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        if !self.still_waits() {
            return Err(Errno::SRCH);
        }
        if bytes.is_empty() {
            return Ok(());
        }
        memory::write(self.call.tid, address, bytes).map_err(|error| errno(&error))
    }

    /// Whether the call still waits, and what was read was its caller's.
    pub(super) fn still_waits(&self) -> bool {
        self.listener.still_waits(self.call.id)
    }

    /// A path made absolute; `None` if that cannot be done.
    pub(super) fn absolute(&self, named: Named, path: &[u8]) -> Option<Vec<u8>> {
        if path.is_empty() {
            return None;
        }
        if path[0] != b'/' {
            return Some([&self.base(named.dir)?, b"/".as_slice(), path].concat());
        }
        match descriptor_path(path) {
            Some((fd, rest)) => Some([&self.base(fd)?, rest].concat()),
            None => Some(path.to_vec()),
        }
    }

    /// The path of a directory that the caller has open, or works in.
    pub(super) fn base(&self, dir: i32) -> Option<Vec<u8>> {
        let mut path = fs::read_link(self.base_link(dir)).ok()?.into_os_string().into_vec();
        // A list that has been made anew since: its path is still the one that it had.
        if let Some(kept) = path.strip_suffix(b" (deleted)") {
            path.truncate(kept.len());
        }
        (path.first() == Some(&b'/')).then_some(path)
    }

    /// Where the kernel shows a directory that the caller has open, or works in.
    pub(super) fn base_link(&self, dir: i32) -> String {
        let tid = self.call.tid;
        if dir == libc::AT_FDCWD {
            format!("/proc/{tid}/cwd")
        } else {
            format!("/proc/{tid}/fd/{dir}")
        }
    }

    /// A path of the caller as one that means the same to this process.
    pub(super) fn path_here(&self, path: &[u8]) -> Vec<u8> {
        let tid = self.call.tid;
        for (start, end) in [("/proc/self/", ""), ("/proc/thread-self/", ""), ("/dev/fd/", "fd/")] {
            if let Some(rest) = path.strip_prefix(start.as_bytes()) {
                return [format!("/proc/{tid}/{end}").as_bytes(), rest].concat();
            }
        }
        path.to_vec()
    }

    /// Whether the caller is the user who runs this process: nobody else gets anything done by it.
    pub(super) fn is_own_user(&self) -> bool {
        let owner = rustix::fs::stat(format!("/proc/{}", self.call.tid));
        owner.is_ok_and(|owner| owner.st_uid == rustix::process::geteuid().as_raw())
    }

    /// The permissions that the caller wants new files not to have.
    pub(super) fn umask(&self) -> u32 {
        let status = fs::read(format!("/proc/{}/status", self.call.tid)).unwrap_or_default();
        let line =
            status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"Umask:"));
        line.and_then(|line| std::str::from_utf8(line).ok())
            .and_then(|line| u32::from_str_radix(line.trim(), 8).ok())
            .unwrap_or(0o022)
    }
}

/// The descriptor in `/dev/fd/N/rest` and the like. What is only a descriptor is the kernel's business.
fn descriptor_path(path: &[u8]) -> Option<(i32, &[u8])> {
    let starts: [&[u8]; 3] = [b"/dev/fd/", b"/proc/self/fd/", b"/proc/thread-self/fd/"];
    let tail = starts.iter().find_map(|start| path.strip_prefix(*start))?;
    let end = tail.iter().position(|byte| *byte == b'/')?;
    let fd = std::str::from_utf8(&tail[..end]).ok()?.parse().ok()?;
    Some((fd, &tail[end..]))
}

/// The number of an error of the system.
pub(super) fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_by_a_descriptor_is_told_from_the_descriptor() {
        assert_eq!(descriptor_path(b"/dev/fd/9/a/b"), Some((9, &b"/a/b"[..])));
        assert_eq!(descriptor_path(b"/proc/self/fd/12/"), Some((12, &b"/"[..])));
        assert_eq!(descriptor_path(b"/proc/self/fd/12"), None);
        assert_eq!(descriptor_path(b"/dev/fd/x/a"), None);
        assert_eq!(descriptor_path(b"/dev/null"), None);
    }
}
