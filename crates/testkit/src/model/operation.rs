//! The operations that both sides are asked for, and how they are drawn. Owns the small universe of
//! names in which operations meet each other often.

use azekura_posix::{Allocation, OFlags, RenameMode, SeekTo, Timestamp, XattrMode};

use crate::Random;

/// Open files at a time.
pub const SLOTS: usize = 8;
/// Offsets and sizes stay below this, in bytes.
const REACH: u64 = 48 * 1024;

/// One operation.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "they are what POSIX calls by these names, with its arguments")]
pub enum Op {
    Open { slot: usize, path: Vec<u8>, flags: OFlags, mode: u32 },
    Tmpfile { slot: usize, path: Vec<u8> },
    LinkOpen { slot: usize, path: Vec<u8> },
    Close { slot: usize },
    Read { slot: usize, offset: u64, bytes: usize },
    Write { slot: usize, offset: u64, data: Vec<u8> },
    Truncate { slot: usize, bytes: u64 },
    Allocate { slot: usize, offset: u64, bytes: u64, what: Allocation },
    Seek { slot: usize, offset: u64, to: SeekTo },
    Copy { from: usize, from_offset: u64, to: usize, to_offset: u64, bytes: u64 },
    Sync { slot: usize },
    StatOpen { slot: usize },
    Mkdir { path: Vec<u8>, mode: u32 },
    Rmdir { path: Vec<u8> },
    Unlink { path: Vec<u8> },
    Rename { from: Vec<u8>, to: Vec<u8>, mode: RenameMode },
    Link { from: Vec<u8>, to: Vec<u8> },
    Symlink { text: Vec<u8>, path: Vec<u8> },
    ReadLink { path: Vec<u8> },
    Stat { path: Vec<u8>, follow: bool },
    List { path: Vec<u8> },
    Fifo { path: Vec<u8>, mode: u32 },
    Chmod { path: Vec<u8>, mode: u32 },
    Times { path: Vec<u8>, atime: Timestamp, mtime: Timestamp },
    TruncatePath { path: Vec<u8>, bytes: u64 },
    SetXattr { path: Vec<u8>, name: Vec<u8>, value: Vec<u8>, mode: XattrMode },
    GetXattr { path: Vec<u8>, name: Vec<u8> },
    RemoveXattr { path: Vec<u8>, name: Vec<u8> },
    ListXattrs { path: Vec<u8> },
}

impl Op {
    /// The open file that the operation is on; `None` for operations by path, also for opening.
    pub fn slot(&self) -> Option<usize> {
        match self {
            Self::Close { slot }
            | Self::Read { slot, .. }
            | Self::Write { slot, .. }
            | Self::Truncate { slot, .. }
            | Self::Allocate { slot, .. }
            | Self::Seek { slot, .. }
            | Self::Copy { from: slot, .. }
            | Self::Sync { slot }
            | Self::StatOpen { slot }
            | Self::LinkOpen { slot, .. } => Some(*slot),
            _ => None,
        }
    }
}

