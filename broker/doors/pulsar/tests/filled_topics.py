"""A topic that holds numbered messages, and the entries that a consumer receives."""

from __future__ import annotations

from broker.net.tests.harness import T

TOPIC = "persistent://public/default/t"


async def filled(broker, count=5, topic=TOPIC):
    """A connection whose topic holds `count` messages."""
    connection = await broker.connect()
    await connection.producer(topic)
    for number in range(count):
        await connection.publish(number, b"%d" % number)
        await connection.expect(T.SEND_RECEIPT)
    return connection


async def entries(connection, count):
    found = []
    for _ in range(count):
        message, _ = await connection.expect(T.MESSAGE)
        found.append(message.message_id.entryId)
    return found
