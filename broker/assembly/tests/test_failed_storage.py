"""A bookie that has failed ends the broker, in order: topics are closed, and nothing is logged as
though the broker itself had failed."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
import trio
from structlog.testing import capture_logs

from bookie.errors import StorageError
from broker.assembly.app import running_broker
from broker.ground.config import BrokerConfig
from broker.net.tests.harness import Connection, T
from metadata.tests.test_failed_writes import files_no_larger_than
from protocol import client as c
from runtime.testing.conditions import eventually

CONFIG = replace(BrokerConfig(), brokerServicePort=0, webServicePort=0)
TOPIC = "persistent://public/default/t"
HALF_MB = 1 << 19


@asynccontextmanager
async def client(broker):
    port = urlsplit(broker.broker_service_url).port
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        connection = Connection(stream)
        await connection.handshake()
        yield connection


async def test_topics_are_closed_and_their_acks_stored_when_the_bookie_has_failed(tmp_path):
    """Each topic was a traceback, because the tasks that close topics had been cancelled; acks of
    the last second were lost."""
    with (
        capture_logs() as logs,
        pytest.RaisesGroup(StorageError, allow_unwrapped=True, flatten_subgroups=True),
    ):
        async with running_broker(CONFIG, tmp_path) as broker, client(broker) as connection:
            await connection.producer(TOPIC)
            await connection.subscribe(TOPIC, permits=10)
            await connection.publish(0, b"x" * 2 * HALF_MB)
            await connection.expect(T.SEND_RECEIPT)
            message, _ = await connection.expect(T.MESSAGE)
            await connection.send(c.ack(1, [message.message_id]))
            topic = broker.service.topics[TOPIC]
            await eventually(lambda: not topic.subscriptions["s"].backlog_entries)
            with files_no_larger_than(HALF_MB):  # the journal is longer, the metadata are not
                await connection.publish(1)
                await trio.sleep_forever()
    assert not [line for line in logs if "exc_info" in line]
    async with running_broker(CONFIG, tmp_path) as broker, client(broker) as connection:
        await connection.subscribe(TOPIC)
        (subscription,) = broker.service.topics[TOPIC].subscriptions.values()
        assert subscription.backlog_entries == 0
