"""Unchanged programs under the preload library do in the pool what they do in a local directory,
byte for byte."""

import os
import pathlib
import shutil
import subprocess
import sys
import textwrap

import pytest
from pools import BINARY, World
from preloading import Preloading, compile_c

PYTHON = os.path.realpath(sys.executable)
# An ordinary user, where the tests themselves are run by root, and an interpreter that all may run.
USER = 1000 if os.geteuid() == 0 else None
USERS_PYTHON = shutil.which("python3", path="/usr/bin:/bin:/usr/local/bin") or PYTHON

# Each runs in an empty directory; its output, its exit code and the tree it leaves are compared.
SCRIPTS = {
    "redirections": """
        echo one > f; echo two >> f; cat f; cat < f
        exec 3<> f; read -r line <&3; echo "read: $line"; echo TWO >&3; exec 3>&-; cat f
        { echo out; echo err >&2; } > both 2>&1; cat both
        echo shell-only | { read -r x; echo "$x" > piped; }; cat piped
        (exec > log 2>&1; echo in the log; ls missing-file; printf '%s\\n' a b c); cat log
        echo back on the old output
        set -C; echo no > f || echo "refused"; set +C; : > empty; wc -c < empty
        for i in 1 2 3; do echo "line $i"; done > loop; while read -r a b; do echo "$b $a"; done < loop
        echo to-fd-5 5>&1 >&5; exec 7> seven; echo seven >&7; /bin/echo child >&7; exec 7>&-; cat seven
        """,
    "here documents": """
        cat > f <<END
        here $((1 + 2))
        END
        cat f; cat <<< "a here string" > g; cat g
        seq 1 30000 > numbers
        cat <<END | md5sum
        $(cat numbers)
        END
        """,
    "dash": """
        dash -c 'echo one > f; exec 4>>f; echo two >&4; cat f; cat <<X > g
        text
        X
        cat g; cd /; pwd' ; cat f
        """,
    "text tools": """
        seq 1 5000 > n; sed -i 's/^1/x/' n; grep -c x n; mkdir -p a/b; cp n a/b/m; grep -rl x49 . | sort
        sort -k1.3,1.3r -k1n n > shuffled; mkdir tmp; sort -T tmp -S 32k shuffled | md5sum; ls tmp
        awk '{s+=length($1)} END {print s > "sum"}' n
        cat sum; tr x y < n > t; cut -c1-2 t | uniq -c | tail -3; head -c 100 n | od -c | tail -2
        split -l 1000 n part.; ls part.*; cat part.* | cmp - n && echo same; tac n | tail -1
        comm -12 n t | wc -l
        find . -type f | sort | xargs -n 2 wc -l; tee copy1 copy2 < sum; diff n t | wc -l
        env -i /bin/cat sum
        """,
    "tree tools": """
        mkdir -p src/x/y; for i in $(seq 20); do echo "file $i" > src/x/f$i; done; ln -s f1 src/x/link
        ln src/x/f2 src/x/y/hard
        chmod 640 src/x/f3; touch -d '2020-02-03 04:05:06' src/x/f3 src/x/f4; cp -a src copy
        diff -r src copy && echo equal
        mv copy/x/f5 copy/moved; du -a --apparent-size src | wc -l; find copy -name 'f1*' | sort
        stat -c '%n %a %s %Y' src/x/f3
        install -m 750 src/x/f6 inst; stat -c '%a %s' inst; dd if=src/x/f7 of=dd.out bs=3 2> /dev/null
        cat dd.out
        rm -r copy/x/y; ls -R copy; test -L copy/x/link && readlink copy/x/link; stat -c %Y copy/x/f4
        truncate -s 12345 big; stat -c %s big
        """,
    "archives": """
        mkdir -p d/e; seq 1 20000 > d/n; head -c 300000 /dev/zero > d/e/z; echo x > d/e/x
        tar cf t.tar --sort=name --mtime=@0 d
        tar czf t.tgz d; mkdir out; tar xzf t.tgz -C out; diff -r d out/d && echo equal; gzip -kn d/n
        gunzip -c d/n.gz | cmp - d/n && echo ok
        tar tf t.tar; cat d/n | gzip -n > s.gz; zcat s.gz | md5sum; rm t.tgz
        """,
    "rsync": """
        mkdir -p a/b; seq 1 1000 > a/n; seq 1 10 > a/b/m; rsync -a a/ c; diff -r a c && echo equal
        echo more >> a/n; rsync -a --checksum a/ c; cmp a/n c/n && echo ok
        """,
    "editors": """
        printf 'a\\nb\\nc\\n' > f; printf '2d\\n1i\\nnew\\n.\\nw\\nq\\n' | ed -s f; cat f
        vim -Nu NONE -n -es -c '%s/c/C/' -c 'wq' f; cat f
        """,
    "git": """
        export GIT_CONFIG_GLOBAL=/dev/null
        export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'
        export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
        git init -q -b main r; cd r; seq 1 500 > n; mkdir d; echo x > d/x; git add .
        git commit -qm first; git rev-parse HEAD
        echo more >> n; git diff --stat; git commit -qam second; git log --oneline | cat
        git status --short; cd ..
        git clone -q r clone; diff -r --exclude=.git r clone && echo equal
        git -C clone fsck 2>&1 | tail -1; git -C clone gc -q; git -C clone log --oneline | wc -l
        rm -rf r/.git clone/.git
        """,
    "compiler": """
        mkdir src; printf '#include "h.h"\\nint main(void){puts(TEXT);return 3;}\\n' > src/m.c
        printf '#include <stdio.h>\\n#define TEXT "built"\\nint f(void);\\n' > src/h.h
        printf 'int f(void){return 1;}\\n' > src/f.c
        printf 'CC=gcc\\nprog: m.o f.o\\n\\t$(CC) -o $@ $^\\n%%.o: %%.c h.h\\n' > src/Makefile
        printf '\\t$(CC) -O1 -c $<\\nclean:\\n\\trm -f *.o\\n' >> src/Makefile
        make -s -C src; ls src; src/prog; echo $?; cd src; ./prog; PATH=$PWD:$PATH; prog; make -s clean
        make -s -j4; ls; rm prog *.o
        """,
    "programs that lie there": """
        printf '#!/bin/sh\\necho "script $0 $1"\\n' > s; chmod 755 s; ./s arg; printf '#!./s x\\n' > t
        chmod 755 t; ./t y | sed 's,/[^ ]*/,,;s,\\./,,'
        cp /bin/echo e; ./e from a copy; (exec -a other ./e named); printf 'echo plain "$1"\\n' > p
        chmod 755 p; ./p there; chmod 644 s; ./s; echo $?
        ./missing; echo $?; find . -name e -exec {} found \\; ; xargs ./e < /dev/null; env -i ./e cleared
        nice ./e nice; rm e
        """,
    "python": f"""
        cat > p.py <<'END'
        import subprocess, sys, sqlite3, zipfile, mmap, os, shutil, tempfile, json
        print("printed"); print("error", file=sys.stderr)
        with open("out", "wb") as out: subprocess.run(["echo", "child"], stdout=out, check=True)
        with open("out", "ab") as out:
            out.write(b"parent\\n"); out.flush()
            subprocess.run(["sh", "-c", "echo again"], stdout=out, check=True)
        print(open("out").read())
        base = sqlite3.connect("base.db"); base.execute("create table t(a,b)")
        base.executemany("insert into t values(?,?)", [(i, str(i) * 10) for i in range(2000)])
        base.commit()
        print(base.execute("select count(*), sum(a) from t").fetchone()); base.close()
        with zipfile.ZipFile("z.zip", "w", zipfile.ZIP_DEFLATED) as z:
            for i in range(20): z.writestr(f"m{{i}}", b"data" * i)
        with zipfile.ZipFile("z.zip") as z: print(z.testzip(), len(z.namelist()))
        with open("mapped", "wb") as f: f.write(bytes(range(256)) * 100)
        with open("mapped", "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as m:
            print(len(m), m[1000:1010], m.find(b"\\xff\\x00"))
        named = "import os; print(os.path.basename(os.getcwd()) != '')"
        print(subprocess.run([sys.executable, "-c", named], capture_output=True, close_fds=True).stdout)
        os.makedirs("x/y"); json.dump([1, 2], open("x/y/j", "w")); shutil.copytree("x", "w")
        print(sorted(os.walk("w")))
        with tempfile.TemporaryFile(dir=".") as t: t.write(b"abc"); t.seek(1); print(t.read())
        END
        {PYTHON} p.py > log 2>&1; cat log; {PYTHON} -c 'print("x" * 100000)' | wc -c; rm base.db z.zip
        """,
    "python package": f"""
        mkdir -p pkg/sub; echo 'from .sub import value' > pkg/__init__.py
        echo 'value = 7' > pkg/sub/__init__.py
        {PYTHON} -c 'import pkg; print(pkg.value, pkg.__file__[-15:])'
        cp $({PYTHON} -c 'import _json; print(_json.__file__)') pkg/_json.so
        {PYTHON} -c 'import sys, importlib.util as u
        s = u.spec_from_file_location("_json", "pkg/_json.so"); m = u.module_from_spec(s)
        s.loader.exec_module(m); print(m.encode_basestring("x"))'
        find . -name '__pycache__' | wc -l; rm -r pkg/__pycache__ pkg/sub/__pycache__
        """,
    "following a file": """
        echo first > f; (sleep 0.5; echo second >> f; sleep 0.5; echo third >> f) &
        timeout 20 tail -f -n +1 f | head -3; wait
        """,
}

