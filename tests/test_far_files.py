"""Reading many files of far directories under the preload library: programs do not wait for each
file by itself, get what is in them, and never see them older than another client has been told."""

import sys
import tarfile
import time

import pytest
from labs import FarPool
from pools import wait_until

pytestmark = pytest.mark.root

DIRECTORIES = 8
FILES = 25
FILE_BYTES = 20 * 1024
LARGE_FILES = 24
LARGE_BYTES = 1 << 20
STRIPED_FILES = 40
STRIPED_BYTES = 2 << 20
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
    """A pool behind a link."""
    return FarPool(world)


def put(far, files):
    """Stores files of these names and lengths, each with contents of its own."""
    local = far.world.base / "tree"
    for name, length in files.items():
        (local / name).parent.mkdir(parents=True, exist_ok=True)
        (local / name).write_bytes(contents(name, length))
    far.put(local)


def contents(name, length):
    line = f"{name}\n".encode()
    return (line * (length // len(line) + 1))[:length]


def trips_of(far, *command):
    """How many round trips a program takes."""
    start = time.monotonic()
    far.run(*command)
    return (time.monotonic() - start) / ROUND_TRIP_S


def test_a_tree_is_packed_in_few_round_trips(far, world):
    names = [f"dir{d}/file{n:02d}" for d in range(DIRECTORIES) for n in range(FILES)]
    put(far, dict.fromkeys(names, FILE_BYTES))
    far.distance(ROUND_TRIP_S)
    packed = world.base / "packed.tar"
    trips = trips_of(far, "tar", "-C", "/azekura", "-cf", packed, "tree")
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
    put(far, dict.fromkeys(names, LARGE_BYTES))
    far.distance(ROUND_TRIP_S)
    out = world.base / "out"
    command = f"exec cat $(seq -f /azekura/tree/file%02.0f 0 {LARGE_FILES - 1}) > {out}"
    trips = trips_of(far, "sh", "-c", command)
    assert out.read_bytes() == b"".join(contents(name, LARGE_BYTES) for name in names)
    print(f"{trips:.1f} round trips for {len(names)} files")
    assert trips < 3 * LARGE_FILES, trips


def test_files_that_are_striped_over_several_engines_are_on_their_way_as_well(world):
    far = FarPool(world, engines=3)
    names = [f"file{number:02d}" for number in range(STRIPED_FILES)]
    put(far, dict.fromkeys(names, STRIPED_BYTES))
    far.distance(ROUND_TRIP_S)
    out = world.base / "out"
    trips = trips_of(far, "sh", "-c", f"exec cat /azekura/tree/* > {out}")
    assert out.read_bytes() == b"".join(contents(name, STRIPED_BYTES) for name in names)
    print(f"{trips:.1f} round trips for {len(names)} files")
    # By itself each takes seven or more.
    assert trips < 5 * STRIPED_FILES, trips


@pytest.mark.parametrize("writer_host", ["near", "far"])
def test_what_another_client_was_told_is_read(far, world, writer_host):
    names = [f"file{number:02d}" for number in range(40)]
    local = world.base / "tree"
    local.mkdir()
    for name in names:
        (local / name).write_bytes(b"00000000" * 100)
    far.put(local)
    far.link("delay=10ms")
    told = world.base / "told"
    told.touch()
    writer = far.start(writer_host, sys.executable, "-c", WRITER, "/azekura/tree", told, "50")
    said = far.run(sys.executable, "-c", READER, "/azekura/tree", told)
    rounds, read = map(int, said.split())
    print(f"{read} files read in {rounds} rounds")
    assert rounds > 1
    wait_until(lambda: writer.poll() is not None, "the writer ends")
    assert writer.returncode == 0
