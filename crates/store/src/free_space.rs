//! How full the disk below is. Owns the reserve that keeps the key-value journal from ever meeting
//! a full disk: below it only removals pass. It looks at the disk rarely: every writer draws on a
//! budget that is a small part of what was free at the last look, or on time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

use azekura_platform::SharedPlatform;
use rustix::io::Errno;

use crate::disk::{Directory, DiskSpace};
use crate::error::StoreError;
use crate::spare_space::SpareSpace;

const MIB: u64 = 1024 * 1024;
const RESERVE_BYTES_MIN: u64 = 8 * MIB;
const RESERVE_BYTES_MAX: u64 = 32 * MIB;
/// The reserve grows with the tables, since merging them takes room for a while; up to this.
const MERGE_BYTES_MAX: u64 = 224 * MIB;
/// Below this nothing passes any more.
const FLOOR_BYTES: u64 = 2 * MIB;
/// What is kept free above that for the next steps, where some was taken to be given back.
const ROOM_BYTES: u64 = MIB;
/// Most bytes written between two looks at the disk.
const BUDGET_BYTES_MAX: u64 = 64 * MIB;
/// This part of the file system has to be free for writes that are not counted.
const AMPLE_PART: u64 = 16;
/// Longest time between two looks at the disk while something is written, in milliseconds.
const LOOK_MS: u64 = 200;

/// Sizes of the file system below a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpaceInfo {
    /// Size of the file system, in bytes.
    pub total_bytes: u64,
    /// Free, in bytes.
    pub free_bytes: u64,
    /// Free for this store to fill: without the system's share and this store's reserve, in bytes.
    pub available_bytes: u64,
    /// Taken by the tables of the key-values, in bytes.
    pub key_value_bytes: u64,
}

/// What a write does to the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Draw {
    /// Takes space for good.
    Growth,
    /// Gives space back, or takes it for a short time only.
    Passing,
}

/// The gauge of one target.
pub(crate) struct FreeSpace {
    dir: Arc<dyn Directory>,
    platform: SharedPlatform,
    opened: Instant,
    budget_bytes: AtomicI64,
    /// When the last look at the disk was, in milliseconds since `opened`.
    looked_ms: AtomicU64,
    table_bytes: AtomicU64,
    waiting_bytes: AtomicU64,
    /// A part of the reserve that others cannot take whose writes are not counted.
    spare: SpareSpace,
}

impl FreeSpace {
    pub(crate) fn new(dir: Arc<dyn Directory>, platform: SharedPlatform) -> Self {
        Self {
            spare: SpareSpace::find(Arc::clone(&dir)),
            dir,
            opened: platform.now(),
            platform,
            budget_bytes: AtomicI64::new(0),
            looked_ms: AtomicU64::new(0),
            table_bytes: AtomicU64::new(0),
            waiting_bytes: AtomicU64::new(0),
        }
    }

    /// Tells the gauge how large the key-value tables are, in bytes.
    pub(crate) fn set_table_bytes(&self, bytes: u64) {
        self.table_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Counts bytes that are promised and not taken from the disk yet.
    pub(crate) fn add_waiting(&self, bytes: u64) {
        self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes back what [`FreeSpace::add_waiting`] counted.
    pub(crate) fn remove_waiting(&self, bytes: u64) {
        let before = self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "more bytes were taken from the disk than waited");
    }

    /// Asks for room for `bytes` more bytes.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] if only the reserve is left and `draw` may not use it.
    pub(crate) fn draw(&self, bytes: u64, draw: Draw) -> Result<(), StoreError> {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX / 2);
        let left = self.budget_bytes.fetch_sub(bytes, Ordering::Relaxed).saturating_sub(bytes);
        if left >= 0 && self.now_ms().wrapping_sub(self.looked_ms.load(Ordering::Relaxed)) < LOOK_MS
        {
            return Ok(());
        }
        self.look(bytes as u64, draw)
    }

    /// Somebody is about to write whose writes are not counted here: a part of the reserve is taken, so that it
    /// is not filled. Whether there is so much room that it may be.
    pub(crate) fn let_write(&self) -> Result<bool, StoreError> {
        let disk = self.disk_space()?;
        if !self.is_ample(&disk) {
            return Ok(false);
        }
        self.spare.take().map_err(|error| self.failed("take space", error))?;
        Ok(true)
    }

    fn is_ample(&self, disk: &DiskSpace) -> bool {
        let reserve = self.reserve_bytes(disk.total_bytes);
        disk.available_bytes >= (disk.total_bytes / AMPLE_PART).max(2 * reserve)
    }

    /// The disk as it is, once what was taken for such a case has been given back for what must go on.
    fn space_to_draw(&self, bytes: u64, draw: Draw) -> Result<DiskSpace, StoreError> {
        let disk = self.disk_space()?;
        let is_needed = disk.available_bytes < FLOOR_BYTES + ROOM_BYTES + bytes;
        if draw == Draw::Passing && is_needed {
            if self.spare.give_back().map_err(|error| self.failed("give space back", error))? {
                return self.disk_space();
            }
        } else if self.spare.is_short() && self.is_ample(&disk) {
            self.spare.take().map_err(|error| self.failed("take space", error))?;
            return self.disk_space();
        }
        Ok(disk)
    }

    #[cold]
    fn look(&self, bytes: u64, draw: Draw) -> Result<(), StoreError> {
        let disk = self.space_to_draw(bytes, draw)?;
        let waiting = self.waiting_bytes.load(Ordering::Relaxed);
        let available = disk.available_bytes.saturating_sub(waiting);
        let with_spare = available.saturating_add(self.spare.bytes());
        let headroom = with_spare.saturating_sub(self.reserve_bytes(disk.total_bytes));
        // What is taken for others is not to be had by whoever grows.
        let headroom = headroom.min(available);
        let budget = (headroom / 8).min(BUDGET_BYTES_MAX);
        self.looked_ms.store(self.now_ms(), Ordering::Relaxed);
        self.budget_bytes.store(budget as i64, Ordering::Relaxed);
        let enough = match draw {
            Draw::Growth => bytes <= headroom,
            Draw::Passing => bytes <= available.saturating_sub(FLOOR_BYTES),
        };
        if enough {
            Ok(())
        } else {
            Err(StoreError::NoSpace { path: self.dir.path().to_path_buf() })
        }
    }

    fn reserve_bytes(&self, total: u64) -> u64 {
        (total / 32).clamp(RESERVE_BYTES_MIN, RESERVE_BYTES_MAX)
            + self.table_bytes.load(Ordering::Relaxed).min(MERGE_BYTES_MAX)
    }

    /// The sizes as they are now.
    pub(crate) fn info(&self, key_value_bytes: u64) -> Result<SpaceInfo, StoreError> {
        self.set_table_bytes(key_value_bytes);
        let disk = self.disk_space()?;
        let reserve = self.reserve_bytes(disk.total_bytes);
        Ok(SpaceInfo {
            total_bytes: disk.total_bytes,
            free_bytes: disk.free_bytes,
            available_bytes: disk
                .available_bytes
                .saturating_add(self.spare.bytes())
                .saturating_sub(reserve)
                .min(disk.available_bytes),
            key_value_bytes,
        })
    }

    fn disk_space(&self) -> Result<DiskSpace, StoreError> {
        self.dir.space().map_err(|error| self.failed("ask for free space", error))
    }

    fn failed(&self, what: &'static str, error: Errno) -> StoreError {
        StoreError::system(self.dir.path(), what, error)
    }

    fn now_ms(&self) -> u64 {
        self.platform.elapsed(self.opened).as_millis() as u64
    }
}