PROGRAMS = ["git", "rsync", "ed", "vim", "gcc", "make", "dash"]


@pytest.fixture(scope="module")
def preload():
    with World() as world:
        yield Preloading(world.pool(memory=True))


def tree(run, top):
    """Names, types, permissions, sizes and contents below a directory, told by programs."""
    names = "find . -printf '%P %y %m %l\\n' | sort"
    contents = "find . -type f | sort | xargs -r -d '\\n' md5sum"
    script = f"umask 022; {names}; {contents}"
    done = run("bash", "-c", f"cd {top} && {{ {script}; }}")
    assert done.returncode == 0, done.stderr
    return done.stdout


def local(*command, **more):
    more.setdefault("stdin", subprocess.DEVNULL)
    environment = {**os.environ, "LC_ALL": "C.UTF-8", **more.pop("env", {})}
    return subprocess.run(
        command, env=environment, capture_output=True, timeout=120, check=False, **more
    )


def preloaded(preload):
    """As `local`, under the library."""

    def run(*command, **more):
        environment = {"LC_ALL": "C.UTF-8"}
        return preload.run(*command, check=False, text=False, environment=environment, **more)

    return run


def both(preload, tmp_path, name, command):
    """Does the same in a local directory and in the pool, and compares everything."""
    compare([(local, str(tmp_path)), (preloaded(preload), preload.prefix)], name, command)


