#!/usr/bin/env python3
"""Measures what `azekura profile` costs the command that it records.

Three commands run without and with it in turn, as many pairs as asked for: `make` of a generated C
project of small files, `make` of one of files of ordinary size, and a shell that starts many programs
that do nothing. What counts is the processor time of the command and all that it has waited for, of user
and system together, with that of `azekura profile` itself: on a busy machine it says more than the time
on the wall, and the number of page faults says more yet. Needs a release build, make and a C compiler.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
BINARY = Path(os.environ.get("AZEKURA_BINARY", TARGET / "release" / "azekura"))

SOURCE = """#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>
#include "all.h"
struct table%(n)d { char name[64]; struct stat found; struct table%(n)d *next; };
%(functions)s
"""
FUNCTION = """
int f%(n)d_%(m)d(const char *path, struct table%(n)d **into)
{
    struct table%(n)d *one = calloc(1, sizeof *one);
    if (one == NULL || stat(path, &one->found) != 0) { free(one); return -1; }
    snprintf(one->name, sizeof one->name, "%%s %%d", path, %(m)d);
    for (size_t at = 0; at < strlen(one->name); at++)
        if (one->name[at] == '/') one->name[at] = '_';
    one->next = *into;
    *into = one;
    return printf("%%s\\n", one->name);
}
"""
MAKEFILE = """all: $(patsubst %.c,%.o,$(wildcard *.c))
%.o: %.c all.h
\t$(CC) -O2 -c -o $@ $<
clean:
\trm -f *.o
"""


def project(place, files, functions):
    for number in range(files):
        bodies = "".join(FUNCTION % {"n": number, "m": one} for one in range(functions))
        (place / f"m{number}.c").write_text(SOURCE % {"n": number, "functions": bodies})
    (place / "all.h").write_text("".join(f"struct table{number};\n" for number in range(files)))
    (place / "Makefile").write_text(MAKEFILE)


def cost(command, place):
    """Processor and wall time, in seconds, and page faults of a command with all that it waited for."""
    start = time.monotonic()
    with subprocess.Popen(command, cwd=place, stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"profile_cost: {command[0]} ended with {process.returncode}")
    return used.ru_utime + used.ru_stime, time.monotonic() - start, used.ru_minflt


def builds(scratch, files, functions, options):
    """Cost of building a project of such files."""
    place = scratch / f"project-{functions}"
    place.mkdir()
    project(place, files, functions)
    clean = ["make", "-s", "clean"]
    found = pairs(
        ["make", "-s", f"-j{options.jobs}"],
        lambda: subprocess.run(clean, cwd=place, check=True),
        place,
        options.pairs,
    )
    return summary(f"make -j{options.jobs} of {files} C files of {functions} functions", found, files)


def pairs(command, before, place, count):
    """Costs of a command without and with recording, in pairs that begin with the one and the other."""
    recorded = [BINARY, "profile", "-o", place.parent / "job.toml", "--", *command]
    found = []
    for number in range(count + 1):
        pair = {}
        for name in ("without", "with") if number % 2 == 0 else ("with", "without"):
            before()
            pair[name] = cost(recorded if name == "with" else command, place)
        # The first pair only warms the caches.
        if number > 0:
            found.append(pair)
    return found


def summary(what, found, parts):
    """What the pairs come to, of a command that does so many things alike."""
    result = {"what": what, "pairs": len(found), "parts": parts}
    faults = {name: statistics.median(pair[name][2] for pair in found) for name in ("without", "with")}
    result["faults"] = faults
    for place, clock in enumerate(("cpu", "wall")):
        without = [pair["without"][place] for pair in found]
        recorded = [pair["with"][place] for pair in found]
        shares = [after / before - 1 for before, after in zip(without, recorded, strict=True)]
        result[clock] = {
            "without_s": statistics.median(without),
            "with_s": statistics.median(recorded),
            "more_by_pairs": statistics.median(shares),
            "more_by_medians": statistics.median(recorded) / statistics.median(without) - 1,
            "more_by_least": min(recorded) / min(without) - 1,
        }
    return result


def show(result):
    print(f"{result['what']}: {result['pairs']} pairs")
    for clock in ("cpu", "wall"):
        one = result[clock]
        print(
            f"  {clock:4} {one['without_s']:8.3f} s -> {one['with_s']:8.3f} s   by pairs"
            f" {one['more_by_pairs']:+.1%}, by medians {one['more_by_medians']:+.1%},"
            f" by least {one['more_by_least']:+.1%}"
        )
    faults, parts = result["faults"], result["parts"]
    more = (faults["with"] - faults["without"]) / parts
    each_ms = result["cpu"]["without_s"] / parts * 1e3
    print(f"  each {each_ms:.1f} ms of processor time, and {more:+.1f} page faults by recording")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=200, help="C files of the project")
    parser.add_argument("--functions", type=int, default=6, help="functions in each of them")
    parser.add_argument("--large-files", type=int, default=20, help="C files of the second project")
    parser.add_argument("--large-functions", type=int, default=40, help="functions in each of those")
    parser.add_argument("--pairs", type=int, default=5, help="pairs of builds")
    parser.add_argument("--starts", type=int, default=500, help="programs that the shell starts")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="as for make -j")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    options = parser.parse_args()
    for needed in (str(BINARY), "make", "cc"):
        if shutil.which(needed) is None:
            sys.exit(f"profile_cost: {needed} is not there: build with 'make build' first")
    with tempfile.TemporaryDirectory(prefix="azekura-cost-") as name:
        scratch = Path(name)
        place = scratch / "starts"
        place.mkdir()
        (place / "file").write_text("text\n")
        script = f"for n in $(seq {options.starts}); do /bin/true; done; : < file; cat file"
        results = [
            builds(scratch, options.files, options.functions, options),
            builds(scratch, options.large_files, options.large_functions, options),
            summary(
                f"{options.starts} starts of /bin/true by a shell",
                pairs(["sh", "-c", script], lambda: None, place, 2 * options.pairs + 1),
                options.starts,
            ),
        ]
    start = results[2]["cpu"]
    each_ms = (start["with_s"] - start["without_s"]) / options.starts * 1e3
    if options.json:
        print(json.dumps({"runs": results, "each_start_ms": each_ms}))
        return
    for result in results:
        show(result)
    print(f"  so each start costs {each_ms:.3f} ms more")


if __name__ == "__main__":
    main()
