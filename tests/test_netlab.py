"""Labs of hosts and links: what they do to packets and processes, and that nothing stays of them."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from labs import PAIR, Lab
from pools import LAB, alive, kill_hard, wait_until

pytestmark = pytest.mark.root

# Answers every datagram; says on standard output that it listens.
ECHO = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("0.0.0.0", 9))
print("ready", flush=True)
while True:
    data, peer = s.recvfrom(100)
    s.sendto(data, peer)
"""

# Sends or receives bytes over TCP; the receiver prints their checksum.
RECEIVE = """
import hashlib, socket
listener = socket.create_server(("0.0.0.0", 9))
print("ready", flush=True)
peer, _ = listener.accept()
digest = hashlib.sha256()
while data := peer.recv(1 << 20):
    digest.update(data)
print(digest.hexdigest(), flush=True)
"""
SEND = """
import hashlib, random, socket, sys
data = random.Random(1).randbytes(int(sys.argv[2]))
socket.create_connection((sys.argv[1], 9)).sendall(data)
print(hashlib.sha256(data).hexdigest())
"""

# Leaves a process behind that nobody waits for.
BACKGROUND = """
import os, signal, sys
print("ready", flush=True)
if os.fork():
    sys.exit()
os.setsid()
signal.pause()
"""


@pytest.fixture
def lab(world):
    """Two hosts and a link between them."""
    return Lab(world, PAIR)


def network_name_spaces(pids):
    """The network name spaces that some processes are in, without the one of this test."""
    spaces = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            spaces.add(os.readlink(f"/proc/{pid}/ns/net"))
    return spaces - {os.readlink("/proc/self/ns/net")}


def name_spaces_in_use():
    """The network name spaces that processes of this machine are in."""
    return network_name_spaces(entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit())


def test_hosts_are_apart_and_know_each_other(lab):
    # A host has its own name, processes and network, and the machine's files.
    assert lab.exec("near", "hostname").stdout.strip() == "near"
    assert lab.exec("near", "cat", lab.file).stdout == PAIR
    assert "far" in lab.exec("near", "cat", "/etc/hosts").stdout
    assert "netlab" not in Path("/etc/hosts").read_text()
    assert socket.gethostname() != "near"
    interfaces = lab.exec("far", "cat", "/proc/net/dev").stdout
    assert "wan:" in interfaces
    assert "eth0" not in interfaces
    processes = [name for name in lab.exec("far", "ls", "/proc").stdout.split() if name.isdigit()]
    assert len(processes) <= 3
    assert lab.world.run_lab("netlab", "status").stdout.count("up") >= 4


def test_exec_gives_exit_codes_and_directories(lab):
    assert lab.exec("near", "sh", "-c", "exit 7", check=False).returncode == 7
    assert lab.exec("near", "sh", "-c", "kill -9 $$", check=False).returncode == 137
    missing = lab.exec("near", "no-such-program", check=False)
    assert missing.returncode == 127
    assert "no-such-program" in missing.stderr
    assert lab.exec("near", "pwd", cwd=lab.world.base).stdout.strip() == str(lab.world.base)
    unknown = lab.exec("nowhere", "true", check=False)
    assert unknown.returncode == 1
    assert "near, far" in unknown.stderr


def test_exec_that_is_killed_takes_its_command_along(lab):
    child = lab.start_python("near", "import os, time; print('ready', os.getpid()); time.sleep(600)")
    kill_hard(child.pid)
    count = "import os; print(sum(n.isdigit() for n in os.listdir('/proc')))"
    wait_until(lambda: int(lab.python("near", count).stdout) <= 2, "the command is gone")


