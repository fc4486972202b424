//! `open` with `O_CREAT`, `O_TMPFILE`, `mkdir`, `symlink`, `mknod`. Owns what a new object starts
//! with: its owner, and the class and chunk size that it inherits from its directory.

use std::sync::Arc;

use azekura_client::{ClientError, Created};
use azekura_proto::attr::{DirectoryChange, DirectoryGuard, FileKind, Inheritance, NewInode};
use azekura_proto::limits::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, PATH_BYTES_MAX};
use azekura_proto::message::check_name;
use azekura_proto::message::typed::{Create, CreateGuarded, Creation};
use azekura_proto::{Attr, ObjectClass, Oid, Status};
use rustix::fs::OFlags;

use super::changed_dir::{ChangedDir, Effect};
use super::open::access_of;
use crate::cache::{AskedAny, Step};
use crate::errno::{of_client, of_entry, of_status};
use crate::writer::LeaseOfNew;
use crate::{Credentials, Errno, FileSystem, OpenFile, Result, permission};

/// A file that comes and goes between two requests is given up after so many rounds.
const ROUNDS: u32 = 8;

/// What a new entry starts with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewEntry<'a> {
    /// A regular file, not opened.
    Regular,
    /// A regular file, not opened, that is made once however often it is asked for: whoever repeats
    /// the call with the same verifier gets the file that the first one has made (RFC 1813, 3.3.8).
    Exclusive([u8; 8]),
    /// A directory.
    Directory,
    /// A symlink with its text.
    Symlink(&'a [u8]),
    /// A named pipe.
    Fifo,
    /// A UNIX-domain socket.
    Socket,
    /// A character device with its number.
    CharDevice(u64),
    /// A block device with its number.
    BlockDevice(u64),
}

impl NewEntry<'_> {
    fn kind(self) -> FileKind {
        match self {
            Self::Regular | Self::Exclusive(_) => FileKind::Regular,
            Self::Directory => FileKind::Directory,
            Self::Symlink(_) => FileKind::Symlink,
            Self::Fifo => FileKind::Fifo,
            Self::Socket => FileKind::Socket,
            Self::CharDevice(_) => FileKind::CharDevice,
            Self::BlockDevice(_) => FileKind::BlockDevice,
        }
    }
}

/// Where the data of a new file or the entries of a new directory go, if its maker says so. What is
/// `None` is inherited from the directory that it is made in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Striping {
    /// Class of the new object itself: of the file, or of the directory.
    pub class: Option<ObjectClass>,
    /// Chunk size of a new file in bytes.
    pub chunk_bytes: Option<u32>,
}

impl Striping {
    /// `EINVAL` for a chunk size that no file can have.
    fn check(self) -> Result<()> {
        let fits = self.chunk_bytes.is_none_or(|bytes| {
            (CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&bytes)
                && bytes.is_multiple_of(CHUNK_BYTES_MIN)
        });
        if fits { Ok(()) } else { Err(Errno::INVAL) }
    }
}

/// What becomes of a file that is there already when one is to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    /// It is opened as `open` does.
    Open,
    /// It is opened if that is plainly allowed; else whoever asked has to look again.
    OpenIfPlain,
}

impl FileSystem {
    pub(super) fn new_inode(
        &self,
        caller: &Credentials,
        dir: &Attr,
        what: NewEntry<'_>,
        mode: u32,
        striping: Striping,
    ) -> NewInode {
        let kind = what.kind();
        let inherited = dir.inheritance.unwrap_or(self.container().inheritance);
        let Inheritance { file_class, dir_class, chunk_bytes } = inherited;
        let owner = permission::of_new(caller, dir, kind, mode, self.checks());
        NewInode {
            kind,
            mode: owner.mode,
            uid: owner.uid,
            gid: owner.gid,
            rdev: match what {
                NewEntry::CharDevice(number) | NewEntry::BlockDevice(number) => number,
                NewEntry::Exclusive(verifier) => kept_verifier(verifier),
                _ => 0,
            },
            symlink_text: match what {
                NewEntry::Symlink(text) => text.to_vec(),
                _ => Vec::new(),
            },
            class: match kind {
                FileKind::Regular => striping.class.unwrap_or(file_class),
                FileKind::Directory => striping.class.unwrap_or(dir_class),
                _ => ObjectClass::S1,
            },
            chunk_bytes: striping.chunk_bytes.unwrap_or(chunk_bytes),
            inheritance: (kind == FileKind::Directory).then_some(inherited),
        }
    }

