//! What programs of the node wait for: files that are to come. Owns who waits for what, so that a file is
//! asked for once however many wait, and the promise that everybody is woken at the end.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

use crate::message::Place;

/// What became of a want: the file is there, or the number of errno why it is not.
type Outcome = Result<(), i32>;

#[derive(Default)]
struct Want {
    outcome: Mutex<Option<Outcome>>,
    decided: Condvar,
}

/// Files that are waited for.
#[derive(Default)]
pub(crate) struct Wants {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    wants: HashMap<Place, Arc<Want>>,
    is_over: bool,
}

/// A file that somebody waits for.
pub(crate) struct Waiting(Arc<Want>);

impl Wants {
    /// Joins those who wait for a file; whether the caller is the first, who has to ask for it.
    pub(crate) fn join(&self, place: &Place) -> (Waiting, bool) {
        let mut table = self.table.lock();
        if let Some(want) = table.wants.get(place) {
            return (Waiting(Arc::clone(want)), false);
        }
        let want = Arc::new(Want::default());
        if table.is_over {
            *want.outcome.lock() = Some(Err(Errno::IO.raw_os_error()));
        } else {
            table.wants.insert(place.clone(), Arc::clone(&want));
        }
        (Waiting(want), true)
    }

    /// Wakes all who wait for a file.
    pub(crate) fn decide(&self, place: &Place, outcome: Outcome) {
        if let Some(want) = self.table.lock().wants.remove(place) {
            want.decide(outcome);
        }
    }

    /// Nothing comes any more.
    pub(crate) fn end(&self) {
        let mut table = self.table.lock();
        table.is_over = true;
        for (_, want) in table.wants.drain() {
            want.decide(Err(Errno::IO.raw_os_error()));
        }
    }
}

impl Want {
    fn decide(&self, outcome: Outcome) {
        *self.outcome.lock() = Some(outcome);
        self.decided.notify_all();
    }
}

impl Waiting {
    /// Waits until it is decided.
    pub(crate) fn wait(self) -> Outcome {
        let mut outcome = self.0.outcome.lock();
        loop {
            if let Some(outcome) = *outcome {
                return outcome;
            }
            self.0.decided.wait(&mut outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_who_wait_hear_the_same_and_nobody_waits_after_the_end() {
        let wants = Wants::default();
        let place = Place { map: 0, path: b"f".to_vec() };
        let (one, is_first) = wants.join(&place);
        assert!(is_first);
        let (other, is_first) = wants.join(&place);
        assert!(!is_first);
        wants.decide(&place, Ok(()));
        assert_eq!((one.wait(), other.wait()), (Ok(()), Ok(())));
        let (again, is_first) = wants.join(&place);
        assert!(is_first, "what was decided is asked for anew");
        wants.end();
        assert_eq!(again.wait(), Err(5));
        assert_eq!(wants.join(&place).0.wait(), Err(5));
    }
}
