//! A disk in memory that keeps what was synced apart from what was not, for simulations and tests. Owns
//! what a loss of power does: of everything that was not synced, any part is lost, by sectors, lengths
//! and names. It fails in no other way but where it is told to, and never forgets what was synced.
//!
//! The store's handles die with the process: after [`SimulatedDisk::kill`] and
//! [`SimulatedDisk::cut_power`] they answer with an error, and the disk is opened anew.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use azekura_platform::SharedPlatform;
use azekura_proto::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use rustix::io::{Errno, Result};

use super::image::{Image, PAGE_BYTES};
use super::{Access, Allocation, Content, Directory, Disk, DiskSpace, File, FileStat};

const SIZE_BYTES: u64 = 1 << 40;
const ROOT: NodeId = 0;

type NodeId = u64;

/// A disk in memory. Clones share it.
#[derive(Clone)]
pub struct SimulatedDisk {
    state: Arc<Mutex<State>>,
    platform: SharedPlatform,
}

struct State {
    nodes: BTreeMap<NodeId, Node>,
    locks: BTreeSet<(NodeId, String)>,
    random: u64,
    /// Space that all nodes take.
    used_bytes: u64,
    /// The run of the process; handles of an earlier one are dead.
    run: u64,
    /// Losses of power.
    boots: u64,
    /// Changes left until the power goes.
    changes_left: Option<u64>,
    /// The file that cannot be synced.
    unsyncable: Option<NodeId>,
}

enum Node {
    File(FileNode),
    Directory(Names),
}

impl Node {
    fn used_bytes(&self) -> u64 {
        match self {
            Self::File(file) => file.now.allocated_bytes(),
            Self::Directory(_) => PAGE_BYTES as u64,
        }
    }
}

struct FileNode {
    now: Image,
    synced: Image,
    mtime: Timestamp,
    /// The one that a loss of power leaves, unless it leaves the other.
    synced_mtime: Timestamp,
    ctime: Timestamp,
}

/// The names in a directory.
#[derive(Default)]
struct Names {
    now: BTreeMap<String, NodeId>,
    synced: BTreeMap<String, NodeId>,
    /// What was done since the last sync.
    changes: Vec<NameChange>,
}

enum NameChange {
    Put(String, NodeId),
    Remove(String),
    Move { from: String, to: String, node: NodeId },
}

impl NameChange {
    fn make(&self, names: &mut BTreeMap<String, NodeId>) {
        match self {
            Self::Put(name, node) => {
                names.insert(name.clone(), *node);
            }
            Self::Remove(name) => {
                names.remove(name);
            }
            Self::Move { from, to, node } => {
                names.remove(from);
                names.insert(to.clone(), *node);
            }
        }
    }
}

impl Names {
    fn change(&mut self, change: NameChange) {
        change.make(&mut self.now);
        self.changes.push(change);
    }

    fn sync(&mut self) {
        self.synced = self.now.clone();
        self.changes.clear();
    }
}

impl fmt::Debug for SimulatedDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedDisk").finish_non_exhaustive()
    }
}

impl SimulatedDisk {
    /// An empty disk. The seed decides what a loss of power takes.
    pub fn new(platform: SharedPlatform, seed: u64) -> Self {
        let state = State {
            nodes: BTreeMap::from([(ROOT, Node::Directory(Names::default()))]),
            locks: BTreeSet::new(),
            random: seed,
            used_bytes: PAGE_BYTES as u64,
            run: 0,
            boots: 0,
            changes_left: None,
            unsyncable: None,
        };
        Self { state: Arc::new(Mutex::new(state)), platform }
    }

    /// Makes a directory and those above it, so that they survive whatever comes.
    ///
    /// # Errors
    /// [`Errno::NOTDIR`] if there is a file on the way.
    pub fn make_dir(&self, path: &Path) -> Result<()> {
        self.create_dir_all(path)?;
        for node in self.state.lock().nodes.values_mut() {
            if let Node::Directory(names) = node {
                names.sync();
            }
        }
        Ok(())
    }

