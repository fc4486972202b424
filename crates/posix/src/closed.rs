//! Small far files that were read and closed a moment ago, with the leases under which they were read: a linker opens
//! each of its files twice, and every compilation the same headers. Owns which are kept, and that none is for long: an
//! engine takes them for open.

use std::collections::VecDeque;
use std::sync::Arc;

use azekura_client::OpenReference;
use azekura_proto::{Attr, Oid};
use parking_lot::Mutex;

use crate::reader::FileReader;

/// Files that are kept.
const FILES_MAX: usize = 32;
/// The longest of them, in bytes: what was read of it is kept as well.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// A file that nobody has open.
#[derive(Debug)]
struct Closed {
    reference: Arc<OpenReference>,
    reader: FileReader,
}

/// What was closed last, the latest at the end.
#[derive(Debug, Default)]
pub(crate) struct ClosedFiles(Mutex<VecDeque<Closed>>);

impl ClosedFiles {
    /// Keeps a file, if its leases hold.
    pub(crate) fn keep(&self, reference: Arc<OpenReference>, reader: FileReader) {
        let is_worth = |attr: Attr| attr.nlink > 0 && attr.size <= FILE_BYTES_MAX;
        if !reader.attr().is_some_and(is_worth) {
            return;
        }
        // What goes may speak to an engine, which needs no lock held.
        let _oldest;
        let mut files = self.0.lock();
        _oldest = if files.len() == FILES_MAX { files.pop_front() } else { None };
        files.push_back(Closed { reference, reader });
    }

    /// Takes a file, with its attributes as they are, if its leases still hold.
    pub(crate) fn take(&self, oid: Oid) -> Option<(Attr, Arc<OpenReference>, FileReader)> {
        let Closed { reference, reader } = {
            let mut files = self.0.lock();
            let place = files.iter().rposition(|file| file.reference.oid() == oid)?;
            files.remove(place)?
        };
        Some((reader.attr()?, reference, reader))
    }

    /// Lets those go whose leases are over.
    pub(crate) fn remove_old(&self) {
        let _old: VecDeque<Closed>;
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
