//! Unchanged programs over a map and over a plain copy of it. Owns what the tests find there, the scripts that
//! are run over both, and the comparison; whose agent answers is the business of those who use it.

#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "used by the tests of two crates"
)]

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use azekura_proto::staging::JobId;

#[path = "../library/mod.rs"]
mod library;

/// Where nothing can be made by a call that was not intercepted.
pub const MAP: &str = "/proc/azekura-map/data";

fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(library::library)
}

pub fn put(path: &Path, content: &[u8], mode: u32, mtime: u64) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(mtime);
    std::fs::File::options().read(true).open(path).unwrap().set_modified(time).unwrap();
}

/// What the tests find: files, a package for python, scripts and symlinks.
pub fn fill(dir: &Path) {
    put(&dir.join("one"), b"one\n", 0o644, 1_500_000_000);
    put(
        &dir.join("numbers"),
        &(0..5000).flat_map(|n| format!("{n}\n").into_bytes()).collect::<Vec<_>>(),
        0o640,
        1_500_000_001,
    );
    put(&dir.join("sub/deep/file"), b"deep down\n", 0o600, 1_500_000_002);
    put(&dir.join("sub/second"), b"second\n", 0o444, 1_500_000_003);
    put(&dir.join("sub/name with blank"), b"blank\n", 0o644, 1_500_000_004);
    put(
        &dir.join("run.sh"),
        b"#!/bin/sh\necho \"$0: $*\"\ncat \"$(dirname \"$0\")/one\"\n",
        0o755,
        1_500_000_005,
    );
    put(&dir.join("pkg/__init__.py"), b"from .inner import value\n", 0o644, 1_500_000_006);
    put(
        &dir.join("pkg/inner.py"),
        b"import os\nvalue = open(os.path.join(os.path.dirname(__file__), 'data.txt')).read()\n",
        0o644,
        1_500_000_007,
    );
    put(&dir.join("pkg/data.txt"), b"from the package\n", 0o644, 1_500_000_008);
    symlink("one", dir.join("link")).unwrap();
    symlink("sub/deep", dir.join("dirlink")).unwrap();
    symlink("../one", dir.join("sub/up")).unwrap();
    symlink("missing", dir.join("broken")).unwrap();
    symlink("loop", dir.join("loop")).unwrap();
    symlink("/etc/hostname", dir.join("out")).unwrap();
}

/// A map, and a plain copy of what is at home.
pub struct Over {
    pub job: JobId,
    pub plain: PathBuf,
    pub scratch: PathBuf,
}

impl Over {
    pub fn report(&self) -> String {
        std::fs::read_to_string(self.scratch.join("report")).unwrap_or_default()
    }

    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("LD_PRELOAD", library())
            .env("AZEKURA_STAGE", self.job.to_hex())
            .env("AZEKURA_REPORT", self.scratch.join("report"))
            .env("DIR", MAP)
            .env("LC_ALL", "C")
            .env_remove("AZEKURA_POOL")
            // Of cargo, for tests that are libraries.
            .env_remove("LD_LIBRARY_PATH")
            .stdin(Stdio::null());
        command
    }

    /// What a script prints, over the map.
    pub fn staged(&self, script: &str) -> Output {
        self.command("bash").args(["-c", &format!("cd \"$DIR\"\n{script}")]).output().unwrap()
    }

    /// What it prints over the plain copy.
    pub fn over_plain(&self, script: &str) -> Output {
        let mut command = Command::new("bash");
        command.env("DIR", &self.plain).env("LC_ALL", "C").stdin(Stdio::null());
        command.args(["-c", &format!("cd \"$DIR\"\n{script}")]).output().unwrap()
    }

    /// What a script does otherwise over the map than over the plain copy.
    pub fn difference(&self, script: &str) -> Option<String> {
        let (staged, plain) = (self.staged(script), self.over_plain(script));
        let text = |bytes: &[u8]| {
            String::from_utf8_lossy(bytes).replace(self.plain.to_str().unwrap(), MAP)
        };
        let shown = |done: &Output| {
            format!("{}\n{}--\n{}", done.status, text(&done.stdout), text(&done.stderr))
        };
        let (staged, plain) = (shown(&staged), shown(&plain));
        (staged != plain)
            .then(|| format!("### {script}\n### staged: {staged}\n### plain: {plain}\n"))
    }

    /// A script does the same over both.
    pub fn compare(&self, script: &str) {
        let different = self.difference(script);
        assert!(different.is_none(), "{}\n{}", different.unwrap(), self.report());
    }
}

