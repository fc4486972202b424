"""Listing far directories under the preload library: programs that go through a tree do not wait for one
round trip for each name, find what is there, and see at once what their children do."""

import sys
import time

import pytest
from labs import FarPool

pytestmark = pytest.mark.root

DIRECTORIES = 20
FILES = 20
ROUND_TRIP_S = 0.1

# Looks at a file that a child changes, again and again within the time for which a look is believed.
PARENT = """
import os, subprocess, sys
path = sys.argv[1] + "/dir1/file1"
for size in range(100, 105):
    assert os.path.basename(path) in os.listdir(sys.argv[1] + "/dir1")
    subprocess.run([sys.executable, "-c", "import os, sys; os.truncate(sys.argv[1], int(sys.argv[2]))",
                    path, str(size)], check=True)
    assert os.stat(path).st_size == size, (os.stat(path).st_size, size)
    os.chmod(path, 0o600 + size % 8)
    assert os.stat(path).st_mode & 0o777 == 0o600 + size % 8
print("seen")
"""


@pytest.fixture
def tree(world):
    """A pool behind a link, and a tree in it."""
    far = FarPool(world)
    local = world.base / "tree"
    for directory in range(DIRECTORIES):
        (local / f"dir{directory}").mkdir(parents=True)
        for number in range(FILES):
            (local / f"dir{directory}" / f"file{number}").write_bytes(b"x" * number)
    far.put(local)
    far.distance(ROUND_TRIP_S)
    return far


def run(far, *command):
    """What a program says, and how many round trips it has taken."""
    start = time.monotonic()
    said = far.run(*command)
    return said, (time.monotonic() - start) / ROUND_TRIP_S


def test_a_tree_is_gone_through_in_few_round_trips(tree):
    said, trips = run(tree, "find", "/azekura/tree", "-type", "f", "-size", "+0")
    assert len(said.split()) == DIRECTORIES * (FILES - 1)
    # Every directory by itself would take more than six each, and so every file.
    assert trips < 3 * DIRECTORIES, trips


def test_a_long_listing_does_not_wait_for_each_file(tree):
    said, trips = run(tree, "ls", "-lR", "/azekura/tree")
    sizes = [int(line.split()[4]) for line in said.splitlines() if line.startswith("-")]
    assert sorted(sizes) == sorted(list(range(FILES)) * DIRECTORIES)
    assert trips < 3 * DIRECTORIES, trips


def test_without_a_delay_no_file_is_asked_for_by_itself_either(tree):
    tree.distance(0)
    before = tree.asked()
    said = tree.run("ls", "-lR", "/azekura/tree")
    sizes = [int(line.split()[4]) for line in said.splitlines() if line.startswith("-")]
    assert sorted(sizes) == sorted(list(range(FILES)) * DIRECTORIES)
    asked = tree.asked() - before
    assert asked < DIRECTORIES * FILES / 2, asked


def test_what_children_do_is_seen_at_once(tree):
    said, _ = run(tree, sys.executable, "-c", PARENT, "/azekura/tree")
    assert said.split() == ["seen"]
