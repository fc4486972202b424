//! A reference model: random operations on a directory of the machine's own file system and on what
//! is under test, with every result and the trees at the end compared. Owns where the two may differ.

mod local;
mod operation;
mod outcome;
mod remote;

use std::path::{Path, PathBuf};

use azekura_posix::{Errno, FileKind, SeekTo};

use crate::Random;

pub use local::{Local, user_names};
pub use operation::{Op, SLOTS};
pub use outcome::{Answer, Outcome, Stat, comparable};
pub use remote::Remote;

/// More levels than one path can go up, so that no `..` leaves the base.
const DEPTH: usize = 45;

fn number_from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// The seed of a run: that of `AZEKURA_SEED`, or a new one, which is printed.
pub fn seed() -> u64 {
    let seed = number_from_env("AZEKURA_SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        now.as_nanos() as u64 % 1_000_000_000
    });
    println!("AZEKURA_SEED={seed}");
    seed
}

/// Operations of a run: `AZEKURA_OPS`, or the usual number.
pub fn operations() -> u64 {
    number_from_env("AZEKURA_OPS").unwrap_or(12_000)
}

/// A directory so deep below `top` that no path of the test leads above it.
pub fn deep(top: &Path) -> PathBuf {
    (0..DEPTH).fold(top.to_path_buf(), |path, _| path.join("p"))
}

/// What is under test.
pub trait Subject {
    /// How many clients there are.
    fn clients(&self) -> usize;
    /// Carries out an operation as one of them.
    fn apply(&mut self, client: usize, op: &Op) -> Outcome;
}

/// The reference and what is under test, and what has been done to them.
pub struct Model<S> {
    local: Local,
    tested: S,
    random: Random,
    history: Vec<String>,
}

impl<S: Subject> Model<S> {
    /// The reference below a directory that is there, and a subject with nothing in it.
    pub fn new(local: &Path, tested: S, seed: u64) -> Self {
        Self { local: Local::new(local), tested, random: Random::new(seed), history: Vec::new() }
    }

    /// Carries out many operations, and compares the trees now and then, and at the end.
    pub fn run(&mut self, ops: u64) {
        for index in 0..ops {
            self.step();
            if index % 5000 == 4999 {
                self.compare_trees(b".");
            }
        }
        self.compare_trees(b".");
    }

    fn step(&mut self) {
        let op = self.random.operation();
        if let Op::Open { path, .. } = &op {
            // Opening a pipe waits for its other end, and only a kernel can do that.
            if self.local.kind_of(path) == Some(FileKind::Fifo) {
                return;
            }
        }
        let client = self.random.below(self.tested.clients() as u64) as usize;
        let here = self.local.apply(&op);
        let there = self.tested.apply(client, &op);
        self.note(format!("{client}: {} -> {here:?}", shown(&op)));
        let equal = match &op {
            Op::Seek { slot, offset, to } => self.is_fair_seek(*slot, *offset, *to, &here, &there),
            _ => agree(&op, &here, &there),
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
        let client = self.random.below(self.tested.clients() as u64) as usize;
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
        let (here, there) = (self.local.apply(op), self.tested.apply(client, op));
        self.note(format!("compare {client}: {} -> {here:?}", shown(op)));
        if here != there {
            self.fail(&format!("trees differ: the reference says {here:?}, the pool {there:?}"));
        }
        here.ok()
    }
}

/// Whether an outcome is what the reference gives, but for what POSIX leaves open.
pub(crate) fn agree(op: &Op, right: &Outcome, outcome: &Outcome) -> bool {
    match op {
        // Which of two errors comes first is nobody's business.
        Op::Rename { .. } if *outcome == Err(Errno::NAMETOOLONG) => right.is_err(),
        Op::Rename { .. } if *right == Err(Errno::NAMETOOLONG) => outcome.is_err(),
        // Where the new name is a directory above the old one, POSIX allows either.
        Op::Rename { .. } if *right == Err(Errno::NOTEMPTY) => {
            matches!(outcome, Err(Errno::NOTEMPTY | Errno::ISDIR))
        }
        _ => right == outcome,
    }
}

/// An operation without its data.
pub(crate) fn shown(op: &Op) -> String {
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
