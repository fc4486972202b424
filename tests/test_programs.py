"""Programs that people use, on a mount, held against the same on a local directory."""

import hashlib
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from pools import ROOT, TARGET

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def source(module_world):
    """A real tree of thousands of files: this project and the sources of what it is built on."""
    place = module_world.storage / "source"
    place.mkdir()
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout
    names = [name for name in listing.decode().split("\0") if name and (ROOT / name).is_file()]
    packed = subprocess.run(
        ["tar", "-C", ROOT, "-cf", "-", "--null", "-T", "-"],
        input="\0".join(names).encode(),
        capture_output=True,
        check=True,
    ).stdout
    subprocess.run(["tar", "-C", place, "-xf", "-"], input=packed, check=True)
    subprocess.run(
        ["cargo", "vendor", "--quiet", "--locked", place / "vendor"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=300,
    )
    return place


@pytest.fixture(scope="module")
def c_project(module_world):
    """The sources of a C project with configure and make: jemalloc, as a cargo package has it."""
    vendor = TARGET / "material" / "vendor"
    marker = TARGET / "material" / "ready"
    if not marker.exists():
        subprocess.run(
            ["cargo", "vendor", "--quiet", "--manifest-path", HERE / "material/Cargo.toml", vendor],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=300,
        )
        marker.touch()
    package = next(vendor.glob("tikv-jemalloc-sys*"))
    place = module_world.storage / "c-project"
    subprocess.run(["cp", "-a", package / "jemalloc", place], check=True)
    subprocess.run(["cp", package / "configure/configure", place], check=True)
    return place


def digest(root):
    """Names, types, modes, sizes and contents of a tree, as one number a path."""
    found = {}
    for directory, subdirs, files in os.walk(root):
        for name in subdirs + files:
            path = Path(directory) / name
            status = os.lstat(path)
            what = [status.st_mode, 0 if path.is_dir() else status.st_size]
            if path.is_symlink():
                what.append(os.readlink(path))
            elif path.is_file():
                what.append(hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest())
            found[str(path.relative_to(root))] = tuple(what)
    return found


@pytest.mark.limit(300)
def test_tar_of_a_big_tree(source, place, sh):
    sh(
        """
        tar -C "$source" -cf tree.tar .
        mkdir "$place/tree"
        tar -C "$place/tree" -xpf tree.tar
        tar -C "$place/tree" --compare -f tree.tar
        tar -C "$place" -cf "$place/again.tar" tree
        mkdir back
        tar -C back -xpf "$place/again.tar"
        """,
        limit_s=280,
        source=source,
        place=place,
    )
    assert digest(source) == digest(place / "tree")


@pytest.mark.limit(240)
def test_cp_find_and_du_agree_with_a_local_copy(source, place, sh):
    sh(
        """
        cp -a "$source/crates" "$source/vendor/serde" "$place/"
        mkdir local
        cp -a "$source/crates" "$source/vendor/serde" local/
        for tree in crates serde; do
            diff -r "local/$tree" "$place/$tree"
            form='%p %y %m %s %U %G %T+ %l\\n'
            (cd local && find "$tree" -type d -printf '%p %y %m\\n' -o -printf "$form") \\
                | sort > expected
            (cd "$place" && find "$tree" -type d -printf '%p %y %m\\n' -o -printf "$form") \\
                | sort > found
            diff expected found
            find "local/$tree" -type f -print0 | du --files0-from=- --apparent-size -bc \\
                | tail -1 > expected
            find "$place/$tree" -type f -print0 | du --files0-from=- --apparent-size -bc \\
                | tail -1 > found
            diff expected found
        done
        test "$(du -s "$place/crates" | cut -f1)" -gt 100
        """,
        limit_s=230,
        source=source,
        place=place,
    )


@pytest.mark.skipif(shutil.which("rsync") is None, reason="needs rsync")
@pytest.mark.limit(240)
def test_rsync_twice_moves_nothing_the_second_time(source, place, sh):
    sh(
        """
        rsync -a "$source/" "$place/tree/"
        rsync -a --itemize-changes "$source/" "$place/tree/" > second
        if [ -s second ]; then head second; exit 1; fi
        rsync -a --checksum --itemize-changes "$source/" "$place/tree/" > third
        if [ -s third ]; then head third; exit 1; fi
        rsync -a --delete "$source/crates/" "$place/tree/"
        diff -r "$source/crates" "$place/tree"
        """,
        limit_s=230,
        source=source,
        place=place,
    )


@pytest.mark.limit(240)
def test_git(source, place, sh):
    sh(
        """
        export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
        export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
        export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
        mkdir origin
        cp -r "$source"/crates "$source"/vendor/serde* origin/
        git -C origin init -q -b main
        git -C origin add -A
        git -C origin commit -q -m first
        for round in 1 2 3; do
            date > "origin/file$round"
            git -C origin add -A
            git -C origin commit -q -m "round $round"
        done
        git clone -q --no-local origin "$place/clone"
        cd "$place/clone"
        git fsck --full --strict
        git checkout -q -b other HEAD~2
        echo change >> crates/proto/Cargo.toml
        git commit -q -a -m change
        git merge -q -m merge main
        git gc -q --aggressive --prune=now
        git fsck --full --strict
        test -z "$(git status --porcelain)"
        git stash list
        git worktree add -q ../worktree main
        test -z "$(git -C ../worktree status --porcelain)"
        """,
        limit_s=230,
        source=source,
        place=place,
    )


SQLITE_WRITER = """
import sqlite3, sys
base = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
for number in range(int(sys.argv[3])):
    base.execute("begin immediate")
    total = base.execute("select total from account").fetchone()[0]
    base.execute("update account set total = ?", (total + 1,))
    base.execute("insert into log values (?, ?)", (sys.argv[2], number))
    base.execute("commit")
"""


@pytest.mark.limit(240)
@pytest.mark.parametrize("journal", ["delete", "truncate", "persist"])
def test_sqlite_with_its_own_locking(place, journal):
    path = place / f"{journal}.db"
    base = sqlite3.connect(path, isolation_level=None)
    assert base.execute(f"pragma journal_mode = {journal}").fetchone()[0] == journal
    base.execute("create table account (total integer)")
    base.execute("insert into account values (0)")
    base.execute("create table log (who text, number integer, primary key (who, number))")
    count = 120
    writers = [
        subprocess.Popen([sys.executable, "-c", SQLITE_WRITER, path, who, str(count)])
        for who in ("a", "b")
    ]
    for writer in writers:
        assert writer.wait(200) == 0
    assert base.execute("select total from account").fetchone()[0] == 2 * count
    assert base.execute("select count(*) from log").fetchone()[0] == 2 * count
    assert base.execute("pragma integrity_check").fetchone()[0] == "ok"
    base.close()


def test_sqlite_shell(place, sh):
    sh(
        """
        cd "$place"
        sqlite3 base.db "create table t (n integer primary key, s text);"
        for n in $(seq 1 20); do echo "insert into t values ($n, hex(randomblob(5000)));"; done \\
            | sqlite3 base.db
        sqlite3 base.db "vacuum; pragma integrity_check;" | grep -qx ok
        test "$(sqlite3 base.db 'select count(*) from t')" = 20
        """,
        place=place,
    )


@pytest.mark.limit(420)
def test_make_of_a_c_project(c_project, place, sh):
    sh(
        """
        cp -a "$c_project" "$place/src"
        cd "$place/src"
        ./configure --disable-cxx --enable-doc=no CFLAGS=-O0 EXTRA_CFLAGS=-O0 > configure.out 2>&1
        make -j2 build_lib_static > make.out 2>&1 || { tail -40 make.out; exit 1; }
        make -q build_lib_static
        make install_lib_static install_include DESTDIR="$place/installed" > install.out 2>&1
        printf '#include <stdlib.h>\\nint main(void){return malloc(100)==NULL;}\\n' > try.c
        cc -o try try.c lib/libjemalloc.a -lpthread -ldl -lm
        ./try
        make clean > /dev/null
        test -z "$(find src -name '*.o')"
        """,
        limit_s=410,
        c_project=c_project,
        place=place,
    )


@pytest.mark.limit(180)
def test_compileall(place, sh):
    standard = Path(os.__file__).parent
    sh(
        """
        mkdir "$place/lib"
        (cd "$standard" && tar -cf - --exclude=__pycache__ --exclude=test --exclude=tests \\
            --exclude=site-packages --exclude=dist-packages *.py json email http asyncio unittest \\
            importlib concurrent xml) | tar -C "$place/lib" -xf -
        "$python" -m compileall -q -j 2 "$place/lib"
        count=$(find "$place/lib" -name '*.py' | wc -l)
        test "$(find "$place/lib" -name '*.pyc' | wc -l)" = "$count"
        test "$count" -gt 200
        # What was compiled is taken as it is: times and sizes agree.
        cd "$place/lib"
        "$python" -B -v -c 'import json.decoder' 2> "$place/said"
        grep -q "matches $place/lib/json" "$place/said"
        """,
        limit_s=170,
        standard=standard,
        place=place,
        python=sys.executable,
    )


@pytest.mark.limit(120)
def test_small_tools(place, sh):
    sh(
        """
        cd "$place"
        seq 1 100000 > numbers
        sort -R numbers --random-source=/dev/zero > mixed
        sort -n -T "$place" -S 1M mixed | cmp - numbers
        sed -i 's/^7$/seven/' numbers
        grep -qx seven numbers
        split -b 100000 -d mixed part.
        cat part.* | cmp - mixed
        gzip -k mixed && gunzip -c mixed.gz | cmp - mixed
        install -m 750 mixed installed
        test "$(stat -c %a installed)" = 750
        mkfifo pipe
        (echo through > pipe) & read -r word < pipe
        test "$word" = through
        wait
        truncate -s 5G hole && test "$(stat -c %s hole)" = 5368709120
        test "$(du -k hole | cut -f1)" -lt 100
        cp --sparse=always hole hole2 && test "$(du -k hole2 | cut -f1)" -lt 100
        dd if=/dev/zero of=direct bs=1M count=3 oflag=direct status=none
        test "$(stat -c %s direct)" = 3145728
        mv part.00 moved && ln -s moved link && test -s link
        rm -r "$place"/part.*
        """,
        place=place,
    )
