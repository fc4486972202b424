//! What went wrong, as NFS calls it (`nfsstat3`, RFC 1813, section 2.6). The only map from an errno.

use azekura_posix::Errno;

/// `nfsstat3`, as far as it is used here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Status {
    Perm = 1,
    NoEntry = 2,
    Io = 5,
    NoDevice = 6,
    Access = 13,
    Exists = 17,
    CrossDevice = 18,
    NotDirectory = 20,
    IsDirectory = 21,
    Invalid = 22,
    TooBig = 27,
    NoSpace = 28,
    ReadOnly = 30,
    TooManyLinks = 31,
    NameTooLong = 63,
    NotEmpty = 66,
    Quota = 69,
    Stale = 70,
    BadHandle = 10_001,
    NotSync = 10_002,
    BadCookie = 10_003,
    NotSupported = 10_004,
    TooSmall = 10_005,
    BadType = 10_007,
    /// The client asks again later, by itself.
    Jukebox = 10_008,
}

impl From<Errno> for Status {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::PERM => Self::Perm,
            Errno::NOENT => Self::NoEntry,
            Errno::NXIO => Self::NoDevice,
            Errno::ACCESS => Self::Access,
            Errno::EXIST => Self::Exists,
            Errno::XDEV => Self::CrossDevice,
            Errno::NOTDIR => Self::NotDirectory,
            Errno::ISDIR => Self::IsDirectory,
            Errno::INVAL | Errno::LOOP => Self::Invalid,
            Errno::FBIG => Self::TooBig,
            Errno::NOSPC | Errno::NFILE => Self::NoSpace,
            Errno::ROFS => Self::ReadOnly,
            Errno::MLINK => Self::TooManyLinks,
            Errno::NAMETOOLONG => Self::NameTooLong,
            Errno::NOTEMPTY => Self::NotEmpty,
            Errno::DQUOT => Self::Quota,
            Errno::STALE => Self::Stale,
            Errno::OPNOTSUPP | Errno::NOSYS => Self::NotSupported,
            Errno::BUSY | Errno::AGAIN => Self::Jukebox,
            _ => Self::Io,
        }
    }
}
