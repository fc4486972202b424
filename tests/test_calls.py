"""System calls on a mount, one by one: what they do, and which error they give."""

import ctypes
import errno
import mmap
import os
import random
import socket
import stat
import struct
import subprocess
import sys
import threading
import time

import pytest
from pools import wait_until
from tree_model import RENAME_EXCHANGE, RENAME_NOREPLACE, renameat2

FALLOC_KEEP_SIZE = 1
FALLOC_PUNCH_HOLE = 2
FALLOC_ZERO_RANGE = 16
AT_FDCWD = -100
AT_EMPTY_PATH = 0x1000
AT_SYMLINK_FOLLOW = 0x400
RENAME_WHITEOUT = 4
_libc = ctypes.CDLL(None, use_errno=True)


def check(done):
    if done < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return done


def fallocate(fd, mode, offset, count):
    check(_libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(count)))


def linkat(old_dir, old, new_dir, new, flags):
    check(_libc.linkat(old_dir, os.fsencode(old), new_dir, os.fsencode(new), flags))


def refused(code):
    """Expects an OSError with this code (or one of these)."""
    codes = code if isinstance(code, tuple) else (code,)

    class Expectation:
        def __enter__(self):
            return self

        def __exit__(self, kind, error, _trace):
            assert error is not None, f"expected {[errno.errorcode[c] for c in codes]}"
            assert isinstance(error, OSError), error
            assert error.errno in codes, f"{errno.errorcode.get(error.errno)}: {error}"
            return True

    return Expectation()


@pytest.fixture(params=[1 << 20, 8192], ids=["narrow", "wide"])
def chunked(request, place):
    """A directory whose files stay on one target, and one whose files soon spread over all."""
    os.setxattr(place, "user.azekura.chunk_size", str(request.param).encode())
    return place


# -- creation without a name


def test_tmpfile_gets_a_name_by_linkat(chunked):
    fd = os.open(chunked, os.O_TMPFILE | os.O_RDWR, 0o640)
    try:
        assert os.fstat(fd).st_nlink == 0
        os.write(fd, b"text" * 5000)
        linkat(AT_FDCWD, f"/proc/self/fd/{fd}", AT_FDCWD, chunked / "named", AT_SYMLINK_FOLLOW)
        assert os.fstat(fd).st_nlink == 1
        assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o640
    finally:
        os.close(fd)
    assert (chunked / "named").read_bytes() == b"text" * 5000


def test_tmpfile_without_a_name_leaves_nothing(place, pool):
    before = len(os.listdir(place))
    fd = os.open(place, os.O_TMPFILE | os.O_RDWR, 0o600)
    os.write(fd, b"gone")
    os.close(fd)
    assert len(os.listdir(place)) == before


def test_tmpfile_with_excl_cannot_be_named(place):
    fd = os.open(place, os.O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o600)
    try:
        with refused(errno.ENOENT):
            linkat(AT_FDCWD, f"/proc/self/fd/{fd}", AT_FDCWD, place / "x", AT_SYMLINK_FOLLOW)
    finally:
        os.close(fd)


def test_unlinked_but_open(chunked):
    path = chunked / "file"
    with open(path, "w+b", buffering=0) as file:
        file.write(b"a" * 50_000)
        os.unlink(path)
        assert os.fstat(file.fileno()).st_nlink == 0
        file.write(b"b" * 50_000)
        os.ftruncate(file.fileno(), 90_000)
        os.fchmod(file.fileno(), 0o600)
        assert os.pread(file.fileno(), 100_000, 0) == b"a" * 50_000 + b"b" * 40_000
        with open(path, "xb") as other:
            other.write(b"new")
        assert os.fstat(file.fileno()).st_size == 90_000
    assert path.read_bytes() == b"new"


def test_replaced_but_open(chunked):
    (chunked / "old").write_bytes(b"old" * 9000)
    (chunked / "new").write_bytes(b"new")
    with open(chunked / "old", "rb", buffering=0) as file:
        os.rename(chunked / "new", chunked / "old")
        assert file.read(30_000) == b"old" * 9000
    assert (chunked / "old").read_bytes() == b"new"


# -- data


