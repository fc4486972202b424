//! Threads that wait for a home, so that nobody else does: a read of a file may take for ever, and then takes a
//! thread with it, but only one. Owns how many there are.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::doors::spawn;

/// Threads at most. What stalls takes fewer of them: see `STALLED_MAX` of the front.
const THREADS_MAX: usize = 64;
/// A thread that has nothing to do for so long ends.
const IDLE: Duration = Duration::from_secs(5);

type Work = Box<dyn FnOnce() + Send>;

/// The threads; they end when there is nothing to do.
#[derive(Clone)]
pub(crate) struct Workers(Arc<Crew>);

#[derive(Default)]
struct Crew {
    state: Mutex<State>,
    given: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Work>,
    idle: usize,
    threads: usize,
}

impl Workers {
    /// # Errors
    /// If there is not even one thread.
    pub(crate) fn start() -> io::Result<Self> {
        let crew: Arc<Crew> = Arc::default();
        crew.hire(&mut crew.state.lock())?;
        Ok(Self(crew))
    }

    /// Has work done. What is given is bounded by those who give it: a few at once for each file and node.
    pub(crate) fn give(&self, work: impl FnOnce() + Send + 'static) {
        let mut state = self.0.state.lock();
        state.waiting.push_back(Box::new(work));
        if state.idle >= state.waiting.len() {
            self.0.given.notify_one();
        } else if state.threads < THREADS_MAX
            && let Err(error) = self.0.hire(&mut state)
        {
            // Those that there are do it, or whoever comes with the next work.
            tracing::error!("cannot start a thread to read files: {error}");
        }
    }
}

impl Crew {
    fn hire(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        let crew = Arc::clone(self);
        spawn("source", move || crew.work())?;
        state.threads += 1;
        Ok(())
    }

    fn work(&self) {
        while let Some(work) = self.next() {
            work();
        }
    }

    fn next(&self) -> Option<Work> {
        let mut state = self.state.lock();
        loop {
            if let Some(work) = state.waiting.pop_front() {
                return Some(work);
            }
            state.idle += 1;
            let is_idle = self.given.wait_for(&mut state, IDLE).timed_out();
            state.idle -= 1;
            if is_idle && state.waiting.is_empty() {
                state.threads -= 1;
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn work_that_never_ends_holds_up_no_other() {
        let workers = Workers::start().unwrap();
        let (open, closed) = channel::<()>();
        let closed = Arc::new(Mutex::new(closed));
        for _ in 0..THREADS_MAX - 1 {
            let closed = Arc::clone(&closed);
            workers.give(move || {
                let _ = closed.lock().recv();
            });
        }
        let (sender, done) = channel();
        for number in 0..100 {
            let sender = sender.clone();
            workers.give(move || sender.send(number).unwrap());
        }
        let limit = Duration::from_secs(10);
        let all: Vec<_> = (0..100).map(|_| done.recv_timeout(limit).unwrap()).collect();
        assert_eq!(all, (0..100).collect::<Vec<_>>());
        drop(open);
    }
}
