"""Schemas become the columns that StreamNative's connector would make of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipeline.registry import (
    BYTES,
    SchemaError,
    TopicSchema,
    common_schema,
    ddl,
    from_registry,
    value_columns,
)


def registered(type_name: str, definition: Any = "", **properties: str) -> TopicSchema:
    data = definition if isinstance(definition, str) else json.dumps(definition)
    answer = {"type": type_name, "version": 3, "data": data, "properties": properties}
    return from_registry(answer, "t")


def record(**fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("int", "INT"),
        (["null", "string"], "STRING"),
        (["int", "long"], "BIGINT"),
        (["null", "float", "double"], "DOUBLE"),
        (["null", "int", "string"], "STRUCT<member0: INT, member1: STRING>"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "TIMESTAMP"),
        ({"type": "int", "logicalType": "date"}, "DATE"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "DECIMAL(9, 2)"),
        ({"type": "array", "items": "string"}, "ARRAY<STRING>"),
        ({"type": "map", "values": ["null", "long"]}, "MAP<STRING, BIGINT>"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "STRING"),
        ({"type": "fixed", "name": "F", "size": 4}, "BINARY"),
        (
            {"type": "record", "name": "S", "fields": [{"name": "x", "type": "int"}]},
            "STRUCT<`x`: INT>",
        ),
    ],
)
def test_avro_types(kind: Any, column: str) -> None:
    assert value_columns(registered("AVRO", record(a=kind))) == [("a", column)]


def test_a_named_type_may_be_mentioned_again() -> None:
    inner = {"type": "record", "name": "P", "fields": [{"name": "x", "type": "int"}]}
    one = record(
        a={
            "type": "record",
            "name": "O",
            "fields": [{"name": "p", "type": inner}, {"name": "q", "type": "P"}],
        }
    )

    assert value_columns(registered("JSON", one)) == [
        ("a", "STRUCT<`p`: STRUCT<`x`: INT>, `q`: STRUCT<`x`: INT>>")
    ]


def test_a_type_named_in_one_column_may_be_mentioned_in_another() -> None:
    inner = {"type": "record", "name": "P", "fields": [{"name": "x", "type": "int"}]}
    two = record(a=["null", inner], b={"type": "array", "items": "P"})

    assert value_columns(registered("AVRO", two)) == [
        ("a", "STRUCT<`x`: INT>"),
        ("b", "ARRAY<STRUCT<`x`: INT>>"),
    ]


def test_a_record_inside_itself_is_refused() -> None:
    tree = {"type": "record", "name": "T", "fields": [{"name": "next", "type": ["null", "T"]}]}

    with pytest.raises(SchemaError, match="contains itself"):
        value_columns(registered("AVRO", record(a=tree)))


@pytest.mark.parametrize("mention", ["T", "city.T"])
def test_a_whole_record_inside_itself_is_refused(mention: str) -> None:
    tree = {
        "type": "record",
        "name": "T",
        "namespace": "city",
        "fields": [{"name": "next", "type": ["null", mention]}],
    }

    with pytest.raises(SchemaError, match="contains itself"):
        value_columns(registered("AVRO", tree))
    with pytest.raises(SchemaError, match="contains itself"):
        value_columns(registered("AVRO", record(a=tree)))


def test_a_schema_that_no_columns_can_hold_names_its_topic_and_a_way_out() -> None:
    clash = registered("AVRO", record(__key="string"))

    with pytest.raises(SchemaError, match=r"^t-1: .*__key.*rawValues=true"):
        common_schema({"t-1": clash}, allow_different=False)


def test_everything_else_is_one_column_value() -> None:
    assert value_columns(BYTES) == [("value", "BINARY")]
    assert value_columns(registered("INT16")) == [("value", "SMALLINT")]
    assert value_columns(registered("TIMESTAMP")) == [("value", "TIMESTAMP")]


def test_key_and_value_are_two() -> None:
    both = {"key": "", "value": record(x="int")}
    properties = {"key.schema.type": "STRING", "value.schema.type": "AVRO"}
    answer = {"type": "KEY_VALUE", "version": 0, "data": json.dumps(both), "properties": properties}

    assert value_columns(from_registry(answer, "t")) == [
        ("key", "STRING"),
        ("value", "STRUCT<`x`: INT>"),
    ]


def test_metadata_columns_follow_and_odd_names_are_quoted() -> None:
    columns = ddl(registered("AVRO", record(**{"a`b": "int"})))

    assert columns.startswith("`a``b` INT, `__key` BINARY, `__topic` STRING, `__messageId` BINARY")
    assert ddl(BYTES, include_metadata=False) == "`value` BINARY"


@pytest.mark.parametrize("type_name", ["PROTOBUF", "PROTOBUF_NATIVE", "TIME", "LOCAL_DATE"])
def test_types_that_are_not_supported_are_named(type_name: str) -> None:
    with pytest.raises(
        SchemaError, match=f"{type_name} is not supported; supported are .* rawValues=true"
    ):
        registered(type_name, "{}")


def test_different_schemas_are_refused_or_bytes() -> None:
    schemas = {"a": registered("STRING"), "b": registered("AVRO", record(a="int"))}

    with pytest.raises(SchemaError, match=r"a \(STRING\) and b \(AVRO\)"):
        common_schema(schemas, allow_different=False)
    assert common_schema(schemas, allow_different=True) == BYTES
    assert common_schema({"a": schemas["a"]}, allow_different=False) == schemas["a"]
