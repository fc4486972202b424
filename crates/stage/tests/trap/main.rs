//! Programs that are linked statically run over maps as they do over the directories themselves.
//!
//! The map's directories exist nowhere: what a program finds there, the trap has answered.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, missing_docs, unreachable_pub)]
#[path = "../fixture/gated.rs"]
mod gated;
mod job;
mod programs;

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use azekura_stage::trap;
use job::{Job, SLOW_FOR, failed, said};

/// Without a C library to link statically there is no program to try.
macro_rules! need_probe {
    () => {
        if !programs::has_probe() {
            return;
        }
    };
}

#[test]
fn a_file_comes_when_it_is_opened() {
    need_probe!();
    let job = Job::start();
    job.put("d/f", "content\n");
    assert!(!job.tree(0, "d/f").exists());
    for _ in 0..2 {
        assert_eq!(job.probe(&[&"read", &job.ro.join("d/f")]), said("content\n"));
        assert!(job.tree(0, "d/f").exists());
    }
    assert_eq!(job.probe(&[&"read", &job.ro.join("d/../d//./f")]), said("content\n"));
    assert_eq!(job.probe(&[&"read", &job.ro.join("none")]), failed("open: ENOENT\n"));
    assert_eq!(job.probe(&[&"read", &job.ro.join("d/f/x")]), failed("open: ENOTDIR\n"));
    assert_eq!(job.probe(&[&"read", &"/azekura-nowhere/f"]), failed("open: ENOENT\n"));
    let own = job.dir.path().join("own");
    fs::write(&own, "own\n").unwrap();
    assert_eq!(job.probe(&[&"read", &own]), said("own\n"));
}

#[test]
fn attributes_are_those_at_home() {
    need_probe!();
    let job = Job::start();
    let home = job.put("d/f", &"x".repeat(10_000));
    job.put("g", "");
    fs::set_permissions(&home, fs::Permissions::from_mode(0o640)).unwrap();
    let mtime = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_007, 123_456_789);
    File::options().write(true).open(&home).unwrap().set_modified(mtime).unwrap();
    let plain = Command::new(programs::probe()).arg("stats").arg(&home).output().unwrap();
    let plain = String::from_utf8(plain.stdout).unwrap();
    assert!(plain.contains("mode=100640 nlink=1") && plain.contains("1000000007.123456789"));
    // Before it has come, and after.
    for _ in 0..2 {
        assert_eq!(job.probe(&[&"stats", &job.ro.join("d/f")]), said(&plain));
    }
    assert_eq!(job.probe(&[&"stats", &job.ro.join("none")]), failed("stat: ENOENT\n"));
    assert_eq!(job.probe(&[&"statfs", &job.ro.join("d")]), said(""));
    assert_eq!(job.probe(&[&"statfs", &job.ro.join("e")]), failed("statfs: ENOENT\n"));
    assert_eq!(job.probe(&[&"xattr", &job.ro.join("g")]), failed("getxattr: ENODATA\n"));
    assert_eq!(job.probe(&[&"access", &job.ro.join("d/f"), &"4"]), said(""));
    assert_eq!(job.probe(&[&"access", &job.ro.join("d/f"), &"1"]), failed("access: EACCES\n"));
    assert_eq!(job.probe(&[&"access", &job.ro.join("d/f"), &"2"]), failed("access: EROFS\n"));
}

#[test]
fn nothing_is_written_where_nothing_may_be() {
    need_probe!();
    let job = Job::start();
    job.put("f", "f");
    job.put("d/g", "g");
    let (creat, excl) = (libc::O_CREAT, libc::O_CREAT | libc::O_EXCL);
    let write = |name: &str, flags: i32| {
        job.probe(&[&"write", &job.ro.join(name), &flags.to_string(), &"text"])
    };
    assert_eq!(write("f", 0), failed("open: EROFS\n"));
    assert_eq!(write("f", libc::O_TRUNC), failed("open: EROFS\n"));
    assert_eq!(write("new", creat), failed("open: EROFS\n"));
    assert_eq!(write("new", 0), failed("open: ENOENT\n"));
    assert_eq!(write("f", excl), failed("open: EEXIST\n"));
    assert_eq!(write("d", 0), failed("open: EISDIR\n"));
    assert_eq!(fs::read_to_string(job.home(0).join("f")).unwrap(), "f");
}

