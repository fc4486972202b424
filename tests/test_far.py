"""Reading over links that lose, reorder and break, by every read policy: the bytes are right, little
is fetched in vain, and memory stays bounded. Nothing is said here about speed."""

import hashlib
import json
import random
import re
import shutil
import sys
import time

import pytest
import tomllib
from labs import FarPool
from pools import BINARY, wait_until

pytestmark = pytest.mark.root

FILE_BYTES = 24 << 20
POLICIES = ["predictive", "sync-adaptive", "fixed=1M"]
# What is read ahead at most, by all files of a process.
HELD_BYTES_MAX = 512 << 20

# Reads a file by a pattern; prints the checksum of what it read and the most memory it took in KiB.
READER = """
import hashlib, os, random, resource, sys
path, pattern = sys.argv[1:3]
fd = os.open(path, os.O_RDONLY)
size = os.fstat(fd).st_size
digest = hashlib.sha256()
chance = random.Random(5)
if pattern == "sequential":
    places = [(at, 65536) for at in range(0, size, 65536)]
elif pattern == "strided":
    places = [(at + part, 65536) for at in range(0, size, 1 << 20) for part in (0, 65536)]
else:
    places = [(chance.randrange(size // 4096) * 4096, 4096) for _ in range(100)]
for at, count in places:
    data = os.pread(fd, count, at)
    assert len(data) == min(count, size - at), (at, len(data))
    digest.update(data)
print(digest.hexdigest(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


# Reads the beginning of a file, and keeps its connections.
HOLD = """
import os, sys, time
fd = os.open("/azekura/data", os.O_RDONLY)
os.pread(fd, 4 << 20, 0)
print("read", flush=True)
time.sleep(60)
"""


# Reads pieces at places that nobody foresees, for ever.
ROAM = """
import os, random
fd = os.open("/azekura/data", os.O_RDONLY)
while True:
    os.pread(fd, 1 << 20, random.randrange(20) << 20)
"""


# Makes a directory with files, one of which has an extended attribute.
MAKE_FILES = """
import os, sys
os.mkdir(sys.argv[1])
for number in range(100):
    open(f"{sys.argv[1]}/{number}", "w").close()
