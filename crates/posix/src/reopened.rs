//! Small far files that were opened a moment ago to be read, with the leases under which that was: whoever opens one again
//! need not ask. A linker opens each of its files twice, and every compilation the same headers. Owns which are
//! remembered, and that none is for long: an engine takes them for open.

use std::collections::VecDeque;
use std::sync::Arc;

use azekura_client::OpenReference;
use azekura_proto::{Attr, Oid};
use parking_lot::Mutex;

use crate::reader::FileReader;

/// Files that are remembered.
const FILES_MAX: usize = 32;
/// The longest of them, in bytes: what is read of it is kept as well. A longer one is read in its own way by each who opens it.
pub(crate) const REOPENED_BYTES_MAX: u64 = 64 << 10;

/// A file as it was opened: what keeps it open, and how it is read.
#[derive(Clone, Debug)]
struct Opened {
    reference: Arc<OpenReference>,
    reader: Arc<FileReader>,
}

/// What was opened last, the latest at the end.
#[derive(Debug, Default)]
pub(crate) struct ReopenedFiles(Mutex<VecDeque<Opened>>);

impl ReopenedFiles {
    /// Remembers a file that has just been opened, if its leases keep it as it is.
    pub(crate) fn keep(&self, reference: &Arc<OpenReference>, reader: &Arc<FileReader>) {
        let is_worth = |attr: Attr| attr.nlink > 0 && attr.size <= REOPENED_BYTES_MAX;
        if !reader.attr().is_some_and(is_worth) {
            return;
        }
        let opened = Opened { reference: Arc::clone(reference), reader: Arc::clone(reader) };
        // What goes may speak to an engine, which needs no lock held.
        let _oldest;
        let mut files = self.0.lock();
        _oldest = if files.len() == FILES_MAX { files.pop_front() } else { None };
        files.push_back(opened);
    }

    /// A file with its attributes as they are, if its leases still hold.
    pub(crate) fn find(&self, oid: Oid) -> Option<(Attr, Arc<OpenReference>, Arc<FileReader>)> {
        let Opened { reference, reader } = {
            let files = self.0.lock();
            files.iter().rfind(|file| file.reference.oid() == oid)?.clone()
        };
        Some((reader.attr()?, reference, reader))
    }

    /// Whether a file need not be asked for.
    pub(crate) fn is_known(&self, oid: Oid) -> bool {
        self.find(oid).is_some()
    }

    /// Lets those go whose leases are over.
    pub(crate) fn remove_old(&self) {
        let _old: VecDeque<Opened>;
        let mut files = self.0.lock();
        let all = std::mem::take(&mut *files);
        (*files, _old) = all.into_iter().partition(|file| file.reader.attr().is_some());
    }

    /// Lets all go.
    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut *self.0.lock());
        drop(all);
    }
}
