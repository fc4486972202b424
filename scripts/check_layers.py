#!/usr/bin/env python3
"""Checks that the crates depend on each other only in the directions that docs/ARCHITECTURE.md draws.

The table below is the house: a crate may use what stands beside it and nothing else of ours. A crate
that is not in the table is an error too, so that a new room is a decision and not an accident.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

LAYERS = {
    "proto": set(),
    "wire": {"proto"},
    "store": {"proto"},
    "engine": {"proto", "wire", "store"},
    "client": {"proto", "wire", "policy"},
    "posix": {"proto", "client", "policy"},
    "fuse": {"proto", "posix"},
    "policy": set(),
    "preload": {"proto", "client", "posix"},
    "capi": {"proto", "client", "posix"},
    "daos": {"proto", "client", "posix"},
    "netlab": set(),
    "azekura": {"proto", "wire", "engine", "client", "posix", "fuse", "policy", "netlab"},
}
# Tests may stand on the layers that the tested one talks to over a socket.
TEST_LAYERS = {
    "client": {"engine", "store"},
    "posix": {"wire", "engine", "store"},
    "fuse": {"wire", "client", "engine", "store"},
    "preload": {"wire", "engine", "store"},
}
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


def crate_cycles():
    """Modules of one crate that use each other in a ring, counted per crate. Told, not judged."""
    for source in sorted((ROOT / "crates").glob("*/src")):
        uses = {}
        for path in source.rglob("*.rs"):
            module = path.relative_to(source).parts[0].removesuffix(".rs")
            found = re.findall(r"\bcrate::([a-z_0-9]+)", path.read_text())
            uses.setdefault(module, set()).update(set(found) - {module})
        rings = {
            tuple(sorted((one, other)))
            for one, others in uses.items()
            for other in others
            if one in uses.get(other, ())
        }
        for one, other in sorted(rings):
            yield f"{source.parent.name}: modules '{one}' and '{other}' use each other"


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
            ours = short(name)
            if not (name.startswith(PREFIX) or ours in LAYERS) or ours not in LAYERS:
                continue
            allowed = LAYERS[crate] | (TEST_LAYERS.get(crate, set()) if kind == "dev" else set())
            if ours != crate and ours not in allowed:
                wrong.append(f"'{crate}' must not depend on '{ours}' ({kind})")
    for note in crate_cycles():
        print(f"note: {note}")
    for line in wrong:
        print(f"layers: {line}")
    if wrong:
        sys.exit(1)
    print("layers: every crate depends only on those below it")


if __name__ == "__main__":
    main()
