"""Decodes payloads into the Python values that Arrow takes, one decoder per schema. Pure.

AVRO is resolved from the version a message was written with to the schema the query was started
with. JSON that cannot be parsed gives a row of nulls, as the connector does, unless the decoder is
strict; an AVRO payload or a number that does not fit its schema is an error.
"""

from __future__ import annotations

import io
import struct
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, final

from pipeline.registry import SchemaError, TopicSchema, is_widened, union_branches

if TYPE_CHECKING:
    from collections.abc import Callable

    Convert = Callable[[Any], Any]
    SchemaOfVersion = Callable[[int], TopicSchema]

Json = Any
_NUMBERS: Final = {
    "INT8": struct.Struct(">b"),
    "INT16": struct.Struct(">h"),
    "INT32": struct.Struct(">i"),
    "INT64": struct.Struct(">q"),
    "FLOAT": struct.Struct(">f"),
    "DOUBLE": struct.Struct(">d"),
    "DATE": struct.Struct(">q"),
    "TIMESTAMP": struct.Struct(">q"),
}
_LENGTH: Final = struct.Struct(">i")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = date(1970, 1, 1)


class Undecodable(Exception):
    """A payload that does not fit its schema; the caller adds which message it is."""


@final
class ValueDecoder:
    """Turns payloads into one value per value column, in the order of the columns.

    `schema_of_version` answers the topic's schema of a version, for AVRO only. `strict`: JSON that
    cannot be parsed is undecodable, too.
    """

    def __init__(
        self, schema: TopicSchema, schema_of_version: SchemaOfVersion, *, strict: bool = False
    ) -> None:
        self._decode = _decoder(schema, schema_of_version, strict)
        self._width = 1
        self._row: Callable[[Any], tuple[Any, ...]]
        if schema.is_record:
            names = [field["name"] for field in schema.definition["fields"]]
            self._width = len(names)
            self._row = lambda record: tuple([record.get(name) for name in names])
        elif schema.type_name == "KEY_VALUE":
            self._width = 2
            self._row = lambda pair: pair
        else:
            self._row = lambda value: (value,)

    @property
    def nothing(self) -> tuple[None, ...]:
        """The row of a message without a value."""
        return (None,) * self._width

    def row(
        self, payload: bytes | None, key: bytes | None, schema_version: bytes
    ) -> tuple[Any, ...]:
        """Raises: Undecodable."""
        if payload is None and key is None:
            return self.nothing
        try:
            decoded = self._decode(payload, key, schema_version)
        except (
            ValueError,
            KeyError,
            IndexError,
            TypeError,
            EOFError,
            OverflowError,
            SchemaError,
        ) as error:
            raise Undecodable(f"{type(error).__name__}: {error}") from error
        return self.nothing if decoded is None else self._row(decoded)


def _decoder(
    schema: TopicSchema, schema_of_version: SchemaOfVersion, strict: bool
) -> Callable[[bytes | None, bytes | None, bytes], Any]:
    if schema.type_name != "KEY_VALUE":
        part = _part_decoder(schema, schema_of_version, strict)
        return lambda payload, _key, version: None if payload is None else part(payload, version)
    key_schema, value_schema = schema.key, schema.value
    assert key_schema is not None
    assert value_schema is not None
    decode_key = _part_decoder(
        key_schema, lambda version: _part(schema_of_version(version), 0), strict
    )
    decode_value = _part_decoder(
        value_schema, lambda version: _part(schema_of_version(version), 1), strict
    )
    separated = schema.separated

    def pair(payload: bytes | None, key: bytes | None, version: bytes) -> tuple[Any, Any]:
        value = payload
        if not separated:
            key, value = (None, None) if payload is None else _inline_parts(payload)
        return (
            None if key is None else decode_key(key, version),
            None if value is None else decode_value(value, version),
        )

    return pair


def _part(schema: TopicSchema, index: int) -> TopicSchema:
    part = (schema.key, schema.value)[index]
    if part is None:
        raise SchemaError(f"schema version {schema.version} is {schema.type_name}, not KEY_VALUE")
    return part


