//! A directory of this machine under load. Every call goes through the C library, by full path or
//! open file, so that an interposer in the worker sees what it would see of any program.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use nix::fcntl::{PosixFadviseAdvice as Advice, posix_fadvise};

use super::space::FileSpace;

/// A directory under load.
pub(super) struct PathSpace {
    dir: PathBuf,
    // The path of the last call: a new one reuses its memory.
    path: PathBuf,
}

impl PathSpace {
    /// Works below `dir`.
    pub(super) fn open(dir: &str) -> Result<Self> {
        let dir = PathBuf::from(dir);
        if !dir.is_dir() {
            bail!("{} is not a directory", dir.display());
        }
        Ok(Self { dir, path: PathBuf::new() })
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.join(path)
    }

    fn entry(&mut self, dir: &Path, name: &str) -> &Path {
        self.path.as_mut_os_string().clear();
        self.path.push(dir);
        self.path.push(name);
        &self.path
    }
}

fn on<'a>(what: &'a str, path: &'a Path) -> impl Fn() -> String + 'a {
    move || format!("cannot {what} {}", path.display())
}

impl FileSpace for PathSpace {
    type File = File;
    type Dir = PathBuf;

    fn make_dir(&mut self, path: &str) -> Result<()> {
        let path = self.at(path);
        match std::fs::create_dir(&path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
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

    fn open_file(&mut self, path: &str, fresh: bool) -> Result<File> {
        let path = self.at(path);
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(fresh)
            .mode(0o600)
            .open(&path)
            .with_context(on("open", &path))
    }

    fn open_input(&mut self, path: &str) -> Result<File> {
        let path = self.at(path);
        File::open(&path).with_context(on("open", &path))
    }

    fn create_output(&mut self, path: &str) -> Result<File> {
        let path = self.at(path);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(&path).with_context(on("create", &path))
    }

    fn room_bytes(&mut self) -> Result<u64> {
        let room = rustix::fs::statvfs(&self.dir).with_context(on("ask for room in", &self.dir))?;
        Ok(room.f_bavail.saturating_mul(room.f_frsize))
    }

    fn settle(&mut self) -> Result<()> {
        let dir = File::open(&self.dir).with_context(on("open", &self.dir))?;
        rustix::fs::syncfs(&dir).with_context(on("sync", &self.dir))
    }

    fn read_at(&mut self, file: &File, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match file.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("cannot read"),
            }
        }
        Ok(done)
    }

    fn write_at(&mut self, file: &File, buffer: &[u8], offset: u64) -> Result<()> {
        file.write_all_at(buffer, offset).context("cannot write")
    }

    fn sync(&mut self, file: &File) -> Result<()> {
        file.sync_all().context("cannot sync")
    }

    fn prepare_read(&mut self, file: &File, random: bool) -> Result<()> {
        // Only pages that are written back can be dropped.
        self.sync(file)?;
        advise(file, Advice::POSIX_FADV_DONTNEED).context("cannot drop cached pages")?;
        let advice = if random { Advice::POSIX_FADV_RANDOM } else { Advice::POSIX_FADV_NORMAL };
        advise(file, advice).context("cannot announce the order of reads")
    }

    fn close(&mut self, file: File) -> Result<()> {
        drop(file);
        Ok(())
    }

    fn open_dir(&mut self, path: &str) -> Result<PathBuf> {
        let path = self.at(path);
        let metadata = std::fs::metadata(&path).with_context(on("find", &path))?;
        if !metadata.is_dir() {
            bail!("{} is not a directory", path.display());
        }
        Ok(path)
    }

    fn create_in(&mut self, dir: &PathBuf, name: &str) -> Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o644);
        options
            .open(self.entry(dir, name))
            .map(drop)
            .with_context(|| format!("cannot create {name}"))
    }

    fn stat_in(&mut self, dir: &PathBuf, name: &str) -> Result<()> {
        std::fs::symlink_metadata(self.entry(dir, name))
            .map(drop)
            .with_context(|| format!("cannot stat {name}"))
    }

    fn open_close_in(&mut self, dir: &PathBuf, name: &str) -> Result<()> {
        File::open(self.entry(dir, name)).map(drop).with_context(|| format!("cannot open {name}"))
    }

    fn remove_in(&mut self, dir: &PathBuf, name: &str) -> Result<()> {
        std::fs::remove_file(self.entry(dir, name)).with_context(|| format!("cannot remove {name}"))
    }
}

/// Tells the kernel about a file's pages. A file that an interposer serves has none.
fn advise(file: &File, advice: Advice) -> std::io::Result<()> {
    match posix_fadvise(file, 0, 0, advice) {
        Ok(()) | Err(nix::errno::Errno::ESPIPE | nix::errno::Errno::EINVAL) => Ok(()),
        Err(errno) => Err(Error::from_raw_os_error(errno as i32)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_takes_every_operation() {
        let scratch = tempfile::tempdir().unwrap();
        let mut space = PathSpace::open(scratch.path().to_str().unwrap()).unwrap();
        space.make_dir("d").unwrap();
        space.make_dir("d").unwrap();
        let dir = space.open_dir("d").unwrap();
        for name in ["one", "another"] {
            space.create_in(&dir, name).unwrap();
            space.stat_in(&dir, name).unwrap();
            space.open_close_in(&dir, name).unwrap();
            space.remove_in(&dir, name).unwrap();
            assert!(space.stat_in(&dir, name).is_err());
        }
        assert!(space.open_input("d/data").is_err() && space.room_bytes().unwrap() > 0);
        let file = space.create_output("d/data").unwrap();
        space.write_at(&file, b"hello", 0).unwrap();
        space.close(file).unwrap();
        let file = space.open_input("d/data").unwrap();
        let mut buffer = [0; 16];
        assert_eq!(space.read_at(&file, &mut buffer, 0).unwrap(), 5);
        space.close(file).unwrap();
        let file = space.open_file("d/data", true).unwrap();
        space.write_at(&file, b"hello", 3).unwrap();
        space.prepare_read(&file, false).unwrap();
        assert_eq!(space.read_at(&file, &mut buffer, 0).unwrap(), 8);
        assert_eq!(&buffer[..8], b"\0\0\0hello");
        space.close(file).unwrap();
        space.remove("d/data", false).unwrap();
        space.remove("d", true).unwrap();
        assert!(PathSpace::open(scratch.path().join("d").to_str().unwrap()).is_err());
    }
}
