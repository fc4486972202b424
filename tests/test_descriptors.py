"""Preloaded programs on the engine's host read open files past the engine, through descriptors that it
passes: they find the same bytes, keep their own numbers, and go on while the engine is away."""

import contextlib
import os
import subprocess
import sys

from pools import kill_hard
from preloading import Preloading

PYTHON = os.path.realpath(sys.executable)
BLOCK = 4096
CONTENT = b"".join(number.to_bytes(8, "little") * (BLOCK // 8) for number in range(300))

# What each program begins with: the files of engines that it has open, and a file of the container that
# it has read often enough.
COMMON = """
import contextlib, os, resource, sys
path, host = sys.argv[1], sys.argv[2]
BLOCK = 4096
def passed():
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            link = os.readlink("/proc/self/fd/" + name)
            if "/data/" in link and link.startswith(sys.argv[3]):
                found.append(int(name))
    return sorted(found)
def block(number):
    return number.to_bytes(8, "little") * (BLOCK // 8)
def read(fd):
    for number in (0, 299, 5, 7, 130):
        assert os.pread(fd, BLOCK, number * BLOCK) == block(number)
def opened():
    fd = os.open(path, os.O_RDONLY)
    # All shards of it.
    read(fd)
    read(fd)
    return fd
"""

NUMBERS = """
lowest = os.open(host, os.O_RDONLY)
os.close(lowest)
assert not passed()
file = opened()
assert file == lowest, "the lowest number there is"
mine = passed()
assert mine and min(mine) > 1000, mine
for number in range(1, 20):
    assert os.open(host, os.O_RDONLY) == lowest + number, "and those after it"
for fd in mine:
    # They are not there for the program.
    for call in (os.close, lambda fd: os.dup2(file, fd)):
        try:
            call(fd)
        except OSError:
            continue
        raise SystemExit(f"{fd} is taken from the library")
os.closerange(lowest + 1, 20_000)
assert passed() == mine
read(file)
other = os.dup(file)
os.close(file)
read(other)
assert passed() == mine, "one of its numbers is left"
os.close(other)
assert not passed(), "it goes with its file"
for _ in range(3):
    file = opened()
    assert file == lowest and len(passed()) == len(mine)
    os.close(file)
"""

FAMILY = """
file = opened()
mine = passed()
for _ in range(3):
    child = os.fork()
    if child == 0:
        read(file)
        assert passed() == mine, "inherited"
        os.close(file)
        assert not passed()
        again = opened()
        assert passed(), "a child gets its own"
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    read(file)
assert passed() == mine
os.execv(sys.executable, [sys.executable, "-c", BASE + AFTER, *sys.argv[1:4], str(file)])
"""

AFTER = """
assert not passed(), "none of them comes through exec"
"""

TIGHT = """
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
files = [os.open(path, os.O_RDONLY) for _ in range(150)]
for file in files:
    read(file)
assert not passed(), "there is no room above the program's own numbers"
"""

WAITING = """
file = opened()
print("ready", flush=True)
for line in sys.stdin:
    read(file)
    print("read", os.pread(file, 8, 0).hex(), flush=True)
"""

WRITER = "import os, sys; os.pwrite(os.open(sys.argv[1], os.O_WRONLY), b'x' * 8, 0)"


def started(pool, body):
    """The words of a program that does this with the file of the pool."""
    door = Preloading(pool)
    code = f"BASE = {COMMON!r}\nAFTER = {AFTER!r}\n{COMMON}{body}"
    path = door.path("file")
    return door, [PYTHON, "-c", code, str(path), "/etc/hostname", str(pool.directory)]


def filled(world):
    """A pool with the file, in one shard that its engine lets read."""
    pool = world.pool()
    file = world.base / "content"
    file.write_bytes(CONTENT)
    world.run("fs", "put", file, f"{pool.name}:/file")
    return pool


def test_a_program_keeps_its_numbers(world):
    door, words = started(filled(world), NUMBERS)
    door.run(*words)


def test_children_go_on_and_other_programs_begin_anew(world):
    door, words = started(filled(world), FAMILY)
    door.run(*words)


def test_a_program_with_few_numbers_keeps_all_of_them(world):
    door, words = started(filled(world), TIGHT)
    door.run(*words)


def test_it_can_be_turned_off(world):
    door, words = started(filled(world), "opened()\nassert not passed()\n")
    door.run(*words, environment={"AZEKURA_DESCRIPTORS": "off"})
    on = [*words]
    on[2] = on[2].replace("assert not passed()\n", "assert passed()\n")
    for option, program in (("off", words), ("auto", on)):
        world.run(
            *("run", "--pool", door.pool.name, "--via", "preload", "--descriptors", option, "--"),
            *program,
        )


def test_reads_go_on_while_the_engine_is_away(world):
    pool = filled(world)
    door, words = started(pool, WAITING)
    program = subprocess.Popen(
        words,
        env=door.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def next_read():
        program.stdin.write("again\n")
        program.stdin.flush()
        return program.stdout.readline().split()

    try:
        assert program.stdout.readline() == "ready\n"
        assert next_read() == ["read", "00" * 8]
        for pid in pool.pids():
            kill_hard(pid)
        assert next_read() == ["read", "00" * 8]
        pool.up()
        assert next_read() == ["read", "00" * 8]
        # What the next run writes is seen, and nothing is lost of what it had to do.
        world.run("fs", "check", pool.name, limit_s=120)
        with_library = Preloading(pool)
        with_library.run(
            *(PYTHON, "-c", WRITER, door.path("file")),
        )
        program.stdin.write("again\n")
        program.stdin.flush()
        # Its own check of block 0 fails then, which says that it has seen it.
        assert program.stdout.readline() == ""
        assert program.wait(20) != 0
    finally:
        with contextlib.suppress(OSError):
            program.kill()
        program.wait(20)
        program.stdin.close()
        program.stdout.close()