def _inline_parts(payload: bytes) -> tuple[bytes | None, bytes | None]:
    parts: list[bytes | None] = []
    offset = 0
    for _ in range(2):
        try:
            (size,) = _LENGTH.unpack_from(payload, offset)
        except struct.error as error:
            raise ValueError(f"key/value of {len(payload)} bytes: {error}") from None
        offset += _LENGTH.size
        if size >= 0 and offset + size > len(payload):
            raise ValueError(f"key/value of {len(payload)} bytes holds a part of {size} bytes")
        parts.append(payload[offset : offset + size] if size >= 0 else None)
        offset += max(size, 0)
    return parts[0], parts[1]


def _part_decoder(
    schema: TopicSchema, schema_of_version: SchemaOfVersion, strict: bool
) -> Callable[[bytes, bytes], Any]:
    if schema.type_name == "AVRO":
        return _AvroDecoder(schema, schema_of_version).decode
    if schema.type_name == "JSON":
        return _json_decoder(schema, strict)
    decode = _primitive(schema.type_name)
    return lambda payload, _version: decode(payload)


def _primitive(type_name: str) -> Convert:
    if type_name in ("NONE", "BYTES"):
        return bytes
    if type_name == "STRING":
        return bytes.decode
    if type_name == "BOOLEAN":
        return lambda payload: payload[0] != 0
    packed = _NUMBERS[type_name]

    def number(payload: bytes) -> Json:
        try:
            (value,) = packed.unpack(payload)
        except struct.error:
            raise ValueError(
                f"{type_name} has {packed.size} bytes, the payload {len(payload)}"
            ) from None
        if type_name == "TIMESTAMP":
            return _EPOCH + timedelta(milliseconds=value)
        if type_name == "DATE":
            return (_EPOCH + timedelta(milliseconds=value)).date()
        return value

    return number


@final
class _AvroDecoder:
    def __init__(self, schema: TopicSchema, schema_of_version: SchemaOfVersion) -> None:
        import fastavro

        self._fastavro = fastavro
        self._schema_of_version = schema_of_version
        self._reader = fastavro.parse_schema(schema.definition)
        self._convert = converter(schema.definition)
        self._writers: dict[bytes, Any] = {}
        self._own_version = schema.version

    def decode(self, payload: bytes, version: bytes) -> Json:
        writer = self._writers.get(version)
        if writer is None:
            writer = self._writers[version] = self._writer(version)
        value = self._fastavro.schemaless_reader(io.BytesIO(payload), writer, self._reader)
        return value if self._convert is None else self._convert(value)

    def _writer(self, version: bytes) -> Json:
        number = int.from_bytes(version) if version else self._own_version
        if number == self._own_version:
            return self._reader
        return self._fastavro.parse_schema(self._schema_of_version(number).definition)


def _json_decoder(schema: TopicSchema, strict: bool) -> Callable[[bytes, bytes], Any]:
    import orjson

    convert = converter(schema.definition, from_json=True)

    def decode(payload: bytes, _version: bytes) -> Json:
        try:
            value = orjson.loads(payload)
            if not isinstance(value, dict):
                raise ValueError("the JSON text is no object")
            return value if convert is None else convert(value)
        except (ValueError, TypeError, KeyError, OverflowError):
            if strict:
                raise
            return None

    return decode


# ---- What Arrow does not take as it comes


def converter(schema: Json, *, from_json: bool = False) -> Convert | None:
    """A function for values of an Avro type that Arrow would not take; None when it takes them."""
    return _converter(schema, from_json, {})


