"""The batch I/O program and calibrations: what is moved, what is said, and that nothing is left."""

import contextlib
import csv
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import tomllib
from labs import Lab
from pools import BINARY, alive, wait_until
from staging import LAUNCH, star

MIB = 1 << 20
PARTS = ["open", "create", "read", "write", "flush", "sync", "close"]


@pytest.fixture
def place(world):
    """A directory that batches work in."""
    place = world.storage / "batches"
    place.mkdir()
    return place


@pytest.fixture
def small_disk(world):
    """A file system with room for 8 MiB."""
    place = world.base / "small"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=755", "none", place]
    if subprocess.run(words, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting takes root")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def batch(world, place, *options, check=True, size="1MiB"):
    words = ["bench", "batch", "--path", place, "--size", size, "--warm-up", "0"]
    words += [] if "--runs" in options else ["--runs", "1"]
    words += options
    return world.run(*words, check=check)


def run_of(world, place, *options, **more):
    return json.loads(batch(world, place, "--json", *options, **more).stdout)["runs"][0]


def files(place, kind):
    return sorted(path.stat().st_size for path in place.rglob(f"{kind}.*"))


def workers(world):
    """Worker processes of this world that still run."""
    found = []
    for pid in world.processes():
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"bench-worker" in words and alive(pid):
                found.append(pid)
    return found


@pytest.mark.parametrize("order", ["sequential", "round-robin"])
@pytest.mark.parametrize(
    ("pattern", "count", "sizes"),
    [
        ("simple", 1, ([MIB], [MIB // 2])),
        ("split", 4, ([MIB], [MIB // 8] * 4)),
        ("merge", 4, ([MIB // 4] * 4, [MIB // 2])),
    ],
)
def test_every_pattern_has_its_files(world, place, order, pattern, count, sizes):
    words = ["--pattern", pattern, "--order", order, "--files", count, "--ratio", "0.5", "--keep"]
    batch(world, place, *words)
    assert (files(place, "in"), files(place, "out")) == sizes


def test_nothing_is_left_and_several_processes_share_the_input(world, place):
    run = run_of(world, place, "--processes", 4, "--runs", 3)
    assert len(run["seconds"]) == 3
    assert all(seconds > 0 for seconds in run["seconds"])
    assert run["job"]["processes"] == 4
    phase = run["job"]["phase"][0]
    assert (phase["bytes_in"], phase["bytes_out"]) == (MIB, MIB)
    assert (phase["record_bytes"], phase["buffer_bytes"]) == (1024, 2 * MIB)
    assert list(place.iterdir()) == []


def test_json_says_where_the_time_went_and_csv_has_a_row_for_each_run(world, place):
    table = world.storage / "runs.csv"
    found = json.loads(batch(world, place, "--json", "--csv", table, "--fsync").stdout)
    assert found["target"] == str(place)
    assert found["machine"]["processors"] > 0
    run = found["runs"][0]
    assert run["name"] == "simple-r1-p1"
    assert run["caches_dropped"] is True
    spent = run["spent"][0]
    assert set(spent) == {f"{part}_s" for part in PARTS}
    assert spent["read_s"] > 0 and sum(spent.values()) <= 1.01 * run["seconds"][0]
    with open(table, newline="") as text:
        rows = list(csv.DictReader(text))
    assert len(rows) == 1
    assert float(rows[0]["seconds"]) == pytest.approx(run["seconds"][0])


def test_a_table_says_how_caches_were_dropped(world, place):
    assert "before each run" in batch(world, place).stdout or "advised" in batch(world, place).stdout
    assert "warm" in batch(world, place, "--caches", "warm").stdout


def test_nothing_may_be_written_but_files_must_be(world, place):
    batch(world, place, "--ratio", "0", "--pattern", "split", "--files", 3, "--keep")
    assert files(place, "out") == [0, 0, 0]
    for words, hint in (
        (("--pattern", "split", "--files", 0), "1 or more"),
        (("--pattern", "merge", "--files", 1025), "more than the 1024 records"),
        (("--ratio", "nan"), "--ratio"),
        (("--record", "2MiB"), "--size larger"),
        (("--record", 0), "--record"),
    ):
        done = batch(world, place, *words, check=False)
        assert done.returncode == 2
        assert hint in done.stderr, done.stderr


def test_a_buffer_larger_than_memory_is_told_and_nothing_is_left(world, place):
    done = batch(world, place, "--buffer", "100TiB", "--processes", 2, check=False)
    assert done.returncode == 1
    assert "make --buffer" in done.stderr and "backtrace" not in done.stderr, done.stderr
    assert list(place.iterdir()) == []


def test_a_full_disk_is_told_and_left_clean(world, small_disk):
    done = batch(world, small_disk, size="6MiB", check=False)
    assert done.returncode == 1
    assert "there is room for" in done.stderr, done.stderr
    # What others write meanwhile cannot be known before.
    (small_disk / "other").write_bytes(bytes(5 * MIB))
    done = world.run("calibrate", small_disk, "-o", world.storage / "fs.toml", check=False)
    assert done.returncode == 1
    assert "room" in done.stderr and "--size" in done.stderr, done.stderr
    assert "are removed" in done.stderr, done.stderr
    assert [path.name for path in small_disk.iterdir()] == ["other"]


def test_a_disk_that_fills_up_in_the_middle_is_left_clean(world, small_disk):
    words = ["bench", "batch", "--path", small_disk, "--size", "3MiB", "--runs", "1000"]
    child = world.start(*words)
    wait_until(lambda: list(small_disk.rglob("in.0")), "the input is made")
    deadline = time.monotonic() + 60
    # Again and again: what the batch has when the disk is first full it could go on with.
    with open(small_disk / "other", "ab", buffering=0) as other:
        while child.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                other.write(bytes(MIB))
    assert child.wait(5) == 1
    assert "No space left" in child.log.read_text()
    assert [path.name for path in small_disk.iterdir()] == ["other"]


def test_a_directory_that_is_not_there_or_not_ours_is_told(world, place):
    done = batch(world, place / "none", check=False)
    assert done.returncode == 1 and "is not a directory" in done.stderr
    done = world.run("calibrate", place / "none", "-o", place / "fs.toml", check=False)
    assert done.returncode == 1 and "is not a directory" in done.stderr


def test_a_read_only_directory_is_told(world, small_disk):
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    done = batch(world, small_disk, check=False)
    assert done.returncode == 1
    assert "Read-only file system" in done.stderr, done.stderr


# Steps that each take far less than the command waits for a word, and far more.
@pytest.mark.parametrize("size", ["1MiB", "64MiB"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_batch_leaves_nothing(world, place, number, size):
    words = ["bench", "batch", "--path", place, "--size", size, "--runs", "100000"]
    child = world.start(*words, "--pattern", "split", "--files", "100", "--processes", "2")
    wait_until(lambda: list(place.rglob("out.50")), "the batch runs")
    # As `timeout` sends it: to the command, and to the process group in which it is.
    for _ in range(2):
        os.kill(child.pid, number)
    assert child.wait(60) == 128 + number
    assert list(place.iterdir()) == []
    assert workers(world) == []


def test_a_batch_that_is_killed_is_cleared_by_its_workers(world, place):
    words = ["bench", "batch", "--path", place, "--size", "64MiB", "--runs", "100000"]
    child = world.start(*words, "--processes", "2")
    wait_until(lambda: list(place.rglob("out.0")), "the batch runs")
    os.kill(child.pid, signal.SIGKILL)
    child.wait(60)
    wait_until(lambda: not list(place.iterdir()), "the files are gone", limit_s=30)
    wait_until(lambda: not workers(world), "the workers are gone", limit_s=30)


@pytest.mark.parametrize("calibrates", [False, True])
def test_what_a_killed_worker_leaves_is_removed(world, place, calibrates):
    words = ["bench", "batch", "--path", place, "--size", "32MiB", "--runs", "1000"]
    if calibrates:
        words = ["calibrate", place, "-o", world.storage / "fs.toml", "--size", "32MiB"]
    child = world.start(*words, "--processes", "2")
    wait_until(lambda: list(place.rglob("out.0")), "the batch runs")
    # Others of a calibration have nothing to do at first.
    os.kill(min(workers(world)), signal.SIGKILL)
    assert child.wait(60) == 1
    said = child.log.read_text()
    assert "ended before it was done" in said or "went away" in said, said
    assert "is given up, and its files are removed" in said, said
    assert list(place.iterdir()) == []


def test_a_pool_is_measured_natively(world):
    pool = world.pool(memory=True)
    words = ["bench", "batch", "--pool", pool.name, "--size", "1MiB", "--runs", "1"]
    more = ["--pattern", "merge", "--files", "4", "--processes", "2"]
    run = world.json(*words, *more)["runs"][0]
    assert run["seconds"][0] > 0
    assert world.run("fs", "ls", f"{pool.name}:/").stdout == ""


def test_several_processes_calibrate_a_pool(world):
    pool = world.pool(memory=True)
    fs = world.storage / "fs.toml"
    words = ["calibrate", pool.name, "-o", fs, "--size", "1MiB", "--processes", 2]
    world.run(*words, "--budget", "15s")
    assert {row["processes"] for row in tomllib.loads(fs.read_text())["streams"]} >= {1, 2}
    assert world.run("fs", "ls", f"{pool.name}:/").stdout == ""


def test_no_input_takes_the_name_of_one_that_was_removed(world, place):
    # Another client of a pool may know that name for a moment as the directory that is gone.
    fs = world.storage / "fs.toml"
    child = world.start("calibrate", place, "-o", fs, "--size", "1MiB", "--budget", "60s")
    seen = []

    def sees_three():
        seen.extend(path.name for path in place.iterdir() if path.name not in seen)
        return len(seen) >= 3

    wait_until(sees_three, "three inputs with names of their own", pause_s=0.001)
    os.kill(child.pid, signal.SIGINT)
    assert child.wait(60) == 130


def test_nodes_are_hosts_that_a_template_reaches(world, place):
    lab = Lab(world, star(["n1", "n2"]))
    words = ["--hosts", "n1,n2", "--launch", LAUNCH, "--processes", "2", "--json"]
    base = ["bench", "batch", "--path", place, "--size", "1MiB", "--runs", "2"]
    done = world.run_lab("netlab", "exec", "--lab", lab.name, "server", "--", BINARY, *base, *words)
    run = json.loads(done.stdout)["runs"][0]
    assert (run["job"]["nodes"], run["job"]["processes"]) == (2, 2)
    assert run["job"]["phase"][0]["bytes_in"] == 2 * MIB
    assert list(place.iterdir()) == []


def test_a_calibration_keeps_its_time_and_leaves_a_file_that_is_read(world, place):
    fs, runs = world.storage / "fs.toml", world.storage / "runs.json"
    began = time.monotonic()
    words = ["calibrate", place, "-o", fs, "--budget", "10s", "--runs", runs, "--processes", "4"]
    done = world.run(*words)
    assert time.monotonic() - began <= 16
    assert "T_SR" in done.stdout and "C_C" in done.stdout
    assert list(place.iterdir()) == []
    text = fs.read_text()
    for part in ("[made]", "[range]", "[sequential]", "[random]", "[metadata]", "[[streams]]"):
        assert part in text, text
    assert str(place) in text and "mount_options" in text
    run = world.storage / "run.json"
    run.write_text(batch(world, place, "--json", size="4MiB").stdout)
    found = world.json("forecast", "--check", run, "--fs", fs)
    assert len(found["runs"]) == 1
    assert found["runs"][0]["measured"] > 0
    job = world.storage / "job.toml"
    job.write_text(
        '[[phase]]\npattern = "simple"\nbytes_in = "4 MiB"\nratio = 1.0\nrecord_bytes = 1024\n'
        'buffer_bytes = "2 MiB"\n'
    )
    assert world.json("forecast", job, "--fs", fs)["seconds"] > 0


def test_a_calibration_on_nodes_knows_one_and_all_of_them(world, place):
    lab = Lab(world, star(["n1", "n2"]))
    fs, runs = world.storage / "fs.toml", world.storage / "runs.json"
    words = ["calibrate", place, "-o", fs, "--runs", runs, "--budget", "60s", "--size", "1MiB"]
    words += ["--hosts", "n1,n2", "--launch", LAUNCH, "--processes", "2"]
    world.run_lab("netlab", "exec", "--lab", lab.name, "server", "--", BINARY, *words)
    assert list(place.iterdir()) == []
    streams = tomllib.loads(fs.read_text())["streams"]
    assert {(row["nodes"], row["processes"]) for row in streams} == {(1, 1), (1, 2), (2, 1), (2, 2)}
    for run in json.loads(runs.read_text())["runs"]:
        assert run["job"]["phase"][0]["bytes_in"] <= run["job"]["nodes"] * MIB
    job = world.storage / "job.toml"
    job.write_text(
        'nodes = 2\nprocesses = 2\n[[phase]]\npattern = "merge"\nbytes_in = "2 MiB"\nratio = 1.0\n'
        'files_in = 32\nrecord_bytes = 1024\nbuffer_bytes = "2 MiB"\n'
    )
    found = world.json("forecast", job, "--fs", fs)
    assert found["seconds"] > 0 and found["outside"] == []


def test_a_calibration_whose_disk_fills_up_is_left_clean(world, small_disk):
    fs = world.storage / "fs.toml"
    child = world.start("calibrate", small_disk, "-o", fs, "--budget", "5m", "--size", "1MiB")
    wait_until(lambda: list(small_disk.rglob("in.0")), "the calibration runs")
    deadline = time.monotonic() + 60
    # Again and again: what the batch has when the disk is first full it could go on with.
    with open(small_disk / "other", "ab", buffering=0) as other:
        while child.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                other.write(bytes(MIB))
    assert child.wait(5) == 1
    said = child.log.read_text()
    assert "No space left" in said or "there is room for" in said, said
    assert "are removed" in said, said
    assert [path.name for path in small_disk.iterdir()] == ["other"]
    assert not fs.exists()


def test_a_calibration_takes_the_room_that_there_is(world, small_disk):
    fs = world.storage / "fs.toml"
    (small_disk / "other").write_bytes(bytes(2 * MIB))
    world.run("calibrate", small_disk, "-o", fs, "--budget", "20s", "--processes", 2)
    assert "[sequential]" in fs.read_text()
    assert [path.name for path in small_disk.iterdir()] == ["other"]


def test_an_interrupted_calibration_leaves_nothing(world, place):
    fs = world.storage / "fs.toml"
    child = world.start("calibrate", place, "-o", fs, "--budget", "5m")
    wait_until(lambda: list(place.rglob("in.0")), "the calibration runs")
    time.sleep(1)
    os.kill(child.pid, signal.SIGINT)
    assert child.wait(60) == 130
    assert list(place.iterdir()) == []
    assert not fs.exists()


def moved_bytes(runs):
    """What the runs of a calibration that count have read and written."""
    phases = [(run["job"]["phase"][0], len(run["seconds"])) for run in runs]
    return sum((phase["bytes_in"] + phase["bytes_out"]) * times for phase, times in phases)


def test_bounds_hold_within_a_group_of_batches_and_below_the_least_are_refused(world, place):
    fs, runs = world.storage / "fs.toml", world.storage / "runs.json"
    words = ["calibrate", place, "-o", fs, "--runs", runs, "-p", 2, "--budget", "60s"]
    done = world.run(*words, "--bytes", "1KiB", check=False)
    assert done.returncode == 2
    assert "--bytes: the least that a calibration moves is 24 MiB" in done.stderr, done.stderr
    for option in ("--record", "--buffer"):
        done = world.run(*words, option, 0, check=False)
        assert done.returncode == 2 and "must be 1 byte or more" in done.stderr, done.stderr
    world.run(*words, "--bytes", "24MiB")
    assert "[sequential]" in fs.read_text()
    assert moved_bytes(json.loads(runs.read_text())["runs"]) <= 24 * MIB
    began = time.monotonic()
    done = world.run("calibrate", place, "-o", fs, "--size", "256MiB", "--budget", "1s", check=False)
    assert time.monotonic() - began <= 12
    # A fast machine comes to a calibration in that time.
    assert done.returncode == 0 or "--budget" in done.stderr, done.stderr
    assert list(place.iterdir()) == []


def test_a_calibration_keeps_to_its_bytes(world, place):
    fs = world.storage / "fs.toml"
    world.run("calibrate", place, "-o", fs, "--bytes", "400MiB", "--budget", "60s", "-p", "2")
    assert "[sequential]" in fs.read_text()
