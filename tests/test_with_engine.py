"""What the process of an engine serves for other commands: mounts of `azekura run`, and NFS gateways."""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import nfs_protocol as p
import pytest
from gateways import OPEN, Gateway, build_conformance, export, run_conformance, write_as_a_client
from pools import World, alive, kill_hard, need_namespaces, wait_until

PREFIX = "/azekura"
USER = 1000 if os.geteuid() == 0 else None
WITH_ENGINE = "--with-engine"
WRITES_AND_WAITS = f"echo here > {PREFIX}/kept; echo begun; read word; cat {PREFIX}/kept"


@pytest.fixture(params=[USER, None] if USER else [None], ids=lambda user: "user" if user else "self")
def anybody(request):
    """A world of an ordinary user, and one of whoever runs the tests."""
    need_namespaces(request.param)
    with World(user=request.param) as world:
        yield world


def run(pool, *command, options=(), **more):
    words = ["run", "--pool", pool.name, WITH_ENGINE, *options, "--", *map(str, command)]
    return pool.world.run(*words, check=False, **more)


def start(pool, *command, options=(), **more):
    """A command that goes on, with pipes."""
    child = subprocess.Popen(
        pool.world.command("run", "--pool", pool.name, WITH_ENGINE, *options, "--", *command),
        env=pool.world.environment,
        text=True,
        **{
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            **pool.world.identity,
            **more,
        },
    )
    pool.world.children.append(child)
    return child