    /// Ends the process that has the disk: everything written stays, every handle is dead.
    pub fn kill(&self) {
        self.state.lock().end_run();
    }

    /// Takes the power away: what was not synced is there, or not, or in part; every handle is dead.
    pub fn cut_power(&self) {
        self.state.lock().cut_power();
    }

    /// Takes the power away in the midst of the change of the disk that comes after `changes` others.
    pub fn cut_power_after(&self, changes: u64) {
        self.state.lock().changes_left = Some(changes);
    }

    /// Lets every sync of one file fail until the process or the power goes.
    ///
    /// # Errors
    /// [`Errno::NOENT`] if there is no such file.
    pub fn fail_syncs_of(&self, path: &Path) -> Result<()> {
        let mut state = self.state.lock();
        let mut node = ROOT;
        for name in names_of(path) {
            node = state.find(node, name?)?;
        }
        state.unsyncable = Some(node);
        Ok(())
    }

    /// How often the process or the power has gone.
    pub fn runs(&self) -> u64 {
        self.state.lock().run
    }

    fn time(&self) -> Timestamp {
        let now = self.platform.coarse_wall_time();
        Timestamp { secs: now.secs, nanos: now.nanos }
    }

    /// The state, unless the handle of run `run` is dead.
    fn lock(&self, run: u64) -> Result<MutexGuard<'_, State>> {
        let state = self.state.lock();
        if state.run == run { Ok(state) } else { Err(Errno::IO) }
    }

    /// Makes a change of the disk. The power may go just after it, so that nobody hears of it.
    fn change<R>(&self, run: u64, make: impl FnOnce(&mut State) -> Result<R>) -> Result<R> {
        let mut state = self.lock(run)?;
        let done = make(&mut state)?;
        match state.changes_left {
            Some(0) => {
                state.cut_power();
                return Err(Errno::IO);
            }
            Some(left) => state.changes_left = Some(left - 1),
            None => {}
        }
        state.write_something_back();
        Ok(done)
    }
}

impl State {
    /// The next number of the seed (`SplitMix64`).
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn end_run(&mut self) {
        self.run += 1;
        self.changes_left = None;
        self.unsyncable = None;
        self.locks.clear();
    }

    fn cut_power(&mut self) {
        self.end_run();
        self.boots += 1;
        // Sometimes nearly everything is lost, sometimes nearly nothing.
        let lost_of_16 = 1 + self.draw() % 15;
        let mut coins = self.draw();
        let mut is_kept = move || {
            coins = coins.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            coins >> 60 >= lost_of_16
        };
        for node in self.nodes.values_mut() {
            match node {
                Node::File(file) => {
                    file.synced.take_some(&file.now, &mut is_kept);
                    file.now = file.synced.clone();
                    if !is_kept() {
                        file.mtime = file.synced_mtime;
                    }
                    file.synced_mtime = file.mtime;
                }
                Node::Directory(names) => {
                    for change in std::mem::take(&mut names.changes) {
                        if is_kept() {
                            change.make(&mut names.synced);
                        }
                    }
                    names.now = names.synced.clone();
                }
            }
        }
        self.used_bytes = self.nodes.values().map(Node::used_bytes).sum();
    }

    /// Now and then the kernel writes a part of some file back by itself.
    fn write_something_back(&mut self) {
        let draw = self.draw();
        if !draw.is_multiple_of(16) {
            return;
        }
        let at = draw / 16 % self.nodes.len() as u64;
        if let Some(Node::File(file)) = self.nodes.values_mut().nth(at as usize) {
            let mut coins = draw;
            file.synced.take_some(&file.now, &mut || {
                coins = coins.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                coins >> 63 == 1
            });
        }
    }

    fn names(&self, node: NodeId) -> Result<&Names> {
        match self.nodes.get(&node) {
            Some(Node::Directory(names)) => Ok(names),
            Some(Node::File(_)) => Err(Errno::NOTDIR),
            None => Err(Errno::NOENT),
        }
    }

