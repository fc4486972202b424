//! With whose eyes a mount is seen. In a user namespace of one user the kernel knows that user and no
//! other, and refuses every change of what belongs to somebody unknown to it, whatever the
//! permissions. So the file system checks permissions there, and the kernel is told what it needs to
//! let the user do what is permitted.

use azekura_posix::{Access, Attr, Credentials, Errno};

use crate::convert;
use crate::handler::{Door, Result};
use crate::kernel;

/// Who uses a mount, as far as its kernel can tell.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum View {
    /// Everybody, by the numbers that they have on this machine. The kernel checks permissions.
    #[default]
    Everybody,
    /// Only this user, with these groups. The file system has to check permissions.
    OneUser(Credentials),
}

impl View {
    /// Who sends this request.
    pub(crate) fn caller(&self, header: &kernel::Header<'_>) -> Credentials {
        match self {
            Self::Everybody => convert::caller(header),
            Self::OneUser(user) => user.clone(),
        }
    }

    /// Attributes as the kernel is to have them. What the user may change must not belong to
    /// somebody unknown, so that it is shown as the user's own; everything else shows truly.
    pub(crate) fn show(&self, attr: &Attr, shown: kernel::Attr) -> kernel::Attr {
        let Self::OneUser(user) = self else { return shown };
        if (shown.uid, shown.gid) == (user.uid, user.gid) || !may_change(user, attr) {
            return shown;
        }
        kernel::Attr { uid: user.uid, gid: user.gid, ..shown }
    }
}

/// Whether the user owns an object or may write to it.
fn may_change(user: &Credentials, attr: &Attr) -> bool {
    let class = if user.is_root() || user.uid == attr.uid {
        return true;
    } else if user.in_group(attr.gid) {
        3
    } else {
        0
    };
    attr.mode >> class & 2 != 0
}

impl Door {
    /// `mask` as of `access(2)`.
    pub(crate) fn access(&self, header: &kernel::Header<'_>, mask: u32) -> Result<()> {
        if self.view == View::Everybody {
            // The kernel checks permissions by itself, and does not ask again.
            return Err(Errno::NOSYS);
        }
        let wanted = Access { read: mask & 4 != 0, write: mask & 2 != 0, execute: mask & 1 != 0 };
        self.fs.access(&self.caller(header), self.object(header.node)?, wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_posix::{FileKind, Oid, Timestamp};
    use azekura_proto::{ContainerId, ObjectClass, TargetId};

    fn file(uid: u32, gid: u32, mode: u16) -> Attr {
        let time = Timestamp { secs: 0, nanos: 0 };
        Attr {
            oid: Oid::new(ContainerId(1), ObjectClass::S1, TargetId(0), 1),
            kind: FileKind::Regular,
            mode,
            uid,
            gid,
            nlink: 1,
            size: 0,
            blocks_512: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            rdev: 0,
            chunk_bytes: 4096,
            wide: false,
            has_xattrs: false,
            inheritance: None,
            parent: None,
        }
    }

    fn shown(view: &View, attr: &Attr) -> (u32, u32) {
        let shown = view.show(attr, convert::attr(attr, 1));
        (shown.uid, shown.gid)
    }

    #[test]
    fn what_the_user_may_change_is_shown_as_his() {
        let view = View::OneUser(Credentials { uid: 7, gid: 70, groups: vec![71] });
        for (uid, gid, mode, expected) in [
            (7, 70, 0o600, (7, 70)),
            (7, 99, 0o400, (7, 70)),
            (0, 0, 0o1777, (7, 70)),
            (0, 71, 0o770, (7, 70)),
            (0, 71, 0o702, (0, 71)),
            (0, 0, 0o755, (0, 0)),
        ] {
            assert_eq!(shown(&view, &file(uid, gid, mode)), expected, "{uid} {gid} {mode:o}");
            assert_eq!(shown(&View::Everybody, &file(uid, gid, mode)), (uid, gid));
        }
    }
}
