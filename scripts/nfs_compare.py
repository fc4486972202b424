#!/usr/bin/env python3
"""Compares the NFS gateway with other NFS servers: the same client, on this machine, everything in
memory, the servers in turn in each round, medians over the rounds. Prints a table, and JSON with --json.

Everything happens in network, mount and process namespaces of the run's own, so that servers have the
ports they want, the machine's port mapper is not touched, and nothing is left behind; that needs root.
Servers that are not installed are left out. Needs cc and libnfs (Debian: libnfs-dev); for the references
nfs-ganesha, nfs-ganesha-vfs and rpcbind, and a build of unfs3.

    sudo scripts/nfs_compare.py --azekura target/release/azekura --unfs3 path/to/unfsd
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOAD = ROOT / "tests" / "material" / "nfs_load"
MARK = "NFS_COMPARE_INSIDE"
START_S = 30
RUN_S = 900
# (name, phase of the load program, what is counted, the least ratio to the better reference,
#  whether it has to be ahead of ganesha). Lookups are what stat() of a client sends for a new name.
ROWS = [
    ("sequential write, 1 MiB", "write:1MiB", "mib_per_second", 0.9, False),
    ("sequential read, 1 MiB", "read:1MiB", "mib_per_second", 0.9, False),
    ("sequential write, 8 KiB", "write:8KiB", "mib_per_second", None, False),
    ("sequential read, 8 KiB", "read:8KiB", "mib_per_second", None, False),
    ("random read, 4 KiB", "random-read", "per_second", 0.6, True),
    ("create", "create", "per_second", 0.6, True),
    ("stat (LOOKUP)", "lookup", "per_second", 0.6, True),
    ("stat (GETATTR)", "getattr", "per_second", 0.6, True),
    ("remove", "remove", "per_second", 0.6, True),
]

GANESHA = """
NFS_CORE_PARAM {{
    NFS_Port = {nfs}; MNT_Port = {mount}; Protocols = 3; Enable_UDP = false;
    Enable_NLM = false; Enable_RQUOTA = false; {plugins}
}}
NFSv4 {{ RecoveryBackend = fs; Graceless = true; }}
EXPORT {{
    Export_Id = 1; Path = {directory}; Pseudo = /export; Protocols = 3; Transports = TCP;
    Access_Type = RW; Squash = No_Root_Squash; SecType = sys; FSAL {{ Name = VFS; }}
}}
LOG {{ Default_Log_Level = EVENT; }}
"""


def wait_for(condition, what, process, log):
    """Waits until `condition()` holds, or ends the run with the log of the process."""
    deadline = time.monotonic() + START_S
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"{what} does not start:\n{log.read_text(errors='replace')[-3000:]}")
        time.sleep(0.05)


def listens(port):
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    return False


class Server:
    """A server that exports a directory of /dev/shm; the ports are the run's own."""

    def __init__(self, base, program, nfs, mount):
        self.program, self.nfs, self.mount = program, nfs, mount
        self.base = base / self.name
        self.base.mkdir()
        self.directory = Path(tempfile.mkdtemp(prefix=f"{self.name}-", dir="/dev/shm"))
        self.log = self.base / "log"
        self.process = None

    def start(self):
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        for port in (self.nfs, self.mount):
            wait_for(lambda: listens(port), self.name, self.process, self.log)
        return self

    def url(self):
        return f"nfs://127.0.0.1:{self.nfs}{self.directory}?mountport={self.mount}"

    def stop(self):
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.process.kill()
        self.process.wait()


class Unfs3(Server):
    name = "unfs3"

    def command(self):
        exports = self.base / "exports"
        exports.write_text(f"{self.directory} 127.0.0.1(rw,no_root_squash)\n")
        ports = ["-n", str(self.nfs), "-m", str(self.mount)]
        return [self.program, "-d", "-p", "-t", "-e", exports, *ports]


