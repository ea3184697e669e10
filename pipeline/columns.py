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
from pipeline.options import Malformed
from pipeline.registry import METADATA_COLUMNS, TopicSchema, value_columns
from pipeline.values import Undecodable, ValueDecoder
from protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pipeline.values import SchemaOfVersion

    SetAside = Callable[[str, Message, str], None]
    """Takes a topic, a message of it that its schema cannot decode, and the reason."""

ROWS_PER_BATCH_MAX: Final = 8192
BYTES_PER_BATCH_MAX: Final = 4 * 1024 * 1024
BYTES_PER_ROW: Final = 64
"""Counted for each row in addition to its payload."""
MILLISECONDS_MAX: Final = (2**63 - 1) // 1000
"""The last moment that a column of microseconds can hold."""
_STRICT: Final = Malformed()
_METADATA: Final = frozenset(name for name, _ in METADATA_COLUMNS)


class UnknownColumn(ValueError):
    """The query names a column that the topic does not have."""


def check_names(names: Sequence[str], schema: TopicSchema, malformed: Malformed) -> None:
    """Refuse columns that no message of the topic can fill.

    Raises: UnknownColumn.
    """
    there = [name for name, _ in value_columns(schema)]
    own = set(_METADATA)
    if malformed.column:
        if malformed.corrupt_column in own.union(there):
            raise UnknownColumn(
                f"{malformed.corrupt_column} is a column of its own: name another one with "
                "columnNameOfCorruptRecord"
            )
        own.add(malformed.corrupt_column)
    unknown = [name for name in names if name not in own and name not in there]
    if unknown:
        raise UnknownColumn(
            f"no column {', '.join(unknown)}: the topic's schema ({schema.type_name}) has "
            f"{', '.join(there)}, and there are {', '.join(sorted(own))}"
        )


def batches(
    messages: Iterable[tuple[str, list[Message]]],
    arrow_schema: pyarrow.Schema,
    schema: TopicSchema,
    schema_of_version: SchemaOfVersion,
    malformed: Malformed = _STRICT,
    set_aside: SetAside | None = None,
) -> Iterator[pyarrow.RecordBatch]:
    """Record batches with exactly the columns of `arrow_schema`, from pairs of a topic and the
    messages of one entry. `set_aside` is told of each message that its schema cannot decode, unless
    such a message ends the query.

    Raises: UnknownColumn; Undecodable: naming topic and message.
    """
    builder = _Builder(arrow_schema, schema, schema_of_version, malformed, set_aside)
    for topic, group in messages:
        builder.add(topic, group)
        if builder.is_full():
            yield builder.take()
    if builder.rows:
        yield builder.take()


