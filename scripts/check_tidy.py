#!/usr/bin/env python3
"""Checks the form of the sources: length of files, opening paragraphs, names, and words that have no
place in the repository."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINES_MAX = 900
LINES_WARN = 400
BYTES_MAX = 512 * 1024
# These say nothing about what is in them.
NAMES = {"util", "utils", "helper", "helpers", "common", "misc", "manager", "core", "shared"}
UNREAD = {".png", ".svg", ".bin", ".lock"}
# (pattern, why). Kept as patterns that do not match themselves.
WORDS = [
    (r"\b[T]ODO\b|\b[F]IXME\b|\bX[X]X\b", "unfinished work: do it or say it in the documentation"),
    (r"\b[t]odo!\(|\b[u]nimplemented!\(|\b[d]bg!\(", "unfinished code"),
    (r"(?<![\w.])/(?:[w]ork|[r]oot|[h]ome/\w+)/", "a path of somebody's machine"),
    (r"crates\.[i]o|pypi\.[o]rg|deb\.[d]ebian|npm[j]s\.|proxy\.[g]olang", "a registry's host name"),
    (r"(?i)\bissue[ ]#?\d+\b|\bfixes[ ]#\d+|\bPR[ ]#\d+\b", "a number that only a tracker knows"),
    (r"(?i)\b[C]EO\b|\bas an AI\b|\bAI[ -]assistant\b", "not about the project"),
]


def tracked():
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    for name in done.stdout.split(b"\0"):
        path = ROOT / name.decode()
        if name and path.is_file() and not path.is_symlink():
            yield path


def check_rust(path, text, wrong):
    if "/src/" in str(path) and path.stat().st_size > 0 and not text.startswith("//!"):
        if not re.match(r"(?:#!\[[^\]]*\]\s*)+//!", text) and not path.stem.endswith("tests"):
            wrong.append("a module opens with a //! paragraph: what it owns, what it never does")
    if path.stem in NAMES or (path.stem == "mod" and path.parent.name in NAMES):
        wrong.append("a module's name says what is in it")


def check(path, relative):
    wrong, notes = [], []
    if path.stat().st_size > BYTES_MAX:
        wrong.append(f"larger than {BYTES_MAX} bytes")
    if path.suffix in UNREAD or "fuzz/corpus" in relative:
        return wrong, notes
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        return ["not UTF-8 text"], notes
    lines = text.count("\n")
    if path.suffix in {".rs", ".py", ".sh"}:
        if lines > LINES_MAX:
            wrong.append(f"{lines} lines; the limit is {LINES_MAX}")
        elif lines > LINES_WARN:
            notes.append(f"{lines} lines")
    if path.suffix == ".rs":
        check_rust(path, text, wrong)
    if text and not text.endswith("\n"):
        wrong.append("no newline at the end")
    for number, line in enumerate(text.splitlines(), 1):
        if line.rstrip() != line and path.suffix != ".md":
            wrong.append(f"line {number}: spaces at the end")
        for pattern, why in WORDS:
            found = re.search(pattern, line)
            if found:
                wrong.append(f"line {number}: '{found.group(0)}': {why}")
    return wrong, notes


def main():
    count = bad = 0
    for path in tracked():
        relative = str(path.relative_to(ROOT))
        wrong, notes = check(path, relative)
        count += 1
        bad += bool(wrong)
        for line in notes:
            print(f"note: {relative}: {line}")
        for line in wrong:
            print(f"tidy: {relative}: {line}")
    if bad:
        sys.exit(1)
    print(f"tidy: {count} files, nothing to remark")


if __name__ == "__main__":
    main()
