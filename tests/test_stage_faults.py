"""Staging jobs in which something fails while a file is on its way: links, sources, caches."""

import hashlib
import random
import time

import pytest
from staging import NODES, LabSite

pytestmark = pytest.mark.root
CUT_S = 5
LARGE = random.Random(13).randbytes(12 << 20)
DIGEST = hashlib.sha256(LARGE).hexdigest()


def slow_site(world):
    """Nodes to which 12 MiB are on the way for more than two seconds; and that file."""
    site = LabSite(world, rate="40mbit")
    data, option = site.map("data", "ro")
    (data / "large").write_bytes(LARGE)
    return site, data, option


def under_way(site, option, script, *options):
    """A job in which a file has begun to travel and is nowhere yet."""
    job = site.start(*option, "--to", "all", *options, "--", "sh", "-c", script, cwd=site.world.base)
    job.wait_for("content-begun")
    time.sleep(0.8)
    assert not job.events("content-arrived")
    return job


def reads(site, path, nodes=NODES):
    """A script that prints what each node finds in a file, all at the same time."""
    words = [" ".join(map(str, site.on(node, "sha256sum", path))) for node in nodes]
    return " & ".join(words) + " & wait"


@pytest.mark.parametrize("host", ["n1", "n3", "server"])
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
