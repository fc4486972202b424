//! The regions of patterns, one after the other, and the numbers that some are drawn by.

pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
/// What is read first of a file that tells at its end where the rest is.
pub(super) const FOOTER_BYTES: u64 = 64 * KIB;

/// Bytes that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Draws numbers (splitmix64).
pub(super) struct Chance(pub(super) u64);

impl Chance {
    /// A number below `end`, all about as likely.
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut drawn = self.0;
        drawn = (drawn ^ (drawn >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        drawn = (drawn ^ (drawn >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (drawn ^ (drawn >> 31)) % end.max(1)
    }
}

/// From `start`: read, skip, and again. The last region may be cut by the end of the file.
pub(super) fn stride(
    start: u64,
    file_bytes: u64,
    bytes: u64,
    skip: u64,
) -> impl Iterator<Item = Region> {
    (start..file_bytes)
        .step_by((bytes + skip) as usize)
        .map(move |offset| Region { offset, bytes: bytes.min(file_bytes - offset) })
}

pub(super) fn random(
    file_bytes: u64,
    bytes: u64,
    mut chance: Chance,
) -> impl Iterator<Item = Region> {
    std::iter::repeat_with(move || Region { offset: chance.below(file_bytes - bytes + 1), bytes })
}

pub(super) fn random_stride(file_bytes: u64, mut chance: Chance) -> impl Iterator<Item = Region> {
    let (bytes, back, span) = (512 * KIB, 2 * MIB + 512 * KIB, 8 * MIB);
    let mut next = Some(0);
    std::iter::from_fn(move || {
        let offset = next?;
        let place = (offset + bytes + chance.below(span + 1)).saturating_sub(back);
        next = (place + bytes <= file_bytes).then_some(place);
        Some(Region { offset, bytes: bytes.min(file_bytes) })
    })
}

pub(super) fn mixed(
    file_bytes: u64,
    front_bytes: u64,
    times: u64,
    bytes: u64,
    skip: u64,
) -> impl Iterator<Item = Region> {
    let turn_bytes = front_bytes + times * (bytes + skip);
    (0..file_bytes.div_ceil(turn_bytes)).flat_map(move |turn| {
        let start = turn * turn_bytes;
        let end = file_bytes.min(start + turn_bytes);
        let front = Region { offset: start, bytes: front_bytes.min(end - start) };
        std::iter::once(front).chain(stride(start + front_bytes, end, bytes, skip))
    })
}

/// Three strides in turn, each in a part of this length: read, go on to the next multiple of `step_bytes`.
pub(super) fn in_turn(
    part_bytes: u64,
    bytes: u64,
    step_bytes: u64,
) -> impl Iterator<Item = Region> {
    let at = move |step: u64| (0..3).map(move |part| part * part_bytes + step * step_bytes);
    (0..part_bytes / step_bytes).flat_map(at).map(move |offset| Region { offset, bytes })
}

/// Of each row its beginning, and what lies `second` behind that.
pub(super) fn two_columns(
    file_bytes: u64,
    row_bytes: u64,
    bytes: u64,
    second: u64,
) -> impl Iterator<Item = Region> {
    let rows = (0..file_bytes).step_by(row_bytes as usize);
    rows.flat_map(move |row| [row, row + second]).map(move |offset| Region { offset, bytes })
}

/// Of each row as much as a slice is wide, then the same of the next slice.
pub(super) fn slices(rows: u64, row_bytes: u64, bytes: u64) -> impl Iterator<Item = Region> {
    let of_slice = move |slice| (0..rows).map(move |row| row * row_bytes + slice * bytes);
    (0..row_bytes / bytes).flat_map(of_slice).map(move |offset| Region { offset, bytes })
}

/// The end of the file, then somewhere in each part of it.
pub(super) fn footer(
    file_bytes: u64,
    part_bytes: u64,
    bytes: u64,
    mut chance: Chance,
) -> impl Iterator<Item = Region> {
    let end = file_bytes - FOOTER_BYTES;
    let parts = (0..end).step_by(part_bytes as usize);
    let regions = parts
        .map(move |part| Region { offset: part + chance.below(part_bytes - bytes + 1), bytes });
    std::iter::once(Region { offset: end, bytes: FOOTER_BYTES }).chain(regions)
}
