//! The link to a service, which all its files share. Owns the runtime on which the service is spoken to, that
//! every call ends in bounded time, and what its answers mean for those who look at files.

use std::future::Future;
use std::io;
use std::time::Duration;

use azekura_proto::staging::Attributes;
use azekura_proto::{FileKind, Timestamp};
use azekura_stage::source::FileState;
use opendal::{ErrorKind, Metadata, Operator};
use rustix::io::Errno;
use tokio::runtime::Runtime;
use xxhash_rust::xxh3::Xxh3;

use crate::address::Kind;
use crate::budget::Budget;
use crate::caught::caught;
use crate::hdfs::Hdfs;
use crate::naming::{dir_of, path_of};
use crate::trouble::Called;

/// What no bytes travel for takes so long at most, with all tries.
const CALL_TIME: Duration = Duration::from_secs(60);
/// Bytes may come as slowly as this, per second.
const SLOWEST: u64 = 64 * 1024;
/// Modes, as the service has none.
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

/// What all files of a service share.
pub(crate) struct Link {
    pub(crate) operator: Operator,
    pub(crate) called: Called,
    pub(crate) budget: Budget,
    /// Renames, where the library does not.
    pub(crate) hdfs: Option<Hdfs>,
    pub(crate) base: String,
    pub(crate) runtime: Option<Runtime>,
}

impl Link {
    pub(crate) fn kind(&self) -> Kind {
        self.called.kind
    }

    fn runtime(&self) -> io::Result<&Runtime> {
        self.runtime.as_ref().ok_or_else(|| io::Error::other("the service is closed"))
    }

    /// Lets something go on by itself.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> io::Result<tokio::task::JoinHandle<T>> {
        Ok(self.runtime()?.spawn(work))
    }

    /// Waits for an answer about so many bytes.
    ///
    /// # Errors
    /// If there is none in time, or none that the library understands.
    pub(crate) fn wait<T>(
        &self,
        bytes: u64,
        work: impl Future<Output = opendal::Result<T>>,
    ) -> opendal::Result<T> {
        let limit = CALL_TIME + Duration::from_secs(bytes / SLOWEST);
        let runtime = self.runtime();
        let runtime = runtime
            .map_err(|error| opendal::Error::new(ErrorKind::Unexpected, error.to_string()))?;
        caught(|| {
            runtime.block_on(async {
                tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
                    let why = format!("it timed out after {} s", limit.as_secs());
                    Err(opendal::Error::new(ErrorKind::Unexpected, why))
                })
            })
        })
    }

    /// Looks at a path: a file, or a directory with or without an object of its own.
    pub(crate) fn look(&self, path: &str) -> opendal::Result<Metadata> {
        if path.is_empty() {
            return self.wait(0, self.operator.stat("/"));
        }
        match self.wait(0, self.operator.stat(path)) {
            Err(error) if error.kind() == ErrorKind::NotFound && self.kind() == Kind::S3 => {
                self.wait(0, self.operator.stat(&dir_of(path)))
            }
            found => found,
        }
    }

    /// The path in the service, for reading: what cannot be there is not there.
    pub(crate) fn path(&self, path: &[u8]) -> io::Result<String> {
        Ok(path_of(&self.base, path).map_err(|_| Errno::NOENT)?)
    }

    /// The path in the service, for writing.
    pub(crate) fn new_path(&self, path: &[u8]) -> io::Result<String> {
        path_of(&self.base, path).map_err(|errno| {
            let why = if errno == Errno::ILSEQ { "it is not UTF-8" } else { "it ends in a blank" };
            let (kind, name) = (self.kind().name(), String::from_utf8_lossy(path));
            io::Error::other(format!("{kind} cannot have the name '{name}': {why}; rename it"))
        })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Nobody waits for what is still asked for.
            runtime.shutdown_background();
        }
    }
}

/// What everybody sees of a directory.
pub(crate) fn directory(mtime: Timestamp) -> Attributes {
    let kind = FileKind::Directory;
    Attributes { kind, mode: DIRECTORY_MODE, size: 0, mtime, link: Vec::new() }
}

/// What everybody sees of a file or directory.
pub(crate) fn attributes_of(found: &Metadata) -> Attributes {
    let mtime = found.last_modified().map_or(Timestamp { secs: 0, nanos: 0 }, |time| {
        let time = time.into_inner();
        // Before 1970 the part of a second counts backwards.
        let nanos = u32::try_from(time.subsec_nanosecond()).unwrap_or(0);
        Timestamp { secs: time.as_second(), nanos }
    });
    if found.is_dir() {
        return directory(mtime);
    }
    let size = found.content_length();
    Attributes { kind: FileKind::Regular, mode: FILE_MODE, size, mtime, link: Vec::new() }
}

/// The state of a file; what the service calls its version is part of it.
pub(crate) fn state_of(found: &Metadata) -> FileState {
    let attributes = attributes_of(found);
    let mut hash = Xxh3::new();
    for text in [found.etag(), found.version()].into_iter().flatten() {
        hash.update(text.as_bytes());
        hash.update(&[0]);
    }
    hash.update(&attributes.size.to_le_bytes());
    hash.update(&attributes.mtime.secs.to_le_bytes());
    hash.update(&attributes.mtime.nanos.to_le_bytes());
    FileState { attributes, change: hash.digest128() }
}
