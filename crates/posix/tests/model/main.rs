//! A reference-model test: random operations by several clients on a pool, and the same ones on a
//! directory of the machine's own file system. Every result must be equal, and the trees at the
//! end too. A run is repeated by `AZEKURA_SEED`; `AZEKURA_OPS` sets its length.

#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

#[path = "../cluster/mod.rs"]
mod cluster;
mod local;
mod operation;
mod outcome;
mod remote;

use std::path::PathBuf;

use azekura_posix::{CachePolicy, Credentials, Errno, FileKind, Namespace, SeekTo};
use azekura_proto::attr::Inheritance;
use cluster::Cluster;
use local::Local;
use operation::{Op, Random};
use outcome::{Answer, Outcome};
use remote::Remote;

/// More levels than one path can go up, so that no `..` leaves the base.
const DEPTH: usize = 45;

fn number_from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

fn seed() -> u64 {
    number_from_env("AZEKURA_SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        now.as_nanos() as u64 % 1_000_000_000
    })
}

struct Model {
    local: Local,
    remote: Remote,
    random: Random,
    history: Vec<String>,
}

impl Model {
    fn new(cluster: &Cluster, clients: &[CachePolicy], seed: u64) -> Self {
        rustix::process::umask(rustix::fs::Mode::empty());
        let mut dir = cluster.scratch();
        let mut deep = PathBuf::from("/");
        for _ in 0..DEPTH {
            dir.push("p");
            deep.push("p");
        }
        std::fs::create_dir_all(&dir).unwrap();
        let (uid, gid) = Local::owner();
        let caller = Credentials { uid, gid, groups: Vec::new() };
        let deep = deep.to_str().unwrap();
        let clients = clients
            .iter()
            .map(|cache| {
                let client = Namespace::new(cluster.mount(*cache), caller.clone());
                let base = client.create_dir_all(deep, 0o777).unwrap();
                client.at(base.oid)
            })
            .collect();
        let (local, remote) = (Local::new(&dir), Remote::new(clients));
        Self { local, remote, random: Random(seed), history: Vec::new() }
    }

    fn step(&mut self) {
        let op = self.random.op();
        if let Op::Open { path, .. } = &op {
            // Opening a pipe waits for its other end, and only a kernel can do that.
            if self.local.kind_of(path) == Some(FileKind::Fifo) {
                return;
            }
        }
        let client = self.random.below(self.remote.clients().len() as u64) as usize;
        let here = self.local.apply(&op);
        let there = self.remote.apply(client, &op);
        self.note(format!("{client}: {} -> {here:?}", shown(&op)));
        let equal = match &op {
            Op::Seek { slot, offset, to } => self.is_fair_seek(*slot, *offset, *to, &here, &there),
            // Which of two errors comes first is nobody's business.
            Op::Rename { .. } if there == Err(Errno::NAMETOOLONG) => here.is_err(),
            // Where the new name is a directory above the old one, POSIX allows either.
            Op::Rename { .. } if here == Err(Errno::NOTEMPTY) => {
                matches!(there, Err(Errno::NOTEMPTY | Errno::ISDIR))
            }
            _ => here == there,
        };
        if !equal {
            self.fail(&format!("the reference says {here:?}, the pool {there:?}"));
        }
    }

    /// File systems may report holes as they like, as long as they are zeros.
    fn is_fair_seek(
        &self,
        slot: usize,
        offset: u64,
        to: SeekTo,
        here: &Outcome,
        there: &Outcome,
    ) -> bool {
        let found = there;
        let Some(data) = self.local.contents(slot) else { return here == there };
        let rest = data.get(offset as usize..).unwrap_or_default();
        match (found, to) {
            (Ok(Answer::Count(at)), SeekTo::Data) => {
                *at < data.len() as u64
                    && data[offset as usize..*at as usize].iter().all(|byte| *byte == 0)
            }
            (Ok(Answer::Count(at)), SeekTo::Hole) => {
                let page_end = ((*at as usize | 4095) + 1).min(data.len());
                *at >= offset
                    && *at <= data.len() as u64
                    && data[*at as usize..page_end].iter().all(|byte| *byte == 0)
            }
            (Err(Errno::NXIO), SeekTo::Data) => rest.iter().all(|byte| *byte == 0),
            (Err(Errno::NXIO), SeekTo::Hole) => rest.is_empty(),
            _ => false,
        }
    }

    fn note(&mut self, line: String) {
        if self.history.len() >= 400 {
            self.history.drain(..200);
        }
        self.history.push(line);
    }

    fn fail(&self, what: &str) -> ! {
        for line in &self.history {
            eprintln!("{line}");
        }
        panic!("after the operation above: {what}");
    }

