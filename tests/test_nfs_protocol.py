"""The NFS gateway and what no well-behaved client sends: wrong versions, bad credentials, fragments,
calls sent again, forged handles, and clients that do not read."""

import contextlib
import random
import resource
import select
import socket
import time

import nfs_protocol as p
import pytest
from gateways import OPEN, Gateway, export

MANY_IDLE = 10_000


@pytest.fixture(scope="module")
def gateway(module_world, pool):
    # A gateway takes as many connections as it may have files open; it inherits that from here.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield Gateway(module_world, pool, exports=OPEN)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def share(gateway):
    with gateway.share() as share:
        yield share


@pytest.fixture
def place(share, request):
    """The handle of a fresh directory."""
    name = "".join(c if c.isalnum() else "_" for c in request.node.name)
    status, handle = share.mkdir(share.root(), name)
    assert status == p.OK
    return handle


def still_serves(gateway):
    with gateway.share() as other:
        assert other.getattr(other.root())[0] == p.OK


# --- The RPC layer ------------------------------------------------------------------------------


@pytest.mark.parametrize("program", [p.NFS, p.MOUNT, p.NLM])
def test_null_needs_no_credential(share, program):
    assert share.ask(program, 0, auth=(p.AUTH_NONE, b"")).head == (p.ACCEPTED, p.SUCCESS)


def test_the_mount_port_serves_what_a_client_asks_there(gateway):
    with p.Share((gateway.host, gateway.mount_port)) as share:
        assert share.mount("/")[0] == p.OK


@pytest.mark.parametrize("version", [0, 1, 3, 4, 2**32 - 1])
def test_another_version_of_rpc(share, version):
    wrong = share.message(p.NFS, p.NULL, rpc_version=version)
    assert share.exchange(wrong).head == (p.DENIED, p.RPC_MISMATCH, 2, 2)
    assert share.ask(p.NFS, p.NULL).head == (p.ACCEPTED, p.SUCCESS)


@pytest.mark.parametrize("number", [100001, 100227, 0, 2**32 - 1])
def test_another_program(share, number):
    assert share.ask((number, 3), 0).head == (p.ACCEPTED, p.PROG_UNAVAIL)


@pytest.mark.parametrize(
    ("program", "versions", "only"),
    [(p.NFS, (2, 4, 0), 3), (p.MOUNT, (1, 2, 4), 3), (p.NLM, (1, 3, 5), 4)],
)
def test_another_version_of_a_program(share, program, versions, only):
    for version in versions:
        answer = share.ask((program[0], version), 0)
        assert answer.head == (p.ACCEPTED, p.PROG_MISMATCH, only, only)


@pytest.mark.parametrize(("program", "procedure"), [(p.NFS, 22), (p.MOUNT, 6), (p.NLM, 24)])
def test_an_unknown_procedure(share, program, procedure):
    for number in (procedure, 2**32 - 1):
        assert share.ask(program, number).head == (p.ACCEPTED, p.PROC_UNAVAIL)


def garbage():
    """Arguments that cannot be decoded: (name, program, procedure, arguments)."""
    handle = p.opaque(bytes(32))
    for procedure in range(1, 22):
        yield f"nfs-{procedure}-empty", p.NFS, procedure, b""
        yield f"nfs-{procedure}-short", p.NFS, procedure, handle[:-3]
    yield "handle-of-65", p.NFS, p.GETATTR, p.opaque(bytes(65))
    yield "handle-of-4-gib", p.NFS, p.GETATTR, p.u32(2**32 - 1) + bytes(64)
    yield "name-beyond-the-end", p.NFS, p.LOOKUP, handle + p.u32(1000) + b"name"
    yield "write-beyond-the-end", p.NFS, p.WRITE, handle + p.u64(0) + p.u32(8, 0, 8) + b"1234"
    yield "stable-of-3", p.NFS, p.WRITE, handle + p.u64(0) + p.u32(4, 3) + p.opaque(b"1234")
    yield "create-how-3", p.NFS, p.CREATE, p.in_dir(bytes(32), "name") + p.u32(3)
    yield "time-how-3", p.NFS, p.SETATTR, handle + p.u32(0, 0, 0, 0, 3, 0) + p.u32(0)
    yield "mount-empty", p.MOUNT, p.MNT, b""
    yield "mount-path-of-4-gib", p.MOUNT, p.MNT, p.u32(2**32 - 1)
    yield "lock-empty", p.NLM, p.NLM_LOCK, b""


