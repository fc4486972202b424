"""What is started in the background from a terminal: it outlives that, and is not meant by what is typed
there."""

import os
import pty
import select
import signal
import time

from pools import BINARY, Mount, alive, wait_until


def hear(terminal, wanted, limit_s=30.0):
    """What the terminal shows, up to some word."""
    heard, deadline = b"", time.monotonic() + limit_s
    while wanted not in heard:
        left = deadline - time.monotonic()
        assert left > 0 and select.select([terminal], [], [], left)[0], heard
        heard += os.read(terminal, 4096)
    return heard


def in_terminal(world, script):
    """A shell that leads a session with a terminal and runs a script: its process, and the terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe("/bin/sh", ["sh", "-c", script], world.environment)
    return pid, terminal


def test_what_runs_in_the_background_outlives_its_terminal(world):
    pool = world.pool(memory=True)
    pool.down()
    mount = Mount(pool, world.base / "mount", "auto", (), None)
    mount.path.mkdir()
    world.mounts.append(mount)
    up = f"{BINARY} up --name {pool.name} && {BINARY} mount {pool.name} {mount.path}"
    shell, terminal = in_terminal(world, f"{up} && echo all is up && sleep 60")
    hear(terminal, b"all is up")
    [engine] = pool.pids()
    # So that the kernel takes it and those who ask it for one, where it shares the processors out.
    assert os.getsid(engine) == shell
    assert os.getpgid(engine) == engine
    os.write(terminal, b"\x03")
    _, status = os.waitpid(shell, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGINT
    os.close(terminal)
    (mount.path / "file").write_text("still there")
    assert (mount.path / "file").read_text() == "still there"
    mount.umount()
    assert pool.pids() == [engine]
    pool.down()
    wait_until(lambda: not alive(engine), "the engine has ended")
