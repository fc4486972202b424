//! What waits to be said on a control connection. Owns the thread that says it, so that nobody who has
//! something to say waits for the peer, and the heartbeat: a side that has nothing to say says so.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use azekura_wire::FrameWriter;
use parking_lot::Mutex;
use serde::Serialize;

/// How often a control connection says that it lives.
const BEAT: Duration = Duration::from_secs(1);
/// A control connection on which nothing came for so long is dead. After a link was cut for 5 s TCP tries again
/// up to 3 s later, and that is to end no node, nor a job; who is killed is known at once, by the end of the
/// connection.
pub(crate) const SILENCE: Duration = Duration::from_secs(10);
/// Messages that wait, at most; a peer for which more wait is dead.
const WAITING_MAX: usize = 64 * 1024;
/// Messages that are sent together, in bytes.
const TOGETHER_BYTES: usize = 128 * 1024;

/// The sending side of a control connection, for any number of threads.
pub(crate) struct Outbox<T> {
    sender: SyncSender<T>,
    /// Until the connection is there.
    receiver: Arc<Mutex<Option<Receiver<T>>>>,
}

impl<T> Clone for Outbox<T> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), receiver: Arc::clone(&self.receiver) }
    }
}

impl<T: Serialize + Clone + Send + 'static> Outbox<T> {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        Self { sender, receiver: Arc::new(Mutex::new(Some(receiver))) }
    }

    /// False if nobody will hear it.
    pub(crate) fn say(&self, message: T) -> bool {
        match self.sender.try_send(message) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }

    /// Takes the one that what waits is sent through; none the second time.
    pub(crate) fn mouth(&self) -> Option<Mouth<T>> {
        self.receiver.lock().take().map(Mouth)
    }
}

/// What waits to be sent.
pub(crate) struct Mouth<T>(Receiver<T>);

impl<T: Serialize + Clone> Mouth<T> {
    /// Sends all that comes until the connection breaks, or no sender is left.
    pub(crate) fn run(self, mut writer: FrameWriter, beat: &T) {
        loop {
            let first = match self.0.recv_timeout(BEAT) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => beat.clone(),
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if !send(&mut writer, &first) {
                return;
            }
            while writer.queued_bytes() < TOGETHER_BYTES
                && let Ok(message) = self.0.try_recv()
            {
                if !send(&mut writer, &message) {
                    return;
                }
            }
            if writer.flush(&[]).is_err() {
                return;
            }
        }
    }
}

fn send<T: Serialize>(writer: &mut FrameWriter, message: &T) -> bool {
    let queued = writer.queue(message, 0);
    if let Err(error) = &queued {
        tracing::error!("a message of the job is not sent: {error}");
    }
    queued.is_ok()
}
