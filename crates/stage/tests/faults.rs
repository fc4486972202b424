//! What goes wrong in a job, and what becomes of it.

#![allow(clippy::unwrap_used)]

mod fixture;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use azekura_proto::SessionId;
use azekura_proto::message::Role;
use azekura_proto::pool_map::Address;
use azekura_proto::staging::NodeId;
use azekura_proto::staging::local::LocalReply;
use azekura_stage::front::{Event, Recipients, Supplier};
use azekura_wire::{Secret, connect, dial};
use fixture::gated::Gate;
use fixture::{Job, LARGE, Setting, local, noise};

const EIO: LocalReply = LocalReply::Failed(5);

/// A program on a node that asks for a file.
fn ask(job: &Job, node: u16, path: &Path) -> JoinHandle<LocalReply> {
    let (program, path) = (job.program(node), path.to_owned());
    thread::spawn(move || program.read(&path))
}

/// A job in which a large file is on its way: the front holds its second half back.
struct UnderWay {
    job: Job,
    gate: Arc<Gate>,
    path: PathBuf,
    content: Vec<u8>,
    asking: Vec<JoinHandle<LocalReply>>,
}

fn under_way(agents: fixture::Agents, nodes: u16) -> UnderWay {
    let (job, gate) = agents.start_gated();
    let content = noise(LARGE, 9);
    let path = job.write("data/file", &content);
    gate.close(LARGE as u64 / 2);
    let asking = (0..nodes).map(|node| ask(&job, node, &path)).collect();
    gate.wait_for_reader();
    // The last of a chain has what could come when nothing moves any more.
    thread::sleep(Duration::from_millis(300));
    UnderWay { job, gate, path, content, asking }
}

impl UnderWay {
    /// Lets the rest come, to all nodes but one, which is dead.
    fn check_all_but(self, dead: u16) -> Job {
        self.gate.open();
        for (node, asking) in self.asking.into_iter().enumerate() {
            let reply = asking.join().unwrap();
            if node == usize::from(dead) {
                assert_eq!(reply, EIO);
            } else {
                assert!(fs::read(local(reply)).unwrap() == self.content, "node {node}");
            }
        }
        self.job
    }
}

fn a_node_dies(dead: u16) {
    let under_way = under_way(Setting::read_only(4, Recipients::All).start_agents(), 4);
    let read = under_way.gate.bytes_read();
    under_way.job.agents.running[usize::from(dead)].stop();
    under_way.job.event(|event| matches!(event, Event::NodeGone { node, .. } if node.0 == dead));
    let gate = Arc::clone(&under_way.gate);
    let job = under_way.check_all_but(dead);
    let again = gate.bytes_read() - LARGE as u64;
    assert!(again < read, "the others go on from where they were: {again} bytes read again");
    job.end();
}

#[test]
fn the_head_of_a_chain_dies() {
    a_node_dies(0);
}

#[test]
fn a_node_in_the_middle_of_a_chain_dies() {
    a_node_dies(2);
}

#[test]
fn the_tail_of_a_chain_dies() {
    a_node_dies(3);
}

#[test]
fn a_node_that_falls_silent_is_spliced_out() {
    let mut agents = Setting::read_only(3, Recipients::All).start_agents();
    let link = agents.proxy(1);
    let under_way = under_way(agents, 3);
    link.hold();
    under_way.job.event(|event| match event {
        Event::SupplierLost { node, supplier, .. } => {
            (*node, *supplier) == (NodeId(2), Supplier::Node(NodeId(1)))
        }
        _ => false,
    });
    under_way.gate.open();
    let mut asking = under_way.asking.into_iter();
    for node in [0, 1, 2] {
        let reply = asking.next().unwrap().join().unwrap();
        // It hears its front no more, though it may have had all of the file before it noticed; then
        // its agent ends, and takes its tree along.
        if node == 1 && reply == EIO {
            continue;
        }
        match fs::read(local(reply)) {
            Ok(read) => assert!(read == under_way.content, "node {node}"),
            Err(error) => assert!(node == 1, "node {node}: {error}"),
        }
    }
    link.cut();
    under_way.job.agents.running[1].wait();
    under_way.job.end();
}

#[test]
fn a_connection_that_breaks_between_two_nodes_is_made_again() {
    let mut agents = Setting::read_only(3, Recipients::All).start_agents();
    // The front is to reach the agent beside the link that breaks.
    let link = agents.proxy_between_nodes(0);
    let under_way = under_way(agents, 3);
    link.hang_up();
    under_way.job.event(|event| matches!(event, Event::SupplierLost { node, .. } if node.0 == 1));
    under_way.check_all_but(u16::MAX).end();
}

#[test]
fn a_wrong_piece_is_asked_for_again_and_its_sender_is_named() {
    let mut agents = Setting::read_only(2, Recipients::All).start_agents();
    let link = agents.proxy(0);
    let job = agents.start_front();
    let content = noise(LARGE, 4);
    let path = job.write("data/file", &content);
    link.spoil(1);
    assert!(fs::read(job.program(1).stage(&path)).unwrap() == content);
    job.event(|event| match event {
        Event::WrongPiece { node, culprit, .. } => {
            (*node, *culprit) == (NodeId(1), Supplier::Node(NodeId(0)))
        }
        _ => false,
    });
    job.end();
}

