"""Programs that people run over distance, through both doors: they do not wait for each name and each
file, and a mount opens nothing that is older than what was answered to others."""

import subprocess
import sys
import time

import pytest
from labs import FarPool
from pools import BINARY

pytestmark = pytest.mark.root

ROUND_TRIP_S = 0.1
MODULES = 60
DIRECTORIES = 10
FILES = 15

# Looks at the names of one directory after the other, as git does by its index.
LOOK = """
import os, sys
for directory in range(int(sys.argv[2])):
    for name in range(int(sys.argv[3])):
        assert os.lstat(f"{sys.argv[1]}/dir{directory}/file{name}").st_size == name
"""

IMPORT = "import sys; sys.path.insert(0, sys.argv[1]); import package; assert package.total == {total}"

# Opens what another mount replaces, makes longer and shorter, right after it was looked at.
REOPEN = """
import os, sys
near, far = sys.argv[1:3]
for turn in range(4):
    for name in os.listdir(near):
        os.lstat(f"{near}/{name}")
    for number in range(6):
        path, data = f"{far}/file{number}", os.urandom(1 + (turn * 977 + number * 311) % 4000)
        if number % 2:
            with open(path + ".new", "wb") as file:
                file.write(data)
            os.rename(path + ".new", path)
        else:
            with open(path, "wb") as file:
                file.write(data)
        with open(f"{near}/file{number}", "rb") as file:
            found = file.read()
        assert found == data, (turn, number, len(found), len(data))
print("seen")
"""

# What git does with each of its files: it looks whether there is a lock, writes beside the file, asks
# for the times of what it has written, and gives it the name. What it was told is what it finds later.
REPLACE = """
import os, sys, time
top, turns = sys.argv[1], int(sys.argv[2])
os.mkdir(top)
os.mkdir(f"{top}/objects")
told = {}
for turn in range(turns):
    path, lock = f"{top}/ref{turn % 3}", f"{top}/ref{turn % 3}.lock"
    assert not os.path.exists(lock)
    with open(lock, "xb") as file:
        file.write(b"%d" % turn * 100)
        file.flush()
        told[path] = os.fstat(file.fileno())
    os.rename(lock, path)
    with open(path, "rb") as file:
        assert file.read() == b"%d" % turn * 100
    with open(f"{top}/objects/{turn}", "xb") as file:
        file.write(bytes(turn))
        file.flush()
        told[f"{top}/objects/{turn}"] = os.fstat(file.fileno())
    os.chmod(path, 0o640)
    if turn % 5 == 4:
        os.remove(f"{top}/objects/{turn}")
        del told[f"{top}/objects/{turn}"]
time.sleep(2.5)
for path, before in told.items():
    now = os.lstat(path)
    assert (now.st_mtime_ns, now.st_size) == (before.st_mtime_ns, before.st_size), path
    assert now.st_ctime_ns == before.st_ctime_ns or "ref" in path, (path, now, before)
assert sorted(os.listdir(top)) == ["objects", "ref0", "ref1", "ref2"]
assert len(os.listdir(f"{top}/objects")) == turns - turns // 5
print("found")
"""

# Names that others make, remove and move while this one looks at them, each as soon as it was answered.
WATCH = """
import os, sys
near, far = sys.argv[1:3]
os.mkdir(far)
for number in range(8):
    open(f"{far}/file{number}", "xb").close()
for turn in range(3):
    for name in [*(f"file{number}" for number in range(8)), "no", "none", "nothing"]:
        try:
            os.stat(f"{near}/{name}")
        except FileNotFoundError:
            pass
    new, moved = f"new{turn}", f"moved{turn}"
    assert not os.path.exists(f"{near}/{new}") and not os.path.exists(f"{near}/{moved}")
    open(f"{far}/{new}", "xb").close()
    assert os.path.exists(f"{near}/{new}"), turn
    os.rename(f"{far}/{new}", f"{far}/{moved}")
    assert os.path.exists(f"{near}/{moved}"), turn
    os.mkdir(f"{far}/dir{turn}")
    assert os.path.isdir(f"{near}/dir{turn}"), turn
    os.remove(f"{far}/file{turn}")
    os.rmdir(f"{far}/dir{turn}")
    assert new not in os.listdir(near) and f"file{turn}" not in os.listdir(near)
print("watched")
"""