@pytest.mark.parametrize("case", garbage(), ids=lambda case: case[0])
def test_arguments_that_mean_nothing(share, case):
    _, program, procedure, arguments = case
    assert share.ask(program, procedure, arguments).head == (p.ACCEPTED, p.GARBAGE_ARGS)
    assert share.ask(p.NFS, p.NULL).head == (p.ACCEPTED, p.SUCCESS)


BAD_CREDENTIALS = {
    "17 groups": (p.AUTH_SYS, p.sys_body(groups=range(17))),
    "too long": (p.AUTH_SYS, p.sys_body() + bytes(400)),
    "longer than a message": (p.AUTH_SYS, bytes(100_000)),
    "empty": (p.AUTH_SYS, b""),
    "truncated": (p.AUTH_SYS, p.sys_body()[:-4]),
    "fewer groups than said": (p.AUTH_SYS, p.sys_body(groups=[1, 2], count=3)),
    "groups without end": (p.AUTH_SYS, p.sys_body(count=2**32 - 1)),
    "a long machine name": (p.AUTH_SYS, p.sys_body(machine="m" * 300)),
}


@pytest.mark.parametrize("name", BAD_CREDENTIALS)
def test_bad_credentials(share, name):
    root = share.root()
    answer = share.ask(p.NFS, p.GETATTR, p.opaque(root), auth=BAD_CREDENTIALS[name])
    assert answer.head == (p.DENIED, p.AUTH_BADCRED)
    assert share.getattr(root)[0] == p.OK


@pytest.mark.parametrize("flavour", [2, 3, 4, 6, 390003, 2**32 - 1])
def test_flavours_that_nobody_knows(share, flavour):
    root = share.root()
    answer = share.ask(p.NFS, p.GETATTR, p.opaque(root), auth=(flavour, b"whatever"))
    assert answer.kind == p.DENIED
    assert answer.problem in (p.AUTH_TOOWEAK, p.AUTH_BADCRED, p.AUTH_REJECTEDCRED)
    assert share.getattr(root)[0] == p.OK


def test_sixteen_groups_are_taken(gateway, share, place):
    handle = share.file(place, "file", b"text", mode=0o640)
    share.nfs(p.SETATTR, p.opaque(handle) + p.attributes(gid=3000 + 15) + p.u32(0))
    with gateway.share(1000, 1000, range(3000, 3016)) as member:
        assert member.read(handle) == (p.OK, b"text")
    with gateway.share(1000, 1000, range(3000, 3015)) as other:
        assert other.read(handle)[0] == p.ACCES


# --- Records ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3, 4, 7, 64])
def test_a_call_in_small_fragments(share, place, size):
    share.file(place, "file", b"text")
    message = share.message(p.NFS, p.LOOKUP, p.in_dir(place, "file"))
    for _ in range(3):
        answer = share.exchange(message, size)
        assert answer.body.u32() == p.OK


def test_a_write_in_fragments_of_all_sizes(share, place):
    handle = share.file(place, "file")
    data = random.Random(1).randbytes(1 << 20)
    arguments = p.opaque(handle) + p.u64(0) + p.u32(len(data), p.FILE_SYNC) + p.opaque(data)
    for size in (1000, 4097, 65536, 1 << 20):
        answer = share.exchange(share.message(p.NFS, p.WRITE, arguments), size)
        assert answer.body.u32() == p.OK
    assert share.read(handle) == (p.OK, data)


def test_messages_that_arrive_byte_by_byte_and_all_at_once(share):
    root = share.root()
    messages = [share.message(p.NFS, p.GETATTR, p.opaque(root)) for _ in range(50)]
    stream = b"".join(p.u32(len(each) | p.LAST) + each for each in messages)
    for byte in stream[:300]:
        share.plug.sendall(bytes([byte]))
    share.plug.sendall(stream[300:])
    answers = {p.Answer(share.receive()).xid for _ in messages}
    assert answers == {p.Reader(each).u32() for each in messages}


def test_a_fragment_that_is_too_long_ends_the_connection(gateway, share):
    for mark in (0x7FFFFFFF, 0xFFFFFFFF, (8 << 20) | p.LAST):
        with share.again() as other, contextlib.suppress(ConnectionError):
            other.plug.sendall(p.u32(mark) + bytes(1000))
            assert other.is_closed()
    still_serves(gateway)