os.setxattr(f"{sys.argv[1]}/7", "user.kept", b"yes")
assert os.getxattr(f"{sys.argv[1]}/7", "user.kept") == b"yes"
"""


def expected(data, pattern):
    """What the reader reads."""
    size, chance = len(data), random.Random(5)
    if pattern == "sequential":
        return hashlib.sha256(data).hexdigest()
    digest = hashlib.sha256()
    if pattern == "strided":
        for at in range(0, size, 1 << 20):
            digest.update(data[at : at + 131072])
    else:
        for _ in range(100):
            at = chance.randrange(size // 4096) * 4096
            digest.update(data[at : at + 4096])
    return digest.hexdigest()


class FarFile(FarPool):
    """A pool behind a link, and a file in it whose bytes are known."""

    def __init__(self, world):
        super().__init__(world)
        self.data = random.Random(9).randbytes(FILE_BYTES)
        (world.base / "bytes").write_bytes(self.data)
        self.lab.exec("near", BINARY, "fs", "put", world.base / "bytes", "far:/data")

    def command(self, policy, pattern, trace):
        program = (sys.executable, "-c", READER, "/azekura/data", pattern)
        return self.preloaded(*program, options=("--read-policy", policy, "--trace", trace))

    def judge(self, said, pattern, trace):
        """Holds what a reader said, and its trace, against what must be."""
        digest, peak_kib = said.split()
        assert digest == expected(self.data, pattern)
        assert int(peak_kib) < 400 << 10
        summaries = self.world.json("trace", trace, "--summary")["summaries"]
        assert summaries
        for summary in summaries:
            assert summary["most_held_bytes"] <= HELD_BYTES_MAX
            assert summary["wasted_bytes"] <= FILE_BYTES // 4

    def read(self, policy, pattern):
        trace = self.world.base / f"{policy}-{pattern}.jsonl"
        said = self.lab.exec("near", *self.command(policy, pattern, trace)).stdout
        self.judge(said, pattern, trace)

    def start_reading(self, policy, pattern, trace):
        """Starts a reader, and returns when it is in the middle."""
        child = self.lab.start("near", *self.command(policy, pattern, trace))
        wait_until(
            lambda: trace.exists() and trace.read_text().count("\n") > 4, "something is asked for"
        )
        return child


@pytest.fixture
def far(world):
    """A pool behind a link."""
    return FarFile(world)


@pytest.mark.parametrize(
    "changes",
    [["loss=0.1%"], ["loss=1%"], ["jitter=1ms", "reorder=2%"]],
    ids=["little loss", "much loss", "reordering"],
)
def test_bytes_are_right_over_a_bad_link(far, changes):
    far.link("delay=5ms", "rate=200mbit", *changes)
    for policy in POLICIES:
        far.read(policy, "strided")
    far.read("predictive", "sequential")
    far.read("predictive", "random")


def test_a_stream_through_a_mount_does_not_wait_for_attributes(far):
    """The kernel asks for them once a second; the leases under which the file is read answer it."""
    # Long enough for ten such seconds, where what is on its way takes a small part of a lease's time:
    # on a much slower link the answer to a renewal lies behind so many bytes that the lease has run
    # out by then.
    long = random.Random(10).randbytes(4 * FILE_BYTES)
    (far.world.base / "long").write_bytes(long)
    far.lab.exec("near", BINARY, "fs", "put", far.world.base / "long", "far:/long")
    mount = far.world.base / "mnt"
    mount.mkdir()
    far.link("delay=10ms", "rate=80mbit")
    far.lab.exec("near", BINARY, "mount", "far", mount)
    try:
        before, begun = far.asked("get_attr"), time.monotonic()
        said = far.lab.exec("near", "sha256sum", mount / "long").stdout
        took_s = time.monotonic() - begun
        assert said.split()[0] == hashlib.sha256(long).hexdigest()
        assert took_s > 8
        # Two find and open the file; on a busy machine a lease may lapse now and then.
        assert far.asked("get_attr") - before < took_s / 2
    finally:
        far.lab.exec("near", BINARY, "umount", mount)


def test_a_long_listing_through_a_mount_asks_nothing_of_each_file(far):
    """`ls -l` wants an extended attribute of each file; that there is none came with the listing."""
    mount = far.world.base / "mnt"
    mount.mkdir()
    far.link("delay=1ms")
    far.lab.exec("near", BINARY, "mount", "far", mount)
    try:
        far.lab.exec("near", sys.executable, "-c", MAKE_FILES, mount / "listed")
        far.lab.exec("near", BINARY, "umount", mount)
        far.lab.exec("near", BINARY, "mount", "far", mount)
        before = far.asked("get_xattr")
        lines = far.lab.exec("near", "ls", "-l", mount / "listed").stdout.splitlines()
        assert len(lines) == 101
        assert far.asked("get_xattr") - before <= 2
        show = "import os, sys; print(os.getxattr(sys.argv[1], 'user.kept').decode())"
        said = far.lab.exec("near", sys.executable, "-c", show, mount / "listed/7")
        assert said.stdout == "yes\n"
    finally:
        far.lab.exec("near", BINARY, "umount", mount)


@pytest.mark.skipif(shutil.which("ss") is None, reason="needs ss (iproute2)")
@pytest.mark.parametrize(("delay", "is_paced"), [("0ms", False), ("10ms", True)])
def test_an_engine_spreads_what_it_sends_over_a_long_way(far, delay, is_paced):
    far.link(f"delay={delay}")

    def are_as_they_should():
        child = far.start("near", sys.executable, "-c", HOLD)
        wait_until(lambda: "read" in child.log.read_text(), "the file is read")
        words = ("-Htin", "state", "established", "sport", "=", ":7070")
        said = far.lab.exec("far", "ss", *words).stdout
        child.kill()
        child.wait()
        sent = re.findall(r"bytes_sent:(\d+).* pacing_rate [^ /]*(/\S+)?", said)
        limits = [limit for count, limit in sent if int(count) > 100_000]
        assert limits, said
        return all(bool(limit) == is_paced for limit in limits)

    # On a busy machine the engine may seem far.
    wait_until(are_as_they_should, "the engine sends as it should")


def test_an_engine_that_moves_away_is_noticed_while_nothing_but_data_is_asked_for(far):
    trace = far.world.base / "trace"
    options = ("--read-policy", "predictive", "--trace", trace)
    child = far.lab.start("near", *far.preloaded(sys.executable, "-c", ROAM, options=options))
    time.sleep(3)
    far.link("delay=15ms")

    def last_plan():
        """Of near files nothing is planned."""
        lines = trace.read_text().split("\n")[:-1] if trace.exists() else []
        return json.loads(lines[-1]) if lines else {"round_trip_us": 0}

    wait_until(lambda: last_plan()["round_trip_us"] > 20_000, "reads are planned anew")
    child.kill()


def test_what_a_link_carries_is_on_record_for_the_next_program(far):
    far.distance(0.01)
    far.link("rate=200mbit")
    links = far.records
    far.read("predictive", "sequential")
    (record,) = links.iterdir()
    (known,) = tomllib.loads(record.read_text())["links"]
    assert 5_000_000 < known["bytes_per_second"] < 60_000_000
    assert 8_000 < known["round_trip_us"] < 40_000
    # Whatever stands there, programs read what is in the file.
    wild = record.read_text().replace(str(known["bytes_per_second"]), "50000000000")
    for text in (wild, "nonsense", ""):
        record.write_text(text)
        far.read("predictive", "sequential")
    record.unlink()
    links.rmdir()
    links.write_text("in the way")
    far.read("predictive", "sequential")


def test_the_doctor_says_of_a_far_pool_what_pauses_cost(far):
    def told():
        done = far.lab.exec("near", BINARY, "doctor", "--json", check=False)
        findings = json.loads(done.stdout)["findings"]
        return [each["state"] for each in findings if each["what"] == "far pools"]

    far.distance(0.01)
    far.run("ls", "/azekura")
    assert told() == ["look"]
    setting = "/proc/sys/net/ipv4/tcp_slow_start_after_idle"
    far.lab.exec("near", "sh", "-c", f"echo 0 > {setting}")
    assert told() == ["good"]


def test_a_link_that_comes_back_is_used_again(far):
    far.link("delay=5ms", "rate=20mbit")
    trace = far.world.base / "trace"
    child = far.start_reading("predictive", "sequential", trace)
    far.link("down")
    time.sleep(10)
    assert child.poll() is None
    far.link("up", "rate=200mbit")
    assert child.wait(60) == 0
    far.judge(child.log.read_text(), "sequential", trace)


@pytest.mark.parametrize("policy", ["predictive", "sync-adaptive"])
def test_an_engine_may_be_restarted_under_a_reader(far, policy):
    far.link("delay=5ms", "rate=20mbit")
    trace = far.world.base / "trace"
    child = far.start_reading(policy, "sequential", trace)
    far.lab.tell("kill", "far")
    far.engine.wait(10)
    assert child.poll() is None
    far.serve()
    far.link("rate=200mbit")
    assert child.wait(60) == 0
    far.judge(child.log.read_text(), "sequential", trace)


def test_nonsense_as_a_policy_is_refused(far):
    refused = far.world.run("fs", "cat", "--read-policy", "swift", "far:/data", check=False)
    assert refused.returncode == 2
    assert "sync-adaptive" in refused.stderr
    # In the environment of a program it is told in its report.
    report = far.world.base / "report"
    command = ("run", "--pool", "far", "--via", "preload", "--report", report, "--")
    far.lab.exec(
        *("near", "env", "AZEKURA_READ_POLICY=swift", BINARY),
        *(*command, "head", "-c5", "/azekura/data"),
    )
    assert "AZEKURA_READ_POLICY" in report.read_text()
