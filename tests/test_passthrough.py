"""Files of one shard that the kernel, or a program beside the engine, reads and writes past the engine:
everybody finds the same bytes, sizes and privileges as without, whatever dies, fills up or is cut."""

import contextlib
import errno
import mmap
import os
import random
import resource
import signal
import stat
import subprocess
import sys
import time

import pytest
from pools import kill_hard, wait_until
from preloading import Preloading

MIB = 1 << 20
# Attributes are kept up to a second; one more for a busy machine.
SEEN_S = 2.5
PYTHON = os.path.realpath(sys.executable)

pytestmark = [pytest.mark.root]


def sizes(pool):
    """Bytes that clients have read and written by requests since the engine began."""
    engine = pool.status()["engines"][0]
    return engine["read_bytes"], engine["written_bytes"]


def requests_of_data(pool, act):
    """How many bytes were read and written by requests while something was done."""
    before = sizes(pool)
    act()
    after = sizes(pool)
    return after[0] - before[0], after[1] - before[1]


@contextlib.contextmanager
def running(door, script, *arguments):
    """A Python program under the preload library, which is gone in the end."""
    program = subprocess.Popen(
        [PYTHON, "-c", script, *map(str, arguments)],
        env=door.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield program
    finally:
        program.kill()
        program.wait(20)
        program.stdin.close()
        program.stdout.close()


@pytest.fixture
def pool(world):
    return world.pool(memory=True, file_class="S1")


@pytest.fixture
def mount(pool):
    """A mount whose kernel takes files of this pool; skips the test where it takes none."""
    mount = pool.mount()
    data = os.urandom(MIB)
    if requests_of_data(pool, lambda: (mount / "probe").write_bytes(data))[1] > 0:
        pytest.skip("the kernel takes no files here: Linux 6.9 with FUSE passthrough does, for root")
    assert (mount / "probe").read_bytes() == data
    return mount


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def by_requests(pool):
    """A second mount, whose process reads and writes."""
    return pool.mount("--passthrough", "off")


def test_data_go_past_the_engine_and_are_what_others_find(pool, mount):
    data = os.urandom(9 * MIB + 4321)
    other = by_requests(pool)

    def write_and_read():
        (mount / "file").write_bytes(data)
        assert (mount / "file").read_bytes() == data

    assert requests_of_data(pool, write_and_read) == (0, 0)
    assert (mount / "file").stat().st_size == len(data)
    assert (other / "file").read_bytes() == data
    assert (other / "file").stat().st_size == len(data)
    # What the other one writes is there at once, also for who has the file open.
    with open(mount / "file", "r+b", buffering=0) as file:
        with open(other / "file", "r+b", buffering=0) as second:
            for number in range(50):
                place = number * 150_000
                second.seek(place)
                second.write(b"other%04d" % number)
                assert os.pread(file.fileno(), 9, place) == b"other%04d" % number
                os.pwrite(file.fileno(), b"own%04d" % number, place + 20)
            second.truncate(5 * MIB)
            assert os.fstat(file.fileno()).st_size >= 5 * MIB
            assert os.pread(file.fileno(), 10, 5 * MIB) == b""
        os.pwrite(file.fileno(), b"end", 6 * MIB)
        assert os.fstat(file.fileno()).st_size == 6 * MIB + 3
        assert (other / "file").read_bytes()[5 * MIB :] == b"\0" * MIB + b"end"
    pool.check()


def test_times_move_with_writes_and_are_set_as_ever(pool, mount):
    other = by_requests(pool)
    path = mount / "times"
    path.write_bytes(b"x" * MIB)
    os.utime(path, (1, 1_000_000_000))
    assert path.stat().st_mtime == 1_000_000_000
    with open(path, "r+b", buffering=0) as file:
        assert (other / "times").stat().st_mtime == 1_000_000_000
        file.write(b"y")
        now = time.time()
        assert abs(os.fstat(file.fileno()).st_mtime - now) < 10
        wait_until(lambda: abs((other / "times").stat().st_mtime - now) < 10, "it is seen", SEEN_S)
    assert abs(path.stat().st_mtime - now) < 10


def test_a_mapping_is_shared_with_all_who_have_the_file(pool, mount):
    path = mount / "mapped"
    path.write_bytes(b"." * (2 * MIB))
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 2 * MIB) as view:
        assert view[:3] == b"..."
        view[MIB : MIB + 5] = b"mmap!"
        assert path.read_bytes()[MIB : MIB + 5] == b"mmap!"
        assert (by_requests(pool) / "mapped").read_bytes()[MIB : MIB + 5] == b"mmap!"
        with open(path, "r+b", buffering=0) as again:
            os.pwrite(again.fileno(), b"write", 7)
        assert view[7:12] == b"write"


