"""Staging jobs: files come to the nodes when they are opened, and nothing of a job outlives it."""

import hashlib
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from functools import partial

import pytest
from pools import BINARY, LAB, alive, wait_until
from staging import NODES, LabSite, Site, gone_within, kill, listening_port

BYTES = random.Random(11).randbytes(3 << 20)
DIGEST = hashlib.sha256(BYTES).hexdigest()
# Says which file is really read.
WHICH = "import os, sys; f = open(sys.argv[1]); print(os.fstat(f.fileno()).st_ino)"
# As little as a program can be that waits until it is told to go on.
HOLD = "touch $0; while [ -e $0 ]; do sleep 0.05; done"


@pytest.fixture
def site(world):
    return Site(world)


def mapped(site, kind="ro", name="data"):
    path, option = site.map(name, kind)
    (path / "file").write_bytes(BYTES)
    return path, option


def hold(site, *options, **more):
    """A job whose command waits; and what ends it."""
    mark = site.world.base / "running"
    job = site.start(*options, "--", "sh", "-c", HOLD, mark, **more)

    def running():
        assert job.child.poll() is None, job.text
        return mark.exists()

    wait_until(running, "the command runs")
    return job, mark.unlink


def test_a_file_comes_when_it_is_opened(site):
    data, option = mapped(site)
    done = site.run(*option, "--", "sha256sum", data / "file")
    assert done.stdout.split()[0] == DIGEST
    assert "staged to 1 node: 1 file, 3 MiB from home" in done.stderr
    assert site.left() == []


def test_programs_read_the_copy_on_their_node(site):
    data, option = mapped(site)
    done = site.run(*option, "--", sys.executable, "-c", WHICH, data / "file")
    assert int(done.stdout) != (data / "file").stat().st_ino


def test_the_way_of_notifications_serves_any_program(site):
    data, option = mapped(site)
    words = ("sh", "-c", f"cat {data}/file | sha256sum; ls {data}")
    done = site.run(*option, "--via", "notify", "--", *words)
    assert done.stdout.split() == [DIGEST, "-", "file"]
    assert "1 file, 3 MiB from home" in done.stderr


@pytest.mark.parametrize("via", ["preload", "notify"])
def test_what_may_be_written_is_told_by_where_a_path_leads(site, via):
    data, ro = mapped(site)
    rest, rw = mapped(site, "rw", "rest")
    (data / "over").symlink_to("../rest/file")
    script = (
        f"cd {data} && echo hi > ../rest/new && test -w ../rest/file && test -w over && "
        f"! test -w {rest}/../data/file && echo end >> over && tail -c 4 {rest}/file"
    )
    done = site.run(*ro, *rw, "--via", via, "--", "bash", "-c", script)
    assert done.stdout == "end\n"
    assert (rest / "new").read_text() == "hi\n"
    assert (rest / "file").read_bytes() == BYTES + b"end\n"


@pytest.fixture
def static_program(tmp_path):
    """A program that no library can be loaded into, and prints the length of a file."""
    source = tmp_path / "length.c"
    source.write_text(
        "#include <stdio.h>\n"
        "int main(int argc, char **argv) {\n"
        "    long count = 0;\n"
        '    FILE *file = argc > 1 ? fopen(argv[1], "r") : NULL;\n'
        "    if (!file) return 3;\n"
        "    while (getc(file) != EOF) count++;\n"
        '    return printf("%ld bytes\\n", count) < 0;\n'
        "}\n"
    )
    program = tmp_path / "length"
    subprocess.run(["gcc", "-O1", "-static", "-o", program, source], check=True, timeout=60)
    return program


@pytest.mark.parametrize("by", ["alone", "by a shell"])
def test_static_programs_are_served_without_a_word(site, static_program, by):
    data, option = mapped(site)
    words = [static_program, data / "file"]
    if by != "alone":
        words = ["sh", "-c", '"$@"; echo $?', "sh", *words]
    done = site.run(*option, "--", *words)
    assert f"{len(BYTES)} bytes" in done.stdout
    assert "1 file, 3 MiB on the nodes" in done.stderr


def test_events_are_lines_of_json(site):
    data, option = mapped(site)
    job = site.start(*option, "--", "cat", data / "file", "/dev/null")
    assert job.wait() == 0
    kinds = [event["event"] for event in job.events()]
    assert kinds[0] == "node-up"
    assert kinds[-1] == "job-ended"
    arrived = job.events("content-arrived")
    assert sum(event["bytes"] for event in arrived) == len(BYTES)
    assert job.events("job-ended")[0]["status"]["nodes"][0]["files"] == 1


