//! Looks at names of far directories that open what they find: what a kernel asks for one after the other, the name and
//! then the file, comes by one request. Owns that request; how long a file is kept open so is the business of
//! [`crate::looked_up`]. Only for front ends that keep what listings bring ([`crate::FsConfig::listed_from_us`]).

use std::sync::Arc;
use std::time::Duration;

use azekura_client::OpenedName;
use azekura_policy::ByteRange;
use azekura_proto::message::typed::{FileLeased, Found};
use azekura_proto::{FileKind, Oid};

use super::foreseen::Bringing;
use crate::errno::of_entry;
use crate::listed::BroughtFile;
use crate::looked_up::LookedUpFile;
use crate::reader::FileReader;
use crate::{FileSystem, Result};

impl FileSystem {
    /// Looks a name up, and opens it for reading if it is a regular file that is far away. `None` if it is to be looked
    /// up alone.
    pub(super) fn look_and_open(&self, dir: Oid, name: &[u8]) -> Result<Option<Found>> {
        let target = self.entry_target(dir, name);
        if !self.keeps_listed()
            || !self.reading.is_far(target)
            // Behind changes on their way several requests would wait for these first.
            || self.pool().has_changes_in_flight()
            || !self.looked_up.begin(dir, name, self.now())
        {
            return Ok(None);
        }
        let (at, changes) = (self.now(), self.changes.counts());
        let asked = self.listed.ask_since(at);
        let bring_bytes = self.reading.bring_bytes(target);
        let mut bytes = vec![0; bring_bytes as usize];
        let opened = self.pool().open_name_leased(dir, name, &mut bytes);
        let Some(opened) = opened.map_err(|error| of_entry(&error))? else { return Ok(None) };
        let OpenedName { entry, attr, reference, lease, others, names_ms, brought_bytes } = opened;
        if let (FileKind::Regular, Some(attr), Some(reference)) = (entry.kind, &attr, reference)
            && lease.lease_ms > 0
            && names_ms > 0
            && !self.writing.has_unsettled(entry.oid)
        {
            let layout = self.layout_of(attr);
            let leased = FileLeased { lease, others, attr: attr.clone() };
            let reader = FileReader::of_leased(&self.reading, &layout, at, leased);
            if let Some(count) = brought_bytes {
                bytes.truncate(count);
                let start = layout.geometry().brought(attr.size, bring_bytes);
                reader.take_brought(&self.reading, ByteRange::between(start, attr.size), bytes);
            }
            // Its reader counts own changes from now on.
            if self.changes.has_attributes_of(entry.oid, &changes) {
                let named_until = at + Duration::from_millis(names_ms.into());
                let (name, reader) = (name.into(), Arc::new(reader));
                let brought = BroughtFile { dir, name, named_until, reference, reader };
                self.looked_up.keep(LookedUpFile { brought, asked });
            }
        }
        Ok(Some(Found { entry, attr }))
    }

    /// Opens the file to which the path leads that was told with the container ([`FileSystem::mount_towards`]), while the
    /// program that is going to open it is being started.
    pub fn open_first_file(&self) {
        let Some((dir, name)) = self.first_walk.file() else { return };
        let Some(fs) = self.me.upgrade() else { return };
        self.listed.begin_bringing(vec![(dir, name.clone())]);
        let work = move || {
            let _bringing = Bringing(&fs.listed);
            // Whoever looks for it is told what is wrong.
            let _ = fs.look_and_open(dir, &name);
        };
        if self.config().platform.spawn("azekura-brings", Box::new(work)).is_err() {
            self.listed.end_bringing();
        }
    }
}
