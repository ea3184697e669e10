"""Which schema may follow which, per strategy and type."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.namespaces.refusal import Refusal
from broker.schemas.compatibility import check_compatible, check_valid, is_same
from broker.schemas.schema_info import InvalidSchema, SchemaInfo
from protocol.errors import IncompatibleSchema


def record(*fields: object) -> SchemaInfo:
    return SchemaInfo(
        "AVRO", json.dumps({"type": "record", "name": "A", "fields": list(fields)}).encode()
    )


INT_A = {"name": "a", "type": "int"}
ONE = record(INT_A)
OPTIONAL_ADDED = record(INT_A, {"name": "b", "type": "int", "default": 1})
REQUIRED_ADDED = record(INT_A, {"name": "b", "type": "int"})
REORDERED = record({"name": "b", "type": "int", "default": 1}, INT_A)


def fits(existing: list[SchemaInfo], new: SchemaInfo, strategy: str) -> bool:
    try:
        check_compatible(existing, new, strategy)
    except IncompatibleSchema:
        return False
    return True


@pytest.mark.parametrize(
    ("old", "new", "accepted_by"),
    [
        (ONE, OPTIONAL_ADDED, {"BACKWARD", "FORWARD", "FULL"}),
        (ONE, REQUIRED_ADDED, {"FORWARD"}),
        (REQUIRED_ADDED, ONE, {"BACKWARD"}),
        (OPTIONAL_ADDED, REORDERED, {"BACKWARD", "FORWARD", "FULL"}),
        (ONE, record({"name": "a", "type": "long"}), {"BACKWARD"}),
        (ONE, record({"name": "a", "type": "string"}), set()),
    ],
)
def test_avro_evolution(old: SchemaInfo, new: SchemaInfo, accepted_by: set[str]):
    for strategy in ("BACKWARD", "FORWARD", "FULL"):
        assert fits([old], new, strategy) == (strategy in accepted_by), strategy
    as_json = [SchemaInfo("JSON", each.data) for each in (old, new)]
    assert fits(as_json[:1], as_json[1], "FULL") == ("FULL" in accepted_by)
    assert fits([old], new, "ALWAYS_COMPATIBLE")
    assert not fits([old], new, "ALWAYS_INCOMPATIBLE")


def test_transitive_strategies_look_at_every_version():
    long_ago = record({"name": "a", "type": "string"})
    assert fits([long_ago, ONE], OPTIONAL_ADDED, "FULL")
    assert not fits([long_ago, ONE], OPTIONAL_ADDED, "FULL_TRANSITIVE")
    assert not fits([long_ago, ONE], OPTIONAL_ADDED, "BACKWARD_TRANSITIVE")


def test_primitive_types_only_have_to_stay_the_same():
    string, number = SchemaInfo("STRING", b""), SchemaInfo("INT32", b"")
    assert fits([string], SchemaInfo("STRING", b"", {"k": "v"}), "FULL")
    assert not fits([string], number, "FULL")
    assert fits([string], number, "ALWAYS_COMPATIBLE")


def key_value(key: str, value: SchemaInfo) -> SchemaInfo:
    body = {
        "type": "KEY_VALUE",
        "schema": json.dumps({"key": "", "value": json.loads(value.data)}),
        "properties": {"key.schema.type": key, "value.schema.type": value.type_name},
    }
    return SchemaInfo.from_rest(body)


def test_key_value_is_checked_part_by_part():
    one = key_value("STRING", ONE)
    check_valid(one)
    assert one.data[:4] == bytes(4)
    assert one.key_value()[1].type_name == "AVRO"
    assert json.loads(one.rest_text()) == {"key": "", "value": json.loads(ONE.data)}
    assert fits([one], key_value("STRING", OPTIONAL_ADDED), "FULL")
    assert not fits([one], key_value("STRING", REQUIRED_ADDED), "FULL")
    with pytest.raises(IncompatibleSchema, match="Key schemas are different schema type"):
        check_compatible([one], key_value("INT32", ONE), "FULL")


def test_key_value_text_that_does_not_fit_its_types():
    body = {
        "type": "KEY_VALUE",
        "schema": '{"key":{"type":"string"},"value":""}',
        "properties": {"key.schema.type": "STRING"},
    }
    with pytest.raises(InvalidSchema, match="for string schema"):
        SchemaInfo.from_rest(body)


def test_rest_bodies():
    with pytest.raises(Refusal):
        SchemaInfo.from_rest({"type": "NOPE"})
    assert SchemaInfo.from_rest({"type": "BYTES"}).type_name == "NONE"


def test_documentation_and_layout_do_not_make_a_new_schema():
    documented = SchemaInfo(
        "AVRO",
        json.dumps(
            {
                "fields": [{"type": {"type": "int"}, "name": "a", "doc": "x"}],
                "name": "A",
                "type": "record",
                "doc": "y",
            }
        ).encode(),
    )
    assert is_same(ONE, documented)
    assert not is_same(ONE, OPTIONAL_ADDED)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.text(max_size=5)
        | st.sampled_from(["record", "int", "A"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["type", "name", "fields", "items", "values", "symbols", "default"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_any_definition_is_a_schema_or_refused(definition: object):
    schema = SchemaInfo("AVRO", json.dumps(definition).encode())
    try:
        check_valid(schema)
    except InvalidSchema:
        return
    fits([ONE], schema, "FULL")


@given(st.binary(max_size=64))
def test_any_key_value_bytes_are_parts_or_refused(data: bytes):
    try:
        check_valid(SchemaInfo("KEY_VALUE", data))
    except InvalidSchema:
        pass


def test_absurdly_deep_definitions_are_refused():
    deep = b'{"type":"array","items":' * 5000 + b'"int"' + b"}" * 5000
    with pytest.raises(InvalidSchema):
        check_valid(SchemaInfo("AVRO", deep))
