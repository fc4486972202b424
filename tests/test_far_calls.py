"""Single calls to a far pool under the preload library, and the start of a program: what they cost in
round trips. And a way that becomes long while a program runs."""

import shutil
import sys
import time
import zipfile

import pytest
from labs import FarPool
from pools import wait_until

pytestmark = pytest.mark.root

ROUND_TRIP_S = 0.1
# So long that what else it takes to start a program is less than one.
LONG_ROUND_TRIP_S = 4 * ROUND_TRIP_S
# What else a call may take in a program that has little of a processor, in round trips.
SLACK = 0.8

# Says what each call takes.
CALLS = """
import os, sys, time
top, round_trip_s = sys.argv[1], float(sys.argv[2])
at = top + "/dir"
os.mkdir(at)
held = []
def take(name, act):
    os.stat(at)
    begun = time.monotonic()
    act()
    print(name, (time.monotonic() - begun) / round_trip_s)
def hold(flags, name="file"):
    held.append(os.open(f"{at}/{name}", flags, 0o644))
def let_go():
    os.close(held.pop())
take("create", lambda: hold(os.O_CREAT | os.O_RDWR))
os.write(held[-1], b"content")
take("ftruncate", lambda: os.ftruncate(held[-1], 3))
take("futimens", lambda: os.utime(held[-1], (1, 2)))
take("close", let_go)
take("stat", lambda: os.stat(f"{at}/file"))
take("access", lambda: os.access(f"{at}/file", os.R_OK))
take("create-found", lambda: hold(os.O_CREAT | os.O_RDWR))
let_go()
take("create-cut", lambda: hold(os.O_CREAT | os.O_TRUNC | os.O_RDWR))
let_go()
take("open-cut", lambda: hold(os.O_TRUNC | os.O_RDWR))
let_go()
take("truncate", lambda: os.truncate(f"{at}/file", 1))
take("chmod", lambda: os.chmod(f"{at}/file", 0o600))
take("utimensat", lambda: os.utime(f"{at}/file", (1, 2)))
take("symlink", lambda: os.symlink("file", f"{at}/symlink"))
take("readlink", lambda: os.readlink(f"{at}/symlink"))
take("link", lambda: os.link(f"{at}/file", f"{at}/second"))
take("rename", lambda: os.rename(f"{at}/second", f"{at}/third"))
take("unlink", lambda: os.unlink(f"{at}/third"))
take("mkdir", lambda: os.mkdir(f"{at}/sub"))
take("mkdir-below", lambda: os.mkdir(f"{at}/sub/below"))
take("rmdir-below", lambda: os.rmdir(f"{at}/sub/below"))
take("rmdir", lambda: os.rmdir(f"{at}/sub"))
take("statvfs", lambda: os.statvfs(at))
take("setxattr", lambda: os.setxattr(f"{at}/file", "user.x", b"y"))
take("chdir", lambda: os.chdir(at))
take("nameless", lambda: os.close(os.open(at, os.O_TMPFILE | os.O_RDWR)))
"""
TRIPS = {
    **dict.fromkeys(["create", "ftruncate", "futimens", "stat", "access", "create-found"], 1),
    **dict.fromkeys(["symlink", "rename", "unlink", "mkdir", "mkdir-below", "rmdir-below"], 1),
    **dict.fromkeys(["rmdir", "statvfs", "chdir", "nameless", "readlink"], 1),
    **dict.fromkeys(["create-cut", "open-cut", "truncate", "chmod", "utimensat"], 2),
    **dict.fromkeys(["link", "setxattr"], 2),
    "close": 0,
}

# Looks at a file again and again, says how long the last look took, and then how long it takes to list
# its directory and to look at all that is there.
WATCH = """
import os, sys, time
at, end = sys.argv[1], time.monotonic() + float(sys.argv[2])
print("ready", flush=True)
while time.monotonic() < end:
    begun = time.monotonic()
    os.stat(f"{at}/file0")
    one = time.monotonic() - begun
    time.sleep(0.01)
begun = time.monotonic()
for name in os.listdir(at):
    os.stat(f"{at}/{name}")
print(one, time.monotonic() - begun, flush=True)
"""


