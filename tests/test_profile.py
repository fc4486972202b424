"""`azekura profile`: what real programs did with files, held against what they are known to do."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib
from pools import BINARY

RECORD = 1024
RECORDS = 2000


class Profiled:
    """A profiled command: its job, and what each program did with each file."""

    def __init__(self, directory, command, *options, check=True, under=True, env=None):
        job, usage, table = (
            directory.parent / f"{directory.name}.{end}" for end in ("toml", "json", "csv")
        )
        words = [BINARY, "profile", "-o", job, "--json", usage, "--csv", table]
        if under:
            words += ["--under", directory]
        self.result = subprocess.run(
            [*words, *options, "--", *command],
            cwd=directory,
            capture_output=True,
            text=True,
            check=False,
            env=env,
        )
        if check:
            assert self.result.returncode == 0, self.result.stderr
        self.usage = json.loads(usage.read_text())
        self.job = tomllib.loads(job.read_text()) if job.exists() else None
        self.rows = list(csv.DictReader(table.open()))

    @property
    def phase(self):
        (phase,) = self.job["phase"]
        return phase

    def files(self, program=None):
        return [
            file
            for process in self.usage["processes"]
            if program in (None, process["name"])
            for file in process["files"]
        ]

    def moved(self, path, way, program=None):
        """Bytes that went into or came out of a file."""
        return sum(one[way]["bytes"] for one in self.files(program) if one["path"] == str(path))


@pytest.fixture
def place(tmp_path):
    directory = tmp_path.resolve() / "place"
    directory.mkdir()
    return directory


def lines(path, count):
    path.write_text("".join(f"{number * 7919 % count:07d} some text\n" for number in range(count)))
    return path.stat().st_size


def build(place, name, source, *options):
    (place.parent / f"{name}.c").write_text(source)
    program = place.parent / name
    subprocess.run(["cc", "-O2", "-o", program, f"{program}.c", *options], check=True)
    return program


MERGE = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int words, char **word)
{
    static char record[RECORD];
    FILE *in[64], *out = fopen(word[2], "w");
    int files = words - 3, turns = !strcmp(word[1], "turns");
    for (int n = 0; n < files; n++)
        in[n] = fopen(word[n + 3], "r");
    for (int more = 1, first = 0; more && first < files; first += turns ? 0 : 1)
        for (more = 0; ; ) {
            int some = 0;
            for (int n = first; n < (turns ? files : first + 1); n++)
                if (fread(record, sizeof record, 1, in[n]) == 1)
                    some += fwrite(record, sizeof record, 1, out) == 1;
            if (!some) { more = !turns; break; }
        }
    for (int n = 0; n < files; n++)
        fclose(in[n]);
    return fclose(out);
}
""".replace("RECORD", str(RECORD))


@pytest.mark.parametrize(("how", "order"), [("turns", "round-robin"), ("in order", "sequential")])
def test_a_merge_is_known_with_its_order(place, how, order):
    program = build(place, "merge", MERGE)
    inputs = [place / f"in{number}" for number in range(8)]
    for path in inputs:
        path.write_bytes(bytes(RECORD * RECORDS))
    out = place / "out"
    done = Profiled(place, [program, how, out, *inputs])
    total = len(inputs) * RECORD * RECORDS
    assert out.stat().st_size == total
    phase = done.phase
    assert (phase["pattern"], phase.get("order", "sequential")) == ("merge", order)
    assert (phase["files_in"], phase["files_out"]) == (8, 1)
    assert (phase["bytes_in"], phase["bytes_out"]) == (total, total)
    assert (phase["record_bytes"], phase["buffer_bytes"]) == (RECORD, 4096)
    (written,) = [one for one in done.files() if one["path"] == str(out)]
    assert written["creates"] == 1 and written["end"] == total
    assert written["written"]["records"] == len(inputs) * RECORDS
    assert written["written"]["sequential"] == written["written"]["requests"]


def test_split_writes_many_files(place):
    size = lines(place / "in", 40_000)
    done = Profiled(place, ["split", "-n", "l/10", "in", "part."])
    phase = done.phase
    assert (phase["pattern"], phase["files_in"], phase["files_out"]) == ("split", 1, 10)
    assert phase["bytes_out"] == size == phase["bytes_in"]
    turns = Profiled(place, ["split", "-n", "r/10", "in", "turn."])
    assert turns.phase["pattern"] == "split" and turns.phase["bytes_out"] == size
    assert turns.phase["order"] == "round-robin"


