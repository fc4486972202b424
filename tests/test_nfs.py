"""The NFS gateway with a stock client (libnfs): every procedure, the tools, exports and who may use
them, locks, and that nothing is lost when a gateway or an engine is killed."""

import filecmp
import functools
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

import nfs_protocol as p
import pytest
from gateways import (
    LOOPBACK,
    OPEN,
    Gateway,
    build_conformance,
    export,
    run_conformance,
    write_as_a_client,
)
from pools import alive, wait_until

SERVER_IS_BUSY = 10008
USER = 1000
needs_tools = pytest.mark.skipif(shutil.which("nfs-cp") is None, reason="needs libnfs-utils")


@pytest.fixture(scope="module")
def conformance(tmp_path_factory):
    """The conformance program, built."""
    return build_conformance(tmp_path_factory.mktemp("nfs"))


def open_to_all(gateway):
    """Lets everybody make files in the root of the container, through an export without squash."""
    with gateway.share() as share:
        assert share.setattr(share.root(), mode=0o1777) == p.OK


@pytest.fixture
def serve(pool):
    """Starts gateways on the shared pool, and ends them after the test."""
    gateways = []

    def start(*options, **more):
        gateways.append(Gateway(pool.world, pool, *options, **more))
        return gateways[-1]

    yield start
    for gateway in gateways:
        gateway.kill()


# --- Every procedure ----------------------------------------------------------------------------


@pytest.mark.limit(300)
def test_every_procedure_as_root(conformance, world):
    pool = world.pool()
    gateway = Gateway(world, pool, exports=OPEN)
    run_conformance(conformance, gateway, "/")
    assert gateway.stop() == (0, "")
    pool.check()


@pytest.mark.limit(300)
def test_every_procedure_as_a_user_where_root_is_nobody(conformance, world):
    pool = world.pool(memory=True)
    before = Gateway(world, pool, exports=OPEN)
    open_to_all(before)
    before.stop()
    gateway = Gateway(world, pool, exports=export())
    assert gateway.export == "/"
    run_conformance(conformance, gateway, "/", "--uid", USER, "--gid", USER, "--nobody", 65534)
    pool.check()


@pytest.mark.limit(300)
def test_every_procedure_in_an_exported_directory(conformance, world):
    """Of engines on several targets, below the root of the container."""
    pool = world.engines(2).pool
    gateway = Gateway(world, pool, exports=OPEN)
    with gateway.share() as share:
        assert share.mkdir(share.mkdir(share.root(), "data")[1], "of two")[0] == p.OK
    gateway.stop()
    gateway = Gateway(world, pool, exports=export("/data/of two", squash="none"))
    assert gateway.export == "/data/of two"
    run_conformance(conformance, gateway, "/data/of two")
    pool.check()


# --- Tools of others ----------------------------------------------------------------------------


def make_tree(top):
    """Files of all sizes in directories: {path below `top`: bytes}."""
    chance = random.Random(12)
    files = {}
    for number, size in enumerate([0, 1, 4096, 100_000, (1 << 20) + 1, 5 << 20]):
        path = f"d{number % 3}/e{number % 2}/file {number}"
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        files[path] = chance.randbytes(size)
        (top / path).write_bytes(files[path])
    return files