@final
class _Builder:
    def __init__(
        self,
        arrow_schema: pyarrow.Schema,
        schema: TopicSchema,
        schema_of_version: SchemaOfVersion,
        malformed: Malformed,
        set_aside: SetAside | None,
    ) -> None:
        check_names(arrow_schema.names, schema, malformed)
        self._arrow_schema = arrow_schema
        value_names = [name for name, _ in value_columns(schema)]
        self._indexes = {
            name: value_names.index(name) for name in arrow_schema.names if name in value_names
        }
        self._malformed = malformed
        self._set_aside = set_aside
        self._corrupt_column = malformed.column
        decodes = bool(self._indexes) or self._corrupt_column in arrow_schema.names
        self._decoder = (
            ValueDecoder(schema, schema_of_version, strict=not malformed.fails)
            if decodes or set_aside is not None
            else None
        )
        self._is_payload = schema.is_payload
        self._permissive = schema.type_name == "JSON" or not malformed.fails
        self._reset()

    def _reset(self) -> None:
        self._groups: list[tuple[str, list[Message]]] = []
        self._values: list[tuple[Any, ...]] = []
        self._corrupt: dict[int, bytes | None] = {}
        self.rows = 0
        self._size_bytes = 0

    def is_full(self) -> bool:
        return self.rows >= ROWS_PER_BATCH_MAX or self._size_bytes >= BYTES_PER_BATCH_MAX

    def add(self, topic: str, messages: list[Message]) -> None:
        """The messages of one entry."""
        if self._decoder is not None and not self._is_payload:
            messages = self._decoded(self._decoder, topic, messages)
        self._groups.append((topic, messages))
        self.rows += len(messages)
        self._size_bytes += BYTES_PER_ROW * len(messages)
        self._size_bytes += sum([len(each.payload) for each in messages if each.payload])

    def _decoded(self, decoder: ValueDecoder, topic: str, messages: list[Message]) -> list[Message]:
        """Add the values of the messages; the messages that give rows."""
        row, values = decoder.row, self._values
        dropped: list[int] = []
        for index, message in enumerate(messages):
            try:
                values.append(row(message.payload, message.key, message.schema_version))
            except Undecodable as error:
                version = message.schema_version
                reason = (
                    f"{topic}: message {message_id_text(message)} of schema version "
                    f"{int.from_bytes(version) if version else '-'} does not fit the schema the "
                    f"query reads with: {error}"
                )
                if self._malformed.fails:
                    raise Undecodable(
                        f"{reason}. mode=PERMISSIVE or DROPMALFORMED passes over such messages"
                    ) from error
                if self._set_aside is not None:
                    self._set_aside(topic, message, reason)
                if self._malformed.drops:
                    dropped.append(index)
                else:
                    self._corrupt[len(values)] = message.payload
                    values.append(decoder.nothing)
        if not dropped:
            return messages
        left_out = set(dropped)
        return [each for index, each in enumerate(messages) if index not in left_out]

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
        if name == self._corrupt_column:
            return pyarrow.array([self._corrupt.get(row) for row in range(self.rows)], kind)
        if name == "__topic":
            return self._topics(kind)
        if name == "__messageId":
            return pyarrow.array(self._ids(), kind)
        if name == "__key":
            return pyarrow.array([each.key for each in messages], kind)
        if name == "__publishTime":
            return self._times([each.publish_time_ms for each in messages], kind)
        if name == "__eventTime":
            return self._times([each.event_time_ms for each in messages], kind, unset=0)
        return _properties(messages, kind)

    def _topics(self, kind: pyarrow.DataType) -> pyarrow.Array:
        parts = [
            pyarrow.repeat(pyarrow.scalar(topic, kind), sum([len(group) for _, group in groups]))
            for topic, groups in groupby(self._groups, key=itemgetter(0))
        ]
        if not parts:
            return pyarrow.nulls(0, kind)
        return parts[0] if len(parts) == 1 else pyarrow.concat_arrays(parts)

    def _ids(self) -> list[bytes]:
        ids: list[bytes] = []
        for topic, groups in groupby(self._groups, key=itemgetter(0)):
            partition = TopicName.parse(topic).partition_index
            for _, group in groups:
                ids += message_ids(partition, group)
        return ids

    def _times(
        self, milliseconds: list[int], kind: pyarrow.DataType, unset: int | None = None
    ) -> pyarrow.Array:
        latest = max(milliseconds, default=unset)
        if latest is None or latest == unset:
            return pyarrow.nulls(len(milliseconds), kind)
        if latest > MILLISECONDS_MAX:
            if self._malformed.fails:
                raise Undecodable(
                    f"a message has the time {latest} ms since 1970, which no column can hold: "
                    "leave its column out with .schema(...)"
                )
            held = [None if each > MILLISECONDS_MAX else each * 1000 for each in milliseconds]
            micros = [None if each == unset else each for each in held]
            return pyarrow.array(micros, pyarrow.int64()).cast(kind)
        instants = numpy.array(milliseconds, numpy.int64) * 1000
        missing = None if unset is None else instants == unset
        return pyarrow.array(instants, pyarrow.int64(), mask=missing).cast(kind)

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


def _properties(messages: list[Message], kind: pyarrow.DataType) -> pyarrow.Array:
    rows = [list(dict(each.properties).items()) if each.properties else () for each in messages]
    return pyarrow.array(rows, kind)
