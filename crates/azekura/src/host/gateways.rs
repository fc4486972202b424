//! The NFS gateways of this user on this machine. Owns the socket on which each says how it is: whether
//! one runs is asked of the gateway itself, so that no file can say otherwise, and one whose engines do
//! not answer still does.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::IpAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use azekura_client::PoolFile;
use azekura_nfs::metrics::Snapshot;
use azekura_proto::pool_map::PoolMap;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

use super::places;

/// What a socket of a gateway is called, around its process id.
const PREFIX: &str = "nfs-";
const SUFFIX: &str = ".sock";
/// How long a gateway may take to say how it is.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Rates are those of so long, or more.
const SAMPLE: Duration = Duration::from_secs(1);
/// More clients than that are counted and not named.
const CLIENTS_MAX: usize = 256;
/// Whatever answers with more is no gateway.
const STATUS_BYTES_MAX: u64 = 1 << 20;

/// What a gateway serves, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// The pool's id.
    pub(crate) pool: String,
    pub(crate) container: String,
    /// `ADDR:PORT` of NFS.
    pub(crate) address: String,
    pub(crate) mount_port: u16,
    /// Ends it when it is told to.
    pub(crate) pid: u32,
    /// The process of an engine serves it, and it ends with that.
    #[serde(default)]
    pub(crate) by_engine: bool,
}

/// How a gateway is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GatewayStatus {
    #[serde(flatten)]
    pub(crate) identity: Identity,
    pub(crate) uptime_s: u64,
    /// Paths in the container.
    pub(crate) exports: Vec<String>,
    /// Addresses that are connected, at most [`CLIENTS_MAX`] of them.
    pub(crate) clients: Vec<IpAddr>,
    pub(crate) connections: u64,
    /// Calls answered.
    pub(crate) calls: u64,
    /// Of these, with an error.
    pub(crate) errors: u64,
    pub(crate) rates: Rates,
}

/// What happened per second lately.
#[allow(clippy::struct_field_names)] // Names that programs read carry their unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rates {
    pub(crate) calls_per_s: u64,
    pub(crate) received_bytes_per_s: u64,
    pub(crate) sent_bytes_per_s: u64,
}

/// What a gateway says of itself when it is asked.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) exports: Vec<String>,
    /// With an entry for each connection.
    pub(crate) clients: Vec<IpAddr>,
    pub(crate) counted: Snapshot,
}

/// A gateway that says how it is, until this is dropped.
#[derive(Debug)]
pub(crate) struct Announced {
    socket: PathBuf,
    is_stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Announced {
    fn drop(&mut self) {
        // Without it nobody asks any more; what is left of it is removed by whoever asks in vain.
        let _ = std::fs::remove_file(&self.socket);
        self.is_stopping.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Lets this process be found as a gateway.
///
/// # Errors
/// If the socket cannot be made.
pub(crate) fn announce(
    identity: Identity,
    ask: impl Fn() -> Said + Send + 'static,
) -> Result<Announced> {
    announce_in(&places::socket_dir()?, identity, ask)
}

fn announce_in(
    dir: &Path,
    identity: Identity,
    ask: impl Fn() -> Said + Send + 'static,
) -> Result<Announced> {
    let socket = dir.join(format!("{PREFIX}{}{SUFFIX}", identity.pid));
    // An older process of this number has been killed.
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket)
        .with_context(|| format!("cannot make the socket {}", socket.display()))?;
    listener.set_nonblocking(true)?;
    let is_stopping = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&is_stopping);
    let thread = std::thread::Builder::new().name("nfs-status".to_owned());
    let thread = thread.spawn(move || answer_all(&listener, &identity, &ask, &stop))?;
    Ok(Announced { socket, is_stopping, thread: Some(thread) })
}

/// What has been counted at a moment.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    calls: u64,
    received_bytes: u64,
    sent_bytes: u64,
}

impl Sample {
    fn of(counted: &Snapshot, at: Instant) -> Self {
        Self {
            at,
            calls: counted.calls(),
            received_bytes: counted.procedures.iter().map(|one| one.bytes_in).sum(),
            sent_bytes: counted.procedures.iter().map(|one| one.bytes_out).sum(),
        }
    }

    fn since(&self, before: &Self) -> Rates {
        let elapsed_ms = (self.at - before.at).as_millis().max(1) as u64;
        let per_s = |new: u64, old: u64| new.saturating_sub(old).saturating_mul(1000) / elapsed_ms;
        Rates {
            calls_per_s: per_s(self.calls, before.calls),
            received_bytes_per_s: per_s(self.received_bytes, before.received_bytes),
            sent_bytes_per_s: per_s(self.sent_bytes, before.sent_bytes),
        }
    }
}

