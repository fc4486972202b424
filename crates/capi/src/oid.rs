//! Object ids. Owns what the free bits of an object id hold for objects of
//! this interface, so that an id says everything that opening the object takes:
//!
//! | bits of `hi` | what |
//! |---|---|
//! | 31 | 1: not an object of the file system |
//! | 30..26 | the chunk size of its array, as a power of two |
//! | 25..0 | free for the user: the tag |

use std::ffi::c_int;
use std::fmt;

use azekura_posix::Errno;
use azekura_proto::Oid;
use azekura_proto::limits::{CHUNK_BYTES_DEFAULT, CHUNK_BYTES_MAX, CHUNK_BYTES_MIN};

use crate::call::status;
use crate::class;
use crate::failure::{Failure, Outcome};
use crate::pointers::{Out, Room, Text, place};

/// Marks ids of this interface.
const MARK: u32 = 1 << 31;
const CHUNK_SHIFT: u32 = 26;
const CHUNK_MASK: u32 = 0x1f;
/// `AZEKURA_TAG_MAX`.
const TAG_MAX: u32 = (1 << CHUNK_SHIFT) - 1;
/// `AZEKURA_OID_TEXT_BYTES`, with the zero byte.
const TEXT_BYTES: usize = 34;

/// `azekura_oid`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawOid {
    hi: u64,
    lo: u64,
}

impl RawOid {
    pub(crate) fn of(oid: Oid) -> Self {
        let id = u128::from_be_bytes(oid.to_bytes());
        Self { hi: (id >> 64) as u64, lo: id as u64 }
    }

    pub(crate) fn oid(self) -> Option<Oid> {
        Oid::from_bytes(&(u128::from(self.hi) << 64 | u128::from(self.lo)).to_be_bytes())
    }

    fn user_bits(self) -> u32 {
        self.hi as u32
    }

    /// What its user has put into it.
    pub(crate) fn tag(self) -> u32 {
        self.user_bits() & TAG_MAX
    }

    /// The chunk size in bytes, if the id is one of this interface.
    pub(crate) fn chunk_bytes(self) -> Option<u32> {
        let chunk_bytes = 1u32 << (self.user_bits() >> CHUNK_SHIFT & CHUNK_MASK);
        let marked = self.user_bits() & MARK != 0;
        (marked && (CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&chunk_bytes))
            .then_some(chunk_bytes)
    }
}

impl fmt::Display for RawOid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}.{:016x}", self.hi, self.lo)
    }
}

/// What the free bits of a new id hold.
pub(crate) fn user_bits(chunk_bytes: u32, tag: u32) -> Outcome<u32> {
    let chunk_bytes = class::chunk_bytes(chunk_bytes, CHUNK_BYTES_DEFAULT)?;
    if !chunk_bytes.is_power_of_two() {
        let text = format!("the chunk size of an object is a power of two, not {chunk_bytes}");
        return Err(Failure::with(Errno::INVAL, text));
    }
    if tag > TAG_MAX {
        return Err(Failure::with(Errno::INVAL, format!("a tag is at most {TAG_MAX}, not {tag}")));
    }
    Ok(MARK | chunk_bytes.trailing_zeros() << CHUNK_SHIFT | tag)
}

/// `azekura_oid_format`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_oid_format(oid: RawOid, text: Room<'_>, capacity: usize) -> c_int {
    status("azekura_oid_format", || {
        // SAFETY: `capacity` is the room for `text`.
        let room = unsafe { text.slice(capacity, "text") }?;
        let shown = format!("{oid}\0");
        let Some(place) = room.get_mut(..TEXT_BYTES) else {
            let text = format!("an id takes {TEXT_BYTES} bytes of text, not {capacity}");
            return Err(Failure::with(Errno::RANGE, text));
        };
        place.copy_from_slice(shown.as_bytes());
        Ok(())
    })
}

/// `azekura_oid_parse`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_oid_parse(text: Text<'_>, oid: Out<'_, RawOid>) -> c_int {
    status("azekura_oid_parse", || {
        let (text, out) = (text.utf8("text")?, place(oid, "oid")?);
        let parsed: Oid = text
            .parse()
            .map_err(|what| Failure::with(Errno::INVAL, format!("'{text}': {what}")))?;
        out.write(RawOid::of(parsed));
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use azekura_proto::{ContainerId, ObjectClass, TargetId};

    use super::*;

    #[test]
    fn an_id_carries_chunk_size_and_tag() {
        for shift in CHUNK_BYTES_MIN.trailing_zeros()..=CHUNK_BYTES_MAX.trailing_zeros() {
            let bits = user_bits(1 << shift, TAG_MAX).ok().unwrap();
            let oid = Oid::with_user_bits(ContainerId(3), bits, ObjectClass::S4, TargetId(1), 77);
            let raw = RawOid::of(oid);
            assert_eq!(raw.chunk_bytes(), Some(1 << shift));
            assert_eq!(raw.tag(), TAG_MAX);
            assert_eq!(raw.oid(), Some(oid));
        }
        assert!(user_bits(12 * 1024, 0).is_err());
        assert!(user_bits(0, TAG_MAX + 1).is_err());
    }

    #[test]
    fn ids_of_files_are_not_taken() {
        let file = Oid::new(ContainerId(3), ObjectClass::S4, TargetId(1), 77);
        assert_eq!(RawOid::of(file).chunk_bytes(), None);
    }
}
