//! `open` of an object that is there. Owns which access mode needs which permission.

use std::sync::Arc;
use std::time::{Duration, Instant};

use azekura_client::{OpenReference, OpenedName};
use azekura_policy::ByteRange;
use azekura_proto::attr::{AttrChange, FileKind};
use azekura_proto::limits::NAME_BYTES_MAX;
use azekura_proto::message::typed::{FileLeased, SetAttr};
use azekura_proto::{Attr, Oid};
use rustix::fs::OFlags;

use crate::errno::of_entry;
use crate::listed::{Asked, FoundName, NameIn};
use crate::permission::set_id_bits_lost;
use crate::read_lately::Named as LeasedName;
use crate::reader::FileReader;
use crate::writer::WriteLeases;
use crate::{Access, Credentials, Errno, FileSystem, OpenFile, Result, permission};

/// What opening a name has led to.
#[derive(Debug)]
pub(crate) enum Named {
    /// It is open, and has these attributes.
    Open(Box<(Attr, OpenFile)>),
    /// It is this symlink.
    Symlink(Oid),
    /// It has to be looked up first, and opened then.
    Unclear,
}

/// What was looked up no longer ago than this is opened as what it was then.
const LOOKED_UP_JUST_NOW: Duration = Duration::from_millis(100);
/// Nothing but reading.
const READING: Access = Access { read: true, write: false, execute: false };

impl FileSystem {
    /// Opens an object by id: a regular file for reading and writing, or a directory. Gives its
    /// attributes as they are then. `O_TRUNC` counts; `O_CREAT` does not (see
    /// [`FileSystem::create`]).
    ///
    /// # Errors
    /// `EACCES`; `EISDIR` for a directory opened for writing; `ELOOP` for a symlink; `ENXIO` for
    /// pipes, sockets and devices, which only a kernel can open; `ESTALE` if the object is gone.
    pub fn open(&self, caller: &Credentials, oid: Oid, flags: OFlags) -> Result<(Attr, OpenFile)> {
        let truncates = flags.contains(OFlags::TRUNC);
        let leases = if truncates { WriteLeases::ReleaseFirst } else { WriteLeases::Keep };
        // The engine gives attributes with its answer.
        let _settled = self.writing.settle(oid, leases)?;
        let (attr, reference) = if flags.contains(OFlags::DIRECTORY) && self.keeps_listed() {
            self.open_listed(oid)?
        } else {
            self.pool().open(oid).map_err(|error| self.errno_of(&error))?
        };
        self.opened(caller, *attr, reference, flags)
    }

    /// As [`FileSystem::open`], for a front end that has looked the object up before
    /// ([`FileSystem::lookup_for`]). A far file that is to be read is opened by the name by which it was found,
    /// which brings its lease, its end, and those that come next; or it was brought itself.
    ///
    /// # Errors
    /// Those of [`FileSystem::open`]; `ESTALE` also, where listings are believed without leases, if the name, which one had or which
    /// was looked up a while ago, leads elsewhere by now: looked up again, it leads to what is there.
    pub fn open_looked_up(
        &self,
        caller: &Credentials,
        oid: Oid,
        flags: OFlags,
    ) -> Result<(Attr, OpenFile)> {
        let may_be_brought = access_of(flags) == READING
            && !flags.contains(OFlags::DIRECTORY)
            && self.reading.is_far(oid.home());
        if may_be_brought
            && self.keeps_listed()
            && let Some(opened) = self.open_again(caller, oid, flags)
        {
            return opened;
        }
        let found = if may_be_brought { self.listed.name_of(oid) } else { None };
        let Some(FoundName { dir, name, looked_up }) = found else {
            return self.open(caller, oid, flags);
        };
        if let Some(at) = looked_up {
            self.looked_up.note_opened(at, self.now());
        }
        let age = |at| self.now().saturating_duration_since(at);
        // Under leases a name leads where it led.
        let may_be_old = self.keeps_listed()
            && !self.listed.are_leased()
            && looked_up.is_none_or(|at| age(at) > LOOKED_UP_JUST_NOW);
        match self.open_name(caller, dir, &name, flags) {
            Ok(Named::Open(opened)) if opened.1.oid() == oid => {
                if self.keeps_listed() {
                    self.reopened.keep(opened.1.reference(), &opened.1.reader);
                }
                return Ok(*opened);
            }
            Err(Errno::IO) => return Err(Errno::IO),
            // Replaced or gone.
            Ok(Named::Open(_) | Named::Symlink(_)) | Err(Errno::NOENT | Errno::STALE)
                if may_be_old =>
            {
                // Whoever tries again without a name means the object.
                let looked_up = Some(self.now());
                self.listed.note_name(oid, FoundName { dir, name, looked_up });
                self.listed.doubt();
                return Err(Errno::STALE);
            }
            _ => {}
        }
        self.open(caller, oid, flags)
    }

