"""Both wire protocols over a connection: delivery in any pieces, damage, bounds, round trips."""

from __future__ import annotations

from itertools import pairwise
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.bookkeeper import bookkeeper_pb2 as pb
from protocol.bookkeeper import messages as m
from protocol.bookkeeper import v2, v3
from protocol.bookkeeper.packets import PacketDecoder, ResponseDecoder
from protocol.bookkeeper.request_runs import AddRun, Asked, RequestDecoder
from protocol.errors import LocalProtocolError, RemoteProtocolError


def made(kind, *fields):
    """Only the given fields; `st.builds` would fill in the others too."""
    return st.tuples(*fields).map(lambda values: kind(*values))


ids = st.integers(-1, 2**63 - 1)
keys = st.binary(min_size=20, max_size=20)
bodies = st.binary(min_size=32, max_size=80)
txn_ids = st.integers(0, 2**64 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
statuses = st.sampled_from(sorted(m.STATUSES))


def with_ids(ledger_id: int, entry_id: int, rest: bytes) -> bytes:
    return pack(">qq", ledger_id, entry_id) + rest


@st.composite
def v2_adds(draw: st.DrawFn) -> m.AddRequest:
    ledger_id, entry_id = draw(ids), draw(ids)
    body = with_ids(ledger_id, entry_id, draw(st.binary(min_size=16, max_size=60)))
    return m.AddRequest(ledger_id, entry_id, body, draw(keys), draw(st.integers(0, 7)))


def fenced(request: m.ReadRequest | m.BatchReadRequest) -> m.ReadRequest | m.BatchReadRequest:
    """The key goes along only with a request that fences."""
    return request if request.flags & m.FENCING else request._replace(master_key=b"")


flags = st.integers(0, 7)
v2_requests = st.one_of(
    v2_adds(),
    made(m.ReadRequest, ids, ids, flags, keys).map(fenced),
    made(m.BatchReadRequest, ids, ids, ids, st.integers(-(2**31), 2**31 - 1), ids, flags, keys).map(
        fenced
    ),
    made(m.AuthRequest, texts, st.binary(max_size=20), st.none()),
)

v3_requests = st.one_of(
    made(
        m.AddRequest,
        ids,
        ids,
        bodies,
        keys,
        st.sampled_from([0, m.RECOVERY_ADD, m.HIGH_PRIORITY, m.RECOVERY_ADD | m.HIGH_PRIORITY]),
        txn_ids,
        st.booleans(),
    ),
    made(m.ReadRequest, ids, ids, st.just(m.FENCING | m.HIGH_PRIORITY), keys, txn_ids),
    made(
        m.ReadRequest,
        ids,
        ids,
        st.just(0),
        st.just(b""),
        txn_ids,
        ids,
        st.integers(0, 10_000),
        st.booleans(),
    ),
    made(m.ReadRequest, ids, ids, st.just(0), st.just(b""), txn_ids),
    made(m.AuthRequest, texts, st.binary(max_size=20), txn_ids),
    made(m.WriteLacRequest, ids, ids, bodies, keys, txn_ids),
    made(m.ReadLacRequest, ids, txn_ids),
    made(m.ForceLedgerRequest, ids, txn_ids),
    made(m.BookieInfoRequest, st.integers(0, 3), txn_ids),
    made(m.ListEntriesRequest, ids, txn_ids),
    made(m.StartTlsRequest, txn_ids),
)

optional_bodies = st.none() | bodies
v3_responses = st.one_of(
    made(m.AddResponse, statuses, ids, ids, txn_ids),
    made(m.ReadResponse, statuses, ids, ids, bodies, txn_ids, st.none() | ids, st.none() | ids),
    made(m.AuthResponse, statuses, texts, st.binary(max_size=20), txn_ids),
    made(m.WriteLacResponse, statuses, ids, txn_ids),
    made(m.ReadLacResponse, statuses, ids, txn_ids, optional_bodies, optional_bodies),
    made(m.ForceLedgerResponse, statuses, ids, txn_ids),
    made(m.BookieInfoResponse, statuses, txn_ids, st.none() | ids, st.none() | ids),
    made(m.ListEntriesResponse, statuses, ids, txn_ids, st.binary(max_size=99)),
    made(m.StartTlsResponse, statuses, txn_ids),
)


def encoded(request: m.Request) -> bytes:
    """As a client of version 2 sends it."""
    match request:
        case m.AddRequest():
            head = v2.encode_add_request_head(len(request.body), request.master_key, request.flags)
            return head + request.body
        case m.ReadRequest(ledger_id, entry_id, flags, master_key):
            return v2.encode_read_request(ledger_id, entry_id, flags, master_key)
        case m.BatchReadRequest():
            return v2.encode_batch_read_request(request)
        case m.AuthRequest(plugin, payload):
            return v2.encode_auth_request(plugin, payload)
    raise AssertionError(request)


connections = st.one_of(
    st.lists(v2_requests, max_size=6).map(lambda all_: (all_, b"".join(map(encoded, all_)))),
    st.lists(v3_requests, max_size=6).map(
        lambda all_: (all_, b"".join(map(v3.encode_request, all_)))
    ),
)


def one_by_one(asked: list[Asked]) -> list[m.Request]:
    """Runs as the requests that they were."""
    requests: list[m.Request] = []
    for each in asked:
        if isinstance(each, AddRun):
            assert each.size_bytes == sum(len(head) + len(rest) for head, rest in each.bodies)
            requests += [
                m.AddRequest(each.ledger_id, entry_id, head + rest, each.master_key, each.flags)
                for entry_id, (head, rest) in enumerate(each.bodies, each.first_entry_id)
            ]
        else:
            requests.append(each)
    return requests


@given(connections, st.lists(st.integers(0, 600)))
def test_requests_arrive_whole_however_the_bytes_do(
    connection: tuple[list[m.Request], bytes], cuts: list[int]
) -> None:
    requests, wire = connection

    assert one_by_one(RequestDecoder().feed(wire)) == requests

    decoder = RequestDecoder()
    bytewise = [one for at in range(len(wire)) for one in decoder.feed(wire[at : at + 1])]
    assert one_by_one(bytewise) == requests

    decoder = RequestDecoder()
    edges = [0, *sorted(min(cut, len(wire)) for cut in cuts), len(wire)]
    in_pieces = [one for start, end in pairwise(edges) for one in decoder.feed(wire[start:end])]
    assert one_by_one(in_pieces) == requests
    assert decoder.pending_size_bytes == 0


def test_consecutive_adds_of_one_ledger_are_one_run() -> None:
    def add(ledger_id: int, entry_id: int, key: bytes = bytes(20), flags: int = 0) -> bytes:
        body = with_ids(ledger_id, entry_id, bytes(40))
        return v2.encode_add_request_head(len(body), key, flags) + body

    wire = b"".join(
        [
            *(add(5, entry_id) for entry_id in range(3)),
            add(5, 7),
            add(6, 8),
            add(6, 9, b"k" * 20),
            add(6, 10, b"k" * 20, flags=2),
            v2.encode_read_request(6, 10),
            add(6, 11, b"k" * 20, flags=2),
        ]
    )
    runs = [
        (each.ledger_id, each.first_entry_id, len(each.bodies), each.master_key[:1], each.flags)
        for each in RequestDecoder().feed(wire)
        if isinstance(each, AddRun)
    ]
    assert runs == [
        (5, 0, 3, b"\0", 0),
        (5, 7, 1, b"\0", 0),
        (6, 8, 1, b"\0", 0),
        (6, 9, 1, b"k", 0),
        (6, 10, 1, b"k", 2),
        (6, 11, 1, b"k", 2),
    ]


def test_a_packet_that_arrives_byte_by_byte_is_kept_in_few_pieces() -> None:
    decoder = RequestDecoder()
    decoder.feed(pack(">iI", 300_000, 2 << 24 | v2.ADD << 16) + bytes(40))
    for _ in range(100_000):
        decoder.feed(b"x")
    assert decoder.pending_size_bytes == 100_048
    assert len(decoder._pieces) < 10


@given(st.lists(st.binary(max_size=60), max_size=6), st.booleans())
def test_arbitrary_bytes_are_requests_or_an_error(chunks: list[bytes], is_framed: bool) -> None:
    decoder = RequestDecoder(frame_size_max=100)
    for chunk in chunks:
        decoder.feed(pack(">i", len(chunk)) + chunk if is_framed else chunk)
        assert decoder.pending_size_bytes <= 104


@given(
    st.sampled_from([2, 3]),
    st.integers(0, 2**32 - 1) | st.sampled_from([1, 2, 3, 7]).map(lambda op: 2 << 24 | op << 16),
    st.binary(max_size=80),
)
def test_arbitrary_packets_are_messages_or_an_error(version: int, header: int, rest: bytes) -> None:
    for packet in (pack(">I", header) + rest, rest):
        wire = pack(">i", len(packet)) + packet
        decoder = RequestDecoder()
        assert (len(decoder.feed(wire)) == 1) == (decoder.error is None)
        try:
            assert len(ResponseDecoder(version).feed(wire)) == 1
        except RemoteProtocolError:
            continue


@given(v2_requests | v3_requests, st.data())
def test_a_damaged_request_is_a_request_or_an_error(
    request: m.Request, data: st.DataObject
) -> None:
    is_v3 = getattr(request, "txn_id", None) is not None
    wire = bytearray(v3.encode_request(request) if is_v3 else encoded(request))
    for _ in range(data.draw(st.integers(1, 3))):
        wire[data.draw(st.integers(4, len(wire) - 1))] = data.draw(st.integers(0, 255))
    decoder = RequestDecoder()
    assert (len(decoder.feed(bytes(wire))) == 1) == (decoder.error is None)


@pytest.mark.parametrize("version", [2, 3])
def test_a_plugin_name_that_is_no_utf8_is_a_request_nevertheless(version: int) -> None:
    if version == 2:
        wire = v2.encode_auth_request("some-plugin", b"")
    else:
        wire = v3.encode_request(m.AuthRequest("some-plugin", b"", 5))
    decoder = RequestDecoder()
    (asked,) = decoder.feed(wire.replace(b"some-", b"some\xff"))
    assert decoder.error is None
    assert asked == m.AuthRequest("some\ufffdplugin", b"", 5 if version == 3 else None)


def test_what_came_before_a_bad_packet_is_delivered() -> None:
    decoder = RequestDecoder()
    good = v2.encode_read_request(1, 2)

    assert decoder.feed(good + good + pack(">i", 4) + b"\x02\x63\0\0" + good) == [
        m.ReadRequest(1, 2),
        m.ReadRequest(1, 2),
    ]
    assert decoder.error is not None
    assert "no operation 99" in str(decoder.error)
    assert decoder.feed(good) == []


@pytest.mark.parametrize("size", [-1, 101, 2**31 - 1])
def test_a_size_out_of_bounds_fails_for_good(size: int) -> None:
    decoder = PacketDecoder(100)
    wire = pack(">i", 3) + b"abc" + pack(">i", size)

    assert decoder.feed(wire) == [b"abc"]
    for _ in range(2):
        with pytest.raises(RemoteProtocolError, match=f"{size} bytes; allowed are 0 to 100"):
            decoder.feed(b"x" * 1000)
        assert decoder.pending_size_bytes == 0


def test_no_memory_is_taken_for_what_is_only_announced() -> None:
    decoder = PacketDecoder()
    decoder.feed(pack(">i", 5_000_000))
    assert decoder.pending_size_bytes == 4
    for _ in range(50):
        assert decoder.feed(bytes(99_999)) == []
    assert decoder.feed(bytes(50)) == [bytes(5_000_000)]
    assert decoder.pending_size_bytes == 0


def test_a_connection_flips_to_version_2_for_good() -> None:
    decoder = RequestDecoder()
    forced = m.ForceLedgerRequest(1, 9)
    read = m.ReadRequest(1, 2)

    assert decoder.feed(v3.encode_request(forced)) == [forced]
    assert not decoder.is_v2
    assert decoder.feed(v2.encode_read_request(1, 2)) == [read]
    assert decoder.is_v2
    assert decoder.feed(v3.encode_request(forced)) == []
    assert "neither a version 3 request nor version 2" in str(decoder.error)


def test_a_fencing_request_needs_the_key() -> None:
    for packet in (
        pack(">Iqq", 2 << 24 | v2.READ << 16 | m.FENCING, 1, 2) + bytes(19),
        pack(">Iqqqiq", 2 << 24 | v2.BATCH_READ << 16 | m.FENCING, 1, 2, 3, 4, 5),
    ):
        with pytest.raises(RemoteProtocolError, match="master key"):
            v2.decode_request(packet)


def test_entries_without_digest_are_accepted() -> None:
    """BookKeeper's bookie benchmark sends bodies that hold only the ids."""
    body = with_ids(5, 6, bytes(16))
    wire = v2.encode_add_request_head(len(body), bytes(20)) + body

    assert one_by_one(RequestDecoder().feed(wire)) == [m.AddRequest(5, 6, body, bytes(20))]


@given(v3_responses)
def test_v3_responses_round_trip(response: m.Response) -> None:
    assert ResponseDecoder(3).feed(v3.encode_response(response)) == [response]


@given(statuses, ids, ids, st.binary(max_size=50))
def test_v2_responses_round_trip(status: int, ledger_id: int, entry_id: int, body: bytes) -> None:
    decoder = ResponseDecoder(2)
    # Version 2 clients do not survive this one.
    seen = m.IO_ERROR if status == m.UNKNOWN_LEDGER_STATE else status

    assert decoder.feed(
        v2.encode_add_response(status, ledger_id, entry_id)
        + v2.encode_read_response_head(status, ledger_id, entry_id, len(body))
        + body
    ) == [
        m.AddResponse(seen, ledger_id, entry_id),
        m.ReadResponse(seen, ledger_id, entry_id, body),
    ]


@given(statuses, ids, ids, ids, st.lists(st.binary(max_size=20), max_size=4))
def test_v2_batches_round_trip(
    status: int, ledger_id: int, entry_id: int, request_id: int, all_: list[bytes]
) -> None:
    buffers = v2.encode_batch_read_response(status, ledger_id, entry_id, request_id, all_)
    (response,) = ResponseDecoder(2).feed(b"".join(buffers))
    seen = m.IO_ERROR if status == m.UNKNOWN_LEDGER_STATE else status

    assert response == m.BatchReadResponse(seen, ledger_id, entry_id, request_id, tuple(all_))
    counted = v2.BATCH_READ_OVERHEAD_BYTES + sum(
        len(body) + v2.BATCH_READ_ENTRY_OVERHEAD_BYTES for body in all_
    )
    assert counted == sum(map(len, buffers))


def test_authentication_disabled_is_said_in_both_versions() -> None:
    disabled = m.AUTH_DISABLED_PLUGIN
    assert ResponseDecoder(2).feed(v2.encode_auth_response(disabled)) == [
        m.AuthResponse(m.OK, disabled, b"")
    ]
    response = m.AuthResponse(m.OK, disabled, b"", 4)
    assert ResponseDecoder(3).feed(v3.encode_response(response)) == [response]


@pytest.mark.parametrize("operation", ["RANGE_READ_ENTRY", "BATCH_READ_ENTRY", "READ_LAC"])
def test_operations_that_cannot_be_served_can_be_answered(operation: str) -> None:
    header = pb.BKPacketHeader(version=3, operation=operation, txnId=7)
    number = pb.OperationType.Value(operation)

    assert v3.decode_request(pb.Request(header=header).SerializeToString()) == m.UnknownRequest(
        number, 7
    )
    assert ResponseDecoder(3).feed(v3.encode_error_response(number, m.BAD_REQUEST, 7)) == [
        m.ErrorResponse(m.BAD_REQUEST, 7)
    ]


def test_the_inner_status_counts_when_the_outer_is_ok() -> None:
    response = pb.Response(
        header=pb.BKPacketHeader(version=3, operation=pb.ADD_ENTRY, txnId=7),
        status=pb.EOK,
        addResponse=pb.AddResponse(status=pb.EFENCED, ledgerId=1, entryId=2),
    )
    assert v3.decode_response(response.SerializeToString()) == m.AddResponse(m.FENCED, 1, 2, 7)


def test_what_a_protocol_lacks_is_a_local_error() -> None:
    with pytest.raises(LocalProtocolError, match="BatchReadRequest"):
        v3.encode_request(m.BatchReadRequest(1, 2, 3, 4, 5))
    with pytest.raises(LocalProtocolError, match="transaction id"):
        v3.encode_request(m.ReadRequest(1, 2))
    with pytest.raises(LocalProtocolError, match="BatchReadResponse"):
        v3.encode_response(m.BatchReadResponse(m.OK, 1, 2, 3))
    with pytest.raises(LocalProtocolError, match="transaction id"):
        v3.encode_response(m.AddResponse(m.OK, 1, 2))