APPEND = """
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
for number in range(int(sys.argv[3])):
    line = sys.argv[2].encode() * (20 + number % 90) + b"%06d\\n" % number
    assert os.write(fd, line) == len(line)
"""


def test_appends_of_all_kinds_keep_whole_lines(pool, mount):
    door, other = Preloading(pool), by_requests(pool)
    (mount / "log").write_bytes(b"")
    count = 300
    ways = [mount / "log", mount / "log", other / "log", door.path("log")]
    writers = [
        subprocess.Popen(
            [PYTHON, "-c", APPEND, path, mark, str(count)],
            env=door.environment() if path == ways[3] else None,
        )
        for path, mark in zip(ways, "abcd", strict=True)
    ]
    for writer in writers:
        assert writer.wait(100) == 0
    seen = dict.fromkeys(b"abcd", 0)
    for line in (other / "log").read_bytes().splitlines():
        mark, number = line[0], int(line[-6:])
        assert line == bytes([mark]) * (20 + number % 90) + b"%06d" % number
        assert number == seen[mark], "the lines of one writer are in their order"
        seen[mark] += 1
    assert set(seen.values()) == {count}


def act_at_random(chance, model, file):
    """One operation on a file by its descriptor and on what it should be."""
    size, what = len(model), chance.randrange(10)
    offset, length = chance.randrange(0, size + 70_000), chance.randrange(1, 90_000)
    if what < 5:
        data = chance.randbytes(length)
        assert os.pwrite(file, data, offset) == length
        model.extend(b"\0" * max(0, offset - size))
        model[offset : offset + length] = data
    elif what == 5:
        os.ftruncate(file, offset)
        del model[offset:]
        model.extend(b"\0" * (offset - len(model)))
    assert os.pread(file, length, offset) == bytes(model[offset : offset + length])


WORKER = """
import ast, os, random, sys
sys.path.insert(0, sys.argv[2])
from test_passthrough import act_at_random
for line in sys.stdin:
    seed = int(line)
    with open(sys.argv[1], "r+b", buffering=0) as file:
        model = bytearray(file.read())
        for _ in range(20):
            act_at_random(random.Random(seed), model, file.fileno())
            seed += 1
    print("done", flush=True)
"""


@pytest.mark.limit(180)
@pytest.mark.parametrize("holds", [True, False])
def test_two_mounts_and_a_program_take_turns_on_one_file(pool, mount, holds):
    """One mount and the program go past the engine; both mounts may hold the file open."""
    other, door = by_requests(pool), Preloading(pool)
    (mount / "file").write_bytes(b"start" * 40_000)
    seed = random.randrange(1 << 30)
    chance, here = random.Random(seed), os.path.dirname(__file__)
    paths = [mount / "file", other / "file"]
    with running(door, WORKER, door.path("file"), here) as program, contextlib.ExitStack() as stack:
        opened = [open(path, "r+b", buffering=0) for path in paths if holds]
        held = [stack.enter_context(file) for file in opened]
        for turn in range(60):
            if turn == 30 and not holds:
                # Under another name, and opened anew by everybody.
                os.rename(mount / "file", mount / "moved")
                os.rename(other / "moved", other / "file")
            who = turn % 3
            if who == 2:
                program.stdin.write(f"{chance.randrange(1 << 30)}\n")
                program.stdin.flush()
                assert program.stdout.readline() == "done\n", seed
                continue
            file = held[who].fileno() if holds else os.open(paths[who], os.O_RDWR)
            model = bytearray(os.pread(file, 8 * MIB, 0))
            assert len(model) == os.fstat(file).st_size, seed
            for _ in range(20):
                act_at_random(chance, model, file)
            if not holds:
                os.close(file)
            assert paths[1 - who].read_bytes() == bytes(model), seed
    pool.check()


