"""Experiments: what they leave on disk, and that a run which was cut short goes on."""

import csv
import json
import os
import re
import shutil
import signal
import xml.etree.ElementTree
from pathlib import Path

import pytest
from pools import LAB, alive, wait_until

NAMES = (
    "daos-transfer",
    "daos-chunk",
    "daos-targets",
    "daos-workers",
    "daos-metadata",
    "daos-access",
    "daos-access-metadata",
    "daos-ior",
    "daos-mdtest",
)
# Of programs that a machine may not have; what else these experiments measure is there all the same.
WITH_OTHERS_PROGRAMS = ("daos-ior", "daos-mdtest")
PAGES = Path(__file__).resolve().parent.parent / "docs" / "experiments"
SCRATCH = "azekura-bench-"


def rows_of(directory):
    with open(directory / "results.csv", newline="") as file:
        return list(csv.DictReader(file))


def scratch_of(pid):
    """Directories in memory that a run of this process has made."""
    shared = Path("/dev/shm")
    return [path for path in shared.glob(f"{SCRATCH}*") if f"-{pid}-" in path.name]


@pytest.mark.limit(150)
def test_every_experiment_of_the_daos_evaluation(world, tmp_path):
    done = world.run_lab(
        *("experiment", "run", "daos-*", "--quick", "--out", tmp_path), check=False, limit_s=90
    )
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(NAMES)
    for name in NAMES:
        assert f"{name}: " in done.stdout
        directory = tmp_path / name
        rows = rows_of(directory)
        assert rows
        for row in rows:
            for column, cell in row.items():
                if column.endswith("_per_s"):
                    assert float(cell) > 0, row
        page = (directory / "README.md").read_text()
        assert page.startswith("# ")
        assert f"\n`{name}`: " in page
        if name not in WITH_OTHERS_PROGRAMS:
            assert "missing" not in page
        run = json.loads((directory / "run.json").read_text())
        assert run["machine"]["processor"] in page
        plots = sorted(directory.glob("*.svg"))
        assert plots
        for plot in plots:
            assert f"({plot.name})" in page
            root = xml.etree.ElementTree.parse(plot).getroot()
            assert root.tag.endswith("svg")
            assert any(element.text.strip() for element in root.iter() if element.text)
    paths = {row["path"] for row in rows_of(tmp_path / "daos-access")}
    assert paths == {"native", "fuse", "fuse+data", "preload"}


def test_list(world):
    text = world.run_lab("experiment", "list").stdout
    listed = world.json("experiment", "list", program=LAB)
    for name in NAMES:
        assert name in text
        assert any(each["name"] == name and each["about"] for each in listed)


def test_names_that_do_not_exist(world, tmp_path):
    done = world.run_lab(
        *("experiment", "run", "daos-transfer", "nosuch-*", "--out", tmp_path / "out"), check=False
    )
    assert done.returncode == 2
    assert "nosuch-*" in done.stderr
    for name in NAMES:
        assert name in done.stderr
    assert not (tmp_path / "out").exists()


def end_it(child, how):
    """Ends a run as a person would (one signal to all processes of a terminal) or as fate does."""
    if how == "terminal":
        os.killpg(child.pid, signal.SIGINT)
    else:
        os.kill(child.pid, how)
    return child.wait(60)


def nothing_is_left(world, pid):
    # Engines and workers go by themselves, and take their directories with them.
    wait_until(lambda: not scratch_of(pid), "nothing is left in memory")
    wait_until(lambda: not any(alive(pid) for pid in world.processes()), "no process is left")


def measured(csv_file):
    return csv_file.exists() and len(csv_file.read_text().splitlines()) - 1


@pytest.mark.parametrize("how", [signal.SIGINT, "terminal", signal.SIGKILL])
def test_a_run_that_was_cut_short_goes_on(world, tmp_path, how):
    command = ["experiment", "run", "daos-metadata", "--out", tmp_path]
    command += ["--scale", "0.01", "--seconds-per-point", "0.5"]
    csv_file = tmp_path / "daos-metadata" / "results.csv"
    child = world.start(*command, program=LAB, start_new_session=True)
    wait_until(lambda: measured(csv_file) >= 2, "two points are measured")
    code = end_it(child, how)
    if how != signal.SIGKILL:
        assert code == 1
        assert "--resume" in child.log.read_text()
        assert not scratch_of(child.pid)
    nothing_is_left(world, child.pid)

    before = csv_file.read_text()
    again = world.run_lab(*command, check=False)
    assert again.returncode == 2
    assert "--resume" in again.stderr
    other = [word if word != "0.01" else "0.02" for word in command]
    refused = world.run_lab(*other, "--resume", check=False)
    assert refused.returncode == 2
    assert "--scale 0.01" in refused.stderr
    assert csv_file.read_text() == before

    kept = measured(csv_file)
    assert f"{kept} kept" in world.run_lab(*command, "--resume").stdout
    after = csv_file.read_text()
    assert after.startswith(before)
    processes = [int(row["processes"]) for row in rows_of(csv_file.parent)]
    assert processes == [1, 2, 4, 8, 16, 32, 64]
    assert "7 kept" in world.run_lab(*command, "--resume").stdout
    assert csv_file.read_text() == after


