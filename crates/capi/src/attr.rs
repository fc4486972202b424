//! Attributes of files: stat, and the calls that change them; space of the file system.

use std::ffi::c_int;

use azekura_posix::{Attr, AttrUpdate, Errno, SetTime, Timestamp};

use crate::call::status;
use crate::class;
use crate::container::Container;
use crate::failure::{About as _, Failure, Outcome, Subject};
use crate::file::File;
use crate::oid::RawOid;
use crate::pointers::{Out, Text, handle, place};

const NANOS: i64 = 1_000_000_000;
/// The owner or group that stays (`(uid_t)-1`).
const STAYS: u32 = u32::MAX;

/// `struct azekura_stat`.
#[repr(C)]
pub(crate) struct Stat {
    ino: u64,
    size: u64,
    blocks_512: u64,
    rdev: u64,
    oid: RawOid,
    mode: u32,
    nlink: u32,
    uid: u32,
    gid: u32,
    chunk_bytes: u32,
    class: c_int,
    atime: libc::timespec,
    mtime: libc::timespec,
    ctime: libc::timespec,
    btime: libc::timespec,
    reserved: [u64; 4],
}

fn time(stamp: Timestamp) -> libc::timespec {
    libc::timespec { tv_sec: stamp.secs, tv_nsec: i64::from(stamp.nanos) }
}

impl Stat {
    pub(crate) fn of(attr: &Attr) -> Self {
        Self {
            ino: attr.oid.inode_number(),
            size: attr.size,
            blocks_512: attr.blocks_512,
            rdev: attr.rdev,
            oid: RawOid::of(attr.oid),
            mode: attr.kind.mode_bits() | u32::from(attr.mode),
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            chunk_bytes: attr.chunk_bytes,
            class: class::number(attr.oid.class()),
            atime: time(attr.atime),
            mtime: time(attr.mtime),
            ctime: time(attr.ctime),
            btime: time(attr.btime),
            reserved: [0; 4],
        }
    }
}

/// `struct azekura_statfs`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct StatFs {
    total_bytes: u64,
    available_bytes: u64,
    objects: u64,
    fsid: u64,
    name_bytes_max: u32,
    unused: u32,
    reserved: [u64; 4],
}

/// A path's attributes, as `name` asks for them.
fn stat_path(
    name: &'static str,
    container: Option<&Container>,
    path: Text<'_>,
    stat: Out<'_, Stat>,
    follow: bool,
) -> c_int {
    status(name, || {
        let (container, path) = (handle(container, "container")?, path.bytes("path")?);
        let out = place(stat, "stat")?;
        out.write(Stat::of(&container.names.resolve(path, follow).about(Subject::Path(path))?));
        Ok(())
    })
}

/// `azekura_stat`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_stat(
    container: Option<&Container>,
    path: Text<'_>,
    stat: Out<'_, Stat>,
) -> c_int {
    stat_path("azekura_stat", container, path, stat, true)
}

/// `azekura_lstat`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_lstat(
    container: Option<&Container>,
    path: Text<'_>,
    stat: Out<'_, Stat>,
) -> c_int {
    stat_path("azekura_lstat", container, path, stat, false)
}

/// `azekura_fstat`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_fstat(file: Option<&File>, stat: Out<'_, Stat>) -> c_int {
    status("azekura_fstat", || {
        let (file, out) = (handle(file, "file")?, place(stat, "stat")?);
        out.write(Stat::of(&file.open.metadata().about(file.subject())?));
        Ok(())
    })
}

/// A change of what a path leads to, as `name` makes it.
fn change_path(
    name: &'static str,
    container: Option<&Container>,
    path: Text<'_>,
    follow: bool,
    update: impl FnOnce() -> Outcome<AttrUpdate>,
) -> c_int {
    status(name, || {
        let (container, path) = (handle(container, "container")?, path.bytes("path")?);
        container.names.set_attr(path, follow, &update()?).map(drop).about(Subject::Path(path))
    })
}

fn change_file(
    name: &'static str,
    file: Option<&File>,
    update: impl FnOnce() -> Outcome<AttrUpdate>,
) -> c_int {
    status(name, || {
        let file = handle(file, "file")?;
        file.open.set_attr(&update()?).map(drop).about(file.subject())
    })
}

