//! The maps as a trapped call sees them: first the tree, then the agent. Owns the descriptors of the trees
//! and the way from one map into another; decides nothing about what a call means.

use std::ffi::CString;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use azekura_proto::staging::local::{LocalReply, LocalRequest};
use azekura_proto::staging::{Attributes, JobId, MapKind};
use libc::statx;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::asking::{Agent, Greeting};
use super::places::{Place, Places};
use crate::sys::memory;

/// As many maps and symlinks a path may lead through.
const TURNS_MAX: usize = 40;
const WITHIN: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

/// All maps of a job on this node.
pub(super) struct Maps {
    agent: Agent,
    places: Places,
    all: Vec<Map>,
    /// The device that files are on which are read as they come.
    arriving: Option<(u32, u32)>,
}

/// One of them.
pub(super) struct Map {
    /// The path by which programs name it.
    pub(super) dir: Vec<u8>,
    pub(super) kind: MapKind,
    /// The directory with what has come.
    pub(super) tree: OwnedFd,
    /// The device that it is on: major and minor number.
    pub(super) device: (u32, u32),
    tree_path: Vec<u8>,
    lists_path: Vec<u8>,
}

/// What the agent says about a path.
pub(super) enum Settled {
    /// It is at this path of the node.
    Local(Vec<u8>),
    /// It leads out of all maps, to this path.
    Outside(Vec<u8>),
    /// It is not here, but at home.
    Away { attributes: Attributes, inode: u64, kind: MapKind },
}

impl Maps {
    /// Asks the agent of a job what there is.
    pub(super) fn of_job(job: JobId) -> Result<Self, Errno> {
        let (agent, Greeting { maps: local, arriving }) = Agent::connect(job)?;
        let mut places = Places::default();
        let mut all = Vec::with_capacity(local.len());
        for (index, map) in local.into_iter().enumerate() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let tree = rustix::fs::open(map.tree.as_slice(), flags, Mode::empty())?;
            let found = memory::statx(tree.as_fd(), c"", libc::AT_EMPTY_PATH, 0)
                .map_err(|error| super::caller::errno(&error))?;
            for dir in [&map.dir, &map.tree, &map.lists] {
                places.add(dir, index);
                if let Some(real) = real_path(dir) {
                    places.add(&real, index);
                }
            }
            all.push(Map {
                dir: map.dir,
                kind: map.kind,
                tree,
                device: (found.stx_dev_major, found.stx_dev_minor),
                tree_path: map.tree,
                lists_path: map.lists,
            });
        }
        let arriving = arriving.map(|device| (libc::major(device), libc::minor(device)));
        Ok(Self { agent, places, all, arriving })
    }

    /// Looks an absolute path up.
    pub(super) fn find(&self, path: &[u8]) -> Option<Place> {
        self.places.find(path)
    }

    /// Looks up what is a directory that the agent has made to be listed.
    pub(super) fn find_list(&self, path: &[u8]) -> Option<Place> {
        let place = self.places.find(path)?;
        path.starts_with(&self.of(&place).lists_path).then_some(place)
    }

    /// The map of a place.
    pub(super) fn of(&self, place: &Place) -> &Map {
        // A place has come out of `find`, which knows these maps.
        &self.all[place.map]
    }

    /// The path as the program means it.
    pub(super) fn path(&self, place: &Place) -> Vec<u8> {
        place.path(&self.of(place).dir)
    }

    /// What the program calls a directory of ours; `None` if it is none.
    pub(super) fn name_of(&self, path: &[u8]) -> Option<Vec<u8>> {
        let place = self.places.find(path)?;
        let map = self.of(&place);
        let is_ours = |dir: &Vec<u8>| path.starts_with(dir);
        (is_ours(&map.tree_path) || is_ours(&map.lists_path)).then(|| place.path(&map.dir))
    }

    /// What may be done where a path of a tree lies.
    pub(super) fn kind_of(&self, path: &[u8]) -> Option<MapKind> {
        self.places.find(path).map(|place| self.of(&place).kind)
    }

    /// Whether files are read as they come.
    pub(super) fn have_arriving(&self) -> bool {
        self.arriving.is_some()
    }

    /// Has a file that is read as it comes look as the one that will stand in the tree, whose inode number it has;
    /// `None` if it is no such file.
    pub(super) fn as_in_tree(&self, mut found: statx) -> Option<statx> {
        if self.arriving != Some((found.stx_dev_major, found.stx_dev_minor)) {
            return None;
        }
        (found.stx_dev_major, found.stx_dev_minor) = self.all.first()?.device;
        Some(found)
    }

    /// Opens what is in the tree already; symlinks there, which programs have made, are the agent's business.
    pub(super) fn open_in_tree(&self, place: &Place, flags: OFlags) -> Option<OwnedFd> {
        let tree = &self.of(place).tree;
        open_within(tree, place.relative(), flags)
    }

    /// Asks the agent about a path, from map to map.
    pub(super) fn settle(
        &self,
        place: &Place,
        request: impl Fn(Vec<u8>) -> LocalRequest,
    ) -> Result<Settled, Errno> {
        let mut path = self.path(place);
        for _ in 0..TURNS_MAX {
            match self.agent.ask(&request(path))? {
                LocalReply::Local(local) => return Ok(Settled::Local(local)),
                LocalReply::Found { attributes, inode, kind } => {
                    return Ok(Settled::Away { attributes, inode, kind });
                }
                LocalReply::Outside(outside) => match self.find(&outside) {
                    Some(place) => path = self.path(&place),
                    None => return Ok(Settled::Outside(outside)),
                },
                _ => return Err(Errno::IO),
            }
        }
        Err(Errno::LOOP)
    }
}

/// A path of this process's own descriptor.
pub(super) fn own_path(fd: &OwnedFd) -> Vec<u8> {
    format!("/proc/self/fd/{}", fd.as_raw_fd()).into_bytes()
}

/// The path by which the kernel shows a working directory. Not by the C library: this process may itself be
/// one that a preloaded library serves.
fn real_path(dir: &[u8]) -> Option<Vec<u8>> {
    let dir = open(dir, OFlags::PATH | OFlags::DIRECTORY, 0).ok()?;
    let path = rustix::fs::readlink(own_path(&dir), Vec::new()).ok()?;
    Some(path.into_bytes())
}

/// Opens a path below a directory, if no symlink is on the way and it does not lead out.
pub(super) fn open_within(dir: &OwnedFd, path: &[u8], flags: OFlags) -> Option<OwnedFd> {
    let path = CString::new(path).ok()?;
    let flags = flags | OFlags::CLOEXEC;
    rustix::fs::openat2(dir, path, flags, Mode::empty(), WITHIN).ok()
}

/// Opens a path of the node.
pub(super) fn open(path: &[u8], flags: OFlags, mode: u32) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::from_bits_retain(mode))
}
