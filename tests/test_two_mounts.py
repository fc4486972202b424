"""Two mounts of one pool, as two nodes would have them: what one does the other sees, appends do not
mix, and locks exclude."""

import contextlib
import errno
import fcntl
import os
import signal
import struct
import subprocess
import sys
import time

import pytest
from pools import wait_until

# Of the last two mounts the kernel reads and writes by itself through one, where it can.
KINDS = ["auto", "none", "passthrough"]
# Entries and attributes are kept up to a second; the rest is for a busy machine.
SEEN_S = 6


@pytest.fixture(scope="module", params=KINDS)
def pair(request, module_world):
    if request.param == "passthrough":
        pool = module_world.pool(file_class="S1")
        yield pool.mount(), pool.mount("--passthrough", "off")
    else:
        pool = module_world.pool()
        yield pool.mount(cache=request.param), pool.mount(cache=request.param)


def child(script, *arguments, **more):
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        **more,
    )


def test_what_one_writes_the_other_reads_at_once(pair):
    one, other = pair
    for number in range(20):
        (one / f"w{number}").write_text(f"text {number}")
        assert (other / f"w{number}").read_text() == f"text {number}"


def test_an_open_file_shows_later_writes_of_the_other(pair):
    one, other = pair
    with open(one / "shared", "w+b", buffering=0) as writer:
        writer.write(b"0" * 4096)
        with open(other / "shared", "rb", buffering=0) as reader:
            assert reader.read(4096) == b"0" * 4096
            for digit in b"123456789":
                writer.seek(0)
                writer.write(bytes([digit]) * 4096)
                wait_until(
                    lambda: os.pread(reader.fileno(), 4096, 0) == bytes([digit]) * 4096,
                    "the new bytes are read",
                    limit_s=SEEN_S,
                )


def test_a_held_file_shows_changes_that_keep_its_length_and_time(pair):
    one, other = pair
    data = [letter * 8192 for letter in (b"a", b"b", b"c")]
    (one / "held").write_bytes(data[0])
    with (
        open(other / "held", "rb", buffering=0) as reader,
        open(one / "held", "r+b", buffering=0) as file,
    ):
        assert reader.read(8192) == data[0]
        before = os.fstat(reader.fileno())
        file.write(data[1])
        os.utime(one / "held", ns=(before.st_atime_ns, before.st_mtime_ns))
        wait_until(lambda: os.pread(reader.fileno(), 8192, 0) == data[1], "it is read", limit_s=SEEN_S)
        # The same if the reader's own mount sets the time, and never sees that of the write.
        os.pwrite(file.fileno(), data[2], 0)
        os.utime(other / "held", ns=(before.st_atime_ns, before.st_mtime_ns))
        wait_until(lambda: os.pread(reader.fileno(), 8192, 0) == data[2], "it is read", limit_s=SEEN_S)


def test_reopened_files_are_never_stale(pair):
    """Close-to-open: a reader that opens after the writer has closed sees all of it."""
    one, other = pair
    for number in range(30):
        data = os.urandom(1 + number * 977)
        (one / "reopened").write_bytes(data)
        assert (other / "reopened").read_bytes() == data


APPEND = """
import os, sys
path, mark, count = sys.argv[1], sys.argv[2].encode(), int(sys.argv[3])
fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
for number in range(count):
    line = mark * (20 + number % 90) + b"%06d\\n" % number
    assert os.write(fd, line) == len(line)
"""


@pytest.mark.parametrize("chunk_bytes", [1 << 20, 4096])
def test_appends_from_both_interleave_whole(pair, chunk_bytes):
    one, other = pair
    place = one / f"append{chunk_bytes}"
    place.mkdir()
    os.setxattr(place, "user.azekura.chunk_size", str(chunk_bytes).encode())
    (place / "log").touch()
    paths = [one / place.name / "log", other / place.name / "log"]
    count = 400
    writers = [child(APPEND, paths[n % 2], "abcd"[n], count) for n in range(4)]
    for writer in writers:
        writer.communicate(timeout=100)
        assert writer.returncode == 0
    lines = paths[1].read_bytes().splitlines()
    seen = dict.fromkeys(b"abcd", 0)
    for line in lines:
        mark, number = line[0], int(line[-6:])
        assert line == bytes([mark]) * (20 + number % 90) + b"%06d" % number
        assert number == seen[mark], "the lines of one writer are in their order"
        seen[mark] += 1
    assert set(seen.values()) == {count}


