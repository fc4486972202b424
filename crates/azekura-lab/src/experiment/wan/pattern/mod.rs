//! Access patterns: the nine of the paper on adaptive remote access, and others that programs have. Which regions of a
//! file are read one after the other, and how much of it is a point. A point is whole turns of the pattern, so that each
//! size of request pays for all that it asks for. Owns their names and figures; reads nothing itself.

mod places;

pub(super) use places::Region;
use places::{
    Chance, FOOTER_BYTES, KIB, MIB, footer, in_turn, mixed, random, random_stride, slices, stride,
    two_columns,
};

use crate::experiment::frame::Settings;

const GIB: u64 = 1 << 30;
/// A region up to this long is read in one call, a longer one in calls of [`LONG_CALL_BYTES`].
const WHOLE_CALL_BYTES: u64 = 8 * MIB;
const LONG_CALL_BYTES: u64 = MIB;
/// The file of random places, as long as the paper's.
const RANDOM_FILE_BYTES: u64 = 4 * GIB;
/// The table that slices are read of: so many rows, each so long.
const ROWS: u64 = 256;
const ROW_BYTES: u64 = 4 * MIB;
/// How far a seek of random-stride goes on at most, with what is read before it.
const RANDOM_STRIDE_BYTES: u64 = 6 * MIB;
/// A pattern that is read by time has a file that no reading comes to the end of. It has holes, so it takes
/// no memory.
const ENDLESS_BYTES: u64 = 32 * GIB;

/// How much of a pattern is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// Length of the file in bytes.
    pub(super) file_bytes: u64,
    /// Turns of the pattern.
    pub(super) turns: u64,
}

/// An order of regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// Front to back.
    Sequential,
    /// Read 512 KiB, seek 3 MiB past it.
    ShortStride,
    /// Read 3 MiB, seek 6 MiB.
    MiddleStride,
    /// Read 256 MiB, seek 768 MiB.
    LongStride,
    /// Read 512 KiB, seek anywhere from 2.5 MiB back to 5.5 MiB on.
    RandomStride,
    /// 8 MiB at random places.
    Random,
    /// In turn 50 MiB front to back, and 25 times 2 MiB with seeks of 4 MiB.
    Mixed,
    /// In turn 25 MiB front to back, and 50 times 512 KiB with seeks of 1.5 MiB.
    MixedShort,
    /// 1 GiB front to back, then 61 KiB with seeks of 1 MiB.
    Shift,
    /// Three strides in turn: 256 KiB with seeks of 768 KiB, each in its third of the file.
    InTurn,
    /// Of each row of 4 MiB 256 KiB at the beginning and 256 KiB after a MiB.
    TwoColumns,
    /// 128 KiB of each row, then the 128 KiB beside them: 15 passes over 256 rows.
    Slices,
    /// The last 64 KiB, then 4 MiB at a time with seeks of up to 40 MiB.
    Footer,
    /// As the short stride, in a file that was only given its length.
    Holes,
    /// Front to back, right after another program has written to the file.
    JustWritten,
}

/// What is done to a file before it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Made {
    /// It is there.
    Once,
    /// It was given its length, and nothing was written to it.
    Truncated,
    /// Another program writes to it right before.
    EachTime,
}

impl Pattern {
    /// Those of the paper.
    pub(super) const PAPER: [Self; 9] = [
        Self::Sequential,
        Self::ShortStride,
        Self::MiddleStride,
        Self::LongStride,
        Self::RandomStride,
        Self::Random,
        Self::Mixed,
        Self::MixedShort,
        Self::Shift,
    ];

    /// Others.
    pub(super) const FURTHER: [Self; 6] = [
        Self::InTurn,
        Self::TwoColumns,
        Self::Slices,
        Self::Footer,
        Self::Holes,
        Self::JustWritten,
    ];

    /// The patterns of a quick run.
    const QUICK: [Self; 3] = [Self::Sequential, Self::ShortStride, Self::Random];

