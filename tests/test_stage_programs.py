"""Unchanged programs on a node whose files come when they are opened do what they do beside the files,
byte for byte. The node has an empty directory in the place of the mapped one."""

import difflib
import os
import shutil
import stat
import subprocess
import sysconfig
import tempfile
import textwrap
from pathlib import Path

import pytest
from pools import BINARY, LAB
from staged_tree import FLAGS, PYTHON, compile_program, make_tree
from staging import LabSite

pytestmark = pytest.mark.root
NODES = ["n1", "n2", "n3", "n4"]
LIMIT_S = 60
DIFFERENCES_MAX = 60
WAYS = ["preload", "notify"]
# The kernel itself opens the interpreter of a script, and nobody is notified of that.
ONLY_BY_PRELOAD = ["script of a staged program"]

# Each is run in an empty directory out of the map; $D is the map.
SCRIPTS = {
    "python": """
        export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$D/package
        cat >p.py <<'END'
        import importlib.resources, os, sys
        import many, many.native
        print(many.value0, many.value11, many.count("four"))
        print(sorted(name for name in sys.modules if name.startswith("many")))
        print(many.group3.__file__, many.native.__file__)
        print(many.group0.m3.__cached__, os.path.exists(many.group0.m3.__cached__))
        for group in range(12):
            print(importlib.resources.files(f"many.group{group}").joinpath("words.txt").read_text())
        END
        "$PYTHON" p.py
        "$PYTHON" -v -c 'import many.group0' 2>&1 | grep -c "matches.*group0"
        cd "$D/package"; "$PYTHON" -c 'import many.group5 as g; print(g.__file__, g.value)'
        "$PYTHON" -m zipfile -l nothing.zip 2>/dev/null || echo "no such file"
        """,
    "python looks": """
        cat >p.py <<'END'
        import glob, mmap, os, shutil, sys
        top = os.fsencode(sys.argv[1])
        for place, dirs, files in os.walk(top):
            dirs.sort()
            print(place, dirs, sorted(files))
        for entry in sorted(os.scandir(top + b"/odd"), key=lambda entry: entry.name):
            named = entry.stat(follow_symlinks=False)
            print(entry.name, entry.is_dir(), entry.is_file(), entry.is_symlink(), oct(named.st_mode))
            before = os.lstat(entry.path)
            if entry.is_file(follow_symlinks=False):
                with open(entry.path, "rb") as file:
                    opened = os.fstat(file.fileno())
                    print(hash_of := sum(file.read()), file.tell(), opened.st_mtime_ns, opened.st_nlink)
                after = os.lstat(entry.path)
                numbers = {before.st_ino, opened.st_ino, after.st_ino, named.st_ino}
                print(len(numbers), len({before.st_dev, opened.st_dev, after.st_dev}))
        print(sorted(glob.glob(os.fsdecode(top) + "/package/**/m1*", recursive=True)))
        print(os.path.realpath(top + b"/links/chain"), os.path.realpath(top + b"/links/out-dots/file"))
        print(os.path.samefile(top + b"/links/chain", top + b"/links/file"))
        here = os.open(top + b"/odd", os.O_RDONLY | os.O_DIRECTORY)
        print(sorted(os.listdir(here)) == sorted(os.listdir(top + b"/odd")))
        inner = os.open(b"below", os.O_RDONLY, dir_fd=here)
        print(sorted(os.listdir(inner)), os.stat(b"../empty", dir_fd=inner).st_size)
        os.fchdir(inner)
        print(os.path.exists(b"../one piece"), len(open(b"../pieces and a bit", "rb").read()))
        os.chdir(top + b"/links/to-dir")
        print(open("up").read(), os.listdir("."), os.getcwd())
        with open(top + b"/deck/stream.bin", "rb") as file:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                print(len(mapped), mapped[4000:4016])
        print(shutil.copyfile(top + b"/links/chain", b"/dev/null"))
        END
        "$PYTHON" p.py "$D"
        """,
    "libraries": """
        "$D/libraries/bin/beside" four; cd "$D/libraries"; bin/beside and more
        for dir in lib lib64 bin/../lib64/.; do
            LD_LIBRARY_PATH=/nowhere:$D/libraries/$dir bin/searched x
        done
        export LD_LIBRARY_PATH=$D/libraries/lib64
        sh -c 'bin/searched y; env | grep LIBRARY; exec bin/searched z'; unset LD_LIBRARY_PATH
        bin/searched || echo "exit code $?"
        """,
    "fortran": '"$D/deck/read-deck" "$D/deck"; cd "$D/deck"; PATH=.:$PATH; read-deck .',
    "gcc": """
        make -s -f "$D/project/Makefile"; ./program; cat *.d
        make -f "$D/project/Makefile"; md5sum *.o program
        gcc -E -I"$D/project/include" "$D/project/src/f2.c" | grep -v '^# .*"/usr' | md5sum
        gcc -I"$D/project/include" -include no-such.h -c "$D/project/src/f2.c" || echo "exit code $?"
        """,
    "shell": """
        "$D/scripts/main" a 'b c' || echo "exit code $?"
        bash "$D/scripts/main" || echo "exit code $?"; dash -c '. "$D/scripts/functions"; twice x' 2>&1
        cd "$D/scripts"; ./last from here || echo "exit code $?"; ./echo a copy; PATH=.:$PATH last || :
        cat <<<"$(<table)" | tail -1; [ -s table ] && [ ! -e nothing ] && echo right
        test -d ../links/to-dir && test -L ../links/to-dir && echo both
        (exec <../odd/empty; read -r line || echo "nothing in it"); cat <nothing || echo "no such file"
        env -i ./echo cleared; sort -t' ' -k2 table table | uniq -c | head -3; wc ../deck/*
        find . -name 'l*' -exec {} run by find \\; ; echo by xargs | xargs ./echo
        cd ../odd; cat -- -rf 'two words' $'new\\nline' *UTF-8*
        cat deep0/deep1/*/*/../../deep2/../../empty
        """,
    "refused": """
        cd "$D/odd"; for each in 'echo >empty' 'echo >new' 'mkdir new' 'rm empty' \\
            'mv empty full' 'ln empty hard' 'ln -s empty soft' 'rmdir "empty directory"' \\
            'touch empty' 'chmod 600 empty' 'truncate -s 1 empty' 'mkfifo fifo' 'cp empty copy' \\
            'rm -r below' 'cat nothing' 'cat below' \\
            'cat empty/' 'ls empty/x' 'cd empty' 'cat ../links/loop' 'cat ../links/loop1' \\
            'cat ../links/nowhere' 'cat ../links/slash-of-file' 'readlink -e ../links/nowhere' \\
            "cat $(printf 'x%.0s' {1..256})" 'echo >../links/nowhere'
        do bash -c "$each" || echo "$each: exit code $?"; done
        """,
    "find": """
        # All of it once; then without the many names.
        find "$D" -printf '%P %y %Y %m %l %f %d\\n' | LC_ALL=C sort
        find "$D"/[!m]* -type f -printf '%P %s %T@\\0' | LC_ALL=C sort -z
        find -L "$D/links" -printf '%P %y\\n' 2>&1 | LC_ALL=C sort
        find "$D"/[!m]* -empty | LC_ALL=C sort | head -30
        find "$D/odd" -newermt 2020-01-01 -type f; find "$D"/[!m]* -samefile "$D/odd/empty"
        find "$D"/[!m]* -perm 640 -o -size +2000k | LC_ALL=C sort
        find "$D"/[!m]* -depth -name bottom -execdir pwd \\;
        """,
    "ls and stat": """
        cd "$D"; ls -a; ls -RQ . | md5sum
        ls -l --time-style=full-iso links/ scripts deck | grep -v '^[dt]'
        ls -ldQ odd/* | grep -v ^d | tr -s ' '
        stat -c '%n %f %s %y' links/* odd/* odd/*/ "many names/name 00700"
        ls -lL links 2>&1 | cut -c1-10; du -b links scripts deck project; du --apparent-size -B1 odd/*
        realpath links/chain links/out links/there-and-back links/dots
        """,
    "grep and diff": """
        grep -r here "$D/odd" "$D/links" --binary-files=text -D skip 2>&1 | LC_ALL=C sort
        grep -R -c the "$D/links" 2>&1 | LC_ALL=C sort; grep -rl 'V30' "$D/project" | LC_ALL=C sort
        diff -r "$D/project/include" "$D/project/src" | md5sum; cmp "$D/links/far" "$D/links/dir/file"
        md5sum "$D"/odd/*/*/* | LC_ALL=C sort; cat "$D"/package/many/*/*.py | md5sum
        head -n 3 "$D"/links/*ar
        """,
    "tar": """
        tar -C "$D" --sort=name -cf all.tar odd links project scripts 2>warnings || echo "exit code $?"
        LC_ALL=C sort warnings; md5sum all.tar; tar -tvf all.tar | md5sum; rm all.tar warnings
        tar -C "$D" --sort=name -hcf - project deck | md5sum
        """,
    "copies": """
        cp -a "$D/odd" "$D/links" .; diff -r "$D/odd/below" odd/below
        mkdir r; rsync -a "$D/links" "$D/scripts" "$D/odd/below" r; rsync -ain "$D/scripts" r
        cp -rL "$D/project" .; install -m 700 "$D/scripts/last" .; cat "$D/odd/sparse" >whole
        find odd links r -mindepth 1 -printf '%P %y %m %T@\\n' | LC_ALL=C sort
        find "$D" -maxdepth 0 -printf '%m %T@ %s'
        """,
    "ten thousand names": """
        cd "$D/many names"; ls -U | LC_ALL=C sort | md5sum; find . | wc -l; echo *99 | wc -w
        cat *00 | md5sum; ls -l --time-style=full-iso | grep -v ^total | md5sum
        cat 'name 12000' || echo "no such file"
        [ -e 'name 09999' ] && [ ! -e 'name 10000' ] && echo right; du -b . | wc -l
        """,
    "static": """
        "$D/scripts/walk" "$D" odd; "$D/scripts/walk" "$D/links"; cd "$D/scripts"; ./walk .. deck
        sh -c 'exec ./walk ../package many/group3'; ./walk nothing || echo "exit code $?"
        """,
    "script of a staged program": '"$D/scripts/by-walk"; cd "$D/scripts"; PATH=.:$PATH by-walk',
    "go": """
        "$D/scripts/walk-go" "$D/odd"; cd "$D"; scripts/walk-go links; scripts/walk-go package | md5sum
        scripts/walk-go nothing || echo "exit code $?"
        """,
}
MISSING = {
    "fortran": None if shutil.which("gfortran") else "no Fortran compiler",
    "go": None if shutil.which("go") else "no Go compiler",
    "python": None if Path(sysconfig.get_path("include"), "Python.h").exists() else "no Python.h",
}


