"""How mounts come and go, and who may use them."""

import errno
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pools import BINARY, Pool, World, alive, is_mounted, kill_hard, wait_until

NOBODY = pwd.getpwnam("nobody")


def as_nobody(*command, **more):
    return subprocess.run(
        command,
        user=NOBODY.pw_uid,
        group=NOBODY.pw_gid,
        extra_groups=[],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **more,
    )


def test_the_command_returns_when_the_mount_is_ready(world):
    mount = world.pool(memory=True).mount()
    (mount / "file").write_text("at once")
    assert (mount / "file").read_text() == "at once"
    pid = mount.pid()
    mount.umount()
    assert not is_mounted(mount.path)
    wait_until(lambda: not alive(pid), "the process of the mount ends")
    assert os.listdir(mount) == []
    mount.mount()
    assert (mount / "file").read_text() == "at once"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_unmounts_cleanly(world, number):
    pool = world.pool(memory=True)
    mount = pool.mount()
    (mount / "file").write_bytes(b"x" * 3_000_000)
    os.kill(mount.pid(), number)
    wait_until(lambda: not is_mounted(mount.path), "unmounted")
    mount.mount()
    assert (mount / "file").stat().st_size == 3_000_000


def test_in_the_foreground(world):
    pool = world.pool(memory=True)
    directory = world.base / "front"
    directory.mkdir()
    child = world.start("mount", pool.name, directory, "--foreground")
    wait_until(lambda: is_mounted(directory), "mounted")
    (directory / "file").write_text("x")
    child.send_signal(signal.SIGTERM)
    assert child.wait(30) == 0, child.log.read_text()
    assert not is_mounted(directory)


def test_a_killed_mount_can_be_cleaned_up(world):
    """What a killed mount leaves is refused with a message that says what to do, and that works."""
    pool = world.pool(memory=True)
    mount = pool.mount()
    (mount / "file").write_text("kept")
    mount.kill()
    with pytest.raises(OSError) as caught:
        os.listdir(mount)
    # The kernel says the second to a request that was on its way when the mount died, the third to one
    # that it had just given to a ring.
    died = (errno.ENOTCONN, errno.ECONNABORTED, errno.ECANCELED)
    assert caught.value.errno in died
    done = world.run("mount", pool.name, mount.path, check=False)
    if done.returncode != 0:
        assert "azekura umount" in done.stderr, done.stderr
        mount.umount()
        assert not is_mounted(mount.path)
        mount.mount()
    assert (mount / "file").read_text() == "kept"
    mount.kill()
    world.run("umount", mount.path)
    assert not is_mounted(mount.path)


def test_umount_of_a_busy_mount_says_so(world):
    mount = world.pool(memory=True).mount()
    (mount / "file").write_text("x")
    with open(mount / "file"):
        done = world.run("umount", mount.path, check=False)
        if done.returncode == 0:
            # Taken away lazily: then nobody new finds it.
            assert not is_mounted(mount.path)
        else:
            assert "in use" in done.stderr, done.stderr
    if is_mounted(mount.path):
        mount.umount()


def test_read_only(world):
    pool = world.pool(memory=True)
    mount = pool.mount()
    (mount / "file").write_text("text")
    readonly = pool.mount("--read-only")
    assert (readonly / "file").read_text() == "text"
    for attempt in (
        lambda: (readonly / "new").touch(),
        lambda: (readonly / "file").write_text("other"),
        lambda: os.unlink(readonly / "file"),
        lambda: os.mkdir(readonly / "dir"),
        lambda: os.rename(readonly / "file", readonly / "other"),
        lambda: os.chmod(readonly / "file", 0o600),
        lambda: os.utime(readonly / "file"),
        lambda: os.setxattr(readonly / "file", "user.a", b"v"),
    ):
        with pytest.raises(OSError) as caught:
            attempt()
        assert caught.value.errno == errno.EROFS
    (mount / "later").write_text("seen")
    wait_until(lambda: (readonly / "later").exists(), "the other mount's file", limit_s=3)