def compare(sides, name, command):
    """Does the same on both sides, each a way to run programs and a directory."""
    results = []
    for run, above in sides:
        top = f"{above}/{name}"
        made = run("mkdir", "-p", top)
        assert made.returncode == 0, made.stderr
        done = run("bash", "-c", f"cd {top} && {command}")
        shown = [text.replace(top.encode(), b"TOP") for text in (done.stdout, done.stderr)]
        results.append((done.returncode, *shown, tree(run, top)))
    for expected, found, what in zip(*results, ["exit code", "output", "errors", "tree"], strict=True):
        assert found == expected, what


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_does_the_same(preload, tmp_path, name):
    missing = [
        program for program in PROGRAMS if program in SCRIPTS[name] + name and not shutil.which(program)
    ]
    if missing:
        pytest.skip(f"needs {missing}")
    both(preload, tmp_path, name.replace(" ", "-"), textwrap.dedent(SCRIPTS[name]).strip())


@pytest.fixture(scope="module")
def users_pool():
    with World(user=USER) as world:
        yield world.pool(memory=True)


def as_user(pool, *front, **variables):
    """A way to run programs as the pool's user, with other words in front of theirs."""
    environment = {**pool.world.environment, "LC_ALL": "C.UTF-8", "HOME": str(pool.world.base)}

    def run(*command, env=(), **more):
        more.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.run(
            [*map(str, front), *command],
            env={**environment, **variables, **dict(env)},
            cwd="/",
            capture_output=True,
            timeout=120,
            check=False,
            **pool.world.identity,
            **more,
        )

    return run


