"""`azekura run` where a mount in a namespace of the command's own serves it: as an ordinary user,
and with programs that no preloaded library reaches."""

import contextlib
import json
import os
import pty
import select
import shutil
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest
from pools import BINARY, World, alive, kill_hard, need_namespaces, wait_until

USER = 1000 if os.geteuid() == 0 else None
PREFIX = "/azekura"

C_PROGRAM = r"""
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **words)
{
    char text[64];
    int file, bytes;

    if (count < 2) {
        printf("%s\n", words[0]);
        return 0;
    }
    file = open(words[1], O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (file < 0 || write(file, "from C\n", 7) != 7 || lseek(file, 0, SEEK_SET) != 0)
        return 1;
    bytes = (int)read(file, text, sizeof text);
    return bytes == 7 && memcmp(text, "from C\n", 7) == 0 ? 7 : 2;
}
"""
GO_PROGRAM = """
package main

import "os"

func main() {
	if err := os.WriteFile(os.Args[1], []byte("from Go\\n"), 0o644); err != nil {
		panic(err)
	}
	text, err := os.ReadFile(os.Args[1])
	if err != nil || string(text) != "from Go\\n" {
		os.Exit(1)
	}
}
"""


@pytest.fixture(scope="module", autouse=True)
def _usable():
    need_namespaces(USER)


@pytest.fixture(scope="module")
def module_world():
    """A world of an ordinary user."""
    with World(user=USER) as world:
        yield world


@pytest.fixture(scope="module")
def pool(module_world):
    return module_world.pool(memory=True)


@pytest.fixture
def world():
    with World(user=USER) as world:
        yield world


@pytest.fixture
def run(pool):
    """Runs a command in the pool and gives what came of it."""

    def run(*command, via="fuse", options=(), **more):
        arguments = ["run", "--pool", pool.name, "--via", via, *options, "--", *map(str, command)]
        return pool.world.run(*arguments, check=False, **more)

    return run


@pytest.fixture
def start(pool):
    """Starts a command in the pool, with pipes, and ends it after the test."""
    children = []

    def start(*command, options=(), **more):
        world = pool.world
        child = subprocess.Popen(
            world.command("run", "--pool", pool.name, "--via", "fuse", *options, "--", *command),
            env=world.environment,
            text=True,
            **{"stdout": subprocess.PIPE, "stdin": subprocess.PIPE, **world.identity, **more},
        )
        children.append(child)
        return child

    yield start
    for child in children:
        child.kill()
        child.wait(10)
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()


@pytest.fixture(scope="module")
def programs(module_world):
    """Programs that are loaded by the kernel alone, by name."""
    place = module_world.base / "programs"
    place.mkdir()
    place.chmod(0o755)
    module_world.base.chmod(0o755)
    found = {}
    if shutil.which("musl-gcc"):
        (place / "c.c").write_text(C_PROGRAM)
        command = ["musl-gcc", "-static", "-Wall", "-Werror", "-o", place / "c", place / "c.c"]
        subprocess.run(command, check=True, timeout=60)
        found["c"] = place / "c"
    if shutil.which("go"):
        (place / "g.go").write_text(GO_PROGRAM)
        environment = {
            **os.environ,
            "CGO_ENABLED": "0",
            "GO111MODULE": "off",
            "GOCACHE": str(place / "cache"),
        }
        command = ["go", "build", "-o", place / "g", place / "g.go"]
        subprocess.run(command, check=True, timeout=110, env=environment)
        found["g"] = place / "g"
    return found


@pytest.fixture
def static_c(programs):
    if "c" not in programs:
        pytest.skip("there is no musl-gcc")
    return programs["c"]


def names(pool, path="/"):
    listed = pool.world.json("fs", "ls", f"{pool.name}:{path}")["directories"]
    return {entry["name"] for entry in listed[0]["entries"]}


def content(pool, path):
    return pool.world.run("fs", "cat", f"{pool.name}:{path}").stdout


def fuse_mounts(pool):
    """Mounts of a pool in every namespace of the machine. Other pools are somebody else's."""
    found = set()
    for table in Path("/proc").glob("[0-9]*/mounts"):
        with contextlib.suppress(OSError):
            found |= {
                line
                for line in table.read_text().splitlines()
                if " fuse.azekura " in line and pool.name in line.split()[0]
            }
    return found


# -- programs


def test_static_c(pool, run, static_c):
    done = run(static_c, f"{PREFIX}/static-c")
    assert done.returncode == 7, done
    assert content(pool, "/static-c") == "from C\n"