@pytest.mark.parametrize("how", ["terminal", signal.SIGKILL])
def test_a_run_behind_a_mount_leaves_nothing(world, tmp_path, how):
    command = ["experiment", "run", "daos-access-metadata", "--out", tmp_path]
    command += ["--scale", "0.01", "--seconds-per-point", "0.5"]
    csv_file = tmp_path / "daos-access-metadata" / "results.csv"
    child = world.start(*command, program=LAB, start_new_session=True)
    # Three points through the native path, then those behind a mount.
    wait_until(lambda: measured(csv_file) >= 4, "a point behind a mount is measured")
    end_it(child, how)
    nothing_is_left(world, child.pid)


def test_what_was_written_by_hand_stays(world, tmp_path):
    directory = tmp_path / "daos-metadata"
    directory.mkdir()
    (directory / "discussion.md").write_text("It was **windy** that day.\n")
    command = ["experiment", "run", "daos-metadata", "--quick", "--out", tmp_path]
    for option in ("--resume", "--overwrite"):
        world.run_lab(*command, option)
        assert "It was **windy** that day." in (directory / "README.md").read_text()
        assert (directory / "discussion.md").read_text() == "It was **windy** that day.\n"


def test_pages_are_made_anew_without_measuring(world, tmp_path):
    directory = tmp_path / "daos-metadata"
    shutil.copytree(PAGES / "daos-metadata", directory)
    for name in ("README.md", "metadata.svg"):
        (directory / name).unlink()
    world.run_lab("experiment", "pages", "--out", tmp_path)
    page = (directory / "README.md").read_text()
    assert page == (PAGES / "daos-metadata" / "README.md").read_text()
    # Values of the paper, and its method of that time and not of this program's.
    assert "143200" in page
    assert "paper: create" in (directory / "metadata.svg").read_text()
    run = json.loads((directory / "run.json").read_text())
    assert run["method"] in page
    (directory / "run.json").write_text(json.dumps({**run, "method": "As it was done then."}))
    world.run_lab("experiment", "pages", "--out", tmp_path)
    assert "As it was done then." in (directory / "README.md").read_text()


@pytest.mark.parametrize("words", [("check-claims",), ("run", "--check-claims")])
def test_claims_are_held_against_the_table_beside_them(world, tmp_path, words):
    directory = tmp_path / "daos-metadata"
    shutil.copytree(PAGES / "daos-metadata", directory)
    # Words of its own: those of the page are written anew whenever it is measured anew.
    made = next(row["create_per_s"] for row in rows_of(directory) if row["processes"] == "64")
    text = f"With 64 processes {made} files are made in a second"
    expression = "at(.processes == 64; .create_per_s)"
    (directory / "discussion.md").write_text(f"{text}.\n")
    (directory / "claims.toml").write_text(
        f"[[claim]]\ntext = '{text}'\nexpression = '{expression}'\nvalue = {made}\n"
    )
    world.run_lab("experiment", "pages", "daos-metadata", "--out", tmp_path)

    def check():
        return world.run_lab("experiment", *words, "--out", tmp_path, check=False)

    good = check()
    assert good.returncode == 0, good.stdout + good.stderr
    assert "daos-metadata: " in good.stdout
    assert ", 0 failures" in good.stdout

    table = directory / "results.csv"
    kept = table.read_text()
    # So many files with 64 processes as nobody makes.
    table.write_text("".join(re.sub(r"^64,[^,]*", "64,9e9", line) for line in kept.splitlines(True)))
    wrong = check()
    assert wrong.returncode == 1
    assert text in wrong.stdout
    assert expression in wrong.stdout
    assert f"not {made}" in wrong.stdout

    table.write_text(kept)
    (directory / "claims.toml").unlink()
    without = check()
    assert without.returncode != 0
    assert "claims.toml" in without.stderr


@pytest.mark.parametrize("kind", ["io", "md"])
def test_access_paths_are_held_against_the_native_one(world, kind):
    pool = world.pool(memory=True)
    paths = ("fuse", "fuse+data", "preload")
    sheet = world.json(
        *("bench", kind, "--pool", pool.name, "--quick", "--processes", "2"),
        *("--via", ",".join(paths)),
    )
    rows = {row["name"]: row for row in sheet["rows"]}
    native = [name for name in rows if ":" not in name and not name.startswith("ref_")]
    assert native
    for name in native:
        for path in paths:
            row = rows[f"{path}:{name}"]
            assert row["reference_name"] == name
            assert row["value"] > 0
            assert row["reference"] == pytest.approx(rows[name]["value"])
            assert row["ratio"] == pytest.approx(row["value"] / row["reference"], rel=0.01)
    assert "azekura-bench" not in world.run("fs", "ls", f"{pool.name}:/").stdout


def test_access_paths_lead_to_pools_only(world, tmp_path):
    done = world.run("bench", "md", "--path", tmp_path, "--via", "fuse", check=False)
    assert done.returncode == 2
    assert "--via" in done.stderr
