//! A service as a source: what each call of a directory comes to, where the service has no such call.

use std::io;
use std::sync::Arc;

use azekura_proto::staging::Attributes;
use azekura_proto::{FileKind, Timestamp};
use azekura_stage::source::{NewFile, Source, SourceFile};
use opendal::ErrorKind;
use rustix::io::Errno;
use tokio::runtime::Builder;

use crate::address::{Address, Kind};
use crate::budget::Budget;
use crate::caught;
use crate::hdfs::Hdfs;
use crate::link::{Link, attributes_of, directory};
use crate::listing;
use crate::naming::dir_of;
use crate::operator;
use crate::reader::Reader;
use crate::trouble::Called;
use crate::writer::Writer;

/// What is read ahead, over all files of a service.
const AHEAD_BYTES: usize = 64 << 20;
/// Threads of the runtime: they wait, and take TLS off.
const THREADS: usize = 2;
/// A service.
pub(crate) struct Service {
    link: Arc<Link>,
}

impl Service {
    /// Opens the service and looks whether the place is there; an empty prefix will do if it is to be written.
    pub(crate) fn open(address: &Address, is_written: bool) -> io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        let builder = builder.worker_threads(THREADS).thread_name("service");
        let builder = builder.on_thread_start(caught::on_this_thread).enable_all();
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

    fn is_far(&self) -> bool {
        true
    }

    fn tells_changes_at_once(&self) -> bool {
        // S3 refuses to read what is not the version that was opened; of others a look takes a request.
        self.link.kind() == Kind::S3
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