def test_fragments_that_are_too_many_end_the_connection(gateway, share):
    with share.again() as other:
        with contextlib.suppress(ConnectionError):
            for _ in range(200):
                other.plug.sendall(p.u32(1 << 16) + bytes(1 << 16))
        assert other.is_closed()
    with share.again() as other:
        with contextlib.suppress(ConnectionError):
            other.plug.sendall(p.u32(0) * 100_000)
        assert other.is_closed()
    still_serves(gateway)


def test_what_is_no_call(gateway, share):
    """A reply, and no message at all: answered with nothing, and others do not notice."""
    for message in (b"", b"1234", p.u32(5, p.REPLY, 0, 0, 0, 0), p.u32(5, 7, 2), bytes(11)):
        with share.again() as other:
            other.send(message)
            ready, _, _ = select.select([other.plug], [], [], 0.3)
            assert not ready or other.is_closed()
    still_serves(gateway)


def test_noise(gateway, share):
    chance = random.Random(4711)
    for _ in range(100):
        with share.again() as other, contextlib.suppress(ConnectionError):
            other.plug.sendall(chance.randbytes(chance.randrange(1, 2000)))
    for _ in range(300):
        message = bytearray(share.message(p.NFS, chance.randrange(22), chance.randbytes(100)))
        message[chance.randrange(4, len(message))] = chance.randrange(256)
        with share.again() as other, contextlib.suppress(ConnectionError):
            other.send(bytes(message))
    still_serves(gateway)


# --- Calls sent again ---------------------------------------------------------------------------


def repeatable(share, place):
    """Calls that cannot be done twice: (name, procedure, arguments, what a second one gives)."""
    other = share.mkdir(place, "other")[1]
    handle = share.file(place, "file", b"text")
    share.file(place, "old")
    share.file(place, "gone")
    share.mkdir(place, "gone-too")
    return [
        ("CREATE", p.CREATE, p.create_arguments(place, "new"), p.EXIST),
        ("MKDIR", p.MKDIR, p.mkdir_arguments(place, "directory"), p.EXIST),
        ("SYMLINK", p.SYMLINK, p.symlink_arguments(place, "symlink"), p.EXIST),
        ("LINK", p.LINK, p.link_arguments(handle, other, "link"), p.EXIST),
        ("RENAME", p.RENAME, p.rename_arguments(place, "old", other, "moved"), p.NOENT),
        ("REMOVE", p.REMOVE, p.in_dir(place, "gone"), p.NOENT),
        ("RMDIR", p.RMDIR, p.in_dir(place, "gone-too"), p.NOENT),
        ("MKNOD", p.MKNOD, p.in_dir(place, "fifo") + p.u32(7) + p.attributes(), p.EXIST),
    ]


def test_a_call_sent_again_gets_the_first_answer(share, place):
    for name, procedure, arguments, twice in repeatable(share, place):
        message = share.message(p.NFS, procedure, arguments)
        first = share.exchange(message)
        assert first.head == (p.ACCEPTED, p.SUCCESS)
        assert first.body.u32() == p.OK, name
        assert share.exchange(message).message == first.message, name
        with share.again() as moved:
            assert moved.exchange(message).message == first.message, f"{name}, new connection"
        with share.again() as moved:
            assert moved.exchange(message, 16).message == first.message, f"{name}, in fragments"
        # The same under another number is another call.
        assert share.nfs(procedure, arguments)[0] == twice, name


