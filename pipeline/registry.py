"""Maps a topic's schema to columns. Pure.

The mapping is that of StreamNative's connector, so that a job may change its format: a record's
fields become columns of their own, everything else one column `value`; the metadata columns follow.
Beyond the connector, KEY_VALUE becomes the columns `key` and `value`. Types are written as Spark's
DDL, which needs no Spark.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping

Json = Any

METADATA_COLUMNS: Final = (
    ("__key", "BINARY"),
    ("__topic", "STRING"),
    ("__messageId", "BINARY"),
    ("__publishTime", "TIMESTAMP"),
    ("__eventTime", "TIMESTAMP"),
    ("__messageProperties", "MAP<STRING, STRING>"),
)
PRIMITIVES: Final = {
    "NONE": "BINARY",
    "BYTES": "BINARY",
    "STRING": "STRING",
    "BOOLEAN": "BOOLEAN",
    "INT8": "TINYINT",
    "INT16": "SMALLINT",
    "INT32": "INT",
    "INT64": "BIGINT",
    "FLOAT": "FLOAT",
    "DOUBLE": "DOUBLE",
    "DATE": "DATE",
    "TIMESTAMP": "TIMESTAMP",
}
RECORDS: Final = frozenset({"AVRO", "JSON"})
PROTOBUF: Final = frozenset({"PROTOBUF", "PROTOBUF_NATIVE"})
_AVRO_PRIMITIVES: Final = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bytes": "BINARY",
    "string": "STRING",
    "null": "VOID",
}
_AS_BYTES: Final = "Read the payloads as bytes with rawValues=true"
_LOGICAL: Final = {
    "date": "DATE",
    "timestamp-millis": "TIMESTAMP",
    "timestamp-micros": "TIMESTAMP",
}


class SchemaError(Exception):
    """A schema this source cannot map, or topics whose schemas differ; says what to do."""


@final
@dataclass(frozen=True, slots=True)
class TopicSchema:
    """A schema as the registry answers it. `definition` is the Avro record of AVRO and JSON, `text`
    the same in the registry's bytes; for
    KEY_VALUE `key` and `value` are its two parts. `version` is -1 without a schema."""

    type_name: str = "BYTES"
    definition: Json = None
    version: int = -1
    key: TopicSchema | None = None
    value: TopicSchema | None = None
    separated: bool = False
    text: str = ""

    @property
    def is_record(self) -> bool:
        """Whether the value has fields."""
        return self.type_name in RECORDS

    @property
    def is_payload(self) -> bool:
        """Whether the value is the payload as it is."""
        return self.type_name in ("NONE", "BYTES")

    def same_as(self, other: TopicSchema) -> bool:
        """Whether rows of both have the same columns and are decoded the same way."""
        return (self.type_name, self.definition, self.key, self.value, self.separated) == (
            other.type_name,
            other.definition,
            other.key,
            other.value,
            other.separated,
        )


BYTES: Final = TopicSchema()


def from_registry(answer: Mapping[str, Json] | None, topic: str) -> TopicSchema:
    """The answer of `GET .../schema`; None: no schema, bytes.

    Raises: SchemaError.
    """
    if answer is None:
        return BYTES
    type_name, version = str(answer["type"]), int(answer["version"])
    if type_name in PRIMITIVES:
        return TopicSchema(type_name, version=version)
    try:
        if type_name in RECORDS:
            return _record(type_name, answer["data"], version, topic)
        if type_name == "KEY_VALUE":
            return _key_value(answer, version, topic)
    except (ValueError, KeyError) as error:
        raise SchemaError(f"{topic}: the definition of its {type_name} schema: {error}") from None
    raise SchemaError(
        f"{topic}: schema type {type_name} is not supported; supported are "
        f"{', '.join((*PRIMITIVES, *sorted(RECORDS), 'KEY_VALUE'))}. {_AS_BYTES}"
        + (", and parse them with the message class" if type_name in PROTOBUF else "")
    )


def _record(type_name: str, text: str, version: int, topic: str) -> TopicSchema:
    definition = json.loads(text)
    if not isinstance(definition, dict) or definition.get("type") != "record":
        raise SchemaError(f"{topic}: only records are supported as {type_name} schema")
    return TopicSchema(type_name, definition, version, text=text)


def _key_value(answer: Mapping[str, Json], version: int, topic: str) -> TopicSchema:
    properties = answer.get("properties") or {}
    data = answer["data"]
    parts = json.loads(data) if isinstance(data, str) else data
    found = []
    for which in ("key", "value"):
        part = parts[which]
        found.append(
            from_registry(
                {
                    "type": properties.get(f"{which}.schema.type", "BYTES"),
                    "version": version,
                    "data": part if isinstance(part, str) else json.dumps(part),
                },
                topic,
            )
        )
    separated = properties.get("kv.encoding.type", "INLINE").upper() == "SEPARATED"
    return TopicSchema("KEY_VALUE", None, version, found[0], found[1], separated)


def common_schema(schemas: Mapping[str, TopicSchema], *, allow_different: bool) -> TopicSchema:
    """The one schema of all topics; bytes when they differ and that is allowed.

    Raises: SchemaError.
    """
    names = sorted(schemas)
    if not names:
        return BYTES
    first = schemas[names[0]]
    for name in names[1:]:
        if not schemas[name].same_as(first):
            if allow_different:
                return BYTES
            raise SchemaError(
                f"{names[0]} ({first.type_name}) and {name} ({schemas[name].type_name}) have "
                "different schemas: read them apart, or as bytes with "
                "allowDifferentTopicSchemas=true"
            )
    try:
        taken = {name for name, _ in value_columns(first)} & {name for name, _ in METADATA_COLUMNS}
    except SchemaError as error:
        raise SchemaError(f"{names[0]}: {error}. {_AS_BYTES}") from None
    if taken:
        raise SchemaError(
            f"{names[0]}: its fields {', '.join(sorted(taken))} have names of this source's own "
            f"columns. {_AS_BYTES}"
        )
    return first


def value_columns(schema: TopicSchema) -> list[tuple[str, str]]:
    """Name and DDL type of the columns a message's value becomes."""
    if schema.type_name == "KEY_VALUE":
        assert schema.key is not None
        assert schema.value is not None
        return [("key", _ddl_of(schema.key)), ("value", _ddl_of(schema.value))]
    if schema.is_record:
        names = _Names()
        names.open |= _names_of(schema.definition)
        return [
            (field["name"], _avro_ddl(field["type"], names))
            for field in schema.definition["fields"]
        ]
    return [("value", PRIMITIVES[schema.type_name])]