    /// Opens a file for reading that was opened so a moment ago, if it is under its leases what it was.
    fn open_again(
        &self,
        caller: &Credentials,
        oid: Oid,
        flags: OFlags,
    ) -> Option<Result<(Attr, OpenFile)>> {
        let (attr, reference, reader) = self.reopened.find(oid)?;
        let opened = self.opened_to_go_on(caller, attr, (reference, reader), flags)?;
        Some(opened.inspect(|(_, file)| self.note_read(file, None)))
    }

    /// Opens a file that is held open and read under leases, by which it has these attributes. `None` if what this process
    /// has written to it may not have arrived.
    pub(super) fn opened_to_go_on(
        &self,
        caller: &Credentials,
        attr: Attr,
        (reference, reader): (impl Into<Arc<OpenReference>>, Arc<FileReader>),
        flags: OFlags,
    ) -> Option<Result<(Attr, OpenFile)>> {
        if self.writing.has_unsettled(attr.oid) {
            return None;
        }
        Some(self.opened(caller, attr, reference, flags).map(|(attr, mut file)| {
            file.reader = reader;
            (attr, file)
        }))
    }

    /// Forgets files that were opened or looked up a moment ago and that nobody is going to open again: for a front end
    /// that opens files by [`FileSystem::open_looked_up`], from time to time.
    pub fn forget_opened(&self) {
        self.reopened.remove_old();
        self.looked_up.remove_old(self.now());
    }

    /// Opens what a name leads to, by one request where its entry and its inode are at one engine: a regular file for
    /// reading and writing, or a directory. Gives its attributes as they are then. `O_TRUNC` counts; a symlink is not
    /// followed.
    ///
    /// # Errors
    /// Those of [`FileSystem::lookup`] and [`FileSystem::open`].
    pub fn open_at(
        &self,
        caller: &Credentials,
        dir: Oid,
        name: &[u8],
        flags: OFlags,
    ) -> Result<(Attr, OpenFile)> {
        if !matches!(name, b"." | b"..") {
            match self.open_name(caller, dir, name, flags)? {
                Named::Open(opened) => return Ok(*opened),
                Named::Symlink(_) => return Err(Errno::LOOP),
                Named::Unclear => {}
            }
        }
        let oid = self.lookup(caller, dir, name)?.oid;
        self.open(caller, oid, flags).map_err(|errno| match errno {
            // Removed between the two steps.
            Errno::STALE => Errno::NOENT,
            other => other,
        })
    }

    /// Opens what a name leads to in one step, if that can be done.
    ///
    /// # Errors
    /// Those of [`FileSystem::lookup`] and [`FileSystem::open`].
    pub(crate) fn open_name(
        &self,
        caller: &Credentials,
        dir: Oid,
        name: &[u8],
        flags: OFlags,
    ) -> Result<Named> {
        if name.len() > NAME_BYTES_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        self.check_search(caller, dir)?;
        if self.is_absent(dir, name) {
            return Err(Errno::NOENT);
        }
        let target = self.entry_target(dir, name);
        let wants_lease = access_of(flags) == READING && self.reading.is_far(target);
        if wants_lease && let Some(opened) = self.open_foreseen(caller, dir, name, flags)? {
            return Ok(Named::Open(Box::new(opened)));
        }
        let asked = wants_lease.then(|| {
            let at = self.now();
            (at, self.changes.counts(), self.listed.ask_since(at))
        });
        let bring_bytes = if wants_lease { self.reading.bring_bytes(target) } else { 0 };
        let mut brought = vec![0; bring_bytes as usize];
        let opened = self.pool().open_name(dir, name, wants_lease, &mut brought);
        let opened = opened.map_err(|error| of_entry(&error));
        let Some(opened) = opened? else { return Ok(Named::Unclear) };
        let OpenedName { entry, attr, reference, lease, others, brought_bytes, .. } = opened;
        match (entry.kind, attr, reference) {
            (FileKind::Symlink, ..) => Ok(Named::Symlink(entry.oid)),
            // What this process has written to it may not have arrived.
            _ if self.writing.has_unsettled(entry.oid) => Ok(Named::Unclear),
            (_, Some(attr), Some(reference)) => {
                let (attr, file) = self.opened(caller, *attr, reference, flags)?;
                // Before the look at all changes: one that begins after that makes this count an old one.
                let count = self.changes.count_of(entry.oid).of_attributes();
                if let Some((at, changes, _)) = &asked
                    && lease.lease_ms > 0
                    && self.changes.has_attributes_of(entry.oid, changes)
                {
                    let leased = FileLeased { lease, others, attr: Box::new(attr.clone()) };
                    file.reader.begin_leased(&self.reading, &file.layout, (*at, count), leased);
                    if let Some(bytes) = brought_bytes {
                        brought.truncate(bytes);
                        let geometry = file.layout.geometry();
                        let start = geometry.brought(attr.size, bring_bytes);
                        let range = ByteRange::between(start, attr.size);
                        file.reader.take_brought(&self.reading, range, brought);
                    }
                    self.note_read(&file, None);
                }
                if let Some((.., asked)) = asked.filter(|_| attr.kind == FileKind::Regular) {
                    self.note_opened(&asked, (dir, name), &attr);
                }
                Ok(Named::Open(Box::new((attr, file))))
            }
            (_, None, _) => match self.open(caller, entry.oid, flags) {
                Err(Errno::STALE) => Ok(Named::Unclear),
                other => other.map(|opened| Named::Open(Box::new(opened))),
            },
            _ if flags.contains(OFlags::DIRECTORY) => Err(Errno::NOTDIR),
            _ => Err(Errno::NXIO),
        }
    }

