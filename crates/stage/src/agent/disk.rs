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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::RecvTimeoutError;
    use std::time::Duration;

    use super::*;

    const PIECE: usize = 1 << 20;
    /// What does not happen within this never does.
    const LIMIT: Duration = Duration::from_secs(20);
    const MOMENT: Duration = Duration::from_millis(100);

    /// A receiver that has so many pieces written, of several contents.
    fn receive(disk: &Arc<Disk>, pieces: usize, work: impl Fn(usize) + Send + Sync + 'static) {
        let work = Arc::new(work);
        for piece in 0..pieces {
            let (room, work) = (disk.room(PIECE), Arc::clone(&work));
            disk.give(piece as u64 % 5, move || {
                let _room = room;
                work(piece);
            });
        }
    }

    #[test]
    fn receivers_wait_for_a_slow_disk_and_go_on() {
        let disk = Arc::new(Disk::start().unwrap());
        let (allow, allowed) = channel();
        let allowed = Arc::new(Mutex::new(allowed));
        let (said, heard) = channel();
        let written: Arc<AtomicUsize> = Arc::default();
        for _ in 0..3 {
            let (disk, allowed, said) = (Arc::clone(&disk), Arc::clone(&allowed), said.clone());
            let written = Arc::clone(&written);
            std::thread::spawn(move || {
                receive(&disk, 100, move |_| {
                    let _: Result<(), _> = allowed.lock().recv();
                    written.fetch_add(1, Ordering::Relaxed);
                });
                said.send(()).unwrap();
            });
        }
        assert_eq!(heard.recv_timeout(MOMENT), Err(RecvTimeoutError::Timeout), "all wait");
        assert!(*disk.waiting.bytes.lock() <= WAITING_BYTES_MAX);
        for _ in 0..300 {
            allow.send(()).unwrap();
        }
        for _ in 0..3 {
            heard.recv_timeout(LIMIT).expect("a receiver waits for ever");
        }
        disk.end();
        assert_eq!((written.load(Ordering::Relaxed), *disk.waiting.bytes.lock()), (300, 0));
    }

    #[test]
    fn what_is_larger_than_all_room_is_written_by_itself() {
        let disk = Disk::start().unwrap();
        drop(disk.room(2 * WAITING_BYTES_MAX));
        let small = disk.room(1);
        assert_eq!(*disk.waiting.bytes.lock(), 1);
        drop(small);
        disk.end();
    }

    #[test]
    fn nobody_waits_for_a_disk_that_has_ended() {
        let disk = Arc::new(Disk::start().unwrap());
        let (allow, allowed) = channel::<()>();
        let (said, heard) = channel();
        let receiving = Arc::clone(&disk);
        let allowed = Mutex::new(allowed);
        std::thread::spawn(move || {
            receive(&receiving, 200, move |_| _ = allowed.lock().recv());
            said.send(()).unwrap();
        });
        assert_eq!(heard.recv_timeout(MOMENT), Err(RecvTimeoutError::Timeout));
        let ending = Arc::clone(&disk);
        let end = std::thread::spawn(move || ending.end());
        // The work under way ends; what is given after that is not done, and takes no room.
        drop(allow);
        heard.recv_timeout(LIMIT).expect("a receiver waits for ever");
        end.join().unwrap();
        assert_eq!(*disk.waiting.bytes.lock(), 0);
    }
}
