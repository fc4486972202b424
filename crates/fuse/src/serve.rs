//! Serves a FUSE device with a file system: the handshake, the handler and what goes on beside it.
//! Does not know where the device is mounted, nor by whom; never mounts or unmounts.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use azekura_posix::{Errno, FileSystem};

use crate::background::{self, Ticker};
use crate::cache::CacheMode;
use crate::front_end::{FrontEnd, KernelSide};
use crate::kernel::{Session, SessionConfig, SessionError, Transport, passthrough_refusal};
use crate::view::View;

/// Largest read and write request, and most that is read ahead, in bytes.
pub(crate) const TRANSFER_BYTES: u32 = 1024 * 1024;

/// Round trip, in microseconds, from which on a request is mostly waiting.
const FAR_US: u64 = 1_000;
/// Most threads for a pool that is as far as this. They are started as they are needed.
const FAR_THREADS: usize = 64;

/// How to serve.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ServeConfig {
    /// What the kernel may keep.
    pub cache: CacheMode,
    /// Most threads that serve requests; by default two for each core and at least four, or what
    /// keeps many requests on their way to a pool that is far. Where requests go over io_uring, most
    /// threads for each processor.
    pub threads: Option<usize>,
    /// Which way requests take.
    pub transport: Transport,
    /// Who uses the mount.
    pub view: View,
    /// The kernel reads and writes by itself what lies in one file of this host, where it can.
    pub passthrough: bool,
}

/// A device that is being served. Dropping this does not end it: it goes on until the mount is
/// gone, or the process.
#[derive(Debug)]
pub struct Server {
    session: Session,
    front_end: Arc<FrontEnd>,
    ticker: Ticker,
}

/// Shakes hands with the kernel over `device` and serves it. The mount is ready for use when this
/// returns.
///
/// # Errors
/// If the handshake fails or no thread can be started.
pub fn serve(
    device: OwnedFd,
    fs: Arc<FileSystem>,
    config: ServeConfig,
) -> Result<Server, SessionError> {
    let caches = config.cache == CacheMode::Auto;
    let defaults = SessionConfig::default();
    let is_far = fs.pool().round_trip_us() >= FAR_US;
    let (default_threads, default_queue_threads) = if is_far {
        (FAR_THREADS, FAR_THREADS)
    } else {
        (defaults.threads, defaults.queue_threads)
    };
    let session_config = SessionConfig {
        threads: config.threads.unwrap_or(default_threads),
        transport: config.transport,
        queue_threads: config.threads.unwrap_or(default_queue_threads),
        max_write_bytes: TRANSFER_BYTES,
        max_readahead_bytes: TRANSFER_BYTES,
        cache_symlinks: caches,
        auto_invalidate_data: caches,
        readdir_plus: caches,
        passthrough: caches && config.passthrough && may_lend(),
        ..defaults
    };
    let (drops, dropped) = background::drops();
    let front_end =
        Arc::new(FrontEnd::new(Arc::clone(&fs), is_far, config.cache, drops, config.view));
    let session = Session::start(device, &session_config, Arc::clone(&front_end))?;
    if session.negotiated().over_io_uring {
        tracing::info!("FUSE requests go over io_uring");
    }
    let tells_of_set_id = session.negotiated().handles_killpriv;
    let lender = session.negotiated().passthrough.then(|| session.lender());
    let kernel = KernelSide { notifier: session.notifier(), tells_of_set_id, lender };
    // A request that comes before this finds the kernel as one that says nothing.
    let _ = front_end.kernel.set(kernel);
    background::start_dropping(session.notifier(), dropped).map_err(SessionError::Thread)?;
    let ticker = Ticker::start(fs).map_err(SessionError::Thread)?;
    Ok(Server { session, front_end, ticker })
}

/// Whether the kernel may take files; the log says why not.
fn may_lend() -> bool {
    let refusal = passthrough_refusal();
    if let Some(reason) = &refusal {
        tracing::info!("all data go through the mount's process: {reason}");
    }
    refusal.is_none()
}

impl Server {
    /// Waits until the mount is gone; what was asked before, and nobody waits for, may still be worked at.
    pub fn wait_gone(&self) {
        self.session.wait_gone();
    }

    /// The mount is gone, and the process ends soon: waits until what programs were answered for has arrived.
    ///
    /// # Errors
    /// What became of that, if not all of it has.
    pub fn settle(&self) -> Result<(), Errno> {
        self.front_end.waiters.close();
        self.front_end.fs.drain_for_good()
    }

    /// Waits until the mount is gone, all that was asked is done, and what programs were answered for has arrived.
    ///
    /// # Errors
    /// As of [`Server::settle`].
    pub fn wait(&self) -> Result<(), Errno> {
        self.session.wait();
        self.ticker.stop();
        self.settle()
    }

    /// Becomes true when the mount is gone.
    pub fn over(&self) -> Arc<AtomicBool> {
        self.session.over()
    }
}
