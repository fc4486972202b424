"""Fixtures, and a bound on the time of every test."""

import os
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import pytest
from pools import BINARY, WORLDS, World, uring_switch

LIMIT_S = 120


def pytest_configure(config):
    # Where the tests were started with these ignored, as in the background of a script, everything
    # that they start would ignore them too.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    config.addinivalue_line("markers", "limit(seconds): how long the test may take, 120 s if not said")
    config.addinivalue_line("markers", "root: needs root")


def pytest_collection_modifyitems(items):
    if os.geteuid() == 0:
        return
    skip = pytest.mark.skip(reason="needs root")
    for item in items:
        if "root" in item.keywords:
            item.add_marker(skip)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    """Ends a test that takes too long: with a signal first, then by killing what it waits for."""
    marker = item.get_closest_marker("limit")
    limit_s = marker.args[0] if marker else LIMIT_S

    def on_alarm(_signal, _frame):
        raise TimeoutError(f"the test took longer than {limit_s} s")

    def on_stuck():
        for world in list(WORLDS):
            world.abort()

    before = signal.signal(signal.SIGALRM, on_alarm)
    stuck = threading.Timer(limit_s + 20, on_stuck)
    stuck.daemon = True
    stuck.start()
    signal.alarm(limit_s)
    try:
        yield
    finally:
        signal.alarm(0)
        stuck.cancel()
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Shows the logs of the engines and mounts of a test that failed."""
    outcome = yield
    report = outcome.get_result()
    if report.failed and call.when in ("setup", "call"):
        for world in WORLDS:
            text = "\n".join(world.logs())
            if text:
                report.sections.append(("logs of engines and mounts", text))


@pytest.fixture(scope="session", autouse=True)
def _binary():
    if not BINARY.exists():
        pytest.exit(f"{BINARY} is not there: run 'make build' first", returncode=2)
    if os.geteuid() == 0 and Path("/dev/fuse").exists():
        # Ordinary users mount too; where no udev runs the device is closed to them.
        os.chmod("/dev/fuse", 0o666)


@pytest.fixture(scope="session", autouse=True)
def _transport():
    """With AZEKURA_FUSE_TRANSPORT=uring all mounts are over io_uring."""
    if os.environ.get("AZEKURA_FUSE_TRANSPORT") != "uring":
        yield
        return
    with uring_switch("Y"):
        yield


@pytest.fixture
def world():
    """A world of the test's own."""
    with World() as world:
        yield world


@pytest.fixture(scope="module")
def module_world():
    """A world that the tests of a module share."""
    with World() as world:
        yield world


@pytest.fixture(scope="module")
def pool(module_world):
    """A pool of four targets that the tests of a module share."""
    return module_world.pool()


@pytest.fixture(scope="module")
def mount(pool):
    """A mount that the tests of a module share."""
    return pool.mount()


@pytest.fixture
def place(mount, request):
    """A fresh directory on the shared mount."""
    path = mount / "".join(c if c.isalnum() else "_" for c in request.node.name)
    path.mkdir()
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def sh(tmp_path):
    """Runs a shell script with the given names as variables, and fails with what it printed."""

    def run(script, limit_s=110, **variables):
        environment = dict(os.environ, **{name: str(value) for name, value in variables.items()})
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
        )
        assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run