def test_sort_reads_and_writes_once(place):
    size = lines(place / "in", 50_000)
    done = Profiled(place, ["sort", "in", "-o", "out"])
    assert done.phase["pattern"] == "simple"
    assert (done.phase["bytes_in"], done.phase["bytes_out"]) == (size, size)


def test_tar_is_a_merge_of_its_files(place):
    total = 0
    (place / "tree").mkdir()
    for number in range(20):
        total += lines(place / "tree" / f"f{number}", 2000 + number)
    done = Profiled(place, ["tar", "cf", "all.tar", "tree"])
    phase = done.phase
    assert (phase["pattern"], phase["files_in"], phase["files_out"]) == ("merge", 20, 1)
    assert phase["bytes_in"] == total
    assert phase["bytes_out"] == (place / "all.tar").stat().st_size
    assert phase["record_bytes"] <= phase["buffer_bytes"]


def test_programs_of_a_shell_each_count_their_own(place):
    size = lines(place / "in", 20_000)
    script = "awk '{print $1}' in > a; cat in in > b; { cat in; echo end; head -c 5000 in; } > c; rm a"
    done = Profiled(place, ["sh", "-c", script])
    assert done.moved(place / "a", "written", "awk") == 20_000 * 8
    assert done.moved(place / "b", "written") == 2 * size
    assert done.moved(place / "c", "written") == (place / "c").stat().st_size
    assert sum(one["names"]["removes"] for one in done.usage["processes"]) == 1
    assert sum(one["names"]["creates"] for one in done.usage["processes"]) == 3
    # A program that a shell became is one with it; those that it forked are others.
    assert {"awk", "cat", "head", "rm"} <= {one["name"] for one in done.usage["processes"]}


COPY = """
import mmap, os, sys
from concurrent.futures import ProcessPoolExecutor
def part(number):
    with open("in", "rb", buffering=0) as source, open(f"out{number}", "wb") as target:
        source.seek(number * 250_000)
        for _ in range(10):
            target.write(source.read(25_000))
    return number
if __name__ == "__main__":
    with open("in", "rb") as source, mmap.mmap(source.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert mapped[0] == 0
    with ProcessPoolExecutor(4) as pool:
        assert list(pool.map(part, range(4))) == [0, 1, 2, 3]
    with open("in", "rb") as source, open("sent", "wb") as target:
        os.sendfile(target.fileno(), source.fileno(), 0, 1_000_000)
    child = os.fork()
    if child == 0:
        with open("child", "wb") as target:
            target.write(bytes(7000))
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_python_with_processes_mappings_and_copies_in_the_kernel(place):
    (place / "in").write_bytes(bytes(1_000_000))
    done = Profiled(place, [sys.executable, "-c", COPY])
    for number in range(4):
        assert done.moved(place / f"out{number}", "written") == 250_000
    assert done.moved(place / "sent", "written") == 1_000_000
    assert done.moved(place / "child", "written") == 7000
    assert done.moved(place / "in", "read") == 2_000_000
    assert [one["mapped_bytes"] for one in done.files() if one["mapped_bytes"]] == [1_000_000]


RANDOM = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static int fd;
static void *work(void *seed)
{
    unsigned state = (unsigned)(size_t)seed;
    char page[512];
    for (int n = 0; n < 1000; n++)
        if (pread(fd, page, sizeof page, rand_r(&state) % 1900 * 512) != sizeof page)
            abort();
    return NULL;
}
int main(int words, char **word)
{
    pthread_t threads[4];
    fd = dup(open("in", O_RDONLY));
    for (size_t n = 0; n < 4; n++)
        pthread_create(&threads[n], NULL, work, (void *)(n + 1));
    for (int n = 0; n < 4; n++)
        pthread_join(threads[n], NULL);
    FILE *out = fopen("out", "w");
    for (int n = 0; n < 3000; n++)
        fprintf(out, "%05d\\n", n);
    fseek(out, 0, SEEK_SET);
    putc('x', out);
    fflush(out);
    if (words > 1)
        raise(atoi(word[1]));
    _exit(0);
}
""".replace("#include <stdio.h>", "#include <signal.h>\n#include <stdio.h>")


