"""From columns to payloads: which schema a topic gets or has, and how a row is written with it.

A topic that has a schema decides: rows are encoded with it, and columns that do not fit it are
refused before anything is sent. A topic without one gets what StreamNative's connector would give
it: a primitive for one column that is no structure, else the AVRO record `topLevelRecord` whose
nullable fields are unions with null. One binary column `value` is always taken as encoded already.
"""

from __future__ import annotations

import io
import json
import struct
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final, final

import pyarrow
from pyarrow import types

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pipeline.registry import TopicSchema

    Encode = Callable[[Any], bytes]

Json = Any
RECORD_NAME: Final = "topLevelRecord"
NUMBERS: Final = {
    "INT8": ">b",
    "INT16": ">h",
    "INT32": ">i",
    "INT64": ">q",
    "FLOAT": ">f",
    "DOUBLE": ">d",
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class IncompatibleColumns(ValueError):
    """Columns or values that the topic's schema does not take; says which."""


@final
@dataclass(frozen=True, slots=True)
class PayloadEncoding:
    """Schema of the producer, and how rows become payloads.

    `text`: the definition in the bytes that the registry has or gets; `columns`: the value columns
    in order; `single`: the row is the value of its one column, else a dict.
    """

    type_name: str
    text: str
    columns: tuple[str, ...]
    single: bool
    encode: Encode = field(compare=False)


def value_fields(schema: pyarrow.Schema) -> list[pyarrow.Field]:
    """The columns that make the payload."""
    return [each for each in schema if not each.name.startswith("__")]


def encoding_for(
    columns: Sequence[pyarrow.Field], registered: TopicSchema, topic: str
) -> PayloadEncoding:
    """Raises: IncompatibleColumns."""
    names = tuple(each.name for each in columns)
    if not columns:
        raise IncompatibleColumns("there is no value column: name one `value`, or select fields")
    raw = len(columns) == 1 and types.is_binary(columns[0].type) and names[0] == "value"
    if registered.version >= 0 and registered.type_name not in ("NONE", "BYTES"):
        return _registered(columns, registered, topic, raw=raw)
    if raw:
        return PayloadEncoding("BYTES", "", names, True, bytes)
    if len(columns) == 1 and not types.is_struct(columns[0].type):
        type_name = _primitive_of(columns[0].type)
        if type_name is not None:
            return PayloadEncoding(type_name, "", names, True, _primitive_encoder(type_name))
    definition = record_definition(columns)
    return PayloadEncoding("AVRO", json.dumps(definition), names, False, _avro_encoder(definition))


def _registered(
    columns: Sequence[pyarrow.Field], registered: TopicSchema, topic: str, *, raw: bool
) -> PayloadEncoding:
    names = tuple(each.name for each in columns)
    type_name = registered.type_name
    if raw:
        return PayloadEncoding(type_name, registered.text, names, True, bytes)
    if type_name == "KEY_VALUE":
        raise IncompatibleColumns(
            f"{topic} has a KEY_VALUE schema: write the encoded pair as one binary column `value`"
        )
    if not registered.is_record:
        if len(columns) != 1:
            raise IncompatibleColumns(
                f"{topic} has the schema {type_name}: write one column, not {', '.join(names)}"
            )
        given = _primitive_of(columns[0].type)
        if given != type_name:
            raise IncompatibleColumns(
                f"{topic} has the schema {type_name}, the column {names[0]} is "
                f"{columns[0].type}: cast it, or write to another topic"
            )
        return PayloadEncoding(type_name, "", names, True, _primitive_encoder(type_name))
    fields = {each["name"]: each for each in registered.definition["fields"]}
    extra = [name for name in names if name not in fields]
    missing = [
        name
        for name, each in fields.items()
        if name not in names and "default" not in each and not _takes_null(each["type"])
    ]
    if extra or missing:
        raise IncompatibleColumns(
            f"{topic} has a {type_name} schema with the fields {', '.join(fields)}: "
            + "; ".join(
                [f"no field {name}" for name in extra]
                + [f"column {name} missing" for name in missing]
            )
        )
    encode = _json_encode if type_name == "JSON" else _avro_encoder(registered.definition)
    return PayloadEncoding(type_name, registered.text, names, False, encode)


def _takes_null(kind: Json) -> bool:
    return kind == "null" or (isinstance(kind, list) and "null" in kind)


def rows_of(batch: pyarrow.RecordBatch, encoding: PayloadEncoding) -> list[bytes | None]:
    """Payloads; None for a null in a single column.

    Raises: IncompatibleColumns: a value that the schema does not take.
    """
    rows = batch.select(list(encoding.columns)).to_pylist(maps_as_pydicts="strict")
    payloads: list[bytes | None] = []
    for row in rows:
        value = row[encoding.columns[0]] if encoding.single else row
        try:
            payloads.append(None if value is None else encoding.encode(value))
        except (ValueError, TypeError, struct.error, OverflowError) as error:
            text = f"a row does not fit the schema {encoding.type_name}: {error}"
            raise IncompatibleColumns(text) from error
    return payloads


# ---- Primitives


def _primitive_of(kind: pyarrow.DataType) -> str | None:
    tests = (
        (types.is_string, "STRING"),
        (types.is_boolean, "BOOLEAN"),
        (types.is_int8, "INT8"),
        (types.is_int16, "INT16"),
        (types.is_int32, "INT32"),
        (types.is_int64, "INT64"),
        (types.is_float32, "FLOAT"),
        (types.is_float64, "DOUBLE"),
        (types.is_binary, "BYTES"),
        (types.is_date32, "DATE"),
        (types.is_timestamp, "TIMESTAMP"),
    )
    return next((name for test, name in tests if test(kind)), None)


def _primitive_encoder(type_name: str) -> Encode:
    if type_name in NUMBERS:
        pack = struct.Struct(NUMBERS[type_name]).pack
        return lambda value: pack(value)
    encoders: dict[str, Encode] = {
        "STRING": str.encode,
        "BYTES": bytes,
        "BOOLEAN": lambda value: b"\x01" if value else b"\x00",
        "DATE": lambda value: struct.pack(">q", _date_ms(value)),
        "TIMESTAMP": lambda value: struct.pack(">q", time_ms(value)),
    }
    return encoders[type_name]


def _date_ms(value: date) -> int:
    return (value - _EPOCH.date()).days * 86_400_000


def time_ms(value: datetime) -> int:
    """Milliseconds since 1970."""
    aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    passed = aware - _EPOCH
    return (passed.days * 86_400 + passed.seconds) * 1000 + passed.microseconds // 1000


# ---- Records


def record_definition(columns: Sequence[pyarrow.Field]) -> Json:
    """The Avro record of a row."""
    return {"type": "record", "name": RECORD_NAME, "fields": _fields(columns, RECORD_NAME)}


def _fields(columns: Sequence[pyarrow.Field], path: str) -> list[Json]:
    return [{"name": each.name, "type": _nullable(each, f"{path}.{each.name}")} for each in columns]


def _nullable(column: pyarrow.Field, path: str) -> Json:
    kind = _avro_type(column.type, path)
    return [kind, "null"] if column.nullable else kind


def _avro_type(kind: pyarrow.DataType, path: str) -> Json:
    plain = (
        (types.is_boolean, "boolean"),
        (types.is_int8, "int"),
        (types.is_int16, "int"),
        (types.is_int32, "int"),
        (types.is_int64, "long"),
        (types.is_float32, "float"),
        (types.is_float64, "double"),
        (types.is_string, "string"),
        (types.is_binary, "bytes"),
    )
    for test, name in plain:
        if test(kind):
            return name
    if types.is_date32(kind):
        return {"type": "int", "logicalType": "date"}
    if types.is_timestamp(kind):
        return {"type": "long", "logicalType": "timestamp-micros"}
    if types.is_decimal(kind):
        return {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": kind.precision,
            "scale": kind.scale,
        }
    if types.is_list(kind):
        return {"type": "array", "items": _nullable(kind.value_field, f"{path}.element")}
    if types.is_map(kind):
        return {"type": "map", "values": _nullable(kind.item_field, f"{path}.value")}
    if types.is_struct(kind):
        name = path.replace(".", "_")
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return {"type": "record", "name": name, "fields": _fields(fields, path)}
    raise IncompatibleColumns(f"column {path}: {kind} has no AVRO type; cast it")


def _avro_encoder(definition: Json) -> Encode:
    import fastavro

    parsed = fastavro.parse_schema(definition)

    def encode(row: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, row, strict_allow_default=True)
        return out.getvalue()

    return encode


def _json_encode(row: dict[str, Any]) -> bytes:
    return json.dumps(row, separators=(",", ":"), default=_json_value, ensure_ascii=False).encode()


def _json_value(value: object) -> object:
    if isinstance(value, datetime):
        return time_ms(value)
    if isinstance(value, date):
        return (value - _EPOCH.date()).days
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return str(value)