def test_static_go(pool, run, programs):
    if "g" not in programs:
        pytest.skip("there is no Go")
    done = run(programs["g"], f"{PREFIX}/static-go", via="auto", options=["-v"])
    assert done.returncode == 0, done
    assert "via fuse: it is a static program" in done.stderr
    assert content(pool, "/static-go") == "from Go\n"


def test_shell_redirections(pool, run):
    script = f"""
        set -eu
        cd {PREFIX}
        mkdir dir
        echo one >dir/file
        echo two >>dir/file
        {{ echo three; echo four >&2; }} >dir/out 2>dir/err
        while read -r line; do echo "<$line>"; done <dir/file
        cat <dir/file | tr a-z A-Z >dir/upper
        exec 7>dir/seven; echo kept >&7; (echo by a child >&7); exec 7>&-
        cat dir/seven
        ln -s file dir/link; cat dir/link
        pwd
    """
    done = run("bash", "-c", script)
    assert done.returncode == 0, done.stderr
    expected = f"<one>\n<two>\nkept\nby a child\none\ntwo\n{PREFIX}\n"
    assert done.stdout == expected
    assert content(pool, "/dir/upper") == "ONE\nTWO\n"
    assert content(pool, "/dir/out") + content(pool, "/dir/err") == "three\nfour\n"


def test_standard_streams_and_other_descriptors_are_untouched(pool, run, tmp_path):
    given = tmp_path / "given"
    given.write_text("")
    with open(given, "a") as file:
        script = f'cat; echo "to {file.fileno()}" >&{file.fileno()}; ls -l /proc/self/fd'
        done = subprocess.run(
            pool.world.command(
                *("run", "--pool", pool.name, "--via", "fuse", "--", "bash", "-c", script)
            ),
            env=pool.world.environment,
            input="from outside\n",
            capture_output=True,
            text=True,
            pass_fds=[file.fileno()],
            timeout=60,
            check=False,
            **pool.world.identity,
        )
        assert done.returncode == 0, done
        assert given.read_text() == f"to {file.fileno()}\n"
        assert done.stdout.startswith("from outside\n")
        shown = {line.split()[8] for line in done.stdout.splitlines() if " -> " in line}
        # The last is the directory that ls itself reads.
        assert shown - {"0", "1", "2", str(file.fileno())} <= {"3"}, done.stdout


def test_the_user_stays_who_he_is(pool, run):
    uid = USER if USER is not None else os.getuid()
    done = run("sh", "-c", f"id -u; id -g; grep CapEff /proc/self/status; touch {PREFIX}/mine")
    assert done.stdout.split() == [str(uid), str(uid), "CapEff:", "0" * 16]
    assert pool.world.json("fs", "stat", f"{pool.name}:/mine")["files"][0]["uid"] == uid


def test_the_working_directory_is_kept(pool, run, tmp_path):
    place = pool.world.base / "deep" / "er"
    place.mkdir(parents=True)
    assert run("pwd", cwd=place).stdout.strip() == str(place)
    assert run("sh", "-c", "echo x >here", cwd=pool.world.base / "home").returncode == 0
    assert (pool.world.base / "home" / "here").read_text() == "x\n"


# -- where the prefix is


def test_everything_else_is_as_it_was(pool, run):
    done = run("sh", "-c", "ls -a /; test -e /proc/self/exe; echo x >/dev/null; ls /dev/shm /dev/pts")
    assert done.returncode == 0, done.stderr
    inside = set(done.stdout.split("/dev/", maxsplit=1)[0].split())
    assert inside == set(os.listdir("/")) | {".", "..", PREFIX[1:]}
    assert not os.path.lexists(PREFIX)
    done = run("sh", "-c", "echo x >/new-at-the-root")
    assert done.returncode != 0
    assert not os.path.lexists("/new-at-the-root")


def test_nobody_else_sees_it(start):
    child = start("sh", "-c", f"ls {PREFIX} && echo ready && read line")
    while "ready" not in child.stdout.readline():
        pass
    own = Path("/proc/self/mounts").read_text()
    assert "fuse.azekura " not in own or PREFIX not in own
    assert not os.path.exists(PREFIX)
    child.communicate("\n", timeout=20)
    assert child.returncode == 0


