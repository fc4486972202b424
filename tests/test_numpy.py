"""Arrays of numpy in a container: saved, loaded and mapped."""

import subprocess
import sys
import textwrap

import pytest
from pools import BINARY
from preloading import Preloading

SCRIPT = """
import sys
import numpy

place, may_map_writable = sys.argv[1], sys.argv[2] == "yes"
data = numpy.arange(300_000, dtype=numpy.float64).reshape(600, 500)
numpy.save(place + "/array.npy", data)
assert (numpy.load(place + "/array.npy") == data).all()
numpy.savez_compressed(place + "/several.npz", a=data, b=data[:3])
with numpy.load(place + "/several.npz") as several:
    assert (several["a"] == data).all() and (several["b"] == data[:3]).all()
mapped = numpy.load(place + "/array.npy", mmap_mode="r")
assert isinstance(mapped, numpy.memmap) and (mapped[17] == data[17]).all()
assert float(mapped.sum()) == float(data.sum())
raw = numpy.memmap(place + "/array.npy", dtype=numpy.float64, mode="r", offset=128, shape=(600, 500))
assert (raw == data).all()
changed = numpy.load(place + "/array.npy", mmap_mode="c")
changed[0] = -1
assert (numpy.load(place + "/array.npy")[0] == data[0]).all()
data.tofile(place + "/raw")
assert (numpy.fromfile(place + "/raw").reshape(600, 500) == data).all()
try:
    numpy.load(place + "/array.npy", mmap_mode="r+")
    assert may_map_writable, "a shared writable mapping was made"
except OSError as error:
    assert not may_map_writable, error
print("done")
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """The script, as a file."""
    path = tmp_path_factory.mktemp("numpy") / "arrays.py"
    path.write_text(textwrap.dedent(SCRIPT))
    return path


def test_arrays_through_the_library(pool, script):
    door = Preloading(pool)
    place = door.path("numpy")
    door.run("mkdir", place)
    done = door.run(sys.executable, script, place, "no")
    assert done.stdout == "done\n"
    assert "mmap" in door.report.read_text()


def test_arrays_through_a_mount_of_their_own(pool, script):
    command = [BINARY, "run", "--pool", pool.name, "--via", "fuse", "--", "sh", "-c"]
    inside = 'mkdir /azekura/numpy-fuse && exec "$0" "$1" /azekura/numpy-fuse yes'
    done = subprocess.run(
        [*map(str, command), inside, sys.executable, str(script)],
        env=pool.world.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stdout == "done\n", done.stderr