@pytest.fixture
def far(world):
    """A pool behind a link, with some files."""
    far = FarPool(world)
    local = world.base / "files"
    local.mkdir()
    for number in range(30):
        (local / f"file{number}").write_text("content")
    far.put(local)
    return far


def test_single_calls_take_as_many_round_trips_as_is_said(far):
    far.distance(ROUND_TRIP_S)
    # Calls that make things are answered early otherwise, and who comes next waits for them.
    each = ("--write-policy", "through")
    program = (sys.executable, "-c", CALLS, "/azekura", str(ROUND_TRIP_S))
    lines = far.run(*program, options=each).splitlines()
    took = {name: float(trips) for name, trips in map(str.split, lines)}
    assert took.keys() == TRIPS.keys()
    late = {name: trips for name, trips in took.items() if trips > TRIPS[name] + SLACK}
    assert not late, late


def has_first_bytes_after(far, round_trips, prepare=lambda: None):
    """Whether a program once has its first bytes after so many: a busy machine takes its time."""
    for _ in range(3):
        prepare()
        begun = time.monotonic()
        assert far.run("cat", "/azekura/files/file0") == "content"
        if time.monotonic() - begun < (round_trips + SLACK) * LONG_ROUND_TRIP_S:
            return True
    return False


def test_a_program_has_its_first_bytes_after_few_round_trips(far):
    far.distance(LONG_ROUND_TRIP_S)

    def forget():
        shutil.rmtree(far.records, ignore_errors=True)

    # Connection, challenge, welcome and container, directory, file.
    assert has_first_bytes_after(far, 5, forget)
    (record,) = far.records.iterdir()
    known = record.read_text()
    # The challenge is not waited for any more.
    assert has_first_bytes_after(far, 4)
    assert record.read_text() == known
    # That ticket is good for this run of the engine, and the program is let in all the same.
    far.engine.kill()
    far.engine.wait()
    far.serve()
    assert has_first_bytes_after(far, 5, lambda: record.write_text(known))
    assert record.read_text() != known
    assert has_first_bytes_after(far, 4)
    assert has_first_bytes_after(far, 5, lambda: record.write_text("nonsense"))


def test_the_table_of_an_archive_is_there_after_few_round_trips(far):
    """Its reader looks at the file, opens it, and reads blocks at its end."""
    archive = far.world.base / "archive.zip"
    with zipfile.ZipFile(archive, "w") as made:
        for number in range(100):
            made.writestr(f"member{number}", bytes([number]) * 10_000)
    far.put(archive)
    far.distance(LONG_ROUND_TRIP_S)
    show = (
        "import sys, time, zipfile; from os import stat; begun = time.monotonic();"
        "stat(sys.argv[1]); members = zipfile.ZipFile(sys.argv[1]).namelist();"
        "print(len(members), time.monotonic() - begun)"
    )
    said = far.run(sys.executable, "-c", show, "/azekura/archive.zip").split()
    assert said[0] == "100"
    # Connection, challenge, welcome and container, the name, the file with its end.
    assert float(said[1]) / LONG_ROUND_TRIP_S < 5 + SLACK


def test_a_program_notices_that_the_way_has_become_long(far):
    watch = far.start("near", sys.executable, "-c", WATCH, "/azekura/files", "6")
    wait_until(lambda: "ready" in watch.log.read_text(), "the program looks")
    far.distance(ROUND_TRIP_S)
    wait_until(lambda: len(watch.log.read_text().split()) >= 3, "the program has listed")
    one, listing = map(float, watch.log.read_text().split()[1:3])
    assert one > ROUND_TRIP_S
    # By itself each of the files would take one.
    assert listing < 8 * ROUND_TRIP_S, (one, listing)
