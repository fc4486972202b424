"""Pools and mounts for tests: each test world has its own XDG directories, and takes everything
down that was started in it, whatever happened to the test."""

import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
BINARY = Path(os.environ.get("AZEKURA_BINARY", TARGET / "release" / "azekura"))
LAB = BINARY.with_name("azekura-lab")
TOOLS = TARGET / "tools" / "bin"
# Marks every process that a world starts, so that leftovers are found and nobody else's are.
MARK = "AZEKURA_TEST_WORLD"
COMMAND_S = 60
URING_SWITCH = Path("/sys/module/fuse/parameters/enable_uring")

_numbers = itertools.count(1)
WORLDS = []


class CommandError(Exception):
    """A command of the binary failed where it should not."""

    def __init__(self, done):
        super().__init__(
            f"{' '.join(map(str, done.args))}: exit code {done.returncode}\n"
            f"--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}"
        )
        self.done = done


def wait_until(condition, what, limit_s=20.0, pause_s=0.02):
    """Waits until `condition()` gives something true, and gives that back."""
    deadline = time.monotonic() + limit_s
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"after {limit_s} s still not: {what}")
        time.sleep(pause_s)


def alive(pid):
    """Whether a process runs (a zombie does not)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def kill_hard(pid):
    """SIGKILL, and waits until the process is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not alive(pid), f"process {pid} gone")


def free_ports(count):
    """Ports of the loopback interface that nobody listens on. Of numbers that the kernel does not give
    to outgoing connections, which would take one in the moment before the engine does."""
    sockets = []
    try:
        for port in random.sample(range(15_000, 30_000), 15_000):
            each = socket.socket()
            try:
                each.bind(("127.0.0.1", port))
            except OSError:
                each.close()
                continue
            sockets.append(each)
            if len(sockets) == count:
                break
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


@contextlib.contextmanager
def uring_switch(state):
    """The kernel's switch for FUSE over io_uring, `Y` or `N`, put back in the end. Skips the test where
    there is none, or it cannot be set."""
    if not URING_SWITCH.exists():
        pytest.skip("this kernel has no FUSE over io_uring: Linux 6.14 or newer does")
    before = URING_SWITCH.read_text().strip()
    if before != state:
        try:
            URING_SWITCH.write_text(state)
        except OSError as error:
            pytest.skip(f"{URING_SWITCH} cannot be set: {error}")
    try:
        yield
    finally:
        if before != state:
            URING_SWITCH.write_text(before)


def need_namespaces(user):
    """Skips where this user cannot have a mount in a namespace."""
    if user is not None:
        done = subprocess.run([BINARY, "--version"], user=user, check=False, capture_output=True)
        if done.returncode != 0:
            pytest.skip("the binary is closed to ordinary users")
    done = subprocess.run(["unshare", "-Ur", "true"], user=user, check=False, capture_output=True)
    if done.returncode != 0:
        pytest.skip("this machine allows no user namespaces")


def is_mounted(path):
    """Whether something is mounted at `path`, asked without touching what is mounted."""
    name = str(path).replace(" ", "\\040")
    with open("/proc/self/mounts") as mounts:
        return any(line.split()[1] == name for line in mounts)


def storage_dir():
    """Where test pools in directories lie: in memory if there is room."""
    shared = Path("/dev/shm")
    if shared.is_dir() and shutil.disk_usage(shared).free > 6 << 30:
        return shared
    return Path(tempfile.gettempdir())


