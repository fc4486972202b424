"""The runtime directory goes at the end of a login, with the sockets in it; the engines stay."""

import shutil


def lose_runtime_dir(world):
    shutil.rmtree(world.base / "run")


def test_a_pool_is_reached_without_the_runtime_directory(world):
    pool = world.pool()
    world.run("fs", "put", "/etc/passwd", f"{pool.name}:/f")
    (pid,) = pool.pids()
    lose_runtime_dir(world)
    assert pool.status()["state"] == "up"
    assert world.run("fs", "ls", f"{pool.name}:/").stdout == "f\n"
    assert "runs already" in pool.up().stdout
    assert pool.pids() == [pid]
    pool.down()
    pool.up()
    assert world.run("fs", "ls", f"{pool.name}:/").stdout == "f\n"
    world.run("down", pool.name, "--destroy", "--yes")
    assert not pool.directory.exists()


def test_where_no_socket_is_left_it_is_said(world):
    long = world.storage / ("long" * 30)
    pool = world.pool(directory=long)
    lose_runtime_dir(world)
    done = world.run("status", pool.name, check=False)
    assert done.returncode == 1
    assert "cannot be reached" in done.stderr
    assert f"azekura down {pool.name}" in done.stderr
    done = world.run("up", "--name", pool.name, check=False)
    assert done.returncode == 1
    assert f"azekura down {pool.name}" in done.stderr
    pool.down()
    pool.up()
    assert pool.status()["state"] == "up"
