"""The C interface: what is installed compiles, links and runs; the header and the library agree."""

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from pools import ROOT

CAPI = ROOT / "crates" / "capi"
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
OID = re.compile(r"object ([0-9a-f]{16}\.[0-9a-f]{16})")


def run(command, check=True, limit_s=100, **more):
    done = subprocess.run(
        [*map(str, command)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
        **more,
    )
    if check:
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


class Prefix:
    """The interface installed under a prefix, and the programs that are built against it."""

    def __init__(self, path):
        self.path = path
        self.environment = dict(os.environ, PKG_CONFIG_PATH=str(path / "lib" / "pkgconfig"))

    def flags(self, *options):
        command = ["pkg-config", *options, "azekura"]
        return run(command, env=self.environment).stdout.split()

    def build(self, source, *more):
        out = self.path / f"built-{source.stem}"
        compiler = ["g++", "-std=c++11"] if source.suffix == ".cc" else ["gcc", "-std=c11"]
        link = [*self.flags("--libs"), f"-Wl,-rpath,{self.path / 'lib'}"]
        flags = [*WARNINGS, "-pthread", *self.flags("--cflags")]
        run([*compiler, *flags, *more, source, "-o", out, *link])
        return out


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    path = tmp_path_factory.mktemp("prefix")
    run([ROOT / "scripts" / "place.sh", "install", path])
    return Prefix(path)


def test_what_is_installed_is_complete(prefix):
    assert (prefix.path / "lib" / "libazekura.so").resolve().name == "libazekura.so.0"
    assert prefix.flags("--modversion") == ["0.1.0"]
    soname = run(["readelf", "-d", prefix.path / "lib" / "libazekura.so"]).stdout
    assert "[libazekura.so.0]" in soname
    header = (prefix.path / "include" / "azekura.h").read_text()
    parts = [re.search(rf"AZEKURA_VERSION_{p} (\d+)", header)[1] for p in ("MAJOR", "MINOR", "PATCH")]
    assert ".".join(parts) == prefix.flags("--modversion")[0]


def functions_of_the_header():
    text = (CAPI / "include" / "azekura.h").read_text()
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r"^#.*(?:\\\n.*)*$", "", text, flags=re.M)
    return set(re.findall(r"\b(azekura_\w+)\(", text))


def test_header_and_library_have_the_same_functions(prefix):
    library = prefix.path / "lib" / "libazekura.so"
    lines = run(["nm", "-D", "--defined-only", library]).stdout.splitlines()
    exported = {line.split()[-1] for line in lines}
    assert exported == functions_of_the_header()


def test_the_manual_names_every_function():
    manual = (CAPI / "man" / "azekura.3").read_text()
    missing = {name for name in functions_of_the_header() if name not in manual}
    assert not missing


@pytest.mark.skipif(shutil.which("man") is None, reason="needs man")
def test_the_manual_is_well_formed():
    environment = dict(os.environ, MANWIDTH="80", LC_ALL="C.UTF-8", MAN_KEEP_FORMATTING="1")
    done = run(["man", "--warnings", "-l", CAPI / "man" / "azekura.3"], env=environment)
    assert not done.stderr
    assert "azekura_pool_open" in done.stdout


@pytest.mark.parametrize("program", ["objects", "files", "parallel", "inherited"])
def test_programs_in_c(prefix, world, program):
    pool = world.pool(memory=True)
    built = prefix.build(CAPI / "tests" / f"{program}.c")
    done = run([built, pool.name], env=world.environment)
    # The library prints nothing.
    assert (done.stdout, done.stderr) == ("", "")
    pool.check()


def test_the_header_is_good_cpp(prefix, world):
    pool = world.pool(memory=True)
    run([prefix.build(CAPI / "tests" / "header.cc"), pool.name], env=world.environment)


def test_the_examples(prefix, world):
    pool = world.pool(memory=True)
    files, table, workers = (
        prefix.build(CAPI / "examples" / f"{name}.c") for name in ("files", "table", "workers")
    )
    shown = run([files, pool.name], env=world.environment).stdout
    assert shown.split("\n")[:2] == ["stored in the beams", "      20 first.txt"]
    first = run([table, pool.name], env=world.environment).stdout
    assert "nara: celsius=18.0 hectopascal=1013.5" in first
    assert "filled 1 times" in first
    # The id is all that another process needs.
    again = run([table, pool.name, OID.search(first)[1]], env=world.environment).stdout
    assert "filled 2 times" in again
    numbers = sum(65536 * (number + 1) for number in range(8))
    assert run([workers, pool.name], env=world.environment).stdout == f"sum {numbers}\n"
    wrong = run([files, "nowhere"], env=world.environment, check=False)
    assert wrong.returncode == 1
    assert "azekura up --name nowhere" in wrong.stderr


def freeze(pids):
    """Stops processes, and comes back when they have stopped: the signal alone takes a while."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    for pid in pids:
        until = time.monotonic() + 20
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            assert time.monotonic() < until, f"process {pid} goes on"
            time.sleep(0.01)


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_a_pool_that_goes_away(prefix, world, how):
    pool = world.pool()
    built = prefix.build(CAPI / "tests" / "outage.c")
    child = subprocess.Popen(
        [built, pool.name, how],
        env=world.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout.readline() == "ready\n"
        pids = pool.pids()
        if how == "killed":
            pool.kill()
        else:
            freeze(pids)
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "gone\n"
        if how == "killed":
            pool.up()
        else:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        child.stdin.write("\n")
        child.stdin.close()
        assert child.wait(60) == 0
    finally:
        child.kill()
        child.wait(10)
        child.stdout.close()


def test_programs_link_with_the_static_library(prefix, world):
    pool = world.pool(memory=True)
    out = prefix.path / "built-static"
    library = prefix.path / "lib" / "libazekura.a"
    libs = [flag for flag in prefix.flags("--libs", "--static") if flag != "-lazekura"]
    source = CAPI / "examples" / "files.c"
    run(["gcc", "-std=c11", *prefix.flags("--cflags"), source, "-o", out, library, *libs])
    assert "stored in the beams" in run([out, pool.name], env=world.environment).stdout
