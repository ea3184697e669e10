"""Collects messages and turns them into Arrow record batches of the columns that were asked for.

A query that names its columns (`.schema("subset ...")`) pays for those only: without value columns
no payload is decoded.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, final

import numpy
import pyarrow

from native.batches import FIELDS, HAS_KEY, IS_NULL, ROW
from pipeline.decode import message_id_head, message_id_tails, message_id_text
from pipeline.options import Malformed
from pipeline.registry import METADATA_COLUMNS, TopicSchema, value_columns
from pipeline.values import Undecodable, ValueDecoder
from protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pipeline.rows import Message, Rows
    from pipeline.values import SchemaOfVersion

    Numbers = numpy.ndarray[Any, Any]
    SetAside = Callable[[str, Message, str], None]
    """Takes a topic, a message of it that its schema cannot decode, and the reason."""

ROWS_PER_BATCH_MAX: Final = 8192
BYTES_PER_BATCH_MAX: Final = 4 * 1024 * 1024
BYTES_PER_ROW: Final = 64
"""Counted for each row in addition to its payload."""
MILLISECONDS_MAX: Final = (2**63 - 1) // 1000
"""The last moment that a column of microseconds can hold."""
TAILS_REMEMBERED: Final = 16
OFFSET_MAX: Final = 2**31 - 1
"""Where the last value in a column of bytes may end."""
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
    groups: Iterable[tuple[str, Rows]],
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
    for topic, rows in groups:
        builder.add(topic, rows)
        if builder.is_full():
            yield builder.take()
    if builder.count:
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
        self._groups: list[tuple[str, Rows]] = []
        self._values: list[tuple[Any, ...]] = []
        self._corrupt: dict[int, bytes | None] = {}
        self.count = 0
        self._size_bytes = 0

    def is_full(self) -> bool:
        return self.count >= ROWS_PER_BATCH_MAX or self._size_bytes >= BYTES_PER_BATCH_MAX

    def add(self, topic: str, rows: Rows) -> None:
        """The messages of one entry."""
        if self._decoder is not None and not self._is_payload:
            rows = self._decoded(self._decoder, topic, rows)
        count = rows.row_count
        if count:
            self._groups.append((topic, rows))
            self.count += count
            self._size_bytes += BYTES_PER_ROW * count + len(rows.content)

    def _decoded(self, decoder: ValueDecoder, topic: str, rows: Rows) -> Rows:
        """Add the values of the messages; the messages that give rows."""
        row, values = decoder.row, self._values
        staying: list[int] = []
        for number, message in enumerate(rows.messages()):
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
                    continue
                self._corrupt[len(values)] = message.payload
                values.append(decoder.nothing)
            staying.append(number)
        return rows if len(staying) == rows.row_count else rows.chosen(staying)

    def take(self) -> pyarrow.RecordBatch:
        """All rows so far."""
        places = _Places([rows for _, rows in self._groups])
        arrays = [self._column(field, places) for field in self._arrow_schema]
        self._reset()
        return pyarrow.RecordBatch.from_arrays(arrays, schema=self._arrow_schema)

    def _column(self, field: pyarrow.Field, places: _Places) -> pyarrow.Array:
        name, kind = field.name, field.type
        if name in self._indexes:
            if self._is_payload:
                payloads = places.binary("payload", IS_NULL, null=True)
                return (
                    payloads if kind == payloads.type else self._array(payloads.to_pylist(), kind)
                )
            index = self._indexes[name]
            return self._array([row[index] for row in self._values], kind)
        if name == self._corrupt_column:
            return pyarrow.array([self._corrupt.get(row) for row in range(self.count)], kind)
        if name == "__topic":
            return self._topics(places, kind)
        if name == "__messageId":
            return _of_type(self._ids(places), kind)
        if name == "__key":
            return _of_type(places.binary("key", HAS_KEY, null=False), kind)
        if name == "__publishTime":
            return self._times(places.publish_times(), kind)
        if name == "__eventTime":
            return self._times(places.field("event_time_ms").view(numpy.uint64), kind, unset=0)
        return _properties([rows for _, rows in self._groups], self.count, kind)

    def _topics(self, places: _Places, kind: pyarrow.DataType) -> pyarrow.Array:
        topics = [topic for topic, _ in self._groups]
        parts = [
            pyarrow.repeat(pyarrow.scalar(topic, kind), sum([count for _, count in counts]))
            for topic, counts in groupby(zip(topics, places.counts, strict=True), key=itemgetter(0))
        ]
        if not parts:
            return pyarrow.nulls(0, kind)
        return parts[0] if len(parts) == 1 else pyarrow.concat_arrays(parts)

    def _ids(self, places: _Places) -> pyarrow.Array:
        """Of each entry its head, before the tail of each message of a batch."""
        parts: list[bytes] = []
        head_sizes: list[int] = []
        tail_sizes = numpy.zeros(self.count, numpy.int32)
        at = 0
        for topic, groups in groupby(self._groups, key=itemgetter(0)):
            partition = TopicName.parse(topic).partition_index
            for _, rows in groups:
                head = message_id_head(partition, rows.head)
                head_sizes.append(len(head))
                batch_size = rows.head.batch_size
                if not batch_size:
                    parts.append(head)
                    at += 1
                    continue
                tails, sizes = message_id_tails(batch_size), _tail_sizes(batch_size)
                if rows.row_count != batch_size:
                    indexes = rows.batch_indexes
                    tails, sizes = [tails[index] for index in indexes], sizes[indexes]
                parts.append(head.join([b"", *tails]))
                tail_sizes[at : at + len(tails)] = sizes
                at += len(tails)
        sizes = numpy.array(head_sizes, numpy.int32).repeat(places.counts) + tail_sizes
        return _binary_array(_offsets(sizes), b"".join(parts))

    def _times(
        self, milliseconds: Numbers, kind: pyarrow.DataType, unset: int | None = None
    ) -> pyarrow.Array:
        latest = int(milliseconds.max()) if len(milliseconds) else unset
        if latest is None or latest == unset:
            return pyarrow.nulls(len(milliseconds), kind)
        missing = None if unset is None else milliseconds == unset
        if latest > MILLISECONDS_MAX:
            if self._malformed.fails:
                raise Undecodable(
                    f"a message has the time {latest} ms since 1970, which no column can hold: "
                    "leave its column out with .schema(...)"
                )
            beyond = milliseconds > MILLISECONDS_MAX
            missing = beyond if missing is None else missing | beyond
            milliseconds = numpy.where(beyond, 0, milliseconds)
        instants = milliseconds.astype(numpy.int64) * 1000
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


@final
class _Places:
    """The tables of many entries as one, with places in all of their contents, joined."""

    def __init__(self, entries: list[Rows]) -> None:
        table = numpy.frombuffer(b"".join([rows.table for rows in entries]), numpy.int64)
        self._table = table.reshape(-1, len(FIELDS))
        self.counts = [len(rows.table) // ROW.size for rows in entries]
        self._publish_times = [rows.head.publish_time_ms for rows in entries]
        contents = [rows.content for rows in entries]
        self._content = contents[0] if len(contents) == 1 else b"".join(contents)
        if len(self._content) > OFFSET_MAX:
            raise Undecodable(
                f"entry {entries[-1].head.ledger_id}:{entries[-1].head.entry_id} has "
                f"{len(contents[-1])} bytes, more than a column can hold: leave it out with offsets"
            )
        ends = numpy.cumsum([0, *map(len, contents)])
        self._shift = ends[:-1].repeat(self.counts)

    def field(self, name: str) -> Numbers:
        """A column of the tables."""
        return numpy.ascontiguousarray(self._table[:, FIELDS.index(name)])

    def publish_times(self) -> Numbers:
        """Of each message, ms since 1970."""
        return numpy.array(self._publish_times, numpy.uint64).repeat(self.counts)

    def binary(self, name: str, flag: int, *, null: bool) -> pyarrow.Array:
        """The bytes from `name` to its end. Whether messages with the flag are null, or those
        without it."""
        is_null = ((self.field("flags") & flag) != 0) == null
        if is_null.all():
            return pyarrow.nulls(len(is_null), pyarrow.binary())
        # Between two values lies what belongs to none of them: Arrow copies every second one out.
        offsets = numpy.empty(2 * len(is_null), numpy.int32)
        offsets[0::2] = self.field(name) + self._shift
        offsets[1::2] = self.field(f"{name}_end") + self._shift
        every_second = numpy.arange(0, len(offsets), 2)
        wanted = pyarrow.array(every_second, mask=is_null if is_null.any() else None)
        return _binary_array(offsets, self._content).take(wanted)


def _binary_array(offsets: Numbers, content: bytes) -> pyarrow.Array:
    buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(content)]
    return pyarrow.Array.from_buffers(pyarrow.binary(), len(offsets) - 1, buffers)


def _offsets(sizes: Numbers) -> Numbers:
    """Where each of consecutive values begins, and the last one ends."""
    offsets = numpy.zeros(len(sizes) + 1, numpy.int32)
    numpy.cumsum(sizes, out=offsets[1:])
    return offsets


@lru_cache(TAILS_REMEMBERED)
def _tail_sizes(batch_size: int) -> Numbers:
    return numpy.array([len(tail) for tail in message_id_tails(batch_size)], numpy.int32)


def _of_type(array: pyarrow.Array, kind: pyarrow.DataType) -> pyarrow.Array:
    return array if array.type == kind else array.cast(kind)


def _properties(entries: list[Rows], count: int, kind: pyarrow.DataType) -> pyarrow.Array:
    if not any(rows.properties for rows in entries):
        return _empty_maps(count, kind)
    values: list[Any] = []
    for rows in entries:
        found = rows.properties
        values += [list(dict(found.get(row, ())).items()) for row in range(rows.row_count)]
    return pyarrow.array(values, kind)


def _empty_maps(count: int, kind: pyarrow.DataType) -> pyarrow.Array:
    offsets = pyarrow.py_buffer(numpy.zeros(count + 1, numpy.int32))
    empty = pyarrow.array([], kind).values
    return pyarrow.Array.from_buffers(kind, count, [None, offsets], children=[empty])
