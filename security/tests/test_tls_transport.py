"""TLS over a transport: bytes, turns, back-pressure and the end, however records are cut."""

from __future__ import annotations

import ssl
from itertools import repeat

import pytest
import structlog
import trio
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.send_queue import SendQueue
from runtime.testing.conditions import SECONDS_MAX
from runtime.transport import Taken
from security.handshakes import DECRYPTED_BYTES_MAX
from security.openssl import FED_BYTES, FED_BYTES_MIN
from security.slices import slices_of
from security.tests.link import Link, linked, until
from security.tls_transport import (
    SLICE_BYTES,
    TlsTransport,
)

SIZES = st.lists(st.sampled_from([1, 2, 5, 21, 22, 1_000, 16_384, 20_000]), max_size=60)


@settings(deadline=None, max_examples=60)
@given(
    cuts=SIZES,
    takes=st.lists(st.sampled_from([0, 0, 1, 7, 100, 16_406, 70_000]), max_size=60),
    up=st.lists(st.integers(1, 40_000), max_size=8),
    down=st.lists(st.integers(1, 200_000), max_size=8),
)
def test_records_cut_anywhere_and_taken_in_any_parts_give_the_same_bytes(
    contexts, cuts, takes, up, down
):
    async def run():
        async with linked(contexts, takes=takes, cuts=cuts) as link:
            sent_up, sent_down = bytearray(), bytearray()
            for number, size in enumerate(up):
                message = bytes([number]) * size
                sent_up += message
                link.client.engine.write(message)
                link.client.flush()
            queue = SendQueue()
            for number, size in enumerate(down):
                message = bytes([number]) * size
                sent_down += message
                queue.append([message[: size // 2], message[size // 2 :]], size)
                queue.send_to(link.server)
            while queue.pending_bytes:
                queue.took(await link.server.send(queue.batch()))
                link.client.exchange()
            link.client.exchange()
            await until(lambda: len(link.bytes) == len(sent_up))
            assert link.bytes == sent_up
            assert link.client.got == sent_down

    trio.run(run)


@given(
    sizes=st.lists(st.integers(0, 50), max_size=8),
    skipped=st.integers(0, 100),
    bound=st.integers(1, 30),
)
def test_slices_hold_what_is_not_skipped_in_order(sizes, skipped, bound):
    buffers = [bytes([number]) * size for number, size in enumerate(sizes)]
    slices = list(slices_of(buffers, skipped, bound))
    assert b"".join(b"".join(pieces) for pieces, _ in slices) == b"".join(buffers)[skipped:]
    assert [size for _, size in slices] == [sum(map(len, pieces)) for pieces, _ in slices]
    assert all(size == bound for _, size in slices[:-1])
    assert all(0 < size <= bound for _, size in slices)


def test_large_buffers_are_cut_without_a_copy():
    large = bytes(SLICE_BYTES * 3)
    for pieces, _ in slices_of([large], 5, SLICE_BYTES):
        (piece,) = pieces
        assert piece.obj is large


async def test_something_counts_as_not_taken_until_all_of_it_has_left(contexts):
    async with linked(contexts) as link:
        link.below.takes = iter(repeat(0, 1_000))
        message = bytes(10_000)
        assert link.server.send_nowait([message]) == 0
        left = memoryview(message)
        for _ in range(200):
            link.below.takes = iter([100, *repeat(0, 10)])
            before = len(link.below.sent)
            left = left[link.server.send_nowait([left]) :]
            if len(link.below.sent) == before:
                break
            assert bool(left) == bool(link.server._unsent.pending_bytes)
        assert not left
        link.client.exchange()
        assert link.client.got == message


async def test_a_peer_that_takes_nothing_holds_the_records_of_one_slice(contexts):
    async with linked(contexts) as link:
        link.below.takes = repeat(0)
        message = bytes(10 * SLICE_BYTES)
        assert link.server.send_nowait([message]) == 0
        assert link.server.send_nowait([message]) == 0
        assert SLICE_BYTES < link.server._unsent.pending_bytes < SLICE_BYTES * 1.01


async def test_a_turn_decrypts_a_bounded_piece(contexts):
    async with linked(contexts) as link:
        message = bytes(4 * DECRYPTED_BYTES_MAX)
        link.client.engine.write(message)
        link.client.flush()
        await until(lambda: link.bytes == message)
        assert max(map(len, link.got)) <= DECRYPTED_BYTES_MAX
        assert len(link.got) <= 6


async def test_a_receiver_with_a_rest_is_called_again_before_the_next_piece(contexts):
    link = Link(contexts)
    calls = []

    def take(data):
        calls.append(data)
        if data is not None:
            return Taken.IN_PART
        return Taken.WHOLE if len(calls) < 6 else Taken.STOP

    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.server.receive_into, take)
        await link.client.shake_hands()
        for number in range(3):
            link.client.engine.write(b"%d" % number)
            link.client.flush()
    assert calls == [b"0", None, b"1", None, b"2", None]


async def test_a_receiver_that_stopped_gets_the_rest_when_it_calls_again(contexts):
    link = Link(contexts)
    message = bytes(range(256)) * 4_096

    def stop_at_once(data):
        link.got.append(data)
        return Taken.STOP

    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.server.receive_into, stop_at_once)
        await link.client.shake_hands()
        link.client.engine.write(message)
        link.client.flush()
    while len(link.bytes) < len(message):
        with trio.fail_after(SECONDS_MAX):
            await link.server.receive_into(stop_at_once)
    assert link.bytes == message


async def test_receive_gives_the_same_as_receive_into(contexts):
    link = Link(contexts)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.server.secure)
        await link.client.shake_hands()
    link.client.engine.write(b"hello")
    link.client.flush()
    assert await link.server.receive() == b"hello"
    with pytest.raises(ssl.SSLError):
        link.client.engine.unwrap()
    link.client.flush()
    assert await link.server.receive() == b""


