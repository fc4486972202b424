//! The messages of the network lock manager, version 4 (RFC 1813, appendix II). Owns how arguments and
//! results lie in a message; what they mean to the file system is not known here.

use azekura_posix::{Errno, Lock, LockKind, LockMode};
use xxhash_rust::xxh3::xxh3_64;

use crate::handle::HANDLE_BYTES_MAX;
use crate::xdr::{Garbage, Reader, Writer};

/// `MAXNETOBJ_SZ` and `LM_MAXSTRLEN`, in bytes.
const OBJECT_BYTES_MAX: usize = 1024;

/// `nlm4_stats`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Status {
    Granted = 0,
    /// Somebody else has it.
    Denied = 1,
    /// There is no room for more.
    NoLocks = 2,
    /// Somebody else has it; the client is called back.
    Blocked = 3,
    /// Locks are claimed that a restart has lost; the client asks again later, by itself.
    Grace = 4,
    Deadlock = 5,
    ReadOnly = 6,
    StaleHandle = 7,
    /// The range ends beyond what can be locked.
    TooBig = 8,
    Failed = 9,
}

impl From<Errno> for Status {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::AGAIN | Errno::ACCESS => Self::Denied,
            Errno::NOLCK => Self::NoLocks,
            Errno::DEADLK => Self::Deadlock,
            Errno::STALE => Self::StaleHandle,
            Errno::ROFS => Self::ReadOnly,
            Errno::FBIG | Errno::OVERFLOW => Self::TooBig,
            _ => Self::Failed,
        }
    }
}

/// `nlm4_lock`: a range of a file, and who wants it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockArgs<'a> {
    /// The client's own name.
    pub(crate) caller_name: &'a [u8],
    /// The file.
    pub(crate) handle: &'a [u8],
    /// The client's name of the owner.
    pub(crate) owner: &'a [u8],
    /// A number that tells processes of the client apart.
    pub(crate) svid: u32,
    offset: u64,
    length: u64,
}

impl<'a> LockArgs<'a> {
    pub(crate) fn decode(args: &mut Reader<'a>) -> Result<Self, Garbage> {
        Ok(Self {
            caller_name: args.opaque(OBJECT_BYTES_MAX)?,
            handle: args.opaque(HANDLE_BYTES_MAX)?,
            owner: args.opaque(OBJECT_BYTES_MAX)?,
            svid: args.u32()?,
            offset: args.u64()?,
            length: args.u64()?,
        })
    }

    pub(crate) fn encode(&self, message: &mut Writer) {
        message.opaque(self.caller_name);
        message.opaque(self.handle);
        message.opaque(self.owner);
        message.u32(self.svid);
        message.u64(self.offset);
        message.u64(self.length);
    }

    /// What the file system is asked for. Owners are told apart by all that the client says of them and
    /// by its address: many machines call themselves `localhost`.
    pub(crate) fn lock(&self, client: &[u8], is_exclusive: bool) -> Result<Lock, Status> {
        let end = match self.length {
            0 => u64::MAX,
            length => self.offset.checked_add(length - 1).ok_or(Status::TooBig)?,
        };
        // What no file reaches is all the same: clients write "to the end" in several ways.
        let end = if end >= i64::MAX as u64 { u64::MAX } else { end };
        if self.offset > i64::MAX as u64 {
            return Err(Status::TooBig);
        }
        let mut owner = Writer::default();
        owner.opaque(client);
        owner.opaque(self.caller_name);
        owner.u32(self.svid);
        owner.opaque(self.owner);
        Ok(Lock {
            kind: LockKind::Range,
            owner: xxh3_64(owner.bytes()),
            pid: self.svid,
            mode: if is_exclusive { LockMode::Exclusive } else { LockMode::Shared },
            start: self.offset,
            end,
        })
    }
}

/// Arguments of LOCK and `NM_LOCK` (`nlm4_lockargs`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockCall<'a> {
    pub(crate) cookie: &'a [u8],
    pub(crate) blocks: bool,
    pub(crate) is_exclusive: bool,
    pub(crate) lock: LockArgs<'a>,
}

impl<'a> LockCall<'a> {
    pub(crate) fn decode(args: &mut Reader<'a>) -> Result<Self, Garbage> {
        let call = Self::decode_cancel(args)?;
        // A lock that the client had before a restart is asked for as any other: the engines know which
        // locks were lost, and nobody else is given one in the meantime.
        let _reclaims = args.bool()?;
        let _state = args.u32()?;
        Ok(call)
    }

    /// Arguments of CANCEL (`nlm4_cancargs`).
    pub(crate) fn decode_cancel(args: &mut Reader<'a>) -> Result<Self, Garbage> {
        Ok(Self {
            cookie: args.opaque(OBJECT_BYTES_MAX)?,
            blocks: args.bool()?,
            is_exclusive: args.bool()?,
            lock: LockArgs::decode(args)?,
        })
    }

    /// Arguments of TEST and GRANTED (`nlm4_testargs`).
    pub(crate) fn decode_test(args: &mut Reader<'a>) -> Result<Self, Garbage> {
        Ok(Self {
            cookie: args.opaque(OBJECT_BYTES_MAX)?,
            blocks: false,
            is_exclusive: args.bool()?,
            lock: LockArgs::decode(args)?,
        })
    }

    /// Arguments of UNLOCK (`nlm4_unlockargs`).
    pub(crate) fn decode_unlock(args: &mut Reader<'a>) -> Result<Self, Garbage> {
        let cookie = args.opaque(OBJECT_BYTES_MAX)?;
        Ok(Self { cookie, blocks: false, is_exclusive: true, lock: LockArgs::decode(args)? })
    }

