"""Writes rows to topics with the stock client, at least once or without duplicates.

`sinkMode=dedup`: the producer of task partition p is named `<name>-p<p>` and the i-th row
(from 1 on) that it sends to a topic in micro-batch b has the sequence id `b << 32 | i`. A repeated
micro-batch sends the same ids again, and the broker, whose namespace must have deduplication on,
drops them. Rows must come in the same order again: no shuffle after anything undetermined. Rows
with a column `__producer` have the producer `<name>-<__producer>` and are numbered by it, wherever
their task partition is.

The broker answers a message that it drops with a receipt without a message id, so such messages are
counted: other rows under a name that was used before are dropped, too, and must not look stored.

Messages are not batched then: of a batch that was stored in part under other boundaries the broker
would drop the rest, too.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import _pulsar
import pulsar
import pyarrow
from pulsar import schema as pulsar_schema
from pyarrow import types

from pipeline.admin import Admin, NotFound
from pipeline.options import InvalidOption
from pipeline.registry import from_registry
from pipeline.row_encoding import (
    IncompatibleColumns,
    PayloadEncoding,
    encoding_for,
    rows_of,
    time_ms,
    value_fields,
)
from protocol.errors import InvalidTopicName
from protocol.hashing import partition_by_java_string_hash
from protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pipeline.options import Connection, SinkOptions

_log = logging.getLogger(__name__)
ROW_BITS: Final = 32
PRODUCER_COLUMN: Final = "__producer"
_COMPRESSIONS: Final = {
    "NONE": pulsar.CompressionType.NONE,
    "LZ4": pulsar.CompressionType.LZ4,
    "ZLIB": pulsar.CompressionType.ZLib,
    "ZSTD": pulsar.CompressionType.ZSTD,
    "SNAPPY": pulsar.CompressionType.SNAPPY,
}


class WriteFailed(Exception):
    """The broker did not take a message; the task fails and Spark repeats it."""


@final
@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """Identifies a writing task in producer names and sequence ids."""

    name: str
    partition: int
    batch: int


@final
@dataclass(frozen=True, slots=True)
class Written:
    """By topic: rows that the broker acknowledged, and how many of them it had already."""

    rows: dict[str, int] = field(default_factory=dict)
    duplicates: dict[str, int] = field(default_factory=dict)


def added_up(parts: Sequence[Written]) -> Written:
    """The sum over several tasks."""
    rows: Counter[str] = Counter()
    duplicates: Counter[str] = Counter()
    for part in parts:
        rows.update(part.rows)
        duplicates.update(part.duplicates)
    return Written(dict(rows), dict(duplicates))


def report(written: Written, options: SinkOptions) -> None:
    """Tell on the driver what a write has stored: rows that were dropped in the log, all in
    `reportFile`."""
    for topic, count in sorted(written.duplicates.items()):
        _log.warning(
            "%s: %d of %d rows were not stored, because producers named %s-... have sent their "
            "sequence ids before: right for a repeated write, otherwise use another producerName",
            topic,
            count,
            written.rows[topic],
            options.producer_name or "after the query's id",
        )
    if options.report_file:
        told = {"rows": written.rows, "duplicates": written.duplicates}
        Path(options.report_file).write_text(json.dumps(told), encoding="utf-8")


def check_columns(schema: pyarrow.Schema, options: SinkOptions, *, overwrite: bool) -> None:
    """Refuse what can be refused before a task runs.

    Raises: InvalidOption, IncompatibleColumns.
    """
    if overwrite:
        raise InvalidOption("a topic cannot be overwritten: use mode append")
    names = set(schema.names)
    if not options.topic and "__topic" not in names:
        raise InvalidOption("give the option topic, or a column __topic with each row's topic")
    if not value_fields(schema):
        raise IncompatibleColumns("there is no value column: name one `value`, or select fields")
    allowed = {
        "__topic": (types.is_string,),
        "__key": (types.is_string, types.is_binary),
        "__eventTime": (types.is_timestamp, types.is_int64),
        "__messageProperties": (types.is_map,),
        PRODUCER_COLUMN: (types.is_string,),
    }
    for name, tests in allowed.items():
        if name in names and not any(test(schema.field(name).type) for test in tests):
            raise IncompatibleColumns(f"column {name} cannot be {schema.field(name).type}")
    if PRODUCER_COLUMN in names and not options.dedup:
        raise InvalidOption(f"the column {PRODUCER_COLUMN} is for sinkMode=dedup")
    if options.topic:
        columns = value_fields(schema)
        registered = from_registry(Admin(options.connection).schema(options.topic), options.topic)
        encoding_for(columns, registered, options.topic)


def write_batches(
    batches: Iterator[pyarrow.RecordBatch], options: SinkOptions, identity: TaskIdentity
) -> Written:
    """Send all rows and wait until each is acknowledged.

    Raises: WriteFailed, IncompatibleColumns, InvalidOption.
    """
    with _Writer(options, identity) as writer:
        for batch in batches:
            writer.write(batch)
        return writer.finish()


@final
class _Writer:
    def __init__(self, options: SinkOptions, identity: TaskIdentity) -> None:
        self._options = options
        self._identity = identity
        self._admin = Admin(options.connection)
        self._client = client_of(options.connection)
        self._producers: dict[tuple[str, str], pulsar.Producer] = {}
        self._encodings: dict[str, PayloadEncoding] = {}
        self._sent: Counter[tuple[str, str]] = Counter()
        self._acknowledged = 0
        self._duplicates: Counter[str] = Counter()
        self._failure = ""
        self._lock = threading.Lock()

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def write(self, batch: pyarrow.RecordBatch) -> None:
        columns = _Columns(batch, self._options.topic, f"p{self._identity.partition}")
        for topic, label, part in columns.by_producer():
            encoding = self._encoding(topic, batch.schema)
            if (topic, label) not in self._producers:
                self._producers[topic, label] = self._producer(topic, label, encoding)
            self._send(topic, label, part, rows_of(part, encoding))
        if self._failure:
            raise WriteFailed(self._failure)

    def _send(
        self, topic: str, label: str, part: pyarrow.RecordBatch, payloads: list[bytes | None]
    ) -> None:
        producer = self._producers[topic, label]
        on_sent = partial(self._on_sent, topic)
        keys = _list(part, "__key")
        times = _list(part, "__eventTime")
        properties = _list(part, "__messageProperties")
        for index, payload in enumerate(payloads):
            # From 1 on: the client takes sequence id 0 for none.
            sequence_id = self._identity.batch << ROW_BITS | self._sent[topic, label] + 1
            producer.send_async(
                payload,
                on_sent,
                properties=_properties(properties[index]),
                partition_key=_key_text(topic, keys[index]),
                event_timestamp=_event_time_ms(times[index]),
                sequence_id=sequence_id if self._options.dedup else None,
            )
            self._sent[topic, label] += 1

    def finish(self) -> Written:
        """Wait for the acknowledgements. Raises: WriteFailed."""
        for (topic, _), producer in self._producers.items():
            try:
                producer.flush()
            except pulsar.PulsarException as error:
                raise WriteFailed(f"{topic}: {error}") from error
        if self._failure:
            raise WriteFailed(self._failure)
        total = sum(self._sent.values())
        if self._acknowledged != total:
            raise WriteFailed(f"{self._acknowledged} of {total} messages were acknowledged")
        rows: Counter[str] = Counter()
        for (topic, _), count in self._sent.items():
            rows[topic] += count
        return Written(dict(rows), dict(self._duplicates))

    def _on_sent(self, topic: str, result: pulsar.Result, message_id: pulsar.MessageId) -> None:
        with self._lock:
            if result == pulsar.Result.Ok:
                self._acknowledged += 1
                if self._options.dedup and message_id.ledger_id() < 0:
                    self._duplicates[topic] += 1
            elif not self._failure:
                self._failure = (
                    "the broker did not confirm a message in time: is it running?"
                    if result == pulsar.Result.Timeout
                    else f"the broker refused a message: {result}"
                )

    def _encoding(self, topic: str, schema: pyarrow.Schema) -> PayloadEncoding:
        encoding = self._encodings.get(topic)
        if encoding is None:
            registered = from_registry(self._admin.schema(topic), topic)
            encoding = encoding_for(value_fields(schema), registered, topic)
            self._encodings[topic] = encoding
        return encoding

    def _producer(self, topic: str, label: str, encoding: PayloadEncoding) -> pulsar.Producer:
        settings, identity = self._options.producer, self._identity
        dedup = self._options.dedup
        try:
            producer = self._client.create_producer(
                topic,
                producer_name=f"{identity.name}-{label}" if dedup else None,
                schema=self._schema(topic, encoding),
                send_timeout_millis=0 if dedup else settings.send_timeout_ms,
                compression_type=_COMPRESSIONS[settings.compression],
                max_pending_messages=settings.pending_messages_max,
                block_if_queue_full=settings.block_if_queue_full,
                batching_enabled=settings.batching_enabled and not dedup,
                batching_max_messages=settings.batching_messages_max,
                batching_max_publish_delay_ms=settings.batching_delay_ms_max,
                message_router=_Router(),
            )
        except pulsar.PulsarException as error:
            raise WriteFailed(f"no producer on {topic}: {error}") from error
        if dedup:
            self._check_deduplication(topic)
        return producer

    def _schema(self, topic: str, encoding: PayloadEncoding) -> pulsar_schema.Schema:
        if encoding.type_name in ("BYTES", "NONE", "KEY_VALUE"):
            return pulsar_schema.BytesSchema()
        if hasattr(_pulsar.SchemaType, encoding.type_name):
            return _EncodedSchema(encoding)
        # The client library does not know the type: register it, and send plain bytes.
        self._admin.register_schema(topic, encoding.type_name, encoding.text)
        return pulsar_schema.BytesSchema()

    def _check_deduplication(self, topic: str) -> None:
        try:
            status = self._admin.stats(self._admin.parts_of(topic)[0])["deduplicationStatus"]
        except NotFound:
            return
        if status != "Enabled":
            raise InvalidOption(
                f"sinkMode=dedup needs deduplication, which is {status.lower()} on {topic}: switch "
                "it on for the namespace (pulsar-admin namespaces set-deduplication --enable)"
            )


@final
class _EncodedSchema(pulsar_schema.Schema):
    """Tells the broker the schema, in the registry's own bytes; payloads are encoded already."""

    def __init__(self, encoding: PayloadEncoding) -> None:
        kind = getattr(_pulsar.SchemaType, encoding.type_name)
        super().__init__(bytes, kind, None, encoding.type_name)
        self._schema_info = _pulsar.SchemaInfo(kind, encoding.type_name, encoding.text)

    def encode(self, obj: bytes) -> bytes:
        return obj

    def decode(self, data: bytes) -> bytes:
        return data