class Programs(FarPool):
    """A pool behind a link, with a tree and a python package in it."""

    def __init__(self, world):
        super().__init__(world)
        local = world.base / "local"
        for directory in range(DIRECTORIES):
            (local / f"dir{directory}").mkdir(parents=True)
            for number in range(FILES):
                (local / f"dir{directory}" / f"file{number}").write_bytes(b"x" * number)
        package = local / "python" / "package"
        package.mkdir(parents=True)
        for module in range(MODULES):
            (package / f"module_{module}.py").write_text(f"value = {module}\n")
        lines = [f"from . import module_{module}\n" for module in range(MODULES)]
        values = " + ".join(f"module_{module}.value" for module in range(MODULES))
        (package / "__init__.py").write_text("".join([*lines, f"total = {values}\n"]))
        compiler = (sys.executable, "-m", "compileall", "-q", local / "python")
        subprocess.run(compiler, check=True)
        self.put(local, "-a")
        self.distance(ROUND_TRIP_S)

    def mount(self, name, *options):
        path = self.world.base / name
        path.mkdir()
        self.lab.start("near", BINARY, "mount", "--foreground", *options, "far", path)
        self.lab.exec("near", "sh", "-c", f"until mountpoint -q {path}; do sleep 0.1; done")
        return path

    def trips_of(self, door, program, *arguments):
        """Runs a program of python with the path of the tree first; gives the round trips it took."""
        start = time.monotonic()
        if door == "preload":
            tree, prefix = "/azekura", self.preloaded()
        else:
            options = ("--far-names", "listed") if door == "listed" else ()
            tree, prefix = self.mount("door", *options), ()
            start = time.monotonic()
        words = (sys.executable, "-I", "-B", "-c", program, f"{tree}/{arguments[0]}", *arguments[1:])
        self.lab.exec("near", *prefix, *words)
        took = (time.monotonic() - start) / ROUND_TRIP_S
        if door != "preload":
            self.lab.exec("near", BINARY, "umount", tree)
        return took


@pytest.fixture
def far(world):
    return Programs(world)


@pytest.mark.parametrize("door", ["preload", "mount", "listed"])
def test_names_that_are_looked_at_are_listed(far, door):
    before = far.asked("lookup")
    far.trips_of(door, LOOK, "local", str(DIRECTORIES), str(FILES))
    lookups = far.asked("lookup") - before
    assert lookups < DIRECTORIES * FILES / 3, lookups


@pytest.mark.parametrize("door", ["preload", "mount", "listed"])
def test_a_package_is_imported_in_few_round_trips(far, door):
    total = sum(range(MODULES))
    took = far.trips_of(door, IMPORT.format(total=total), "local/python")
    # Each module by itself would take four and more.
    assert took < 2 * MODULES, took


def test_what_is_opened_is_never_older_than_what_was_closed(far):
    one, other = far.mount("one"), far.mount("other")
    far.lab.exec("near", sys.executable, "-c", "import os, sys; os.mkdir(sys.argv[1])", other / "dir")
    make = "import sys\nfor n in range(6): open(f'{sys.argv[1]}/file{n}', 'wb').close()"
    far.lab.exec("near", sys.executable, "-c", make, other / "dir")
    said = far.lab.exec("near", sys.executable, "-c", REOPEN, one / "dir", other / "dir")
    assert said.stdout.split() == ["seen"]
    for path in (one, other):
        far.lab.exec("near", BINARY, "umount", path)


def test_files_that_are_written_beside_and_renamed_keep_what_was_told(far):
    one = far.mount("one")
    start = time.monotonic()
    said = far.lab.exec("near", sys.executable, "-c", REPLACE, one / "top", "30")
    took = (time.monotonic() - start - 2.5) / ROUND_TRIP_S
    assert said.stdout.split() == ["found"]
    # Each turn took some 20 when leases ended with each name that was moved.
    assert took < 30 * 12, took
    far.lab.exec("near", BINARY, "umount", one)


def test_names_that_others_make_are_seen_by_who_knows_that_they_are_not_there(far):
    one, other = far.mount("one"), far.mount("other")
    said = far.lab.exec("near", sys.executable, "-c", WATCH, one / "watched", other / "watched")
    assert said.stdout.split() == ["watched"]
    assert far.asked("lease_all_names") > 0
    for path in (one, other):
        far.lab.exec("near", BINARY, "umount", path)