def test_events_go_to_standard_output(site):
    data, option = mapped(site)
    words = ["stage", "run", "--hosts", "localhost", "--cache", site.cache, *option]
    done = site.world.run(*words, "--json", "-", "--", "sh", "-c", f"wc -c <{data}/file")
    lines = done.stdout.splitlines()
    assert str(len(BYTES)) in lines
    lines.remove(str(len(BYTES)))
    events = [json.loads(line) for line in lines]
    assert events[0]["event"] == "node-up"
    assert events[-1]["event"] == "job-ended"
    assert sum(event["event"] == "content-arrived" for event in events) == 1
    assert not (site.world.base / "-").exists()
    # Who reads them may stop.
    shell = '"$@" | head -1'
    done = site.world.run("-c", shell, "sh", BINARY, *words, "--json", "-", "--", "true", program="sh")
    assert len(done.stdout.splitlines()) == 1
    assert site.left() == []


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["true"], 0),
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -9 $$"], 137),
        (["no-such-program"], 127),
        (["/etc/passwd"], 126),
    ],
    ids=["right", "seven", "killed", "missing", "no program"],
)
def test_the_exit_code_is_the_commands(site, command, code):
    _, option = mapped(site)
    assert site.run(*option, "--", *command, check=False).returncode == code
    assert site.left() == []
    assert site.agents() == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--map", "{home}/none=ro"], "none"),
        (["--map", "{home}=wo"], "DIR=ro"),
        (["--map", "{home}=ro", "--map", "{home}/=rw"], "twice"),
        (["--map", "{home}=ro", "--map", "{home}/data=rw"], "lies in"),
        (["--map", "{home}=ro", "--launch", "ssh {host}"], "{command}"),
        (["--map", "{home}=ro", "--hostfile", "x"], "--hostfile"),
        ([], "--map"),
    ],
    ids=["missing", "kind", "twice", "nested", "launch", "two lists", "no map"],
)
def test_what_cannot_be_meant_is_refused(site, options, says):
    mapped(site)
    options = [option.replace("{home}", str(site.home)) for option in options]
    done = site.run(*options, "--", "true", check=False)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr


def test_without_hosts_there_is_no_job(site):
    _, option = mapped(site)
    words = ("stage", "run", "--cache", site.cache, *option, "--", "true")
    done = site.world.run(*words, check=False)
    assert done.returncode == 2
    assert "--hosts" in done.stderr


def test_hosts_come_from_a_file_or_the_batch_system(site):
    _, option = mapped(site)
    file = site.world.base / "hosts"
    file.write_text("# here\nlocalhost slots=4\nlocalhost\n")
    words = ("--cache", site.cache, *option, "--", "true")
    assert "1 node:" in site.world.run("stage", "run", "--hostfile", file, *words).stderr
    # An srun that starts what it is told to on this host, and says where it should.
    srun = site.world.base / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text(
        "#!/bin/sh\nwhile case $1 in --*) : ;; *) false ;; esac; do\n"
        'echo $1 >>"$SRUN_LOG"; shift; done; exec "$@"\n'
    )
    srun.chmod(0o755)
    environment = {
        **site.world.environment,
        "PATH": f"{srun.parent}:{os.environ['PATH']}",
        "SRUN_LOG": str(site.world.base / "srun.log"),
        "SLURM_JOB_ID": "1",
        "SLURM_JOB_NODELIST": "node[07]",
    }
    done = site.world.run("stage", "run", *words, check=False, env=environment)
    assert "--nodelist=node07" in (site.world.base / "srun.log").read_text()
    # The agent started; that name leads nowhere on this host.
    assert done.returncode == 1
    assert "node07" in done.stderr
    assert site.left() == []


def test_other_hosts_are_reached_by_ssh(site):
    data, option = mapped(site)
    # An ssh that runs what it is told on this host, by a shell as servers do; the name is this host's.
    ssh = site.world.base / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(
        '#!/bin/sh\necho "$@" >>"$SSH_LOG"\nwhile [ "$1" != -- ]; do shift; done\n'
        'echo welcome; shift 2; exec sh -c "$*"\n'
    )
    ssh.chmod(0o755)
    environment = {
        **site.world.environment,
        "PATH": f"{ssh.parent}:{os.environ['PATH']}",
        "SSH_LOG": str(site.world.base / "ssh.log"),
    }
    environment.pop("SLURM_JOB_ID", None)
    done = site.run(*option, "--", "sha256sum", data / "file", hosts=["me@127.0.0.1"], env=environment)
    assert done.stdout.split()[0] == DIGEST
    assert "1 file, 3 MiB on the nodes" in done.stderr
    assert "BatchMode=yes" in (site.world.base / "ssh.log").read_text()


