//! A service as a source: what each call of a directory comes to. Owns the runtime on which the service is
//! spoken to, and that every call ends in bounded time.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use azekura_proto::staging::Attributes;
use azekura_proto::{FileKind, Timestamp};
use azekura_stage::source::{FileState, NewFile, Source, SourceFile};
use opendal::{ErrorKind, Metadata, Operator};
use rustix::io::Errno;
use tokio::runtime::{Builder, Runtime};
use xxhash_rust::xxh3::Xxh3;

use crate::address::{Address, Kind};
use crate::budget::Budget;
use crate::hdfs::Hdfs;
use crate::listing;
use crate::naming::{dir_of, path_of};
use crate::operator;
use crate::reader::Reader;
use crate::trouble::Called;
use crate::writer::Writer;

/// What no bytes travel for takes so long at most, with all tries.
const CALL_TIME: Duration = Duration::from_secs(60);
/// Bytes may come as slowly as this, per second.
const SLOWEST: u64 = 64 * 1024;
/// What is read ahead, over all files of a service.
const AHEAD_BYTES: usize = 64 << 20;
/// Threads of the runtime: they wait, and take TLS off.
const THREADS: usize = 2;
/// Modes, as the service has none.
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

/// A service.
pub(crate) struct Service {
    link: Arc<Link>,
}

