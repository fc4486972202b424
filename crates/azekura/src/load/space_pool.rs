//! A container of a pool under load, through the native path: this process is a client of the
//! pool, with no mount in between.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use azekura_posix::{
    CachePolicy, Credentials, File, FileSystem, Namespace, OFlags, Oid, OpenOptions,
};

use super::space::FileSpace;
use crate::connect;
use crate::reading::ReadArgs;

/// A container under load.
pub(super) struct PoolSpace {
    fs: Arc<FileSystem>,
    names: Namespace,
    caller: Credentials,
}

impl PoolSpace {
    /// Works in the root directory of the container.
    pub(super) fn open(pool: &str, container: &str, reading: &ReadArgs) -> Result<Self> {
        let pool = connect::pool(pool)?;
        // Only directories are kept, so every operation on a file asks the engines.
        let cache = CachePolicy::Auto { ttl: Duration::from_secs(1) };
        let fs = connect::file_system(pool, container, cache, reading)?;
        let caller = Credentials::of_process();
        Ok(Self { names: Namespace::new(Arc::clone(&fs), caller.clone()), fs, caller })
    }
}

impl FileSpace for PoolSpace {
    type File = File;
    type Dir = Oid;

    fn make_dir(&mut self, path: &str) -> Result<()> {
        self.names
            .create_dir_all(path, 0o755)
            .map(drop)
            .with_context(|| format!("cannot make the directory {path}"))
    }

    fn remove(&mut self, path: &str, is_dir: bool) -> Result<()> {
        if is_dir { self.names.remove_dir(path) } else { self.names.remove_file(path) }
            .with_context(|| format!("cannot remove {path}"))
    }

    fn open_file(&mut self, path: &str, fresh: bool) -> Result<File> {
        let flags = if fresh { OFlags::TRUNC } else { OFlags::empty() };
        let options = OpenOptions::new(flags | OFlags::RDWR | OFlags::CREATE, 0o600);
        self.names.open(path, &options).with_context(|| format!("cannot open {path}"))
    }

    fn open_input(&mut self, path: &str) -> Result<File> {
        let options = OpenOptions::new(OFlags::RDONLY, 0);
        self.names.open(path, &options).with_context(|| format!("cannot open {path}"))
    }

    fn create_output(&mut self, path: &str) -> Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        let options = OpenOptions::new(flags, 0o600);
        self.names.open(path, &options).with_context(|| format!("cannot create {path}"))
    }

    fn room_bytes(&mut self) -> Result<u64> {
        let room = self.fs.statfs().context("cannot ask the pool for its room")?;
        Ok(room.available_bytes)
    }

    fn settle(&mut self) -> Result<()> {
        self.fs.syncfs().context("cannot sync the pool")
    }

    fn read_at(&mut self, file: &File, buffer: &mut [u8], offset: u64) -> Result<usize> {
        file.read_at(buffer, offset).context("cannot read")
    }

    fn write_at(&mut self, file: &File, buffer: &[u8], offset: u64) -> Result<()> {
        file.write_all_at(buffer, offset).context("cannot write")
    }

    fn sync(&mut self, file: &File) -> Result<()> {
        file.sync().context("cannot sync")
    }

    fn prepare_read(&mut self, _file: &File, _random: bool) -> Result<()> {
        // The native path keeps no data.
        Ok(())
    }

    fn close(&mut self, file: File) -> Result<()> {
        file.close().context("cannot close")
    }

    fn open_dir(&mut self, path: &str) -> Result<Oid> {
        let attr = self.names.metadata(path).with_context(|| format!("cannot find {path}"))?;
        Ok(attr.oid)
    }

    fn create_in(&mut self, dir: &Oid, name: &str) -> Result<()> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        self.fs
            .create(&self.caller, *dir, name.as_bytes(), 0o644, flags)
            .map(drop)
            .with_context(|| format!("cannot create {name}"))
    }

    fn stat_in(&mut self, dir: &Oid, name: &str) -> Result<()> {
        self.fs
            .lookup(&self.caller, *dir, name.as_bytes())
            .map(drop)
            .with_context(|| format!("cannot stat {name}"))
    }

    fn open_close_in(&mut self, dir: &Oid, name: &str) -> Result<()> {
        self.fs
            .open_at(&self.caller, *dir, name.as_bytes(), OFlags::RDONLY)
            .map(drop)
            .with_context(|| format!("cannot open {name}"))
    }

    fn remove_in(&mut self, dir: &Oid, name: &str) -> Result<()> {
        self.fs
            .unlink(&self.caller, *dir, name.as_bytes())
            .with_context(|| format!("cannot remove {name}"))
    }
}