def test_an_agent_that_does_not_start_is_told_of(site):
    _, option = mapped(site)
    launch = ("--launch", "sh -c 'echo no room on {host} >&2; exit 3' {command}")
    done = site.run(*option, *launch, "--", "true", hosts=["a", "b"], check=False)
    assert done.returncode == 1
    for part in ("host 'a'", "exit code 3", "no room on a", "sh -c"):
        assert part in done.stderr
    assert "secret" not in done.stderr


def test_the_secret_is_on_no_command_line(site):
    _, option = mapped(site)
    job, go_on = hold(site, *option)
    (agent,) = site.agents()
    words = open(f"/proc/{agent}/cmdline", "rb").read().split(b"\0")
    assert words == [os.fsencode(BINARY), b"stage", b"agent", b""]
    environment = open(f"/proc/{agent}/environ", "rb").read()
    assert b"AZEKURA_STAGE" not in environment
    go_on()
    assert job.wait() == 0


def test_signals_are_the_commands(site):
    _, option = mapped(site)
    mark = site.world.base / "running"
    script = "trap 'exit 9' TERM; touch $0; while :; do sleep 0.05; done"
    job = site.start(*option, "--", "sh", "-c", script, mark)
    wait_until(mark.exists, "the command runs")
    job.child.terminate()
    assert job.wait() == 9
    assert site.left() == []


@pytest.mark.parametrize("keep", [False, True], ids=["removed", "kept"])
def test_a_front_that_is_killed_takes_the_agents_along(site, keep):
    data, option = mapped(site)
    options = [*option, "--keep-cache"] if keep else option
    mark = site.world.base / "running"
    job = site.start(*options, "--", "sh", "-c", f"cat {data}/file >/dev/null; {HOLD}", mark)
    wait_until(mark.exists, "the command runs")
    agents = site.agents()
    assert len(agents) == 1
    assert site.left()
    job.child.kill()
    gone_within(agents, 5)
    mark.unlink()
    if keep:
        assert any(name.endswith("/file") for name in site.left())
    else:
        assert site.left() == []


def test_a_kept_cache_stays(site):
    data, option = mapped(site)
    site.run(*option, "--keep-cache", "--", "cat", data / "file", "/dev/null")
    kept = [path for path in site.cache.rglob("file") if path.is_file()]
    assert any(path.read_bytes() == BYTES for path in kept)


def test_strangers_are_refused(site):
    _, option = mapped(site)
    job, go_on = hold(site, *option)
    (agent,) = site.agents()
    port = listening_port(agent)
    for words in (b"", b"GET / HTTP/1.0\r\n\r\n", os.urandom(5000)):
        with socket.create_connection(("127.0.0.1", port), 5) as stranger:
            stranger.settimeout(20)
            stranger.sendall(words)
            if not words:
                stranger.shutdown(socket.SHUT_WR)
            try:
                said = b"".join(iter(lambda stranger=stranger: stranger.recv(1000), b""))
            except ConnectionResetError:
                said = b""
            assert BYTES[:16] not in said
            assert len(said) < 1000
    assert alive(agent)
    go_on()
    assert job.wait() == 0


def test_what_is_written_goes_home(site):
    results, option = site.map("results", "out")
    (results / "old").write_text("old")
    script = f"cd {results} && mkdir sub && echo new >sub/new && ls && echo temporary >x && rm x"
    done = site.run(*option, "--", "sh", "-c", script, cwd=site.world.base)
    assert done.stdout.split() == ["sub"]
    assert not list(site.world.base.glob("*.manifest"))
    assert (results / "sub" / "new").read_text() == "new\n"
    assert sorted(path.name for path in results.iterdir()) == ["old", "sub"]
    assert "sent home: 1 file, 4 B" in done.stderr


