#!/usr/bin/env python3
"""Runs the tests of all crates as `cargo test --workspace` does, but several programs at a time.

Much of their time the tests wait: for leases, for links, for peers that are frozen. cargo runs one
program of tests after the other, and the processors stand idle meanwhile. What a program prints is
printed as a whole when it ends. Arguments name packages to keep to (`-p` and the like go to cargo).
"""

import argparse
import json
import resource
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# A program of tests that has not ended by then hangs.
PROGRAM_LIMIT_S = 900


def built(packages):
    """Builds the programs of tests and gives (path of the program, directory of its package)."""
    command = ["cargo", "test", "--locked", "--no-run", *packages]
    command += ["--message-format=json-render-diagnostics"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        return None
    programs = []
    for line in done.stdout.splitlines():
        message = json.loads(line)
        if message["reason"] == "compiler-artifact" and message["profile"]["test"]:
            if message["executable"]:
                programs.append((message["executable"], Path(message["manifest_path"]).parent))
    return programs


def run(program, directory, said):
    """Runs one program to its end, prints what it printed, and gives whether it passed."""
    started = time.monotonic()
    try:
        done = subprocess.run(
            [program, "--color=never"],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=PROGRAM_LIMIT_S,
            check=False,
        )
        code, text = done.returncode, done.stdout
    except subprocess.TimeoutExpired as late:
        code, text = 124, (late.stdout or b"").decode(errors="replace")
    seconds = time.monotonic() - started
    with said:
        print(f"\n     Ran {directory.name}: {Path(program).name} ({seconds:.1f} s)")
        print(text, end="", flush=True)
        if code != 0:
            print(f"failed (exit code {code}): {program}", flush=True)
    return code == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at-once", type=int, default=2, help="programs that run at the same time")
    options, packages = parser.parse_known_args()
    packages = packages or ["--workspace"]
    programs = built(packages)
    if programs is None:
        return 1
    said = threading.Lock()
    with ThreadPoolExecutor(options.at_once) as at_once:
        passed = list(at_once.map(lambda p: run(*p, said), programs))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"\nprocessor time: {used.ru_utime:.0f} s user, {used.ru_stime:.0f} s system")
    docs = subprocess.run(["cargo", "test", "--locked", "--doc", *packages], cwd=ROOT, check=False)
    return 0 if all(passed) and docs.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