class World:
    """Own XDG directories, own pools, own mounts; with `user`, all of it is that user's."""

    def __init__(self, user=None):
        # What makes subprocess start something as that user, who has no other groups.
        self.identity = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        # Short, because UNIX socket paths have to be.
        self.base = Path(tempfile.mkdtemp(prefix="azk-", dir="/tmp"))
        self.storage = Path(tempfile.mkdtemp(prefix="azk-", dir=storage_dir()))
        self.environment = dict(os.environ)
        self.environment[MARK] = str(self.base)
        self.environment.setdefault("RUST_BACKTRACE", "1")
        for variable, name in {
            "XDG_CONFIG_HOME": "config",
            "XDG_STATE_HOME": "state",
            "XDG_DATA_HOME": "data",
            "XDG_RUNTIME_DIR": "run",
            "HOME": "home",
        }.items():
            (self.base / name).mkdir(mode=0o700)
            self.environment[variable] = str(self.base / name)
        if user is not None:
            for path in [self.base, self.storage, *self.base.iterdir()]:
                os.chown(path, user, user)
        self.mounts = []
        self.pools = []
        self.children = []
        WORLDS.append(self)

    def command(self, *arguments, program=BINARY):
        return [str(program), *map(str, arguments)]

    def run(self, *arguments, program=BINARY, check=True, limit_s=COMMAND_S, **more):
        """Runs the binary, or another program, to its end."""
        done = subprocess.run(
            self.command(*arguments, program=program),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
            **{
                "env": self.environment,
                "stdin": subprocess.DEVNULL,
                **self.identity,
                **more,
            },
        )
        if check and done.returncode != 0:
            raise CommandError(done)
        return done

    def json(self, *arguments, **more):
        return json.loads(self.run(*arguments, "--json", **more).stdout)

    def run_lab(self, *arguments, **more):
        """Runs the laboratory's binary to its end."""
        return self.run(*arguments, program=LAB, **more)

    def start(self, *arguments, program=BINARY, **more):
        """Starts the binary, or another program, in the foreground of its own and lets it run."""
        log = open(self.base / f"child-{next(_numbers)}.log", "w+")
        child = subprocess.Popen(
            self.command(*arguments, program=program),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            **{**self.identity, **more},
        )
        child.log = Path(log.name)
        self.children.append(child)
        return child

    def pool(self, *, memory=False, targets=4, directory=None, extra=(), file_class=None):
        name = f"t{os.getpid()}x{next(_numbers)}"
        if not memory and directory is None:
            directory = self.storage / name
        pool = Pool(self, name, directory, targets, extra)
        self.pools.append(pool)
        pool.up()
        # On one device files would have one shard each, and striping would not be tested.
        file_class = file_class or os.environ.get("AZEKURA_FILE_CLASS", "SX")
        self.run("container", "set", "default", "--pool", name, "--file-class", file_class)
        return pool

    def engines(self, count, targets=2, extra=()):
        """A pool over `count` engine processes with `targets` targets each."""
        return Engines(self, count, targets, extra)

    def processes(self):
        """Ids of every process that was started in this world and still runs."""
        wanted = f"{MARK}={self.base}".encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    yield int(entry.name)
            except OSError:
                continue

    def logs(self):
        """The last lines of every log of this world."""
        found = sorted((self.base / "state").rglob("*.log")) + sorted(self.base.glob("*.log"))
        for path in found:
            lines = path.read_text(errors="replace").splitlines()[-25:]
            if lines:
                yield f"--- {path.name}\n" + "\n".join(lines)

    def log_text(self):
        found = sorted((self.base / "state").rglob("*.log")) + sorted(self.base.glob("*.log"))
        return "\n".join(path.read_text(errors="replace") for path in found)

    def abort(self):
        """Kills everything at once, so that a test stuck in a system call comes back."""
        for pid in list(self.processes()):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def close(self):
        for mount in reversed(self.mounts):
            with contextlib.suppress(Exception):
                mount.umount(check=False, limit_s=20)
        # A pool that a gateway serves is not stopped.
        for child in self.children:
            child.kill()
        for pool in self.pools:
            with contextlib.suppress(Exception):
                pool.down("--destroy", "--yes", check=False, limit_s=20)
        self.abort()
        for child in self.children:
            child.wait(10)
        for mount in self.mounts:
            while is_mounted(mount.path):
                if subprocess.run(["umount", "-l", mount.path], check=False).returncode != 0:
                    break
        shutil.rmtree(self.storage, ignore_errors=True)
        shutil.rmtree(self.base, ignore_errors=True)
        WORLDS.remove(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Pool:
    """A pool that `azekura up` starts."""

    def __init__(self, world, name, directory, targets, extra):
        self.world = world
        self.name = name
        self.directory = directory
        self.targets = targets
        self.extra = list(map(str, extra))

    def up(self, *more):
        arguments = ["up", "--name", self.name, "--targets", self.targets, *self.extra, *more]
        if self.directory is None:
            arguments.append("--memory")
        else:
            arguments += ["--dir", self.directory]
        return self.world.run(*arguments)

    def down(self, *options, check=True, limit_s=COMMAND_S):
        return self.world.run("down", self.name, *options, check=check, limit_s=limit_s)

    def status(self):
        return self.world.json("status", self.name)["pools"][0]

    def pids(self):
        return [engine["pid"] for engine in self.status()["engines"]]

    def kill(self):
        """SIGKILL for every engine of the pool."""
        for pid in self.pids():
            kill_hard(pid)

    def mount(self, *options, cache="auto", path=None, transport=None):
        path = path or self.world.base / f"m{next(_numbers)}"
        mount = Mount(self, path, cache, options, transport)
        self.world.mounts.append(mount)
        mount.mount()
        return mount

    def run_check(self):
        """`fs check`, whatever it finds."""
        return self.world.run("fs", "check", self.name, check=False, limit_s=120)

    def check(self):
        """`fs check`; fails the test with its report if anything does not fit together."""
        done = self.run_check()
        if done.returncode != 0:
            raise CommandError(done)


class Engines:
    """Engines that `azekura serve` runs, and a pool over them."""

    def __init__(self, world, count, targets, extra=()):
        self.world = world
        self.targets = targets
        self.extra = list(map(str, extra))
        self.ports = free_ports(count)
        self.name = f"t{os.getpid()}x{next(_numbers)}"
        self.directories = [world.storage / f"{self.name}-{number}" for number in range(count)]
        self.children = [None] * count
        for number in range(count):
            self.start(number)
        addresses = []
        for port in self.ports:
            addresses += ["--engine", f"127.0.0.1:{port}"]
        world.run("pool", "create", self.name, *addresses)
        self.pool = Pool(world, self.name, None, targets * count, ())

    def start(self, number):
        self.children[number] = self.world.start(
            "serve",
            *("--dir", self.directories[number]),
            *("--listen", f"127.0.0.1:{self.ports[number]}"),
            *("--targets", self.targets),
            *self.extra,
        )
        self.wait_for(number)

    def wait_for(self, number):
        """Waits until the engine takes connections."""
        child = self.children[number]

        def answers():
            assert child.poll() is None, child.log.read_text()
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.ports[number]), 1).close()
                return True
            return False

        wait_until(answers, f"engine {number} listens", limit_s=60)

    def kill(self, number):
        self.children[number].kill()
        self.children[number].wait(10)

    def stop(self, number):
        """SIGTERM, and the exit code."""
        self.children[number].terminate()
        return self.children[number].wait(60)


