//! Reads over several connections of which one becomes slow, through a way that is played here.

#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use azekura_client::{ClientConfig, Fetch, Objects, Pipeline, Pool};
use azekura_proto::TargetId;
use azekura_proto::attr::Inheritance;
use azekura_proto::message::ShardRef;
use azekura_proto::pool_map::Address;
use azekura_rpc::transport::{Caller, Line, Met, Network, Sockets, Wanted};
use azekura_testkit::Cluster;

const ONE_WAY: Duration = Duration::from_millis(10);
/// The first connection that has brought so much ..
const AT_FULL_SPEED_BYTES: usize = 192 << 10;
/// .. brings so little from then on, at a time, that what it has to bring would take half a minute.
const CRUMB_BYTES: usize = 128;
const CRUMB: Duration = Duration::from_millis(5);
const PIECE_BYTES: u32 = 64 << 10;
const PIECES: u64 = 512;

/// A way to the engine that has this address.
#[derive(Debug)]
struct Way {
    sockets: Sockets,
    near_end: Address,
}

impl Way {
    fn to(engine: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near_end = Address::Tcp(listener.local_addr().unwrap().to_string());
        std::thread::spawn(move || {
            let slow = Arc::new(AtomicBool::new(false));
            for near in listener.incoming() {
                let (near, far) = (near.unwrap(), TcpStream::connect(&engine).unwrap());
                let clone = |stream: &TcpStream| stream.try_clone().unwrap();
                carry(clone(&near), clone(&far), &slow);
                carry(far, near, &slow);
            }
        });
        Self { sockets: Sockets::default(), near_end }
    }
}

/// Carries what comes on one stream to another one, which takes [`ONE_WAY`]. The first one on which much comes becomes slow.
fn carry(mut from: TcpStream, to: TcpStream, slow: &Arc<AtomicBool>) {
    let slow = Arc::clone(slow);
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            if sender.send((Instant::now() + ONE_WAY, bytes[..count].to_vec())).is_err() {
                break;
            }
        }
    });
    std::thread::spawn(move || deliver(&receiver, to, &slow));
}

fn deliver(letters: &Receiver<(Instant, Vec<u8>)>, mut to: TcpStream, slow: &AtomicBool) {
    let (mut delivered, mut is_slow) = (0, false);
    for (due, bytes) in letters {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        is_slow |= delivered > AT_FULL_SPEED_BYTES && !slow.swap(true, Ordering::Relaxed);
        for piece in bytes.chunks(if is_slow { CRUMB_BYTES } else { bytes.len() }) {
            if to.write_all(piece).is_err() {
                return;
            }
            if is_slow {
                std::thread::sleep(CRUMB);
            }
        }
        delivered += bytes.len();
    }
    // It may be gone already.
    let _gone = to.shutdown(Shutdown::Both);
}

impl Network for Way {
    fn open(&self, wanted: &Wanted<'_>, caller: &Caller) -> Met {
        let addresses = std::slice::from_ref(&self.near_end);
        let met = self.sockets.open(&Wanted { addresses, ..*wanted }, caller);
        // Connections are made at once here.
        Met { round_trip: Some(2 * ONE_WAY), ..met }
    }

    fn wait_for_any(&self, lines: &[Arc<dyn Line>], limit: Duration) -> Vec<bool> {
        self.sockets.wait_for_any(lines, limit)
    }

    fn is_near(&self, _addresses: &[Address]) -> bool {
        false
    }
}

#[test]
fn what_a_connection_that_has_become_slow_was_to_bring_comes_over_others() {
    let cluster = Cluster::start_far(1, 1, Inheritance::default());
    let root = cluster.root();
    let contents: Vec<u8> =
        (0..PIECES * u64::from(PIECE_BYTES) / 8).flat_map(u64::to_le_bytes).collect();
    root.write("/file", &contents).unwrap();
    let oid = root.metadata("/file").unwrap().oid;
    let engine = root.filesystem().pool().map().engines[0].addresses[0].clone();
    let Address::Tcp(engine) = engine else { panic!("{engine}") };
    let network = Some(Arc::new(Way::to(engine)) as Arc<_>);
    let pool =
        Pool::connect(cluster.file(), ClientConfig { network, ..ClientConfig::default() }).unwrap();
    pool.container_open("default").unwrap();
    let pipeline = Pipeline::new(pool);
    let shard = ShardRef { oid, shard: 0, is_file: true };
    let fetches: Vec<Arc<Fetch>> = (0..PIECES)
        .map(|piece| piece * u64::from(PIECE_BYTES))
        .map(|offset| Fetch::data(TargetId(0), shard, offset, PIECE_BYTES))
        .collect();
    let begun = Instant::now();
    pipeline.send(&fetches);
    let mut data = vec![0; PIECE_BYTES as usize];
    for (fetch, expected) in fetches.iter().zip(contents.chunks(data.len())) {
        pipeline.wait(fetch);
        assert_eq!(fetch.copy(0, &mut data), Some(data.len()));
        assert!(data == expected);
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}
