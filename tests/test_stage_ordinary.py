"""Staging jobs of an ordinary user: no root, nobody who is one, and nothing that only root may do."""

import hashlib
import os
import random
import shutil
import subprocess
import sys
import threading

import pytest
from pools import BINARY, World, wait_until
from services import S3, fill
from staged_tree import compile_program
from staging import Site

pytestmark = pytest.mark.root
USER = 65534
WAYS = ["preload", "notify"]
BYTES = random.Random(21).randbytes(24 << 20)
HEAD = 1 << 20
# From here on the home gives nothing until it is told to.
STOPS_AT = 12 << 20
SEEN = "/no-such-place/data"
# Says when it has the first MiB, and what it and the rest are.
READS = """
import hashlib, os, sys, time
begun = time.monotonic()
file = os.open(sys.argv[1], os.O_RDONLY)
head = os.read(file, 1 << 20)
assert len(head) == 1 << 20 and os.getuid() == 65534
print("head", hashlib.sha256(head).hexdigest(), time.monotonic() - begun, flush=True)
rest = hashlib.sha256()
while part := os.read(file, 1 << 20):
    rest.update(part)
print("rest", rest.hexdigest(), time.monotonic() - begun)
"""


@pytest.fixture
def site():
    with World(user=USER) as world:
        world.base.chmod(0o755)
        site = Site(world)
        for path in (site.home, site.cache):
            os.chown(path, USER, USER)
        done = world.run("--version", check=False)
        if done.returncode != 0:
            pytest.skip(f"{BINARY} is closed to ordinary users")
        yield site


def mapped(site, name, kind):
    path, option = site.map(name, kind)
    os.chown(path, USER, USER)
    return path, option


def sums(content):
    return [hashlib.sha256(part).hexdigest() for part in (content[:HEAD], content[HEAD:])]


def check_arriving(site):
    """Skips what needs a FUSE file system in a user name space of the user's own."""
    words = ["unshare", "--user", "--mount", "true"]
    done = subprocess.run(words, capture_output=True, check=False, **site.world.identity)
    fuse = subprocess.run(
        ["sh", "-c", ": <>/dev/fuse"], capture_output=True, check=False, **site.world.identity
    )
    if done.returncode != 0 or fuse.returncode != 0:
        pytest.skip("a user cannot mount a FUSE file system in a name space here")


@pytest.mark.parametrize("way", WAYS)
def test_files_come_and_results_go_home(site, way):
    data, option = mapped(site, "data", "ro")
    results, out = mapped(site, "results", "out")
    (data / "small").write_bytes(BYTES[:3000])
    (data / "large").write_bytes(BYTES)
    script = (
        f"id -u; cd {data}; sha256sum large small; ls; cat none; echo x >small; "
        f"mkdir {results}/d; cp small {results}/d/copy"
    )
    done = site.run(*option, *out, "--via", way, "--", "sh", "-c", script, cwd=site.world.base)
    said = done.stdout.split()
    assert said[0] == str(USER)
    assert said[1] == hashlib.sha256(BYTES).hexdigest()
    assert said[-2:] == ["large", "small"]
    assert "Read-only file system" in done.stderr
    assert "No such file" in done.stderr
    assert (results / "d" / "copy").read_bytes() == BYTES[:3000]
    assert (results / "d" / "copy").stat().st_uid == USER
    assert site.left() == []
    assert site.agents() == []


def program(site, kind):
    """The words that read a file by the beginning and then the rest."""
    if kind == "python":
        for python in (sys.executable, "/usr/bin/python3"):
            # A virtual environment may be closed to others.
            done = site.world.run("-c", '"$0" -c ""', python, program="sh", check=False)
            if done.returncode == 0:
                return [python, "-c", READS]
        pytest.skip("no python that an ordinary user may run")
    if not shutil.which("go"):
        pytest.skip("no Go compiler")
    built = site.world.base / "head"
    compile_program("go build", "head.go", built)
    return [built]


@pytest.mark.parametrize(("kind", "way"), [("python", "preload"), ("python", "notify"), ("go", "auto")])
def test_files_are_read_while_they_arrive(site, kind, way):
    check_arriving(site)
    words = program(site, kind)
    go_on = threading.Event()

    def before_get(_path, begin, _end):
        assert begin < STOPS_AT or go_on.wait(60)

    with S3() as server:
        fill(server, {"file": BYTES})
        server.before_get = before_get
        site.world.environment.update(server.environment, NO_PROXY="127.0.0.1")
        words = ["--map", f"{SEEN}=ro@{server.url()}", "--via", way, "--", *words, f"{SEEN}/file"]
        job = site.start(*words)

        def said():
            assert job.child.poll() is None or "head" in job.text, job.text
            return "head" in job.text

        try:
            wait_until(lambda: job.child.poll() is not None or said(), "the beginning is read")
            if "built without services" in job.text:
                pytest.skip("this program was built without services")
            assert not job.events("content-arrived")
            assert "rest" not in job.text
        finally:
            go_on.set()
        assert job.wait() == 0, job.text
    lines = [line.split()[:2] for line in job.text.splitlines() if line.startswith(("head ", "rest "))]
    head, rest = sums(BYTES)
    assert lines == [["head", head], ["rest", rest]], job.text
    assert len(job.events("content-arrived")) == 1
    assert site.left() == []


@pytest.mark.skipif("AZEKURA_TEST_LARGE" not in os.environ, reason="1 GiB: set AZEKURA_TEST_LARGE")
def test_the_head_of_a_large_file_is_there_long_before_the_rest(site):
    check_arriving(site)
    data, option = mapped(site, "data", "ro")
    with (data / "large").open("wb") as file:
        file.write(BYTES)
        file.truncate(1 << 30)
    done = site.run(*option, "--", *program(site, "python"), data / "large", limit_s=100)
    (_, head, head_s), (_, rest, rest_s) = [line.split() for line in done.stdout.splitlines()]
    assert head == sums(BYTES)[0]
    assert float(head_s) * 4 < float(rest_s), done.stdout
    wanted = hashlib.sha256(BYTES[HEAD:])
    wanted.update(bytes((1 << 30) - len(BYTES)))
    assert rest == wanted.hexdigest()
    assert site.left() == []
