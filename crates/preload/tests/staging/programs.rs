//! Programs that lie below a map themselves, with their libraries; and calls that the usual tools do not make.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use azekura_proto::staging::MapKind;

use super::{MAP, Stage, put};

fn material(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/material/preload").join(name)
}

fn gcc(words: &[&str]) {
    let done = Command::new("gcc")
        .args(["-D_GNU_SOURCE", "-O1", "-Wall", "-pthread"])
        .args(words)
        .output();
    let done = done.unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A program that needs a library that needs another, each in a directory of its own; and one that loads it.
fn build_libraries(dir: &Path) {
    for name in ["bin", "lib", "far"] {
        std::fs::create_dir_all(dir.join(name)).unwrap();
    }
    let source = |name: &str, content: &str| {
        let path = dir.join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let far = source("far.c", "const char *far_text(void) { return \"from afar\"; }\n");
    let near = source(
        "near.c",
        "const char *far_text(void);\nconst char *near_text(void) { return far_text(); }\n",
    );
    let main = source(
        "main.c",
        "#include <stdio.h>\nconst char *near_text(void);\nint main(int n, char **w) { (void)n; char at[4096] = \"\"; \
         FILE *f = fopen(\"/proc/self/cmdline\", \"r\"); (void)!fread(at, 1, 1, f); puts(near_text()); puts(w[0]); return 0; }\n",
    );
    let loads = source(
        "loads.c",
        "#include <dlfcn.h>\n#include <stdio.h>\nint main(int n, char **w) { (void)n; void *l = dlopen(w[1], RTLD_NOW);\n\
         if (!l) { puts(\"not loaded\"); return 1; }\nconst char *(*t)(void) = (const char *(*)(void))dlsym(l, \"near_text\");\n\
         puts(t()); return dlopen(w[1], RTLD_NOW | RTLD_NOLOAD) != l; }\n",
    );
    let library = |name: &str| dir.join(name);
    let (libfar, libnear) = (library("far/libfar.so"), library("lib/libnear.so"));
    gcc(&["-shared", "-fPIC", "-o", text(&libfar), text(&far)]);
    gcc(&[
        "-shared",
        "-fPIC",
        "-o",
        text(&libnear),
        text(&near),
        text(&libfar),
        "-Wl,-rpath,$ORIGIN/../far",
        "-Wl,-soname,libnear.so",
    ]);
    let link = |program: &str, more: &[&str]| {
        let out = dir.join(program);
        let mut words = vec![
            "-o",
            text(&out),
            text(&main),
            "-L",
            "-Wl,--allow-shlib-undefined",
            text(&libnear),
        ];
        words.remove(2 + 1);
        words.extend(more);
        gcc(&words);
    };
    link("bin/beside", &["-Wl,-rpath,$ORIGIN/../lib"]);
    link("bin/absolute", &[&format!("-Wl,-rpath,{MAP}/lib")]);
    link("bin/searched", &[]);
    gcc(&["-o", text(&dir.join("bin/loads")), text(&loads)]);
    // A library that is named by its path, and a program that brings its loader along.
    let by_path = library("lib/libbypath.so");
    let soname = format!("-Wl,-soname,{MAP}/lib/libbypath.so");
    gcc(&["-shared", "-fPIC", "-o", text(&by_path), text(&far), &soname]);
    let reads = source(
        "reads.c",
        "#include <stdio.h>\nconst char *far_text(void);\nint main(void) { puts(far_text()); return 0; }\n",
    );
    gcc(&["-o", text(&dir.join("bin/by_path")), text(&reads), text(&by_path)]);
    std::fs::remove_file(reads).unwrap();
    std::fs::copy(loader_of_host(&dir.join("bin/loads")), dir.join("lib/ld.so")).unwrap();
    let loader = format!("-Wl,--dynamic-linker={MAP}/lib/ld.so");
    gcc(&["-o", text(&dir.join("bin/own_loader")), text(&loads), &loader]);
    gcc(&[
        "-static",
        "-o",
        text(&dir.join("bin/static")),
        "-xc",
        text(&source(
            "static.c",
            "#include <stdio.h>\nint main(int n, char **w) { printf(\"static %s\\n\", w[n - 1]); return 0; }\n",
        )),
    ]);
    for source in [far, near, main, loads, dir.join("static.c")] {
        std::fs::remove_file(source).unwrap();
    }
    put(
        &dir.join("script"),
        format!("#!{MAP}/bin/static first\n").as_bytes(),
        0o755,
        1_600_000_000,
    );
}

/// The loader that a program of this host names.
fn loader_of_host(program: &Path) -> PathBuf {
    let told = Command::new("readelf").arg("-l").arg(program).output().unwrap();
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let line = told.split("interpreter: ").nth(1).unwrap();
    line.split(']').next().unwrap().into()
}

fn stage() -> Stage {
    Stage::with(MapKind::ReadOnly, build_libraries)
}

fn printed(stage: &Stage, script: &str) -> String {
    let done = stage.staged(script);
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    format!("{out}{err}")
}

#[test]
fn a_program_finds_its_libraries_wherever_it_looks_for_them() {
    let stage = stage();
    for _ in 0..2 {
        stage.compare("bin/beside; \"$DIR/bin/beside\"; cd bin; ./beside");
        let script = "export LD_LIBRARY_PATH=/nowhere:$DIR/lib:$DIR/far; bin/searched; echo $LD_LIBRARY_PATH; bin/searched; \
            sh -c 'echo $LD_LIBRARY_PATH; exec bin/searched'; env | grep -c AZEKURA_STAGE_; bin/loads libnear.so";
        let search = format!("/nowhere:{MAP}/lib:{MAP}/far");
        assert_eq!(
            printed(&stage, script),
            format!(
                "from afar\nbin/searched\n{search}\nfrom afar\nbin/searched\n{search}\nfrom afar\nbin/searched\n0\nfrom afar\n"
            ),
            "{}",
            stage.report()
        );
        let script = "bin/absolute; env | grep -c LIBRARY_PATH; python3 -c 'import subprocess, sys\nsys.exit(subprocess.call([\"bin/absolute\"], env={}))'";
        assert_eq!(
            printed(&stage, script),
            "from afar\nbin/absolute\n0\nfrom afar\nbin/absolute\n"
        );
        stage.compare("bin/loads lib/libnear.so; bin/loads \"$DIR/lib/libnear.so\"; bin/loads ./lib/none.so; python3 -c 'import ctypes, os\nl = ctypes.CDLL(os.environ[\"DIR\"] + \"/lib/libnear.so\"); l.near_text.restype = ctypes.c_char_p; print(l.near_text())'");
    }
}

#[test]
fn a_program_is_known_by_the_maps_path() {
    let stage = stage();
    let script = "python3 -c 'import os, subprocess\np = subprocess.Popen([\"bin/loads\", \"/dev/stdin\"], stdin=subprocess.PIPE)\nprint(os.readlink(\"/proc/%d/exe\" % p.pid))\np.communicate(b\"\")'; exec 5< one; readlink /proc/self/fd/5";
    assert_eq!(printed(&stage, script), format!("{MAP}/bin/loads\nnot loaded\n{MAP}/one\n"));
}

#[test]
fn a_static_program_is_started_by_what_traps_its_calls_if_there_is_something() {
    let stage = stage();
    assert_eq!(printed(&stage, "bin/static a; ./script b"), "static a\nstatic b\n");
    let starter = stage.scratch.join("starter");
    std::fs::write(&starter, "#!/bin/sh\necho \"$@\"\n").unwrap();
    std::fs::set_permissions(&starter, PermissionsExt::from_mode(0o755)).unwrap();
    let tree = stage.scratch.join("cache/tree/0/bin/static");
    let script =
        format!("AZEKURA_BIN={} exec bash -c 'bin/static a b; ./script c'", starter.display());
    let words = format!("stage inside --via notify -- {}", tree.display());
    assert_eq!(printed(&stage, &script), format!("{words} a b\n{words} first ./script c\n"));
}

#[test]
fn what_the_loader_or_the_kernel_opens_by_path_is_trapped_if_that_can_be() {
    let stage = stage();
    let starter = stage.scratch.join("starter");
    std::fs::write(&starter, "#!/bin/sh\necho \"$@\"\n").unwrap();
    std::fs::set_permissions(&starter, PermissionsExt::from_mode(0o755)).unwrap();
    let tree = stage.scratch.join("cache/tree/0");
    let (bin, loader) = (tree.join("bin"), tree.join("lib/ld.so"));
    let script = format!(
        "export AZEKURA_BIN={}; exec bash -c 'bin/by_path a; bin/own_loader b; bin/beside'",
        starter.display()
    );
    let words = "stage inside --via notify --";
    let by_path = format!("{words} {}/by_path a", bin.display());
    let own_loader = format!("{words} {} {}/own_loader b", loader.display(), bin.display());
    let expected = format!("{by_path}\n{own_loader}\nfrom afar\nbin/beside\n");
    assert_eq!(printed(&stage, &script), expected);
    // What they need has come.
    assert!(tree.join("lib/libbypath.so").exists());
    // Without such a starter, the loader at least can be found.
    assert_eq!(printed(&stage, "bin/own_loader lib/libnear.so"), "from afar\n");
}

/// As packages have it: the library has a version in its name, and symlinks lead to it.
fn build_versions(dir: &Path) {
    for name in ["bin", "lib", "far"] {
        std::fs::create_dir_all(dir.join(name)).unwrap();
    }
    let (main, puts) = (dir.join("main.c"), dir.join("puts.c"));
    let text_of = "const char *version(void)";
    std::fs::write(&puts, format!("{text_of} {{ return WORDS; }}\n")).unwrap();
    let library = dir.join("lib/libver.so.2.0.1");
    let shared = ["-shared", "-fPIC", "-Wl,-soname,libver.so.2", "-DWORDS=\"version 2\"", "-o"];
    gcc(&[&shared[..], &[text(&library), text(&puts)]].concat());
    for (name, to) in
        [("lib/libver.so.2", "libver.so.2.0.1"), ("lib/libver.so", "libver.so.2"), ("lib64", "lib")]
    {
        std::os::unix::fs::symlink(to, dir.join(name)).unwrap();
    }
    // Another that is loaded before, and one whose name is no symlink.
    let other = ["-shared", "-fPIC", "-DWORDS=\"another\"", "-o"];
    gcc(&[&other[..], &[text(&dir.join("far/libother.so.1.5")), text(&puts)]].concat());
    std::os::unix::fs::symlink("libother.so.1.5", dir.join("far/libother.so")).unwrap();
    let plain = ["-shared", "-fPIC", "-Wl,-soname,libplain.so", "-DWORDS=\"plain\"", "-o"];
    gcc(&[&plain[..], &[text(&dir.join("lib/libplain.so")), text(&puts)]].concat());
    std::fs::write(
        &main,
        format!(
            "#include <stdio.h>\n{text_of};\nint main(void) {{ puts(version()); return 0; }}\n"
        ),
    )
    .unwrap();
    for (program, library, more) in [
        ("bin/version", "lib/libver.so", "-Wl,-rpath,$ORIGIN/../lib"),
        ("bin/searched", "lib/libver.so", "-O1"),
        ("bin/plain", "lib/libplain.so", "-O1"),
    ] {
        gcc(&["-o", text(&dir.join(program)), text(&main), text(&dir.join(library)), more]);
    }
    for source in [main, puts] {
        std::fs::remove_file(source).unwrap();
    }
}

#[test]
fn a_library_behind_a_symlink_is_found_by_its_name() {
    let stage = Stage::with(MapKind::ReadOnly, build_versions);
    let by_hand = "import ctypes, sys\nl = ctypes.CDLL(sys.argv[1]); l.version.restype = ctypes.c_char_p; print(l.version())";
    let script = format!(
        "export LD_LIBRARY_PATH=$DIR/lib64; bin/plain; for name in libver.so.2 libver.so lib/libver.so.2; do python3 -c '{by_hand}' $name; done"
    );
    stage.compare(&script);
    // The loader asks for names that only the symlinks have.
    let starter = stage.scratch.join("starter");
    std::fs::write(&starter, "#!/bin/sh\necho \"$@\"\n").unwrap();
    std::fs::set_permissions(&starter, PermissionsExt::from_mode(0o755)).unwrap();
    let script = format!(
        "export AZEKURA_BIN={}; exec bash -c 'bin/version a; LD_LIBRARY_PATH=$DIR/lib bin/searched b'",
        starter.display()
    );
    let bin = stage.scratch.join("cache/tree/0/bin");
    let words = format!("stage inside --via notify -- {}", bin.display());
    assert_eq!(printed(&stage, &script), format!("{words}/version a\n{words}/searched b\n"));
}

#[test]
fn a_library_that_is_to_be_loaded_before_others_is_found() {
    let stage = Stage::with(MapKind::ReadOnly, build_versions);
    let script = "export LD_LIBRARY_PATH=$DIR/lib:$DIR/far; for first in $DIR/far/libother.so libother.so ''; do
        LD_PRELOAD=\"$LD_PRELOAD $first\" bash -c 'bin/plain; case \"$LD_PRELOAD\" in *tree*) echo tree;; *libother*) echo other;; esac'
        done; env | grep -c AZEKURA_STAGE_";
    let expected = "another\nother\nanother\nother\nplain\n0\n";
    assert_eq!(printed(&stage, script), expected, "{}", stage.report());
}

#[test]
fn calls_of_all_kinds_do_the_same_over_a_map() {
    let crowd = |dir: &Path| {
        for number in 0..400 {
            put(&dir.join(format!("crowd/{number}")), b"abc", 0o644, 1_600_000_000);
        }
    };
    for kind in [MapKind::ReadOnly, MapKind::ReadWrite] {
        let stage = Stage::with(kind, crowd);
        let program = stage.scratch.join("calls");
        gcc(&["-o", text(&program), text(&material("staged_calls.c"))]);
        let script = format!("cd /; exec {} \"$DIR\"", program.display());
        stage.compare(&script);
        stage.compare(&script);
    }
}

#[test]
fn a_file_that_has_come_is_opened_nearly_as_fast_as_any() {
    let stage = Stage::new(MapKind::ReadOnly);
    let program = stage.scratch.join("cost");
    gcc(&["-o", text(&program), text(&material("staged_cost.c"))]);
    let plain = stage.plain.join("sub/deep/file");
    let script = format!("{} {} \"$DIR/sub/deep/file\"", program.display(), plain.display());
    let told = printed(&stage, &script);
    let figures: Vec<i64> = told.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let [plain @ .., _, _, _] = &figures[..] else { panic!("{told}") };
    assert_eq!((figures.len(), plain.len()), (6, 3), "{told}");
    for ((call, before), now) in ["open", "stat", "fstat"].iter().zip(plain).zip(&figures[3..]) {
        println!("{call} {before} -> {now} ns");
        assert!(now - before < 20_000, "{call}: {told}");
    }
}

#[test]
fn a_program_that_asks_an_agent_that_is_gone_gets_eio_and_says_why() {
    let mut stage = Stage::new(MapKind::ReadOnly);
    let script = "import os, sys\nos.chdir(os.environ['DIR'])\nprint(open('one').read(), end='', flush=True)\nsys.stdin.readline()\n\
        print(open('one').read(), end='')\nfor path in ('numbers', 'none', os.environ['DIR'] + '/sub/second'):\n    try: open(path)\n    except OSError as error: print(error.strerror)\n";
    let mut running = stage
        .command("python3")
        .args(["-c", script])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = running.stdout.take().unwrap();
    let mut first = [0; 4];
    std::io::Read::read_exact(&mut out, &mut first).unwrap();
    stage.agent.end();
    drop(running.stdin.take());
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut out, &mut rest).unwrap();
    assert!(running.wait().unwrap().success());
    assert_eq!(rest, "one\nInput/output error\nInput/output error\nInput/output error\n");
    assert_eq!(stage.report().matches("the agent of the staging job does not answer").count(), 1);
}

#[test]
fn without_a_job_or_beside_a_pool_nothing_changes() {
    let stage = Stage::new(MapKind::ReadOnly);
    let run = |variables: &[(&str, &str)]| {
        let mut command = stage.command("cat");
        let done =
            command.envs(variables.iter().copied()).arg(stage.plain.join("one")).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&done.stdout), "one\n");
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    assert_eq!(run(&[("AZEKURA_STAGE", "")]), "");
    assert_eq!(run(&[("AZEKURA_STAGE", "nonsense")]), "");
    assert_eq!(run(&[("AZEKURA_STAGE", &"0".repeat(32))]), "");
    assert!(run(&[("AZEKURA_POOL", "/nowhere.toml")]).contains("unset AZEKURA_POOL"));
}
