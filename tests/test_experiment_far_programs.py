"""Programs on far files: that they run through each door, that one that takes too long is ended, and
that nothing stays. Nothing is said here about speed."""

import csv
import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from pools import LAB, alive, wait_until

pytestmark = pytest.mark.root

NAME = "far-programs"
SCRATCH = "azekura-bench-"
DOORS = {"preload", "mount", "sshfs", "rclone"}
needs_fuse = pytest.mark.skipif(not Path("/dev/fuse").exists(), reason="needs /dev/fuse")


def rows_of(out):
    with open(out / NAME / "results.csv", newline="") as file:
        return list(csv.DictReader(file))


def page_of(out):
    return (out / NAME / "README.md").read_text()


def nothing_is_left(world, pid):
    def scratch():
        found = Path("/dev/shm").glob(f"{SCRATCH}*")
        return [path for path in found if f"-{pid}-" in path.name]

    wait_until(lambda: not scratch(), "nothing is left in memory")
    wait_until(lambda: not any(alive(pid) for pid in world.processes()), "no process is left")


def run(world, out, *words, **more):
    return world.run_lab("experiment", "run", NAME, "--out", out, *words, **more)


@needs_fuse
@pytest.mark.parametrize("program", ["ls-l", "cp-r", "grep-c"])
def test_a_program_by_preload_and_by_a_mount(world, tmp_path, program):
    run(world, tmp_path, "--quick", "--only", program, "--policy", "preload,mount", limit_s=100)
    rows = rows_of(tmp_path)
    found = {(row["program"], row["round_trip_ms"], row["door"]) for row in rows}
    assert found == {(program, ms, door) for ms in ("0", "10") for door in ("preload", "mount")}
    for row in rows:
        assert row["runs_cut_short"] == "0.000"
        assert float(row["link_mb"]) >= float(row["useful_mb"])
        assert (float(row["useful_mb"]) > 0) == (program != "ls-l")
        # No program can be done before the first answer.
        assert float(row["seconds"]) >= float(row["limit_s"])
    page = page_of(tmp_path)
    assert f"({program}.svg)" in page
    # There is nothing to compare a near run with.
    assert page.count(" | - | ") == 2
    [session] = json.loads((tmp_path / NAME / "run.json").read_text())["sessions"]
    assert {"commit", "command_line"} <= set(session)


@needs_fuse
@pytest.mark.parametrize("door", ["sshfs", "rclone"])
def test_other_doors_where_they_are_there(world, tmp_path, door):
    lacks = [name for name in (door, "sshd", "ssh-keygen") if not shutil.which(name)]
    words = ("--quick", "--only", "cp-r,git-status", "--delay", "10", "--policy", door)
    run(world, tmp_path, *words, limit_s=100)
    rows = rows_of(tmp_path)
    if lacks:
        assert not rows
        assert f"*{door}* is left out" in page_of(tmp_path)
        pytest.skip(f"needs {lacks[0]}; what stands in its place was looked at")
    assert {row["door"] for row in rows} == {door}
    assert "cp-r" in {row["program"] for row in rows}
    assert all(float(row["link_mb"]) > 0 for row in rows)


@needs_fuse
def test_a_program_that_takes_too_long_is_ended(world, tmp_path):
    words = ("--scale", "0.02", "--seconds-per-point", "0.5", "--delay", "100")
    run(world, tmp_path, *words, "--only", "tar-x", "--policy", "preload,mount")
    rows = rows_of(tmp_path)
    assert [row["runs_cut_short"] for row in rows] == ["1.000", "1.000"]
    assert all(row["seconds"] == "0.500" for row in rows)
    assert page_of(tmp_path).count("| over 0.50 | over ") == 2


@needs_fuse
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_was_cut_short_leaves_nothing(world, tmp_path, how):
    words = ("--quick", "--only", "find", "--policy", "preload,mount")
    command = ("experiment", "run", NAME, "--out", tmp_path, *words)
    child = world.start(*command, program=LAB, start_new_session=True)
    csv_file = tmp_path / NAME / "results.csv"
    wait_until(
        lambda: csv_file.exists() and len(csv_file.read_text().splitlines()) > 1,
        "a point is measured",
    )
    os.kill(child.pid, how)
    child.wait(60)
    nothing_is_left(world, child.pid)
    run(world, tmp_path, *words, "--resume")
    assert {row["door"] for row in rows_of(tmp_path)} == {"preload", "mount"}


def test_doors_and_programs_are_told_where_there_is_no_such(world, tmp_path):
    done = run(world, tmp_path, "--quick", "--policy", "window", check=False)
    assert done.returncode != 0
    assert all(door in done.stderr for door in DOORS)
    done = run(world, tmp_path, "--quick", "--only", "nosuch", check=False)
    assert done.returncode != 0
    assert "git-clone" in done.stderr