fn mode_update(mode: u32) -> AttrUpdate {
    AttrUpdate { mode: Some(mode & 0o7777), ..AttrUpdate::default() }
}

fn owner_update(uid: u32, gid: u32) -> AttrUpdate {
    let given = |id: u32| (id != STAYS).then_some(id);
    AttrUpdate { uid: given(uid), gid: given(gid), ..AttrUpdate::default() }
}

fn set_time(time: &libc::timespec) -> Outcome<Option<SetTime>> {
    match time.tv_nsec {
        libc::UTIME_NOW => Ok(Some(SetTime::Now)),
        libc::UTIME_OMIT => Ok(None),
        nanos @ 0..NANOS => {
            Ok(Some(SetTime::At(Timestamp { secs: time.tv_sec, nanos: nanos as u32 })))
        }
        nanos => {
            let text = format!("{nanos} nanoseconds: use 0 to 999999999, UTIME_NOW or UTIME_OMIT");
            Err(Failure::with(Errno::INVAL, text))
        }
    }
}

fn times_update(times: Option<&[libc::timespec; 2]>) -> Outcome<AttrUpdate> {
    let (atime, mtime) = match times {
        None => (Some(SetTime::Now), Some(SetTime::Now)),
        Some([atime, mtime]) => (set_time(atime)?, set_time(mtime)?),
    };
    Ok(AttrUpdate { atime, mtime, ..AttrUpdate::default() })
}

/// `azekura_chmod`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_chmod(
    container: Option<&Container>,
    path: Text<'_>,
    mode: u32,
) -> c_int {
    change_path("azekura_chmod", container, path, true, || Ok(mode_update(mode)))
}

/// `azekura_fchmod`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_fchmod(file: Option<&File>, mode: u32) -> c_int {
    change_file("azekura_fchmod", file, || Ok(mode_update(mode)))
}

/// `azekura_chown`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_chown(
    container: Option<&Container>,
    path: Text<'_>,
    uid: u32,
    gid: u32,
) -> c_int {
    change_path("azekura_chown", container, path, true, || Ok(owner_update(uid, gid)))
}

/// `azekura_lchown`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_lchown(
    container: Option<&Container>,
    path: Text<'_>,
    uid: u32,
    gid: u32,
) -> c_int {
    change_path("azekura_lchown", container, path, false, || Ok(owner_update(uid, gid)))
}

/// `azekura_fchown`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_fchown(file: Option<&File>, uid: u32, gid: u32) -> c_int {
    change_file("azekura_fchown", file, || Ok(owner_update(uid, gid)))
}

/// `azekura_utimens`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_utimens(
    container: Option<&Container>,
    path: Text<'_>,
    times: Option<&[libc::timespec; 2]>,
) -> c_int {
    change_path("azekura_utimens", container, path, true, || times_update(times))
}

/// `azekura_lutimens`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_lutimens(
    container: Option<&Container>,
    path: Text<'_>,
    times: Option<&[libc::timespec; 2]>,
) -> c_int {
    change_path("azekura_lutimens", container, path, false, || times_update(times))
}

/// `azekura_futimens`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_futimens(
    file: Option<&File>,
    times: Option<&[libc::timespec; 2]>,
) -> c_int {
    change_file("azekura_futimens", file, || times_update(times))
}

/// `azekura_truncate`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_truncate(
    container: Option<&Container>,
    path: Text<'_>,
    size: u64,
) -> c_int {
    change_path("azekura_truncate", container, path, true, || Ok(AttrUpdate::size(size)))
}

/// `azekura_statfs`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_statfs(
    container: Option<&Container>,
    statfs: Out<'_, StatFs>,
) -> c_int {
    status("azekura_statfs", || {
        let (container, out) = (handle(container, "container")?, place(statfs, "statfs")?);
        let known = container.fs().statfs()?;
        out.write(StatFs {
            total_bytes: known.total_bytes,
            available_bytes: known.available_bytes,
            objects: known.objects,
            fsid: known.fsid,
            name_bytes_max: known.name_bytes_max,
            unused: 0,
            reserved: [0; 4],
        });
        Ok(())
    })
}