@pytest.mark.parametrize("prefix", ["/mnt/inner/azekura", "/no/such/place"])
def test_a_nested_prefix(pool, run, prefix):
    if USER is None and os.access("/mnt", os.W_OK):
        pytest.skip("/mnt is this user's")
    text = f"nested {prefix}"
    done = run(
        "sh",
        "-c",
        f"echo {text} >{prefix}/nested && ls /mnt && cat {prefix}/nested",
        options=["--prefix", prefix],
    )
    assert done.returncode == 0, done
    assert text in done.stdout
    assert content(pool, "/nested").strip() == text
    assert set(os.listdir("/mnt")) <= set(done.stdout.split())
    assert not os.path.exists(prefix)


def test_a_prefix_that_is_there(pool, run):
    place = pool.world.base / "home" / "place"
    place.mkdir()
    if USER is not None:
        os.chown(place, USER, USER)
    (place / "hidden").write_text("")
    done = run("ls", place, options=["--prefix", place])
    assert done.returncode == 0, done
    assert "hidden" not in done.stdout
    assert os.listdir(place) == ["hidden"]
    done = run("ls", options=["--prefix", place / "hidden"])
    assert done.returncode == 1
    assert "not a directory" in done.stderr
    # Laying something over a directory of the user's own would keep him from writing there.
    done = run("ls", options=["--prefix", place / "more"])
    assert done.returncode == 1
    assert f"mkdir -p {place / 'more'}" in done.stderr


def test_within_each_other(pool, run):
    """A command started from within gets the mount that is there, or one of its own."""
    own = [str(BINARY), "run", "--pool", pool.name, "--via", "fuse"]
    # Others on this machine may have mounts too, which the command's namespace inherits.
    mount = f"'{pool.name}.* fuse.azekura '"
    script = f"""
        grep -c {mount} /proc/self/mounts
        {" ".join(own)} -- grep -c {mount} /proc/self/mounts
        {" ".join(own)} --cache none -- sh -c 'echo inner >{PREFIX}/inner'
        cat {PREFIX}/inner
    """
    done = run("sh", "-c", script)
    assert done.stdout == "1\n1\ninner\n", done


# -- how it ends


@pytest.mark.parametrize("code", [0, 1, 42, 255])
def test_exit_codes(run, code):
    assert run("sh", "-c", f"exit {code}").returncode == code


def test_death_by_signal(run):
    assert run("sh", "-c", "kill -SEGV $$").returncode == 128 + signal.SIGSEGV
    assert run("sh", "-c", "kill -KILL $$").returncode == 128 + signal.SIGKILL


@pytest.mark.parametrize("via", ["fuse", "preload", "auto"])
def test_commands_that_cannot_be_run(run, via, tmp_path):
    if via != "fuse" and not BINARY.with_name("libazekura_preload.so").exists():
        pytest.skip("the preload library is not built")
    done = run("no-such-command", via=via)
    assert done.returncode == 127
    assert "no-such-command" in done.stderr
    done = run("/etc/passwd", via=via)
    assert done.returncode == 126
    assert "/etc/passwd" in done.stderr


def test_no_command_is_a_usage_error(pool):
    done = pool.world.run("run", "--pool", pool.name, check=False)
    assert done.returncode == 2
    assert "CMD" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT])
def test_signals_are_passed_on(start, number):
    name = signal.Signals(number).name.removeprefix("SIG")
    script = f"trap 'echo got it; exit 9' {name}; echo ready; while :; do sleep 0.05; done"
    child = start("sh", "-c", script)
    assert child.stdout.readline() == "ready\n"
    child.send_signal(number)
    assert child.stdout.readline() == "got it\n"
    assert child.wait(20) == 9


def test_ignored_signals_stay_ignored(run):
    done = run("sh", "-c", "kill -HUP $$; echo alive", preexec_fn=ignore_hangup)
    assert done.stdout == "alive\n"


def ignore_hangup():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def within(pool, exact):
    """Ids of processes of this world that run exactly these words."""
    wanted = b"\0".join(word.encode() for word in exact) + b"\0"
    for pid in pool.world.processes():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes() == wanted:
                yield pid


def test_killing_the_front_ends_the_command(pool, start):
    before = fuse_mounts(pool)
    child = start("sleep", "1000.5")
    command = wait_until(lambda: list(within(pool, ["sleep", "1000.5"])), "the command runs")
    kill_hard(child.pid)
    wait_until(lambda: not any(map(alive, command)), "the command is gone")
    wait_until(lambda: fuse_mounts(pool) <= before, "the mount is gone")


