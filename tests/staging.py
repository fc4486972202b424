"""Staging jobs for tests: on this host alone, and in a lab whose nodes do not see the home directory."""

import contextlib
import json
import os
import re
import signal
from pathlib import Path

from labs import Lab
from pools import BINARY, LAB, alive, wait_until

NODES = ["n1", "n2", "n3"]
# What every job of a lab is started with.
LAUNCH = f"{LAB} netlab exec {{host}} -- {{command}}"


def star(nodes, rate=None):
    """A server and nodes around a switch."""
    hosts = ["server", "switch", *nodes]
    more = f', rate = "{rate}"' if rate else ""
    links = [f'{{ between = ["{host}", "switch"]{more} }}' for host in ["server", *nodes]]
    return f"hosts = {json.dumps(hosts)}\nlinks = [{', '.join(links)}]\n"


class Job:
    """A job that runs."""

    def __init__(self, child, events):
        self.child = child
        self.events_file = events

    @property
    def text(self):
        return self.child.log.read_text(errors="replace")

    def wait(self, limit_s=60):
        return self.child.wait(limit_s)

    def events(self, kind=None):
        """What has happened so far."""
        with contextlib.suppress(FileNotFoundError):
            lines = [json.loads(line) for line in self.events_file.read_text().splitlines()]
            return [line for line in lines if kind in (None, line["event"])]
        return []

    def wait_for(self, kind, limit_s=30):
        def happened():
            assert self.child.poll() is None or self.events(kind), self.text
            return self.events(kind)

        return wait_until(happened, f"an event '{kind}'", limit_s)

    def wait_for_text(self, text, limit_s=30):
        def said():
            assert self.child.poll() is None or text in self.text, self.text
            return text in self.text

        wait_until(said, f"'{text}' is said", limit_s)


class Site:
    """A home directory, a cache, and how jobs are started on this host."""

    hosts = ("localhost",)
    launch = ()

    def __init__(self, world):
        self.world = world
        self.home = world.base / "home-files"
        self.home.mkdir()
        self.cache = world.base / "cache"
        self.cache.mkdir()
        self.count = 0

    def map(self, name, kind):
        """A directory at home, and the option that maps it."""
        path = self.home / name
        path.mkdir(exist_ok=True)
        return path, ("--map", f"{path}={kind}")

    def arguments(self, *options, hosts=None):
        self.count += 1
        events = self.world.base / f"events-{self.count}.json"
        words = ["stage", "run", "--hosts", ",".join(hosts or self.hosts), *self.launch]
        words += ["--cache", self.cache, "--json", events, *options]
        return words, events

    def run(self, *words, check=True, **more):
        """Runs a job to its end: options, `--`, command."""
        words, _ = self.arguments(*words, hosts=more.pop("hosts", None))
        return self.world.run(*words, check=check, **more)

    def start(self, *words, **more):
        words, events = self.arguments(*words, hosts=more.pop("hosts", None))
        return Job(self.world.start(*words, **more), events)

    def agents(self):
        """Process ids of the agents of this world."""
        found = []
        for pid in self.world.processes():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if words[:3] == [os.fsencode(BINARY), b"stage", b"agent"]:
                    found.append(pid)
        return found

    def left(self):
        """What is in the cache."""
        return sorted(str(path.relative_to(self.cache)) for path in self.cache.rglob("*"))


class LabSite(Site):
    """A server that has the home directory, and nodes that do not: theirs is hidden by an empty one."""

    launch = ("--launch", LAUNCH)

    def __init__(self, world, nodes=NODES, rate=None):
        super().__init__(world)
        self.hosts = tuple(nodes)
        self.lab = Lab(world, star(nodes, rate))
        for node in nodes:
            self.lab.exec(node, "mount", "-t", "tmpfs", "-o", "mode=755", "none", self.home)

    def inside(self, words):
        return ["netlab", "exec", "--lab", self.lab.name, "server", "--", BINARY, *words]

    def run(self, *words, check=True, **more):
        words, _ = self.arguments(*words, hosts=more.pop("hosts", None))
        return self.world.run_lab(*self.inside(words), check=check, **more)

    def start(self, *words, **more):
        words, events = self.arguments(*words, hosts=more.pop("hosts", None))
        return Job(self.world.start(*self.inside(words), program=LAB, **more), events)

    @staticmethod
    def on(node, *words):
        """The words that run a program on a node, from within a job's command."""
        return [LAB, "netlab", "exec", node, "--", *words]

    def front(self):
        """The process id of the front."""
        for pid in self.world.processes():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if words[:3] == [os.fsencode(BINARY), b"stage", b"run"]:
                    return pid
        raise AssertionError("no front runs")


def listening_port(pid):
    """A TCP port at which a process listens, seen from its own network."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.update(re.findall(r"socket:\[(\d+)\]", os.readlink(entry)))
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                return int(fields[1].rpartition(":")[2], 16)
    raise AssertionError(f"process {pid} does not listen")


def kill(pid, number=signal.SIGKILL):
    os.kill(pid, number)


def gone_within(pids, limit_s):
    wait_until(lambda: not any(map(alive, pids)), "the agents are gone", limit_s)
