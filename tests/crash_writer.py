"""Changes a directory tree until it is told to stop, and keeps a journal of what it began and what
was answered. Run as `crash_writer.py DIR JOURNAL SEED`; it stops when its standard input closes.

A journal line is `B` and the operation before it is begun, `D` when it was answered, `E` and the
error's name when it failed.
"""

import contextlib
import errno
import json
import os
import random
import select
import sys

from tree_model import Tree, perform


def replay(journal):
    """The tree after all that was answered, and the operation that was begun and not answered."""
    tree, begun, errors = Tree(), None, []
    with open(journal) as lines:
        for line in lines:
            if not line.endswith("\n"):
                break
            if line[0] == "B":
                begun = json.loads(line[2:])
            elif line[0] == "D":
                tree.apply(begun)
                begun = None
            else:
                errors.append((line[2:].strip(), begun))
                break
    return tree, begun, errors


def main():
    root, journal, seed = sys.argv[1:]
    rng = random.Random(int(seed))
    tree = Tree()
    with contextlib.suppress(FileNotFoundError):
        tree = replay(journal)[0]
    log = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    while not select.select([0], [], [], 0)[0]:
        op = tree.choose(rng)
        os.write(log, b"B " + json.dumps(op).encode() + b"\n")
        try:
            perform(root, op)
        except OSError as error:
            os.write(log, f"E {errno.errorcode.get(error.errno, error.errno)}\n".encode())
            return 3
        os.write(log, b"D\n")
        tree.apply(op)
    return 0


if __name__ == "__main__":
    sys.exit(main())
