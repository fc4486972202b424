"""`azekura bench`: what it prints, and what that is held against. How fast anything is matters not."""

import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def pool(module_world):
    return module_world.pool()


@pytest.fixture(scope="module")
def mount(pool):
    return pool.mount()


@pytest.mark.limit(240)
@pytest.mark.parametrize("kind", ["io", "md"])
@pytest.mark.parametrize("where", ["pool", "path"])
def test_bench_as_json(module_world, pool, mount, kind, where):
    place = ["--pool", pool.name] if where == "pool" else ["--path", mount.path]
    sheet = module_world.json("bench", kind, *place, "--quick", limit_s=230)
    assert sheet["rows"]
    for row in sheet["rows"]:
        assert isinstance(row["name"], str)
        assert isinstance(row["unit"], str)
        assert row["value"] > 0, row
        assert row["reference"] > 0, row
        assert row["ratio"] == pytest.approx(row["value"] / row["reference"], rel=0.01), row
    assert not list(mount.path.glob("azekura-bench*")), "a bench leaves nothing behind"


@pytest.mark.limit(240)
@pytest.mark.parametrize("where", ["pool", "mount", "directory"])
def test_bench_counts_processor_time(module_world, pool, mount, tmp_path, where):
    """Each operation costs somebody time; engines only where there are any."""
    places = {
        "pool": ["--pool", pool.name, "--via", "native,preload"],
        "mount": ["--path", mount.path],
        "directory": ["--path", tmp_path],
    }
    arguments = ["bench", "md", *places[where], "--quick", "--cpu"]
    sheet = module_world.json(*arguments, limit_s=230)
    names = {row["name"] for row in sheet["rows"]}
    assert {"create", "stat", "open_close", "remove"} <= names
    assert ("preload:stat" in names) == (where == "pool")
    for row in sheet["rows"]:
        cpu = row["cpu"]
        assert 0 < cpu["client_us"] < 1e6, row
        bare = row["name"].startswith(("ref_", "passthrough_ll:"))
        if where == "directory" or (where == "mount" and bare):
            assert "engine_us" not in cpu, row
        elif row["name"] != "stat" or where == "pool":
            # A mount answers stat from what its kernel and itself know for a second.
            assert 0 < cpu["engine_us"] < 1e6, row
    shown = module_world.run(*arguments, limit_s=230).stdout
    assert "client us" in shown and "engine us" in shown
    plain = module_world.run(*arguments[:-1], limit_s=230).stdout
    assert "client us" not in plain


MOUNTING = """#!/bin/sh
# One of its modes works, and shows another directory in memory.
for last; do :; done
[ "$2" = -s ] || exit 1
mount -t tmpfs azekura-test "$last" || exit 1
while mountpoint -q "$last"; do sleep 0.05; done
"""
REFUSING = "#!/bin/sh\nexit 1\n"


def stand_in(world, path, script):
    """A program in place of libfuse's example, and the world's environment with it."""
    path.write_text(script)
    path.chmod(0o755)
    return {**world.environment, "AZEKURA_PASSTHROUGH_LL": str(path)}


@pytest.mark.limit(240)
def test_bench_counts_processor_time_of_data(module_world, pool):
    sheet = module_world.json("bench", "io", "--pool", pool.name, "--quick", "--cpu", limit_s=230)
    for row in sheet["rows"]:
        # A copy takes more than a small message, also where the engine has no part in it.
        least_us = 5 if row["unit"] == "MiB/s" else 0
        assert row["cpu"]["client_us"] + row["cpu"]["engine_us"] > least_us, row


@pytest.mark.root
@pytest.mark.limit(240)
@pytest.mark.parametrize("kind", ["io", "md"])
def test_bench_beside_an_example(module_world, mount, tmp_path, kind):
    environment = stand_in(module_world, tmp_path / "example", MOUNTING)
    sheet = module_world.json(
        "bench", kind, "--path", mount.path, "--quick", limit_s=230, env=environment
    )
    rows = {row["name"]: row for row in sheet["rows"]}
    ours = [name for name in rows if ":" not in name and not name.startswith("ref_")]
    assert ours
    for name in ours:
        beside = rows[f"passthrough_ll:{name}"]
        assert beside["mode"] == "one thread"
        assert beside["reference_name"] == name
        assert beside["reference"] == pytest.approx(rows[name]["value"])
        assert beside["value"] > 0
    assert "passthrough_ll" not in Path("/proc/self/mounts").read_text(), "it was unmounted"
    assert not list(Path("/dev/shm").glob("azekura-bench-passthrough_ll*"))


def test_bench_without_an_example_that_can_mount(module_world, mount, tmp_path):
    environment = stand_in(module_world, tmp_path / "example", REFUSING)
    arguments = ["bench", "md", "--path", mount.path, "--quick", "--json"]
    done = module_world.run(*arguments, env=environment)
    assert "passthrough_ll:" not in done.stdout
    assert str(tmp_path / "example") in done.stderr
    sheet = module_world.json("bench", "md", "--path", mount.path, "--quick")
    assert not any(row["name"].startswith("ref_passthrough") for row in sheet["rows"])


@pytest.mark.limit(240)
def test_bench_beside_the_example_of_libfuse(module_world, mount):
    if shutil.which("passthrough_ll") is None:
        pytest.skip("passthrough_ll is not on the PATH")
    sheet = module_world.json("bench", "md", "--path", mount.path, "--quick", "--cpu", limit_s=230)
    row = next(row for row in sheet["rows"] if row["name"] == "passthrough_ll:stat")
    assert row["value"] > 0 and row["cpu"]["client_us"] > 0
