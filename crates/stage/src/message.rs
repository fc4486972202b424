//! What the processes of a job say to each other, in postcard frames of `azekura_wire`. Owns the names of
//! contents and the messages: those of the control connection between the front and an agent, which
//! both send at any time, and those by which a content is fetched from whoever has it.

use azekura_proto::limits::{FRAME_BODY_BYTES_MAX, NAME_BYTES_MAX};
use azekura_proto::staging::{Attributes, NodeId};
use azekura_proto::{FileKind, Timestamp};
use serde::{Deserialize, Serialize};

use crate::stamp::Stamp;

/// Parts of one content at most.
pub(crate) const PARTS_MAX: usize = 512;
/// Files up to this size, in bytes, travel together.
pub(crate) const SMALL_BYTES_MAX: u64 = 64 * 1024;
/// Contents up to this size, in bytes, stay in memory until they are whole.
pub(crate) const BUNDLE_BYTES_MAX: u64 = 1 << 20;
/// The paths of one bundle, in bytes: they have to fit a frame.
pub(crate) const BUNDLE_NAMES_BYTES_MAX: usize = FRAME_BODY_BYTES_MAX as usize / 2;
/// What a place takes in a message beside its path, in bytes, with what is said of it; at most.
pub(crate) const PLACE_BYTES: usize = 64;
/// The largest piece, in bytes.
pub(crate) const PIECE_BYTES_MAX: u32 = 256 * 1024;

/// One version of a file, or of a bundle of small files. Given by the front, never used again.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub(crate) struct ContentId(pub(crate) u64);

/// Who gives a content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Supplier {
    /// The front, from the source.
    Front,
    /// An agent, from what has come to it.
    Node(NodeId),
}

/// A place in the source: the map's place in the list of maps, and the path below it, without a leading
/// slash; empty for the mapped directory itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) map: u16,
    pub(crate) path: Vec<u8>,
}

/// Whether this can be the name of something in a directory: homes that are no file systems may say others.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..")
        && name.len() <= NAME_BYTES_MAX
        && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

impl Place {
    /// Whether it is one of so many maps, and below it by names alone.
    pub(crate) fn is_sound(&self, maps: usize) -> bool {
        usize::from(self.map) < maps
            && (self.path.is_empty() || self.path.split(|byte| *byte == b'/').all(is_name))
    }

    /// A name in the directory that stands here.
    pub(crate) fn join(&self, name: &[u8]) -> Self {
        let path = match &self.path[..] {
            [] => name.to_vec(),
            above => [above, b"/", name].concat(),
        };
        Self { map: self.map, path }
    }
}

/// A file in a content.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) place: Place,
    pub(crate) attributes: Attributes,
}

/// What a content is: its parts, one behind the other, cut into pieces of one length.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ContentDescription {
    pub(crate) id: ContentId,
    pub(crate) piece_bytes: u32,
    pub(crate) parts: Vec<Part>,
}

impl ContentDescription {
    /// Whether a node can take it: within all bounds, and for places in its so many maps.
    pub(crate) fn is_sound(&self, maps: usize) -> bool {
        let mut sizes = self.parts.iter().map(|part| part.attributes.size);
        let bytes = sizes.try_fold(0_u64, u64::checked_add);
        (1..=PIECE_BYTES_MAX).contains(&self.piece_bytes)
            && (1..=PARTS_MAX).contains(&self.parts.len())
            && self
                .parts
                .iter()
                .all(|part| part.place.is_sound(maps) && !part.place.path.is_empty())
            && bytes.is_some_and(|sum| sum.div_ceil(self.piece_bytes.into()) < u32::MAX.into())
    }

    /// Length in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.attributes.size).sum()
    }

    pub(crate) fn pieces(&self) -> u32 {
        self.bytes().div_ceil(u64::from(self.piece_bytes)) as u32
    }

    /// Length of a piece, in bytes.
    pub(crate) fn bytes_of(&self, index: u32) -> usize {
        let from = self.offset_of(index);
        self.bytes().saturating_sub(from).min(u64::from(self.piece_bytes)) as usize
    }

    pub(crate) fn offset_of(&self, index: u32) -> u64 {
        u64::from(index) * u64::from(self.piece_bytes)
    }

    /// Whether it is kept in memory until it is whole.
    pub(crate) fn is_small(&self) -> bool {
        self.bytes() <= BUNDLE_BYTES_MAX
    }
}

