"""`azekura run` where the pool is far: what a command starts shares a mount unless there can be none."""

import re
import time

import pytest
from labs import FarPool
from pools import BINARY, wait_until

pytestmark = pytest.mark.root

PREFIX = "/azekura"


@pytest.fixture
def far(world):
    """A pool at the other end of a link."""
    return FarPool(world)


def run(far, *command, around=(), options=()):
    """What came of a command of which nobody has said how it reaches the pool, and by which way."""
    words = (*around, BINARY, "run", "-v", "--pool", "far", *options, "--", *command)
    done = far.lab.exec("near", *words, check=False)
    return done, re.findall(r" via ([a-z]+): (.*)", done.stderr)


def test_a_far_pool_is_mounted_for_the_command_and_a_near_one_is_not(far):
    # A busy machine may take a near pool for a far one at first.
    wait_until(lambda: run(far, "true")[1][0][0] == "preload", "it is found to be near")
    far.distance(0.03)
    script = f"echo one >{PREFIX}/made; cat {PREFIX}/made; mv {PREFIX}/made {PREFIX}/moved; exit 3"
    done, ways = run(far, "sh", "-c", script)
    assert (done.returncode, done.stdout) == (3, "one\n"), done
    assert ways[0][0] == "fuse"
    took_ms = re.search(r"a round trip to the pool takes (\d+) ms", ways[0][1])
    assert took_ms is not None, ways
    assert int(took_ms[1]) >= 25
    # What was found out is on record.
    assert far.run("cat", f"{PREFIX}/moved") == "one\n"
    done, ways = run(far, "cat", f"{PREFIX}/moved")
    assert (done.stdout, ways[0][0]) == ("one\n", "fuse"), done


def test_what_the_library_is_asked_for_it_does(far, tmp_path):
    far.distance(0.03)
    report = tmp_path / "report"
    done, ways = run(far, "ls", PREFIX, options=("--report", report))
    assert (done.returncode, ways[0][0]) == (0, "preload"), done
    assert report.exists()


def test_where_there_can_be_no_mount_the_library_does_it(far, tmp_path):
    far.distance(0.03)
    closed = tmp_path / "fuse"
    closed.write_text("")
    hide = f'mount --bind {closed} /dev/fuse; exec "$@"'
    around = ("unshare", "-m", "sh", "-c", hide, "sh")
    done, ways = run(far, "sh", "-c", f"echo kept >{PREFIX}/kept; exit 4", around=around)
    assert (done.returncode, ways[0][0]) == (4, "fuse"), done
    assert "preload instead" in done.stderr
    assert far.run("cat", f"{PREFIX}/kept") == "kept\n"


def test_a_program_that_is_not_there_is_not_looked_for_far_away(far):
    far.distance(0.2)
    started = time.monotonic()
    done, ways = run(far, "no-such-program")
    assert (done.returncode, ways[0][0]) == (127, "preload"), done
    assert time.monotonic() - started < 5


def test_all_that_the_command_has_made_has_arrived_when_it_has_ended(far):
    far.distance(0.05)
    script = f"mkdir {PREFIX}/new; for i in $(seq 200); do echo $i >{PREFIX}/new/$i; done"
    started = time.monotonic()
    done, ways = run(far, "sh", "-c", script)
    took_s = time.monotonic() - started
    assert (done.returncode, ways[0][0]) == (0, "fuse"), done
    assert took_s < 200 * 0.05, "it has waited for each of them"
    listed = far.lab.exec("far", BINARY, "fs", "ls", "far:/new").stdout
    assert len(listed.split()) == 200
    assert far.lab.exec("far", BINARY, "fs", "cat", "far:/new/200").stdout == "200\n"
