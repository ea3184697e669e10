"""Ledger metadata, cookies, availability and paths: round trips, old versions, damage."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.bookkeeper.availability import (
    Availability,
    RunGroup,
    decode_availability,
    encode_availability,
)
from protocol.bookkeeper.cookie import Cookie, CookieMismatch, decode_cookie, encode_cookie
from protocol.bookkeeper.digests import DigestType
from protocol.bookkeeper.ledger_metadata import (
    InvalidMetadata,
    LedgerMetadata,
    LedgerState,
    decode_ledger_metadata,
    encode_ledger_metadata,
)
from protocol.bookkeeper.paths import (
    generated_ledger_id,
    ledger_id_of,
    ledger_path,
    underreplicated_ledger_id_of,
    underreplicated_path,
)

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
directories = st.lists(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t,"), min_size=1),
    min_size=1,
    max_size=3,
).map(tuple)


@st.composite
def ledger_metadata(draw: st.DrawFn) -> LedgerMetadata:
    ensemble_size = draw(st.integers(1, 4))
    write_quorum_size = draw(st.integers(1, ensemble_size))
    metadata = LedgerMetadata(
        ensemble_size=ensemble_size,
        write_quorum_size=write_quorum_size,
        ack_quorum_size=draw(st.integers(0, write_quorum_size)),
        ensembles={
            first: draw(st.tuples(*[words.filter(bool)] * ensemble_size))
            for first in {0, *draw(st.sets(st.integers(0, 2**62), max_size=4))}
        },
        digest_type=draw(st.sampled_from(DigestType)),
        password=draw(st.binary(max_size=10)),
        ctime_ms=draw(st.integers(0, 2**62)),
        custom_metadata=draw(st.dictionaries(words, st.binary(max_size=10), max_size=3)),
        c_token=draw(st.integers(-(2**63), 2**63 - 1)),
    )
    match draw(st.sampled_from(LedgerState)):
        case LedgerState.OPEN:
            return metadata
        case LedgerState.IN_RECOVERY:
            return metadata.in_recovery()
        case LedgerState.CLOSED:
            return metadata.closed(draw(st.integers(-1, 2**62)), draw(st.integers(0, 2**62)))


@given(ledger_metadata(), st.binary(max_size=5))
def test_ledger_metadata_round_trip(metadata: LedgerMetadata, trailing: bytes) -> None:
    assert decode_ledger_metadata(encode_ledger_metadata(metadata) + trailing) == metadata


def test_ledger_metadata_version_2_is_read() -> None:
    text = b"""BookieMetadataFormatVersion\t2
