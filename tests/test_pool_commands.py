"""`azekura pool`: making pools of engines, learning of them, and engines that move."""

import time

import pytest
from pools import Engines, free_ports, kill_hard, wait_until


@pytest.fixture
def loose(world):
    """Starts an engine that belongs to no pool, and gives its address and directory."""

    def start(number):
        (port,) = free_ports(1)
        place = world.storage / f"loose{number}"
        place.mkdir()
        address = f"127.0.0.1:{port}"
        child = world.start("serve", "--dir", place, "--listen", address, "--targets", 2)
        wait_until(lambda: "engine of no pool yet" in child.log.read_text(), "it listens")
        return address, place

    return start


def create(world, *addresses, check=True):
    engines = [word for address in addresses for word in ("--engine", address)]
    return world.run("pool", "create", "big", *engines, check=check)


def test_a_pool_is_not_begun_without_all_its_engines(world, loose):
    (one, place), (missing,) = loose(1), free_ports(1)
    done = create(world, one, f"127.0.0.1:{missing}", check=False)
    assert done.returncode == 1
    assert str(missing) in done.stderr
    assert not (place / "pool.json").exists()
    create(world, one)
    assert "big" in world.run("status").stdout


def test_a_creation_that_failed_is_repeated(world, loose):
    (one, _), (two, place) = loose(1), loose(2)
    (place / "targets").write_text("in the way")
    done = create(world, one, two, check=False)
    assert done.returncode == 1
    assert two in done.stderr
    assert "same command again" in done.stderr
    assert "no pool" in world.run("status").stdout
    (place / "targets").unlink()
    # Half a pool is not taken for another one.
    assert world.run("pool", "create", "other", "--engine", one, check=False).returncode == 1
    create(world, one, two)
    world.run("fs", "put", "/etc/passwd", "big:/f")
    world.run("fs", "check", "big")
    world.run("pool", "forget", "big")
    done = create(world, one, two, check=False)
    assert done.returncode == 1
    assert "pool import" in done.stderr, "a pool that is complete is not made again"


def test_a_running_pool_is_imported(world):
    engines = Engines(world, 2, 2)
    name = engines.name
    world.run("fs", "put", "/etc/passwd", f"{name}:/f")
    world.run("pool", "forget", name)
    address = f"127.0.0.1:{engines.ports[1]}"
    world.run("pool", "import", address)
    assert world.run("fs", "ls", f"{name}:/").stdout == "f\n"
    shown = world.json("pool", "show", name)
    assert [engine["addresses"] for engine in shown["engines"]] == [
        [f"tcp:127.0.0.1:{port}"] for port in engines.ports
    ]
    world.run("pool", "import", address, f"localhost:{engines.ports[0]}")
    shown = world.json("pool", "show", name)
    assert shown["engines"][0]["addresses"][0] == f"tcp:localhost:{engines.ports[0]}"


def test_a_pool_of_another_user_is_imported_with_its_secret(world):
    (port,) = free_ports(1)
    pool = world.pool(memory=False, extra=["--listen", f"127.0.0.1:{port}"])
    other = dict(world.environment, XDG_STATE_HOME=str(world.base / "elsewhere"))
    (world.base / "elsewhere").mkdir()

    def run(*arguments, check=True):
        return world.run(*arguments, check=check, env=other)

    done = run("pool", "import", f"127.0.0.1:{port}", check=False)
    assert done.returncode == 1
    assert "--secret-file" in done.stderr
    secret = pool.directory / "pool.secret"
    run("pool", "import", f"127.0.0.1:{port}", "--secret-file", secret)
    run("fs", "mkdir", f"{pool.name}:/by-another")
    assert world.run("fs", "ls", f"{pool.name}:/").stdout == "by-another\n"


def is_made(mount, numbers):
    """Whether ten names in a row can be made, which lie at all engines."""
    try:
        for _ in range(10):
            (mount / f"probe{next(numbers)}").mkdir()
    except OSError:
        return False
    return True


def test_an_engine_gets_another_address(world):
    engines = Engines(world, 3, 2)
    name = engines.name
    mount = engines.pool.mount()
    (mount / "before").write_text("before")
    engines.stop(1)
    old = engines.ports[1]
    (engines.ports[1],) = free_ports(1)
    new = f"127.0.0.1:{engines.ports[1]}"
    # Nobody listens at the new address yet: nothing is changed.
    done = world.run("pool", "set-address", name, f"1={new}", check=False)
    assert done.returncode == 1
    assert str(old) in world.run("pool", "show", name).stdout
    engines.start(1)
    world.run("pool", "set-address", name, f"1={new}")
    assert str(old) not in world.run("pool", "show", name).stdout
    done = world.run("pool", "set-address", name, f"2={new}", check=False)
    assert done.returncode == 1
    assert "not engine 2" in done.stderr
    assert world.json("status", name)["pools"][0]["state"] == "up"
    # The mount was there before. It hears of the new map from the first other engine that it asks.
    probes = iter(range(1000))
    wait_until(lambda: is_made(mount, probes), "the mount follows", limit_s=40)
    # What it does takes all engines, and they take each other.
    for number in range(30):
        (mount / f"d{number}").mkdir()
        (mount / f"d{number}").rename(mount / f"e{number}")
    assert (mount / "before").read_text() == "before"
    # Every engine remembers it.
    for number in range(3):
        engines.stop(number)
        engines.start(number)
    world.run("pool", "forget", name)
    world.run("pool", "import", f"127.0.0.1:{engines.ports[0]}")
    assert new in world.run("pool", "show", name).stdout
    mount.umount()
    world.run("fs", "check", name)


def test_a_change_of_address_can_be_repeated(world):
    engines = Engines(world, 2, 2)
    for number in range(2):
        kill_hard(engines.children[number].pid)
        engines.children[number].wait()
    engines.ports = free_ports(2)
    changes = [f"{number}=127.0.0.1:{port}" for number, port in enumerate(engines.ports)]
    for number in range(2):
        engines.start(number)
    for _ in range(2):
        world.run("pool", "set-address", engines.name, *changes)
    world.run("fs", "mkdir", f"{engines.name}:/d")


def test_an_engine_that_serves_another_pool_is_not_waited_for(world):
    engines = Engines(world, 1, 2)
    engines.stop(0)
    engines.directories[0] = world.storage / "anew"
    engines.start(0)
    started = time.monotonic()
    done = world.run("fs", "ls", f"{engines.name}:/", check=False)
    took_s = time.monotonic() - started
    assert done.returncode == 1
    assert "serves another pool: is the pool file old?" in done.stderr
    # A program that finds nobody there waits for ten seconds.
    assert took_s < 5