def test_truncate_both_ways_leaves_zeros(chunked):
    path = chunked / "file"
    path.write_bytes(b"x" * 100_000)
    os.truncate(path, 33_333)
    os.truncate(path, 120_000)
    assert path.read_bytes() == b"x" * 33_333 + bytes(120_000 - 33_333)
    os.truncate(path, 0)
    assert path.stat().st_size == 0
    assert path.stat().st_blocks == 0


def test_fallocate_modes(chunked):
    with open(chunked / "file", "w+b", buffering=0) as file:
        fd = file.fileno()
        file.write(b"x" * 65_536)
        fallocate(fd, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 4096, 20_480)
        expected = bytearray(b"x" * 65_536)
        expected[4096:24_576] = bytes(20_480)
        assert os.pread(fd, 70_000, 0) == expected
        fallocate(fd, FALLOC_ZERO_RANGE, 60_000, 10_000)
        expected[60_000:] = bytes(10_000)
        assert os.pread(fd, 80_000, 0) == expected
        fallocate(fd, FALLOC_ZERO_RANGE | FALLOC_KEEP_SIZE, 69_000, 10_000)
        assert os.fstat(fd).st_size == 70_000
        fallocate(fd, FALLOC_KEEP_SIZE, 0, 1 << 20)
        assert os.fstat(fd).st_size == 70_000
        fallocate(fd, 0, 0, 200_000)
        assert os.fstat(fd).st_size == 200_000
        assert os.pread(fd, 200_000, 0) == expected + bytes(130_000)
        fallocate(fd, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 0, 1 << 30)
        assert os.pread(fd, 300_000, 0) == bytes(200_000)
        with refused((errno.EOPNOTSUPP, errno.EINVAL)):
            fallocate(fd, FALLOC_PUNCH_HOLE, 0, 4096)
        with refused(errno.EINVAL):
            fallocate(fd, 0, 0, 0)


