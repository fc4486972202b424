"""An MPI program with a shared file in a container, by both implementations of MPI-IO in Open MPI."""

import shutil
import subprocess

import pytest
from pools import BINARY, ROOT
from preloading import Preloading

MATERIAL = ROOT / "tests" / "material" / "mpi"
RANKS = 3
# As root it asks twice whether that is meant, and on few cores whether they may be shared.
ALLOWED = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

pytestmark = pytest.mark.skipif(shutil.which("mpicc") is None, reason="no MPI compiler")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The program, compiled."""
    built = tmp_path_factory.mktemp("mpi") / "shared_file"
    source = MATERIAL / "shared_file.c"
    command = ["mpicc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-o", built, source]
    subprocess.run(command, check=True, timeout=60)
    return built


def launcher(io):
    return ["mpirun", "--oversubscribe", "-np", RANKS, "--mca", "io", io]


@pytest.mark.limit(120)
@pytest.mark.parametrize("io", ["romio321", "ompio"])
def test_ranks_share_a_file_through_the_library(pool, program, io):
    door = Preloading(pool)
    path = door.path(f"mpi-{io}")
    done = door.run(*launcher(io), program, path, environment=ALLOWED, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert door.run("stat", "-c", "%s", path).stdout.strip() == str(8 * RANKS * (65536 + 17))


@pytest.mark.limit(120)
@pytest.mark.parametrize("via", ["preload", "fuse"])
def test_a_whole_mpi_job_runs_without_a_mount(pool, program, via):
    run = [BINARY, "run", "--pool", pool.name, "--via", via, "--"]
    command = [*run, *launcher("romio321"), program, f"/azekura/mpi-job-{via}"]
    done = subprocess.run(
        [str(word) for word in command],
        env={**pool.world.environment, **ALLOWED},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
