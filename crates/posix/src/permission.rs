//! Who may do what (POSIX.1-2024 XBD 4.7, with Linux's rules where POSIX leaves a choice). Owns the
//! rules only, as pure functions of attributes; fetching those is the business of the operations.

use azekura_proto::Attr;
use azekura_proto::attr::{FileGuard, FileKind};

use crate::{Credentials, Errno, Result};

/// Kinds of access; several may be wanted at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Access {
    /// Read.
    pub read: bool,
    /// Write.
    pub write: bool,
    /// Execute, or search in a directory.
    pub execute: bool,
}

/// Set-user-id bit.
pub(crate) const SETUID: u16 = 0o4000;
/// Set-group-id bit.
pub(crate) const SETGID: u16 = 0o2000;
/// Restricted deletion.
pub(crate) const STICKY: u16 = 0o1000;
const GROUP_EXECUTE: u16 = 0o0010;

/// Whether the caller has this access to an object.
pub fn may_access(caller: &Credentials, attr: &Attr, wanted: Access) -> bool {
    if caller.is_root() {
        // Even root executes only what somebody may execute.
        return !wanted.execute || attr.kind == FileKind::Directory || attr.mode & 0o111 != 0;
    }
    is_granted(caller, (attr.uid, attr.gid, attr.mode), wanted)
}

/// Whether the caller has this access to an object that is not executed, which root always has.
pub(crate) fn may_use(caller: &Credentials, file: &FileGuard, wanted: Access) -> bool {
    caller.is_root() || is_granted(caller, (file.uid, file.gid, file.mode), wanted)
}

fn is_granted(caller: &Credentials, (uid, gid, mode): (u32, u32, u16), wanted: Access) -> bool {
    let shift = if caller.uid == uid {
        6
    } else if caller.in_group(gid) {
        3
    } else {
        0
    };
    let granted = mode >> shift & 7;
    (!wanted.read || granted & 4 != 0)
        && (!wanted.write || granted & 2 != 0)
        && (!wanted.execute || granted & 1 != 0)
}

/// `EACCES` unless the caller has this access.
pub(crate) fn check(caller: &Credentials, attr: &Attr, wanted: Access) -> Result<()> {
    if may_access(caller, attr, wanted) { Ok(()) } else { Err(Errno::ACCESS) }
}

/// Whether the caller owns the object or is root.
pub(crate) fn owns(caller: &Credentials, attr: &Attr) -> bool {
    caller.is_root() || caller.uid == attr.uid
}

/// Whether removing an entry of this directory needs a look at what it leads to.
pub(crate) fn is_restricted(caller: &Credentials, dir: &Attr) -> bool {
    dir.mode & STICKY != 0 && !owns(caller, dir)
}

/// The bits that the caller's writing, cutting or giving away a file takes from it: setuid, and setgid
/// unless it only marks the file for mandatory locking, and the caller may set it.
pub(crate) fn set_id_bits_lost(caller: &Credentials, mode: u16, gid: u32) -> u16 {
    let is_mark = mode & (SETGID | GROUP_EXECUTE) == SETGID;
    let keeps_mark = is_mark && (caller.is_root() || caller.in_group(gid));
    mode & SETUID | if keeps_mark { 0 } else { mode & SETGID }
}

/// Whether the caller owns an object or may write to it.
pub fn may_change(caller: &Credentials, attr: &Attr) -> bool {
    owns(caller, attr) || may_access(caller, attr, Access { write: true, ..Access::default() })
}

/// Who owns a new object, and its permission bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ownership {
    pub(crate) mode: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Ownership of a new entry: in a setgid directory it gets the directory's group, and a new
/// directory also the bit. With `groups_known`, a setgid program for a group that its maker is
/// not in loses the bit.
pub(crate) fn of_new(
    caller: &Credentials,
    dir: &Attr,
    kind: FileKind,
    mode: u32,
    groups_known: bool,
) -> Ownership {
    let mut mode = (mode & 0o7777) as u16;
    if dir.mode & SETGID == 0 {
        return Ownership { mode, uid: caller.uid, gid: caller.gid };
    }
    if kind == FileKind::Directory {
        mode |= SETGID;
    } else if groups_known
        && mode & GROUP_EXECUTE != 0
        && !caller.is_root()
        && !caller.in_group(dir.gid)
    {
        mode &= !SETGID;
    }
    Ownership { mode, uid: caller.uid, gid: dir.gid }
}

