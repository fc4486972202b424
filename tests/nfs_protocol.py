"""ONC RPC over a TCP socket and the calls of NFS, MOUNT and NLM that tests need, written anew from the
RFCs (5531, 4506, 1813): for what a well-behaved client does not send. It shares no code with the
program that it tests."""

import itertools
import random
import socket
import struct
import time

NFS, MOUNT, NLM = (100003, 3), (100005, 3), (100021, 4)
AUTH_NONE, AUTH_SYS = 0, 1
CALL, REPLY = 0, 1
ACCEPTED, DENIED = 0, 1
SUCCESS, PROG_UNAVAIL, PROG_MISMATCH, PROC_UNAVAIL, GARBAGE_ARGS = range(5)
RPC_MISMATCH, AUTH_ERROR = 0, 1
AUTH_BADCRED, AUTH_REJECTEDCRED, AUTH_BADVERF, AUTH_REJECTEDVERF, AUTH_TOOWEAK = range(1, 6)
OK, PERM, NOENT, ACCES, EXIST, NOTDIR, INVAL, ROFS, NOTEMPTY = 0, 1, 2, 13, 17, 20, 22, 30, 66
STALE, BADHANDLE = 70, 10001
UNSTABLE, DATA_SYNC, FILE_SYNC = range(3)
UNCHECKED, GUARDED, EXCLUSIVE = range(3)
LAST = 1 << 31
ATTRIBUTES = struct.Struct(">IIIIIQQIIQQIIIIII")
ATTRIBUTE_NAMES = [
    *("type", "mode", "nlink", "uid", "gid", "size", "used", "major", "minor", "fsid", "fileid"),
    *("atime", "atime_ns", "mtime", "mtime_ns", "ctime", "ctime_ns"),
]


class Closed(Exception):
    """The other side ended the connection."""


def u32(*numbers):
    return struct.pack(f">{len(numbers)}I", *numbers)


def u64(*numbers):
    return struct.pack(f">{len(numbers)}Q", *numbers)


def opaque(data):
    data = data.encode() if isinstance(data, str) else data
    return u32(len(data)) + data + bytes(-len(data) % 4)


def sys_body(uid=0, gid=0, groups=(), *, machine="raw", count=None):
    """The body of an AUTH_SYS credential; `count` says another number of groups than there are."""
    number = len(groups) if count is None else count
    return u32(7) + opaque(machine) + u32(uid, gid, number, *groups)


def sys_auth(uid=0, gid=0, groups=()):
    return AUTH_SYS, sys_body(uid, gid, groups)


def call_head(xid, program, procedure, auth, *, rpc_version=2):
    flavour, body = auth
    number, version = program
    return u32(xid, CALL, rpc_version, number, version, procedure, flavour) + opaque(body) + u32(0, 0)


def attributes(*, mode=None, uid=None, gid=None, size=None):
    """A `sattr3`."""
    out = b""
    for number in (mode, uid, gid):
        out += u32(0) if number is None else u32(1, number)
    return out + (u32(0) if size is None else u32(1) + u64(size)) + u32(0, 0)


class Reader:
    """Takes a reply apart."""

    def __init__(self, data):
        self.data = data
        self.at = 0

    def take(self, count):
        assert self.at + count <= len(self.data), "the reply ends too early"
        self.at += count
        return self.data[self.at - count : self.at]

    def u32(self):
        return struct.unpack(">I", self.take(4))[0]

    def u64(self):
        return struct.unpack(">Q", self.take(8))[0]

    def opaque(self):
        length = self.u32()
        data = self.take(length)
        self.take(-length % 4)
        return data

    def rest(self):
        return self.data[self.at :]

    def attributes(self):
        """A `fattr3`."""
        return dict(zip(ATTRIBUTE_NAMES, ATTRIBUTES.unpack(self.take(ATTRIBUTES.size))))

    def post_op(self):
        return self.attributes() if self.u32() else None

    def wcc(self):
        before = self.take(24) if self.u32() else None
        return before, self.post_op()


class Answer:
    """The head of a reply; `body` has the results."""

    def __init__(self, message):
        body = Reader(message)
        self.message = message
        self.xid = body.u32()
        assert body.u32() == REPLY
        self.kind = body.u32()
        self.low = self.high = None
        if self.kind == ACCEPTED:
            body.u32()
            body.opaque()
            self.status = body.u32()
            if self.status == PROG_MISMATCH:
                self.low, self.high = body.u32(), body.u32()
        else:
            self.status = body.u32()
            if self.status == RPC_MISMATCH:
                self.low, self.high = body.u32(), body.u32()
            else:
                self.problem = body.u32()
        self.body = body

    @property
    def head(self):
        """What says how the call ended: (kind, status) and the range or problem, if there is one."""
        if self.low is not None:
            return self.kind, self.status, self.low, self.high
        return (self.kind, self.status) if self.kind == ACCEPTED else (self.kind, self.problem)


