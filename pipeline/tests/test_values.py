"""Payloads become values, and what does not fit its schema is an error, not a wrong value."""

from __future__ import annotations

import io
import json
import struct
from datetime import UTC, date, datetime
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.registry import BYTES, TopicSchema, from_registry
from pipeline.values import Undecodable, ValueDecoder


def primitive(name: str) -> TopicSchema:
    return TopicSchema(name, version=0)


def avro(definition: Any, version: int = 0) -> TopicSchema:
    return TopicSchema("AVRO", definition, version, text=json.dumps(definition))


def record(**fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }


def encoded(definition: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(definition), value)
    return out.getvalue()


def no_versions(version: int) -> TopicSchema:
    raise AssertionError(f"version {version} was asked for")


def decode(schema: TopicSchema, payload: bytes | None, key: bytes | None = None) -> tuple[Any, ...]:
    return ValueDecoder(schema, no_versions).row(payload, key, b"")


@pytest.mark.parametrize(
    ("name", "payload", "value"),
    [
        ("STRING", "ü".encode(), "ü"),
        ("BOOLEAN", b"\x01", True),
        ("INT8", b"\xff", -1),
        ("INT16", b"\x01\x00", 256),
        ("INT32", struct.pack(">i", -7), -7),
        ("INT64", struct.pack(">q", 2**40), 2**40),
        ("FLOAT", struct.pack(">f", 0.5), 0.5),
        ("DOUBLE", struct.pack(">d", 0.1), 0.1),
        ("DATE", struct.pack(">q", 86_400_000), date(1970, 1, 2)),
        ("TIMESTAMP", struct.pack(">q", 1500), datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)),
    ],
)
def test_primitives_are_big_endian(name: str, payload: bytes, value: Any) -> None:
    assert decode(primitive(name), payload) == (value,)


@given(st.binary(max_size=12))
def test_any_bytes_are_a_number_or_an_error(payload: bytes) -> None:
    for name, size in (("INT16", 2), ("INT64", 8), ("DOUBLE", 8)):
        if len(payload) != size:
            with pytest.raises(Undecodable):
                decode(primitive(name), payload)


def test_a_null_value_is_null_in_every_column() -> None:
    assert decode(avro(record(a="int", b="int")), None) == (None, None)
    assert decode(BYTES, None, b"key") == (None,)


def test_a_map_a_union_and_a_nested_record_take_arrows_forms() -> None:
    definition = record(
        tags={"type": "map", "values": "int"},
        either=["null", "int", "string"],
        inner={"type": "record", "name": "I", "fields": [{"name": "x", "type": ["int", "long"]}]},
    )
    value = {"tags": {"a": 1}, "either": "text", "inner": {"x": 5}}

    row = decode(avro(definition), encoded(definition, value))

    assert row == ([("a", 1)], {"member1": "text"}, {"x": 5})


def test_a_union_may_mention_types_that_were_named_before() -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}
    outer = {
        "type": "record",
        "name": "O",
        "fields": [{"name": "many", "type": {"type": "array", "items": "I"}}],
    }
    definition = record(first=inner, either=["null", "I", outer], last=["string", "O"])
    value = {"first": {"x": 1}, "either": {"many": [{"x": 2}]}, "last": {"many": [{"x": 3}]}}

    row = decode(avro(definition), encoded(definition, value))

    assert row == ({"x": 1}, {"member1": {"many": [{"x": 2}]}}, {"member1": {"many": [{"x": 3}]}})


def test_older_and_newer_versions_are_resolved_to_the_readers() -> None:
    reader = record(a="int")
    reader["fields"].append({"name": "b", "type": ["null", "string"], "default": None})
    versions = {0: avro(record(a="int"), 0), 2: avro(record(a="int", b="string", c="int"), 2)}
    decoder = ValueDecoder(avro(reader, 1), versions.__getitem__)

    def row(version: int, value: dict[str, Any]) -> tuple[Any, ...]:
        payload = encoded(versions[version].definition, value)
        return decoder.row(payload, None, version.to_bytes(8, "big"))

    assert row(0, {"a": 1}) == (1, None)
    assert row(2, {"a": 2, "b": "x", "c": 3}) == (2, "x")


@given(st.binary(max_size=20))
def test_a_payload_that_is_no_record_is_an_error_or_a_record(payload: bytes) -> None:
    schema = avro(record(a="string", b="long"))
    try:
        row = decode(schema, payload)
    except Undecodable:
        return
    assert isinstance(row[0], str)


@pytest.mark.parametrize("encoding", ["INLINE", "SEPARATED"])
def test_keys_and_values(encoding: str) -> None:
    properties = {
        "key.schema.type": "STRING",
        "value.schema.type": "INT32",
        "kv.encoding.type": encoding,
    }
    answer = {"type": "KEY_VALUE", "version": 0, "data": '{"key": "", "value": ""}'}
    schema = from_registry({**answer, "properties": properties}, "t")
    number = struct.pack(">i", 9)

    if encoding == "SEPARATED":
        assert decode(schema, number, b"k") == ("k", 9)
        assert decode(schema, None, b"k") == ("k", None)
    else:
        assert decode(schema, struct.pack(">i1si", 1, b"k", 4) + number) == ("k", 9)
        assert decode(schema, struct.pack(">ii", -1, 4) + number) == (None, 9)
        with pytest.raises(Undecodable, match="holds a part of 99 bytes"):
            decode(schema, struct.pack(">i", 99))