def test_killing_the_command_ends_the_front(pool, start):
    before = fuse_mounts(pool)
    child = start("sleep", "1000.25")
    command = wait_until(lambda: list(within(pool, ["sleep", "1000.25"])), "the command runs")
    os.kill(command[0], signal.SIGKILL)
    assert child.wait(20) == 128 + signal.SIGKILL
    wait_until(lambda: fuse_mounts(pool) <= before, "the mount is gone")


def servers(pool):
    """Processes of this world that serve mounts of commands."""
    for pid in pool.world.processes():
        with contextlib.suppress(OSError):
            if b"\0run-serve\0" in Path(f"/proc/{pid}/cmdline").read_bytes():
                yield pid


def test_what_the_command_leaves_in_the_background_keeps_its_mount(pool, run):
    before = set(servers(pool))
    script = f"(sleep 5; echo late >{PREFIX}/late; sleep 0.2) >{PREFIX}/said 2>&1 & exit 0"
    started = time.monotonic()
    done = run("sh", "-c", script)
    assert done.returncode == 0
    assert time.monotonic() - started < 5
    wait_until(lambda: "late" in names(pool), "what was left has gone on")
    wait_until(lambda: content(pool, "/late") == "late\n", "it has written")
    wait_until(lambda: set(servers(pool)) <= before, "the mount has gone with it")


def test_whoever_reads_to_the_end_does_not_wait_for_what_was_left(pool, run):
    """Pipes of the caller end with the command: standard error, and whatever else it has inherited."""
    read, write = os.pipe()
    script = f"(sleep 6; : >{PREFIX}/after) >{PREFIX}/said 2>&1 {write}>&- & exit 0"
    started = time.monotonic()
    try:
        done = run("bash", "-c", script, pass_fds=[write])
        os.close(write)
        assert os.read(read, 1) == b""
    finally:
        os.close(read)
    assert done.returncode == 0
    assert time.monotonic() - started < 6
    wait_until(lambda: "after" in names(pool), "what was left has gone on")


def test_a_mount_whose_process_has_ended_is_a_failure(pool, start):
    before = set(servers(pool))
    script = f"echo ready; read word; ls {PREFIX} >&2; exit 0"
    child = start("sh", "-c", script, stderr=subprocess.PIPE)
    assert child.stdout.readline() == "ready\n"
    (server,) = wait_until(lambda: set(servers(pool)) - before, "the mount is served")
    os.kill(server, signal.SIGKILL)
    _, said = child.communicate("go\n", timeout=20)
    assert child.returncode == 1
    assert "the process that served the mount has ended" in said


def test_a_pipe_ends_with_the_command_and_not_with_the_front(start):
    """What the command closes is closed; the front holds nothing open."""
    child = start("sh", "-c", "echo x; exec >&-; sleep 1000.75")
    assert child.stdout.readline() == "x\n"
    assert child.stdout.read() == ""
    assert child.poll() is None


def stopped(pool):
    """Whether a process of the pool's world is stopped."""
    states = []
    for pid in pool.world.processes():
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{pid}/stat").read_text()
            states.append(text.rpartition(")")[2].split()[0])
    return "T" in states


def test_stopping_and_continuing_at_a_terminal(pool):
    """Ctrl-Z stops the command and gives the shell its terminal back; 'fg' goes on."""
    world = pool.world
    pid, terminal = pty.fork()
    if pid == 0:
        if USER is not None:
            os.setgroups([])
            os.setgid(USER)
            os.setuid(USER)
        os.execvpe(
            "bash",
            ["bash", "--norc", "--noprofile", "-i"],
            {**world.environment, "PS1": "$ ", "TERM": "dumb"},
        )
    seen = ""

    def expect(text, limit_s=20):
        nonlocal seen
        deadline = time.monotonic() + limit_s
        while text not in seen:
            assert time.monotonic() < deadline, f"{text!r} is not in {seen!r}"
            if select.select([terminal], [], [], 0.1)[0]:
                seen += os.read(terminal, 4096).decode(errors="replace")
        seen = seen.split(text, 1)[1]

    def type_in(text):
        os.write(terminal, text.encode())

    def type_until(line, text):
        for _ in range(5):
            type_in(line)
            with contextlib.suppress(AssertionError):
                return expect(text, limit_s=3)
        return expect(text)

    try:
        expect("$ ")
        script = f"echo started >{PREFIX}/terminal; cat; echo en''ded"
        command = " ".join(world.command("run", "--pool", pool.name, "--via", "fuse"))
        type_in(f'{command} -- sh -c "{script}"\n')
        wait_until(lambda: "terminal" in names(pool), "the command runs")
        type_in("ab\n")
        expect("ab\r\nab\r\n")
        type_in("\x1a")
        expect("Stopped")
        expect("$ ")
        # What is typed while the shell takes its terminal back may be lost.
        type_until("echo in''between\n", "inbetween\r\n$ ")
        type_in("fg\n")
        # The shell says what goes on before it lets it, and what is typed in between is lost.
        expect("en''ded")
        wait_until(lambda: not stopped(pool), "the command goes on")
        type_in("cd\n")
        expect("cd\r\ncd\r\n")
        type_in("\x04")
        expect("ended\r\n$ ")
        type_in(f"{command} -- sh -c \"echo up to h''ere; exec sleep 1000.0625\"\n")
        expect("up to here")
        type_in("\x03")
        expect("$ ")
        type_in("echo code $?\n")
        expect("code 130")
    finally:
        os.close(terminal)
        kill_hard(pid)
        os.waitpid(pid, 0)


