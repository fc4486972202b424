//! Far files that were opened a moment ago to be read. Whoever comes back to one of them after its leases have run out, as
//! a linker goes through all of its files once more, mostly comes back to the others too; and one that is still open, and
//! whose name stays under a lease, is opened once more without asking. Owns which are then worth being asked for together;
//! never of files that are kept open for longer, whose writers would have to wait for leases again and again. It asks
//! nobody, and keeps nothing open.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use azekura_client::OpenReference;
use azekura_proto::Oid;
use parking_lot::Mutex;

use crate::listed::{Asked, NameIn};
use crate::reader::FileReader;

/// Files that are remembered, and asked for together.
const FILES_MAX: usize = 64;
/// Files that were opened longer ago are asked for by themselves.
const LATELY: Duration = Duration::from_secs(15);

/// The files, the latest at the end.
#[derive(Debug, Default)]
pub(crate) struct ReadLately(Mutex<VecDeque<Opened>>);

#[derive(Debug)]
struct Opened {
    oid: Oid,
    reader: Weak<FileReader>,
    at: Instant,
    named: Option<Named>,
}

/// The name by which a file was opened, under a lease of the directory's names.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) name: NameIn,
    /// How long the name stays, if nothing is changed from here from then on.
    pub(crate) until: Instant,
    pub(crate) asked: Asked,
    pub(crate) reference: Weak<OpenReference>,
}

/// A file that is still open, and leads from a name.
pub(crate) type StillOpen = (Arc<OpenReference>, Arc<FileReader>);

impl ReadLately {
    /// A far file is opened, to be read and nothing else.
    pub(crate) fn note(
        &self,
        oid: Oid,
        reader: &Arc<FileReader>,
        now: Instant,
        named: Option<Named>,
    ) {
        let reader = Arc::downgrade(reader);
        let mut files = self.0.lock();
        // One that is opened again may be read as before.
        files.retain(|file| !Weak::ptr_eq(&file.reader, &reader));
        if files.len() == FILES_MAX {
            files.pop_front();
        }
        files.push_back(Opened { oid, reader, at: now, named });
    }

    /// The file of a name, if it is still open and the name is leased. `holds`: whether nothing of that file, nor of the
    /// directory's names, was changed from here since.
    pub(crate) fn still_open(
        &self,
        dir: Oid,
        name: &[u8],
        now: Instant,
        holds: impl FnOnce(Oid, &Asked) -> bool,
    ) -> Option<StillOpen> {
        // What goes may speak to an engine, which needs no lock held.
        let (reference, reader) = {
            let files = self.0.lock();
            let (file, named) = files.iter().rev().find_map(|file| {
                let named = file.named.as_ref()?;
                (named.name.0 == dir && *named.name.1 == *name).then_some((file, named))
            })?;
            if now >= named.until || !holds(file.oid, &named.asked) {
                return None;
            }
            (Weak::clone(&named.reference), Weak::clone(&file.reader))
        };
        Some((reference.upgrade()?, reader.upgrade()?))
    }

    /// A file whose leases are over and those whose are as well, if it is one of several.
    pub(crate) fn due_with(&self, reader: &Arc<FileReader>, now: Instant) -> Vec<Due> {
        let is_late = |file: &Opened| now.saturating_duration_since(file.at) <= LATELY;
        let open: Vec<Due> = {
            let files = self.0.lock();
            let late = || files.iter().filter(|file| is_late(file));
            if !late().any(|file| std::ptr::eq(file.reader.as_ptr(), Arc::as_ptr(reader))) {
                return Vec::new();
            }
            late().filter_map(|file| Some((file.oid, file.reader.upgrade()?))).collect()
        };
        if open.len() < 2 {
            return Vec::new();
        }
        open.into_iter().filter(|(_, reader)| reader.attr().is_none()).collect()
    }
}

/// A file whose leases are over.
pub(crate) type Due = (Oid, Arc<FileReader>);

#[cfg(test)]
mod tests {
    use azekura_proto::{ContainerId, ObjectClass, TargetId};

    use super::*;

    fn oid(serial: u64) -> Oid {
        Oid::new(ContainerId(1), ObjectClass::S1, TargetId(0), serial)
    }

    #[test]
    fn files_that_are_open_and_were_opened_lately_are_due_together() {
        let (files, now) = (ReadLately::default(), Instant::now());
        let readers: Vec<_> = (0..4).map(|_| Arc::new(FileReader::new(0))).collect();
        let [old, one, other, closed] = &readers[..] else { unreachable!() };
        files.note(oid(1), old, now, None);
        let later = now + LATELY;
        files.note(oid(2), one, later, None);
        assert!(files.due_with(one, later + Duration::from_secs(1)).is_empty(), "it is alone");
        files.note(oid(3), other, later, None);
        let gone = Arc::new(FileReader::new(0));
        files.note(oid(4), &gone, later, None);
        drop(gone);
        let due = |reader| {
            let due = files.due_with(reader, later + Duration::from_secs(1)).into_iter();
            due.map(|(oid, _)| oid).collect::<Vec<_>>()
        };
        assert_eq!(due(one), [oid(2), oid(3)]);
        assert!(due(old).is_empty() && due(closed).is_empty(), "others have no part in it");
    }

    #[test]
    fn few_are_remembered() {
        let (files, now) = (ReadLately::default(), Instant::now());
        let readers: Vec<_> = (0..2 * FILES_MAX).map(|_| Arc::new(FileReader::new(0))).collect();
        for (serial, reader) in (0..).zip(&readers) {
            files.note(oid(serial), reader, now, None);
        }
        let last = readers.last().unwrap();
        assert_eq!(files.due_with(last, now).len(), FILES_MAX);
    }
}
