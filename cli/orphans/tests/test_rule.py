"""What records name, and what becomes of a ledger that they do not name."""

from __future__ import annotations

import re
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.managed_ledger.owner_of_ledger import (
    broadcast_custom_metadata,
    ledger_custom_metadata,
)
from broker.tenancy.schemas import schema_format
from broker.tenancy.schemas.schema_ledgers import LISTED_SECONDS_MAX
from cli.orphans.references import named_by_cursor, named_by_list, named_by_locator
from cli.orphans.rule import AGE_MINUTES_MIN, Maker, References, Standing, judged, maker_of
from protocol import ml_formats_pb2 as formats
from protocol.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState
from protocol.errors import MetadataError

NAME = "public/default/persistent/a+b"
LIST = f"/managed-ledgers/{NAME}"
NOW_MS = 1_700_000_000_000
OLD_MS = NOW_MS - 2 * 3_600_000
ODD = [
    {},
    {"application": b"pulsar", "component": b"compacted-ledger", "pulsar/compactedTopic": b"t"},
    {"application": b"pulsar", "component": b"delayed-index-bucket"},
    {"application": b"someone", "pulsar/managed-ledger": NAME.encode()},
    {**ledger_custom_metadata(NAME), "pulsar/managed-ledger": b"tenant/cluster/ns/persistent/t"},
    {**ledger_custom_metadata(NAME), "pulsar/cursor": b"\xff"},
]


def ledger(custom, state=LedgerState.CLOSED, ctime_ms=OLD_MS):
    return LedgerMetadata(
        ensemble_size=1,
        write_quorum_size=1,
        ack_quorum_size=1,
        ensembles={0: ("b",)},
        state=state,
        last_entry_id=0 if state is LedgerState.CLOSED else -1,
        ctime_ms=ctime_ms,
        custom_metadata=custom,
    )


def known(**records):
    references = References()
    for name, ids in records.items():
        path = LIST if name == "topic" else f"{LIST}/{name}"
        references.records[path] = frozenset(ids), 0
        references.named |= set(ids)
    return references


def standing(ledger_id, metadata, references):
    found = judged(ledger_id, metadata, references, AGE_MINUTES_MIN, NOW_MS)
    return None if found is None else found.standing


def compressed(data):
    head = formats.ManagedLedgerInfoMetadata(
        compressionType=formats.CompressionType.ZLIB, uncompressedSize=len(data)
    ).SerializeToString()
    return b"\x47\x78" + len(head).to_bytes(4, "big") + head + zlib.compress(data)


def test_a_list_names_its_ledgers_also_offloaded_and_in_a_compressed_record():
    info = formats.ManagedLedgerInfo()
    info.ledgerInfo.add(ledgerId=3, entries=1, size=1, timestamp=1)
    info.ledgerInfo[0].offloadContext.complete = True
    info.ledgerInfo.add(ledgerId=7)
    data = info.SerializeToString()
    assert named_by_list(data, LIST) == named_by_list(compressed(data), LIST) == {3, 7}
    with pytest.raises(MetadataError, match=re.escape(LIST)):
        named_by_list(data[:-1], LIST)


def test_a_cursor_names_its_ledger_and_those_in_its_properties():
    info = formats.ManagedCursorInfo(cursorsLedgerId=4, markDeleteLedgerId=3, markDeleteEntryId=0)
    info.properties.add(name="CompactedTopicLedger", value=5)
    info.properties.add(name="other", value=50)
    info.cursorProperties.add(name="vela.internal.ledger", value="6")
    info.cursorProperties.add(name="#pulsar.internal.delayed.bucket_1_2", value="8")
    path = f"{LIST}/s"
    data = info.SerializeToString()
    assert named_by_cursor(data, path) == named_by_cursor(compressed(data), path) == {4, 5, 6, 8}
    info.cursorProperties[1].value = "no number"
    for wrong in (data[:-1], b"", info.SerializeToString()):
        with pytest.raises(MetadataError, match=re.escape(path)):
            named_by_cursor(wrong, path)
    at_rest = formats.ManagedCursorInfo(
        cursorsLedgerId=-1, markDeleteLedgerId=3, markDeleteEntryId=0
    )
    assert named_by_cursor(at_rest.SerializeToString(), path) == set()


