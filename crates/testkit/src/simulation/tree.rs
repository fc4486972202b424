//! The reference of a simulation: directories and files as plain maps, with what a program may expect
//! of them. Owns what each operation gives and leaves behind; a copy is cheap, so that it can be tried
//! out what an operation would have done.

use std::collections::BTreeMap;

use azekura_posix::{Errno, FileKind, OFlags, RenameMode};

use crate::model::{Answer, Op, Outcome, SLOTS, Stat, comparable};

const ROOT: u64 = 0;
/// What everything is made with.
const MODE: u32 = 0o755;

/// A directory or a file, under a number.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Node {
    Directory(BTreeMap<Vec<u8>, u64>),
    File { data: Vec<u8>, nlink: u64 },
}

/// A file that somebody has open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct OpenFile {
    node: u64,
    appends: bool,
}

/// What is in a container, and which files are open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Tree {
    nodes: BTreeMap<u64, Node>,
    /// Values of the one extended attribute that is set.
    xattrs: BTreeMap<u64, Vec<u8>>,
    /// Modes that were set.
    modes: BTreeMap<u64, u32>,
    next: u64,
    open: [Option<OpenFile>; SLOTS],
}

/// A name in a directory that is there, and what it leads to.
struct Place {
    dir: u64,
    name: Vec<u8>,
    node: Option<u64>,
}

impl Tree {
    /// An empty root.
    pub(crate) fn new() -> Self {
        let nodes = BTreeMap::from([(ROOT, Node::Directory(BTreeMap::new()))]);
        let (xattrs, modes) = (BTreeMap::new(), BTreeMap::new());
        Self { nodes, xattrs, modes, next: ROOT + 1, open: [None; SLOTS] }
    }

