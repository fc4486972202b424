//! What the agent is asked before a call that the tree alone cannot answer. Owns the order of questions for
//! each kind of call, and which errors follow from the answers; never makes the call itself.

use std::ffi::{CString, c_int};

use azekura_posix::{Errno, Result};
use azekura_proto::staging::local::{Change, LocalReply, LocalRequest};

use super::found::Found;
use super::job::{Job, Place};
use super::link;

/// What has to be so before a call is made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// Its attributes are known.
    Look { follow: bool },
    /// All of it is here.
    Read { follow: bool },
    /// It can be opened for reading; of a large file some may still come.
    Content { follow: bool },
    /// It is a directory, and here with all names.
    List,
    /// It is not there, and may be made.
    Make,
    /// Something may take this name.
    Take,
    /// It may be removed.
    Remove,
    /// It may lose this name to another: all of it is here.
    Move,
    /// It is here and may be changed.
    Write { follow: bool },
    /// It is opened with these flags to be changed, or made.
    Open(c_int),
}

/// What came of it.
pub(super) enum Settled {
    /// The call is to be made at this path.
    At(CString),
    /// It has not come; this is known of it.
    Found(Found),
}

/// A name that nobody gives a file, in whose place one without a name is made.
const NAMELESS: &[u8] = b"/.azekura-nameless";

impl Settled {
    fn from(reply: LocalReply, place: &Place<'_>) -> Result<Self> {
        match reply {
            LocalReply::Local(path) | LocalReply::Outside(path) => {
                CString::new(path).map(Self::At).map_err(|_| Errno::IO)
            }
            LocalReply::Found { attributes, inode, kind } => {
                Ok(Self::Found(Found { attributes, inode, kind, map: place.map() }))
            }
            LocalReply::Failed(errno) => Err(Errno::from_raw_os_error(errno)),
            // Answers to other questions.
            LocalReply::Welcome { .. } | LocalReply::Done => Err(Errno::IO),
        }
    }
}

impl Job {
    fn question(&self, request: &LocalRequest, place: &Place<'_>) -> Result<Settled> {
        Settled::from(link::ask(self.id, request)?, place)
    }

    fn look(&self, place: &Place<'_>, follow: bool) -> Result<Settled> {
        self.question(&LocalRequest::Look { path: place.path.to_vec(), follow }, place)
    }

    fn read(&self, place: &Place<'_>, follow: bool) -> Result<Settled> {
        self.question(&LocalRequest::Read { path: place.path.to_vec(), follow }, place)
    }

    fn content(&self, place: &Place<'_>, follow: bool) -> Result<Settled> {
        self.question(&LocalRequest::Open { path: place.path.to_vec(), follow }, place)
    }

    fn change(&self, place: &Place<'_>, change: Change) -> Result<Settled> {
        self.question(&LocalRequest::Change { path: place.path.to_vec(), change }, place)
    }

    /// Asks what has to be asked.
    pub(super) fn settle(&self, need: Need, place: &Place<'_>) -> Result<Settled> {
        match need {
            Need::Look { follow } => self.look(place, follow),
            Need::Read { follow } => self.read(place, follow),
            Need::Content { follow } => self.content(place, follow),
            Need::List => self.question(&LocalRequest::List { path: place.path.to_vec() }, place),
            Need::Make => self.make(place),
            Need::Take => self.change(place, Change::Create),
            Need::Remove => self.remove(place),
            Need::Move => self.give_away(place),
            Need::Write { follow } => self.change(place, Change::Write { follow }),
            Need::Open(flags) => self.open(place, flags),
        }
    }

    /// What is there already is for the kernel to refuse, if it is here, and for us if not.
    fn make(&self, place: &Place<'_>) -> Result<Settled> {
        match self.look(place, false) {
            Err(Errno::NOENT) => self.change(place, Change::Create),
            Ok(Settled::Found(_)) => Err(Errno::EXIST),
            other => other,
        }
    }

    /// A name that is nowhere is told before anything is marked as gone.
    fn remove(&self, place: &Place<'_>) -> Result<Settled> {
        match self.look(place, false)? {
            Settled::At(path) if !self.is_own(&path) => Ok(Settled::At(path)),
            _ => self.change(place, Change::Remove),
        }
    }

    /// A directory whose files cannot all be had is copied by programs, as between file systems.
    fn give_away(&self, place: &Place<'_>) -> Result<Settled> {
        match self.remove(place) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => Err(Errno::XDEV),
            other => other,
        }
    }

    fn open(&self, place: &Place<'_>, flags: c_int) -> Result<Settled> {
        let has = |all: c_int| flags & all == all;
        let follow = !has(libc::O_NOFOLLOW);
        if has(libc::O_TMPFILE) {
            return self.open_nameless(place);
        }
        if has(libc::O_CREAT | libc::O_EXCL) {
            return self.make(place);
        }
        if has(libc::O_TRUNC) && follow {
            if !has(libc::O_CREAT) {
                self.look(place, true)?;
            }
            return self.change(place, Change::Replace);
        }
        let reads = flags & libc::O_ACCMODE == libc::O_RDONLY && !has(libc::O_TRUNC);
        let opened = if reads {
            self.content(place, follow)
        } else {
            self.change(place, Change::Write { follow })
        };
        match opened {
            Err(Errno::NOENT) if has(libc::O_CREAT) => self.change(place, Change::Create),
            other => other,
        }
    }

    /// A file without a name is made in the directory in the tree, which the agent makes for a file in it.
    fn open_nameless(&self, place: &Place<'_>) -> Result<Settled> {
        let path = [place.path, NAMELESS].concat();
        let in_it = Place { below: place.below, path: &path };
        match self.change(&in_it, Change::Create)? {
            Settled::At(path) => {
                let path = path.to_bytes();
                let dir = path.strip_suffix(NAMELESS).unwrap_or(path);
                CString::new(dir).map(Settled::At).map_err(|_| Errno::IO)
            }
            found @ Settled::Found(_) => Ok(found),
        }
    }

    /// The directory that programs name for the tree that a path lies in.
    pub(super) fn tree_at(&self, path: Option<&CString>) -> Option<&[u8]> {
        self.maps.find_own(path?.to_bytes()).map(|(map, _)| map.dir.as_slice())
    }

    /// Whether the kernel finds this in the agent's own directories.
    pub(super) fn is_own(&self, path: &CString) -> bool {
        self.maps.find_own(path.to_bytes()).is_some()
    }
}
