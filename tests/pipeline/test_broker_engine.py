"""Reading through a broker that goes away: rows are late, or the job fails, but none is lost."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pulsar
import pytest

from pipeline.admin import Admin
from pipeline.broker_connection import BrokerAway
from pipeline.engines import read_task
from pipeline.options import source_options
from pipeline.planner import batch_plan
from tests.pipeline.conftest import CONFIG, options_for, running_server
from tests.pipeline.topics import publish

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.server_process import ServerProcess

POLL_TIMEOUT_MS = 1000
VALUES = [b"%d" % number for number in range(40)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ServerProcess]:
    with running_server(tmp_path, CONFIG) as process:
        yield process


def rows_of(broker: ServerProcess, topic: str) -> Iterator[bytes | None]:
    """The rows of one task that asks for one message at a time, and may lose data."""
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(broker.service_url, logger=logger)
    publish(client, topic, VALUES)
    client.close()
    given = options_for(broker, topic) | {
        "pollTimeoutMs": str(POLL_TIMEOUT_MS),
        "failOnDataLoss": "false",
        "pulsar.reader.receiverQueueSize": "1",
    }
    options = source_options(given, streaming=False)
    (task,) = batch_plan(Admin(options.connection), options, [])
    for _, messages in read_task(options, task):
        yield from [message.payload for message in messages]


def restart(broker: ServerProcess) -> None:
    broker.kill()
    broker.wait_ended()
    broker.start()
    broker.wait_ready(60)


def test_a_query_that_asks_for_no_rows_for_long_loses_none(
    broker: ServerProcess, topic: str
) -> None:
    rows = rows_of(broker, topic)
    first = next(rows)
    paused_at = time.monotonic()
    restart(broker)
    time.sleep(max(paused_at + 1.5 * POLL_TIMEOUT_MS / 1000 - time.monotonic(), 0))

    assert [first, *rows] == VALUES


def test_a_broker_that_stays_away_is_an_error_whatever_fail_on_data_loss_says(
    broker: ServerProcess, topic: str
) -> None:
    rows = rows_of(broker, topic)
    assert next(rows) == VALUES[0]
    broker.kill()
    broker.wait_ended()

    with pytest.raises(BrokerAway, match="start the broker, or give it longer with pollTimeoutMs"):
        list(rows)