#[test]
fn who_sends_wrong_pieces_only_is_left() {
    let mut agents = Setting::read_only(2, Recipients::All).start_agents();
    let link = agents.proxy(0);
    let job = agents.start_front();
    let content = noise(LARGE, 4);
    let path = job.write("data/file", &content);
    link.spoil(u64::MAX);
    assert!(fs::read(job.program(1).stage(&path)).unwrap() == content);
    job.end();
}

#[test]
fn a_file_that_changes_on_its_way_is_begun_anew() {
    let under_way = under_way(Setting::read_only(2, Recipients::All).start_agents(), 2);
    let other = noise(LARGE + 1000, 77);
    fs::write(&under_way.path, &other).unwrap();
    let under_way = UnderWay { content: other, ..under_way };
    let job = under_way.check_all_but(u16::MAX);
    job.event(|event| matches!(event, Event::Restarted { path } if path == "file"));
    job.end();
}

#[test]
fn a_file_that_always_changes_fails_and_is_not_there() {
    for bytes in [LARGE, 1000] {
        let (job, gate) = Setting::read_only(2, Recipients::All).start_agents().start_gated();
        let path = job.write("data/file", noise(bytes, 5));
        gate.change_always();
        assert_eq!(job.program(1).read(&path), EIO);
        job.event(|event| matches!(event, Event::Failed { path, .. } if path == "file"));
        let tree = job.agents.dir.path().join("cache");
        let found = walk(&tree).into_iter().find(|found| found.ends_with("file"));
        assert_eq!(found, None);
        job.end();
    }
}

#[test]
fn a_source_that_fails_gives_an_error_and_no_half_file() {
    let under_way = under_way(Setting::read_only(2, Recipients::All).start_agents(), 2);
    under_way.gate.fail();
    for asking in under_way.asking {
        assert_eq!(asking.join().unwrap(), EIO);
    }
    let cache = under_way.job.agents.dir.path().join("cache");
    let files = walk(&cache).into_iter().filter(|found| found.is_file());
    assert_eq!(files.count(), 0, "nothing of it is kept");
    under_way.job.end();
}

#[test]
fn the_agents_end_with_the_front() {
    let mut under_way = under_way(Setting::read_only(3, Recipients::All).start_agents(), 3);
    let begun = Instant::now();
    drop(under_way.job.front.take());
    for asking in under_way.asking {
        assert_eq!(asking.join().unwrap(), EIO);
    }
    under_way.job.agents.running.iter().for_each(azekura_stage::agent::Agent::wait);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(walk(&under_way.job.agents.dir.path().join("cache")).len(), 0);
    under_way.gate.open();
}

#[test]
fn an_agent_that_hears_nothing_of_its_front_ends() {
    let mut agents = Setting::read_only(1, Recipients::All).start_agents();
    let link = agents.proxy(0);
    let under_way = under_way(agents, 1);
    let begun = Instant::now();
    link.hold();
    for asking in under_way.asking {
        assert_eq!(asking.join().unwrap(), EIO);
    }
    under_way.job.agents.running[0].wait();
    assert!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());
    link.cut();
    under_way.gate.open();
}

#[test]
fn a_late_node_gets_a_file_whose_only_holder_is_dead() {
    let job = Setting::read_only(2, Recipients::Requesters).start();
    let files = [("large", noise(LARGE, 1)), ("small", noise(500, 2))];
    for (name, content) in &files {
        job.write(&format!("data/{name}"), content);
    }
    for (name, content) in &files {
        let path = job.home(&format!("data/{name}"));
        assert!(fs::read(job.program(0).stage(&path)).unwrap() == *content);
    }
    job.agents.running[0].stop();
    for (name, content) in &files {
        let path = job.home(&format!("data/{name}"));
        assert!(fs::read(job.program(1).stage(&path)).unwrap() == *content);
    }
    job.end();
}

#[test]
fn strangers_are_not_let_in() {
    let job = Setting::read_only(1, Recipients::All).start();
    let port = job.agents.running[0].port();
    let address = format!("127.0.0.1:{port}");
    // One that speaks the protocol and does not know the secret.
    let socket = dial(&Address::Tcp(address.clone()), Duration::from_secs(5)).unwrap();
    let secret = Secret::generate().unwrap();
    let pool = job.agents.job.as_pool();
    let session = SessionId([1; 16]);
    let limit = Duration::from_secs(5);
    assert!(connect(socket, pool, session, Role::Engine, &secret, limit).is_err());
    // One that does not speak it.
    let mut stranger = TcpStream::connect(&address).unwrap();
    stranger.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    // Whether by an end or by a reset, it hears nothing.
    let _ = stranger.read_to_end(&mut answer);
    assert!(answer.is_empty());
    let path = job.write("data/file", "content");
    assert_eq!(fs::read(job.program(0).stage(&path)).unwrap(), b"content");
    job.end();
}

/// All that is below a directory, but directories above a tree.
fn walk(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        if entry.path().is_dir() {
            found.extend(walk(&entry.path()));
        }
        found.push(entry.path());
    }
    found
}
