"""Labs of hosts and links for tests, and a pool at the far end of one."""

import shutil
import sys

from pools import BINARY, LAB, wait_until

PAIR = """
hosts = ["near", "far"]
[[links]]
name = "wan"
between = ["near", "far"]
"""

# Sends datagrams one after the other; prints how many came back, and the fastest round trip in ms.
ASK = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(float(sys.argv[2]))
trips = []
for number in range(int(sys.argv[3])):
    started = time.monotonic()
    s.sendto(b"%d" % number, (sys.argv[1], 9))
    try:
        while int(s.recv(100)) != number:
            pass
        trips.append(1000 * (time.monotonic() - started))
    except TimeoutError:
        pass
print(len(trips), min(trips, default=0))
"""


class Lab:
    """A lab, and programs in its hosts."""

    def __init__(self, world, text, name="lab"):
        self.world = world
        self.name = name
        self.file = world.base / f"{name}.toml"
        self.file.write_text(text)
        world.run_lab("netlab", "up", self.file)

    def tell(self, command, *arguments, **more):
        return self.world.run_lab("netlab", command, "--lab", self.name, *arguments, **more)

    def exec(self, host, *command, **more):
        return self.tell("exec", host, "--", *command, **more)

    def python(self, host, program, *arguments, **more):
        return self.exec(host, sys.executable, "-c", program, *arguments, **more)

    def start(self, host, *command):
        """Starts a program in a host and lets it run."""
        words = ("netlab", "exec", "--lab", self.name, host, "--", *command)
        return self.world.start(*words, program=LAB)

    def start_python(self, host, program, *arguments):
        """Starts a Python program in a host; returns when it has said its first line."""
        child = self.start(host, sys.executable, "-c", program, *arguments)
        wait_until(lambda: "ready" in child.log.read_text(), "the program listens")
        return child

    def ask(self, to="far", limit_s=2.0, count=5, host="near"):
        """How many of some datagrams came back, and the fastest round trip in ms."""
        came, fastest = self.python(host, ASK, to, str(limit_s), str(count)).stdout.split()
        return int(came), float(fastest)

    def status(self):
        return self.world.json("netlab", "status", "--lab", self.name, program=LAB)[0]

    def direction(self, number=0):
        return self.status()["links"][0]["directions"][number]


class FarPool:
    """A pool `far` in the host of that name, and programs in it and in the host `near`."""

    def __init__(self, world, engines=1):
        self.world = world
        self.lab = Lab(world, PAIR)
        # What programs put on record of their links to engines.
        self.records = world.base / "state" / "azekura" / "links"
        self.engines = [None] * engines
        self.serve()
        words = [word for port in self.ports() for word in ("--engine", f"far:{port}")]
        self.lab.exec("near", BINARY, "pool", "create", "far", *words)

    @property
    def engine(self):
        return self.engines[0]

    def ports(self):
        """Where the engines listen; that of each one's metrics is the next."""
        return [7070 + 2 * number for number in range(len(self.engines))]

    def serve(self, numbers=None):
        """Starts the engines, or some of them, once more if they were killed."""
        for number in numbers or range(len(self.engines)):
            port = self.ports()[number]
            words = ("--dir", self.world.storage / f"engine{number}", "--listen", f"0.0.0.0:{port}")
            words = (*words, "--metrics", f"127.0.0.1:{port + 1}")
            engine = self.engines[number] = self.lab.start("far", BINARY, "serve", *words)
            wait_until(lambda engine=engine: "is ready" in engine.log.read_text(), "an engine is ready")

    def asked(self, *kinds):
        """How many requests of these kinds, or of all, the engine has had."""
        page = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:7071/metrics').read().decode())"
        lines = self.lab.python("far", page).stdout.splitlines()
        wanted = [f'kind="{kind}"' for kind in kinds] or ['kind="']
        counts = [line.split()[1] for line in lines if any(kind in line for kind in wanted)]
        return sum(map(int, counts))

    def put(self, local, *options):
        """Stores a directory of the host, or a file, at the top."""
        self.lab.exec("near", BINARY, "fs", "put", "-r", *options, local, "far:/")

    def link(self, *changes):
        """Changes the link between the two hosts."""
        self.lab.tell("set", "wan", *changes)

    def distance(self, round_trip_s):
        """Moves the engine. If it seemed far before, on a busy machine, nobody has that on record."""
        self.link(f"delay={round_trip_s / 2 * 1000:g}ms")
        shutil.rmtree(self.records, ignore_errors=True)

    def preloaded(self, *command, options=()):
        """The words that run a program under the preload library, with the pool at /azekura."""
        return (BINARY, "run", "--pool", "far", "--via", "preload", *options, "--", *command)

    def run(self, *command, host="near", options=()):
        """What a program under the preload library says."""
        return self.lab.exec(host, *self.preloaded(*command, options=options)).stdout

    def start(self, host, *command):
        """Starts a program under the preload library and lets it run."""
        return self.lab.start(host, *self.preloaded(*command))