def test_a_list_of_schemas_names_all_its_versions():
    index = [schema_format.IndexEntry(each, 10 + each, 0, b"") for each in range(3)]
    data = schema_format.encode_locator(index)
    assert named_by_locator(data, "/schemas/a") == {10, 11, 12}
    assert named_by_locator(b"", "/schemas/a") == set()
    with pytest.raises(MetadataError, match="/schemas/a"):
        named_by_locator(data[:-1], "/schemas/a")


def test_makers_are_known_by_the_metadata_of_their_ledgers():
    assert maker_of(ledger_custom_metadata(NAME)) == Maker(LIST)
    assert maker_of(ledger_custom_metadata(NAME, "s")) == Maker(LIST, (f"{LIST}/s",))
    both = (f"{LIST}/a%2Bb", f"{LIST}/a+b")
    assert maker_of(ledger_custom_metadata(NAME, "a+b")) == Maker(LIST, both)
    broadcast = broadcast_custom_metadata("persistent://public/default/a b", "s")
    assert maker_of(broadcast) == Maker(LIST, (f"{LIST}/s",))
    schema = maker_of(schema_format.ledger_custom_metadata("public/default/t"))
    assert schema == Maker("/schemas/public/default/t", lists_in_time=True)
    assert AGE_MINUTES_MIN * 60 > LISTED_SECONDS_MAX


@pytest.mark.parametrize("custom", ODD)
def test_a_ledger_of_an_unknown_maker_is_never_an_orphan(custom):
    assert standing(5, ledger(custom), known()) is Standing.UNKNOWN
    assert standing(5, ledger(custom), known(topic={5})) is None


def test_ledgers_without_a_topic_or_subscription_are_orphans():
    of_topic, of_cursor = ledger_custom_metadata(NAME), ledger_custom_metadata(NAME, "s")
    for state in LedgerState:
        assert standing(5, ledger(of_topic, state), known()) is Standing.ORPHAN
        assert standing(5, ledger(of_cursor, state), known()) is Standing.ORPHAN
        assert standing(5, ledger(of_cursor, state), known(topic={4})) is Standing.ORPHAN
        schema = schema_format.ledger_custom_metadata("public/default/t")
        assert standing(5, ledger(schema, state), known()) is Standing.ORPHAN


@pytest.mark.parametrize("name", ["topic", "s"])
def test_an_open_ledger_is_kept_until_its_maker_has_a_newer_one(name):
    custom = ledger_custom_metadata(NAME, None if name == "topic" else name)
    opened = ledger(custom, LedgerState.OPEN)
    others = {} if name == "topic" else {"topic": {99}}
    assert standing(5, opened, known(**others, **{name: set()})) is Standing.KEPT
    assert standing(5, opened, known(**others, **{name: {4}})) is Standing.KEPT
    assert standing(5, opened, known(**others, **{name: {6}})) is Standing.ORPHAN
    assert standing(5, ledger(custom), known(**others, **{name: {4}})) is Standing.ORPHAN


@given(
    st.sets(st.integers(0, 20)),
    st.sets(st.integers(0, 20)),
    st.integers(0, 20),
    st.sampled_from(LedgerState),
    st.integers(-10, 10 * AGE_MINUTES_MIN),
    st.sampled_from(
        [
            ledger_custom_metadata(NAME),
            ledger_custom_metadata(NAME, "s"),
            broadcast_custom_metadata("persistent://public/default/a b", "s"),
            schema_format.ledger_custom_metadata("public/default/t"),
            *ODD,
        ]
    ),
)
def test_no_ledger_that_is_named_or_young_or_of_an_unknown_maker_is_an_orphan(
    of_topic, of_cursor, ledger_id, state, age_minutes, custom
):
    metadata = ledger(custom, state, NOW_MS - age_minutes * 60_000)
    found = standing(ledger_id, metadata, known(topic=of_topic, s=of_cursor))
    assert (found is None) == (ledger_id in of_topic | of_cursor)
    if age_minutes < AGE_MINUTES_MIN or custom in ODD:
        assert found is not Standing.ORPHAN
    nobody_knows = replace(metadata, ctime_ms=0)
    assert standing(ledger_id, nobody_knows, known()) is not Standing.ORPHAN
