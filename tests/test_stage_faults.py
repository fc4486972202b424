"""Staging jobs in which something fails while a file is on its way: links, sources, caches."""

import hashlib
import os
import random
import signal
import subprocess
import time

import pytest
from pools import BINARY, wait_until
from staging import NODES, LabSite, Site, gone_within, kill

pytestmark = pytest.mark.root
CUT_S = 5
LARGE = random.Random(13).randbytes(8 << 20)
DIGEST = hashlib.sha256(LARGE).hexdigest()


def slow_site(world):
    """Nodes to which 8 MiB are on the way for more than a second and a half; and that file."""
    site = LabSite(world, rate="40mbit")
    data, option = site.map("data", "ro")
    (data / "large").write_bytes(LARGE)
    return site, data, option


def under_way(site, option, script, *options):
    """A job in which a file has begun to travel and is nowhere yet."""
    job = site.start(*option, "--to", "all", *options, "--", "sh", "-c", script, cwd=site.world.base)
    job.wait_for("content-begun")
    time.sleep(0.6)
    assert not job.events("content-arrived")
    return job


def reads(site, path, nodes=NODES):
    """A script that prints what each node finds in a file, all at the same time."""
    words = [" ".join(map(str, site.on(node, "sha256sum", path))) for node in nodes]
    return " & ".join(words) + " & wait"


@pytest.mark.parametrize("host", ["n2", "server"])
def test_a_link_that_is_cut_for_a_while_ends_nothing(world, host):
    site, data, option = slow_site(world)
    results, out = site.map("results", "out")
    write = " ".join(map(str, site.on("n1", "sh", "-c", f"'hostname >{results}/name'")))
    job = under_way(site, option, f"{write}; {reads(site, data / 'large')}", *out)
    site.lab.tell("cut", host)
    time.sleep(CUT_S)
    site.lab.tell("mend", host)
    assert job.wait() == 0, job.text
    assert job.text.count(DIGEST) == len(NODES), job.text
    assert not job.events("node-gone")
    assert (results / "name").read_text() == "n1\n"
    assert site.left() == []


def test_a_node_that_stands_still_holds_up_only_itself(world):
    site, data, option = slow_site(world)
    script = reads(site, data / "large") + "; true"
    job = under_way(site, option, script)
    site.lab.tell("freeze", "n2")
    wait_until(lambda: job.text.count(DIGEST) == 2, "the others have it")
    site.lab.tell("thaw", "n2")
    assert job.wait() == 0, job.text
    assert job.text.count(DIGEST) == 3, job.text
    assert site.left() == []


def test_a_host_that_loses_power_is_left_out(world):
    site, data, option = slow_site(world)
    job = under_way(site, option, reads(site, data / "large"))
    # Nobody says on the network that its processes are gone.
    site.lab.tell("cut", "n2")
    site.lab.tell("kill", "n2")
    assert job.wait() == 0, job.text
    assert job.text.count(DIGEST) == 2, job.text
    assert {event["node"] for event in job.events("node-gone")} == {1}


def replaced(path, content):
    new = path.with_name("new")
    new.write_bytes(content)
    new.rename(path)


def cut_short(path, content):
    os.truncate(path, 1000)
    path.write_bytes(content)


