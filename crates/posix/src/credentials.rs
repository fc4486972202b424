//! Who asks. Owns nothing but the question whether somebody is root or in a group.

/// The caller of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Supplementary groups, as far as they are at hand.
    pub groups: Vec<u32>,
    /// The process that asks, if it waits for the answer and its groups were not told: they are looked
    /// up when they matter.
    pub process: Option<u32>,
}

impl Credentials {
    /// The superuser.
    pub const ROOT: Self = Self { uid: 0, gid: 0, groups: Vec::new(), process: None };

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
            process: None,
        }
    }

    /// Whether permission checks do not apply.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether the caller is in the group.
    pub(crate) fn in_group(&self, gid: u32) -> bool {
        self.gid == gid
            || self.groups.contains(&gid)
            || self.process.is_some_and(|pid| groups_of(pid).contains(&gid))
    }
}

/// The supplementary groups of a process of this machine; none if it has gone.
fn groups_of(pid: u32) -> Vec<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    groups.split_ascii_whitespace().filter_map(|group| group.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_of_a_process_are_looked_up() {
        let own = Credentials::of_process();
        let found = groups_of(std::process::id());
        assert!(own.groups.iter().all(|group| found.contains(group)), "{own:?} {found:?}");
        assert!(groups_of(u32::MAX).is_empty());
    }
}
