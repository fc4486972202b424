"""Programs under the preload library: a container stands at a prefix in their eyes only."""

import subprocess
from pathlib import Path

from pools import BINARY, ROOT

LIBRARY = BINARY.parent / "libazekura_preload.so"
PREFIX = "/azekura"
LIMIT_S = 120
MATERIAL = ROOT / "tests" / "material" / "preload"


def compile_c(name, directory, *options):
    """The program of that name among the material, compiled into a directory."""
    program = Path(directory) / name
    flags = ["-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread"]
    subprocess.run(
        ["gcc", *flags, *options, "-o", program, MATERIAL / f"{name}.c"], check=True, timeout=60
    )
    return program


class Preloading:
    """How programs are started so that they find the default container of a pool."""

    def __init__(self, pool, prefix=PREFIX):
        self.pool = pool
        self.prefix = prefix
        self.report = pool.world.base / "report"
        # By path, so that a program that clears its environment finds the pool as well.
        pools = Path(pool.world.environment["XDG_STATE_HOME"]) / "azekura" / "pools"
        self._file = pools / f"{pool.name}.toml"

    def path(self, name=""):
        """A path in the container, as the programs see it."""
        return Path(self.prefix) / name

    def environment(self, **more):
        return {
            **self.pool.world.environment,
            "LD_PRELOAD": str(LIBRARY),
            "AZEKURA_POOL": str(self._file),
            "AZEKURA_PREFIX": self.prefix,
            "AZEKURA_REPORT": str(self.report),
            "AZEKURA_BIN": str(BINARY),
            **more,
        }

    def run(self, *command, check=True, limit_s=LIMIT_S, environment=None, **more):
        """Runs a program to its end; what it printed is in the result."""
        more.setdefault("text", True)
        if "input" not in more:
            more.setdefault("stdin", subprocess.DEVNULL)
        done = subprocess.run(
            [str(word) for word in command],
            env=self.environment(**(environment or {})),
            capture_output=True,
            timeout=limit_s,
            check=False,
            **more,
        )
        assert not check or done.returncode == 0, f"{command}: {done.returncode}\n{done.stderr}"
        return done
