"""What helps people to keep a pool: manual pages, completions, logs, the doctor, units, fstab."""

import os
import re
import shlex
import shutil
import stat
import subprocess

import pytest
from pools import BINARY, ROOT, is_mounted, wait_until


def commands_of(world, *above):
    """Every command that the help names, with those above it."""
    text = world.run(*above, "--help").stdout
    listed = re.search(r"^Commands:\n((?: +.*\n)+)", text, re.MULTILINE)
    if not listed:
        return [above]
    names = re.findall(r"^  ([a-z][a-z-]*)", listed.group(1), re.MULTILINE)
    below = [commands_of(world, *above, name) for name in names if name != "help"]
    return [above, *[command for commands in below for command in commands]]


def test_every_command_has_a_manual_page(world, tmp_path):
    world.run("dev", "man", tmp_path)
    pages = {path.name for path in tmp_path.iterdir()}
    assert {"-".join(["azekura", *command]) + ".1" for command in commands_of(world)} == pages
    text = (tmp_path / "azekura-fs-put.1").read_text()
    assert "archive" in text
    assert "default:/data" in text


def complete(world, *words):
    environment = dict(world.environment, AZEKURA_COMPLETE="bash", _CLAP_COMPLETE_INDEX=str(len(words)))
    done = world.run("--", "azekura", *words, env=environment)
    return done.stdout.replace("\v", "\n").split()


def test_completions_know_the_pools(world):
    pool = world.pool(memory=True)
    for words in (["status", ""], ["down", ""], ["mount", ""], ["container", "create", "--pool", ""]):
        assert pool.name in complete(world, *words), words
    assert f"{pool.name}:/" in complete(world, "fs", "ls", pool.name[:2])
    assert "--destroy" in complete(world, "down", "--d")
    for shell in ("bash", "zsh", "fish"):
        assert "AZEKURA_COMPLETE" in world.run("completions", shell).stdout


def test_logs_are_shown(world):
    pool = world.pool(memory=True)
    assert "the engine is ready" in world.run("logs", pool.name).stdout
    assert world.run("logs", pool.name, "-n", "1").stdout.count("\n") == 1
    following = world.start("logs", pool.name, "--follow")
    mount = pool.mount()
    assert "mounted" in world.run("logs", "--mount", mount.path).stdout
    mount.umount()
    pool.down()
    wait_until(lambda: "draining" in following.log.read_text(), "what came later")
    following.terminate()
    done = world.run("logs", "nosuch", check=False)
    assert done.returncode == 1
    assert "nosuch.log" in done.stderr


def test_the_doctor_says_what_to_do(world):
    pool = world.pool(memory=True)
    findings = {each["what"]: each for each in world.json("doctor", check=False)["findings"]}
    expected = {"/dev/fuse", "fusermount3", "namespaces", "ports", "runtime directory", "pools"}
    assert expected <= set(findings)
    assert "far pools" not in findings
    assert findings["pools"]["state"] == "good"
    assert findings["runtime directory"]["state"] == "good"
    pool.kill()
    environment = dict(world.environment, PATH="/nowhere")
    done = world.run("doctor", check=False, env=environment)
    assert done.returncode == 1
    assert re.search(rf"^BAD +pools +.*'{pool.name}'.*azekura status", done.stdout, re.MULTILINE)
    assert re.search(r"^(BAD|look) +fusermount3 +.*package fuse3", done.stdout, re.MULTILINE)


def test_a_unit_runs_the_pool(world):
    pool = world.pool()
    done = world.run("up", "--name", pool.name, "--unit")
    assert "systemctl --user enable --now" in done.stdout
    (unit,) = (world.base / "config/systemd/user").iterdir()
    assert unit.name == f"azekura-{pool.name}.service"
    if shutil.which("systemd-analyze"):
        command = ["systemd-analyze", "--user", "verify", unit]
        checked = subprocess.run(command, capture_output=True, text=True, check=False)
        assert unit.name not in checked.stderr, checked.stderr
    (line,) = re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)
    program, *arguments = shlex.split(line)
    assert program == str(BINARY)
    world.run("fs", "put", "/etc/passwd", f"{pool.name}:/f")
    pool.down()
    child = world.start(*arguments)
    wait_until(lambda: "engine of pool" in child.log.read_text(), "it runs")
    assert world.run("fs", "ls", f"{pool.name}:/").stdout == "f\n"
    pool.down()
    assert child.wait(30) == 0, "which systemd does not take for a failure"
    done = world.run("up", "--memory", "--unit", check=False)
    assert done.returncode == 2


def script(world, *arguments, check=True):
    return world.run(*arguments, program=ROOT / "scripts/mount.azekura", check=check)


@pytest.mark.root
def test_fstab_mounts_a_container(world):
    pool = world.pool(memory=True)
    place = world.base / "fstab"
    place.mkdir()
    path = f"{BINARY.parent}:{os.environ['PATH']}"
    world.environment["PATH"] = path
    script(world, pool.name, place, "-o", "ro,_netdev,noauto,cache=none,x-systemd.automount")
    try:
        assert is_mounted(place)
        with pytest.raises(OSError, match="Read-only"):
            (place / "f").touch()
    finally:
        subprocess.run(["umount", place], check=True)
    done = script(world, pool.name, place, "-o", "rw,sparkling", check=False)
    assert done.returncode == 1
    assert "sparkling" in done.stderr
    mode = (ROOT / "scripts/mount.azekura").stat().st_mode
    assert mode & stat.S_IXUSR