/// Draws operations.
impl Random {
    fn name(&mut self) -> &'static [u8] {
        if self.one_in(60) {
            return self.pick(&[&b"."[..], b"..", &[b'n'; 255], &[b'n'; 256]]);
        }
        self.pick(&[&b"a"[..], b"b", b"c", b"d", b"e"])
    }

    /// A relative path of one to three names. It goes up at most once.
    fn path(&mut self) -> Vec<u8> {
        let mut path = Vec::new();
        for _ in 0..self.pick(&[0, 0, 0, 1, 1, 2]) {
            path.extend_from_slice(self.pick(&[&b"a"[..], b"b", b"c", b"d", b"e"]));
            path.push(b'/');
        }
        path.extend_from_slice(self.name());
        if self.one_in(25) {
            path.push(b'/');
        }
        path
    }

    fn slot(&mut self) -> usize {
        self.below(SLOTS as u64) as usize
    }

    /// Offsets that like the edges of chunks and pages.
    fn offset(&mut self) -> u64 {
        let offset = self.below(REACH);
        match self.below(3) {
            0 => offset & !4095,
            1 => (offset & !4095).saturating_sub(self.below(3)),
            _ => offset,
        }
    }

    fn data(&mut self) -> Vec<u8> {
        let bytes = if self.one_in(4) { self.below(20_000) } else { self.below(3000) };
        let first = self.next_u64();
        (0..bytes).map(|index| (first.wrapping_add(index) % 251) as u8 + 1).collect()
    }

    fn flags(&mut self) -> OFlags {
        let mut flags = self.pick(&[OFlags::RDONLY, OFlags::RDWR, OFlags::RDWR, OFlags::WRONLY]);
        for (flag, chance) in [
            (OFlags::CREATE, 2),
            (OFlags::EXCL, 6),
            (OFlags::TRUNC, 6),
            (OFlags::APPEND, 4),
            (OFlags::NOFOLLOW, 10),
            (OFlags::DIRECTORY, 25),
        ] {
            if self.one_in(chance) {
                flags |= flag;
            }
        }
        if flags.contains(OFlags::CREATE) {
            // Linux refuses the two together since 6.3, and did other things before.
            flags &= !OFlags::DIRECTORY;
        } else {
            // Has no meaning without O_CREAT.
            flags &= !OFlags::EXCL;
        }
        if flags & OFlags::ACCMODE == OFlags::RDONLY {
            // Unspecified by POSIX.
            flags &= !OFlags::TRUNC;
        }
        flags
    }

    fn mode(&mut self) -> u32 {
        self.pick(&[0o755, 0o700, 0o644, 0o600, 0o777])
    }

    fn time(&mut self) -> Timestamp {
        Timestamp {
            secs: self.below(2_000_000_000) as i64,
            nanos: self.below(1_000_000_000) as u32,
        }
    }

    fn xattr_name(&mut self) -> Vec<u8> {
        self.pick(&[&b"user.one"[..], b"user.two", b"user.three"]).to_vec()
    }

    /// Draws an operation on open files.
    fn slot_op(&mut self) -> Op {
        let slot = self.slot();
        match self.below(18) {
            0..=1 => Op::Close { slot },
            2..=5 => Op::Read { slot, offset: self.offset(), bytes: self.below(20_000) as usize },
            6..=10 => Op::Write { slot, offset: self.offset(), data: self.data() },
            11 => Op::Truncate { slot, bytes: self.offset() },
            12 => Op::Allocate {
                slot,
                offset: self.offset(),
                bytes: self.below(20_000),
                what: self.pick(&[
                    Allocation::Grow,
                    Allocation::KeepSize,
                    Allocation::PunchHole,
                    Allocation::PunchHole,
                    Allocation::Zero,
                    Allocation::ZeroKeepSize,
                ]),
            },
            13 => Op::Seek {
                slot,
                offset: self.offset(),
                to: self.pick(&[SeekTo::Data, SeekTo::Hole]),
            },
            14 => Op::Copy {
                from: slot,
                from_offset: self.offset(),
                to: self.slot(),
                to_offset: self.offset(),
                bytes: self.below(20_000),
            },
            15 => Op::Sync { slot },
            16 => Op::StatOpen { slot },
            _ => Op::LinkOpen { slot, path: self.path() },
        }
    }

    /// Draws an operation.
    pub fn operation(&mut self) -> Op {
        match self.below(40) {
            0..=13 => self.slot_op(),
            14..=17 => Op::Open {
                slot: self.slot(),
                path: self.path(),
                flags: self.flags(),
                mode: self.mode(),
            },
            18 => Op::Tmpfile { slot: self.slot(), path: self.path() },
            19..=21 => Op::Mkdir { path: self.path(), mode: self.mode() },
            22 => Op::Rmdir { path: self.path() },
            23..=24 => Op::Unlink { path: self.path() },
            25..=27 => Op::Rename {
                from: self.path(),
                to: self.path(),
                mode: self.pick(&[
                    RenameMode::Replace,
                    RenameMode::Replace,
                    RenameMode::Replace,
                    RenameMode::NoReplace,
                    RenameMode::Exchange,
                ]),
            },
            28 => Op::Link { from: self.path(), to: self.path() },
            29 => {
                let mut text = self.path();
                if self.one_in(4) {
                    text.splice(0..0, *b"../");
                }
                Op::Symlink { text, path: self.path() }
            }
            30 => Op::ReadLink { path: self.path() },
            31..=32 => Op::Stat { path: self.path(), follow: self.one_in(2) },
            33 => Op::List { path: self.path() },
            34 => Op::Fifo { path: self.path(), mode: self.mode() },
            35 => Op::Chmod { path: self.path(), mode: self.mode() },
            36 => Op::Times { path: self.path(), atime: self.time(), mtime: self.time() },
            37 => Op::TruncatePath { path: self.path(), bytes: self.offset() },
            _ => self.xattr_op(),
        }
    }

    fn xattr_op(&mut self) -> Op {
        let path = self.path();
        match self.below(6) {
            0..=2 => Op::SetXattr {
                path,
                name: self.xattr_name(),
                value: self.data(),
                mode: self.pick(&[XattrMode::Set, XattrMode::Create, XattrMode::Replace]),
            },
            3 => Op::GetXattr { path, name: self.xattr_name() },
            4 => Op::RemoveXattr { path, name: self.xattr_name() },
            _ => Op::ListXattrs { path },
        }
    }
}
