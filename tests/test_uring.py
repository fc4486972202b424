"""Mounts whose requests go over io_uring: what programs see is as over /dev/fuse, and nothing that
waits, dies or goes holds up the others."""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time

import pytest
from pools import is_mounted, kill_hard, uring_switch, wait_until

# Waits for a lock, adds a letter to a file and lets go. All of them on one processor: there is one
# queue for each.
LOCKER = """
import fcntl, os, sys
os.sched_setaffinity(0, [0])
lock = open(sys.argv[1], "r+")
print("waits", flush=True)
getattr(fcntl, sys.argv[3])(lock, fcntl.LOCK_EX)
with open(sys.argv[2], "ab") as log:
    log.write(b"x")
"""
LOCKERS = 40


@pytest.fixture
def uring():
    with uring_switch("Y"):
        yield


def is_over_uring(mount):
    """Whether the process of a mount has threads for queues."""
    tasks = f"/proc/{mount.pid()}/task"
    names = (open(f"{tasks}/{task}/comm").read() for task in os.listdir(tasks))
    return any(name.startswith("fuse-queue") for name in names)


def test_the_switch_decides_and_what_to_do_is_told(world):
    pool = world.pool(memory=True)
    with uring_switch("N"):
        mount = pool.mount(transport="auto")
        assert not is_over_uring(mount)
        assert "echo Y > /sys/module/fuse/parameters/enable_uring" in world.log_text()
        mount.umount()
        refused = world.base / "refused"
        refused.mkdir()
        done = world.run("mount", "--transport", "uring", pool.name, refused, check=False)
        assert done.returncode != 0
        assert "echo Y > /sys/module/fuse/parameters/enable_uring" in done.stderr
        assert not is_mounted(refused)
        findings = {each["what"]: each for each in world.json("doctor", check=False)["findings"]}
        assert "echo Y" in findings["FUSE over io_uring"]["text"]
    with uring_switch("Y"):
        mount.mount()
        assert is_over_uring(mount)
        device = pool.mount(transport="device")
        assert not is_over_uring(device)
    # Whoever has begun goes on when it is switched off.
    (mount / "file").write_text("still there")
    assert (device / "file").read_text() == "still there"
    mount.umount()
    assert not is_mounted(mount)


@pytest.mark.usefixtures("uring")
def test_long_reads_and_writes_keep_every_byte(world):
    mount = world.pool(memory=True).mount(transport="uring")
    data = os.urandom(9_000_001)
    (mount / "file").write_bytes(data)
    assert (mount / "file").read_bytes() == data
    with open(mount / "file", "rb", buffering=0) as file:
        assert os.pread(file.fileno(), 3_000_000, 1_234_567) == data[1_234_567:4_234_567]
    os.setxattr(mount / "file", "user.long", data[:60_000])
    assert os.getxattr(mount / "file", "user.long") == data[:60_000]
    names = {f"{'n' * 200}{number}" for number in range(500)}
    for name in names:
        (mount / name).touch()
    assert set(os.listdir(mount)) == names | {"file"}


@pytest.mark.usefixtures("uring")
@pytest.mark.parametrize("kind", ["lockf", "flock"])
def test_waiting_for_locks_leaves_room_for_those_who_unlock(world, kind):
    mount = world.pool(memory=True).mount(transport="uring")
    (mount / "lock").touch()
    log = mount / "log"
    log.touch()
    hold = [sys.executable, "-c", LOCKER + "sys.stdin.read()\n", mount / "lock", log, kind]
    command = [sys.executable, "-c", LOCKER, mount / "lock", log, kind]
    holder = subprocess.Popen(hold, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    lockers = []
    try:
        wait_until(lambda: log.read_bytes() == b"x", "the lock is held")
        lockers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(LOCKERS)]
        for locker in lockers:
            assert locker.stdout.readline() == b"waits\n"
        time.sleep(0.5)
        assert log.read_bytes() == b"x"
        # Some give up, some are killed.
        for locker, how in zip(lockers[:6], [signal.SIGTERM, signal.SIGKILL] * 3, strict=True):
            locker.send_signal(how)
            assert locker.wait(20) == -how
        assert all(locker.poll() is None for locker in lockers[6:])
        holder.stdin.close()
        assert holder.wait(20) == 0
        for locker in lockers[6:]:
            assert locker.wait(60) == 0
        assert log.read_bytes() == b"x" * (LOCKERS - 5)
    finally:
        for child in [holder, *lockers]:
            child.kill()
            child.wait(20)


@pytest.mark.usefixtures("uring")
def test_a_mount_ends_while_somebody_waits(world):
    pool = world.pool(memory=True)
    mount = pool.mount(transport="uring")
    (mount / "lock").touch()
    with open(mount / "lock") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        waits = subprocess.Popen(["flock", mount / "lock", "true"])
        time.sleep(0.5)
        server = mount.pid()
        os.kill(server, signal.SIGTERM)
        wait_until(lambda: not is_mounted(mount), "the mount is gone")
        # Who has something open keeps it.
        assert waits.poll() is None
    assert waits.wait(20) == 0
    wait_until(lambda: not os.path.exists(f"/proc/{server}"), "the process has ended")


@pytest.mark.usefixtures("uring")
def test_the_death_of_its_process_ends_what_is_asked_and_the_mount_comes_back(world):
    pool = world.pool(memory=True)
    mount = pool.mount(transport="uring")
    (mount / "lock").touch()
    held = os.open(mount / "lock", os.O_RDWR)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        waits = subprocess.Popen(["flock", mount / "lock", "true"], stderr=subprocess.DEVNULL)
        time.sleep(0.3)
        kill_hard(mount.pid())
        assert waits.wait(20) != 0
        with pytest.raises(OSError, match=r"not connected|aborted"):
            (mount / "new").touch()
    finally:
        with contextlib.suppress(OSError):
            os.close(held)
    mount.umount(check=False)
    mount.mount()
    assert is_over_uring(mount)
    assert (mount / "lock").exists()


@pytest.mark.usefixtures("uring")
def test_an_engine_that_is_away_holds_up_a_mount_no_longer_than_it_is_away(world):
    pool = world.pool()
    mount = pool.mount(transport="uring")
    (mount / "file").write_text("one")
    pool.kill()
    # More than a queue has threads.
    command = ["sh", "-c", 'cat "$1" && echo two >> "$1"-$$', "sh", mount / "file"]
    asking = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(20)]
    time.sleep(1)
    pool.up()
    for child in asking:
        assert child.communicate(timeout=60)[0] == b"one"
        assert child.returncode == 0