    /// `mkdir`, `symlink` and `mknod`. `mode`: permission bits, umask already applied.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT`, `EACCES` and others of those calls.
    pub fn make(
        &self,
        caller: &Credentials,
        dir: Oid,
        name: &[u8],
        mode: u32,
        what: NewEntry<'_>,
    ) -> Result<Attr> {
        self.make_as(caller, dir, name, mode, what, Striping::default())
    }

    /// As [`FileSystem::make`], with a striping of the maker's choice.
    ///
    /// # Errors
    /// Those of [`FileSystem::make`]; `EINVAL` for a chunk size that no file can have.
    pub fn make_as(
        &self,
        caller: &Credentials,
        dir: Oid,
        name: &[u8],
        mode: u32,
        what: NewEntry<'_>,
        striping: Striping,
    ) -> Result<Attr> {
        self.make_entry(caller, (dir, name), (mode, what), striping, None)
    }

    /// As [`FileSystem::make`], with the directory as it was before and after.
    ///
    /// # Errors
    /// Those of [`FileSystem::make`].
    pub fn make_in(
        &self,
        caller: &Credentials,
        dir: &mut ChangedDir,
        name: &[u8],
        mode: u32,
        what: NewEntry<'_>,
    ) -> Result<Attr> {
        let place = (dir.oid(), name);
        self.make_entry(caller, place, (mode, what), Striping::default(), Some(dir))
    }

