"""Reading many files of far directories under the preload library: programs do not wait for each
file by itself, get what is in them, and never see them older than another client has been told."""

import sys
import tarfile
import time

import pytest
from pools import BINARY, LAB, wait_until
from test_netlab import PAIR, Lab

pytestmark = pytest.mark.root

DIRECTORIES = 8
FILES = 25
FILE_BYTES = 20 * 1024
LARGE_FILES = 24
LARGE_BYTES = 1 << 20
ROUND_TRIP_S = 0.1

# Writes a version into one file after the other, in place or by a new file that takes the name, and
# says so in a file of the host once that is answered.
WRITER = """
import os, random, sys, time
directory, told, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
chance = random.Random(5)
for version in range(1, count + 1):
    time.sleep(0.05)
    number = chance.randrange(40)
    text = b"%08d" % version * 100
    path = f"{directory}/file{number:02d}"
    if version % 3:
        with open(f"{directory}/.new", "wb") as file:
            file.write(text)
        os.rename(f"{directory}/.new", path)
    else:
        fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
        os.write(fd, text)
        os.close(fd)
    with open(told, "ab") as file:
        file.write(b"%02d %08d\\n" % (number, version))
with open(told, "ab") as file:
    file.write(b"end\\n")
"""

# Reads all files again and again in the order of their names; none is older than what was told
# before it was opened.
READER = """
import os, sys
directory, told = sys.argv[1:]
versions, read, rounds = {}, 0, 0
with open(told, "rb") as news:
    def look():
        over = False
        for line in news.read().decode().splitlines():
            if line == "end":
                over = True
            else:
                number, version = line.split()
                versions[int(number)] = int(version)
        return over
    over = False
    while not over:
        rounds += 1
        for name in sorted(os.listdir(directory)):
            if name.startswith("."):
                continue
            over |= look()
            number = int(name[4:])
            with open(f"{directory}/{name}", "rb") as file:
                text = file.read()
            if text:
                assert text == text[:8] * (len(text) // 8), name
            found = int(text[:8] or b"0")
            # One that is being cut and written is empty for a moment.
            assert found >= versions.get(number, 0) or not text, (name, found, versions[number])
            read += 1
print(rounds, read)
"""


@pytest.fixture
def far(world):
    """A pool in one host, and files in it; programs run in another."""
    lab = Lab(world, PAIR)
    engine = world.start(
        *("netlab", "exec", "--lab", lab.name, "far", "--", BINARY, "serve"),
        *("--dir", world.storage / "engine", "--listen", "0.0.0.0:7070"),
        program=LAB,
    )
    wait_until(lambda: "is ready" in engine.log.read_text(), "the engine is ready")
    lab.exec("near", BINARY, "pool", "create", "far", "--engine", "far:7070")
    return lab


def put(lab, world, files):
    """Stores files of these names and lengths, each with contents of its own."""
    local = world.base / "tree"
    for name, length in files.items():
        (local / name).parent.mkdir(parents=True, exist_ok=True)
        (local / name).write_bytes(contents(name, length))
    lab.exec("near", BINARY, "fs", "put", "-r", local, "far:/")


def contents(name, length):
    line = f"{name}\n".encode()
    return (line * (length // len(line) + 1))[:length]


def run(lab, *command, host="near"):
    """What a program says, and how many round trips it has taken."""
    start = time.monotonic()
    preload = (host, BINARY, "run", "--pool", "far", "--via", "preload", "--")
    said = lab.exec(*preload, *command).stdout
    return said, (time.monotonic() - start) / ROUND_TRIP_S


def test_a_tree_is_packed_in_few_round_trips(far, world):
    names = [f"dir{d}/file{n:02d}" for d in range(DIRECTORIES) for n in range(FILES)]
    put(far, world, dict.fromkeys(names, FILE_BYTES))
    far.tell("set", "wan", f"delay={ROUND_TRIP_S / 2 * 1000:.0f}ms")
    packed = world.base / "packed.tar"
    _, trips = run(far, "tar", "-C", "/azekura", "-cf", packed, "tree")
    with tarfile.open(packed) as archive:
        files = {member.name: member for member in archive if member.isfile()}
        assert sorted(files) == sorted(f"tree/{name}" for name in names)
        for name in names:
            assert archive.extractfile(files[f"tree/{name}"]).read() == contents(name, FILE_BYTES)
    print(f"{trips:.1f} round trips for {len(names)} files")
    # Every file by itself would take three.
    assert trips < len(names) / 2, trips


def test_files_are_read_one_after_the_other_in_few_round_trips(far, world):
    names = [f"file{number:02d}" for number in range(LARGE_FILES)]
    put(far, world, dict.fromkeys(names, LARGE_BYTES))
    far.tell("set", "wan", f"delay={ROUND_TRIP_S / 2 * 1000:.0f}ms")
    out = world.base / "out"
    command = f"exec cat $(seq -f /azekura/tree/file%02.0f 0 {LARGE_FILES - 1}) > {out}"
    _, trips = run(far, "sh", "-c", command)
    assert out.read_bytes() == b"".join(contents(name, LARGE_BYTES) for name in names)
    print(f"{trips:.1f} round trips for {len(names)} files")
    assert trips < 3 * LARGE_FILES, trips


@pytest.mark.parametrize("writer_host", ["near", "far"])
def test_what_another_client_was_told_is_read(far, world, writer_host):
    names = [f"file{number:02d}" for number in range(40)]
    local = world.base / "tree"
    local.mkdir()
    for name in names:
        (local / name).write_bytes(b"00000000" * 100)
    far.exec("near", BINARY, "fs", "put", "-r", local, "far:/")
    far.tell("set", "wan", "delay=10ms")
    told = world.base / "told"
    told.touch()
    writer = world.start(
        *("netlab", "exec", "--lab", far.name, writer_host, "--", BINARY, "run", "--pool", "far"),
        *("--via", "preload", "--", sys.executable, "-c", WRITER, "/azekura/tree", told, "50"),
        program=LAB,
    )
    said, _ = run(far, sys.executable, "-c", READER, "/azekura/tree", told)
    rounds, read = map(int, said.split())
    print(f"{read} files read in {rounds} rounds")
    assert rounds > 1
    wait_until(lambda: writer.poll() is not None, "the writer ends")
    assert writer.returncode == 0
