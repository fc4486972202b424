//! Unchanged programs under the preload library, on a node whose agent a front serves: they do over a map what
//! they do over a plain copy.

#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

#[path = "../../preload/tests/staging/over.rs"]
mod over;

use std::sync::Arc;
use std::sync::mpsc::channel;

use azekura_proto::staging::{MapKind, NodeId};
use azekura_stage::agent::Agent;
use azekura_stage::front::{AgentAt, Front, FrontOptions, OutOptions, Recipients};
use azekura_stage::job::{AgentDescription, Keeping, MapDescription, draw};
use azekura_stage::source::Directory;
use over::{MAP, Over, SHOWING, WRITING, fill, left, read_all};

/// A job of one node.
struct Job {
    over: Over,
    front: Option<Front>,
    agent: Agent,
    scratch: tempfile::TempDir,
}

impl Job {
    fn start(kind: MapKind) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let (home, plain) = (scratch.path().join("home"), scratch.path().join("plain/data"));
        fill(&home);
        fill(&plain);
        let (job, secret) = draw().unwrap();
        let map = MapDescription { dir: MAP.into(), kind };
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
        let source = Arc::new(Directory::open(&home).unwrap());
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
        Self { over, front: Some(front), agent, scratch }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        drop(self.front.take());
        self.agent.stop();
    }
}

#[test]
fn programs_that_read_find_what_is_at_home() {
    let mut different = Vec::new();
    for kind in [MapKind::ReadOnly, MapKind::ReadWrite] {
        different.extend(read_all(&Job::start(kind).over));
    }
    assert!(different.is_empty(), "{}", different.concat());
}

#[test]
fn programs_that_write_leave_what_they_leave_in_a_plain_directory() {
    let mut different = Vec::new();
    for script in WRITING {
        let job = Job::start(MapKind::ReadWrite);
        let home = job.scratch.path().join("home");
        let before = left(&home);
        different.extend(job.over.difference(script));
        different.extend(job.over.difference(SHOWING));
        assert_eq!(left(&home), before, "written at home: {script}");
    }
    assert!(different.is_empty(), "{}", different.concat());
}
