//! What programs of the node wait for: files that are to come. Owns who waits for what, so that a file is
//! asked for once however many wait, and the promise that everybody is woken at the end.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

use crate::message::{ContentId, Place};

/// By when the kernel has told that a file was closed, after the program that closed it went on.
const CLOSE_TIME: Duration = Duration::from_millis(500);

/// What became of a want: the file is there, or the number of errno why it is not.
pub(crate) type Outcome = Result<(), i32>;

#[derive(Default)]
struct Want {
    state: Mutex<WantState>,
    changed: Condvar,
}

#[derive(Clone, Copy, Default)]
struct WantState {
    outcome: Option<Outcome>,
    /// The content by which it comes, from which programs may read already.
    coming: Option<ContentId>,
    /// It is read through, and therefore refused.
    is_read_through: bool,
}

/// What came of a wait for all of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    Decided(Outcome),
    /// There is no room for it as long as those have it open who read it through; a number of errno.
    ReadThrough(i32),
}

/// How a file can be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ready {
    /// It is in the tree.
    Whole,
    /// It comes by this content.
    Coming(ContentId),
}

/// Files that are waited for.
#[derive(Default)]
pub(crate) struct Wants {
    table: Mutex<Table>,
    /// Some file does not come any more by what it came by.
    stopped: Condvar,
}

#[derive(Default)]
struct Table {
    wants: HashMap<Place, Arc<Want>>,
    /// Large files that come, whether or not anybody waits for them.
    coming: HashMap<Place, ContentId>,
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
            want.decide(Err(Errno::IO.raw_os_error()));
        } else {
            want.state.lock().coming = table.coming.get(place).copied();
            table.wants.insert(place.clone(), Arc::clone(&want));
        }
        (Waiting(want), true)
    }

    /// Wakes all who wait for a file.
    pub(crate) fn decide(&self, place: &Place, outcome: Outcome) {
        let mut table = self.table.lock();
        table.coming.remove(place);
        if let Some(want) = table.wants.remove(place) {
            want.decide(outcome);
        }
    }

    /// A file comes by this content, and may be read as it comes.
    pub(crate) fn begin(&self, place: &Place, content: ContentId) {
        let mut table = self.table.lock();
        table.coming.insert(place.clone(), content);
        if let Some(want) = table.wants.get(place) {
            want.state.lock().coming = Some(content);
            want.changed.notify_all();
        }
    }

    /// Nothing of this content is to be read any more; whoever waits for the file goes on waiting.
    pub(crate) fn stop(&self, place: &Place, content: ContentId) {
        let mut table = self.table.lock();
        if table.coming.get(place) == Some(&content) {
            table.coming.remove(place);
            if let Some(want) = table.wants.get(place) {
                want.state.lock().coming = None;
            }
            self.stopped.notify_all();
        }
    }

    /// Waits a moment for those who read a file as it comes to have closed it: the kernel tells of that after
    /// `close` has returned. False if somebody has it open then.
    pub(crate) fn is_soon_closed(&self, place: &Place) -> bool {
        let deadline = Instant::now() + CLOSE_TIME;
        let mut table = self.table.lock();
        while table.coming.contains_key(place) && !table.is_over {
            if self.stopped.wait_until(&mut table, deadline).timed_out() {
                return !table.coming.contains_key(place);
            }
        }
        !table.is_over
    }

    /// A file never will be whole, but may go on being read as it comes.
    pub(crate) fn refuse_whole(&self, place: &Place, errno: i32) {
        if let Some(want) = self.table.lock().wants.remove(place) {
            want.state.lock().is_read_through = true;
            want.decide(Err(errno));
        }
    }

    /// Nothing comes any more.
    pub(crate) fn end(&self) {
        let mut table = self.table.lock();
        table.is_over = true;
        self.stopped.notify_all();
        for (_, want) in table.wants.drain() {
            want.decide(Err(Errno::IO.raw_os_error()));
        }
    }
}

impl Want {
    fn decide(&self, outcome: Outcome) {
        self.state.lock().outcome = Some(outcome);
        self.changed.notify_all();
    }
}

impl Waiting {
    /// Waits until it is decided.
    pub(crate) fn wait(self) -> Ended {
        self.wait_for(|state| match (state.outcome, state.is_read_through) {
            (Some(Err(errno)), true) => Some(Ended::ReadThrough(errno)),
            (outcome, _) => outcome.map(Ended::Decided),
        })
    }

    /// Waits until it can be opened.
    pub(crate) fn wait_until_coming(self) -> Result<Ready, i32> {
        self.wait_for(|state| match (state.coming, state.outcome) {
            (Some(content), _) => Some(Ok(Ready::Coming(content))),
            (None, outcome) => outcome.map(|outcome| outcome.map(|()| Ready::Whole)),
        })
    }

    fn wait_for<T>(self, is_it: impl Fn(&WantState) -> Option<T>) -> T {
        let mut state = self.0.state.lock();
        loop {
            if let Some(it) = is_it(&state) {
                return it;
            }
            self.0.changed.wait(&mut state);
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
        assert_eq!([one.wait(), other.wait()], [Ended::Decided(Ok(())); 2]);
        let (again, is_first) = wants.join(&place);
        assert!(is_first, "what was decided is asked for anew");
        wants.end();
        assert_eq!(again.wait(), Ended::Decided(Err(5)));
        assert_eq!(wants.join(&place).0.wait(), Ended::Decided(Err(5)));
    }

    #[test]
    fn what_comes_can_be_opened_before_it_is_whole() {
        let wants = Wants::default();
        let place = Place { map: 0, path: b"f".to_vec() };
        let (one, _) = wants.join(&place);
        wants.begin(&place, ContentId(7));
        assert_eq!(one.wait_until_coming(), Ok(Ready::Coming(ContentId(7))));
        assert_eq!(wants.join(&place).0.wait_until_coming(), Ok(Ready::Coming(ContentId(7))));
        wants.stop(&place, ContentId(6));
        let (other, _) = wants.join(&place);
        wants.stop(&place, ContentId(7));
        wants.decide(&place, Ok(()));
        assert_eq!(other.wait_until_coming(), Ok(Ready::Whole));
        wants.begin(&place, ContentId(8));
        let (whole, _) = wants.join(&place);
        wants.refuse_whole(&place, 5);
        assert_eq!(whole.wait(), Ended::ReadThrough(5));
        assert_eq!(wants.join(&place).0.wait_until_coming(), Ok(Ready::Coming(ContentId(8))));
    }

    #[test]
    fn a_close_that_is_told_late_is_waited_for_but_not_for_long() {
        let wants = Wants::default();
        let place = Place { map: 0, path: b"f".to_vec() };
        wants.begin(&place, ContentId(7));
        assert!(!wants.is_soon_closed(&place));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| wants.is_soon_closed(&place));
            std::thread::sleep(CLOSE_TIME / 10);
            wants.stop(&place, ContentId(7));
            assert!(waiter.join().unwrap());
        });
        assert!(wants.is_soon_closed(&place), "nobody has it open");
    }
}