    fn names_mut(&mut self, node: NodeId) -> Result<&mut Names> {
        match self.nodes.get_mut(&node) {
            Some(Node::Directory(names)) => Ok(names),
            Some(Node::File(_)) => Err(Errno::NOTDIR),
            None => Err(Errno::NOENT),
        }
    }

    fn file(&mut self, node: NodeId) -> Result<&mut FileNode> {
        match self.nodes.get_mut(&node) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Directory(_)) => Err(Errno::ISDIR),
            None => Err(Errno::NOENT),
        }
    }

    /// The directory that a path below `at` leads through, and its last name.
    fn parent<'a>(&self, mut at: NodeId, path: &'a str) -> Result<(NodeId, &'a str)> {
        let mut rest = path;
        while let Some((head, tail)) = rest.split_once('/') {
            at = *self.names(at)?.now.get(head).ok_or(Errno::NOENT)?;
            rest = tail;
        }
        Ok((at, rest))
    }

    fn find(&self, at: NodeId, path: &str) -> Result<NodeId> {
        let (dir, name) = self.parent(at, path)?;
        self.names(dir)?.now.get(name).copied().ok_or(Errno::NOENT)
    }

    fn add(&mut self, dir: NodeId, name: &str, node: Node) -> Result<NodeId> {
        let id = self.nodes.last_key_value().map_or(0, |last| last.0 + 1);
        self.names_mut(dir)?.change(NameChange::Put(name.to_owned(), id));
        self.used_bytes += node.used_bytes();
        self.nodes.insert(id, node);
        Ok(id)
    }
}

/// The names on the way to an absolute path.
fn names_of(path: &Path) -> impl Iterator<Item = Result<&str>> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_str().ok_or(Errno::INVAL)),
        Component::RootDir | Component::CurDir => None,
        Component::ParentDir | Component::Prefix(_) => Some(Err(Errno::INVAL)),
    })
}

impl Disk for SimulatedDisk {
    fn open_dir(&self, path: &Path) -> Result<Arc<dyn Directory>> {
        let state = self.state.lock();
        let mut node = ROOT;
        for name in names_of(path) {
            node = state.find(node, name?)?;
        }
        state.names(node)?;
        let run = state.run;
        Ok(Arc::new(SimulatedDirectory { disk: self.clone(), run, node, path: path.to_owned() }))
    }

    fn boot(&self) -> Option<[u8; 16]> {
        Some(u128::from(self.state.lock().boots).to_be_bytes())
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        let run = self.runs();
        self.change(run, |state| {
            let mut node = ROOT;
            for name in names_of(path) {
                let name = name?;
                node = match state.find(node, name) {
                    Err(Errno::NOENT) => {
                        state.add(node, name, Node::Directory(Names::default()))?
                    }
                    found => found?,
                };
            }
            Ok(())
        })
    }
}

struct SimulatedDirectory {
    disk: SimulatedDisk,
    run: u64,
    node: NodeId,
    path: PathBuf,
}

impl SimulatedDirectory {
    fn file(&self, node: NodeId, lock: Option<(NodeId, String)>) -> Box<dyn File> {
        Box::new(SimulatedFile { disk: self.disk.clone(), run: self.run, node, lock })
    }
}

impl Directory for SimulatedDirectory {
    fn path(&self) -> &Path {
        &self.path
    }

    fn open_dir(&self, name: &str) -> Result<Arc<dyn Directory>> {
        let state = self.disk.lock(self.run)?;
        let node = state.find(self.node, name)?;
        state.names(node)?;
        let (disk, path) = (self.disk.clone(), self.path.join(name));
        Ok(Arc::new(SimulatedDirectory { disk, run: self.run, node, path }))
    }

    fn create_dir(&self, name: &str) -> Result<()> {
        self.disk.change(self.run, |state| {
            let (dir, name) = state.parent(self.node, name)?;
            if state.names(dir)?.now.contains_key(name) {
                return Err(Errno::EXIST);
            }
            state.add(dir, name, Node::Directory(Names::default())).map(|_| ())
        })
    }