def test_exec_works_from_within_a_host(lab):
    def from_near(*command, **more):
        return lab.exec("near", LAB, "netlab", "exec", "--lab", "lab", "far", "--", *command, **more)

    done = from_near(
        "sh",
        "-c",
        "hostname; pwd; cat; echo $WORD; exit 7",
        check=False,
        cwd=lab.world.base,
        input="told\n",
        stdin=None,
        env={**lab.world.environment, "WORD": "word"},
    )
    assert done.stdout.split() == ["far", str(lab.world.base), "told", "word"]
    assert done.returncode == 7
    assert from_near("sh", "-c", "kill -9 $$", check=False).returncode == 137
    missing = from_near("no-such-program", check=False)
    assert missing.returncode == 127
    assert "no-such-program" in missing.stderr
    unknown = lab.exec("near", LAB, "netlab", "exec", "nowhere", "--", "true", check=False)
    assert unknown.returncode == 1
    assert "near, far" in unknown.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_exec_from_within_a_host_takes_its_command_along(lab, number):
    sleeper = "import os, time; print('ready', flush=True); time.sleep(600)"
    lab.start_python(
        "near",
        "import subprocess, sys; subprocess.run(sys.argv[1:])",
        *(LAB, "netlab", "exec", "far", "--", sys.executable, "-c", sleeper),
    )
    inner = (entry for entry in Path("/proc").iterdir() if entry.name.isdigit())
    words = [str(LAB), "netlab", "exec", "far", "--"]
    pids = [int(entry.name) for entry in inner if starts_with(entry, words)]
    assert len(pids) == 1
    os.kill(pids[0], number)
    count = "import os; print(sum(n.isdigit() for n in os.listdir('/proc')))"
    wait_until(lambda: int(lab.python("far", count).stdout) <= 2, "the command is gone")


def starts_with(process, words):
    """Whether a process was started with these words in front."""
    with contextlib.suppress(OSError):
        return (process / "cmdline").read_text().split("\0")[: len(words)] == words
    return False


def test_links_have_the_delay_that_is_set(lab):
    lab.start_python("far", ECHO)
    assert lab.ask()[0] == 5
    for delay_ms in (20, 150):
        lab.tell("set", "wan", f"delay={delay_ms}ms")
        came, fastest = lab.ask()
        assert came == 5
        # Never faster; how much slower the machine's other work decides.
        assert 2 * delay_ms - 0.5 <= fastest < 2 * delay_ms + 100
    lab.tell("set", "wan", "from=near", "delay=0")
    assert 149 <= lab.ask()[1] < 250
    assert lab.direction(0)["delay_us"] == 0
    assert lab.direction(1)["delay_us"] == 150_000


def test_links_lose_what_they_shall(lab):
    lab.start_python("far", ECHO)
    lab.tell("set", "wan", "loss=100%", "from=far")
    assert lab.ask(limit_s=0.1)[0] == 0
    assert lab.direction(1)["lost"] >= 5
    lab.tell("set", "wan", "loss=0")
    assert lab.ask()[0] == 5


@pytest.mark.parametrize(
    "changes",
    [
        [],
        ["delay=5ms", "loss=1%"],
        ["delay=2ms", "jitter=1ms", "reorder=2%", "rate=200mbit"],
        ["rate=100mbit", "queue=50"],
    ],
    ids=["bare", "loss", "reorder", "short queue"],
)
def test_bytes_arrive_whole_whatever_the_link_does(lab, changes):
    if changes:
        lab.tell("set", "wan", *changes)
    receiver = lab.start_python("far", RECEIVE)
    sent = lab.python("near", SEND, "far", str(12_000_000)).stdout.strip()
    assert receiver.wait(30) == 0
    assert receiver.log.read_text().split()[-1] == sent
    counters = lab.direction(0)
    assert counters["packets"] > 8000
    if "loss=1%" in changes:
        assert counters["lost"] > 0
    if "reorder=2%" in changes:
        assert counters["reordered"] > 0


def test_a_slow_link_is_slow(lab):
    lab.tell("set", "wan", "rate=20mbit")
    receiver = lab.start_python("far", RECEIVE)
    started = time.monotonic()
    lab.python("near", SEND, "far", "5000000")
    assert receiver.wait(60) == 0
    assert time.monotonic() - started > 5_000_000 * 8 / 20e6


def test_a_link_goes_down_and_comes_back(lab):
    lab.start_python("far", ECHO)
    lab.tell("set", "wan", "down")
    assert lab.ask(limit_s=0.1)[0] == 0
    assert not lab.direction()["up"]
    lab.tell("set", "wan", "up")
    assert lab.ask()[0] == 5