def tool(*command, **more):
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, timeout=60, check=False, **more
    )
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@needs_tools
def test_the_tools_of_libnfs(world, tmp_path):
    pool = world.pool()
    gateway = Gateway(world, pool, exports=OPEN)
    url = functools.partial(gateway.url, uid=os.getuid(), gid=os.getgid())
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    files = make_tree(here)
    # What was put in by one way is read by the other, and back.
    world.run("fs", "put", "-r", here, f"{pool.name}:/in")
    listed = tool("nfs-ls", "-R", url("/in")).decode()
    for path, data in files.items():
        name = path.rpartition("/")[2]
        assert any(name in line and f" {len(data)} " in line for line in listed.splitlines()), listed
        assert tool("nfs-cat", url(f"/in/{path}")) == data
        tool("nfs-cp", here / path, url(f"/in/{path} again"))
        tool("nfs-cp", url(f"/in/{path} again"), tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == data
        (tmp_path / "copy").unlink()
    world.run("fs", "get", "-r", f"{pool.name}:/in", there)
    for path in files:
        for name in (path, f"{path} again"):
            assert filecmp.cmp(here / path, there / name, shallow=False), name
    assert gateway.stop() == (0, "")
    pool.check()


# --- The life of a gateway ----------------------------------------------------------------------


def test_sigterm_ends_it_cleanly(serve):
    gateway = serve(exports=OPEN)
    share = gateway.share()
    root = share.root()
    handle = share.file(root, "ended", b"before")
    assert share.write(handle, 0, b"not committed")[0] == p.OK
    silent = gateway.share()
    silent.plug.sendall(b"\x80")
    started = time.monotonic()
    assert gateway.stop() == (0, "")
    assert time.monotonic() - started < 20
    assert share.is_closed()
    with pytest.raises(OSError):
        gateway.share()
    gateway.start()
    with gateway.share() as again:
        # What was answered and not committed does not go when the gateway ends in good order.
        assert again.read(handle) == (p.OK, b"not committed")
        assert again.remove(root, "ended") == p.OK


def test_without_options_it_serves_this_host(serve):
    gateway = serve()
    assert (gateway.host, gateway.export) == ("127.0.0.1", "/")
    with gateway.share(os.getuid(), os.getgid()) as share:
        assert [path for path, _ in share.exports()] == ["/"]
        root = share.root()
        handle = share.file(root, "mine", b"text")
        assert share.getattr(handle)[1]["uid"] == os.getuid()
        assert share.remove(root, "mine") == p.OK


def as_user(uid, work):
    """Does `work` in a process of that user: what it gives, in words."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            os.write(writing, repr(work()).encode())
        except BaseException as error:
            os.write(writing, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as result:
        said = result.read().decode()
    os.waitpid(child, 0)
    return said


@pytest.mark.root
def test_without_options_users_of_this_host_are_who_they_are(serve, tree):
    """Whatever they say; root, and so the kernel's own NFS client, speaks for anybody."""
    gateway = serve()

    def make(uid):
        with gateway.share(uid, uid) as share:
            top = share.lookup(share.root(), "tree")[1]
            status, handle = share.create(top, "whose")
            if status != p.OK:
                return status
            found = share.getattr(handle)[1]["uid"]
            assert share.remove(top, "whose") == p.OK
            return found

    assert make(4242) == 4242
    assert make(0) == 0
    assert as_user(4242, lambda: make(4242)) == "4242"
    assert as_user(4242, lambda: make(0)) == "4242"
    assert as_user(4242, lambda: make(4343)) == "4242"


def test_mount_at_a_port_of_its_own(serve):
    gateway = serve("--mount-port", 0)
    assert gateway.mount_port != gateway.port
    with p.Share((gateway.host, gateway.mount_port)) as mounting:
        root = mounting.root()
    with gateway.share() as share:
        assert share.getattr(root)[0] == p.OK


def test_in_the_background(serve, pool):
    done = pool.world.run("nfs", pool.name, "--listen", "127.0.0.1:0", "--background")
    port = int(done.stdout.split(":")[3].split("/")[0])
    pid = int(re.search(r"process (\d+) serves", done.stderr)[1])
    with p.Share(("127.0.0.1", port)) as share:
        assert share.getattr(share.root())[0] == p.OK
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not alive(pid), "it ends")


def test_an_address_that_is_taken(serve, pool):
    gateway = serve()
    done = pool.world.run("nfs", pool.name, "--listen", f"127.0.0.1:{gateway.port}", check=False)
    assert done.returncode not in (0, 101)
    assert str(gateway.port) in done.stderr
    assert done.stdout == ""


# --- Exports ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tree(module_world, pool):
    """Handles of nothing: a tree in the shared pool, with a directory open to all."""
    gateway = Gateway(module_world, pool, exports=OPEN)
    with gateway.share() as share:
        top = share.mkdir(share.root(), "tree", mode=0o1777)[1]
        share.setattr(top, mode=0o1777)
        share.file(top, "file", b"text", mode=0o666)
        share.mkdir(top, "directory", mode=0o777)
    gateway.stop()


