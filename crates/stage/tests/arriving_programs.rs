//! Unchanged programs read a file while it comes, by both doors, and find what they find in a plain directory.

#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

#[allow(dead_code, missing_docs, unreachable_pub)]
#[path = "fixture/gated.rs"]
mod gated;
#[path = "../../preload/tests/staging/over.rs"]
mod over;

use std::io::{Read as _, Seek as _};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use azekura_proto::staging::{MapKind, NodeId};
use azekura_stage::agent::Agent;
use azekura_stage::front::{AgentAt, Front, FrontOptions, OutOptions, Recipients};
use azekura_stage::job::{AgentDescription, Keeping, MapDescription, draw};
use azekura_stage::source::Source;
use azekura_stage::trap;
use gated::{Gate, Gated};
use over::{MAP, Over};

/// Where the home stops, in bytes.
const STOPS_AT: u64 = 5 << 20;
const LINES: u32 = 800_000;
/// How long a program is seen to wait.
const MOMENT: Duration = Duration::from_millis(400);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Door {
    Preload,
    Notify,
}

struct Job {
    over: Over,
    gate: Arc<Gate>,
    front: Option<Front>,
    agent: Agent,
    _scratch: tempfile::TempDir,
}

impl Job {
    /// A home with so many files `f0`, `f1` ... of one content.
    fn start(files: usize) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let (home, plain) = (scratch.path().join("home"), scratch.path().join("plain"));
        let content: Vec<u8> =
            (0..LINES).flat_map(|line| format!("line {line}\n").into_bytes()).collect();
        for file in 0..files {
            for dir in [&home, &plain] {
                let path = dir.join(format!("f{file}"));
                over::put(&path, &content, 0o644, 1_500_000_000);
            }
        }
        let (job, secret) = draw().unwrap();
        let map = MapDescription { dir: MAP.into(), kind: MapKind::ReadOnly };
        let agent = Agent::start(AgentDescription {
            job,
            secret: secret.clone(),
            node: NodeId(0),
            host: "host".to_owned(),
            cache: scratch.path().join("cache"),
            maps: vec![map.clone()],
            keeps_cache: false,
            keeping: Keeping::default(),
            socket_suffix: String::new(),
        });
        let agent = agent.unwrap();
        let gate = Arc::new(Gate::default());
        let source = Arc::new(Gated::new(&home, &gate)) as Arc<dyn Source>;
        let options = FrontOptions {
            job,
            secret,
            maps: vec![(map, source)],
            recipients: Recipients::All,
            out: OutOptions::default(),
        };
        let address = ([127, 0, 0, 1], agent.port()).into();
        let at = AgentAt { node: NodeId(0), host: "host".to_owned(), address };
        let front = Front::start(options, vec![at], channel().0).unwrap();
        let over = Over { job, plain, scratch: scratch.path().to_path_buf() };
        Self { over, gate, front: Some(front), agent, _scratch: scratch }
    }

    fn run(&self, door: Door, script: &str) -> String {
        let file = self.over.scratch.join("said");
        let output = std::fs::File::create(&file).unwrap();
        let mut command = match door {
            Door::Preload => self.over.command("bash"),
            Door::Notify => Command::new("bash"),
        };
        command.args(["-c", script]).env("DIR", MAP).env("LC_ALL", "C").env("TMP", self.tmp());
        command.stdout(output.try_clone().unwrap()).stderr(output);
        let status = match door {
            Door::Preload => command.status().unwrap(),
            Door::Notify => trap::run(command, self.over.job).unwrap(),
        };
        assert!(
            status.success(),
            "{door:?}: {script}: {}",
            std::fs::read_to_string(&file).unwrap()
        );
        std::fs::read_to_string(&file).unwrap()
    }

    fn plain(&self, script: &str) -> String {
        let mut output = tempfile::tempfile().unwrap();
        let mut command = Command::new("bash");
        command.args(["-c", script]).env("DIR", &self.over.plain).env("LC_ALL", "C");
        command.env("TMP", self.tmp()).stdout(output.try_clone().unwrap());
        assert!(command.status().unwrap().success(), "{script}");
        let mut said = String::new();
        output.rewind().unwrap();
        output.read_to_string(&mut said).unwrap();
        said
    }

    fn tmp(&self) -> PathBuf {
        let path = self.over.scratch.join("tmp");
        std::fs::create_dir_all(&path).unwrap();
        path
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.gate.open();
        drop(self.front.take());
        self.agent.stop();
    }
}

