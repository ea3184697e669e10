"""Strips of frames that are sent from their heads and one payload, in both forms."""

from __future__ import annotations

import socket
from array import array
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from native.pure import strips as pure
from native.pure.broadcast import message_frames, message_heads

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

IDS = [0, 127, 128, 16_384, 2**64 - 1]
REST = b"\x12\x02\x08\x05"


def strip_of(count: int, payload: bytes) -> tuple[bytes, bytes]:
    """The heads of a strip, and all of its bytes."""
    slots, consumers = array("i", range(count)), array("Q", (IDS * count)[:count])
    heads = message_heads(slots, consumers, REST, len(payload))
    return heads, b"".join(message_frames(slots, consumers, REST, payload))


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    left.setblocking(False)
    right.setblocking(False)
    with left, right:
        yield left, right


def received(right: socket.socket) -> bytes:
    pieces = []
    try:
        while piece := right.recv(1 << 20):
            pieces.append(piece)
    except BlockingIOError:
        pass
    return b"".join(pieces)


def test_a_strip_is_sent_from_each_of_its_bytes(
    native: ModuleType, pair: tuple[socket.socket, socket.socket]
) -> None:
    heads, whole = strip_of(5, b"payload")
    for sent in range(len(whole) + 1):
        at, offset = native.strip_place(heads, 0, 0, 7, sent)
        left = len(whole) - sent
        for bytes_max in (1, 9, left, 1 << 20):
            taken = native.send_strip(pair[0].fileno(), heads, at, offset, b"payload", bytes_max)
            assert taken == min(left, bytes_max)
            assert received(pair[1]) == whole[sent : sent + bytes_max]
        for more in range(left + 1):
            expected = native.strip_place(heads, 0, 0, 7, sent + more)
            assert native.strip_place(heads, at, offset, 7, more) == expected


def test_no_send_has_more_buffers_than_the_kernel_takes(
    native: ModuleType, pair: tuple[socket.socket, socket.socket]
) -> None:
    heads, whole = strip_of(1_000, b"p")
    taken = native.send_strip(pair[0].fileno(), heads, 0, 0, b"p", 1 << 20)
    assert received(pair[1]) == whole[:taken]
    assert native.strip_place(heads, 0, 0, 1, taken)[1] == 0
    assert (
        len(message_heads(array("i", range(512)), array("Q", IDS * 200), REST, 1))
        == (native.strip_place(heads, 0, 0, 1, taken)[0])
    )


def test_a_full_socket_takes_a_part_and_then_nothing(
    native: ModuleType, pair: tuple[socket.socket, socket.socket]
) -> None:
    payload = bytes(range(250)) * 40
    heads, whole = strip_of(200, payload)
    got, at, offset, refusals = b"", 0, 0, 0
    while at < len(heads):
        try:
            taken = native.send_strip(pair[0].fileno(), heads, at, offset, payload, 1 << 22)
        except BlockingIOError:
            refusals += 1
            got += received(pair[1])
        else:
            at, offset = native.strip_place(heads, at, offset, len(payload), taken)
    assert refusals
    assert got + received(pair[1]) == whole


def test_a_peer_that_is_gone_is_an_error_and_no_signal(
    native: ModuleType, pair: tuple[socket.socket, socket.socket]
) -> None:
    heads, _ = strip_of(3, b"p")
    pair[1].close()
    with pytest.raises(BrokenPipeError):
        native.send_strip(pair[0].fileno(), heads, 0, 0, b"p", 100)
    with pytest.raises(OSError, match="Bad file descriptor"):
        native.send_strip(-1, heads, 0, 0, b"p", 100)


def test_nothing_is_sent_of_a_strip_that_has_left(native: ModuleType) -> None:
    heads, whole = strip_of(3, b"p")
    assert native.strip_place(heads, 0, 0, 1, len(whole)) == (len(heads), 0)
    assert native.send_strip(-1, heads, len(heads), 0, b"p", 100) == 0
    assert native.send_strip(-1, heads, 0, 0, b"p", 0) == 0


@pytest.mark.parametrize("at", [-1, 1, 10_000])
def test_what_is_no_place_in_a_strip_is_refused(native: ModuleType, at: int) -> None:
    heads, whole = strip_of(3, b"p")
    with pytest.raises(ValueError, match="strip"):
        native.send_strip(-1, heads, at, 0, b"p", 100)
    with pytest.raises(ValueError, match="strip"):
        native.strip_place(heads, at, 0, 1, 1_000)
    for count in (-1, len(whole) + 1):
        with pytest.raises(ValueError, match="bytes"):
            native.strip_place(heads, 0, 0, 1, count)
    with pytest.raises(ValueError, match="strip"):
        native.send_strip(-1, heads, 0, -1, b"p", 100)


NUMBER = st.one_of(st.integers(-2, 80), st.just(2**63 - 1))


@given(
    data=st.binary(max_size=60) | st.just(strip_of(3, b"p")[0]),
    cut=st.integers(0, 9),
    at=NUMBER,
    offset=NUMBER,
    count=NUMBER,
)
def test_both_forms_judge_any_bytes_alike(
    extension: ModuleType, data: bytes, cut: int, at: int, offset: int, count: int
) -> None:
    heads = data[: len(data) - cut] if cut < len(data) else data

    def outcome(native: ModuleType) -> tuple[object, object, bytes]:
        left, right = socket.socketpair()
        with left, right:
            right.setblocking(False)
            left.setblocking(False)
            try:
                taken = native.send_strip(left.fileno(), heads, at, offset, b"pay", count)
            except ValueError:
                taken = "refused"
            try:
                place = native.strip_place(heads, at, offset, 3, count)
            except ValueError:
                place = "refused"
            return taken, place, received(right)

    assert outcome(extension) == outcome(pure)
