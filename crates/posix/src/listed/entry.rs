//! What is told of a directory: entries, from when they are, and which part of it they make. Only data.

use std::time::Instant;

use azekura_proto::attr::FileKind;
use azekura_proto::{Attr, Oid};

/// One entry of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// The name.
    pub name: Vec<u8>,
    /// The object.
    pub oid: Oid,
    /// Its type.
    pub kind: FileKind,
    /// Where a listing goes on after this entry.
    pub cookie: u64,
    /// Attributes, as far as wanted and at hand. Of `.` and `..` never.
    pub attr: Option<Attr>,
}

/// A part of a directory's listing.
#[derive(Debug)]
pub(crate) struct Part {
    /// The cookie that the part comes after.
    pub(crate) after: u64,
    /// The cookie that it ends with, where that was decided beforehand.
    pub(crate) until: Option<u64>,
    /// The entries, with the attributes that came along.
    pub(crate) entries: Vec<Listed>,
    /// The directory ends with them.
    pub(crate) end: bool,
    /// What it was asked for.
    pub(crate) what: PartOf,
    /// Until when no name of it comes, goes or leads elsewhere, by leases of all its names that were there before it
    /// was listed.
    pub(crate) leased_until: Option<Instant>,
}

/// A part of a directory that came along, as whoever lists the directory gets it.
#[derive(Debug)]
pub(crate) struct Given {
    /// The entries, with the attributes that are still believed, if those were wanted.
    pub(crate) entries: Vec<Listed>,
    /// The directory ends with them.
    pub(crate) end: bool,
    /// From when all that it says may be believed.
    pub(crate) since: Instant,
}

/// What a part of a directory was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PartOf {
    /// A listing: whoever lists the directory has got the entries.
    Listing,
    /// A listing that is expected: nobody has got the entries yet.
    Gift,
    /// Looks at names that were listed before.
    Looks,
}

/// From when an answer is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    /// When it was asked for.
    pub(super) since: Instant,
    /// Own changes of names by then.
    pub(super) name_changes: u64,
}

/// Attributes as they were told.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) stamp: Stamp,
    /// Own changes of the object by then.
    pub(super) data_changes: u64,
    pub(super) attr: Attr,
}

/// An entry as a page has it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: Box<[u8]>,
    pub(super) oid: Oid,
    pub(super) kind: FileKind,
    pub(super) cookie: u64,
    pub(super) seen: Option<Seen>,
    /// Its attributes could not be had.
    pub(super) is_lost: bool,
}