def test_random_ranges_against_a_local_file(chunked, tmp_path):
    """Writes, holes, zeros, truncations and copies drawn at random: always the same as locally."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    pair = [open(p, "w+b", buffering=0) for p in (chunked / "file", tmp_path / "file")]
    top = 150_000
    for step in range(400):
        kind = rng.choice(("write", "write", "punch", "zero", "truncate", "copy", "grow"))
        offset, count = rng.randrange(top), rng.randrange(1, 30_000)
        data, to = rng.randbytes(count), rng.randrange(top)
        for file in pair:
            fd = file.fileno()
            if kind == "write":
                os.pwrite(fd, data, offset)
            elif kind == "punch":
                fallocate(fd, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, offset, count)
            elif kind == "zero":
                fallocate(fd, FALLOC_ZERO_RANGE, offset, count)
            elif kind == "truncate" and step % 5 == 0:
                os.ftruncate(fd, offset)
            elif kind == "grow":
                fallocate(fd, 0, offset, count)
            elif kind == "copy" and abs(to - offset) > count:
                size = os.fstat(fd).st_size
                if offset < size:
                    os.copy_file_range(fd, fd, min(count, size - offset), offset, to)
        sizes = [os.fstat(file.fileno()).st_size for file in pair]
        assert sizes[0] == sizes[1], (step, kind, offset, count, to)
        if step % 10 == 0:
            contents = [os.pread(file.fileno(), 2 * top, 0) for file in pair]
            assert contents[0] == contents[1], (step, kind, offset, count, to)
    for file in pair:
        file.close()
    assert (chunked / "file").read_bytes() == (tmp_path / "file").read_bytes()


def test_seek_data_and_hole(chunked):
    with open(chunked / "file", "w+b", buffering=0) as file:
        fd = file.fileno()
        for offset in (0, 262_144, 1_048_576):
            os.pwrite(fd, b"x" * 4096, offset)
        os.ftruncate(fd, 2 << 20)
        assert os.lseek(fd, 0, os.SEEK_DATA) == 0
        hole = os.lseek(fd, 0, os.SEEK_HOLE)
        assert 4096 <= hole <= 262_144
        data = os.lseek(fd, hole, os.SEEK_DATA)
        assert hole < data <= 262_144
        assert os.lseek(fd, 1_100_000, os.SEEK_HOLE) <= 2 << 20
        with refused(errno.ENXIO):
            os.lseek(fd, (1 << 20) + 65_536 * 2, os.SEEK_DATA)
        with refused(errno.ENXIO):
            os.lseek(fd, 3 << 20, os.SEEK_HOLE)


def test_sparse_file_beyond_four_tebibytes(chunked):
    with open(chunked / "huge", "w+b", buffering=0) as file:
        fd = file.fileno()
        places = [0, (1 << 32) - 2, (1 << 42) - 1, (1 << 42) + 12_345, 5 << 40]
        for place in places:
            os.pwrite(fd, b"mark", place)
        assert os.fstat(fd).st_size == (5 << 40) + 4
        assert os.fstat(fd).st_blocks < 10_000
        for place in places:
            assert os.pread(fd, 6, place)[:4] == b"mark"
        assert os.pread(fd, 100, 3 << 40) == bytes(100)
        os.ftruncate(fd, (1 << 42) + 5)
        assert os.pread(fd, 100, (1 << 42) - 1) == b"mark" + bytes(2)
    assert (chunked / "huge").stat().st_size == (1 << 42) + 5


def test_offsets_that_no_file_may_have(place):
    with open(place / "file", "w+b", buffering=0) as file:
        with refused((errno.EFBIG, errno.EINVAL)):
            os.pwrite(file.fileno(), b"xx", (1 << 63) - 2)
        with refused(errno.EINVAL):
            os.ftruncate(file.fileno(), -1)


def test_copy_file_range_between_files(chunked):
    data = os.urandom(300_000)
    (chunked / "from").write_bytes(data)
    with open(chunked / "from", "rb") as source, open(chunked / "to", "wb") as sink:
        left = len(data)
        while left:
            left -= os.copy_file_range(source.fileno(), sink.fileno(), left)
    assert (chunked / "to").read_bytes() == data


def test_mapped_files(chunked):
    path = chunked / "file"
    path.write_bytes(bytes(100_000))
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[50_000:50_010] = b"0123456789"
        mapped.flush()
        assert os.pread(file.fileno(), 10, 50_000) == b"0123456789"
        os.pwrite(file.fileno(), b"written", 10)
        wait_until(lambda: mapped[10:17] == b"written", "the map shows it", limit_s=3)
    assert path.read_bytes()[50_000:50_010] == b"0123456789"


def test_direct_io(chunked):
    buffer = mmap.mmap(-1, 65_536)
    buffer.write(os.urandom(65_536))
    fd = os.open(chunked / "file", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    try:
        assert os.pwritev(fd, [buffer], 0) == 65_536
        back = mmap.mmap(-1, 65_536)
        assert os.preadv(fd, [back], 0) == 65_536
        assert back[:] == buffer[:]
    finally:
        os.close(fd)


# -- names


def test_rename_flags(place):
    a, b = place / "a", place / "b"
    a.write_text("a")
    b.write_text("b")
    with refused(errno.EEXIST):
        renameat2(a, b, RENAME_NOREPLACE)
    renameat2(a, b, RENAME_EXCHANGE)
    assert (a.read_text(), b.read_text()) == ("b", "a")
    renameat2(a, place / "c", RENAME_NOREPLACE)
    assert not a.exists()
    with refused(errno.ENOENT):
        renameat2(a, b, RENAME_EXCHANGE)
    (place / "dir").mkdir()
    (place / "dir" / "in").touch()
    renameat2(b, place / "dir", RENAME_EXCHANGE)
    assert (place / "dir").read_text() == "a"
    assert (b / "in").exists()


def is_whiteout(path):
    found = path.lstat()
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def test_rename_leaves_a_whiteout(place, pool):
    (place / "dir").mkdir()
    # Names all over the targets, so that old name, new name and object lie on different ones.
    for number in range(12):
        old, new = place / f"old{number}", place / "dir" / f"new{number}"
        old.write_text(f"{number}")
        if number % 2:
            new.write_text("replaced")
        renameat2(old, new, RENAME_WHITEOUT)
        assert new.read_text() == f"{number}"
        assert is_whiteout(old)
        assert old.lstat().st_nlink == 1
        with refused(errno.EEXIST):
            os.mkdir(old)
    assert len(os.listdir(place)) == 13
    os.mkdir(place / "moved")
    renameat2(place / "moved", place / "dir" / "moved", RENAME_WHITEOUT)
    assert is_whiteout(place / "moved")
    assert place.stat().st_nlink == 2 + 1
    assert (place / "dir").stat().st_nlink == 2 + 1
    with refused(errno.ENOENT):
        renameat2(place / "none", place / "nothing", RENAME_WHITEOUT)
    with refused(errno.EINVAL):
        renameat2(place / "dir", place / "old1", RENAME_WHITEOUT | RENAME_EXCHANGE)
    os.unlink(place / "old0")
    os.rename(place / "dir" / "new0", place / "old0")
    assert (place / "old0").read_text() == "0"
    pool.check()


OVER = """
mount -t overlay overlay -o lowerdir="$LOWER",upperdir="$UPPER",workdir="$WORK" "$AT"
cd "$AT"
test "$(cat kept/below)" = below
mv moved elsewhere                 # leaves a whiteout above the lower file
test "$(cat elsewhere)" = moved
test ! -e moved
rm gone
test ! -e gone
rm -r kept
mkdir kept                         # opaque: what is below shows through no more
test -z "$(ls kept)"
mv dir dir2
echo more >> dir2/in
test "$(cat dir2/in)" = "in
more"
chmod 600 elsewhere
ls -l > /dev/null
cd /
umount "$AT"
mount -t overlay overlay -o lowerdir="$LOWER",upperdir="$UPPER",workdir="$WORK" "$AT"
test ! -e "$AT/moved"
test ! -e "$AT/gone"
test "$(cat "$AT/elsewhere")" = moved
test -z "$(ls "$AT/kept")"
"""


@pytest.mark.root
@pytest.mark.skipif(
    "overlay" not in open("/proc/filesystems").read(), reason="needs the overlay file system"
)
@pytest.mark.parametrize("cache", ["auto", "none"])
def test_an_overlay_with_its_upper_layer_on_a_mount(pool, cache, sh, tmp_path):
    mount = pool.mount(cache=cache)
    lower, at = tmp_path / "lower", tmp_path / "at"
    upper, work = mount / f"upper-{cache}", mount / f"work-{cache}"
    for directory in (lower, at, upper, work, lower / "kept", lower / "dir"):
        directory.mkdir()
    for name in ("moved", "gone", "kept/below", "dir/in"):
        (lower / name).write_text(f"{os.path.basename(name)}\n")
    try:
        sh(OVER, LOWER=lower, UPPER=upper, WORK=work, AT=at)
        assert is_whiteout(upper / "moved")
        assert is_whiteout(upper / "gone")
    finally:
        subprocess.run(["umount", "-l", at], check=False)


def test_rename_of_directories(place):
    for name in ("a", "a/b", "a/b/c", "full", "full/x", "empty"):
        (place / name).mkdir()
    with refused(errno.EINVAL):
        os.rename(place / "a", place / "a/b/d")
    with refused((errno.ENOTEMPTY, errno.EEXIST)):
        os.rename(place / "a", place / "full")
    os.rename(place / "a/b", place / "empty")
    assert (place / "empty/c").is_dir()
    assert place.stat().st_nlink == 2 + 3
    assert (place / "a").stat().st_nlink == 2
    with refused((errno.EINVAL, errno.ENOTEMPTY)):
        renameat2(place / "empty", place / "empty/c", RENAME_EXCHANGE)
    os.rename(place / "empty", place / "full/moved")
    assert os.path.samefile(place / "full/moved/c/..", place / "full/moved")


def test_rename_to_another_link_of_the_same_file_does_nothing(place):
    (place / "a").write_text("x")
    os.link(place / "a", place / "b")
    os.rename(place / "a", place / "b")
    assert sorted(os.listdir(place)) == ["a", "b"]
    assert (place / "a").stat().st_nlink == 2


def test_long_names(place):
    for letter in ("n", "\u00e9", "\u6821"):
        name = letter * (255 // len(letter.encode()))
        (place / name).write_text("x")
        assert name in os.listdir(place)
        os.rename(place / name, place / name[::-1])
        os.unlink(place / name)
    with refused(errno.ENAMETOOLONG):
        (place / ("n" * 256)).touch()
    raw = os.fsencode(place) + b"/" + bytes(range(1, 47)) + bytes(range(48, 256))
    os.close(os.open(raw, os.O_CREAT | os.O_WRONLY))
    assert bytes(range(1, 47)) + bytes(range(48, 256)) in os.listdir(os.fsencode(place))
    os.symlink("t" * 4095, place / "link")
    assert os.readlink(place / "link") == "t" * 4095
    assert os.lstat(place / "link").st_size == 4095


def test_deep_trees(place):
    here = os.open(place, os.O_RDONLY)
    for _ in range(200):
        os.mkdir("d" * 100, dir_fd=here)
        below = os.open("d" * 100, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    subprocess.run(["rm", "-r", place / ("d" * 100)], check=True)


def test_special_files(place):
    os.mkfifo(place / "fifo", 0o600)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(place / "socket"))
        server.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(os.path.relpath(place / "socket"))
    assert stat.S_ISFIFO((place / "fifo").stat().st_mode)
    assert stat.S_ISSOCK((place / "socket").stat().st_mode)
    if os.geteuid() == 0:
        os.mknod(place / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        assert (place / "null").stat().st_rdev == os.makedev(1, 3)


def test_links_share_everything(place):
    (place / "a").write_text("x")
    for number in range(100):
        os.link(place / "a", place / f"l{number}")
    assert (place / "a").stat().st_nlink == 101
    assert len({(place / f"l{number}").stat().st_ino for number in range(100)}) == 1
    (place / "l7").write_text("changed")
    assert (place / "l99").read_text() == "changed"
    for number in range(100):
        os.unlink(place / f"l{number}")
    assert (place / "a").stat().st_nlink == 1
    with refused(errno.EPERM):
        os.link(place, place / "dir-link")


def test_loops_of_symlinks(place):
    os.symlink("b", place / "a")
    os.symlink("a", place / "b")
    with refused(errno.ELOOP):
        (place / "a").read_text()


# -- attributes


def test_times_are_kept_to_the_nanosecond(place):
    path = place / "file"
    path.touch()
    os.utime(path, ns=(1_234_567_890_123_456_789, -987_654_321))
    status = path.stat()
    assert status.st_atime_ns == 1_234_567_890_123_456_789
    assert status.st_mtime_ns == -987_654_321
    before = time.time_ns()
    path.write_text("x")
    assert abs(path.stat().st_mtime_ns - before) < 10_000_000_000
    os.utime(path, ns=(5, 6))
    assert path.stat().st_mtime_ns == 6
    assert path.stat().st_ctime_ns >= before - 1_000_000_000


@pytest.mark.parametrize("step", ["write", "truncate", "append"])
def test_setting_the_time_outlasts_earlier_writes(chunked, step):
    path = chunked / "file"
    path.write_bytes(b"x" * 100_000)
    os.utime(path, ns=(1000, 2000))
    assert path.stat().st_mtime_ns == 2000
    if step == "write":
        with open(path, "r+b", buffering=0) as file:
            file.write(b"y")
    elif step == "append":
        with open(path, "ab", buffering=0) as file:
            file.write(b"y")
    else:
        os.truncate(path, 70_000)
    assert path.stat().st_mtime_ns > 2000


def test_directory_times_follow_their_entries(place):
    os.utime(place, ns=(1, 1))
    (place / "a").touch()
    first = place.stat().st_mtime_ns
    assert first > 1
    time.sleep(0.02)
    os.unlink(place / "a")
    wait_until(lambda: place.stat().st_mtime_ns > first, "a later time", limit_s=3)


def times_of(path):
    """Birth, access, modification and change, in nanoseconds."""
    buffer = ctypes.create_string_buffer(256)
    no_follow, everything = 0x100, 0xFFF
    check(_libc.statx(AT_FDCWD, os.fsencode(path), no_follow, everything, buffer))
    stamps = [struct.unpack_from("<qI", buffer, offset) for offset in (80, 64, 112, 96)]
    return [seconds * 10**9 + nanoseconds for seconds, nanoseconds in stamps]


def test_nothing_is_older_than_its_birth(place):
    for number in range(20):
        made = [place / f"{kind}{number}" for kind in ("empty", "full", "dir", "link", "fifo")]
        empty, full, directory, link, fifo = made
        empty.touch()
        full.write_bytes(b"x" * 100_000)
        directory.mkdir()
        link.symlink_to("there")
        os.mkfifo(fifo)
        for path in made:
            birth, *others = times_of(path)
            assert birth <= min(others), (path.name, birth, others)
        (directory / "in").touch()
        os.chmod(empty, 0o600)
        for path in (directory, empty):
            again, *others = times_of(path)
            assert again <= min(others), (path.name, again, others)
    # It stays what it was.
    birth = times_of(full)[0]
    os.utime(full, ns=(5, 6))
    os.chmod(full, 0o600)
    assert times_of(full)[:3] == [birth, 5, 6]


def test_extended_attributes(place):
    path = place / "file"
    path.touch()
    for target in (path, place):
        os.setxattr(target, "user.small", b"v")
        os.setxattr(target, "user.empty", b"")
        os.setxattr(target, "user.big", b"x" * 65_536)
        assert os.getxattr(target, "user.big") == b"x" * 65_536
        assert os.getxattr(target, "user.empty") == b""
        assert {"user.small", "user.empty", "user.big"} <= set(os.listxattr(target))
        with refused(errno.EEXIST):
            os.setxattr(target, "user.small", b"w", os.XATTR_CREATE)
        with refused(errno.ENODATA):
            os.setxattr(target, "user.none", b"w", os.XATTR_REPLACE)
        os.setxattr(target, "user.small", b"w", os.XATTR_REPLACE)
        assert os.getxattr(target, "user.small") == b"w"
        os.removexattr(target, "user.small")
        with refused(errno.ENODATA):
            os.getxattr(target, "user.small")
        with refused((errno.E2BIG, errno.ENOSPC, errno.ERANGE)):
            os.setxattr(target, "user.toobig", b"x" * 65_537)
    os.rename(path, place / "renamed")
    assert os.getxattr(place / "renamed", "user.big") == b"x" * 65_536


def test_own_attributes_show_and_set_class_and_chunk_size(place):
    assert os.getxattr(place, "user.azekura.class") == b"SX"
    assert int(os.getxattr(place, "user.azekura.chunk_size")) == 1 << 20
    os.setxattr(place, "user.azekura.class", b"S1")
    os.setxattr(place, "user.azekura.chunk_size", b"131072")
    (place / "file").write_bytes(b"x" * 500_000)
    (place / "dir").mkdir()
    assert os.getxattr(place / "file", "user.azekura.class") == b"S1"
    assert int(os.getxattr(place / "file", "user.azekura.chunk_size")) == 131_072
    assert int(os.getxattr(place / "dir", "user.azekura.chunk_size")) == 131_072
    with refused(errno.EINVAL):
        os.setxattr(place, "user.azekura.class", b"S3")
    with refused(errno.EINVAL):
        os.setxattr(place, "user.azekura.chunk_size", b"5")
    assert (place / "file").read_bytes() == b"x" * 500_000


@pytest.mark.root
def test_setgid_directories_and_sticky_ones(place):
    os.chmod(place, 0o777)
    os.chown(place, 0, 1234)
    os.chmod(place, 0o2777)
    (place / "sub").mkdir()
    (place / "file").touch()
    assert (place / "sub").stat().st_gid == 1234
    assert (place / "sub").stat().st_mode & 0o2000
    assert (place / "file").stat().st_gid == 1234
    os.chown(place / "file", 1, 1)
    os.chmod(place / "file", 0o6755)
    os.truncate(place / "file", 10)
    with open(place / "file", "r+b", buffering=0) as file:
        file.write(b"by root")
    assert (place / "file").stat().st_mode & 0o777 == 0o755


def test_statfs(place):
    status = os.statvfs(place)
    assert status.f_namemax == 255
    assert 0 < status.f_bavail <= status.f_blocks
    assert status.f_frsize >= 512


# -- directories


def read_names(path):
    """Names as one open directory stream gives them."""
    with os.scandir(path) as entries:
        return [entry.name for entry in entries]


@pytest.mark.limit(300)
def test_big_directory_while_others_insert_and_remove(place):
    """100,000 entries: everybody who stays is listed once, whoever comes and goes meanwhile."""
    count = 100_000
    handle = os.open(place, os.O_RDONLY)
    for number in range(count):
        os.mknod(f"stays{number}", 0o600, dir_fd=handle)
    stop = threading.Event()

    def churn():
        number = 0
        while not stop.is_set():
            os.mknod(f"comes{number}", 0o600, dir_fd=handle)
            if number >= 50:
                os.unlink(f"comes{number - 50}", dir_fd=handle)
            number += 1

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(2):
            names = read_names(place)
            assert len(names) == len(set(names)), "a name came twice"
            stays = sum(name.startswith("stays") for name in names)
            assert stays == count
    finally:
        stop.set()
        thread.join()
    kinds = {entry.is_file(follow_symlinks=False) for entry in os.scandir(place)}
    assert kinds == {True}
    with refused(errno.ENOTEMPTY):
        os.rmdir(place)
    os.close(handle)
    subprocess.run(["find", place, "-mindepth", "1", "-delete"], check=True)
    assert os.listdir(place) == []


def test_removing_while_listing_misses_nobody(place):
    """`rm -r` in one stream: each name that was listed is removed before the next is asked for."""
    for number in range(5000):
        (place / f"f{number}").touch()
    removed = 0
    with os.scandir(place) as entries:
        for entry in entries:
            os.unlink(entry.path)
            removed += 1
    assert removed == 5000
    os.rmdir(place)
    place.mkdir()


SEEKDIR = """
import ctypes, sys
c = ctypes.CDLL(None)
c.opendir.restype = c.readdir.restype = ctypes.c_void_p
c.telldir.restype = ctypes.c_long
for call in (c.readdir, c.telldir, c.rewinddir, c.closedir):
    call.argtypes = [ctypes.c_void_p]
