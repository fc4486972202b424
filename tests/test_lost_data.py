"""Data that go while the pool is stopped: nobody is told that they are zeros."""

import json
import os

import pytest

FILES = {"small": 3_000, "large": 200_000, "striped": 9_000_000}
"""Names and lengths; with chunks of 1 MiB the last one lies on every target."""


@pytest.fixture
def stopped(world):
    """A pool with some files, one of them synced, that was stopped in good order."""
    pool = world.pool(file_class="SX")
    for name, length in FILES.items():
        local = world.base / name
        local.write_text(os.urandom(length // 20).hex() * 10)
        world.run("fs", "put", local, f"{pool.name}:/{name}")
    pool.check()
    pool.down()
    return pool


def shards(pool):
    """The files with data, by length."""
    found = sorted(pool.directory.rglob("data/??/*"), key=lambda path: path.stat().st_size)
    return [path for path in found if path.stat().st_size > 0]


def check(pool, *options):
    done = pool.world.run("fs", "check", pool.name, "--json", *options, check=False)
    report = json.loads(done.stdout)
    assert (done.returncode == 0) == report["clean"]
    return report


def lost(report):
    return {
        finding["path"].strip("/"): finding["detail"]
        for finding in report["findings"]
        if finding["kind"] == "lost-data"
    }


def cat(pool, name):
    return pool.world.run("fs", "cat", f"{pool.name}:/{name}", check=False)


def is_whole(pool, name):
    done = cat(pool, name)
    return done.returncode == 0 and done.stdout == (pool.world.base / name).read_text()


def test_a_pool_in_order_is_found_in_order(stopped):
    stopped.up()
    report = check(stopped, "--data")
    assert report["clean"]
    assert report["counts"]["data_bytes_read"] == sum(FILES.values())
    assert all(is_whole(stopped, name) for name in FILES)


@pytest.mark.parametrize("options", [(), ("--data",)])
def test_a_file_that_was_removed_is_an_error_for_who_reads(stopped, options):
    gone = shards(stopped)[0]
    gone.unlink()
    stopped.up()
    shown = (stopped.mount() / "small").stat()
    assert shown.st_size == FILES["small"] and shown.st_mtime > 0
    report = check(stopped, *options)
    assert list(lost(report)) == ["small"], report
    assert gone.name in lost(report)["small"]
    done = cat(stopped, "small")
    assert done.returncode != 0 and done.stdout == "", done
    assert gone.name in stopped.world.log_text()
    assert is_whole(stopped, "large") and is_whole(stopped, "striped")
    # What takes its place is in order.
    world = stopped.world
    world.run("fs", "rm", f"{stopped.name}:/small")
    world.run("fs", "put", world.base / "small", f"{stopped.name}:/small")
    assert is_whole(stopped, "small")
    stopped.check()


def test_files_that_were_cut_are_an_error_behind_their_end(stopped):
    for path in shards(stopped)[:-1]:
        os.truncate(path, path.stat().st_size - 1)
    stopped.up()
    assert sorted(lost(check(stopped))) == sorted(FILES)
    mounted = stopped.mount()
    for name, length in FILES.items():
        assert (mounted / name).stat().st_size == length
        with open(mounted / name, "rb") as file, pytest.raises(OSError, match="Input/output"):
            while file.read(4096):
                pass
    with open(mounted / "large", "rb", buffering=0) as file:
        assert file.read(4096) == (stopped.world.base / "large").read_bytes()[:4096]
    whole = (stopped.world.base / "small").read_bytes()
    with open(mounted / "small", "wb") as file:
        file.write(whole)
    assert is_whole(stopped, "small")
    assert sorted(lost(check(stopped))) == ["large", "striped"]


def test_shards_that_end_with_the_engine_killed_are_not_missed(world):
    pool = world.pool()
    mounted = pool.mount()
    for number in range(50):
        with open(mounted / f"f{number}", "wb") as file:
            file.write(b"x" * 10_000)
            if number % 3 == 0:
                os.fsync(file.fileno())
        if number % 2:
            os.truncate(mounted / f"f{number}", number)
        if number % 5 == 0:
            (mounted / f"f{number}").unlink()
    pool.kill()
    pool.up()
    assert check(pool, "--data")["clean"]
    for number in range(50):
        if number % 5:
            expected = number if number % 2 else 10_000
            assert (mounted / f"f{number}").read_bytes() == b"x" * expected
