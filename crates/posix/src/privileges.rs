//! What makes a program file powerful: set-user and set-group bits, and capabilities
//! (`security.capability`). Owns what is known of them, and which of them a write must not leave a file:
//! of the bits what the writer may not set, capabilities whoever writes. Taking them away is an operation.

use azekura_proto::Attr;
use azekura_proto::attr::{FileGuard, FileKind};

use crate::Credentials;
use crate::permission::{SETGID, SETUID, set_id_bits_lost};

/// The privileges of a file, as far as they are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Privileges {
    mode: u16,
    gid: u32,
    /// It has extended attributes, of which one may be that of capabilities.
    pub(crate) may_have_capability: bool,
}

/// What the first change of the data through a handle has to take from the file, in the name of the
/// one who has opened it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AtFirstWrite {
    pub(crate) privileges: Privileges,
    pub(crate) opener: Credentials,
}

impl Privileges {
    /// Those that the attributes tell of.
    pub fn of(attr: &Attr) -> Self {
        let is_program = attr.kind == FileKind::Regular;
        Self {
            mode: if is_program { attr.mode } else { 0 },
            gid: attr.gid,
            may_have_capability: is_program && attr.has_xattrs,
        }
    }

    /// Those that are known of a regular file.
    pub(crate) fn of_guard(guard: &FileGuard) -> Self {
        Self { mode: guard.mode, gid: guard.gid, may_have_capability: guard.has_xattrs }
    }

    /// Whether nobody's write takes anything.
    pub fn are_none(&self) -> bool {
        self.mode & (SETUID | SETGID) == 0 && !self.may_have_capability
    }

    /// The set-id bits that this caller's write takes; they are not there any more.
    pub(crate) fn take_bits(&mut self, writer: &Credentials) -> u16 {
        let lost = set_id_bits_lost(writer, self.mode, self.gid);
        self.mode &= !lost;
        lost
    }
}

impl AtFirstWrite {
    /// `None` if there is nothing to do, as for nearly all files.
    pub(crate) fn of(attr: &Attr, opener: &Credentials) -> Option<Box<Self>> {
        let privileges = Privileges::of(attr);
        (!privileges.are_none()).then(|| Box::new(Self { privileges, opener: opener.clone() }))
    }
}