/// The first message of whoever has dialled, after the handshake.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Opening {
    /// The front dials an agent: this is its control connection.
    Control {
        /// Where the agents listen.
        nodes: Vec<(NodeId, String)>,
        /// The port at which the front listens for fetches.
        front_port: u16,
    },
    /// A receiver dials a supplier.
    Fetch,
}

/// What a receiver asks on a connection that it has opened.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum FetchRequest {
    /// All pieces from this one on. Asked again for the same content: from there, instead.
    From { content: ContentId, piece: u32 },
    /// No more of it.
    Enough { content: ContentId },
    /// As `From`, by a receiver on the supplier's host: what it can read at home itself need not be sent, only
    /// said, a few pieces ahead of those that it says it has taken.
    Beside { content: ContentId, piece: u32 },
    /// All pieces before this one have been read at home.
    Taken { content: ContentId, piece: u32 },
}

/// What a supplier says.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Supplied {
    /// A piece; its bytes follow as bulk.
    Piece { content: ContentId, index: u32, checksum: u64 },
    /// That was all of it.
    End { content: ContentId, digest: u64 },
    /// The supplier does not have it, or not any more.
    Gone { content: ContentId },
    /// There is nothing to send at the moment.
    Beat,
    /// A piece that the receiver is to read at home: whether it is the same there, the checksum tells.
    AtHome { content: ContentId, index: u32, checksum: u64 },
}

/// Pieces that are said ahead of what has been read at home: so few that what the supplier has read is still in
/// memory.
pub(crate) const AT_HOME_AHEAD: u32 = 8;

/// A name in a directory of the source, and what is known of it.
pub(crate) type Entry = (Vec<u8>, Attributes);

/// From the front, on the control connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ToAgent {
    Beat,
    /// A page of a directory, with itself under the empty name where it is a map's own; or the number of the errno why there is none.
    Listing {
        place: Place,
        page: Result<Vec<Entry>, i32>,
        is_last: bool,
    },
    /// A content is to be fetched.
    Take {
        content: ContentDescription,
        supplier: Supplier,
    },
    /// It is to be fetched from another from now on.
    Resupply {
        content: ContentId,
        supplier: Supplier,
    },
    /// It will never be whole.
    Abandon {
        content: ContentId,
    },
    /// A file that was wanted does not come.
    Refuse {
        place: Place,
        errno: i32,
    },
    /// Of files that go home.
    Out(Order),
    /// The job is over.
    End,
}

/// From an agent, on the control connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ToFront {
    Beat,
    /// A directory is asked for.
    List {
        place: Place,
    },
    /// Files are wanted, of so many bytes as far as the agent knows.
    Want {
        files: Vec<(Place, u64)>,
    },
    /// So many pieces of contents are here, since this was last said; `u32::MAX` for all with their end.
    Progress {
        pieces: Vec<(ContentId, u32)>,
    },
    /// All of a content is in the tree; how fast its supplier's connection is, 0 if that is not known.
    Arrived {
        content: ContentId,
        bytes_per_second: u64,
    },
    /// The supplier of a content gives no more.
    SupplierLost {
        content: ContentId,
        supplier: Supplier,
        at_piece: u32,
    },
    /// A piece was not what its checksum says; it has been asked for again.
    WrongPiece {
        content: ContentId,
        index: u32,
        culprit: Supplier,
    },
    /// The node has no room for a content: programs read it through, and others cannot fetch it there.
    ReadThrough {
        content: ContentId,
        why: String,
    },
    /// The node cannot keep a content.
    Failed {
        content: ContentId,
        errno: i32,
        why: String,
    },
    /// Programs have closed files that they wrote; said once, until the front asks which.
    Closed,
    /// Of files that go home.
    Out(Answer),
}

/// Contents that agents give have numbers from here on; each agent counts for itself.
pub(crate) const FIRST_OUT: ContentId = ContentId(1 << 63);
/// Contents that a node is asked for at once, at most.
pub(crate) const GIVEN_MAX: usize = 3;

/// What an agent is asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// What is to go home: the first page of it.
    List { ask: u32, of: Listing },
    /// Files that are closed are to be noticed from now on.
    Watch,
    /// The next page.
    More { ask: u32 },
    /// A content is to be made of these files: several small ones, or a large one.
    Give { ask: u32, files: Vec<Place>, is_small: bool },
    /// A content is fetched, or not wanted any more.
    Forget { content: ContentId },
    /// What now stands at home of this node.
    AtHome { files: Vec<(Place, Home)> },
    /// Whether the node's directory outlives its agent: files in it have still to go home.
    Keep { keeps: bool },
}