def test_a_manifest_is_written_where_it_can_be(site):
    results, option = site.map("results", "out")
    # Where not even root can write.
    nowhere = "/proc"
    script = ("sh", "-c", f"echo text >{results}/name")
    done = site.run(*option, "--", *script, cwd=nowhere)
    assert (results / "name").read_text() == "text\n"
    assert "manifest" not in done.stderr
    # One that cannot be written, or is of another job, is told of before anything is done.
    (results / "name").unlink()
    other = site.world.base / "other"
    other.write_text("of another job\n")
    for manifest in (f"{nowhere}/m", other):
        done = site.run(*option, "--manifest", manifest, "--", *script, check=False)
        assert done.returncode == 1
        assert f"{manifest}" in done.stderr and "--manifest" in done.stderr
    assert other.read_text() == "of another job\n"
    assert not list(results.iterdir())
    # What does not come home is sent from wherever it is.
    mark = site.world.base / "running"
    script = f"echo text >{results}/name; {HOLD}"
    job = site.start(*option, "--", "sh", "-c", script, mark, cwd=nowhere)
    wait_until(mark.exists, "the command runs")
    (results / "name" / "x").mkdir(parents=True)
    mark.unlink()
    assert job.wait() == 75, job.text
    (manifest,) = site.world.base.rglob("azekura-stage-*.manifest")
    assert f"stage resume {manifest}" in job.text
    shutil.rmtree(results / "name")
    site.world.run("stage", "resume", manifest)
    assert (results / "name").read_text() == "text\n"


def test_what_cannot_be_sent_home_fails_a_job_that_was_right(site):
    results, option = site.map("results", "out")
    manifest = site.world.base / "manifest"

    mark = site.world.base / "running"
    for code, comes_to in ((0, 75), (3, 3)):
        script = f"echo text >{results}/name; {HOLD}; exit {code}"
        job = site.start(*option, "--manifest", manifest, "--", "sh", "-c", script, mark)
        wait_until(mark.exists, "the command runs")
        # A directory in the place that the file is for.
        (results / "name" / "x").mkdir(parents=True, exist_ok=True)
        mark.unlink()
        assert job.wait() == comes_to, job.text
        assert f"{results}/name" in job.text
        assert f"stage resume {manifest}" in job.text
        assert site.left()
        # Still in the way; then not.
        assert site.world.run("stage", "resume", manifest, check=False).returncode == 75
        shutil.rmtree(results / "name")
        site.world.run("stage", "resume", manifest)
        assert (results / "name").read_text() == "text\n"
        assert site.left() == []
        assert "nothing is left" in site.world.run("stage", "resume", manifest).stdout
        (results / "name").unlink()
        manifest.unlink()


def test_a_job_answers_questions(site):
    data, option = mapped(site)
    results, out = site.map("results", "out")
    world = site.world
    mark = world.base / "running"
    script = f"echo text >{results}/early; {HOLD}"
    job = site.start(*option, *out, "--", "sh", "-c", script, mark)
    wait_until(mark.exists, "the command runs")
    world.run("stage", "in", data / "file", data / "no-such-file")
    status = wait_until(
        lambda: next(
            (one for one in [world.json("stage", "status")] if one["nodes"][0]["files"] == 1), None
        ),
        "the file has come",
    )
    assert status["nodes"][0]["host"] == "localhost"
    assert status["nodes"][0]["up"]
    assert "localhost" in world.run("stage", "status").stdout
    assert "1 file, 5 B" in world.run("stage", "sync").stdout
    assert (results / "early").read_text() == "text\n"
    assert "0 files" in world.run("stage", "sync").stdout
    mark.unlink()
    assert job.wait() == 0
    done = world.run("stage", "status", check=False)
    assert done.returncode == 1
    assert "stage run" in done.stderr


@pytest.fixture
def lab_site(world):
    return LabSite(world)


def sums(site, path, nodes=NODES):
    """A script that reads a file on each node, one beside the other."""
    words = [" ".join(map(str, site.on(node, "sha256sum", path))) for node in nodes]
    return " & ".join(words) + " & wait"


@pytest.mark.root
@pytest.mark.parametrize("to", ["all", "requesters"])
def test_nodes_get_what_only_the_server_has(lab_site, to):
    data, option = mapped(lab_site)
    # Without staging there is nothing to be read.
    assert lab_site.lab.exec("n1", "cat", data / "file", check=False).returncode == 1
    # The job does not wait for nodes that ask for nothing; this one gives them time.
    reads = sums(lab_site, data / "file", ["n1"]) + "; sleep 2"
    job = lab_site.start(*option, "--to", to, "--", "sh", "-c", reads)
    assert job.wait() == 0, job.text
    assert DIGEST in job.text
    arrived = {event["node"] for event in job.events("content-arrived")}
    assert arrived == ({0, 1, 2} if to == "all" else {0})
    assert lab_site.left() == []


