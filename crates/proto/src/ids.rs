//! Identifiers. Each is a newtype, so that a target can never stand where an engine is meant. This
//! module owns how an object id is laid out in bits; nothing else may take an id apart.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::class::ObjectClass;

/// A pool, named once and for all when it is created.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PoolId(pub [u8; 16]);

impl PoolId {
    /// The pool id of an engine that belongs to no pool yet.
    pub const NONE: Self = Self([0; 16]);
}

/// One client process or mount, for as long as it lives. Drawn at random by the client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SessionId(pub [u8; 16]);

/// One run of an engine process. A client that meets a new incarnation re-registers its open
/// files and locks, since the engine keeps those in memory only. The upper half stays the same from run to run as
/// long as the engine loses nothing of what it has answered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Incarnation(pub u64);

impl Incarnation {
    /// A run, drawn at random, in a time without a loss.
    pub const fn new(lossless: u32, run: u32) -> Self {
        Self((lossless as u64) << 32 | run as u64)
    }

    /// Whether an engine that had the one run and has the other now may have lost what was not synced.
    pub const fn may_have_lost(self, before: Self) -> bool {
        self.0 >> 32 != before.0 >> 32
    }
}

/// A target of the pool: one store and the requests for it. The pool map counts them from 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct TargetId(pub u16);

/// An engine process of the pool. The pool map counts them from 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct EngineId(pub u16);

/// A container: one object address space, and one file system.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct ContainerId(pub u32);

/// A 128-bit object id.
///
/// | bits | what |
/// |---|---|
/// | `hi` 63..32 | container |
/// | `hi` 31..0 | free for users of the object API; 0 in the file system |
/// | `lo` 63..56 | object class |
/// | `lo` 55..40 | home target |
/// | `lo` 39..0 | serial number, drawn by the home target and never drawn again |
///
/// In the file system `lo` alone tells objects of one container apart, so it serves as the inode
/// number: a FUSE node or NFS handle needs no table and no parent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Oid {
    hi: u64,
    lo: u64,
}

/// Serial numbers are 40 bits wide.
pub const SERIAL_MAX: u64 = (1 << 40) - 1;

impl Oid {
    /// The file system object with this class, home and serial number.
    ///
    /// # Panics
    /// If `serial` exceeds [`SERIAL_MAX`]; the allocator stops with `NoSpace` before that.
    pub fn new(container: ContainerId, class: ObjectClass, home: TargetId, serial: u64) -> Self {
        Self::with_user_bits(container, 0, class, home, serial)
    }

    /// An object whose id carries 32 bits of the caller's own.
    ///
    /// # Panics
    /// If `serial` exceeds [`SERIAL_MAX`].
    pub fn with_user_bits(
        container: ContainerId,
        user: u32,
        class: ObjectClass,
        home: TargetId,
        serial: u64,
    ) -> Self {
        assert!(serial <= SERIAL_MAX, "serial number {serial} is wider than 40 bits");
        Self {
            hi: u64::from(container.0) << 32 | u64::from(user),
            lo: u64::from(class.code()) << 56 | u64::from(home.0) << 40 | serial,
        }
    }

    /// The object of `container` with this inode number; `None` if the number names no class.
    pub fn from_inode_number(container: ContainerId, number: u64) -> Option<Self> {
        ObjectClass::from_code((number >> 56) as u8)?;
        Some(Self { hi: u64::from(container.0) << 32, lo: number })
    }

    /// The inode number: unique among the file system objects of one container.
    pub fn inode_number(self) -> u64 {
        self.lo
    }

    /// The container that the object lives in.
    pub fn container(self) -> ContainerId {
        ContainerId((self.hi >> 32) as u32)
    }

    /// The class: over how many targets the object is sharded.
    pub fn class(self) -> ObjectClass {
        // A peer may send any number; an object of a class that there is not is found nowhere.
        ObjectClass::from_code((self.lo >> 56) as u8).unwrap_or(ObjectClass::S1)
    }

    /// The target that holds the inode and shard 0.
    pub fn home(self) -> TargetId {
        TargetId((self.lo >> 40) as u16)
    }

    /// The id as 16 big-endian bytes, so that byte order is id order.
    pub fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.hi) << 64 | u128::from(self.lo)).to_be_bytes()
    }

    /// The reverse of [`Oid::to_bytes`]; `None` for a length other than 16 or an unknown class.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let value = u128::from_be_bytes(bytes.try_into().ok()?);
        let (hi, lo) = ((value >> 64) as u64, value as u64);
        ObjectClass::from_code((lo >> 56) as u8)?;
        Some(Self { hi, lo })
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}.{:016x}", self.hi, self.lo)
    }
}

impl fmt::Debug for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Oid {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = "an object id is 16 hex digits, a dot, and 16 hex digits";
        let (hi, lo) = text.split_once('.').ok_or(form)?;
        if hi.len() != 16 || lo.len() != 16 {
            return Err(form);
        }
        let hi = u64::from_str_radix(hi, 16).map_err(|_| form)?;
        let lo = u64::from_str_radix(lo, 16).map_err(|_| form)?;
        ObjectClass::from_code((lo >> 56) as u8).ok_or("unknown object class in the id")?;
        Ok(Self { hi, lo })
    }
}

macro_rules! hex_id {
    ($name:ident, $what:literal) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", u128::from_be_bytes(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = &'static str;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                if text.len() != 32 {
                    return Err(concat!("a ", $what, " is 32 hex digits"));
                }
                u128::from_str_radix(text, 16)
                    .map(|value| Self(value.to_be_bytes()))
                    .map_err(|_| concat!("a ", $what, " is 32 hex digits"))
            }
        }
    };
}

hex_id!(PoolId, "pool id");
hex_id!(SessionId, "session id");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_oid_gives_back_what_it_was_made_of() {
        let oid = Oid::with_user_bits(
            ContainerId(7),
            0xdead_beef,
            ObjectClass::SX,
            TargetId(65_535),
            SERIAL_MAX,
        );
        assert_eq!(oid.container(), ContainerId(7));
        assert_eq!(oid.class(), ObjectClass::SX);
        assert_eq!(oid.home(), TargetId(65_535));
        assert_eq!(Oid::from_bytes(&oid.to_bytes()), Some(oid));
        assert_eq!(oid.to_string().parse(), Ok(oid));
    }

    #[test]
    fn an_inode_number_leads_back_to_its_object() {
        let oid = Oid::new(ContainerId(3), ObjectClass::S4, TargetId(2), 99);
        assert_eq!(Oid::from_inode_number(ContainerId(3), oid.inode_number()), Some(oid));
        assert_eq!(Oid::from_inode_number(ContainerId(3), u64::MAX), None);
    }
}
