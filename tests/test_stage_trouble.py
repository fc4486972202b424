"""Staging jobs that somebody uses wrongly, that come together, or that strangers call."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from pools import BINARY, World, wait_until
from staging import LabSite, Site, gone_within, listening_port

# Says what is in the file, and which file it is that was read.
READ = "cat $1 && stat -c %i $1"
# Greets an agent as programs do: a number of a variant, and the version.
GREET = """
import os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.settimeout(20)
try:
    s.connect("\\0azekura-stage-" + sys.argv[1])
    s.send(bytes(map(int, sys.argv[2].split(","))))
    print(os.getuid(), len(s.recv(65536)))
except ConnectionError as error:
    print(os.getuid(), "refused")
"""
# The greeting of programs; a path's request; what nobody means.
GREETING, READING, NONSENSE = "0,3", "1,2,47,120,1", "250,1,2,3"


@pytest.fixture
def site(world):
    return Site(world)


def mapped(site, name="data", text="hello\n"):
    path, option = site.map(name, "ro")
    (path / "file").write_text(text)
    return path, option


def running(site, option, hold_s=60):
    """A job that goes on until it is killed, and its digits."""
    file = site.world.base / f"job-{site.count}"
    script = f'printf %s "$AZEKURA_STAGE" >{file}.part; mv {file}.part {file}; sleep {hold_s}'
    job = site.start(*option, "--", "sh", "-c", script)
    wait_until(lambda: file.exists() or job.child.poll() is not None, "the job runs")
    assert job.child.poll() is None, job.text
    return job, file.read_text()


def end(site, job):
    agents = site.agents()
    job.child.kill()
    gone_within(agents, 5)
    assert site.left() == []


def test_jobs_on_one_machine_do_not_meet(site):
    maps = [mapped(site, f"data{number}", f"of job {number}\n") for number in range(3)]
    (site.home / "data0" / "more").write_text("more\n")
    # All of them at once, each with its own map; the others' is the host's own to it.
    jobs = []
    for path, option in maps:
        script = f"for i in 1 2 3 4 5; do cat {path}/file; sleep 0.1; done; stat -c %i {path}/file"
        jobs.append(site.start(*option, "--", "sh", "-c", script))
    inodes = set()
    for number, job in enumerate(jobs):
        assert job.wait() == 0, job.text
        assert job.text.count(f"of job {number}\n") == 5
        inodes.add(next(line for line in job.text.splitlines() if line.isdigit()))
    assert len(inodes) == 3
    assert not inodes & {str((path / "file").stat().st_ino) for path, _ in maps}
    assert site.left() == []


def test_a_job_within_a_job_is_its_own(site):
    path, option = mapped(site)
    more = ("--hosts", "localhost", "--cache", site.cache)
    inner = [BINARY, "stage", "run", *more, *option, "--", "sh", "-c", READ, "sh", path / "file"]
    words = " ".join(f"'{word}'" for word in inner)
    outer = f"{words} && {READ}"
    done = site.run(*option, "--", "sh", "-c", outer, "sh", path / "file")
    first, inner_inode, second, outer_inode = done.stdout.split()
    assert first == second == "hello"
    # The inner job's copy is gone when the outer's is made, which may get its number.
    assert str((path / "file").stat().st_ino) not in (inner_inode, outer_inode)
    assert done.stderr.count("staged to 1 node: 1 file, 6 B from home") == 2
    assert site.left() == []


def test_wrong_names_cost_nothing_before_they_are_opened(site):
    path, option = mapped(site)
    (path / "loop").symlink_to("loop")
    names = [path / "none", path / "file" / "x", path / "loop", "/etc/passwd", "none", "x" * 5000]
    words = ["stage", "in", *map(str, names), f"{path}/../data/none"]
    script = '"$0" "$@" && sleep 0.5 && ls "$HOME/../home-files/data"'
    done = site.run(*option, "--", "sh", "-c", script, BINARY, *words)
    assert done.stdout.split() == ["file", "loop"]
    assert "staged to 1 node: 0 files" in done.stderr


def test_a_map_may_be_a_symlink(site):
    path, _ = mapped(site)
    link = site.home / "link"
    link.symlink_to("data")
    script = 'cd "$1" && cat file && pwd -P && stat -c %i file ../link/file "$1/file"'
    done = site.run("--map", f"{link}=ro", "--", "sh", "-c", script, "sh", link)
    text, where, *inodes = done.stdout.split()
    assert (text, where) == ("hello", str(link))
    assert len(set(inodes)) == 1
    assert int(inodes[0]) != (path / "file").stat().st_ino


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--map", "/=ro"], "/ cannot be mapped"),
        (["--map", "{home}/data/file=ro"], "not a directory"),
        (["--map", "{home}/data=ro", "--hosts", "localhost,localhost"], "named twice"),
        (["--map", "{home}/data=ro", "--hosts", "n[1-3],n2"], "named twice"),
        (["--map", "{home}/data=ro", "--cache", "{home}/data"], "lies in"),
        (["--map", "{home}/data=ro", "--cache", "{home}/data/not/there"], "lies in"),
        (["--map", "{home}/data=ro", "--cache", "{home}/link/inner"], "lies in"),
        (["--map", "{home}/link=ro", "--cache", "{home}/data/inner"], "lies in"),
        (["--map", "{home}/data=ro", "--cache", "{home}/other/../data"], "lies in"),
    ],
    ids=[
        *("all", "file", "twice", "twice among many", "in place", "below", "by a link"),
        *("map by a link", "by dots"),
    ],
)
def test_what_cannot_go_well_is_refused(site, options, says):
    mapped(site)
    (site.home / "data" / "inner").mkdir()
    (site.home / "other").mkdir()
    (site.home / "link").symlink_to("data")
    given = [option.replace("{home}", str(site.home)) for option in options]
    words = ["stage", "run"]
    for name, value in (("--hosts", "localhost"), ("--cache", site.cache)):
        words += [] if name in given else [name, value]
    done = site.world.run(*words, *given, "--", "touch", site.home / "was-run", check=False)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert not (site.home / "was-run").exists()


def test_a_machine_is_one_node_whatever_it_is_called(site):
    path, option = mapped(site)
    done = site.run(
        *option,
        *("--launch", "env HOST={host} {command}"),
        *("--", "cat", path / "file"),
        hosts=["127.0.0.1", "127.0.0.2"],
        check=False,
    )
    assert done.returncode == 1
    assert "name each machine once" in done.stderr
    assert site.left() == []
    assert site.agents() == []


def test_a_map_may_lie_in_the_cache_directory(site):
    path, option = mapped(site)
    words = ("--hosts", "localhost", "--cache", site.home, *option, "--", "cat", path / "file")
    assert site.world.run("stage", "run", *words).stdout == "hello\n"
    assert os.listdir(site.home) == ["data"]


@pytest.mark.parametrize("kind", ["missing", "a file", "below a file"])
def test_a_cache_is_made_or_the_host_is_named(site, kind):
    path, option = mapped(site)
    cache = {
        "missing": site.world.base / "new" / "cache",
        "a file": path / "file",
        "below a file": path / "file" / "cache",
    }[kind]
    if kind != "missing":
        cache = site.world.base / "flat" / cache.name
        cache.parent.mkdir()
        (cache.parent / cache.name).write_text("")
        cache = cache if kind == "a file" else cache / "cache"
    words = ("--hosts", "localhost", "--cache", cache, *option, "--", "cat", path / "file")
    done = site.world.run("stage", "run", *words, check=False)
    if kind == "missing":
        assert done.stdout == "hello\n", done.stderr
        assert list(cache.iterdir()) == []
        # Nobody else reads what comes.
        assert cache.stat().st_mode & 0o77 == 0
    else:
        assert done.returncode == 1
        for part in ("host 'localhost'", str(cache), "Not a directory", "name another directory"):
            assert part in done.stderr


@pytest.mark.root
def test_a_cache_that_may_not_be_written_is_named():
    with World(user=1000) as world:
        site = Site(world)
        for path in (site.home, site.cache):
            os.chown(path, 1000, 1000)
        path, option = mapped(site)
        site.cache.chmod(0o555)
        done = site.run(*option, "--", "cat", path / "file", check=False)
        assert done.returncode == 1
        for part in ("host 'localhost'", str(site.cache), "Permission denied", "name another"):
            assert part in done.stderr
        site.cache.chmod(0o755)
        assert site.run(*option, "--", "cat", path / "file").stdout == "hello\n"


@pytest.mark.root
def test_programs_of_other_users_are_not_answered(site):
    _, option = mapped(site)
    job, digits = running(site, option)
    python = [sys.executable, "-c", GREET, digits]

    def say(packet, *before):
        command = [*before, *python, packet]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout.split()

    uid, answered = say(GREETING)
    assert (uid, int(answered) > 20) == ("0", True)
    # Nor are words that are none, which end no more than their own connection.
    assert say(NONSENSE) in (["0", "0"], ["0", "refused"])
    stranger = ["setpriv", "--reuid", "65534", "--clear-groups"]
    python[0] = "/usr/bin/python3"
    for packet in (GREETING, READING, NONSENSE):
        assert say(packet, *stranger) in (["65534", "0"], ["65534", "refused"])
    assert int(say(GREETING)[1]) == int(answered)
    end(site, job)


@pytest.mark.root
def test_callers_who_say_nothing_keep_no_node_out(world):
    site = LabSite(world, ["n1"])
    path, option = mapped(site)
    mark = site.world.base / "mark"
    script = f"touch {mark}; while [ -e {mark} ]; do sleep 0.05; done; "
    script += " ".join(map(str, site.on("n1", "cat", path / "file")))
    job = site.start(*option, "--", "sh", "-c", script)
    wait_until(lambda: mark.exists() or job.child.poll() is not None, "the job runs")
    # More than are let wait at the front's door, from the node's side of the network.
    port = listening_port(site.front())
    hold = (
        "import socket, sys, time\n"
        "all = [socket.create_connection(('server', int(sys.argv[1]))) for _ in range(200)]\n"
        "[s.send(b'GET /') for s in all[::2]]\n"
        "print('ready', flush=True); time.sleep(60)\n"
    )
    crowd = site.lab.start_python("n1", hold, str(port))
    started = time.monotonic()
    mark.unlink()
    assert job.wait() == 0, job.text
    assert "hello" in job.text
    assert time.monotonic() - started < 30
    crowd.kill()


def test_garbage_at_the_door_of_an_agent_ends_nothing(site):
    _, option = mapped(site)
    job, _ = running(site, option)
    (agent,) = site.agents()
    port = listening_port(agent)
    for words in (b"\0" * 5000, b"\xff" * 70_000, b"AZKR" * 3, os.urandom(40_000)):
        with socket.create_connection(("127.0.0.1", port), 5) as stranger:
            stranger.settimeout(20)
            try:
                stranger.sendall(words)
                # To shut what the agent has reset already is an error of its own kind (ENOTCONN).
                with contextlib.suppress(OSError):
                    stranger.shutdown(socket.SHUT_WR)
                while stranger.recv(1000):
                    pass
            except ConnectionError:
                pass
    assert site.agents() == [agent]
    end(site, job)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_signals_to_all_of_a_job_end_it_in_order(site, number):
    results = site.home / "results"
    results.mkdir()
    mark = site.world.base / "mark"
    script = f"ulimit -c 0; echo text >{results}/file; touch {mark}; while :; do sleep 0.05; done"
    job = site.start("--map", f"{results}=out", "--", "sh", "-c", script, start_new_session=True)
    wait_until(lambda: mark.exists() or job.child.poll() is not None, "the job runs")
    # As a terminal does it, to the front and the command.
    os.killpg(job.child.pid, number)
    assert job.wait() == 128 + number, job.text
    assert (results / "file").read_text() == "text\n"
    assert site.left() == []
    assert site.agents() == []


@pytest.mark.parametrize("via", ["preload", "notify"])
def test_a_crowd_of_programs_finds_all(site, via):
    path, option = mapped(site)
    for number in range(150):
        (path / str(number)).write_text(f"number {number}\n")
    (path / "large").write_bytes(os.urandom(3 << 20))
    script = f"cd {path}; for i in $(seq 0 149); do cat $i & done; wait; for i in $(seq 50); do "
    script += "cksum large & done; wait"
    # Into a pipe: two cats that copy into one file take each other's place.
    done = site.run(*option, "--via", via, "--", "sh", "-c", script)
    lines = done.stdout.splitlines()
    numbers = [int(line.split()[1]) for line in lines if line.startswith("number")]
    assert sorted(numbers) == list(range(150))
    expected = subprocess.run(["cksum", "large"], cwd=path, capture_output=True, text=True, check=True)
    assert lines.count(expected.stdout.strip()) == 50
    # All that ask for it at the same time wait for one transfer.
    assert "151 files, 3 MiB from home, 151 files, 3 MiB on the nodes" in done.stderr


def test_programs_that_outlive_the_command_are_not_waited_for(site):
    path, option = mapped(site)
    late, results = site.world.base / "late", site.home / "results"
    results.mkdir()
    stays = f"exec 3<file; sleep 1; cat <&3 >{late}; cat other >>{late} 2>&1; "
    stays += f"echo x >{results}/x || echo refused >>{late}"
    (path / "other").write_text("of home\n")
    daemon = f"cd {path}; (setsid sh -c '{stays}' </dev/null >/dev/null 2>&1 &); sleep 0.3; cat file"
    begun = time.monotonic()
    out = ("--map", f"{results}=out")
    assert site.run(*option, *out, "--", "sh", "-c", daemon).stdout == "hello\n"
    assert time.monotonic() - begun < 5
    assert site.left() == []
    wait_until(lambda: late.exists() and late.read_text().endswith("refused\n"), "it has ended")
    # What is open stays open; nothing more comes, and nothing is written beside the job.
    assert late.read_text().startswith("hello\n")
    assert "of home" not in late.read_text()
    assert os.listdir(results) == []


@pytest.mark.parametrize("via", ["auto", "notify"])
def test_names_of_maps_are_any_bytes(site, via):
    name = os.fsdecode(b"bad\xff\nname =ro:$x")
    path, option = mapped(site, name)
    job = site.start(*option, "--via", via, "--", "cat", path / "file")
    assert job.wait() == 0, job.text
    assert job.text.startswith("hello\n")
    # Whatever the names, what is said of them is JSON.
    assert job.events()[-1]["exit_code"] == 0


@pytest.mark.parametrize("form", ["relative", "with a slash", "here", "by dots"])
def test_maps_are_named_from_where_one_stands(site, form):
    path, _ = mapped(site)
    given = {"relative": "data", "with a slash": "./data//", "here": ".", "by dots": "../data"}[form]
    stand = site.home if form in ("relative", "with a slash") else path
    file = "data/file" if stand == site.home else "file"
    done = site.run("--map", f"{given}=ro", "--", "sh", "-c", READ, "sh", file, cwd=stand)
    text, inode = done.stdout.split()
    assert text == "hello"
    assert int(inode) != (path / "file").stat().st_ino


@pytest.mark.root
@pytest.mark.parametrize("via", ["preload", "notify"])
def test_what_may_not_be_read_at_home_may_not_on_a_node(via):
    with World(user=1000) as world:
        site = Site(world)
        for path in (site.home, site.cache):
            os.chown(path, 1000, 1000)
        path, option = mapped(site)
        (path / "own").write_text("own")
        os.chown(path / "own", 1000, 1000)
        (path / "others").write_text("others")
        (path / "closed").mkdir()
        for name in ("own", "others", "closed"):
            (path / name).chmod(0)
        script = "cd $1; for i in file own others closed closed/x; do cat $i || echo $?; done; ls closed"
        done = site.run(*option, "--via", via, "--", "sh", "-c", script, "sh", path, check=False)
        assert done.stdout.split() == ["hello", "1", "1", "1", "1"], done.stderr
        assert done.stderr.count(": Permission denied\n") == 5
        assert site.left() == []