@final
class _Router:
    """Keys to partitions as Java clients choose them; without a key in turns."""

    def __init__(self) -> None:
        self._turn = 0

    def __call__(self, message: pulsar.Message, partition_count: int) -> int:
        key = message.partition_key()
        if key:
            return partition_by_java_string_hash(key, partition_count)
        self._turn += 1
        return self._turn % partition_count


@final
class _Columns:
    """A batch with its rows grouped by topic and producer, in their order.

    `label` is that of rows which do not name their producer.
    """

    def __init__(self, batch: pyarrow.RecordBatch, topic: str, label: str) -> None:
        self._batch = batch
        self._topic = topic
        self._label = label

    def by_producer(self) -> Iterator[tuple[str, str, pyarrow.RecordBatch]]:
        names = self._batch.schema.names
        if "__topic" not in names and PRODUCER_COLUMN not in names:
            yield self._topic, self._label, self._batch
            return
        indexes: dict[tuple[str, str], list[int]] = {}
        topics, labels = _list(self._batch, "__topic"), _list(self._batch, PRODUCER_COLUMN)
        for index, (topic, label) in enumerate(zip(topics, labels, strict=True)):
            group = self._name(topic), label or self._label
            indexes.setdefault(group, []).append(index)
        for (topic, label), rows in indexes.items():
            whole = len(rows) == self._batch.num_rows
            yield topic, label, self._batch if whole else self._batch.take(pyarrow.array(rows))

    def _name(self, topic: str | None) -> str:
        if self._topic:
            return self._topic
        if topic is None:
            raise InvalidOption("a row has no __topic: fill it, or give the option topic")
        try:
            return TopicName.parse(topic).full
        except InvalidTopicName as error:
            raise InvalidOption(f"column __topic: {error}") from None


