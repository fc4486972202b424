//! What lives and does not move: a home that hangs, a supplier that only says that it is there.

#![allow(clippy::unwrap_used)]

mod fixture;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use azekura_proto::staging::NodeId;
use azekura_stage::front::{Event, Recipients, Supplier};
use fixture::{Job, LARGE, Setting, local, noise};

/// Programs on a node ask for files, each for one; the names of those that come.
fn ask(job: &Job, node: u16, files: &[(String, Vec<u8>)]) -> Receiver<String> {
    let (sender, come) = channel();
    for (name, content) in files {
        let (program, path) = (job.program(node), job.home(&format!("data/{name}")));
        let (sender, name, content) = (sender.clone(), name.clone(), content.clone());
        thread::spawn(move || {
            assert!(fs::read(local(program.read(&path))).unwrap() == content, "{name}");
            sender.send(name).unwrap();
        });
    }
    come
}

fn names(come: &Receiver<String>, count: usize, limit: Duration) -> Vec<String> {
    let mut names: Vec<_> = (0..count).map_while(|_| come.recv_timeout(limit).ok()).collect();
    names.sort();
    names
}

fn supplier_losses(job: &Job) -> Vec<Event> {
    let is_loss = |event: &Event| matches!(event, Event::SupplierLost { .. });
    job.events_so_far().into_iter().filter(is_loss).collect()
}

fn files(kind: &str, count: u64, bytes: usize) -> Vec<(String, Vec<u8>)> {
    (0..count).map(|number| (format!("{kind}{number}"), noise(bytes, number + 1))).collect()
}

/// Files of which some stall come all the same, but for those.
fn others_come(files: &[(String, Vec<u8>)], stalled: &[&str]) {
    let (job, gate) = Setting::read_only(2, Recipients::All).start_agents().start_gated();
    for (name, content) in files {
        job.write(&format!("data/{name}"), content);
    }
    for name in stalled {
        gate.close_file(name);
    }
    let come = ask(&job, 1, files);
    let others = names(&come, files.len() - stalled.len(), Duration::from_secs(3));
    let is_other = |name: &String| !stalled.contains(&name.as_str());
    let mut expected: Vec<_> = files.iter().map(|(name, _)| name.clone()).collect();
    expected.sort();
    let rest: Vec<_> = expected.iter().filter(|name| !is_other(name)).cloned().collect();
    expected.retain(is_other);
    assert_eq!(others, expected);
    assert!(come.recv_timeout(Duration::from_secs(6)).is_err(), "the home gives no more");
    gate.open();
    assert_eq!(names(&come, stalled.len(), Duration::from_secs(10)), rest);
    assert_eq!(supplier_losses(&job), [], "nobody is to blame for the home");
    job.end();
}

#[test]
fn a_small_file_that_stalls_does_not_hold_up_those_it_was_to_travel_with() {
    others_come(&files("small", 200, 700), &["small3"]);
}

#[test]
fn large_files_that_stall_do_not_hold_up_others() {
    let large = files("large", 12, LARGE / 8);
    others_come(&large, &["large0", "large1", "large2", "large3", "large4", "large5"]);
}

#[test]
fn a_large_and_small_files_that_stall_do_not_hold_up_each_other() {
    let mut all = files("small", 40, 1000);
    all.extend(files("large", 6, LARGE / 8));
    others_come(&all, &["small0", "large1", "small17", "small39", "large5"]);
}

#[test]
fn a_source_that_stalls_in_mid_transfer_is_nobodys_fault() {
    let (job, gate) = Setting::read_only(3, Recipients::All).start_agents().start_gated();
    let large = files("large", 1, LARGE);
    job.write("data/large0", &large[0].1);
    gate.close(LARGE as u64 / 2);
    let come: Vec<_> = (0..3).map(|node| ask(&job, node, &large)).collect();
    gate.wait_for_reader();
    thread::sleep(Duration::from_secs(9));
    gate.open();
    for come in come {
        assert_eq!(names(&come, 1, Duration::from_secs(10)), ["large0"]);
    }
    assert_eq!(supplier_losses(&job), []);
    job.end();
}

/// A chain in which one supplier gives nothing any more, and says that it lives.
fn starved(supplier: u16, last: u16) -> (Job, Vec<Receiver<String>>, PathBuf) {
    let mut agents = Setting::read_only(last + 1, Recipients::All).start_agents();
    let link = agents.proxy(usize::from(supplier));
    let (job, gate) = agents.start_gated();
    let large = files("large", 1, LARGE);
    let path = job.write("data/large0", &large[0].1);
    gate.close(LARGE as u64 / 2);
    let come = (0..=last).map(|node| ask(&job, node, &large)).collect();
    gate.wait_for_reader();
    // All of what there is has come to the last, and a sign of life after that.
    thread::sleep(Duration::from_millis(2500));
    link.starve();
    gate.open();
    (job, come, path)
}

fn is_loss(event: &Event, of: u16, supplier: u16) -> bool {
    let supplier = Supplier::Node(NodeId(supplier));
    matches!(event, Event::SupplierLost { node, supplier: lost, .. }
        if node.0 == of && *lost == supplier)
}

#[test]
fn a_supplier_that_only_says_that_it_lives_is_spliced_out() {
    let (job, come, path) = starved(1, 3);
    for come in come {
        assert_eq!(names(&come, 1, Duration::from_secs(15)), ["large0"]);
    }
    let losses = supplier_losses(&job);
    assert!(losses.iter().any(|event| is_loss(event, 2, 1)), "{losses:?}");
    assert!(losses.len() <= 3, "no more than it takes: {losses:?}");
    assert!(Path::new(&path).exists());
    job.end();
}
