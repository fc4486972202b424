//! Opening files and directories of a map: the caller gets a descriptor that was opened here. Owns which
//! question an open is to the agent, and the order in which an open may fail.

use std::os::fd::OwnedFd;

use azekura_proto::FileKind;
use azekura_proto::staging::local::{Change, LocalRequest};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use super::caller::Caller;
use super::maps::{Maps, Settled, open};
use super::places::Place;

/// Both bits at once; one of them is `O_DIRECTORY`.
const TMPFILE: u64 = libc::O_TMPFILE as u64;
const PATH_ONLY: u64 = libc::O_PATH as u64;

/// What open(2) is asked for.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) flags: u64,
    pub(super) mode: u32,
}

impl Wanted {
    fn has(self, flag: libc::c_int) -> bool {
        self.flags & flag as u64 != 0
    }

    /// Whether a descriptor that comes of it is closed when the caller runs another program.
    pub(super) fn closes_on_exec(self) -> bool {
        self.has(libc::O_CLOEXEC)
    }

    /// Whether what is opened may be a symlink itself.
    pub(super) fn may_be_of_symlink(self) -> bool {
        self.has(libc::O_PATH) && self.has(libc::O_NOFOLLOW) && !self.has(libc::O_DIRECTORY)
    }

    fn follows(self) -> bool {
        !self.has(libc::O_NOFOLLOW)
    }

    fn writes(self) -> bool {
        self.flags & libc::O_ACCMODE as u64 != libc::O_RDONLY as u64
    }

    fn flags(self) -> OFlags {
        OFlags::from_bits_retain(self.flags as u32)
    }

    /// The flags for a file that is there.
    fn flags_without_creation(self) -> OFlags {
        self.flags() & !(OFlags::CREATE | OFlags::EXCL | OFlags::TRUNC)
    }
}

/// Opens what a call asks for.
pub(super) fn serve(
    maps: &Maps,
    caller: &Caller,
    place: &Place,
    mut wanted: Wanted,
) -> Result<OwnedFd, Errno> {
    if wanted.flags & PATH_ONLY != 0 {
        // The kernel hands no such descriptors over. One for reading does as well for what they are
        // used for: as the start of other paths.
        let kept = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        wanted.flags &= kept as u64 & !PATH_ONLY;
    }
    if wanted.flags & TMPFILE == TMPFILE {
        // Programs know that not all file systems have them.
        return Err(Errno::OPNOTSUPP);
    }
    if wanted.writes() || wanted.has(libc::O_TRUNC) {
        return open_for_change(maps, caller, place, wanted);
    }
    let is_there = match open_for_reading(maps, caller, place, wanted) {
        Err(Errno::NOENT) if wanted.has(libc::O_CREAT) => {
            return open_for_change(maps, caller, place, wanted);
        }
        is_there => is_there?,
    };
    if wanted.has(libc::O_CREAT) && wanted.has(libc::O_EXCL) {
        return Err(Errno::EXIST);
    }
    Ok(is_there)
}

fn open_for_reading(
    maps: &Maps,
    caller: &Caller,
    place: &Place,
    wanted: Wanted,
) -> Result<OwnedFd, Errno> {
    let flags = wanted.flags_without_creation();
    if wanted.has(libc::O_DIRECTORY) {
        return open_directory(maps, caller, place, flags);
    }
    if let Some(fd) = maps.open_in_tree(place, flags) {
        let found = rustix::fs::fstat(&fd)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
            return Ok(fd);
        }
        return open_directory(maps, caller, place, flags);
    }
    let follow = wanted.follows();
    let settled = maps.settle(place, |path| LocalRequest::Open { path, follow })?;
    match open_settled(caller, flags, settled) {
        // It is whole by now, or the agent's descriptors are not to be seen from here.
        Err(Errno::NOENT | Errno::ACCESS | Errno::PERM) => {
            let settled = maps.settle(place, |path| LocalRequest::Read { path, follow })?;
            open_settled(caller, flags, settled)
        }
        opened => opened,
    }
}

/// A directory of the tree shows only what has come: the agent has one with all names.
fn open_directory(
    maps: &Maps,
    caller: &Caller,
    place: &Place,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    open_settled(caller, flags, maps.settle(place, |path| LocalRequest::List { path })?)
}

/// Opens what is there now.
pub(super) fn open_settled(
    caller: &Caller,
    flags: OFlags,
    settled: Settled,
) -> Result<OwnedFd, Errno> {
    open(&settled_path(caller, settled)?, flags, 0)
}