class Connection:
    """One TCP connection on which calls are made, in any form."""

    def __init__(self, address, auth=None, limit_s=30):
        self.address = address
        self.auth = sys_auth() if auth is None else auth
        self.plug = socket.create_connection(address, limit_s)
        self.plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.xids = itertools.count(random.getrandbits(31))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.plug.close()

    def again(self):
        """Another connection to the same place, as the same user."""
        return Connection(self.address, self.auth)

    def send(self, message, fragment=None):
        """One message; in fragments of so many bytes if said."""
        size = fragment or max(len(message), 1)
        out = b""
        for start in range(0, max(len(message), 1), size):
            piece = message[start : start + size]
            last = LAST if start + size >= len(message) else 0
            out += u32(len(piece) | last) + piece
        self.plug.sendall(out)

    def receive(self):
        message, last = b"", False
        while not last:
            mark = struct.unpack(">I", self._take(4))[0]
            last = bool(mark & LAST)
            message += self._take(mark & ~LAST)
        return message

    def _take(self, count):
        data = bytearray()
        while len(data) < count:
            try:
                piece = self.plug.recv(count - len(data))
            except ConnectionError as error:
                raise Closed from error
            if not piece:
                raise Closed
            data += piece
        return bytes(data)

    def next_xid(self):
        return next(self.xids) & 0xFFFFFFFF

    def message(self, program, procedure, arguments=b"", *, xid=None, auth=None, **more):
        xid = self.next_xid() if xid is None else xid
        return call_head(xid, program, procedure, auth or self.auth, **more) + arguments

    def exchange(self, message, fragment=None):
        """Sends a message, and gives the answer to it."""
        self.send(message, fragment)
        answer = Answer(self.receive())
        assert answer.message[:4] == message[:4], "an answer to another call"
        return answer

    def ask(self, program, procedure, arguments=b"", **more):
        return self.exchange(self.message(program, procedure, arguments, **more))

    def call(self, program, procedure, arguments=b"", **more):
        """The results of a call that the RPC layer must accept."""
        answer = self.ask(program, procedure, arguments, **more)
        assert answer.head == (ACCEPTED, SUCCESS), answer.head
        return answer.body

    def is_closed(self, limit_s=10):
        """Whether the other side ends the connection, without a word."""
        self.plug.settimeout(limit_s)
        try:
            return self.plug.recv(1) == b""
        except ConnectionError:
            return True
        except socket.timeout:
            return False


# Procedures of NFS version 3, by number.
(NULL, GETATTR, SETATTR, LOOKUP, ACCESS, READLINK, READ, WRITE, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE,
 RMDIR, RENAME, LINK, READDIR, READDIRPLUS, FSSTAT, FSINFO, PATHCONF, COMMIT) = range(22)  # fmt: skip
MNT, DUMP, UMNT, UMNTALL, EXPORT = range(1, 6)
NLM_TEST, NLM_LOCK, NLM_CANCEL, NLM_UNLOCK = range(1, 5)
NLM_SHARE, NLM_UNSHARE, NLM_NM_LOCK, NLM_FREE_ALL = range(20, 24)
GRANTED, LOCK_DENIED = 0, 1


def in_dir(directory, name):
    return opaque(directory) + opaque(name)


# Arguments of the calls that change names: by procedure, of (directory, its names).
def create_arguments(directory, name, how=GUARDED, mode=0o644):
    return in_dir(directory, name) + u32(how) + attributes(mode=mode)


def mkdir_arguments(directory, name, mode=0o755):
    return in_dir(directory, name) + attributes(mode=mode)


def symlink_arguments(directory, name, text="text"):
    return in_dir(directory, name) + attributes() + opaque(text)


def rename_arguments(directory, name, to_directory, to_name):
    return in_dir(directory, name) + in_dir(to_directory, to_name)


def link_arguments(file, directory, name):
    return opaque(file) + in_dir(directory, name)