    /// The paper's patterns of a run.
    pub(super) fn chosen(settings: &Settings) -> &'static [Self] {
        if settings.quick { &Self::QUICK } else { &Self::PAPER }
    }

    /// The further patterns of a run.
    pub(super) fn further(settings: &Settings) -> &'static [Self] {
        if settings.quick { &[] } else { &Self::FURTHER }
    }

    /// The name in tables and on command lines.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::ShortStride => "stride-512K-3M",
            Self::MiddleStride => "stride-3M-6M",
            Self::LongStride => "stride-256M-768M",
            Self::RandomStride => "random-stride",
            Self::Random => "random-8M",
            Self::Mixed => "mixed",
            Self::MixedShort => "mixed-p",
            Self::Shift => "shift",
            Self::InTurn => "in-turn",
            Self::TwoColumns => "two-columns",
            Self::Slices => "slices",
            Self::Footer => "footer",
            Self::Holes => "holes",
            Self::JustWritten => "just-written",
        }
    }

    /// What it is, in words.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Sequential => "Front to back",
            Self::ShortStride => "512 KiB, gaps of 3 MiB",
            Self::MiddleStride => "3 MiB, gaps of 6 MiB",
            Self::LongStride => "256 MiB, gaps of 768 MiB",
            Self::RandomStride => "512 KiB, seeks of -2.5 to 5.5 MiB",
            Self::Random => "8 MiB at random in 4 GiB",
            Self::Mixed => "50 MiB, then 25 times 2 MiB with gaps",
            Self::MixedShort => "25 MiB, then 50 times 512 KiB with gaps",
            Self::Shift => "1 GiB, then 61 KiB with gaps of 1 MiB",
            Self::InTurn => "Three strides of 256 KiB in turn",
            Self::TwoColumns => "Two columns of 256 KiB",
            Self::Slices => "15 slices of 128 KiB, 256 rows each",
            Self::Footer => "The end, then 20 times 4 MiB with irregular gaps",
            Self::Holes => "512 KiB, gaps of 3 MiB, nothing but holes",
            Self::JustWritten => "Front to back, just written by another program",
        }
    }

    /// The pattern of this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::PAPER.into_iter().chain(Self::FURTHER).find(|pattern| pattern.name() == name)
    }

    /// The length of a turn in the file, in bytes, where turns follow each other; and turns in a point.
    fn turns(self) -> (u64, u64) {
        match self {
            // Read front to back, any part is a turn: the paper's 6 GB in parts of 32 MiB.
            Self::Sequential => (32 * MIB, 192),
            Self::ShortStride | Self::Holes => (512 * KIB + 3 * MIB, 512),
            Self::MiddleStride => (9 * MIB, 200),
            Self::LongStride => (GIB, 4),
            Self::RandomStride => (RANDOM_STRIDE_BYTES, 512),
            Self::Random => (8 * MIB, 64),
            Self::Mixed => (200 * MIB, 8),
            Self::MixedShort => (125 * MIB, 12),
            // Of the sparse part.
            Self::Shift => (61 * KIB + MIB, 1024),
            // One region of one of the three.
            Self::InTurn => (MIB, 1536),
            Self::TwoColumns => (ROW_BYTES, 768),
            // A row of a pass.
            Self::Slices => (ROW_BYTES, 15 * ROWS),
            Self::Footer => (44 * MIB, 20),
            Self::JustWritten => (32 * MIB, 16),
        }
    }

    /// How much of it is a point: so many turns, and the file that holds them.
    pub(super) fn extent(self, settings: &Settings) -> Extent {
        let (turn_bytes, turns) = self.turns();
        let turns = settings.scaled(turns, 1);
        let file_bytes = match self {
            Self::Random => RANDOM_FILE_BYTES,
            Self::Shift => settings.scaled(GIB, MIB) + turns * turn_bytes,
            Self::InTurn => turns.next_multiple_of(3) * turn_bytes,
            Self::Slices => ROWS * ROW_BYTES,
            Self::Footer => turns * turn_bytes + FOOTER_BYTES,
            _ => turns * turn_bytes,
        };
        Extent { file_bytes, turns }
    }

    /// More of it than a reading of some seconds comes through.
    pub(super) fn endless(self) -> Extent {
        let (turn_bytes, _) = self.turns();
        let turns = ENDLESS_BYTES / turn_bytes;
        Extent { file_bytes: ENDLESS_BYTES / turn_bytes * turn_bytes, turns }
    }

    /// What is done to the file before.
    pub(super) fn made(self) -> Made {
        match self {
            Self::Holes => Made::Truncated,
            Self::JustWritten => Made::EachTime,
            _ => Made::Once,
        }
    }

    /// The length of its regions in bytes, where all have the same (but for the end of a file that is looked at first)
    /// and one request for each is how it would be read by hand.
    pub(super) fn region_bytes(self) -> Option<u64> {
        match self {
            Self::ShortStride | Self::RandomStride | Self::Holes => Some(512 * KIB),
            Self::MiddleStride => Some(3 * MIB),
            Self::LongStride => Some(256 * MIB),
            Self::Random => Some(8 * MIB),
            Self::InTurn | Self::TwoColumns => Some(256 * KIB),
            Self::Slices => Some(128 * KIB),
            Self::Footer => Some(4 * MIB),
            Self::Sequential | Self::Mixed | Self::MixedShort | Self::Shift | Self::JustWritten => {
                None
            }
        }
    }

    /// The regions of an extent. The same seed draws the same places.
    pub(super) fn regions(self, extent: Extent, seed: u64) -> Box<dyn Iterator<Item = Region>> {
        let Extent { file_bytes, turns } = extent;
        match self {
            Self::Sequential | Self::JustWritten => {
                Box::new(std::iter::once(Region { offset: 0, bytes: file_bytes }))
            }
            Self::ShortStride | Self::Holes => Box::new(stride(0, file_bytes, 512 * KIB, 3 * MIB)),
            Self::MiddleStride => Box::new(stride(0, file_bytes, 3 * MIB, 6 * MIB)),
            Self::LongStride => Box::new(stride(0, file_bytes, 256 * MIB, 768 * MIB)),
            Self::RandomStride => {
                Box::new(random_stride(file_bytes, Chance(seed)).take(turns as usize))
            }
            Self::Random => {
                Box::new(random(file_bytes, 8 * MIB, Chance(seed)).take(turns as usize))
            }
            Self::Mixed => Box::new(mixed(file_bytes, 50 * MIB, 25, 2 * MIB, 4 * MIB)),
            Self::MixedShort => {
                Box::new(mixed(file_bytes, 25 * MIB, 50, 512 * KIB, MIB + 512 * KIB))
            }
            Self::Shift => {
                let (turn_bytes, _) = self.turns();
                let front = Region { offset: 0, bytes: file_bytes - turns * turn_bytes };
                let rest = stride(front.bytes, file_bytes, 61 * KIB, MIB);
                Box::new(std::iter::once(front).chain(rest))
            }
            Self::InTurn => Box::new(in_turn(file_bytes / 3, 256 * KIB, MIB).take(turns as usize)),
            Self::TwoColumns => Box::new(two_columns(file_bytes, ROW_BYTES, 256 * KIB, MIB)),
            Self::Slices => Box::new(slices(ROWS, ROW_BYTES, 128 * KIB).take(turns as usize)),
            Self::Footer => {
                let (turn_bytes, _) = self.turns();
                Box::new(footer(file_bytes, turn_bytes, 4 * MIB, Chance(seed)))
            }
        }
    }

    /// The same, as calls of a program.
    pub(super) fn calls(self, extent: Extent, seed: u64) -> impl Iterator<Item = Region> {
        self.regions(extent, seed).flat_map(|region| {
            let call_bytes =
                if region.bytes <= WHOLE_CALL_BYTES { region.bytes } else { LONG_CALL_BYTES };
            let starts = (0..region.bytes).step_by(call_bytes.max(1) as usize);
            starts.map(move |done| Region {
                offset: region.offset + done,
                bytes: call_bytes.min(region.bytes - done),
            })
        })
    }

    /// Bytes of the longest call.
    pub(super) const fn call_bytes_max() -> usize {
        WHOLE_CALL_BYTES as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Settings = Settings { quick: false, scale: 1.0, point_s: 1.0 };

    fn first(pattern: Pattern, count: usize) -> Vec<(u64, u64)> {
        let regions = pattern.regions(pattern.extent(&FULL), 1);
        regions.take(count).map(|region| (region.offset, region.bytes)).collect()
    }

    #[test]
    fn regular_patterns_are_those_of_the_paper() {
        let half = MIB / 2;
        assert_eq!(first(Pattern::Sequential, 2), [(0, 6 * GIB)]);
        assert_eq!(first(Pattern::ShortStride, 3), [(0, half), (7 * half, half), (7 * MIB, half)]);
        assert_eq!(first(Pattern::MiddleStride, 2), [(0, 3 * MIB), (9 * MIB, 3 * MIB)]);
        assert_eq!(first(Pattern::LongStride, 2), [(0, 256 * MIB), (GIB, 256 * MIB)]);
        let mixed = first(Pattern::Mixed, 28);
        assert_eq!(mixed[..3], [(0, 50 * MIB), (50 * MIB, 2 * MIB), (56 * MIB, 2 * MIB)]);
        assert_eq!(
            mixed[25..],
            [(194 * MIB, 2 * MIB), (200 * MIB, 50 * MIB), (250 * MIB, 2 * MIB)]
        );
        let mixed = first(Pattern::MixedShort, 52);
        assert_eq!(mixed[..3], [(0, 25 * MIB), (25 * MIB, half), (27 * MIB, half)]);
        assert_eq!(mixed[51], (125 * MIB, 25 * MIB));
        assert_eq!(
            first(Pattern::Shift, 3),
            [(0, GIB), (GIB, 61 * KIB), (GIB + MIB + 61 * KIB, 61 * KIB)]
        );
    }

    #[test]
    fn random_patterns_stay_in_their_bounds_and_are_drawn_again_the_same() {
        let places = first(Pattern::Random, 1000);
        assert_eq!(places.len(), 64, "as many as a point has turns");
        assert!(places.iter().all(|(offset, bytes)| offset + bytes <= 4 * GIB));
        assert!(places.windows(2).any(|pair| pair[1].0 < pair[0].0));
        assert_eq!(places, first(Pattern::Random, 1000));

        let places = first(Pattern::RandomStride, 4000);
        assert_eq!(places.len(), 512);
        let seeks = places.windows(2).map(|pair| pair[1].0 as i64 - (pair[0].0 + pair[0].1) as i64);
        let seeks: Vec<i64> = seeks.collect();
        let (back, on) = (-5 * MIB as i64 / 2, 11 * MIB as i64 / 2);
        assert!(seeks.iter().all(|seek| (back..=on).contains(seek)));
        assert!(seeks.iter().any(|seek| *seek < 0) && seeks.iter().any(|seek| *seek > 4 << 20));
    }

    #[test]
    fn a_point_is_whole_turns_however_small_the_scale() {
        for pattern in Pattern::PAPER.into_iter().chain(Pattern::FURTHER) {
            assert_eq!(Pattern::named(pattern.name()), Some(pattern));
            for scale in [1e-6, 0.01, 1.0] {
                let extent = pattern.extent(&Settings { scale, ..FULL });
                let (mut sum, mut last) = (0, Region { offset: 0, bytes: 0 });
                for call in pattern.calls(extent, 7) {
                    assert!(call.bytes > 0 && call.bytes as usize <= Pattern::call_bytes_max());
                    assert!(call.offset + call.bytes <= extent.file_bytes, "{pattern:?} {call:?}");
                    sum += call.bytes;
                    last = call;
                }
                let regions: Vec<Region> = pattern.regions(extent, 7).collect();
                assert_eq!(sum, regions.iter().map(|region| region.bytes).sum::<u64>());
                if let Some(bytes) = pattern.region_bytes() {
                    let first = usize::from(pattern == Pattern::Footer);
                    let regions = &regions[first..];
                    assert!(regions.iter().all(|region| region.bytes == bytes), "{pattern:?}");
                    let runs = if pattern == Pattern::TwoColumns { 2 } else { 1 };
                    assert_eq!(regions.len() as u64, extent.turns * runs, "{pattern:?}");
                }
                assert!(last.offset > 0 || extent.turns == 1, "{pattern:?} {scale}");
            }
        }
    }

    #[test]
    fn further_patterns_are_as_they_are_called() {
        let (quarter, eighth) = (MIB / 4, MIB / 8);
        assert_eq!(
            first(Pattern::InTurn, 4),
            [(0, quarter), (512 * MIB, quarter), (GIB, quarter), (MIB, quarter)]
        );
        assert_eq!(
            first(Pattern::TwoColumns, 3),
            [(0, quarter), (MIB, quarter), (4 * MIB, quarter)]
        );
        let slices = first(Pattern::Slices, 4000);
        assert_eq!(slices.len(), 15 * 256);
        assert_eq!(slices[255..257], [(1020 * MIB, eighth), (eighth, eighth)]);
        let footer = first(Pattern::Footer, 100);
        assert_eq!((footer.len(), footer[0]), (21, (880 * MIB, 64 * KIB)));
        let gaps: Vec<u64> = footer[1..].windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        assert!(gaps.iter().all(|gap| *gap >= 4 * MIB && *gap <= 84 * MIB), "{gaps:?}");
        assert!(gaps.windows(2).all(|pair| pair[0] != pair[1]), "{gaps:?}");
        assert_eq!(first(Pattern::Holes, 9), first(Pattern::ShortStride, 9));
        assert_eq!(first(Pattern::JustWritten, 2), [(0, 512 * MIB)]);
    }

    #[test]
    fn a_point_of_a_changing_pattern_has_all_its_parts() {
        let sparse = first(Pattern::Shift, 2000);
        assert_eq!(sparse.len(), 1025);
        assert_eq!(sparse[1024].1, 61 * KIB);
        let mixed = first(Pattern::Mixed, 2000);
        assert_eq!(mixed.iter().filter(|(_, bytes)| *bytes == 50 * MIB).count(), 8);
        assert_eq!(mixed.iter().filter(|(_, bytes)| *bytes == 2 * MIB).count(), 8 * 25);
    }
}