@pytest.mark.root
def test_permissions_of_other_users(world):
    pool = world.pool(memory=True)
    os.chmod(world.base, 0o755)
    opened = pool.mount("--allow-other")
    (opened / "public").write_text("public")
    (opened / "private").write_text("private")
    os.chmod(opened / "private", 0o600)
    os.chmod(opened.path, 0o755)
    assert as_nobody("cat", opened / "public").stdout == "public"
    done = as_nobody("cat", opened / "private")
    assert done.returncode != 0
    assert "Permission denied" in done.stderr
    assert as_nobody("touch", opened / "new").returncode != 0
    os.mkdir(opened / "shared")
    os.chmod(opened / "shared", 0o1777)
    assert as_nobody("touch", opened / "shared/mine").returncode == 0
    assert (opened / "shared/mine").stat().st_uid == NOBODY.pw_uid
    (opened / "shared/yours").touch()
    assert as_nobody("rm", "-f", opened / "shared/yours").returncode != 0, "the sticky bit holds"
    assert as_nobody("rm", opened / "shared/mine").returncode == 0


@pytest.mark.root
def test_supplementary_groups_count(world):
    mount = world.pool(memory=True).mount("--allow-other")
    os.chmod(world.base, 0o755)
    os.chmod(mount.path, 0o755)
    path = mount / "group"
    path.write_text("for the group")
    os.chown(path, 0, 54_321)
    os.chmod(path, 0o040)
    user = {"user": NOBODY.pw_uid, "group": NOBODY.pw_gid, "stdin": subprocess.DEVNULL}
    groups = list(range(60_000, 60_040))
    without = subprocess.run(
        ["cat", path], extra_groups=groups, capture_output=True, check=False, **user
    )
    within = subprocess.run(
        ["cat", path], extra_groups=[*groups, 54_321], capture_output=True, check=False, **user
    )
    assert without.returncode != 0
    assert within.stdout == b"for the group", within.stderr


@pytest.mark.root
@pytest.mark.skipif(not shutil.which("fusermount3"), reason="needs fusermount3")
def test_an_ordinary_user_mounts_a_pool_of_his_own(world):
    """Everything as an ordinary user: pool, mount through fusermount3, work, unmount."""
    home = world.base / "nobody"
    home.mkdir()
    os.chown(home, NOBODY.pw_uid, NOBODY.pw_gid)
    os.chmod(world.base, 0o755)
    program = world.base / "azekura"
    shutil.copy(BINARY, program)
    os.chmod(program, 0o755)
    environment = {
        name: value for name, value in world.environment.items() if not name.startswith("XDG_")
    }
    environment.update(HOME=str(home), XDG_RUNTIME_DIR=str(home), USER="nobody")
    directory = home / "mnt"

    def run(*arguments, check=True):
        done = as_nobody(str(program), *map(str, arguments), env=environment, cwd=home)
        assert done.returncode == 0 or not check, f"{arguments}: {done.stdout}\n{done.stderr}"
        return done

    name = f"user{os.getpid()}"
    run("up", "--memory", "--name", name)
    try:
        assert as_nobody("mkdir", str(directory)).returncode == 0
        refused = run("mount", name, directory, "-o", "suid", check=False)
        assert refused.returncode != 0
        assert "root" in refused.stderr, refused.stderr
        run("mount", name, directory)
        try:
            assert {"nosuid", "nodev", "noatime"} <= set(options_of(directory))
            assert is_mounted(directory)
            script = f"echo text > {directory}/file && cat {directory}/file && id -u"
            done = as_nobody("sh", "-c", script)
            assert done.stdout == f"text\n{NOBODY.pw_uid}\n", done.stderr
            script = f"stat -c %u {directory}/file && mkdir {directory}/d && rmdir {directory}/d"
            done = as_nobody("sh", "-c", script)
            assert done.stdout == f"{NOBODY.pw_uid}\n", done.stderr
            with pytest.raises(PermissionError):
                os.listdir(directory)
        finally:
            run("umount", directory)
        assert not is_mounted(directory)
    finally:
        run("down", name, "--destroy", "--yes", check=False)


def test_mounting_what_is_not_there(world):
    directory = world.base / "m"
    directory.mkdir()
    done = world.run("mount", "nosuchpool", directory, check=False)
    assert done.returncode == 1
    assert "nosuchpool" in done.stderr
    pool = world.pool(memory=True)
    done = world.run("mount", pool.name, world.base / "missing", check=False)
    assert done.returncode == 1
    assert "missing" in done.stderr
    done = world.run("umount", directory, check=False)
    assert done.returncode == 1
    assert str(directory) in done.stderr
    pool.down()
    started = time.monotonic()
    done = world.run("mount", pool.name, directory, check=False)
    assert done.returncode == 1
    assert pool.name in done.stderr
    assert time.monotonic() - started < 45
    assert not is_mounted(directory)


