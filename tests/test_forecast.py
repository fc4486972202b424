"""Forecasts through the command line: published figures, choices, and files that say nothing clear."""

import json
import re
from pathlib import Path

import pytest

PUBLISHED = Path(__file__).resolve().parent.parent / "share" / "forecast"
HSFS = PUBLISHED / "hsfs.toml"

JOB = """\
name = "nightly"
processes = {processes}
nodes = {nodes}
[[phase]]
name = "split"
pattern = "split"
bytes_in = "{gib} GiB"
ratio = 1.0
files_out = 500
record_bytes = 1024
buffer_bytes = "2 MiB"
"""


@pytest.fixture
def place(world):
    """A directory of files that goes with the test."""
    place = world.storage / "forecast"
    place.mkdir()
    return place


def written(place, text, name="JOB.toml"):
    path = place / name
    path.write_text(text)
    return path


def job(place, processes=1, nodes=1, more=""):
    text = JOB.format(processes=processes, nodes=nodes, gib=2 * nodes)
    return written(place, text + more)


def test_published_figures_come_out(world, place):
    found = world.json("forecast", job(place), "--fs", HSFS, "--model", "paper")
    assert f"{found['seconds']:.1f}" == "78.8"
    assert f"{found['mib_per_s']:.1f}" == "52.0"
    before = world.json("forecast", job(place), "--fs", HSFS, "--model", "conventional")
    assert f"{before['seconds']:.1f}" == "56.8"
    for name, seconds in ("hsfs", 407.6), ("nfs", 668.7):
        fs = PUBLISHED / f"{name}.toml"
        found = world.json("forecast", job(place, 8, 4), "--fs", fs, "--model", "paper")
        # The paper rounds in between.
        assert found["seconds"] == pytest.approx(seconds, rel=0.002)


def test_json_has_what_scripts_rely_on(world, place):
    found = world.json("forecast", job(place, 8, 4), "--fs", HSFS)
    assert found["model"] == "full"
    assert found["low"] < found["seconds"] < found["high"]
    assert found["bottleneck"] in {"reading", "writing", "path", "server", "metadata", "compute"}
    assert [phase["name"] for phase in found["phases"]] == ["split"]
    assert found["phases"][0]["seconds"] == pytest.approx(found["seconds"])
    assert {"processes", "nodes", "seconds", "low", "high"} <= found["best"].keys()
    assert isinstance(found["outside"], list)
    assert "another machine" in found["warnings"][0]
    least = min(one["seconds"] for one in found["sweep"])
    assert found["best"]["seconds"] <= 1.02 * least


def test_a_deadline_chooses_the_cheapest_and_says_whether_it_is_met(world, place):
    arguments = ["forecast", job(place, 8, 4), "--fs", HSFS, "--model", "paper"]
    relaxed = world.json(*arguments, "--deadline", "02:00")
    assert relaxed["deadline"] == 7200
    assert (relaxed["best"]["deadline"], relaxed["best"]["processes"]) == ("met", 1)
    assert world.json(*arguments, "--deadline", "1s")["best"]["deadline"] == "missed"
    text = world.run(*arguments, "--deadline", "2h").stdout
    assert "the cheapest that ends within 2h00m" in text
    swept = world.json(*arguments, "--sweep", "1..3", "--sweep", "nodes=2")["sweep"]
    assert [(one["nodes"], one["processes"]) for one in swept] == [(2, 1), (2, 2), (2, 3)]


def test_what_lies_outside_is_said_and_not_chosen(world, place):
    path = job(place, 64, 4)
    found = world.json("forecast", path, "--fs", HSFS)
    outside = {one["quantity"]: one for one in found["outside"]}
    assert outside["processes"]["value"] == 64
    assert outside["processes"]["measured"] == [1, 8]
    assert found["best"]["processes"] <= 8
    done = world.run("forecast", path, "--fs", HSFS)
    assert "outside of what was measured: processes 64 (measured: 1 to 8)" in done.stdout
    assert "calibrated on another machine" in done.stderr


def test_tables_of_numbers_and_pictures(world, place):
    arguments = ["forecast", job(place), "--fs", HSFS, "--sweep", "1,2,4,8"]
    world.run(*arguments, "--csv", place / "f.csv", "--plot", place / "plots")
    lines = (place / "f.csv").read_text().splitlines()
    assert lines[0].startswith("nodes,processes,seconds,")
    assert len(lines) == 5
    for name in "time.svg", "throughput.svg":
        assert "<svg" in (place / "plots" / name).read_text()


