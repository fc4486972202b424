//! The threads that answer trapped calls. Owns how many there are: one more whenever the last free one gets
//! something to do, so that a call which waits for a file keeps no other waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{io, thread};

use super::caller::Caller;
use super::serve::Server;
use crate::sys::notify::{self, Listener};

/// Calls that are answered at once at most; more wait in the kernel.
const THREADS_MAX: usize = 1024;
/// Free threads that stay.
const FREE_MAX: usize = 4;
const STACK_BYTES: usize = 512 * 1024;

/// A filter's calls and who answers them.
pub(super) struct Pool {
    listener: Listener,
    server: Server,
    threads: AtomicUsize,
    free: AtomicUsize,
}

impl Pool {
    /// Begins to answer.
    pub(super) fn start(listener: Listener, server: Server) -> io::Result<Arc<Self>> {
        let (threads, free) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let pool = Arc::new(Self { listener, server, threads, free });
        // The second is for calls that come while one is answered, which is the rule.
        pool.add_thread()?;
        pool.add_thread()?;
        Ok(pool)
    }

    /// Waits until no process is left whose calls are trapped.
    pub(super) fn wait_until_deserted(&self) -> io::Result<()> {
        self.listener.wait_until_deserted()
    }

    fn add_thread(self: &Arc<Self>) -> io::Result<()> {
        if self.threads.fetch_add(1, Ordering::Relaxed) >= THREADS_MAX {
            self.threads.fetch_sub(1, Ordering::Relaxed);
            return Ok(());
        }
        let pool = Arc::clone(self);
        // Counted before it runs, or each call until then would begin another.
        self.free.fetch_add(1, Ordering::Relaxed);
        let builder = thread::Builder::new().name("stage-trap".to_owned()).stack_size(STACK_BYTES);
        let started = builder.spawn(move || {
            pool.answer_calls();
            pool.threads.fetch_sub(1, Ordering::Relaxed);
        });
        if started.is_err() {
            self.free.fetch_sub(1, Ordering::Relaxed);
            self.threads.fetch_sub(1, Ordering::Relaxed);
        }
        started.map(drop)
    }

    fn answer_calls(self: &Arc<Self>) {
        // What is made in a caller's name is to have the caller's umask and not this process's. Where the
        // thread cannot have one of its own, both hold.
        if notify::leave_umask().is_ok() {
            rustix::process::umask(rustix::fs::Mode::empty());
        }
        loop {
            let received = self.listener.receive();
            let was_last = self.free.fetch_sub(1, Ordering::Relaxed) == 1;
            let call = match received {
                Ok(Some(call)) => call,
                Ok(None) => return,
                Err(error) => {
                    tracing::error!(%error, "calls of the program cannot be received any more");
                    return;
                }
            };
            if was_last && let Err(error) = self.add_thread() {
                tracing::warn!(%error, "no more threads to answer calls of the program with");
            }
            self.server.serve(&Caller { listener: &self.listener, call });
            if self.free.fetch_add(1, Ordering::Relaxed) >= FREE_MAX {
                self.free.fetch_sub(1, Ordering::Relaxed);
                return;
            }
        }
    }
}
