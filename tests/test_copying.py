"""`azekura fs put` and `get`: a file is there when it is complete, streams, and what `-a` keeps."""

import os
import signal
import stat
import subprocess

import pytest
from pools import BINARY, World, wait_until

SMALL = 30_000
PART = ".azekura-"


def parts(place):
    return [path.name for path in place.iterdir() if path.name.startswith(PART)]


def listed(world, place):
    return world.run("fs", "ls", "-a", place, check=False).stdout.split()


@pytest.fixture(scope="module")
def large(module_world, pool):
    """A file of the pool that takes a while."""
    path = module_world.storage / "large"
    with open(path, "wb") as out:
        for _ in range(64):
            out.write(os.urandom(1 << 20) * 8)
    module_world.run("fs", "put", path, f"{pool.name}:/large")
    return path


def test_a_get_that_fails_leaves_no_file(module_world, pool, large, tmp_path):
    (tmp_path / "old").write_text("old")
    for name in ("new", "old"):
        limited = f"trap '' XFSZ; ulimit -f 5000; exec {BINARY} fs get {pool.name}:/large {name}"
        done = module_world.run("-c", limited, program="bash", check=False, cwd=tmp_path)
        assert done.returncode == 1, done
        assert "could not be copied" in done.stderr
    assert not (tmp_path / "new").exists()
    assert (tmp_path / "old").read_text() == "old"
    assert not parts(tmp_path)


def test_an_interrupted_get_leaves_no_file(module_world, pool, large, tmp_path):
    child = module_world.start("fs", "get", f"{pool.name}:/large", tmp_path / "large")
    wait_until(lambda: parts(tmp_path) or child.poll() is not None, "it has begun", pause_s=0.001)
    assert not (tmp_path / "large").exists()
    child.send_signal(signal.SIGINT)
    assert child.wait(30) == 130, child.log.read_text()
    assert "interrupted" in child.log.read_text()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.root
def test_a_put_that_fails_leaves_no_file(world, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    options = ["-t", "tmpfs", "-o", "size=100m"]
    subprocess.run(["mount", *options, "azekura-test", disk], check=True)
    try:
        pool = world.pool(directory=disk / "pool")
        source = tmp_path / "source"
        source.write_bytes(os.urandom(1 << 20) * 200)
        world.run("fs", "put", "/etc/passwd", f"{pool.name}:/old")
        for name in ("new", "old"):
            done = world.run("fs", "put", source, f"{pool.name}:/{name}", check=False)
            assert done.returncode == 1, done
        assert listed(world, f"{pool.name}:/") == ["old"]
        with open("/etc/passwd") as text:
            assert world.run("fs", "cat", f"{pool.name}:/old").stdout == text.read()
    finally:
        pool.down(check=False)
        subprocess.run(["umount", "-l", disk], check=True)


def test_standard_input_is_put_when_it_has_ended(module_world, pool):
    place = f"{pool.name}:/streamed"
    command = module_world.command("fs", "put", "-", place)
    data = os.urandom(5_000_000)
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=module_world.environment) as child:
        child.stdin.write(data[:SMALL])
        child.stdin.flush()
        # A draft is there, and nothing under the name.
        wait_until(lambda: any(PART in n for n in listed(module_world, f"{pool.name}:/")), "begun")
        assert "streamed" not in listed(module_world, f"{pool.name}:/")
        child.stdin.write(data[SMALL:])
        child.stdin.close()
        assert child.wait(30) == 0
    out = subprocess.run(
        module_world.command("fs", "get", place, "-"),
        env=module_world.environment,
        capture_output=True,
        check=True,
    )
    assert out.stdout == data
    assert not any(PART in name for name in listed(module_world, f"{pool.name}:/"))