fn answer_all(
    listener: &UnixListener,
    identity: &Identity,
    ask: &dyn Fn() -> Said,
    is_stopping: &AtomicBool,
) {
    let started = Instant::now();
    let mut last = Sample::of(&ask().counted, started);
    let mut rates = Rates::default();
    let tick = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };
    while !is_stopping.load(Ordering::Relaxed) {
        // Nobody may have come: then it is time to look at the rates, and whether this is to end.
        let _ = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&tick));
        if last.at.elapsed() >= SAMPLE {
            let now = Sample::of(&ask().counted, Instant::now());
            rates = now.since(&last);
            last = now;
        }
        if let Ok((mut stream, _)) = listener.accept() {
            let status = status(identity, ask(), rates, started.elapsed());
            let text = serde_json::to_vec(&status).unwrap_or_default();
            // Whoever asked may have gone, or never read.
            let _ = stream.set_nonblocking(false);
            let _ = stream.set_write_timeout(Some(TIMEOUT));
            let _ = stream.write_all(&text);
        }
    }
}

fn status(identity: &Identity, said: Said, rates: Rates, uptime: Duration) -> GatewayStatus {
    let connections = said.clients.len() as u64;
    let clients: BTreeSet<IpAddr> = said.clients.iter().map(IpAddr::to_canonical).collect();
    GatewayStatus {
        identity: identity.clone(),
        uptime_s: uptime.as_secs(),
        exports: said.exports,
        clients: clients.into_iter().take(CLIENTS_MAX).collect(),
        connections,
        calls: said.counted.calls(),
        errors: said.counted.procedures.iter().map(|one| one.errors).sum(),
        rates,
    }
}

/// The gateways of a pool that run here.
///
/// # Errors
/// If it cannot be told where they would be.
pub(crate) fn of(map: &PoolMap) -> Result<Vec<GatewayStatus>> {
    let pool = map.pool.to_string();
    let mut found = list_in(&places::socket_dir()?);
    found.retain(|gateway| gateway.identity.pool == pool);
    Ok(found)
}

/// The gateways of the pool that this user knows by that name; none if it is not known any more.
///
/// # Errors
/// As [`of`].
pub(crate) fn of_named(pool: &str) -> Result<Vec<GatewayStatus>> {
    PoolFile::load(&PoolFile::path_of(pool)).map_or_else(|_| Ok(Vec::new()), |file| of(&file.map))
}

fn list_in(dir: &Path) -> Vec<GatewayStatus> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let is_gateway = |name: &str| {
        let pid = name.strip_prefix(PREFIX).and_then(|name| name.strip_suffix(SUFFIX));
        pid.is_some_and(|pid| pid.parse::<u32>().is_ok())
    };
    let mut found: Vec<GatewayStatus> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(is_gateway))
        .filter_map(|entry| ask(&entry.path()))
        .collect();
    found.sort_by_key(|gateway| gateway.identity.pid);
    found
}

fn ask(socket: &Path) -> Option<GatewayStatus> {
    let stream = match UnixStream::connect(socket) {
        Ok(stream) => stream,
        Err(error) => {
            if error.kind() == std::io::ErrorKind::ConnectionRefused {
                // Its process was killed.
                let _ = std::fs::remove_file(socket);
            }
            return None;
        }
    };
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
    let mut text = Vec::new();
    stream.take(STATUS_BYTES_MAX).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_nfs::metrics::{Answered, Metrics};
    use azekura_nfs::procedures::NFS;

    fn identity(pid: u32) -> Identity {
        Identity {
            pool: "0123".to_owned(),
            container: "default".to_owned(),
            address: "127.0.0.1:2049".to_owned(),
            mount_port: 20048,
            pid,
            by_engine: false,
        }
    }

    fn said(counted: Snapshot) -> Said {
        let clients = ["10.0.0.1", "::ffff:10.0.0.1", "::1"].map(|ip| ip.parse().unwrap());
        Said { exports: vec!["/data".to_owned()], clients: clients.to_vec(), counted }
    }

    #[test]
    fn a_gateway_is_found_as_long_as_it_runs() {
        let dir = tempfile::tempdir().unwrap();
        let announced =
            announce_in(dir.path(), identity(71), || said(Snapshot::default())).unwrap();
        let found = list_in(dir.path());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].identity, identity(71));
        assert_eq!((found[0].clients.len(), found[0].connections), (2, 3));
        assert_eq!(found[0].exports, ["/data"]);
        drop(announced);
        assert!(list_in(dir.path()).is_empty());
    }

    #[test]
    fn what_a_killed_one_has_left_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("nfs-72.sock");
        drop(UnixListener::bind(&socket).unwrap());
        drop(UnixListener::bind(dir.path().join("default.sock")).unwrap());
        assert!(socket.exists() && list_in(dir.path()).is_empty() && !socket.exists());
        assert!(dir.path().join("default.sock").exists(), "it is a pool's");
    }

    #[test]
    fn rates_are_what_was_added_per_second() {
        let metrics = Metrics::default();
        let start = Instant::now();
        let before = Sample::of(&metrics.snapshot(), start);
        for _ in 0..10 {
            let latency = Duration::ZERO;
            let call = Answered { is_error: false, bytes_in: 100, bytes_out: 20, latency };
            metrics.count(NFS.number, 1, call);
        }
        let now = Sample::of(&metrics.snapshot(), start + Duration::from_secs(2));
        let rates = Rates { calls_per_s: 5, received_bytes_per_s: 500, sent_bytes_per_s: 100 };
        assert_eq!(now.since(&before), rates);
    }
}
