"""A model of a directory tree: what a tree must look like after a list of operations. Each operation
is a list whose first word names it, so that it can stand in a journal of JSON lines.

Paths are relative to the tree's root. `perform` does an operation on a real file system, `Tree.apply`
on the model, `Tree.choose` draws one that is going to succeed.
"""

import ctypes
import errno
import os
import stat
from pathlib import Path

RENAME_NOREPLACE = 1
RENAME_EXCHANGE = 2
AT_FDCWD = -100
_libc = ctypes.CDLL(None, use_errno=True)


def renameat2(old, new, flags):
    done = _libc.renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags)
    if done != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(old), None, str(new))


def pattern(seed, count):
    """`count` bytes that depend on the seed and on the place."""
    word = f"{seed:08x}.".encode()
    return (word * (count // len(word) + 1))[:count]


class File:
    """A regular file; names that are links of each other share one."""

    def __init__(self, data=b""):
        self.data = bytearray(data)


class Link:
    """A symbolic link."""

    def __init__(self, text):
        self.text = text


def perform(root, op):
    """Does one operation on the file system below `root`."""
    kind, path = op[0], Path(root) / op[1]
    if kind == "create":
        with open(path, "xb", buffering=0) as file:
            if op[3]:
                file.write(pattern(op[2], op[3]))
    elif kind == "append":
        fd = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(fd, pattern(op[2], op[3]))
        finally:
            os.close(fd)
    elif kind == "write":
        fd = os.open(path, os.O_WRONLY)
        try:
            os.pwrite(fd, pattern(op[3], op[4]), op[2])
        finally:
            os.close(fd)
    elif kind == "truncate":
        os.truncate(path, op[2])
    elif kind == "fsync":
        fd = os.open(path, os.O_WRONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    elif kind == "unlink":
        os.unlink(path)
    elif kind == "mkdir":
        os.mkdir(path)
    elif kind == "rmdir":
        os.rmdir(path)
    elif kind == "symlink":
        os.symlink(op[2], path)
    elif kind == "link":
        os.link(path, Path(root) / op[2])
    elif kind == "rename":
        os.rename(path, Path(root) / op[2])
    elif kind == "exchange":
        renameat2(path, Path(root) / op[2], RENAME_EXCHANGE)
    else:
        raise ValueError(kind)


class Tree:
    """The tree as it must be."""

    def __init__(self):
        self.root = {}

    def find(self, path):
        """The directory above `path`, and the last name."""
        *above, name = path.split("/")
        directory = self.root
        for part in above:
            directory = directory[part]
        return directory, name

    def apply(self, op):
        kind = op[0]
        directory, name = self.find(op[1])
        if kind == "create":
            directory[name] = File(pattern(op[2], op[3]))
        elif kind == "append":
            directory[name].data += pattern(op[2], op[3])
        elif kind == "write":
            file, (offset, seed, count) = directory[name], op[2:5]
            if offset > len(file.data):
                file.data += bytes(offset - len(file.data))
            file.data[offset : offset + count] = pattern(seed, count)
        elif kind == "truncate":
            file = directory[name]
            file.data = file.data[: op[2]] + bytes(max(0, op[2] - len(file.data)))
        elif kind in ("unlink", "rmdir"):
            del directory[name]
        elif kind == "mkdir":
            directory[name] = {}
        elif kind == "symlink":
            directory[name] = Link(op[2])
        elif kind == "link":
            other, other_name = self.find(op[2])
            other[other_name] = directory[name]
        elif kind == "rename":
            other, other_name = self.find(op[2])
            if other.get(other_name) is not directory[name]:
                other[other_name] = directory.pop(name)
        elif kind == "exchange":
            other, other_name = self.find(op[2])
            directory[name], other[other_name] = other[other_name], directory[name]

    def walk(self):
        """(path, node) of everything, directories before what is in them."""
        stack = [("", self.root)]
        while stack:
            prefix, directory = stack.pop()
            for name, node in directory.items():
                yield prefix + name, node
                if isinstance(node, dict):
                    stack.append((f"{prefix}{name}/", node))

    def choose(self, rng, names=12, depth=2, bytes_max=6000):
        """An operation that is going to succeed, drawn by `rng`."""
        every = list(self.walk())
        directories = [""] + [path + "/" for path, node in every if isinstance(node, dict)]
        files = [path for path, node in every if isinstance(node, File)]
        plain = [path for path, node in every if not isinstance(node, dict)]
        taken = {path for path, _ in every}

        def fresh():
            for _ in range(20):
                path = rng.choice(directories) + f"n{rng.randrange(names)}"
                if path not in taken:
                    return path
            return None

        seed = rng.randrange(1 << 32)
        for _ in range(50):
            kind = rng.choice(KINDS)
            new = fresh()
            if kind == "create" and new:
                return ["create", new, seed, rng.choice((0, 100, bytes_max))]
            if kind == "mkdir" and new and new.count("/") < depth:
                return ["mkdir", new]
            if kind == "symlink" and new:
                return ["symlink", new, f"to/{seed:x}"]
            if kind == "rmdir":
                empty = [path for path, node in every if node == {}]
                if empty:
                    return ["rmdir", rng.choice(empty)]
            if kind == "unlink" and plain:
                return ["unlink", rng.choice(plain)]
            if kind == "link" and plain and new:
                return ["link", rng.choice(plain), new]
            if kind == "rename":
                op = self._choose_rename(rng, every, plain, new)
                if op:
                    return op
            if kind == "exchange" and len(plain) > 1:
                return ["exchange", *rng.sample(plain, 2)]
            if kind in ("append", "write", "truncate", "fsync") and files:
                return self._choose_data(rng, kind, rng.choice(files), seed, bytes_max)
        return ["mkdir", new] if new and new.count("/") < depth else ["create", new, seed, 10]

    def _choose_rename(self, rng, every, plain, new):
        if not every:
            return None
        old, node = rng.choice(every)
        if isinstance(node, dict):
            empty = [p for p, n in every if n == {} and p != old and not p.startswith(old + "/")]
            if empty and rng.random() < 0.4:
                to = rng.choice(empty)
                return None if old.startswith(to + "/") else ["rename", old, to]
            ours = old + "/"
            if new and not new.startswith(ours) and new.count("/") == old.count("/"):
                return ["rename", old, new]
            return None
        if plain and rng.random() < 0.5:
            to = rng.choice(plain)
            return ["rename", old, to] if to != old else None
        return ["rename", old, new] if new else None

    def _choose_data(self, rng, kind, path, seed, bytes_max):
        directory, name = self.find(path)
        length = len(directory[name].data)
        if kind == "append" and length < 4 * bytes_max:
            return ["append", path, seed, rng.randrange(1, 400)]
        if kind == "truncate":
            return ["truncate", path, rng.randrange(2 * bytes_max)]
        if kind == "fsync":
            return ["fsync", path]
        return ["write", path, rng.randrange(length + 100), seed, rng.randrange(1, bytes_max)]

    def differences(self, root, limit=10):
        """What of the tree below `root` is not as the model has it, in words."""
        wrong = []
        names = {}
        for path, node in self.walk():
            if isinstance(node, (File, Link)):
                names.setdefault(id(node), []).append(path)
        self._compare(Path(root), self.root, "", wrong, names)
        return wrong[:limit]

    def _compare(self, real, directory, prefix, wrong, names):
        try:
            found = set(os.listdir(real))
        except OSError as error:
            wrong.append(f"{prefix or '.'}: cannot be listed: {error.strerror}")
            return
        for name in sorted(found - set(directory)):
            wrong.append(f"{prefix}{name}: is there and must not be")
        for name in sorted(set(directory) - found):
            wrong.append(f"{prefix}{name}: is not there")
        for name in sorted(found & set(directory)):
            node = directory[name]
            path = real / name
            try:
                note = self._compare_node(path, node, names)
            except OSError as error:
                note = f"{errno.errorcode.get(error.errno)} from {error.filename}"
            if note:
                wrong.append(f"{prefix}{name}: {note}")
            elif isinstance(node, dict):
                self._compare(path, node, f"{prefix}{name}/", wrong, names)

    def _compare_node(self, path, node, names):
        status = os.lstat(path)
        if isinstance(node, dict):
            subdirs = sum(isinstance(child, dict) for child in node.values())
            if not stat.S_ISDIR(status.st_mode):
                return "is not a directory"
            if status.st_nlink != 2 + subdirs:
                return f"has {status.st_nlink} links, must have {2 + subdirs}"
            return None
        links = len(names[id(node)])
        if status.st_nlink != links:
            return f"has {status.st_nlink} links, must have {links}"
        if isinstance(node, Link):
            if not stat.S_ISLNK(status.st_mode):
                return "is not a symbolic link"
            return None if os.readlink(path) == node.text else "leads elsewhere"
        if not stat.S_ISREG(status.st_mode):
            return "is not a regular file"
        data = path.read_bytes()
        if status.st_size != len(data):
            return f"stat says {status.st_size} bytes, reading gives {len(data)}"
        if data != node.data:
            place = next(
                (i for i, pair in enumerate(zip(data, node.data)) if pair[0] != pair[1]),
                min(len(data), len(node.data)),
            )
            return f"{len(data)} bytes, must be {len(node.data)}; they differ from {place} on"
        return None


# Weighted towards what touches two targets.
KINDS = (
    ["create"] * 4
    + ["rename"] * 6
    + ["link"] * 3
    + ["unlink"] * 3
    + ["rmdir"] * 3
    + ["mkdir"] * 4
    + ["exchange"] * 2
    + ["symlink", "append", "append", "write", "write", "truncate", "fsync"]
)
