"""A persistent topic between its producers and its ledger: policies, and failures of the ledger."""

from __future__ import annotations

from broker.net.tests.harness import T, eventually, running
from protocol.topic_name import TopicName

TOPIC = "persistent://public/default/t"
SMALL_LEDGERS = {
    "managedLedgerMaxEntriesPerLedger": 2,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
}
DELETE_CONSUMED = {"defaultRetentionTimeInMinutes": 0, "defaultRetentionSizeInMB": 0}
FOR_EVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}


async def set_retention(broker, policies):
    await broker.service.namespaces.change_policies(
        "public/default", lambda p: p.with_fields(retention_policies=policies)
    )
    await broker.service.policies_changed("public/default")


async def publish(connection, count):
    for number in range(count):
        await connection.publish(number)
        await connection.expect(T.SEND_RECEIPT)


async def test_the_retention_of_the_namespace_keeps_what_nobody_subscribes_to():
    async with running(**SMALL_LEDGERS, **DELETE_CONSUMED) as broker:
        await set_retention(broker, FOR_EVER)
        connection = await broker.connect()
        await connection.producer(TOPIC)
        await publish(connection, 6)
        await broker.topic(TOPIC).ledger.trim()
        assert broker.topic(TOPIC).ledger.entries == 6
        await broker.service.unload_topic(TopicName.parse(TOPIC))
        await connection.expect(T.CLOSE_PRODUCER)
        await connection.producer(TOPIC)
        await broker.topic(TOPIC).ledger.trim()
        assert broker.topic(TOPIC).ledger.entries == 6


async def test_a_changed_retention_takes_effect_on_a_loaded_topic():
    async with running(**SMALL_LEDGERS, **DELETE_CONSUMED) as broker:
        await set_retention(broker, FOR_EVER)
        connection = await broker.connect()
        await connection.producer(TOPIC)
        await publish(connection, 6)
        ledger = broker.topic(TOPIC).ledger
        await set_retention(broker, None)
        await eventually(lambda: len(ledger.statistics().ledgers) == 1)
        await set_retention(broker, FOR_EVER)
        before = ledger.entries
        await publish(connection, 4)
        await ledger.trim()
        assert ledger.entries == before + 4
