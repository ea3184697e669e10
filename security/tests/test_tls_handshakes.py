"""Handshakes that fail, that are not finished, or that others wait for."""

from __future__ import annotations

import ssl
from functools import partial

import pytest
import structlog
import trio

from security.handshakes import BEGUN_BYTES, Handshakes
from security.testing.memory import MemoryClient, MemoryTransport
from security.tests.link import Link, until
from security.tls_transport import (
    NO_TLS_ALERT,
    HandshakeFailed,
)


async def failing(link, *pieces, task=None):
    """The reason for which the handshake fails when these bytes come."""
    link.below.arrive(*pieces, b"")
    with structlog.testing.capture_logs() as logs, pytest.raises(HandshakeFailed):
        await link.server.secure()
    assert link.handshakes.failed_total == 1
    assert link.handshakes.unfinished.held_bytes == 0
    (told,) = logs
    assert "exc_info" not in told
    return told["log_level"], told["reason"]


@pytest.mark.parametrize(
    "data",
    [
        bytes.fromhex("0000000800000004080210031a00"),  # a frame of Pulsar's
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x00\x05\xff\xff\xff\xff\xff",
        bytes(range(256)) * 4,
    ],
)
async def test_who_does_not_speak_tls_gets_an_alert_and_is_closed(contexts, data):
    link = Link(contexts)
    level, reason = await failing(link, data)
    assert level == "warning"
    assert reason
    assert link.below.sent[:1] == b"\x15"  # an alert
    assert link.below.is_finished


async def test_the_alert_for_plain_text_is_understood(contexts):
    client = MemoryClient(contexts[1], MemoryTransport())
    client._below.sent += NO_TLS_ALERT
    with pytest.raises(ssl.SSLError, match=r"(?i)alert protocol version"):
        client.exchange()


async def test_who_leaves_without_a_word_is_not_warned_about(contexts):
    assert await failing(Link(contexts)) == ("debug", "the peer has closed the connection")


async def test_who_leaves_in_the_middle_is_told_of(contexts):
    link = Link(contexts)
    link.client.exchange()
    hello = await link.below.receive()
    assert await failing(link, hello[:20]) == ("warning", "the peer has closed the connection")


async def test_a_client_that_does_not_trust_the_server_is_told_of(contexts):
    link = Link((contexts[0], ssl.create_default_context()))
    async with trio.open_nursery() as nursery:

        async def serve():
            with pytest.raises(HandshakeFailed, match=r"alert unknown ca"):
                await link.server.secure()

        nursery.start_soon(serve)
        with pytest.raises(ssl.SSLCertVerificationError):
            await link.client.shake_hands()
        link.client.flush()
        link.below.arrive(b"")


async def test_a_handshake_of_too_many_bytes_fails(contexts):
    link = Link(contexts)
    # A hello of 120 KB, in records of 16 KB, the last of which does not come.
    hello = b"\x01" + (120 * 1024).to_bytes(3, "big") + bytes(120 * 1024)
    records = [
        b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part
        for part in (hello[at : at + 16_384] for at in range(0, len(hello) - 16_384, 16_384))
    ]
    _, reason = await failing(link, *records)
    assert reason in ("the peer has sent too much", "excessive message size")


async def test_unfinished_handshakes_are_bounded_together(contexts, autojump_clock):
    handshakes = Handshakes(unfinished_bytes_max=10 * (BEGUN_BYTES + 1_000))
    links = [Link(contexts, handshakes=handshakes) for _ in range(30)]
    ended = []

    async def serve(link):
        with pytest.raises(trio.BrokenResourceError):
            await link.server.secure()
        ended.append(link)

    with trio.fail_after(1_000):
        async with trio.open_nursery() as nursery:
            for link in links:
                nursery.start_soon(serve, link)
                link.client.exchange()
                hello = await link.below.receive()
                link.below.arrive(hello[:50])
                await trio.sleep(2)
                assert handshakes.unfinished.held_bytes <= handshakes.unfinished.bytes_max
            assert set(ended) == set(links[: len(ended)])  # the longest silent first
            assert len(ended) >= 20
            honest = Link(contexts, handshakes=handshakes)
            nursery.start_soon(honest.server.secure)
            await honest.client.shake_hands()
            await until(lambda: handshakes.finished_total == 1)
            for link in links:
                link.server.close()
    assert handshakes.unfinished.held_bytes == 0
    assert len(ended) == 30


async def test_a_closed_handshake_ends_at_once(contexts):
    link = Link(contexts)
    async with trio.open_nursery() as nursery:

        async def serve():
            with pytest.raises(trio.BrokenResourceError):
                await link.server.receive_into(link.take)

        nursery.start_soon(serve)
        link.client.exchange()
        await until(lambda: link.below.sent)
        link.server.close()
    assert link.handshakes.unfinished.held_bytes == 0
    assert link.handshakes.failed_total == 1
    assert link.below.is_closed


async def test_a_sender_waits_for_the_handshake(contexts):
    link = Link(contexts)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(link.server.send, [b"hello"]))
        await link.client.shake_hands()
    link.client.exchange()
    assert link.client.got == b"hello"
