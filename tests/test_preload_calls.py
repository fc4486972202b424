"""Calls of the C library on a pool through the preload library, held against the same calls on a
local directory: what they give, their errors, and what is there afterwards."""

import itertools
import subprocess
import tempfile
from pathlib import Path

import pytest
from preloading import Preloading, compile_c

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def door(pool):
    """The shared pool through the library."""
    return Preloading(pool)


@pytest.fixture
def sides(door, tmp_path):
    """A fresh directory in the pool and a local one, each with one that is never in the pool."""
    inside = door.path(f"calls-{next(_numbers)}")
    door.run("mkdir", inside)
    for name in ("beside-local", "beside-pool"):
        (tmp_path / name).mkdir()
    # Others can search the way to it, as they can in the pool.
    with tempfile.TemporaryDirectory(dir="/tmp") as local:
        Path(local).chmod(0o755)
        yield {
            "local": (Path(local), tmp_path / "beside-local"),
            "pool": (inside, tmp_path / "beside-pool"),
        }
    door.run("rm", "-rf", inside)


def outputs(door, sides, program):
    """What a program says on each side."""
    local, pool = sides["local"], sides["pool"]
    expected = subprocess.run(
        [program, *local],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert expected.returncode == 0, expected.stderr
    return expected.stdout, door.run(program, *pool).stdout


def compare(expected, found):
    assert found.splitlines() == expected.splitlines()


# Some take the second directory too; the others are given it and ignore it.
@pytest.mark.parametrize("name", ["names", "attributes", "directories", "paths", "copies"])
def test_calls_give_what_they_give_locally(door, sides, tmp_path, name):
    program = compile_c(name, tmp_path)
    compare(*outputs(door, sides, program))


def test_programs_with_large_files_by_macro_call_the_same(door, sides, tmp_path):
    program = compile_c("names", tmp_path, "-D_FILE_OFFSET_BITS=64")
    compare(*outputs(door, sides, program))


def test_fortified_programs_call_the_same(door, sides, tmp_path):
    program = compile_c("paths", tmp_path, "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2")
    compare(*outputs(door, sides, program))


TREE = """
mkdir -p a/b/c a/d
printf 'some text' > a/file
head -c 3000000 /dev/zero | tr '\\0' x > a/b/large
ln a/file a/b/hard
ln -s ../file a/d/soft
ln -s nowhere a/d/dangling
mkfifo a/pipe
chmod 640 a/file; chmod 2751 a/d
touch -d '2001-02-03 04:05:06.789' a/file a/b/large a/b/c
touch -h -d '2002-02-03 04:05:06' a/d/soft
touch -d '2003-02-03 04:05:06' a/pipe; touch -d '2004-02-03 04:05:06' a/d
touch -d '2005-02-03 04:05:06' a/b
"""

# Each makes its own mark on the tree or tells something about it.
STEPS = {
    # Sizes and link counts of directories differ between file systems.
    "ls": "ls -laR a | awk '/^d/ { $2 = $5 = 0 } !/^total/ { $6 = $7 = $8 = 0; print }'",
    "ls by time": "ls -t a/b a; ls -l --time-style=full-iso a/b/large a/file a/d/soft",
    "stat": "stat -c '%n %F %a %h %s' $(find a -type f | sort)",
    "find": "find a -printf '%P %y %m %n %l\\n' | sort",
    "find by name and execution": "find a -name '*ar*' -exec wc -c {} + | sort",
    "cp -a": "cp -a a copy; find copy -type f -printf '%P %m %n %s %T+\\n' | sort; cmp a/b/large "
    "copy/b/large; readlink copy/d/soft",
    "cp into another name": "cp a/file x; cp -r a/b y; cat x; ls y",
    "mv": "mv a/file a/d/moved; mv a/b .; mv a/d/moved a/d/soft; find . | sort",
    "mv over a directory": "mv a/file a/d 2>&1; mv a/b a/d; mv a/d/c a 2>&1; find . | sort",
    "rm": "rm a/file; rm -r a/b; rm a/none 2>&1; rm -rf a/none; find . | sort",
    "rm -rf": "rm -rf a; ls -A",
    "rmdir": "rmdir a 2>&1; rmdir a/b/c; rmdir -p a/d 2>&1; find . | sort",
    "du": "du -abl a | awk '{print $2}' | sort; du -b a/b/large; du -bS --max-depth=0 a/file",
    "mkdir": "mkdir -p p/q/r; mkdir -m 700 s; mkdir s 2>&1; stat -c '%n %a' p/q/r s",
    "ln": "ln a/file l; ln a/file l 2>&1; ln -sf a/file l; ln -sr a/b/large m; ls l m; readlink l m",
    "touch": "touch new; touch -r a/file new; stat -c %Y new; touch -d @5 a; stat -c %Y a",
    "chmod": "chmod -R u=rwX,go-w a; chmod +x a/file; find a -printf '%P %m\\n' | sort",
    "install": "install -D -m 751 a/file i/j/k; stat -c '%a %s' i/j/k",
    "truncate": "truncate -s 5 a/file; cat a/file; truncate -s +10 a/file; stat -c %s a/file",
    "dd": "dd if=a/b/large of=o bs=4096 skip=3 seek=2 count=100 conv=notrunc status=none; cksum o",
    "realpath": "realpath --relative-to=. a/d/soft a/b/../b/./c; cd a/b && realpath --relative-to=.. .",
    "cd and pwd": "p=$PWD; cd a/b/c; echo ${PWD#$p}; cd ..; /bin/pwd | sed s,^$p,,; ls",
    "df": "df --output=target,pcent . > /dev/null && echo fine",
    "test": "test -d a && test -f a/file && test -L a/d/soft && test -p a/pipe && test -x a/file; "
    "echo $?",
    "mktemp": "f=$(mktemp -p . x.XXXX); test -f $f && rm $f; d=$(mktemp -d y.XXXX) && rmdir $d",
    "xattr": "cp --preserve=all a/file z && cmp a/file z",
    "wildcards": "echo a/* a/*/* a/*/.[!.]*; for f in a/[df]*; do echo $f; done",
    "tar": "tar cf t.tar a/b a/d a/file; mkdir u; tar xf t.tar -C u; find u -printf '%P %m %s\\n' "
    "| grep -v ' [0-9]* 4096$' | sed 's/ [0-9]*$//' | sort",
}


@pytest.mark.parametrize("step", STEPS)
def test_everyday_programs_do_what_they_do_locally(door, sides, step):
    script = f'umask 022; cd "$1" || exit 9\n{TREE}\n{STEPS[step]}\n'

    def run(place, environment):
        done = subprocess.run(
            ["bash", "-c", script, "-", str(place)],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return (
            done.returncode,
            done.stdout.replace(str(place), "HERE"),
            done.stderr.replace(str(place), "HERE"),
        )

    plain = dict(door.pool.world.environment, LC_ALL="C")
    expected = run(sides["local"][0], plain)
    assert run(sides["pool"][0], door.environment(LC_ALL="C")) == expected


def test_nothing_is_damaged(door):
    door.pool.check()
