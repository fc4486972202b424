#!/usr/bin/env python3
"""Measures what staging costs a program on its node: opening and looking at a staged file by either way
of noticing programs, reading a file while it arrives, and writing the cache past the page cache.

Home and cache are directories of this host, the job has one node, this host. Each figure is the best of
some jobs (the calls: the best median of 20,000), beside the same without staging; and the load of the
machine. Needs gcc and an optimized build.

    scripts/stage_cost.py --azekura target/release/azekura
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COST = ROOT / "tests" / "material" / "preload" / "staged_cost.c"
CALLS = ["open", "stat", "fstat"]
RUN_S = 300
# Seconds until a file is open, until its first MiB is there, until all is.
READ = """
import os, sys, time
begun = time.monotonic()
file = os.open(sys.argv[1], os.O_RDONLY)
times = [time.monotonic() - begun]
buffer = bytearray(1 << 20)
while count := os.readv(file, [buffer]):
    if len(times) == 1:
        times.append(time.monotonic() - begun)
print(*times, time.monotonic() - begun)
"""


class Bench:
    """A home, a cache, and jobs over them."""

    def __init__(self, azekura, base, tries):
        self.azekura, self.tries = azekura, tries
        self.home, self.cache, self.other = base / "home", base / "cache", base / "other"
        for path in (self.home, self.cache, self.other):
            path.mkdir()
        self.cost = base / "cost"
        subprocess.run(["gcc", "-O2", "-o", self.cost, COST], check=True)

    def run(self, *options, command):
        """What a command says that runs in a job; without options in none."""
        words = list(map(str, command))
        if options:
            job = [self.azekura, "stage", "run", "--hosts", "localhost", "--map", f"{self.home}=ro"]
            words = [*map(str, job), "--cache", str(self.cache), *options, "--", *words]
        done = subprocess.run(words, capture_output=True, text=True, timeout=RUN_S, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr}")
        return [[float(word) for word in line.split()] for line in done.stdout.splitlines()]

    def best(self, *options, command):
        tries = [self.run(*options, command=command) for _ in range(self.tries)]
        return [[min(figures) for figures in zip(*lines)] for lines in zip(*tries)]

    def calls(self):
        """Microseconds of calls on a file that has come, and on one of no map, by each way."""
        for path in (self.home, self.other):
            (path / "file").write_bytes(b"x" * 4096)
        command = [self.cost, self.other / "file", self.home / "file"]
        nothing, _ = self.best(command=command)
        yield "no job", [figure / 1000 for figure in nothing]
        for way in ("preload", "notify"):
            both = self.best("--via", way, command=command)
            for name, figures in zip(("file of no map", "staged file"), both):
                yield f"{way}, {name}", [figure / 1000 for figure in figures]

    def reading(self, size):
        """Seconds of reading a file, the first time that it is opened."""
        path = self.home / "large"
        with path.open("wb") as file:
            file.write(random.Random(1).randbytes(1 << 20) * (size >> 20))
        command = [sys.executable, "-c", READ, path]
        ways = {
            "no job": (),
            "while it arrives, preload": ("--via", "preload"),
            "while it arrives, notify": ("--via", "notify"),
            "--whole": ("--via", "preload", "--whole"),
            "--whole --direct": ("--via", "preload", "--whole", "--direct"),
        }
        for name, options in ways.items():
            yield name, self.best(*options, command=command)[0]
        path.unlink()


def table(head, rows, form):
    print(f"\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for name, figures in rows:
        print(f"| {name} | {' | '.join(form % figure for figure in figures)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--azekura", type=Path, default=ROOT / "target" / "release" / "azekura")
    parser.add_argument("--directory", type=Path, help="where home and cache are [default: TMPDIR]")
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--size", type=int, default=512, help="MiB of the file that is read")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as base:
        bench = Bench(arguments.azekura.resolve(), Path(base), arguments.tries)
        cpus = len(os.sched_getaffinity(0))
        print(f"{time.strftime('%F')}, {cpus} CPUs, load before {os.getloadavg()[0]:.1f}")
        table(["us", *CALLS], bench.calls(), "%.2f")
        reads = bench.reading(arguments.size << 20)
        table([f"s, {arguments.size} MiB", "open", "first MiB", "all"], reads, "%.3f")
        print(f"\nload after {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