def names_of(pid):
    """The command lines of a process's children, by process."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {int(child): Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0") for child in children}


def serves(pool):
    """How many mounts of commands the engine has open."""
    descriptors = Path(f"/proc/{pool.pids()[0]}/fd")
    count = 0
    for entry in descriptors.iterdir():
        with contextlib.suppress(OSError):
            count += os.readlink(entry) == "/dev/fuse"
    return count


# --- Commands ------------------------------------------------------------------------------------


def test_a_command_is_served_by_the_engine(anybody):
    pool = anybody.pool(memory=True)
    script = f"""
        cd {PREFIX} && mkdir -p a/b && echo text > a/b/file && ln a/b/file link && mv a/b a/c
        dd if=/dev/urandom of=big bs=1M count=9 2> /dev/null && sha256sum < big > sum
        sha256sum < big | cmp - sum && stat -c %U:%s a/c/file && exit 7
    """
    done = run(pool, "sh", "-ec", script)
    assert done.returncode == 7, done.stderr
    assert done.stdout.endswith(":5\n")
    assert anybody.run("fs", "cat", f"{pool.name}:/a/c/file").stdout == "text\n"
    # No process but the engine's has served it, and nothing is left of it there.
    child = start(pool, "cat")
    wait_until(lambda: serves(pool) == 1, "the engine serves the command")
    assert all(b"run-serve" not in words for words in names_of(child.pid).values())
    child.communicate("", timeout=30)
    assert child.returncode == 0
    wait_until(lambda: serves(pool) == 0, "the engine has let go of the mount")
    wait_until(lambda: pool.status()["engines"][0]["connections"] <= 1, "the sessions are over")
    pool.check()


def test_what_a_command_leaves_behind_goes_on(anybody):
    pool = anybody.pool(memory=True)
    script = f"(sleep 2; echo late > {PREFIX}/late) > /dev/null 2>&1 & echo begun"
    begun = time.monotonic()
    done = run(pool, "sh", "-c", script)
    assert done.returncode == 0 and done.stdout == "begun\n", done.stderr
    assert time.monotonic() - begun < 2

    def late():
        return anybody.run("fs", "cat", f"{pool.name}:/late", check=False).stdout == "late\n"

    wait_until(late, "what was left in the background has written")
    wait_until(lambda: serves(pool) == 0, "the engine has let go of the mount")


def test_many_commands_at_once(anybody):
    pool = anybody.pool(memory=True)
    loop = f"for i in $(seq 50); do echo $i > {PREFIX}/$0-$i; done; cat {PREFIX}/$0-* | wc -l"
    children = [start(pool, "sh", "-ec", loop, f"n{number}") for number in range(8)]
    for child in children:
        out, error = child.communicate(timeout=60)
        assert (child.returncode, out.strip()) == (0, "50"), error
    wait_until(lambda: serves(pool) == 0, "the engine has let go of the mounts")
    assert len(anybody.run("fs", "ls", f"{pool.name}:/").stdout.split()) == 400


def test_library_and_mount_together(anybody):
    pool = anybody.pool(memory=True)
    script = f"echo one > {PREFIX}/f; echo two >> {PREFIX}/f; cat {PREFIX}/f"
    done = run(pool, "sh", "-ec", script, options=("--via", "fuse+data"))
    assert (done.returncode, done.stdout) == (0, "one\ntwo\n"), done.stderr
    refused = run(pool, "true", options=("--via", "preload"))
    assert refused.returncode == 2 and WITH_ENGINE in refused.stderr


def test_a_command_whose_engine_is_killed_says_so(anybody):
    pool = anybody.pool()
    child = start(pool, "sh", "-c", WRITES_AND_WAITS)
    assert child.stdout.readline() == "begun\n"
    kill_hard(pool.pids()[0])
    _, error = child.communicate("go on\n", timeout=60)
    assert child.returncode == 1
    assert "has ended" in error, error
    pool.up()
    assert anybody.run("fs", "cat", f"{pool.name}:/kept").stdout == "here\n"


def test_an_engine_that_is_stopped_ends_a_command_s_mount(anybody):
    pool = anybody.pool()
    child = start(pool, "sh", "-c", WRITES_AND_WAITS)
    assert child.stdout.readline() == "begun\n"
    pool.down()
    _, error = child.communicate("go on\n", timeout=60)
    assert child.returncode == 1 and "has ended" in error, error
    pool.up()
    assert anybody.run("fs", "cat", f"{pool.name}:/kept").stdout == "here\n"


def test_an_engine_that_starts_anew_keeps_a_command_s_mount(anybody):
    pool = anybody.pool()
    script = f"exec 3> {PREFIX}/f; echo one >&3; echo begun; read word; echo two >&3; cat {PREFIX}/f"
    child = start(pool, "sh", "-ec", script)
    assert child.stdout.readline() == "begun\n"
    os.kill(pool.pids()[0], signal.SIGUSR1)
    wait_until(lambda: "starting anew" in anybody.log_text(), "the engine starts anew")
    out, error = child.communicate("go on\n", timeout=60)
    assert (child.returncode, out) == (0, "one\ntwo\n"), error


def test_a_command_needs_an_engine_of_its_own_user_here(anybody):
    pool = anybody.pool()
    pool.down()
    done = run(pool, "echo", "ran", limit_s=100)
    assert done.returncode not in (0, 127) and "ran" not in done.stdout
    assert "no engine" in done.stderr and WITH_ENGINE in done.stderr


def test_a_killed_front_leaves_nothing_with_the_engine(anybody):
    pool = anybody.pool(memory=True)
    child = start(pool, "sh", "-c", "echo begun; exec sleep 100")
    assert child.stdout.readline() == "begun\n"
    (command,) = names_of(child.pid)
    assert serves(pool) >= 1
    child.kill()
    child.wait(10)
    wait_until(lambda: not alive(command), "the command has ended with it")
    wait_until(lambda: serves(pool) == 0, "the engine has let go of the mount")
    assert run(pool, "ls", PREFIX).returncode == 0


# --- Gateways ------------------------------------------------------------------------------------


def addresses(pool):
    return {gateway["address"]: gateway for gateway in pool.status()["gateways"]}


def test_a_gateway_is_served_by_the_engine(world):
    pool = world.pool()
    gateway = Gateway(world, pool, WITH_ENGINE, exports=OPEN)
    with gateway.share() as share:
        data = os.urandom(3 << 20)
        status, handle, *_ = share.create(share.root(), "file")
        assert status == p.OK
        write_as_a_client(share, handle, data)
        mount = pool.mount()
        assert (mount / "file").read_bytes() == data
        (mount / "other").write_text("seen by all")
        status, handle, *_ = share.lookup(share.root(), "other")
        assert status == p.OK
        # It is told of as the command's, which ends it.
        (found,) = addresses(pool).values()
        assert found["pid"] == gateway.child.pid and found["connections"] == 1
    assert world.run("down", pool.name, "--destroy", "--yes", check=False).returncode != 0
    assert gateway.stop() == (0, "")
    assert addresses(pool) == {}
    # The next one knows the handles of this one.
    gateway.start()
    with gateway.share() as share:
        assert share.getattr(handle)[0] == p.OK
    assert gateway.stop() == (0, "")
    pool.check()


@pytest.mark.limit(300)
def test_every_procedure_in_the_engine_s_own_process(world, tmp_path):
    program = build_conformance(tmp_path)
    pool = world.pool()
    gateway = Gateway(world, pool, WITH_ENGINE, exports=OPEN)
    run_conformance(program, gateway, "/")
    assert gateway.stop() == (0, "")
    pool.check()


def test_exports_are_read_again_by_the_engine(world):
    pool = world.pool(memory=True)
    (pool.mount() / "data").mkdir()
    gateway = Gateway(world, pool, WITH_ENGINE, exports=export("/"))
    gateway.reload(export("/data"))
    wait_until(lambda: [one["exports"] for one in addresses(pool).values()] == [["/data"]], "reloaded")
    gateway.exports.write_text("nonsense")
    gateway.child.send_signal(signal.SIGHUP)
    time.sleep(0.5)
    assert [one["exports"] for one in addresses(pool).values()] == [["/data"]]
    assert gateway.stop() == (0, "")


def test_a_gateway_ends_with_its_command_or_its_engine(world):
    pool = world.pool()
    gateway = Gateway(world, pool, WITH_ENGINE)
    gateway.kill()
    wait_until(lambda: addresses(pool) == {}, "the gateway of a killed command has ended")
    # Where it was somebody may be a moment longer than told of.
    gateway.start("127.0.0.1:0")
    out = pool.down()
    assert "its engine did that" in out.stderr, out.stderr
    gateway.child.wait(30)
    assert gateway.child.returncode == 1 and "stopped" in gateway.log.read_text()
    pool.up()
    gateway.start("127.0.0.1:0")
    kill_hard(pool.pids()[0])
    gateway.child.wait(30)
    assert gateway.child.returncode == 1 and "ended without a word" in gateway.log.read_text()


def test_a_gateway_in_the_background_starts_a_pool_that_is_down(world):
    pool = world.pool()
    pool.down()
    done = world.run("nfs", pool.name, WITH_ENGINE, "--background", "--listen", "127.0.0.1:0")
    assert "started" in done.stdout and "ready: nfs://127.0.0.1:" in done.stdout, done.stdout
    (found,) = addresses(pool).values()
    assert str(found["pid"]) in done.stderr
    os.kill(found["pid"], signal.SIGTERM)
    wait_until(lambda: not alive(found["pid"]), "the command has ended")
    assert addresses(pool) == {} and len(pool.pids()) == 1


def test_an_address_that_is_taken_is_told_of(world):
    pool = world.pool(memory=True)
    first = Gateway(world, pool, WITH_ENGINE)
    where = f"127.0.0.1:{first.port}"
    done = world.run("nfs", pool.name, WITH_ENGINE, "--listen", where, check=False)
    assert done.returncode == 1 and where in done.stderr and "--listen" in done.stderr
    done = world.run("nfs", pool.name, WITH_ENGINE, "--listen", where, "--background", check=False)
    assert done.returncode == 1 and where in done.stderr
    assert first.stop() == (0, "")


def test_whose_engine_is_elsewhere_is_told_so(world):
    engines = world.engines(1)
    engines.stop(0)
    done = world.run("nfs", engines.pool.name, WITH_ENGINE, "--listen", "127.0.0.1:0", check=False)
    assert done.returncode == 1 and "no engine" in done.stderr and WITH_ENGINE in done.stderr
