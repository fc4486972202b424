//! Something that happens once, and that others wait for.

use parking_lot::{Condvar, Mutex};

/// Whether it has happened.
#[derive(Debug, Default)]
pub(crate) struct Latch {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Latch {
    /// It has happened.
    pub(crate) fn set(&self) {
        *self.is_set.lock() = true;
        self.changed.notify_all();
    }

    /// Waits until it has.
    pub(crate) fn wait(&self) {
        let mut is_set = self.is_set.lock();
        while !*is_set {
            self.changed.wait(&mut is_set);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_waits_goes_on_when_it_has_happened_and_later() {
        let latch = Latch::default();
        std::thread::scope(|scope| {
            let waiting = [(); 3].map(|()| scope.spawn(|| latch.wait()));
            latch.set();
            for thread in waiting {
                thread.join().unwrap();
            }
        });
        latch.wait();
    }
}
