//! Changing what is in a map: done here in the caller's name, at the place in the tree that the agent gives.
//! Owns which question a change is to the agent; whether something may be changed is the agent's to say.

use azekura_proto::staging::local::{Change as Announced, LocalRequest};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_NOW, Uid,
    XattrFlags,
};
use rustix::io::Errno;

use super::caller::Caller;
use super::calls::{Change, Room, TimesForm};
use super::look::follows;
use super::maps::{Maps, open};
use super::open::{must_not_exist, settled_path};
use super::places::Place;

/// The longest value of an extended attribute.
const VALUE_BYTES_MAX: u64 = 64 * 1024;

/// One end of a call with two paths.
pub(super) enum End {
    Mapped(Place),
    /// A path outside of the maps, absolute.
    Elsewhere(Vec<u8>),
}

/// Carries out a change at one place.
pub(super) fn serve(
    maps: &Maps,
    caller: &Caller,
    place: &Place,
    change: Change,
) -> Result<(), Errno> {
    match change {
        Change::MakeDirectory { mode } => {
            let path = new_name(maps, caller, place)?;
            rustix::fs::mkdir(path, masked(caller, mode))
        }
        Change::MakeNode { mode, dev } => {
            let path = new_name(maps, caller, place)?;
            let kind = match FileType::from_raw_mode(mode) {
                FileType::Unknown => FileType::RegularFile,
                kind => kind,
            };
            rustix::fs::mknodat(CWD, path, kind, masked(caller, mode & 0o7777), dev)
        }
        Change::MakeSymlink { text } => {
            let text = caller.text(text).ok_or(Errno::FAULT)?;
            rustix::fs::symlink(text, new_name(maps, caller, place)?)
        }
        Change::Remove { flags } => remove(maps, caller, place, flags),
        _ => change_attributes(maps, caller, place, change),
    }
}

fn masked(caller: &Caller, mode: u32) -> Mode {
    Mode::from_bits_retain(mode & !caller.umask())
}

/// The path for something new.
fn new_name(maps: &Maps, caller: &Caller, place: &Place) -> Result<Vec<u8>, Errno> {
    must_not_exist(maps, place)?;
    announced(maps, caller, place, Announced::Create)
}

/// Tells the agent what is about to happen; the path at which to do it.
fn announced(
    maps: &Maps,
    caller: &Caller,
    place: &Place,
    change: Announced,
) -> Result<Vec<u8>, Errno> {
    let settled = maps.settle(place, |path| LocalRequest::Change { path, change })?;
    settled_path(caller, settled)
}

/// The agent has what goes in the tree before it does, so that the kernel can say why it cannot.
fn remove(maps: &Maps, caller: &Caller, place: &Place, flags: i32) -> Result<(), Errno> {
    let path = announced(maps, caller, place, Announced::Remove)?;
    rustix::fs::unlinkat(CWD, path, AtFlags::from_bits_retain(flags as u32))
}

fn change_attributes(
    maps: &Maps,
    caller: &Caller,
    place: &Place,
    change: Change,
) -> Result<(), Errno> {
    // Read before anything is brought here for it.
    let times = match change {
        Change::Times { times, form, .. } => Some(read_times(caller, times, form)?),
        _ => None,
    };
    let follow = match change {
        Change::Mode { flags, .. } | Change::Owner { flags, .. } | Change::Times { flags, .. } => {
            follows(flags)
        }
        Change::SetAttribute { follow, .. } | Change::RemoveAttribute { follow, .. } => follow,
        _ => true,
    };
    let path = announced(maps, caller, place, Announced::Write { follow })?;
    let at = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    match change {
        Change::Mode { mode, .. } => {
            if !follow && is_symlink(&path)? {
                // As Linux says it: symlinks have no mode.
                return Err(Errno::OPNOTSUPP);
            }
            rustix::fs::chmodat(CWD, path, Mode::from_bits_retain(mode & 0o7777), AtFlags::empty())
        }
        Change::Owner { uid, gid, .. } => {
            // All ones: stays as it is.
            let uid = (uid != u32::MAX).then(|| Uid::from_raw(uid));
            let gid = (gid != u32::MAX).then(|| Gid::from_raw(gid));
            rustix::fs::chownat(CWD, path, uid, gid, at)
        }
        Change::Times { .. } => {
            let times = times.ok_or(Errno::INVAL)?;
            rustix::fs::utimensat(CWD, path, &times, at)
        }
        Change::Cut { bytes } => {
            let file = open(&path, OFlags::WRONLY, 0)?;
            rustix::fs::ftruncate(file, bytes)
        }
        Change::SetAttribute { follow, name, value, flags } => {
            let name = caller.text(name).ok_or(Errno::FAULT)?;
            let value = read_value(caller, value)?;
            let flags = XattrFlags::from_bits_retain(flags);
            if follow {
                rustix::fs::setxattr(path, name, &value, flags)
            } else {
                rustix::fs::lsetxattr(path, name, &value, flags)
            }
        }
        Change::RemoveAttribute { follow, name } => {
            let name = caller.text(name).ok_or(Errno::FAULT)?;
            if follow {
                rustix::fs::removexattr(path, name)
            } else {
                rustix::fs::lremovexattr(path, name)
            }
        }
        _ => Err(Errno::NOSYS),
    }
}

