//! Threads that wait for the source, so that the scheduler never does.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use parking_lot::Mutex;

use crate::doors::spawn;

const THREADS: usize = 4;

type Work = Box<dyn FnOnce() + Send>;

/// The threads; they end when this is dropped and their work is done.
#[derive(Clone)]
pub(crate) struct Workers(Sender<Work>);

impl Workers {
    pub(crate) fn start() -> io::Result<Self> {
        let (sender, receiver) = channel::<Work>();
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..THREADS {
            let receiver = Arc::clone(&receiver);
            spawn("source", move || {
                loop {
                    let work = receiver.lock().recv();
                    let Ok(work) = work else { return };
                    work();
                }
            })?;
        }
        Ok(Self(sender))
    }

    pub(crate) fn give(&self, work: impl FnOnce() + Send + 'static) {
        // The threads live as long as somebody can give them work.
        let _ = self.0.send(Box::new(work));
    }
}