@pytest.mark.parametrize("end", [[], [str(int(signal.SIGKILL))]])
def test_threads_at_random_places_and_an_end_without_goodbye(place, end):
    program = build(place, "random", RANDOM, "-pthread")
    (place / "in").write_bytes(bytes(1_000_000))
    done = Profiled(place, [program, *end], check=not end)
    assert done.result.returncode == (128 + signal.SIGKILL if end else 0)
    (source,) = [one for one in done.files() if one["path"].endswith("/in")]
    assert source["read"]["requests"] == 4000 and source["read"]["bytes"] == 4000 * 512
    assert source["read"]["sizes"][0] == [512, 4000]
    assert source["read"]["sequential"] < 400
    assert done.phase["access"] == "random"
    (target,) = [one for one in done.files() if one["path"].endswith("/out")]
    assert target["written"]["bytes"] == 18_001 and target["end"] == 18_000
    assert target["written"]["record_sizes"][0][0] == 6
    (process,) = done.usage["processes"]
    assert process["end"] == ("unknown" if end else "exit")


CANCELLED = """
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static int ends[2];
static void leave(void *text) { puts(text); }
static void *wait(void *nothing)
{
    char byte;
    pthread_cleanup_push(leave, "left");
    if (read(ends[0], &byte, 1) == 1)
        puts("not reached");
    pthread_cleanup_pop(0);
    return nothing;
}
int main(void)
{
    pthread_t thread;
    void *result;
    int out = open("out", O_WRONLY | O_CREAT, 0600);
    if (pipe(ends) != 0 || pthread_create(&thread, NULL, wait, NULL) != 0)
        return 1;
    usleep(100000);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    return !(result == PTHREAD_CANCELED && write(out, "12345", 5) == 5);
}
"""


def test_a_thread_that_is_cancelled_is_unwound_through_the_recorder(place):
    program = build(place, "cancelled", CANCELLED, "-pthread")
    done = Profiled(place, [program])
    assert done.result.stdout == "left\n"
    assert done.moved(place / "out", "written") == 5


