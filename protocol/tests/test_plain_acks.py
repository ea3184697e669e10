"""ACKs read from their bytes are those that protobuf reads, and runs lose none of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from protocol import client
from protocol import pulsar_api_pb2 as pb
from protocol.decoding import decode_command
from protocol.frames import FrameDecoder
from protocol.plain_acks import ACK_PREFIX, ACKS_PER_RUN_MAX, PlainAck, read_acks
from protocol.request_frames import ACKS_PER_REQUEST, REQUESTS_PER_SLICE, RequestDecoder
from protocol.tests.frame_values import read_all

NUMBERS = st.one_of(
    st.integers(0, 300), st.sampled_from([2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1])
)
ANY_FRAME = 10_000


def read_one(data, start, end):
    found = read_acks(data, start, end, ANY_FRAME)
    if found is None:
        return None
    assert found[1] == end
    return found[0]


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
    ack = read_one(b"junk" + encoded + b"more", 4, 4 + len(encoded))
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
GROUPED = client.ack(300, [(3, number) for number in (200, 1, 2**40, 5)])[8:]


@given(
    st.sampled_from([ACK, GROUPED]),
    st.lists(st.tuples(st.integers(3, len(GROUPED) - 1), st.integers(0, 255)), max_size=3),
    st.integers(0, 6),
    st.binary(max_size=4),
)
def test_bytes_that_are_no_plain_ack_are_the_parsers(whole, damage, cut, more):
    changed = bytearray(whole)
    for at, byte in damage:
        if at < len(changed):
            changed[at] = byte
    data = bytes(changed[: len(changed) - cut]) + more
    ack = read_one(data, 0, len(data))
    if ack is not None:
        command = decode_command(data)
        ids = [(each.ledgerId, each.entryId) for each in command.ack.message_id]
        assert ids == [(ack.ledger_id, each) for each in ack.entry_ids]
        assert command.ack.consumer_id == ack.consumer_id
        assert bool(command.ack.ack_type) == ack.is_cumulative
        assert not any(each.ack_set for each in command.ack.message_id)
        assert not command.ack.HasField("request_id")


def test_ids_that_a_client_groups_are_read_without_a_parser():
    [ack] = RequestDecoder().feed(client.ack(7, [(2**40, number) for number in range(1_000)]))
    assert isinstance(ack, PlainAck)
    assert (ack.consumer_id, ack.ledger_id, ack.entry_ids) == (7, 2**40, list(range(1_000)))


@given(st.integers(1, 100))
def test_ids_that_arrive_in_pieces_are_read_without_a_parser(piece):
    frame = client.ack(7, [(3, number) for number in range(30)])
    decoder = RequestDecoder()
    frames = []
    for start in range(0, len(frame), piece):
        frames += decoder.feed(frame[start : start + piece])
    [ack] = frames
    assert isinstance(ack, PlainAck)
    assert ack.entry_ids == list(range(30))


def test_a_cumulative_ack_of_several_ids_is_the_parsers():
    [frame] = RequestDecoder().feed(client.ack(7, [(1, 2), (1, 3)], cumulative=True))
    assert not isinstance(frame, PlainAck)


few = st.integers(0, 2)
an_ack = st.tuples(few, few, st.lists(st.integers(0, 2**40), min_size=1, max_size=3), st.booleans())


def in_order(frames):
    """(consumer, cumulative, ledger, entry) of each id, in the order of the commands."""
    for frame in frames:
        command = frame[0] if isinstance(frame, tuple) else frame.command()
        for each in command.ack.message_id:
            kind = bool(command.ack.ack_type)
            yield command.ack.consumer_id, kind, each.ledgerId, each.entryId


@given(st.lists(an_ack, max_size=30), st.integers(1, 300))
def test_runs_are_the_commands_in_their_order(acks, piece):
    stream = b"".join(
        client.ack(consumer, [(ledger, each) for each in entries], cumulative=cumulative)
        for consumer, ledger, entries, cumulative in acks
    )
    by_runs, by_parser = RequestDecoder(), FrameDecoder()
    seen, expected = [], []
    for start in range(0, len(stream), piece):
        seen += read_all(by_runs, stream[start : start + piece])
        expected += by_parser.feed(stream[start : start + piece])
    assert list(in_order(seen)) == list(in_order(expected))


def test_a_run_takes_what_one_step_may_handle():
    frames = read_all(
        RequestDecoder(),
        b"".join(client.ack(0, [(1, number)]) for number in range(3 * ACKS_PER_RUN_MAX)),
    )
    assert [len(each.entry_ids) for each in frames] == 3 * [ACKS_PER_RUN_MAX]


def test_a_slice_takes_as_many_acks_as_requests_of_their_cost():
    slice_entries = REQUESTS_PER_SLICE * ACKS_PER_REQUEST
    decoder = RequestDecoder()
    stream = b"".join(client.ack(0, [(1, number)]) for number in range(4 * slice_entries))
    taken = sum(len(each.entry_ids) for each in decoder.feed(stream))
    assert slice_entries / 2 <= taken <= 2 * slice_entries
    assert decoder.is_left


def test_a_frame_beyond_the_bound_of_the_connection_ends_a_run():
    small, large = client.ack(0, [(1, 1)]), client.ack(0, [(1, number) for number in range(20)])
    decoder = RequestDecoder(len(large) - 1)
    frames = decoder.feed(small + large)
    assert [each.entry_ids for each in frames] == [[1]]
    assert decoder.failure is not None