    fn open(&self, name: &str, access: Access) -> Result<Box<dyn File>> {
        let found = self.disk.lock(self.run)?.find(self.node, name);
        let node = match (found, access) {
            (Err(Errno::NOENT), Access::Create | Access::CreateReadable) => {
                let time = self.disk.time();
                self.disk.change(self.run, |state| {
                    let (dir, name) = state.parent(self.node, name)?;
                    let (now, synced) = (Image::default(), Image::default());
                    let file =
                        FileNode { now, synced, mtime: time, synced_mtime: time, ctime: time };
                    state.add(dir, name, Node::File(file))
                })?
            }
            (found, _) => found?,
        };
        self.disk.lock(self.run)?.file(node)?;
        Ok(self.file(node, None))
    }

    fn lock(&self, name: &str) -> Result<Box<dyn File>> {
        drop(self.open(name, Access::Create)?);
        let mut state = self.disk.lock(self.run)?;
        let (dir, name) = state.parent(self.node, name)?;
        let node = state.find(dir, name)?;
        let lock = (dir, name.to_owned());
        if !state.locks.insert(lock.clone()) {
            return Err(Errno::WOULDBLOCK);
        }
        Ok(self.file(node, Some(lock)))
    }

    fn stat(&self, name: &OsStr) -> Result<FileStat> {
        let mut state = self.disk.lock(self.run)?;
        let node = state.find(self.node, name.to_str().ok_or(Errno::INVAL)?)?;
        match state.file(node) {
            Ok(file) => Ok(file.stat()),
            Err(Errno::ISDIR) => Ok(FileStat::default()),
            Err(error) => Err(error),
        }
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        assert!(!from.contains('/') && !to.contains('/'), "renamed between directories");
        self.disk.change(self.run, |state| {
            let node = state.find(self.node, from)?;
            let (from, to) = (from.to_owned(), to.to_owned());
            state.names_mut(self.node)?.change(NameChange::Move { from, to, node });
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.disk.change(self.run, |state| {
            let (dir, name) = state.parent(self.node, name)?;
            let node = state.find(dir, name)?;
            state.file(node)?;
            state.names_mut(dir)?.change(NameChange::Remove(name.to_owned()));
            Ok(())
        })
    }

    fn remove_tree(&self, name: &str) -> Result<()> {
        self.disk.change(self.run, |state| {
            let (dir, name) = state.parent(self.node, name)?;
            state.find(dir, name)?;
            state.names_mut(dir)?.change(NameChange::Remove(name.to_owned()));
            Ok(())
        })
    }

    fn list(&self, visit: &mut dyn FnMut(&OsStr) -> Result<()>) -> Result<()> {
        let state = self.disk.lock(self.run)?;
        let names: Vec<String> = state.names(self.node)?.now.keys().cloned().collect();
        drop(state);
        names.iter().try_for_each(|name| visit(name.as_ref()))
    }

    fn sync(&self) -> Result<()> {
        // The power may go before anything is synced, or after: then it is known to be.
        self.disk.change(self.run, |_| Ok(()))?;
        self.disk.lock(self.run)?.names_mut(self.node)?.sync();
        Ok(())
    }

    fn sync_file_system(&self) -> Result<()> {
        self.disk.change(self.run, |_| Ok(()))?;
        let mut state = self.disk.lock(self.run)?;
        for node in state.nodes.values_mut() {
            match node {
                Node::File(file) => {
                    (file.synced, file.synced_mtime) = (file.now.clone(), file.mtime);
                }
                Node::Directory(names) => names.sync(),
            }
        }
        Ok(())
    }

    fn device(&self) -> Result<u64> {
        Ok(0)
    }

    fn space(&self) -> Result<DiskSpace> {
        let used_bytes = self.disk.lock(self.run)?.used_bytes;
        let free_bytes = SIZE_BYTES.saturating_sub(used_bytes);
        Ok(DiskSpace { total_bytes: SIZE_BYTES, free_bytes, available_bytes: free_bytes })
    }
}

impl FileNode {
    fn stat(&self) -> FileStat {
        FileStat {
            bytes: self.now.bytes(),
            blocks_512: self.now.allocated_bytes() / 512,
            mtime: self.mtime,
            ctime: self.ctime,
        }
    }
}

struct SimulatedFile {
    disk: SimulatedDisk,
    run: u64,
    node: NodeId,
    lock: Option<(NodeId, String)>,
}

impl SimulatedFile {
    fn change(&self, make: impl FnOnce(&mut Image)) -> Result<()> {
        let time = self.disk.time();
        self.disk.change(self.run, |state| {
            let file = state.file(self.node)?;
            let before = file.now.allocated_bytes();
            make(&mut file.now);
            (file.mtime, file.ctime) = (time, time);
            let after = file.now.allocated_bytes();
            state.used_bytes = state.used_bytes - before + after;
            Ok(())
        })
    }
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        if let (Some(lock), Ok(mut state)) = (self.lock.take(), self.disk.lock(self.run)) {
            state.locks.remove(&lock);
        }
    }
}

/// As real file systems have it: no byte may lie beyond this.
fn check_end(offset: u64, bytes: u64) -> Result<u64> {
    let end = offset.checked_add(bytes).ok_or(Errno::INVAL)?;
    if end > i64::MAX as u64 { Err(Errno::FBIG) } else { Ok(end) }
}

impl File for SimulatedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        Ok(self.disk.lock(self.run)?.file(self.node)?.now.read(buffer, offset))
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<usize> {
        check_end(offset, data.len() as u64)?;
        self.change(|image| image.write(data, offset))?;
        Ok(data.len())
    }

