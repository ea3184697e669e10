"""The records as real Pulsar 4.0.8 writes them, and any schema back unchanged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.tenancy.schemas.schema_format import (
    DamagedSchema,
    IndexEntry,
    StoredSchema,
    decode_entry,
    decode_locator,
    decode_record,
    digest_of,
    encode_entry,
    encode_locator,
    encode_record,
    entry_parts,
    ledger_custom_metadata,
    locator_parts,
    schema_id_of_ledger,
)
from broker.tenancy.schemas.schema_info import _TYPE_NAMES, SchemaInfo
from protocol import schema_formats_pb2 as formats

FIRST = bytes.fromhex("d0f0f1b26b7c91e0231bc1fcff75dabeaae8f8ac7b872a79ca36a66c488dd00c")
SECOND = bytes.fromhex("7de6751a625aa36bf48bc2cd67c220e2ca57bdb7ef15b98b8c106b7ce42c2819")
STRING = SchemaInfo("STRING", b"")
LOCATOR = (
    b"\n*\x08\x03\x12\x04\x08\x05\x10\x00\x1a "
    + digest_of(STRING)
    + b"\x12*\x08\x00\x12\x04\x08\x02\x10\x00\x1a "
    + FIRST
    + b"\x12*\x08\x01\x12\x04\x08\x03\x10\x00\x1a "
    + SECOND
    + b"\x12\n\x08\x02\x12\x04\x08\x04\x10\x00\x1a\x00"
    + b"\x12*\x08\x03\x12\x04\x08\x05\x10\x00\x1a "
    + digest_of(STRING)
)
"""From the ZooKeeper of real Pulsar: two AVRO schemas, a deletion, and STRING."""
INDEX = (
    IndexEntry(0, 2, 0, FIRST),
    IndexEntry(1, 3, 0, SECOND),
    IndexEntry(2, 4, 0, b""),
    IndexEntry(3, 5, 0, digest_of(STRING)),
)
TYPES = sorted(set(_TYPE_NAMES.values()) - {"AUTO_CONSUME"})

positions = st.integers(0, 2**63 - 1)
indexes = st.lists(
    st.builds(IndexEntry, positions, positions, positions, st.sampled_from([b"", FIRST])),
    min_size=1,
    unique_by=lambda each: each.version,
).map(lambda index: tuple(sorted(index, key=lambda each: each.version)))
schemas = st.none() | st.builds(
    SchemaInfo,
    st.sampled_from(TYPES),
    st.binary(max_size=100),
    st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=4),
)


def test_the_list_of_versions_is_read_and_written_as_real_pulsar_does():
    assert decode_locator(LOCATOR) == INDEX
    assert encode_locator(INDEX) == LOCATOR


@given(index=indexes, schema=schemas, version=positions, timestamp_ms=positions)
def test_any_version_comes_back_unchanged(index, schema, version, timestamp_ms):
    assert decode_locator(encode_locator(index)) == index
    record = encode_record("public/default/t", schema, timestamp_ms)
    assert decode_entry(encode_entry(index, record, digest_of(schema))) == record
    assert decode_record(version, record) == StoredSchema(version, schema, timestamp_ms)


def test_the_first_entry_lists_a_version_without_a_position():
    entry = encode_entry((), b"record", FIRST)
    rows = b"*3\x08\x00\x12\x16\x08" + b"\xff" * 9 + b"\x01\x10" + b"\xff" * 9 + b"\x01\x1a "
    assert entry.startswith(b"\x12\x06record")
    assert entry.endswith(FIRST)
    assert entry[8:].startswith(b"*")
    assert rows[3:] in entry


def test_a_deletion_of_an_old_pulsar_has_no_record():
    assert decode_record(4, b"") == StoredSchema(4, None, 0)


@given(data=st.binary(min_size=1, max_size=60))
def test_other_bytes_are_damage_and_nothing_else(data):
    for decode in (decode_locator, decode_entry, lambda data: decode_record(0, data)):
        try:
            decode(data)
        except DamagedSchema:
            continue


@pytest.mark.parametrize("cut", [0, 5, 44, len(LOCATOR) - 44])
def test_a_list_that_is_cut_is_damage(cut):
    with pytest.raises(DamagedSchema):
        decode_locator(LOCATOR[:cut])


def test_whose_a_ledger_is():
    assert schema_id_of_ledger(ledger_custom_metadata("a/b/c")) == "a/b/c"
    assert ledger_custom_metadata("public/default/p1") == {
        "pulsar/schemaId": b"public/default/p1",
        "application": b"pulsar",
        "component": b"schema",
    }
    for damaged in ({}, {"pulsar/schemaId": b"a/b/c"}, ledger_custom_metadata("a//c")):
        assert schema_id_of_ledger(damaged) is None
    other = ledger_custom_metadata("a/b/c") | {"component": b"managed-ledger"}
    assert schema_id_of_ledger(other) is None


def test_a_long_list_is_encoded_in_parts_that_make_the_same_record():
    index = tuple(IndexEntry(number, number + 7, 0, b"d" * 32) for number in range(1_000))
    parts = list(locator_parts(index))
    assert len(parts) > 3
    assert max(map(len, parts)) < 32_000
    assert decode_locator(b"".join(parts)) == index
    assert formats.SchemaLocator.FromString(b"".join(parts)).info.version == 999
    parts = list(entry_parts(index, b"record", b"digest"))
    assert max(map(len, parts)) < 32_000
    entry = formats.SchemaEntry.FromString(b"".join(parts))
    assert (entry.schema_data, len(entry.index)) == (b"record", 1_000)
    assert b"".join(parts) == entry.SerializeToString()