/// These need the beginning of a file only.
const BEGINNINGS: &[&str] = &[
    "head -c 1000 $DIR/f0",
    "grep -m1 'line 1000$' $DIR/f1",
    "read one < $DIR/f2; echo $one",
    "python3 -c \"import sys; print(open('$DIR/f3').readline())\"",
    "dd if=$DIR/f0 bs=64k count=10 status=none | md5sum",
];

/// These need all of it, and look at it more than once.
const WHOLE: &[&str] = &[
    "cp $DIR/f0 $TMP/f && md5sum < $TMP/f",
    "tar -cf - -C $DIR f1 | tar -xOf - | md5sum",
    "cat $DIR/f2 | md5sum",
    "cmp $DIR/f3 $DIR/f3 && wc -l < $DIR/f3",
    "tail -c 100 $DIR/f4; sort $DIR/f4 | md5sum",
    "install -m 600 $DIR/f5 $TMP/g && md5sum < $TMP/g",
    "python3 -c \"\nimport os, mmap, hashlib\np = '$DIR/f6'\nkey = lambda s: (s.st_dev, s.st_ino, s.st_size, \
     s.st_mode, s.st_nlink, s.st_mtime_ns)\nsaw = [key(os.stat(p))]\nf = open(p, 'rb')\nsaw.append(key(os.fstat(f.fileno())))\nf.read(10)\n\
     saw.append(key(os.stat(p)))\nm = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)\n\
     print(hashlib.md5(m).hexdigest())\nsaw += [key(os.stat(p)), key(os.fstat(f.fileno())), \
     key(os.stat(f.fileno()))]\ng = open(p, 'rb')\nsaw.append(key(os.fstat(g.fileno())))\nprint(len(set(saw)), os.path.sameopenfile(f.fileno(), \
     g.fileno()))\n\"",
];

/// Programs without a C library to hook.
const STATIC: &[&str] = &[
    "/usr/bin/busybox head -c 1000 $DIR/f7",
    "/usr/bin/busybox cp $DIR/f7 $TMP/h && md5sum < $TMP/h",
    "/usr/bin/busybox tar -cf - -C $DIR f8 | tar -xOf - | md5sum",
];

fn check(door: Door) {
    let job = Job::start(9);
    job.gate.close(STOPS_AT);
    let may_arrive = {
        let fuse = std::fs::File::options().read(true).write(true).open("/dev/fuse");
        let spaces = Command::new("unshare").args(["--user", "--mount", "true"]).status();
        fuse.is_ok() && spaces.is_ok_and(|status| status.success())
    };
    if !may_arrive {
        eprintln!("skipped: no FUSE file system can be mounted in a user name space here");
        return;
    }
    for script in BEGINNINGS {
        assert_eq!(job.run(door, script), job.plain(script), "{door:?}: {script}");
    }
    let is_static = door == Door::Notify && std::path::Path::new("/usr/bin/busybox").exists();
    let statics = if is_static { STATIC } else { &[] };
    for script in WHOLE.iter().chain(statics) {
        job.gate.close(STOPS_AT);
        let gate = Arc::clone(&job.gate);
        let opening = std::thread::spawn(move || {
            std::thread::sleep(MOMENT);
            gate.open();
        });
        assert_eq!(job.run(door, script), job.plain(script), "{door:?}: {script}");
        opening.join().unwrap();
    }
}

#[test]
fn programs_with_the_library_read_what_comes() {
    check(Door::Preload);
}

#[test]
fn programs_whose_calls_are_trapped_read_what_comes() {
    check(Door::Notify);
}
