//! Makes commits survive a crash of the machine without holding them up. The database syncs its
//! journal under the lock that every commit needs; this module syncs the same file through a
//! descriptor of its own, once for all that wait. It never writes to the journal.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::{Condvar, Mutex};

use crate::error::StoreError;

const JOURNAL_SUFFIX: &str = ".jnl";

/// The number in the name of a journal file of the database.
pub(crate) fn journal_number(name: &str) -> Option<u64> {
    name.strip_suffix(JOURNAL_SUFFIX)?.parse().ok()
}

#[derive(Default)]
struct State {
    /// Syncs begun and ended so far.
    begun: u64,
    ended: u64,
    journal: Option<(u64, File)>,
    /// Set by the first failure, for good: what the journal lost then is lost.
    failed: bool,
}

/// The syncs of one database.
pub(crate) struct JournalSync {
    dir: PathBuf,
    state: Mutex<State>,
    ended: Condvar,
}

impl JournalSync {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir, state: Mutex::default(), ended: Condvar::new() }
    }

    /// Returns when everything that was committed before the call is on stable storage.
    ///
    /// # Errors
    /// Whatever the disk says; after a failure, every later call fails too.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        // A sync that is under way may have begun before our commits: the next one counts.
        let wanted = state.begun + 1;
        while !state.failed && state.ended < wanted && state.begun > state.ended {
            self.ended.wait(&mut state);
        }
        if state.failed {
            return Err(self.failed_before());
        }
        if state.ended >= wanted {
            return Ok(());
        }
        state.begun += 1;
        let number = state.begun;
        let journal = state.journal.take();
        drop(state);

        let opened = self.open_newest(journal);
        let outcome = opened.and_then(|journal| match journal.1.sync_data() {
            Ok(()) => Ok(journal),
            Err(error) => {
                self.state.lock().failed = true;
                Err(error)
            }
        });

        let mut state = self.state.lock();
        let result = match outcome {
            Ok(journal) => {
                state.ended = number;
                state.journal = Some(journal);
                Ok(())
            }
            Err(error) => {
                // Nothing was synced: whoever waits for this one has to try by himself.
                state.begun = state.ended;
                Err(StoreError::system(&self.dir, "sync the key-values", error))
            }
        };
        drop(state);
        self.ended.notify_all();
        result
    }

    /// Whether a sync has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.state.lock().failed
    }

    /// The newest journal. The older ones are synced by the database before it begins a new one,
    /// so that it does not matter if it does so at this moment.
    fn open_newest(&self, open: Option<(u64, File)>) -> io::Result<(u64, File)> {
        loop {
            let newest = newest_journal(&self.dir)?;
            match open {
                Some(open) if open.0 == newest => return Ok(open),
                _ => {}
            }
            match File::open(self.dir.join(format!("{newest}{JOURNAL_SUFFIX}"))) {
                // Sealed and removed since it was listed: there is a newer one.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                opened => return opened.map(|file| (newest, file)),
            }
        }
    }

    fn failed_before(&self) -> StoreError {
        StoreError::Io {
            path: self.dir.clone(),
            what: "sync the key-values",
            source: io::Error::other(
                "an earlier sync failed, so data may be lost; check the disk, then restart",
            ),
        }
    }
}

fn newest_journal(dir: &Path) -> io::Result<u64> {
    let mut newest = None;
    for entry in std::fs::read_dir(dir)? {
        let number = entry?.file_name().to_str().and_then(journal_number);
        newest = newest.max(number);
    }
    newest.ok_or_else(|| io::Error::other("the journal is missing"))
}
