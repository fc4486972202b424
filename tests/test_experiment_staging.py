"""Experiments with staging jobs: what they measure, that no link carries more than it can, and that
nothing stays. Nothing is said here about speed."""

import csv
import json
import os
import signal
from pathlib import Path

import pytest
from pools import LAB, alive, wait_until

pytestmark = pytest.mark.root

NAMES = ("staging-in", "staging-out", "staging-small")
SCRATCH = "azekura-bench-"
# What TCP has of an Ethernet link.
SHARE_MAX = 0.9416


def rows_of(directory):
    with open(directory / "results.csv", newline="") as file:
        return list(csv.DictReader(file))


def scratch_of(pid):
    return [path for path in Path("/dev/shm").glob(f"{SCRATCH}*") if f"-{pid}-" in path.name]


def check_shares(rows, column, links):
    """That a share is of the links that it is said to be of."""
    for row in rows:
        moved = int(row["file_bytes"]) * int(row["nodes"])
        share = float(row[column])
        # Times have three decimals.
        seconds = moved / (12.5e6 * links(row) * share)
        assert seconds == pytest.approx(float(row["seconds"]), rel=0.01, abs=0.001), row
        # What lies in a queue when the clock starts does not count.
        assert 0 < share < SHARE_MAX * 1.05, row


@pytest.mark.limit(120)
def test_every_experiment_with_jobs(world, tmp_path):
    done = world.run_lab(
        *("experiment", "run", *NAMES, "--quick", "--out", tmp_path), check=False, limit_s=100
    )
    assert done.returncode == 0, done.stderr
    for name in NAMES:
        page = (tmp_path / name / "README.md").read_text()
        assert f"\n`{name}`: " in page
        assert "missing" not in page
        assert json.loads((tmp_path / name / "run.json").read_text())["quick"]
        plots = list((tmp_path / name).glob("*.svg"))
        assert plots
        for plot in plots:
            assert f"({plot.name})" in page

    into = rows_of(tmp_path / "staging-in")
    assert {row["way"] for row in into} == {"staging", "copy"}
    check_shares(into, "share_of_links", lambda row: int(row["nodes"]))
    # One server sends a file twice by one link.
    shares = {(row["way"], row["nodes"]): float(row["share_of_links"]) for row in into}
    assert shares["copy", "2"] < 0.5

    home = rows_of(tmp_path / "staging-out")
    assert {row["way"] for row in home} == {"staging", "token", "copy"}
    check_shares(home, "share_of_link", lambda row: 1)

    for row in rows_of(tmp_path / "staging-small"):
        small, large = float(row["small_s"]), float(row["large_s"])
        assert small > 100 * 8192 / 12.5e6, row
        assert large / small == pytest.approx(float(row["large_over_small"]), rel=0.02), row
    wait_until(lambda: not any(map(alive, world.processes())), "every process is gone")


def test_a_run_that_was_cut_short_leaves_nothing_and_goes_on(world, tmp_path):
    command = ["experiment", "run", "staging-out", "--quick", "--out", tmp_path]
    csv_file = tmp_path / "staging-out" / "results.csv"

    def measured():
        return csv_file.exists() and len(csv_file.read_text().splitlines()) - 1

    child = world.start(*command, program=LAB, start_new_session=True)
    wait_until(lambda: measured() >= 1, "a point is measured")
    os.kill(child.pid, signal.SIGINT)
    assert child.wait(30) == 1
    assert "--resume" in child.log.read_text()
    wait_until(lambda: not scratch_of(child.pid), "nothing is left in memory")
    wait_until(lambda: not any(alive(pid) for pid in world.processes()), "no process is left")
    before = csv_file.read_text()
    world.run_lab(*command, "--resume")
    assert csv_file.read_text().startswith(before[: before.rfind("\n") + 1])
    assert measured() == 6