def test_interrupted_standard_input_leaves_no_file(module_world, pool):
    command = module_world.command("fs", "put", "-", f"{pool.name}:/never")
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=module_world.environment) as child:
        wait_until(lambda: any(PART in n for n in listed(module_world, f"{pool.name}:/")), "begun")
        child.send_signal(signal.SIGINT)
        assert child.wait(30) == 130
    names = listed(module_world, f"{pool.name}:/")
    assert "never" not in names
    assert not any(PART in name for name in names)


def test_a_file_that_is_replaced_keeps_its_striping(module_world, pool):
    place = f"{pool.name}:/wide"
    module_world.run("fs", "set-attr", place, "class=S2", "chunk_size=64KiB")
    module_world.run("fs", "put", "/etc/passwd", place)
    shown = module_world.json("fs", "get-attr", place)["files"][0]
    assert (shown["class"], shown["chunk_bytes"]) == ("S2", 65_536)


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        (["fs", "ls", "default:file"], "default:/file"),
        (["fs", "check", "default:/dir"], "'default'"),
        (["fs", "df", "default/second:/dir"], "'default/second'"),
        (["mount", "default:/dir", "/tmp"], "'default'"),
        (["run", "--pool", "default:/dir", "true"], "'default'"),
        (["container", "list", "default:/dir"], "'default'"),
    ],
)
def test_what_to_write_instead_of_a_wrong_place(world, command, wanted):
    done = world.run(*command, check=False)
    assert done.returncode != 0
    assert wanted in done.stderr, done.stderr


# -- archives


def make_tree(place):
    """A file, a directory and a link with everything that -a keeps."""
    place.mkdir()
    (place / "dir").mkdir()
    (place / "file").write_text("text")
    (place / "tool").write_text("tool")
    os.symlink("file", place / "link")
    os.setxattr(place / "file", "user.colour", b"blue")
    os.setxattr(place / "dir", "user.shape", b"round")
    if os.geteuid() == 0:
        os.setxattr(place / "tool", "security.capability", bytes.fromhex("01000002" + "00" * 16))
        os.lchown(place / "link", 1234, 2345)
        for path in (place / "file", place / "dir"):
            os.chown(path, 1234, 2345)
    os.chmod(place / "file", 0o6755)
    os.chmod(place / "dir", 0o1775)
    os.utime(place / "file", ns=(1_000_000_001, 2_000_000_002))


def shown(place):
    def one(path):
        found = path.lstat()
        names = os.listxattr(path, follow_symlinks=False)
        xattrs = {n: os.getxattr(path, n, follow_symlinks=False) for n in sorted(names)}
        times = None if path.is_dir() else found.st_mtime_ns
        return (stat.filemode(found.st_mode), found.st_uid, found.st_gid, times, xattrs)

    return {path.name: one(path) for path in sorted(place.iterdir())}


def test_an_archive_keeps_owners_and_attributes(module_world, pool, tmp_path):
    source = tmp_path / "source"
    make_tree(source)
    place = f"{pool.name}:/archive"
    done = module_world.run("fs", "put", "-a", source, place)
    assert done.stderr == ""
    module_world.run("fs", "get", "-a", place, tmp_path / "back")
    assert shown(tmp_path / "back") == shown(source)
    module_world.run("fs", "get", "-r", place, tmp_path / "plain")
    assert (tmp_path / "plain/file").stat().st_mode & 0o7000 == 0
    assert (tmp_path / "plain/file").stat().st_uid == os.geteuid()
    assert os.listxattr(tmp_path / "plain/file") == []


@pytest.mark.root
def test_set_id_bits_go_where_the_owner_is_not_kept(tmp_path):
    """An ordinary user cannot give files away: what says so is the user's, without their rights."""
    with World(user=4321) as world:
        pool = world.pool(memory=True)
        make_tree(world.base / "source")
        done = world.run("fs", "put", "-a", world.base / "source", f"{pool.name}:/of-others")
        assert "only root gives files away" in done.stderr
        found = world.json("fs", "stat", f"{pool.name}:/of-others/file")["files"][0]
        assert found["uid"] == 4321
        assert int(str(found["mode"]), 8) & 0o6000 == 0
