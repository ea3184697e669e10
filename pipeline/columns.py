"""Collects messages and turns them into Arrow record batches of the columns that were asked for.

A query that names its columns (`.schema("subset ...")`) pays for those only: without value columns
no payload is decoded.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, final

import numpy
import pyarrow

from pipeline.decode import Message, message_id_text, message_ids
from pipeline.registry import METADATA_COLUMNS, TopicSchema, value_columns
from pipeline.values import Undecodable, ValueDecoder
from protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pipeline.values import SchemaOfVersion

ROWS_PER_BATCH_MAX: Final = 8192
BYTES_PER_BATCH_MAX: Final = 4 * 1024 * 1024
BYTES_PER_ROW: Final = 64
"""What a row counts besides its payload."""
MILLISECONDS_MAX: Final = (2**63 - 1) // 1000
"""The last moment that a column of microseconds can hold."""
_METADATA: Final = frozenset(name for name, _ in METADATA_COLUMNS)


class UnknownColumn(ValueError):
    """The query names a column that the topic does not have."""


def batches(
    messages: Iterable[tuple[str, list[Message]]],
    arrow_schema: pyarrow.Schema,
    schema: TopicSchema,
    schema_of_version: SchemaOfVersion,
) -> Iterator[pyarrow.RecordBatch]:
    """Record batches with exactly the columns of `arrow_schema`, from pairs of a topic and the
    messages of one entry.

    Raises: UnknownColumn; Undecodable: naming topic and message.
    """
    builder = _Builder(arrow_schema, schema, schema_of_version)
    for topic, group in messages:
        builder.add(topic, group)
        if builder.is_full():
            yield builder.take()
    if builder.rows:
        yield builder.take()


@final
class _Builder:
    def __init__(
        self, arrow_schema: pyarrow.Schema, schema: TopicSchema, schema_of_version: SchemaOfVersion
    ) -> None:
        self._arrow_schema = arrow_schema
        value_names = [name for name, _ in value_columns(schema)]
        unknown = [
            name for name in arrow_schema.names if name not in _METADATA and name not in value_names
        ]
        if unknown:
            raise UnknownColumn(
                f"no column {', '.join(unknown)}: the topic's schema ({schema.type_name}) has "
                f"{', '.join(value_names)}, and there are {', '.join(sorted(_METADATA))}"
            )
        self._indexes = {
            name: value_names.index(name) for name in arrow_schema.names if name not in _METADATA
        }
        self._decoder = ValueDecoder(schema, schema_of_version) if self._indexes else None
        self._is_payload = schema.is_payload
        self._permissive = schema.type_name == "JSON"
        self._reset()

    def _reset(self) -> None:
        self._groups: list[tuple[str, list[Message]]] = []
        self._values: list[tuple[Any, ...]] = []
        self.rows = 0
        self._size_bytes = 0

    def is_full(self) -> bool:
        return self.rows >= ROWS_PER_BATCH_MAX or self._size_bytes >= BYTES_PER_BATCH_MAX

    def add(self, topic: str, messages: list[Message]) -> None:
        """The messages of one entry."""
        self._groups.append((topic, messages))
        self.rows += len(messages)
        self._size_bytes += BYTES_PER_ROW * len(messages)
        self._size_bytes += sum([len(each.payload) for each in messages if each.payload])
        if self._decoder is None or self._is_payload:
            return
        row, values = self._decoder.row, self._values
        for message in messages:
            try:
                values.append(row(message.payload, message.key, message.schema_version))
            except Undecodable as error:
                version = message.schema_version
                raise Undecodable(
                    f"{topic}: message {message_id_text(message)} of schema version "
                    f"{int.from_bytes(version) if version else '-'} does not fit the schema the "
                    f"query reads with: {error}"
                ) from error

    def take(self) -> pyarrow.RecordBatch:
        """All rows so far."""
        messages = [message for _, group in self._groups for message in group]
        arrays = [self._column(field, messages) for field in self._arrow_schema]
        self._reset()
        return pyarrow.RecordBatch.from_arrays(arrays, schema=self._arrow_schema)

    def _column(self, field: pyarrow.Field, messages: list[Message]) -> pyarrow.Array:
        name, kind = field.name, field.type
        if name in self._indexes:
            if self._is_payload:
                return self._array([each.payload for each in messages], kind)
            index = self._indexes[name]
            return self._array([row[index] for row in self._values], kind)
        if name == "__topic":
            return self._topics(kind)
        if name == "__messageId":
            return pyarrow.array(self._ids(), kind)
        if name == "__key":
            return pyarrow.array([each.key for each in messages], kind)
        if name == "__publishTime":
            return _times([each.publish_time_ms for each in messages], kind)
        if name == "__eventTime":
            return _times([each.event_time_ms for each in messages], kind, unset=0)
        return _properties(messages, kind)

    def _topics(self, kind: pyarrow.DataType) -> pyarrow.Array:
        parts = [
            pyarrow.repeat(pyarrow.scalar(topic, kind), sum([len(group) for _, group in groups]))
            for topic, groups in groupby(self._groups, key=itemgetter(0))
        ]
        return parts[0] if len(parts) == 1 else pyarrow.concat_arrays(parts)

    def _ids(self) -> list[bytes]:
        ids: list[bytes] = []
        for topic, groups in groupby(self._groups, key=itemgetter(0)):
            partition = TopicName.parse(topic).partition_index
            for _, group in groups:
                ids += message_ids(partition, group)
        return ids

    def _array(self, values: list[Any], kind: pyarrow.DataType) -> pyarrow.Array:
        try:
            return pyarrow.array(values, kind)
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, OverflowError) as error:
            if not self._permissive:
                raise Undecodable(f"values do not fit the column type {kind}: {error}") from error
        return pyarrow.array([_or_null(value, kind) for value in values], kind)


def _or_null(value: object, kind: pyarrow.DataType) -> object:
    try:
        pyarrow.array([value], kind)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, OverflowError):
        return None
    return value


def _times(
    milliseconds: list[int], kind: pyarrow.DataType, unset: int | None = None
) -> pyarrow.Array:
    latest = max(milliseconds)
    if latest > MILLISECONDS_MAX:
        raise Undecodable(
            f"a message has the time {latest} ms since 1970, which no column can hold: leave its "
            "column out with .schema(...)"
        )
    if latest == unset:
        return pyarrow.nulls(len(milliseconds), kind)
    micros = numpy.array(milliseconds, numpy.int64) * 1000
    missing = None if unset is None else micros == unset
    return pyarrow.array(micros, pyarrow.int64(), mask=missing).cast(kind)


def _properties(messages: list[Message], kind: pyarrow.DataType) -> pyarrow.Array:
    rows = [list(dict(each.properties).items()) if each.properties else () for each in messages]
    return pyarrow.array(rows, kind)
