"""A cursor that names the ledger of somebody else, as a broker of Pulsar lets clients write it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.assembly.app import running_broker
from broker.ground.config import BrokerConfig
from broker.managed_ledger.cursor_record import ATTACHED_LEDGER_PROPERTY
from broker.topics.broadcast.tests.peer import peer
from protocol.topic_name import TopicName

CONFIG = replace(BrokerConfig(), brokerServicePort=0, webServicePort=0)
VICTIM = TopicName.parse("persistent://public/default/victim")
TOPIC = TopicName.parse("persistent://public/default/t")
BROADCAST = {"vela.broadcast": "true"}


async def named_ledger(broker, properties):
    """A subscription whose cursor names the ledger of another topic. Returns that topic's ledger,
    which is open and has an entry."""
    victim = await broker.service.get_or_load_topic(VICTIM, create=True)
    async with peer(broker, producer=True, topic=VICTIM.full) as publisher:
        await publisher.publish(b"theirs")
    (row,) = victim.ledger.statistics().ledgers
    topic = await broker.service.get_or_load_topic(TOPIC, create=True)
    async with peer(broker) as consumer:
        await consumer.subscribe((1, "one"), topic=TOPIC.full, metadata=properties)
    cursor = topic.ledger.cursors["all"]
    await cursor.set_properties({**cursor.properties, ATTACHED_LEDGER_PROPERTY: str(row.ledger_id)})
    await broker.service.unload_topic(TOPIC)
    return victim


async def check_unharmed(broker, victim):
    async with peer(broker, producer=True, topic=VICTIM.full) as publisher:
        await publisher.publish(b"more", first=1)
    assert not victim.ledger.fenced
    assert len(await victim.ledger.read((0, 0), 10, 10_000)) == 2


@pytest.mark.parametrize("properties", [{}, BROADCAST])
async def test_a_subscription_that_is_deleted_takes_no_ledger_of_others_with_it(
    tmp_path, properties
):
    async with running_broker(CONFIG, tmp_path) as broker:
        victim = await named_ledger(broker, properties)
        topic = await broker.service.get_or_load_topic(TOPIC, create=False)
        await topic.delete_subscription("all", force=True)
        await check_unharmed(broker, victim)


async def test_a_topic_that_is_deleted_takes_no_ledger_of_others_with_it(tmp_path):
    async with running_broker(CONFIG, tmp_path) as broker:
        victim = await named_ledger(broker, {})
        await broker.service.factory.delete(TOPIC.managed_ledger_name)
        await check_unharmed(broker, victim)


async def test_a_broadcast_does_not_fence_a_ledger_of_others(tmp_path):
    async with running_broker(CONFIG, tmp_path) as broker:
        victim = await named_ledger(broker, BROADCAST)
        async with peer(broker, producer=True, topic=TOPIC.full) as publisher:
            await publisher.publish(b"ours")
            async with peer(broker) as consumer:
                consumer.acks = True
                await consumer.subscribe((1, "one"), topic=TOPIC.full)
                await publisher.publish(b"more", first=1)
                await consumer.until(lambda: consumer.payloads(1)[-1:] == [b"more"])
        await broker.service.unload_topic(TOPIC)
        await check_unharmed(broker, victim)
