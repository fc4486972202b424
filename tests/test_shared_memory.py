"""Clients that speak to an engine of their host through memory, as docs/PROTOCOL.md has it:
right ones, and those that break it."""

import contextlib
import os
import socket
import time

import pytest
from pools import free_ports
from protocol import (
    BYTES,
    HEAD,
    ON_SOCKET,
    PING,
    RECORDS,
    RING_WORDS,
    SHARE_MEMORY,
    SLEEPS,
    TAIL,
    Reach,
    Rings,
    enter,
    frame,
    is_closed,
    ping,
    request,
    take_frame,
)

DONE = frame(b"\0\0")


@pytest.fixture
def shared(world):
    return world.pool(memory=True)


@pytest.fixture
def reach(world, shared):
    return Reach(world, shared.name)


@pytest.fixture
def rings(reach):
    with contextlib.closing(enter(reach)) as plug:
        yield Rings(plug)


def slept(rings):
    """Waits until the engine sleeps."""
    limit = time.monotonic() + 10
    while not rings.word(0, SLEEPS):
        assert time.monotonic() < limit, "the engine does not sleep"
        time.sleep(0.001)


def test_requests_and_answers_go_through_memory(rings):
    # Round the ring several times.
    for number in range(4 * RING_WORDS // 3):
        rings.send(request(PING))
        assert rings.take() == DONE
        if number % 500 == 0:
            slept(rings)
    assert rings.tail > 2 * RING_WORDS


def test_several_requests_in_one_record_and_one_in_pieces(rings):
    rings.send(3 * request(PING))
    answers = b""
    while len(answers) < 3 * len(DONE):
        answers += rings.take()
    assert answers == 3 * DONE
    asked = request(PING)
    rings.send(asked[:5])
    time.sleep(0.01)
    rings.send(asked[5:])
    assert rings.take() == DONE


def test_what_is_announced_comes_over_the_socket(rings):
    for number in range(200):
        if number % 20 == 0:
            slept(rings)
        asked = request(PING)
        if number % 3:
            rings.send_on_socket(asked)
        else:
            rings.send(asked)
        assert rings.take() == DONE


def test_memory_is_shared_once(rings):
    rings.send(request(SHARE_MEMORY))
    answer = rings.take()
    assert answer[8:9] == b"\1", "refused"
    rings.send(request(PING))
    assert rings.take() == DONE


def test_over_a_network_there_is_none(world):
    (port,) = free_ports(1)
    pool = world.pool(memory=True, extra=("--listen", f"127.0.0.1:{port}"))
    reach = Reach(world, pool.name)
    reach.addresses = [f"tcp:127.0.0.1:{port}"]
    with contextlib.closing(enter(reach)) as plug:
        plug.sendall(request(SHARE_MEMORY))
        assert take_frame(plug)[0][:1] == b"\1"
        assert ping(plug)


@pytest.mark.parametrize(
    "words",
    [
        [BYTES << 32],
        [BYTES << 32 | 0xFFFF_FFFF],
        [BYTES << 32 | 8],
        [ON_SOCKET << 32, 1],
        [ON_SOCKET << 32 | 8],
        [ON_SOCKET << 32 | 8, 0],
        [7 << 32 | 8, 0],
        [2**64 - 1] * 3,
    ],
)
def test_who_breaks_the_ring_is_cut_off_and_nobody_else(rings, reach, words):
    slept(rings)
    rings.publish(words)
    assert is_closed(rings.plug)
    assert ping(enter(reach))


@pytest.mark.parametrize("tail", [RING_WORDS + 1, 2**63, 2**64 - 1])
def test_a_tail_that_cannot_be_ends_the_connection(rings, reach, tail):
    slept(rings)
    rings.set_word(0, RECORDS, BYTES << 32 | 8)
    rings.set_word(0, TAIL, tail)
    rings.nudge()
    assert is_closed(rings.plug)
    assert ping(enter(reach))


def test_a_head_beyond_the_end_ends_the_connection(rings, reach):
    rings.set_word(1, HEAD, 99)
    rings.send(request(PING))
    assert is_closed(rings.plug)
    assert ping(enter(reach))


def test_the_memory_cannot_be_made_smaller(reach):
    with contextlib.closing(enter(reach)) as plug:
        plug.sendall(request(SHARE_MEMORY))
        _, (passed,), _, _ = socket.recv_fds(plug, 65_536, 1)
        with pytest.raises(PermissionError):
            os.ftruncate(passed, 0)
        os.close(passed)
    assert ping(enter(reach))


def test_an_engine_stops_though_a_client_never_pauses(world, shared, rings):
    stopping = world.start("down", shared.name)
    asked = 0
    with contextlib.suppress(OSError):
        while stopping.poll() is None:
            # More than one, so that the engine does not find its ring empty.
            while asked < 8:
                rings.send(request(PING))
                asked += 1
            answered = rings.word(1, TAIL) != rings.head
            if answered:
                asked -= rings.take().count(DONE)
    assert stopping.wait(60) == 0
