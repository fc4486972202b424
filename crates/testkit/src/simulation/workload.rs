//! What the clients of a simulation do. Owns the small universe of names in which they meet.

use azekura_posix::{OFlags, RenameMode, XattrMode};

use crate::Random;
use crate::model::{Op, SLOTS};

/// The extended attribute that is set.
pub(crate) const XATTR: &[u8] = b"user.x";
const NAMES: [&[u8]; 3] = [b"a", b"b", b"c"];
/// Kinds of operations.
const READ: u64 = 7;
const WRITE: u64 = 10;
const STAT_OPEN: u64 = 15;
/// Files that a client has open at a time.
const OPEN_FILES: usize = 2;

/// The slots of open files that belong to a client.
pub(crate) fn slots_of(client: usize, clients: usize) -> Vec<usize> {
    assert!(clients * OPEN_FILES <= SLOTS, "every client has slots of its own");
    (0..OPEN_FILES).map(|number| number * clients + client).collect()
}

fn path(random: &mut Random) -> Vec<u8> {
    let name = random.pick(&NAMES);
    if random.one_in(2) { name.to_vec() } else { [random.pick(&NAMES), b"/", name].concat() }
}

/// An operation of a client, which has these slots for its open files. Files stay about as short as
/// `file_bytes`. With `xattrs` extended attributes are among what is done.
pub(crate) fn draw(random: &mut Random, slots: &[usize], file_bytes: u64, xattrs: bool) -> Op {
    let kind = random.below(if xattrs { 36 } else { 32 });
    op_of(kind, random, slots, file_bytes)
}

/// The same with more of what is done with one open file: writes above all, one behind the other; and with modes, by
/// which others judge what they make.
pub(crate) fn draw_of_data(random: &mut Random, slots: &[usize], file_bytes: u64) -> Op {
    if random.one_in(2) {
        let kind = random.pick(&[WRITE, WRITE, WRITE, READ, STAT_OPEN]);
        op_of(kind, random, &slots[..1], file_bytes)
    } else if random.one_in(12) {
        Op::Chmod { path: path(random), mode: random.pick(&[0o700, 0o750, 0o711]) }
    } else {
        draw(random, slots, file_bytes, false)
    }
}

fn op_of(kind: u64, random: &mut Random, slots: &[usize], file_bytes: u64) -> Op {
    let slot = random.pick(slots);
    match kind {
        0..=5 => Op::Open { slot, path: path(random), flags: flags(random), mode: 0o755 },
        6 => Op::Close { slot },
        READ..=9 => Op::Read { slot, offset: random.below(file_bytes), bytes: file_bytes as usize },
        WRITE..=13 => Op::Write { slot, offset: random.below(file_bytes), data: data(random) },
        14 => Op::Truncate { slot, bytes: random.below(file_bytes) },
        STAT_OPEN => Op::StatOpen { slot },
        16..=18 => Op::Mkdir { path: path(random), mode: 0o755 },
        19 => Op::Rmdir { path: path(random) },
        20..=21 => Op::Unlink { path: path(random) },
        22..=26 => Op::Rename { from: path(random), to: path(random), mode: mode(random) },
        27..=28 => Op::Link { from: path(random), to: path(random) },
        29..=30 => Op::Stat { path: path(random), follow: true },
        32..=34 => {
            let (path, name) = (path(random), XATTR.to_vec());
            Op::SetXattr { path, name, value: data(random), mode: XattrMode::Set }
        }
        35 => Op::GetXattr { path: path(random), name: XATTR.to_vec() },
        _ => {
            let path = if random.one_in(2) { b".".to_vec() } else { random.pick(&NAMES).to_vec() };
            Op::List { path }
        }
    }
}

fn flags(random: &mut Random) -> OFlags {
    let mut flags = OFlags::RDWR;
    if random.one_in(3) {
        flags |= OFlags::APPEND;
    }
    if !random.one_in(4) {
        flags |= OFlags::CREATE;
    }
    if flags.contains(OFlags::CREATE) && random.one_in(3) {
        flags |= OFlags::EXCL;
    }
    flags
}

fn data(random: &mut Random) -> Vec<u8> {
    let (first, bytes) = (random.next_u64(), 1 + random.below(40));
    (0..bytes).map(|index| (first.wrapping_add(index) % 251) as u8 + 1).collect()
}

fn mode(random: &mut Random) -> RenameMode {
    let replace = RenameMode::Replace;
    random.pick(&[replace, replace, replace, RenameMode::NoReplace, RenameMode::Exchange])
}
