//! Reads that are kept in flight, of an engine over sockets.

#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

use std::sync::Arc;
use std::time::Duration;

use azekura_client::{ClientConfig, Fetch, Objects, Pipeline, Pool};
use azekura_proto::TargetId;
use azekura_proto::attr::Inheritance;
use azekura_proto::message::ShardRef;
use azekura_proto::pool_map::Address;
use azekura_rpc::transport::{Caller, Line, Met, Network, Sockets, Wanted};
use azekura_testkit::Cluster;

/// As on a machine on which each look takes its time.
#[derive(Debug)]
struct SlowToLook(Sockets);

impl Network for SlowToLook {
    fn open(&self, wanted: &Wanted<'_>, caller: &Caller) -> Met {
        self.0.open(wanted, caller)
    }

    fn wait_for_any(&self, lines: &[Arc<dyn Line>], limit: Duration) -> Vec<bool> {
        std::thread::sleep(Duration::from_millis(1));
        self.0.wait_for_any(lines, limit)
    }

    fn is_near(&self, _addresses: &[Address]) -> bool {
        false
    }
}

#[test]
fn what_lay_there_while_its_reader_was_busy_makes_no_link_longer() {
    let cluster = Cluster::start_far(1, 1, Inheritance::default());
    let root = cluster.root();
    root.write("/file", &[7; 4096]).unwrap();
    let oid = root.metadata("/file").unwrap().oid;
    let network = Some(Arc::new(SlowToLook(Sockets::default())) as Arc<_>);
    let config = ClientConfig { network, ..ClientConfig::default() };
    let pool = Pool::connect(cluster.file(), config).unwrap();
    pool.container_open("default").unwrap();
    let pipeline = Pipeline::new(pool);
    let target = TargetId(0);
    let link = || pipeline.estimate(std::iter::once(target));
    assert!(link().round_trip_us > 0, "{:?}", link());
    let busy = Duration::from_millis(300);
    let fetch = Fetch::data(target, ShardRef { oid, shard: 0, is_file: true }, 0, 4096);
    pipeline.send(&[Arc::clone(&fetch)]);
    std::thread::sleep(busy);
    pipeline.wait(&fetch);
    let mut data = [0; 4096];
    assert_eq!(fetch.copy(0, &mut data), Some(4096));
    assert_eq!(data, [7; 4096]);
    assert!(u128::from(link().round_trip_us) < busy.as_micros() / 2, "{:?}", link());
}
