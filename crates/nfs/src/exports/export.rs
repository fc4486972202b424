//! One export and its rules. Owns the answer to who may use it and as whom; all of them follow from
//! the client's address and credential alone.

use std::net::IpAddr;
use std::sync::Arc;

use azekura_posix::Credentials;
use ipnet::IpNet;
use serde::Deserialize;

use super::groups::GroupCache;
use crate::handle::ExportId;

/// Whose requests are carried out in the name of the anonymous user.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Squash {
    /// Nobody's: the client's root is root.
    None,
    /// Root's, and whoever claims root's group has it not.
    #[default]
    Root,
    /// Everybody's.
    All,
    /// Whose the kernel does not vouch for: of users on this host it is known who they are. Root, and
    /// so its NFS mounts, may speak for anybody; others are themselves.
    Owner,
}

/// How a client says who asks (RFC 5531, section 8).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Flavour {
    /// `AUTH_SYS`: user, group and up to 16 more groups, as the client says.
    Sys,
    /// `AUTH_NONE`: nobody; that is the anonymous user.
    None,
}

/// A directory of the container, with what its clients may do.
#[derive(Clone, Debug)]
pub struct Export {
    pub(super) id: ExportId,
    pub(super) path: String,
    pub(super) clients: Vec<IpNet>,
    pub(super) read_only: bool,
    pub(super) squash: Squash,
    pub(super) anonymous: (u32, u32),
    pub(super) flavours: Vec<Flavour>,
    /// If set, this host says which groups a user is in; of owners it always does.
    pub(super) server_groups: Option<Arc<GroupCache>>,
}

impl Export {
    /// What handles call it.
    pub fn id(&self) -> ExportId {
        self.id
    }

    /// Its path in the container: absolute, and without a slash at the end unless it is the root.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether nothing may be changed through it.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// The networks whose clients may use it, as MOUNT's EXPORT procedure tells.
    pub fn clients(&self) -> &[IpNet] {
        &self.clients
    }

    /// The ways to authenticate, the preferred one first, as MNT answers them.
    pub fn flavours(&self) -> &[Flavour] {
        &self.flavours
    }

    /// Whether a client with this address may use it.
    pub fn admits(&self, client: IpAddr) -> bool {
        // A socket that listens on `::` shows clients of IPv4 as `::ffff:a.b.c.d`.
        let client = client.to_canonical();
        self.clients.iter().any(|network| network.contains(&client))
    }

    /// Whether a request may say in this way who asks.
    pub fn admits_flavour(&self, flavour: Flavour) -> bool {
        self.flavours.contains(&flavour)
    }

    /// As [`Export::credentials`], where the client is the program of a user of this host, if `owner`
    /// says so.
    pub fn credentials_of(
        &self,
        owner: Option<u32>,
        uid: u32,
        gid: u32,
        groups: &[u32],
    ) -> Credentials {
        match (self.squash, owner) {
            (Squash::None | Squash::Root | Squash::All, _) | (Squash::Owner, Some(0)) => {
                self.credentials(uid, gid, groups)
            }
            (Squash::Owner, Some(owner)) => self.credentials_on_host(owner, gid),
            (Squash::Owner, None) => self.anonymous(),
        }
    }

    /// A user with the groups that this host knows; of those the one that is asked for comes first.
    fn credentials_on_host(&self, uid: u32, gid: u32) -> Credentials {
        let Some(cache) = &self.server_groups else { return self.anonymous() };
        let groups = cache.groups_of(uid).to_vec();
        let Some(first) = groups.first().copied() else {
            return Credentials { uid, gid: self.anonymous.1, groups, process: None };
        };
        let gid = if groups.contains(&gid) { gid } else { first };
        Credentials { uid, gid, groups, process: None }
    }

    /// Whether callers are who the kernel of this host says.
    pub fn asks_for_owners(&self) -> bool {
        self.squash == Squash::Owner
    }

    /// As whom the file system sees a request that came with this `AUTH_SYS` credential.
    pub fn credentials(&self, uid: u32, gid: u32, groups: &[u32]) -> Credentials {
        if self.squash == Squash::All || (self.squash == Squash::Root && uid == 0) {
            return self.anonymous();
        }
        let groups = match &self.server_groups {
            Some(cache) if self.squash != Squash::Owner => cache.groups_of(uid).to_vec(),
            _ => groups.to_vec(),
        };
        let mut seen = Credentials { uid, gid, groups, process: None };
        if self.squash == Squash::Root {
            if seen.gid == 0 {
                seen.gid = self.anonymous.1;
            }
            seen.groups.retain(|group| *group != 0);
        }
        seen
    }

    /// As whom the file system sees a request that does not say who asks.
    pub fn anonymous(&self) -> Credentials {
        let (uid, gid) = self.anonymous;
        Credentials { uid, gid, groups: Vec::new(), process: None }
    }

    /// Whether `path` (normalised) is the exported directory or lies below it.
    pub fn holds(&self, path: &str) -> bool {
        self.path == "/"
            || path
                .strip_prefix(&self.path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

#[cfg(test)]
mod tests {
    use crate::exports::Exports;
    use azekura_proto::ContainerId;

    #[test]
    fn users_of_this_host_cannot_say_that_they_are_others() {
        let exports = Exports::whole_container_to_loopback(ContainerId(1));
        let export = exports.find("/").unwrap();
        let by_root = export.credentials_of(Some(0), 1234, 5, &[6, 7]);
        assert_eq!((by_root.uid, by_root.gid, by_root.groups), (1234, 5, vec![6, 7]));
        assert!(export.credentials_of(Some(0), 0, 0, &[]).is_root());
        let by_user = export.credentials_of(Some(4711), 0, 0, &[0]);
        assert_eq!(by_user.uid, 4711);
        assert!(by_user.gid != 0 && !by_user.groups.contains(&0), "{by_user:?}");
        assert_eq!(export.credentials_of(None, 0, 0, &[0]), export.anonymous());
    }
}
