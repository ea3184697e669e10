"""`resetcursor` to a message id: the message itself or the one after it, also within a batch."""

from __future__ import annotations

import dataclasses

import pytest

from broker.assembly.app import running_broker
from broker.http.tests.conftest import CONFIG
from broker.topics.broadcast.tests.peer import peer
from protocol import client as c

NAME = "persistent://public/default/t"
T = "persistent/public/default/t"
BATCH = 70
"""Messages, so that their set has two words."""


@pytest.fixture
async def broker():
    """One that knows parts of batches. Others continue with the whole batch, as Pulsar does."""
    config = dataclasses.replace(CONFIG, acknowledgmentAtBatchIndexLevelEnabled=True)
    async with running_broker(config, None) as running:
        yield running


async def publish(connection, *frames):
    before = len(connection.receipts)
    await connection.send(*frames)
    await connection.until(lambda: len(connection.receipts) == before + len(frames))


@pytest.mark.parametrize(
    ("entry", "body", "first"),
    [
        (0, {}, b"first"),
        (0, {"excluded": True}, b"0"),
        (0, {"excluded": "true"}, b"0"),
        (0, {"batchIndex": -1, "excluded": False}, b"first"),
        (1, {"batchIndex": 0}, b"0"),
        (1, {"batchIndex": 65}, b"65"),
        (1, {"batchIndex": "3", "excluded": True}, b"4"),
        (1, {"batchIndex": BATCH - 1, "excluded": True}, b"last"),
        (1, {"batchIndex": BATCH + 9}, b"0"),
        (1, {"batchIndex": BATCH + 9, "excluded": True}, b"last"),
        (1, {"excluded": True}, b"last"),
    ],
)
async def test_a_reset_goes_to_the_message_or_after_it(http, broker, entry, body, first):
    async with peer(broker, producer=True, topic=NAME) as producer, peer(broker) as consumer:
        batch = c.batch([b"%d" % number for number in range(BATCH)], sequence_id=1)
        await publish(producer, c.send(1, 0, c.message(b"first", sequence_id=0)))
        await publish(producer, c.send(1, 1, batch, num_messages=BATCH))
        await publish(producer, c.send(1, 2, c.message(b"last", sequence_id=2)))
        found = [receipt.message_id for receipt in producer.receipts]
        await http("PUT", f"{T}/subscription/s", {"ledgerId": -1, "entryId": -1})
        wanted = {"ledgerId": found[entry].ledgerId, "entryId": found[entry].entryId, **body}
        assert await http("POST", f"{T}/subscription/s/resetcursor", wanted) == (204, None)
        await consumer.subscribe((1, "x"), topic=NAME, subscription="s", metadata={})
        await consumer.until(lambda: consumer.received[1])
        assert consumer.payloads(1)[0] == first


async def test_a_peek_by_a_subscription_that_is_not_there_shows_the_message(http, broker):
    async with peer(broker, producer=True, topic=NAME) as producer:
        await producer.publish(b"0", b"1")
    for number in (1, 2):
        path = f"/admin/v2/{T}/subscription/absent/position/{number}"
        assert (await http.client.get(path)).content == b"%d" % (number - 1)
    assert (await http("GET", f"{T}/subscription/absent/position/3"))[0] == 404
