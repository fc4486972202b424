//! Far files that were opened by the same exchange as they were looked up by, since whoever looks a name up often opens
//! it next: a kernel does both for each open. Owns when that is worth it, and that one is not kept open longer than its
//! name stays, which others wait for. It asks nobody.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use azekura_proto::Oid;
use parking_lot::Mutex;

use crate::listed::{Asked, BroughtFile, NameIn};

/// Files that are kept.
const FILES_MAX: usize = 16;
/// Whoever opens a file later than this after its name was looked up does so for another reason.
const USED_WITHIN: Duration = Duration::from_secs(1);
/// A name that is looked up again within this time is looked up alone: whoever looks at one file all the time waits for
/// others to replace it, and they would wait for the lease of its name each time.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
/// Names that are remembered for that.
const NAMES_MAX: usize = 64;
/// After so many that nobody has opened, one after the other, no more are, until somebody opens what was looked up.
const UNUSED_MAX: u32 = 8;

/// A file that was opened with the look at its name.
#[derive(Debug)]
pub(crate) struct LookedUpFile {
    pub(crate) brought: BroughtFile,
    pub(crate) asked: Asked,
}

/// Those that nobody has opened yet, the latest at the end.
#[derive(Debug, Default)]
pub(crate) struct LookedUpFiles(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    files: VecDeque<LookedUpFile>,
    /// Names that were opened so, and when they were looked up last.
    names: VecDeque<(NameIn, Instant)>,
    /// So many were kept since one was opened.
    unused: u32,
}

impl LookedUpFiles {
    /// Whether a look at a name may well be followed by an open; if so it is expected to be opened with that.
    pub(crate) fn begin(&self, dir: Oid, name: &[u8], now: Instant) -> bool {
        let mut state = self.0.lock();
        let known = state.names.iter().position(|((of, known), _)| *of == dir && **known == *name);
        let last = known.and_then(|place| state.names.remove(place));
        let is_again = last.is_some_and(|(_, at)| now.saturating_duration_since(at) < AGAIN_AFTER);
        let is_worth_it = !is_again && state.unused < UNUSED_MAX;
        if is_again || is_worth_it {
            if state.names.len() == NAMES_MAX {
                state.names.pop_front();
            }
            state.names.push_back(((dir, name.into()), now));
        }
        is_worth_it
    }

    /// Keeps a file for whoever opens it next.
    pub(crate) fn keep(&self, file: LookedUpFile) {
        // What goes may speak to an engine, which needs no lock held.
        let (_same, _oldest);
        let mut state = self.0.lock();
        let State { files, unused, .. } = &mut *state;
        let same = files.iter().position(|other| other.is_of(file.brought.dir, &file.brought.name));
        _same = same.and_then(|place| files.remove(place));
        _oldest = if files.len() == FILES_MAX { files.pop_front() } else { None };
        files.push_back(file);
        *unused = unused.saturating_add(1);
    }

    /// The file of that name, for whoever opens it now.
    pub(crate) fn take(&self, dir: Oid, name: &[u8], now: Instant) -> Option<LookedUpFile> {
        let mut state = self.0.lock();
        let place = state.files.iter().position(|file| file.is_of(dir, name))?;
        let file = state.files.remove(place).filter(|file| file.is_fresh(now))?;
        state.unused = 0;
        Some(file)
    }

    /// A file is opened that was looked up at that time, and might have been opened then.
    pub(crate) fn note_opened(&self, looked_up: Instant, now: Instant) {
        if now.saturating_duration_since(looked_up) < USED_WITHIN {
            self.0.lock().unused = 0;
        }
    }

    /// Lets those go that nobody is going to open any more.
    pub(crate) fn remove_old(&self, now: Instant) {
        let _old: VecDeque<LookedUpFile>;
        let mut state = self.0.lock();
        let all = std::mem::take(&mut state.files);
        (state.files, _old) = all.into_iter().partition(|file| file.is_fresh(now));
    }

    /// Lets all go.
    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut self.0.lock().files);
        drop(all);
    }
}

impl LookedUpFile {
    fn is_of(&self, dir: Oid, name: &[u8]) -> bool {
        self.brought.dir == dir && *self.brought.name == *name
    }

    fn is_fresh(&self, now: Instant) -> bool {
        now < self.brought.named_until && self.brought.reader.attr().is_some()
    }
}

#[cfg(test)]
mod tests {
    use azekura_proto::{ContainerId, ObjectClass, TargetId};

    use super::*;

    #[test]
    fn a_name_that_is_looked_at_all_the_time_is_opened_with_the_first_look_alone() {
        let (files, mut now) = (LookedUpFiles::default(), Instant::now());
        let dir = Oid::new(ContainerId(1), ObjectClass::S1, TargetId(0), 1);
        assert!(files.begin(dir, b"a", now) && files.begin(dir, b"b", now));
        for _ in 0..5 {
            now += AGAIN_AFTER / 2;
            assert!(!files.begin(dir, b"a", now));
        }
        assert!(files.begin(dir, b"b", now), "nobody has looked at it for long");
        for number in 0..NAMES_MAX as u32 {
            assert!(files.begin(dir, &number.to_le_bytes(), now));
        }
        assert!(files.0.lock().names.len() <= NAMES_MAX);
    }
}