def test_a_mount_stays_small_while_streaming(world):
    mount = world.pool(memory=True).mount()
    block = os.urandom(1 << 20)
    with open(mount / "file", "wb", buffering=0) as file:
        for _ in range(600):
            file.write(block)
    with open(mount / "file", "rb", buffering=0) as file:
        while file.read(1 << 20):
            pass
    status = Path(f"/proc/{mount.pid()}/status").read_text()
    resident_kib = int(status.split("VmRSS:")[1].split()[0])
    assert resident_kib < 200 * 1024


def test_a_reader_that_is_killed_goes_at_once(world):
    """An engine that does not answer holds a reader up, but not one that was killed."""
    pool = world.pool()
    mount = pool.mount(cache="none")
    (mount / "file").write_bytes(b"x" * 100_000)
    pids = pool.pids()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        reader = subprocess.Popen([sys.executable, "-c", f"open({str(mount / 'file')!r}).read()"])
        time.sleep(1)
        assert reader.poll() is None
        reader.kill()
        assert reader.wait(10) == -signal.SIGKILL
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    assert (mount / "file").stat().st_size == 100_000


def options_of(path):
    """The options of a mount, as the kernel shows them."""
    with open("/proc/self/mounts") as mounts:
        found = [line.split() for line in mounts if line.split()[1] == str(path)]
    return found[-1][3].split(",")


@pytest.mark.root
def test_set_user_programs_and_devices_count_only_if_asked_for(world):
    pool = world.pool(memory=True)
    plain = options_of(pool.mount().path)
    assert {"nosuid", "nodev"} <= set(plain), plain
    asked = options_of(pool.mount("-o", "suid,dev").path)
    assert not {"nosuid", "nodev"} & set(asked), asked
    last = options_of(pool.mount("-o", "suid,dev", "-o", "nosuid,ro").path)
    assert {"nosuid", "ro"} <= set(last), last
    assert "nodev" not in last, last
    done = world.run("mount", pool.name, world.base, "-o", "sudi", check=False)
    assert done.returncode == 2
    assert "suid" in done.stderr


def test_the_mount_says_that_reading_changes_no_time_of_access(world):
    mount = world.pool(memory=True).mount()
    options = options_of(mount.path)
    assert "noatime" in options, options
    assert "relatime" not in options, options
    path = mount / "file"
    path.write_bytes(b"x")
    os.utime(path, ns=(10**18, 2 * 10**18))
    assert path.read_bytes() == b"x"
    assert path.stat().st_atime_ns == 10**18


def mounts_in(status):
    """Where `status --json` says that a pool is mounted, and which of it is dead."""
    one = status["pools"][0] if "pools" in status else status
    return one["mounts"], one["dead_mounts"]


def test_pools_of_one_name_have_mounts_of_their_own(world):
    """Two users may both call their pool so."""
    name = f"twin{os.getpid()}"
    with World() as other:
        twins = []
        for each in (world, other):
            twin = Pool(each, name, each.storage / name, 2, ())
            each.pools.append(twin)
            twin.up()
            twins.append(twin)
        mine, theirs = twins
        mount = mine.mount()
        assert mounts_in(mine.status()) == ([str(mount.path)], [])
        assert mounts_in(theirs.status()) == ([], [])
        assert str(mount.path) not in theirs.down().stderr
        assert str(mount.path) in mine.down().stderr


def test_a_mount_whose_process_was_killed_is_shown_as_dead(world):
    pool = world.pool(memory=True)
    mount, other = pool.mount(), pool.mount()
    mount.kill()
    # The kernel may take its time to cut off what the process had open.
    wait_until(lambda: mounts_in(pool.status())[1] == [str(mount.path)], "it is shown as dead")
    assert sorted(mounts_in(pool.status())[0]) == sorted([str(mount.path), str(other.path)])
    for arguments in (["status"], ["status", pool.name]):
        text = world.run(*arguments).stdout
        assert f"{mount.path} (dead" in text, text
        assert f"{other.path} (dead" not in text, text
    mount.umount()
    assert mounts_in(pool.status()) == ([str(other.path)], [])


@pytest.mark.parametrize("how", ["frozen", "gone"])
def test_a_mount_goes_while_its_pool_does_not_answer(world, how):
    pool = world.pool(memory=True)
    mount = pool.mount()
    (mount / "file").write_text("x")
    pids = pool.pids()
    try:
        for pid in pids:
            if how == "frozen":
                os.kill(pid, signal.SIGSTOP)
            else:
                kill_hard(pid)
        started = time.monotonic()
        mount.umount()
        assert time.monotonic() - started < 5
        assert not is_mounted(mount.path)
    finally:
        if how == "frozen":
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