class Staged:
    """A home directory, and nodes that do not have it."""

    def __init__(self, world):
        self.site = LabSite(world, NODES)
        self.map, self.option = self.site.map("data", "ro")
        self.outside = world.base / "outside"
        self.outside.mkdir()
        (world.base / "programs").mkdir()
        make_tree(self.map, self.outside, world.base / "programs")

    def environment(self):
        return {**self.site.world.environment, "D": str(self.map), "PYTHON": PYTHON}

    def result(self, script, start):
        """What a script printed, how it ended, and what it left in its directory."""
        # Of the same name in all runs: some programs print it.
        place = self.site.world.base / "place"
        said = Path(tempfile.mkdtemp(dir=self.site.world.base))
        place.mkdir()
        try:
            into = f'exec >{said}/out 2>{said}/err </dev/null; umask 022; exec bash -uo pipefail -c "$1"'
            done = start(place, ["bash", "-c", into, "bash", textwrap.dedent(script)])
            texts = {name: (said / name).read_bytes() for name in ("out", "err")}
            return {"code": done.returncode, **texts, "left": leavings(place)}, done
        finally:
            shutil.rmtree(place)

    def plain(self, script):
        # Nothing may be written at home either.
        read_only = 'mount --bind "$D" "$D" && mount -o remount,bind,ro "$D" && cd . && exec "$@"'

        def start(place, words):
            command = ["unshare", "-m", "sh", "-c", read_only, "sh", *words]
            return subprocess.run(
                command, cwd=place, env=self.environment(), timeout=LIMIT_S, check=False
            )

        return self.result(script, start)[0]

    def staged(self, script, via):
        def start(place, words):
            inside = [BINARY, "stage", "inside", "--via", "notify", "--"] if via == "notify" else []
            on_node = self.site.on("n1", *inside, *words)
            options = (*self.option, "--via", "preload", "--", *on_node)
            return self.site.run(
                *options, hosts=["n1"], check=False, cwd=place, env=self.environment(), limit_s=LIMIT_S
            )

        return self.result(script, start)