    /// What the operation gives, which is done.
    pub(crate) fn apply(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Open { slot, path, flags, .. } => self.open(*slot, path, *flags),
            Op::Mkdir { path, .. } => self.make(path, Node::Directory(BTreeMap::new())),
            Op::Unlink { path } => self.unlink(path),
            Op::Rmdir { path } => self.remove_directory(path),
            Op::Rename { from, to, mode } => self.rename(from, to, *mode),
            Op::Link { from, to } => self.link(from, to),
            Op::Stat { path, .. } => {
                let node = self.find(path)?.node.ok_or(Errno::NOENT)?;
                Ok(self.stat(node))
            }
            Op::List { path } => self.list(path),
            Op::SetXattr { path, value, .. } => {
                let node = self.find(path)?.node.ok_or(Errno::NOENT)?;
                self.xattrs.insert(node, value.clone());
                Ok(Answer::Done)
            }
            Op::GetXattr { path, .. } => {
                let node = self.find(path)?.node.ok_or(Errno::NOENT)?;
                self.xattr(node).map(|value| Answer::Data(value.to_vec())).ok_or(Errno::NODATA)
            }
            Op::Chmod { path, mode } => {
                let node = self.find(path)?.node.ok_or(Errno::NOENT)?;
                self.modes.insert(node, *mode);
                Ok(Answer::Done)
            }
            _ => Ok(self.apply_open(op)),
        }
    }

    /// The same for an operation that nobody got an answer to: no file is open by it.
    pub(crate) fn apply_unanswered(&mut self, op: &Op) {
        let open = self.open;
        let _ = self.apply(op);
        self.open = open;
        self.forget_unused();
    }

    /// The client of these slots is gone, and what it had open with it.
    pub(crate) fn close(&mut self, slots: impl Iterator<Item = usize>) {
        for slot in slots {
            self.open[slot] = None;
        }
        self.forget_unused();
    }

    /// Every path, and the number of what it leads to.
    pub(crate) fn paths(&self) -> BTreeMap<Vec<u8>, u64> {
        let mut paths = BTreeMap::new();
        self.add_paths(ROOT, &[], &mut paths);
        paths
    }

    fn add_paths(&self, dir: u64, above: &[u8], paths: &mut BTreeMap<Vec<u8>, u64>) {
        let Some(Node::Directory(entries)) = self.nodes.get(&dir) else { return };
        for (name, node) in entries {
            let path = if dir == ROOT { name.clone() } else { [above, name].join(&b'/') };
            self.add_paths(*node, &path, paths);
            paths.insert(path, *node);
        }
    }

    /// Whether there is still such a directory or file.
    pub(crate) fn has(&self, node: u64) -> bool {
        self.nodes.contains_key(&node)
    }

    /// The data of a file.
    pub(crate) fn contents(&self, node: u64) -> Option<&[u8]> {
        match self.nodes.get(&node)? {
            Node::File { data, .. } => Some(data),
            Node::Directory(_) => None,
        }
    }

    /// The extended attribute of a directory or file.
    pub(crate) fn xattr(&self, node: u64) -> Option<&[u8]> {
        self.xattrs.get(&node).map(Vec::as_slice)
    }

    /// The file that is open in a slot.
    pub(crate) fn node_in(&self, slot: usize) -> Option<u64> {
        self.open[slot].map(|file| file.node)
    }

    fn apply_open(&mut self, op: &Op) -> Answer {
        let slot = op.slot().expect("an operation that the simulation draws");
        let Some(OpenFile { node, appends }) = self.open[slot] else { return Answer::Skipped };
        if let Op::Close { .. } = op {
            self.open[slot] = None;
            self.forget_unused();
            return Answer::Done;
        }
        if let Op::StatOpen { .. } = op {
            return self.stat(node);
        }
        let Some(Node::File { data: content, .. }) = self.nodes.get_mut(&node) else {
            panic!("an open file is there")
        };
        match op {
            Op::Read { offset, bytes, .. } => {
                let start = (*offset as usize).min(content.len());
                let end = (start + bytes).min(content.len());
                Answer::Data(content[start..end].to_vec())
            }
            Op::Write { offset, data, .. } => {
                let start = if appends { content.len() } else { *offset as usize };
                if !data.is_empty() && content.len() < start + data.len() {
                    content.resize(start + data.len(), 0);
                }
                content[start..start + data.len()].copy_from_slice(data);
                Answer::Count(data.len() as u64)
            }
            Op::Truncate { bytes, .. } => {
                content.resize(*bytes as usize, 0);
                Answer::Done
            }
            Op::Sync { .. } => Answer::Done,
            other => panic!("not an operation that the simulation draws: {other:?}"),
        }
    }

    fn directory(&self, node: u64) -> Result<&BTreeMap<Vec<u8>, u64>, Errno> {
        match self.nodes.get(&node) {
            Some(Node::Directory(entries)) => Ok(entries),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn entries(&mut self, node: u64) -> &mut BTreeMap<Vec<u8>, u64> {
        match self.nodes.get_mut(&node) {
            Some(Node::Directory(entries)) => entries,
            other => panic!("not a directory: {other:?}"),
        }
    }

    fn is_directory(&self, node: u64) -> bool {
        matches!(self.nodes.get(&node), Some(Node::Directory(_)))
    }

    /// Names joined by single slashes; a dot alone is the root.
    fn find(&self, path: &[u8]) -> Result<Place, Errno> {
        let mut names = path.split(|byte| *byte == b'/');
        let name = names.next_back().expect("a split gives something").to_vec();
        let mut dir = ROOT;
        for above in names {
            dir = *self.directory(dir)?.get(above).ok_or(Errno::NOENT)?;
        }
        let entries = self.directory(dir)?;
        let node = if name == b"." { Some(ROOT) } else { entries.get(&name).copied() };
        Ok(Place { dir, name, node })
    }

    fn stat(&self, node: u64) -> Answer {
        let (kind, nlink, size) = match &self.nodes[&node] {
            Node::Directory(_) => (FileKind::Directory, 0, 0),
            Node::File { data, nlink } => (FileKind::Regular, *nlink, data.len() as u64),
        };
        let mode = self.modes.get(&node).copied().unwrap_or(MODE);
        Answer::Stat(comparable(Stat { kind, mode, uid: 0, gid: 0, nlink, size }))
    }

    fn list(&self, path: &[u8]) -> Outcome {
        let node = self.find(path)?.node.ok_or(Errno::NOENT)?;
        let kind = |node: &u64| {
            if self.is_directory(*node) { FileKind::Directory } else { FileKind::Regular }
        };
        let entries = self.directory(node)?;
        Ok(Answer::Names(entries.iter().map(|(name, node)| (name.clone(), kind(node))).collect()))
    }

    fn add(&mut self, place: &Place, node: Node) -> u64 {
        let number = self.next;
        self.next += 1;
        self.nodes.insert(number, node);
        self.entries(place.dir).insert(place.name.clone(), number);
        number
    }

    fn make(&mut self, path: &[u8], node: Node) -> Outcome {
        let place = self.find(path)?;
        if place.node.is_some() {
            return Err(Errno::EXIST);
        }
        self.add(&place, node);
        Ok(Answer::Done)
    }

    fn open(&mut self, slot: usize, path: &[u8], flags: OFlags) -> Outcome {
        let place = self.find(path)?;
        let node = match place.node {
            Some(_) if flags.contains(OFlags::EXCL) => return Err(Errno::EXIST),
            Some(node) if self.is_directory(node) => return Err(Errno::ISDIR),
            Some(node) => node,
            None if flags.contains(OFlags::CREATE) => {
                self.add(&place, Node::File { data: Vec::new(), nlink: 1 })
            }
            None => return Err(Errno::NOENT),
        };
        self.open[slot] = Some(OpenFile { node, appends: flags.contains(OFlags::APPEND) });
        self.forget_unused();
        Ok(Answer::Done)
    }

    fn unlink(&mut self, path: &[u8]) -> Outcome {
        let place = self.find(path)?;
        let node = place.node.ok_or(Errno::NOENT)?;
        if self.is_directory(node) {
            return Err(Errno::ISDIR);
        }
        self.entries(place.dir).remove(&place.name);
        self.add_links(node, -1);
        Ok(Answer::Done)
    }

    fn remove_directory(&mut self, path: &[u8]) -> Outcome {
        let place = self.find(path)?;
        let node = place.node.ok_or(Errno::NOENT)?;
        if !self.directory(node)?.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        self.entries(place.dir).remove(&place.name);
        self.forget(node);
        Ok(Answer::Done)
    }

    fn link(&mut self, from: &[u8], to: &[u8]) -> Outcome {
        let source = self.find(from)?.node.ok_or(Errno::NOENT)?;
        let place = self.find(to)?;
        if place.node.is_some() {
            return Err(Errno::EXIST);
        }
        if self.is_directory(source) {
            return Err(Errno::PERM);
        }
        self.entries(place.dir).insert(place.name, source);
        self.add_links(source, 1);
        Ok(Answer::Done)
    }

    /// Whether `below` is `above` or lies below it.
    fn lies_below(&self, below: u64, above: u64) -> bool {
        let children = |node: u64| match &self.nodes[&node] {
            Node::Directory(entries) => entries.values().copied().collect(),
            Node::File { .. } => Vec::new(),
        };
        below == above || children(above).into_iter().any(|child| self.lies_below(below, child))
    }

    fn rename(&mut self, from: &[u8], to: &[u8], mode: RenameMode) -> Outcome {
        let (old, new) = (self.find(from)?, self.find(to)?);
        let source = old.node.ok_or(Errno::NOENT)?;
        match (mode, new.node) {
            (RenameMode::NoReplace, Some(_)) => return Err(Errno::EXIST),
            (RenameMode::Exchange, None) => return Err(Errno::NOENT),
            _ => {}
        }
        if self.lies_below(new.dir, source) {
            return Err(Errno::INVAL);
        }
        let exchanges = mode == RenameMode::Exchange;
        if new.node.is_some_and(|there| self.lies_below(old.dir, there)) {
            return Err(if exchanges { Errno::INVAL } else { Errno::NOTEMPTY });
        }
        if new.node == Some(source) {
            return Ok(Answer::Done);
        }
        if let Some(there) = new.node.filter(|_| !exchanges) {
            match (self.is_directory(source), self.is_directory(there)) {
                (true, false) => return Err(Errno::NOTDIR),
                (false, true) => return Err(Errno::ISDIR),
                (true, true) if !self.directory(there)?.is_empty() => return Err(Errno::NOTEMPTY),
                (true, true) => self.forget(there),
                (false, false) => self.add_links(there, -1),
            }
        }
        self.entries(old.dir).remove(&old.name);
        if let Some(there) = new.node.filter(|_| exchanges) {
            self.entries(old.dir).insert(old.name, there);
        }
        self.entries(new.dir).insert(new.name, source);
        Ok(Answer::Done)
    }

    fn add_links(&mut self, node: u64, links: i64) {
        let Some(Node::File { nlink, .. }) = self.nodes.get_mut(&node) else {
            panic!("links are of files")
        };
        *nlink = nlink.checked_add_signed(links).expect("a file has no fewer than no links");
        self.forget_unused();
    }

    fn forget(&mut self, node: u64) {
        self.nodes.remove(&node);
        self.xattrs.remove(&node);
        self.modes.remove(&node);
    }

    fn forget_unused(&mut self) {
        let open = self.open;
        self.nodes.retain(|number, node| {
            !matches!(node, Node::File { nlink: 0, .. })
                || open.iter().flatten().any(|file| file.node == *number)
        });
        self.xattrs.retain(|number, _| self.nodes.contains_key(number));
        self.modes.retain(|number, _| self.nodes.contains_key(number));
    }
}
