"""Bytes that BookKeeper 4.17.2 itself produced: what its clients, bookies and tools understand.

Entries: ledger 1, entry 0, last add confirmed -1, length 5, payload "hello", password "".
"""

from __future__ import annotations

import pytest

from protocol.bookkeeper import messages as m
from protocol.bookkeeper import v2, v3
from protocol.bookkeeper.availability import (
    Availability,
    decode_availability,
    encode_availability,
)
from protocol.bookkeeper.cookie import Cookie, decode_cookie, encode_cookie
from protocol.bookkeeper.digests import Digest, DigestType, master_key
from protocol.bookkeeper.ledger_metadata import (
    LedgerMetadata,
    decode_ledger_metadata,
    encode_ledger_metadata,
)
from protocol.bookkeeper.paths import (
    LAYOUT,
    ledger_id_of,
    ledger_path,
    underreplicated_ledger_id_of,
    underreplicated_path,
)

KEY = "850bf1071c5e3d8c24235676f8816ae0cbe2f14f"
HEAD = "00000000000000010000000000000000ffffffffffffffff0000000000000005"
HELLO = "68656c6c6f"


def test_master_keys() -> None:
    assert master_key(b"").hex() == KEY
    assert master_key(b"pw").hex() == "2aa226ba095b6969a64871977693b14671710d76"


@pytest.mark.parametrize(
    ("kind", "digest", "lac7_digest", "add_size"),
    [
        (DigestType.CRC32, "0000000030a56872", "0000000065a4cab5", "00000045"),
        (
            DigestType.HMAC,
            "00107b7f219e26462e04e16e6e7a7f41e046e090",
            "3b18103a6ef2376d50da5e35a80c5f311513477e",
            "00000051",
        ),
        (DigestType.CRC32C, "e3a5f74d", "62842849", "00000041"),
        (DigestType.DUMMY, "", "", "0000003d"),
    ],
)
def test_entries_and_adds(kind: DigestType, digest: str, lac7_digest: str, add_size: str) -> None:
    maker = Digest(kind, b"")
    head = maker.head(1, 0, -1, 5, b"hello")
    body = head + b"hello"

    assert body.hex() == HEAD + digest + HELLO
    assert maker.verify(body, 1, 0) == b"hello"

    packet = v2.encode_add_request_head(len(body), master_key(b"")) + body
    assert packet.hex() == add_size + "02010000" + KEY + HEAD + digest + HELLO
    assert v2.decode_request(packet[4:]) == m.AddRequest(1, 0, body, master_key(b""))

    lac7 = maker.explicit_lac(1, 7)
    assert lac7.hex() == "00000000000000010000000000000007" + lac7_digest
    assert maker.verify_explicit_lac(lac7, 1) == 7


def test_v2_reads() -> None:
    read = "000000140202000000000000000000010000000000000000"
    assert v2.encode_read_request(1, 0).hex() == read
    assert v2.decode_request(bytes.fromhex(read)[4:]) == m.ReadRequest(1, 0)

    fence = "00000028020200010000000000000001ffffffffffffffff" + KEY
    key = master_key(b"")
    assert v2.encode_read_request(1, m.LAST_ENTRY, m.FENCING, key).hex() == fence
    assert v2.decode_request(bytes.fromhex(fence)[4:]) == m.ReadRequest(
        1, m.LAST_ENTRY, m.FENCING, key
    )

    batch = (
        "00000028020700000000000000000001000000000000000000000000000000090000000a0000000000010000"
    )
    request = m.BatchReadRequest(1, 0, 9, 10, 65536)
    assert v2.encode_batch_read_request(request).hex() == batch
    assert v2.decode_request(bytes.fromhex(batch)[4:]) == request


def test_v2_responses() -> None:
    added = "00000018020100000000000000000000000000010000000000000000"
    assert v2.encode_add_response(m.OK, 1, 0).hex() == added
    assert v2.decode_response(bytes.fromhex(added)[4:]) == m.AddResponse(m.OK, 1, 0)

    no_entry = "00000018020200000000000200000000000000010000000000000000"
    assert v2.encode_read_response_head(m.NO_ENTRY, 1, 0).hex() == no_entry
    assert v2.decode_response(bytes.fromhex(no_entry)[4:]) == m.ReadResponse(m.NO_ENTRY, 1, 0)


