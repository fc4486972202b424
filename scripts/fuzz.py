#!/usr/bin/env python3
"""Builds every fuzz target and runs each for its share of --seconds.

Needs stable Rust and a C++ compiler: the coverage that libFuzzer steers by comes from LLVM passes
that stable Rust lets one name. What a run finds worth keeping stays in target/fuzz-corpus; a crash
is written to target/fuzz-artifacts and is to be committed to fuzz/corpus with its repair.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
FLAGS = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
    "--cfg=fuzzing",
]


def targets():
    text = (ROOT / "fuzz" / "Cargo.toml").read_text()
    return re.findall(r'path = "fuzz_targets/(\w+)\.rs"', text)


def build():
    host = re.search(r"host: (\S+)", subprocess.check_output(["rustc", "-vV"], text=True))[1]
    command = ["cargo", "build", "--release", "--manifest-path", "fuzz/Cargo.toml"]
    command += ["--target", host, "--target-dir", str(TARGET / "fuzz"), "--bins"]
    environment = dict(os.environ, RUSTFLAGS=" ".join(FLAGS))
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    return TARGET / "fuzz" / host / "release"


def run(binaries, name, seconds):
    grown = TARGET / "fuzz-corpus" / name
    artifacts = TARGET / "fuzz-artifacts" / name
    grown.mkdir(parents=True, exist_ok=True)
    artifacts.mkdir(parents=True, exist_ok=True)
    command = [str(binaries / name), str(grown)]
    committed = ROOT / "fuzz" / "corpus" / name
    if committed.is_dir():
        command.append(str(committed))
    command += [
        f"-max_total_time={seconds}",
        "-timeout=10",
        "-rss_limit_mb=2048",
        "-max_len=16384",
        "-print_final_stats=1",
        f"-artifact_prefix={artifacts}/",
    ]
    scratch = TARGET / "fuzz-scratch"
    scratch.mkdir(exist_ok=True)
    done = subprocess.run(
        command,
        env=dict(os.environ, TMPDIR=str(scratch)),
        cwd=ROOT,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=seconds + 120,
        stdin=subprocess.DEVNULL,
    )
    shutil.rmtree(scratch, ignore_errors=True)
    runs = re.search(r"number_of_executed_units: (\d+)", done.stderr)
    covered = re.findall(r"cov: (\d+)", done.stderr)
    count, reach = runs[1] if runs else "?", covered[-1] if covered else "?"
    print(f"{name:<14} {count:>10} runs  {reach:>6} edges  exit code {done.returncode}", flush=True)
    if done.returncode != 0:
        print("\n".join(done.stderr.splitlines()[-40:]))
    return done.returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="for all targets together")
    parser.add_argument("targets", nargs="*", help="these alone")
    options = parser.parse_args()
    chosen = options.targets or targets()
    binaries = build()
    share = max(2, options.seconds // len(chosen))
    results = [run(binaries, name, share) for name in chosen]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
