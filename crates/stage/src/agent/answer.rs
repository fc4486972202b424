//! Answers to the programs of a node. Owns what each request means; it waits for what has to come, and never
//! answers with a path at which part of a file stands.

use std::collections::HashSet;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use azekura_proto::FileKind;
use azekura_proto::staging::local::{Change, LOCAL_VERSION, LocalMap, LocalReply, LocalRequest};
use azekura_proto::staging::{Attributes, MapKind, NodeId};
use parking_lot::Mutex;
use rustix::io::Errno;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::agent::arriving::{self, Arriving};
use crate::agent::bring::Bring;
use crate::agent::lists::Lists;
use crate::agent::names::{errno_of, split};
use crate::agent::tree::Tree;
use crate::agent::wants::Ready;
use crate::message::Place;
use crate::resolve::{Led, Names as _, resolve};

/// Requests for files that are wanted soon which wait; more are forgotten, which costs nothing.
const PREFETCHES_MAX: usize = 256;

/// What answers the programs of a node.
pub(crate) struct Answers {
    node: NodeId,
    bring: Bring,
    lists: Lists,
    /// Directories whose attributes programs change: they look as they are here from then on.
    changed_dirs: Mutex<HashSet<Place>>,
    prefetches: SyncSender<Vec<Vec<u8>>>,
    /// Where files are read as they come, if they are.
    arriving: Option<Arc<Arriving>>,
}

/// Paths of files that are wanted soon, as they come in.
pub(crate) struct Prefetches(Receiver<Vec<Vec<u8>>>);

type Answer = Result<LocalReply, i32>;

impl Answers {
    pub(crate) fn new(
        node: NodeId,
        bring: Bring,
        arriving: Option<Arc<Arriving>>,
    ) -> (Self, Prefetches) {
        let lists = Lists::new(bring.seen.clone());
        let (prefetches, wanted) = sync_channel(PREFETCHES_MAX);
        let changed_dirs = Mutex::default();
        (Self { node, bring, lists, changed_dirs, prefetches, arriving }, Prefetches(wanted))
    }

    pub(crate) fn answer(&self, request: LocalRequest) -> LocalReply {
        let answer = match request {
            LocalRequest::Greet { version } => self.greet(version),
            LocalRequest::Read { path, follow } => self.read(&path, follow),
            LocalRequest::Open { path, follow } => self.open(&path, follow),
            LocalRequest::Look { path, follow } => self.look(&path, follow),
            LocalRequest::List { path } => self.list(&path),
            LocalRequest::Change { path, change } => self.change(&path, change),
            LocalRequest::Prefetch { paths } => {
                // If too many wait this is forgotten.
                let _ = self.prefetches.try_send(paths);
                Ok(LocalReply::Done)
            }
        };
        answer.unwrap_or_else(LocalReply::Failed)
    }

    fn greet(&self, version: u32) -> Answer {
        if version != LOCAL_VERSION {
            return Err(Errno::PROTO.raw_os_error());
        }
        let tree = &self.bring.seen.tree;
        let maps = self.bring.seen.maps.iter().enumerate().map(|(map, description)| {
            let root = Place { map: map as u16, path: Vec::new() };
            LocalMap {
                dir: description.dir.clone(),
                kind: description.kind,
                tree: bytes_of(&tree.path_of(&root)),
                lists: bytes_of(&tree.list_of(&root)),
            }
        });
        let arriving = self.arriving.as_ref().map(|arriving| arriving.device());
        Ok(LocalReply::Welcome { node: self.node, maps: maps.collect(), arriving })
    }

    fn read(&self, path: &[u8], follow: bool) -> Answer {
        match self.lead(path, follow)? {
            Led::Outside(path) => Ok(LocalReply::Outside(path)),
            Led::Inside(_, None) => Err(Errno::NOENT.raw_os_error()),
            Led::Inside(place, Some(found)) => match found.kind {
                FileKind::Directory => self.list_place(&place),
                FileKind::Regular => {
                    self.bring.bring(vec![(place.clone(), found.size)])?;
                    Ok(self.local(&place))
                }
                // What a program has made on this node itself.
                _ if self.bring.is_here(&place)? => Ok(self.local(&place)),
                FileKind::Symlink => self.read_link(&place, &found),
                _ => Err(Errno::NXIO.raw_os_error()),
            },
        }
    }