c.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]
stream = c.opendir(sys.argv[1].encode())
def name():
    entry = c.readdir(stream)
    return entry and ctypes.string_at(entry + 19).decode()
seen = []
while True:
    place = c.telldir(stream)
    assert place >= 0
    found = name()
    if not found:
        break
    seen.append((place, found))
assert len(seen) == len(set(found for _, found in seen)) == int(sys.argv[2]) + 2, len(seen)
for place, found in seen[::-37] + seen[::53]:
    c.seekdir(stream, place)
    assert name() == found
c.rewinddir(stream)
assert name() == seen[0][1]
c.closedir(stream)
"""


def test_seekdir_leads_back_to_the_same_entry(place):
    for number in range(3000):
        (place / f"entry{number}").touch()
    subprocess.run([sys.executable, "-c", SEEKDIR, place, "3000"], check=True, timeout=60)


def test_dot_entries(place):
    (place / "sub").mkdir()
    listed = subprocess.check_output(["ls", "-ai", place / "sub"], text=True).split()
    assert listed[1] == "."
    assert int(listed[0]) == (place / "sub").stat().st_ino
    assert int(listed[2]) == place.stat().st_ino


# -- many at once


def test_threads_of_one_process(place):
    """Eight threads create, rename and remove in one directory, and nothing is left or lost."""
    wrong = []

    def work(number):
        try:
            for step in range(150):
                path = place / f"t{number}-{step}"
                path.write_bytes(bytes([number]) * 100)
                os.rename(path, place / f"r{number}-{step}")
                assert (place / f"r{number}-{step}").read_bytes() == bytes([number]) * 100
                if step % 2:
                    os.unlink(place / f"r{number}-{step}")
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(os.listdir(place)) == 8 * 75


def test_two_renames_cannot_make_a_loop(place):
    """Moving a below b and b below a at the same time: one of the two is refused, always."""
    for number in range(40):
        a, b = place / f"a{number}", place / f"b{number}"
        a.mkdir()
        b.mkdir()
        barrier = threading.Barrier(2)
        outcomes = []

        def move(old, new, barrier=barrier, outcomes=outcomes):
            barrier.wait()
            try:
                os.rename(old, new / "in")
                outcomes.append("moved")
            except OSError as error:
                outcomes.append(errno.errorcode[error.errno])

        threads = [
            threading.Thread(target=move, args=(a, b)),
            threading.Thread(target=move, args=(b, a)),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert outcomes.count("moved") == 1, outcomes
        assert set(outcomes) <= {"moved", "EINVAL", "ENOENT"}, outcomes


def test_racing_creators_and_removers(place):
    """rmdir never succeeds on a directory that somebody has just put an entry into."""
    stop = threading.Event()
    lost = []

    def remove():
        while not stop.is_set():
            try:
                os.rmdir(place / "dir")
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.ENOENT):
                    lost.append(error)

    thread = threading.Thread(target=remove)
    thread.start()
    try:
        for number in range(200):
            try:
                os.mkdir(place / "dir")
                (place / "dir" / f"f{number}").write_text("here")
            except (FileNotFoundError, FileExistsError):
                continue
            # It was answered, so the directory cannot be gone.
            if (place / "dir" / f"f{number}").exists():
                os.unlink(place / "dir" / f"f{number}")
            else:
                lost.append(number)
    finally:
        stop.set()
        thread.join()
    assert not lost
