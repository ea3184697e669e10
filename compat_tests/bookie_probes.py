"""Raw requests to a bookie's port, and what comes back: the wire as a BookKeeper client sees it.

A probe is a connection of its own, so that a bookie which closes it harms no other probe. Answers
are given as hexadecimal frames without their size prefix; `closed` and `silent` say how a probe
without (enough) answers ended. Values that differ between any two bookies (disk sizes) are left out
by whoever compares.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from struct import pack
from typing import TYPE_CHECKING, Final

from protocol.bookkeeper import bookkeeper_pb2 as pb
from protocol.bookkeeper import messages as m
from protocol.bookkeeper import v2, v3
from protocol.bookkeeper.digests import master_key
from protocol.bookkeeper.packets import PacketDecoder
from protocol.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator

ANSWER_TIMEOUT_SECONDS: Final = 2.0
UNKNOWN_LEDGER_ID: Final = 987_654
_KEY: Final = master_key(b"")
TXN_ID: Final = 7


@dataclass(frozen=True, slots=True)
class Probe:
    """Bytes to send on a new connection and how many answers to wait for."""

    name: str
    sent: bytes
    answers: int = 1


def probes(ledger_id: int, last_entry_id: int) -> Iterator[Probe]:
    """Reads of a ledger with entries 0 to `last_entry_id` (2 at least), and wrong requests."""
    yield from _version_2(ledger_id, last_entry_id)
    yield from _broken(ledger_id)
    yield from _version_3(ledger_id, last_entry_id)


def refused_probes(ledger_id: int, last_entry_id: int) -> Iterator[Probe]:
    """Requests that a bookie of BookKeeper serves and Vela's TCP port refuses."""
    read = v2.encode_read_request
    yield Probe("v2 fencing read", read(ledger_id, last_entry_id, m.FENCING, _KEY))
    body = pack(">qqqq", ledger_id, last_entry_id + 1, last_entry_id, 0)
    yield Probe("v2 add", v2.encode_add_request_head(len(body), _KEY) + body)
    add = m.AddRequest(ledger_id, last_entry_id + 1, body, _KEY, 0, TXN_ID)
    yield Probe("v3 add", v3.encode_request(add))
    fencing = m.ReadRequest(ledger_id, last_entry_id, m.FENCING, _KEY, TXN_ID)
    yield Probe("v3 fencing read", v3.encode_request(fencing))
    yield Probe("v3 force", v3.encode_request(m.ForceLedgerRequest(ledger_id, TXN_ID)))


def _version_2(ledger_id: int, last: int) -> Iterator[Probe]:
    read = v2.encode_read_request
    yield Probe("v2 read first", read(ledger_id, 0))
    yield Probe("v2 read last", read(ledger_id, last))
    yield Probe("v2 read LAST_ENTRY", read(ledger_id, m.LAST_ENTRY))
    yield Probe("v2 read behind the last", read(ledger_id, last + 1))
    yield Probe("v2 read far behind the last", read(ledger_id, 2**40))
    yield Probe("v2 read entry -2", read(ledger_id, -2))
    yield Probe("v2 read unknown ledger", read(UNKNOWN_LEDGER_ID, 0))
    yield Probe("v2 read LAST_ENTRY of unknown ledger", read(UNKNOWN_LEDGER_ID, m.LAST_ENTRY))
    yield Probe("v2 read negative ledger", read(-5, 0))
    yield Probe("v2 read high priority", read(ledger_id, 0, m.HIGH_PRIORITY))
    yield Probe("v2 two reads", read(ledger_id, 0) + read(ledger_id, 1), 2)

    def batch(name: str, ledger: int, first: int, count: int, size: int) -> Probe:
        request = m.BatchReadRequest(ledger, first, 9, count, size)
        return Probe(f"v2 batch {name}", v2.encode_batch_read_request(request))

    yield batch("of two", ledger_id, 0, 2, 65_536)
    yield batch("without count", ledger_id, 0, 0, 65_536)
    yield batch("with negative count", ledger_id, 0, -1, 65_536)
    yield batch("over the end", ledger_id, last - 1, 10, 65_536)
    yield batch("of one byte", ledger_id, 0, 10, 1)
    yield batch("of size 0", ledger_id, 0, 3, 0)
    yield batch("of size -1", ledger_id, 0, 3, -1)
    yield batch("that fits one", ledger_id, 0, 10, 200)
    yield batch("behind the last", ledger_id, last + 1, 10, 65_536)
    yield batch("of LAST_ENTRY", ledger_id, m.LAST_ENTRY, 10, 65_536)
    yield batch("of unknown ledger", UNKNOWN_LEDGER_ID, 0, 10, 65_536)
    yield Probe("v2 auth", v2.encode_auth_request("org.example.NoSuchPlugin", b"x"))