/// What is left of a tree: kinds, modes, lengths, contents.
pub fn left(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut rest = vec![dir.to_path_buf()];
    while let Some(at) = rest.pop() {
        for entry in std::fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let found = path.symlink_metadata().unwrap();
            let told = if found.is_dir() {
                rest.push(path.clone());
                String::new()
            } else if found.is_symlink() {
                std::fs::read_link(&path).unwrap().display().to_string()
            } else {
                format!("{} {:?}", found.nlink(), std::fs::read(&path).unwrap())
            };
            let below = path.strip_prefix(dir).unwrap().to_path_buf();
            all.insert(below, format!("{:o} {told}", found.mode()));
        }
    }
    all
}

pub const READING: [&str; 15] = [
    "for t in sub/deep pkg numbers; do cp -a $t /tmp/azekura-test-$$; diff -r $t /tmp/azekura-test-$$ && echo $t; rm -r /tmp/azekura-test-$$; done",
    "cat one numbers sub/second | md5sum; head -c 3 sub/deep/file; cat 'sub/name with blank'",
    "ls; ls -a sub; ls pkg | wc -l; echo *; echo s*/*; ls missing; cat missing",
    "stat -c '%n %F %a %s %Y %h' one numbers sub/sec* sub/name* | sort; stat -c '%n %F %a %s %h' link broken; stat -Lc '%n %F %s' link sub/up dirlink out",
    "find . -printf '%p %y %l\\n' | sort; find . -type f -size +5k; find -L . -name file 2>&1 | sort",
    "cat link sub/up dirlink/file; cat broken; cat loop; cat out; readlink link dirlink out broken; readlink one",
    "cat sub/../one sub/deep/../../link dirlink/../second; cat ./././/one; cd sub/deep; cat ../second ../../one; pwd; cd ..; pwd; cat second",
    "cat \"$DIR/one\" \"$DIR//sub/./second\" \"$DIR/../data/one\" | sed s/x/y/; realpath link sub/up dirlink/file out . dirlink/..; realpath missing/x; realpath -m missing/x",
    "test -r one && test ! -x one && test -x run.sh && test -d sub && test -L link && test ! -e broken && test -f dirlink/file && echo fine",
    "grep -r deep . | sort; grep -c 4 numbers; diff -r sub \"$DIR/sub\" && echo equal; wc -c one sub/second; sort -rn numbers | head -3",
    "cp one /tmp/azekura-test-$$ && cat /tmp/azekura-test-$$; rm /tmp/azekura-test-$$; tar cf - . | tar tf - | sort; tar cf - . | tar xOf - ./numbers | md5sum",
    "./run.sh a b; sh run.sh c; \"$DIR/run.sh\" d; cd sub; ../run.sh e; (exec ../run.sh f); env -i /bin/sh ../run.sh g; env ../run.sh h",
    "python3 -B -c 'import sys; sys.path.insert(0, \".\"); import pkg; print(pkg.value, pkg.__file__)'; cd /; python3 -B -c 'import sys, os; sys.path.insert(0, os.environ[\"DIR\"]); import pkg; print(pkg.value, pkg.__file__, sorted(os.listdir(os.environ[\"DIR\"])))'",
    "python3 -c 'import os\nfor base, dirs, files in sorted(os.walk(\".\")): print(base, sorted(dirs), sorted(files))\nprint(os.getcwd(), os.path.realpath(\"sub/up\"), os.readlink(\"/proc/self/cwd\"))\nfd = os.open(\"sub\", os.O_RDONLY)\nprint(sorted(os.listdir(fd)), os.stat(\"second\", dir_fd=fd).st_size, os.open(\"deep/file\", os.O_RDONLY, dir_fd=fd) > 0)\nos.chdir(fd); print(os.getcwd(), open(\"deep/file\").read())'",
    "exec 5< one 6< sub/second; read -r a <&5; read -r b <&6; echo $a $b; cat < numbers | tail -1; while read -r x; do echo \"<$x>\"; done < sub/deep/file; mapfile -t all < numbers; echo ${#all[@]}; bash -c 'cat one'; sh -c '. ./run.sh'",
];

