#!/usr/bin/env python3
"""Runs everything that has to hold, stage after stage, and ends with one line that sums it up.

A stage that fails does not stop the others, but for a build that the later ones need. `--only a,b`
runs these stages alone; `--list` names them. Arguments after `--` go to the system tests (pytest).
"""

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
TOOLS = TARGET / "tools"
VENV = TARGET / "venv"
# Programs from cargo that the system tests run. The versions are part of what was agreed to pass.
CARGO_TOOLS = {"pjdfstest": "0.2.2", "fsx": "0.3.2"}


@dataclass
class Stage:
    """One stage: its commands, how long it may take, and what cannot go on without it."""

    name: str
    commands: list
    limit_s: int
    needed: bool = False
    counted: bool = False
    result: str = "not run"
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    notes: list = field(default_factory=list)


def python():
    return str(VENV / "bin" / "python")


def stages(pytest_arguments):
    here = sys.executable
    scripts = [*ROOT.glob("scripts/*.sh"), *ROOT.glob("tests/kernel_client/guest/*.sh")]
    shell = sorted(str(p.relative_to(ROOT)) for p in scripts)
    shell += ["scripts/mount.azekura", ".ci/run"]
    lints = ["cargo", "clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]
    claims = [str(TARGET / "release" / "azekura"), "experiment", "run", "--check-claims"]
    # Much of their time they wait, for leases and links: two at a time, each file in one process.
    pytest = [python(), "-m", "pytest", "-n", "2", "--dist", "loadfile"]
    system = [*pytest, "tests", *pytest_arguments]
    return [
        Stage("format", [["cargo", "fmt", "--all", "--check"]], 120),
        Stage("tidy", [[here, "scripts/check_tidy.py"]], 60),
        Stage("layers", [[here, "scripts/check_layers.py"]], 120),
        Stage("licences", [[here, "scripts/check_licences.py"]], 300),
        Stage("shell", [["shellcheck", *shell]], 60),
        Stage("python", [lambda: prepare_venv(), [python(), "-m", "ruff", "check", "."]], 300),
        Stage("lints", [lints], 1500),
        Stage(
            "build",
            [["make", "--no-print-directory", "build"]],
            1800,
            needed=True,
        ),
        Stage("claims", [[*claims, "--out", "docs/experiments"]], 120),
        Stage(
            "units",
            [[here, "scripts/units.py"]],
            2100,
            counted=True,
        ),
        Stage("tools", [lambda: prepare_tools()], 900),
        Stage("system", [lambda: prepare_venv(), system], 2700, counted=True),
        Stage("fuzz", [[here, "scripts/fuzz.py", "--seconds", "60"]], 1200),
    ]


def prepare_venv():
    """The commands that make the tests' own Python environment, if it is not there."""
    wanted = (ROOT / "tests" / "requirements.txt").read_text()
    mark = VENV / "requirements.txt"
    if mark.exists() and mark.read_text() == wanted and Path(python()).exists():
        return []
    shutil.rmtree(VENV, ignore_errors=True)
    install = [python(), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    return [
        [sys.executable, "-m", "venv", str(VENV)],
        [*install, "-r", "tests/requirements.txt"],
        ["cp", "tests/requirements.txt", str(mark)],
    ]


def prepare_tools():
    """The commands that install what the system tests run."""
    commands = []
    for name, version in CARGO_TOOLS.items():
        mark = TOOLS / f"{name}-{version}"
        if (TOOLS / "bin" / name).exists() and mark.exists():
            continue
        install = ["cargo", "install", "--locked", "--force", "--root", str(TOOLS)]
        commands.append([*install, f"{name}@{version}"])
        commands.append(["touch", str(mark)])
    return commands


def run(command, deadline):
    """Runs one command with its output passed on; gives the exit code and the output's lines."""
    print(f"$ {shlex.join(command)}", flush=True)
    environment = dict(os.environ, CARGO_TERM_COLOR="never", PYTHONDONTWRITEBYTECODE="1")
    # Where this is set pytest prints differences without end.
    environment.pop("CI", None)
    child = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    os.set_blocking(child.stdout.fileno(), False)
    text = b""
    while True:
        chunk = child.stdout.read()
        if chunk:
            text += chunk
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
        elif child.poll() is not None:
            break
        elif time.monotonic() > deadline:
            os.killpg(child.pid, signal.SIGTERM)
            try:
                child.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
            print("\nstopped: the stage's time is up", flush=True)
            return 124, text.decode(errors="replace").splitlines()
        else:
            time.sleep(0.05)
    return child.returncode, text.decode(errors="replace").splitlines()


def count(stage, lines):
    """Adds the numbers that cargo test and pytest close with.

    cargo test has no word for a test that could not run: it lists it as passed. Such a test says so in
    a line of its own (`testkit/src/skip.rs`), which may stand behind the harness's words.
    """
    for line in lines:
        if re.search(r"(?:^|\.\.\. )skipped: [\w:]+: ", line):
            stage.passed -= 1
            stage.skipped += 1
            stage.notes.append(line[line.index("skipped: ") :])
        found = re.match(r"test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", line)
        if found:
            stage.passed += int(found[1])
            stage.failed += int(found[2])
            stage.skipped += int(found[3])
        elif re.match(r"=* ?\d+ (?:passed|failed|skipped|error).* in [\d.]+s", line):
            for number, word in re.findall(r"(\d+) (passed|failed|errors?|skipped)", line):
                if word == "passed":
                    stage.passed += int(number)
                elif word == "skipped":
                    stage.skipped += int(number)
                else:
                    stage.failed += int(number)


def run_stage(stage):
    print(f"\n== {stage.name} ==", flush=True)
    started = time.monotonic()
    deadline = started + stage.limit_s
    code = 0
    queue = list(stage.commands)
    while queue and code == 0:
        command = queue.pop(0)
        if callable(command):
            queue = command() + queue
            continue
        code, lines = run(command, deadline)
        if stage.counted:
            count(stage, lines)
    stage.seconds = time.monotonic() - started
    stage.result = "ok" if code == 0 else f"failed (exit code {code})"
    if not stage.counted:
        stage.passed, stage.failed = int(code == 0), int(code != 0)
    elif code != 0 and stage.failed == 0:
        # It did not compile, or was stopped: there is no count to go by.
        stage.failed = 1
    return code == 0


def main():
    arguments = sys.argv[1:]
    extra = []
    if "--" in arguments:
        extra = arguments[arguments.index("--") + 1 :]
        arguments = arguments[: arguments.index("--")]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="stages to run, separated by commas")
    parser.add_argument("--skip", help="stages to leave out, separated by commas", default="")
    parser.add_argument("--list", action="store_true", help="name the stages")
    options = parser.parse_args(arguments)
    every = stages(extra)
    names = [stage.name for stage in every]
    if options.list:
        print("\n".join(names))
        return 0
    wanted = set(options.only.split(",")) if options.only else set(names)
    wanted -= set(options.skip.split(","))
    unknown = wanted - set(names)
    if unknown:
        parser.error(f"no such stage: {', '.join(sorted(unknown))}")
    chosen = [stage for stage in every if stage.name in wanted]
    for stage in chosen:
        if run_stage(stage):
            if stage.name == "build":
                # The units preload this one, and build none of their own.
                library = TARGET.absolute() / "release" / "libazekura_preload.so"
                os.environ["AZEKURA_PRELOAD_UNDER_TEST"] = str(library)
        elif stage.needed:
            for rest in chosen[chosen.index(stage) + 1 :]:
                rest.failed = 1
            break
    print(f"\n{'stage':<10} {'result':<24} {'passed':>7} {'failed':>7} {'skipped':>8} {'s':>7}")
    for stage in chosen:
        numbers = f"{stage.passed:>7} {stage.failed:>7} {stage.skipped:>8} {stage.seconds:>7.1f}"
        print(f"{stage.name:<10} {stage.result:<24} {numbers}")
        for note in stage.notes:
            print(f"  {note}")
    passed = sum(stage.passed for stage in chosen)
    failed = sum(stage.failed for stage in chosen)
    skipped = sum(stage.skipped for stage in chosen)
    tail = f", {skipped} skipped" if skipped else ""
    print(f"\n{passed} passed, {failed} failed{tail}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
