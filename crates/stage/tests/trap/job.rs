//! A job with one node and a map of each kind. Programs name the maps by directories that exist nowhere.

use std::fs;
use std::io::{Read as _, Seek as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use azekura_proto::staging::{JobId, MapKind, NodeId};
use azekura_stage::agent::Agent;
use azekura_stage::front::{AgentAt, Front, FrontOptions, OutOptions, Recipients};
use azekura_stage::job::{AgentDescription, Keeping, MapDescription, draw};
use azekura_stage::source::Source;
use azekura_stage::trap;

use crate::gated::{Gate, Gated};
use crate::programs;

const KINDS: [MapKind; 3] = [MapKind::ReadOnly, MapKind::Out, MapKind::ReadWrite];
/// Where reads of [`Job::put_slow`]'s file stop for a while: other files are shorter.
const STOPS_AT: u64 = 512 * 1024;
/// For how long.
pub(crate) const SLOW_FOR: Duration = Duration::from_millis(2500);

pub(crate) struct Job {
    pub(crate) id: JobId,
    /// What programs call the maps.
    pub(crate) ro: PathBuf,
    pub(crate) out: PathBuf,
    pub(crate) rw: PathBuf,
    pub(crate) dir: tempfile::TempDir,
    gate: Arc<Gate>,
    agent: Agent,
    front: Mutex<Option<Front>>,
}

/// What a program printed, and how it ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) said: String,
    pub(crate) code: Option<i32>,
}

pub(crate) fn said(said: &str) -> Ended {
    Ended { said: said.to_owned(), code: Some(0) }
}

pub(crate) fn failed(said: &str) -> Ended {
    Ended { said: said.to_owned(), code: Some(1) }
}

impl Job {
    pub(crate) fn start() -> Self {
        let (id, secret) = draw().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let nowhere = Path::new("/azekura-nowhere").join(dir.path().file_name().unwrap());
        let dirs = ["ro", "out", "rw"].map(|name| nowhere.join(name));
        let describe = |(dir, kind): (&PathBuf, MapKind)| MapDescription {
            dir: dir.as_os_str().as_bytes().to_vec(),
            kind,
        };
        let maps: Vec<_> = dirs.iter().zip(KINDS).map(describe).collect();
        let description = AgentDescription {
            job: id,
            secret: secret.clone(),
            node: NodeId(0),
            host: "host".to_owned(),
            cache: dir.path().join("cache"),
            maps: maps.clone(),
            keeps_cache: false,
            keeping: Keeping::default(),
            socket_suffix: String::new(),
        };
        let agent = Agent::start(description).unwrap();
        let gate = Arc::new(Gate::default());
        let open = |(index, map)| {
            let home = home(dir.path(), index);
            fs::create_dir_all(&home).unwrap();
            (map, Arc::new(Gated::new(&home, &gate)) as Arc<dyn Source>)
        };
        let options = FrontOptions {
            job: id,
            secret,
            maps: maps.into_iter().enumerate().map(open).collect(),
            recipients: Recipients::Requesters,
            out: OutOptions::default(),
        };
        let address = ([127, 0, 0, 1], agent.port()).into();
        let at = AgentAt { node: NodeId(0), host: "host".to_owned(), address };
        // Nobody listens to the events.
        let front = Front::start(options, vec![at], channel().0).unwrap();
        let [ro, out, rw] = dirs;
        Self { id, ro, out, rw, dir, gate, agent, front: Mutex::new(Some(front)) }
    }

    /// A map's directory at home.
    pub(crate) fn home(&self, map: usize) -> PathBuf {
        home(self.dir.path(), map)
    }

    /// What stands in a map's tree.
    pub(crate) fn tree(&self, map: usize, name: &str) -> PathBuf {
        let node =
            self.dir.path().join("cache").join(format!("azekura-stage-{}", self.id.to_hex()));
        node.join("0/tree").join(map.to_string()).join(name)
    }

    /// A file at home in the map `ro`.
    pub(crate) fn put(&self, name: &str, content: &str) -> PathBuf {
        self.put_in(0, name, content)
    }

    pub(crate) fn put_in(&self, map: usize, name: &str, content: &str) -> PathBuf {
        let path = self.home(map).join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// A file in the map `ro` that takes [`SLOW_FOR`] to come, from now on.
    pub(crate) fn put_slow(&self, name: &str) -> PathBuf {
        self.put(name, &"slow ".repeat(STOPS_AT as usize / 2));
        self.gate.close(STOPS_AT);
        let gate = Arc::clone(&self.gate);
        std::thread::spawn(move || {
            gate.wait_for_reader();
            std::thread::sleep(SLOW_FOR);
            gate.open();
        });
        self.ro.join(name)
    }

    /// Runs a program with its calls trapped.
    pub(crate) fn run<S: AsRef<std::ffi::OsStr>>(&self, words: &[S]) -> Ended {
        let mut command = Command::new(words[0].as_ref());
        command.args(&words[1..]);
        self.run_command(command)
    }

    pub(crate) fn run_command(&self, mut command: Command) -> Ended {
        let mut output = tempfile::tempfile().unwrap();
        command.stdout(output.try_clone().unwrap());
        let status = trap::run(command, self.id).unwrap();
        let mut said = String::new();
        output.rewind().unwrap();
        output.read_to_string(&mut said).unwrap();
        Ended { said, code: status.code() }
    }

    pub(crate) fn probe(&self, words: &[&dyn AsRef<std::ffi::OsStr>]) -> Ended {
        let mut command = Command::new(programs::probe());
        command.args(words.iter().map(AsRef::as_ref));
        self.run_command(command)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.gate.open();
        drop(self.front.lock().unwrap().take());
        self.agent.stop();
    }
}

fn home(dir: &Path, map: usize) -> PathBuf {
    dir.join("home").join(map.to_string())
}
