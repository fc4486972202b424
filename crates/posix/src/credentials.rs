//! Who asks. Owns nothing but the question whether somebody is root or in a group.

/// The caller of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Supplementary groups. A front end whose kernel checks permissions may leave them out.
    pub groups: Vec<u32>,
}

impl Credentials {
    /// The superuser.
    pub const ROOT: Self = Self { uid: 0, gid: 0, groups: Vec::new() };

    /// The user of this process, with its groups.
    pub fn of_process() -> Self {
        Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: rustix::process::getgroups()
                .unwrap_or_default()
                .into_iter()
                .map(rustix::process::Gid::as_raw)
                .collect(),
        }
    }

    /// Whether permission checks do not apply.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether the caller is in the group.
    pub(crate) fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}