@pytest.mark.root
@pytest.mark.parametrize("way", ["by a shell", "by name"])
def test_static_programs_are_served_on_nodes(lab_site, static_program, way):
    data, option = mapped(lab_site)
    words = [static_program, data / "file"]
    if way == "by a shell":
        words = ["sh", "-c", '"$@"', "sh", *words]
    else:
        words = [BINARY, "stage", "inside", "--via", "notify", "--", *words]
    done = lab_site.run(*option, "--", *lab_site.on("n2", *words))
    assert f"{len(BYTES)} bytes" in done.stdout
    assert "1 file, 3 MiB on the nodes" in done.stderr


@pytest.mark.root
def test_a_front_that_is_no_node_leaves_its_command_alone_by_either_way(lab_site):
    data, option = mapped(lab_site)
    words = lab_site.on("n2", "sha256sum", data / "file")
    done = lab_site.run(*option, "--via", "notify", "--", *words)
    assert done.stdout.split()[0] == DIGEST
    assert "1 file, 3 MiB on the nodes" in done.stderr


@pytest.mark.root
def test_the_lab_is_reached_by_either_program(lab_site):
    data, option = mapped(lab_site)
    lab_site.launch = ("--launch", f"{BINARY} netlab exec {{host}} -- {{command}}")
    on_node = [BINARY, "netlab", "exec", "n2", "--", "sha256sum", data / "file"]
    assert lab_site.run(*option, "--", *on_node).stdout.split()[0] == DIGEST


@pytest.mark.root
def test_one_transfer_serves_all_that_ask(lab_site):
    data, option = mapped(lab_site)
    job = lab_site.start(*option, "--", "sh", "-c", sums(lab_site, data / "file"))
    assert job.wait() == 0, job.text
    assert job.text.count(DIGEST) == 3
    # Each node has it once, and the server has not sent it three times.
    assert len(job.events("content-arrived")) == 3
    assert len(job.events("content-begun")) <= 3


def has_arrived(job, times):
    return len(job.events("content-arrived")) == times


@pytest.mark.root
def test_large_files_go_along_a_chain_and_small_ones_down_a_tree(lab_site):
    data, option = mapped(lab_site)
    (data / "small").write_bytes(BYTES[:8000])
    job, end = hold(lab_site, *option, "--to", "all")
    shapes = {}
    for count, name in enumerate(["small", "file"], 1):
        lab_site.lab.exec("server", BINARY, "stage", "in", data / name)
        wait_until(partial(has_arrived, job, count * len(NODES)), f"'{name}' is on all nodes")
        begun = job.events("content-begun")[-1]
        assert begun["path"] == name
        shapes[name] = begun["fan_out"]
    assert len(job.events("in-asked")) == 2
    end()
    assert job.wait() == 0, job.text
    assert shapes["file"] == 1
    assert shapes["small"] > 1


@pytest.mark.root
def test_commands_on_a_node_ask_the_front(lab_site):
    _, option = mapped(lab_site)
    words = lab_site.on("n2", BINARY, "stage")
    status = " ".join(map(str, [*words, "status", "--json"]))
    sync = " ".join(map(str, [*words, "sync"]))
    done = lab_site.run(*option, "--", "sh", "-c", f"{status} && {sync}")
    for part in ('"host": "n3"', "0 files"):
        assert part in done.stdout


@pytest.mark.root
def test_a_killed_front_leaves_nothing_on_nodes(lab_site):
    data, option = mapped(lab_site)
    mark = lab_site.world.base / "running"
    script = f"{sums(lab_site, data / 'file')}; {HOLD}"
    job = lab_site.start(*option, "--", "sh", "-c", script, mark)
    wait_until(mark.exists, "the command runs")
    agents = lab_site.agents()
    assert len(agents) == 3
    assert lab_site.left()
    kill(lab_site.front())
    gone_within(agents, 5)
    assert lab_site.left() == []
    assert job.wait() != 0
    mark.unlink()


