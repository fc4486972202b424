"""Programs under the preload library where something is wrong: the pool, the prefix, the variables."""

import os
import shutil
import subprocess
import textwrap
import time

import pytest
from pools import World
from preloading import PREFIX, Preloading, compile_c

# An ordinary user, where the tests themselves are run by root.
USER = 1000 if os.geteuid() == 0 else None
# One that anybody may run.
PYTHON = shutil.which("python3", path="/usr/bin:/bin:/usr/local/bin") or "python3"


@pytest.fixture
def door():
    """A pool of its own, and the library, for an ordinary user."""
    with World(user=USER) as world:
        yield Preloading(world.pool(memory=True))


def run(door, *command, **more):
    return door.run(*command, check=False, cwd="/tmp", **door.pool.world.identity, **more)


def test_a_pool_that_is_gone_at_the_start(door):
    door.pool.kill()
    script = f"echo before; cat {PREFIX}/file; echo $?; ls -d /tmp; echo > {PREFIX}/new; echo $?"
    done = run(door, "bash", "-c", script)
    assert done.returncode == 0
    assert done.stdout.split() == ["before", "1", "/tmp", "1"]
    assert done.stderr.count("Input/output error") == 2
    report = door.report.read_text()
    assert "could not be served" in report
    assert door.pool.name in report


def test_a_pool_that_goes_in_the_middle_and_comes_back(door):
    script = f"""
        import errno, os, sys
        fd = os.open("{PREFIX}/file", os.O_CREAT | os.O_RDWR)
        assert os.write(fd, b"first") == 5
        print("ready", flush=True)
        sys.stdin.readline()
        for attempt in (lambda: os.write(fd, b"lost"), lambda: os.stat("{PREFIX}/file")):
            try:
                attempt()
                print("no error")
            except OSError as error:
                print(errno.errorcode[error.errno], flush=True)
        assert os.path.isdir("/tmp")
        sys.stdin.readline()
        assert os.pwrite(fd, b"again", 5) == 5
        assert os.pread(fd, 100, 0) == b"firstagain"
        print("well", flush=True)
        """
    with subprocess.Popen(
        [PYTHON, "-c", textwrap.dedent(script)],
        env=door.environment(),
        cwd="/tmp",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        **door.pool.world.identity,
    ) as program:
        try:
            assert program.stdout.readline() == "ready\n"
            door.pool.kill()
            start = time.monotonic()
            program.stdin.write("\n")
            program.stdin.flush()
            assert program.stdout.readline() == "EIO\n"
            assert program.stdout.readline() == "EIO\n"
            assert time.monotonic() - start < 30
            door.pool.up()
            program.stdin.write("\n")
            program.stdin.flush()
            assert program.stdout.readline() == "well\n"
            assert program.wait(30) == 0
        finally:
            program.kill()


def test_a_prefix_in_a_loop_of_symlinks(door):
    loop = door.pool.world.base / "loop"
    loop.symlink_to(loop)
    inside = Preloading(door.pool, prefix=str(loop / "azekura"))
    script = f"echo text > {loop}/azekura/file; cat {loop}/azekura/../azekura/file; ls {loop}/; echo $?"
    done = run(inside, "bash", "-c", script)
    assert done.stdout.split() == ["text", "2"], done.stderr
    assert "Too many levels of symbolic links" in done.stderr


def test_symlinks_that_lead_into_each_other(door):
    """A symlink of the host to one in the pool that leads back again and again."""
    out, back = door.pool.world.base / "out", f"{PREFIX}/back"
    out.symlink_to(back)
    run(door, "ln", "-s", out, back)
    done = run(door, "cat", out)
    assert done.returncode == 1
    assert "Too many levels of symbolic links" in done.stderr


@pytest.mark.parametrize(
    ("variables", "line"),
    [
        ({"AZEKURA_PREFIX": "relative/path"}, "AZEKURA_PREFIX"),
        ({"AZEKURA_PREFIX": "/"}, "AZEKURA_PREFIX"),
        ({"AZEKURA_PREFIX": "/a/../b"}, "AZEKURA_PREFIX"),
        ({"AZEKURA_INTERCEPT": "banana"}, "AZEKURA_INTERCEPT"),
        ({"AZEKURA_POOL": "/no/such/pool.toml"}, "/no/such/pool.toml"),
        ({"AZEKURA_POOL": "azekura://"}, "could not be served"),
        ({"AZEKURA_CONTAINER": "none-such"}, "none-such"),
        ({"AZEKURA_CONTAINER": b"\xff\xfe"}, "AZEKURA_CONTAINER"),
        ({"AZEKURA_BIN": "\x01"}, "intercepted"),
        ({"AZEKURA_CWD": "/../../nowhere"}, "intercepted"),
    ],
)
def test_nonsense_in_the_variables(door, variables, line):
    done = run(door, "bash", "-c", f"ls {PREFIX}; echo alive", environment=variables)
    assert "alive" in done.stdout
    assert done.returncode == 0
    assert line in door.report.read_text()


def test_reports_that_cannot_be_written(door):
    odd = f"{door.pool.world.base}/%p%p%"
    for report in ["/", "/no/such/directory/report", "", odd, "/dev/full"]:
        done = run(door, "ls", PREFIX, environment={"AZEKURA_REPORT": report})
        assert done.returncode == 0
        assert (done.stdout, done.stderr) == ("", "")


def test_children_of_a_process_whose_threads_work(door):
    """By fork, vfork and posix_spawn, while other threads are anywhere in the library, begin and end.
    Many short runs: at the beginning everything is made for the first time."""
    program = compile_c("forks", door.pool.world.base)
    assert run(door, "bash", "-c", f"echo some text > {PREFIX}/file").returncode == 0
    for children in [8] * 15 + [600]:
        done = run(door, program, f"{PREFIX}/file", str(children), limit_s=60)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "some text\n" * (children * 3 // 4)


def test_no_word_without_a_report(door):
    environment = {name: value for name, value in door.environment().items() if "REPORT" not in name}
    door.pool.kill()
    done = subprocess.run(
        ["bash", "-c", f"exec 2> /dev/null; cat {PREFIX}/file; true"],
        env=environment,
        cwd="/tmp",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
        **door.pool.world.identity,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
