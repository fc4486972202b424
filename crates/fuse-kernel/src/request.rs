//! Takes the kernel's messages apart. Every length is checked before it is used: a message that
//! does not fit its own claims becomes [`ParseError`], never a panic. Copies nothing but numbers.

use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::abi::{self, fattr, opcode};
use crate::operation::{CopyRange, Lock, LockKind, Operation, ReadDir, SetAttr, SetTime, Write};

/// Who asks, about which node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header<'a> {
    /// Number of the request; replies and interrupts name it.
    pub unique: u64,
    /// The node that the request is about.
    pub node: u64,
    /// Caller's user (`fsuid`).
    pub uid: u32,
    /// Caller's group (`fsgid`).
    pub gid: u32,
    /// Caller's process; 0 if it lives outside the server's pid namespace.
    pub pid: u32,
    /// Supplementary groups that the kernel sent along.
    pub groups: Groups<'a>,
}

/// A list of group numbers inside the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Groups<'a>(&'a [u8]);

impl Groups<'_> {
    /// The groups one by one.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.chunks_exact(4).filter_map(|bytes| Some(u32::from_ne_bytes(bytes.try_into().ok()?)))
    }
}

/// A request for the handler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// Who asks, about which node.
    pub header: Header<'a>,
    /// What is to be done.
    pub operation: Operation<'a>,
}

/// Everything that can come out of the device, sorted by who deals with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Message<'a> {
    /// For the handler, which replies.
    Request(Request<'a>),
    /// The handshake.
    Init { unique: u64, major: u32, minor: u32, max_readahead: u32, flags: u64 },
    /// The kernel has dropped references to nodes; no reply.
    Forget(Forgets<'a>),
    /// Somebody does not want to wait for that request any longer; no reply.
    Interrupt { target: u64 },
    /// The file system goes away.
    Destroy { unique: u64 },
    /// Nothing to do, and no reply.
    Ignored,
}

/// Nodes that the kernel has dropped references to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Forgets<'a> {
    One { node: u64, count: u64 },
    Many(&'a [u8]),
}

impl Forgets<'_> {
    /// Calls `each` with every node and the number of references dropped.
    pub(crate) fn for_each(&self, mut each: impl FnMut(u64, u64)) {
        match self {
            Self::One { node, count } => each(*node, *count),
            Self::Many(bytes) => {
                for item in bytes.chunks_exact(size_of::<abi::ForgetOne>()) {
                    if let Ok(one) = abi::ForgetOne::read_from_bytes(item) {
                        each(one.nodeid, one.nlookup);
                    }
                }
            }
        }
    }
}

/// Why a message could not be understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ParseError {
    /// Too short to say what it wants, so that no reply is possible.
    NoHeader,
    /// Its lengths do not fit; reply with an error.
    Malformed { unique: u64, opcode: u32 },
    /// An operation that is not served here.
    Unknown { unique: u64, opcode: u32 },
}

/// Marks a message that ended before its claims did.
struct Short;

/// What is left of a message. A ring has the operation's own structure apart from the rest.
struct Rest<'a> {
    structure: &'a [u8],
    body: &'a [u8],
}

impl<'a> Rest<'a> {
    fn take<T: FromBytes + Immutable + KnownLayout>(&mut self) -> Result<T, Short> {
        let from = if self.structure.is_empty() { &mut self.body } else { &mut self.structure };
        let (value, rest) = T::read_from_prefix(from).map_err(|_| Short)?;
        *from = rest;
        Ok(value)
    }

    /// A text that ends with a zero, which is taken too.
    fn text(&mut self) -> Result<&'a [u8], Short> {
        let end = self.body.iter().position(|byte| *byte == 0).ok_or(Short)?;
        let (text, rest) = self.body.split_at(end);
        self.body = &rest[1..];
        Ok(text)
    }

    /// A text that must not be empty.
    fn name(&mut self) -> Result<&'a [u8], Short> {
        let name = self.text()?;
        if name.is_empty() { Err(Short) } else { Ok(name) }
    }

    fn bytes(&mut self, count: u32) -> Result<&'a [u8], Short> {
        let (bytes, rest) = self.body.split_at_checked(count as usize).ok_or(Short)?;
        self.body = rest;
        Ok(bytes)
    }
}