# -- when something is missing


def test_a_pool_that_is_gone(world):
    pool = world.pool()
    pool.kill()
    arguments = ["run", "--pool", pool.name]
    done = world.run(*arguments, "--via", "fuse", "--", "touch", "started", check=False, cwd="/tmp")
    assert done.returncode == 1
    assert pool.name in done.stderr
    assert not os.path.exists("/tmp/started")
    if BINARY.with_name("libazekura_preload.so").exists():
        done = world.run(*arguments, "--via", "preload", "--", "sh", "-c", "exit 5", check=False)
        assert done.returncode == 5, done
    done = world.run("run", "--pool", "no-such-pool", "--", "true", check=False)
    assert done.returncode == 1
    assert "no-such-pool" in done.stderr


def hidden_device(pool, *setup):
    """Runs `azekura run` where `setup` has been done in a mount namespace as root."""
    command = " ".join(pool.world.command("run", "--pool", pool.name, "--via", "fuse", "--", "true"))
    if USER is not None:
        command = f"setpriv --reuid={USER} --regid={USER} --clear-groups {command}"
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", "; ".join([*setup, command])],
        env=pool.world.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.root
def test_a_closed_device_is_named(pool, tmp_path):
    device = tmp_path / "fuse"
    os.mknod(device, 0o600 | stat.S_IFCHR, os.makedev(10, 229))
    device.chmod(0o600)
    done = hidden_device(pool, f"mount --bind {device} /dev/fuse")
    assert done.returncode == 1
    assert "/dev/fuse" in done.stderr
    assert "0600" in done.stderr
    assert "chmod 666 /dev/fuse" in done.stderr


def test_forbidden_namespaces_are_named(pool):
    """The limit counts for a user namespace and all within it, so that the machine's stays."""
    command = pool.world.command("run", "--pool", pool.name, "--via", "fuse", "--", "true")
    script = f"""
        echo 0 >/proc/sys/user/max_user_namespaces || exit 77
        exec setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin {" ".join(command)}
    """
    done = subprocess.run(
        ["unshare", "-Ur", "sh", "-c", script],
        env=pool.world.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **pool.world.identity,
    )
    if done.returncode == 77:
        pytest.skip("the limit cannot be set here")
    assert done.returncode == 1
    assert "max_user_namespaces" in done.stderr


@pytest.mark.root
def test_as_root():
    with World() as world:
        pool = world.pool(memory=True)
        script = f"id -u; echo x >{PREFIX}/roots; chown 1234:4321 {PREFIX}/roots; ls -n {PREFIX}"
        done = world.run("run", "--pool", pool.name, "--via", "fuse", "--", "sh", "-c", script)
        assert done.stdout.startswith("0\n")
        assert " 1234 4321 " in done.stdout
        # Without the right to mount, root is an ordinary user with a number of 0.
        script = f"id -u; echo y >{PREFIX}/roots2; cat {PREFIX}/roots2"
        done = subprocess.run(
            ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]
            + world.command("run", "--pool", pool.name, "--via", "fuse", "--", "sh", "-c", script),
            env=world.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stdout == "0\ny\n", done


# -- the choice


def chosen(done):
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr.split(" via ")[1].split(":")[0], done.stderr