def ask_until_answered(share, message, limit_s=20):
    """Sends a call on one connection after the other, as a client whose answers get lost."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        with share.again() as other:
            other.send(message)
            ready, _, _ = select.select([other.plug], [], [], 1)
            if ready:
                return p.Answer(other.receive())
    raise AssertionError("never answered")


def test_an_answer_that_was_lost(share, place):
    """The connection ends before the answer is read; the call is made once all the same."""
    for name, procedure, arguments, _ in repeatable(share, place):
        message = share.message(p.NFS, procedure, arguments)
        for _ in range(3):
            with share.again() as lost:
                lost.send(message)
        answer = ask_until_answered(share, message)
        assert answer.head == (p.ACCEPTED, p.SUCCESS)
        assert answer.body.u32() == p.OK, name


def test_a_call_that_failed_is_answered_the_same_again(share, place):
    message = share.message(p.NFS, p.REMOVE, p.in_dir(place, "name"))
    first = share.exchange(message)
    assert first.body.u32() == p.NOENT
    share.file(place, "name")
    assert share.exchange(message).message == first.message
    assert share.lookup(place, "name")[0] == p.OK


def test_a_number_used_for_something_else_is_another_call(gateway, share, place):
    xid = share.next_xid()
    for name in ("one", "two"):
        answer = share.ask(p.NFS, p.MKDIR, p.mkdir_arguments(place, name), xid=xid)
        assert answer.body.u32() == p.OK
    assert share.ask(p.NFS, p.RMDIR, p.in_dir(place, "one"), xid=xid).body.u32() == p.OK
    assert sorted(share.all_names(place)) == ["two"]
    # Nor does anybody get what was answered to another user.
    with gateway.share(1000, 1000) as other:
        answer = other.ask(p.NFS, p.RMDIR, p.in_dir(place, "two"), xid=xid)
        assert answer.body.u32() == p.ACCES
        answer = share.ask(p.NFS, p.RMDIR, p.in_dir(place, "two"), xid=xid)
        assert answer.body.u32() == p.OK


def test_a_call_sent_twice_at_once(share, place):
    """While the first is being carried out the second may stay without an answer, as if it were lost;
    a client sends it again then."""
    for number in range(50):
        message = share.message(p.NFS, p.CREATE, p.create_arguments(place, f"file{number}"))
        with share.again() as one, share.again() as other:
            one.send(message)
            other.send(message)
            ready, _, _ = select.select([one.plug, other.plug], [], [], 10)
            assert ready, "no answer at all"
            answers = [each.receive() for each in (one, other) if each.plug in ready]
        answers.append(share.exchange(message).message)
        assert len(set(answers)) == 1
        assert p.Answer(answers[0]).body.u32() == p.OK
    assert len(share.all_names(place)) == 50


# --- Handles ------------------------------------------------------------------------------------


def test_forged_handles(share, place):
    handle = share.file(place, "file", b"text")
    for at in range(len(handle)):
        for change in (0x01, 0x80, 0xFF):
            forged = handle[:at] + bytes([handle[at] ^ change]) + handle[at + 1 :]
            assert share.getattr(forged)[0] in (p.BADHANDLE, p.STALE), f"byte {at}"
            assert share.read(forged)[0] in (p.BADHANDLE, p.STALE)
            assert share.write(forged, 0, b"evil", p.FILE_SYNC)[0] in (p.BADHANDLE, p.STALE)
    for length in range(64):
        for other in (bytes(length), handle[:length], (handle + bytes(64))[:length]):
            if other != handle:
                assert share.getattr(other)[0] in (p.BADHANDLE, p.STALE)
    assert share.read(handle) == (p.OK, b"text")


def test_handles_of_another_pool(gateway, share, world):
    """The same numbers under another secret."""
    other_pool = world.pool(memory=True)
    other = Gateway(world, other_pool, exports=OPEN)
    root = share.root()
    with other.share() as stranger:
        assert stranger.getattr(stranger.root())[0] == p.OK
        assert stranger.getattr(root)[0] in (p.BADHANDLE, p.STALE)
        assert share.getattr(stranger.root())[0] in (p.BADHANDLE, p.STALE)


def test_a_handle_is_of_its_export(module_world, pool, share, place):
    """Handles of an export are no good in another one, whose rules are not the same."""
    name = "test_a_handle_is_of_its_export"
    inner = share.mkdir(place, "inner")[1]
    share.file(inner, "file", b"text")
    gateway = Gateway(
        module_world,
        pool,
        exports=export(f"/{name}", squash="none")
        + export(f"/{name}/inner", squash="none", read_only=True),
    )
    with gateway.share() as both:
        writable, read_only = both.root(f"/{name}"), both.root(f"/{name}/inner")
        assert writable != read_only
        status, handle = both.lookup(read_only, "file")
        assert status == p.OK
        assert both.write(handle, 0, b"evil", p.FILE_SYNC)[0] == p.ROFS
        assert both.lookup(read_only, "..")[1] in (None, read_only)
        status, other = both.lookup(both.lookup(writable, "inner")[1], "file")
        assert (status, other == handle) == (p.OK, False)
        assert both.write(other, 0, b"good", p.FILE_SYNC)[0] == p.OK
        # Whoever swaps parts of the two gets nothing.
        for at in range(1, len(handle)):
            for forged in (handle[:at] + other[at:], other[:at] + handle[at:]):
                if forged not in (handle, other):
                    assert both.getattr(forged)[0] in (p.BADHANDLE, p.STALE)
        # A name does not move from one into the other.
        status, _ = both.nfs(p.RENAME, p.rename_arguments(writable, "inner", read_only, "moved"))
        assert status != p.OK
        status, _ = both.nfs(p.LINK, p.link_arguments(other, read_only, "link"))
        assert status != p.OK


# --- Many at once -------------------------------------------------------------------------------


def test_many_requests_in_flight(share, place):
    """Answers come in any order; each is the one to its own call."""
    data = random.Random(7).randbytes(1 << 20)
    handle = share.file(place, "file", data)
    wanted = {}
    chance = random.Random(8)
    for number in range(400):
        if number % 4 == 3:
            message = share.message(p.NFS, p.CREATE, p.create_arguments(place, f"n{number}"))
            expected = None
        else:
            offset, count = chance.randrange(1 << 20), chance.randrange(1, 5000)
            message = share.message(p.NFS, p.READ, p.opaque(handle) + p.u64(offset) + p.u32(count))
            expected = data[offset : offset + count]
        wanted[p.Reader(message).u32()] = expected
        share.send(message)
    for _ in range(len(wanted)):
        answer = p.Answer(share.receive())
        expected = wanted.pop(answer.xid)
        assert answer.head == (p.ACCEPTED, p.SUCCESS)
        assert answer.body.u32() == p.OK
        if expected is not None:
            answer.body.post_op()
            answer.body.u32()
            answer.body.u32()
            assert answer.body.opaque() == expected
    assert not wanted
    assert len(share.all_names(place)) == 101


def stuff(share, handle):
    """Asks for a MiB again and again and reads nothing, until no more can be sent."""
    share.plug.settimeout(1)
    message = share.message(p.NFS, p.READ, p.opaque(handle) + p.u64(0) + p.u32(1 << 20))
    with pytest.raises(socket.timeout):
        for _ in range(1000):
            share.plug.sendall((p.u32(len(message) | p.LAST) + message) * 1000)


def test_clients_that_never_read(gateway, share, place):
    handle = share.file(place, "file", bytes(1 << 20))
    before = gateway.memory()
    greedy = [share.again() for _ in range(8)]
    try:
        for each in greedy:
            stuff(each, handle)
        slowest = 0.0
        for number in range(100):
            started = time.monotonic()
            assert share.read(handle, 0, 65536)[0] == p.OK
            share.file(place, f"file{number}", b"text")
            slowest = max(slowest, time.monotonic() - started)
        assert slowest < 5, f"others waited {slowest} s"
        assert gateway.memory() - before < 1 << 30, "what nobody reads is kept without bounds"
    finally:
        for each in greedy:
            each.close()
    still_serves(gateway)


def test_a_client_that_reads_late_gets_everything(share, place):
    handle = share.file(place, "file", bytes(1 << 20))
    message = p.opaque(handle) + p.u64(0) + p.u32(1 << 20)
    xids = set()
    for _ in range(60):
        xids.add(share.next_xid())
        share.send(share.message(p.NFS, p.READ, message, xid=max(xids)))
    time.sleep(2)
    for _ in range(60):
        answer = p.Answer(share.receive())
        assert answer.body.u32() == p.OK
        assert len(answer.message) > 1 << 20
        xids.remove(answer.xid)


@pytest.mark.limit(300)
def test_many_idle_connections(gateway, share, place):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(MANY_IDLE, hard - 500)
    before = gateway.open_files()
    idle = []
    try:
        for number in range(count):
            plug = socket.create_connection((gateway.host, gateway.port), 30)
            idle.append(plug)
            if number % 3 == 1:
                plug.sendall(p.u32(100))
        started = time.monotonic()
        share.file(place, "file", b"text")
        still_serves(gateway)
        assert time.monotonic() - started < 10
    finally:
        for plug in idle:
            plug.close()
    deadline = time.monotonic() + 60
    while gateway.open_files() > before + 10:
        assert time.monotonic() < deadline, "connections that are closed are kept"
        time.sleep(0.1)
    still_serves(gateway)