#[test]
fn what_may_be_written_is_told_by_where_a_path_leads() {
    let job = Job::start();
    job.put("f", "f");
    job.put_in(2, "x", "x");
    symlink("../rw/x", job.home(0).join("over")).unwrap();
    symlink("../ro/f", job.home(2).join("back")).unwrap();
    let shell = format!(
        "cd {} && echo hi > ../out/new && cat ../out/new && echo more >> over && cat ../rw/x && \
         test -w ../rw/x && test -w over && ! test -w ../rw/back && ! test -w ../rw/../ro/f && \
         ! {{ echo no > ../rw/back; }} 2> /dev/null",
        job.ro.display()
    );
    let ended = job.run(&["bash", "-c", &shell]);
    assert_eq!((ended.said.as_str(), ended.code), ("hi\nxmore\n", Some(0)));
}

#[test]
fn what_is_written_is_the_programs() {
    need_probe!();
    let job = Job::start();
    fs::create_dir_all(job.home(1).join("d")).unwrap();
    job.put_in(1, "d/old", "not seen");
    job.put_in(2, "old", "old content");
    job.put_in(2, "cut", "old content");
    let flags = (libc::O_CREAT | libc::O_TRUNC).to_string();
    assert_eq!(job.probe(&[&"read", &job.out.join("d/old")]), failed("open: ENOENT\n"));
    assert_eq!(job.probe(&[&"write", &job.out.join("d/new"), &flags, &"new"]), said(""));
    assert_eq!(fs::read_to_string(job.tree(1, "d/new")).unwrap(), "new");
    let mode = fs::metadata(job.tree(1, "d/new")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o640, "by the program's umask");
    assert_eq!(job.probe(&[&"read", &job.out.join("d/new")]), said("new"));
    assert_eq!(
        job.probe(&[&"write", &job.out.join("none/new"), &flags, &"new"]),
        failed("open: ENOENT\n")
    );
    // A file of home is changed, and cut, without having come before.
    assert_eq!(job.probe(&[&"write", &job.rw.join("old"), &"0", &"new"]), said(""));
    assert_eq!(job.probe(&[&"read", &job.rw.join("old")]), said("new content"));
    let cut = libc::O_TRUNC.to_string();
    assert_eq!(job.probe(&[&"write", &job.rw.join("cut"), &cut, &"new"]), said(""));
    assert_eq!(job.probe(&[&"read", &job.rw.join("cut")]), said("new"));
    assert_eq!(fs::read_to_string(job.home(2).join("old")).unwrap(), "old content");
}

#[test]
fn changes_are_made_as_on_the_directory_itself() {
    need_probe!();
    let job = Job::start();
    let plain = job.dir.path().join("plain");
    fs::create_dir(&plain).unwrap();
    let probe = Command::new(programs::probe()).arg("changes").arg(&plain).output().unwrap();
    let plain = String::from_utf8(probe.stdout).unwrap();
    assert!(plain.contains("rmdir(\"d\"): ENOTEMPTY"), "{plain}");
    assert_eq!(job.probe(&[&"changes", &job.out]), said(&plain));
    assert_eq!(job.probe(&[&"changes", &job.rw]), said(&plain));
    let ro = job.probe(&[&"changes", &job.ro]).said;
    assert!(ro.contains("mkdir(\"d\", 0777): EROFS"), "{ro}");
}