    /// Compares everything below `path`.
    fn compare_trees(&mut self, path: &[u8]) {
        let list = Op::List { path: path.to_vec() };
        let client = self.random.below(self.remote.clients().len() as u64) as usize;
        let names = self.compare(client, &list);
        let Some(Answer::Names(names)) = names else { return };
        for (name, kind) in names {
            let mut below = path.to_vec();
            below.push(b'/');
            below.extend_from_slice(&name);
            self.compare(client, &Op::Stat { path: below.clone(), follow: false });
            match kind {
                FileKind::Directory => {
                    self.compare(client, &Op::ListXattrs { path: below.clone() });
                    self.compare_trees(&below);
                }
                FileKind::Symlink => {
                    self.compare(client, &Op::ReadLink { path: below });
                }
                FileKind::Regular => self.compare_file(client, below),
                _ => {}
            }
        }
    }

    fn compare_file(&mut self, client: usize, path: Vec<u8>) {
        self.compare(client, &Op::ListXattrs { path: path.clone() });
        for name in [&b"user.one"[..], b"user.two", b"user.three"] {
            self.compare(client, &Op::GetXattr { path: path.clone(), name: name.to_vec() });
        }
        let flags = azekura_posix::OFlags::RDONLY;
        self.compare(client, &Op::Open { slot: 0, path, flags, mode: 0 });
        self.compare(client, &Op::Read { slot: 0, offset: 0, bytes: 1 << 20 });
        self.compare(client, &Op::Close { slot: 0 });
    }

    fn compare(&mut self, client: usize, op: &Op) -> Option<Answer> {
        let (here, there) = (self.local.apply(op), self.remote.apply(client, op));
        self.note(format!("compare {client}: {} -> {here:?}", shown(op)));
        if here != there {
            self.fail(&format!("trees differ: the reference says {here:?}, the pool {there:?}"));
        }
        here.ok()
    }
}

/// An operation without its data.
fn shown(op: &Op) -> String {
    let data = |bytes: &[u8]| Answer::Data(bytes.to_vec());
    match op {
        Op::Write { slot, offset, data: bytes } => {
            format!("Write {{ slot: {slot}, offset: {offset}, {:?} }}", data(bytes))
        }
        Op::SetXattr { path, name, value, mode } => {
            let (path, name) = (String::from_utf8_lossy(path), String::from_utf8_lossy(name));
            format!("SetXattr {{ {path} {name} {mode:?} {:?} }}", data(value))
        }
        Op::Open { slot, path, flags, mode } => {
            let path = String::from_utf8_lossy(path);
            format!("Open {{ slot: {slot}, {path} {flags:?} {mode:o} }}")
        }
        Op::Rename { from, to, mode } => {
            let (from, to) = (String::from_utf8_lossy(from), String::from_utf8_lossy(to));
            format!("Rename {{ {from} {to} {mode:?} }}")
        }
        Op::Link { from, to } => {
            let (from, to) = (String::from_utf8_lossy(from), String::from_utf8_lossy(to));
            format!("Link {{ {from} {to} }}")
        }
        Op::Symlink { text, path } => {
            let (text, path) = (String::from_utf8_lossy(text), String::from_utf8_lossy(path));
            format!("Symlink {{ {text} <- {path} }}")
        }
        Op::Mkdir { path, .. } => format!("Mkdir {}", String::from_utf8_lossy(path)),
        Op::Rmdir { path } => format!("Rmdir {}", String::from_utf8_lossy(path)),
        Op::Unlink { path } => format!("Unlink {}", String::from_utf8_lossy(path)),
        Op::Stat { path, follow } => format!("Stat {} {follow}", String::from_utf8_lossy(path)),
        Op::List { path } => format!("List {}", String::from_utf8_lossy(path)),
        Op::Fifo { path, .. } => format!("Fifo {}", String::from_utf8_lossy(path)),
        Op::TruncatePath { path, bytes } => {
            format!("TruncatePath {} {bytes}", String::from_utf8_lossy(path))
        }
        other => format!("{other:?}"),
    }
}

fn run(engines: u16, targets_each: u16, clients: &[CachePolicy], share: u64) {
    let seed = seed();
    println!("AZEKURA_SEED={seed}");
    let ops = number_from_env("AZEKURA_OPS").unwrap_or(25_000) / share;
    let inheritance = Inheritance { chunk_bytes: 4096, ..Inheritance::default() };
    let cluster = Cluster::start(engines, targets_each, inheritance);
    let mut model = Model::new(&cluster, clients, seed);
    for index in 0..ops {
        model.step();
        if index % 5000 == 4999 {
            model.compare_trees(b".");
        }
    }
    model.compare_trees(b".");
}

#[test]
fn three_clients_of_three_engines_do_what_a_local_directory_does() {
    run(3, 2, &[CachePolicy::None; 3], 1);
}

#[test]
fn a_client_that_caches_sees_its_own_changes() {
    run(2, 1, &[CachePolicy::AUTO], 4);
}