pub const WRITING: [&str; 13] = [
    "touch -h -d @5000 link broken; stat -c '%n %Y' link broken one; chown -h \"$(id -u)\" sub/up dirlink; ln link hard; readlink hard; ln -P broken kept; readlink kept; ln -L link followed; stat -c %F followed; mkdir x; tar cf - broken link loop | tar xf - -C x; cp -a broken sub/up x; ls x; python3 -c 'import os, shutil, stat\nfor name in \"link\", \"broken\", \"one\": print(stat.S_ISLNK(os.fstat(os.open(name, os.O_PATH | os.O_NOFOLLOW)).st_mode))\nfor flags in os.O_WRONLY, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_TRUNC:\n  for name in \"link\", \"broken\":\n    try: os.open(name, flags | os.O_NOFOLLOW)\n    except OSError as error: print(error)\nshutil.copytree(\"sub\", \"tree\", symlinks=True)'; cat one; ls",
    "echo new > new; echo more >> new; cat new; echo changed > one; cat one; echo end >> numbers; tail -2 numbers; echo x > sub/fresh; : > empty; wc -c empty",
    "mkdir a; mkdir -p a/b/c d/e; echo x > a/b/c/f; ls -R a; rmdir d/e d; rmdir a; mkdir a; mkdir sub; ls",
    "mv one moved; cat moved; cat one; mv moved sub/; ls sub; mv -n sub/second numbers; mv sub/second numbers; cat numbers",
    "rm one; cat one; ls; echo again > one; cat one; rm sub/deep/file; rmdir sub/deep; ls sub; rm -r pkg; ls; rm missing; rm -f missing",
    "mkdir t; echo 1 > t/f; mv t u; cat u/f; ls; mv u sub/v; cat sub/v/f; python3 -c 'import os; os.rename(\"sub/v\", \"w\"); print(open(\"w/f\").read())'",
    "ln -s one made; cat made; readlink made; ln -s \"$DIR/sub/second\" absolute; cat absolute; ln -s ../one sub/relative; cat sub/relative; ln one hard; echo z >> hard; cat one; stat -c %h one; echo through > made; cat one; test one -ef hard && echo same",
    "chmod 600 one; chmod 755 sub/second; stat -c '%a' one sub/second; touch -d @1000 one new; stat -c %Y one new; truncate -s 5 numbers; cat numbers; chmod 700 sub; stat -c %a sub",
    "sed -i s/one/two/ one; cat one; f=$(mktemp ./tmp.XXXXXX); echo t > $f; ls | grep -c ^tmp; rm $f; d=$(mktemp -d \"$DIR/dir.XXXXXX\"); touch $d/x; ls $d; rm -r $d; install -m 750 one inst; stat -c %a inst; dd if=numbers of=dd.out bs=7 count=3 2> /dev/null; cat dd.out",
    "cp -a sub copy; diff -r sub copy && echo equal; cp -r pkg pkg2; ls pkg2; rm -r copy; ls; tar cf t.tar sub; mkdir x; tar xf t.tar -C x; diff -r sub x/sub && echo equal",
    "set -C; echo no > one; echo yes > other; cat one other; set +C; exec 3<> one; read -r a <&3; echo $a; echo TWO >&3; exec 3>&-; cat one; (cd sub; echo here > here; rm second); ls sub",
    "python3 -c 'import os, tempfile, shutil\nwith open(\"one\", \"r+\") as f: f.seek(1); f.write(\"X\")\nprint(open(\"one\").read())\nos.makedirs(\"p/q\", exist_ok=True); os.makedirs(\"p/q\", exist_ok=True)\nfd = os.open(\"p\", os.O_RDONLY); os.mkdir(\"r\", dir_fd=fd); open(\"p/r/s\", \"w\").write(\"s\"); os.unlink(\"r/s\", dir_fd=fd); print(os.listdir(\"p/r\"))\nos.replace(\"numbers\", \"p/n\"); print(os.path.getsize(\"p/n\"), os.path.exists(\"numbers\"))\nt = tempfile.NamedTemporaryFile(dir=\".\"); t.write(b\"x\"); t.close()\nwith tempfile.TemporaryFile(dir=\"sub\") as t: t.write(b\"y\")\nshutil.copytree(\"sub\", \"tree\", symlinks=True); shutil.rmtree(\"pkg\"); print(sorted(os.listdir(\".\")))'",
    "seq 3000 | split -l 1000 - part.; ls part.*; cat part.* | md5sum; sort -S 32k -T . numbers -o numbers; head -2 numbers; gzip -kn numbers; gunzip -c numbers.gz | cmp - numbers; tee c1 c2 < one; cat c1 c2; rm part.*; find . -name 'c?' -delete; find . -newer one -type f | wc -l > /dev/null; ls",
];

/// Runs the scripts that read, each twice: the second time most of it has come.
pub fn read_all(over: &Over) -> Vec<String> {
    READING.iter().chain(&READING).filter_map(|script| over.difference(script)).collect()
}

/// What shows what is there.
pub const SHOWING: &str = "find . -printf '%p %y %l\\n' | sort; find . -type f | sort | xargs -d '\\n' md5sum; \
    find . -type f -printf '%p %m %n\\n' | sort";
