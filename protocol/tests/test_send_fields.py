"""A SEND read by hand says what protobuf says, or leaves it to protobuf."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import client
from protocol import pulsar_api_pb2 as pb
from protocol.errors import RemoteProtocolError
from protocol.frames import FrameDecoder
from protocol.new_messages import NO_SEQUENCE_ID
from protocol.request_frames import RequestDecoder
from protocol.send_fields import SEND_PREFIX, Send, read_send, send_of
from protocol.templates import ReceiptTemplate, send_receipt

UINT64 = st.integers(0, 2**64 - 1)
SENDS = st.builds(
    dict,
    producer_id=UINT64,
    sequence_id=UINT64,
    num_messages=st.integers(-(2**31), 2**31 - 1),
    optional=st.fixed_dictionaries(
        {},
        optional={
            "highest_sequence_id": UINT64,
            "is_chunk": st.booleans(),
            "marker": st.booleans(),
            "txnid_least_bits": UINT64,
        },
    ),
)
MESSAGE = client.message(b"payload")


def fields_of(send: Send) -> tuple[int, int, int, bool, bytes]:
    return (
        send.producer_id,
        send.sequence_id,
        send.highest_sequence_id,
        send.is_chunk,
        send.payload,
    )


@given(SENDS)
def test_plain_and_protobuf_agree(fields: dict) -> None:
    optional = fields.pop("optional")
    command = pb.CommandSend(**fields, **optional)
    frame = client.send(
        fields["producer_id"],
        fields["sequence_id"],
        MESSAGE,
        fields["num_messages"],
        **optional,
    )
    [plain] = RequestDecoder().feed(frame)
    assert fields_of(plain) == fields_of(send_of(command, MESSAGE))
    [(parsed, _)] = FrameDecoder().feed(frame)
    assert parsed.send == command


def test_the_usual_send_needs_no_protobuf() -> None:
    frame = client.send(3, 12345, MESSAGE, 10, highest_sequence_id=12354)
    size = int.from_bytes(frame[4:8], "big")
    send = read_send(frame, 8, 8 + size, len(frame))
    assert send is not None
    assert fields_of(send) == (3, 12345, 12354, False, MESSAGE)


@pytest.mark.parametrize("highest", [0, 2**64 - 1])
def test_a_highest_sequence_id_that_says_nothing_counts_as_none(highest: int) -> None:
    send = send_of(pb.CommandSend(highest_sequence_id=highest), MESSAGE)
    assert send.highest_sequence_id == NO_SEQUENCE_ID


@given(st.binary(max_size=40), st.binary(max_size=12))
def test_any_bytes_behind_the_prefix_are_read_as_protobuf_reads_them(
    content: bytes, after: bytes
) -> None:
    command = SEND_PREFIX + bytes((len(content),)) + content
    data = command + after
    plain = read_send(data, 0, len(command), len(data))
    if plain is None:
        return
    parsed = pb.BaseCommand.FromString(command).send
    assert fields_of(plain) == fields_of(send_of(parsed, after))


@given(SENDS, st.integers(1, 60))
def test_plain_sends_come_out_of_any_delivery(fields: dict, cut: int) -> None:
    frame = client.send(fields["producer_id"], 7, MESSAGE)
    decoder = RequestDecoder()
    stream = frame * 3
    frames = []
    for at in range(0, len(stream), cut):
        frames += decoder.feed(stream[at : at + cut])
    expected = (fields["producer_id"], 7, NO_SEQUENCE_ID, False, MESSAGE)
    assert [fields_of(frame) for frame in frames] == [expected] * 3


def test_a_send_without_a_message_is_refused() -> None:
    decoder = RequestDecoder()
    with pytest.raises(RemoteProtocolError, match="without a message"):
        decoder.feed(client.send(1, 2, b""))


@given(
    UINT64,
    st.integers(0, 2**40),
    st.lists(
        st.tuples(UINT64, UINT64 | st.just(NO_SEQUENCE_ID), st.integers(0, 2**40)), max_size=9
    ),
)
def test_a_run_of_receipts_from_a_template_is_the_same(
    producer_id: int, ledger_id: int, receipts: list[tuple[int, int, int]]
) -> None:
    template = ReceiptTemplate(producer_id, ledger_id)
    parts: list[bytes] = []
    for sequence_id, highest, entry_id in receipts:
        template.append_to(parts, sequence_id, highest, entry_id)
    assert b"".join(parts) == b"".join(
        send_receipt(producer_id, sequence_id, highest, ledger_id, entry_id)
        for sequence_id, highest, entry_id in receipts
    )


@given(
    producer_id=st.integers(0, 2**63 - 1),
    ledger_id=st.integers(0, 2**63 - 1),
    sequence_id=st.integers(0, 400) | st.integers(2**14 - 300, 2**14 + 9) | st.integers(0, 2**62),
    entry_id=st.integers(0, 400) | st.integers(2**14 - 300, 2**14 + 9) | st.integers(0, 2**62),
    counts=st.lists(st.integers(0, 400), min_size=1, max_size=3),
)
def test_receipts_of_consecutive_messages_are_the_usual_frames(
    producer_id: int, ledger_id: int, sequence_id: int, entry_id: int, counts: list[int]
) -> None:
    template = ReceiptTemplate(producer_id, ledger_id)
    for count in counts:
        parts: list[bytes] = []
        template.append_consecutive(parts, sequence_id, entry_id, count)
        assert b"".join(parts) == b"".join(
            send_receipt(producer_id, sequence_id + number, -1, ledger_id, entry_id + number)
            for number in range(count)
        )
        sequence_id += count
        entry_id += count
