#!/usr/bin/env python3
"""Checks licences and sources of every dependency against deny.toml.

Runs `cargo deny` where it is installed; otherwise reads `cargo metadata` itself, which needs nothing
but cargo. The list of licences stands in deny.toml only.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def list_of(text, key):
    """The strings of `key = [...]`. (tomllib is not in every Python that can run this.)"""
    block = re.search(rf"^{key} = \[(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    if not block:
        sys.exit(f"deny.toml has no list '{key}'")
    return block.group(1)


def accepts(expression, allowed):
    """Whether an SPDX expression can be met with the allowed licences alone."""
    tokens = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))
    place = 0

    def alternatives():
        nonlocal place
        result = conjunction()
        while place < len(tokens) and tokens[place] == "OR":
            place += 1
            result = conjunction() or result
        return result

    def conjunction():
        nonlocal place
        result = single()
        while place < len(tokens) and tokens[place] == "AND":
            place += 1
            result = single() and result
        return result

    def single():
        nonlocal place
        if tokens[place] == "(":
            place += 1
            result = alternatives()
            place += 1
            return result
        name = tokens[place]
        place += 1
        if place < len(tokens) and tokens[place] == "WITH":
            name = f"{name} WITH {tokens[place + 1]}"
            place += 2
        return name in allowed

    return alternatives()


def main():
    if shutil.which("cargo-deny"):
        command = ["cargo", "deny", "check", "licenses", "bans", "sources"]
        sys.exit(subprocess.run(command, cwd=ROOT, check=False).returncode)
    rules = (ROOT / "deny.toml").read_text()
    allowed = set(re.findall(r'"([^"]+)"', list_of(rules, "allow")))
    banned = {}
    for line in re.findall(r"\{ name = .*\}", list_of(rules, "deny")):
        (name,) = re.findall(r'\{ name = "([^"]+)"', line)
        wrappers = re.findall(r"wrappers = \[(.*?)\]", line)
        banned[name] = set(re.findall(r'"([^"]+)"', "".join(wrappers)))
    targets = re.findall(r'"([^"]+)"', re.search(r"^targets = \[.*\]", rules, re.MULTILINE).group(0))
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    command += [f"--filter-platform={target}" for target in targets]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout)
    # Only what is built: of every other platform's crates the names are in there too.
    nodes = {node["id"]: node["dependencies"] for node in found["resolve"]["nodes"]}
    packages = [package for package in found["packages"] if package["id"] in nodes]
    names = {package["id"]: package["name"] for package in packages}
    users = {}
    for user, uses in nodes.items():
        for used in uses:
            users.setdefault(names[used], set()).add(names[user])
    wrong = []
    for package in packages:
        name = f"{package['name']} {package['version']}"
        licence = package["license"]
        source = package["source"]
        if not licence or not accepts(licence, allowed):
            wrong.append(f"{name}: licence '{licence}' is not in deny.toml")
        if package["name"] in banned:
            strangers = users.get(package["name"], set()) - banned[package["name"]]
            wrong += [f"{name}: banned by deny.toml, and used by {user}" for user in strangers]
        if source and not source.startswith("registry+https://github.com/rust-lang/"):
            wrong.append(f"{name}: comes from {source}")
    for line in wrong:
        print(f"licences: {line}")
    if wrong:
        sys.exit(1)
    print(f"licences: {len(packages)} packages, all with an accepted licence and source")


if __name__ == "__main__":
    main()
