//! What a call comes to: the error numbers of the interface, how the client's and the file system's
//! errors become them, and the barrier that no panic passes. Nothing else makes a number of an error.

use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use azekura_client::{ClientError, PoolFileError};
use azekura_posix::{Errno, MountError};

/// The errors of `daos_*` and `d_hash_*` functions, as far as this library gives them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Der {
    NoPerm = 1001,
    NoHdl = 1002,
    Inval = 1003,
    Exist = 1004,
    Nonexist = 1005,
    Unreach = 1006,
    Nospace = 1007,
    Nosys = 1010,
    Busy = 1012,
    Proto = 1014,
    Uninit = 1015,
    Trunc = 1016,
    Overflow = 1017,
    Canceled = 1018,
    Misc = 1025,
    Io = 2001,
    Stale = 2007,
    Key2Big = 2012,
    Rec2Big = 2013,
}

impl Der {
    const ALL: [Self; 19] = [
        Self::NoPerm,
        Self::NoHdl,
        Self::Inval,
        Self::Exist,
        Self::Nonexist,
        Self::Unreach,
        Self::Nospace,
        Self::Nosys,
        Self::Busy,
        Self::Proto,
        Self::Uninit,
        Self::Trunc,
        Self::Overflow,
        Self::Canceled,
        Self::Misc,
        Self::Io,
        Self::Stale,
        Self::Key2Big,
        Self::Rec2Big,
    ];

    fn name(self) -> &'static std::ffi::CStr {
        match self {
            Self::NoPerm => c"DER_NO_PERM",
            Self::NoHdl => c"DER_NO_HDL",
            Self::Inval => c"DER_INVAL",
            Self::Exist => c"DER_EXIST",
            Self::Nonexist => c"DER_NONEXIST",
            Self::Unreach => c"DER_UNREACH",
            Self::Nospace => c"DER_NOSPACE",
            Self::Nosys => c"DER_NOSYS",
            Self::Busy => c"DER_BUSY",
            Self::Proto => c"DER_PROTO",
            Self::Uninit => c"DER_UNINIT",
            Self::Trunc => c"DER_TRUNC",
            Self::Overflow => c"DER_OVERFLOW",
            Self::Canceled => c"DER_CANCELED",
            Self::Misc => c"DER_MISC",
            Self::Io => c"DER_IO",
            Self::Stale => c"DER_STALE",
            Self::Key2Big => c"DER_KEY2BIG",
            Self::Rec2Big => c"DER_REC2BIG",
        }
    }

    fn description(self) -> &'static std::ffi::CStr {
        match self {
            Self::NoPerm => c"no permission",
            Self::NoHdl => c"no such handle",
            Self::Inval => c"wrong argument",
            Self::Exist => c"it is there already",
            Self::Nonexist => c"it is not there",
            Self::Unreach => c"a target or engine does not answer",
            Self::Nospace => c"no space or memory left",
            Self::Nosys => c"not implemented",
            Self::Busy => c"in use",
            Self::Proto => c"the other side speaks another protocol",
            Self::Uninit => c"the library is not started",
            Self::Trunc => c"the buffer is too short",
            Self::Overflow => c"too large for what takes it",
            Self::Canceled => c"given up",
            Self::Misc => c"an error inside the library",
            Self::Io => c"input or output failed",
            Self::Stale => c"it has changed since",
            Self::Key2Big => c"a key is too large for the buffer",
            Self::Rec2Big => c"a value is too large for the buffer",
        }
    }
}

/// The error of an errno.
fn of_errno(errno: Errno) -> Der {
    match errno {
        Errno::NOENT => Der::Nonexist,
        Errno::EXIST => Der::Exist,
        Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::BADF => Der::NoPerm,
        Errno::INVAL | Errno::NAMETOOLONG => Der::Inval,
        Errno::NOSPC | Errno::NFILE => Der::Nospace,
        Errno::BUSY | Errno::AGAIN => Der::Busy,
        Errno::TOOBIG | Errno::FBIG => Der::Overflow,
        Errno::OPNOTSUPP => Der::Nosys,
        Errno::STALE => Der::Stale,
        _ => Der::Io,
    }
}

impl From<Errno> for Der {
    fn from(errno: Errno) -> Self {
        of_errno(errno)
    }
}

impl From<ClientError> for Der {
    fn from(error: ClientError) -> Self {
        match &error {
            ClientError::Unreachable { .. } => Self::Unreach,
            ClientError::Protocol { .. } => Self::Proto,
            ClientError::Status(_) | ClientError::TooLarge | ClientError::NoSuchTarget(_) => {
                of_errno(azekura_posix::errno::of_client(&error))
            }
        }
    }
}

