"""What makes a program file powerful goes when somebody writes to it, as on a local file system: set-id
bits when the writer must not have them there, capabilities whoever writes."""

import ctypes
import errno
import os
import re
import shutil
import stat
import struct
import subprocess
import sys
import urllib.request

import pytest
from pools import free_ports, wait_until

pytestmark = pytest.mark.root

STRANGER, MEMBER_OF = 54321, 54322
CAPABILITY = "security.capability"
# Revision 2, cap_dac_read_search, permitted.
CAN_READ_ALL = struct.pack("<5I", 0x02000000, 1 << 2, 0, 0, 0)
AT_STATX_SYNC_AS_STAT, STATX_MODE = 0, 2
_libc = ctypes.CDLL(None, use_errno=True)

# A program of a stranger's: not started as him, to whom the interpreter may be closed.
BECOME = """
import os, sys
user, *groups = map(int, sys.argv.pop().split(","))
os.setgroups(groups)
os.setresgid(user, user, user)
os.setresuid(user, user, user)
"""
WRITE = """
import os, sys
path, how = sys.argv[1:]
flags = {"append": os.O_APPEND, "write": 0, "truncate": os.O_TRUNC, "allocate": 0}[how]
fd = os.open(path, os.O_WRONLY | flags)
if how == "allocate":
    os.posix_fallocate(fd, 0, 100_000)
elif how != "truncate":
    os.write(fd, b"more")
os.close(fd)
"""
WAYS = ["append", "write", "truncate", "allocate"]


@pytest.fixture(scope="module", params=["auto", "none"])
def mounted(request, pool):
    os.chmod(pool.world.base, 0o755)
    mount = pool.mount(cache=request.param)
    os.chmod(mount.path, 0o755)
    return mount


@pytest.fixture
def program(mounted, request):
    """Makes an open-to-all file of root's with this mode, and looks at it."""
    place = mounted / "".join(c if c.isalnum() else "_" for c in request.node.name)
    place.mkdir()
    numbers = iter(range(1000))

    def make(mode, group=0):
        path = place / f"f{next(numbers)}"
        path.write_bytes(b"program")
        os.chown(path, 0, group)
        os.chmod(path, mode)
        path.stat()
        return path

    yield make
    shutil.rmtree(place)


def command(script, *arguments, user=None, groups=()):
    """Runs the script as that user, who is in these groups too; as root if no user is given."""
    if user is None:
        return [sys.executable, "-c", script, *map(str, arguments)]
    whom = ",".join(map(str, [user, *groups]))
    return [sys.executable, "-c", BECOME + script, *map(str, arguments), whom]


def write(path, how, user=None, groups=()):
    subprocess.run(command(WRITE, path, how, user=user, groups=groups), check=True, timeout=30)


def capability_of(path):
    try:
        return os.getxattr(path, CAPABILITY)
    except OSError as error:
        assert error.errno == errno.ENODATA
        return None


def mode_at_hand(path):
    """The mode as whoever starts the program finds it: nothing but that is asked of the kernel."""
    buffer = ctypes.create_string_buffer(256)
    done = _libc.statx(-100, os.fsencode(path), AT_STATX_SYNC_AS_STAT, STATX_MODE, buffer)
    assert done == 0, os.strerror(ctypes.get_errno())
    return stat.S_IMODE(struct.unpack_from("<H", buffer, 28)[0])


@pytest.mark.parametrize("how", WAYS)
def test_capabilities_go_whoever_writes(program, how):
    for user in (STRANGER, None):
        path = program(0o777)
        os.setxattr(path, CAPABILITY, CAN_READ_ALL)
        os.setxattr(path, "user.other", b"stays")
        write(path, how, user)
        assert capability_of(path) is None
        assert os.getxattr(path, "user.other") == b"stays"


@pytest.mark.parametrize("change", ["cut", "give"])
def test_capabilities_go_that_the_kernel_has_not_heard_of(program, mounted, pool, change):
    """They were set through another mount, after this one had seen that there were none."""
    other = pool.mount()
    for _ in range(3):
        path = program(0o755)
        with pytest.raises(OSError, match=os.strerror(errno.ENODATA)):
            os.getxattr(path, CAPABILITY)
        os.setxattr(other / path.relative_to(mounted.path), CAPABILITY, CAN_READ_ALL)
        if change == "cut":
            os.truncate(path, 3)
        else:
            os.chown(path, STRANGER, -1)
        assert capability_of(other / path.relative_to(mounted.path)) is None
    other.umount()


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize(
    ("mode", "left"),
    [(0o6777, 0o0777), (0o4666, 0o0666), (0o2777, 0o0777), (0o2666, 0o0666)],
    ids=oct,
)
def test_set_id_bits_go_when_a_stranger_writes(program, how, mode, left):
    path = program(mode)
    assert mode_at_hand(path) == mode
    write(path, how, STRANGER)
    assert mode_at_hand(path) == left, "at once, as whoever starts it finds it"
    assert stat.S_IMODE(path.stat().st_mode) == left


@pytest.mark.parametrize("how", WAYS)
def test_set_id_bits_stay_when_the_writer_may_have_them_there(program, how):
    path = program(0o6777)
    write(path, how)
    assert stat.S_IMODE(path.stat().st_mode) == 0o6777
    # Without execution by the group the bit means no program: a member of the group may keep it.
    for groups in ([], [MEMBER_OF]):
        path = program(0o2666, group=MEMBER_OF if groups else STRANGER)
        write(path, how, STRANGER, groups)
        assert stat.S_IMODE(path.stat().st_mode) == 0o2666


@pytest.mark.parametrize("flags", [0, os.O_APPEND], ids=["write", "append"])
def test_privileges_that_come_after_the_first_write_go_too(program, flags):
    path = program(0o777)
    script = """
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | int(sys.argv[2]))
for _ in range(2):
    os.write(fd, b"x")
    print("written", flush=True)
    sys.stdin.readline()
"""
    writer = subprocess.Popen(
        command(script, path, flags, user=STRANGER),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout.readline() == "written\n"
    os.setxattr(path, CAPABILITY, CAN_READ_ALL)
    os.chmod(path, 0o6777)
    writer.stdin.write("\n")
    writer.stdin.flush()
    assert writer.stdout.readline() == "written\n"
    assert capability_of(path) is None
    assert mode_at_hand(path) == 0o777
    writer.communicate("\n", timeout=20)


def test_writing_asks_the_engine_for_no_capabilities(world):
    (port,) = free_ports(1)
    pool = world.engines(1, extra=("--metrics", f"127.0.0.1:{port}")).pool
    mount = pool.mount()

    def asked():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
            text = page.read().decode()
        found = re.search(r'requests_total\{kind="get_xattr"\} (\d+)', text)
        return int(found[1]) if found else 0

    wait_until(lambda: asked() == 0, "metrics are served")
    for number in range(20):
        (mount / f"new{number}").write_bytes(b"x")
    with open(mount / "file", "wb", buffering=0) as file:
        for _ in range(20):
            file.write(b"x" * 5000)
            # The kernel has new attributes then, and asks before the next write.
            os.fstat(file.fileno())
    assert asked() == 0