def _broken(ledger_id: int) -> Iterator[Probe]:
    def frame(body: bytes) -> bytes:
        return pack(">i", len(body)) + body

    yield Probe("v2 operation 4", frame(pack(">Iq", 0x02040000, ledger_id)))
    yield Probe("v2 operation 99", frame(pack(">Iqq", 0x02630000, ledger_id, 0)))
    yield Probe("v2 of version 5", frame(pack(">Iqq", 0x05020000, ledger_id, 0)))
    yield Probe("v2 read too short", frame(pack(">Iq", 0x02020000, ledger_id)))
    yield Probe("empty packet", frame(b""))
    yield Probe("packet of three bytes", frame(b"\x02\x02\x00"))
    yield Probe("negative size", pack(">i", -1) + b"garbage")
    yield Probe("size over the limit", pack(">i", 2**30) + bytes(1000))
    yield Probe("HTTP", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    yield Probe("fencing read without key", frame(pack(">Iqq", 0x02020001, ledger_id, 0)))


def _version_3(ledger_id: int, last: int) -> Iterator[Probe]:
    def probe(name: str, request: m.Request, answers: int = 1) -> Probe:
        return Probe(f"v3 {name}", v3.encode_request(request), answers)

    def read(entry_id: int, ledger: int = ledger_id) -> m.ReadRequest:
        return m.ReadRequest(ledger, entry_id, txn_id=TXN_ID)

    yield probe("read first", read(0))
    yield probe("read LAST_ENTRY", read(m.LAST_ENTRY))
    yield probe("read behind the last", read(last + 1))
    yield probe("read unknown ledger", read(0, UNKNOWN_LEDGER_ID))
    piggyback = read(m.LAST_ENTRY)._replace(previous_lac=0, timeout_ms=500, is_piggyback=True)
    yield probe("long poll that is satisfied", piggyback)
    plain = read(m.LAST_ENTRY)._replace(previous_lac=0, timeout_ms=500)
    yield probe("long poll without piggyback", plain)
    waiting = piggyback._replace(previous_lac=last + 5, timeout_ms=300)
    yield probe("long poll that times out", waiting)
    yield probe("long poll of unknown ledger", waiting._replace(ledger_id=UNKNOWN_LEDGER_ID))
    yield probe("read lac", m.ReadLacRequest(ledger_id, TXN_ID))
    yield probe("read lac of unknown ledger", m.ReadLacRequest(UNKNOWN_LEDGER_ID, TXN_ID))
    yield probe("bookie info", m.BookieInfoRequest(3, TXN_ID))
    yield probe("list entries", m.ListEntriesRequest(ledger_id, TXN_ID))
    yield probe("list entries of unknown ledger", m.ListEntriesRequest(UNKNOWN_LEDGER_ID, TXN_ID))
    yield probe("auth", m.AuthRequest("org.example.NoSuchPlugin", b"x", TXN_ID))
    yield probe("start tls", m.StartTlsRequest(TXN_ID))
    yield Probe("v3 unused operation", _bare(pb.RANGE_READ_ENTRY))
    yield Probe("v3 read without its body", _bare(pb.READ_ENTRY))
    both = v3.encode_request(read(0)) + v2.encode_read_request(ledger_id, 0)
    yield Probe("v3 then v2 on one connection", both, 2)


def _bare(operation: pb.OperationType) -> bytes:
    header = pb.BKPacketHeader(version=pb.VERSION_THREE, operation=operation, txnId=TXN_ID)
    encoded: bytes = pb.Request(header=header).SerializeToString()
    return pack(">i", len(encoded)) + encoded


def ask(host: str, port: int, probe: Probe) -> list[str]:
    """The answers as hexadecimal text, then `closed` or `silent` where one is missing."""
    with socket.create_connection((host, port), timeout=ANSWER_TIMEOUT_SECONDS) as connection:
        connection.sendall(probe.sent)
        decoder = PacketDecoder()
        answers: list[str] = []
        while len(answers) < probe.answers:
            try:
                data = connection.recv(1 << 20)
            except TimeoutError:
                return [*answers, "silent"]
            except ConnectionError:
                return [*answers, "closed"]
            if not data:
                return [*answers, "closed"]
            try:
                answers += [packet.hex() for packet in decoder.feed(data)]
            except RemoteProtocolError:
                return [*answers, "garbage"]
        return answers
