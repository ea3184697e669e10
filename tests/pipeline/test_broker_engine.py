"""Reading through a broker that goes away: rows are late, or the job fails, but none is lost."""

from __future__ import annotations

import socket
import time
from contextlib import contextmanager, suppress
from itertools import count
from threading import Thread
from typing import TYPE_CHECKING

import pulsar
import pytest

from pipeline.admin import Admin
from pipeline.broker_connection import BrokerAway
from pipeline.engine_broker import read_slice
from pipeline.engines import read_task
from pipeline.options import source_options
from pipeline.plan import Slice
from pipeline.planner import batch_plan
from tests.pipeline.conftest import CONFIG, options_for, running_server
from tests.pipeline.topics import publish

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pipeline.options import SourceOptions
    from tests.server_process import ServerProcess

POLL_TIMEOUT_MS = 1000
VALUES = [b"%d" % number for number in range(40)]
LARGE = bytes(range(256)) * 32 * 1024
"""A message of two chunks."""


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
    for _, rows in read_task(options, task):
        yield from [message.payload for message in rows.messages()]


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


def published(broker: ServerProcess, topic: str, small: list[bytes], *, batched: bool) -> None:
    """The small ones, then a message of two chunks."""
    client = pulsar.Client(
        broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    publish(client, topic, small, batched=batched)
    publish(client, topic, [LARGE], chunking_enabled=True)
    client.close()


def values_of_last_entry(options: SourceOptions, topic: str) -> list[bytes | None]:
    """As a task reads it that begins there."""
    end = Admin(options.connection).last_offset(topic)
    part = Slice(topic, end.ledger_id, end.entry_id, end.entry_id, 0, sealed=False)
    return [message.payload for rows in read_slice(options, part) for message in rows.messages()]


def test_a_message_whose_first_chunk_is_in_the_ledger_before_is_read(
    broker: ServerProcess, topic: str
) -> None:
    small = [b"%d" % number for number in range(99)]
    published(broker, topic, small, batched=False)
    options = source_options(options_for(broker, topic), streaming=False)
    tasks = batch_plan(Admin(options.connection), options, [])
    assert [part.entries for task in tasks for part in task] == [100, 1]

    read = [rows for task in tasks for _, rows in read_task(options, task)]

    assert [message.payload for rows in read for message in rows.messages()] == [*small, LARGE]


def test_batches_before_a_chunked_message_do_not_hide_its_first_chunk(
    broker: ServerProcess, topic: str
) -> None:
    published(broker, topic, [b"x"] * 400, batched=True)
    given = options_for(broker, topic) | {"pollTimeoutMs": str(POLL_TIMEOUT_MS)}

    assert values_of_last_entry(source_options(given, streaming=False), topic) == [LARGE]


@contextmanager
def losing(port: int, lost: int) -> Iterator[int]:
    """A way to a server on which the connection of that number, from 0, is lost; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def forward(one: socket.socket, other: socket.socket) -> None:
            with one, other, suppress(OSError):
                while data := one.recv(1 << 20):
                    other.sendall(data)

        def accept() -> None:
            for number in count():
                try:
                    here, _ = listener.accept()
                except OSError:
                    return
                if number == lost:
                    here.close()
                    continue
                there = socket.create_connection(("127.0.0.1", port))
                for one, other in ((here, there), (there, here)):
                    Thread(target=forward, args=(one.dup(), other.dup()), daemon=True).start()
                here.close()
                there.close()

        Thread(target=accept, daemon=True).start()
        yield int(listener.getsockname()[1])


def test_a_connection_lost_while_first_chunks_are_looked_for_loses_no_message(
    broker: ServerProcess, topic: str
) -> None:
    published(broker, topic, VALUES, batched=False)
    with losing(broker.broker_port, 1) as port:
        given = options_for(broker, topic) | {"service.url": f"pulsar://127.0.0.1:{port}"}
        assert values_of_last_entry(source_options(given, streaming=False), topic) == [LARGE]
