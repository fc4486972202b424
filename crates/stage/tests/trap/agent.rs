//! An agent of one node without a front: it serves from a directory, as an agent does that has all files.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use azekura_proto::staging::local::{
    self, Change, LocalMap, LocalReply, LocalRequest, MESSAGE_BYTES_MAX,
};
use azekura_proto::staging::{Attributes, JobId, MapKind, NodeId};
use azekura_proto::{FileKind, Timestamp};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept, bind,
    listen, recv, send, socket_with,
};

/// A file of this name takes that long to come.
pub(crate) const SLOW: &str = "slow";
pub(crate) const SLOW_FOR: Duration = Duration::from_millis(2500);

/// Where a path leads.
enum Leads {
    /// Below a map.
    To(usize, PathBuf),
    Out(PathBuf),
}

pub(crate) struct Agent {
    pub(crate) job: JobId,
    /// What programs call the directory of each map.
    maps: Vec<(PathBuf, MapKind)>,
    /// A directory for each map, with its files.
    home: PathBuf,
    cache: PathBuf,
    /// Of files that have been looked at: what will be in the tree.
    partial: Mutex<HashMap<PathBuf, PathBuf>>,
}

impl Agent {
    /// Serves `home/0` as the first map's directory, and so on, until this process ends.
    pub(crate) fn start(home: &Path, cache: &Path, maps: &[(&Path, MapKind)]) -> Arc<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).unwrap();
        let agent = Arc::new(Self {
            job: JobId(bytes),
            maps: maps.iter().map(|(dir, kind)| ((*dir).to_owned(), *kind)).collect(),
            home: home.to_owned(),
            cache: cache.to_owned(),
            partial: Mutex::default(),
        });
        for map in 0..maps.len() {
            for part in ["tree", "lists"] {
                fs::create_dir_all(cache.join(part).join(map.to_string())).unwrap();
            }
        }
        fs::create_dir_all(cache.join("partial")).unwrap();
        let kind = SocketType::SEQPACKET;
        let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        let name = agent.job.socket_name();
        bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
        listen(&socket, 64).unwrap();
        let serving = Arc::clone(&agent);
        std::thread::spawn(move || {
            while let Ok(connection) = accept(&socket) {
                let serving = Arc::clone(&serving);
                std::thread::spawn(move || serving.serve(&connection));
            }
        });
        agent
    }

    fn serve(&self, connection: &OwnedFd) {
        let mut packet = vec![0; MESSAGE_BYTES_MAX];
        while let Ok((bytes, _)) = recv(connection, &mut packet[..], RecvFlags::empty()) {
            let Some(request) = local::decode::<LocalRequest>(&packet[..bytes]) else { return };
            let reply = self
                .reply(&request)
                .unwrap_or_else(|error| LocalReply::Failed(error.raw_os_error()));
            let reply = local::encode(&reply).unwrap();
            if send(connection, &reply, SendFlags::NOSIGNAL).is_err() {
                return;
            }
        }
    }

    fn tree(&self, map: usize, below: &Path) -> PathBuf {
        self.cache.join("tree").join(map.to_string()).join(below)
    }

    fn source(&self, map: usize, below: &Path) -> PathBuf {
        self.home.join(map.to_string()).join(below)
    }

    fn reply(&self, request: &LocalRequest) -> Result<LocalReply, Errno> {
        let path = |bytes: Vec<u8>| PathBuf::from(std::ffi::OsString::from_vec(bytes));
        let (wanted, follow) = match request {
            LocalRequest::Greet { .. } => return Ok(self.welcome()),
            LocalRequest::Prefetch { .. } => return Ok(LocalReply::Done),
            LocalRequest::Read { path, follow }
            | LocalRequest::Open { path, follow }
            | LocalRequest::Look { path, follow } => {
                (path.clone(), *follow)
            }
            LocalRequest::List { path } => (path.clone(), true),
            LocalRequest::Change { path, change } => {
                (path.clone(), matches!(change, Change::Write | Change::Replace))
            }
        };
        let (map, below) = match self.resolve(path(wanted), follow)? {
            Leads::To(map, below) => (map, below),
            Leads::Out(path) => return Ok(LocalReply::Outside(path.into_os_string().into_vec())),
        };
        match request {
            LocalRequest::Look { .. } => self.look(map, &below),
            LocalRequest::Change { change, .. } => self.change(map, &below, *change),
            LocalRequest::List { .. } => self.list(map, &below),
            _ => self.read(map, &below),
        }
    }

    fn welcome(&self) -> LocalReply {
        let bytes = |path: PathBuf| path.into_os_string().into_vec();
        let all = self.maps.iter().enumerate().map(|(map, (dir, kind))| LocalMap {
            dir: bytes(dir.clone()),
            kind: *kind,
            tree: bytes(self.cache.join("tree").join(map.to_string())),
            lists: bytes(self.cache.join("lists").join(map.to_string())),
        });
        LocalReply::Welcome { node: NodeId(0), maps: all.collect(), arriving: None }
    }

    /// Goes along a path, over what is here and what is at home.
    fn resolve(&self, path: PathBuf, follow: bool) -> Result<Leads, Errno> {
        let mut path = path;
        'anew: for _ in 0..40 {
            let Some(map) = self.maps.iter().position(|(dir, _)| path.starts_with(dir)) else {
                return Ok(Leads::Out(path));
            };
            let dir = &self.maps[map].0;
            let rest = path.strip_prefix(dir).unwrap().to_owned();
            let mut below = PathBuf::new();
            let mut parts = rest.components().peekable();
            while let Some(part) = parts.next() {
                match part {
                    Component::ParentDir if below.as_os_str().is_empty() => {
                        let out = dir.parent().unwrap().join(parts.collect::<PathBuf>());
                        path = out;
                        continue 'anew;
                    }
                    Component::ParentDir => {
                        below.pop();
                        continue;
                    }
                    Component::Normal(name) => below.push(name),
                    _ => continue,
                }
                let at_end = parts.peek().is_none();
                let here = fs::read_link(self.tree(map, &below));
                let text = here.or_else(|_| match self.maps[map].1 {
                    MapKind::Out => Err(Errno::NOENT.into()),
                    _ => fs::read_link(self.source(map, &below)),
                });
                if let Ok(text) = text
                    && (follow || !at_end)
                {
                    below.pop();
                    let rest: PathBuf = parts.collect();
                    path = dir.join(&below).join(text);
                    if !rest.as_os_str().is_empty() {
                        path.push(rest);
                    }
                    continue 'anew;
                }
            }
            return Ok(Leads::To(map, below));
        }
        Err(Errno::LOOP)
    }

    /// What is at home, as far as it is seen.
    fn at_home(&self, map: usize, below: &Path) -> Result<fs::Metadata, Errno> {
        let found = fs::symlink_metadata(self.source(map, below))
            .map_err(|error| Errno::from_io_error(&error).unwrap())?;
        match self.maps[map].1 {
            MapKind::Out if !found.is_dir() => Err(Errno::NOENT),
            _ => Ok(found),
        }
    }

    fn look(&self, map: usize, below: &Path) -> Result<LocalReply, Errno> {
        let here = self.tree(map, below);
        if fs::symlink_metadata(&here).is_ok_and(|here| !here.is_dir()) {
            return Ok(LocalReply::Local(here.into_os_string().into_vec()));
        }
        let found = match self.at_home(map, below) {
            Err(Errno::NOENT) if here.exists() => {
                return Ok(LocalReply::Local(here.into_os_string().into_vec()));
            }
            found => found?,
        };
        let inode = if found.is_file() {
            fs::metadata(self.partial(&here)).unwrap().ino()
        } else {
            found.ino()
        };
        let link = fs::read_link(self.source(map, below)).unwrap_or_default();
        let attributes = Attributes {
            kind: FileKind::from_mode(found.mode()).unwrap(),
            mode: found.mode() & 0o777,
            size: found.size(),
            mtime: Timestamp { secs: found.mtime(), nanos: found.mtime_nsec() as u32 },
            link: link.into_os_string().into_vec(),
        };
        Ok(LocalReply::Found { attributes, inode })
    }

    /// What will be in the tree under a path: made now, so that its inode number is known.
    fn partial(&self, here: &Path) -> PathBuf {
        let mut partial = self.partial.lock().unwrap();
        let count = partial.len();
        let made = partial.entry(here.to_owned()).or_insert_with(|| {
            let path = self.cache.join("partial").join(count.to_string());
            File::create(&path).unwrap();
            path
        });
        made.clone()
    }

    fn read(&self, map: usize, below: &Path) -> Result<LocalReply, Errno> {
        let here = self.tree(map, below);
        let found = fs::symlink_metadata(&here).map(|found| found.is_dir());
        match found.or_else(|_| self.at_home(map, below).map(|found| found.is_dir())) {
            Ok(true) => return self.list(map, below),
            Ok(false) if here.exists() => {}
            Ok(false) => self.bring(map, below),
            Err(error) => return Err(error),
        }
        Ok(LocalReply::Local(here.into_os_string().into_vec()))
    }

    fn bring(&self, map: usize, below: &Path) {
        if below.file_name().is_some_and(|name| name == SLOW) {
            std::thread::sleep(SLOW_FOR);
        }
        let (from, here) = (self.source(map, below), self.tree(map, below));
        let partial = self.partial(&here);
        fs::create_dir_all(here.parent().unwrap()).unwrap();
        // Two may bring it at once: the one who is late has nothing to do.
        if fs::copy(&from, &partial).is_err() {
            return;
        }
        let mtime = fs::metadata(&from).unwrap().modified().unwrap();
        let file = File::options().write(true).open(&partial).unwrap();
        file.set_modified(mtime).unwrap();
        drop(file);
        let _ = fs::rename(&partial, &here);
    }

    fn list(&self, map: usize, below: &Path) -> Result<LocalReply, Errno> {
        let list = self.cache.join("lists").join(map.to_string()).join(below);
        let here = self.tree(map, below);
        let not_here = !here.is_dir();
        match self.at_home(map, below) {
            Ok(found) if !found.is_dir() => return Err(Errno::NOTDIR),
            Err(error) if not_here => return Err(error),
            _ => {}
        }
        fs::create_dir_all(&list).unwrap();
        for (dir, is_home) in [(here, false), (self.source(map, below), true)] {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                let name = list.join(entry.file_name());
                if is_home && self.at_home(map, &below.join(entry.file_name())).is_err() {
                    continue;
                }
                if entry.file_type().unwrap().is_dir() {
                    let _ = fs::create_dir(name);
                } else {
                    let _ = File::create_new(name);
                }
            }
        }
        Ok(LocalReply::Local(list.into_os_string().into_vec()))
    }

    fn change(&self, map: usize, below: &Path, change: Change) -> Result<LocalReply, Errno> {
        if self.maps[map].1 == MapKind::ReadOnly {
            return Err(Errno::ROFS);
        }
        let here = self.tree(map, below);
        let is_here = fs::symlink_metadata(&here).is_ok();
        let home = self.at_home(map, below);
        let parent = below.parent().unwrap_or(Path::new(""));
        if !self.tree(map, parent).is_dir() {
            self.at_home(map, parent)?;
            fs::create_dir_all(self.tree(map, parent)).unwrap();
        }
        match (change, home) {
            (Change::Write, Ok(found)) if !is_here && found.is_file() => self.bring(map, below),
            (Change::Write, Ok(_)) if !is_here => fs::create_dir_all(&here).unwrap(),
            (Change::Write | Change::Remove, Err(error)) if !is_here => return Err(error),
            _ => {}
        }
        Ok(LocalReply::Local(here.as_os_str().as_bytes().to_vec()))
    }
}
