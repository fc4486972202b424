//! Unchanged programs of a staging job do over maps what they do over the directories themselves: real
//! programs run under the library, against an agent that answers from a directory, and what they print and
//! leave is compared with the same over a plain copy.

#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

mod agent;
mod over;
mod programs;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};

use agent::{Agent, Place};
use azekura_proto::staging::{JobId, MapKind};
use over::{MAP, Over, SHOWING, WRITING, fill, left, put, read_all};

fn new_job() -> JobId {
    static NUMBER: AtomicU8 = AtomicU8::new(0);
    let mut id = [0; 16];
    id[..4].copy_from_slice(&std::process::id().to_le_bytes());
    id[4] = NUMBER.fetch_add(1, Ordering::Relaxed);
    JobId(id)
}

/// An agent that maps a home.
struct Stage {
    agent: Agent,
    over: Over,
    _scratch: tempfile::TempDir,
}

impl std::ops::Deref for Stage {
    type Target = Over;

    fn deref(&self) -> &Over {
        &self.over
    }
}

impl Stage {
    fn new(kind: MapKind) -> Self {
        Self::with(kind, |_| {})
    }

    fn with(kind: MapKind, more: impl Fn(&Path)) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let (home, plain) = (scratch.path().join("home"), scratch.path().join("plain/data"));
        for dir in [&home, &plain] {
            fill(dir);
            more(dir);
        }
        let cache = scratch.path().join("cache");
        std::fs::create_dir(&cache).unwrap();
        let agent = Agent::start(new_job(), vec![Place { dir: MAP.into(), kind, home }], &cache);
        let over = Over { job: agent.job, plain, scratch: scratch.path().to_path_buf() };
        Self { agent, over, _scratch: scratch }
    }

    fn home(&self) -> PathBuf {
        self.scratch.join("home")
    }
}

#[test]
fn programs_that_read_find_what_is_at_home() {
    let mut different = Vec::new();
    for kind in [MapKind::ReadOnly, MapKind::ReadWrite] {
        different.extend(read_all(&Stage::new(kind)));
    }
    assert!(different.is_empty(), "{}", different.concat());
}

#[test]
fn a_file_that_has_come_costs_no_question() {
    let stage = Stage::new(MapKind::ReadOnly);
    // The shell looks at the directory that it works in, which only home knows.
    let asked_of_files = || {
        let asked = stage.agent.asked();
        asked.into_iter().filter(|line| !line.ends_with("data/.")).collect::<Vec<_>>()
    };
    stage.compare("cat one sub/deep/file");
    let asked = [format!("read {MAP}/one"), format!("read {MAP}/sub/deep/file")];
    assert_eq!(asked_of_files(), asked);
    stage.compare("cat one sub/deep/file; stat -c %s one; test -r one");
    assert_eq!(asked_of_files(), [""; 0]);
    std::fs::remove_dir_all(stage.home()).unwrap();
    stage.compare("cat one sub/deep/file");
}

#[test]
fn what_is_looked_at_does_not_come() {
    let stage = Stage::new(MapKind::ReadOnly);
    stage.compare("ls -l | awk '{print $1, $5}' | grep -v ^d; find . -size +1 -type f; du -a --apparent-size numbers; test -e one");
    assert!(!stage.agent.asked().iter().any(|line| line.starts_with("read")));
}

#[test]
fn there_are_no_rings_by_which_files_are_opened() {
    let stage = Stage::new(MapKind::ReadOnly);
    let script = format!(
        "python3 -c 'import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n\
         print(libc.syscall({}, 8, bytes(120)), ctypes.get_errno())'",
        libc::SYS_io_uring_setup
    );
    let done = stage.staged(&script);
    assert_eq!(String::from_utf8_lossy(&done.stdout), format!("-1 {}\n", libc::ENOSYS));
}

#[test]
fn nothing_is_written_below_a_map_to_read() {
    let stage = Stage::new(MapKind::ReadOnly);
    let script = "for try in 'echo > one' 'echo >> new' 'mkdir dir' 'rm one' 'rm -r sub' 'mv one two' \
        'ln one two' 'ln -s one two' 'chmod 600 one' 'touch one' 'truncate -s 3 numbers' 'rmdir sub'; do
        bash -c \"$try\" 2>&1 | grep -q 'Read-only file system' && echo refused || echo \"$try: no\"; done | sort | uniq -c; \
        mkdir sub 2>&1 | grep -o exists; cat one; test -w one || echo not writable";
    let done = stage.staged(script);
    let told = String::from_utf8_lossy(&done.stdout).into_owned();
    assert_eq!(told.trim(), "12 refused\nexists\none\nnot writable", "{}", stage.report());
    assert_eq!(left(&stage.home()), left(&stage.plain));
}

#[test]
fn programs_that_write_leave_what_they_leave_in_a_plain_directory() {
    let mut different = Vec::new();
    for script in WRITING {
        let stage = Stage::new(MapKind::ReadWrite);
        let before = left(&stage.home());
        different.extend(stage.difference(script));
        different.extend(stage.difference(SHOWING));
        assert_eq!(left(&stage.home()), before, "written at home: {script}");
    }
    assert!(different.is_empty(), "{}", different.concat());
}

#[test]
fn of_a_map_to_write_only_the_directories_are_there() {
    let stage = Stage::new(MapKind::Out);
    let script = "ls; find . -type f; cat one; echo mine > one; cat one; mkdir sub/new; echo x > sub/new/x; find . -type f | sort";
    let done = stage.staged(script);
    let told = String::from_utf8_lossy(&done.stdout).into_owned();
    assert_eq!(told, "pkg\nsub\nmine\n./one\n./sub/new/x\n", "{}", stage.report());
}

#[test]
fn symlinks_of_the_host_lead_into_a_map() {
    let scratch = tempfile::tempdir().unwrap();
    let home = scratch.path().join("home");
    fill(&home);
    let (above, cache) = (scratch.path().join("above"), scratch.path().join("cache"));
    for dir in [&above, &cache] {
        std::fs::create_dir(dir).unwrap();
    }
    // What is above the map is on the node, the map is not.
    let map = above.join("data");
    let place = Place { dir: map.clone(), kind: MapKind::ReadOnly, home };
    let agent = Agent::start(new_job(), vec![place], &cache);
    for (name, to) in [("to-map", &map), ("to-above", &above)] {
        std::os::unix::fs::symlink(to, scratch.path().join(name)).unwrap();
    }
    let over = Over { job: agent.job, plain: map, scratch: scratch.path().to_path_buf() };
    let base = scratch.path().display();
    for path in ["to-map", "to-map/", "to-above/data", "to-above/data/", "above/../to-above/data"] {
        for (from, path) in [("/", format!("{base}/{path}")), (&base.to_string(), path.to_owned())]
        {
            let script =
                format!("cd {from}; stat -Lc %F {path}; ls {path} | grep one; cat {path}/one");
            let done = over.command("bash").args(["-c", &script]).output().unwrap();
            let told = String::from_utf8_lossy(&done.stdout).into_owned();
            assert_eq!(told, "directory\none\none\n", "{script}: {}", over.report());
        }
    }
}
