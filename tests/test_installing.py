"""What `make install` puts where, and that it works from there and goes away again."""

import subprocess

import pytest
from pools import BINARY, ROOT


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    if not BINARY.with_name("libazekura_preload.so").exists():
        pytest.skip("the preload library is not built")
    prefix = tmp_path_factory.mktemp("installed") / "prefix"
    place("install", prefix)
    return prefix


def place(action, prefix):
    command = [ROOT / "scripts" / "place.sh", action, prefix]
    return subprocess.run(command, check=True, timeout=60, capture_output=True, text=True).stdout


def files(prefix):
    return {str(path.relative_to(prefix)) for path in prefix.rglob("*") if not path.is_dir()}


def test_the_installed_program_finds_its_library(installed, world):
    pool = world.pool(memory=True)
    done = subprocess.run(
        [installed / "bin" / "azekura", "run", "--pool", pool.name, "--", "env"],
        env=world.environment,
        check=True,
        timeout=60,
        capture_output=True,
        text=True,
    )
    assert f"LD_PRELOAD={installed}/lib/libazekura_preload.so" in done.stdout


def test_everything_goes_away_again(installed, tmp_path):
    programs = {"bin/azekura", "bin/azekura-lab"}
    libraries = {"lib/libazekura_preload.so", "lib/libazekura_recorder.so"}
    assert programs | libraries <= files(installed)
    helpers = {
        "sbin/mount.azekura",
        "share/man/man1/azekura.1",
        "share/man/man1/azekura-fs-put.1",
        "share/bash-completion/completions/azekura",
        "share/zsh/site-functions/_azekura",
        "share/fish/vendor_completions.d/azekura.fish",
    }
    assert helpers <= files(installed)
    place("install", tmp_path)
    (tmp_path / "lib" / "other.so").write_text("")
    place("install", tmp_path)
    assert files(tmp_path) == files(installed) | {"lib/other.so"}
    place("uninstall", tmp_path)
    assert files(tmp_path) == {"lib/other.so"}
