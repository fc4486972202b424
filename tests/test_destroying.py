"""What cannot be undone is asked for, and what fails half-way leaves nothing behind."""

import os
import pty
import socket
import subprocess

import pytest


def on_a_terminal(world, answer, *arguments):
    """Runs a command whose standard input is a terminal with this answer typed in."""
    controller, terminal = pty.openpty()
    try:
        os.write(controller, f"{answer}\n".encode())
        return world.run(*arguments, check=False, stdin=terminal)
    finally:
        os.close(terminal)
        os.close(controller)


@pytest.mark.parametrize("command", [("down", "--destroy"), ("pool", "destroy")])
def test_destroying_a_pool_wants_a_yes(world, command):
    pool = world.pool()
    done = world.run(*command, pool.name, check=False)
    assert done.returncode == 2
    assert "--yes" in done.stderr
    done = on_a_terminal(world, "no", *command, pool.name)
    assert done.returncode == 1
    assert "nothing was done" in done.stderr
    assert pool.status()["state"] == "up", "it was not even stopped"
    done = on_a_terminal(world, "yes", *command, pool.name)
    assert done.returncode == 0, done
    assert str(pool.directory) in done.stderr
    assert not pool.directory.exists()


def test_destroying_a_container_wants_a_yes(world):
    pool = world.pool(memory=True)
    world.run("container", "create", "c", "--pool", pool.name)
    done = world.run("container", "destroy", "c", "--pool", pool.name, check=False)
    assert done.returncode == 2
    assert "--yes" in done.stderr
    assert "c" in world.run("container", "list", pool.name).stdout.split()
    world.run("container", "destroy", "c", "--yes", "--pool", pool.name)
    assert "c" not in world.run("container", "list", pool.name).stdout.split()


def test_what_is_mounted_is_not_destroyed(world):
    pool = world.pool(memory=True)
    mount = pool.mount()
    for command in (
        ["down", pool.name, "--destroy", "--yes"],
        ["container", "destroy", "default", "--yes", "--pool", pool.name],
    ):
        done = world.run(*command, check=False)
        assert done.returncode == 1
        assert str(mount.path) in done.stderr
    assert pool.status()["state"] == "up"
    world.run("container", "create", "other", "--pool", pool.name)
    world.run("container", "destroy", "other", "--yes", "--pool", pool.name)
    mount.umount()
    pool.down("--destroy", "--yes")


def test_a_foreign_directory_is_no_place_for_a_pool(world):
    place = world.storage / "mine"
    place.mkdir()
    (place / "thesis").touch()
    done = world.run("up", "--name", "p", "--dir", place, check=False)
    assert done.returncode == 1
    assert "thesis" in done.stderr
    assert [path.name for path in place.iterdir()] == ["thesis"]
    assert "p" not in world.run("status").stdout.split()


@pytest.mark.parametrize("there", [False, True])
def test_a_failed_up_leaves_nothing_behind(world, there):
    place = world.storage / "new"
    if there:
        place.mkdir()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = "{}:{}".format(*taken.getsockname())
        command = ["up", "--name", "p", "--dir", place, "--listen", address]
        done = world.run(*command, check=False)
        assert done.returncode == 1
        assert address in done.stderr
    assert list(world.processes()) == []
    assert place.exists() == there
    if there:
        assert list(place.iterdir()) == []
    assert "no pool" in world.run("status").stdout
    world.run(*command)
    world.run("down", "p", "--destroy", "--yes")


def test_a_failed_start_leaves_an_old_pool_as_it_was(world):
    pool = world.pool()
    world.run("fs", "put", "/etc/passwd", f"{pool.name}:/f")
    pool.down()
    identity = next(pool.directory.rglob("target.json"))
    text = identity.read_text()
    identity.write_text("{")
    done = world.run("up", "--name", pool.name, check=False)
    assert done.returncode == 1
    identity.write_text(text)
    pool.up()
    subprocess.run(world.command("fs", "get", f"{pool.name}:/f", "-"), check=True, env=world.environment)