@pytest.mark.parametrize(
    ("old", "new", "line", "key", "what"),
    [
        ("processes = 1\n", "processes = 0\n", 2, "processes", "1 or more"),
        ("nodes = 1\n", "ndoes = 1\n", 3, "ndoes", "unknown field"),
        ('bytes_in = "2 GiB"', "bytes_in = 0", 7, "phase[0].bytes_in", "nothing is read"),
        ('bytes_in = "2 GiB"', "bytes_in = -4", 7, "phase[0].bytes_in", "0 or more"),
        ('bytes_in = "2 GiB"', "bytes_in = 100_000", 9, "phase[0].files_out", "records"),
        ("ratio = 1.0\n", "ratio = -1.0\n", 8, "phase[0].ratio", "0 or more"),
        ("ratio = 1.0\n", "ratio = 1.0\nbytes_out = 5\n", 8, "phase[0].ratio", "one of them"),
        ("files_out = 500", "files_out = 0", 9, "phase[0].files_out", "0 files"),
        ("record_bytes = 1024\n", "", 4, "phase[0]", "missing field `record_bytes`"),
        ('pattern = "split"', 'pattern = "simple"', 9, "phase[0].files_out", "writes one file"),
        ('pattern = "split"', 'pattern = "spilt"', 6, "phase[0].pattern", "unknown variant"),
        ("[[phase]]", "[[phase]", 4, "", ""),
    ],
)
def test_a_job_that_is_not_clear_is_refused(world, place, old, new, line, key, what):
    text = JOB.format(processes=1, nodes=1, gib=2)
    assert old in text
    path = written(place, text.replace(old, new))
    refuse(world, ["forecast", path, "--fs", HSFS], path, line, key, what)


@pytest.mark.parametrize(
    ("old", "new", "key", "what"),
    [
        ("read_mib_per_s = 95.3 ", "read_mib_per_s = 0 ", "sequential.read_mib_per_s", "above 0"),
        ("read_mib_per_s = 95.3 ", "read_mib_per_s = -1 ", "sequential.read_mib_per_s", "above 0"),
        ("read_mib_per_s = 95.3 ", "reed_mib_per_s = 9 ", "sequential.reed_mib_per_s", "unknown"),
        ("files = [1, 500]", "files = [9, 1]", "range.files", "the least first"),
        ("format = 1", "format = 2", "format", "format 1"),
        ("split_s_per_file = 0.044", "split_s_per_file = -1", "metadata.split_s_per_file", "0 or"),
    ],
)
def test_a_calibration_that_is_not_clear_is_refused(world, place, old, new, key, what):
    text = HSFS.read_text()
    assert old in text
    text = text.replace(old, new)
    line = 1 + text[: text.index(new)].count("\n")
    path = written(place, text, "FS.toml")
    refuse(world, ["forecast", job(place), "--fs", path], path, line, key, what)


def refuse(world, arguments, path, line, key, what):
    done = world.run(*arguments, check=False)
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert done.stderr.startswith(f"azekura: {path}:{line}: {key}"), done.stderr
    assert what in done.stderr
    assert "panicked" not in done.stderr


def test_wrong_usage_and_failures_are_told_apart(world, place):
    path = job(place)
    for arguments in (
        [],
        [path],
        [path, "--fs", HSFS, "--deadline", "soon"],
        [path, "--fs", HSFS, "--deadline", "0s"],
        [path, "--fs", HSFS, "--sweep", "0"],
        [path, "--fs", HSFS, "--model", "best"],
        [path, "--fs", HSFS, "--check", path],
    ):
        done = world.run("forecast", *arguments, check=False)
        assert done.returncode == 2, arguments
    for arguments in [place / "none", "--fs", HSFS], [path, "--fs", place / "none"]:
        done = world.run("forecast", *arguments, check=False)
        assert done.returncode == 1
        assert "cannot read" in done.stderr
    # ext3 was published without anything about more processes.
    fs = PUBLISHED / "ext3.toml"
    done = world.run("forecast", job(place, 8), "--fs", fs, "--model", "paper", check=False)
    assert done.returncode == 1
    assert "[random]" in done.stderr


def runs(place, factor, here):
    """Measured runs of the split, of which those over many files took longer than forecast."""
    measured = []
    for files, forecast_s in (1, 56.8), (100, 61.2), (500, 78.8):
        phase = {
            "pattern": "split",
            "bytes_in": 2 << 30,
            "ratio": 1.0,
            "files_out": files,
            "record_bytes": 1024,
            "buffer_bytes": 2 << 20,
        }
        seconds = forecast_s + (factor - 1) * 0.044 * files
        measured.append({"name": f"{files}", "job": {"phase": [phase]}, "seconds": [seconds] * 3})
    machine = {"host": "of the paper", "processor": "2 x Intel Xeon E5405 at 2.00 GHz"}
    machine |= {"processors": 8, "memory_bytes": 8 << 30}
    if not here:
        machine["host"] = "elsewhere"
    text = json.dumps({"format": 1, "machine": machine, "runs": measured})
    return written(place, text, "RUN.json")


def test_runs_are_held_against_forecasts(world, place):
    good = world.json("forecast", "--check", runs(place, 1, True), "--fs", HSFS)
    assert good["median_error"] < 0.01
    assert good["culprit"] is None
    assert good["warnings"] == []
    assert {other["model"] for other in good["others"]} == {"paper", "conventional"}

    path = runs(place, 3, False)
    off = world.json("forecast", "--check", path, "--fs", HSFS)
    assert off["culprit"]["key"] == "metadata.split_s_per_file"
    assert off["culprit"]["factor"] == pytest.approx(3, rel=0.1)
    assert "elsewhere" in off["warnings"][0]
    done = world.run("forecast", "--check", path, "--fs", HSFS)
    assert re.search(r"off: metadata.split_s_per_file. With (2\.9|3\.0)", done.stdout)
    assert "calibrated on another machine" in done.stderr

    broken = written(place, path.read_text().replace("seconds", "secs"), "RUN.json")
    done = world.run("forecast", "--check", broken, "--fs", HSFS, check=False)
    assert done.returncode == 2
    assert f"{broken}:1: unknown field `secs`" in done.stderr
