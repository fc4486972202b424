//! Writing what has come, aside from those who receive it. Owns the writing threads and the bound on what
//! waits for them: only when the disk is that far behind does a receiver wait.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

/// Writing threads: one copies while another waits for a directory.
const THREADS: usize = 2;
/// Pieces that wait to be written, in bytes.
const WAITING_BYTES_MAX: usize = 64 << 20;

type Work = Box<dyn FnOnce() + Send>;

/// The writing threads of an agent.
pub(crate) struct Disk {
    /// None once it has ended.
    queues: Mutex<Option<Vec<Sender<Work>>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    waiting: Arc<Waiting>,
}

#[derive(Default)]
struct Waiting {
    bytes: Mutex<usize>,
    written: Condvar,
}

/// Room for bytes that wait; given back when it is dropped.
pub(crate) struct Room {
    bytes: usize,
    waiting: Arc<Waiting>,
}

impl Drop for Room {
    fn drop(&mut self) {
        *self.waiting.bytes.lock() -= self.bytes;
        self.waiting.written.notify_all();
    }
}

impl Disk {
    pub(crate) fn start() -> io::Result<Self> {
        let (mut queues, mut threads) = (Vec::new(), Vec::new());
        for number in 0..THREADS {
            let (sender, receiver): (_, Receiver<Work>) = channel();
            let thread = std::thread::Builder::new().name(format!("stage-write-{number}"));
            threads.push(thread.spawn(move || {
                for work in receiver {
                    work();
                }
            })?);
            queues.push(sender);
        }
        Ok(Self {
            queues: Mutex::new(Some(queues)),
            threads: Mutex::new(threads),
            waiting: Arc::default(),
        })
    }

    /// Waits until so many bytes may wait.
    pub(crate) fn room(&self, bytes: usize) -> Room {
        let mut waiting = self.waiting.bytes.lock();
        while *waiting > 0 && *waiting + bytes > WAITING_BYTES_MAX {
            self.waiting.written.wait(&mut waiting);
        }
        *waiting += bytes;
        Room { bytes, waiting: Arc::clone(&self.waiting) }
    }

    /// Has work done; what is given under the same key, in order.
    pub(crate) fn give(&self, key: u64, work: impl FnOnce() + Send + 'static) {
        if let Some(queues) = &*self.queues.lock() {
            // A thread ends only when its queue does.
            let _ = queues[key as usize % queues.len()].send(Box::new(work));
        }
    }

    /// Ends the threads, what they have been given done.
    pub(crate) fn end(&self) {
        drop(self.queues.lock().take());
        for thread in self.threads.lock().drain(..) {
            // Its panic has been reported.
            let _ = thread.join();
        }
    }
}
