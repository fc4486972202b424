//! Handles as bytes, which another process makes handles of. Owns their form (a mark, a version and a
//! kind, then the contents) and the way in which they are given out: sized first, filled second.

use std::fmt::Write as _;

use azekura_client::{PoolFile, SecretSource};
use azekura_proto::pool_map::PoolMap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::status::Der;
use crate::types::{Iov, place};

/// Opens every global handle; the last digit is the version of the form.
const MARK: [u8; 8] = *b"azekura1";

/// What a handle is one of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Pool = 1,
    Container = 2,
    Mount = 3,
    Object = 4,
    Array = 5,
    Whole = 6,
}

/// All that a process on another host needs to reach a pool. Holds the pool's secret, since a file of
/// this host is of no use there.
#[derive(Serialize, Deserialize)]
pub(crate) struct GlobalPool {
    map: PoolMap,
    secret_hex: String,
    pub(crate) read_only: bool,
}

impl GlobalPool {
    /// Of a connected pool with its map as it is known now.
    pub(crate) fn new(map: PoolMap, secret: &SecretSource, read_only: bool) -> Result<Self, Der> {
        let secret_hex = match secret {
            SecretSource::Inline(hex) => hex.clone(),
            SecretSource::File(path) => {
                let text = std::fs::read_to_string(path).map_err(|_| Der::NoPerm)?;
                text.trim().to_owned()
            }
        };
        Ok(Self { map, secret_hex, read_only })
    }

    /// The pool file that it stands for.
    pub(crate) fn into_pool_file(self) -> Result<PoolFile, Der> {
        self.map.validate().map_err(|_| Der::Inval)?;
        Ok(PoolFile { map: self.map, secret: SecretSource::Inline(self.secret_hex) })
    }
}

/// A container of a pool that the receiver has.
#[derive(Serialize, Deserialize)]
pub(crate) struct GlobalContainer {
    pub(crate) name: String,
    pub(crate) id: u32,
    pub(crate) read_only: bool,
}

/// A mount of a container that the receiver has.
#[derive(Serialize, Deserialize)]
pub(crate) struct GlobalMount {
    pub(crate) container: u32,
    pub(crate) writable: bool,
    pub(crate) prefix: Vec<u8>,
}

/// A mount with all that it takes to make it: the receiver need not have anything. Holds the pool's secret.
#[derive(Serialize, Deserialize)]
pub(crate) struct GlobalWhole {
    pub(crate) pool: GlobalPool,
    pub(crate) container: GlobalContainer,
    pub(crate) mount: GlobalMount,
}

/// An open object of a mount that the receiver has.
#[derive(Serialize, Deserialize)]
pub(crate) struct GlobalObject {
    pub(crate) oid: azekura_proto::Oid,
    pub(crate) flags: u32,
}