/// The path at which to do what was settled.
pub(super) fn settled_path(caller: &Caller, settled: Settled) -> Result<Vec<u8>, Errno> {
    match settled {
        Settled::Local(path) => Ok(path),
        Settled::Outside(path) => Ok(caller.path_here(&path)),
        // An answer to another question.
        Settled::Away { .. } => Err(Errno::IO),
    }
}

/// Opens a program of a map.
pub(super) fn open_program(
    maps: &Maps,
    caller: &Caller,
    place: &Place,
    follow: bool,
) -> Result<OwnedFd, Errno> {
    let flags = if follow { OFlags::RDONLY } else { OFlags::RDONLY | OFlags::NOFOLLOW };
    // Not to wait for the other end of a pipe.
    let flags = flags | OFlags::NONBLOCK;
    let file = if let Some(file) = maps.open_in_tree(place, flags) {
        file
    } else {
        let settled = maps.settle(place, |path| LocalRequest::Read { path, follow })?;
        open_settled(caller, flags, settled)?
    };
    let found = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile || found.st_mode & 0o111 == 0
    {
        return Err(Errno::ACCESS);
    }
    Ok(file)
}

/// Opens for writing, or makes a file.
fn open_for_change(
    maps: &Maps,
    caller: &Caller,
    place: &Place,
    wanted: Wanted,
) -> Result<OwnedFd, Errno> {
    // Which map the path leads to, and whether anything may be written there, the agent knows.
    let settled = match settle_change(maps, place, wanted) {
        Err(Errno::ROFS) => return Err(why_not(maps, place, wanted)),
        settled => settled?,
    };
    let creates = wanted.has(libc::O_CREAT);
    let mode = if creates { wanted.mode & !caller.umask() } else { 0 };
    let path = settled_path(caller, settled)?;
    match open(&path, wanted.flags(), mode) {
        // What is cut need not have come: then it is begun anew.
        Err(Errno::NOENT) if wanted.has(libc::O_TRUNC) && !creates => {
            match look(maps, place, true)? {
                Settled::Away { attributes, .. } if attributes.kind == FileKind::Regular => {
                    open(&path, wanted.flags() | OFlags::CREATE, attributes.mode)
                }
                _ => Err(Errno::NOENT),
            }
        }
        opened => opened,
    }
}

fn settle_change(maps: &Maps, place: &Place, wanted: Wanted) -> Result<Settled, Errno> {
    let ask = |change| maps.settle(place, |path| LocalRequest::Change { path, change });
    let creates = wanted.has(libc::O_CREAT);
    let follow = wanted.follows();
    if creates && wanted.has(libc::O_EXCL) {
        must_not_exist(maps, place)?;
        ask(Change::Create)
    } else if wanted.has(libc::O_TRUNC) && follow {
        ask(Change::Replace)
    } else if wanted.writes() || wanted.has(libc::O_TRUNC) {
        match ask(Change::Write { follow }) {
            Err(Errno::NOENT) if creates => ask(Change::Create),
            settled => settled,
        }
    } else {
        ask(Change::Create)
    }
}

/// Why a file of a map that is only read cannot be opened for writing.
fn why_not(maps: &Maps, place: &Place, wanted: Wanted) -> Errno {
    let creates = wanted.has(libc::O_CREAT);
    match look(maps, place, wanted.follows()) {
        Ok(_) if creates && wanted.has(libc::O_EXCL) => Errno::EXIST,
        Ok(Settled::Away { attributes, .. }) if attributes.kind == FileKind::Directory => {
            Errno::ISDIR
        }
        Ok(_) => Errno::ROFS,
        // The agent has looked whether there is a directory for it.
        Err(Errno::NOENT) if creates => Errno::ROFS,
        Err(error) => error,
    }
}

/// Asks what is at a place.
pub(super) fn look(maps: &Maps, place: &Place, follow: bool) -> Result<Settled, Errno> {
    maps.settle(place, |path| LocalRequest::Look { path, follow })
}

/// Fails if there is something at a place, here or at home.
pub(super) fn must_not_exist(maps: &Maps, place: &Place) -> Result<(), Errno> {
    match look(maps, place, false) {
        Err(Errno::NOENT) => Ok(()),
        Ok(_) => Err(Errno::EXIST),
        Err(error) => Err(error),
    }
}