    /// A symlink itself, to be opened (`O_PATH`) or linked. Where programs only read, the kernel follows what it
    /// finds in the tree, and symlinks count from the map: there is one among the names, though.
    fn read_link(&self, place: &Place, found: &Attributes) -> Answer {
        if self.bring.seen.kind(place) != MapKind::ReadOnly {
            self.bring.make_link(place, &found.link)?;
            return Ok(self.local(place));
        }
        self.lists.make(&split(place).0)?;
        Ok(LocalReply::Local(bytes_of(&self.bring.seen.tree.list_of(place))))
    }

    /// As `read`, but a large file of a map that is only read need not be whole.
    fn open(&self, path: &[u8], follow: bool) -> Answer {
        let Some(arriving) = &self.arriving else { return self.read(path, follow) };
        match self.lead(path, follow)? {
            Led::Inside(place, Some(found))
                if found.kind == FileKind::Regular
                    && found.size >= arriving::BYTES_MIN
                    && self.bring.seen.kind(&place) == MapKind::ReadOnly =>
            {
                match self.bring.bring_begun(&place, found.size)? {
                    Ready::Whole => Ok(self.local(&place)),
                    Ready::Coming(content) => {
                        let path = arriving.path_of(content);
                        path.map(LocalReply::Local).ok_or(Errno::IO.raw_os_error())
                    }
                }
            }
            _ => self.read(path, follow),
        }
    }

    fn look(&self, path: &[u8], follow: bool) -> Answer {
        match self.lead(path, follow)? {
            Led::Outside(path) => Ok(LocalReply::Outside(path)),
            Led::Inside(_, None) => Err(Errno::NOENT.raw_os_error()),
            Led::Inside(place, Some(found)) if found.kind == FileKind::Directory => {
                self.look_at_directory(&place, found)
            }
            Led::Inside(place, Some(_)) if self.bring.is_here(&place)? => Ok(self.local(&place)),
            Led::Inside(place, Some(attributes)) => {
                let foreseen = match attributes.kind {
                    FileKind::Regular => self.bring.seen.tree.foresee(&place),
                    _ => Ok(None),
                };
                let inode = foreseen.map_err(|error| errno_of(&error))?;
                let inode = inode.unwrap_or_else(|| inode_of(&place));
                let kind = self.bring.seen.kind(&place);
                Ok(LocalReply::Found { attributes, inode, kind })
            }
        }
    }

    /// A directory is the one that is read in its place; it looks as at home, also where a part of it is here,
    /// unless a program has changed it.
    fn look_at_directory(&self, place: &Place, found: Attributes) -> Answer {
        let is_changed = self.changed_dirs.lock().contains(place);
        let at_home = if is_changed { None } else { self.bring.seen.in_source(place)? };
        let attributes = at_home.filter(|home| home.kind == FileKind::Directory).unwrap_or(found);
        let inode = self.lists.inode(place)?;
        Ok(LocalReply::Found { attributes, inode, kind: self.bring.seen.kind(place) })
    }

    fn list(&self, path: &[u8]) -> Answer {
        match self.lead(path, true)? {
            Led::Outside(path) => Ok(LocalReply::Outside(path)),
            Led::Inside(_, None) => Err(Errno::NOENT.raw_os_error()),
            Led::Inside(place, Some(found)) if found.kind == FileKind::Directory => {
                self.list_place(&place)
            }
            Led::Inside(..) => Err(Errno::NOTDIR.raw_os_error()),
        }
    }

    fn list_place(&self, place: &Place) -> Answer {
        Ok(LocalReply::Local(bytes_of(&self.lists.make(place)?)))
    }

    fn change(&self, path: &[u8], change: Change) -> Answer {
        let follow = matches!(change, Change::Write { follow: true } | Change::Replace);
        let (place, found) = match self.lead(path, follow)? {
            Led::Outside(path) => return Ok(LocalReply::Outside(path)),
            Led::Inside(place, found) => (place, found),
        };
        if self.bring.seen.kind(&place) == MapKind::ReadOnly {
            return Err(Errno::ROFS.raw_os_error());
        }
        if place.path.is_empty() {
            if matches!(change, Change::Write { .. }) {
                self.change_dir(&place)?;
            }
            return Ok(self.local(&place));
        }
        let is_directory = |found: &Attributes| found.kind == FileKind::Directory;
        if change == Change::Remove || !found.as_ref().is_some_and(is_directory) {
            self.bring.seen.tree.pin(&place);
        }
        let is_here = self.bring.is_here(&place)?;
        match (change, found) {
            (Change::Write { .. }, Some(found)) if is_directory(&found) => {
                self.change_dir(&place)?;
            }
            (Change::Remove, Some(found)) => self.hold(&place, &found)?,
            (_, Some(found)) if found.kind == FileKind::Directory && !is_here => {
                self.make(&place, Tree::make_dir)?;
            }
            // The kernel is to find what stands there, to refuse to make it or to replace it.
            (Change::Write { .. } | Change::Create, Some(found)) if !is_here => {
                self.bring_any(&place, &found)?;
            }
            (Change::Write { .. } | Change::Create | Change::Replace, _) if !is_here => {
                self.check_above(&place)?;
                self.make(&place, Tree::make_parents)?;
            }
            _ => {}
        }
        Ok(self.local(&place))
    }