def test_set_id_bits_are_not_given_while_somebody_writes_past_the_engine(pool, mount):
    path = mount / "program"
    path.write_bytes(b"#!/bin/true\n" * 10_000)
    with open(path, "r+b", buffering=0) as file:
        file.write(b"#")
        os.chmod(path, 0o4755)
        assert mode_of(path) == 0o755, "a write would have to take them away"
        with pytest.raises(OSError, match="busy"):
            os.setxattr(path, "security.capability", b"\1\0\0\2" + b"\0" * 16)
    wait_until(lambda: mode_of(path) == 0o4755, "the bits of a file that nobody has open", pause_s=0)
    os.chmod(path, 0o755)
    with open(path, "r+b", buffering=0) as file:
        file.write(b"#")
        os.chmod(path, 0o4755)
        file.write(b"#")
    time.sleep(0.3)
    assert mode_of(path) == 0o755, "it was written since"
    os.chmod(path, 0o4755)
    wait_until(lambda: mode_of(path) == 0o4755, "the bits of a file that was closed")
    # Who reads such a file does so through the mount, and whoever writes to it takes them away.
    with open(path, "rb") as reader:
        reader.read(10)
        os.chown(path, 1000, 1000)
        os.chmod(path, 0o4757)
        os.chmod(mount.world.base, 0o755)
        writes = f"printf x | dd of={path} conv=notrunc 2> /dev/null"
        done = subprocess.run(["sh", "-c", writes], user=1001, group=1001, extra_groups=[], check=False)
        assert done.returncode == 0
    assert mode_of(path) == 0o757


def test_copied_and_unpacked_programs_keep_their_set_id_bits(pool, mount, tmp_path):
    (tmp_path / "tree").mkdir()
    names = [f"tree/{number}" for number in range(20)]
    for name in names:
        (tmp_path / name).write_bytes(os.urandom(300_000))
        os.chmod(tmp_path / name, 0o4755)
    subprocess.run(["tar", "cf", "tar", "tree"], cwd=tmp_path, check=True, timeout=30)
    copy, tar = ["cp", "-pr", tmp_path / "tree"], ["tar", "xpf", tmp_path / "tar", "-C"]
    for way in ("copied", "unpacked"):
        (mount / way).mkdir()
    subprocess.run([*copy, mount / "copied"], check=True, timeout=30)
    subprocess.run([*tar, mount / "unpacked"], check=True, timeout=30)
    door = Preloading(pool)
    for way in ("copied-by-preload", "unpacked-by-preload"):
        (mount / way).mkdir()
    door.run(*copy, door.path("copied-by-preload"))
    door.run(*tar, door.path("unpacked-by-preload"))
    for way in ("copied", "unpacked", "copied-by-preload", "unpacked-by-preload"):
        for name in names:
            path = mount / way / name
            wait_until(lambda path=path: mode_of(path) == 0o4755, f"the bits of {path}", limit_s=5)


def test_privileges_that_came_while_a_file_was_read_go_when_it_is_written(pool, mount):
    path = mount / "program"
    path.write_bytes(b"#!/bin/true\n" * 10_000)
    with open(path, "rb") as reader:
        reader.read(10)
        os.chmod(path, 0o4755)
        assert mode_of(path) == 0o4755
        with open(path, "r+b", buffering=0) as file:
            file.write(b"x")
        assert mode_of(path) == 0o755
        assert os.pread(reader.fileno(), 1, 0) == b"x"


