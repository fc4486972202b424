"""From a real program to a forecast of it: profiled, forecast with a calibration of the same directory,
run again and compared. What the job says of the program has to be exact; the time is held to a factor,
since the machine of a test does other things too."""

import re
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
import tomllib
from pools import BINARY
from test_profile import MERGE, RECORD, Profiled, build, lines

# The middle one of so many forecasts may be this much too long, or too short.
FACTOR = 3.0
ROUNDS = 5
MIB = 1 << 20


@pytest.fixture(scope="module")
def memory(tmp_path_factory):
    """A directory in memory if there is one to be had: no disk is in the way of the comparison."""
    if not Path("/dev/shm").is_dir():
        yield tmp_path_factory.mktemp("end-to-end")
        return
    with tempfile.TemporaryDirectory(prefix="azekura-test-", dir="/dev/shm") as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def calibration(memory):
    """What was measured of the file system that the tests' directories lie on."""
    place = memory / "calibrated"
    place.mkdir()
    output = place / "fs.toml"
    command = [BINARY, "calibrate", place, "-o", output, "--budget", "15s", "--processes", "2"]
    subprocess.run(command, check=True, timeout=110, capture_output=True, text=True)
    assert list(place.iterdir()) == [output]
    return output


@pytest.fixture
def place(memory):
    with tempfile.TemporaryDirectory(dir=memory) as directory:
        place = Path(directory) / "place"
        place.mkdir()
        yield place


def tree(place, name, files, bytes_of):
    """Files with all kinds of bytes; gives how many there are of these."""
    (place / name).mkdir()
    piece = bytes(range(256)) * 4096
    for number in range(files):
        size = bytes_of(number)
        content = piece * (size // len(piece) + 1)
        (place / name / f"f{number:03d}").write_bytes(content[:size])
    return sum(path.stat().st_size for path in (place / name).iterdir())


class Compared:
    """A command that was profiled, forecast, and run without either."""

    def __init__(self, place, calibration, command, prepare=lambda: None):
        self.place, self.calibration = place, calibration
        self.command, self.prepare = command, prepare
        self.profile()

    def profile(self):
        self.prepare()
        self.phase = Profiled(self.place, self.command).phase

    def job(self, times=1):
        """The job as a planner edits it: more of it, and the input in memory, where it was just made."""
        text = (self.place.parent / f"{self.place.name}.toml").read_text()
        if times != 1:
            text, edited = re.subn(
                r"(?m)^(bytes_in|bytes_out) = .*$",
                lambda line: f"{line[1]} = {self.phase[line[1]] * times}",
                text,
            )
            assert edited == 2, text
        text = re.sub(r"(?m)^caches = .*\n", "", text)
        text = re.sub(r"(?m)^(pattern = .*)$", r'\1\ncaches = "warm"', text)
        path = self.place.parent / "edited.toml"
        path.write_text(text)
        assert tomllib.loads(text)["phase"][0]["caches"] == "warm"
        return path

    def measured(self):
        self.prepare()
        start = time.monotonic()
        subprocess.run(self.command, cwd=self.place, check=True)
        return time.monotonic() - start

    def hold(self, world, what):
        """Holds forecasts against runs: in each round the program is profiled, forecast, and run."""
        self.ratios(world, what, 1, self.profile)

    def hold_more(self, world, what, times):
        """The same where only the run has more data."""
        self.ratios(world, what, times, lambda: None)

    def ratios(self, world, what, times, profile):
        ratios = []
        for _ in range(ROUNDS):
            profile()
            found = world.json("forecast", self.job(times), "--fs", self.calibration)
            measured = self.measured()
            ratios.append(found["seconds"] / measured)
            print(
                f"{what}: forecast {found['seconds']:.3f} s"
                f" ({found['low']:.3f} to {found['high']:.3f}), measured {measured:.3f} s,"
                f" ratio {ratios[-1]:.2f}, bound by {found['bottleneck']}"
            )
            assert found["low"] <= found["seconds"] <= found["high"]
        assert 1 / FACTOR <= statistics.median(ratios) <= FACTOR, ratios


def shape(phase):
    keys = ("pattern", "files_in", "files_out", "bytes_in", "bytes_out")
    return tuple(phase.get(key, 1) for key in keys)


def test_tar_creates_and_extracts(world, place, calibration):
    total = tree(place, "tree", 50, lambda number: 2 * MIB - 7919 * number)
    archive = place / "all.tar"
    create = Compared(place, calibration, ["tar", "cf", "all.tar", "tree"])
    assert shape(create.phase) == ("merge", 50, 1, total, archive.stat().st_size)
    assert create.phase.get("order", "sequential") == "sequential"
    assert create.phase["buffer_bytes"] == 10_240, "tar's blocking factor of 20"
    create.hold(world, "tar c")
    (place / "into").mkdir()
    extract = Compared(place, calibration, ["tar", "xf", "all.tar", "-C", "into"])
    assert shape(extract.phase) == ("split", 1, 50, archive.stat().st_size, total)
    extract.hold(world, "tar x")


def test_sort(world, place, calibration):
    size = lines(place / "in", 1_000_000)
    sort = Compared(place, calibration, ["sort", "-S", "200M", "in", "-o", "out"])
    assert shape(sort.phase) == ("simple", 1, 1, size, size)
    sort.hold(world, "sort")


def test_split(world, place, calibration):
    tree(place, "one", 1, lambda _: 100 * MIB)
    split = Compared(place, calibration, ["split", "-b", "1M", "one/f000", "part."])
    assert shape(split.phase) == ("split", 1, 100, 100 * MIB, 100 * MIB)
    split.hold(world, "split")


@pytest.mark.parametrize("how", ["turns", "in order"])
def test_a_merge_and_one_of_four_times_the_data(world, place, calibration, how):
    program = build(place, "merge", MERGE)
    inputs = [f"in/f{number:03d}" for number in range(20)]

    def make(size):
        subprocess.run(["rm", "-rf", "in"], cwd=place, check=True)
        return tree(place, "in", 20, lambda _: size)

    total = make(3 * MIB)
    merge = Compared(place, calibration, [program, how, "out", *inputs])
    assert shape(merge.phase) == ("merge", 20, 1, total, total)
    order = "round-robin" if how == "turns" else "sequential"
    assert merge.phase.get("order", "sequential") == order
    assert (merge.phase["record_bytes"], merge.phase["buffer_bytes"]) == (RECORD, 4096)
    merge.hold(world, f"merge {how}")
    make(12 * MIB)
    merge.hold_more(world, f"merge {how}, four times the data", times=4)
