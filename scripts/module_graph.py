"""Which module files of a crate use which others, read from the paths in the sources.

A node is a source file. An edge is a path (`crate::`, `super::`, `self::`, a child's name) that ends in
another file; a re-export is followed to the file that defines the name, and counts as a use only where
the re-exporting file itself says the name again. Comments, strings and test code do not count. What a
method call reaches cannot be seen this way.
"""

import re
from pathlib import Path

TOKEN = re.compile(
    r"//[^\n]*"
    r"|/\*.*?\*/"
    r'|b?r(#*)".*?"\1'
    r'|b?"(?:\\.|[^"\\])*"'
    r"|b?'(?:\\[^']*|[^'\\])'",
    re.S,
)
IDENTIFIER = r"[A-Za-z_][A-Za-z_0-9]*"
PATH = re.compile(
    rf"(?<![\w:.])((?:(?:crate|super|self)::)+|(?=[a-z]))({IDENTIFIER}(?:::{IDENTIFIER})*)"
)
MOD = re.compile(rf"^[ \t]*(?:pub(?:\([^)]*\))?\s+)?mod\s+({IDENTIFIER})\s*;", re.M)
USE = re.compile(r"^[ \t]*(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);", re.M)


def without_comments(text):
    return TOKEN.sub(lambda found: " " if found.group(0).startswith("/") else '""', text)


def end_of_item(text, start):
    """Where the item ends that begins at or after `start`: behind its `;` or its closing brace."""
    depth = 0
    for place in range(start, len(text)):
        if text[place] == "{":
            depth += 1
        elif text[place] == "}":
            depth -= 1
            if depth == 0:
                return place + 1
        elif text[place] == ";" and depth == 0:
            return place + 1
    return len(text)


def without_tests(text):
    """The text without items under `#[cfg(test)]`, and the names of modules declared there."""
    names = set()
    while found := re.search(r"#\[cfg\((?:test|all\(test[^\]]*)\)\]", text):
        end = end_of_item(text, found.end())
        names.update(MOD.findall(text[found.end() : end]))
        text = text[: found.start()] + text[end:]
    return text, names


def split_use(tree, prefix=()):
    """The single paths of a `use` tree, as tuples of names, with the name that each gets here."""
    tree = tree.strip()
    brace = tree.find("{")
    if brace < 0:
        path, _, alias = tree.partition(" as ")
        names = prefix + tuple(part.strip() for part in path.split("::") if part.strip())
        if names and names[-1] == "self":
            names = names[:-1]
        if names:
            yield names, alias.strip() or names[-1]
        return
    head = prefix + tuple(part.strip() for part in tree[:brace].split("::") if part.strip())
    depth, part = 0, ""
    for letter in tree[brace + 1 : tree.rfind("}")] + ",":
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            if part.strip():
                yield from split_use(part, head)
            part = ""
        else:
            part += letter


class Module:
    """One source file: its place in the crate, its text without what does not count, its names."""

    def __init__(self, place, text):
        self.place = place
        text, self.tests = without_tests(without_comments(text))
        self.children = set(MOD.findall(text)) - self.tests
        self.uses = []
        for found in USE.finditer(text):
            self.uses.extend((bool(found.group(1)), *one) for one in split_use(found.group(2)))
        self.body = MOD.sub("", USE.sub("", text))


class Crate:
    """The module files below one root file (`lib.rs`, `main.rs`)."""

    def __init__(self, root):
        self.modules = {}
        self.files = {}
        self._read(root, (), root.parent)

    def _read(self, path, place, folder):
        module = Module(place, path.read_text())
        self.modules[place], self.files[place] = module, path
        for child in module.children:
            for option in (folder / f"{child}.rs", folder / child / "mod.rs"):
                if option.exists():
                    self._read(option, (*place, child), folder / child)

    def absolute(self, place, names):
        """A path as the crate's root would write it; `None` if it leaves the crate."""
        head, rest = names[0], names[1:]
        if head == "crate":
            return rest
        if head == "self":
            return place + rest
        if head == "super":
            while head == "super":
                place = place[:-1]
                if not rest:
                    return place
                head, rest = rest[0], rest[1:]
            return (*place, head, *rest)
        if head in self.modules[place].children:
            return place + names
        return None

    def definer(self, names, seen=()):
        """The file in which a name is defined that the crate knows by this path."""
        for length in range(len(names), -1, -1):
            place = names[:length]
            if place not in self.modules:
                continue
            if length == len(names) or (place, names[length]) in seen:
                return place
            module = self.modules[place]
            for _, path, name in module.uses:
                whole = self.absolute(place, path)
                if whole is not None and name in (names[length], "*"):
                    tail = (names[length],) if name == "*" else ()
                    rest = names[length + 1 :]
                    found = self.definer(whole[:-1] + tail if name == "*" else whole + rest,
                                         (*seen, (place, names[length])))
                    if name != "*" or found != whole[:-1]:
                        return found
            return place
        return ()

    def edges(self):
        """For each file the files that it uses."""
        graph = {place: set() for place in self.modules}
        for place, module in self.modules.items():
            local = {}
            for is_public, path, name in module.uses:
                whole = self.absolute(place, path)
                if whole is None:
                    continue
                if is_public and not re.search(rf"\b{re.escape(name)}\b", module.body):
                    continue
                if name == "*":
                    whole = whole[:-1] if whole and whole[-1] == "*" else whole
                local[name] = whole
                graph[place].add(self.definer(whole))
            for found in PATH.finditer(module.body):
                names = tuple(part for part in (found.group(1) + found.group(2)).split("::") if part)
                if names[0] in local:
                    graph[place].add(self.definer(local[names[0]] + names[1:]))
                elif (whole := self.absolute(place, names)) is not None and len(names) > 1:
                    graph[place].add(self.definer(whole))
            graph[place].discard(place)
        return graph


def rings(graph):
    """The strongly connected components of more than one node (Tarjan, without recursion)."""
    number, low, on_stack, stack, found = {}, {}, set(), [], []
    for start in sorted(graph):
        if start in number:
            continue
        work = [(start, iter(sorted(graph[start])))]
        number[start] = low[start] = len(number)
        stack.append(start)
        on_stack.add(start)
        while work:
            node, others = work[-1]
            for other in others:
                if other not in number:
                    number[other] = low[other] = len(number)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(sorted(graph[other]))))
                    break
                if other in on_stack:
                    low[node] = min(low[node], number[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    ring = set()
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        ring.add(member)
                        if member == node:
                            break
                    if len(ring) > 1:
                        found.append(ring)
    return found


def rings_of(crates: Path):
    """Every ring in every crate: (crate, {file: the files of the ring that it uses})."""
    for source in sorted(crates.glob("*/src")):
        for root in (source / "lib.rs", source / "main.rs"):
            if not root.exists():
                continue
            crate = Crate(root)
            graph = crate.edges()
            for ring in rings(graph):
                def shown(place, crate=crate, source=source):
                    return str(crate.files[place].relative_to(source))

                yield source.parent.name, {
                    shown(one): sorted(shown(other) for other in graph[one] & ring)
                    for one in sorted(ring)
                }
