"""An engine and its peers: strangers, broken ones, many at once, and orders to stop."""

import contextlib
import json
import os
import re
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.request

import pytest
from pools import alive, free_ports, kill_hard, wait_until
from protocol import (
    CALLER_SIDE,
    PING,
    VERSION,
    Closed,
    Reach,
    early_words,
    enter,
    frame,
    hello,
    is_closed,
    ping,
    prove,
    request,
    shake_hands,
    sign,
    take_frame,
    varint,
)

OK, ERROR = 0, 1


@pytest.fixture(scope="module")
def reach(module_world, pool):
    return Reach(module_world, pool.name)


@pytest.fixture
def still_serves(module_world, pool, reach):
    """After the test the same engine process serves as before."""
    pids = pool.pids()
    yield
    assert pool.pids() == pids
    assert ping(enter(reach))


def log_lines(world):
    """What the engine complains about."""
    return [line for line in world.log_text().splitlines() if " WARN " in line or " ERROR " in line]


@contextlib.contextmanager
def complaints(world, count):
    """The engine says so often that it has refused somebody, before anybody else looks."""
    before = len(log_lines(world))
    yield
    wait_until(lambda: len(log_lines(world)) >= before + count, "lines in the log")
    assert len(log_lines(world)) == before + count


def test_a_stranger_that_speaks_the_protocol_gets_in(reach):
    """The protocol as it is written down, in another language."""
    plug = enter(reach)
    for _ in range(3):
        assert ping(plug, reach.map_version)
    plug.sendall(request(0) * 50)
    for _ in range(50):
        assert take_frame(plug) == (b"\0\0", b"")


def test_a_wrong_secret_is_refused(module_world, reach, still_serves):
    plug = reach.dial()
    before = len(log_lines(module_world))
    body = shake_hands(plug, reach, secret=os.urandom(32))
    assert body[0] == ERROR
    assert is_closed(plug)
    wait_until(lambda: len(log_lines(module_world)) > before, "a line in the log")
    time.sleep(0.2)
    assert len(log_lines(module_world)) == before + 1


def test_a_secret_is_never_sent(module_world, reach):
    """Nothing that an engine says holds the secret, raw or in hexadecimal."""
    plug = reach.dial()
    said = b""
    plug.sendall(frame(hello(reach.pool, os.urandom(16), os.urandom(32))))
    body, _ = take_frame(plug)
    said += body
    assert reach.secret not in said
    assert reach.secret.hex().encode() not in said


def test_the_same_proof_does_not_work_twice(reach, still_serves):
    """A recorded handshake that is played again is refused: the engine draws anew."""
    sent = []
    plug = reach.dial()

    class Recorder:
        recv = plug.recv

        def sendall(self, data):
            sent.append(data)
            plug.sendall(data)

    assert shake_hands(Recorder(), reach)[0] == OK
    again = reach.dial()
    again.sendall(sent[0])
    take_frame(again)
    again.sendall(sent[1])
    body, _ = take_frame(again)
    assert body[0] == ERROR


def ticket_of(reach):
    plug, session, nonce = reach.dial(), os.urandom(16), os.urandom(32)
    plug.sendall(frame(hello(reach.pool, session, nonce)))
    ticket = prove(plug, reach, session, nonce)
    assert take_frame(plug)[0][0] == OK
    return ticket


def test_a_request_may_go_out_with_the_hello_by_a_ticket(reach, still_serves):
    """Welcome and answer are there before the proof, and the connection serves on behind it."""
    ticket = ticket_of(reach)
    plug, session, nonce = reach.dial(), os.urandom(16), os.urandom(32)
    plug.sendall(early_words(reach, ticket, request(PING), session, nonce))
    plug.settimeout(2)
    # Nothing is said in between: the challenge, the welcome and the answer come by themselves.
    challenge, _ = take_frame(plug)
    assert challenge[0] == OK
    assert take_frame(plug)[0][0] == OK
    assert take_frame(plug) == (b"\0\0", b"")
    words = (reach.pool, session, "client", nonce, challenge[1:33])
    plug.sendall(frame(sign(reach.secret, CALLER_SIDE, *words)))
    assert ping(plug, reach.map_version)


