//! The timed loops over a [`FileSpace`]. Everything that is not the operation itself (names,
//! buffers, open files) is made before the clock starts.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::order::{IoOrder, MdKind, MdOrder, Motion, Tally, clock_ns};
use super::space::FileSpace;

/// Every which piece a stride takes.
const STRIDE_PIECES: u64 = 4;

/// The places of the pieces of a part, in the order of a motion.
struct Pieces {
    motion: Motion,
    count: u64,
    next: u64,
    // Random order: a full-period generator over the next power of two.
    mask: u64,
    state: u64,
    increment: u64,
}

impl Pieces {
    fn new(motion: Motion, count: u64, seed: u64) -> Self {
        let mask = count.max(1).next_power_of_two() - 1;
        Self { motion, count, next: 0, mask, state: seed & mask, increment: (seed >> 16) | 1 }
    }
}

impl Iterator for Pieces {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        match self.motion {
            Motion::Sequential => {
                let piece = self.next;
                self.next += 1;
                (piece < self.count).then_some(piece)
            }
            Motion::Stride => {
                let piece = self.next;
                self.next += STRIDE_PIECES;
                (piece < self.count).then_some(piece)
            }
            Motion::Random => loop {
                if self.next > self.mask {
                    return None;
                }
                self.next += 1;
                // A multiplier of 1 mod 4 and an odd increment give the full period.
                self.state =
                    self.state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(self.increment)
                        & self.mask;
                if self.state < self.count {
                    return Some(self.state);
                }
            },
        }
    }
}

/// Opens the file and gives back the timed part.
///
/// # Errors
/// If the file cannot be opened.
pub(super) fn prepare_io<'a, S: FileSpace>(
    space: &'a mut S,
    order: IoOrder,
) -> Result<Box<dyn FnOnce() -> Result<Tally> + 'a>>
where
    S::File: 'a,
{
    let transfer = usize::try_from(order.transfer_bytes)?;
    if transfer == 0 || order.bytes < order.transfer_bytes {
        bail!("each process has to move at least one piece: make --size larger");
    }
    let mut buffer: Vec<u8> = (0..transfer).map(|i| (i * 131 % 251) as u8).collect();
    let file = space.open_file(&order.file, order.fresh)?;
    if !order.write {
        space.prepare_read(&file, order.motion == Motion::Random)?;
    }
    let pieces = Pieces::new(order.motion, order.bytes / order.transfer_bytes, order.seed);
    Ok(Box::new(move || {
        let limit = Duration::from_millis(order.limit_ms);
        let started = Instant::now();
        let start_ns = clock_ns();
        let mut operations = 0;
        for piece in pieces {
            let offset = order.offset + piece * order.transfer_bytes;
            if order.write {
                space.write_at(&file, &buffer, offset)?;
            } else if space.read_at(&file, &mut buffer, offset)? != transfer {
                bail!("{}: the file is shorter than it must be", order.file);
            }
            operations += 1;
            if operations % 16 == 0 && started.elapsed() >= limit {
                break;
            }
        }
        if order.fsync && order.write {
            space.sync(&file)?;
        }
        space.close(file)?;
        let bytes = operations * order.transfer_bytes;
        Ok(Tally { operations, bytes, start_ns, end_ns: clock_ns(), ..Tally::default() })
    }))
}

/// Opens the directory and gives back the timed part.
///
/// # Errors
/// If the directory cannot be opened.
pub(super) fn prepare_md<'a, S: FileSpace>(
    space: &'a mut S,
    order: &MdOrder,
) -> Result<Box<dyn FnOnce() -> Result<Tally> + 'a>>
where
    S::Dir: 'a,
{
    let dir = space.open_dir(&order.dir)?;
    let names: Vec<String> =
        (0..order.files).map(|number| format!("{}{number}", order.prefix)).collect();
    let (kind, limit_ms) = (order.kind, order.limit_ms);
    Ok(Box::new(move || {
        let limit = Duration::from_millis(limit_ms);
        let (started, start_ns) = (Instant::now(), clock_ns());
        let mut operations = 0;
        for name in &names {
            match kind {
                MdKind::Create => space.create_in(&dir, name)?,
                MdKind::Stat => space.stat_in(&dir, name)?,
                MdKind::OpenClose => space.open_close_in(&dir, name)?,
                MdKind::Remove => space.remove_in(&dir, name)?,
            }
            operations += 1;
            if operations % 16 == 0 && started.elapsed() >= limit {
                break;
            }
        }
        Ok(Tally { operations, bytes: 0, start_ns, end_ns: clock_ns(), ..Tally::default() })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_order_takes_every_piece_once() {
        for pieces in [1, 2, 7, 64, 1000] {
            for seed in [0, 1, 0xdead_beef_1234] {
                let mut seen: Vec<u64> = Pieces::new(Motion::Random, pieces, seed).collect();
                seen.sort_unstable();
                assert_eq!(seen, (0..pieces).collect::<Vec<_>>(), "{pieces} {seed}");
            }
        }
    }

    #[test]
    fn a_stride_leaves_gaps() {
        let taken: Vec<u64> = Pieces::new(Motion::Stride, 10, 0).collect();
        assert_eq!(taken, [0, 4, 8]);
    }
}
