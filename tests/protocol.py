"""The wire protocol as docs/PROTOCOL.md describes it, written anew: frames, the handshake, and the
few messages that the tests send. It shares no code with the program that it tests."""

import hashlib
import hmac
import mmap
import os
import socket
import struct
from pathlib import Path

MAGIC = b"AZEKURA\n"
VERSION = 7
ENGINE_SIDE = b"azekura 1 engine"
CALLER_SIDE = b"azekura 1 caller"
EARLY_SIDE = b"azekura 1 early"
ROLES = {"client": 0, "engine": 1}


class Closed(Exception):
    """The other side ended the connection."""


def varint(number):
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def frame(body, bulk=b""):
    return struct.pack("<II", len(body), len(bulk)) + body + bulk


def hello(pool, session, nonce, *, version=VERSION, magic=MAGIC, role="client", early=b"\0"):
    return magic + varint(version) + pool + session + varint(ROLES[role]) + nonce + early


def sign(secret, side, pool, session, role, nonce, engine_nonce, *more):
    mac = hmac.new(secret, digestmod=hashlib.sha256)
    for part in (side, pool, session, role.encode(), nonce, engine_nonce, *more):
        mac.update(struct.pack("<Q", len(part)) + part)
    return mac.digest()


class Reach:
    """Where an engine is and what one has to know to get in, as the command line shows it."""

    def __init__(self, world, pool_name):
        shown = world.json("pool", "show", pool_name)
        self.pool = bytes.fromhex(shown["pool"])
        self.secret = bytes.fromhex(Path(shown["secret"]).read_text().strip())
        self.addresses = shown["engines"][0]["addresses"]
        self.map_version = shown["version"]

    def dial(self, limit_s=15):
        kind, _, place = self.addresses[0].partition(":")
        if kind == "unix":
            plug = socket.socket(socket.AF_UNIX)
            plug.settimeout(limit_s)
            plug.connect(place)
        else:
            host, _, port = place.rpartition(":")
            plug = socket.create_connection((host, int(port)), limit_s)
        return plug


def take(plug, count):
    data = b""
    while len(data) < count:
        part = plug.recv(count - len(data))
        if not part:
            raise Closed
        data += part
    return data


def take_frame(plug):
    body_bytes, bulk_bytes = struct.unpack("<II", take(plug, 8))
    return take(plug, body_bytes), take(plug, bulk_bytes)


def is_closed(plug):
    """Whether the other side has closed, after whatever it still had to say."""
    try:
        while plug.recv(65_536):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    return True


def prove(plug, reach, session, nonce, *, secret=None):
    """Answers the engine's challenge; gives the engine's ticket, or why it made none."""
    body, _ = take_frame(plug)
    if body[0] != 0:
        return body
    engine_nonce, proof, ticket = body[1:33], body[33:65], body[66:]
    assert body[65:66] == b"\1", "no ticket"
    words = (reach.pool, session, "client", nonce, engine_nonce)
    assert hmac.compare_digest(proof, sign(reach.secret, ENGINE_SIDE, *words)), "an impostor"
    plug.sendall(frame(sign(secret or reach.secret, CALLER_SIDE, *words)))
    return ticket


def shake_hands(plug, reach, *, secret=None, session=None):
    """The caller's side of the handshake; gives the body of the engine's last word."""
    session = session or os.urandom(16)
    nonce = os.urandom(32)
    plug.sendall(frame(hello(reach.pool, session, nonce)))
    told = prove(plug, reach, session, nonce, secret=secret)
    return take_frame(plug)[0] if len(told) == 32 else told


def early_words(reach, ticket, asked, session, nonce, *, secret=None):
    """A hello with the request that goes with it, by a ticket."""
    words = (reach.pool, session, "client", nonce, ticket, asked[8:])
    early = b"\1" + ticket + sign(secret or reach.secret, EARLY_SIDE, *words)
    return frame(hello(reach.pool, session, nonce, early=early)) + asked


def enter(reach, **more):
    """A connection that was let in."""
    plug = reach.dial()
    body = shake_hands(plug, reach, **more)
    assert body[0] == 0, body
    return plug


def request(kind, arguments=b"", *, target=0, map_version=1, sequence=0):
    """A request frame: the head, the number of the request, its arguments."""
    head = varint(target) + varint(map_version) + varint(0) + varint(sequence) + b"\0\0"
    return frame(head + varint(kind) + arguments)


PING = 0


def ping(plug, map_version=1):
    plug.sendall(request(PING, map_version=map_version))
    body, bulk = take_frame(plug)
    return body == b"\0\0" and bulk == b""


SHARE_MEMORY = 80
RING_WORDS = 4096
TAIL, HEAD, SLEEPS, RECORDS = 0, 8, 16, 24
BYTES, ON_SOCKET = 0, 1


class Rings:
    """A connection that goes on through the engine's memory."""

    def __init__(self, plug):
        plug.sendall(request(SHARE_MEMORY))
        body, passed, _, _ = socket.recv_fds(plug, 65_536, 1)
        assert body == frame(b"\0\0"), body
        self.plug = plug
        # Words of the machine: `struct` would store a word byte by byte, and the engine, which looks
        # all the time, would see a tail that is half the old one.
        self.words = memoryview(mmap.mmap(passed[0], 2 * 8 * (RECORDS + RING_WORDS))).cast("Q")
        os.close(passed[0])
        self.tail = self.head = self.nudges_sent = self.nudges_taken = 0

    def word(self, ring, at):
        return self.words[ring * (RECORDS + RING_WORDS) + at]

    def set_word(self, ring, at, value):
        self.words[ring * (RECORDS + RING_WORDS) + at] = value

    def publish(self, words):
        """Puts words of records into the ring that the engine reads, and wakes it if it sleeps."""
        assert self.tail - self.word(0, HEAD) + len(words) <= RING_WORDS
        for word in words:
            self.set_word(0, RECORDS + self.tail % RING_WORDS, word)
            self.tail += 1
        self.set_word(0, TAIL, self.tail)
        if self.word(0, SLEEPS):
            self.set_word(0, SLEEPS, 0)
            self.nudge()

    def nudge(self):
        self.nudges_sent += 1
        self.plug.sendall(b"\0")

    def send(self, data):
        padded = data + bytes(-len(data) % 8)
        self.publish([BYTES << 32 | len(data), *struct.unpack(f"<{len(padded) // 8}Q", padded)])

    def send_on_socket(self, data):
        """The same where only the announcement goes through the ring."""
        announced = self.nudges_sent + 1
        self.publish([ON_SOCKET << 32 | len(data), announced])
        # If the engine has slept it has got its nudge.
        if self.nudges_sent < announced:
            self.nudge()
        self.plug.sendall(data)

    def take(self):
        """What the engine says next; sleeps until it does."""
        while self.word(1, TAIL) == self.head:
            self.set_word(1, SLEEPS, 1)
            if self.word(1, TAIL) == self.head:
                self.nudges_taken += len(take(self.plug, 1))
        header = self.word(1, RECORDS + self.head % RING_WORDS)
        kind, count = header >> 32, header & 0xFFFF_FFFF
        words = [1 + self.head + at for at in range(-(-count // 8) if kind == BYTES else 1)]
        words = [self.word(1, RECORDS + at % RING_WORDS) for at in words]
        self.head += 1 + len(words)
        self.set_word(1, HEAD, self.head)
        if kind == BYTES:
            return struct.pack(f"<{len(words)}Q", *words)[:count]
        take(self.plug, words[0] - self.nudges_taken)
        self.nudges_taken = words[0]
        return take(self.plug, count)