/// What all files of a service share.
pub(crate) struct Link {
    pub(crate) operator: Operator,
    pub(crate) called: Called,
    pub(crate) budget: Budget,
    /// Renames, where the library does not.
    pub(crate) hdfs: Option<Hdfs>,
    base: String,
    runtime: Option<Runtime>,
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
    /// If there is none in time.
    pub(crate) fn wait<T>(
        &self,
        bytes: u64,
        work: impl Future<Output = opendal::Result<T>>,
    ) -> opendal::Result<T> {
        let limit = CALL_TIME + Duration::from_secs(bytes / SLOWEST);
        let runtime = self.runtime();
        let runtime = runtime
            .map_err(|error| opendal::Error::new(ErrorKind::Unexpected, error.to_string()))?;
        runtime.block_on(async {
            tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
                let why = format!("it timed out after {} s", limit.as_secs());
                Err(opendal::Error::new(ErrorKind::Unexpected, why))
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
    fn path(&self, path: &[u8]) -> io::Result<String> {
        Ok(path_of(&self.base, path).map_err(|_| Errno::NOENT)?)
    }

    /// The path in the service, for writing.
    fn new_path(&self, path: &[u8]) -> io::Result<String> {
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

impl Service {
    /// Opens the service and looks whether the place is there; an empty prefix will do if it is to be written.
    pub(crate) fn open(address: &Address, is_written: bool) -> io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        let builder = builder.worker_threads(THREADS).thread_name("service").enable_all();
        let runtime = builder.build()?;
        let entered = runtime.enter();
        let http = operator::http_client().map_err(io::Error::other)?;
        let operator = operator::operator(address, &http).map_err(io::Error::other)?;
        drop(entered);
        let address_only = address.to_string();
        let shown = address_only.split('?').next().unwrap_or_default().to_owned();
        let link = Link {
            operator,
            called: Called { kind: address.kind, address: shown },
            budget: Budget::new(AHEAD_BYTES),
            hdfs: (address.kind == Kind::WebHdfs).then(|| Hdfs::new(address, http)),
            base: address.base.clone(),
            runtime: Some(runtime),
        };
        let service = Self { link: Arc::new(link) };
        service.check(is_written)?;
        Ok(service)
    }

    fn check(&self, is_written: bool) -> io::Result<()> {
        let link = &self.link;
        let nothing = |what: &str| io::Error::other(format!("{}: {what}", link.called.address));
        if link.kind() == Kind::S3 {
            let any = listing::has_any(link, &link.base);
            let any = any.map_err(|error| link.called.told("list what is there", &error))?;
            if !any && !is_written && !link.base.is_empty() {
                return Err(nothing("there is nothing under that prefix"));
            }
            return Ok(());
        }
        // The root itself is answered for by the library, without asking.
        let found = match link.base.as_str() {
            "" => listing::has_any(link, "").map(|_| true),
            base => link.look(base).map(|found| found.is_dir()),
        };
        match found {
            Ok(true) => Ok(()),
            Ok(false) => Err(nothing("that is not a directory")),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(nothing("there is no such directory: make it first"))
            }
            Err(error) => Err(link.called.told("look at it", &error)),
        }
    }
}

impl Source for Service {
    fn attributes(&self, path: &[u8]) -> io::Result<Attributes> {
        let link = &self.link;
        let at = link.path(path)?;
        if path.is_empty() {
            return Ok(directory(Timestamp { secs: 0, nanos: 0 }));
        }
        let found = link.look(&at);
        let found = found.map_err(|error| link.called.errno(&format!("look at '{at}'"), &error))?;
        Ok(attributes_of(&found))
    }

    fn list(&self, path: &[u8]) -> io::Result<Vec<(Vec<u8>, Attributes)>> {
        let link = &self.link;
        let at = link.path(path)?;
        // A service may take a directory that is not there for an empty one, and a file for it too.
        if link.kind() != Kind::S3 && self.attributes(path)?.kind != FileKind::Directory {
            return Err(Errno::NOTDIR.into());
        }
        let entries = listing::list(link, &at)?;
        if entries.is_none() && !path.is_empty() {
            let found = self.attributes(path)?;
            if found.kind != FileKind::Directory {
                return Err(Errno::NOTDIR.into());
            }
        }
        Ok(entries.unwrap_or_default())
    }

    fn open(&self, path: &[u8]) -> io::Result<Box<dyn SourceFile>> {
        let at = self.link.path(path)?;
        Ok(Box::new(Reader::open(&self.link, at)?))
    }

    fn create(&self, path: &[u8]) -> io::Result<Box<dyn NewFile>> {
        let at = self.link.new_path(path)?;
        Ok(Box::new(Writer::create(&self.link, at)?))
    }

    fn make_dir(&self, path: &[u8], _mode: u32) -> io::Result<()> {
        let link = &self.link;
        let at = link.new_path(path)?;
        match link.look(&at) {
            Ok(found) if found.is_dir() => return Ok(()),
            Ok(_) => return Err(Errno::EXIST.into()),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(link.called.told(&format!("look at '{at}'"), &error)),
        }
        let made = link.wait(0, link.operator.create_dir(&dir_of(&at)));
        made.map_err(|error| link.called.told(&format!("make the directory '{at}'"), &error))
    }

    fn make_link(&self, path: &[u8], text: &[u8]) -> io::Result<()> {
        let (name, path) = (self.link.kind().name(), String::from_utf8_lossy(path));
        let text = String::from_utf8_lossy(text);
        Err(io::Error::other(format!(
            "{name} has no symlinks, and '{path}' is one, to '{text}': have the job write a file"
        )))
    }

    fn remove(&self, path: &[u8]) -> io::Result<()> {
        let link = &self.link;
        let at = link.path(path)?;
        let doing = || format!("remove '{at}'");
        let found = match link.look(&at) {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(Errno::NOENT.into()),
            Err(error) => return Err(link.called.told(&doing(), &error)),
        };
        let whole = if found.is_dir() { dir_of(&at) } else { at.clone() };
        // Some services remove all that is below.
        if found.is_dir()
            && listing::has_any(link, &at).map_err(|error| link.called.told(&doing(), &error))?
        {
            return Err(Errno::NOTEMPTY.into());
        }
        let removed = link.wait(0, link.operator.delete(&whole));
        removed.map_err(|error| link.called.told(&doing(), &error))
    }
}

fn directory(mtime: Timestamp) -> Attributes {
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