def _list(batch: pyarrow.RecordBatch, name: str) -> list[Any]:
    if name not in batch.schema.names:
        return [None] * batch.num_rows
    values: list[Any] = batch.column(name).to_pylist()
    return values


def _key_text(topic: str, key: str | bytes | None) -> str | None:
    if not isinstance(key, bytes):
        return key
    try:
        return key.decode()
    except UnicodeDecodeError:
        raise IncompatibleColumns(
            f"{topic}: the key {key!r} is not UTF-8, which the client library cannot publish: "
            "encode __key as text (base64(__key))"
        ) from None


def _properties(pairs: list[tuple[str, str | None]] | None) -> dict[str, str] | None:
    return {name: value or "" for name, value in pairs} if pairs else None


def _event_time_ms(value: datetime | int | None) -> int | None:
    return time_ms(value) if isinstance(value, datetime) else value


def client_of(connection: Connection) -> pulsar.Client:
    """A client of the stock library that logs errors only."""
    authentication = pulsar.AuthenticationToken(connection.token) if connection.token else None
    return pulsar.Client(
        connection.service_url,
        authentication=authentication,
        operation_timeout_seconds=max(connection.operation_timeout_ms // 1000, 1),
        tls_trust_certs_file_path=connection.tls_trust_certs_file or None,
        tls_allow_insecure_connection=connection.tls_allow_insecure,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
