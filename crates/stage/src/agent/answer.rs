//! Answers to the programs of a node. Owns what each request means; it waits for what has to come, and never
//! answers with a path at which part of a file stands.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use azekura_proto::FileKind;
use azekura_proto::staging::NodeId;
use azekura_proto::staging::local::{LOCAL_VERSION, LocalMap, LocalReply, LocalRequest};
use rustix::io::Errno;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::agent::names::{Seen, errno_of};
use crate::agent::wants::Wants;
use crate::message::{Place, ToFront};
use crate::outbox::Outbox;
use crate::resolve::{Led, resolve};

/// What answers the programs of a node.
pub(crate) struct Answers {
    pub(crate) node: NodeId,
    pub(crate) seen: Arc<Seen>,
    pub(crate) wants: Arc<Wants>,
    pub(crate) outbox: Outbox<ToFront>,
}

type Answer = Result<LocalReply, i32>;

impl Answers {
    pub(crate) fn answer(&self, request: LocalRequest) -> LocalReply {
        let answer = match request {
            LocalRequest::Greet { version } => self.greet(version),
            LocalRequest::Read { path, follow } => self.read(&path, follow),
            LocalRequest::Look { path, follow } => self.look(&path, follow),
            LocalRequest::List { .. }
            | LocalRequest::Change { .. }
            | LocalRequest::Prefetch { .. } => Err(Errno::NOSYS.raw_os_error()),
        };
        answer.unwrap_or_else(LocalReply::Failed)
    }

    fn greet(&self, version: u32) -> Answer {
        if version != LOCAL_VERSION {
            return Err(Errno::PROTO.raw_os_error());
        }
        let tree = &self.seen.tree;
        let maps = self.seen.maps.iter().enumerate().map(|(map, description)| {
            let root = Place { map: map as u16, path: Vec::new() };
            LocalMap {
                dir: description.dir.clone(),
                kind: description.kind,
                tree: bytes_of(&tree.path_of(&root)),
                lists: bytes_of(&tree.list_of(&root)),
            }
        });
        Ok(LocalReply::Welcome { node: self.node, maps: maps.collect() })
    }

    fn read(&self, path: &[u8], follow: bool) -> Answer {
        let (place, found) = match self.lead(path, follow)? {
            Led::Outside(path) => return Ok(LocalReply::Outside(path)),
            Led::Inside(place, found) => (place, found.ok_or(Errno::NOENT.raw_os_error())?),
        };
        match found.kind {
            FileKind::Regular => self.bring(&place, found.size)?,
            _ => return Err(Errno::OPNOTSUPP.raw_os_error()),
        }
        Ok(self.local(&place))
    }

    fn look(&self, path: &[u8], follow: bool) -> Answer {
        let (place, found) = match self.lead(path, follow)? {
            Led::Outside(path) => return Ok(LocalReply::Outside(path)),
            Led::Inside(place, found) => (place, found.ok_or(Errno::NOENT.raw_os_error())?),
        };
        if self.is_here(&place)? {
            return Ok(self.local(&place));
        }
        Ok(LocalReply::Found { attributes: found, inode: inode_of(&place) })
    }

    fn lead(&self, path: &[u8], follow: bool) -> Result<Led, i32> {
        resolve(path, follow, &self.seen.dirs, &*self.seen)
    }

    fn local(&self, place: &Place) -> LocalReply {
        LocalReply::Local(bytes_of(&self.seen.tree.path_of(place)))
    }

    fn is_here(&self, place: &Place) -> Result<bool, i32> {
        let found = self.seen.tree.look(place).map_err(|error| errno_of(&error))?;
        Ok(found.is_some())
    }

    /// Waits until a file is in the tree.
    fn bring(&self, place: &Place, bytes: u64) -> Result<(), i32> {
        if self.is_here(place)? {
            return Ok(());
        }
        let (waiting, is_first) = self.wants.join(place);
        if is_first {
            // It may have come between the look and the joining; then nobody else would say so.
            if self.is_here(place)? {
                self.wants.decide(place, Ok(()));
            } else {
                self.outbox.say(ToFront::Want { files: vec![(place.clone(), bytes)] });
            }
        }
        waiting.wait()
    }
}

fn bytes_of(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

/// The inode number of what has not come: the same for a place whenever it is asked for, and none that a
/// file system gives, which count from below.
fn inode_of(place: &Place) -> u64 {
    xxh3_64_with_seed(&place.path, u64::from(place.map)) | 1 << 63
}
