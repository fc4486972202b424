//! The threads that carry out calls with an event. They are started as calls come in, up to a bound, and
//! end with the last `daos_fini`. In a child of a fork there are none of the parent's; it starts its own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex, MutexGuard};

/// Most calls in flight at a time: each has a thread, and a connection to each target that it talks to.
pub(crate) const THREADS_MAX: usize = 16;
/// Most calls that wait for a thread; who brings one more waits too.
const WAITING_MAX: usize = 4096;

/// A call with everything it takes. It lets no panic out.
type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Jobs {
    /// Each with the address of its event.
    waiting: VecDeque<(usize, Job)>,
    threads: Vec<JoinHandle<()>>,
    idle: usize,
    ending: bool,
}

struct Workers {
    process: u32,
    jobs: Mutex<Jobs>,
    /// A call waits, or it is over for the threads.
    wanted: Condvar,
    /// There is room for one more call.
    room: Condvar,
}

static WORKERS: Mutex<Option<Arc<Workers>>> = Mutex::new(None);

impl Workers {
    fn of_process() -> Arc<Self> {
        let process = std::process::id();
        let mut slot = WORKERS.lock();
        match &*slot {
            Some(workers) if workers.process == process => Arc::clone(workers),
            _ => {
                let workers = Arc::new(Self {
                    process,
                    jobs: Mutex::default(),
                    wanted: Condvar::new(),
                    room: Condvar::new(),
                });
                // In a child the threads of the parent are not there to be waited for.
                std::mem::forget(slot.replace(Arc::clone(&workers)));
                workers
            }
        }
    }

    /// One more thread if none is free; false if there is not even one.
    fn grow(self: &Arc<Self>, jobs: &mut MutexGuard<'_, Jobs>) -> bool {
        if jobs.idle < jobs.waiting.len() && jobs.threads.len() < THREADS_MAX {
            let workers = Arc::clone(self);
            let started = without_signals(|| {
                std::thread::Builder::new()
                    .name("daos-call".to_owned())
                    .spawn(move || workers.work())
            });
            if let Ok(thread) = started {
                jobs.threads.push(thread);
            }
        }
        !jobs.threads.is_empty()
    }

    fn work(&self) {
        let mut jobs = self.jobs.lock();
        loop {
            if let Some((_, job)) = jobs.waiting.pop_front() {
                drop(jobs);
                self.room.notify_one();
                job();
                jobs = self.jobs.lock();
            } else if jobs.ending {
                return;
            } else {
                jobs.idle += 1;
                self.wanted.wait(&mut jobs);
                jobs.idle -= 1;
            }
        }
    }
}

/// Signals are the program's: no thread of this library takes one from it.
fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: both sets are plain integers, and are filled before they are read.
    unsafe {
        let (mut all, mut before) = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        let changed = libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let started = start();
        if changed == 0 {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        }
        started
    }
}

/// Hands the call of an event over.
pub(crate) fn submit(event: usize, job: Job) {
    let workers = Workers::of_process();
    let mut jobs = workers.jobs.lock();
    while jobs.waiting.len() >= WAITING_MAX {
        workers.room.wait(&mut jobs);
    }
    jobs.waiting.push_back((event, job));
    if workers.grow(&mut jobs) {
        drop(jobs);
        workers.wanted.notify_one();
    } else if let Some((_, job)) = jobs.waiting.pop_back() {
        // The system allows no thread: the call is carried out here and now.
        drop(jobs);
        job();
    }
}

/// Gives the call of an event up that no thread has begun with; false for any other, which goes on.
pub(crate) fn give_up(event: usize) -> bool {
    let workers = Workers::of_process();
    let mut jobs = workers.jobs.lock();
    let Some(index) = jobs.waiting.iter().position(|(other, _)| *other == event) else {
        return false;
    };
    let gone = jobs.waiting.remove(index);
    drop(jobs);
    drop(gone);
    workers.room.notify_one();
    true
}

/// Ends the threads, once all calls are over.
pub(crate) fn stop() {
    let Some(workers) = WORKERS.lock().take() else { return };
    if workers.process != std::process::id() {
        std::mem::forget(workers);
        return;
    }
    let threads = {
        let mut jobs = workers.jobs.lock();
        jobs.ending = true;
        std::mem::take(&mut jobs.threads)
    };
    workers.wanted.notify_all();
    for thread in threads {
        // A thread lets no panic out.
        let _ = thread.join();
    }
}
