"""The home tree that programs of staging jobs are tried on: ordinary packages and projects, and names
and kinds of files that no program is prepared for."""

import compileall
import os
import random
import shutil
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path

from pools import ROOT

MATERIAL = ROOT / "tests" / "material" / "stage"
PYTHON = os.path.realpath(sys.executable)
FLAGS = ["-O1", "-Wall", "-Wextra", "-Werror"]
ODD_NAMES = [
    b"new\nline",
    b"two words",
    b" at both ends ",
    b"\xff\xfe not UTF-8 \x80",
    "ünï-ço∂é".encode(),
    b"-rf",
    b"*glob?[a]",
    b'quo\'te "and" $(echo no)`x`\\n',
    b"\ttab\x01\x7f",
    b"...",
    b"x" * 255,
]


def compile_program(compiler, source, into, *options):
    """Builds one of the material's programs; the test says nothing about compilers."""
    command = [*compiler.split(), *options, "-o", into, MATERIAL / source]
    environment = {**os.environ, "CGO_ENABLED": "0"}
    subprocess.run(command, check=True, timeout=100, env=environment)
    return into


def make_odd(place):
    """Files of all lengths, modes and depths, under names that only the kernel likes."""
    random_bytes = random.Random(5)
    place = os.fsencode(place)

    def put(name, content=b"", at=1_000_000_000):
        path = os.path.join(place, name)
        with open(path, "wb") as file:
            file.write(content)
        os.utime(path, ns=(at * 1_000_000_000 + 123_456_789,) * 2)

    os.makedirs(os.path.join(place, b"empty directory"))
    for number, name in enumerate(ODD_NAMES):
        put(name, b"%d: " % number + name + b"\n")
        os.makedirs(os.path.join(place, b"below", name))
        put(os.path.join(b"below", name, name), name * 50)
        os.symlink(name, os.path.join(place, b"to " + name[:200]))
    put(b"empty")
    put(b"old", b"from before the epoch", at=-86_400)
    put(b"one piece", random_bytes.randbytes(1 << 18))
    put(b"pieces and a bit", random_bytes.randbytes((1 << 20) + 1))
    put(b"no newline", b"a\nb")
    with open(os.path.join(place, b"sparse"), "wb") as file:
        file.seek(3 << 20)
        file.write(b"end")
    for mode in (0o000, 0o400, 0o555, 0o640, 0o777):
        put(b"mode-%o" % mode, b"%o" % mode)
        os.chmod(os.path.join(place, b"mode-%o" % mode), mode)
    deep = os.path.join(place, *[b"deep%d" % depth for depth in range(60)])
    os.makedirs(deep)
    put(os.path.join(deep, b"bottom"), b"here\n")


def make_links(place, outside):
    """Symlinks within the map and out of it."""
    (place / "dir").mkdir(parents=True)
    (place / "file").write_text("the file\n")
    (place / "dir" / "file").write_text("the file in the directory\n")
    for name, text in {
        "near": "file",
        "far": f"{place}/dir/file",
        "dots": "dir/.././dir//file",
        "to-dir": "dir",
        "chain": "chain1",
        "chain1": "chain2",
        "chain2": "to-dir/up",
        "dir/up": "../file",
        "nowhere": "nothing/here",
        "loop": "loop",
        "loop1": "loop2",
        "loop2": "loop1",
        "slash": "dir/",
        "slash-of-file": "file/",
        "out": str(outside / "file"),
        "out-dir": str(outside),
        "out-dots": os.path.relpath(outside, place),
        "there-and-back": f"{outside}/back/file",
        "system": "/etc/passwd",
    }.items():
        (place / name).symlink_to(text)
    (outside / "file").write_text("out of the map\n")
    (outside / "back").symlink_to(place)


def make_package(place):
    """A Python package of many modules, with a compiled part that needs a library lying elsewhere."""
    package = place / "many"
    for group in range(12):
        inner = package / f"group{group}"
        inner.mkdir(parents=True)
        names = [f"m{number}" for number in range(12)]
        for number, name in enumerate(names):
            before = f"from .{names[number - 1]} import value as last\n" if number else "last = 0\n"
            (inner / f"{name}.py").write_text(f"{before}value = last * 3 + {group * number}\n")
        (inner / "__init__.py").write_text(f"from .{names[-1]} import value\n")
        (inner / "words.txt").write_text(f"words of group {group}\n")
    values = "".join(f"from .group{group} import value as value{group}\n" for group in range(12))
    native = "from .native import count\n"
    (package / "__init__.py").write_text(values + native)
    libraries = place / "lib" / "inner"
    libraries.mkdir(parents=True)
    shared = ["-shared", "-fPIC", *FLAGS]
    compile_program("gcc", "counted.c", libraries / "libcounted.so", *shared)
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    include = f"-I{sysconfig.get_path('include')}"
    # The library has to be named behind what needs it.
    find = ["-Wl,--no-as-needed", f"-L{libraries}", "-lcounted", "-Wl,-rpath,$ORIGIN/../lib/inner"]
    compile_program("gcc", "native.c", package / f"native{suffix}", *shared, include, *find)
    # What was compiled before fits its source by time and length, or is not used.
    compileall.compile_dir(package / "group0", quiet=2)