def test_read_only(serve, tree):
    gateway = serve(exports=export("/tree", squash="none", read_only=True))
    with gateway.share() as share:
        root = share.root("/tree")
        _, handle = share.lookup(root, "file")
        assert share.read(handle) == (p.OK, b"text")
        assert sorted(share.all_names(root)) == ["directory", "file"]
        assert share.write(handle, 0, b"more")[0] == p.ROFS
        assert share.write(handle, 0, b"more", p.FILE_SYNC)[0] == p.ROFS
        assert share.setattr(handle, mode=0o600) == p.ROFS
        assert share.setattr(handle, size=0) == p.ROFS
        for name, procedure, arguments in [
            ("CREATE", p.CREATE, p.create_arguments(root, "new")),
            ("CREATE unchecked", p.CREATE, p.create_arguments(root, "file", p.UNCHECKED)),
            ("CREATE exclusive", p.CREATE, p.in_dir(root, "new") + p.u32(2) + bytes(8)),
            ("MKDIR", p.MKDIR, p.mkdir_arguments(root, "new")),
            ("SYMLINK", p.SYMLINK, p.symlink_arguments(root, "new")),
            ("MKNOD", p.MKNOD, p.in_dir(root, "new") + p.u32(7) + p.attributes()),
            ("REMOVE", p.REMOVE, p.in_dir(root, "file")),
            ("RMDIR", p.RMDIR, p.in_dir(root, "directory")),
            ("RENAME", p.RENAME, p.rename_arguments(root, "file", root, "new")),
            ("LINK", p.LINK, p.link_arguments(handle, root, "new")),
        ]:
            assert share.nfs(procedure, arguments)[0] == p.ROFS, name
        status, body = share.nfs(p.ACCESS, p.opaque(handle) + p.u32(0x3F))
        body.post_op()
        assert (status, body.u32() & 0x1C) == (p.OK, 0)
        assert sorted(share.all_names(root)) == ["directory", "file"]


def owner_of_new(gateway, path, name, uid, gid):
    with gateway.share(uid, gid) as share:
        root = share.root(path)
        status, handle = share.create(root, name)
        assert status == p.OK, status
        found = share.getattr(handle)[1]
        assert share.remove(root, name) == p.OK
    return found["uid"], found["gid"]


@pytest.mark.parametrize(
    ("squash", "of_root", "of_user"),
    [
        ({}, (65534, 65534), (1000, 1001)),
        ({"squash": "root"}, (65534, 65534), (1000, 1001)),
        ({"squash": "none"}, (0, 0), (1000, 1001)),
        ({"squash": "all"}, (65534, 65534), (65534, 65534)),
        ({"squash": "all", "anonymous_uid": 42, "anonymous_gid": 43}, (42, 43), (42, 43)),
        ({"squash": "root", "anonymous_uid": 42, "anonymous_gid": 43}, (42, 43), (1000, 1001)),
    ],
    ids=["unsaid", "of-root", "none", "all", "all-as-somebody", "root-as-somebody"],
)
def test_squash(serve, tree, squash, of_root, of_user):
    gateway = serve(exports=export("/tree", **squash))
    assert owner_of_new(gateway, "/tree", "new", 0, 0) == of_root
    assert owner_of_new(gateway, "/tree", "new", 1000, 1001) == of_user


def test_squash_of_all_takes_groups_away(serve, tree):
    gateway = serve(exports=OPEN)
    with gateway.share() as share:
        _, top = share.lookup(share.root(), "tree")
        handle = share.file(top, "grouped", b"text", mode=0o640)
        share.nfs(p.SETATTR, p.opaque(handle) + p.attributes(gid=777) + p.u32(0))
    squashing = serve(exports=export("/tree", squash="all"))
    with squashing.share(1000, 777, [777]) as share:
        _, same = share.lookup(share.root("/tree"), "grouped")
        assert share.read(same)[0] == p.ACCES
    with gateway.share() as share:
        assert share.remove(top, "grouped") == p.OK


def test_who_is_not_listed(serve, tree):
    gateway = serve(exports=export("/tree", ["192.0.2.0/24"]) + export("/tree/directory", LOOPBACK))
    with gateway.share() as share:
        for _ in range(5):
            assert share.mount("/tree") == (p.ACCES, None)
            assert share.mount("/tree/file") == (p.ACCES, None)
        assert share.mount("/") == (p.ACCES, None)
        assert share.mount("/not/there") == (p.ACCES, None)
        assert share.mount("/tree/directory")[0] == p.OK
        shown = dict(share.exports())
        assert shown["/tree"] == ["192.0.2.0/24"]
        assert set(shown) == {"/tree", "/tree/directory"}
    refused = [line for line in gateway.log.read_text().splitlines() if "path=/tree" in line or
               '"/tree"' in line]  # fmt: skip
    assert len(refused) == 1, "one line for all refusals of the same"
    assert "127.0.0.1" in refused[0]


