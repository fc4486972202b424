//! The reference-model test of `posix`, through the interposed C library: the test program runs
//! itself under the preload library, and there does the same operations by system calls of its own
//! on a local directory, and by calls of the C library on a container. A run is repeated by
//! `AZEKURA_SEED`; `AZEKURA_OPS` sets its length.

#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

mod hooked;
#[path = "../library/mod.rs"]
mod library;

use std::path::Path;
use std::process::Command;

use azekura_proto::attr::Inheritance;
use azekura_testkit::Cluster;
use azekura_testkit::model::{self, Model};
use hooked::Hooked;
use library::library;

/// Set in the program that runs under the library: the local directory.
const CHILD: &str = "AZEKURA_MODEL_LOCAL";
/// Where nothing can be made by a call that was not intercepted.
const PREFIX: &str = "/proc/azekura";

fn child(local: &Path) {
    rustix::process::umask(rustix::fs::Mode::empty());
    // The library has to know.
    // SAFETY: a plain call of the C library.
    unsafe { libc::umask(0) };
    let dir = model::deep(local);
    std::fs::create_dir_all(&dir).unwrap();
    let deep = model::deep(Path::new(PREFIX));
    std::fs::create_dir_all(&deep).unwrap();
    Model::new(&dir, Hooked::new(&deep), model::seed()).run(model::operations() / 2);
}

#[test]
fn interposed_calls_do_what_a_local_directory_does() {
    if let Some(local) = std::env::var_os(CHILD) {
        return child(Path::new(&local));
    }
    let inheritance = Inheritance { chunk_bytes: 4096, ..Inheritance::default() };
    let cluster = Cluster::start(1, 3, inheritance);
    std::fs::create_dir_all(cluster.scratch()).unwrap();
    let file = cluster.scratch().join("pool.toml");
    cluster.file().save(&file).unwrap();
    let done = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "interposed_calls_do_what_a_local_directory_does", "--nocapture"])
        .env("LD_PRELOAD", library())
        .env("AZEKURA_POOL", file)
        .env("AZEKURA_PREFIX", PREFIX)
        .env(CHILD, cluster.scratch())
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{}\n{out}\n{err}", done.status);
    println!("{out}");
}