/// Whether there are extended attributes of such names.
pub(crate) fn is_xattr_name(name: &[u8]) -> bool {
    [&b"trusted."[..], b"security.", b"user."].iter().any(|space| name.starts_with(space))
}

/// Whether an extended attribute's name is open to the caller (xattr(7)).
pub(crate) fn check_xattr(
    caller: &Credentials,
    attr: &Attr,
    name: &[u8],
    writes: bool,
) -> Result<()> {
    let denied = if writes { Errno::PERM } else { Errno::NODATA };
    if name.starts_with(b"trusted.") {
        return if caller.is_root() { Ok(()) } else { Err(denied) };
    }
    if name.starts_with(b"security.") {
        return if caller.is_root() || !writes { Ok(()) } else { Err(Errno::PERM) };
    }
    if name.starts_with(b"user.") {
        if !matches!(attr.kind, FileKind::Regular | FileKind::Directory) {
            return Err(denied);
        }
        if writes && attr.kind == FileKind::Directory && is_restricted(caller, attr) {
            return Err(Errno::PERM);
        }
        return check(caller, attr, Access { read: !writes, write: writes, execute: false });
    }
    Err(Errno::OPNOTSUPP)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr(kind: FileKind, mode: u16, uid: u32, gid: u32) -> Attr {
        Attr { mode, uid, gid, ..azekura_testkit::attr(kind) }
    }

    fn user(uid: u32, gid: u32) -> Credentials {
        Credentials { uid, gid, groups: vec![500], process: None }
    }

    const READ: Access = Access { read: true, write: false, execute: false };
    const EXECUTE: Access = Access { read: false, write: false, execute: true };

    #[test]
    fn the_owner_is_bound_by_the_owner_bits_alone() {
        let file = attr(FileKind::Regular, 0o077, 1, 1);
        assert!(!may_access(&user(1, 1), &file, READ));
        assert!(may_access(&user(2, 1), &file, READ));
        assert!(may_access(&user(2, 2), &file, READ));
        assert!(may_access(&user(2, 2), &attr(FileKind::Regular, 0o740, 1, 500), READ));
    }

    #[test]
    fn root_reads_all_but_executes_only_programs() {
        let file = attr(FileKind::Regular, 0, 1, 1);
        assert!(may_access(&Credentials::ROOT, &file, READ));
        assert!(!may_access(&Credentials::ROOT, &file, EXECUTE));
        assert!(may_access(&Credentials::ROOT, &attr(FileKind::Directory, 0, 1, 1), EXECUTE));
    }

    #[test]
    fn writing_takes_set_id_bits_but_a_mark_that_the_writer_may_set() {
        let member = user(1, 500);
        for (caller, mode, lost) in [
            (user(1, 1), 0o6755, 0o6000),
            (user(1, 7), 0o2755, 0o2000),
            (user(1, 7), 0o2644, 0),
            (user(1, 1), 0o2644, 0o2000),
            (user(1, 1), 0o755, 0),
        ] {
            assert_eq!(set_id_bits_lost(&caller, mode, 7), lost, "{caller:?} {mode:o}");
        }
        assert_eq!(set_id_bits_lost(&member, 0o2644, 500), 0);
    }

    #[test]
    fn new_entries_follow_a_setgid_directory() {
        let dir = attr(FileKind::Directory, 0o2777, 1, 77);
        let made = of_new(&user(2, 2), &dir, FileKind::Directory, 0o755, true);
        assert_eq!(made, Ownership { mode: 0o2755, uid: 2, gid: 77 });
        let made = of_new(&user(2, 2), &dir, FileKind::Regular, 0o2755, true);
        assert_eq!(made.mode, 0o755);
        let made = of_new(&user(2, 77), &dir, FileKind::Regular, 0o2755, true);
        assert_eq!(made.mode, 0o2755);
    }
}