/// Takes one message apart. `bytes` is what one read of the device gave.
pub(crate) fn parse(bytes: &[u8]) -> Result<Message<'_>, ParseError> {
    let (header, rest) =
        abi::InHeader::read_from_prefix(bytes).map_err(|_| ParseError::NoHeader)?;
    parse_parts(&header, &[], rest)
}

/// Takes a message apart that a ring has brought in parts: `arguments` is the room of the operation's
/// own structure, whose length the header's tells, `payload` the rest.
pub(crate) fn parse_ring<'a>(
    header: &abi::InHeader,
    arguments: &'a [u8],
    payload: &'a [u8],
) -> Result<Message<'a>, ParseError> {
    let others = size_of::<abi::InHeader>() + payload.len();
    let structure = (header.len as usize).checked_sub(others);
    match structure.and_then(|bytes| arguments.get(..bytes)) {
        Some(structure) => parse_parts(header, structure, payload),
        None => Err(ParseError::Malformed { unique: header.unique, opcode: header.opcode }),
    }
}

fn parse_parts<'a>(
    header: &abi::InHeader,
    structure: &'a [u8],
    body: &'a [u8],
) -> Result<Message<'a>, ParseError> {
    let unique = header.unique;
    let malformed = ParseError::Malformed { unique, opcode: header.opcode };
    let extension_bytes = usize::from(header.total_extlen) * 8;
    let bytes = size_of::<abi::InHeader>() + structure.len() + body.len();
    if header.len as usize != bytes || extension_bytes > body.len() {
        return Err(malformed);
    }
    let (body, extensions) = body.split_at(body.len() - extension_bytes);
    let mut rest = Rest { structure, body };
    let special = match header.opcode {
        opcode::INIT => init(unique, &mut rest),
        opcode::FORGET => rest.take::<abi::ForgetIn>().map(|forget| {
            Message::Forget(Forgets::One { node: header.nodeid, count: forget.nlookup })
        }),
        opcode::BATCH_FORGET => batch_forget(&mut rest),
        opcode::INTERRUPT => rest
            .take::<abi::InterruptIn>()
            .map(|interrupt| Message::Interrupt { target: interrupt.unique }),
        opcode::DESTROY => Ok(Message::Destroy { unique }),
        opcode::NOTIFY_REPLY => Ok(Message::Ignored),
        code => {
            let operation = operation(code, &mut rest)
                .map_err(|Short| malformed)?
                .ok_or(ParseError::Unknown { unique, opcode: code })?;
            let groups = groups(extensions).map_err(|Short| malformed)?;
            let header = Header {
                unique,
                node: header.nodeid,
                uid: header.uid,
                gid: header.gid,
                pid: header.pid,
                groups,
            };
            Ok(Message::Request(Request { header, operation }))
        }
    };
    special.map_err(|Short| malformed)
}

fn init<'a>(unique: u64, rest: &mut Rest<'a>) -> Result<Message<'a>, Short> {
    let init: abi::InitIn = rest.take()?;
    let mut flags = u64::from(init.flags);
    if flags & abi::init::INIT_EXT != 0 {
        flags |= u64::from(rest.take::<u32>()?) << 32;
    }
    Ok(Message::Init {
        unique,
        major: init.major,
        minor: init.minor,
        max_readahead: init.max_readahead,
        flags,
    })
}

fn batch_forget<'a>(rest: &mut Rest<'a>) -> Result<Message<'a>, Short> {
    let batch: abi::BatchForgetIn = rest.take()?;
    let size = batch.count.checked_mul(size_of::<abi::ForgetOne>() as u32).ok_or(Short)?;
    Ok(Message::Forget(Forgets::Many(rest.bytes(size)?)))
}

