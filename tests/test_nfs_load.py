"""The program that puts a load on NFS servers: that it does what it reports, on several gateways, and
notices wrong bytes; and the experiments that it serves. Nothing is said here about speed."""

import csv
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from gateways import OPEN, Gateway
from pools import LAB, ROOT, alive, wait_until

SOURCES = ROOT / "tests" / "material" / "nfs_load"
FLAGS = ["-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread"]
SCRATCH = "azekura-bench-"
needs_client = pytest.mark.skipif(
    shutil.which("cc") is None or not Path("/usr/include/nfsc/libnfs-raw.h").exists(),
    reason="needs a C compiler and libnfs-dev",
)
pytestmark = needs_client


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    """Runs the program, built; gives what it reports."""
    program = tmp_path_factory.mktemp("nfs_load") / "nfs_load"
    subprocess.run(
        ["cc", *FLAGS, "-o", program, *sorted(SOURCES.glob("*.c")), "-lnfs"], check=True, timeout=60
    )

    def run(*options, check=True, limit_s=60):
        done = subprocess.run(
            [str(word) for word in [program, *options]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
        assert (done.returncode == 0) == check, done.stderr
        return json.loads(done.stdout) if check else done.stderr

    return run


def url(gateway):
    return f"nfs://{gateway.host}:{gateway.port}/?mountport={gateway.mount_port}"


def test_every_phase_with_clients_of_two_gateways(load, world):
    pool = world.pool(memory=True)
    gateways = [Gateway(world, pool, exports=OPEN) for _ in range(2)]
    phases = "null,write,read:64KiB,rewrite:8KiB,read,random-read,create,lookup,getattr,remove"
    options = ["--phases", phases, "--clients", 3, "--size", "3MiB", "--files", 50, "--reads", 70]
    report = load(*options, *map(url, gateways))
    assert report["clients"] == 3
    found = {(each["phase"], each.get("block")): each for each in report["phases"]}
    for (phase, block), count in {
        ("null", None): 70,
        ("write", 1 << 20): 3,
        ("read", 64 << 10): 48,
        ("rewrite", 8 << 10): 384,
        ("read", 1 << 20): 3,
        ("random-read", 4 << 10): 70,
        ("create", None): 50,
        ("lookup", None): 50,
        ("getattr", None): 50,
        ("remove", None): 50,
    }.items():
        each = found.pop((phase, block))
        assert each["operations"] == 3 * count, each
        assert each["per_second"] == pytest.approx(3 * count / each["seconds"], rel=0.01)
        times = each["latency_us"]
        assert 0 < times["p50"] <= times["p99"] <= times["max"] <= 1e6 * each["seconds"]
        if block is not None:
            assert each["transfer"] == block
            assert each["bytes"] == 3 * count * block
    assert not found
    # It has taken away what it has made.
    assert world.run("fs", "ls", f"{pool.name}:/").stdout == ""
    pool.check()


def test_wrong_bytes_are_noticed(load, world, tmp_path):
    pool = world.pool(memory=True)
    gateway = Gateway(world, pool, exports=OPEN)
    options = ["--size", "1MiB", "--keep", url(gateway)]
    load("--phases", "write", *options)
    load("--phases", "read", *options)
    copy = tmp_path / "c0.data"
    world.run("fs", "get", f"{pool.name}:/nfs_load/c0.data", copy)
    damaged = bytearray(copy.read_bytes())
    assert len(damaged) == 1 << 20
    damaged[300 * 1024 + 5] ^= 1
    copy.write_bytes(damaged)
    world.run("fs", "put", copy, f"{pool.name}:/nfs_load/c0.data")
    assert f"wrong bytes at {300 * 1024}" in load("--phases", "read", *options, check=False)


def test_blocks_are_no_larger_than_the_server_takes(load, world):
    gateway = Gateway(world, world.pool(memory=True), "--block", "64KiB", exports=OPEN)
    report = load("--phases", "write,read", "--size", "1MiB", url(gateway))
    for each in report["phases"]:
        assert (each["block"], each["transfer"], each["operations"]) == (1 << 20, 64 << 10, 16)


def test_a_mount_that_is_refused_is_an_error(load, world):
    gateway = Gateway(world, world.pool(memory=True), exports=OPEN)
    wrong = url(gateway).replace("/?", "/nosuch?")
    assert "refused" in load("--phases", "null", wrong, check=False)


# --- Experiments ----------------------------------------------------------------------------------


def rows_of(directory):
    with open(directory / "results.csv", newline="") as file:
        return list(csv.DictReader(file))


def nothing_is_left(world, pid):
    def scratch():
        return [path for path in Path("/dev/shm").glob(f"{SCRATCH}*") if f"-{pid}-" in path.name]

    wait_until(lambda: not scratch(), "nothing is left in memory")
    wait_until(lambda: not any(alive(pid) for pid in world.processes()), "no process is left")


@pytest.mark.root
@pytest.mark.limit(240)
def test_every_experiment(world, tmp_path):
    child = world.start(
        *("experiment", "run", "nfs-bandwidth", "nfs-paper", "--quick", "--out", tmp_path), program=LAB
    )
    assert child.wait(220) == 0, child.log.read_text()
    nothing_is_left(world, child.pid)
    for name in ("nfs-bandwidth", "nfs-paper"):
        page = (tmp_path / name / "README.md").read_text()
        assert f"\n`{name}`: " in page
        assert "missing" not in page
        for plot in (tmp_path / name).glob("*.svg"):
            assert f"({plot.name})" in page
    for row in rows_of(tmp_path / "nfs-bandwidth"):
        assert float(row["write_mb_per_s"]) > 0
        # No more than the clients' links carry.
        assert 0 < float(row["read_mb_per_s"]) < 25 * int(row["clients"])
    kinds = {row["gateway"]: row for row in rows_of(tmp_path / "nfs-paper")}
    # Linux delays an acknowledgement by 40 ms; an answer that is written whole does not wait for one.
    for call in ("write_ms", "create_ms"):
        assert float(kinds["paper"][call]) > 20
        assert float(kinds["8KiB"][call]) < float(kinds["paper"][call]) / 2
    assert float(kinds["shipped"]["write_mb_per_s"]) > 5 * float(kinds["paper"]["write_mb_per_s"])


@pytest.mark.root
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_was_cut_short_leaves_nothing(world, tmp_path, how):
    command = ["experiment", "run", "nfs-bandwidth", "--quick", "--out", tmp_path]
    csv_file = tmp_path / "nfs-bandwidth" / "results.csv"
    child = world.start(*command, program=LAB)
    wait_until(lambda: csv_file.exists() and csv_file.read_text().count("\n") > 2, "points", limit_s=60)
    os.kill(child.pid, how)
    child.wait(40)
    nothing_is_left(world, child.pid)
