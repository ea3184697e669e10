"""Which schema may follow which, per strategy and type."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.ground.refusal import Refusal
from broker.tenancy.schemas.avro_resolution import can_read
from broker.tenancy.schemas.avro_schema import parse_avro
from broker.tenancy.schemas.budget import Budget, SchemaTooComplex
from broker.tenancy.schemas.compatibility import (
    check_compatible,
    check_consumer,
    check_valid,
    find_same,
)
from broker.tenancy.schemas.schema_info import InvalidSchema, SchemaInfo
from protocol.errors import IncompatibleSchema, UnknownError


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
        check_compatible(existing, new, strategy, Budget())
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
    check_valid(one, Budget())
    assert one.data[:4] == bytes(4)
    assert one.key_value()[1].type_name == "AVRO"
    assert json.loads(one.rest_text()) == {"key": "", "value": json.loads(ONE.data)}
    assert fits([one], key_value("STRING", OPTIONAL_ADDED), "FULL")
    assert not fits([one], key_value("STRING", REQUIRED_ADDED), "FULL")
    with pytest.raises(IncompatibleSchema, match="Key schemas are different schema type"):
        check_compatible([one], key_value("INT32", OPTIONAL_ADDED), "FULL", Budget())


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


@pytest.mark.parametrize("given", [1, 0, 1.5, True, False, "", "a", [], ["a"]])
def test_properties_of_a_rest_body_that_are_no_object(given):
    with pytest.raises(Refusal, match="properties must be an object") as refusal:
        SchemaInfo.from_rest({"type": "JSON", "schema": "{}", "properties": given})
    assert refusal.value.status == 400


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("properties", {"a": {}}),
        ("properties", {"\ud800": ["b"]}),
        ("schema", {}),
        ("schema", ["a"]),
        ("type", ["STRING"]),
    ],
)
def test_fields_of_a_rest_body_that_are_no_text(field, given):
    body = {"type": "JSON", "schema": "{}", "properties": {}} | {field: given}
    with pytest.raises(Refusal, match="must be a string") as refusal:
        SchemaInfo.from_rest(body)
    assert refusal.value.status == 400


def test_numbers_and_booleans_of_a_rest_body_are_taken_as_their_text():
    given = {"a": 1, "b": 1.5, "c": True, "d": "x", "e": None}
    schema = SchemaInfo.from_rest({"type": "JSON", "schema": 1, "properties": given})
    assert schema.properties == {"a": "1", "b": "1.5", "c": "true", "d": "x", "e": ""}
    assert schema.data == b"1"
    assert SchemaInfo.from_rest({"type": "JSON", "properties": None}).properties == {}


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
    assert find_same([OPTIONAL_ADDED, ONE], documented, Budget()) == 1
    assert find_same([OPTIONAL_ADDED], documented, Budget()) is None


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
        check_valid(schema, Budget())
    except InvalidSchema:
        return
    try:
        fits([ONE], schema, "FULL")
        find_same([ONE], schema, Budget())
    except UnknownError:
        pass  # a default of another type


@given(st.binary(max_size=64))
def test_any_key_value_bytes_are_parts_or_refused(data: bytes):
    try:
        check_valid(SchemaInfo("KEY_VALUE", data), Budget())
    except InvalidSchema:
        pass


def test_absurdly_deep_definitions_are_refused():
    deep = b'{"type":"array","items":' * 5000 + b'"int"' + b"}" * 5000
    with pytest.raises(InvalidSchema):
        check_valid(SchemaInfo("AVRO", deep), Budget())


def union_of_records(count: int, prefix: str) -> SchemaInfo:
    """A field whose type is a union of many records that refer to the one before."""
    branches = [
        {
            "type": "record",
            "name": f"{prefix}{number}",
            "fields": [
                {"name": "before", "type": f"{prefix}{number - 1}" if number else "int"},
                {"name": f"own{number}", "type": "string"},
            ],
        }
        for number in range(count)
    ]
    return record({"name": "f", "type": branches})


def steps_to_read(reader: SchemaInfo, writer: SchemaInfo) -> int:
    types = [parse_avro(each.data, Budget()) for each in (reader, writer)]
    budget = Budget()
    can_read(*types, budget)
    return budget.steps


@pytest.mark.parametrize("prefix", ["R", "S"])
def test_large_unions_of_records_are_compared_in_linear_time(prefix: str):
    """The steps per branch do not grow with the number of branches, whatever their names."""
    steps = {
        count: steps_to_read(widened(prefix, count), union_of_records(count, "R"))
        for count in (50, 400)
    }
    assert steps[400] < 8.5 * steps[50]
    assert steps[400] < 20_000


def widened(prefix: str, count: int) -> SchemaInfo:
    """The union with one branch more, so that the two are not the same."""
    definition = json.loads(union_of_records(count, prefix).data)
    definition["fields"][0]["type"].append("null")
    return SchemaInfo("AVRO", json.dumps(definition).encode())


def test_a_check_ends_at_its_bound_of_steps():
    old, new = union_of_records(400, "R"), widened("S", 400)
    with pytest.raises(SchemaTooComplex, match="schemaCheckMaxSteps"):
        check_compatible([old], new, "FULL", Budget(3_000))


def test_a_chain_of_records_longer_than_the_stack_is_compared():
    chain = union_of_records(3_000, "R")
    wider = SchemaInfo("AVRO", chain.data.replace(b'"int"', b'"long"'))
    assert fits([chain], wider, "BACKWARD")
    assert not fits([chain], wider, "FORWARD")


def changed(old: object, new: object) -> tuple[SchemaInfo, SchemaInfo]:
    return record({"name": "f", "type": old}), record({"name": "f", "type": new})


@pytest.mark.parametrize(
    ("old", "new", "accepted_by"),
    [
        (
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            {"type": "enum", "name": "E", "symbols": ["A"]},
            {"BACKWARD", "FORWARD", "FULL"},
        ),
        (["null", "int"], ["null", "int", "string"], {"BACKWARD"}),
        ("int", ["null", "long"], {"BACKWARD"}),
        ({"type": "fixed", "name": "F", "size": 4}, {"type": "fixed", "name": "F", "size": 5}, ()),
        ("string", "bytes", {"BACKWARD", "FORWARD", "FULL"}),
    ],
)
def test_types_are_resolved_as_by_avro_in_java(old: object, new: object, accepted_by: set[str]):
    pair = changed(old, new)
    for strategy in ("BACKWARD", "FORWARD", "FULL"):
        assert fits([pair[0]], pair[1], strategy) == (strategy in accepted_by), strategy


def test_records_match_whatever_their_names():
    renamed = SchemaInfo("AVRO", ONE.data.replace(b'"A"', b'"B"'))
    assert fits([ONE], renamed, "FULL")
    assert find_same([ONE], renamed, Budget()) is None


def test_aliases_of_the_reader_rename_fields_of_the_writer():
    renamed = record({"name": "z", "type": "int", "aliases": ["a"]})
    assert fits([ONE], renamed, "BACKWARD")
    assert not fits([ONE], renamed, "FORWARD")


def test_a_default_of_another_type_is_an_unknown_error_once_it_is_needed():
    wrong = record(INT_A, {"name": "b", "type": "int", "default": "text"})
    check_valid(wrong, Budget())
    with pytest.raises(UnknownError, match="Invalid default for field b"):
        find_same([ONE], wrong, Budget())
    with pytest.raises(UnknownError):
        check_compatible([ONE], wrong, "BACKWARD", Budget())
    with pytest.raises(IncompatibleSchema):
        check_compatible([ONE], wrong, "BACKWARD_TRANSITIVE", Budget())
    check_compatible([ONE], wrong, "FORWARD", Budget())


def test_a_consumer_has_to_read_the_newest_version():
    check_consumer([ONE, OPTIONAL_ADDED], ONE, "FORWARD", Budget())
    with pytest.raises(IncompatibleSchema):
        check_consumer([ONE], REQUIRED_ADDED, "FORWARD", Budget())
    check_consumer([ONE], REQUIRED_ADDED, "ALWAYS_COMPATIBLE", Budget())


def test_definitions_of_json_schema_and_of_avro_replace_each_other():
    old_form = SchemaInfo("JSON", b'{"type":"object","id":"urn:jsonschema:A"}')
    check_valid(old_form, Budget())
    as_json = SchemaInfo("JSON", ONE.data)
    assert fits([as_json], old_form, "FULL")
    assert fits([old_form], as_json, "FULL")
    assert not fits([old_form], SchemaInfo("JSON", b'{"type":"object","id":"B"}'), "FULL")
    with pytest.raises(InvalidSchema):
        check_valid(SchemaInfo("JSON", b'{"type":"nothing"}'), Budget())


def test_a_union_is_no_schema_of_its_own():
    with pytest.raises(InvalidSchema, match=r"typed .UNION. is not supported"):
        check_valid(SchemaInfo("AVRO", b'["null","int"]'), Budget())


def test_comments_are_no_part_of_a_definition():
    commented = ONE.data.replace(b'"fields"', b'/* all "of" it */ "fields"') + b"// end"
    assert find_same([ONE], SchemaInfo("AVRO", commented), Budget()) == 0


@pytest.mark.parametrize(
    "definition",
    [
        pytest.param(b'"' + b'\\"' * 32_000 + b"/", id="text"),
        pytest.param(b"/* " * 22_000, id="comment"),
        pytest.param(b"/*" + b"*" * 64_000, id="stars"),
        pytest.param(b'{"type":"string"} /*/', id="shortest"),
        pytest.param(b'{"type":"string"} /* "*/" /*', id="second"),
        pytest.param(b'{"type":"string", "doc":"/* //', id="within a text"),
    ],
)
def test_a_text_or_comment_without_an_end_is_refused(definition: bytes):
    """The large ones took minutes, without a pause for other threads, when the search for the end
    was repeated from each quote or slash."""
    with pytest.raises(InvalidSchema):
        check_valid(SchemaInfo("AVRO", definition), Budget())