def test_an_early_request_counts_once_and_for_what_it_asks(module_world, reach, still_serves):
    ticket = ticket_of(reach)
    session, nonce = os.urandom(16), os.urandom(32)
    said = early_words(reach, ticket, request(PING), session, nonce)
    foreign = early_words(reach, ticket, request(PING), session, nonce, secret=os.urandom(32))
    stale = early_words(reach, os.urandom(32), request(PING), session, nonce)
    other = said[:-1] + bytes([said[-1] ^ 1])
    with complaints(module_world, 5), contextlib.closing(reach.dial()) as first:
        first.sendall(said)
        assert [take_frame(first)[0][0] for _ in range(3)] == [OK] * 3
        for overheard in (said, foreign, stale, other):
            with contextlib.closing(reach.dial(1)) as plug:
                plug.sendall(overheard)
                assert take_frame(plug)[0][0] == OK
                # The challenge is all that it gets.
                with pytest.raises(TimeoutError):
                    take_frame(plug)
        # Without a proof the first one gets nothing further either.
        first.sendall(request(PING))
        assert is_closed(first)


def test_an_early_request_that_changes_something_is_not_carried_out(module_world, reach, still_serves):
    ticket = ticket_of(reach)
    session, nonce = os.urandom(16), os.urandom(32)
    with complaints(module_world, 1), contextlib.closing(reach.dial()) as plug:
        # `Goodbye` ends the session.
        plug.sendall(early_words(reach, ticket, request(1), session, nonce))
        assert [take_frame(plug)[0][0] for _ in range(2)] == [OK] * 2
        assert is_closed(plug)


def test_a_caller_whose_ticket_is_old_is_challenged_and_its_request_kept(reach, still_serves):
    plug, session, nonce = reach.dial(), os.urandom(16), os.urandom(32)
    plug.sendall(early_words(reach, os.urandom(32), request(PING), session, nonce))
    prove(plug, reach, session, nonce)
    assert take_frame(plug)[0][0] == OK
    assert take_frame(plug) == (b"\0\0", b"")
    assert ping(plug, reach.map_version)


def test_an_unknown_version_and_another_pool_are_told(reach, still_serves):
    plug = reach.dial()
    plug.sendall(frame(hello(reach.pool, os.urandom(16), os.urandom(32), version=VERSION + 1)))
    body, _ = take_frame(plug)
    assert body == bytes([ERROR, 0]) + varint(VERSION)
    assert is_closed(plug)
    plug = reach.dial()
    plug.sendall(frame(hello(os.urandom(16), os.urandom(16), os.urandom(32))))
    body, _ = take_frame(plug)
    assert body == bytes([ERROR, 1])
    assert is_closed(plug)


