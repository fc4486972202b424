//! What `-a` keeps of a file besides its contents, mode and times: owners, as numbers, and extended
//! attributes. What the caller may not give, or the other side does not know, stays behind and is
//! counted; that is no failure. Set-id bits go with the owner: without it they would lend the rights
//! of somebody else.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;

use azekura_posix::{AttrUpdate, FileKind, Oid, XattrMode};
use rustix::fs::{AtFlags, CWD, Gid, Uid, XattrFlags};
use rustix::io::Errno;

use super::tree::{Meta, SET_ID, Tree, local};

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;

/// Extended attributes that are kept, by the beginnings of their names. Others are labels that the
/// system gives by itself.
const KEPT: [&[u8]; 4] = [b"user.", b"trusted.", b"security.capability\0", b"system.posix_acl_"];

/// What could not be kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeftBehind {
    owners: u64,
    xattrs: u64,
    names: BTreeSet<String>,
}

impl LeftBehind {
    /// Puts another count to this one.
    pub(crate) fn add(&mut self, other: &Self) {
        self.owners += other.owners;
        self.xattrs += other.xattrs;
        self.names.extend(other.names.iter().cloned());
    }

    /// Lines for people, if anything stayed behind.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.owners > 0 {
            lines.push(format!(
                "the owner or group of {} is not what it was: only root gives files away",
                count(self.owners)
            ));
        }
        if self.xattrs > 0 {
            let names: Vec<_> = self.names.iter().take(5).cloned().collect();
            lines.push(format!(
                "extended attributes of {} were not taken along ({}): the other side does not have \
                 them, or you may not set them",
                count(self.xattrs),
                names.join(", ")
            ));
        }
        lines
    }
}

fn count(files: u64) -> String {
    if files == 1 { "1 file".to_owned() } else { format!("{files} files") }
}

/// Whether the caller may not do it, or the file system cannot.
fn is_not_given(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        errno,
        Some(Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS)
    )
}

/// Gives the file at `path` of `to`, and `oid` there, what `meta` and the file at `original` of `from`
/// have; all but the times of it, which the caller sets afterwards. Gives the set-id bits that may stay.
pub(super) fn keep(
    (from, original): (&Tree, &[u8]),
    (to, path, oid): (&Tree, &[u8], Option<Oid>),
    meta: &Meta,
    left: &mut LeftBehind,
) -> io::Result<u32> {
    let follow = meta.kind != FileKind::Symlink;
    let kept = give(to, path, oid, meta)?;
    if kept != SET_ID {
        left.owners += 1;
    }
    let names = match from.xattr_names(original, follow) {
        Err(error) if is_not_given(&error) => Vec::new(),
        other => other?,
    };
    let mut all = true;
    for name in names {
        let set = from
            .xattr(original, follow, &name)
            .and_then(|value| to.set_xattr(path, oid, &name, &value));
        match set {
            Err(error) if is_not_given(&error) => {
                all = false;
                left.names.insert(String::from_utf8_lossy(&name).into_owned());
            }
            other => other?,
        }
    }
    left.xattrs += u64::from(!all);
    Ok(kept)
}

/// Gives a file its owner and group, and tells which set-id bits belong to those that it has then.
fn give(to: &Tree, path: &[u8], oid: Option<Oid>, meta: &Meta) -> io::Result<u32> {
    match to.set_owner(path, oid, Some(meta.uid), meta.gid) {
        Ok(()) => return Ok(SET_ID),
        Err(error) if is_not_given(&error) => {}
        Err(error) => return Err(error),
    }
    let group = to.set_owner(path, oid, None, meta.gid).is_ok();
    let owner = to.meta(path, false)?.uid == meta.uid;
    Ok(if group { SETGID } else { 0 } | if owner { SETUID } else { 0 })
}

impl Tree {
    fn set_owner(
        &self,
        path: &[u8],
        oid: Option<Oid>,
        uid: Option<u32>,
        gid: u32,
    ) -> io::Result<()> {
        match self {
            Self::Local => {
                let (uid, gid) = (uid.map(Uid::from_raw), Some(Gid::from_raw(gid)));
                Ok(rustix::fs::chownat(CWD, local(path), uid, gid, AtFlags::SYMLINK_NOFOLLOW)?)
            }
            Self::Pool(container) => {
                let oid = Self::object(container, path, oid)?;
                let update = AttrUpdate { uid, gid: Some(gid), ..AttrUpdate::default() };
                Ok(container.fs.setattr(&container.caller, oid, None, &update).map(drop)?)
            }
        }
    }

    /// Names of the extended attributes that are kept.
    fn xattr_names(&self, path: &[u8], follow: bool) -> io::Result<Vec<Vec<u8>>> {
        let names = match self {
            Self::Local => grown(|buffer| {
                if follow {
                    rustix::fs::listxattr(local(path), buffer)
                } else {
                    rustix::fs::llistxattr(local(path), buffer)
                }
            })?,
            Self::Pool(container) => {
                let oid = container.names.resolve(path, follow)?.oid;
                container.fs.listxattr(&container.caller, oid)?
            }
        };
        let names = names.split_inclusive(|byte| *byte == 0);
        let kept = names.filter(|name| KEPT.iter().any(|start| name.starts_with(start)));
        Ok(kept.map(|name| name.strip_suffix(b"\0").unwrap_or(name).to_vec()).collect())
    }

    fn xattr(&self, path: &[u8], follow: bool, name: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Self::Local => {
                let name = CString::new(name)?;
                grown(|buffer| {
                    if follow {
                        rustix::fs::getxattr(local(path), &name, buffer)
                    } else {
                        rustix::fs::lgetxattr(local(path), &name, buffer)
                    }
                })
            }
            Self::Pool(container) => {
                let oid = container.names.resolve(path, follow)?.oid;
                Ok(container.fs.getxattr(&container.caller, oid, name)?)
            }
        }
    }

    fn set_xattr(
        &self,
        path: &[u8],
        oid: Option<Oid>,
        name: &[u8],
        value: &[u8],
    ) -> io::Result<()> {
        match self {
            Self::Local => {
                let name = CString::new(name)?;
                Ok(rustix::fs::lsetxattr(local(path), &name, value, XattrFlags::empty())?)
            }
            Self::Pool(container) => {
                let oid = Self::object(container, path, oid)?;
                let caller = &container.caller;
                Ok(container.fs.setxattr(caller, oid, name, value, XattrMode::Set)?)
            }
        }
    }
}

/// Asks for bytes of a length that is not known, and may change in between.
fn grown(ask: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; 4_096];
    loop {
        match ask(&mut buffer) {
            Ok(bytes) => {
                buffer.truncate(bytes);
                return Ok(buffer);
            }
            Err(Errno::RANGE) => buffer.resize(buffer.len() * 4, 0),
            Err(error) => return Err(error.into()),
        }
    }
}
