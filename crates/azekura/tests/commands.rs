//! The program as people and scripts use it: pools come up, files go in and out, and everything is
//! gone afterwards. Each test has its own XDG directories and its own pools.

#![allow(clippy::unwrap_used)] // What fails here fails the test.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use azekura_client::{ClientConfig, Pool, PoolFile};
use azekura_posix::{CachePolicy, Credentials, FileSystem, FsConfig, Namespace};
use azekura_proto::message::{Repair, typed};
use azekura_proto::{Oid, TargetId};
use serde_json::Value;

/// A user of their own: nothing of the real one is seen or touched.
struct World {
    dir: tempfile::TempDir,
    pools: Vec<String>,
    engines: Vec<Child>,
}

impl World {
    fn new() -> Self {
        // A short path, since sockets lie below.
        let dir = tempfile::Builder::new().prefix("azk").tempdir_in("/tmp").unwrap();
        std::fs::create_dir(dir.path().join("run")).unwrap();
        Self { dir, pools: Vec::new(), engines: Vec::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_azekura"));
        command.args(arguments).current_dir(self.dir.path()).env_remove("RUST_LOG");
        for (variable, name) in [
            ("HOME", "home"),
            ("XDG_CONFIG_HOME", "config"),
            ("XDG_STATE_HOME", "state"),
            ("XDG_DATA_HOME", "data"),
            ("XDG_RUNTIME_DIR", "run"),
        ] {
            command.env(variable, self.path(name));
        }
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a command that must succeed; gives back what it printed.
    fn good(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "azekura {arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.good(arguments)).unwrap()
    }

    /// Runs a command that must end with this exit code; gives back what it complained of.
    fn bad(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "azekura {arguments:?}: {error}");
        error
    }

    /// A pool of four targets in a directory.
    fn up(&mut self, name: &str) {
        self.pools.push(name.to_owned());
        let dir = self.path(&format!("pool-{name}"));
        self.good(&["up", "--name", name, "--dir", dir.to_str().unwrap()]);
    }

    fn serve(&mut self, number: usize) -> String {
        let (dir, socket) = (self.path(&format!("e{number}")), self.path(&format!("e{number}.s")));
        let address = format!("unix:{}", socket.display());
        let dir = dir.to_str().unwrap().to_owned();
        let child = self
            .command(&["serve", "--dir", &dir, "--listen", &address, "--targets", "2"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.engines.push(child);
        let started = Instant::now();
        while !socket.exists() {
            assert!(started.elapsed() < Duration::from_secs(30), "the engine does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        address
    }

    fn engine_pid(&self, pool: &str) -> u32 {
        let status = self.json(&["status", pool, "--json"]);
        u32::try_from(status["pools"][0]["engines"][0]["pid"].as_u64().unwrap()).unwrap()
    }

    /// A small tree of this machine.
    fn tree(&self) -> PathBuf {
        let tree = self.path("tree");
        std::fs::create_dir_all(tree.join("deep/er")).unwrap();
        std::fs::write(tree.join("empty"), b"").unwrap();
        std::fs::write(tree.join("deep/small"), b"small").unwrap();
        let large: Vec<u8> = (0..5_000_000u32).map(|i| (i * 31 % 253) as u8).collect();
        std::fs::write(tree.join("deep/er/large"), large).unwrap();
        std::os::unix::fs::symlink("deep/small", tree.join("link")).unwrap();
        tree
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for pool in &self.pools {
            // The test may have failed anywhere; what is not there need not go.
            let _ = self.run(&["down", pool, "--destroy", "--yes"]);
        }
        for engine in &mut self.engines {
            let _ = engine.kill();
            let _ = engine.wait();
        }
    }
}

fn assert_same_trees(one: &Path, other: &Path) {
    let same = Command::new("diff").arg("-r").arg("--no-dereference").args([one, other]).output();
    let same = same.unwrap();
    assert!(same.status.success(), "{}", String::from_utf8_lossy(&same.stdout));
}

fn kill(pid: u32) {
    let raw = i32::try_from(pid).unwrap();
    let pid = rustix::process::Pid::from_raw(raw).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let started = Instant::now();
    // Reaped by init, or left as a zombie where there is none.
    while std::fs::read_to_string(format!("/proc/{raw}/stat")).is_ok_and(|s| !s.contains(") Z")) {
        assert!(started.elapsed() < Duration::from_secs(10), "the process does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_pool_comes_up_again_with_what_was_in_it() {
    let mut world = World::new();
    world.up("p");
    let tree = world.tree();
    world.good(&["fs", "put", "-r", tree.to_str().unwrap(), "p:/"]);
    assert!(world.good(&["up", "--name", "p"]).contains("runs already"));

    kill(world.engine_pid("p"));
    let output = world.run(&["status", "p", "--json"]);
    assert_eq!(output.status.code(), Some(1), "an engine that is down is not well");
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status["pools"][0]["engines"][0]["state"], "down");

    world.good(&["up", "--name", "p"]);
    world.good(&["fs", "get", "-r", "p:/tree", "back"]);
    assert_same_trees(&tree, &world.path("back"));
    world.good(&["fs", "check", "p"]);

    assert!(world.good(&["down", "p"]).contains("stopped"));
    world.good(&["up", "--name", "p"]);
    assert_eq!(world.good(&["fs", "cat", "p:/tree/link"]), "small");
    assert!(world.bad(1, &["up", "--name", "p", "--targets", "3"]).contains("has 4 targets"));

    world.good(&["down", "p", "--destroy", "--yes"]);
    assert!(!world.path("pool-p").exists());
    assert!(world.bad(1, &["fs", "ls", "p:/"]).contains("no pool 'p' is known here"));
}

#[test]
fn status_has_the_form_that_programs_read() {
    let mut world = World::new();
    world.up("p");
    let status = &world.json(&["status", "p", "--json"])["pools"][0];
    assert_eq!(status["name"], "p");
    assert_eq!(status["state"], "up");
    assert_eq!(status["targets"], 4);
    assert!(status["space"]["total_bytes"].as_u64().unwrap() > 0);
    assert!(status["rates"]["requests_per_s"].is_u64());
    let engine = &status["engines"][0];
    assert_eq!(engine["state"], "up");
    assert!(engine["pid"].as_u64().unwrap() > 1);
    assert!(engine["addresses"][0].as_str().unwrap().starts_with("unix:"));
    assert_eq!(engine["targets"].as_array().unwrap().len(), 4);
    let all = world.json(&["status", "--json"]);
    assert_eq!(all["pools"].as_array().unwrap().len(), 1);
}

#[test]
fn files_are_worked_with_without_a_mount() {
    let mut world = World::new();
    world.up("p");
    let tree = world.tree();
    let tree = tree.to_str().unwrap();
    world.good(&["fs", "mkdir", "-p", "p:/a/b"]);
    assert!(world.bad(1, &["fs", "put", tree, "p:/a"]).contains("add -r"));
    world.good(&["fs", "cp", "-r", tree, "p:/a/b"]);
    world.good(&["fs", "cp", "-r", "p:/a", "p:/copy"]);
    assert!(world.bad(1, &["fs", "cp", "-r", "p:/a", "p:/a/b"]).contains("cannot be copied"));
    world.good(&["fs", "mv", "p:/copy/b/tree/deep", "p:/deep"]);
    world.good(&["fs", "get", "-r", "p:/deep", "."]);
    assert_same_trees(&world.path("tree/deep"), &world.path("deep"));
    assert_eq!(world.good(&["fs", "ls", "p:/"]), "a\ncopy\ndeep\n");
    let listed = world.json(&["fs", "ls", "--json", "p:/a/b/tree"]);
    let entries = listed["directories"][0]["entries"].as_array().unwrap();
    let names: Vec<&str> = entries.iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["deep", "empty", "link"]);
    assert!(world.bad(1, &["fs", "rm", "p:/a"]).contains("add -r"));
    world.good(&["fs", "rm", "-r", "p:/a", "p:/copy"]);
    world.good(&["fs", "rm", "-f", "p:/a"]);
    world.good(&["fs", "rm", "-r", "p:/"]);
    assert_eq!(world.good(&["fs", "ls", "p:/"]), "");
    let check = world.json(&["fs", "check", "p", "--json"]);
    assert_eq!(check["clean"], true);
    assert_eq!(check["counts"]["inodes"], 1);
}

#[test]
fn class_and_chunk_size_are_set_and_inherited() {
    let mut world = World::new();
    world.up("p");
    world.good(&["fs", "mkdir", "p:/d"]);
    world.good(&["fs", "set-attr", "p:/d", "class=S2", "chunk_size=256KiB"]);
    world.good(&["fs", "set-attr", "p:/d/own", "class=S1", "chunk_size=64KiB"]);
    std::fs::write(world.path("f"), vec![7; 1_000_000]).unwrap();
    world.good(&["fs", "put", "f", "p:/d"]);
    world.good(&["fs", "put", "f", "p:/d/own"]);
    let shown = world.json(&["fs", "get-attr", "--json", "p:/d/f", "p:/d/own"]);
    assert_eq!(shown["files"][0]["class"], "S2");
    assert_eq!(shown["files"][0]["chunk_bytes"], 262_144);
    assert_eq!(shown["files"][1]["class"], "S1");
    assert_eq!(shown["files"][1]["chunk_bytes"], 65_536);
    let late = world.bad(1, &["fs", "set-attr", "p:/d/f", "chunk_size=1MiB"]);
    assert!(late.contains("has data"), "{late}");

    let args = ["container", "create", "c", "--pool", "p", "--chunk-size", "64KiB"];
    world.good(&args);
    assert!(world.bad(1, &args).contains("already"));
    world.good(&["fs", "put", "f", "p/c:/"]);
    world.good(&["container", "set", "c", "--pool", "p", "--file-class", "S1"]);
    let containers = world.json(&["container", "list", "p", "--json"]);
    assert_eq!(containers["containers"][0]["name"], "c");
    assert_eq!(containers["containers"][0]["file_class"], "S1");
    world.good(&["container", "destroy", "c", "--yes", "--pool", "p"]);
    assert!(world.bad(1, &["fs", "ls", "p/c:/"]).contains("no container 'c'"));
}

#[test]
fn a_pool_of_several_engines_is_made_and_used() {
    let mut world = World::new();
    let engines: Vec<String> = (0..3).map(|number| world.serve(number)).collect();
    let mut arguments = vec!["pool", "create", "big"];
    arguments.extend(engines.iter().flat_map(|engine| ["--engine", engine.as_str()]));
    world.good(&arguments);
    assert!(world.bad(1, &arguments).contains("known here already"));
    let status = &world.json(&["status", "big", "--json"])["pools"][0];
    assert_eq!(status["targets"], 6);
    assert_eq!(status["engines"].as_array().unwrap().len(), 3);
    let tree = world.tree();
    world.good(&["fs", "put", "-r", tree.to_str().unwrap(), "big:/"]);
    world.good(&["fs", "get", "-r", "big:/tree", "back"]);
    assert_same_trees(&tree, &world.path("back"));
    world.good(&["fs", "check", "big"]);
    world.good(&["down", "big"]);
    for engine in &mut world.engines {
        assert!(engine.wait().unwrap().success(), "SIGTERM ends an engine in good order");
    }
}

/// Damages a container as no engine would: by single raw repairs.
fn damage(world: &World) {
    let file = PoolFile::load(&world.path("state/azekura/pools/p.toml")).unwrap();
    let pool = Pool::connect(&file, ClientConfig::default()).unwrap();
    let placement = pool.placement();
    let config =
        FsConfig { cache: CachePolicy::None, check_permissions: false, ..FsConfig::default() };
    let fs = FileSystem::mount(Arc::clone(&pool), "default", config).unwrap();
    let names = Namespace::new(Arc::clone(&fs), Credentials::ROOT);
    let repair = |target: TargetId, repair: Repair| {
        pool.call(target, typed::Repair { repair }).unwrap();
    };
    let oid = |path: &str| names.symlink_metadata(path).unwrap().oid;
    let entry_target = |dir: Oid, name: &[u8]| placement.entry_target(dir, name);

    let (dir, root) = (oid("/tree/deep"), fs.root());
    let target = entry_target(dir, b"small");
    repair(target, Repair::RemoveEntry { dir, name: b"small".to_vec() });
    let target = entry_target(root, b"whole");
    repair(target, Repair::RemoveEntry { dir: root, name: b"whole".to_vec() });
    let empty = oid("/tree/empty");
    repair(empty.home(), Repair::SetLinks { oid: empty, links: 7 });
    let gone = oid("/tree/gone");
    repair(gone.home(), Repair::RemoveObject { oid: gone });
    repair(dir.home(), Repair::SetParent { dir, parent: root });
}

#[test]
fn damage_is_found_and_mended() {
    let mut world = World::new();
    world.up("p");
    let tree = world.tree();
    std::fs::write(tree.join("gone"), b"gone").unwrap();
    world.good(&["fs", "put", "-r", tree.to_str().unwrap(), "p:/"]);
    world.good(&["fs", "cp", "-r", "p:/tree", "p:/whole"]);
    world.good(&["fs", "check", "p"]);
    damage(&world);
    let output = world.run(&["fs", "check", "p", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut kinds: Vec<&str> = found["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["kind"].as_str().unwrap())
        .collect();
    kinds.sort_unstable();
    assert_eq!(
        kinds,
        ["entry-without-inode", "lost-inode", "lost-inode", "wrong-link-count", "wrong-parent"]
    );
    world.good(&["fs", "check", "p", "--repair"]);
    let check = world.json(&["fs", "check", "p", "--json"]);
    assert_eq!(check["clean"], true, "{check}");
    assert!(!world.good(&["fs", "ls", "p:/tree"]).contains("gone"));
    let lost = world.json(&["fs", "ls", "--json", "p:/lost+found"]);
    let lost = lost["directories"][0]["entries"].as_array().unwrap();
    assert_eq!(lost.len(), 2);
    for entry in lost {
        let place = format!("p:/lost+found/{}", entry["name"].as_str().unwrap());
        if entry["kind"] == "file" {
            assert_eq!(world.good(&["fs", "cat", &place]), "small");
        } else {
            world.good(&["fs", "get", "-r", &place, "whole"]);
            assert_same_trees(&tree, &world.path("whole"));
        }
    }
}

#[test]
fn a_bench_prints_ratios() {
    let mut world = World::new();
    world.up("p");
    let dir = world.path("bench");
    std::fs::create_dir(&dir).unwrap();
    let dir = dir.to_str().unwrap();
    for (place, name) in [("--pool", "p"), ("--path", dir)] {
        let io = world.json(&["bench", "io", place, name, "--quick", "--json", "-p", "2"]);
        let md = world.json(&["bench", "md", place, name, "--quick", "--json", "--shared"]);
        let rows: Vec<&Value> =
            [&io, &md].into_iter().flat_map(|sheet| sheet["rows"].as_array().unwrap()).collect();
        for wanted in ["seq_write_1MiB", "rand_read_4KiB", "create", "stat", "remove"] {
            let row = rows.iter().find(|row| row["name"] == wanted).unwrap();
            assert!(row["value"].as_f64().unwrap() > 0.0);
            assert!(row["reference"].as_f64().unwrap() > 0.0);
            assert!(row["ratio"].as_f64().unwrap() > 0.0);
            assert!(row["unit"].is_string());
        }
    }
    assert_eq!(std::fs::read_dir(dir).unwrap().count(), 0, "a bench leaves nothing behind");
    assert_eq!(world.good(&["fs", "ls", "p:/"]), "");
}

#[test]
fn a_container_is_mounted_and_unmounted() {
    let is_root = rustix::process::geteuid().is_root();
    if !Path::new("/dev/fuse").exists() || !is_root {
        eprintln!("left out: mounting needs /dev/fuse and, here, root");
        return;
    }
    let mut world = World::new();
    world.up("p");
    let mount = world.path("mnt");
    std::fs::create_dir(&mount).unwrap();
    let at = mount.to_str().unwrap();
    world.good(&["mount", "p", at]);
    std::fs::write(mount.join("file"), b"through the mount").unwrap();
    assert_eq!(world.good(&["fs", "cat", "p:/file"]), "through the mount");
    assert!(world.bad(1, &["mount", "p", at]).contains("already"));
    let busy = std::fs::File::open(mount.join("file")).unwrap();
    assert!(world.bad(1, &["umount", at]).contains("in use"));
    drop(busy);
    world.good(&["umount", at]);
    assert!(!mount.join("file").exists());
    assert!(world.bad(1, &["umount", at]).contains("not a mount"));
    assert!(world.bad(1, &["mount", "nobody", at]).contains("no pool 'nobody'"));
}

#[test]
fn usage_errors_have_their_own_exit_code() {
    let world = World::new();
    world.bad(2, &["frobnicate"]);
    world.bad(2, &["up", "--targets", "0"]);
    world.bad(2, &["up", "--name", "a/b"]);
    world.bad(2, &["bench", "io"]);
    world.bad(2, &["fs", "cp", "/a", "/b"]);
    world.bad(2, &["fs", "ls", "/etc"]);
    assert!(world.good(&["completions", "bash"]).contains("azekura"));
    assert!(world.good(&["status"]).contains("no pool"));
}