@pytest.mark.root
@pytest.mark.parametrize("place", [0, 1, 2], ids=["head", "middle", "tail"])
def test_a_node_that_dies_in_mid_transfer_does_not_stop_the_others(world, place):
    site = LabSite(world, rate="40mbit")
    data, option = site.map("data", "ro")
    content = random.Random(12).randbytes(12 << 20)
    (data / "large").write_bytes(content)
    alive_nodes = [node for node in NODES if node != NODES[place]]
    reads = sums(site, data / "large", alive_nodes)
    job = site.start(*option, "--to", "all", "--", "sh", "-c", reads)
    job.wait_for("content-begun")
    time.sleep(0.8)
    assert not job.events("content-arrived")
    host = site.lab.exec(NODES[place], "readlink", "/proc/self/ns/uts").stdout.strip()
    victims = [pid for pid in site.agents() if os.readlink(f"/proc/{pid}/ns/uts") == host]
    assert len(victims) == 1
    kill(victims[0])
    assert job.wait() == 0, job.text
    assert job.text.count(hashlib.sha256(content).hexdigest()) == 2
    assert {event["node"] for event in job.events("node-gone")} == {place}
    arrived = {event["node"] for event in job.events("content-arrived")}
    assert arrived == {0, 1, 2} - {place}
    assert site.left() == []


@pytest.mark.root
@pytest.mark.skipif(not shutil.which("mpirun"), reason="needs OpenMPI")
def test_mpi_hands_the_job_on_to_its_nodes(lab_site):
    data, option = mapped(lab_site)
    shell = lab_site.world.base / "rsh"
    shell.write_text(f'#!/bin/sh\nhost=$1; shift; exec {LAB} netlab exec "$host" -- sh -c "$*"\n')
    shell.chmod(0o755)
    mpirun = ["mpirun", "--allow-run-as-root", "--mca", "plm_rsh_agent", shell]
    done = lab_site.run(*option, "--", *mpirun, "-host", ",".join(NODES), "sha256sum", data / "file")
    assert done.stdout.count(DIGEST) == len(NODES), done.stderr
    assert "3 files, 9 MiB on the nodes" in done.stderr


@pytest.mark.root
def test_results_of_a_lost_node_are_promised_to_nobody(lab_site):
    results, option = lab_site.map("results", "out")
    manifest, mark = lab_site.world.base / "manifest", lab_site.world.base / "running"
    write = "; ".join(
        " ".join(map(str, lab_site.on(node, "sh", "-c", f"'echo {node} >{results}/{node}'")))
        for node in ["n1", "n2"]
    )
    options = (*option, "--manifest", manifest, "--", "sh", "-c", f"{write}; {HOLD}", mark)
    job = lab_site.start(*options)
    wait_until(mark.exists, "the command runs")
    host = lab_site.lab.exec("n2", "readlink", "/proc/self/ns/uts").stdout.strip()
    (victim,) = [pid for pid in lab_site.agents() if os.readlink(f"/proc/{pid}/ns/uts") == host]
    kill(victim)
    job.wait_for("node-gone")
    mark.unlink()
    assert job.wait() == 75, job.text
    assert sorted(path.name for path in results.iterdir()) == ["n1"]
    assert "what programs wrote on 'n2'" in job.text
    assert "sends it" not in job.text
    # There is nothing that could be sent, and not all is at home.
    done = lab_site.world.run_lab(*lab_site.inside(["stage", "resume", manifest]), check=False)
    assert done.returncode == 75
    assert "'n2'" in done.stderr and "nothing is left" not in done.stdout
    # The file is where the line says.
    (left,) = lab_site.cache.glob("azekura-stage-*/1/tree/0/n2")
    assert left.read_text() == "n2\n"


@pytest.mark.root
def test_two_writers_of_a_name_are_told_apart(lab_site):
    results, option = lab_site.map("results", "out")
    write = "echo $(hostname) >{}/name; echo same >{}/$(hostname)".replace("{}", str(results))
    script = "; ".join(
        " ".join(map(str, lab_site.on(node, "sh", "-c", f"'{write}'"))) for node in ["n1", "n3"]
    )
    done = lab_site.run(*option, "--", "sh", "-c", script, check=False)
    assert done.returncode == 75, done.stderr
    assert "name" in done.stderr
    found = sorted(path.name for path in results.iterdir())
    assert found == ["n1", "n3", "name.n1", "name.n3"]
    assert (results / "name.n3").read_text() == "n3\n"
    # Another job does not replace what this one has kept.
    script = script.replace("echo $(hostname)", "echo again")
    again = lab_site.run(*option, "--", "sh", "-c", script, check=False)
    assert again.returncode == 75
    found = sorted(path.name for path in results.iterdir())
    assert found == ["n1", "n3", "name.n1", "name.n1.2", "name.n3", "name.n3.2"]
    assert (results / "name.n3").read_text() == "n3\n"
    assert (results / "name.n3.2").read_text() == "again\n"