def test_many_files_are_open_at_once(pool, mount):
    # More than a process has numbers for by the usual limit.
    count, data = 1200, os.urandom(100_000)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count + 200:
        pytest.skip("this process may not have as many files open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (count + 200, hard))
    files = []
    try:

        def work():
            for number in range(count):
                file = os.open(mount / f"f{number}", os.O_RDWR | os.O_CREAT)
                files.append(file)
                assert os.pwrite(file, data, number) == len(data)
            for number, file in enumerate(files):
                assert os.pread(file, len(data), number) == data

        assert requests_of_data(pool, work) == (0, 0)
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (by_requests(pool) / "f77").read_bytes()[77:] == data


def test_short_files_do_not_go_past_the_engine_for_long(pool, mount):
    def write(names, length):
        for name in names:
            (mount / name).write_bytes(b"x" * length)

    write([f"short{number}" for number in range(20)], 100)
    short = [f"after{number}" for number in range(20)]
    assert requests_of_data(pool, lambda: write(short, 100))[1] == 2000
    # One long file tells that others may be long, too.
    write(["long"], MIB)
    assert requests_of_data(pool, lambda: write(["next"], MIB))[1] == 0


def test_a_removed_file_lives_as_long_as_it_is_open(pool, mount):
    data = os.urandom(3 * MIB)
    with open(mount / "gone", "w+b", buffering=0) as file:
        file.write(data)
        os.unlink(mount / "gone")
        os.pwrite(file.fileno(), b"still", 10)
        data = data[:10] + b"still" + data[15:]
        assert os.pread(file.fileno(), len(data), 0) == data
        assert os.fstat(file.fileno()).st_nlink == 0
    pool.check()


def test_files_go_on_while_the_engine_is_away_and_nothing_is_lost(pool, mount):
    data = bytearray(os.urandom(2 * MIB))
    with open(mount / "file", "w+b", buffering=0) as file:
        file.write(data)
        pool.kill()
        for number in range(20):
            place = number * 70_000
            os.pwrite(file.fileno(), b"away%02d" % number, place)
            data[place : place + 6] = b"away%02d" % number
        pool.up()
        assert os.pread(file.fileno(), len(data), 0) == data
        os.fsync(file.fileno())
        # The next run knows that somebody has the file: others get no promise of it, and see each write.
        other = by_requests(pool)
        with open(other / "file", "rb", buffering=0) as reader:
            for number in range(20):
                os.pwrite(file.fileno(), b"later%02d" % number, 0)
                wait_until(
                    lambda: os.pread(reader.fileno(), 7, 0) == b"later%02d" % number,
                    "it is read",
                    limit_s=5,
                )
        data[:7] = b"later19"
    assert (other / "file").read_bytes() == data
    pool.check()


def test_the_end_of_a_mount_leaves_what_was_written(pool, mount):
    script = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
number = 0
while True:
    os.pwrite(fd, number.to_bytes(8, "little") * 8192, number * 65536)
    number += 1
    print(number, flush=True)
"""
    program = subprocess.Popen(
        [PYTHON, "-c", script, mount / "file"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        last = 0
        while last < 200:
            last = int(program.stdout.readline())
        kill_hard(mount.pid())
        # The kernel needs nobody for it, so that the program may go on; its file goes nowhere else.
        time.sleep(0.2)
        program.kill()
        rest = program.stdout.read().split()
        last = int(rest[-1]) if rest else last
    finally:
        program.kill()
        program.wait(20)
        program.stdout.close()
    data = (by_requests(pool) / "file").read_bytes()
    assert len(data) >= last * 65536
    for number in range(last):
        assert data[number * 65536 : (number + 1) * 65536] == number.to_bytes(8, "little") * 8192
    pool.check()


@pytest.mark.limit(120)
def test_a_full_disk_is_told_and_leaves_room_to_remove(world):
    """The pool lies on a file system of its own."""
    place = world.storage / "disk"
    place.mkdir()
    size = 512 * MIB
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "azk", place], check=False)
    if done.returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        pool = world.pool(directory=place / "pool", file_class="S1")
        mount = pool.mount()
        (mount / "dir").mkdir()
        written = 0
        with open(mount / "full", "wb", buffering=0) as file:
            with pytest.raises(OSError, match="space") as failed:
                while written < 2 * size:
                    written += file.write(b"x" * MIB)
            assert failed.value.errno == errno.ENOSPC
            # It goes on trying, as some programs do.
            for _ in range(200):
                with contextlib.suppress(OSError):
                    os.pwrite(file.fileno(), b"y" * 4096, written + 64 * MIB)
        assert (mount / "full").stat().st_size >= 256 * MIB
        for number in range(50):
            with contextlib.suppress(OSError):
                (mount / "dir" / f"n{number}").touch()
        os.unlink(mount / "full")
        wait_until(
            lambda: os.statvfs(mount).f_bavail * 4096 > 300 * MIB, "there is room again", limit_s=30
        )
        data = os.urandom(20 * MIB)
        (mount / "again").write_bytes(data)
        os.sync()
        assert (mount / "again").read_bytes() == data
        pool.check()
        mount.umount()
        pool.down("--destroy", "--yes")
    finally:
        world.abort()
        subprocess.run(["umount", "-l", place], check=False)


def test_it_can_be_turned_off(pool, mount):
    other = by_requests(pool)
    data = os.urandom(MIB)
    assert requests_of_data(pool, lambda: (other / "file").write_bytes(data))[1] == MIB
    assert (mount / "file").read_bytes() == data


PROGRAM = """
import os, sys
path, data = sys.argv[1], os.urandom(100_000)
fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
for number in range(100):
    assert os.pwrite(fd, data, number * 100_000) == 100_000
for number in range(100):
    assert os.pread(fd, 100_000, number * 100_000) == data
os.ftruncate(fd, 1234)
assert os.fstat(fd).st_size == 1234
os.pwrite(fd, b"end", 5000)
assert os.fstat(fd).st_size == 5003
os.lseek(fd, 0, os.SEEK_END)
os.write(fd, b"more")
assert os.pread(fd, 100, 4999) == b"\\0endmore"
child = os.fork()
if child == 0:
    os.pwrite(fd, b"child", 0)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert os.pread(fd, 5, 0) == b"child"
"""


def test_a_program_writes_past_the_engine(pool):
    door = Preloading(pool)

    def work():
        door.run(PYTHON, "-c", PROGRAM, door.path("file"))

    written = requests_of_data(pool, work)[1]
    assert written <= 1_000_000, "but for the first calls"
    pool.check()


MAPPING = """
import mmap, os, sys
path = sys.argv[1]
fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
os.ftruncate(fd, 300_000)
view = mmap.mmap(fd, 300_000)
view[100_000:100_005] = b"first"
assert os.pread(fd, 5, 100_000) == b"first"
os.pwrite(fd, b"second", 200_000)
assert view[200_000:200_006] == b"second"
child = os.fork()
if child == 0:
    view[7:12] = b"child"
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert view[7:12] == b"child"
view.flush()
os.fsync(fd)
with open(path, "rb") as reader:
    seen = mmap.mmap(reader.fileno(), 300_000, access=mmap.ACCESS_READ)
    view[50:54] = b"seen"
    assert seen[50:54] == b"seen"
    # Without the file the mapping stays.
os.close(fd)
view[60:65] = b"later"
print("ready", flush=True)
sys.stdin.readline()
assert view[70:76] == b"others"
"""


def test_a_program_maps_a_file_that_others_write(pool):
    door, mount = Preloading(pool), pool.mount()
    with running(door, MAPPING, door.path("file")) as program:
        assert program.stdout.readline() == "ready\n"
        with open(mount / "file", "r+b", buffering=0) as file:
            assert os.pread(file.fileno(), 5, 100_000) == b"first"
            assert os.pread(file.fileno(), 5, 60) == b"later"
            os.pwrite(file.fileno(), b"others", 70)
        program.stdin.write("\n")
        program.stdin.close()
        assert program.wait(20) == 0
    pool.check()


def test_a_program_that_writes_is_killed_and_what_it_wrote_stays(pool):
    door = Preloading(pool)
    script = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for number in range(1000):
    os.pwrite(fd, number.to_bytes(8, "little") * 512, number * 4096)
print("ready", flush=True)
sys.stdin.read()
"""
    with running(door, script, door.path("file")) as program:
        assert program.stdout.readline() == "ready\n"
        program.send_signal(signal.SIGKILL)
    pool.world.run("fs", "get", f"{pool.name}:/file", pool.world.base / "copy")
    data = (pool.world.base / "copy").read_bytes()
    assert data == b"".join(number.to_bytes(8, "little") * 512 for number in range(1000))


def test_the_usual_class_on_one_device_is_one_shard(world):
    name = f"t{os.getpid()}plain"
    world.run("up", "--name", name, "--dir", world.storage / name)
    try:
        containers = world.json("container", "list", "--pool", name)["containers"]
        assert [container["file_class"] for container in containers] == ["S1"]
    finally:
        world.run("down", name, "--destroy", "--yes")