VFORK = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void)
{
    int out = open("out", O_WRONLY | O_CREAT, 0600), other = open("in", O_RDONLY);
    for (int n = 0; n < 3; n++) {
        if (write(out, "12345", 5) != 5)
            return 1;
        pid_t child = vfork();
        if (child == 0) {
            /* Closed in the child alone, although what is known of it is the parent's. */
            close(out);
            dup2(other, 1);
            execlp("true", "true", NULL);
            _exit(7);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status != 0)
            return 2;
    }
    return write(out, "67890", 5) != 5;
}
"""


def test_what_the_child_of_a_vfork_does_is_not_its_parents(place):
    program = build(place, "vforks", VFORK)
    lines(place / "in", 10)
    done = Profiled(place, [program])
    (out,) = [one for one in done.files("vforks") if one["path"].endswith("/out")]
    assert (out["written"]["bytes"], out["written"]["requests"]) == (20, 4)
    assert out["written"]["sequential"] == 4
    assert sum(one["name"] == "true" for one in done.usage["processes"]) == 3


def test_a_path_through_a_symlink_is_that_of_the_file(place):
    (place / "real").mkdir()
    (place / "link").symlink_to("real")
    (place / "real" / "alias").symlink_to("two")
    for name in ("one", "two", "three"):
        lines(place / "real" / name, 10)
    paths = [place / "real" / "one", place / "real" / "alias", place / "link" / "three"]
    done = Profiled(place, ["cat", *paths, place / "real" / ".." / "real" / "three"])
    found = sorted(one["path"] for one in done.files("cat") if one["read"]["bytes"])
    assert found == [str(place / "real" / name) for name in ("one", "three", "two")]


def test_the_recorder_needs_the_c_library_alone(place):
    # Each library that it needed would be loaded into every program of a build.
    recorder = BINARY.with_name("libazekura_recorder.so")
    done = subprocess.run(
        ["ldd", recorder], check=False, capture_output=True, text=True, env={"PATH": os.environ["PATH"]}
    )
    if done.returncode != 0:
        pytest.skip("there is no ldd")
    names = {line.split()[0].rsplit("/", 1)[-1] for line in done.stdout.splitlines()}
    assert all(name.startswith(("linux-vdso", "libc.so", "ld-linux")) for name in names), names


def test_a_static_program_is_counted_and_not_guessed(place):
    program = build(place, "still", "int main(void) { return 3; }\n", "-static")
    done = (
        Profiled(place, ["sh", "-c", f"cat in > out; {program}; exit 0"])
        if lines(place / "in", 10)
        else None
    )
    assert done.usage["unseen_programs"] == 1
    assert "1 programs could not be recorded" in done.result.stderr
    alone = Profiled(place, [program], check=False)
    assert alone.result.returncode == 3
    assert "does not load the preload library" in alone.result.stderr


def test_an_emptied_environment_loses_nothing(place):
    size = lines(place / "in", 1000)
    done = Profiled(place, ["env", "-i", shutil.which("cp"), "in", "out"])
    assert done.moved(place / "out", "written") == size
    other = Profiled(place, ["env", "LD_PRELOAD=", "cp", "in", "two"], check=False)
    assert other.usage["unseen_environments"] == 1


def test_a_program_gets_one_library_that_records(place):
    def preloaded(value):
        environment = {**os.environ, "LD_PRELOAD": value}
        size = lines(place / "in", 1000)
        done = Profiled(place, ["sh", "-c", "cat in > out; env"], env=environment)
        assert done.moved(place / "out", "written") == size
        (line,) = re.findall(r"(?m)^LD_PRELOAD=(.*)$", done.result.stdout)
        return line

    recorder, full = (BINARY.with_name(f"libazekura_{name}.so") for name in ("recorder", "preload"))
    assert preloaded("") == str(recorder)
    # As within `azekura run`.
    assert preloaded(str(full)) == str(full)
    assert preloaded(f"{recorder}") == str(recorder)


def test_nothing_stays_of_one_that_was_killed(place):
    scratch = place.parent / "scratch"
    scratch.mkdir()
    lines(place / "in", 1000)
    # What runs on is no worse for it, nor is what it starts then.
    script = "cat in > out; echo ready; read line; cat in > after; sleep 0.1; echo over"
    with subprocess.Popen(
        [BINARY, "profile", "-o", "job.toml", "--", "sh", "-c", script],
        cwd=place,
        env={**os.environ, "TMPDIR": str(scratch)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as killed:
        assert killed.stdout.readline() == "ready\n"
        own = Path(f"/proc/{killed.pid}/fd")
        assert [link for link in own.iterdir() if "azekura-profile" in os.readlink(link)]
        killed.kill()
        killed.wait()
        assert killed.returncode == -signal.SIGKILL
        killed.stdin.write("go on\n")
        killed.stdin.flush()
        assert killed.stdout.readline() == "over\n"
    assert (place / "after").read_bytes() == (place / "in").read_bytes()
    done = Profiled(place, ["sh", "-c", "cat in > out; kill -9 $$"], check=False)
    assert done.result.returncode == 128 + signal.SIGKILL
    assert done.moved(place / "out", "written") == (place / "in").stat().st_size
    assert list(scratch.iterdir()) == []
    assert not list(Path("/dev/shm").glob("azekura-profile*"))


def test_a_build_is_seen_as_its_compilers_see_it(place):
    for number in range(6):
        (place / f"m{number}.c").write_text(
            f'#include "all.h"\nint f{number}(void) {{ return {number}; }}\n'
        )
    (place / "all.h").write_text("".join(f"int f{number}(void);\n" for number in range(6)))
    (place / "main.c").write_text('#include "all.h"\nint main(void) { return f1() - 1; }\n')
    (place / "Makefile").write_text(
        "prog: $(patsubst %.c,%.o,$(wildcard *.c))\n\t$(CC) -o $@ $^\n"
        "%.o: %.c all.h\n\t$(CC) -c -o $@ $<\n"
    )
    done = Profiled(place, ["make", "-j2"])
    sources = [one for one in done.files("cc1") if one["path"].endswith(".c")]
    assert len(sources) == 7
    for one in sources:
        assert one["read"]["bytes"] == one["size_before"], one["path"]
    for number in range(6):
        path = place / f"m{number}.o"
        assert done.moved(path, "written", "as") >= path.stat().st_size, path
        assert (
            max(one["end"] for one in done.files("as") if one["path"] == str(path))
            == path.stat().st_size
        )
    end = max(one["end"] for one in done.files("ld") if one["path"].endswith("/prog"))
    assert end == (place / "prog").stat().st_size
    assert done.usage["lost"] == 0 and done.usage["unseen_programs"] == 0


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_requests_are_those_that_the_kernel_saw(place):
    lines(place / "in", 60_000)
    command = ["awk", '{print $1 > "out" NR % 3}', "in"]
    trace = place.parent / "trace"
    options = ["-f", "-y", "-e", "trace=read,write,pread64", "-e", "signal=none", "-o", trace]
    if subprocess.run(["strace", *options, *command], cwd=place, check=False).returncode != 0:
        pytest.skip("strace may not trace here")
    done = Profiled(place, command)
    for path in [place / "in", *(place / f"out{number}" for number in range(3))]:
        calls = [line for line in trace.read_text().splitlines() if f"<{path}>" in line]
        results = [int(line.rsplit("=", 1)[1]) for line in calls]
        (file,) = [one for one in done.files("awk") if one["path"] == str(path)]
        way = "read" if path.name == "in" else "written"
        assert file[way]["bytes"] == sum(results)
        assert file[way]["requests"] == sum(result > 0 for result in results)


def test_without_under_the_rest_of_the_machine_counts_but_not_what_the_kernel_makes_up(place):
    lines(place / "in", 1000)
    done = Profiled(place, ["cat", "in", "/etc/passwd", "/proc/self/status"], under=False)
    paths = {one["path"] for one in done.files()}
    assert {str(place / "in"), "/etc/passwd"} <= paths
    assert not any(path.startswith(("/proc", "/sys")) for path in paths)


def test_the_exit_code_is_that_of_the_command_also_where_there_is_no_job(place):
    killed = ["timeout", "--signal", "KILL", "0.1", "sleep", "9"]
    for command, code in ((["expr"], 2), (killed, 137), (["true"], 1)):
        done = Profiled(place, command, check=False)
        assert done.result.returncode == code, done.result.stderr
        assert "there is no job in what" in done.result.stderr
        assert done.job is None


@pytest.mark.parametrize("option", ["-o", "--csv", "--json"])
def test_what_cannot_be_written_is_refused_before_the_command_runs(place, option):
    words = [BINARY, "profile", option, place / "none" / "file", "--", "touch", place / "ran"]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "name another file" in done.stderr, done.stderr
    assert not (place / "ran").exists()


def test_a_job_that_cannot_be_written_in_the_end_is_printed(place):
    (place / "from").write_bytes(bytes(1 << 20))
    (place / "to").mkdir()
    command = ["sh", "-c", "cp from copy && rm -r to"]
    words = [BINARY, "profile", "--under", place, "-o", place / "to" / "job", "--", *command]
    done = subprocess.run(words, check=False, cwd=place, capture_output=True, text=True)
    assert done.returncode == 1
    assert "standard output" in done.stderr and "name another file" in done.stderr, done.stderr
    assert tomllib.loads(done.stdout)["phase"][0]["bytes_in"] == 1 << 20


def test_refusals_say_what_to_do(place):
    def refused(*words, **more):
        command = [BINARY, "profile", *words]
        result = subprocess.run(
            command, check=False, cwd=place, stderr=subprocess.PIPE, text=True, **more
        )
        assert result.returncode != 0
        return result.stderr

    assert "read and wrote no regular file" in refused("--", "true", stdout=subprocess.PIPE)
    assert "make it first" in refused("--under", "nowhere", "--", "true")
    assert "cannot run 'no-such-program'" in refused("--", "no-such-program")
    broken = {"AZEKURA_PYTHON": "/bin/false", "PATH": "/bin"}
    assert "cannot read the Darshan log" in refused("--darshan", "log", env=broken)
    missing = {"AZEKURA_PYTHON": "/no/python", "PATH": "/bin"}
    assert "install Python 3" in refused("--darshan", "log", env=missing)


def darshan():
    """A Python that has the package 'darshan', and the directory of that."""
    python = os.environ.get("AZEKURA_PYTHON", sys.executable)
    command = [python, "-c", "import darshan; print(darshan.__path__[0])"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"{python} has no package 'darshan': let AZEKURA_PYTHON name one that has")
    return python, Path(done.stdout.strip())


def test_a_darshan_log_becomes_a_job(place):
    python, package = darshan()
    log = package / "tests" / "input" / "sample.darshan"
    job = place / "job.toml"
    command = [BINARY, "profile", "--darshan", log, "-o", job]
    subprocess.run(command, check=True, env={"AZEKURA_PYTHON": python, "PATH": "/bin:/usr/bin"})
    read = tomllib.loads(job.read_text())
    assert read["processes"] == 2048
    assert read["phase"][0]["bytes_out"] == 2_199_023_259_968
    assert read["phase"][0]["buffer_bytes"] == 134_217_728
