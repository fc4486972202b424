//! A reference-model test: random operations by several clients on a pool, and the same ones on a
//! directory of the machine's own file system. Every result must be equal, and the trees at the
//! end too. A run is repeated by `AZEKURA_SEED`; `AZEKURA_OPS` sets its length.

#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

use std::path::Path;
use std::sync::Arc;

use azekura_policy::PredictiveParameters;
use azekura_posix::{
    CachePolicy, Credentials, FileSystem, FsConfig, Namespace, ReadPolicy, Trust, WritePolicy,
};
use azekura_proto::ObjectClass;
use azekura_proto::attr::Inheritance;
use azekura_testkit::Cluster;
use azekura_testkit::model::{self, Model, Remote};

fn run(engines: u16, targets_each: u16, clients: &[CachePolicy], share: u64) {
    let seed = model::seed();
    let inheritance = Inheritance { chunk_bytes: 4096, ..Inheritance::default() };
    let cluster = Cluster::start(engines, targets_each, inheritance);
    rustix::process::umask(rustix::fs::Mode::empty());
    let dir = model::deep(&cluster.scratch());
    std::fs::create_dir_all(&dir).unwrap();
    let caller = Credentials { groups: Vec::new(), ..Credentials::of_process() };
    let deep = model::deep(Path::new("/"));
    let clients = clients
        .iter()
        .map(|cache| {
            let client = Namespace::new(cluster.mount(*cache), caller.clone());
            let base = client.create_dir_all(deep.to_str().unwrap(), 0o777).unwrap();
            client.at(base.oid)
        })
        .collect();
    Model::new(&dir, Remote::new(clients), seed).run(model::operations() / share);
}

#[test]
fn three_clients_of_three_engines_do_what_a_local_directory_does() {
    run(3, 2, &[CachePolicy::None; 3], 1);
}

#[test]
fn a_client_that_caches_sees_its_own_changes() {
    run(2, 1, &[CachePolicy::AUTO], 4);
}

fn run_far(policy: &ReadPolicy) {
    run_behind(2, 2, 1, |cluster| cluster.mount_reading(CachePolicy::None, policy.clone()), 4);
}

fn run_behind(
    engines: u16,
    targets_each: u16,
    clients: usize,
    mount: impl Fn(&Cluster) -> Arc<FileSystem>,
    share: u64,
) {
    run_on(Inheritance::default(), (engines, targets_each), clients, mount, share);
}

fn run_on(
    inheritance: Inheritance,
    (engines, targets_each): (u16, u16),
    clients: usize,
    mount: impl Fn(&Cluster) -> Arc<FileSystem>,
    share: u64,
) {
    let seed = model::seed();
    let inheritance = Inheritance { chunk_bytes: 4096, ..inheritance };
    let cluster = Cluster::start_far(engines, targets_each, inheritance);
    rustix::process::umask(rustix::fs::Mode::empty());
    let dir = model::deep(&cluster.scratch());
    std::fs::create_dir_all(&dir).unwrap();
    let caller = Credentials { groups: Vec::new(), ..Credentials::of_process() };
    let deep = model::deep(Path::new("/"));
    let clients = (0..clients).map(|_| {
        let client = Namespace::new(mount(&cluster), caller.clone());
        let base = client.create_dir_all(deep.to_str().unwrap(), 0o777).unwrap();
        client.at(base.oid)
    });
    Model::new(&dir, Remote::new(clients.collect()), seed).run(model::operations() / share);
}

#[test]
fn writes_in_flight_change_nothing_that_a_program_sees() {
    run_behind(
        2,
        2,
        1,
        |cluster| cluster.mount_writing(CachePolicy::None, ReadPolicy::default()),
        4,
    );
}

#[test]
fn changes_in_flight_change_nothing_that_a_program_sees() {
    let mount = |cluster: &Cluster, cache| {
        let (write_policy, changes_in_flight) = (WritePolicy::Always, true);
        let config = FsConfig { cache, write_policy, changes_in_flight, ..FsConfig::default() };
        FileSystem::mount(cluster.pool(), "default", config).unwrap()
    };
    run_behind(1, 3, 1, |cluster| mount(cluster, CachePolicy::AUTO), 2);
    // Whoever looks at what another client has on its way waits for it, so this takes longer.
    run_behind(1, 2, 2, |cluster| mount(cluster, CachePolicy::None), 20);
}

#[test]
fn what_listings_bring_along_changes_nothing_that_a_program_sees() {
    let ways = [
        (WritePolicy::Always, Trust::ForAWhile),
        (WritePolicy::Through, Trust::ForAWhile),
        (WritePolicy::Always, Trust::Leased),
    ];
    for (write_policy, listed_trust) in ways {
        // In a pool of one engine changes are in flight as well.
        for engines in [1, 2] {
            let config = FsConfig {
                listed_from_us: Some(0),
                listed_trust,
                write_policy,
                changes_in_flight: true,
                ..FsConfig::default()
            };
            let mount = |cluster: &Cluster| {
                FileSystem::mount(cluster.pool(), "default", config.clone()).unwrap()
            };
            run_behind(engines, 2, 1, mount, 8);
        }
    }
}

#[test]
fn writes_in_flight_and_reading_ahead_go_together() {
    let parameters = PredictiveParameters { round_trip_min_us: 0, ..Default::default() };
    let policy = ReadPolicy::Predictive(parameters);
    let mount = |cluster: &Cluster| cluster.mount_writing(CachePolicy::AUTO, policy.clone());
    run_behind(1, 3, 1, mount, 4);
    // What is written to files of one shard is read back without asking.
    let one_shard = Inheritance { file_class: ObjectClass::S1, ..Inheritance::default() };
    let mount = |cluster: &Cluster| cluster.mount_writing(CachePolicy::None, policy.clone());
    run_on(one_shard, (1, 3), 2, mount, 8);
}

#[test]
fn reading_ahead_changes_nothing_that_a_program_sees() {
    // No link is too near.
    let parameters = PredictiveParameters { round_trip_min_us: 0, ..Default::default() };
    run_far(&ReadPolicy::Predictive(parameters));
}

#[test]
fn windows_of_changing_size_change_nothing_that_a_program_sees() {
    run_far(&"sync-adaptive".parse().unwrap());
}
