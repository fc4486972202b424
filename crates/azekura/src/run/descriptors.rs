//! Descriptors by number, as shells hand them down: which ones this process was started with, how
//! to let go of them, and how to open files of the mount under given numbers.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd as _, IntoRawFd as _, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::FdFlags;

use crate::outcome::usage;

/// Descriptors that were handed to this process, standard ones aside. To be asked for before
/// anything is opened: what this program opens itself is never among them, since it closes on exec.
pub(super) fn inherited() -> Vec<RawFd> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|number| *number > 2 && survives_exec(*number)).collect()
}

fn survives_exec(number: RawFd) -> bool {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap_or_default();
    text.lines()
        .find_map(|line| u32::from_str_radix(line.strip_prefix("flags:")?.trim(), 8).ok())
        .is_some_and(|flags| flags & OFlags::CLOEXEC.bits() == 0)
}

/// Closes descriptors that others share, so that this process does not hold up whoever waits for
/// their end.
pub(super) fn close_all(numbers: &[RawFd]) {
    for number in numbers {
        // One that is closed already is as it should be.
        let _ = nix::unistd::close(*number);
    }
}

/// A file of the mount that is to be open under given numbers: `FD[,FD...]:FLAGS:OFFSET:PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reopen {
    numbers: Vec<RawFd>,
    flags: OFlags,
    offset: u64,
    path: PathBuf,
}

impl Reopen {
    /// Reads the form of the command line.
    ///
    /// # Errors
    /// If it does not have that form.
    pub(super) fn parse(text: &OsStr) -> Result<Self> {
        let wrong = || usage(format!("'{}' is not FD:FLAGS:OFFSET:PATH", text.display()));
        let mut parts = text.as_bytes().splitn(4, |byte| *byte == b':');
        let mut number = || std::str::from_utf8(parts.next()?).ok().map(str::to_owned);
        let (fds, flags, offset) = (number(), number(), number());
        let numbers = fds.ok_or_else(wrong)?;
        let numbers: Result<Vec<RawFd>, _> = numbers.split(',').map(str::parse).collect();
        let numbers = numbers.map_err(|_| wrong())?;
        let flags: u32 = flags.and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
        let offset = offset.and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
        let path = Path::new(OsStr::from_bytes(parts.next().ok_or_else(wrong)?)).to_owned();
        if numbers.iter().any(|number| *number < 0) || !path.is_absolute() {
            return Err(wrong());
        }
        let once = OFlags::CREATE | OFlags::EXCL | OFlags::TRUNC;
        let flags = OFlags::from_bits_retain(flags) - once;
        Ok(Self { numbers, flags, offset, path })
    }

    /// Opens the file under its numbers, in place of whatever was there.
    ///
    /// # Errors
    /// If it cannot be opened, or there are not so many descriptors.
    pub(super) fn open(&self) -> Result<()> {
        let cannot = || format!("cannot open {} again", self.path.display());
        let file = rustix::fs::open(&self.path, self.flags | OFlags::CLOEXEC, Mode::empty())
            .with_context(cannot)?;
        if self.offset > 0 {
            rustix::fs::seek(&file, SeekFrom::Start(self.offset)).with_context(cannot)?;
        }
        // Out of the way of the numbers that are wanted.
        let above = self.numbers.iter().max().map_or(3, |most| most.saturating_add(1)).max(3);
        let aside = rustix::io::fcntl_dupfd_cloexec(&file, above).with_context(cannot)?;
        drop(file);
        for &number in &self.numbers {
            match number {
                0 => rustix::stdio::dup2_stdin(&aside).with_context(cannot)?,
                1 => rustix::stdio::dup2_stdout(&aside).with_context(cannot)?,
                2 => rustix::stdio::dup2_stderr(&aside).with_context(cannot)?,
                number => {
                    close_all(&[number]);
                    let placed =
                        rustix::io::fcntl_dupfd_cloexec(&aside, number).with_context(cannot)?;
                    if placed.as_raw_fd() != number {
                        bail!("descriptor {number} is in use");
                    }
                    rustix::io::fcntl_setfd(&placed, FdFlags::empty()).with_context(cannot)?;
                    // It belongs to the command from now on.
                    let _ = placed.into_raw_fd();
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_to_be_opened_again_are_read() {
        let reopen = Reopen::parse(OsStr::new("1,2:1025:77:/azekura/a:b")).unwrap();
        assert_eq!(reopen.numbers, [1, 2]);
        assert_eq!(reopen.flags, OFlags::from_bits_retain(1025));
        assert_eq!((reopen.offset, reopen.path), (77, PathBuf::from("/azekura/a:b")));
        let truncating = (OFlags::RDWR | OFlags::TRUNC | OFlags::CREATE).bits();
        let reopen = Reopen::parse(OsStr::new(&format!("3:{truncating}:0:/x"))).unwrap();
        assert_eq!(reopen.flags, OFlags::RDWR);
        for wrong in ["", "1", "1:2:3", "1:2:3:rel", "x:2:3:/a", "-1:2:3:/a", "1:2:-3:/a"] {
            assert!(Reopen::parse(OsStr::new(wrong)).is_err(), "{wrong}");
        }
    }
}
