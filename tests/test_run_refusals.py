"""What `azekura run` says of wrong names, before or instead of running the command by the library."""

import subprocess

import pytest
from pools import BINARY


@pytest.fixture
def pool(world):
    return world.pool(memory=True)


def run(pool, *words):
    return subprocess.run(
        [BINARY, "run", *words],
        env=pool.world.environment,
        check=False,
        timeout=60,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("via", ["auto", "preload", "fuse"])
def test_a_container_that_is_not_there_is_named(pool, via):
    done = run(pool, "--via", via, "--pool", f"{pool.name}/missing", "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"pool '{pool.name}' has no container 'missing'" in done.stderr


def test_the_command_runs_though_nobody_says_whether_its_container_is_there(pool):
    pool.kill()
    done = run(pool, "--pool", f"{pool.name}/missing", "--", "echo", "ran")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")


def test_a_report_in_a_missing_directory_is_refused(pool, tmp_path):
    report = tmp_path / "missing" / "report"
    done = run(pool, "--report", report, "--pool", pool.name, "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (1, "")
    assert str(report) in done.stderr


def test_what_was_asked_for_is_said_too(pool):
    words = ["-v", "--pool", pool.name, "--via", "preload", "--", "true"]
    assert "true via preload: as asked" in run(pool, *words).stderr
