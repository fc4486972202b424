//! What the process of an engine serves for other commands besides mounts that others see: gateways, and what
//! `azekura run` has mounted. Owns that these end, or have arrived, before the engine does. Each belongs to a
//! command at the other end of a line; what is said on that stands with it.

use std::ffi::OsString;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use azekura_posix::FileSystem;
use parking_lot::Mutex;

use super::nfs::NfsArgs;
use super::own_engine::OwnEngine;
use super::own_gateway;
use crate::run::{SERVE_COMMAND, ServedMount, ServingArgs};
use crate::words;

/// How long an engine that ends waits for calls of gateways that are being worked.
const END_TIMEOUT: Duration = Duration::from_secs(3);
/// Between two looks whether what was to end has ended.
const PAUSE_AT_END: Duration = Duration::from_millis(5);

/// What this process serves for commands.
#[derive(Debug)]
pub(crate) struct OwnServices {
    engine: Arc<OwnEngine>,
    gateways: Mutex<Vec<OwnGateway>>,
    /// Of the mounts of commands.
    file_systems: Arc<Mutex<Vec<Weak<FileSystem>>>>,
}

#[derive(Debug)]
struct OwnGateway {
    /// Ends it when it is shut.
    line: UnixStream,
    serving: JoinHandle<()>,
}

/// A command to be carried out here.
enum Service {
    Gateway(NfsArgs),
    Mount(ServingArgs),
}

impl Service {
    fn of_words(words: &[OsString]) -> Result<Self> {
        match words.first().and_then(|word| word.to_str()) {
            Some("nfs") => Ok(Self::Gateway(words::read("nfs", words)?)),
            Some(SERVE_COMMAND) => Ok(Self::Mount(words::read(SERVE_COMMAND, words)?)),
            _ => bail!("it does not know how: it is of another version of the program"),
        }
    }
}

impl OwnServices {
    /// No service yet.
    pub(crate) fn beside(engine: Arc<OwnEngine>) -> Self {
        Self { engine, gateways: Mutex::default(), file_systems: Arc::default() }
    }

    /// Begins to serve what the words of a command say, for whoever has the other end of the line, and hears there
    /// how that goes.
    ///
    /// # Errors
    /// If the words make no sense here, or there is no thread for it.
    pub(crate) fn begin(&self, words: &[OsString], line: OwnedFd) -> Result<()> {
        match Service::of_words(words)? {
            Service::Gateway(args) => self.begin_gateway(args, UnixStream::from(line)),
            Service::Mount(args) => self.begin_mount(args, line),
        }
    }

    fn begin_gateway(&self, args: NfsArgs, line: UnixStream) -> Result<()> {
        let engine = Arc::clone(&self.engine);
        let theirs = line.try_clone().context("no descriptors are left")?;
        let serve = move || own_gateway::serve(&args, theirs, || engine.connect());
        let serving = std::thread::Builder::new().name("own gateway".to_owned()).spawn(serve)?;
        let mut gateways = self.gateways.lock();
        gateways.retain(|gateway| !gateway.serving.is_finished());
        gateways.push(OwnGateway { line, serving });
        Ok(())
    }

    fn begin_mount(&self, args: ServingArgs, line: OwnedFd) -> Result<()> {
        let (engine, known) = (Arc::clone(&self.engine), Arc::clone(&self.file_systems));
        let serve = move || {
            let connect = || engine.connect().map(|(_, pool)| pool);
            match ServedMount::begin(&args, line, connect) {
                Ok(Some(served)) => {
                    let mut file_systems = known.lock();
                    file_systems.retain(|other| other.strong_count() > 0);
                    file_systems.push(Arc::downgrade(served.file_system()));
                    drop(file_systems);
                    served.stay();
                    served.end();
                }
                // It goes without, or has been told why.
                Ok(None) => {}
                Err(error) => tracing::warn!("a command's mount is not served: {error:#}"),
            }
        };
        std::thread::Builder::new().name("own run".to_owned()).spawn(serve)?;
        Ok(())
    }

    /// The engine ends: lets calls of gateways finish, and what was written through commands' mounts arrive. What
    /// those commands do after that fails.
    pub(crate) fn end(&self) {
        let gateways = std::mem::take(&mut *self.gateways.lock());
        for gateway in &gateways {
            // It is one that has ended if this cannot be.
            let _ = gateway.line.shutdown(Shutdown::Read);
        }
        let known = std::mem::take(&mut *self.file_systems.lock());
        for file_system in known.iter().filter_map(Weak::upgrade) {
            if let Err(errno) = file_system.drain_for_good() {
                tracing::error!("not all that a command has written has arrived: {errno}");
            }
        }
        let deadline = Instant::now() + END_TIMEOUT;
        while gateways.iter().any(|gateway| !gateway.serving.is_finished())
            && Instant::now() < deadline
        {
            std::thread::sleep(PAUSE_AT_END);
        }
    }
}