#[test]
fn directories_show_what_has_not_come_and_are_where_paths_start() {
    need_probe!();
    let job = Job::start();
    job.put("d/low/f", "low\n");
    job.put("d/g", "g");
    assert_eq!(
        job.probe(&[&"relative", &job.ro.join("d"), &"low", &"f"]),
        said("size 4\ncloexec 1\nlow\nlow\ng low \n")
    );
    assert_eq!(job.probe(&[&"list", &job.ro]), said("d \n"));
    assert_eq!(job.probe(&[&"list", &job.ro.join("d/g")]), failed("opendir: ENOTDIR\n"));
}

#[test]
fn a_program_works_in_a_directory_of_a_map() {
    need_probe!();
    let job = Job::start();
    job.put("d/f", "f\n");
    let cwd = job.ro.join("d");
    let wanted = format!("left over 0\ncwd {}\nf\nf \n", cwd.display());
    assert_eq!(job.probe(&[&"cd", &cwd, &"f"]), said(&wanted));
    assert_eq!(job.probe(&[&"cd", &cwd, &"f"]), said(&wanted), "now in the tree");
    assert_eq!(job.probe(&[&"cd", &job.ro.join("d/f"), &"f"]), failed("chdir: ENOTDIR\n"));
    assert_eq!(job.probe(&[&"cd", &job.ro.join("e"), &"f"]), failed("chdir: ENOENT\n"));
}

#[test]
fn symlinks_are_followed_within_a_map_and_out_of_it() {
    need_probe!();
    let job = Job::start();
    job.put("d/f", "f\n");
    let own = job.dir.path().join("own");
    fs::write(&own, "own\n").unwrap();
    symlink("d/f", job.home(0).join("s")).unwrap();
    symlink(&own, job.home(0).join("away")).unwrap();
    symlink(job.ro.join("s"), job.home(2).join("other")).unwrap();
    symlink("round", job.home(0).join("round")).unwrap();
    assert_eq!(job.probe(&[&"read", &job.ro.join("s")]), said("f\n"));
    assert_eq!(job.probe(&[&"read", &job.ro.join("away")]), said("own\n"));
    assert_eq!(job.probe(&[&"read", &job.rw.join("other")]), said("f\n"));
    assert_eq!(job.probe(&[&"read", &job.ro.join("round")]), failed("open: ELOOP\n"));
    assert_eq!(job.run(&["readlink", job.ro.join("s").to_str().unwrap()]), said("d/f\n"));
}

#[test]
fn a_symlink_that_is_not_followed_is_changed_itself() {
    let job = Job::start();
    let file = job.put_in(2, "file", "f");
    File::options().write(true).open(&file).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    symlink("file", job.home(2).join("link")).unwrap();
    symlink("none", job.home(2).join("broken")).unwrap();
    let shell = format!(
        "cd {} && touch -h -d @9 link broken && stat -c '%n %Y' link broken file && \
         chown -h $(id -u) broken && ln link hard && readlink hard && ln -L link followed && \
         stat -c %F followed && mkdir x && tar -cf - broken link | tar -xf - -C x && \
         cp -a broken x/copy && readlink x/copy x/broken x/link",
        job.rw.display()
    );
    let wanted = "link 9\nbroken 9\nfile 0\nfile\nregular file\nnone\nnone\nfile\n";
    assert_eq!(job.run(&["sh", "-c", &shell]), said(wanted));
    let python = "import os, sys\n\
        for flags in os.O_WRONLY, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_TRUNC:\n\
        \x20for name in 'link', 'broken':\n\
        \x20 try: os.open(sys.argv[1] + '/' + name, flags | os.O_NOFOLLOW)\n\
        \x20 except OSError as error: print(error.errno)\n";
    let opened = job.run(&["python3", "-c", python, job.rw.to_str().unwrap()]);
    assert_eq!(opened, said(&format!("{}\n", libc::ELOOP).repeat(6)));
    symlink("none", job.home(0).join("broken")).unwrap();
    let python = "import os, stat, sys\n\
        for name in sys.argv[1:]: fd = os.open(name, os.O_PATH | os.O_NOFOLLOW); \
        print(stat.S_ISLNK(os.fstat(fd).st_mode), os.readlink('', dir_fd=fd))";
    let links = [&job.ro, &job.rw].map(|map| map.join("broken").display().to_string());
    let opened = job.run(&["python3", "-c", python, &links[0], &links[1]]);
    assert_eq!(opened, said("True none\nTrue none\n"));
}

