#!/usr/bin/env python3
"""Lets the Linux kernel's own NFS client work with a gateway: Debian's kernel starts under qemu, first
one guest that works with files, then two that take locks from each other.

Guests, pool and gateway are in a network namespace of the run's own, where each guest has an address
and the gateway is the port mapper, so that the machine's network and its port 111 are not touched. That
needs root. Where something is not to be had (a package, qemu, the tunnel device) the run says `skipped:`
and why, and ends with 77.

    sudo AZEKURA_BINARY=target/release/azekura python3 tests/kernel_client/run.py
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from initramfs import INITRAMFS, KERNEL, MissingError, assemble  # noqa: E402
from pools import BINARY, ROOT, TOOLS, World, wait_until  # noqa: E402

INSIDE = "KERNEL_CLIENT_INSIDE"
SKIPPED = 77
NETWORK = "10.98.76"
SERVER = f"{NETWORK}.1"
GUESTS = {"one": 11, "two": 12}
READY = re.compile(r"ready: nfs://[^:/]+:(\d+)/\S*")
CHECK = re.compile(r"^CHECK (ok|FAILED) (\S+) (.*)$")


def run(*command):
    subprocess.run([str(word) for word in command], check=True, stdin=subprocess.DEVNULL)


def lay_network():
    """A bridge with this host at its one end and a guest at each other."""
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "guests", "type", "bridge")
    run("ip", "address", "add", f"{SERVER}/24", "dev", "guests")
    for name in GUESTS:
        run("ip", "tuntap", "add", f"tap-{name}", "mode", "tap")
        run("ip", "link", "set", f"tap-{name}", "master", "guests", "up")
    run("ip", "link", "set", "guests", "up")


class Guest:
    """A machine that runs one of the guests' scripts, and is off afterwards."""

    def __init__(self, world, images, name, role, port, options):
        self.name, self.role = name, role
        self.other = next(other for other in GUESTS if other != name)
        number = GUESTS[name]
        words = {
            "role": role,
            "guest": name,
            "other": self.other,
            "address": f"{NETWORK}.{number}",
            "server": SERVER,
            "port": port,
            "operations": options.operations,
            "counts": options.counts,
        }
        line = " ".join(f"{key}={value}" for key, value in words.items())
        kernel, initramfs = images
        processor = ["-accel", "kvm", "-cpu", "host"] if options.kvm else ["-accel", "tcg"]
        command = ["-machine", "q35", *processor]
        command += ["-m", "1536", "-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio"]
        command += ["-kernel", kernel, "-initrd", initramfs]
        command += ["-append", f"console=ttyS0 quiet panic=-1 {line}"]
        command += ["-netdev", f"tap,id=net,ifname=tap-{name},script=no,downscript=no"]
        command += ["-device", f"virtio-net-pci,netdev=net,mac=52:54:00:00:00:{number}"]
        self.child = world.start(*command, program="qemu-system-x86_64")

    def console(self):
        return self.child.log.read_text(errors="replace").replace("\r", "")

    def failures(self, limit_s):
        """Waits until the machine is off; (what it said, how many checks failed)."""
        try:
            self.child.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
            return f"{self.console()}\nnot done after {limit_s} s\n", 1
        console = self.console()
        end = re.search(r"^END (\d+)$", console, re.MULTILINE)
        return console, int(end[1]) if end else 1


def report(guest, console, failures):
    """Prints each check of a guest; all that the console says where not all went well."""
    kernel = re.search(r"KERNEL (\S+)\n", console)
    print(f"guest {guest.name}: {guest.role}, Linux {kernel[1] if kernel else '(did not start)'}")
    for line in console.splitlines():
        found = CHECK.match(line)
        if found:
            print(f"  {found[1]:<6} {found[2]:>6} s  {found[3]}")
    if failures:
        print(f"--- console of guest {guest.name}\n{console}\n---")


def start_gateway(world, pool, options):
    """A gateway for the guests' network, which is the port mapper there: its log, and its port."""
    exports = world.base / "exports.toml"
    exports.write_text(f'[[export]]\npath = "/"\nclients = ["{NETWORK}.0/24"]\nsquash = "none"\n')
    gateway = world.start(
        *("nfs", pool.name, "--listen", f"{SERVER}:0", "--exports", exports, "--portmap"),
        *(["-v"] * options.verbose),
    )
    ready = wait_until(lambda: READY.search(gateway.log.read_text()), "the gateway serves")
    return gateway, int(ready[1])


def run_guests(world, images, names, role, port, options):
    """Number of checks that failed."""
    guests = [Guest(world, images, name, role, port, options) for name in names]
    total = 0
    for guest in guests:
        console, failures = guest.failures(options.limit)
        report(guest, console, failures)
        total += failures
    return total


def run_inside(images, options):
    """Everything but what needs the machine's own network: the exit code."""
    lay_network()
    with World() as world:
        gateway, port = start_gateway(world, world.pool(memory=True), options)
        failures = 0
        for role, names in {"files": ["one"], "locks": ["one", "two"]}.items():
            if role in options.roles.split(","):
                failures += run_guests(world, images, names, role, port, options)
        gateway.terminate()
        code = gateway.wait(30)
        if options.verbose or failures or code:
            print(f"--- gateway, exit code {code}\n{gateway.log.read_text()}---")
        print(f"{failures} failed" if failures or code else "all went well")
        return 1 if failures or code else 0


def find_missing(options):
    """What the run cannot do without, and this machine has not."""
    if os.geteuid() != 0:
        return "needs root, for a network namespace"
    for program in ("qemu-system-x86_64", "apt-get", "dpkg", "ip", "unshare"):
        if shutil.which(program) is None:
            return f"needs {program} (Debian: qemu-system-x86 for qemu-system-x86_64)"
    if not Path("/dev/net/tun").exists():
        return "needs /dev/net/tun, for the guests' network"
    if not options.fsx.exists():
        return f"needs fsx at {options.fsx}: run 'python3 scripts/test.py --only tools'"
    return None


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--roles", default="files,locks", help="what guests do (default: %(default)s)")
    parser.add_argument("--kvm", action="store_true", help="with /dev/kvm; emulated if not said")
    parser.add_argument("--operations", type=int, default=20_000, help="of fsx")
    parser.add_argument("--counts", type=int, default=200, help="locks that each of two takes in turns")
    parser.add_argument("--limit", type=int, default=900, help="seconds that a guest may take")
    parser.add_argument("--fsx", type=Path, default=TOOLS / "fsx", help="the program (%(default)s)")
    parser.add_argument("-v", "--verbose", action="count", default=0, help="passed on to the gateway")
    return parser.parse_args()


def main():
    options = parse()
    if INSIDE in os.environ:
        base = Path(os.environ[INSIDE])
        return run_inside((base / KERNEL, base / INITRAMFS), options)
    missing = find_missing(options)
    if missing:
        print(f"skipped: {missing}")
        return SKIPPED
    if not BINARY.exists():
        sys.exit(f"{BINARY} is not there: run 'make build' first")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kernel-client-") as base:
        tree = Path(base) / "tree.tar"
        pack = ["tar", "-C", ROOT, "-cf", tree, "--owner=0", "--group=0", "--exclude=__pycache__"]
        run(*pack, "crates", "docs", "tests")
        try:
            assemble(Path(base), options.fsx, tree)
        except MissingError as error:
            print(f"skipped: {error}")
            return SKIPPED
        again = ["unshare", "--net", sys.executable, *sys.argv]
        done = subprocess.run(again, env={**os.environ, INSIDE: base}, check=False)
    print(f"{time.monotonic() - started:.0f} s in all")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