class Share(Connection):
    """A connection with the calls that tests make often. Each gives (status, what there is more)."""

    def mount(self, path):
        """(status of MNT, handle)."""
        body = self.call(MOUNT, MNT, opaque(path))
        status = body.u32()
        return status, body.opaque() if status == OK else None

    def root(self, path="/"):
        status, handle = self.mount(path)
        assert status == OK, f"MNT of {path}: {status}"
        return handle

    def nfs(self, procedure, arguments, **more):
        body = self.call(NFS, procedure, arguments, **more)
        return body.u32(), body

    def getattr(self, handle, **more):
        status, body = self.nfs(GETATTR, opaque(handle), **more)
        return status, body.attributes() if status == OK else None

    def setattr(self, handle, **changes):
        return self.nfs(SETATTR, opaque(handle) + attributes(**changes) + u32(0))[0]

    def lookup(self, directory, name):
        status, body = self.nfs(LOOKUP, in_dir(directory, name))
        return status, body.opaque() if status == OK else None

    def create(self, directory, name, how=GUARDED, mode=0o644):
        return self._made(CREATE, create_arguments(directory, name, how, mode), directory, name)

    def mkdir(self, directory, name, mode=0o755):
        return self._made(MKDIR, mkdir_arguments(directory, name, mode), directory, name)

    def _made(self, procedure, arguments, directory, name):
        status, body = self.nfs(procedure, arguments)
        if status != OK:
            return status, None
        return status, body.opaque() if body.u32() else self.lookup(directory, name)[1]

    def file(self, directory, name, data=b"", mode=0o644):
        """The handle of a new file with these bytes in it, which are durable."""
        status, handle = self.create(directory, name, mode=mode)
        assert status == OK, f"CREATE of {name}: {status}"
        for start in range(0, len(data), 1 << 20):
            status, *_ = self.write(handle, start, data[start : start + (1 << 20)], FILE_SYNC)
            assert status == OK, f"WRITE of {name}: {status}"
        return handle

    def remove(self, directory, name):
        return self.nfs(REMOVE, in_dir(directory, name))[0]

    def write(self, handle, offset, data, stable=UNSTABLE, **more):
        """(status, verifier, how stable it is)."""
        arguments = opaque(handle) + u64(offset) + u32(len(data), stable) + opaque(data)
        status, body = self.nfs(WRITE, arguments, **more)
        body.wcc()
        if status != OK:
            return status, None, None
        assert body.u32() == len(data), "a short write"
        committed = body.u32()
        return status, body.take(8), committed

    def commit(self, handle, offset=0, count=0):
        """(status, verifier)."""
        status, body = self.nfs(COMMIT, opaque(handle) + u64(offset) + u32(count))
        body.wcc()
        return status, body.take(8) if status == OK else None

    def read(self, handle, offset=0, count=1 << 20):
        """(status, bytes)."""
        status, body = self.nfs(READ, opaque(handle) + u64(offset) + u32(count))
        body.post_op()
        if status != OK:
            return status, None
        body.u32()
        body.u32()
        return status, body.opaque()

    def names(self, directory, cookie=0, verifier=bytes(8), count=8192):
        """One page of READDIR: (status, [(name, cookie)], verifier, whether that is the end)."""
        arguments = opaque(directory) + u64(cookie) + verifier + u32(count)
        status, body = self.nfs(READDIR, arguments)
        body.post_op()
        if status != OK:
            return status, [], verifier, True
        verifier, names = body.take(8), []
        while body.u32():
            body.u64()
            names.append((body.opaque().decode(), body.u64()))
        return status, names, verifier, bool(body.u32())

    def all_names(self, directory):
        names, cookie, verifier, end = [], 0, bytes(8), False
        while not end:
            status, page, verifier, end = self.names(directory, cookie, verifier)
            assert status == OK, f"READDIR: {status}"
            names += [name for name, _ in page if name not in (".", "..")]
            end = end or not page
            cookie = page[-1][1] if page else 0
        return names

    def exports(self):
        """[(path, [who may mount it])]."""
        body = self.call(MOUNT, EXPORT)
        found = []
        while body.u32():
            path, groups = body.opaque().decode(), []
            while body.u32():
                groups.append(body.opaque().decode())
            found.append((path, groups))
        return found

    def lock(self, handle, owner, offset=0, length=0, *, exclusive=True, block=False, host="raw",
             reclaim=False):  # fmt: skip
        """The status of NLM4_LOCK."""
        arguments = opaque(b"cookie") + u32(block, exclusive)
        arguments += nlm_lock(handle, owner, offset, length, host) + u32(reclaim, 0)
        return self._nlm(NLM_LOCK, arguments)

    def unlock(self, handle, owner, offset=0, length=0, host="raw"):
        return self._nlm(NLM_UNLOCK, opaque(b"cookie") + nlm_lock(handle, owner, offset, length, host))

    def _nlm(self, procedure, arguments):
        body = self.call(NLM, procedure, arguments)
        assert body.opaque() == b"cookie"
        return body.u32()

    def lock_when_free(self, handle, owner, limit_s=30, **more):
        """Asks for a lock until it is given: whether it was."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            if self.lock(handle, owner, **more) == GRANTED:
                return True
            time.sleep(0.05)
        return False


def nlm_lock(handle, owner, offset, length, host):
    """An `nlm4_lock`; the owner is a process's number."""
    return opaque(host) + opaque(handle) + opaque(f"{owner}@{host}") + u32(owner) + u64(offset, length)
