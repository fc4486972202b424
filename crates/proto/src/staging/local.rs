//! What programs of a job, or who traps their calls, ask the agent on their node. One message is one
//! packet of a `SOCK_SEQPACKET` socket (unix(7)), encoded by postcard: requests and replies in turn. The
//! agent answers nobody but the user who runs it (`SO_PEERCRED`).
//!
//! A node keeps what has come in directories of its own, one for each map: the map's *tree*. A path in a
//! tree leads to whole files only, so a hook tries the tree first and asks when there is nothing.
//! The agent may answer `Local` with the path that was asked for: what was missing is there now.

use serde::{Deserialize, Serialize};

use super::{Attributes, MapKind, NodeId};

/// Bytes of a message at most.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// Changes when the messages do.
pub const LOCAL_VERSION: u32 = 3;

/// What is asked. Paths are absolute, as the program means them: `.`, `..`, repeated slashes and symlinks
/// may be in them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LocalRequest {
    /// The first message of a connection. Answer: `Welcome`.
    Greet {
        /// [`LOCAL_VERSION`].
        version: u32,
    },
    /// A file is to be read, mapped or run: answered when all of it is there. Answer: `Local`, `Outside`.
    /// A directory is answered as by `List`.
    Read {
        /// The path.
        path: Vec<u8>,
        /// Whether a symlink at its end is followed.
        follow: bool,
    },
    /// Attributes of what may not be here. Answer: `Found`; `Local` if it is here, `Outside`.
    Look {
        /// The path.
        path: Vec<u8>,
        /// Whether a symlink at its end is followed.
        follow: bool,
    },
    /// A directory is to be read. Answer: `Local`, with a directory that holds all names, of what has come
    /// and what has not; `Outside`.
    List {
        /// The path.
        path: Vec<u8>,
    },
    /// A call is about to change something at a path. Answer: `Local`, with the path in the tree at which
    /// to do it; `Outside`; `Failed` with `EROFS` where nothing may be written.
    Change {
        /// The path; a symlink at its end is followed for `Change::Replace`, and if `Change::Write` says so.
        path: Vec<u8>,
        /// What is about to happen there.
        change: Change,
    },
    /// Files are wanted soon. A name that does not exist costs nothing. Answer: `Done`, at once.
    Prefetch {
        /// Files and directories; these with all that is in them.
        paths: Vec<Vec<u8>>,
    },
    /// A file is to be opened for reading. As `Read`, but of a large file that still comes the path may be one
    /// below `/proc` at which it can be opened and read as it arrives. Where that path leads nowhere, the
    /// agent's processes are not seen from the program's: then ask `Read`.
    Open {
        /// The path.
        path: Vec<u8>,
        /// Whether a symlink at its end is followed.
        follow: bool,
    },
}

/// What is about to be changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Change {
    /// Something new is made: a file, directory, link; or something takes this name.
    Create,
    /// A file is opened for writing, cut or its attributes are changed; its content is needed.
    Write {
        /// Whether a symlink at the end of the path is followed; if not, the symlink itself is changed.
        follow: bool,
    },
    /// A file is opened for writing and cut (`O_TRUNC`); its content is not needed. It may be new.
    Replace,
    /// Something is removed, or loses this name: it must be here, or a mark must stay that it is gone.
    Remove,
}

/// A map, as the agent has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LocalMap {
    /// The directory that programs name: absolute, without dots, repeated or trailing slashes.
    pub dir: Vec<u8>,
    /// What may be done in it.
    pub kind: MapKind,
    /// The directory on this node that has what has come: absolute.
    pub tree: Vec<u8>,
    /// The directory above all that `List` answers with for this map. What is below it stands for the same
    /// path below `dir`: a path relative to a descriptor of such a directory is one of the map.
    pub lists: Vec<u8>,
}

/// The answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LocalReply {
    /// To `Greet`.
    Welcome {
        /// This node.
        node: NodeId,
        /// All maps.
        maps: Vec<LocalMap>,
        /// The device (`st_dev`) that files are on which are read as they arrive, if there are such. It is to
        /// be told to programs as that of the tree: the inode number is the one that a file will have there.
        arriving: Option<u64>,
    },
    /// The call is to be made with this path of the node's own file system.
    Local(Vec<u8>),
    /// The path leads out of all maps, to this path: the call is to be made there.
    Outside(Vec<u8>),
    /// The attributes. What has not come has no inode number of its own: the agent gives it one that stays.
    Found {
        /// The attributes.
        attributes: Attributes,
        /// The inode number.
        inode: u64,
        /// What may be done in the map that it lies in, which need not be the one that the path names.
        kind: MapKind,
    },
    /// The call fails with this number of errno.
    Failed(i32),
    /// Nothing more to say.
    Done,
}

/// A message as a packet; `None` if it is longer than [`MESSAGE_BYTES_MAX`].
pub fn encode<T: Serialize>(message: &T) -> Option<Vec<u8>> {
    postcard::to_stdvec(message).ok().filter(|bytes| bytes.len() <= MESSAGE_BYTES_MAX)
}

/// A packet's message; `None` if it is none.
pub fn decode<T: for<'de> Deserialize<'de>>(packet: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(packet) {
        Ok((message, [])) => Some(message),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_whole_and_alone_in_its_packet() {
        let asked = LocalRequest::Read { path: b"/a/\xff\n".to_vec(), follow: true };
        let packet = encode(&asked).unwrap();
        assert_eq!(decode(&packet), Some(asked));
        assert_eq!(decode::<LocalRequest>(&packet[..packet.len() - 1]), None);
        assert_eq!(decode::<LocalRequest>(&[&packet[..], b"x"].concat()), None);
        let long = LocalRequest::List { path: vec![b'a'; MESSAGE_BYTES_MAX] };
        assert_eq!(encode(&long), None);
    }
}
