"""Making many files in far directories, under the preload library and on mounts: no call is waited for,
and what was made is there, in order, whatever happens to links, engines, programs and mounts."""

import os
import subprocess
import sys
import tarfile
import time

import pytest
from labs import FarPool
from pools import BINARY, wait_until

pytestmark = pytest.mark.root

DIRECTORIES = 4
FILES = 60
FILE_BYTES = 6000

# Makes files one after the other, each in three calls, and says after each that it was answered.
MAKER = """
import os, sys, time
directory, told, count, pause = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
os.mkdir(directory)
with open(told, "ab", buffering=0) as news:
    for number in range(count):
        fd = os.open(f"{directory}/{number:04d}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(fd, b"%04d" % number * 500)
        os.fchmod(fd, 0o640)
        os.close(fd)
        news.write(b"%04d\\n" % number)
        time.sleep(pause)
    news.write(b"end\\n")
"""

# Looks for each file as soon as it is told of, until the maker has ended.
FINDER = """
import os, sys, time
directory, told = sys.argv[1:]
found = 0
with open(told, "rb") as news:
    while True:
        lines = news.read().decode().split()
        if "end" in lines:
            break
        for number in lines[-1:]:
            path = f"{directory}/{number}"
            assert os.stat(path).st_mode & 0o777 == 0o640, path
            with open(path, "rb") as file:
                assert file.read() == number.encode() * 500, path
            found += 1
        time.sleep(0.01)
assert len(os.listdir(directory)) == int(open(told).read().split()[-2]) + 1
print(found)
"""


class Source(FarPool):
    """A pool behind a link, with a door to it, and a tree of the host from which files come."""

    def __init__(self, world, door, engines):
        super().__init__(world, engines)
        self.door, self.mount = door, None
        self.top = "/azekura"
        if door == "mount":
            self.top = world.base / "mnt"
            self.top.mkdir()
        self.source = world.base / "source"
        for directory in range(DIRECTORIES):
            (self.source / f"dir{directory}").mkdir(parents=True)
            for number in range(FILES):
                path = self.source / f"dir{directory}" / f"file{number}"
                path.write_bytes(bytes([number]) * (FILE_BYTES + number))
                path.chmod(0o640 + number % 2)
                os.utime(path, (1_000_000_000, 1_000_000_000 + number))
            (self.source / f"dir{directory}" / "link").symlink_to("file1")
        self.archive = world.base / "source.tar"
        with tarfile.open(self.archive, "w") as archive:
            archive.add(self.source, arcname="tree")

    def open(self, round_trip_s):
        """Opens the door, so far from the engine."""
        self.distance(round_trip_s)
        if self.door == "mount":
            self.mount = self.lab.start("near", BINARY, "mount", "--foreground", "far", self.top)
            self.lab.exec("near", "sh", "-c", f"until mountpoint -q {self.top}; do sleep 0.1; done")

    def words(self, *command):
        return command if self.door == "mount" else self.preloaded(*command)

    def begin(self, *command):
        """Starts a program that finds the pool behind the door."""
        return self.lab.start("near", *self.words(*command))

    def seconds_of(self, *command):
        """How long a program takes, in seconds."""
        begun = time.monotonic()
        self.lab.exec("near", *self.words(*command))
        return time.monotonic() - begun

    def unpack(self):
        return ("tar", "-xf", self.archive, "-C", self.top)

    def judge(self, name):
        """What is there now, seen from the engine's side, is what was packed."""
        back = self.world.base / f"back-{name}"
        self.lab.exec("far", BINARY, "fs", "get", "-r", f"far:/{name}", back)
        subprocess.run(["diff", "-r", self.source, back], check=True)
        for path in self.source.rglob("file*"):
            was, found = path.stat(), (back / path.relative_to(self.source)).stat()
            assert (was.st_mode, was.st_mtime_ns) == (found.st_mode, found.st_mtime_ns), path
        self.lab.exec("far", BINARY, "fs", "check", "far")