async def test_the_certificate_of_the_client_is_known_after_the_handshake(contexts):
    link = Link(contexts)
    assert link.server.peer_certificate is None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.server.secure)
        await link.client.shake_hands()
    assert link.server.peer_certificate == contexts[2].der


async def test_the_certificate_of_the_client_stays_known_after_its_connection_broke(contexts):
    """What came before is handled after that, and its handler asks for the certificate."""
    async with linked(contexts) as link:
        link.client.engine.write(b"last")
        link.client.flush()
        link.below.arrive(b"no record of TLS")
        await until(lambda: link.server._failure)
        assert link.bytes == b"last"
        assert link.server.peer_certificate == contexts[2].der


@pytest.mark.parametrize("says_so", [True, False])
async def test_a_peer_that_closes_ends_the_connection_after_its_last_bytes(contexts, says_so):
    async with linked(contexts) as link:
        link.client.engine.write(b"last")
        if says_so:
            with pytest.raises(ssl.SSLError):
                link.client.engine.unwrap()
        link.client.flush()
        link.below.arrive(b"")
        await until(lambda: b"" in link.got)
        assert link.got == [b"last", b""]


async def test_a_close_says_so_in_tls(contexts):
    async with linked(contexts) as link:
        link.server.close()
        assert link.below.is_closed
        link.client.exchange()
        assert link.client.is_told_the_end
        with pytest.raises(trio.BrokenResourceError):
            link.server.send_nowait([b"more"])


async def test_finishing_sends_everything_and_then_waits_for_the_peer(contexts):
    link = Link(contexts)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.server.secure)
        await link.client.shake_hands()
    link.below.takes = iter([10, *repeat(1_000, 1_000)])
    data = memoryview(bytes(5_000))
    while data:
        data = data[await link.server.send([data]) :]
    await link.server.finish_sending()
    assert link.below.is_finished
    link.client.exchange()
    assert (len(link.client.got), link.client.is_told_the_end) == (5_000, True)
    link.below.arrive(b"whatever", b"")
    assert await link.server.receive() == b""