def test_exclusive_creation_has_one_winner(pair):
    one, other = pair
    for number in range(50):
        won = 0
        for mount in (one, other):
            with contextlib.suppress(FileExistsError):
                os.close(os.open(mount / f"once{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                won += 1
        assert won == 1


def test_renames_and_removals_are_seen(pair):
    one, other = pair
    for number in range(5):
        old, new = f"old{number}", f"new{number}"
        (one / old).write_text("x")
        assert (other / old).exists()
        os.rename(one / old, one / new)
        wait_until(lambda: not (other / old).exists(), "the old name is gone", limit_s=SEEN_S)
        wait_until(lambda: (other / new).exists(), "the new name is there", limit_s=SEEN_S)
        os.unlink(other / new)
        wait_until(lambda: not (one / new).exists(), "the file is gone", limit_s=SEEN_S)


def test_a_listing_follows_the_other_mount(pair):
    one, other = pair
    (one / "listed").mkdir()
    names = {f"f{number}" for number in range(300)}
    for name in names:
        (one / "listed" / name).touch()
    wait_until(lambda: set(os.listdir(other / "listed")) == names, "all names", limit_s=SEEN_S)
    for name in list(names)[:150]:
        os.unlink(other / "listed" / name)
        names.remove(name)
    wait_until(lambda: set(os.listdir(one / "listed")) == names, "what is left", limit_s=SEEN_S)


def test_an_unlinked_file_lives_while_the_other_has_it_open(pair):
    one, other = pair
    data = os.urandom(3 << 20)
    (one / "doomed").write_bytes(data)
    with open(other / "doomed", "r+b", buffering=0) as file:
        os.unlink(one / "doomed")
        wait_until(lambda: not (other / "doomed").exists(), "the name is gone", limit_s=SEEN_S)
        file.seek(0)
        got = b""
        while len(got) < len(data):
            got += file.read(len(data))
        assert got == data
        file.write(b"more")
        wait_until(lambda: os.fstat(file.fileno()).st_nlink == 0, "no links", limit_s=SEEN_S)
        assert os.fstat(file.fileno()).st_size == len(data) + 4


def test_truncation_is_seen(pair):
    one, other = pair
    (one / "cut").write_bytes(b"x" * 100_000)
    assert (other / "cut").stat().st_size == 100_000
    os.truncate(one / "cut", 10)
    assert (other / "cut").read_bytes() == b"x" * 10


HOLD_FLOCK = """
import fcntl, sys
file = open(sys.argv[1], "r+")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.readline()
"""


def test_flock_excludes_and_a_wait_times_out(pair):
    one, other = pair
    (one / "lock").touch()
    holder = child(HOLD_FLOCK, one / "lock")
    assert holder.stdout.readline() == "held\n"
    started = time.monotonic()
    done = subprocess.run(["flock", "-w", "1", other / "lock", "true"], timeout=20, check=False)
    assert done.returncode == 1, "the wait times out"
    assert time.monotonic() - started >= 0.9
    assert subprocess.run(["flock", "-n", other / "lock", "true"], check=False).returncode == 1
    holder.communicate("\n", timeout=20)
    assert subprocess.run(["flock", "-w", "10", other / "lock", "true"], check=False).returncode == 0


def test_a_killed_waiter_is_gone_and_takes_no_lock(pair):
    one, other = pair
    (one / "killed").touch()
    holder = child(HOLD_FLOCK, one / "killed")
    assert holder.stdout.readline() == "held\n"
    waiter = child(HOLD_FLOCK, other / "killed")
    time.sleep(0.7)
    assert waiter.poll() is None
    waiter.send_signal(signal.SIGKILL)
    assert waiter.wait(10) == -signal.SIGKILL
    waiter.communicate()
    holder.communicate("\n", timeout=20)
    for mount in pair:
        done = subprocess.run(["flock", "-w", "5", mount / "killed", "true"], check=False)
        assert done.returncode == 0


def test_a_lock_ends_with_its_holder(pair):
    one, other = pair
    (one / "died").touch()
    holder = child(HOLD_FLOCK, one / "died")
    assert holder.stdout.readline() == "held\n"
    holder.kill()
    holder.wait(10)
    holder.communicate()
    assert subprocess.run(["flock", "-w", "5", other / "died", "true"], check=False).returncode == 0


def test_shared_flocks_coexist_and_exclude_an_exclusive_one(pair):
    one, other = pair
    (one / "shared-lock").touch()
    with open(one / "shared-lock") as a, open(other / "shared-lock") as b:
        fcntl.flock(a, fcntl.LOCK_SH)
        fcntl.flock(b, fcntl.LOCK_SH)
        with pytest.raises(BlockingIOError):
            fcntl.flock(b, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(a, fcntl.LOCK_UN)
        fcntl.flock(b, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_fcntl_ranges_exclude(pair):
    one, other = pair
    (one / "ranges").write_bytes(bytes(100))
    with open(one / "ranges", "r+b") as a:
        fcntl.lockf(a, fcntl.LOCK_EX, 10, 0)
        script = """
import errno, fcntl, struct, sys
file = open(sys.argv[1], "r+b")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 5)
except OSError as error:
    assert error.errno in (errno.EAGAIN, errno.EACCES)
else:
    sys.exit("a lock that overlaps was given")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 10)
asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 100, 0)
kind, _, start, length, _ = struct.unpack("hhqqi4x", fcntl.fcntl(file, fcntl.F_GETLK, asked))
assert (kind, start, length) == (fcntl.F_WRLCK, 0, 10), (kind, start, length)
"""
        done = subprocess.run(
            [sys.executable, "-c", script, other / "ranges"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        fcntl.lockf(a, fcntl.LOCK_UN, 10, 0)


WAIT_RANGE = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX, 10, 0)
print("held", flush=True)
sys.stdin.readline()
"""


def test_a_waiting_fcntl_lock_comes_when_the_holder_closes(pair):
    one, other = pair
    (one / "waited").write_bytes(bytes(100))
    holder = child(WAIT_RANGE, one / "waited")
    assert holder.stdout.readline() == "held\n"
    waiter = child(WAIT_RANGE, other / "waited")
    time.sleep(0.8)
    holder.communicate("\n", timeout=20)
    assert waiter.stdout.readline() == "held\n"
    waiter.communicate("\n", timeout=20)


OFD_SETLK = getattr(fcntl, "F_OFD_SETLK", 37)


def ofd_lock(file, kind):
    """Locks byte 0 for the open file itself (`F_OFD_SETLK`)."""
    fcntl.fcntl(file, OFD_SETLK, struct.pack("hhqqi4x", kind, 0, 0, 1, 0))


def test_a_lock_of_an_open_file_goes_with_its_last_descriptor(pair):
    one, other = pair
    (one / "ofd").write_bytes(bytes(10))

    def is_free():
        try:
            ofd_lock(viewer, fcntl.F_WRLCK)
        except BlockingIOError:
            return False
        ofd_lock(viewer, fcntl.F_UNLCK)
        return True

    with open(other / "ofd", "r+b") as viewer:
        holder = os.open(one / "ofd", os.O_RDWR)
        ofd_lock(holder, fcntl.F_WRLCK)
        copy = os.dup(holder)
        # Neither a copy of the descriptor nor another open file of the process takes it along.
        os.close(holder)
        os.close(os.open(one / "ofd", os.O_RDWR))
        time.sleep(0.2)
        assert not is_free()
        os.close(copy)
        wait_until(is_free, "the lock is gone with the open file", limit_s=5)


def test_a_lock_of_a_process_outlasts_an_open_file_that_it_has_left(pair):
    one, other = pair
    (one / "left").write_bytes(bytes(10))
    first = os.open(one / "left", os.O_RDWR)
    fcntl.lockf(first, fcntl.LOCK_EX, 1, 0)
    # A child keeps the first open file, and ends it after the process has locked anew.
    keeper = child("import sys; sys.stdin.readline()", pass_fds=[first])
    os.close(first)
    with open(one / "left", "r+b") as second, open(other / "left", "r+b") as viewer:
        fcntl.lockf(second, fcntl.LOCK_EX, 1, 0)
        keeper.communicate("\n", timeout=20)
        time.sleep(0.3)
        with pytest.raises(BlockingIOError):
            ofd_lock(viewer, fcntl.F_WRLCK)


def test_two_waiters_in_a_ring_are_told_of_the_deadlock(pair):
    one, other = pair
    (one / "ring").write_bytes(bytes(100))
    script = """
import errno, fcntl, sys
file = open(sys.argv[1], "r+b")
mine, theirs = int(sys.argv[2]), int(sys.argv[3])
fcntl.lockf(file, fcntl.LOCK_EX, 1, mine)
print("held", flush=True)
sys.stdin.readline()
try:
    fcntl.lockf(file, fcntl.LOCK_EX, 1, theirs)
    print("both")
except OSError as error:
    print(errno.errorcode[error.errno])
"""
    children = [child(script, one / "ring", 0, 1), child(script, other / "ring", 1, 0)]
    for each in children:
        assert each.stdout.readline() == "held\n"
    for each in children:
        each.stdin.write("\n")
        each.stdin.flush()
    said = sorted(each.communicate(timeout=60)[0].strip() for each in children)
    assert said in (["EDEADLK", "both"], ["EDEADLOCK", "both"]), said


def test_owner_of_a_lock_is_shown(pair):
    one, other = pair
    (one / "owner").write_bytes(bytes(10))
    with open(one / "owner", "r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX, 0, 0)
        asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
        with open(other / "owner", "r+b") as viewer:
            kind, *_ = struct.unpack("hhqqi4x", fcntl.fcntl(viewer, fcntl.F_GETLK, asked))
    assert kind == fcntl.F_WRLCK


def test_hard_links_and_modes_are_shared(pair):
    one, other = pair
    (one / "first").write_text("text")
    os.link(other / "first", other / "second")
    assert (one / "second").read_text() == "text"
    os.chmod(one / "second", 0o600)
    wait_until(lambda: (other / "first").stat().st_mode & 0o777 == 0o600, "the mode", limit_s=SEEN_S)
    wait_until(lambda: (one / "first").stat().st_nlink == 2, "the links", limit_s=SEEN_S)


def test_a_directory_removed_by_the_other_takes_nothing_more(pair):
    one, other = pair
    (one / "gone").mkdir()
    handle = os.open(other / "gone", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.rmdir(one / "gone")
        with pytest.raises(OSError) as caught:
            os.open("new", os.O_CREAT | os.O_WRONLY, dir_fd=handle)
        assert caught.value.errno in (errno.ENOENT, errno.ESTALE)
    finally:
        os.close(handle)