def _converter(schema: Json, from_json: bool, known: dict[str, Json]) -> Convert | None:
    if isinstance(schema, list):
        return _union_converter(schema, from_json, known)
    if isinstance(schema, str):
        if schema in known:
            return _converter(known[schema], from_json, known)
        return _json_scalar(schema) if from_json else None
    if "logicalType" in schema and from_json:
        return _json_logical(schema)
    kind = schema["type"]
    if "name" in schema:
        known[schema["name"]] = schema
        if schema.get("namespace"):
            known[f"{schema['namespace']}.{schema['name']}"] = schema
    if kind == "record":
        return _record_converter(schema, from_json, known)
    if kind == "array":
        item = _converter(schema["items"], from_json, known)
        return None if item is None else _nullable(lambda values: [item(each) for each in values])
    if kind == "map":
        return _map_converter(_converter(schema["values"], from_json, known))
    if kind in ("enum", "fixed") or not from_json:
        return None
    return _converter(kind, from_json, known)


def _nullable(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _map_converter(item: Convert | None) -> Convert:
    if item is None:
        return _nullable(lambda value: list(value.items()))
    return _nullable(lambda value: [(key, item(each)) for key, each in value.items()])


def _record_converter(schema: Json, from_json: bool, known: dict[str, Json]) -> Convert | None:
    converters = {
        field["name"]: convert
        for field in schema["fields"]
        if (convert := _converter(field["type"], from_json, known)) is not None
    }
    if not converters:
        return None

    def convert_record(record: dict[str, Any]) -> dict[str, Any]:
        changed = dict(record)
        for name, convert in converters.items():
            if name in changed:
                changed[name] = convert(changed[name])
        return changed

    return _nullable(convert_record)


def _union_converter(schema: list[Json], from_json: bool, known: dict[str, Json]) -> Convert | None:
    branches = union_branches(schema)
    if len(branches) <= 1:
        return _converter(branches[0], from_json, known) if branches else None
    if is_widened(branches):
        return None
    import fastavro

    parsed = [fastavro.parse_schema(_self_contained(branch, known, set())) for branch in branches]
    converters = [_converter(branch, from_json, known) for branch in branches]

    def member(value: Json) -> dict[str, Any]:
        for index, (branch, convert) in enumerate(zip(parsed, converters, strict=True)):
            if fastavro.validate(value, branch, raise_errors=False):
                return {f"member{index}": value if convert is None else convert(value)}
        raise ValueError(f"{value!r} is of none of the types {branches}")

    return _nullable(member)


def _self_contained(schema: Json, known: dict[str, Json], defined: set[str]) -> Json:
    """With the definitions of types that were named before, each where it is mentioned first."""
    if isinstance(schema, list):
        return [_self_contained(branch, known, defined) for branch in schema]
    if isinstance(schema, str):
        if schema in known and known[schema]["name"] not in defined:
            return _self_contained(known[schema], known, defined)
        return schema
    if "name" in schema:
        defined.add(schema["name"])
    whole = dict(schema)
    for part in ("type", "items", "values"):
        if part in whole:
            whole[part] = _self_contained(whole[part], known, defined)
    if "fields" in whole:
        whole["fields"] = [
            {**field, "type": _self_contained(field["type"], known, defined)}
            for field in whole["fields"]
        ]
    return whole


def _json_scalar(kind: str) -> Convert | None:
    if kind in ("int", "long"):
        return _nullable(_whole)
    if kind in ("float", "double"):
        return _nullable(float)
    if kind == "boolean":
        return _nullable(_truth)
    if kind == "string":
        return _nullable(_text)
    if kind == "bytes":
        return _nullable(lambda value: _text(value).encode("latin-1"))
    return None


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is no whole number")
    return value


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _json_logical(schema: Json) -> Convert | None:
    from decimal import Decimal

    logical = schema["logicalType"]
    if logical == "date":
        return _nullable(lambda days: _EPOCH_DAY + timedelta(days=_whole(days)))
    if logical == "timestamp-millis":
        return _nullable(lambda time: _EPOCH + timedelta(milliseconds=_whole(time)))
    if logical == "timestamp-micros":
        return _nullable(lambda time: _EPOCH + timedelta(microseconds=_whole(time)))
    if logical == "decimal":
        return _nullable(lambda value: Decimal(str(value)))
    return _converter(schema["type"], True, {})