def test_flavours(serve, tree):
    exports = export("/tree", squash="none", auth=["sys"])
    exports += export("/tree/directory", squash="root", auth=["none"], anonymous_uid=42)
    gateway = serve(exports=exports)
    nobody = (p.AUTH_NONE, b"")
    with gateway.share() as share:
        root = share.root("/tree")
        assert share.getattr(root)[0] == p.OK
        answer = share.ask(p.NFS, p.GETATTR, p.opaque(root), auth=nobody)
        # Whether RPC or NFS says so, it is a refusal.
        assert answer.head == (p.DENIED, p.AUTH_TOOWEAK) or answer.body.u32() == p.ACCES
    with p.Share((gateway.host, gateway.port), nobody) as anonymous:
        root = anonymous.root("/tree/directory")
        handle = anonymous.file(root, "new", b"text")
        assert anonymous.getattr(handle)[1]["uid"] == 42
        assert anonymous.remove(root, "new") == p.OK


def test_reload(serve, tree):
    gateway = serve(exports=export("/tree", squash="none"))
    with gateway.share() as share:
        root = share.root("/tree")
        handle = share.file(root, "reloaded", b"text")
        gateway.reload(export("/tree", squash="none", read_only=True))
        wait_until(lambda: share.write(handle, 0, b"text")[0] == p.ROFS, "read-only after SIGHUP")
        assert share.read(handle) == (p.OK, b"text")
        gateway.reload(export("/tree", ["192.0.2.1"], squash="none"))
        wait_until(lambda: share.read(handle)[0] != p.OK, "refused after SIGHUP")
        assert share.mount("/tree") == (p.ACCES, None)
        gateway.reload("[[export]]\npath = 7\n")
        wait_until(lambda: gateway.exports.name in gateway.log.read_text(), "a complaint in the log")
        assert gateway.child.poll() is None
        gateway.reload(export("/tree", squash="none"))
        # The handle is as good as before.
        wait_until(lambda: share.read(handle) == (p.OK, b"text"), "exported again after SIGHUP")
        assert share.remove(root, "reloaded") == p.OK


@pytest.mark.parametrize(
    "wrong",
    [
        '[[export]]\npath = "/"\n',
        '[[export]]\npath = "/"\nclients = ["everybody"]\n',
        '[[export]]\npath = "/"\nclients = ["10.0.0.0/8"]\nreadonly = true\n',
        '[[export]]\npath = "relative"\nclients = ["10.0.0.0/8"]\n',
        '[[export]]\npath = "/"\nclients = ["10.0.0.0/8"]\nsquash = "some"\n',
        "no toml",
    ],
)
def test_exports_that_cannot_be_used(serve, pool, wrong):
    file = pool.world.base / "wrong.toml"
    file.write_text(wrong)
    done = pool.world.run("nfs", pool.name, "--listen", "127.0.0.1:0", "--exports", file, check=False)
    assert done.returncode not in (0, 101)
    assert str(file) in done.stderr
    assert done.stdout == ""


# --- Two gateways -------------------------------------------------------------------------------


def test_what_one_has_committed_the_other_reads(world):
    pool = world.pool()
    one, other = (Gateway(world, pool, exports=OPEN) for _ in range(2))
    chance = random.Random(3)
    with one.share() as writer, other.share() as reader:
        root = writer.root()
        assert reader.root() == root
        handle = writer.file(root, "file", b"nothing")
        for turn in range(20):
            writing, reading = (writer, reader) if turn % 2 == 0 else (reader, writer)
            # The other has just read, and may have something in memory.
            assert reading.read(handle)[0] == p.OK
            offset, data = chance.randrange(1 << 20), chance.randbytes(chance.randrange(1, 300_000))
            assert writing.write(handle, offset, data)[0] == p.OK
            assert writing.commit(handle)[0] == p.OK
            assert reading.read(handle, offset, len(data)) == (p.OK, data)
            assert reading.getattr(handle)[1] == writing.getattr(handle)[1]
        assert writer.setattr(handle, size=5) == p.OK
        assert reader.getattr(handle)[1]["size"] == 5
        assert writer.write(handle, 0, b"sync'd", p.FILE_SYNC)[0] == p.OK
        assert reader.read(handle) == (p.OK, b"sync'd")
        assert writer.remove(root, "file") == p.OK
        assert reader.getattr(handle)[0] == p.STALE
    pool.check()


