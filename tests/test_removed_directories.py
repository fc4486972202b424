"""Directories that are removed while somebody has them open, or stands in them: as on a local file
system they go on answering for themselves, and take nothing more."""

import errno
import os
import stat
import subprocess
import sys
import time

import pytest

CACHES = ["auto", "none"]
# Longer than the kernel believes attributes.
LATER_S = 1.3


@pytest.fixture(scope="module", params=CACHES)
def pair(request, module_world):
    pool = module_world.pool()
    yield pool.mount(cache=request.param), pool.mount(cache=request.param)


def answers_for_itself(fd):
    """What holds for a removed directory that is open."""
    for pause in (0, LATER_S):
        time.sleep(pause)
        seen = os.fstat(fd)
        assert stat.S_ISDIR(seen.st_mode)
        assert seen.st_nlink == 0
        assert os.listdir(fd) == []
        os.fchmod(fd, 0o710)
        assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o710
        os.fchmod(fd, 0o750)
        assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o750
        os.utime(fd, ns=(5, 6))
        assert (os.fstat(fd).st_atime_ns, os.fstat(fd).st_mtime_ns) == (5, 6)
        os.setxattr(fd, "user.new", b"value")
        assert os.getxattr(fd, "user.new") == b"value"
        assert "user.new" in os.listxattr(fd)
        os.removexattr(fd, "user.new")
        assert "user.new" not in os.listxattr(fd)
        with pytest.raises(OSError) as refused:
            os.getxattr(fd, "user.new")
        assert refused.value.errno == errno.ENODATA
        os.fsync(fd)
        for call in (
            lambda: os.mkdir("sub", dir_fd=fd),
            lambda: os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=fd),
            lambda: os.stat("file", dir_fd=fd),
        ):
            with pytest.raises(FileNotFoundError):
                call()


def test_an_open_directory_that_is_removed(pair):
    one, _ = pair
    (one / "open").mkdir()
    os.setxattr(one / "open", "user.old", b"kept")
    fd = os.open(one / "open", os.O_RDONLY | os.O_DIRECTORY)
    os.rmdir(one / "open")
    answers_for_itself(fd)
    assert os.getxattr(fd, "user.old") == b"kept"
    os.close(fd)


def test_an_open_directory_that_is_replaced(pair):
    one, _ = pair
    (one / "replaced").mkdir()
    (one / "replacing").mkdir()
    fd = os.open(one / "replaced", os.O_RDONLY | os.O_DIRECTORY)
    os.rename(one / "replacing", one / "replaced")
    answers_for_itself(fd)
    os.close(fd)
    assert (one / "replaced").stat().st_nlink == 2


def test_an_open_directory_that_the_other_mount_removes(pair):
    one, other = pair
    (one / "far").mkdir()
    fd = os.open(one / "far", os.O_RDONLY | os.O_DIRECTORY)
    os.rmdir(other / "far")
    time.sleep(LATER_S)
    answers_for_itself(fd)
    os.close(fd)
    assert not (one / "far").exists()


STAND = """
import os, sys
os.chdir(sys.argv[1])
print("there", flush=True)
sys.stdin.readline()
for _ in range(2):
    seen = os.stat(".")
    assert seen.st_nlink == 0, seen
    os.chmod(".", 0o700)
    assert os.stat(".").st_mode & 0o777 == 0o700
    assert os.listdir(".") == []
    for call in (lambda: open("file", "w"), lambda: os.mkdir("sub"), os.getcwd):
        try:
            call()
        except FileNotFoundError:
            continue
        sys.exit("that should not have worked")
    sys.stdin.readline()
"""


def test_a_working_directory_that_is_removed(pair):
    one, _ = pair
    (one / "cwd").mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", STAND, one / "cwd"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as stander:
        assert stander.stdout.readline() == "there\n"
        time.sleep(LATER_S)
        os.rmdir(one / "cwd")
        stander.stdin.write("\n")
        stander.stdin.flush()
        time.sleep(LATER_S)
        _, said = stander.communicate("\n\n", timeout=20)
        assert stander.returncode == 0, said


def test_a_working_directory_that_was_moved_and_is_removed(pair):
    """The kernel moves the name itself, and does not look it up again."""
    one, _ = pair
    script = "mkdir moved && mv moved there && cd there && rmdir ../there && stat -c %h ."
    done = subprocess.run(["sh", "-ec", script], cwd=one, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
    # Of one name several directories after each other: the last is the one that is gone.
    script = "mkdir b; rmdir b; mkdir a; mv a b; cd b; rmdir ../b; stat -c %h ."
    done = subprocess.run(["sh", "-ec", script], cwd=one, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
