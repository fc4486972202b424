"""Engines killed at random moments: whatever was answered is there afterwards, and a change that was
under way happened as a whole or not at all."""

import copy
import fcntl
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from crash_writer import replay
from pools import MARK, is_mounted, kill_hard, wait_until
from tree_model import File

HERE = Path(__file__).parent
WRITERS = 3


@pytest.fixture
def rng(request):
    """Random moments; the seed is printed when the test fails."""
    seed = int(os.environ.get("AZEKURA_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"AZEKURA_SEED={seed}")
    return random.Random(seed)


class Writers:
    """Processes that change one directory each and keep journals."""

    def __init__(self, world, mount, rng, place="crash", chunk_bytes=None):
        self.world = world
        self.mount = mount
        self.rng = rng
        self.place = place
        for number in range(WRITERS):
            directory = mount / self.directory(number)
            directory.mkdir(parents=True)
            if chunk_bytes:
                os.setxattr(directory, "user.azekura.chunk_size", str(chunk_bytes).encode())
        self.children = []

    def directory(self, number):
        return f"{self.place}/w{number}"

    def journal(self, number):
        return self.world.base / f"{self.place}-{number}.journal"

    def start(self):
        self.children = [
            subprocess.Popen(
                [
                    sys.executable,
                    HERE / "crash_writer.py",
                    self.mount / self.directory(number),
                    self.journal(number),
                    str(self.rng.randrange(1 << 32)),
                ],
                env=dict(os.environ, **{MARK: str(self.world.base)}),
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for number in range(WRITERS)
        ]
        # What counts is the time at work, not that of starting an interpreter.
        before = self.operations()
        wait_until(lambda: self.operations() >= before + 5 * WRITERS, "the writers are at work")

    def stop(self, limit_s=60):
        """Lets each writer finish what it is at; gives the exit codes."""
        for child in self.children:
            child.stdin.close()
        codes = []
        for child in self.children:
            codes.append(child.wait(limit_s))
            message = child.stderr.read()
            child.stderr.close()
            assert codes[-1] in (0, 3), message
        return codes

    def operations(self):
        journals = [self.journal(number) for number in range(WRITERS)]
        return sum(path.read_text().count("\nD") for path in journals if path.exists())

    def verify_all(self, mount):
        """After a run in which nothing may fail: each tree is what its journal says."""
        for number in range(WRITERS):
            tree, begun, errors = replay(self.journal(number))
            assert not errors, f"writer {number}: {errors}"
            assert begun is None
            wrong = tree.differences(mount / self.directory(number))
            assert not wrong, f"writer {number}:\n" + "\n".join(wrong)

    def verify_or_last(self, mount):
        """After a run in which the client died too: the last change may have happened or not. The
        journals then go on from what is there."""
        for number in range(WRITERS):
            tree, begun, _ = replay(self.journal(number))
            path = mount / self.directory(number)
            found = settle(tree, begun, path)
            if isinstance(found, list):
                raise AssertionError(f"writer {number}, last {begun}:\n" + "\n".join(found))
            rewrite(self.journal(number), begun if found == "done" else None, found)


def settle(tree, begun, path):
    """Whether the operation that was begun is `done`, `undone` or `partly` done, or else what is
    wrong with both."""
    without = tree.differences(path)
    if not without:
        return "undone"
    if begun is None:
        return without
    after = copy.deepcopy(tree)
    after.apply(begun)
    with_it = after.differences(path)
    if not with_it:
        return "done"
    if begun[0] in ("create", "write", "append", "truncate") and is_partial(tree, after, begun, path):
        return "partly"
    return ["it is not as before:", *without, "nor as after:", *with_it]


def is_partial(before, after, begun, path):
    """Whether the file of the operation is partly as before and partly as after, and all else is
    as it must be. A write that was never answered may have come in part."""
    directory, name = before.find(begun[1])
    old = bytes(directory[name].data) if name in directory else b""
    other, _ = after.find(begun[1])
    new = bytes(other[name].data)
    try:
        found = (path / begun[1]).read_bytes()
    except FileNotFoundError:
        return False
    if len(found) > max(len(old), len(new)):
        return False
    for place, byte in enumerate(found):
        candidates = {data[place] for data in (old, new) if place < len(data)} | {0}
        if byte not in candidates:
            return False
    other[name].data = bytearray(found)
    return not after.differences(path)


def rewrite(journal, done, verdict):
    """Makes the journal say what came of the operation that was under way."""
    lines = [line for line in journal.read_text().splitlines(keepends=True) if line.endswith("\n")]
    while lines and lines[-1][0] in "BE":
        last = lines.pop()
        if last[0] == "B" and done:
            lines += [last, "D\n"]
    assert verdict != "partly" or not done
    journal.write_text("".join(lines))


def repair_partial(writers, mount):
    """A partly written file is removed, so that the journal can go on without it."""
    for number in range(WRITERS):
        tree, begun, _ = replay(writers.journal(number))
        if begun and settle(tree, begun, mount / writers.directory(number)) == "partly":
            path = mount / writers.directory(number) / begun[1]
            directory, name = tree.find(begun[1])
            if name in directory and isinstance(directory[name], File):
                path.write_bytes(directory[name].data)
            else:
                path.unlink()


@pytest.mark.limit(400)
@pytest.mark.parametrize(("chunk_bytes", "kills"), [(None, 8), (4096, 6)])
def test_engine_killed_under_a_mount(world, rng, chunk_bytes, kills):
    """The client lives on and sends again: no program on the mount notices but by the wait."""
    pool = world.pool()
    mount, witness = pool.mount(), pool.mount(cache="none")
    writers = Writers(world, mount, rng, chunk_bytes=chunk_bytes)
    for _ in range(kills):
        writers.start()
        time.sleep(rng.uniform(0.15, 0.9))
        pool.kill()
        time.sleep(rng.choice((0, 0, 0.3)))
        pool.up()
        time.sleep(rng.uniform(0.05, 0.3))
        assert writers.stop() == [0] * WRITERS
        writers.verify_all(witness)
        pool.check()
    writers.verify_all(mount)
    assert writers.operations() > 40 * kills


@pytest.mark.limit(400)
def test_engine_and_client_killed_together(world, rng):
    """What was answered is there; what was not is there as a whole or not at all: never both names
    of a rename, and never none."""
    pool = world.pool()
    mount = pool.mount()
    writers = Writers(world, mount, rng)
    for _ in range(8):
        writers.start()
        time.sleep(rng.uniform(0.15, 0.9))
        victims = [*pool.pids(), mount.pid()]
        rng.shuffle(victims)
        for pid in victims:
            kill_hard(pid)
        writers.stop()
        pool.up()
        mount.umount()
        wait_until(lambda: not is_mounted(mount.path), "the dead mount is gone")
        mount.mount()
        repair_partial(writers, mount)
        writers.verify_or_last(mount)
        pool.check()
    assert writers.operations() > 300


@pytest.mark.limit(400)
def test_engines_of_a_larger_pool_killed_one_by_one(world, rng):
    """Three engines, so that most changes of names go over sockets between them."""
    engines = world.engines(3, targets=2)
    pool = engines.pool
    mount, witness = pool.mount(), pool.mount(cache="none")
    writers = Writers(world, mount, rng)
    for number in range(8):
        writers.start()
        time.sleep(rng.uniform(0.15, 0.8))
        victims = rng.sample(range(3), 3 if number % 4 == 3 else 1)
        for victim in victims:
            engines.kill(victim)
        time.sleep(rng.choice((0, 0.2)))
        for victim in victims:
            engines.start(victim)
        time.sleep(rng.uniform(0.05, 0.3))
        assert writers.stop() == [0] * WRITERS
        writers.verify_all(witness)
        wait_until(lambda: pool.run_check().returncode == 0, "the check is clean", limit_s=15)
    writers.verify_all(mount)


@pytest.mark.limit(200)
def test_files_put_without_a_mount_survive(world, rng):
    """Files written by the command line, the engine killed right after it has returned."""
    pool = world.pool()
    source = world.base / "source"
    for number in range(5):
        data = rng.randbytes(rng.randrange(1, 3_000_000))
        source.write_bytes(data)
        world.run("fs", "put", source, f"{pool.name}:/file{number}")
        pool.kill()
        pool.up()
        back = world.base / "back"
        world.run("fs", "get", f"{pool.name}:/file{number}", back)
        assert back.read_bytes() == data
        back.unlink()
    pool.check()


def test_a_truncation_outlasts_an_earlier_append(world):
    """What an append has on record must not bring back what was cut off after it."""
    pool = world.pool()
    mount = pool.mount(cache="none")
    for chunk_bytes in (1 << 20, 4096):
        place = mount / f"chunk{chunk_bytes}"
        place.mkdir()
        os.setxattr(place, "user.azekura.chunk_size", str(chunk_bytes).encode())
        with open(place / "cut", "ab", buffering=0) as file:
            file.write(b"x" * 20_000)
        os.truncate(place / "cut", 1000)
        with open(place / "gone", "ab", buffering=0) as file:
            file.write(b"x" * 20_000)
        os.unlink(place / "gone")
        with open(place / "kept", "ab", buffering=0) as file:
            file.write(b"x" * 20_000)
        pool.kill()
        pool.up()
        assert (place / "cut").read_bytes() == b"x" * 1000
        assert (place / "kept").read_bytes() == b"x" * 20_000
        assert not (place / "gone").exists()
    pool.check()


def test_open_files_and_locks_survive_an_engine(world):
    """A client that lives on keeps what it has open, also without a name, and what it has locked."""
    pool = world.pool()
    mount, other = pool.mount(), pool.mount()
    path = mount / "open"
    with open(path, "w+b", buffering=0) as file, open(mount / "lock", "w+b") as locked:
        file.write(b"data" * 1000)
        os.unlink(path)
        fcntl.flock(locked, fcntl.LOCK_EX)
        for _ in range(3):
            pool.kill()
            time.sleep(0.3)
            pool.up()
            # The mount is idle; others ask first, and until the grace of 5 s is over.
            waits = subprocess.run(["flock", "-w", "7", other / "lock", "true"], check=False)
            assert waits.returncode == 1, "the lock is still held"
            assert os.pread(file.fileno(), 5000, 0)[:4000] == b"data" * 1000
            file.write(b"more")
            waits = subprocess.run(["flock", "-w", "1", other / "lock", "true"], check=False)
            assert waits.returncode == 1, "the lock is still held"
        assert os.fstat(file.fileno()).st_size == 4012
    done = subprocess.run(["flock", "-w", "20", other / "lock", "true"], check=False)
    assert done.returncode == 0
    assert not (other / "open").exists()
    wait_until(lambda: pool.run_check().returncode == 0, "the check is clean", limit_s=15)


@pytest.mark.limit(400)
def test_engines_that_start_anew_in_their_process(world, rng):
    """As an engine does that has to take commits back; here it has none of these. Nothing is lost,
    and no program notices but by the wait."""
    engines = world.engines(2, targets=2)
    pool = engines.pool
    mount, witness = pool.mount(), pool.mount(cache="none")
    writers = Writers(world, mount, rng)
    for _ in range(3):
        writers.start()
        for _ in range(3):
            time.sleep(rng.uniform(0.1, 0.5))
            rng.choice(engines.children).send_signal(signal.SIGUSR1)
        time.sleep(rng.uniform(0.3, 0.6))
        assert writers.stop() == [0] * WRITERS
        writers.verify_all(witness)
        # Data of removed files go when the engines reach each other again.
        wait_until(lambda: pool.run_check().returncode == 0, "the check is clean", limit_s=15)
    assert all(child.poll() is None for child in engines.children)
    logs = "".join(child.log.read_text() for child in engines.children)
    assert logs.count("starting anew") >= 3


FREEZES = int(os.environ.get("AZEKURA_FREEZES", "4"))


@pytest.mark.limit(120 + 60 * FREEZES)
def test_engines_that_are_frozen_inside_transactions(world, rng):
    """An engine stands still for 6 to 20 s, others or the same one are killed meanwhile, now and then.
    Whoever waits too long gets an error, and then his change has happened as a whole or not at all.
    `AZEKURA_FREEZES` says how often; a longer soak has 200."""
    engines = world.engines(3, targets=1)
    pool = engines.pool
    mount = pool.mount()
    writers = Writers(world, mount, rng)
    for number in range(FREEZES):
        writers.start()
        time.sleep(rng.uniform(0.05, 0.5))
        frozen = rng.randrange(3)
        engines.children[frozen].send_signal(signal.SIGSTOP)
        time.sleep(rng.uniform(6, 8 if number % 4 else 20))
        victims = rng.sample(range(3), rng.choice((0, 0, 1)))
        for victim in victims:
            engines.kill(victim)
        if frozen not in victims:
            engines.children[frozen].send_signal(signal.SIGCONT)
        for victim in victims:
            engines.start(victim)
        time.sleep(rng.uniform(0.5, 1.5))
        writers.stop()
        wait_until(lambda: pool.run_check().returncode == 0, "the check is clean", limit_s=30)
        repair_partial(writers, mount)
        writers.verify_or_last(mount)
    assert writers.operations() > 20 * FREEZES