class Ganesha(Server):
    name = "ganesha"

    def command(self):
        # It gives up where no port mapper answers; this one is in the run's own namespaces.
        subprocess.Popen(["rpcbind", "-f"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + START_S
        while not Path("/run/rpcbind.sock").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        found = sorted(Path("/usr/lib").glob("*/ganesha/libfsalvfs.so"))
        plugins = f"Plugins_Dir = {found[0].parent};" if found else ""
        settings = self.base / "ganesha.conf"
        ports = {"nfs": self.nfs, "mount": self.mount}
        settings.write_text(GANESHA.format(directory=self.directory, plugins=plugins, **ports))
        files = ["-f", settings, "-L", self.log, "-p", self.base / "pid"]
        return [self.program, "-F", *files]


class Azekura:
    """A pool in memory, and gateways to it."""

    name = "azekura"

    def __init__(self, base, program, targets, options):
        self.program, self.targets, self.options = program, targets, options
        self.base = base / self.name
        self.base.mkdir()
        self.environment = dict(os.environ)
        for variable, name in {
            "XDG_CONFIG_HOME": "config",
            "XDG_STATE_HOME": "state",
            "XDG_DATA_HOME": "data",
            "XDG_RUNTIME_DIR": "run",
            "HOME": "home",
        }.items():
            (self.base / name).mkdir(mode=0o700)
            self.environment[variable] = str(self.base / name)
        self.exports = self.base / "exports.toml"
        self.exports.write_text(
            '[[export]]\npath = "/"\nclients = ["127.0.0.0/8"]\nsquash = "none"\n'
        )
        self.gateways, self.urls = [], []

    def run(self, *arguments):
        command = [self.program, *map(str, arguments)]
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")

    def start(self):
        self.run("up", "--memory", "--name", "compare", "--targets", self.targets)
        self.add_gateway()
        return self

    def add_gateway(self):
        """One more gateway to the pool; its URL."""
        log = self.base / f"gateway-{len(self.gateways)}.log"
        command = [self.program, "nfs", "compare", "--listen", "127.0.0.1:0"]
        with log.open("w") as stream:
            gateway = subprocess.Popen(
                [*command, "--exports", self.exports, *self.options],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stream,
                text=True,
            )
        self.gateways.append(gateway)
        ready = gateway.stdout.readline().split()
        if len(ready) != 2 or ready[0] != "ready:":
            sys.exit(f"the gateway does not start: {ready}\n{log.read_text()}")
        self.urls.append(ready[1])
        return ready[1]

    def url(self):
        return self.urls[0]

    def stop(self):
        for gateway in self.gateways:
            gateway.send_signal(signal.SIGTERM)
            gateway.wait(30)
        self.run("down", "compare", "--destroy", "--yes")


def compile_load(directory):
    """The load program, built into a directory."""
    program = directory / "nfs_load"
    flags = ["-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread"]
    subprocess.run(["cc", *flags, "-o", program, *sorted(LOAD.glob("*.c")), "-lnfs"], check=True)
    return program


class Comparison:
    """The servers, the load program, and what was measured: by row and server, one figure a round."""

    def __init__(self, options, load, servers):
        self.options, self.load, self.servers = options, load, servers
        self.figures = {}
        self.details = []

    def put_load(self, urls, phases, clients=1):
        settings = {
            "--size": self.options.size,
            "--files": self.options.files,
            "--reads": self.options.reads,
            "--in-flight": 8,
            "--clients": clients,
            "--phases": ",".join(phases),
        }
        command = [self.load, *(str(word) for pair in settings.items() for word in pair), *urls]
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=RUN_S,
            check=False,
        )
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}")
        return json.loads(done.stdout)

    def note(self, row, server, figure):
        self.figures.setdefault(row, {}).setdefault(server, []).append(figure)

    def measure(self, server, number):
        print(f"round {number + 1}: {server.name}", file=sys.stderr)
        result = self.put_load([server.url()], [phase for _, phase, *_ in self.rows()])
        self.details.append({"round": number, "server": server.name, **result})
        for (name, _, figure, *_), phase in zip(self.rows(), result["phases"]):
            self.note(name, server.name, phase[figure])

    def measure_gateways(self, server, number):
        """Two gateways with a client each, beside one with one, in the same round."""
        print(f"round {number + 1}: two gateways", file=sys.stderr)
        phases = ["write:1MiB", "read:1MiB", "random-read", "create", "lookup", "remove"]
        for count in (1, 2):
            result = self.put_load(server.urls[:count], phases, clients=count)
            self.details.append({"round": number, "server": f"{count} gateways", **result})
            for name, phase in zip(phases, result["phases"]):
                self.note(name, f"{count} gateways", phase.get("mib_per_second", phase["per_second"]))

    def rows(self):
        wanted = self.options.only and self.options.only.split(",")
        return [row for row in ROWS if not wanted or row[1].split(":")[0] in wanted]

    def run(self):
        for number in range(self.options.rounds):
            start = number % len(self.servers)
            for server in self.servers[start:] + self.servers[:start]:
                self.measure(server, number)
                if self.options.gateways and server.name == "azekura":
                    self.measure_gateways(server, number)

    def median(self, row, server):
        values = self.figures.get(row, {}).get(server)
        return statistics.median(values) if values else None

    def table(self):
        """The table in Markdown."""
        names = [server.name for server in self.servers]
        references = [name for name in names if name != "azekura"]
        lines = [
            f"| what | {' | '.join(names)} | of the better | at least | of ganesha | |",
            f"|---|{'---|' * (len(names) + 4)}",
        ]
        for name, _, figure, least, ahead in self.rows():
            unit = "MiB/s" if figure == "mib_per_second" else "/s"
            medians = {server: self.median(name, server) for server in names}
            shown = " | ".join(f"{medians[server]:,.0f} {unit}" for server in names)
            ours = medians.get("azekura")
            better = ours and references and ours / max(medians[each] for each in references)
            ganesha = ours and medians.get("ganesha") and ours / medians["ganesha"]
            good = not better or ((least or 0) <= better and (not ahead or not ganesha or ganesha >= 1))
            cells = [
                f"{better:.2f}" if better else "",
                f"{least}" if least else "",
                f"{ganesha:.2f}" if ganesha else "",
                "" if good else "**less**",
            ]
            lines.append(f"| {name} | {shown} | {' | '.join(cells)} |")
        return "\n".join([*lines, *self.own_lines()])

    def own_lines(self):
        """The gateway against itself."""
        lines = []
        sizes = ("8 KiB", "1 MiB")
        small, large = (self.median(f"sequential write, {size}", "azekura") for size in sizes)
        if small and large:
            lines += ["", f"write at 8 KiB / at 1 MiB: {small / large:.2f} (at least 0.5)"]
        for row, values in self.figures.items():
            if "2 gateways" in values:
                one, two = (self.median(row, f"{count} gateways") for count in (1, 2))
                lines += ["", f"{row}: 1 gateway {one:,.0f}, 2 gateways {two:,.0f}: {two / one:.2f}"]
        return lines


