//! An agent for tests: answers what programs ask from a directory in place of a front. Owns a map's tree and
//! lists in a scratch directory, and a log of what it was asked.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use azekura_proto::staging::local::{
    Change, LocalMap, LocalReply, LocalRequest, MESSAGE_BYTES_MAX, decode, encode,
};
use azekura_proto::staging::{Attributes, JobId, MapKind, NodeId};
use azekura_proto::{FileKind, Timestamp};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept, bind,
    listen, recv, send, socket_with,
};

/// A map, and the directory that its files come from.
pub(crate) struct Place {
    pub(crate) dir: PathBuf,
    pub(crate) kind: MapKind,
    pub(crate) home: PathBuf,
}

struct Map {
    place: Place,
    tree: PathBuf,
    lists: PathBuf,
}

struct State {
    maps: Vec<Map>,
    scratch: PathBuf,
    /// Files that have not come, by path at home, which already have their inode.
    waiting: HashMap<PathBuf, PathBuf>,
    gone: HashSet<PathBuf>,
    /// What programs are connected by.
    connections: Vec<OwnedFd>,
    log: Vec<String>,
}

/// The agent of one node.
pub(crate) struct Agent {
    pub(crate) job: JobId,
    state: Arc<Mutex<State>>,
    listener: OwnedFd,
}

/// Where a path leads.
enum Led {
    /// Below a map: its number, and the path below it.
    Map(usize, PathBuf),
    Outside(PathBuf),
}

const NOENT: i32 = libc::ENOENT;
const SYMLINKS_MAX: u32 = 40;

type Answer = Result<LocalReply, i32>;

