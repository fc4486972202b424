//! Files that the kernel is lent, to read and write them by itself instead of asking (FUSE passthrough, Linux
//! 6.9). Owns that each is taken back once nobody can be told of it any more; which files may be lent is not known
//! here.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::io::Errno;

use crate::channel::Channel;
use crate::sys;

/// The first version of Linux that takes files.
const FIRST_LINUX: (u32, u32) = (6, 9);

/// Why the kernel takes no files from this process; `None` if it may.
pub fn passthrough_refusal() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root may have the kernel do it".to_owned());
    }
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    refusal(&release)
}

fn refusal(release: &str) -> Option<String> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    let known = match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= FIRST_LINUX,
        _ => true,
    };
    let (major, minor) = FIRST_LINUX;
    (!known).then(|| format!("this kernel ({release}) cannot: Linux {major}.{minor} or newer can"))
}

/// Lends files to the kernel of one mount.
#[derive(Clone, Debug)]
pub struct Lender {
    channel: Arc<Channel>,
}

/// A file that the kernel has. When this is dropped it is for nobody new; whoever has opened it keeps it.
#[derive(Debug)]
pub struct LentFile {
    channel: Arc<Channel>,
    number: i32,
}

impl Lender {
    pub(crate) fn new(channel: Arc<Channel>) -> Self {
        Self { channel }
    }

    /// Lends a file, whose descriptor is not needed afterwards. Who opens it later may write to it if the open
    /// file of the mount may be written to, whatever this descriptor may.
    ///
    /// # Errors
    /// [`Errno::PERM`] unless root does it and the kernel has agreed; [`Errno::LOOP`] for a file of a file system
    /// that is stacked on another.
    pub fn lend(&self, file: BorrowedFd<'_>) -> Result<LentFile, Errno> {
        let number = sys::lend_file(self.channel.device(), file)?;
        Ok(LentFile { channel: Arc::clone(&self.channel), number })
    }
}

impl LentFile {
    pub(crate) fn number(&self) -> i32 {
        self.number
    }
}

impl Drop for LentFile {
    fn drop(&mut self) {
        if let Err(errno) = sys::take_file_back(self.channel.device(), self.number) {
            tracing::debug!(number = self.number, "a lent file is not taken back: {errno}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_before_the_first_are_known() {
        for (release, takes) in [
            ("6.8.0-45-generic", false),
            ("6.9.0", true),
            ("6.18.44-x", true),
            ("5.15.0", false),
            ("7.0-rc1", true),
        ] {
            assert_eq!(refusal(release).is_none(), takes, "{release}");
        }
    }
}