GARBAGE = {
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "zeros": bytes(64),
    "ones": b"\xff" * 64,
    "body too long": struct.pack("<II", 1 << 31, 0) + b"x",
    "bulk too long": struct.pack("<II", 10, 1 << 31) + b"x" * 10,
    "empty body": frame(b""),
    "wrong magic": frame(hello(bytes(16), bytes(16), bytes(32), magic=b"NOTTHIS\n")),
    "more than a hello": struct.pack("<II", 1000, 0),
    "bulk behind a hello": struct.pack("<II", 100, 1),
    "cut hello": frame(hello(bytes(16), bytes(16), bytes(32))[:40]),
    "endless number": frame(b"AZEKURA\n" + b"\xff" * 30),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_before_the_handshake(module_world, reach, still_serves, name):
    plug = reach.dial()
    before = len(log_lines(module_world))
    plug.sendall(GARBAGE[name])
    # An engine that has reset the connection already is as good.
    with contextlib.suppress(OSError):
        plug.shutdown(socket.SHUT_WR)
    assert is_closed(plug)
    wait_until(lambda: len(log_lines(module_world)) > before, "a line in the log")
    time.sleep(0.2)
    assert len(log_lines(module_world)) == before + 1, "one line, and not more"


HEAD = b"\0\1\0\0\0\0"
BROKEN = {
    "unknown request": frame(HEAD + varint(9999)),
    "no head": frame(b""),
    "half a head": frame(b"\0\1"),
    "name longer than the body": frame(HEAD + varint(13) + bytes(2) + varint(1 << 40)),
    "number without an end": frame(HEAD + b"\xff" * 12),
    "random": frame(os.urandom(200)),
    "body too long": struct.pack("<II", 600 * 1024, 0),
    "bulk too long": struct.pack("<II", 7, 5 << 20) + HEAD + b"\0",
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_frames_after_the_handshake(module_world, reach, still_serves, name):
    plug = enter(reach)
    before = len(log_lines(module_world))
    plug.sendall(BROKEN[name])
    try:
        body, _ = take_frame(plug)
    except (Closed, ConnectionError):
        wait_until(lambda: len(log_lines(module_world)) > before, "a line in the log")
        time.sleep(0.2)
        assert len(log_lines(module_world)) == before + 1
    else:
        # Refused as a request: then the connection goes on.
        assert body[0] == ERROR


def test_bulk_data_that_nobody_asked_for(reach, still_serves):
    plug = enter(reach)
    plug.sendall(frame(HEAD + b"\0", b"x" * 100_000))
    try:
        take_frame(plug)
        assert ping(plug)
    except (Closed, ConnectionError):
        pass


def test_targets_and_maps_that_are_not_there(reach, still_serves):
    plug = enter(reach)
    plug.sendall(request(6, target=999))
    body, _ = take_frame(plug)
    assert body[0] == ERROR
    plug.sendall(request(0, target=999))
    take_frame(plug)
    plug.sendall(request(6, target=0, map_version=77))
    take_frame(plug)
    assert ping(plug)


def test_a_frame_that_never_ends_holds_nobody_up(reach, still_serves):
    """Half-open peers: some stop in the middle of the handshake, some in the middle of a frame."""
    stuck = []
    for _ in range(50):
        plug = reach.dial()
        plug.sendall(frame(hello(reach.pool, os.urandom(16), os.urandom(32)))[:30])
        stuck.append(plug)
        plug = enter(reach)
        plug.sendall(struct.pack("<II", 1000, 0) + b"part")
        stuck.append(plug)
    started = time.monotonic()
    plug = enter(reach)
    for _ in range(100):
        assert ping(plug)
    assert time.monotonic() - started < 10
    # Those in the handshake are cut off after its time.
    stuck[0].settimeout(15)
    assert is_closed(stuck[0])
    for each in stuck:
        each.close()


@pytest.mark.limit(120)
def test_strangers_that_trickle_cost_a_bounded_number_of_threads(reach, pool, still_serves):
    """Callers that send a byte now and then and never prove who they are: as many threads as may be
    in the handshake, no longer than the handshake may take; whoever comes behind them gets in."""
    threads_max, handshake_s = 512, 5
    # Asked before they come: whoever comes behind them waits for its turn.
    tasks = f"/proc/{pool.pids()[0]}/task"
    plugs = []
    for _ in range(threads_max + 100):
        plug = reach.dial()
        plug.sendall(struct.pack("<II", 100, 0))
        plugs.append(plug)
    started = time.monotonic()
    most = 0
    came_in = None
    while time.monotonic() - started < 4 * handshake_s and came_in is None:
        for plug in plugs:
            with contextlib.suppress(OSError):
                plug.send(b"x")
        most = max(most, len(os.listdir(tasks)))
        if time.monotonic() - started > 2:
            came_in = enter(reach)
        time.sleep(0.5)
    assert came_in is not None and ping(came_in)
    assert threads_max / 2 < most < threads_max + 100
    wait_until(lambda: all(map(is_closed_now, plugs[:threads_max])), "they are cut off", limit_s=20)
    for plug in plugs:
        plug.close()


def is_closed_now(plug):
    plug.settimeout(0.01)
    try:
        return plug.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_a_peer_that_reads_nothing_holds_nobody_up(reach, still_serves):
    """Requests without end whose replies nobody takes: the engine waits for that peer alone."""
    plug = enter(reach)
    plug.settimeout(0.5)
    page = request(3, target=0) * 1000
    sent = 0
    try:
        while sent < 64 << 20:
            sent += plug.send(page)
    except TimeoutError:
        pass
    other = enter(reach)
    for _ in range(100):
        assert ping(other)
    plug.close()


def test_connections_that_come_and_go(reach, still_serves):
    for _ in range(300):
        plug = reach.dial()
        plug.close()
    for _ in range(100):
        enter(reach).close()


@pytest.mark.limit(240)
def test_many_connections(world):
    """2,000 that wait and 256 that work, in one engine."""
    pool = world.pool(memory=True)
    reach = Reach(world, pool.name)
    idle = [enter(reach) for _ in range(2000)]
    busy = [enter(reach) for _ in range(256)]
    assert pool.status()["engines"][0]["connections"] >= 2256
    selector = selectors.DefaultSelector()
    rounds = 40
    left = {}
    for plug in busy:
        left[plug] = rounds
        plug.sendall(request(0))
        selector.register(plug, selectors.EVENT_READ)
    while left:
        ready = selector.select(timeout=30)
        assert ready, "no answer for 30 s"
        for key, _ in ready:
            plug = key.fileobj
            assert take_frame(plug) == (b"\0\0", b"")
            left[plug] -= 1
            if left[plug]:
                plug.sendall(request(0))
            else:
                selector.unregister(plug)
                del left[plug]
    for plug in (idle[0], idle[999], idle[1999]):
        assert ping(plug)
    for plug in idle + busy:
        plug.close()
    wait_until(
        lambda: pool.status()["engines"][0]["connections"] < 10, "connections are gone", limit_s=30
    )
    assert ping(enter(reach))


@pytest.mark.limit(120)
def test_more_connections_than_are_served(world):
    """Beyond the limit callers are told that there is no room, and it is not for ever."""
    pool = world.pool(memory=True)
    reach = Reach(world, pool.name)
    plugs, refused = [], 0
    for _ in range(4096 + 20):
        plug = reach.dial()
        try:
            verdict = shake_hands(plug, reach)
        except (Closed, ConnectionError):
            refused += 1
            continue
        refused += verdict[0] == ERROR
        plugs.append(plug)
    assert refused >= 10
    for plug in plugs:
        plug.close()
    wait_until(lambda: world.run("status", pool.name, check=False).returncode == 0, "room again")
    time.sleep(0.5)
    assert ping(enter(reach))


# In a process of its own: a file of the mount that is open when another process is started here is
# closed by that one, which waits for the very engine that is to be started.
WRITERS = """
import json, pathlib, sys, threading
done, failed, stop = [], [], threading.Event()

def work(number):
    count = 0
    while not stop.is_set():
        try:
            pathlib.Path(sys.argv[1], f"w{number}-{count}").write_bytes(b"x" * 10_000)
        except OSError as error:
            failed.append(str(error))
            return
        done.append((number, count))
        count += 1

threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
sys.stdin.readline()
stop.set()
for thread in threads:
    thread.join(60)
print(json.dumps([done, failed]))
"""


def test_sigterm_drains(world):
    """What is under way is answered, then the engine ends by itself with exit code 0."""
    engines = world.engines(1, targets=2)
    mount = engines.pool.mount()
    with subprocess.Popen(
        [sys.executable, "-c", WRITERS, os.fspath(mount)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as writers:
        time.sleep(0.7)
        assert engines.stop(0) == 0, engines.children[0].log.read_text()
        engines.start(0)
        time.sleep(0.5)
        output, _ = writers.communicate("\n", timeout=90)
    done, failed = json.loads(output)
    assert not failed, "the clients waited for the engine and went on"
    assert len(done) > 20
    for number, count in done:
        assert (mount / f"w{number}-{count}").stat().st_size == 10_000
    engines.pool.check()


def test_down_and_up_keep_everything(world):
    pool = world.pool()
    mount = pool.mount()
    subprocess.run(["cp", "-a", "/usr/share/perl5", mount / "tree"], check=True)
    pids = pool.pids()
    pool.down()
    assert not any(alive(pid) for pid in pids)
    pool.up()
    subprocess.run(["diff", "-r", "--no-dereference", "/usr/share/perl5", mount / "tree"], check=True)
    pool.check()


def test_up_of_a_running_pool_changes_nothing(world):
    pool = world.pool()
    pids = pool.pids()
    pool.up()
    assert pool.pids() == pids


def test_a_second_engine_keeps_out_of_a_directory_in_use(world):
    engines = world.engines(1, targets=1)
    other = world.start(
        "serve", "--dir", engines.directories[0], "--listen", f"127.0.0.1:{free_ports(1)[0]}"
    )
    assert other.wait(30) == 1
    assert str(engines.directories[0]) in other.log.read_text()
    engines.pool.check()


def test_an_engine_keeps_its_files_to_itself(world):
    """Whatever the umask is that it was started with."""
    before = os.umask(0)
    try:
        engines = world.engines(1, targets=2)
    finally:
        os.umask(before)
    mount = engines.pool.mount()
    (mount / "file").write_bytes(b"x" * (3 << 20))
    (mount / "file").chmod(0o666)
    seen = []
    for top, directories, files in os.walk(engines.directories[0]):
        for name in [*directories, *files]:
            path = os.path.join(top, name)
            seen.append(path)
            assert os.lstat(path).st_mode & 0o077 == 0, path
    assert len(seen) > 20


def test_metrics(world):
    port, listen = free_ports(2)
    child = world.start(
        *("serve", "--dir", world.storage / "engine", "--targets", 1),
        *("--listen", f"127.0.0.1:{listen}", "--metrics", f"127.0.0.1:{port}"),
    )

    def fetch():
        assert child.poll() is None, child.log.read_text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
                return page.read().decode()
        except OSError:
            return None

    text = wait_until(fetch, "metrics are served")
    names = {line.split("{")[0].split()[0] for line in text.splitlines() if line[:1] not in "#"}
    assert names
    for name in names:
        assert name.startswith("azekura_"), name
        family = re.sub("_(bucket|sum|count)$", "", name)
        assert f"# TYPE {family}" in text or f"# TYPE {name}" in text, name
    child.send_signal(signal.SIGTERM)
    assert child.wait(30) == 0


@pytest.mark.limit(240)
def test_an_engine_that_cannot_be_reached(world):
    """A bounded wait, EIO, a log line that names the engine, and no help needed afterwards."""
    engines = world.engines(3, targets=2)
    mount = engines.pool.mount(cache="none")
    data = os.urandom(9 << 20)
    (mount / "file").write_bytes(data)
    names = [f"f{number}" for number in range(30)]
    for name in names:
        (mount / name).write_text(name)
    engines.kill(1)
    started = time.monotonic()
    with pytest.raises(OSError) as caught:
        (mount / "file").read_bytes()
    waited_s = time.monotonic() - started
    assert caught.value.errno == 5
    assert waited_s < 90
    assert str(engines.ports[1]) in world.log_text()
    status = world.run("status", engines.name, "--json", check=False)
    assert status.returncode == 1
    assert '"down"' in status.stdout
    engines.start(1)
    wait_until(lambda: readable(mount / "file"), "the client goes on by itself", limit_s=30)
    assert (mount / "file").read_bytes() == data
    for name in names:
        assert (mount / name).read_text() == name
    (mount / "new").write_text("works")
    engines.pool.check()


def readable(path):
    try:
        path.read_bytes()
    except OSError:
        return False
    return True


def test_objects_spread_over_all_targets_of_all_engines(world):
    engines = world.engines(3, targets=2)
    status = engines.pool.status()
    assert status["targets"] == 6
    assert [engine["state"] for engine in status["engines"]] == ["up"] * 3
    mount = engines.pool.mount()
    (mount / "wide").write_bytes(os.urandom(24 << 20))
    for number in range(300):
        (mount / f"f{number}").write_text("x")
    for engine in engines.pool.status()["engines"]:
        assert len(engine["targets"]) == 2
        for target in engine["targets"]:
            assert target["objects"] > 20, status
            used = subprocess.check_output(["du", "-sm", f"{target['path']}/data"], text=True)
            assert int(used.split()[0]) >= 3
    engines.pool.check()


def test_a_killed_session_gives_back_what_it_held(world):
    """Locks and unlinked files of a client that was killed are free after its lease."""
    pool = world.pool(memory=True)
    one, other = pool.mount(), pool.mount()
    (one / "lock").touch()
    holder = subprocess.Popen(
        ["flock", one / "lock", "sleep", "1000"], stdin=subprocess.DEVNULL, start_new_session=True
    )
    wait_until(
        lambda: subprocess.run(["flock", "-n", other / "lock", "true"], check=False).returncode,
        "the lock is held",
    )
    kill_hard(one.pid())
    os.killpg(holder.pid, signal.SIGKILL)
    holder.wait()
    done = subprocess.run(["flock", "-w", "50", other / "lock", "true"], check=False, timeout=60)
    assert done.returncode == 0