fn errno(error: &std::io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

impl State {
    fn visible_at_home(&self, map: usize, below: &Path) -> Option<std::fs::Metadata> {
        let place = &self.maps[map].place;
        let home = place.home.join(below);
        if self.gone.iter().any(|gone| home.starts_with(gone)) {
            return None;
        }
        let found = home.symlink_metadata().ok()?;
        (place.kind != MapKind::Out || found.is_dir()).then_some(found)
    }

    fn here(&self, map: usize, below: &Path) -> Option<std::fs::Metadata> {
        self.maps[map].tree.join(below).symlink_metadata().ok()
    }

    fn entry(&self, map: usize, below: &Path) -> Option<(std::fs::Metadata, PathBuf)> {
        if let Some(found) = self.here(map, below) {
            return Some((found, self.maps[map].tree.join(below)));
        }
        let found = self.visible_at_home(map, below)?;
        Some((found, self.maps[map].place.home.join(below)))
    }

    fn map_of(&self, path: &Path) -> Option<(usize, PathBuf)> {
        let maps = self.maps.iter().enumerate();
        let below = maps.filter_map(|(n, map)| Some((n, path.strip_prefix(&map.place.dir).ok()?)));
        let innermost = below.min_by_key(|(_, below)| below.as_os_str().len())?;
        Some((innermost.0, innermost.1.to_path_buf()))
    }

    /// Follows a path; its last name need not be there.
    fn lead(&self, path: &[u8], follow: bool) -> Result<Led, i32> {
        let slash = path.ends_with(b"/");
        let mut rest: Vec<Vec<u8>> = path
            .split(|b| *b == b'/')
            .filter(|n| !n.is_empty())
            .rev()
            .map(<[u8]>::to_vec)
            .collect();
        let mut done = PathBuf::from("/");
        let mut links = 0;
        while let Some(name) = rest.pop() {
            if name == b"." {
                continue;
            }
            if name == b".." {
                done.pop();
                continue;
            }
            let here = done.join(OsStr::from_bytes(&name));
            if let Some((map, below)) = self.map_of(&here) {
                match self.entry(map, &below) {
                    None if rest.is_empty() => {}
                    None => return Err(NOENT),
                    Some((found, at))
                        if found.is_symlink() && (follow || slash || !rest.is_empty()) =>
                    {
                        links += 1;
                        if links > SYMLINKS_MAX {
                            return Err(libc::ELOOP);
                        }
                        let text = std::fs::read_link(at).unwrap().into_os_string().into_vec();
                        if text.starts_with(b"/") {
                            done = PathBuf::from("/");
                        }
                        rest.extend(
                            text.split(|b| *b == b'/')
                                .filter(|n| !n.is_empty())
                                .rev()
                                .map(<[u8]>::to_vec),
                        );
                        continue;
                    }
                    Some((found, _)) if !found.is_dir() && (slash || !rest.is_empty()) => {
                        return Err(libc::ENOTDIR);
                    }
                    Some(_) => {}
                }
            }
            done = here;
        }
        Ok(match self.map_of(&done) {
            Some((map, below)) => Led::Map(map, below),
            None => Led::Outside(done),
        })
    }

    fn local(path: &Path) -> LocalReply {
        LocalReply::Local(path.as_os_str().as_bytes().to_vec())
    }

    /// Makes the directories above something in the tree, as they are at home.
    fn make_dir(&self, map: usize, below: &Path) -> Result<(), i32> {
        let tree = self.maps[map].tree.join(below);
        if tree.is_dir() {
            return Ok(());
        }
        if let Some(above) = below.parent() {
            self.make_dir(map, above)?;
        }
        let home = self.visible_at_home(map, below).ok_or(NOENT)?;
        if !home.is_dir() {
            return Err(libc::ENOTDIR);
        }
        std::fs::create_dir(&tree).map_err(|e| errno(&e))?;
        std::fs::set_permissions(&tree, home.permissions()).map_err(|e| errno(&e))
    }

    /// The file that something will come into, so that its inode is known before.
    fn waiting(&mut self, map: usize, below: &Path, bytes: u64) -> PathBuf {
        let home = self.maps[map].place.home.join(below);
        let number = self.waiting.len();
        let scratch = self.scratch.join(format!("waiting-{number}"));
        let file = self.waiting.entry(home).or_insert_with(|| {
            std::fs::File::create(&scratch).unwrap().set_len(bytes).unwrap();
            std::fs::set_permissions(&scratch, PermissionsExt::from_mode(0o000)).unwrap();
            scratch
        });
        file.clone()
    }

    fn bring(&mut self, map: usize, below: &Path) -> Answer {
        let tree = self.maps[map].tree.join(below);
        if let Some(found) = self.here(map, below) {
            return if found.is_dir() { self.list(map, below) } else { Ok(Self::local(&tree)) };
        }
        let home = self.visible_at_home(map, below).ok_or(NOENT)?;
        if home.is_dir() {
            return self.list(map, below);
        }
        if home.is_symlink() && self.maps[map].place.kind != MapKind::ReadOnly {
            self.make_dir(map, below.parent().unwrap())?;
            let text = std::fs::read_link(self.maps[map].place.home.join(below)).unwrap();
            symlink(text, &tree).map_err(|e| errno(&e))?;
            return Ok(Self::local(&tree));
        }
        if !home.is_file() {
            return Err(libc::ELOOP);
        }
        self.make_dir(map, below.parent().unwrap())?;
        let source = self.maps[map].place.home.join(below);
        let file = self.waiting(map, below, home.len());
        // The name at home may be looked at again after this one is renamed in the tree.
        self.waiting.remove(&source);
        std::fs::write(&file, std::fs::read(&source).unwrap()).map_err(|e| errno(&e))?;
        std::fs::set_permissions(&file, home.permissions()).unwrap();
        std::fs::File::open(&file).unwrap().set_modified(home.modified().unwrap()).unwrap();
        std::fs::rename(&file, &tree).map_err(|e| errno(&e))?;
        Ok(Self::local(&tree))
    }

    fn names(&self, map: usize, below: &Path) -> HashSet<std::ffi::OsString> {
        let map_of = &self.maps[map];
        let read = |dir: PathBuf| {
            let entries = std::fs::read_dir(dir).into_iter().flatten();
            entries.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
        };
        let mut names: HashSet<_> = read(map_of.tree.join(below)).into_iter().collect();
        for name in read(map_of.place.home.join(below)) {
            if self.visible_at_home(map, &below.join(&name)).is_some() {
                names.insert(name);
            }
        }
        names
    }

    /// Whether something at home is not here, below a directory.
    fn has_more_at_home(&self, map: usize, below: &Path) -> bool {
        self.names(map, below).into_iter().any(|name| {
            let below = below.join(name);
            match (self.here(map, &below), self.visible_at_home(map, &below)) {
                (None, Some(_)) => true,
                (Some(here), Some(_)) if here.is_dir() => self.has_more_at_home(map, &below),
                _ => false,
            }
        })
    }

    fn list(&mut self, map: usize, below: &Path) -> Answer {
        match self.entry(map, below) {
            None => return Err(NOENT),
            Some((found, _)) if !found.is_dir() => return Err(libc::ENOTDIR),
            Some(_) => self.make_dir(map, below)?,
        }
        let dir = self.maps[map].lists.join(below);
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        for name in self.names(map, below) {
            let below = below.join(&name);
            let (found, at) = self.entry(map, &below).unwrap();
            let into = dir.join(&name);
            if found.is_dir() {
                std::fs::create_dir(into).unwrap();
            } else if found.is_symlink() {
                symlink(std::fs::read_link(at).unwrap(), into).unwrap();
            } else {
                // No link to the file itself: programs would see that it has two.
                std::fs::File::create(into).unwrap().set_len(found.len()).unwrap();
            }
        }
        Ok(Self::local(&dir))
    }

    fn look(&mut self, map: usize, below: &Path) -> Answer {
        if self.here(map, below).is_some() {
            return Ok(Self::local(&self.maps[map].tree.join(below)));
        }
        let found = self.visible_at_home(map, below).ok_or(NOENT)?;
        if found.is_dir() {
            self.make_dir(map, below)?;
            return Ok(Self::local(&self.maps[map].tree.join(below)));
        }
        let link = if found.is_symlink() {
            let home = self.maps[map].place.home.join(below);
            std::fs::read_link(home).unwrap().into_os_string().into_vec()
        } else {
            Vec::new()
        };
        let inode = self.waiting(map, below, found.len()).metadata().unwrap().ino();
        let attributes = Attributes {
            kind: FileKind::from_mode(found.mode()).unwrap(),
            mode: found.mode() & 0o777,
            size: found.len(),
            mtime: Timestamp { secs: found.mtime(), nanos: found.mtime_nsec() as u32 },
            link,
        };
        Ok(LocalReply::Found { attributes, inode, kind: self.maps[map].place.kind })
    }

    fn change(&mut self, map: usize, below: &Path, change: Change) -> Answer {
        if self.maps[map].place.kind == MapKind::ReadOnly {
            return Err(libc::EROFS);
        }
        let tree = self.maps[map].tree.join(below);
        let home = self.maps[map].place.home.join(below);
        let found = self.entry(map, below);
        match change {
            Change::Create => self.make_dir(map, below.parent().ok_or(libc::EEXIST)?)?,
            Change::Write { .. } => match found {
                Some((found, _)) if found.is_dir() => self.make_dir(map, below)?,
                Some(_) => drop(self.bring(map, below)?),
                None => return Err(NOENT),
            },
            Change::Replace => {
                self.make_dir(map, below.parent().ok_or(libc::EISDIR)?)?;
                if let Some((found, _)) = found
                    && found.is_file()
                    && self.here(map, below).is_none()
                {
                    std::fs::File::create(&tree)
                        .unwrap()
                        .set_permissions(found.permissions())
                        .unwrap();
                }
            }
            Change::Remove => {
                let (found, _) = found.ok_or(NOENT)?;
                // Of what is here the kernel sees itself whether a directory is empty; it may be moved.
                if found.is_dir() && self.has_more_at_home(map, below) {
                    return Err(libc::ENOTEMPTY);
                }
                self.make_dir(map, below.parent().ok_or(libc::EBUSY)?)?;
                if found.is_dir() {
                    self.make_dir(map, below)?;
                } else if found.is_symlink() && self.here(map, below).is_none() {
                    symlink(std::fs::read_link(&home).unwrap(), &tree).unwrap();
                } else {
                    drop(self.bring(map, below)?);
                }
                if self.visible_at_home(map, below).is_some() {
                    self.gone.insert(home);
                }
            }
        }
        Ok(Self::local(&tree))
    }

    fn answer(&mut self, request: &LocalRequest) -> Answer {
        let outside = |path: PathBuf| Ok(LocalReply::Outside(path.into_os_string().into_vec()));
        let (path, follow) = match request {
            LocalRequest::Greet { .. } => {
                let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
                let maps = self.maps.iter().map(|map| LocalMap {
                    dir: bytes(&map.place.dir),
                    kind: map.place.kind,
                    tree: bytes(&map.tree),
                    lists: bytes(&map.lists),
                });
                return Ok(LocalReply::Welcome {
                    node: NodeId(0),
                    maps: maps.collect(),
                    arriving: None,
                });
            }
            LocalRequest::Prefetch { .. } => return Ok(LocalReply::Done),
            LocalRequest::Read { path, follow }
            | LocalRequest::Open { path, follow }
            | LocalRequest::Look { path, follow } => (path, *follow),
            LocalRequest::List { path } => (path, true),
            LocalRequest::Change { path, change } => {
                (path, matches!(change, Change::Write { follow: true } | Change::Replace))
            }
        };
        let (map, below) = match self.lead(path, follow)? {
            Led::Outside(path) => return outside(path),
            Led::Map(map, below) => (map, below),
        };
        match request {
            LocalRequest::Read { .. } | LocalRequest::Open { .. } => self.bring(map, &below),
            LocalRequest::Look { .. } => self.look(map, &below),
            LocalRequest::List { .. } => self.list(map, &below),
            LocalRequest::Change { change, .. } => self.change(map, &below, *change),
            LocalRequest::Greet { .. } | LocalRequest::Prefetch { .. } => Ok(LocalReply::Done),
        }
    }
}

fn serve(connection: &OwnedFd, state: &Mutex<State>) {
    let mut packet = vec![0; MESSAGE_BYTES_MAX];
    while let Ok((got, _)) = recv(connection, &mut packet[..], RecvFlags::empty()) {
        let Some(request) = decode::<LocalRequest>(&packet[..got]) else { return };
        let mut state = state.lock().unwrap();
        let reply = state.answer(&request).unwrap_or_else(LocalReply::Failed);
        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        state.log.push(match &request {
            LocalRequest::Read { path, .. } | LocalRequest::Open { path, .. } => {
                format!("read {}", shown(path))
            }
            LocalRequest::Look { path, .. } => format!("look {}", shown(path)),
            LocalRequest::List { path } => format!("list {}", shown(path)),
            LocalRequest::Change { path, change } => format!("{change:?} {}", shown(path)),
            LocalRequest::Greet { .. } | LocalRequest::Prefetch { .. } => String::new(),
        });
        drop(state);
        if send(connection, &encode(&reply).unwrap(), SendFlags::NOSIGNAL).is_err() {
            return;
        }
    }
}

impl Agent {
    /// An agent with these maps, which keeps what has come in an empty directory.
    pub(crate) fn start(job: JobId, places: Vec<Place>, scratch: &Path) -> Self {
        let maps = places.into_iter().enumerate().map(|(number, place)| {
            let (tree, lists) =
                (scratch.join(format!("tree/{number}")), scratch.join(format!("lists/{number}")));
            for dir in [&tree, &lists] {
                std::fs::create_dir_all(dir).unwrap();
            }
            Map { place, tree, lists }
        });
        let state = Arc::new(Mutex::new(State {
            maps: maps.collect(),
            scratch: scratch.to_path_buf(),
            waiting: HashMap::new(),
            gone: HashSet::new(),
            connections: Vec::new(),
            log: Vec::new(),
        }));
        let listener =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        let address = SocketAddrUnix::new_abstract_name(job.socket_name().as_bytes()).unwrap();
        bind(&listener, &address).unwrap();
        listen(&listener, 128).unwrap();
        let accepting = listener.try_clone().unwrap();
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            while let Ok(connection) = accept(&accepting) {
                let shared = Arc::clone(&shared);
                shared.lock().unwrap().connections.push(connection.try_clone().unwrap());
                std::thread::spawn(move || serve(&connection, &shared));
            }
        });
        Self { job, state, listener }
    }

    /// What was asked since the last call of this.
    pub(crate) fn asked(&self) -> Vec<String> {
        let mut log = std::mem::take(&mut self.state.lock().unwrap().log);
        log.retain(|line| !line.is_empty());
        log
    }

    /// Goes away, as an agent does whose job has ended.
    pub(crate) fn end(&mut self) {
        // The thread that accepts ends by it.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        for connection in self.state.lock().unwrap().connections.drain(..) {
            let _ = rustix::net::shutdown(connection, rustix::net::Shutdown::Both);
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.end();
    }
}