def test_v3_fencing_read() -> None:
    packet = (
        "0a06080310011805a20626080110ffffffffffffffffff011a14"
        "850bf1071c5e3d8c24235676f8816ae0cbe2f14fa00601"
    )
    request = m.ReadRequest(1, m.LAST_ENTRY, m.FENCING, master_key(b""), txn_id=5)

    assert v3.encode_request(request)[4:].hex() == packet
    assert v3.decode_request(bytes.fromhex(packet)) == request


OPEN = LedgerMetadata(
    ensemble_size=2,
    write_quorum_size=2,
    ack_quorum_size=2,
    ensembles={0: ("b1:3181", "b2:3181")},
    ctime_ms=1_700_000_000_000,
    c_token=42,
)


@pytest.mark.parametrize(
    ("metadata", "record"),
    [
        (
            OPEN,
            "426f6f6b69654d65746164617461466f726d617456657273696f6e09330a"
            "3808021002180020ffffffffffffffffff0128013214"
            "0a0762313a333138310a0762323a3331383110003803420048025080d095ffbc31602a",
        ),
        (
            OPEN.closed(9, 100),
            "426f6f6b69654d65746164617461466f726d617456657273696f6e09330a"
            "2f08021002186420092803321"
            "40a0762313a333138310a0762323a3331383110003803420048025080d095ffbc316000",
        ),
    ],
)
def test_ledger_metadata(metadata: LedgerMetadata, record: str) -> None:
    assert encode_ledger_metadata(metadata).hex() == record
    assert decode_ledger_metadata(bytes.fromhex(record)) == metadata


@pytest.mark.parametrize(
    ("ledger_id", "path", "mark"),
    [
        (0, "00/0000/L0000", "0000/0000/0000/0000/urL0000000000"),
        (1, "00/0000/L0001", "0000/0000/0000/0001/urL0000000001"),
        (12345, "00/0001/L2345", "0000/0000/0000/3039/urL0000012345"),
        (2147483646, "21/4748/L3646", "0000/0000/7fff/fffe/urL2147483646"),
        (2147483647, "000/0000/0021/4748/L3647", "0000/0000/7fff/ffff/urL2147483647"),
        (4294967297, "000/0000/0042/9496/L7297", "0000/0001/0000/0001/urL4294967297"),
    ],
)
def test_paths(ledger_id: int, path: str, mark: str) -> None:
    assert ledger_path(ledger_id) == "/ledgers/" + path
    assert ledger_id_of("/ledgers/" + path) == ledger_id
    full_mark = "/ledgers/underreplication/ledgers/" + mark
    assert underreplicated_path(ledger_id) == full_mark
    assert underreplicated_ledger_id_of(full_mark) == ledger_id


def test_layout() -> None:
    assert LAYOUT == b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"


@pytest.mark.parametrize(
    ("cookie", "text"),
    [
        (
            Cookie(
                bookie_id="b1:3181",
                journal_directories=("/j",),
                ledger_directories=("/l",),
                instance_id="iid",
            ),
            '5\nbookieHost: "b1:3181"\njournalDir: "/j"\nledgerDirs: "1\\t/l"\ninstanceId: "iid"\n',
        ),
        (
            Cookie(
                bookie_id="b1:3181",
                journal_directories=("/j",),
                ledger_directories=("/l", "/m \u00e9"),
                instance_id="iid",
            ),
            '5\nbookieHost: "b1:3181"\njournalDir: "/j"\nledgerDirs: "2\\t/l\\t/m \u00e9"\n'
            'instanceId: "iid"\n',
        ),
    ],
)
def test_cookie(cookie: Cookie, text: str) -> None:
    assert encode_cookie(cookie) == text.encode()
    assert decode_cookie(text.encode()) == cookie


def test_availability() -> None:
    encoded = bytes.fromhex(
        "0000000000000002"
        + "00" * 56
        + "000000000000000000000000000000000000000500000000"
        + "000000000000000700000000000000070000000300000000"
    )
    entries = Availability.of([0, 1, 2, 3, 4, 7, 8, 9])

    assert encode_availability(entries) == encoded
    assert decode_availability(encoded) == entries