#[test]
fn a_program_of_a_map_is_run() {
    need_probe!();
    let job = Job::start();
    for name in ["bin/probe", "bin/again", "bin/self", "bin/first"] {
        fs::create_dir_all(job.home(0).join("bin")).unwrap();
        fs::copy(programs::probe(), job.home(0).join(name)).unwrap();
    }
    job.put("bin/f", "f");
    let broken = job.put("bin/broken", "no program");
    fs::set_permissions(broken, fs::Permissions::from_mode(0o755)).unwrap();
    let bin = job.ro.join("bin");
    let path = |name: &str| bin.join(name).display().to_string();
    // By posix_spawn's way, with the path and the first argument in one place, by a thread, as the first.
    let twice = format!("{0} words a \n{0} words a \npath kept 1\n", path("probe"));
    assert_eq!(job.probe(&[&"spawn", &path("probe"), &"words", &"a"]), said(&twice));
    let once = format!("{} words b \n", path("again"));
    assert_eq!(job.probe(&[&"exec-in-thread", &path("again"), &"words", &"b"]), said(&once));
    let once = format!("{} words c \n", path("first"));
    assert_eq!(job.run(&[&path("first"), "words", "c"]), said(&once));
    assert_eq!(job.probe(&[&"spawn", &path("none"), &"words"]), failed("execve: ENOENT\n"));
    assert_eq!(job.probe(&[&"spawn", &path("f"), &"words"]), failed("execve: EACCES\n"));
    // What cannot be run leaves the caller as it was.
    assert_eq!(job.probe(&[&"spawn", &path("broken"), &"x"]), failed("execve: ENOEXEC\n"));
    let shell = format!("cd {} && ./self words d && ../bin/again words", bin.display());
    assert_eq!(job.run(&["sh", "-c", &shell]), said("./self words d \n../bin/again words \n"));
}

/// Programs that are run one after the other on a busy machine.
const RUNS: usize = 1000;