def find_servers(base, options):
    """The servers that are there."""
    if options.azekura:
        yield Azekura(base, Path(options.azekura).resolve(), options.targets, options.nfs_option)
    if not options.ganesha or not shutil.which("rpcbind"):
        print("nfs-ganesha or rpcbind is not installed: left out", file=sys.stderr)
    else:
        yield Ganesha(base, options.ganesha, 2149, 2150)
    if not options.unfs3:
        print("unfs3 is not installed (--unfs3 PATH names a build of it): left out", file=sys.stderr)
    else:
        yield Unfs3(base, Path(options.unfs3).resolve(), 2249, 2250)


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--azekura", help="the gateway's program; left out if not given")
    parser.add_argument("--ganesha", default=shutil.which("ganesha.nfsd"), help="ganesha.nfsd")
    parser.add_argument("--unfs3", default=shutil.which("unfsd"), help="unfsd")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", default="512MiB", help="of the file (512MiB)")
    parser.add_argument("--files", type=int, default=4000, help="in the metadata phases (4000)")
    parser.add_argument("--reads", type=int, default=40000, help="at random places (40000)")
    parser.add_argument("--targets", type=int, default=2, help="of the pool (2)")
    parser.add_argument("--gateways", action="store_true", help="two gateways with two clients, too")
    parser.add_argument("--only", help="phases: write,read,random-read,create,lookup,getattr,remove")
    parser.add_argument("--nfs-option", action="append", default=[], help="one more for azekura nfs")
    parser.add_argument("--json", type=Path, help="where every round's figures are written")
    return parser.parse_args(arguments)


def inside(options):
    """The run, in namespaces of its own."""
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777,size=80%", "tmpfs", "/dev/shm"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    os.umask(0o022)
    with tempfile.TemporaryDirectory(prefix="nfs-compare-", dir="/dev/shm") as name:
        base = Path(name)
        load = compile_load(base)
        servers = list(find_servers(base, options))
        if not servers:
            sys.exit("no server is there")
        with contextlib.ExitStack() as stack:
            for server in servers:
                server.start()
                stack.callback(server.stop)
            if options.gateways:
                servers[0].add_gateway()
            comparison = Comparison(options, load, servers)
            comparison.run()
    print(comparison.table())
    if options.json:
        options.json.write_text(json.dumps(comparison.details, indent=1) + "\n")


def main():
    options = parse(sys.argv[1:])
    if options.gateways and not options.azekura:
        sys.exit("--gateways needs --azekura")
    if MARK in os.environ:
        inside(options)
        return 0
    if os.geteuid() != 0:
        sys.exit("namespaces and nfs-ganesha need root")
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return subprocess.run(
        [*command, sys.executable, __file__, *sys.argv[1:]], env={**os.environ, MARK: "1"}, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