class Mount:
    """A mounted container. Behaves as the path it is mounted at."""

    def __init__(self, pool, path, cache, options, transport):
        self.pool = pool
        self.world = pool.world
        self.path = Path(path)
        # `conftest.py` sees to it that the kernel allows what the environment asks for.
        transport = transport or os.environ.get("AZEKURA_FUSE_TRANSPORT", "auto")
        self.options = ["--cache", cache, "--transport", transport, *map(str, options)]

    def mount(self):
        if not is_mounted(self.path):
            self.path.mkdir(exist_ok=True)
        self.world.run("mount", self.pool.name, self.path, *self.options, *self.served())
        assert is_mounted(self.path), "the command came back before the mount was ready"

    def served(self):
        """With AZEKURA_OWN_MOUNT=1 the mounts of a pool of one engine are served by that."""
        is_own = os.environ.get("AZEKURA_OWN_MOUNT") == "1" and self.pool in self.world.pools
        return ["--with-engine"] if is_own else []

    def umount(self, check=True, limit_s=COMMAND_S):
        if not check and not is_mounted(self.path):
            return None
        return self.world.run("umount", self.path, check=check, limit_s=limit_s)

    def pid(self):
        """The process that serves the mount."""
        for pid in self.world.processes():
            with contextlib.suppress(OSError):
                arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if b"mount" in arguments and os.fsencode(self.path) in arguments:
                    return pid
        raise AssertionError(f"no process serves {self.path}")

    def kill(self):
        kill_hard(self.pid())

    def __truediv__(self, name):
        return self.path / name

    def __fspath__(self):
        return str(self.path)
