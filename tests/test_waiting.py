"""An engine that does not answer: how long a command waits, and what it says meanwhile."""

import os
import re
import signal
import time

import pytest
from pools import Engines, World, wait_until


@pytest.fixture(scope="module")
def silent():
    """A pool of two engines, the second of which does not answer."""
    with World() as world:
        engines = Engines(world, 2, 2)
        os.kill(engines.children[1].pid, signal.SIGSTOP)
        yield engines
        os.kill(engines.children[1].pid, signal.SIGCONT)


@pytest.mark.parametrize(
    "command",
    [["status", "{}"], ["fs", "ls", "{}:/"], ["fs", "mkdir", "-p", "{}:/a/b/c/d/e"]],
    ids=lambda command: "-".join(command[:2]),
)
def test_a_command_says_which_engine_it_waits_for(silent, command):
    child = silent.world.start(*[word.format(silent.name) for word in command])
    began = time.monotonic()
    line = f"engine 1 of pool '{silent.name}' (tcp:127.0.0.1:{silent.ports[1]}) does not answer"
    wait_until(lambda: line in child.log.read_text(), "the line", limit_s=6)
    assert child.poll() is None, "it is said while it waits"
    assert child.wait(20) == 1
    assert 4 < time.monotonic() - began < 14
    text = child.log.read_text()
    assert text.count(line) == 1
    # And what has failed says it again, instead of a bare input/output error.
    assert re.search(r"engine.* (is down|cannot be reached)", text.splitlines()[-1])
