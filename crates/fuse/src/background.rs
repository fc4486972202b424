//! The two threads of a mount that serve no request: one looks after the pool every second, one
//! tells the kernel what to drop. The latter must not be done by the threads that serve requests,
//! since the kernel may wait for one of those before it takes the message.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use azekura_posix::FileSystem;
use parking_lot::Mutex;

use crate::kernel::Notifier;

const TICK: Duration = Duration::from_secs(1);
/// Messages that wait for the kernel. Any that do not fit are left out: what they would drop is
/// found to be old when its attributes are looked at, a second later at most.
const DROPS_MAX: usize = 1024;

/// Data of a node that the kernel shall drop, from an offset on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stale {
    pub(crate) node: u64,
    pub(crate) offset: u64,
}

/// Where [`Stale`] data are handed in.
#[derive(Debug)]
pub(crate) struct Drops(SyncSender<Stale>);

impl Drops {
    /// Has the kernel drop this, soon.
    pub(crate) fn send(&self, stale: Stale) {
        if self.0.try_send(stale).is_err() {
            tracing::debug!("too much for the kernel to drop: node {} is left out", stale.node);
        }
    }
}

/// A queue of drops and its other end.
pub(crate) fn drops() -> (Drops, Receiver<Stale>) {
    let (sender, receiver) = sync_channel(DROPS_MAX);
    (Drops(sender), receiver)
}

/// The thread that looks after the pool. The other one ends by itself with the last [`Drops`].
#[derive(Debug)]
pub(crate) struct Ticker {
    stop: SyncSender<()>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Ticker {
    /// Starts the thread.
    pub(crate) fn start(fs: Arc<FileSystem>) -> std::io::Result<Self> {
        let (stop, stopped) = sync_channel::<()>(1);
        let thread = std::thread::Builder::new().name("fuse-ticker".into()).spawn(move || {
            while stopped.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                fs.pool().tick();
                fs.forget_opened();
                if let Err(errno) = fs.look_after_changes() {
                    tracing::debug!("changes in flight wait for their engine: {errno}");
                }
            }
        })?;
        Ok(Self { stop, thread: Mutex::new(Some(thread)) })
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        let Some(thread) = self.thread.lock().take() else { return };
        // If it is full, or nobody listens, the thread ends anyway.
        let _ = self.stop.try_send(());
        if thread.join().is_err() {
            tracing::error!("the ticker of a mount has panicked");
        }
    }
}

/// Starts the thread that tells the kernel what to drop.
pub(crate) fn start_dropping(notifier: Notifier, drops: Receiver<Stale>) -> std::io::Result<()> {
    std::thread::Builder::new().name("fuse-drop".into()).spawn(move || {
        for Stale { node, offset } in drops {
            if let Err(errno) = notifier.invalidate_node(node, offset as i64, 0) {
                tracing::debug!("the kernel did not drop the data of node {node}: {errno}");
            }
        }
    })?;
    Ok(())
}
