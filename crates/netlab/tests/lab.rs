//! Labs through the library. Each test makes a lab of its own; without root there is nothing to test.

#![allow(clippy::unwrap_used)]

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use azekura_netlab::{Change, HostState, Lab, LabError, Topology};
use azekura_testkit::skip;

const PAIR: &str = "hosts = ['near', 'far']
    links = [{ name = 'wan', between = ['near', 'far'] }]";

fn lab() -> Option<Lab> {
    match Lab::up(&Topology::parse(PAIR, "test").unwrap()) {
        Err(LabError::NotAllowed) => {
            skip("it needs root");
            None
        }
        other => Some(other.unwrap()),
    }
}

fn change(lab: &Lab, words: &[&str]) {
    lab.set("wan", &Change::parse(words).unwrap()).unwrap();
}

fn connection(lab: &Lab) -> (TcpStream, TcpStream) {
    let listener =
        lab.within("far", || TcpListener::bind((Ipv4Addr::UNSPECIFIED, 9))).unwrap().unwrap();
    let to = lab.address("far").unwrap();
    let near = lab.within("near", || TcpStream::connect((to, 9))).unwrap().unwrap();
    (near, listener.accept().unwrap().0)
}

#[test]
fn commands_run_in_their_host() {
    let Some(lab) = lab() else { return };
    for host in ["near", "far"] {
        let output = lab.exec(host, &mut Command::new("hostname")).unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), host);
    }
    let output = lab.exec("near", Command::new("sh").args(["-c", "exit 3"])).unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(matches!(
        lab.exec("nowhere", &mut Command::new("true")),
        Err(LabError::Unknown { what: "host", .. })
    ));
}

#[test]
fn round_trips_are_not_shorter_than_the_delay() {
    let Some(lab) = lab() else { return };
    change(&lab, &["delay=30ms"]);
    let (mut near, mut far) = connection(&lab);
    let start = Instant::now();
    near.write_all(b"?").unwrap();
    let mut byte = [0];
    far.read_exact(&mut byte).unwrap();
    assert!(start.elapsed() >= Duration::from_micros(29_900));
    far.write_all(b"!").unwrap();
    near.read_exact(&mut byte).unwrap();
    assert!(start.elapsed() >= Duration::from_micros(59_900));
}

#[test]
fn a_connection_outlives_a_link_that_is_down_for_a_while() {
    let Some(lab) = lab() else { return };
    change(&lab, &["delay=5ms", "rate=200mbit"]);
    let (mut near, mut far) = connection(&lab);
    let bytes = 20_000_000;
    std::thread::scope(|scope| {
        scope.spawn(move || near.write_all(&vec![7; bytes]).unwrap());
        let received = scope.spawn(move || {
            let mut all = Vec::new();
            far.read_to_end(&mut all).unwrap();
            all
        });
        change(&lab, &["down"]);
        std::thread::sleep(Duration::from_millis(500));
        change(&lab, &["up"]);
        assert!(received.join().unwrap() == vec![7; bytes]);
    });
    let status = lab.status().unwrap();
    assert!(status.links[0].directions[0].counters.down_drops > 0);
}

#[test]
fn states_are_told() {
    let Some(lab) = lab() else { return };
    lab.cut("far").unwrap();
    lab.freeze("far").unwrap();
    assert_eq!(lab.status().unwrap().hosts[1].state, HostState::CutAndFrozen);
    assert!(matches!(lab.exec("far", &mut Command::new("true")), Err(LabError::Frozen(_))));
    lab.mend("far").unwrap();
    lab.thaw("far").unwrap();
    assert_eq!(lab.status().unwrap().hosts[1].state, HostState::Up);
    assert!(lab.exec("far", &mut Command::new("true")).unwrap().status.success());
}

#[test]
fn a_dropped_lab_takes_its_processes_along() {
    let Some(lab) = lab() else { return };
    let mut child = lab.spawn("near", Command::new("sleep").arg("600")).unwrap();
    let holder = lab.status().unwrap().hosts[0].holder_pid;
    assert!(child.try_wait().unwrap().is_none());
    // The holder's end waits for the child's, which is ours to see.
    std::thread::scope(|scope| {
        scope.spawn(|| drop(lab));
        assert!(!child.wait().unwrap().success());
    });
    assert!(!std::path::Path::new(&format!("/proc/{holder}")).exists());
}
