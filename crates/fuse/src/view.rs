//! With whose eyes a mount is seen. In a user namespace of one user the kernel knows that user and no
//! other, and refuses every change of what belongs to somebody unknown to it, whatever the
//! permissions. So the file system checks permissions there, and the kernel is told what it needs to
//! let the user do what is permitted.

use azekura_posix::{Attr, Credentials, may_change};

use crate::{convert, kernel};

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

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_posix::FileKind;

    fn file(uid: u32, gid: u32, mode: u16) -> Attr {
        Attr { mode, uid, gid, ..azekura_testkit::attr(FileKind::Regular) }
    }

    fn shown(view: &View, attr: &Attr) -> (u32, u32) {
        let shown = view.show(attr, convert::attr(attr, 1));
        (shown.uid, shown.gid)
    }

    #[test]
    fn what_the_user_may_change_is_shown_as_his() {
        let view = View::OneUser(Credentials { uid: 7, gid: 70, groups: vec![71], process: None });
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
