//! How a request is dealt with on its way: whether it may be sent twice, how long it may take, whether it
//! may come late. Owns these rules, each said for every request by itself.

use super::request::Request;
use crate::Oid;

/// How a request is dealt with on its way.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "four independent properties of a request")]
struct Handling {
    exact_retry: bool,
    one_way: bool,
    any_target: bool,
    slow: bool,
}

impl Handling {
    const PLAIN: Self = Self { exact_retry: false, one_way: false, any_target: false, slow: false };
}

impl Request<'_> {
    /// How the request is dealt with on its way. Each request says it for itself: there is no default.
    const fn handling(&self) -> Handling {
        match self {
            Self::Ping
            | Self::Map
            | Self::Adopt { .. }
            | Self::Report
            | Self::Fence { .. }
            | Self::Time
            | Self::ShareMemory => Handling { any_target: true, ..Handling::PLAIN },
            Self::Release { .. } => Handling { one_way: true, ..Handling::PLAIN },
            Self::ContainerCreate { .. }
            | Self::Create { .. }
            | Self::CreateGuarded { .. }
            | Self::CreateToWrite { .. }
            | Self::CreateUnlinked { .. }
            | Self::Unlink { .. }
            | Self::RemoveDirectory { .. }
            | Self::Link { .. }
            | Self::Rename { .. }
            | Self::SetXattr { .. }
            | Self::RemoveXattr { .. }
            | Self::Append { .. }
            | Self::ValueUpdate { .. } => Handling { exact_retry: true, ..Handling::PLAIN },
            Self::ContainerDestroy { .. }
            | Self::SetAttrIf { .. }
            | Self::SetAttrGuarded { .. } => {
                Handling { exact_retry: true, slow: true, ..Handling::PLAIN }
            }
            Self::Sync { .. } | Self::SyncAll | Self::SetAttr { .. } => {
                Handling { slow: true, ..Handling::PLAIN }
            }
            Self::Goodbye
            | Self::Claim { .. }
            | Self::Space
            | Self::ContainerOpen { .. }
            | Self::ContainerWalk { .. }
            | Self::ContainerList
            | Self::ContainerReclaim { .. }
            | Self::ContainerChange { .. }
            | Self::Lookup { .. }
            | Self::Walk { .. }
            | Self::ReadDirectory { .. }
            | Self::DirShard { .. }
            | Self::GetAttr { .. }
            | Self::Open { .. }
            | Self::SetStriped { .. }
            | Self::ReadLink { .. }
            | Self::GetXattr { .. }
            | Self::ListXattrs { .. }
            | Self::Read { .. }
            | Self::Write { .. }
            | Self::ShardTruncate { .. }
            | Self::ShardStat { .. }
            | Self::ShardAllocate { .. }
            | Self::ShardSeek { .. }
            | Self::ShardTouch { .. }
            | Self::ShardRemove { .. }
            | Self::AllocateSerial
            | Self::ValueGet { .. }
            | Self::ValuePunch { .. }
            | Self::ValueList { .. }
            | Self::LockAcquire { .. }
            | Self::LockRelease { .. }
            | Self::LockTest { .. }
            | Self::Prepare { .. }
            | Self::Commit { .. }
            | Self::Abort { .. }
            | Self::AskOutcome { .. }
            | Self::AskDirectory { .. }
            | Self::Scan { .. }
            | Self::Repair { .. }
            | Self::LeaseRead { .. }
            | Self::LeaseWrite { .. }
            | Self::WriteLeased { .. }
            | Self::ReleaseWrite { .. }
            | Self::Hold { .. }
            | Self::ShardExtend { .. }
            | Self::ReadFile { .. }
            | Self::WriteFile { .. }
            | Self::LeaseFile { .. }
            | Self::OpenEntry { .. }
            | Self::ShardDescriptor { .. }
            | Self::ShardWriteDescriptor { .. }
            | Self::AllocateSerials { .. }
            | Self::CreateNumbered { .. }
            | Self::SettleTimes { .. }
            | Self::Relay { .. }
            | Self::OnBehalf { .. }
            | Self::LeaseAllNames { .. } => Handling::PLAIN,
        }
    }

    /// Whether the engine answers; the one request without an answer is `Release`.
    pub const fn has_reply(&self) -> bool {
        !self.handling().one_way
    }

    /// Whether the engine answers whatever target and map version the request names: a caller that
    /// has no map yet asks this way.
    pub const fn is_for_engine(&self) -> bool {
        self.handling().any_target
    }

    /// Whether doing it twice differs from doing it once, so that it needs an exact retry.
    pub const fn needs_exact_retry(&self) -> bool {
        self.handling().exact_retry
    }

    /// Whether a slow disk may need minutes for it, so that giving up early would be a false failure.
    pub const fn may_be_slow(&self) -> bool {
        self.handling().slow
    }

    /// Whether it is one of the changes that a client may send to one engine for another ([`Request::Relay`]).
    pub const fn may_be_relayed(&self) -> bool {
        matches!(
            self,
            Self::CreateNumbered { .. }
                | Self::SetAttr { .. }
                | Self::SettleTimes { .. }
                | Self::Write { .. }
        )
    }

    /// The one object that a request looks at, with what lies in it if it is a directory; `None` if it changes
    /// something or looks further.
    pub const fn looks_at(&self) -> Option<Oid> {
        match self {
            Self::Lookup { dir, .. }
            | Self::OpenEntry { dir, .. }
            | Self::ReadDirectory { dir, .. }
            | Self::DirShard { dir } => Some(*dir),
            Self::GetAttr { oid }
            | Self::Open { oid }
            | Self::ReadLink { oid }
            | Self::GetXattr { oid, .. }
            | Self::ListXattrs { oid }
            | Self::ReadFile { oid, .. } => Some(*oid),
            Self::Read { data, .. }
            | Self::ShardStat { data, .. }
            | Self::ShardSeek { data, .. }
            | Self::LeaseRead { data }
            | Self::LeaseAllNames { names: data } => Some(data.oid),
            _ => None,
        }
    }

    /// Whether it must not be carried out any more once its sender has given its connection up: later
    /// it would undo what was done since. What only looks, or makes durable, may come as late as it likes.
    pub const fn is_fenced(&self) -> bool {
        !matches!(
            self,
            Self::Ping
                | Self::Map
                | Self::Report
                | Self::Space
                | Self::ContainerOpen { .. }
                | Self::ContainerWalk { .. }
                | Self::ContainerList
                | Self::Lookup { .. }
                | Self::Walk { .. }
                | Self::ReadDirectory { .. }
                | Self::DirShard { .. }
                | Self::GetAttr { .. }
                | Self::ReadLink { .. }
                | Self::GetXattr { .. }
                | Self::ListXattrs { .. }
                | Self::Read { .. }
                | Self::ReadFile { .. }
                | Self::ShardStat { .. }
                | Self::ShardSeek { .. }
                | Self::Sync { .. }
                | Self::SyncAll
                | Self::AllocateSerial
                | Self::AllocateSerials { .. }
                | Self::ValueGet { .. }
                | Self::ValueList { .. }
                | Self::LockTest { .. }
                | Self::AskOutcome { .. }
                | Self::AskDirectory { .. }
                | Self::Scan { .. }
                | Self::LeaseRead { .. }
                | Self::LeaseAllNames { .. }
                | Self::LeaseFile { .. }
                | Self::ShardDescriptor { .. }
                | Self::ShardWriteDescriptor { .. }
                | Self::Fence { .. }
                | Self::Time
                | Self::ShareMemory
        )
    }
}