/// The program runs before the thread that has started it in the caller's name does anything else.
#[test]
fn the_first_calls_of_a_program_of_a_map_are_answered() {
    need_probe!();
    let job = Job::start();
    job.put("f", "f\n");
    job.put("probe", "");
    fs::copy(programs::probe(), job.home(0).join("probe")).unwrap();
    let [probe, f] = ["probe", "f"].map(|name| job.ro.join(name).display().to_string());
    let shell = format!("for i in $(seq {RUNS}); do {probe} read {f}; done");
    let is_over = AtomicBool::new(false);
    let ended = std::thread::scope(|scope| {
        // Threads lose their turn where it hurts only if others want one.
        for _ in 0..2 * std::thread::available_parallelism().unwrap().get() {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let ended = job.run(&["sh", "-c", &shell]);
        is_over.store(true, Ordering::Relaxed);
        ended
    });
    assert_eq!(ended, said(&"f\n".repeat(RUNS)));
}

#[test]
fn a_script_of_a_map_finds_what_is_beside_it() {
    let job = Job::start();
    let script =
        job.put("bin/run", "#!/bin/sh\ncat \"$(dirname \"$0\")/beside\"; cat /dev/fd/0; echo $1\n");
    fs::set_permissions(script, fs::Permissions::from_mode(0o755)).unwrap();
    job.put("bin/beside", "beside\n");
    let script = job.ro.join("bin/run").display().to_string();
    let shell = format!(
        "echo in | {script} word; cd {}; echo in | ./run word",
        job.ro.join("bin").display()
    );
    assert_eq!(job.run(&["sh", "-c", &shell]), said("beside\nin\nword\nbeside\nin\nword\n"));
}

#[test]
fn a_script_of_a_map_is_run_by_an_interpreter_of_a_map() {
    need_probe!();
    let job = Job::start();
    let put = |name: &str, text: &str| {
        let path = job.put(name, text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        job.ro.join(name).display().to_string()
    };
    let words = put("bin/words", "");
    fs::copy(programs::probe(), job.home(0).join("bin/words")).unwrap();
    fs::copy("/bin/sh", job.home(0).join("bin/sh")).unwrap();
    let script = put("script", &format!("#! {words} words\n"));
    let inner = put("inner", &format!("#!{script} more of it\n"));
    let shell = put("shell", &format!("#!{} -e\necho $0 $*\n", job.ro.join("bin/sh").display()));
    let none = put("none", &format!("#!{}/missing\n", job.ro.display()));
    let round = put("round", &format!("#!{}/round\n", job.ro.display()));
    let plain = put("plain", "#!/bin/sh\necho $0 $*\n");
    let wanted = format!("{words} words {script} a b \n");
    // By a fork, and by a vfork whose words stand elsewhere, twice.
    assert_eq!(job.run(&["sh", "-c", &format!("{script} a b")]), said(&wanted));
    let spawned = job.probe(&[&"spawn", &script, &"a", &"b"]);
    assert_eq!(spawned, said(&format!("{}path kept 1\n", wanted.repeat(2))));
    let wanted = format!("{words} words {script} more of it {inner} c \n");
    assert_eq!(job.run(&[&inner, "c"]), said(&wanted));
    assert_eq!(job.run(&[&shell, "d"]), said(&format!("{shell} d\n")));
    assert_eq!(job.run(&[&plain, "e"]), said(&format!("{plain} e\n")));
    let there = format!("cd {} && ./shell f && ./plain g && env ./script h", job.ro.display());
    let wanted = format!("./shell f\n./plain g\n{words} words ./script h \n");
    assert_eq!(job.run(&["sh", "-c", &there]), said(&wanted));
    assert_eq!(job.probe(&[&"spawn", &none]), failed("execve: ENOENT\n"));
    assert_eq!(job.probe(&[&"spawn", &round]), failed("execve: ELOOP\n"));
}

#[test]
fn one_that_waits_keeps_no_other_waiting() {
    need_probe!();
    let job = Job::start();
    job.put("f", "content");
    let (f, slow) = (job.ro.join("f"), job.put_slow("slow"));
    assert_eq!(job.probe(&[&"read", &f]), said("content"));
    // Seven threads wait when the eighth comes.
    let mut words = vec!["threads".into()];
    words.extend(std::iter::repeat_n(slow, 7));
    words.push(f);
    let late = format!("late {}\n", &"slow ".repeat(13)[..64]);
    let wanted = late.repeat(7) + "soon content\n";
    let mut command = Command::new(programs::probe());
    command.args(words);
    assert_eq!(job.run_command(command), said(&wanted));
}

#[test]
fn a_program_that_is_killed_while_it_waits_stops_nothing() {
    need_probe!();
    let job = Job::start();
    job.put("f", "f\n");
    let slow = job.put_slow("slow");
    assert_eq!(job.probe(&[&"read", &job.ro.join("f")]), said("f\n"));
    let shell = format!(
        "{probe} read {slow} & sleep 0.5; kill -9 $!; wait $!; echo $?; {probe} read {f}",
        probe = programs::probe().display(),
        slow = slow.display(),
        f = job.ro.join("f").display(),
    );
    let start = Instant::now();
    assert_eq!(job.run(&["sh", "-c", &shell]), said("137\nf\n"));
    assert!(start.elapsed() < SLOW_FOR, "{:?}", start.elapsed());
    let mut command = Command::new(programs::probe());
    command.arg("read").arg(&slow);
    let mut program = trap::start(command, job.id).unwrap();
    let pid = rustix::process::Pid::from_raw(program.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    assert_eq!(program.wait().unwrap().signal(), Some(libc::SIGKILL));
    program.wait_for_rest().unwrap();
}

#[test]
fn all_processes_below_are_served() {
    need_probe!();
    let job = Job::start();
    job.put("f", "f");
    assert_eq!(job.probe(&[&"forks", &job.ro.join("f")]), said(&"f".repeat(15)));
    // One that outlives its parent, too.
    let shell = format!("(sleep 0.3; cat {}) & exit 3", job.ro.join("f").display());
    let ended = job.run(&["sh", "-c", &shell]);
    assert_eq!((ended.said.as_str(), ended.code), ("f", Some(3)));
}

#[test]
fn dynamic_programs_are_served_too() {
    let job = Job::start();
    job.put("d/f", "content\n");
    job.put("d/g", "never seen\n");
    let f = job.ro.join("d/f").display().to_string();
    assert_eq!(job.run(&["bash", "-c", &format!("cat < {f}")]), said("content\n"));
    // cp looks at a file, opens it, and leaves it be if it is not the same.
    let g = job.ro.join("d/g").display().to_string();
    let to = job.out.join("copy").display().to_string();
    assert_eq!(job.run(&["bash", "-c", &format!("cp {g} {to} && cat {to}")]), said("never seen\n"));
    // Walks that compare what they enter with what they looked at.
    let copied = job.out.join("all").display().to_string();
    let walk = format!(
        "cp -r {0} {copied} && cat {copied}/f && rm -r {copied} && test ! -e {copied} && \
         tar -C {0} -cf - . | tar -tf - | sort",
        job.ro.join("d").display()
    );
    assert_eq!(job.run(&["bash", "-c", &walk]), said("content\n./\n./f\n./g\n"));
    let list = format!("cd {} && pwd -P && find . | sort", job.ro.display());
    let wanted = format!("{}\n.\n./d\n./d/f\n./d/g\n", job.ro.display());
    assert_eq!(job.run(&["bash", "-c", &list]), said(&wanted));
}

#[test]
fn a_dynamic_program_of_a_map_finds_its_loader_and_libraries_there() {
    let job = Job::start();
    let (home, soname) = (job.home(0), job.ro.join("libfar.so"));
    let far = home.join("libfar.so");
    let compile = |source: &str, into: &Path, more: &[&str]| {
        let code = home.join("code.c");
        fs::write(&code, source).unwrap();
        let done = Command::new("cc").arg("-o").arg(into).arg(&code).args(more).status().unwrap();
        assert!(done.success());
        fs::remove_file(code).unwrap();
    };
    let soname = format!("-Wl,-soname,{}", soname.display());
    compile("int far(void) { return 42; }", &far, &["-shared", "-fPIC", &soname]);
    let main = "#include <stdio.h>\nint far(void);\nint main(void) { printf(\"%d\\n\", far()); return 0; }";
    compile(main, &home.join("by_path"), &[far.to_str().unwrap()]);
    // As what is preloaded starts a program whose loader lies in a map.
    let told = Command::new("readelf").arg("-l").arg(home.join("by_path")).output().unwrap();
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let loader = told.split("interpreter: ").nth(1).unwrap().split(']').next().unwrap();
    fs::copy(loader, home.join("ld.so")).unwrap();
    let [program, loader] =
        ["by_path", "ld.so"].map(|name| job.ro.join(name).display().to_string());
    assert_eq!(job.run(&[&program]), said("42\n"));
    assert_eq!(job.run(&[&loader, &program]), said("42\n"));
}

#[test]
fn there_are_no_rings_by_which_files_are_opened() {
    let job = Job::start();
    let python = format!(
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n\
         print(libc.syscall({}, 8, bytes(120)), ctypes.get_errno())",
        libc::SYS_io_uring_setup
    );
    assert_eq!(job.run(&["python3", "-c", &python]), said(&format!("-1 {}\n", libc::ENOSYS)));
}

#[test]
fn go_is_served() {
    let Some(program) = programs::go() else {
        eprintln!("skipped: there is no go");
        return;
    };
    let job = Job::start();
    job.put("d/f", "content\n");
    let ended = job.run(&[program.to_str().unwrap(), job.ro.to_str().unwrap()]);
    let wanted =
        format!("content\nd/f 8\nran content\nin {}\nran content\n", job.ro.join("d").display());
    assert_eq!(ended, said(&wanted));
}

#[test]
fn a_trap_within_one_needs_no_other() {
    need_probe!();
    if std::env::var_os("AZEKURA_TRAP_INNER").is_some() {
        let job =
            azekura_proto::staging::JobId::from_hex(&std::env::var("AZEKURA_TRAP_INNER").unwrap());
        let mut command = Command::new(programs::probe());
        command.arg("read").arg(std::env::var_os("AZEKURA_TRAP_FILE").unwrap());
        let status = trap::run(command, job.unwrap());
        match status {
            Ok(status) => std::process::exit(status.code().unwrap()),
            Err(trap::Error::TrappedAlready) => std::process::exit(77),
            Err(error) => panic!("{error}"),
        }
    }
    let job = Job::start();
    job.put("f", "f");
    let inner = |variable: &str| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "a_trap_within_one_needs_no_other", "--nocapture", "-q"])
            .env("AZEKURA_TRAP_INNER", job.id.to_hex())
            .env("AZEKURA_TRAP_FILE", job.ro.join("f"))
            .stderr(File::create("/dev/null").unwrap());
        if !variable.is_empty() {
            command = {
                let mut env = Command::new("env");
                env.arg("-u").arg(variable).arg(command.get_program()).args(command.get_args());
                env.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
                env
            };
        }
        job.run_command(command)
    };
    let ended = inner("");
    assert!(ended.said.ends_with('f') && ended.code == Some(0), "{ended:?}");
    assert_eq!(inner("AZEKURA_STAGE_TRAPPED").code, Some(77));
}