impl From<PoolFileError> for Der {
    fn from(error: PoolFileError) -> Self {
        match error {
            PoolFileError::Unknown { .. } | PoolFileError::OtherPool { .. } => Self::Nonexist,
            PoolFileError::Io { source, .. } => match source.kind() {
                std::io::ErrorKind::NotFound => Self::Nonexist,
                std::io::ErrorKind::PermissionDenied => Self::NoPerm,
                _ => Self::Io,
            },
            PoolFileError::Exposed { .. } | PoolFileError::Secret(_) => Self::NoPerm,
            PoolFileError::Damaged { .. } | PoolFileError::Url { .. } => Self::Inval,
            PoolFileError::Connect { .. } => Self::Unreach,
        }
    }
}

/// The errno of an error of the pool's side, for `dfs_*` functions that open containers.
pub(crate) fn errno_of_der(der: Der) -> Errno {
    match der {
        Der::NoPerm => Errno::PERM,
        Der::NoHdl | Der::Inval | Der::Proto => Errno::INVAL,
        Der::Exist => Errno::EXIST,
        Der::Nonexist => Errno::NOENT,
        Der::Nospace => Errno::NOSPC,
        Der::Nosys => Errno::NOSYS,
        Der::Busy => Errno::BUSY,
        Der::Trunc | Der::Overflow | Der::Key2Big | Der::Rec2Big => Errno::OVERFLOW,
        Der::Canceled => Errno::CANCELED,
        Der::Stale => Errno::STALE,
        Der::Unreach | Der::Uninit | Der::Misc | Der::Io => Errno::IO,
    }
}

/// The errno of a mount that failed.
pub(crate) fn errno_of_mount(error: &MountError) -> Errno {
    match error {
        MountError::NoContainer { .. } => Errno::NOENT,
        MountError::Client(error) => azekura_posix::errno::of_client(error),
    }
}

/// The number of an error as `daos_*` functions give it.
pub(crate) fn number_of_der(der: Der) -> c_int {
    -(der as c_int)
}

/// The number of an error of the pool's side as `dfs_*` functions give it.
pub(crate) fn number_of_errno(der: Der) -> c_int {
    errno_of_der(der).raw_os_error()
}

/// Runs the body of a `daos_*` function.
pub(crate) fn daos_call(body: impl FnOnce() -> Result<(), Der>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(der)) => number_of_der(der),
        Err(_) => number_of_der(Der::Misc),
    }
}

/// Runs the body of a `dfs_*` function.
pub(crate) fn dfs_call(body: impl FnOnce() -> Result<(), Errno>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(errno)) => errno.raw_os_error(),
        Err(_) => libc::EIO,
    }
}

/// Runs a body that has another answer than an error number, with the answer to a panic.
pub(crate) fn call_or<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(otherwise)
}

fn of_number(rc: c_int) -> Option<Der> {
    let number = rc.unsigned_abs();
    Der::ALL.into_iter().find(|der| *der as u32 == number)
}

/// See `daos_errno.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn d_errstr(rc: c_int) -> *const c_char {
    let name = if rc == 0 { Some(c"DER_SUCCESS") } else { of_number(rc).map(Der::name) };
    name.unwrap_or(c"DER_UNKNOWN").as_ptr()
}

/// See `daos_errno.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn d_errdesc(rc: c_int) -> *const c_char {
    let words = if rc == 0 { Some(c"success") } else { of_number(rc).map(Der::description) };
    words.unwrap_or(c"unknown error").as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_panic_passes() {
        std::panic::set_hook(Box::new(|_| {}));
        assert_eq!(daos_call(|| panic!("x")), -1025);
        assert_eq!(dfs_call(|| panic!("x")), libc::EIO);
        assert_eq!(call_or(7, || panic!("x")), 7);
    }

    #[test]
    fn a_missing_container_is_nonexist() {
        let missing = ClientError::Status(azekura_proto::Status::NotFound);
        assert_eq!(daos_call(|| Err(missing.into())), -1005);
    }

    #[test]
    fn errors_have_names() {
        // SAFETY: the function gives static text.
        let name = |rc| unsafe { std::ffi::CStr::from_ptr(d_errstr(rc)) };
        assert_eq!(name(-1005), c"DER_NONEXIST");
        assert_eq!(name(0), c"DER_SUCCESS");
        assert_eq!(name(-3), c"DER_UNKNOWN");
        // SAFETY: the function gives static text.
        let words = |rc| unsafe { std::ffi::CStr::from_ptr(d_errdesc(rc)) };
        assert_eq!(words(1005), c"it is not there");
        assert_eq!(words(0), c"success");
        assert_eq!(words(-3), c"unknown error");
    }
}