def test_names_that_another_gateway_makes(serve):
    one, other = (serve(exports=OPEN) for _ in range(2))
    with one.share() as here, other.share() as there:
        top = here.mkdir(here.root(), "names")[1]
        for number in range(10):
            name = f"name{number}"
            assert there.lookup(top, name)[0] == p.NOENT
            handle = here.file(top, name, b"x")
            # Names may be believed for up to a second (clause 14); creation itself is exact.
            assert there.create(top, name)[0] == p.EXIST
            wait_until(lambda: there.lookup(top, name) == (p.OK, handle), "the name is found")
        # A listing goes on at the other gateway.
        seen, cookie, verifier, end = [], 0, bytes(8), False
        for share in (here, there) * 100:
            if not end:
                status, page, verifier, end = share.names(top, cookie, verifier, 300)
                assert status == p.OK
                seen += [name for name, _ in page]
                cookie = page[-1][1] if page else cookie
        assert sorted(set(seen) - {".", ".."}) == sorted(f"name{number}" for number in range(10))
        assert len(seen) == len(set(seen))
        assert there.remove(top, "name0") == p.OK
        assert here.remove(top, "name0") == p.NOENT


def test_an_exclusive_creation_sent_to_another_gateway(serve):
    """The verifier is with the file, so every gateway knows the call that made it."""
    one, other = (serve(exports=OPEN) for _ in range(2))
    with one.share() as here, other.share() as there:
        root = here.root()
        arguments = p.in_dir(root, "exclusive") + p.u32(p.EXCLUSIVE)
        assert here.nfs(p.CREATE, arguments + b"verifier")[0] == p.OK
        handle = here.lookup(root, "exclusive")[1]
        assert there.nfs(p.CREATE, arguments + b"verifier")[0] == p.OK
        assert there.lookup(root, "exclusive") == (p.OK, handle)
        assert there.nfs(p.CREATE, arguments + b"VERIFIER")[0] == p.EXIST
        assert there.remove(root, "exclusive") == p.OK


def test_a_client_moves_to_another_gateway(world):
    pool = world.pool()
    one, other = (Gateway(world, pool, exports=OPEN) for _ in range(2))
    data = random.Random(9).randbytes(3 << 20)
    with one.share() as share:
        root = share.root()
        directory = share.mkdir(root, "directory")[1]
        committed = share.file(directory, "committed", data)
        lost = share.file(directory, "lost")
        status, verifier, _ = share.write(lost, 0, data[:700_000])
        assert status == p.OK
    one.kill()
    with other.share() as share:
        for handle in (root, directory, committed, lost):
            assert share.getattr(handle)[0] == p.OK
        assert share.read(committed, 1 << 20) == (p.OK, data[1 << 20 : 2 << 20])
        # The client learns from the verifier that it has to write again.
        status, now = share.commit(lost)
        assert status == p.OK
        assert now != verifier
        assert write_as_a_client(share, lost, data) == 1
        assert sorted(share.all_names(directory)) == ["committed", "lost"]
    world.run("fs", "get", f"{pool.name}:/directory/lost", world.base / "lost")
    assert (world.base / "lost").read_bytes() == data
    one.start()
    with one.share() as share:
        assert share.read(lost, 0, 1000) == (p.OK, data[:1000])
    pool.check()


# --- Killed between a write and its commit ------------------------------------------------------


def test_a_gateway_killed_between_write_and_commit(world):
    pool = world.pool()
    gateway = Gateway(world, pool, exports=OPEN)
    data = random.Random(5).randbytes((2 << 20) + 12345)
    with gateway.share() as share:
        root = share.root()
        handle = share.file(root, "file", b"old" * 1000)
        verifiers = set()
        for start in range(0, len(data), 8192):
            status, verifier, _ = share.write(handle, start, data[start : start + 8192])
            assert status == p.OK
            verifiers.add(verifier)
        assert len(verifiers) == 1
        # What is not committed is what everybody sees who asks this gateway.
        assert share.read(handle, 0, 100_000) == (p.OK, data[:100_000])
        assert share.getattr(handle)[1]["size"] == len(data)
    gateway.kill()
    gateway.start()
    with gateway.share() as share:
        status, verifier = share.commit(handle)
        assert status == p.OK
        assert verifier not in verifiers, "a client would not know that its data are lost"
        assert write_as_a_client(share, handle, data, block=8192) == 1
        assert share.getattr(handle)[1]["size"] == len(data)
    assert gateway.stop() == (0, "")
    world.run("fs", "get", f"{pool.name}:/file", world.base / "file")
    assert (world.base / "file").read_bytes() == data
    pool.check()