    fn truncate(&self, bytes: u64) -> Result<()> {
        check_end(0, bytes)?;
        self.change(|image| image.set_length(bytes))
    }

    fn allocate(&self, how: Allocation, offset: u64, bytes: u64) -> Result<()> {
        let end = check_end(offset, bytes)?;
        self.change(|image| {
            let (zero, take, extend) = match how {
                Allocation::Extend => (false, true, true),
                Allocation::KeepLength => (false, true, false),
                Allocation::Punch => (true, false, false),
                Allocation::ZeroExtend => (true, true, true),
                Allocation::ZeroKeepLength => (true, true, false),
            };
            if zero {
                image.punch(offset, end);
            }
            if take {
                image.allocate(offset, end);
            }
            if extend && end > image.bytes() {
                image.set_length(end);
            }
        })
    }

    fn seek(&self, content: Content, offset: u64) -> Result<Option<u64>> {
        let mut state = self.disk.lock(self.run)?;
        let image = &state.file(self.node)?.now;
        Ok(match content {
            Content::Data => image.next_data(offset),
            Content::Hole => image.next_hole(offset),
        })
    }

    fn stat(&self) -> Result<FileStat> {
        Ok(self.disk.lock(self.run)?.file(self.node)?.stat())
    }

    fn set_mtime(&self, mtime: Timestamp) -> Result<()> {
        let ctime = self.disk.time();
        self.disk.change(self.run, |state| {
            let file = state.file(self.node)?;
            (file.mtime, file.ctime) = (mtime, ctime);
            Ok(())
        })
    }

    fn sync(&self, data_only: bool) -> Result<()> {
        // The power may go before anything is synced, or after: then it is known to be.
        self.disk.change(self.run, |_| Ok(()))?;
        let mut state = self.disk.lock(self.run)?;
        if state.unsyncable == Some(self.node) {
            return Err(Errno::IO);
        }
        let file = state.file(self.node)?;
        file.synced = file.now.clone();
        if !data_only {
            file.synced_mtime = file.mtime;
        }
        Ok(())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn open_to_read(&self) -> Result<OwnedFd> {
        Err(Errno::OPNOTSUPP)
    }

    fn open_to_write(&self) -> Result<OwnedFd> {
        Err(Errno::OPNOTSUPP)
    }

    fn append(&self, _data: &[u8]) -> Result<u64> {
        Err(Errno::OPNOTSUPP)
    }

    fn is_open_elsewhere(&self) -> Result<bool> {
        Err(Errno::INVAL)
    }
}