def test_a_host_can_be_cut_off(lab):
    lab.start_python("far", ECHO)
    lab.tell("cut", "far")
    assert lab.ask(limit_s=0.1)[0] == 0
    assert lab.status()["hosts"][1]["state"] == "cut"
    # Itself it still reaches.
    assert lab.ask(host="far")[0] == 5
    lab.tell("mend", "far")
    assert lab.ask()[0] == 5


def test_a_host_can_be_frozen_and_killed(lab):
    server = lab.start_python("far", ECHO)
    lab.tell("freeze", "far")
    assert lab.ask(limit_s=0.1)[0] == 0
    assert lab.status()["hosts"][1]["state"] == "frozen"
    refused = lab.exec("far", "true", check=False)
    assert refused.returncode == 1
    assert "thaw" in refused.stderr
    lab.tell("thaw", "far")
    assert lab.ask()[0] == 5
    lab.tell("kill", "far")
    assert server.wait(10) == 128 + signal.SIGKILL
    assert lab.ask(limit_s=0.1)[0] == 0
    # The host is there again at once, with its links.
    lab.start_python("far", ECHO)
    assert lab.ask()[0] == 5


def test_hosts_in_between_pass_packets_on(world):
    text = """
    hosts = ["a", "b", "c", "d"]
    links = [
      { between = ["a", "b"], delay = "5ms" },
      { between = ["b", "c"], delay = "5ms", mtu = 1400 },
      { between = ["c", "d"], delay = "5ms" },
    ]
    """
    lab = Lab(world, text)
    lab.start_python("d", ECHO)
    came, fastest = lab.ask(to="d", host="a")
    assert came == 5
    assert fastest >= 29.5
    receiver = lab.start_python("c", RECEIVE)
    sent = lab.python("a", SEND, "c", "3000000").stdout.strip()
    assert receiver.wait(30) == 0
    assert receiver.log.read_text().split()[-1] == sent
    world.run_lab("netlab", "down")


def test_down_removes_everything(world):
    lab = Lab(world, PAIR)
    server = lab.start_python("far", ECHO)
    spaces = network_name_spaces(world.processes())
    assert len(spaces) == 2
    lab.start_python("near", BACKGROUND)
    relay = lab.status()["pid"]
    world.run_lab("netlab", "down", "lab")
    assert not alive(relay)
    assert server.wait(10) != 0
    wait_until(lambda: not list(world.processes()), "every process is gone")
    wait_until(lambda: not spaces & name_spaces_in_use(), "every name space is gone")
    gone = world.run_lab("netlab", "status", "--lab", "lab", check=False)
    assert gone.returncode == 1
    assert "netlab up" in gone.stderr


@pytest.mark.parametrize("foreground", [False, True], ids=["background", "foreground"])
def test_a_relay_that_is_killed_leaves_nothing(world, foreground):
    if foreground:
        file = world.base / "lab.toml"
        file.write_text(PAIR)
        child = world.start("netlab", "up", file, "--foreground", program=LAB)
        wait_until(lambda: "is up" in child.log.read_text(), "the lab is up")
        relay = child.pid
    else:
        lab = Lab(world, PAIR)
        relay = lab.status()["pid"]
    python = (sys.executable, "-c", BACKGROUND)
    background = world.start("netlab", "exec", "far", "--", *python, program=LAB)
    assert background.wait(20) == 0
    spaces = network_name_spaces(world.processes())
    assert len(spaces) == 2
    kill_hard(relay)
    wait_until(lambda: not list(world.processes()), "every process is gone")
    wait_until(lambda: not spaces & name_spaces_in_use(), "every name space is gone")
    # Its socket goes with its last thread.
    wait_until(lambda: "no lab" in world.run_lab("netlab", "status", check=False).stdout, "no lab")
    # The name is free again.
    Lab(world, PAIR)
    world.run_lab("netlab", "down")


