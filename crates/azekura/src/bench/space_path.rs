//! A directory of this machine under load, by plain system calls.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use rustix::fd::OwnedFd;
use rustix::fs::{Advice, AtFlags, Mode, OFlags, fadvise, fsync, open, openat, statat, unlinkat};
use rustix::io::{Errno, pread, pwrite};

use super::space::FileSpace;

/// A directory under load.
pub(crate) struct PathSpace {
    dir: PathBuf,
}

impl PathSpace {
    /// Works below `dir`.
    pub(crate) fn open(dir: &str) -> Result<Self> {
        let dir = PathBuf::from(dir);
        if !dir.is_dir() {
            bail!("{} is not a directory", dir.display());
        }
        Ok(Self { dir })
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.join(path)
    }
}

fn on<'a>(what: &'a str, path: &'a Path) -> impl Fn() -> String + 'a {
    move || format!("cannot {what} {}", path.display())
}

impl FileSpace for PathSpace {
    type File = OwnedFd;
    type Dir = OwnedFd;

    fn make_dir(&mut self, path: &str) -> Result<()> {
        let path = self.at(path);
        match std::fs::create_dir(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                Err(error).with_context(on("make the directory", &path))
            }
            _ => Ok(()),
        }
    }

    fn remove(&mut self, path: &str, is_dir: bool) -> Result<()> {
        let path = self.at(path);
        if is_dir { std::fs::remove_dir(&path) } else { std::fs::remove_file(&path) }
            .with_context(on("remove", &path))
    }

    fn open_file(&mut self, path: &str, fresh: bool) -> Result<OwnedFd> {
        let path = self.at(path);
        let flags = if fresh { OFlags::TRUNC } else { OFlags::empty() };
        open(&path, flags | OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC, Mode::from(0o600))
            .with_context(on("open", &path))
    }

    fn read_at(&mut self, file: &OwnedFd, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match pread(file, &mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("cannot read"),
            }
        }
        Ok(done)
    }

    fn write_at(&mut self, file: &OwnedFd, buffer: &[u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            match pwrite(file, &buffer[done..], offset + done as u64) {
                Ok(bytes) => done += bytes,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("cannot write"),
            }
        }
        Ok(())
    }

    fn sync(&mut self, file: &OwnedFd) -> Result<()> {
        fsync(file).context("cannot sync")
    }

    fn prepare_read(&mut self, file: &OwnedFd, random: bool) -> Result<()> {
        // Only pages that are written back can be dropped.
        fsync(file).context("cannot sync")?;
        fadvise(file, 0, None, Advice::DontNeed).context("cannot drop cached pages")?;
        let advice = if random { Advice::Random } else { Advice::Normal };
        fadvise(file, 0, None, advice).context("cannot announce the order of reads")
    }

    fn close(&mut self, file: OwnedFd) -> Result<()> {
        drop(file);
        Ok(())
    }

    fn open_dir(&mut self, path: &str) -> Result<OwnedFd> {
        let path = self.at(path);
        open(&path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .with_context(on("open", &path))
    }

    fn create_in(&mut self, dir: &OwnedFd, name: &str) -> Result<()> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        openat(dir, name, flags, Mode::from(0o644))
            .map(drop)
            .with_context(|| format!("cannot create {name}"))
    }

    fn stat_in(&mut self, dir: &OwnedFd, name: &str) -> Result<()> {
        statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
            .map(|_| ())
            .with_context(|| format!("cannot stat {name}"))
    }

    fn open_close_in(&mut self, dir: &OwnedFd, name: &str) -> Result<()> {
        openat(dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map(drop)
            .with_context(|| format!("cannot open {name}"))
    }

    fn remove_in(&mut self, dir: &OwnedFd, name: &str) -> Result<()> {
        unlinkat(dir, name, AtFlags::empty()).with_context(|| format!("cannot remove {name}"))
    }
}