quorumSize: 2
ensembleSize: 3
length: 1234
lastEntryId: 17
state: CLOSED
segment {
  ensembleMember: "b1:3181"
  ensembleMember: "b2:3181"
  ensembleMember: "b3:3181"
  firstEntryId: 0
}
segment {
  ensembleMember: "b1:3181"
  ensembleMember: "b4:3181"
  ensembleMember: "b3:3181"
  firstEntryId: 9
}
digestType: CRC32
password: "pw"
ackQuorumSize: 1
customMetadata {
  key: "application"
  value: "pulsar"
}
"""
    metadata = decode_ledger_metadata(text)

    assert metadata == LedgerMetadata(
        ensemble_size=3,
        write_quorum_size=2,
        ack_quorum_size=1,
        ensembles={
            0: ("b1:3181", "b2:3181", "b3:3181"),
            9: ("b1:3181", "b4:3181", "b3:3181"),
        },
        digest_type=DigestType.CRC32,
        password=b"pw",
        state=LedgerState.CLOSED,
        last_entry_id=17,
        length=1234,
        custom_metadata={"application": b"pulsar"},
    )


def test_entries_belong_to_the_segment_that_starts_before_them() -> None:
    metadata = LedgerMetadata(
        ensemble_size=1, write_quorum_size=1, ack_quorum_size=1, ensembles={10: ("b",), 0: ("a",)}
    )

    assert [metadata.ensemble_of(entry_id) for entry_id in (0, 9, 10, 99)] == [
        ("a",),
        ("a",),
        ("b",),
        ("b",),
    ]
    assert metadata.last_ensemble == (10, ("b",))
    changed = metadata.with_ensemble(20, ("c",)).with_ensemble(10, ("d",))
    assert dict(changed.ensembles) == {0: ("a",), 10: ("d",), 20: ("c",)}


def test_impossible_quorums_are_refused() -> None:
    with pytest.raises(InvalidMetadata, match="does not hold"):
        LedgerMetadata(ensemble_size=1, write_quorum_size=2, ack_quorum_size=1, ensembles={})


def changed(**fields: object) -> bytes:
    """The record of a closed ledger with other values of some fields, which no client writes."""
    metadata = LedgerMetadata(
        ensemble_size=2, write_quorum_size=2, ack_quorum_size=1, ensembles={0: ("a", "b")}
    ).closed(5, 60)
    for name, value in fields.items():
        object.__setattr__(metadata, name, value)
    return encode_ledger_metadata(metadata)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"ensembles": {}}, "start at the entries []"),
        ({"ensembles": {4: ("a", "b")}}, "start at the entries [4]"),
        ({"ensembles": {0: ("a", "b"), -3: ("a", "b")}}, "start at the entries [0, -3]"),
        ({"ensembles": {0: ("a", "b"), 3: ("a",)}}, "entry 3 names 1 bookies, not 2"),
        ({"ensembles": {0: ("a", "")}}, "entry 0 names 1 bookies, not 2"),
        ({"write_quorum_size": 0, "ack_quorum_size": 0}, "write quorum of 0"),
        ({"last_entry_id": -2}, "closed at entry -2"),
        ({"length": -1}, "-1 bytes"),
    ],
)
def test_ledgers_that_no_client_writes_are_refused(fields: dict[str, object], reason: str) -> None:
    with pytest.raises(InvalidMetadata, match=re.escape(reason)):
        decode_ledger_metadata(changed(**fields))


def test_unknown_metadata_version_is_named() -> None:
    with pytest.raises(InvalidMetadata, match="version 4 is not known"):
        decode_ledger_metadata(b"BookieMetadataFormatVersion\t4\n")


@given(ledger_metadata(), st.data())
def test_cut_ledger_metadata_is_refused(metadata: LedgerMetadata, data: st.DataObject) -> None:
    record = encode_ledger_metadata(metadata)
    with pytest.raises(InvalidMetadata):
        decode_ledger_metadata(record[: data.draw(st.integers(0, len(record) - 1))])


@given(
    st.sampled_from(
        [
            b"",
            b"BookieMetadataFormatVersion\t2\n",
            b"BookieMetadataFormatVersion\t3\n",
            b"BookieMetadataFormatVersion\t2\nquorumSize: ",
            b"5\n",
            b'5\nbookieHost: "b" journalDir: "j" ledgerDirs: ',
            b"\0\0\0\0\0\0\0\1" + bytes(56),
        ]
    ),
    st.binary(max_size=40) | st.text(max_size=40).map(str.encode),
)
def test_damaged_records_raise_nothing_else(start: bytes, rest: bytes) -> None:
    for decode in (decode_ledger_metadata, decode_cookie, decode_availability):
        try:
            decode(start + rest)
        except InvalidMetadata:
            continue


@given(words, directories, directories, st.none() | words, st.none() | directories)
def test_cookie_round_trip(
    bookie_id: str,
    journal: tuple[str, ...],
    ledger: tuple[str, ...],
    instance_id: str | None,
    index: tuple[str, ...] | None,
) -> None:
    cookie = Cookie(
        bookie_id=bookie_id,
        journal_directories=journal,
        ledger_directories=ledger,
        instance_id=instance_id,
        index_directories=index,
    )
    assert decode_cookie(encode_cookie(cookie)) == cookie


def test_cookies_must_match() -> None:
    def cookie(**changed: object) -> Cookie:
        fields = {
            "bookie_id": "b:1",
            "journal_directories": ("/j",),
            "ledger_directories": ("/l",),
            "instance_id": "i",
        }
        return Cookie(**(fields | changed))  # type: ignore[arg-type]

    cookie().verify(cookie())
    cookie(index_directories=("/l",)).verify(cookie())
    for name, value in (
        ("bookie_id", "c:1"),
        ("journal_directories", ("/j", "/k")),
        ("ledger_directories", ("/m",)),
        ("instance_id", None),
        ("index_directories", ("/x",)),
    ):
        with pytest.raises(CookieMismatch, match=name.partition("_")[0]):
            cookie().verify(cookie(**{name: value}))

    grown = cookie(ledger_directories=("/l", "/m"))
    grown.verify(cookie(), may_grow=True)
    with pytest.raises(CookieMismatch):
        grown.verify(cookie())
    with pytest.raises(CookieMismatch):
        cookie().verify(grown, may_grow=True)


@given(st.sets(st.integers(0, 60)))
def test_availability_round_trip(entry_ids: set[int]) -> None:
    entries = Availability.of(sorted(entry_ids))

    assert decode_availability(encode_availability(entries)) == entries
    assert list(entries) == sorted(entry_ids)
    assert len(entries) == len(entry_ids)
    assert {entry_id for entry_id in range(-2, 70) if entry_id in entries} == entry_ids


def test_striped_ledgers_stay_small() -> None:
    striped = Availability.of(start + at for start in range(0, 3000, 3) for at in (0, 1))

    assert striped.groups == (RunGroup(0, 2997, 2, 3),)
    with pytest.raises(ValueError, match="ascend"):
        Availability.of([1, 1])


@given(st.integers(0, 2**63 - 1))
def test_paths_round_trip(ledger_id: int) -> None:
    assert ledger_id_of(ledger_path(ledger_id)) == ledger_id
    assert underreplicated_ledger_id_of(underreplicated_path(ledger_id)) == ledger_id


@pytest.mark.parametrize(
    "path",
    [
        "/ledgers",
        "/ledgers/LAYOUT",
        "/ledgers/available",
        "/ledgers/00/0000",
        "/ledgers/00/0000/L000",
        "/ledgers/00/00/L0012345",
        "/ledgers/000/0000/0000/0000/L0001",
        "/ledgers/999/9999/9999/9999/L9999",
        "/ledgers/00/0000/L\u0660\u0661\u0662\u0663",
    ],
)
def test_other_paths_are_no_ledgers(path: str) -> None:
    assert ledger_id_of(path) is None
    assert underreplicated_ledger_id_of(path) is None


def test_generated_ids() -> None:
    assert generated_ledger_id("/ledgers/idgen/ID-0000000042") == 42
    assert generated_ledger_id("/ledgers/idgen/ID-") is None
    assert generated_ledger_id("/ledgers/idgen-long/HOB-0000000001/ID-0000000042") is None
    with pytest.raises(ValueError, match="not a ledger id"):
        ledger_path(-1)