    /// As `nlm4_testargs`, for GRANTED.
    pub(crate) fn encode_granted(&self, message: &mut Writer) {
        message.opaque(self.cookie);
        message.bool(self.is_exclusive);
        self.lock.encode(message);
    }
}

/// Arguments of SHARE and UNSHARE, of which only the cookie counts (`nlm4_shareargs`).
pub(crate) fn share_cookie<'a>(args: &mut Reader<'a>) -> Result<&'a [u8], Garbage> {
    let cookie = args.opaque(OBJECT_BYTES_MAX)?;
    let (_caller_name, _handle) = (args.opaque(OBJECT_BYTES_MAX)?, args.opaque(HANDLE_BYTES_MAX)?);
    let (_owner, _mode, _access) = (args.opaque(OBJECT_BYTES_MAX)?, args.u32()?, args.u32()?);
    let _reclaims = args.bool()?;
    Ok(cookie)
}

/// A machine that has lost what it knew (`nlm4_notify`, and `stat_chge` of the status monitor).
pub(crate) fn notifier<'a>(args: &mut Reader<'a>) -> Result<&'a [u8], Garbage> {
    let name = args.opaque(OBJECT_BYTES_MAX)?;
    let _state = args.u32()?;
    Ok(name)
}

/// `nlm4_res`.
pub(crate) fn result(reply: &mut Writer, cookie: &[u8], status: Status) {
    reply.opaque(cookie);
    reply.u32(status as u32);
}

/// Takes `nlm4_res` apart: whether a client has taken the lock that was offered.
pub(crate) fn is_granted(mut results: Reader<'_>) -> Result<bool, Garbage> {
    let _cookie = results.opaque(OBJECT_BYTES_MAX)?;
    Ok(results.u32()? == Status::Granted as u32)
}

/// `nlm4_testres`: `in_the_way` is what somebody else has.
pub(crate) fn test_result(
    reply: &mut Writer,
    cookie: &[u8],
    in_the_way: Result<Option<Lock>, Status>,
) {
    match in_the_way {
        Ok(None) => result(reply, cookie, Status::Granted),
        Err(status) => result(reply, cookie, status),
        Ok(Some(lock)) => {
            result(reply, cookie, Status::Denied);
            reply.bool(lock.mode == LockMode::Exclusive);
            reply.u32(lock.pid);
            // The name that another client has for its owner means nothing to this one.
            reply.opaque(&[]);
            reply.u64(lock.start);
            // To the end is 0, and so is a length that no number has.
            reply.u64(
                (lock.end - lock.start)
                    .checked_add(1)
                    .filter(|_| lock.end != u64::MAX)
                    .unwrap_or(0),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(offset: u64, length: u64) -> LockArgs<'static> {
        LockArgs { caller_name: b"host", handle: b"h", owner: b"1@host", svid: 7, offset, length }
    }

    fn range(offset: u64, length: u64) -> Result<(u64, u64), Status> {
        args(offset, length).lock(b"client", true).map(|lock| (lock.start, lock.end))
    }

    #[test]
    fn ranges_are_those_of_posix() {
        assert_eq!(range(5, 1), Ok((5, 5)));
        assert_eq!(range(0, 0), Ok((0, u64::MAX)));
        assert_eq!(range(5, 0), Ok((5, u64::MAX)));
        assert_eq!(range(0, i64::MAX as u64), Ok((0, i64::MAX as u64 - 1)));
        assert_eq!(range(1, i64::MAX as u64), Ok((1, u64::MAX)));
        assert_eq!(range(i64::MAX as u64, 1), Ok((i64::MAX as u64, u64::MAX)));
        assert_eq!(range(1 << 63, 1), Err(Status::TooBig));
        assert_eq!(range(5, u64::MAX), Err(Status::TooBig));
    }

    #[test]
    fn owners_differ_by_client_name_process_and_owner() {
        let one = args(0, 0);
        let owner = |args: LockArgs<'_>, client: &[u8]| args.lock(client, true).unwrap().owner;
        let first = owner(one, b"client");
        assert_eq!(first, owner(args(9, 9), b"client"));
        assert_ne!(first, owner(one, b"other"));
        assert_ne!(first, owner(LockArgs { svid: 8, ..one }, b"client"));
        assert_ne!(first, owner(LockArgs { owner: b"2@host", ..one }, b"client"));
        assert_ne!(first, owner(LockArgs { caller_name: b"hos", ..one }, b"client"));
    }

    #[test]
    fn a_lock_in_the_way_is_told_with_its_range() {
        let told = |start, end| {
            let lock = Lock { start, end, ..args(0, 0).lock(b"c", false).unwrap() };
            let mut reply = Writer::default();
            test_result(&mut reply, b"cook", Ok(Some(lock)));
            let mut read = Reader::new(reply.bytes());
            assert_eq!(read.opaque(8), Ok(&b"cook"[..]));
            assert_eq!((read.u32(), read.bool(), read.u32()), (Ok(1), Ok(false), Ok(7)));
            assert_eq!(read.opaque(8), Ok(&b""[..]));
            (read.u64().unwrap(), read.u64().unwrap())
        };
        assert_eq!(told(5, 5), (5, 1));
        assert_eq!(told(5, u64::MAX), (5, 0));
        assert_eq!(told(0, u64::MAX), (0, 0));
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let call = LockCall { cookie: b"c", blocks: false, is_exclusive: true, lock: args(3, 4) };
        let mut message = Writer::default();
        call.encode_granted(&mut message);
        let read = LockCall::decode_test(&mut Reader::new(message.bytes())).unwrap();
        assert_eq!(format!("{read:?}"), format!("{call:?}"));
        for length in 0..message.len() {
            let mut short = Reader::new(&message.bytes()[..length]);
            assert_eq!(LockCall::decode_test(&mut short).unwrap_err(), Garbage, "{length}");
        }
    }
}