async def test_a_changed_record_breaks_the_connection_after_what_came_before(contexts):
    link = Link(contexts)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.server.secure)
        await link.client.shake_hands()
    link.client.engine.write(b"good")
    link.client.flush()
    good = await link.below.receive()
    link.client.engine.write(b"bad")
    link.client.flush()
    bad = bytearray(await link.below.receive())
    bad[-1] ^= 1
    link.below.arrive(good + bytes(bad))
    with (
        structlog.testing.capture_logs() as logs,
        pytest.raises(trio.BrokenResourceError, match=r"bad record mac"),
    ):
        await link.server.receive_into(link.take)
    assert link.got == [b"good"]
    assert logs[0]["reason"] == "decryption failed or bad record mac"
    with pytest.raises(ssl.SSLError, match=r"(?i)bad record mac"):
        link.client.exchange()


class Repeated:
    """A strip: one piece many times."""

    def __init__(self, piece, count):
        self.whole = piece * count
        self.taken = 0

    def send(self, descriptor, bytes_max):
        raise AssertionError("TLS has no socket of its own")

    def buffers(self, bytes_max):
        view = memoryview(self.whole)[self.taken : self.taken + bytes_max]
        return [view[start : start + 1000] for start in range(0, len(view), 1000)]


@pytest.mark.parametrize("takes", [(), [1, 100, 0, 20_000, 3]])
async def test_a_strip_is_encrypted_like_other_bytes(contexts, takes):
    link = Link(contexts, takes)
    strip = Repeated(bytes(range(250)) * 10, 40)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.server.secure)
        await link.client.shake_hands()
    strip.taken += link.server.send_strip_nowait(strip, 30_000)
    while strip.taken < len(strip.whole):
        strip.taken += await link.server.send_strip(strip, 30_000)
    link.client.exchange()
    assert link.client.got == strip.whole


async def test_small_records_take_several_turns(contexts):
    async with linked(contexts) as link:
        for _ in range(5_000):
            link.client.engine.write(b"x")
        link.client.flush()
        await until(lambda: len(link.bytes) == 5_000)
        assert max(map(len, link.got)) <= 256


class KeyUpdates:
    """What sends records of a client with TLS 1.3 that only say that another key follows (RFC 8446
    4.6.3), which no library makes by the thousand."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def _expanded(self, label: bytes, size: int) -> bytes:
        label = b"tls13 " + label
        info = size.to_bytes(2) + bytes([len(label)]) + label + bytes(1)
        return HKDFExpand(SHA384(), size, info).derive(self._secret)

    def record(self) -> bytes:
        head, content = b"\x17\x03\x03\x00\x16", b"\x18\x00\x00\x01\x00\x16"
        key, nonce = self._expanded(b"key", 32), self._expanded(b"iv", 12)
        self._secret = self._expanded(b"traffic upd", 48)
        return head + AESGCM(key).encrypt(nonce, content, head)


@pytest.mark.parametrize("by_pieces", [False, True])
async def test_a_stream_of_key_updates_takes_many_short_turns(contexts, tmp_path, by_pieces):
    """A megabyte of them, which anyone may send, took a second of one turn."""
    keys = tmp_path / "keys"
    contexts[1].keylog_filename = str(keys)
    try:
        async with linked(contexts) as link:
            lines = (each.split() for each in keys.read_text().splitlines())
            (secret,) = (each[2] for each in lines if each[0] == "CLIENT_TRAFFIC_SECRET_0")
            updates = KeyUpdates(bytes.fromhex(secret))
            data = b"".join(updates.record() for _ in range(4_000))
            turns, size = 0, FED_BYTES if by_pieces else len(data)
            decrypt = TlsTransport._decrypt
            for start in range(0, len(data), size):
                link.server._arrived(data[start : start + size])
                while link.server._has_rest:
                    assert decrypt(link.server) is None
                    turns += 1
            assert turns >= len(data) / (3 * FED_BYTES_MIN)
    finally:
        contexts[1].keylog_filename = None
