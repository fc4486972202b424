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
    /// If set, this host says which groups a user is in.
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

    /// As whom the file system sees a request that came with this `AUTH_SYS` credential.
    pub fn credentials(&self, uid: u32, gid: u32, groups: &[u32]) -> Credentials {
        if self.squash == Squash::All || (self.squash == Squash::Root && uid == 0) {
            return self.anonymous();
        }
        let groups = match &self.server_groups {
            Some(cache) => cache.groups_of(uid).to_vec(),
            None => groups.to_vec(),
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