@pytest.fixture(params=[("preload", 1), ("mount", 1), ("preload", 3)], ids="{0[0]}-{0[1]}".format)
def far(world, request):
    """A pool behind a link of 1 Gbit/s, of one engine or of several."""
    made = Source(world, *request.param)
    made.link("rate=1gbit")
    yield made
    if made.mount is not None:
        made.distance(0)
        subprocess.run(["umount", "-l", made.top], check=False)


def test_a_tree_is_unpacked_and_copied_in_few_round_trips(far):
    far.open(0.1)
    # A hundred milliseconds for each file alone would take 24 s.
    assert far.seconds_of(*far.unpack()) < 18
    copied = f"{far.top}/copied"
    assert far.seconds_of("cp", "-r", "--preserve=mode,timestamps", far.source, copied) < 18
    far.distance(0)
    far.judge("tree")
    far.judge("copied")


def test_what_was_made_is_found_by_whoever_is_told(far):
    far.open(0.02)
    told = far.world.base / "told"
    told.touch()
    maker = far.begin(sys.executable, "-c", MAKER, f"{far.top}/made", told, "400", "0.01")
    wait_until(lambda: told.read_text(), "the first file was made")
    finder = far.start("far", sys.executable, "-c", FINDER, "/azekura/made", told)
    assert maker.wait(90) == 0, maker.log.read_text()
    assert finder.wait(30) == 0, finder.log.read_text()
    assert int(finder.log.read_text().split()[-1]) > 3


def test_children_make_what_they_make_beside_their_parent(far):
    far.open(0.01)
    fill = f"for n in 1 2 3 4 5 6; do echo $d $n > {far.top}/$d/$n; done"
    script = f"""
        cd {far.top} && mkdir a b c d
        d=a; {fill}
        d=b; ({fill}) & d=c; ({fill}) & d=d; {fill}
        wait
    """
    far.seconds_of("bash", "-c", script)
    look = "cd /azekura; for d in a b c d; do cat $d/*; done"
    seen = far.run("sh", "-c", look, host="far")
    wanted = [f"{directory} {number}" for directory in "abcd" for number in range(1, 7)]
    assert seen.splitlines() == wanted


def test_a_link_that_comes_back_loses_nothing(far):
    far.open(0.05)
    child = far.begin(*far.unpack())
    time.sleep(1.5)
    far.link("down")
    time.sleep(4)
    far.link("up")
    assert child.wait(60) == 0, child.log.read_text()
    far.distance(0)
    far.judge("tree")


def test_an_engine_may_be_killed_under_a_maker(far):
    far.open(0.05)
    child = far.begin(*far.unpack())
    time.sleep(1.5)
    far.lab.tell("kill", "far")
    far.engine.wait(10)
    far.serve()
    assert child.wait(60) == 0, child.log.read_text()
    far.distance(0)
    far.judge("tree")


def test_one_of_several_engines_may_be_killed_under_a_maker(far):
    if len(far.engines) == 1:
        pytest.skip("there is but one engine")
    far.open(0.05)
    child = far.begin(*far.unpack())
    for number in (2, 0):
        time.sleep(1)
        far.engines[number].kill()
        far.engines[number].wait(10)
        far.serve([number])
    assert child.wait(60) == 0, child.log.read_text()
    far.distance(0)
    far.judge("tree")


def test_a_maker_that_is_killed_has_made_what_it_did_first(far):
    far.open(0.05)
    told = far.world.base / "told"
    told.touch()
    maker = far.begin(sys.executable, "-c", MAKER, f"{far.top}/made", told, "2000", "0")
    wait_until(lambda: "0300" in told.read_text(), "some hundred files were made")
    far.lab.tell("kill", "near")
    maker.wait(10)
    answered = len(told.read_text().split())
    far.distance(0)
    look = "ls /azekura/made; cat /azekura/made/* | wc -c"
    *names, total = far.run("sh", "-c", look, host="far").split()
    # The youngest may be missing, and the last one be in the middle.
    assert names == [f"{number:04d}" for number in range(len(names))]
    assert 2000 * (len(names) - 1) <= int(total) <= 2000 * len(names)
    assert answered - 200 < len(names) <= answered + 1