/// Finds the group list among the extensions, of which others are passed over.
fn groups(extensions: &[u8]) -> Result<Groups<'_>, Short> {
    let mut rest = extensions;
    while !rest.is_empty() {
        let (header, _) = abi::ExtHeader::read_from_prefix(rest).map_err(|_| Short)?;
        let size = header.size as usize;
        if size < size_of::<abi::ExtHeader>() {
            return Err(Short);
        }
        let (extension, after) = rest.split_at_checked(size).ok_or(Short)?;
        if header.typ == abi::EXT_GROUPS {
            let body = &extension[size_of::<abi::ExtHeader>()..];
            let mut body = Rest { structure: &[], body };
            let count: u32 = body.take()?;
            return Ok(Groups(body.bytes(count.checked_mul(4).ok_or(Short)?)?));
        }
        rest = after;
    }
    Ok(Groups::default())
}

/// The operation with its arguments; `None` if the code is not known.
fn operation<'a>(code: u32, rest: &mut Rest<'a>) -> Result<Option<Operation<'a>>, Short> {
    let operation = match code {
        opcode::LOOKUP => Operation::Lookup { name: rest.name()? },
        opcode::GETATTR => {
            let getattr: abi::GetattrIn = rest.take()?;
            Operation::Getattr { fh: given(getattr.flags, abi::GETATTR_FH, getattr.fh) }
        }
        opcode::STATX => {
            let statx: abi::StatxIn = rest.take()?;
            let fh = given(statx.getattr_flags, abi::GETATTR_FH, statx.fh);
            Operation::Statx { fh, flags: statx.sx_flags, mask: statx.sx_mask }
        }
        opcode::SETATTR => Operation::Setattr(setattr(&rest.take()?)),
        opcode::READLINK => Operation::Readlink,
        opcode::STATFS => Operation::Statfs,
        opcode::SYNCFS => Operation::Syncfs,
        opcode::ACCESS => Operation::Access { mask: rest.take::<abi::AccessIn>()?.mask },
        opcode::SYMLINK
        | opcode::MKNOD
        | opcode::MKDIR
        | opcode::UNLINK
        | opcode::RMDIR
        | opcode::RENAME
        | opcode::RENAME2
        | opcode::LINK
        | opcode::CREATE
        | opcode::TMPFILE => return namespace(code, rest).map(Some),
        opcode::SETXATTR | opcode::GETXATTR | opcode::LISTXATTR | opcode::REMOVEXATTR => {
            return xattr(code, rest).map(Some);
        }
        opcode::OPENDIR
        | opcode::READDIR
        | opcode::READDIRPLUS
        | opcode::RELEASEDIR
        | opcode::FSYNCDIR => return directory(code, rest).map(Some),
        _ => return file(code, rest),
    };
    Ok(Some(operation))
}

/// `value` if `bit` is among `flags`.
fn given(flags: u32, bit: u32, value: u64) -> Option<u64> {
    (flags & bit != 0).then_some(value)
}

fn setattr(raw: &abi::SetattrIn) -> SetAttr {
    let has = |bit: u32| raw.valid & bit != 0;
    let time = |bit: u32, now: u32, seconds: i64, nanoseconds: u32| match (has(bit), has(now)) {
        (_, true) => Some(SetTime::Now),
        (true, false) => Some(SetTime::At { seconds, nanoseconds }),
        (false, false) => None,
    };
    SetAttr {
        fh: has(fattr::FH).then_some(raw.fh),
        mode: has(fattr::MODE).then_some(raw.mode),
        uid: has(fattr::UID).then_some(raw.uid),
        gid: has(fattr::GID).then_some(raw.gid),
        size: has(fattr::SIZE).then_some(raw.size),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, raw.atime, raw.atimensec),
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, raw.mtime, raw.mtimensec),
        ctime: has(fattr::CTIME).then_some((raw.ctime, raw.ctimensec)),
        lock_owner: has(fattr::LOCKOWNER).then_some(raw.lock_owner),
        kill_suidgid: has(fattr::KILL_SUIDGID),
    }
}

