//! Entries of directories as they are listed: names, cookies, what a name may be.

use serde::{Deserialize, Serialize};

use crate::attr::Attr;
use crate::status::Status;
use crate::transaction::Entry;

/// One entry of a directory page.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DirEntry {
    /// The name.
    pub name: Vec<u8>,
    /// What it leads to.
    pub entry: Entry,
    /// Where a listing goes on after this entry. See [`DirCookie`].
    pub cookie: u64,
    /// Attributes, if they were asked for and are at hand.
    pub attr: Option<Attr>,
}

/// Where a directory listing goes on. Bits 62..51 hold the shard, 50..3 the upper 48 bits of the
/// name's hash, 2..0 the place among names with the same 48 bits. It depends on the name alone, so
/// it stays true while others insert and remove, and it never is 0, 1 or 2, which stand for the
/// start and the dot entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirCookie {
    /// The shard of the directory.
    pub shard: u16,
    /// Upper 48 bits of the name's hash, never 0.
    pub hash: u64,
    /// Place among equals, 0 to 7.
    pub place: u8,
}

impl DirCookie {
    /// The 48 bits that order the entries of a shard.
    pub fn order_bits(name_hash: u64) -> u64 {
        (name_hash >> 16).max(1)
    }

    /// As the number that readdir gives out.
    pub fn encode(self) -> u64 {
        u64::from(self.shard) << 51 | self.hash << 3 | u64::from(self.place & 7)
    }

    /// From the number that readdir gave out.
    pub fn decode(cookie: u64) -> Self {
        Self {
            shard: (cookie >> 51) as u16 & 0xfff,
            hash: cookie >> 3 & 0xffff_ffff_ffff,
            place: cookie as u8 & 7,
        }
    }
}

/// The kind of an entry whose object has an inode of this kind.
pub fn entry_of(attr: &Attr) -> Entry {
    Entry { oid: attr.oid, kind: attr.kind }
}

/// Whether a directory entry may have this name: 1 to 255 bytes, no slash, no zero byte, not a dot
/// entry.
///
/// # Errors
/// `NameTooLong` or `Invalid`.
pub fn check_name(name: &[u8]) -> Result<(), Status> {
    if name.len() > crate::limits::NAME_BYTES_MAX {
        return Err(Status::NameTooLong);
    }
    if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0)
    {
        return Err(Status::Invalid);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_lead_back_and_avoid_the_dots() {
        for (shard, hash, place) in [(0, 0, 0), (4095, u64::MAX, 7), (3, 0x1234_5678_9abc_def0, 1)]
        {
            let cookie = DirCookie { shard, hash: DirCookie::order_bits(hash), place };
            assert_eq!(DirCookie::decode(cookie.encode()), cookie);
            assert!(cookie.encode() > 2 && i64::try_from(cookie.encode()).is_ok());
        }
    }

    #[test]
    fn names_that_no_entry_may_have() {
        for name in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
            assert_eq!(check_name(name), Err(Status::Invalid));
        }
        assert_eq!(check_name(&[b'a'; 256]), Err(Status::NameTooLong));
        assert_eq!(check_name(&[b'a'; 255]), Ok(()));
    }
}
