"""Writing over long, bad and broken links through a mount: small writes do not wait for one round trip
each, everybody finds the right bytes afterwards, and nothing that was answered is lost."""

import sys
import time

import pytest
from labs import FarPool
from pools import BINARY, wait_until

pytestmark = pytest.mark.root

# Writes blocks one after the other, closes the file, and tells the checksum and the time it took.
# Says when it is in the middle.
WRITER = """
import hashlib, os, sys, time
path, block, count, pause = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
digest = hashlib.sha256()
fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
started = time.monotonic()
for number in range(count):
    data = number.to_bytes(8, "little") * (block // 8)
    assert os.write(fd, data) == block
    digest.update(data)
    if number == count // 4:
        print("writing", flush=True)
    time.sleep(pause)
os.close(fd)
print(digest.hexdigest(), time.monotonic() - started, flush=True)
"""


# Writes lines, also in a child and in a program that follows; the last one counts them.
FAMILY = """
import os, sys
def lines(numbers):
    return b"".join(b"%07d\\n" % number for number in numbers)
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_TRUNC)
for number in range(100):
    os.write(fd, lines([number]))
pid = os.fork()
if pid == 0:
    assert os.pread(fd, 10_000, 0) == lines(range(100))
    for number in range(100, 150):
        os.write(fd, lines([number]))
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
for number in range(150, 200):
    os.write(fd, lines([number]))
assert os.pread(fd, 10_000, 0) == lines(range(200))
for number in range(200, 300):
    os.write(fd, lines([number]))
os.execvp("wc", ["wc", "-l", sys.argv[1]])
"""


class FarMount(FarPool):
    """A pool behind a link, and a mount of it before."""

    def __init__(self, world):
        super().__init__(world)
        self.dir = world.base / "mnt"
        self.dir.mkdir()
        self.lab.exec("near", BINARY, "mount", "far", self.dir)

    def command(self, name, block, count, pause=0.0):
        arguments = (self.dir / name, block, count, pause)
        return (sys.executable, "-c", WRITER, *(str(argument) for argument in arguments))

    def write(self, name, block, count):
        """Writes a file; gives how long that took in seconds."""
        said = self.lab.exec("near", *self.command(name, block, count)).stdout.split()
        self.judge(name, said[-2])
        return float(said[-1])

    def start_writing(self, name, block, count, pause):
        """Starts a writer, and returns when it is in the middle."""
        child = self.lab.start("near", *self.command(name, block, count, pause))
        wait_until(lambda: "writing" in child.log.read_text(), "the writer is in the middle")
        return child

    def judge(self, name, digest):
        """Whoever comes next, from whichever side, finds what was written."""
        for host in ("far", "near"):
            read = f"{BINARY} fs cat far:/{name} | sha256sum"
            assert self.lab.exec(host, "sh", "-c", read).stdout.split()[0] == digest, host


@pytest.fixture
def far(world):
    """A mount of a pool behind a link."""
    made = FarMount(world)
    yield made
    made.link("up", "delay=0ms", "loss=0%")
    made.lab.exec("near", BINARY, "umount", made.dir)


def test_small_writes_do_not_wait_for_a_round_trip_each(far):
    far.link("delay=10ms", "rate=200mbit")
    # One after the other these would take forty seconds.
    assert far.write("small", 4096, 2000) < 20
    # Across the chunks of the file, and over what was there.
    far.write("small", 100_000, 100)


def test_a_tree_is_put_and_found(far):
    far.link("delay=10ms", "rate=200mbit")
    tree = far.world.base / "tree"
    for number in range(5):
        (tree / f"dir{number}").mkdir(parents=True)
        (tree / f"dir{number}" / "large").write_bytes(bytes([number]) * (9 << 20))
        (tree / f"dir{number}" / "small").write_bytes(bytes([number]) * 100)
    far.put(tree)
    back = far.world.base / "back"
    far.lab.exec("far", BINARY, "fs", "get", "-r", "far:/tree", back)
    for number in range(5):
        for name in ("large", "small"):
            was = tree / f"dir{number}" / name
            assert (back / f"dir{number}" / name).read_bytes() == was.read_bytes()


def test_preloaded_programs_let_everything_arrive_before_they_fork_or_end(far):
    far.link("delay=5ms", "rate=200mbit")
    python = (sys.executable, "-c")
    assert far.run(*python, FAMILY, "/azekura/family").split()[0] == "300"
    said = far.run(*python, WRITER, "/azekura/file", "4096", "500", "0").split()
    far.judge("file", said[-2])
    # Without a close, and without the interpreter's own end.
    abrupt = "os.close = lambda fd: None\n" + WRITER + "os._exit(0)"
    said = far.run(*python, "import os\n" + abrupt, "/azekura/abrupt", "4096", "500", "0")
    far.judge("abrupt", said.split()[-2])


@pytest.mark.parametrize("changes", [["loss=1%"], ["jitter=1ms", "reorder=2%"]])
def test_bytes_are_right_over_a_bad_link(far, changes):
    far.link("delay=5ms", "rate=200mbit", *changes)
    far.write("file", 8192, 1000)


def test_a_link_that_comes_back_loses_nothing(far):
    far.link("delay=5ms", "rate=200mbit")
    child = far.start_writing("file", 8192, 400, 0.005)
    far.link("down")
    time.sleep(5)
    assert child.poll() is None
    far.link("up")
    assert child.wait(60) == 0, child.log.read_text()
    far.judge("file", child.log.read_text().split()[-2])


def test_an_engine_may_be_killed_under_a_writer(far):
    far.link("delay=5ms", "rate=200mbit")
    child = far.start_writing("file", 8192, 400, 0.005)
    far.lab.tell("kill", "far")
    far.engine.wait(10)
    far.serve()
    assert child.wait(60) == 0, child.log.read_text()
    far.judge("file", child.log.read_text().split()[-2])


def test_nonsense_as_a_policy_is_refused(far):
    refused = far.world.run("fs", "put", "--write-policy", "swift", "a", "far:/", check=False)
    assert refused.returncode == 2
    assert "through" in refused.stderr