CHANGES = {
    "in place": lambda path, content: path.write_bytes(content),
    "replaced": replaced,
    "cut short": cut_short,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_source_that_changes_on_its_way_comes_anew(world, change):
    site, data, option = slow_site(world)
    job = under_way(site, option, reads(site, data / "large"), "--whole")
    other = LARGE[::-1]
    CHANGES[change](data / "large", other)
    assert job.wait() == 0, job.text
    assert job.text.count(hashlib.sha256(other).hexdigest()) == len(NODES), job.text
    assert job.events("restarted")
    assert site.left() == []


@pytest.mark.parametrize("change", CHANGES)
def test_who_has_read_of_what_changes_gets_an_error_and_never_two_versions(world, change):
    site, data, option = slow_site(world)
    changed = world.base / "changed"
    # Who reads again while it is still being written may well see that it changes once more.
    wait = f"until [ -e {changed} ]; do sleep 0.02; done"
    again = f"{reads(site, data / 'large')}; {wait}; echo SECOND; {reads(site, data / 'large')}"
    job = under_way(site, option, again)
    other = LARGE[::-1]
    CHANGES[change](data / "large", other)
    changed.touch()
    assert job.wait() == 0, job.text
    first, second = job.text.split("SECOND\n")
    new = hashlib.sha256(other).hexdigest()
    right = first.count(DIGEST) + first.count(new)
    # Programs of several hosts write at once, so that their lines may be mixed.
    assert right + first.count(": Input/output error") == len(NODES), job.text
    assert second.count(new) == len(NODES), job.text
    assert site.left() == []


def test_a_source_that_is_removed_on_its_way_is_not_half_there(world):
    site, data, option = slow_site(world)
    look = " ".join(map(str, site.on("n2", "ls", "-s", data)))
    job = under_way(site, option, f"{reads(site, data / 'large')}; {look}")
    (data / "large").unlink()
    assert job.wait() == 0, job.text
    # The whole of what was there, or an error.
    said = "".join(line for line in job.text.splitlines(True) if not line.startswith("azekura: "))
    failed = said.count(": Input/output error") + said.count(": No such file")
    assert job.text.count(DIGEST) + failed == len(NODES), job.text


@pytest.mark.parametrize("via", ["preload", "notify"])
def test_who_waits_for_a_home_that_dies_hears_of_it(world, via):
    site, data, option = slow_site(world)
    inside = [BINARY, "stage", "inside", "--via", via, "--"]
    words = [" ".join(map(str, site.on(node, *inside, "sha256sum", data / "large"))) for node in NODES]
    job = under_way(site, option, " & ".join(words) + " & wait; echo ended", "--keep-cache")
    agents = site.agents()
    begun = time.monotonic()
    kill(site.front())
    gone_within(agents, 5)
    wait_until(lambda: "ended" in job.text, "the programs have ended", 5)
    assert time.monotonic() - begun < 6
    assert job.text.count("Input/output error") == len(NODES), job.text
    assert not any(name.endswith("large") for name in site.left())


def test_a_cache_that_is_full_makes_room(world):
    site = LabSite(world)
    data, option = site.map("data", "ro")
    results, out = site.map("results", "out")
    files = {f"f{number}": random.Random(number).randbytes(1 << 20) for number in range(24)}
    files["small"] = b"small"
    for name, content in files.items():
        (data / name).write_bytes(content)
    (data / "huge").write_bytes(LARGE)
    # n2 has less than one file, n1 less than all.
    for node, size in (("n1", "8m"), ("n2", "8m")):
        site.lab.exec(node, "mount", "-t", "tmpfs", "-o", f"size={size}", "none", site.cache)
    script = f"cd {data}; sha256sum f* small; sha256sum f* small; sha256sum huge; sha256sum f1"
    script += f"; head -c 20000000 /dev/zero >{results}/zeros; sha256sum f2"
    on_nodes = [" ".join(map(str, site.on(node, "sh", "-c", f"'{script}'"))) for node in ("n1", "n3")]
    done = site.run(*option, *out, "--to", "all", "--", "sh", "-c", "; ".join(on_nodes), check=False)
    for name, content in files.items():
        line = f"{hashlib.sha256(content).hexdigest()}  {name}\n"
        more = {"f1": 2, "f2": 2}.get(name, 0)
        assert done.stdout.count(line) == 4 + more, (name, done.stderr)
    # It fits on n3 only: on n1 it is read whole, or not at all.
    assert f"{DIGEST}  huge" in done.stdout
    assert done.stdout.count("huge") + done.stderr.count("huge: Input/output error") == 2
    assert "No space left on device" in done.stderr


def test_a_link_that_is_cut_while_files_go_home_loses_nothing(world):
    site = LabSite(world, rate="40mbit")
    results, out = site.map("results", "out")
    make = f"head -c 2500000 /dev/urandom >{results}/$(hostname); sha256sum {results}/$(hostname)"
    words = [" ".join(map(str, site.on(node, "sh", "-c", f"'{make}'"))) for node in NODES]
    job = site.start(*out, "--", "sh", "-c", " & ".join(words) + " & wait", cwd=world.base)
    job.wait_for("out-begun")
    time.sleep(0.3)
    site.lab.tell("cut", "server")
    time.sleep(CUT_S)
    site.lab.tell("mend", "server")
    assert job.wait() == 0, job.text
    assert sorted(os.listdir(results)) == NODES
    for node in NODES:
        assert hashlib.sha256((results / node).read_bytes()).hexdigest() in job.text
    assert site.left() == []


def test_a_home_that_dies_while_files_come_has_none_by_half(world):
    site = LabSite(world, rate="20mbit")
    results, out = site.map("results", "out")
    (results / "n1").write_text("before")
    words = site.on("n1", "sh", "-c", f"head -c 4000000 /dev/zero >{results}/n1")
    job = site.start(*out, "--keep-cache", "--", *words, cwd=world.base)
    job.wait_for("out-begun")
    time.sleep(0.5)
    agents = site.agents()
    kill(site.front())
    gone_within(agents, 5)
    assert (results / "n1").read_text() == "before"
    assert os.listdir(results) == ["n1"]
    (manifest,) = world.base.glob("*.manifest")
    world.run_lab(*site.inside(["stage", "resume", manifest]))
    assert (results / "n1").read_bytes() == bytes(4_000_000)
    assert os.listdir(results) == ["n1"]


def test_a_home_that_is_full_gets_the_rest_later(world):
    site = Site(world)
    results, out = site.map("results", "out")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", results], check=True)
    try:
        manifest = world.base / "manifest"
        names = [str(number) for number in range(6)]
        script = f"cd {results}; for i in {' '.join(names)}; do head -c 600000 /dev/zero >$i; done"
        done = site.run(*out, "--manifest", manifest, "--", "sh", "-c", script, check=False)
        assert done.returncode == 75, done.stderr
        assert "No space left on device" in done.stderr
        came = os.listdir(results)
        assert set(came) < set(names)
        assert all((results / name).stat().st_size == 600_000 for name in came)
        subprocess.run(["mount", "-o", "remount,size=20m", results], check=True)
        world.run("stage", "resume", manifest)
        assert sorted(os.listdir(results)) == names
        assert site.left() == []
    finally:
        subprocess.run(["umount", results], check=True)


@pytest.mark.parametrize("via", ["preload", "notify"])
def test_programs_that_wait_can_be_ended(world, via):
    site = LabSite(world, rate="1mbit")
    data, option = site.map("data", "ro")
    (data / "large").write_bytes(LARGE)
    words = site.on("n1", BINARY, "stage", "inside", "--via", via, "--", "cat", data / "large")
    job = site.start(*option, "--", *words, cwd=world.base)
    job.wait_for("content-begun")
    time.sleep(0.3)
    begun = time.monotonic()
    kill(site.front(), signal.SIGTERM)
    assert job.wait() == 128 + signal.SIGTERM, job.text
    assert time.monotonic() - begun < 6
    assert site.left() == []
    assert site.agents() == []