fn namespace<'a>(code: u32, rest: &mut Rest<'a>) -> Result<Operation<'a>, Short> {
    Ok(match code {
        opcode::SYMLINK => Operation::Symlink { name: rest.name()?, target: rest.text()? },
        opcode::MKNOD => {
            let abi::MknodIn { mode, rdev, umask, .. } = rest.take()?;
            Operation::Mknod { name: rest.name()?, mode, rdev, umask }
        }
        opcode::MKDIR => {
            let abi::MkdirIn { mode, umask } = rest.take()?;
            Operation::Mkdir { name: rest.name()?, mode, umask }
        }
        opcode::UNLINK => Operation::Unlink { name: rest.name()? },
        opcode::RMDIR => Operation::Rmdir { name: rest.name()? },
        opcode::RENAME => {
            let new_parent = rest.take::<abi::RenameIn>()?.newdir;
            let name = rest.name()?;
            Operation::Rename { name, new_parent, new_name: rest.name()?, flags: 0 }
        }
        opcode::RENAME2 => {
            let abi::Rename2In { newdir: new_parent, flags, .. } = rest.take()?;
            let name = rest.name()?;
            Operation::Rename { name, new_parent, new_name: rest.name()?, flags }
        }
        opcode::LINK => {
            let existing = rest.take::<abi::LinkIn>()?.oldnodeid;
            Operation::Link { existing, new_name: rest.name()? }
        }
        opcode::CREATE => {
            let abi::CreateIn { flags, mode, umask, open_flags } = rest.take()?;
            let kill_suidgid = open_flags & abi::OPEN_KILL_SUIDGID != 0;
            Operation::Create { name: rest.name()?, flags, mode, umask, kill_suidgid }
        }
        // Only TMPFILE is left. The name that follows stands for nothing.
        _ => {
            let abi::CreateIn { flags, mode, umask, .. } = rest.take()?;
            Operation::Tmpfile { flags, mode, umask }
        }
    })
}

fn xattr<'a>(code: u32, rest: &mut Rest<'a>) -> Result<Operation<'a>, Short> {
    Ok(match code {
        opcode::SETXATTR => {
            let abi::SetxattrIn { size, flags } = rest.take()?;
            let name = rest.name()?;
            Operation::Setxattr { name, value: rest.bytes(size)?, flags }
        }
        opcode::GETXATTR => {
            let size = rest.take::<abi::GetxattrIn>()?.size;
            Operation::Getxattr { name: rest.name()?, size }
        }
        opcode::LISTXATTR => Operation::Listxattr { size: rest.take::<abi::GetxattrIn>()?.size },
        // Only REMOVEXATTR is left.
        _ => Operation::Removexattr { name: rest.name()? },
    })
}

fn directory<'a>(code: u32, rest: &mut Rest<'a>) -> Result<Operation<'a>, Short> {
    Ok(match code {
        opcode::OPENDIR => Operation::Opendir { flags: rest.take::<abi::OpenIn>()?.flags },
        opcode::READDIR | opcode::READDIRPLUS => {
            let abi::ReadIn { fh, offset, size, .. } = rest.take()?;
            let plus = code == opcode::READDIRPLUS;
            Operation::Readdir(ReadDir { fh, cookie: offset, size, plus })
        }
        opcode::RELEASEDIR => {
            let abi::ReleaseIn { fh, flags, .. } = rest.take()?;
            Operation::Releasedir { fh, flags }
        }
        // Only FSYNCDIR is left.
        _ => {
            let abi::FsyncIn { fh, fsync_flags, .. } = rest.take()?;
            Operation::Fsyncdir { fh, data_only: fsync_flags & abi::FSYNC_FDATASYNC != 0 }
        }
    })
}