def test_a_verifier_is_never_used_again(serve):
    gateway = serve(exports=OPEN)
    verifiers = []
    for _ in range(4):
        with gateway.share() as share:
            root = share.root()
            share.create(root, "verified", p.UNCHECKED)
            verifiers.append(share.commit(share.lookup(root, "verified")[1])[1])
        gateway.kill()
        gateway.start()
    assert len(set(verifiers)) == len(verifiers)


def test_what_was_stable_survives_a_kill(serve):
    gateway = serve(exports=OPEN)
    with gateway.share() as share:
        root = share.root()
        handle = share.file(root, "stable")
        for number, stable in enumerate([p.DATA_SYNC, p.FILE_SYNC, p.DATA_SYNC]):
            status, _, committed = share.write(handle, 4 * number, b"word", stable)
            assert status == p.OK
            assert committed >= stable
        assert share.write(handle, 12, b"more")[0] == p.OK
        assert share.commit(handle, 12, 4)[0] == p.OK
    gateway.kill()
    gateway.start()
    with gateway.share() as share:
        assert share.read(handle) == (p.OK, b"wordwordwordmore")
        assert share.remove(root, "stable") == p.OK


def patiently(call, limit_s=60):
    """Makes a call as clients do: again while the server says that it is busy."""
    deadline = time.monotonic() + limit_s
    while True:
        result = call()
        if result[0] != SERVER_IS_BUSY:
            return result
        assert time.monotonic() < deadline, "busy for ever"
        time.sleep(0.2)


def test_an_engine_killed_under_the_gateway(world):
    """Between writes and their commit, and while calls are under way."""
    engines = world.engines(2)
    gateway = Gateway(world, engines.pool, exports=OPEN)
    data = random.Random(6).randbytes(4 << 20)
    with gateway.share(limit_s=60) as share:
        root = share.root()
        handle = share.file(root, "file")
        for start in range(0, len(data), 1 << 18):
            assert share.write(handle, start, data[start : start + (1 << 18)])[0] == p.OK
        for number in range(2):
            engines.kill(number)
        again = threading.Timer(1.5, lambda: [engines.start(number) for number in range(2)])
        again.start()
        # These wait, and go on when the engines are back.
        assert patiently(lambda: share.getattr(handle))[0] == p.OK
        assert patiently(lambda: share.create(root, "meanwhile"))[0] in (p.OK, p.EXIST)
        again.join()
        assert write_as_a_client(share, handle, data) in (1, 2)
        for start in range(0, len(data), 1 << 20):
            assert share.read(handle, start) == (p.OK, data[start : start + (1 << 20)])
    assert gateway.stop() == (0, "")
    world.run("fs", "get", f"{engines.pool.name}:/file", world.base / "file")
    assert (world.base / "file").read_bytes() == data
    engines.pool.check()


def test_an_engine_that_stays_away(world):
    """A client is answered, whatever the answer; what it hears is not that all was well."""
    engines = world.engines(1)
    gateway = Gateway(world, engines.pool, exports=OPEN)
    with gateway.share(limit_s=60) as share:
        root = share.root()
        handle = share.file(root, "file", b"before")
        status, verifier, _ = share.write(handle, 0, b"waits for a commit")
        assert status == p.OK
        engines.kill(0)
        committed = share.commit(handle)
        assert committed[0] != p.OK or committed[1] != verifier
        assert share.write(handle, 0, b"stable", p.FILE_SYNC)[0] != p.OK
        assert share.call(p.NFS, p.NULL).rest() == b""
        engines.start(0)
        assert write_as_a_client_when_it_can(share, handle, b"waits for a commit")
        assert share.read(handle) == (p.OK, b"waits for a commit")
    assert gateway.stop() == (0, "")


