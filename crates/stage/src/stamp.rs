//! What tells one version of a file on a node from another. The times that links to a file change are left
//! out: an agent makes such links where directories are shown.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime};

use azekura_proto::staging::Attributes;
use serde::{Deserialize, Serialize};

use crate::source::system_time;

/// Two changes within this time may leave a file with one and the same time (that of
/// `CLOCK_REALTIME_COARSE`, with room to spare).
pub(crate) const TICK: Duration = Duration::from_millis(20);

/// A file's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Stamp {
    inode: u64,
    size: u64,
    mode: u32,
    mtime: (i64, u32),
}

impl Stamp {
    pub(crate) fn of(file: &fs::Metadata) -> Self {
        Self {
            inode: file.ino(),
            size: file.len(),
            mode: file.mode(),
            mtime: (file.mtime(), file.mtime_nsec() as u32),
        }
    }

    /// The same for all names of one file on a node.
    pub(crate) fn inode(&self) -> u64 {
        self.inode
    }

    /// Whether a file of these attributes has this state.
    pub(crate) fn is_of(&self, file: &Attributes) -> bool {
        self.size == file.size
            && self.mode & 0o777 == file.mode
            && self.mtime == (file.mtime.secs, file.mtime.nanos)
    }

    /// Whether a change of the file might leave its state as it is: it has only just been changed.
    pub(crate) fn is_fresh(&self) -> bool {
        let (secs, nanos) = self.mtime;
        let mtime = system_time(azekura_proto::Timestamp { secs, nanos });
        let now = SystemTime::now();
        match now.duration_since(mtime) {
            Ok(age) => age < TICK,
            Err(ahead) => ahead.duration() < TICK,
        }
    }
}