@pytest.mark.limit(180)
@pytest.mark.parametrize("via", ["preload", "fuse"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_does_the_same_for_an_ordinary_user(users_pool, via, name):
    script = textwrap.dedent(SCRIPTS[name]).strip().replace(PYTHON, USERS_PYTHON)
    missing = [program for program in PROGRAMS if program in script + name and not shutil.which(program)]
    if missing:
        pytest.skip(f"needs {missing}")
    front = [BINARY, "run", "--pool", users_pool.name, "--via", via, "--"]
    above = users_pool.world.base / f"local-{via}"
    sides = [(as_user(users_pool), str(above)), (as_user(users_pool, *front), "/azekura/" + via)]
    compare(sides, name.replace(" ", "-"), script)


HARD = ["fork", "close", "open", "signals", "threads", "exec"]
HARDER = ["cancel", "killed", "numbers", "flags", "restart", "forks and files"]


@pytest.mark.parametrize("task", HARD + HARDER)
def test_hard_programs_do_the_same(preload, tmp_path, task):
    program = compile_c("crowd", tmp_path)
    (tmp_path / "local").mkdir()
    expected = local(program, tmp_path / "local", task)
    assert expected.returncode == 0, expected.stderr
    inside = preload.path(f"crowd-{task.replace(' ', '-')}")
    preload.run("mkdir", inside)
    found = preload.run(program, inside, task)
    assert found.stdout == expected.stdout.decode()


def test_streams_on_files_do_the_same(preload, tmp_path):
    program = compile_c("streams", tmp_path)
    for run, top in [(local, tmp_path / "local"), (preloaded(preload), preload.path("streams"))]:
        run("mkdir", top)
        done = run(program, top)
        files = run("bash", "-c", f"head -n 99 {top}/*").stdout
        result = [done.returncode, done.stdout, done.stderr, files]
        result = [str(part).replace(str(top), "TOP") for part in result]
        if run is local:
            expected = result
    assert result == expected


CXX = """
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
int main(int, char **words)
{
    std::cout << "cout" << std::endl;
    std::printf("printf\\n");
    std::cerr << "cerr\\n";
    std::ofstream(words[1]) << "a line\\n";
    std::ifstream in(words[1]);
    std::string line;
    std::getline(in, line);
    std::cout << line << "\\n";
}
"""


def test_streams_of_cxx_do_the_same(preload, tmp_path):
    if not shutil.which("g++"):
        pytest.skip("needs g++")
    (tmp_path / "c.cpp").write_text(CXX)
    subprocess.run(["g++", "-o", tmp_path / "cxx", tmp_path / "c.cpp"], check=True)
    both(preload, tmp_path, "streams-of-cxx", f"{tmp_path}/cxx f > out 2>&1; cat out f")


def test_the_report_names_what_could_not_be_served(preload, tmp_path):
    report = tmp_path / "report"
    script = (
        "import mmap, os; os.mkdir('/azekura/wide')\n"
        "os.setxattr('/azekura/wide', 'user.azekura.class', b'SX')\n"
        "f = open('/azekura/wide/shared-map', 'w+b'); f.write(b'x' * 4096); f.flush()\n"
        "for _ in range(2):\n"
        "    try: mmap.mmap(f.fileno(), 4096)\n"
        "    except OSError as error: print(error.errno)"
    )
    environment = {"AZEKURA_REPORT": str(report)}
    done = preload.run(PYTHON, "-c", script, environment=environment)
    assert done.stdout == "19\n19\n"
    assert "shared writable mapping" in report.read_text()
    assert done.stderr.count("--via fuse") == 1, "also said to whoever reads no report"


SIZE_LIMIT = """
import ctypes, errno, os, resource, signal
got = []
signal.signal(signal.SIGXFSZ, lambda *_: got.append("signal"))
f = os.open("limited", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
libc = ctypes.CDLL(None)
def limit_by_setrlimit(bytes):
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes, resource.RLIM_INFINITY))
def limit_by_prlimit(bytes):
    resource.prlimit(0, resource.RLIMIT_FSIZE, (bytes, resource.RLIM_INFINITY))
def limit_by_number(bytes):
    number = {"x86_64": 160, "aarch64": 164}[os.uname().machine]
    both = (ctypes.c_uint64 * 2)(bytes, 2**64 - 1)
    assert libc.syscall(number, resource.RLIMIT_FSIZE, ctypes.byref(both)) == 0
a = os.open("limited", os.O_WRONLY | os.O_APPEND)
def tried(call, *arguments):
    before = len(got)
    try:
        result = call(*arguments)
    except OSError as error:
        result = errno.errorcode[error.errno]
    print(call.__name__, result, len(got) - before)
for limit in (limit_by_setrlimit, limit_by_prlimit, limit_by_number):
    tried(os.pwrite, f, b"x", 20_000)
    limit(10_000)
    tried(os.pwrite, f, b"x", 20_000)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
os.ftruncate(f, 0)
limit_by_setrlimit(10_000)
tried(os.write, f, b"x" * 9_000)
tried(os.write, f, b"x" * 9_000)
tried(os.write, f, b"x")
tried(os.write, f, b"")
tried(os.pwrite, f, b"x" * 9_000, 5_000)
tried(os.pwrite, f, b"x", 10_000)
tried(os.write, a, b"x")
tried(os.writev, a, [b"x", b"y"])
tried(os.ftruncate, f, 20_000)
tried(os.truncate, "limited", 10_001)
tried(os.posix_fallocate, f, 0, 10_001)
tried(os.ftruncate, f, 100)
tried(os.write, a, b"x" * 20_000)
print(os.fstat(f).st_size)
"""


def test_the_limit_on_file_sizes_holds(preload, tmp_path):
    (tmp_path / "limit.py").write_text(SIZE_LIMIT)
    both(preload, tmp_path, "size-limit", f"{PYTHON} {tmp_path}/limit.py > out; cat out")
    # Who does not catch the signal is ended by it.
    script = "ulimit -f 8; cd /azekura; head -c 50000 /dev/zero > too-long; echo $?"
    done = preload.run("bash", "-c", script, check=False)
    assert done.stdout.split() == [str(128 + 25)]
    assert preload.run("stat", "-c", "%s", "/azekura/too-long").stdout == "8192\n"


def test_what_cannot_be_watched_is_said(preload):
    script = (
        "import ctypes, os\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "fd = libc.inotify_init1(0)\n"
        "for path in (b'/azekura', b'/azekura/nosuch', b'/tmp'):\n"
        "    got = libc.inotify_add_watch(fd, path, 2)\n"
        "    print(os.strerror(ctypes.get_errno()) if got < 0 else 'watched')"
    )
    lines = preload.run(PYTHON, "-c", script).stdout.splitlines()
    assert lines == ["Function not implemented", "No such file or directory", "watched"]


def test_a_lost_working_directory_is_never_one_of_the_host(preload, tmp_path):
    """A program that was started in a directory of the pool, and does not find it."""
    gone = {"AZEKURA_CWD": "/is/not/there"}
    for more in ({}, {"AZEKURA_POOL": str(tmp_path / "no-pool")}):
        script = "touch f; echo g > g; /bin/pwd; sh -c 'echo h > h'; (cd / && echo in /)"
        done = preload.run("sh", "-c", script, environment=gone | more, cwd=tmp_path, check=False)
        assert done.stdout == "in /\n"
        assert list(tmp_path.iterdir()) == []


def test_a_working_directory_is_handed_on_wherever_it_is_by_now(preload):
    """What is started finds itself where it was started, by whatever path that is reached later."""
    script = (
        "import os, subprocess\n"
        "os.mkdir('one'); open('one/f', 'w').write('in one'); os.chdir('one')\n"
        "child = subprocess.Popen(['sh', '-c', 'read x; cat f; ls; (cd ..; ls)'], "
        "stdin=subprocess.PIPE, text=True)\n"
        "os.rename('/azekura/moved/one', '/azekura/moved/two'); os.mkdir('/azekura/moved/one')\n"
        "child.communicate('go\\n')"
    )
    place = "import os; os.mkdir('/azekura/moved'); os.chdir('/azekura/moved')"
    done = preload.run(PYTHON, "-c", f"{place}\n{script}")
    assert done.stdout.split("\n") == ["in onef", "one", "two", ""]


def test_what_is_handed_on_of_another_pool_counts_for_nothing(preload):
    other = Preloading(preload.pool.world.pool(memory=True))
    script = "mkdir /azekura/x; cd /azekura/x; /usr/bin/env"
    told = other.run(PYTHON, "-c", f"import os; os.listdir('/azekura'); os.system('{script}')").stdout
    told = dict(line.split("=", 1) for line in told.splitlines() if "=" in line)
    for text in (told["AZEKURA_HANDED_ON"], "1-zz", "2-zz"):
        handed_on = {"AZEKURA_HANDED_ON": text}
        script = "echo here > /azekura/of-this; cat /azekura/of-this; rm /azekura/of-this"
        assert preload.run("sh", "-c", script, environment=handed_on).stdout == "here\n"
    assert other.run("ls", "/azekura").stdout == "x\n"


def test_a_small_program_takes_no_huge_pages(preload):
    """To fill one with zeros takes time, and most programs never need it."""
    enabled = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not enabled.exists() or "[madvise]" not in enabled.read_text():
        pytest.skip("huge pages do not go to those alone who ask for them")
    script = (
        "open('/azekura/small', 'w').write('x'); print(open('/azekura/small').read())\n"
        "lines = [line.split() for line in open('/proc/self/smaps')]\n"
        "print(sum(int(line[1]) for line in lines if line[0] == 'AnonHugePages:'))"
    )
    assert preload.run(PYTHON, "-c", script).stdout == "x\n0\n"


def test_libraries_that_lie_there_are_loaded_once_with_those_beside_them(preload, tmp_path):
    script = f"""
        mkdir libs; echo 'int count(void) {{ static int n; return ++n; }}' > b.c
        echo 'int count(void); int twice(void) {{ return 2 * count(); }}' > a.c
        gcc -shared -fPIC -o libs/libb.so -Wl,-soname,libb.so b.c
        gcc -shared -fPIC -o a.so a.c -Llibs -lb -Wl,-rpath,'$ORIGIN/libs'
        {PYTHON} -c 'import ctypes
        one, two = ctypes.CDLL("./a.so"), ctypes.CDLL("./a.so")
        print(one.twice(), two.twice(), one._handle == two._handle)
        try: ctypes.CDLL("./missing.so")
        except OSError as error: print(error)'
        rm a.so libs/libb.so
        """
    both(preload, tmp_path, "libraries", textwrap.dedent(script).strip())


def test_static_programs_are_handed_over(preload, tmp_path):
    """A mount serves what the library cannot, with the directory and the descriptors."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("needs /dev/fuse")
    source = tmp_path / "s.c"
    source.write_text(
        """
        #include <stdio.h>
        #include <unistd.h>
        int main(int count, char **words)
        {
            char line[100] = "";
            FILE *file = fopen(words[count - 1], "r");
            if (file == NULL || fgets(line, sizeof line, file) == NULL)
                return 1;
            printf("%s", line);
            return dprintf(7, "to seven\\n") < 0 ? 2 : 5;
        }
        """
    )
    program = tmp_path / "static"
    done = subprocess.run(["gcc", "-static", "-o", program, source], check=False)
    if done.returncode != 0:
        pytest.skip("needs a static C library")
    script = f"""
        echo content > f; echo first > seven; {program} f > out 7>> seven; echo $?; cat out seven
        cp {program} here; ./here f 7>&1; echo $?; rm here
        """
    both(preload, tmp_path, "handed-over", textwrap.dedent(script).strip())