#[test]
fn what_cannot_be_run_is_said() {
    let job = Job::start();
    let missing = trap::run(Command::new("/azekura-nowhere/program"), job.id);
    let said = missing.unwrap_err().to_string();
    assert!(said.starts_with("cannot run '/azekura-nowhere/program'"), "{said}");
    let nobody = azekura_proto::staging::JobId([7; 16]);
    let said = trap::run(Command::new("true"), nobody).unwrap_err().to_string();
    assert!(said.contains("no agent of the job 0707"), "{said}");
}

/// What the trap adds to an open, with nothing else to do for the machine. Not an assertion: see the report.
#[test]
#[ignore = "a measurement"]
fn time_of_an_open() {
    let job = Job::start();
    let own = job.dir.path().join("own");
    fs::write(&own, "own").unwrap();
    job.put("d/f", "f");
    let count = "20000";
    for _ in 0..3 {
        let plain =
            Command::new(programs::probe()).arg("time").arg(&own).arg(count).output().unwrap();
        let outside = job.probe(&[&"time", &own, &count]);
        let staged = job.probe(&[&"time", &job.ro.join("d/f"), &count]);
        let missing = job.probe(&[&"time", &job.ro.join("d/../d/f"), &count]);
        println!(
            "microseconds for open and close: untrapped {}, outside of maps {}, staged {}, by .. {}",
            String::from_utf8_lossy(&plain.stdout).trim(),
            outside.said.trim(),
            staged.said.trim(),
            missing.said.trim(),
        );
    }
}