    /// Has a directory in the tree as it is at home, to be changed there.
    fn change_dir(&self, place: &Place) -> Result<(), i32> {
        self.make(place, Tree::make_dir)?;
        let mut changed_dirs = self.changed_dirs.lock();
        if !changed_dirs.contains(place) {
            if let Some(home) = self.bring.seen.in_source(place)? {
                self.make(place, |tree, place| tree.set_attributes(place, &home))?;
            }
            changed_dirs.insert(place.clone());
        }
        Ok(())
    }

    /// Has all that a name stands for in the tree before the name goes, and has the source be seen there no
    /// more. If the name does not go after all, the tree still shows what was there.
    fn hold(&self, place: &Place, found: &Attributes) -> Result<(), i32> {
        if found.kind == FileKind::Directory {
            self.bring.bring(self.bring.all_below(place, true)?)?;
        } else if !self.bring.is_here(place)? {
            match found.kind {
                // A name is enough for the kernel.
                FileKind::Fifo | FileKind::Socket => self.make(place, Tree::make_pipe)?,
                _ => self.bring_any(place, found)?,
            }
        }
        self.bring.seen.tree.hide(place);
        Ok(())
    }

    /// Has in the tree what is no directory.
    fn bring_any(&self, place: &Place, found: &Attributes) -> Result<(), i32> {
        match found.kind {
            FileKind::Regular => self.bring.bring(vec![(place.clone(), found.size)]),
            FileKind::Symlink => self.bring.make_link(place, &found.link),
            _ => Err(Errno::OPNOTSUPP.raw_os_error()),
        }
    }

    /// Nothing is made where there is no directory.
    fn check_above(&self, place: &Place) -> Result<(), i32> {
        let (above, _) = split(place);
        match self.bring.seen.look(&above)? {
            Some(found) if found.kind == FileKind::Directory => Ok(()),
            Some(_) => Err(Errno::NOTDIR.raw_os_error()),
            None => Err(Errno::NOENT.raw_os_error()),
        }
    }

    fn make(
        &self,
        place: &Place,
        make: impl Fn(&Tree, &Place) -> io::Result<()>,
    ) -> Result<(), i32> {
        make(&self.bring.seen.tree, place).map_err(|error| errno_of(&error))
    }

    fn lead(&self, path: &[u8], follow: bool) -> Result<Led, i32> {
        lead(&self.bring, path, follow)
    }

    fn local(&self, place: &Place) -> LocalReply {
        LocalReply::Local(bytes_of(&self.bring.seen.tree.path_of(place)))
    }
}

impl Prefetches {
    /// Asks for what is wanted soon, until nobody can want anything.
    pub(crate) fn run(self, bring: &Bring) {
        for path in self.0.iter().flatten() {
            // A name that leads nowhere costs nothing.
            let Ok(Led::Inside(place, Some(found))) = lead(bring, &path, true) else { continue };
            match found.kind {
                FileKind::Regular => bring.prefetch(vec![(place, found.size)]),
                FileKind::Directory => {
                    if let Ok(files) = bring.all_below(&place, false) {
                        bring.prefetch(files);
                    }
                }
                _ => {}
            }
        }
    }
}

fn lead(bring: &Bring, path: &[u8], follow: bool) -> Result<Led, i32> {
    resolve(path, follow, &bring.seen.dirs, &*bring.seen)
}

fn bytes_of(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

/// The inode number of what has not come: the same for a place whenever it is asked for, and none that a
/// file system gives, which count from below.
fn inode_of(place: &Place) -> u64 {
    xxh3_64_with_seed(&place.path, u64::from(place.map)) | 1 << 63
}