fn is_symlink(path: &[u8]) -> Result<bool, Errno> {
    let found = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(found.st_mode).is_symlink())
}

fn read_value(caller: &Caller, value: Room) -> Result<Vec<u8>, Errno> {
    if value.bytes > VALUE_BYTES_MAX {
        return Err(Errno::TOOBIG);
    }
    caller.bytes(value.address, value.bytes as usize)
}

fn read_times(caller: &Caller, address: u64, form: TimesForm) -> Result<Timestamps, Errno> {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    if address == 0 {
        return Ok(Timestamps { last_access: now, last_modification: now });
    }
    let micros = |secs: u64, micros: u64| {
        let nanos = micros.checked_mul(1000).filter(|nanos| *nanos < 1_000_000_000);
        let tv_nsec = nanos.ok_or(Errno::INVAL)? as _;
        Ok::<_, Errno>(Timespec { tv_sec: secs as i64, tv_nsec })
    };
    let (last_access, last_modification) = match form {
        TimesForm::Seconds => {
            let [access, modification] = caller.numbers(address)?;
            (micros(access, 0)?, micros(modification, 0)?)
        }
        TimesForm::Microseconds => {
            let [access, a, modification, m] = caller.numbers(address)?;
            (micros(access, a)?, micros(modification, m)?)
        }
        TimesForm::Nanoseconds => {
            let [access, a, modification, m] = caller.numbers(address)?;
            let nanos = |secs, nanos| Timespec { tv_sec: secs as i64, tv_nsec: nanos as _ };
            (nanos(access, a), nanos(modification, m))
        }
    };
    Ok(Timestamps { last_access, last_modification })
}

/// Gives something another name.
pub(super) fn rename(
    maps: &Maps,
    caller: &Caller,
    from: &End,
    to: &End,
    flags: u32,
) -> Result<(), Errno> {
    let flags = RenameFlags::from_bits_retain(flags);
    if let End::Mapped(place) = to
        && flags.contains(RenameFlags::NOREPLACE)
    {
        must_not_exist(maps, place)?;
    }
    // The new name first: where nothing may be written, nothing has been marked as gone.
    let exchanged = flags.contains(RenameFlags::EXCHANGE);
    let kept = Announced::Write { follow: false };
    let kind = if exchanged { kept } else { Announced::Create };
    let to = end_path(maps, caller, to, kind)?;
    let kind = if exchanged { kept } else { Announced::Remove };
    let from = end_path(maps, caller, from, kind)?;
    rustix::fs::renameat_with(CWD, from, CWD, to, flags)
}

/// Gives a file one more name.
pub(super) fn link(
    maps: &Maps,
    caller: &Caller,
    from: &End,
    to: &End,
    flags: i32,
) -> Result<(), Errno> {
    if let End::Mapped(place) = to {
        must_not_exist(maps, place)?;
    }
    let to = end_path(maps, caller, to, Announced::Create)?;
    let flags = AtFlags::from_bits_retain(flags as u32) & AtFlags::SYMLINK_FOLLOW;
    let follow = !flags.is_empty();
    let from = end_path(maps, caller, from, Announced::Write { follow })?;
    rustix::fs::linkat(CWD, from, CWD, to, flags)
}

fn end_path(maps: &Maps, caller: &Caller, end: &End, change: Announced) -> Result<Vec<u8>, Errno> {
    match end {
        End::Mapped(place) => announced(maps, caller, place, change),
        End::Elsewhere(path) => Ok(caller.path_here(path)),
    }
}
