"""Collects messages and turns them into Arrow record batches of the columns that were asked for.

A query that names its columns (`.schema("subset ...")`) pays for those only: without value columns
no payload is decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import pyarrow

from pipeline.decode import Message, message_id_bytes, message_id_text
from pipeline.registry import METADATA_COLUMNS, TopicSchema, value_columns
from pipeline.values import Undecodable, ValueDecoder
from protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pipeline.values import SchemaOfVersion

ROWS_PER_BATCH_MAX: Final = 8192
BYTES_PER_BATCH_MAX: Final = 4 * 1024 * 1024
_METADATA: Final = frozenset(name for name, _ in METADATA_COLUMNS)


class UnknownColumn(ValueError):
    """The query names a column that the topic does not have."""


def batches(
    messages: Iterable[tuple[str, list[Message]]],
    arrow_schema: pyarrow.Schema,
    schema: TopicSchema,
    schema_of_version: SchemaOfVersion,
) -> Iterator[pyarrow.RecordBatch]:
    """Record batches with exactly the columns of `arrow_schema`, from (topic, messages) pairs.

    Raises: UnknownColumn; Undecodable: naming topic and message.
    """
    builder = _Builder(arrow_schema, schema, schema_of_version)
    for topic, group in messages:
        for message in group:
            builder.add(topic, message)
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
        self._permissive = schema.type_name == "JSON"
        self._partitions: dict[str, int] = {}
        self._reset()

    def _reset(self) -> None:
        self._messages: list[Message] = []
        self._topics: list[str] = []
        self._values: list[tuple[Any, ...]] = []
        self._size_bytes = 0

    @property
    def rows(self) -> int:
        return len(self._messages)

    def is_full(self) -> bool:
        return self.rows >= ROWS_PER_BATCH_MAX or self._size_bytes >= BYTES_PER_BATCH_MAX

    def add(self, topic: str, message: Message) -> None:
        if self._decoder is not None:
            try:
                row = self._decoder.row(message.payload, message.key, message.schema_version)
            except Undecodable as error:
                raise Undecodable(
                    f"{topic}: message {message_id_text(message)} of schema version "
                    f"{int.from_bytes(message.schema_version) if message.schema_version else '-'} "
                    f"does not fit the schema the query reads with: {error}"
                ) from error
            self._values.append(row)
        self._messages.append(message)
        self._topics.append(topic)
        self._size_bytes += len(message.payload or b"") + 64

    def take(self) -> pyarrow.RecordBatch:
        """All rows so far."""
        arrays = [self._column(field) for field in self._arrow_schema]
        self._reset()
        return pyarrow.RecordBatch.from_arrays(arrays, schema=self._arrow_schema)

    def _column(self, field: pyarrow.Field) -> pyarrow.Array:
        make = _METADATA_ARRAYS.get(field.name)
        if field.name in self._indexes:
            index = self._indexes[field.name]
            return self._array([row[index] for row in self._values], field.type)
        if field.name == "__topic":
            return pyarrow.array(self._topics, field.type)
        if field.name == "__messageId":
            return pyarrow.array(self._ids(), field.type)
        assert make is not None
        return make(self._messages, field.type)

    def _ids(self) -> list[bytes]:
        partitions = self._partitions
        ids = []
        for topic, message in zip(self._topics, self._messages, strict=True):
            partition = partitions.get(topic)
            if partition is None:
                partition = partitions[topic] = TopicName.parse(topic).partition_index
            ids.append(message_id_bytes(partition, message))
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


def _times(milliseconds: Sequence[int | None], kind: pyarrow.DataType) -> pyarrow.Array:
    micros = [None if each is None else each * 1000 for each in milliseconds]
    return pyarrow.array(micros, pyarrow.int64()).cast(kind)


_METADATA_ARRAYS: Final[dict[str, Callable[[list[Message], pyarrow.DataType], pyarrow.Array]]] = {
    "__key": lambda messages, kind: pyarrow.array([each.key for each in messages], kind),
    "__publishTime": lambda messages, kind: _times(
        [each.publish_time_ms for each in messages], kind
    ),
    "__eventTime": lambda messages, kind: _times(
        [each.event_time_ms or None for each in messages], kind
    ),
    "__messageProperties": lambda messages, kind: pyarrow.array(
        [list(dict(each.properties).items()) for each in messages], kind
    ),
}