def ddl(schema: TopicSchema, *, include_metadata: bool = True, corrupt_column: str = "") -> str:
    """All columns, as `DataFrameReader.schema` takes them.

    `corrupt_column` names the one for payloads that the schema cannot decode; empty: there is none.
    """
    columns = value_columns(schema)
    if corrupt_column:
        columns.append((corrupt_column, "BINARY"))
    columns += METADATA_COLUMNS if include_metadata else ()
    return ", ".join(f"{_quoted(name)} {kind}" for name, kind in columns)


def _ddl_of(schema: TopicSchema) -> str:
    if schema.is_record:
        return _avro_ddl(schema.definition, _Names())
    return PRIMITIVES[schema.type_name]


@final
class _Names:
    """Named types seen so far, so that a later mention by name is understood."""

    def __init__(self) -> None:
        self.known: dict[str, Json] = {}
        self.open: set[str] = set()


def _avro_ddl(schema: Json, names: _Names) -> str:
    if isinstance(schema, list):
        return _union_ddl(schema, names)
    if isinstance(schema, str):
        if schema in _AVRO_PRIMITIVES:
            return _AVRO_PRIMITIVES[schema]
        if schema in names.open:
            raise SchemaError(f"the record {schema} contains itself, which Spark cannot hold")
        if schema not in names.known:
            raise SchemaError(f"unknown Avro type {schema!r}")
        return _avro_ddl(names.known[schema], names)
    logical = schema.get("logicalType")
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if logical == "decimal":
        return f"DECIMAL({schema['precision']}, {schema.get('scale', 0)})"
    kind = schema["type"]
    if kind == "record":
        return _record_ddl(schema, names)
    if kind == "array":
        return f"ARRAY<{_avro_ddl(schema['items'], names)}>"
    if kind == "map":
        return f"MAP<STRING, {_avro_ddl(schema['values'], names)}>"
    if kind in ("enum", "fixed"):
        names.known[schema["name"]] = schema
        return "STRING" if kind == "enum" else "BINARY"
    return _avro_ddl(kind, names)


def _record_ddl(schema: Json, names: _Names) -> str:
    own = _names_of(schema)
    names.known |= dict.fromkeys(own, schema)
    names.open |= own
    fields = [
        f"{_quoted(each['name'])}: {_avro_ddl(each['type'], names)}" for each in schema["fields"]
    ]
    names.open -= own
    return f"STRUCT<{', '.join(fields)}>"


def _names_of(record: Json) -> set[str]:
    """Short and full."""
    name = record["name"]
    return {name, f"{record['namespace']}.{name}"} if record.get("namespace") else {name}


def union_branches(schema: list[Json]) -> list[Json]:
    """A union without null."""
    return [branch for branch in schema if branch != "null"]


def is_widened(branches: list[Json]) -> bool:
    """int with long, float with double: one column of the wider type."""
    kinds = {branch for branch in branches if isinstance(branch, str)}
    return len(kinds) == len(branches) == 2 and kinds in ({"int", "long"}, {"float", "double"})


def _union_ddl(schema: list[Json], names: _Names) -> str:
    branches = union_branches(schema)
    if not branches:
        return "VOID"
    if len(branches) == 1:
        return _avro_ddl(branches[0], names)
    if is_widened(branches):
        return "BIGINT" if "long" in branches else "DOUBLE"
    members = [
        f"member{index}: {_avro_ddl(branch, names)}" for index, branch in enumerate(branches)
    ]
    return f"STRUCT<{', '.join(members)}>"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
