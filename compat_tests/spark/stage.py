"""The stage that a Spark scenario gets, and the trace that it produces.

A scenario is a function of a Stage, written as a user writes a PySpark job; beside it stand the
stock Python client and the admin API. It tells rows, counts, schemas and failures, never ids,
times or addresses. Conditions that must hold on any server are asserted in the scenario itself.
"""

from __future__ import annotations

import datetime
import json
import re
import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pulsar

from compat_tests.clients.admin_requests import AdminRequests, topic_path
from compat_tests.clients.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming import StreamingQuery

FORMAT = "pulsar"
POLL_TIMEOUT_MS = 10_000
QUERY_TIMEOUT_SECONDS = 90
METADATA = ("__key", "__topic", "__messageId", "__publishTime", "__eventTime")
IDENTIFIER = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")
VALUE_OF_NO_ONE = re.compile(r"\d+")


@dataclass
class Stage:
    """One scenario on one server. `topic_base`: tenant/namespace/name of its own topics."""

    spark: SparkSession
    jar: str
    service_url: str
    web_url: str
    topic_base: str
    directory: Path
    tell: Callable[[list[Any]], None]
    ask_of_server: Callable[[str], None]

    # --- the trace ----------------------------------------------------------------------

    def see(self, what: str, value: Any = None) -> None:
        """Add an observation to the trace."""
        self.tell([what, value])

    def see_rows(self, what: str, frame: DataFrame) -> list[Row]:
        """Add rows to the trace, sorted, without ids and publish times; the rows themselves."""
        rows = frame.collect()
        self.see(what, sorted((plain(row) for row in rows), key=json.dumps))
        return rows

    def see_failure(self, what: str, action: Callable[[], object]) -> None:
        """Do it and add the innermost exception and its text to the trace, or None."""
        try:
            action()
        except Exception as failure:
            self.see(what, innermost(failure))
        else:
            self.see(what, None)

    # --- the server ---------------------------------------------------------------------

    def topic(self, suffix: str = "") -> str:
        """A topic name of this scenario's own; the same on both servers."""
        return f"persistent://{self.topic_base}{suffix}"

    @cached_property
    def client(self) -> pulsar.Client:
        """The stock Python client."""
        log = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(self.directory / "client.log"))
        return pulsar.Client(self.service_url, operation_timeout_seconds=30, logger=log)

    def forget_client(self) -> None:
        """Have the next use connect again: its server was away."""
        if "client" in self.__dict__:
            self.client.close()
            del self.__dict__["client"]

    @cached_property
    def admin(self) -> AdminRequests:
        """The admin API."""
        return AdminRequests(self.web_url)

    def partition(self, topic: str, count: int, method: str = "PUT") -> None:
        """Make a partitioned topic; POST lets it grow."""
        status, body = self.admin(method, topic_path(topic) + "/partitions", count)
        assert status == 204, (status, body)

    def publish(
        self,
        topic: str,
        payloads: list[str],
        batched: bool = False,
        compression: pulsar.CompressionType = pulsar.CompressionType.NONE,
        **options: Any,
    ) -> list[pulsar.MessageId]:
        """Publish texts, in batches of five when `batched`; their ids."""
        producer = self.client.create_producer(
            topic,
            batching_enabled=batched,
            batching_max_messages=5,
            batching_max_publish_delay_ms=5000,
            compression_type=compression,
        )
        ids: list[pulsar.MessageId] = []
        for payload in payloads:
            producer.send_async(
                payload.encode(), lambda result, message_id: ids.append(message_id), **options
            )
        producer.flush()
        producer.close()
        assert len(ids) == len(payloads)
        return ids

    def subscriptions(self, topic: str) -> list[str]:
        """Durable subscriptions, identifiers of queries left out."""
        status, stats = self.admin("GET", topic_path(topic) + "/stats")
        assert status == 200, stats
        return sorted(
            IDENTIFIER.sub("ID", name)
            for name, each in stats["subscriptions"].items()
            if each["isDurable"]
        )

    def close(self) -> None:
        """Stop what still runs; let the client go."""
        for query in self.spark.streams.active:
            query.stop()
        self.forget_client()

    # --- Spark --------------------------------------------------------------------------

    @property
    def addresses(self) -> dict[str, str]:
        """The options every job gives."""
        return {"service.url": self.service_url, "admin.url": self.web_url}

    @property
    def http_lookup(self) -> dict[str, str]:
        """Options of a job that reads records: the service by its HTTP address.

        By the binary protocol the connector's client (2.4.2) may lose the answer to a request for
        a schema: its I/O thread recycles the answer while the task's thread has yet to read it, as
        may happen on a busy machine. The definition is empty then, and the job fails with a
        NullPointerException of the AVRO parser. By HTTP nothing is recycled; messages go by the
        binary protocol in any case.
        """
        return {"service__url": self.web_url}

    def read(self, **options: Any) -> DataFrame:
        """A batch read; dots of option names are written as two underscores."""
        return self.spark.read.format(FORMAT).options(**self._options(options)).load()

    def read_stream(self, **options: Any) -> DataFrame:
        """A streaming read."""
        return self.spark.readStream.format(FORMAT).options(**self._options(options)).load()

    def write(self, frame: DataFrame, **options: Any) -> None:
        """A batch write."""
        frame.write.format(FORMAT).options(**self._options(options)).save()

    def to_files(
        self, frame: DataFrame, name: str = "files", available_now: bool = False
    ) -> StreamingQuery:
        """Stream into Parquet with a checkpoint; the same name goes on where it was."""
        writer = (
            frame.writeStream.format("parquet")
            .option("path", str(self.directory / name))
            .option("checkpointLocation", str(self.directory / f"{name}-checkpoint"))
        )
        return (writer.trigger(availableNow=True) if available_now else writer).start()

    def to_topic(self, frame: DataFrame, name: str, **options: Any) -> StreamingQuery:
        """Stream into Pulsar with a checkpoint."""
        return (
            frame.writeStream.format(FORMAT)
            .options(**self._options(options))
            .option("checkpointLocation", str(self.directory / f"{name}-checkpoint"))
            .start()
        )

    def files(self, name: str = "files") -> DataFrame:
        """The rows that were streamed into Parquet."""
        return self.spark.read.parquet(str(self.directory / name))

    def _options(self, given: dict[str, Any]) -> dict[str, str]:
        named = {name.replace("__", "."): str(value) for name, value in given.items()}
        return self.addresses | {"pollTimeoutMs": str(POLL_TIMEOUT_MS)} | named