/// Gives a handle out: only its size where the caller has no buffer yet.
///
/// # Safety
/// `iov` is null or points at an [`Iov`]; its buffer, if not null, has room for `buf_bytes` bytes.
pub(crate) unsafe fn give<T: Serialize>(
    kind: Kind,
    contents: &T,
    iov: *mut Iov,
) -> Result<(), Der> {
    // SAFETY: the caller's promise.
    let iov = unsafe { place(iov) }.ok_or(Der::Inval)?;
    let mut bytes = MARK.to_vec();
    bytes.push(kind as u8);
    let bytes = postcard::to_extend(contents, bytes).map_err(|_| Der::Misc)?;
    if iov.buf.is_null() {
        iov.buf_bytes = bytes.len();
        return Ok(());
    }
    if iov.buf_bytes < bytes.len() {
        iov.buf_bytes = bytes.len();
        return Err(Der::Trunc);
    }
    // SAFETY: the buffer has room for so many, as was just checked.
    unsafe { iov.buf.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    iov.bytes = bytes.len();
    Ok(())
}

/// Takes a handle in.
///
/// # Safety
/// The buffer of `iov`, if not null, has `buf_bytes` bytes.
pub(crate) unsafe fn take<T: DeserializeOwned>(kind: Kind, iov: &Iov) -> Result<T, Der> {
    if iov.buf.is_null() || iov.bytes > iov.buf_bytes {
        return Err(Der::Inval);
    }
    let length = if iov.bytes == 0 { iov.buf_bytes } else { iov.bytes };
    // SAFETY: the caller's promise; `length` is at most `buf_bytes`.
    let bytes = unsafe { std::slice::from_raw_parts(iov.buf.cast::<u8>(), length) };
    let contents = bytes
        .strip_prefix(&MARK)
        .and_then(|rest| rest.strip_prefix(&[kind as u8]))
        .ok_or(Der::Inval)?;
    // What follows the contents is the rest of a buffer that was larger than need be.
    postcard::take_from_bytes(contents).map(|(value, _)| value).map_err(|_| Der::Inval)
}

/// A UUID as text, in its usual groups.
pub(crate) fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in uuid.iter().enumerate() {
        if [4, 6, 8, 10].contains(&index) {
            text.push('-');
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container() -> GlobalContainer {
        GlobalContainer { name: "c".to_owned(), id: 7, read_only: false }
    }

    #[test]
    fn sized_first_and_filled_second() {
        let mut iov = Iov { buf: std::ptr::null_mut(), buf_bytes: 0, bytes: 0 };
        // SAFETY: the buffers are as long as the list says.
        unsafe {
            assert_eq!(give(Kind::Container, &container(), &raw mut iov), Ok(()));
            assert!(iov.buf_bytes > 8 && iov.bytes == 0);
            let needed = iov.buf_bytes;
            let mut buffer = vec![0u8; needed + 10];
            iov.buf = buffer.as_mut_ptr().cast();
            iov.buf_bytes = needed - 1;
            assert_eq!(give(Kind::Container, &container(), &raw mut iov), Err(Der::Trunc));
            assert_eq!(iov.buf_bytes, needed);
            assert_eq!(give(Kind::Container, &container(), &raw mut iov), Ok(()));
            assert_eq!(iov.bytes, needed);
            let taken: GlobalContainer = take(Kind::Container, &iov).unwrap();
            assert_eq!((taken.name.as_str(), taken.id), ("c", 7));
            // A larger buffer of which nothing is said but its size.
            iov.buf_bytes = buffer.len();
            iov.bytes = 0;
            assert!(take::<GlobalContainer>(Kind::Container, &iov).is_ok());
        }
    }

    #[test]
    fn what_is_no_such_handle_is_refused() {
        let mut buffer = vec![0u8; 64];
        let mut iov = Iov { buf: buffer.as_mut_ptr().cast(), buf_bytes: 64, bytes: 0 };
        // SAFETY: the buffers are as long as the list says.
        unsafe {
            assert_eq!(take::<GlobalContainer>(Kind::Container, &iov).err(), Some(Der::Inval));
            give(Kind::Container, &container(), &raw mut iov).unwrap();
            assert_eq!(take::<GlobalMount>(Kind::Mount, &iov).err(), Some(Der::Inval));
            iov.bytes = 10;
            assert_eq!(take::<GlobalContainer>(Kind::Container, &iov).err(), Some(Der::Inval));
            iov.bytes = 65;
            assert_eq!(take::<GlobalContainer>(Kind::Container, &iov).err(), Some(Der::Inval));
            iov.buf = std::ptr::null_mut();
            assert_eq!(take::<GlobalContainer>(Kind::Container, &iov).err(), Some(Der::Inval));
        }
    }

    #[test]
    fn a_uuid_is_written_in_groups() {
        let uuid = std::array::from_fn(|index| index as u8);
        assert_eq!(uuid_text(&uuid), "00010203-0405-0607-0809-0a0b0c0d0e0f");
    }
}