/// Of what it is to be said what is to go home.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Listing {
    /// Of all.
    All,
    /// Of the files alone that programs have closed since this was asked.
    Closed,
    /// Of these places, with the directories above them.
    These { places: Vec<Place> },
}

/// What an agent answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Page { ask: u32, entries: Vec<Leaving>, is_last: bool },
    Given { ask: u32, given: Given },
}

/// What became of files that were asked for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Given {
    pub(crate) content: Option<ContentDescription>,
    /// Of the parts of the content, in which version they are given.
    pub(crate) homes: Vec<Home>,
    /// Of the parts of the content, what else they have.
    pub(crate) extras: Vec<Extra>,
    /// These cannot be read; the number of the errno.
    pub(crate) failed: Vec<(Place, i32)>,
    /// These are not small any more.
    pub(crate) grown: Vec<Place>,
}

/// What a file has beside its attributes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Extra {
    /// Of the `user.` name space, with their names.
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// User and group.
    pub(crate) owner: (u32, u32),
}

impl Extra {
    /// About how long it is in a message.
    pub(crate) fn bytes(&self) -> usize {
        self.xattrs.iter().map(|(name, value)| name.len() + value.len() + 16).sum()
    }
}

/// What stands at home in the place of something on a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Home {
    /// This version.
    Version(Stamp),
    /// One that cannot be told from others.
    Some,
    /// Nothing any more.
    Nothing,
}

/// Something that is to go home.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Leaving {
    pub(crate) place: Place,
    pub(crate) what: What,
    /// It has gone home already, as it is.
    pub(crate) is_home: bool,
}

/// What stands on the node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum What {
    File {
        /// Its length when it was seen.
        bytes: u64,
        /// The same for all of its names on the node.
        inode: u64,
        /// Which version it was then.
        home: Home,
    },
    Directory {
        mode: u32,
        mtime: Timestamp,
    },
    Link {
        text: Vec<u8>,
        home: Home,
    },
    /// It has been removed. Replaced: something of another kind, or below such a thing, is in its place.
    Removed {
        is_replaced: bool,
    },
    /// What cannot be sent.
    Odd {
        kind: FileKind,
    },
    /// A directory that the agent cannot read.
    Unreadable {
        errno: i32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(sizes: &[u64]) -> ContentDescription {
        let part = |size: &u64| Part {
            place: Place { map: 0, path: b"f".to_vec() },
            attributes: Attributes {
                kind: FileKind::Regular,
                mode: 0o644,
                size: *size,
                mtime: Timestamp { secs: 0, nanos: 0 },
                link: Vec::new(),
            },
        };
        let parts = sizes.iter().map(part).collect();
        ContentDescription { id: ContentId(1), piece_bytes: 65_536, parts }
    }

    #[test]
    fn a_content_leads_nowhere_but_into_a_map() {
        assert!(content(&[1, 0]).is_sound(1));
        assert!(!content(&[1]).is_sound(0) && !content(&[]).is_sound(1));
        assert!(!content(&[u64::MAX, 1]).is_sound(1) && !content(&[u64::MAX]).is_sound(1));
        assert!(!ContentDescription { piece_bytes: 0, ..content(&[1]) }.is_sound(1));
        assert!(!ContentDescription { piece_bytes: 1 << 30, ..content(&[1]) }.is_sound(1));
        for path in ["", "/f", "f/", "a//f", ".", "a/../f", "a\0", &"x".repeat(256)] {
            let mut content = content(&[1]);
            content.parts[0].place.path = path.into();
            assert!(!content.is_sound(1), "{path}");
        }
    }

    #[test]
    fn pieces_cover_a_content_and_nothing_else() {
        for sizes in [&[][..], &[0], &[1], &[65_536], &[65_537, 3], &[1 << 24, 1]] {
            let content = content(sizes);
            let covered: u64 =
                (0..content.pieces()).map(|index| content.bytes_of(index) as u64).sum();
            assert_eq!(covered, content.bytes());
            assert_eq!(content.bytes_of(content.pieces()), 0);
        }
    }
}
