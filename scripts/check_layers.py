#!/usr/bin/env python3
"""Checks that the crates depend on each other only in the directions that docs/ARCHITECTURE.md draws.

The table below is the house: a crate may use what stands beside it and nothing else of ours. A crate
that is not in the table is an error too, so that a new room is a decision and not an accident.
"""

import json
import subprocess
import sys
from pathlib import Path

from module_graph import rings_of

ROOT = Path(__file__).resolve().parent.parent

LAYERS = {
    "platform": set(),
    "proto": set(),
    "wire": {"proto", "platform"},
    "store": {"proto", "platform"},
    "rpc": {"proto", "wire", "platform"},
    "engine": {"proto", "wire", "rpc", "store", "platform"},
    "client": {"proto", "wire", "rpc", "policy", "platform"},
    "posix": {"proto", "client", "policy", "platform"},
    "fuse-kernel": set(),
    "fuse": {"proto", "posix", "fuse-kernel"},
    "nfs": {"proto", "platform", "posix"},
    "policy": set(),
    "executable": set(),
    "forecast": set(),
    "preload": {"proto", "client", "posix", "executable"},
    # Of the same source.
    "recorder": {"proto", "client", "posix", "executable"},
    "capi": {"proto", "client", "posix"},
    "daos": {"proto", "client", "posix"},
    "stage": {"proto", "wire", "policy", "posix", "client", "platform", "fuse-kernel"},
    "services": {"proto", "stage"},
    "netlab": set(),
    "testkit": {"platform", "proto", "wire", "rpc", "store", "engine", "policy", "client", "posix"},
    "azekura": {"platform", "proto", "wire", "rpc", "engine", "client", "posix", "fuse", "policy"}
    | {"executable", "forecast", "nfs", "services", "stage"},
    "lab": {"azekura", "proto", "wire", "engine", "client", "posix", "policy", "netlab", "forecast"},
}
# What the tests of every crate may use besides, and nothing but tests. The engines that a test talks
# to over a socket come with it.
TEST_LAYERS = {"testkit"}
# What one crate alone may use from outside: the data path of the others is synchronous.
ONLY = dict.fromkeys(("opendal", "reqwest", "rustls", "tokio"), "services")
# What a crate must never use from outside, whatever for.
BANNED = {
    "proto": {"rustix", "parking_lot", "tracing", "getrandom"},
    "store": {"signal-hook"},
    "posix": {"zerocopy"},
}
PREFIX = "azekura-"


def short(name):
    return name.removeprefix(PREFIX)


def metadata():
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1", "--offline"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        command.remove("--offline")
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["packages"]


def main():
    wrong = []
    for package in metadata():
        crate = short(package["name"])
        if crate not in LAYERS:
            wrong.append(f"crate '{crate}' has no place in the table of {Path(__file__).name}")
            continue
        for dependency in package["dependencies"]:
            name = dependency["name"]
            kind = dependency["kind"] or "normal"
            if name in BANNED.get(crate, ()) and kind == "normal":
                wrong.append(f"'{crate}' must not depend on '{name}'")
            if ONLY.get(name, crate) != crate:
                wrong.append(f"'{crate}' must not depend on '{name}', '{ONLY[name]}' alone may")
            ours = short(name)
            if not (name.startswith(PREFIX) or ours in LAYERS) or ours not in LAYERS:
                continue
            allowed = LAYERS[crate] | (TEST_LAYERS if kind == "dev" else set())
            if ours != crate and ours not in allowed:
                wrong.append(f"'{crate}' must not depend on '{ours}' ({kind})")
    for crate, ring in rings_of(ROOT / "crates"):
        uses = "; ".join(f"{one} uses {', '.join(others)}" for one, others in ring.items())
        wrong.append(f"'{crate}': {len(ring)} module files use each other in a ring: {uses}")
    for line in wrong:
        print(f"layers: {line}")
    if wrong:
        sys.exit(1)
    print("layers: crates depend only on those below them, and no files of a crate form a ring")


if __name__ == "__main__":
    main()