    /// A name leads to a far file, as was asked for then. Where nothing is believed without leases that is of no use.
    fn note_opened(&self, asked: &Asked, (dir, name): (Oid, &[u8]), attr: &Attr) {
        if !self.listed.are_leased() {
            self.listed.keep_told(asked, (dir, name.into()), attr.clone());
        }
    }

    /// The file to which a name led when it was opened, if that is believed still by whoever asks for nothing but where
    /// the name leads.
    pub(crate) fn opened_just_now(&self, dir: Oid, name: &[u8]) -> Option<Attr> {
        if !self.keeps_listed() || self.listed.are_leased() {
            return None;
        }
        self.listed.told(dir, name).map(|(attr, _)| *attr)
    }

    /// A far file is opened to be read, under leases that have come with its opening; and by a name that stays until a time,
    /// if it is known to.
    pub(super) fn note_read(&self, file: &OpenFile, named: Option<(NameIn, Instant)>) {
        let named = named.map(|(name, until)| {
            let (asked, reference) = (self.listed.ask(), Arc::downgrade(file.reference()));
            LeasedName { name, until, asked, reference }
        });
        self.read_lately.note(file.oid(), &file.reader, self.now(), named);
    }

    /// Goes on with what an engine holds open now, and has these attributes.
    pub(super) fn opened(
        &self,
        caller: &Credentials,
        mut attr: Attr,
        reference: impl Into<Arc<OpenReference>>,
        flags: OFlags,
    ) -> Result<(Attr, OpenFile)> {
        let (oid, truncates) = (attr.oid, flags.contains(OFlags::TRUNC));
        let wanted = access_of(flags);
        match attr.kind {
            FileKind::Directory if wanted.write => return Err(Errno::ISDIR),
            FileKind::Directory => {}
            _ if flags.contains(OFlags::DIRECTORY) => return Err(Errno::NOTDIR),
            FileKind::Regular => {}
            FileKind::Symlink => return Err(Errno::LOOP),
            FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {
                return Err(Errno::NXIO);
            }
        }
        if self.checks() {
            permission::check(caller, &attr, wanted)?;
        }
        let mut file = self.handle(reference, &attr, caller, flags);
        if file.is_readable() {
            self.reading.expect_reads_of(&file.layout, attr.size);
        }
        if truncates {
            let clear_mode_bits = self.lost_by_cutting(caller, &attr)?;
            file.take_first_write();
            file.has_lost_bits = clear_mode_bits != 0;
            let change = AttrChange { size: Some(0), clear_mode_bits, ..AttrChange::default() };
            let _change = self.begin_change(oid);
            attr = *self.call(oid.home(), SetAttr { oid, change })?;
        }
        Ok((attr, file))
    }

    /// What a file loses when it is cut: capabilities at once, and these bits of its mode.
    pub(crate) fn lost_by_cutting(&self, caller: &Credentials, attr: &Attr) -> Result<u16> {
        if attr.has_xattrs {
            self.take_capability(attr.oid)?;
        }
        Ok(if caller.is_root() { 0 } else { set_id_bits_lost(caller, attr.mode, attr.gid) })
    }
}

/// The access that opening with these flags needs.
pub(super) fn access_of(flags: OFlags) -> Access {
    let mode = flags & OFlags::ACCMODE;
    Access {
        read: mode != OFlags::WRONLY,
        write: mode != OFlags::RDONLY || flags.contains(OFlags::TRUNC),
        execute: false,
    }
}