def test_a_signal_ends_a_lab_in_the_foreground(world):
    file = world.base / "lab.toml"
    file.write_text(PAIR)
    child = world.start("netlab", "up", file, "--foreground", program=LAB)
    wait_until(lambda: "is up" in child.log.read_text(), "the lab is up")
    child.terminate()
    assert child.wait(20) == 0
    wait_until(lambda: not list(world.processes()), "every process is gone")


def test_two_labs_do_not_know_of_each_other(world):
    one, other = Lab(world, PAIR, "one"), Lab(world, PAIR, "other")
    other.start_python("far", ECHO)
    assert one.ask(limit_s=0.1)[0] == 0
    assert other.ask()[0] == 5
    unclear = world.run_lab("netlab", "exec", "near", "--", "true", check=False)
    assert unclear.returncode == 2
    assert "one, other" in unclear.stderr
    taken = world.run_lab("netlab", "up", one.file, check=False)
    assert taken.returncode == 1
    assert "runs already" in taken.stderr
    world.run_lab("netlab", "down", "one")
    assert other.ask()[0] == 5
    world.run_lab("netlab", "down")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hosts = ['a'", "TOML"),
        ("hosts = ['a']\nlinks = [{ between = ['a', 'b'] }]", "no host 'b'"),
        ("hosts = ['a', 'b']\nlinks = [{ between = ['a', 'b'], delay = '5' }]", "50ms"),
        ("hosts = ['a', 'b']\nlinks = [{ between = ['a', 'b'], latency = '5ms' }]", "latency"),
    ],
    ids=["no TOML", "unknown host", "no unit", "unknown key"],
)
def test_a_file_with_a_mistake_makes_nothing(world, text, says):
    file = world.base / "wrong.toml"
    file.write_text(text)
    done = world.run_lab("netlab", "up", file, check=False)
    assert done.returncode == 2
    assert says in done.stderr
    assert "wrong.toml" in done.stderr
    assert world.json("netlab", "status", program=LAB) == []


def test_changes_with_mistakes_are_refused(lab):
    for words in (["delay=5"], ["speed=1gbit"], ["sideways"], []):
        done = lab.tell("set", "wan", *words, check=False)
        assert done.returncode == 2, words
    nowhere = lab.tell("set", "lan", "delay=1ms", check=False)
    assert nowhere.returncode == 1
    assert "wan" in nowhere.stderr


def test_settings_of_the_kernel_are_per_host(world):
    text = PAIR + '[tcp]\nbuffer = "8MiB"\n[sysctl]\n"net.ipv4.tcp_sack" = "0"\n'
    before = Path("/proc/sys/net/ipv4/tcp_rmem").read_text()
    lab = Lab(world, text)
    assert lab.exec("near", "cat", "/proc/sys/net/ipv4/tcp_rmem").stdout.split()[2] == str(8 << 20)
    assert lab.exec("near", "cat", "/proc/sys/net/ipv4/tcp_sack").stdout.strip() == "0"
    assert Path("/proc/sys/net/ipv4/tcp_rmem").read_text() == before
    world.run_lab("netlab", "down")


def test_without_root_the_message_is_clear(world):
    file = world.base / "lab.toml"
    file.write_text(PAIR)
    for directory in ("base", "storage"):
        os.chmod(getattr(world, directory), 0o755)
    # A copy, because the binary may lie where others cannot look.
    binary = world.base / "azekura-lab"
    binary.write_bytes(LAB.read_bytes())
    binary.chmod(0o755)
    environment = dict(world.environment, HOME=str(world.base / "nobody"))
    (world.base / "nobody").mkdir()
    os.chown(world.base / "nobody", 65534, 65534)
    for variable in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        environment[variable] = str(world.base / "nobody")
    done = subprocess.run(
        [binary, "netlab", "up", file],
        env=environment,
        user=65534,
        group=65534,
        extra_groups=[],
        cwd="/",
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert "root" in done.stderr
    assert "sudo" in done.stderr


def test_status_is_for_programs_too(lab):
    status = lab.status()
    assert [host["name"] for host in status["hosts"]] == ["near", "far"]
    assert {link["name"] for link in status["links"]} == {"wan"}
    assert status["relay_cpu_s"] >= 0
    assert json.dumps(status)
