"""Where entries lie, and the text of a ledger's metadata."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.bookkeeper.digests import DigestType
from protocol.bookkeeper.ledger_layout import LedgerLayout, write_set
from protocol.bookkeeper.ledger_metadata import InvalidMetadata, LedgerMetadata, LedgerState
from protocol.bookkeeper.ledger_metadata_text import (
    ledger_metadata_text,
    parse_ledger_metadata_text,
)


@st.composite
def metadatas(draw):
    ensemble_size = draw(st.integers(1, 5))
    write = draw(st.integers(1, ensemble_size))
    firsts = [0, *draw(st.lists(st.integers(1, 50), unique=True, max_size=3))]
    names = [f"b{number}:3181" for number in range(8)]
    ensembles = {
        first: tuple(draw(st.permutations(names))[:ensemble_size]) for first in sorted(firsts)
    }
    last = draw(st.integers(-1, 60))
    is_closed = draw(st.booleans())
    return LedgerMetadata(
        ensemble_size=ensemble_size,
        write_quorum_size=write,
        ack_quorum_size=draw(st.integers(1, write)),
        ensembles=ensembles,
        digest_type=draw(st.sampled_from(DigestType)),
        state=LedgerState.CLOSED if is_closed else draw(st.sampled_from(list(LedgerState)[:2])),
        last_entry_id=last if is_closed else -1,
        length=100 * (last + 1) if is_closed else 0,
        custom_metadata=draw(
            st.dictionaries(st.sampled_from(["application", "pulsar/managed-ledger"]), st.binary())
        ),
    )


@given(metadatas(), st.integers(0, 70), st.integers(0, 30))
def test_runs_name_bookies_that_have_every_entry_of_them(metadata, first, more):
    layout = LedgerLayout.of(7, metadata)
    last, bookies = layout.run_at(first, first + more)
    assert first <= last <= first + more
    for entry_id in range(first, last + 1):
        ensemble = metadata.ensemble_of(entry_id)
        members = write_set(entry_id, len(ensemble), metadata.write_quorum_size)
        assert {ensemble[at] for at in members} == set(bookies) == set(layout.bookies_of(entry_id))


@given(metadatas())
def test_a_layout_travels(metadata):
    layout = LedgerLayout.of(7, metadata)
    assert pickle.loads(pickle.dumps(layout)) == layout
    assert layout.last_entry_id == (metadata.last_entry_id if metadata.is_closed else None)


def test_a_ledger_with_one_ensemble_is_one_run():
    layout = LedgerLayout(3, 2, DigestType.CRC32C, ((0, ("a:1", "b:1")),), 99, 1000)
    assert layout.run_at(5, 99) == (99, ("b:1", "a:1"))
    assert layout.mean_entry_size_bytes == 10


@pytest.mark.parametrize(
    ("write", "ensembles"),
    [
        (1, ()),
        (1, ((0, ()),)),
        (2, ((0, ("a:1",)),)),
        (0, ((0, ("a:1",)),)),
        (1, ((5, ("a:1",)), (0, ("b:1",)))),
    ],
)
def test_a_layout_that_leads_nowhere_is_refused(write, ensembles):
    with pytest.raises(ValueError, match="ledger 3: "):
        LedgerLayout(3, write, DigestType.CRC32C, ensembles, 99)


def test_before_the_first_segment_there_is_nothing():
    layout = LedgerLayout(3, 1, DigestType.CRC32C, ((10, ("a:1",)),), 99)
    with pytest.raises(KeyError):
        layout.bookies_of(9)


@given(metadatas())
def test_the_text_gives_the_metadata_back(metadata):
    assert parse_ledger_metadata_text(ledger_metadata_text(metadata)) == metadata


def test_the_text_is_what_apache_pulsar_prints():
    """Answers of Pulsar 4.0.8, but for the address and the size."""
    opened = (
        "LedgerMetadata{formatVersion=3, ensembleSize=1, writeQuorumSize=1, ackQuorumSize=1, "
        "state=OPEN, digestType=CRC32C, password=OMITTED, ensembles={0=[127.0.0.1:3181]}, "
        "customMetadata={component=base64:bWFuYWdlZC1sZWRnZXI=, "
        "pulsar/managed-ledger=base64:cHVibGljL2RlZmF1bHQvcGVyc2lzdGVudC9wcm9iZQ==, "
        "application=base64:cHVsc2Fy}}"
    )
    metadata = parse_ledger_metadata_text(opened)
    assert metadata.ensembles == {0: ("127.0.0.1:3181",)}
    assert metadata.custom_metadata["application"] == b"pulsar"
    assert not metadata.is_closed
    assert ledger_metadata_text(metadata) == opened


def test_addresses_stand_in_for_names():
    metadata = LedgerMetadata(
        ensemble_size=1, write_quorum_size=1, ack_quorum_size=1, ensembles={0: ("here",)}
    )
    assert "ensembles={0=[h:1]}" in ledger_metadata_text(metadata, {"here": "h:1"})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ledger 5 does not exist",
        "LedgerMetadata{}",
        "LedgerMetadata{formatVersion=3, ensembleSize=1, writeQuorumSize=1, state=OPEN, "
        "digestType=CRC32C, ensembles={}}",
        "LedgerMetadata{formatVersion=3, ensembleSize=1, writeQuorumSize=1, state=CLOSED, "
        "digestType=CRC32C, ensembles={0=[a:1]}}",
    ],
)
def test_a_text_that_does_not_say_enough_is_refused(text):
    with pytest.raises(InvalidMetadata):
        parse_ledger_metadata_text(text)
