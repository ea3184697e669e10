"""An ACK read from its bytes is the one that protobuf reads."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from protocol import client
from protocol import pulsar_api_pb2 as pb
from protocol.decoding import decode_command
from protocol.plain_acks import ACK_PREFIX, PlainAck, read_ack
from protocol.request_frames import RequestDecoder

NUMBERS = st.one_of(
    st.integers(0, 300), st.sampled_from([2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1])
)


@given(
    st.fixed_dictionaries({"ledgerId": NUMBERS, "entryId": NUMBERS}),
    st.dictionaries(
        st.sampled_from(["partition", "batch_index", "batch_size"]), st.integers(-1, 2**31 - 1)
    ),
    st.lists(st.integers(0, 2**63 - 1), max_size=1),
    NUMBERS,
    st.booleans(),
    st.one_of(st.none(), NUMBERS),
)
def test_both_read_the_same(numbers, others, ack_set, consumer_id, cumulative, request_id):
    message_id = pb.MessageIdData(**numbers, **others, ack_set=ack_set)
    frame = client.ack(consumer_id, [message_id], cumulative=cumulative, request_id=request_id)
    encoded = frame[8:]
    assert encoded.startswith(ACK_PREFIX)
    ack = read_ack(b"junk" + encoded + b"more", 4, 4 + len(encoded))
    plain = not ack_set and "batch_size" not in others and request_id is None
    if max(*numbers.values(), consumer_id) >= 2**63 or not plain:
        assert ack is None
        return
    assert ack is not None
    expected = decode_command(encoded)
    for field in others:
        expected.ack.message_id[0].ClearField(field)
    assert ack.command() == expected
    [seen] = RequestDecoder().feed(frame)
    assert isinstance(seen, PlainAck)
    assert seen.command() == expected


ACK = client.ack(300, [(3, 200)])[8:]


@given(
    st.lists(st.tuples(st.integers(3, len(ACK) - 1), st.integers(0, 255)), max_size=3),
    st.integers(0, 6),
    st.binary(max_size=4),
)
def test_bytes_that_are_no_plain_ack_are_the_parsers(damage, cut, more):
    changed = bytearray(ACK)
    for at, byte in damage:
        changed[at] = byte
    data = bytes(changed[: len(changed) - cut]) + more
    ack = read_ack(data, 0, len(data))
    if ack is not None:
        command = decode_command(data)
        assert len(command.ack.message_id) == 1
        identity = command.ack.message_id[0]
        assert (identity.ledgerId, identity.entryId) == (ack.ledger_id, ack.entry_id)
        assert command.ack.consumer_id == ack.consumer_id
        assert bool(command.ack.ack_type) == ack.is_cumulative
        assert not identity.ack_set
        assert not command.ack.HasField("request_id")
