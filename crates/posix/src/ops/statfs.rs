//! `statfs`: the space of the pool as one number, in which no disk counts twice.

use azekura_client::Call;
use azekura_proto::TargetId;
use azekura_proto::limits::NAME_BYTES_MAX;
use azekura_proto::message::typed::Space;

use crate::errno::of_client;
use crate::{FileSystem, Result};

/// Space and counts of the whole pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StatFs {
    /// Size in bytes.
    pub total_bytes: u64,
    /// Free for ordinary users, in bytes.
    pub available_bytes: u64,
    /// Inodes in use, about.
    pub objects: u64,
    /// Longest name in bytes.
    pub name_bytes_max: u32,
    /// Identifies the file system.
    pub fsid: u64,
}

impl FileSystem {
    /// Space over all targets; targets that share a device count once.
    ///
    /// # Errors
    /// `EIO` if a target does not answer.
    pub fn statfs(&self) -> Result<StatFs> {
        let targets = (0..self.pool().target_count()).map(TargetId);
        let mut calls: Vec<_> = targets.map(|target| Call::new(target, Space)).collect();
        let spaces = self.pool().call_all(&mut calls);
        let id = self.pool().map().pool.0;
        let mut sum = StatFs {
            name_bytes_max: NAME_BYTES_MAX as u32,
            fsid: u64::from_be_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|at: usize| id[at]))
                ^ u64::from(self.container().id.0),
            ..StatFs::default()
        };
        let mut devices = Vec::new();
        for space in spaces {
            let space = space.map_err(|error| of_client(&error))?;
            sum.objects = sum.objects.saturating_add(space.objects);
            if !devices.contains(&space.device) {
                devices.push(space.device);
                sum.total_bytes = sum.total_bytes.saturating_add(space.total_bytes);
                sum.available_bytes = sum.available_bytes.saturating_add(space.available_bytes);
            }
        }
        Ok(sum)
    }
}