_REGISTRY: Registry[Stage] = Registry()
SCENARIOS = _REGISTRY.entries
scenario = _REGISTRY.scenario


def plain(row: Row) -> dict[str, Any]:
    """A row as JSON, without what differs from run to run."""
    values = row.asDict(recursive=True)
    for name in ("__messageId", "__publishTime"):
        if name in values:
            assert values.pop(name) is not None, f"a row without {name}"
    return {name: _plain_value(value) for name, value in values.items()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return value.decode("latin-1")
    if isinstance(value, (datetime.datetime, datetime.date)):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(key): _plain_value(entry) for key, entry in sorted(value.items())}
    return [_plain_value(each) for each in value] if isinstance(value, list) else value


def innermost(failure: Exception) -> str:
    """Class and text of the exception that began it, numbers and identifiers left out."""
    cause: Any = getattr(failure, "java_exception", None) or getattr(failure, "_origin", None)
    if cause is None:
        return f"{type(failure).__name__}: {_scrubbed(str(failure))}"
    while cause.getCause() is not None:
        cause = cause.getCause()
    return f"{cause.getClass().getSimpleName()}: {_scrubbed(cause.getMessage() or '')}"


def _scrubbed(text: str) -> str:
    return VALUE_OF_NO_ONE.sub("#", IDENTIFIER.sub("ID", text.strip().splitlines()[0]))[:300]


def offsets(ids: dict[str, pulsar.MessageId | bytes]) -> str:
    """The connector's JSON of offsets: message ids as lists of signed bytes."""
    lists: dict[str, list[int]] = {}
    for topic, each in ids.items():
        data = each if isinstance(each, bytes) else each.serialize()
        lists[topic] = [byte - 256 if byte > 127 else byte for byte in data]
    return json.dumps(lists)


def wait_until(
    condition: Callable[[], object], what: str, timeout_seconds: float = QUERY_TIMEOUT_SECONDS
) -> None:
    """Wait for a condition of the outside world, for a bounded time."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.1)


def run_to_end(query: StreamingQuery) -> None:
    """Wait until an AvailableNow query has ended; raises what it failed with."""
    assert query.awaitTermination(QUERY_TIMEOUT_SECONDS), "the query did not end"