def leavings(place):
    """All that is in a directory, with what programs see of it."""
    found = {}
    for above, dirs, files in os.walk(os.fsencode(place)):
        for name in [*dirs, *files]:
            path = os.path.join(above, name)
            state = os.lstat(path)
            content = b""
            if stat.S_ISREG(state.st_mode):
                with open(path, "rb") as file:
                    content = file.read()
            elif stat.S_ISLNK(state.st_mode):
                content = os.readlink(path)
            found[os.path.relpath(path, os.fsencode(place))] = (state.st_mode, content)
    return found


def difference(expected, found, what):
    """The lines of which one has more than the other, to be read by people."""
    texts = [
        repr(each[what].split(b"\n")).replace(", b", ",\nb").splitlines() for each in (expected, found)
    ]
    lines = difflib.unified_diff(*texts, "at home", "on the node", what, n=0, lineterm="")
    return list(lines)[:DIFFERENCES_MAX]


@pytest.fixture(scope="module")
def staged(module_world):
    return Staged(module_world)


@pytest.mark.parametrize("name", SCRIPTS)
def test_programs_do_on_a_node_what_they_do_at_home(staged, name):
    if MISSING.get(name):
        pytest.skip(MISSING[name])
    expected = staged.plain(SCRIPTS[name])
    assert expected["out"]
    for via in WAYS[:1] if name in ONLY_BY_PRELOAD else WAYS:
        found, done = staged.staged(SCRIPTS[name], via)
        wrong = [*difference(expected, found, "err"), *difference(expected, found, "out")]
        assert not wrong, "\n".join([f"by {via}: {done.stderr}", *wrong])
        assert found == expected, via
        assert staged.site.left() == []


@pytest.mark.skipif(not shutil.which("mpicc"), reason="no MPI compiler")
@pytest.mark.parametrize("via", WAYS)
def test_mpi_reads_the_same_on_four_nodes(staged, via, tmp_path):
    program = compile_program("mpicc", "parts.c", tmp_path / "parts", *FLAGS)
    shell = tmp_path / "rsh"
    shell.write_text(f'#!/bin/sh\nhost=$1; shift; exec {LAB} netlab exec "$host" -- sh -c "$*"\n')
    shell.chmod(0o755)
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "io", "romio321"]
    work = [program, staged.map / "odd" / "pieces and a bit", staged.map / "scripts" / "numbers"]
    run = staged.site.world.run
    expected = run(*mpirun[1:], "-np", 4, *work, program="mpirun").stdout
    assert expected.count("rank") == 4
    if via == "notify":
        work = [BINARY, "stage", "inside", "--via", "notify", "--", *work]
    far = ["--mca", "plm_rsh_agent", shell, "-host", ",".join(NODES)]
    done = staged.site.run(*staged.option, "--", *mpirun, *far, *work)
    assert done.stdout == expected, done.stderr
    assert "staged to 4 nodes" in done.stderr
    assert staged.site.left() == []
