"""Single messages over HTTP that a hostile producer wrote."""

from __future__ import annotations

import zlib

import httpx
import pytest
import trio

from broker.ground.slices import STEPS_PER_SLICE
from broker.http.topics import messages
from protocol import client as wire
from protocol import pulsar_api_pb2 as pb
from protocol.metadata import peek_and_payload
from runtime.testing.conditions import SECONDS_MAX

NAME = "public/default/written"
TOPIC = f"persistent/{NAME}"
PACKED = zlib.compress(bytes(32 * 1024 * 1024), 9)


async def publish(url: str, *contents: bytes) -> None:
    """Send messages as they are, over a connection of their own."""
    client = wire.Client()
    host, _, port = url.removeprefix("pulsar://").partition(":")
    async with await trio.open_tcp_stream(host, int(port)) as stream:

        async def expect(kind: int, count: int = 1) -> None:
            with trio.fail_after(SECONDS_MAX):
                while count > 0:
                    data = await stream.receive_some(65536)
                    assert data, "the broker has closed the connection"
                    count -= sum(command.type == kind for command, _ in client.receive(bytes(data)))

        await stream.send_all(wire.connect() + wire.producer(f"persistent://{NAME}", 1, 1))
        await expect(pb.BaseCommand.PRODUCER_SUCCESS)
        sends = [wire.send(1, number, content) for number, content in enumerate(contents)]
        await stream.send_all(b"".join(sends))
        await expect(pb.BaseCommand.SEND_RECEIPT, len(contents))


@pytest.fixture
async def shown(broker):
    """Publishes one message and asks for it through the HTTP server."""

    async def show(payload: bytes = b"m", **fields: object) -> httpx.Response:
        await publish(broker.broker_service_url, wire.message(payload, **fields))
        async with httpx.AsyncClient(
            base_url=broker.web_service_url, timeout=SECONDS_MAX
        ) as client:
            return await client.get(f"/admin/v2/{TOPIC}/examinemessage")

    return show


@pytest.mark.parametrize(
    ("claimed", "status", "size"),
    [(0, 200, 0), (1_000, 200, 1_000), (2**32 - 1, 501, None)],
)
async def test_a_message_is_not_decompressed_beyond_a_bound(shown, claimed, status, size):
    answer = await shown(PACKED, compression=pb.ZLIB, uncompressed_size=claimed)
    assert answer.status_code == status
    if size is not None:
        assert answer.content == bytes(size)


async def test_metadata_that_no_headers_hold_is_refused_before_it_is_parsed(shown, monkeypatch):
    looked_at = []
    monkeypatch.setattr(
        messages, "peek_and_payload", lambda data: looked_at.append(data) or peek_and_payload(data)
    )
    assert (await shown(properties={"k": "v" * 60_000})).status_code == 200
    assert len(looked_at) == 1
    answer = await shown(properties={str(number): "v" * 1_000 for number in range(100)})
    assert answer.status_code == 501
    assert "Vela shows 65536 over HTTP at most" in answer.json()["reason"]
    assert len(looked_at) == 1


async def test_white_space_at_the_ends_of_a_text_is_no_part_of_its_header(shown):
    answer = await shown(partition_key=" a key ", ordering_key=b" ")
    assert answer.status_code == 200
    assert answer.headers["X-Pulsar-partition-key"] == "a key"


async def test_a_time_that_no_calendar_has_is_shown_as_a_number(shown):
    answer = await shown(publish_time=2**64 - 1)
    assert answer.status_code == 200
    assert answer.headers["X-Pulsar-publish-time"] == str(2**64 - 1)


async def test_a_position_that_is_no_number_is_not_found(http, shown):
    await shown()
    status, _ = await http("GET", f"{TOPIC}/examinemessage?messagePosition=first")
    assert status == 404


async def test_a_peek_far_ahead_lets_other_tasks_run(broker, http):
    await http("PUT", f"{TOPIC}/subscription/s")
    count = 20 * STEPS_PER_SLICE
    await publish(broker.broker_service_url, *[wire.message(b"%d" % n) for n in range(count)])
    turns = 0
    done = trio.Event()

    async def count_turns() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count_turns)
        answer = await http.client.get(f"/admin/v2/{TOPIC}/subscription/s/position/{count}")
        done.set()
    assert answer.content == b"%d" % (count - 1)
    assert turns > 9