    fn make_entry(
        &self,
        caller: &Credentials,
        (dir, name): (Oid, &[u8]),
        (mode, what): (u32, NewEntry<'_>),
        striping: Striping,
        watched: Option<&mut ChangedDir>,
    ) -> Result<Attr> {
        check_name(name).map_err(of_status)?;
        striping.check()?;
        match what {
            NewEntry::Symlink([]) => return Err(Errno::NOENT),
            NewEntry::Symlink(text) if text.len() >= PATH_BYTES_MAX => {
                return Err(Errno::NAMETOOLONG);
            }
            NewEntry::CharDevice(_) | NewEntry::BlockDevice(_)
                if self.checks() && !caller.is_root() =>
            {
                return Err(Errno::PERM);
            }
            _ => {}
        }
        if watched.is_none()
            && let Some(made) =
                self.make_in_flight(caller, (dir, name), (mode, what), striping, false)?
        {
            return Ok(made.attr);
        }
        let _naming = self.begin_naming(Some((dir, name)));
        self.note_unsynced(dir);
        let (parent, guard) = match watched {
            // It is asked for anyway.
            Some(_) => (self.parent_attr(dir)?, None),
            None => self.parent_to_make_in(caller, dir)?,
        };
        if let Err(errno) = self.check_change(caller, &parent) {
            self.check_search(caller, dir)?;
            return match self.entry_kind(dir, name) {
                Ok(_) => Err(Errno::EXIST),
                Err(Errno::NOENT) => Err(errno),
                Err(other) => Err(other),
            };
        }
        let inode = self.new_inode(caller, &parent, what, mode, striping);
        let asked = self.files.ask_for_new();
        let asked_step = self.cache.ask_step(dir, name);
        let asked_new = (what == NewEntry::Directory).then(|| self.cache.ask_any_dir());
        let _change = self.listed.make_name(dir);
        let creation = if let Some(guard) = guard {
            let asked_dir = self.cache.ask_dir(dir);
            let request = CreateGuarded { dir, name, inode, open: false, guard };
            let creation = self.change_entry((dir, name), request, None, effect_of_creation);
            match creation {
                Ok(_) => self.cache.confirm_dir(asked_dir, dir, guard),
                Err(ClientError::Status(Status::ConditionFailed)) => {
                    self.cache.forget_dir(dir);
                    return self.make_entry(caller, (dir, name), (mode, what), striping, None);
                }
                Err(_) => {}
            }
            creation
        } else {
            let request = Create { dir, name, inode, open: false };
            self.change_entry((dir, name), request, watched, effect_of_creation)
        };
        match creation.map_err(|error| of_entry(&error))? {
            Creation::New(mut attr) => {
                let oid = attr.oid;
                self.newborns.note_entry(dir, name, &attr);
                let step = asked_new.map(|_| (asked_step, Step::Directory(oid)));
                self.note_new_entry(dir, &mut attr, asked_new);
                self.cache.renew_step(dir, name, step);
                self.files.keep_new(asked, &attr);
                if let NewEntry::Symlink(text) = what {
                    self.cache.keep_text(oid, &Arc::from(text));
                }
                Ok(*attr)
            }
            Creation::Existing(entry, _) => match what {
                NewEntry::Exclusive(verifier) if entry.kind == FileKind::Regular => {
                    let attr = self.getattr(entry.oid)?;
                    if attr.rdev == kept_verifier(verifier) { Ok(attr) } else { Err(Errno::EXIST) }
                }
                _ => Err(Errno::EXIST),
            },
        }
    }

    /// `open` with `O_CREAT`: makes the file, or opens the one that is there, unless `O_EXCL`.
    /// `O_TRUNC`, `O_APPEND` and the access mode count too.
    ///
    /// # Errors
    /// Those of `open`; `ELOOP` where the name leads to a symlink.
    pub fn create(
        &self,
        caller: &Credentials,
        dir: Oid,
        name: &[u8],
        mode: u32,
        flags: OFlags,
    ) -> Result<(Attr, OpenFile)> {
        self.create_as(caller, dir, name, mode, flags, Striping::default())
    }

    /// As [`FileSystem::create`], with a striping of the maker's choice. A file that is there keeps
    /// the one that it has.
    ///
    /// # Errors
    /// Those of [`FileSystem::create`]; `EINVAL` for a chunk size that no file can have.
    pub fn create_as(
        &self,
        caller: &Credentials,
        dir: Oid,
        name: &[u8],
        mode: u32,
        flags: OFlags,
        striping: Striping,
    ) -> Result<(Attr, OpenFile)> {
        self.create_or_open(caller, (dir, name), (mode, striping), flags, Found::Open)
    }

    /// As [`FileSystem::create`], for a kernel that took the name for free when it checked
    /// permissions. A regular file that is there is opened if the caller plainly may; at everything
    /// else that is found the kernel has to look the name up, and to decide by itself.
    ///
    /// # Errors
    /// Those of [`FileSystem::create`]; `ESTALE` if the kernel has to look again.
    pub fn create_unforeseen(
        &self,
        caller: &Credentials,
        dir: Oid,
        name: &[u8],
        mode: u32,
        flags: OFlags,
    ) -> Result<(Attr, OpenFile)> {
        let start = (mode, Striping::default());
        self.create_or_open(caller, (dir, name), start, flags, Found::OpenIfPlain)
    }

    fn create_or_open(
        &self,
        caller: &Credentials,
        (dir, name): (Oid, &[u8]),
        (mode, striping): (u32, Striping),
        flags: OFlags,
        found: Found,
    ) -> Result<(Attr, OpenFile)> {
        check_name(name).map_err(of_status)?;
        striping.check()?;
        let (start, new) = ((mode, NewEntry::Regular), (dir, name));
        if let Some(made) = self.make_in_flight(caller, new, start, striping, true)? {
            return self.made_handle(made, caller, flags);
        }
        let _naming = self.begin_naming(Some((dir, name)));
        self.note_unsynced(dir);
        let (mut parent, mut guard) = self.parent_to_make_in(caller, dir)?;
        for _ in 0..ROUNDS {
            let may_make = self.check_change(caller, &parent);
            if may_make.is_err() {
                self.check_search(caller, dir)?;
            }
            let (oid, kind) = if let Err(errno) = may_make {
                self.entry_kind(dir, name).map_err(|found| match found {
                    Errno::NOENT => errno,
                    other => other,
                })?
            } else {
                let inode = self.new_inode(caller, &parent, NewEntry::Regular, mode, striping);
                let _change = self.listed.make_name(dir);
                let asked = self.cache.ask_dir(dir);
                let or_open = found == Found::Open
                    && !flags.contains(OFlags::EXCL)
                    && self.reading.is_far(self.entry_target(dir, name));
                match self.create_opened((dir, name), inode, guard, (flags, or_open)) {
                    Ok((Created::New(mut attr, reference), lease)) => {
                        if let Some(guard) = guard {
                            self.cache.confirm_dir(asked, dir, guard);
                        }
                        self.note_new_entry(dir, &mut attr, None);
                        self.newborns.note_entry(dir, name, &attr);
                        let file = self.handle(reference, &attr, caller, flags);
                        if let Some(lease) = lease {
                            file.writer.begin_leased(&self.writing, &file.layout, lease);
                        }
                        return Ok((*attr, file));
                    }
                    // What this process has written to it may not have arrived.
                    Ok((Created::Existing(entry, Some((attr, reference))), _))
                        if !self.writing.has_unsettled(entry.oid) =>
                    {
                        match self.opened(caller, *attr, reference, flags) {
                            // Removed in between: it can be made after all.
                            Err(Errno::STALE) => continue,
                            other => return other,
                        }
                    }
                    Ok((Created::Existing(entry, _), _)) => (entry.oid, entry.kind),
                    Err(ClientError::Status(Status::ConditionFailed)) if guard.is_some() => {
                        self.cache.forget_dir(dir);
                        (parent, guard) = (self.parent_attr(dir)?, None);
                        continue;
                    }
                    Err(error) => return Err(of_entry(&error)),
                }
            };
            if flags.contains(OFlags::EXCL) {
                return Err(Errno::EXIST);
            }
            if let Some(opened) = self.open_found(caller, (oid, kind), flags, found)? {
                return Ok(opened);
            }
        }
        Err(Errno::BUSY)
    }

    /// Makes a file and opens it. What is far away and going to be written comes with a lease for that; not what is appended
    /// to or written through.
    fn create_opened(
        &self,
        (dir, name): (Oid, &[u8]),
        inode: NewInode,
        guard: Option<DirectoryGuard>,
        (flags, or_open): (OFlags, bool),
    ) -> std::result::Result<(Created, Option<LeaseOfNew>), ClientError> {
        let pool = self.pool();
        if access_of(flags).write
            && !flags.intersects(OFlags::APPEND | OFlags::DSYNC | OFlags::SYNC)
            && self.writing.changes_may_fly(self.entry_target(dir, name))
        {
            let (asked, changes) = (self.now(), self.changes.counts());
            let (created, leased) = pool.create_to_write(dir, name, inode, guard, or_open)?;
            return Ok((created, Some(LeaseOfNew { asked, changes, leased })));
        }
        let created = match guard {
            Some(guard) => pool.create_guarded(dir, name, inode, guard, or_open),
            None => pool.create(dir, name, inode, or_open),
        };
        created.map(|created| (created, None))
    }

    /// A directory in which a name is to be made. What is known of it from longer ago than it may be
    /// believed serves with a guard: so an engine says whether it still holds as it makes the name.
    fn parent_to_make_in(
        &self,
        caller: &Credentials,
        dir: Oid,
    ) -> Result<(Arc<Attr>, Option<DirectoryGuard>)> {
        if self.cache.dir(dir).is_none()
            && let Some(past) = self.cache.past_dir(dir)
            && self.check_change(caller, &past).is_ok()
        {
            let guard = DirectoryGuard::of(&past);
            return Ok((past, Some(guard)));
        }
        Ok((self.parent_attr(dir)?, None))
    }

    /// Opens what was found under the name of a file that was to be made. `None` if it was removed in
    /// between, so that the file can be made after all.
    fn open_found(
        &self,
        caller: &Credentials,
        (oid, kind): (Oid, FileKind),
        flags: OFlags,
        found: Found,
    ) -> Result<Option<(Attr, OpenFile)>> {
        match (found, kind) {
            (Found::OpenIfPlain, FileKind::Regular) => {
                match self.access(caller, oid, access_of(flags)) {
                    Ok(()) => {}
                    Err(Errno::STALE) => return Ok(None),
                    Err(_) => return Err(Errno::STALE),
                }
            }
            (Found::OpenIfPlain, _) => return Err(Errno::STALE),
            (Found::Open, FileKind::Directory) => return Err(Errno::ISDIR),
            (Found::Open, FileKind::Symlink) => return Err(Errno::LOOP),
            (Found::Open, _) => {}
        }
        match self.open(caller, oid, flags) {
            Err(Errno::STALE) => Ok(None),
            other => other.map(Some),
        }
    }

    /// What is kept of a directory that has got a new entry, and of a new directory.
    fn note_new_entry(&self, dir: Oid, attr: &mut Attr, asked_new: Option<AskedAny>) {
        let change = DirectoryChange::take_from_newborn(attr);
        self.newborns.note_made(dir, attr, self.moment(attr.oid.home()));
        if let Some(asked) = asked_new {
            self.cache.keep_met_dir(asked, attr.oid, Box::new(attr.clone()));
        }
        if attr.kind == FileKind::Directory {
            self.cache.age_dir(dir);
        } else {
            self.cache.touch_dir(dir, change.time, 0);
        }
    }

    /// `O_TMPFILE`: a file without a name, which [`FileSystem::link`] can give one.
    ///
    /// # Errors
    /// `EINVAL` unless it is opened for writing, `EACCES` if the caller may not write in `dir`.
    pub fn tmpfile(
        &self,
        caller: &Credentials,
        dir: Oid,
        mode: u32,
        flags: OFlags,
    ) -> Result<(Attr, OpenFile)> {
        if flags & OFlags::ACCMODE == OFlags::RDONLY {
            return Err(Errno::INVAL);
        }
        let parent = self.parent_attr(dir)?;
        self.check_change(caller, &parent)?;
        let inode = self.new_inode(caller, &parent, NewEntry::Regular, mode, Striping::default());
        let home = self.pool().next_home();
        let (attr, reference) = self
            .pool()
            .create_unlinked(self.container().id, home, inode)
            .map_err(|error| of_client(&error))?;
        let file = self.handle(reference, &attr, caller, flags);
        Ok((*attr, file))
    }
}

/// How the verifier of an exclusive creation is kept: as the device number, which means nothing for a
/// regular file, and so in the same step as the file is made. 0 is that of all other files.
fn kept_verifier(verifier: [u8; 8]) -> u64 {
    u64::from_be_bytes(verifier).max(1)
}

fn effect_of_creation(creation: &Creation) -> Effect {
    match creation {
        Creation::New(attr) => {
            let change = DirectoryChange::of_newborn(attr);
            Effect::Stamped(change.time, i8::from(attr.kind == FileKind::Directory))
        }
        Creation::Existing(..) => Effect::None,
    }
}
