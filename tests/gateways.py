"""NFS gateways for tests: started on a pool, with exports of the test's own."""

import itertools
import os
import re
import selectors
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from nfs_protocol import Share, sys_auth
from pools import ROOT

READY = re.compile(r"ready: nfs://([^:/]+):(\d+)(/.*)\?mountport=(\d+)\n")
SOURCES = ROOT / "tests" / "material" / "nfs"
LOOPBACK = ["127.0.0.0/8"]
READY_S = 30

_numbers = itertools.count(1)


def export(path="/", clients=LOOPBACK, **more):
    """One export as `exports.toml` has it."""

    def value(of):
        if isinstance(of, bool):
            return "true" if of else "false"
        if isinstance(of, list):
            return "[" + ", ".join(map(value, of)) + "]"
        return f'"{of}"' if isinstance(of, str) else str(of)

    lines = [f"{name} = {value(of)}" for name, of in {"path": path, "clients": clients, **more}.items()]
    return "\n".join(["[[export]]", *lines, ""])


OPEN = export(squash="none")


class Gateway:
    """`azekura nfs`, run in the foreground. With `exports` it has a file of that text."""

    def __init__(self, world, pool, *options, exports=None):
        self.world = world
        self.pool = pool
        self.options = [*map(str, options)]
        number = next(_numbers)
        self.log = world.base / f"gateway-{number}.log"
        self.exports = None
        if exports is not None:
            self.exports = world.base / f"exports-{number}.toml"
            self.exports.write_text(exports)
            self.options += ["--exports", str(self.exports)]
        self.child = None
        self.start("127.0.0.1:0")

    def start(self, listen=None, mount_port=None):
        """Starts it, where it was before if not said otherwise, and waits until it serves."""
        if listen is None:
            listen, mount_port = f"127.0.0.1:{self.port}", self.mount_port
        where = ["--listen", listen]
        if mount_port is not None:
            where += ["--mount-port", str(mount_port)]
        with open(self.log, "a") as log:
            self.child = subprocess.Popen(
                self.world.command("nfs", self.pool.name, *where, *self.options),
                env=self.world.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                **self.world.identity,
            )
        self.world.children.append(self.child)
        line = self._first_line()
        found = READY.fullmatch(line)
        assert found, f"'{line}' on standard output; on standard error:\n{self.log.read_text()}"
        self.host, port, self.export, mount_port = found.groups()
        self.port, self.mount_port = int(port), int(mount_port)

    def _first_line(self):
        with selectors.DefaultSelector() as waiting:
            waiting.register(self.child.stdout, selectors.EVENT_READ)
            assert waiting.select(READY_S), f"not ready within {READY_S} s:\n{self.log.read_text()}"
        return self.child.stdout.readline()

    def share(self, uid=0, gid=0, groups=(), **more):
        """A connection to it as some user."""
        return Share((self.host, self.port), **{"auth": sys_auth(uid, gid, groups), **more})

    def url(self, path, uid=0, gid=0):
        """How the tools of libnfs name a path."""
        ports = f"nfsport={self.port}&mountport={self.mount_port}"
        return f"nfs://{self.host}{path}?{ports}&uid={uid}&gid={gid}"

    def reload(self, exports):
        """Puts other exports into the file, and tells the gateway."""
        self.exports.write_text(exports)
        self.child.send_signal(signal.SIGHUP)

    def kill(self):
        self.child.kill()
        self.child.wait(10)

    def stop(self, limit_s=30):
        """SIGTERM: (exit code, what it has printed since it was ready)."""
        self.child.terminate()
        rest, _ = self.child.communicate(timeout=limit_s)
        return self.child.returncode, rest

    def open_files(self):
        return len(os.listdir(f"/proc/{self.child.pid}/fd"))

    def memory(self):
        """What of it is in memory, in bytes."""
        status = Path(f"/proc/{self.child.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) << 10


def build_conformance(directory):
    """Builds the conformance program, or skips the test where there is no libnfs."""
    if shutil.which("pkg-config") is None or shutil.which("gcc") is None:
        pytest.skip("needs a C compiler and pkg-config")
    found = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "libnfs"], capture_output=True, text=True, check=False
    )
    if found.returncode != 0:
        pytest.skip("needs libnfs-dev")
    built = directory / "conformance"
    warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    command = ["gcc", "-std=c11", "-D_DEFAULT_SOURCE", *warnings, "-O1", "-o", built]
    subprocess.run(
        [*command, *sorted(SOURCES.glob("*.c")), *found.stdout.split()], check=True, timeout=100
    )
    return built


def run_conformance(program, gateway, path, *options):
    """Has the conformance program try every procedure below a path."""
    where = [gateway.host, gateway.port, gateway.mount_port, path, "--nlm-port", gateway.port]
    done = subprocess.run(
        [str(word) for word in [program, *where, *options]],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=250,
        check=False,
    )
    failed = [line for line in done.stdout.splitlines() if not line.startswith("ok")]
    assert done.returncode == 0, "\n".join([*failed, done.stderr])


def write_as_a_client(share, handle, data, block=1 << 16, limit_s=60):
    """Writes as clients of NFS do: unstable, and all of it again where COMMIT says that the server is
    not the one that the writes went to. Gives how often it was written."""
    deadline = time.monotonic() + limit_s
    for times in itertools.count(1):
        assert time.monotonic() < deadline, "never committed"
        verifiers = set()
        for start in range(0, len(data), block):
            status, verifier, _ = share.write(handle, start, data[start : start + block])
            assert status == 0, f"WRITE: {status}"
            verifiers.add(verifier)
        status, verifier = share.commit(handle)
        assert status == 0, f"COMMIT: {status}"
        if verifiers == {verifier}:
            return times
    raise AssertionError