def make_libraries(place):
    """Programs with libraries as packages install them: symlinks lead to the file with the version."""
    (place / "lib").mkdir(parents=True)
    (place / "bin").mkdir()
    (place / "lib64").symlink_to("lib")
    file = place / "lib" / "libcounted.so.2.0.1"
    shared = ["-shared", "-fPIC", "-Wl,-soname,libcounted.so.2", *FLAGS]
    compile_program("gcc", "counted.c", file, *shared)
    (place / "lib" / "libcounted.so.2").symlink_to(file.name)
    (place / "lib" / "libcounted.so").symlink_to("libcounted.so.2")
    main = place / "main.c"
    main.write_text(
        "#include <stdio.h>\nlong counted(const char *);\n"
        'int main(int n, char **w) { printf("%ld\\n", counted(w[n - 1])); return 0; }\n'
    )
    for name, find in {"beside": ["-Wl,-rpath,$ORIGIN/../lib"], "searched": []}.items():
        compile_program(
            "gcc", main, place / "bin" / name, "-Wl,--no-as-needed", f"-L{place}/lib", "-lcounted", *find
        )


def make_deck(place):
    """What the Fortran program reads."""
    place.mkdir()
    numbers = [str(number / 7) for number in range(3000)]
    lines = [" ".join(numbers[at : at + 7]) for at in range(0, 3000, 7)]
    values = ",\n ".join(lines[:200]) + " 1*0.5, 2*1.25 /"
    head = "'a title, quoted' 1404 3*7 .true. (1.5,-2.5)\n"
    run = "\n &run steps = 12, width=0.25,\n title = 'from a namelist' /\n"
    (place / "deck.txt").write_text(head + values + run)
    reals = struct.pack("<1000d", *[number * 0.5 for number in range(1000)])
    (place / "records.bin").write_bytes(reals)
    (place / "stream.bin").write_bytes(reals)


def make_project(place):
    """Sources and headers, to be built elsewhere."""
    (place / "include" / "deep" / "er").mkdir(parents=True)
    (place / "src").mkdir()
    for number in range(40):
        more = f'#include "h{number + 1}.h"\n' if number < 39 else '#include "deep/er/last.h"\n'
        guard = f"#ifndef H{number}\n#define H{number}\n{more}#define V{number} {number}\n#endif\n"
        (place / "include" / f"h{number}.h").write_text(guard)
    (place / "include" / "deep" / "er" / "last.h").write_text("#define LAST 99\n")
    (place / "include" / "system.h").symlink_to("deep/../h20.h")
    for number in range(4):
        (place / "src" / f"f{number}.c").write_text(
            f"#include <stdio.h>\n#include <h{number}.h>\n#include <system.h>\n"
            f'int f{number}(void) {{ return printf("%d %d\\n", V30 + {number}, LAST); }}\n'
        )
    calls = "".join(f"int f{number}(void);\n" for number in range(4))
    body = "".join(f"f{number}(); " for number in range(4))
    (place / "src" / "main.c").write_text(f"{calls}int main(void) {{ {body}return 0; }}\n")
    (place / "Makefile").write_text(
        "here := $(dir $(lastword $(MAKEFILE_LIST)))\n"
        "parts := $(patsubst $(here)src/%.c,%.o,$(sort $(wildcard $(here)src/*.c)))\n"
        "program: $(parts)\n\tgcc -o $@ $^\n"
        "%.o: $(here)src/%.c\n\tgcc -O1 -MMD -I$(here)include -c -o $@ $<\n"
    )


def make_scripts(place, static):
    """Shell scripts that use each other; and programs, one of which only a program beside it can run."""
    place.mkdir()
    (place / "functions").write_text('twice() { echo "$1 $1"; }\nwhere=${BASH_SOURCE[0]##*/}\n')
    (place / "table").write_text("".join(f"{number} n{number}\n" for number in range(300)))
    (place / "numbers").write_text("".join(f"{number * number}\n" for number in range(500)))
    (place / "main").write_text(
        "#!/usr/bin/env bash\n"
        'here=$(cd "$(dirname "$0")" && pwd)\n'
        '. "$here/functions"; twice "$where"\n'
        'cat <<END\n$(<"$here/table") and $((6 * 7))\nEND\n'
        'while read -r number name; do (( number % 50 )) || echo "$name"; done <"$here/table"\n'
        'mapfile -t lines <"$here/table"; echo ${#lines[@]}\n'
        'for name in "$here"/*; do [[ -x $name ]] && echo "runs: ${name##*/}"; done\n'
        'cd "$here/.."; echo scripts/t* d*/*.txt; source scripts/functions; ls -d scripts/../p*\n'
        'exec "$here/last" "$@"\n'
    )
    (place / "last").write_text('#!/bin/sh\necho "last: $*"; exit 5\n')
    (place / "by-walk").write_text(f"#!{place}/walk {place}\n")
    for name in ("main", "last", "by-walk"):
        (place / name).chmod(0o755)
    shutil.copy(static, place / "walk")
    shutil.copy("/bin/echo", place / "echo")


def make_tree(home, outside, programs: Path):
    """All of it."""
    static = compile_program("gcc", "walk.c", programs / "walk", "-static", *FLAGS)
    make_odd(home / "odd")
    make_links(home / "links", outside)
    make_package(home / "package")
    make_libraries(home / "libraries")
    make_deck(home / "deck")
    make_project(home / "project")
    make_scripts(home / "scripts", static)
    if shutil.which("gfortran"):
        compile_program("gfortran", "deck.f90", home / "deck" / "read-deck", "-O1")
    if shutil.which("go"):
        compile_program("go build", "walk.go", home / "scripts" / "walk-go")
    many = home / "many names"
    many.mkdir()
    for number in range(10_000):
        (many / f"name {number:05}").write_bytes(b"%d" % number if number % 100 == 0 else b"")
