"""A schema in Pulsar's terms (a type, the definition's bytes and properties) and its forms.

Storing and returning a schema never interprets its bytes and properties: clients compare them byte
for byte. Four forms exist: `pb.Schema` on the wire, the REST body, the stored record, and for
KEY_VALUE the packing of two schemas into one (SchemaInfo of Pulsar 4.0: big-endian length and
definition, key first; types, names and properties of the two in the properties).
"""

from __future__ import annotations

import base64
import json
import struct
from dataclasses import dataclass, field
from typing import Any, Final, final

from broker.ground.refusal import Refusal
from protocol import pulsar_api_pb2 as pb

Json = dict[str, Any]

_TYPE_NAMES: Final[dict[int, str]] = {
    pb.Schema.Type.Value("None"): "NONE",
    pb.Schema.String: "STRING",
    pb.Schema.Json: "JSON",
    pb.Schema.Protobuf: "PROTOBUF",
    pb.Schema.Avro: "AVRO",
    pb.Schema.Bool: "BOOLEAN",
    pb.Schema.Int8: "INT8",
    pb.Schema.Int16: "INT16",
    pb.Schema.Int32: "INT32",
    pb.Schema.Int64: "INT64",
    pb.Schema.Float: "FLOAT",
    pb.Schema.Double: "DOUBLE",
    pb.Schema.Date: "DATE",
    pb.Schema.Time: "TIME",
    pb.Schema.Timestamp: "TIMESTAMP",
    pb.Schema.Type.Value("KeyValue"): "KEY_VALUE",
    pb.Schema.Instant: "INSTANT",
    pb.Schema.LocalDate: "LOCAL_DATE",
    pb.Schema.LocalTime: "LOCAL_TIME",
    pb.Schema.LocalDateTime: "LOCAL_DATE_TIME",
    pb.Schema.ProtobufNative: "PROTOBUF_NATIVE",
    pb.Schema.AutoConsume: "AUTO_CONSUME",
}
_TYPE_NUMBERS: Final = {name: number for number, name in _TYPE_NAMES.items()}
_LENGTH: Final = struct.Struct(">i")

STRUCTURED: Final = frozenset({"AVRO", "JSON", "PROTOBUF", "PROTOBUF_NATIVE", "KEY_VALUE"})
"""Types with a definition; that of others is empty."""


class InvalidSchema(Exception):
    """The definition is not one of its type."""


@final
@dataclass(frozen=True, slots=True)
class SchemaInfo:
    """One schema; `type_name` is Pulsar's (AVRO, JSON, STRING, ...)."""

    type_name: str
    data: bytes
    properties: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_wire(cls, schema: pb.Schema) -> SchemaInfo:
        """The schema of PRODUCER, SUBSCRIBE or GET_OR_CREATE_SCHEMA."""
        properties = {each.key: each.value for each in schema.properties}
        return cls(_TYPE_NAMES[schema.type], schema.schema_data, properties)

    @property
    def size_bytes(self) -> int:
        """Characters of the properties count as bytes."""
        return len(self.data) + sum(len(key) + len(self.properties[key]) for key in self.properties)

    def to_wire(self, name: str) -> pb.Schema:
        """For the answer to GET_SCHEMA; `name` is the schema's id."""
        number = pb.Schema.Type.Name(_TYPE_NUMBERS[self.type_name])
        schema = pb.Schema(name=name, schema_data=self.data, type=number)
        for key, value in self.properties.items():
            schema.properties.add(key=key, value=value)
        return schema

    @classmethod
    def from_rest(cls, body: Json) -> SchemaInfo:
        """Decode a body of `POST .../schema`: `{type, schema, properties}`.

        Raises: Refusal, InvalidSchema.
        """
        type_name = _text(body.get("type"), "type")
        if type_name == "BYTES":
            type_name = "NONE"
        if type_name not in _TYPE_NUMBERS or type_name == "AUTO_CONSUME":
            raise Refusal(400, f"Unknown schema type {type_name}")
        properties = _properties(body.get("properties"))
        text = _text(body.get("schema"), "schema")
        if type_name == "KEY_VALUE" and text:
            return cls(type_name, _key_value_from_text(text, properties), properties)
        return cls(type_name, text.encode(), properties)

    def rest_text(self) -> str:
        """The `data` of a REST answer."""
        if self.type_name != "KEY_VALUE" or not self.data:
            return self.data.decode(errors="replace")
        key, value = self.key_value()
        parts = {"key": _json_part(key), "value": _json_part(value)}
        return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))

    def to_stored(self, timestamp_ms: int) -> Json:
        """The record of one version."""
        return {
            "type": self.type_name,
            "data": base64.b64encode(self.data).decode(),
            "properties": self.properties,
            "timestamp": timestamp_ms,
        }

    @classmethod
    def from_stored(cls, record: Json) -> SchemaInfo:
        """The inverse of `to_stored`."""
        return cls(record["type"], base64.b64decode(record["data"]), record["properties"])

    def key_value(self) -> tuple[SchemaInfo, SchemaInfo]:
        """The two schemas of a KEY_VALUE. Raises: InvalidSchema."""
        key, rest = _take_part(self.data)
        value, rest = _take_part(rest)
        if rest:
            raise InvalidSchema("Invalid schema definition data for KEY_VALUE schema")
        return (
            SchemaInfo(self.properties.get("key.schema.type", "NONE"), key),
            SchemaInfo(self.properties.get("value.schema.type", "NONE"), value),
        )


def _properties(given: object) -> dict[str, str]:
    """The properties of a body; null counts as none, as in Pulsar. Raises: Refusal."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise Refusal(400, "properties must be an object whose values are strings")
    return {_storable(str(key)): _text(each, f"The property {key}") for key, each in given.items()}


def _text(given: object, what: str) -> str:
    """A text of a body. Pulsar takes a number or a boolean as its JSON text. Raises: Refusal."""
    if isinstance(given, str):
        return _storable(given)
    if isinstance(given, bool | int | float):
        return json.dumps(given)
    if given is None:
        return ""
    raise Refusal(400, _storable(f"{what} must be a string"))


def _storable(text: str) -> str:
    """JSON may hold half a surrogate pair, which UTF-8 cannot. Java's `getBytes` does the same."""
    return text.encode(errors="replace").decode()


def _take_part(data: bytes) -> tuple[bytes, bytes]:
    if len(data) < _LENGTH.size:
        raise InvalidSchema("Invalid schema definition data for KEY_VALUE schema")
    length = max(0, _LENGTH.unpack_from(data)[0])
    end = _LENGTH.size + length
    if end > len(data):
        raise InvalidSchema("Invalid schema definition data for KEY_VALUE schema")
    return data[_LENGTH.size : end], data[end:]


def _key_value_from_text(text: str, properties: dict[str, str]) -> bytes:
    try:
        parts = json.loads(text)
        key, value = parts["key"], parts["value"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidSchema("Invalid schema definition data for KEY_VALUE schema") from None
    packed = b""
    for part, which in ((key, "key"), (value, "value")):
        definition = part if isinstance(part, str) else json.dumps(part, separators=(",", ":"))
        type_name = properties.get(f"{which}.schema.type", "NONE")
        if definition and type_name not in STRUCTURED:
            raise InvalidSchema(
                f"Invalid schema definition data for {type_name.lower()} schema : '{definition}'"
            )
        encoded = definition.encode(errors="replace")
        packed += _LENGTH.pack(len(encoded)) + encoded
    return packed


def _json_part(part: SchemaInfo) -> object:
    text = part.data.decode(errors="replace")
    if not text:
        return ""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
