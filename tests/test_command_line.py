"""What other programs rely on: exit codes, messages, and the form of what is printed as JSON."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import time

import pytest
from pools import BINARY, World, wait_until


@pytest.fixture(scope="module")
def files(module_world):
    """A small local tree."""
    place = module_world.storage / "files"
    (place / "dir/sub").mkdir(parents=True)
    (place / "a.txt").write_text("text a")
    (place / "dir/b.bin").write_bytes(os.urandom(3_000_000))
    (place / "dir/sub/empty").touch()
    os.symlink("../a.txt", place / "dir/link")
    return place


# -- exit codes and messages


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["no-such-command"],
        ["up", "--targets", "0"],
        ["up", "--no-such-option"],
        ["mount", "only-a-pool"],
        ["fs"],
        ["bench", "io"],
        ["bench", "io", "--pool", "a", "--path", "b"],
        ["serve"],
    ],
)
def test_usage_errors_are_exit_code_2(world, arguments):
    done = world.run(*arguments, check=False)
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert "--help" in done.stderr or "Usage" in done.stderr or "azekura" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", "nosuch"],
        ["down", "nosuch"],
        ["fs", "check", "nosuch"],
        ["fs", "ls", "nosuch:/"],
        ["bench", "md", "--pool", "nosuch", "--quick"],
        ["umount", "/nosuch"],
    ],
)
def test_failures_are_exit_code_1_and_name_what_failed(world, arguments):
    done = world.run(*arguments, check=False)
    assert done.returncode == 1, done
    assert done.stderr.startswith("azekura: "), done.stderr
    assert "nosuch" in done.stderr
    assert "panicked" not in done.stderr


def test_help_and_version(world):
    text = world.run("--help").stdout
    for command in ("up", "down", "status", "serve", "pool", "container", "mount", "fs", "bench"):
        assert re.search(rf"^ +{command} ", text, re.MULTILINE), command
        assert "Usage" in world.run(command, "--help").stdout
    assert re.match(r"azekura \d+\.\d+\.\d+", world.run("--version").stdout)
    for shell in ("bash", "zsh", "fish"):
        assert "azekura" in world.run("completions", shell).stdout


def test_help_and_version_of_the_laboratory(world):
    text = world.run_lab("--help").stdout
    for command in ("netlab", "experiment", "draw"):
        assert re.search(rf"^ +{command} ", text, re.MULTILINE), command
        assert "Usage" in world.run_lab(command, "--help").stdout
        assert command not in world.run("--help").stdout
    assert re.match(r"azekura-lab \d+\.\d+\.\d+", world.run_lab("--version").stdout)
    assert "azekura-lab" in world.run_lab("completions", "bash").stdout


def test_commands_of_the_laboratory_are_handed_over(world, tmp_path):
    own, handed = (run("experiment", "list") for run in (world.run_lab, world.run))
    assert own.stdout == handed.stdout
    assert "azekura-lab netlab" in world.run("netlab", "--help").stdout
    refused = world.run("experiment", "run", "nosuch", check=False)
    assert refused.returncode == 2
    assert refused.stderr.startswith("azekura-lab: ")
    alone = shutil.copy(BINARY, tmp_path)
    for command in (["netlab", "status"], ["experiment", "list", "--json"]):
        done = world.run(*command, program=alone, check=False)
        assert done.returncode == 2
        assert f"azekura-lab {command[0]}" in done.stderr
        assert done.stderr.count("\n") == 1


TRACE = {
    "pid": 7,
    "us": 100,
    "object": "0a",
    "policy": "fixed",
    "read_offset": 0,
    "read_bytes": 4096,
    "offset": 0,
    "bytes": 65536,
    "ranges": 1,
    "utilisation": None,
    "decision": "first",
    "round_trip_us": 50000,
    "bytes_per_second": 1000000,
    "window_bytes": 65536,
    "held_bytes": 65536,
    "hit_bytes": 0,
    "wasted_bytes": 0,
}


def test_a_trace_is_drawn_by_the_laboratory(world, tmp_path):
    trace, svg = tmp_path / "t.jsonl", tmp_path / "t.svg"
    trace.write_text(json.dumps(TRACE) + "\n" + json.dumps(dict(TRACE, us=200)) + "\n")
    shown = world.run("trace", trace, "--svg", svg)
    assert "fixed" in shown.stdout
    assert str(svg) in shown.stderr
    picture = svg.read_text()
    assert "Utilisation" in picture
    world.run_lab("draw", trace, tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_text() == picture
    alone = shutil.copy(BINARY, tmp_path)
    done = world.run("trace", trace, "--svg", tmp_path / "no.svg", program=alone, check=False)
    assert done.returncode == 1
    assert done.stdout == shown.stdout
    assert "azekura-lab" in done.stderr


def test_output_that_nobody_reads_is_no_failure(world):
    command = f"'{BINARY}' --help | head -n 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        env=world.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "panicked" not in done.stderr


# -- status


def test_status_as_json(module_world, pool):
    (status,) = module_world.json("status", pool.name)["pools"]
    everything = module_world.json("status")["pools"]
    assert [set(each) for each in everything] == [set(status)], "one form for one and for all"
    assert status["name"] == pool.name
    assert status["state"] == "up"
    assert status["targets"] == 4
    assert status["space"]["total_bytes"] >= status["space"]["available_bytes"] > 0
    assert set(status["rates"]) == {"requests_per_s", "read_bytes_per_s", "written_bytes_per_s"}
    (engine,) = status["engines"]
    assert engine["state"] == "up"
    assert os.path.exists(f"/proc/{engine['pid']}")
    assert engine["addresses"]
    assert all(re.match(r"(unix:/|tcp:)", address) for address in engine["addresses"])
    for key in ("sessions", "connections", "requests", "resident_bytes", "uptime_s"):
        assert isinstance(engine[key], int), key
    for target in engine["targets"]:
        assert os.path.isdir(target["path"])
        assert isinstance(target["objects"], int)


def test_status_of_a_pool_that_is_down(world):
    pool = world.pool(memory=True)
    pool.down()
    done = world.run("status", pool.name, "--json", check=False)
    assert done.returncode == 1
    assert '"down"' in done.stdout
    assert "down" in world.run("status", check=False).stdout
    pool.up()
    assert pool.status()["state"] == "up"


# -- files without a mount


def test_files_without_a_mount(module_world, pool, files, tmp_path):
    world, name = module_world, pool.name
    world.run("fs", "mkdir", f"{name}:/cli")
    world.run("fs", "put", "-r", files, f"{name}:/cli")
    listed = world.run("fs", "ls", f"{name}:/cli/files/dir").stdout.split()
    assert sorted(listed) == ["b.bin", "link", "sub"]
    assert world.run("fs", "cat", f"{name}:/cli/files/a.txt").stdout == "text a"
    world.run("fs", "get", "-r", f"{name}:/cli/files", tmp_path)
    subprocess.run(["diff", "-r", "--no-dereference", files, tmp_path / "files"], check=True)
    world.run("fs", "cp", "-r", f"{name}:/cli/files", f"{name}:/cli/copy")
    world.run("fs", "mv", f"{name}:/cli/copy/a.txt", f"{name}:/cli/copy/moved")
    assert world.run("fs", "cat", f"{name}:/cli/copy/moved").stdout == "text a"
    assert world.run("fs", "cat", f"{name}:/cli/copy/a.txt", check=False).returncode == 1
    assert world.run("fs", "rm", f"{name}:/cli/copy", check=False).returncode == 1
    world.run("fs", "rm", "-r", f"{name}:/cli/copy")
    assert world.run("fs", "ls", f"{name}:/cli").stdout.split() == ["files"]
    assert "a.txt" in world.run("fs", "stat", f"{name}:/cli/files/a.txt").stdout
    assert world.json("fs", "df", name)
    pool.check()


def test_without_and_with_a_mount_are_the_same_files(module_world, pool, mount):
    (mount / "seen").write_text("by mount")
    assert module_world.run("fs", "cat", f"{pool.name}:/seen").stdout == "by mount"
    module_world.run("fs", "rm", f"{pool.name}:/seen")
    wait_until(lambda: not (mount / "seen").exists(), "the file is gone", limit_s=3)


def test_striping_attributes(module_world, pool):
    world, name = module_world, pool.name
    world.run("fs", "mkdir", f"{name}:/striped")
    world.run("fs", "set-attr", f"{name}:/striped", "class=S2", "chunk_size=65536")
    shown = world.run("fs", "get-attr", f"{name}:/striped").stdout
    assert "S2" in shown
    done = world.run("fs", "set-attr", f"{name}:/striped", "class=S3", check=False)
    assert done.returncode in (1, 2)
    assert "S3" in done.stderr


def test_containers(module_world, pool, files):
    world, name = module_world, pool.name
    world.run("container", "create", "second", "--pool", name)
    assert "second" in world.run("container", "list", name).stdout
    world.run("fs", "put", files / "a.txt", f"{name}/second:/only-here")
    assert "only-here" in world.run("fs", "ls", f"{name}/second:/").stdout
    assert "only-here" not in world.run("fs", "ls", f"{name}:/").stdout
    done = world.run("container", "create", "second", "--pool", name, check=False)
    assert done.returncode == 1
    assert world.run("fs", "check", f"{name}/second").returncode == 0
    world.run("container", "destroy", "second", "--yes", "--pool", name)
    assert "second" not in world.run("container", "list", name).stdout
    assert world.run("fs", "ls", f"{name}/second:/", check=False).returncode == 1


def test_check_as_json(module_world, pool):
    report = module_world.json("fs", "check", pool.name)
    assert isinstance(report, dict)


# -- a full disk


@contextlib.contextmanager
def small_disk(path, mebibytes):
    path.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={mebibytes}m"]
    subprocess.run(["mount", *options, "azekura-test", path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


@pytest.mark.root
@pytest.mark.limit(180)
@pytest.mark.parametrize("cache", ["auto", "none"])
def test_a_full_disk(tmp_path, cache):
    """ENOSPC and nothing worse; what was written is whole, and removal makes room again."""
    with small_disk(tmp_path / "disk", 64) as disk, World() as world:
        pool = world.pool(directory=disk / "pool", targets=2)
        mount = pool.mount(cache=cache)
        block = os.urandom(1 << 20)
        kept = []
        with pytest.raises(OSError) as caught:
            for number in range(200):
                path = mount / f"f{number}"
                with open(path, "wb", buffering=0) as file:
                    assert file.write(block) == len(block)
                    os.fsync(file.fileno())
                kept.append(path)
        assert caught.value.errno == 28, caught.value
        assert len(kept) >= 10
        for path in kept:
            assert path.read_bytes() == block
        with pytest.raises(OSError):
            for number in range(100_000):
                (mount / f"small{number}").write_bytes(b"x" * 4000)
        pool.check()
        for path in kept:
            path.unlink()
        wait_until(lambda: writable(mount / "after", block), "room again", limit_s=60)
        assert (mount / "after").read_bytes() == block
        pool.kill()
        pool.up()
        assert (mount / "after").read_bytes() == block
        pool.check()


def writable(path, data):
    try:
        path.write_bytes(data)
    except OSError as error:
        assert error.errno == 28, error
        time.sleep(0.2)
        return False
    return True


@pytest.mark.root
def test_a_directory_that_cannot_be_written(world):
    """A pool on a read-only file system is refused with its path."""
    place = world.base / "readonly"
    with small_disk(place, 8):
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        done = world.run("up", "--dir", place / "pool", "--name", "readonly", check=False)
    assert done.returncode == 1
    assert str(place) in done.stderr
    assert "panicked" not in done.stderr


def test_damaged_and_newer_targets_are_refused_by_name(world):
    pool = world.pool()
    pool.down()
    identity = next(pool.directory.rglob("target.json"))
    text = identity.read_text()
    for wrong in (text.replace('"version": 1', '"version": 99'), "{", ""):
        identity.write_text(wrong)
        done = world.run("up", "--dir", pool.directory, "--name", pool.name, check=False)
        assert done.returncode == 1, done
        assert str(identity.parent) in done.stderr, done.stderr
        assert "panicked" not in done.stderr
    identity.write_text(text)
    pool.up()
    pool.check()


def test_destroy_removes_all(world):
    pool = world.pool()
    pool.mount().umount()
    pool.down("--destroy", "--yes")
    assert not pool.directory.exists() or not any(pool.directory.iterdir())
    assert pool.name not in world.run("status", check=False).stdout
    shutil.rmtree(pool.directory, ignore_errors=True)
    pool.up()
    assert pool.status()["state"] == "up"