def write_as_a_client_when_it_can(share, handle, data, limit_s=60):
    """Writes and commits until both succeed under one verifier."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        status, verifier, _ = share.write(handle, 0, data)
        if status == p.OK and share.commit(handle) == (p.OK, verifier):
            return True
        time.sleep(0.2)
    return False


class Trouble:
    """Two gateways, of which one or the other is killed and started again all the time."""

    def __init__(self, world, pool):
        self.gateways = [Gateway(world, pool, exports=OPEN) for _ in range(2)]
        self.kills = 0
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.make)
        self.thread.start()

    def make(self):
        chance = random.Random(13)
        while not self.is_over.wait(chance.uniform(0.1, 0.6)):
            gateway = chance.choice(self.gateways)
            gateway.kill()
            gateway.start()
            self.kills += 1

    def end(self):
        self.is_over.set()
        self.thread.join()


class Wanderer:
    """A client that goes on at the other gateway, with the call that was not answered, when the one that
    it talks to is gone. Its calls are those of `Share`."""

    def __init__(self, gateways, limit_s=60):
        self.gateways = gateways
        self.share = None
        self.moves = 0
        self.limit_s = limit_s

    def __getattr__(self, name):
        return lambda *arguments: self.call(name, *arguments)[0]

    def call(self, name, *arguments):
        """(result, whether the call may have been made before)."""
        deadline = time.monotonic() + self.limit_s
        was_sent = False
        while time.monotonic() < deadline:
            try:
                if self.share is None:
                    self.share = self.gateways[self.moves % 2].share()
                return getattr(self.share, name)(*arguments), was_sent
            except (p.Closed, ConnectionError):
                was_sent = was_sent or self.share is not None
                self.leave()
                time.sleep(0.02)
        raise AssertionError("no gateway stays long enough")

    def leave(self):
        if self.share is not None:
            self.share.close()
        self.share = None
        self.moves += 1


@pytest.mark.limit(180)
def test_nothing_is_lost_while_gateways_are_killed(world):
    """What was committed is there; a call that was sent again is carried out once."""
    pool = world.pool()
    trouble = Trouble(world, pool)
    client = Wanderer(trouble.gateways)
    chance = random.Random(14)
    files, written_again = {}, 0
    try:
        root = client.root()
        until = time.monotonic() + 15
        while time.monotonic() < until or not (trouble.kills > 9 and written_again):
            assert time.monotonic() < until + 60, f"{trouble.kills} kills, and nothing written again"
            name = f"file{len(files)}"
            # After a kill nobody remembers the answers: the call may have been carried out before.
            (status, handle), again = client.call("create", root, f"{name}.new")
            assert status in ([p.OK, p.EXIST] if again else [p.OK])
            handle = handle or client.lookup(root, f"{name}.new")[1]
            data = chance.randbytes(chance.randrange(1, 2 << 20))
            written_again += write_as_a_client(client, handle, data, block=8192) > 1
            move = p.rename_arguments(root, f"{name}.new", root, name)
            (status, _), again = client.call("nfs", p.RENAME, move)
            assert status in ([p.OK, p.NOENT] if again else [p.OK])
            files[name] = data
            if chance.random() < 0.3:
                client.leave()
    finally:
        trouble.end()
    with trouble.gateways[0].share() as share:
        listed = share.all_names(root)
        assert sorted(listed) == sorted(files), sorted(set(listed) - set(files)) or len(listed)
    for gateway in trouble.gateways:
        assert gateway.stop() == (0, "")
    for name, data in files.items():
        world.run("fs", "get", f"{pool.name}:/{name}", world.base / "got")
        assert (world.base / "got").read_bytes() == data, name
    pool.check()


# --- Locks --------------------------------------------------------------------------------------


def test_locks_hold_at_every_gateway(serve):
    one, other = (serve(exports=OPEN) for _ in range(2))
    with one.share() as here, other.share() as there:
        root = here.root()
        handle = here.file(root, "locked")
        assert here.lock(handle, 1, 0, 10, host="a") == p.GRANTED
        assert there.lock(handle, 2, 5, 10, host="b") == p.LOCK_DENIED
        assert there.lock(handle, 2, 10, 10, host="b") == p.GRANTED
        # The same owner at another gateway is who it was.
        assert there.unlock(handle, 1, 0, 10, host="a") == p.GRANTED
        assert here.unlock(handle, 2, 0, 0, host="b") == p.GRANTED
        assert here.unlock(handle, 1, 0, 0, host="a") == p.GRANTED
        assert there.unlock(handle, 2, 0, 0, host="b") == p.GRANTED
        assert here.lock_when_free(handle, 3, host="c")
        assert here.unlock(handle, 3, host="c") == p.GRANTED
        assert here.remove(root, "locked") == p.OK


@pytest.mark.limit(180)
def test_locks_of_a_gateway_that_was_killed(serve):
    one, other = (serve(exports=OPEN) for _ in range(2))
    with one.share() as here:
        root = here.root()
        handle = here.file(root, "orphaned")
        assert here.lock(handle, 1, host="a") == p.GRANTED
    one.kill()
    with other.share() as there:
        # Its locks go with its lease.
        assert there.lock_when_free(handle, 2, limit_s=60, host="b")
        assert there.unlock(handle, 2, host="b") == p.GRANTED
        assert there.remove(root, "orphaned") == p.OK


def test_all_locks_of_a_client_that_was_restarted(serve):
    gateway = serve(exports=OPEN)
    with gateway.share() as share:
        root = share.root()
        handle = share.file(root, "freed")
        assert share.lock(handle, 1, 0, 10, host="a") == p.GRANTED
        assert share.lock(handle, 2, 10, 10, host="a") == p.GRANTED
        assert share.lock(handle, 1, 20, 10, host="b") == p.GRANTED
        share.call(p.NLM, p.NLM_FREE_ALL, p.opaque("a") + p.u32(0))
        assert share.lock_when_free(handle, 3, offset=0, length=20, host="c")
        assert share.lock(handle, 3, 20, 1, host="c") == p.LOCK_DENIED
        for host, owner in (("b", 1), ("c", 3)):
            assert share.unlock(handle, owner, host=host) == p.GRANTED
        assert share.remove(root, "freed") == p.OK


@pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="needs FUSE")
def test_locks_hold_against_a_mount(world):
    pool = world.pool()
    gateway = Gateway(world, pool, exports=OPEN)
    mount = pool.mount()
    script = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1], 'r+')\n"
        "try:\n"
        "    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 0)\n"
        "except OSError:\n"
        "    sys.exit(3)\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )

    def program():
        return subprocess.Popen(
            ["python3", "-c", script, mount / "file"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    with gateway.share(os.getuid(), os.getgid()) as share:
        handle = share.file(share.root(), "file", b"text")
        assert share.lock(handle, 1, 5, 10) == p.GRANTED
        with program() as refused:
            assert refused.wait(20) == 3
        assert share.unlock(handle, 1) == p.GRANTED
        with program() as holder:
            assert holder.stdout.readline() == "locked\n"
            assert share.lock(handle, 1, 5, 10) == p.LOCK_DENIED
            assert share.lock(handle, 1, 10, 10) == p.GRANTED
            holder.stdin.close()
            assert holder.wait(20) == 0
        assert share.lock_when_free(handle, 1, offset=0, length=10)


# --- Files that are open elsewhere --------------------------------------------------------------


@pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="needs FUSE")
def test_a_mount_and_a_gateway_see_each_other(world):
    pool = world.pool()
    gateway = Gateway(world, pool, exports=OPEN)
    mount = pool.mount()
    with gateway.share(os.getuid(), os.getgid()) as share:
        root = share.root()
        (mount / "by-mount").write_bytes(b"written by the mount")
        _, handle = share.lookup(root, "by-mount")
        assert share.read(handle) == (p.OK, b"written by the mount")
        handle = share.file(root, "by-nfs")
        assert share.write(handle, 0, b"written by NFS")[0] == p.OK
        assert share.commit(handle)[0] == p.OK
        wait_until(lambda: (mount / "by-nfs").exists(), "the name is seen")
        assert (mount / "by-nfs").read_bytes() == b"written by NFS"
        found = share.getattr(handle)[1]
        seen = (mount / "by-nfs").stat()
        assert (found["fileid"], found["mode"]) == (seen.st_ino, seen.st_mode & 0o7777)
        assert found["mtime"] * 10**9 + found["mtime_ns"] == seen.st_mtime_ns


def test_connections_end_and_begin(serve):
    """What connections leave behind does not grow."""
    gateway = serve(exports=OPEN)
    with gateway.share() as share:
        root = share.root()
        before = gateway.open_files()
        for _ in range(300):
            with gateway.share() as other:
                assert other.getattr(root)[0] == p.OK
        for _ in range(20):
            plug = socket.create_connection((gateway.host, gateway.port))
            plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            plug.close()
        wait_until(lambda: gateway.open_files() <= before + 5, "connections are closed")
