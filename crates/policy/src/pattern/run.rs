//! Where a run ends: what still belongs to it, and the jump to the next. Must never know of more than one run.

use crate::range::ByteRange;

/// A read that begins this little before the end of a run belongs to it; in bytes.
const OVERLAP_BYTES: u64 = 1 << 20;

/// The end of a run: its length, and from its end to the beginning of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Jump {
    /// Length of the run in bytes.
    pub(super) run_bytes: u64,
    /// From the end of the run to the beginning of the next, in bytes.
    pub(super) gap_bytes: i64,
}

impl Jump {
    /// From the end of a run to the beginning of the next, at `start`.
    pub(super) fn between(run: ByteRange, start: u64) -> Self {
        let gap = i128::from(start) - i128::from(run.end());
        Self { run_bytes: run.bytes, gap_bytes: i64::try_from(gap).unwrap_or(i64::MAX) }
    }
}

/// Whether a read at `offset` goes on with a run, or reads again what lies right before its end.
pub(super) fn continues(run: ByteRange, offset: u64) -> bool {
    let overlap_from = run.end().saturating_sub(OVERLAP_BYTES).max(run.offset);
    (overlap_from..=run.end()).contains(&offset)
}
