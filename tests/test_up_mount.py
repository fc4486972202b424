"""Mounts that the process of an engine serves itself."""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pools import CommandError, World, alive, is_mounted, kill_hard, wait_until

MIB = 1 << 20
LOCK = """
import fcntl, sys
file = open(sys.argv[1], "r+")
fcntl.lockf(file, fcntl.LOCK_EX)
print("has it", flush=True)
sys.stdin.read()
"""


def directory(world, name="own"):
    path = world.base / name
    path.mkdir(exist_ok=True)
    return path


@pytest.fixture
def own(world):
    """A pool and the path at which its engine has it mounted."""
    path = directory(world)
    pool = world.pool(extra=("--mount", path))
    assert is_mounted(path), "the command came back before the mount was ready"
    return pool, path


def pattern(count, seed):
    return bytes((index * 31 + seed) % 251 for index in range(4096)) * (count // 4096)


def names_error(call, *arguments):
    with pytest.raises(OSError) as caught:
        call(*arguments)
    return errno.errorcode[caught.value.errno]


def test_other_clients_see_at_once_what_is_done_there(world, own):
    pool, path = own
    other = pool.mount(cache="none")
    assert len(pool.pids()) == 1
    for mount, seen in ((path, other.path), (other.path, path)):
        place = mount / f"from-{mount.name}"
        place.mkdir()
        for size in (0, 4096, 3 * MIB, 9 * MIB):
            (place / f"{size}").write_bytes(pattern(size, 3))
            there = seen / place.name / f"{size}"
            assert there.stat().st_size == size
            assert there.read_bytes() == pattern(size, 3)
        with (
            open(place / "record", "ab", buffering=0) as one,
            open(seen / place.name / "record", "ab", buffering=0) as two,
        ):
            for number in range(50):
                one.write(b"one %03d\n" % number)
                two.write(b"two %03d\n" % number)
        lines = (place / "record").read_text().splitlines()
        assert len(lines) == 100
        assert [line for line in lines if line.startswith("two")] == [
            f"two {number:03}" for number in range(50)
        ]
        os.truncate(place / f"{9 * MIB}", 5 * MIB + 7)
        assert os.stat(seen / place.name / f"{9 * MIB}").st_size == 5 * MIB + 7
        os.rename(place / "record", place / "moved")
        assert (seen / place.name / "moved").exists()
        os.link(place / "moved", place / "link")
        assert os.stat(seen / place.name / "link").st_nlink == 2
        os.symlink("moved", place / "sym")
        assert (seen / place.name / "sym").read_text().startswith("one 000")
        assert names_error(os.rmdir, seen / place.name) == "ENOTEMPTY"
        command = world.run("fs", "cat", f"{pool.name}:/{place.name}/4096")
        assert len(command.stdout) > 0
    pool.check()


def test_a_lock_is_waited_for_within_the_process_and_across(world, own):
    """The one that waits and the one that lets go are threads of one process, and the engine's."""
    pool, path = own
    other = pool.mount()
    (path / "file").write_text("x")
    for first, second in ((path, path), (path, other.path), (other.path, path)):
        holder = open(first / "file", "r+")
        fcntl.lockf(holder, fcntl.LOCK_EX)
        waiters = [
            subprocess.Popen(
                [sys.executable, "-c", LOCK, second / "file"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(6)
        ]
        try:
            # While all of them wait the mount goes on.
            for number in range(20):
                (path / f"beside-{number}").write_text("y")
            holder.close()
            for _ in waiters:
                ready = []
                # Whichever has it says so; it is told to end then.
                wait_until(
                    lambda ready=ready: ready.extend(
                        w for w in waiters if not w.stdin.closed and holds(w)
                    )
                    or ready,
                    "one of those that wait has the lock",
                )
                ready[0].stdin.close()
                assert ready[0].wait(10) == 0
        finally:
            for waiter in waiters:
                waiter.kill()
                waiter.wait(10)


def holds(waiter):
    os.set_blocking(waiter.stdout.fileno(), False)
    return bool(waiter.stdout.buffer.read())


def test_many_threads_at_once(own):
    pool, path = own
    other = pool.mount()
    errors = []

    def work(number):
        try:
            base = (path, other.path)[number % 2] / f"d{number % 3}"
            base.mkdir(exist_ok=True)
            for turn in range(30):
                name = base / f"{number}-{turn}"
                name.write_bytes(pattern(8192, turn))
                os.rename(name, base / f"{number}-now")
                assert (base / f"{number}-now").read_bytes() == pattern(8192, turn)
                os.listdir(base)
            with open(path / "all", "ab", buffering=0) as file:
                for turn in range(30):
                    file.write(b"%02d %02d\n" % (number, turn))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert not errors, errors[0]
    assert len((other.path / "all").read_text().splitlines()) == 360
    pool.check()


def test_the_engine_goes_on_when_its_mount_is_gone(world, own):
    pool, path = own
    (path / "file").write_text("kept")
    pids = pool.pids()
    assert [str(path)] == pool.status()["mounts"]
    done = world.run("umount", path)
    assert "unmounted" in done.stdout
    assert not is_mounted(path)
    assert pool.pids() == pids
    assert world.run("fs", "cat", f"{pool.name}:/file").stdout == "kept"
    other = pool.mount(path=path)
    assert (other / "file").read_text() == "kept"
    other.umount()
    # It is mounted again when that is asked for, and not before.
    done = world.run("up", "--name", pool.name, "--mount", path)
    assert f"mounted at {path}" in done.stdout
    assert pool.pids() == pids and is_mounted(path)
    pool.down()
    assert not is_mounted(path)
    done = pool.up()
    assert f"mounted at {path}" in done.stdout
    assert (path / "file").read_text() == "kept"
    assert f"mounted at {path}" in pool.up().stdout
    # As an ordinary tool takes it away.
    subprocess.run(["umount", path], check=True, timeout=30)
    assert len(pool.pids()) == 1
    wait_until(lambda: pool.status()["engines"][0]["connections"] == 1, "the session is over")


def test_a_running_engine_is_asked_to_mount_and_its_clients_do_not_notice(world):
    pool = world.pool()
    other = pool.mount()
    held = open(other / "held", "w+")
    fcntl.lockf(held, fcntl.LOCK_EX)
    pids = pool.pids()
    first, second = directory(world, "first"), directory(world, "a second one")
    world.run("container", "create", "apart", "--pool", pool.name)
    done = world.run("mount", pool.name, first, "--with-engine", "--cache", "none")
    assert f"by its engine (process {pids[0]})" in done.stdout
    world.run("mount", f"{pool.name}/apart", second, "--with-engine", "-o", "ro")
    assert pool.pids() == pids
    assert sorted(pool.status()["mounts"]) == sorted(map(str, (other.path, first, second)))
    (first / "file").write_text("seen by all")
    assert (other / "file").read_text() == "seen by all"
    assert os.listdir(second) == [] and names_error(os.mkdir, second / "x") == "EROFS"
    lock = [sys.executable, "-c", LOCK.replace("LOCK_EX", "LOCK_EX | fcntl.LOCK_NB"), first / "held"]
    done = subprocess.run(lock, check=False, capture_output=True, stdin=subprocess.DEVNULL)
    assert done.returncode != 0, "the lock of the other mount is gone"
    # One goes, the others stay.
    world.run("umount", second)
    assert is_mounted(first) and (first / "file").read_text() == "seen by all"
    # A second time there is nothing to be done; and no directory of its own is one to mount at.
    again = world.run("mount", pool.name, first, "--with-engine", check=False)
    assert again.returncode != 0 and "already" in again.stderr
    inside = Path(pool.directory) / "targets"
    refused = world.run("mount", pool.name, inside, "--with-engine", check=False)
    assert refused.returncode != 0 and "apart" in refused.stderr, refused.stderr
    unknown = world.run("mount", f"{pool.name}/none", second, "--with-engine", check=False)
    assert unknown.returncode != 0 and "none" in unknown.stderr and not is_mounted(second)
    held.close()
    done = pool.down()
    assert not is_mounted(first) and "unmounted" in done.stdout


def test_a_pool_that_is_down_is_started_to_mount_it(world):
    pool = world.pool()
    path = directory(world)
    pool.down()
    done = world.run("mount", pool.name, path, "--with-engine")
    assert "started" in done.stdout and "by its engine" in done.stdout
    (path / "file").write_text("x")
    assert world.run("fs", "cat", f"{pool.name}:/file").stdout == "x"
    assert len(pool.pids()) == 1


def test_whose_engine_is_not_here_is_told_so(world):
    """Engines of a pool over several hosts, of which none is here; and one that is."""
    engines = world.engines(2)
    path = directory(world)
    world.run("mount", engines.pool.name, path, "--with-engine")
    (path / "file").write_text("x")
    world.run("umount", path)
    for number in range(2):
        engines.stop(number)
    done = world.run("mount", engines.pool.name, path, "--with-engine", check=False)
    assert done.returncode != 0
    assert "no engine" in done.stderr and "--with-engine" in done.stderr
    assert not is_mounted(path)


def test_an_engine_asked_to_mount_keeps_that_through_a_new_start(world):
    pool = world.pool()
    path = directory(world)
    world.run("mount", pool.name, path, "--with-engine")
    with open(path / "gone", "w+") as file:
        file.write("still open")
        file.flush()
        os.unlink(path / "gone")
        os.kill(pool.pids()[0], signal.SIGUSR1)
        for number in range(20):
            (path / f"f{number}").write_text(f"{number}")
        file.seek(0)
        assert file.read() == "still open"
    second = directory(world, "second")
    world.run("mount", pool.name, second, "--with-engine")
    assert (second / "f7").read_text() == "7"


@pytest.mark.root
def test_what_took_the_place_of_a_mount_is_left_alone(world, own):
    pool, path = own
    held = os.open(path / "file", os.O_RDWR | os.O_CREAT)
    try:
        world.run("umount", "--lazy", path)
        subprocess.run(["mount", "-t", "tmpfs", "none", path], check=True, timeout=30)
        (path / "other").write_text("x")
        pool.down()
        assert (path / "other").read_text() == "x"
    finally:
        subprocess.run(["umount", path], check=False, timeout=30)
        # The engine that served it has ended.
        with contextlib.suppress(OSError):
            os.close(held)


def test_an_old_mount_that_ends_late_is_not_taken_for_the_new_one(world, own):
    pool, path = own
    with open(path / "file", "w"):
        world.run("umount", "--lazy", path)
        world.run("mount", pool.name, path, "--with-engine")
    wait_until(lambda: "unmounted" in pool.world.log_text(), "the old one has ended")
    with open(path / "file", "w"):
        done = world.run("down", pool.name, check=False)
        assert done.returncode != 0 and "in use" in done.stderr, done.stderr
    (path / "file").write_text("x")
    inner = path / "inner"
    inner.mkdir()
    world.run("mount", pool.name, inner, "--with-engine")
    assert pool.down().stdout.count("unmounted") == 2


def test_down_takes_the_mount_away_unless_it_is_in_use(world, own):
    pool, path = own
    pid = pool.pids()[0]
    with open(path / "file", "w") as file:
        file.write("x")
        for command in (("umount", path), ("down", pool.name)):
            done = world.run(*command, check=False)
            assert done.returncode != 0 and "in use" in done.stderr, done.stderr
        assert alive(pid) and is_mounted(path)
    done = pool.down()
    assert "unmounted" in done.stdout and "stopped" in done.stdout
    assert not is_mounted(path) and not alive(pid)
    pool.up()
    assert (path / "file").read_text() == "x"
    pool.down("--destroy", "--yes")
    assert not is_mounted(path)


def test_a_signal_ends_the_engine_though_its_mount_is_in_use(own):
    pool, path = own
    pid = pool.pids()[0]
    file = os.open(path / "file", os.O_RDWR | os.O_CREAT)
    os.write(file, b"x")
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not alive(pid), "the engine ends", limit_s=30)
    assert not is_mounted(path)
    assert names_error(os.fsync, file) in ("ENOTCONN", "ECONNABORTED", "ECANCELED", "EIO")
    with contextlib.suppress(OSError):
        os.close(file)
    pool.up()
    assert (path / "file").read_text() == "x"
    pool.check()


def test_what_was_answered_is_there_after_a_kill(world, own):
    pool, path = own
    other = pool.mount()
    for number in range(20):
        (path / f"file-{number}").write_bytes(pattern(300 * 4096, number))
    os.rename(path / "file-0", path / "moved")
    held = open(other / "held", "w+")
    held.write("by a client that lives")
    held.flush()
    os.unlink(path / "held")
    kill_hard(pool.pids()[0])
    # The last one: a request that the kernel has just given to a ring whose process is gone.
    assert names_error(os.listdir, path) in ("ENOTCONN", "ECONNABORTED", "ECANCELED")
    # Without the option the mount stays dead, and that is said.
    done = world.run("up", "--name", pool.name, "--dir", pool.directory)
    assert str(path) in done.stderr and "azekura umount" in done.stderr
    assert pool.status()["dead_mounts"] == [str(path)]
    assert str(path) in world.run("doctor", check=False).stdout
    assert (other / "moved").read_bytes() == pattern(300 * 4096, 0)
    kill_hard(pool.pids()[0])
    # With it it is cleaned up.
    pool.up()
    assert is_mounted(path)
    for number in range(1, 20):
        assert (path / f"file-{number}").read_bytes() == pattern(300 * 4096, number)
    held.seek(0)
    assert held.read() == "by a client that lives"
    held.close()
    assert pool.status()["dead_mounts"] == []
    pool.check()


def test_an_engine_that_starts_anew_keeps_its_mount_and_what_is_open_there(own):
    """As one does whose last commits were taken back: in the same process."""
    pool, path = own
    pid = pool.pids()[0]
    with open(path / "gone", "w+") as file, open(path / "locked", "w+") as locked:
        fcntl.lockf(locked, fcntl.LOCK_EX)
        file.write("still open")
        file.flush()
        os.unlink(path / "gone")
        for _ in range(3):
            os.kill(pid, signal.SIGUSR1)
            for number in range(20):
                (path / f"f{number}").write_text(f"{number}")
        wait_until(lambda: "anew" in pool.world.log_text(), "it has started anew")
        assert [(path / f"f{number}").read_text() for number in range(20)] == [
            f"{number}" for number in range(20)
        ]
        file.seek(0)
        assert file.read() == "still open"
        done = subprocess.run(
            [sys.executable, "-c", LOCK.replace("LOCK_EX", "LOCK_EX | fcntl.LOCK_NB"), path / "locked"],
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode != 0, "another one got the lock"
    assert pool.pids() == [pid]
    pool.check()


def test_engines_of_other_processes_are_reached_by_sockets(world):
    engines = world.engines(3)
    path = directory(world)
    engines.stop(1)
    engines.extra = ["--mount", str(path)]
    engines.start(1)
    wait_until(lambda: is_mounted(path), "mounted")
    other = engines.pool.mount(cache="none")
    for number in range(30):
        (path / f"f{number}").write_bytes(pattern(3 * MIB if number % 5 == 0 else 4096, number))
        os.rename(path / f"f{number}", path / f"g{number}")
    for number in range(30):
        size = 3 * MIB if number % 5 == 0 else 4096
        assert (other / f"g{number}").read_bytes() == pattern(size, number)
        os.truncate(other / f"g{number}", 10)
        assert os.stat(path / f"g{number}").st_size in (10, size)
    # One of the others goes away and comes back.
    engines.kill(2)
    engines.extra = []
    engines.start(2)
    assert sorted(os.listdir(path)) == sorted(f"g{number}" for number in range(30))
    for number in range(30):
        os.unlink(path / f"g{number}")
    assert os.listdir(other) == []
    engines.pool.check()
    assert engines.stop(1) == 0
    assert not is_mounted(path)


def test_engines_that_start_together_wait_for_each_other(world):
    engines = world.engines(2)
    paths = [directory(world, "one"), directory(world, "two")]
    for number in (0, 1):
        engines.stop(number)
    # The first one's containers are at the other engine.
    for number in (1, 0):
        engines.extra = ["--mount", str(paths[number])]
        engines.start(number)
    for path in paths:
        wait_until(lambda path=path: is_mounted(path), f"{path} mounted", limit_s=40)
    for number in range(20):
        (paths[number % 2] / f"f{number}").write_text(f"{number}")
        assert (paths[1 - number % 2] / f"f{number}").read_text() == f"{number}"
        os.rename(paths[1] / f"f{number}", paths[1] / f"g{number}")
    assert engines.stop(0) == 0 and engines.stop(1) == 0


def test_what_cannot_be_mounted_is_refused_and_leaves_nothing(world):
    base = world.storage / "pool"
    base.mkdir()
    for mount, words in (
        (base, "apart"),
        (world.storage, "apart"),
        (world.base / "none", "make the directory first"),
    ):
        done = world.run("up", "--name", "p", "--dir", base, "--mount", mount, check=False)
        assert done.returncode != 0 and words in done.stderr, done.stderr
        assert list(base.iterdir()) == [] and list(world.processes()) == []
    child = world.start(
        "serve", "--dir", base, "--listen", f"unix:{base}/s", "--mount", directory(world)
    )
    assert child.wait(30) != 0
    assert "azekura pool create" in child.log.read_text()


@pytest.mark.root
@pytest.mark.skipif(not shutil.which("fusermount3"), reason="needs fusermount3")
def test_an_ordinary_user_has_one_too():
    with World(user=1000) as world:
        path = directory(world)
        os.chown(path, 1000, 1000)
        pool = world.pool(extra=("--mount", path))
        done = world.run("-c", f"echo mine > {path}/file; cat {path}/file", program="/bin/sh")
        assert done.stdout == "mine\n"
        with pytest.raises(CommandError, match=r"permission|access"):
            world.run("up", "--name", pool.name, "--mount", "/etc")
        world.run("umount", path)
        assert len(pool.pids()) == 1


def test_the_unit_mounts_it_too(world):
    path = directory(world)
    pool = world.pool(extra=("--mount", path, "--unit"))
    units = list((Path(world.environment["XDG_CONFIG_HOME"]) / "systemd").rglob("*.service"))
    assert len(units) == 1 and f"--mount {path}" in units[0].read_text().replace('"', "")
    assert json.loads(world.run("status", pool.name, "--json").stdout)["pools"]
