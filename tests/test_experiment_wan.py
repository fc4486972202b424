"""Experiments over links: what they measure, that the limits are drawn, and that nothing stays. Nothing
is said here about speed."""

import csv
import json
import os
import pwd
import signal
from pathlib import Path

import pytest
from pools import LAB, alive, wait_until

pytestmark = pytest.mark.root

NAMES = (
    "wan-change",
    "wan-engines",
    "wan-existing",
    "wan-fixed",
    "wan-overhead",
    "wan-p",
    "wan-policies",
    "wan-rates",
    "wan-sizes",
    "wan-trace",
)
SCRATCH = "azekura-bench-"


def rows_of(directory):
    with open(directory / "results.csv", newline="") as file:
        return list(csv.DictReader(file))


def scratch_of(pid):
    return [path for path in Path("/dev/shm").glob(f"{SCRATCH}*") if f"-{pid}-" in path.name]


def nothing_is_left(world, pid):
    wait_until(lambda: not scratch_of(pid), "nothing is left in memory")
    wait_until(lambda: not any(alive(pid) for pid in world.processes()), "no process is left")


def key_of(row):
    return row["pattern"], row["round_trip_ms"]


def test_every_experiment_over_a_link(world, tmp_path):
    done = world.run_lab(
        *("experiment", "run", "wan-*", "--quick", "--out", tmp_path), check=False, limit_s=170
    )
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(NAMES)
    for name in NAMES:
        page = (tmp_path / name / "README.md").read_text()
        assert f"\n`{name}`: " in page
        assert "missing" not in page
        run = json.loads((tmp_path / name / "run.json").read_text())
        assert run["quick"]
        [session] = run["sessions"]
        assert {"commit", "dirty", "command_line"} <= set(session)
        assert session["load_after"]["busy_percent"] >= 0
        plots = list((tmp_path / name).glob("*.svg"))
        assert plots
        for plot in plots:
            assert f"({plot.name})" in page

    fixed = rows_of(tmp_path / "wan-fixed")
    for row in fixed:
        # Whole requests of that size, and one at a time.
        size, count = int(row["request_bytes"]), float(row["requests"])
        assert float(row["size_bytes_chosen"]) == size
        assert float(row["asked_mb"]) * 1e6 <= count * size * 1.001
        assert float(row["useful_mb_per_s"]) > 0
        if row["round_trip_ms"] == "10":
            assert float(row["seconds"]) >= 0.01 * count, row

    policies = rows_of(tmp_path / "wan-policies")
    named = {key_of(row): {} for row in policies}
    for row in policies:
        named[key_of(row)][row["policy"]] = float(row["useful_mb_per_s"])
    for key, speeds in named.items():
        measured = {"predictive", "sync-adaptive", "sync-adaptive-striped", "fixed=1M"}
        assert measured | {"optimal", "link"} <= set(speeds)
        best = max(float(row["useful_mb_per_s"]) for row in fixed if key_of(row) == key)
        assert speeds["optimal"] == best
        assert 0 < speeds["predictive"] <= speeds["link"] * 1.1
        assert speeds.get("request-per-region", 0) <= speeds["link"]

    sizes = rows_of(tmp_path / "wan-sizes")
    assert {row["pattern"] for row in sizes} == {"sequential", "stride-512K-3M"}
    assert all(float(row["size_mib"]) > 0 for row in sizes)
    assert {row["whose"] for row in sizes} == {
        "adaptive",
        "optimal",
        "paper-adaptive",
        "paper-optimal",
    }
    used = [float(row["used_percent"]) for row in rows_of(tmp_path / "wan-trace")]
    assert used
    assert all(0 <= share <= 100 for share in used)


def test_optimal_waits_for_the_sizes(world, tmp_path):
    run = ("experiment", "run", "--quick", "--out", tmp_path)
    world.run_lab(*run, "wan-policies")
    directory = tmp_path / "wan-policies"
    before = rows_of(directory)
    assert not {"optimal", "fixed=1M"} & {row["policy"] for row in before}
    assert "are missing" in (directory / "README.md").read_text()
    world.run_lab(*run, "wan-fixed")
    world.run_lab(*run, "wan-policies", "--resume")
    after = rows_of(directory)
    assert after[: len(before)] == before
    assert {row["policy"] for row in after[len(before) :]} == {"optimal", "fixed=1M"}
    assert "missing" not in (directory / "README.md").read_text()


def test_points_are_chosen_and_the_others_come_later(world, tmp_path):
    run = ("experiment", "run", "--quick", "--out", tmp_path, "wan-existing")
    world.run_lab(*run, "--only", "sequential")
    directory = tmp_path / "wan-existing"
    assert [row["pattern"] for row in rows_of(directory)] == ["sequential"]
    assert "2 of 3 points are missing" in (directory / "README.md").read_text()
    done = world.run_lab(*run, "--resume", "--only", "nosuch", check=False)
    assert done.returncode != 0
    assert "random-8M" in done.stderr
    world.run_lab(*run, "--resume")
    assert len(rows_of(directory)) == 3
    sessions = json.loads((directory / "run.json").read_text())["sessions"]
    assert len(sessions) == 2


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_was_cut_short_leaves_nothing_and_goes_on(world, tmp_path, how):
    command = ["experiment", "run", "wan-p", "--out", tmp_path]
    command += ["--scale", "0.01", "--seconds-per-point", "0.3"]
    csv_file = tmp_path / "wan-p" / "results.csv"

    def measured():
        return csv_file.exists() and len(csv_file.read_text().splitlines()) - 1

    child = world.start(*command, program=LAB, start_new_session=True)
    wait_until(lambda: measured() >= 2, "two points are measured")
    os.kill(child.pid, how)
    code = child.wait(30)
    if how == signal.SIGINT:
        assert code == 1
        assert "--resume" in child.log.read_text()
    nothing_is_left(world, child.pid)
    before = csv_file.read_text()
    world.run_lab(*command, "--resume")
    assert csv_file.read_text().startswith(before[: before.rfind("\n") + 1])
    assert measured() == 20


def test_without_root(world, tmp_path):
    nobody = pwd.getpwnam("nobody")
    out = world.base / "out"
    out.mkdir()
    for path in (world.base, out):
        path.chmod(0o777)
    done = world.run_lab(
        *("experiment", "run", "wan-p", "--quick", "--out", out),
        check=False,
        user=nobody.pw_uid,
        group=nobody.pw_gid,
        extra_groups=[],
    )
    assert done.returncode == 1
    assert "only root may" in done.stderr