/// Operations on open files; `None` if the code is not known.
fn file<'a>(code: u32, rest: &mut Rest<'a>) -> Result<Option<Operation<'a>>, Short> {
    Ok(Some(match code {
        opcode::OPEN => {
            let abi::OpenIn { flags, open_flags } = rest.take()?;
            Operation::Open { flags, kill_suidgid: open_flags & abi::OPEN_KILL_SUIDGID != 0 }
        }
        opcode::READ => {
            let raw: abi::ReadIn = rest.take()?;
            let lock_owner = given(raw.read_flags, abi::READ_LOCKOWNER, raw.lock_owner);
            let abi::ReadIn { fh, offset, size, flags, .. } = raw;
            Operation::Read { fh, offset, size, lock_owner, flags }
        }
        opcode::WRITE => write(rest)?,
        opcode::RELEASE => {
            let abi::ReleaseIn { fh, flags, release_flags, lock_owner } = rest.take()?;
            let flush = release_flags & abi::RELEASE_FLUSH != 0;
            let flock_unlock = release_flags & abi::RELEASE_FLOCK_UNLOCK != 0;
            Operation::Release { fh, flags, lock_owner, flush, flock_unlock }
        }
        opcode::FSYNC => {
            let abi::FsyncIn { fh, fsync_flags, .. } = rest.take()?;
            Operation::Fsync { fh, data_only: fsync_flags & abi::FSYNC_FDATASYNC != 0 }
        }
        opcode::FLUSH => {
            let abi::FlushIn { fh, lock_owner, .. } = rest.take()?;
            Operation::Flush { fh, lock_owner }
        }
        opcode::GETLK => Operation::Getlk(lock(&rest.take()?)?),
        opcode::SETLK => Operation::Setlk { lock: lock(&rest.take()?)?, wait: false },
        opcode::SETLKW => Operation::Setlk { lock: lock(&rest.take()?)?, wait: true },
        opcode::FALLOCATE => {
            let abi::FallocateIn { fh, offset, length, mode, .. } = rest.take()?;
            Operation::Fallocate { fh, offset, length, mode }
        }
        opcode::LSEEK => {
            let abi::LseekIn { fh, offset, whence, .. } = rest.take()?;
            Operation::Lseek { fh, offset, whence }
        }
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => {
            let raw: abi::CopyFileRangeIn = rest.take()?;
            Operation::CopyFileRange(CopyRange {
                fh_in: raw.fh_in,
                offset_in: raw.off_in,
                node_out: raw.nodeid_out,
                fh_out: raw.fh_out,
                offset_out: raw.off_out,
                length: raw.len,
                flags: raw.flags,
                wide: code == opcode::COPY_FILE_RANGE_64,
            })
        }
        _ => return Ok(None),
    }))
}

fn write<'a>(rest: &mut Rest<'a>) -> Result<Operation<'a>, Short> {
    let raw: abi::WriteIn = rest.take()?;
    Ok(Operation::Write(Write {
        fh: raw.fh,
        offset: raw.offset,
        data: rest.bytes(raw.size)?,
        lock_owner: given(raw.write_flags, abi::WRITE_LOCKOWNER, raw.lock_owner),
        flags: raw.flags,
        cached: raw.write_flags & abi::WRITE_CACHE != 0,
        kill_suidgid: raw.write_flags & abi::WRITE_KILL_SUIDGID != 0,
    }))
}

fn lock(raw: &abi::LkIn) -> Result<Lock, Short> {
    // The numbers of F_RDLCK, F_WRLCK and F_UNLCK, which are the same on all Linux machines that
    // Rust has a target for.
    let kind = match raw.lk.typ {
        0 => LockKind::Read,
        1 => LockKind::Write,
        2 => LockKind::Unlock,
        _ => return Err(Short),
    };
    Ok(Lock {
        fh: raw.fh,
        owner: raw.owner,
        flock: raw.lk_flags & abi::LK_FLOCK != 0,
        kind,
        start: raw.lk.start,
        end: raw.lk.end,
        pid: raw.lk.pid,
    })
}