@pytest.mark.parametrize("form", ["binary", "script", "env", "container"])
def test_static_programs_are_chosen_for_fuse(pool, run, static_c, form):
    program = static_c
    if form in ("script", "env"):
        program = pool.world.base / f"script-{form}"
        line = f"#!{static_c}" if form == "script" else "#!/usr/bin/env c"
        program.write_text(f"{line}\n")
        program.chmod(0o777)
    if form == "container":
        pool.world.run("fs", "put", static_c, f"{pool.name}:/in-container")
        program = f"{PREFIX}/in-container"
    path = f"{static_c.parent}:{os.environ['PATH']}"
    environment = {**pool.world.environment, "PATH": path}
    words = pool.world.command("run", "--pool", pool.name, "-v", "--", program)
    done = subprocess.run(
        words if form in ("script", "env") else [*words, f"{PREFIX}/chosen"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **pool.world.identity,
    )
    assert chosen(done)[0] == "fuse", done
    # The script overwrites itself through its interpreter, which is what the program does.
    assert done.returncode == 7, done


def test_programs_with_privileges_are_chosen_for_fuse(pool, run):
    program = pool.world.base / "set-id"
    shutil.copy("/bin/true", program)
    program.chmod(0o4755)
    way, why = chosen(run(program, via="auto", options=["-v"]))
    assert way == "fuse"
    assert "privileges" in why


def test_dynamic_programs_are_chosen_for_preload(pool, run):
    if not BINARY.with_name("libazekura_preload.so").exists():
        pytest.skip("the preload library is not built")
    done = run("true", via="auto", options=["-v"])
    assert chosen(done)[0] == "preload"
    assert done.returncode == 0
    program = pool.world.base / "shell-script"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    done = run(program, via="auto", options=["-v"])
    assert chosen(done)[0] == "preload"
    assert done.returncode == 3
    pool.world.run("fs", "put", program, f"{pool.name}:/script")
    done = run(f"{PREFIX}/script", via="auto", options=["-v"])
    assert chosen(done)[0] == "preload"
    assert done.returncode == 3


def test_programs_are_handed_over_with_their_descriptors(pool, run, static_c):
    """What the preload library asks for when a program that it follows starts a static one."""
    flags = os.O_WRONLY
    run("sh", "-c", f"printf 123456 >{PREFIX}/again; mkdir -p {PREFIX}/sub")
    options = ["--reopen", f"1,9:{flags}:3:{PREFIX}/again", "--cwd", f"{PREFIX}/sub"]
    done = run("sh", "-c", "printf a; printf b >&9; pwd >here", options=options)
    assert done.returncode == 0, done
    assert content(pool, "/again") == "123ab6"
    assert content(pool, "/sub/here") == f"{PREFIX}/sub\n"
    done = run(static_c, options=["--argv0=-other"])
    assert done.stdout == "-other\n"


def test_fuse_and_data_sets_the_contract(pool, run):
    if not BINARY.with_name("libazekura_preload.so").exists():
        pytest.skip("the preload library is not built")
    done = run("env", via="fuse+data")
    variables = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert variables["AZEKURA_INTERCEPT"] == "data"
    assert variables["AZEKURA_PREFIX"] == PREFIX
    assert variables["AZEKURA_CONTAINER"] == "default"
    assert Path(variables["AZEKURA_POOL"]).is_file()
    assert Path(variables["LD_PRELOAD"].split(":")[0]).name == "libazekura_preload.so"
    done = run("true", via="fuse+data", options=["--cache", "auto"])
    assert done.returncode == 2
    assert json.dumps(done.stderr).count("kernel") == 1


SQLITE_WAL = """
import sqlite3, sys
base = sqlite3.connect(sys.argv[1], isolation_level=None)
assert base.execute("pragma journal_mode = wal").fetchone()[0] == "wal"
base.execute("create table t (n integer primary key, s text)")
for number in range(300):
    base.execute("insert into t values (?, ?)", (number, "x" * 2000))
assert base.execute("select count(*), sum(length(s)) from t").fetchone() == (300, 600000)
assert base.execute("pragma integrity_check").fetchone()[0] == "ok"
base.close()
"""


def test_a_file_that_data_went_past_the_kernel_to_is_mapped(pool, run):
    """Its index is made longer by writing and then mapped: SIGBUS was the end of the program."""
    if not BINARY.with_name("libazekura_preload.so").exists():
        pytest.skip("the preload library is not built")
    done = run("python3", "-c", SQLITE_WAL, f"{PREFIX}/wal.db", via="fuse+data")
    assert done.returncode == 0, done
