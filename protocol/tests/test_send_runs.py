"""A run of SENDs is its messages, and every SEND that is unusual is read by itself."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from native.frames import ARE_SINGLE, PAYLOAD_BYTES_MAX, RUN_MESSAGES_MAX, read_sends
from protocol import client
from protocol.errors import RemoteProtocolError
from protocol.metadata import METADATA_UNCOUNTED_BYTES, count_messages, verify_checksum
from protocol.new_messages import NO_SEQUENCE_ID
from protocol.request_frames import (
    REQUESTS_PER_SLICE,
    SENDS_PER_SLICE,
    SENDS_PER_TURN,
    RequestDecoder,
)
from protocol.send_fields import Send
from protocol.send_runs import SendRun, read_verified
from protocol.tests.frame_values import value_of

LIMIT = 200_000
SEND_FIELDS = ("highest_sequence_id", "is_chunk", "payload", "producer_id", "sequence_id")
PLAIN = client.message(b"content")
BATCH = client.batch([b"one", b"two"])
NUMBERS = st.one_of(st.integers(0, 200), st.integers(2**62, 2**64 - 1))


def damaged(message: bytes) -> bytes:
    return message[:-1] + bytes((message[-1] ^ 1,))


MESSAGES = st.sampled_from(
    (
        PLAIN,
        PLAIN,
        BATCH,
        damaged(PLAIN),
        client.message(b"content", checksum=False),
        client.message(bytes(METADATA_UNCOUNTED_BYTES)),
        b"\x0e\x01",
        b"too short",
        b"not metadata at all",
    )
)
FRAMES = st.one_of(
    st.builds(client.send, st.sampled_from((1, 1, 1, 2)), NUMBERS, MESSAGES),
    st.builds(
        lambda sequence_id, highest: client.send(
            1, sequence_id, BATCH, 2, highest_sequence_id=highest
        ),
        NUMBERS,
        NUMBERS,
    ),
    st.builds(lambda number: client.send(1, number, PLAIN, is_chunk=True), NUMBERS),
    st.just(client.ping()),
)


def singles(frames: list) -> list[object]:
    """What the frames say, one item for each."""
    found: list[object] = []
    for frame in frames:
        for each in frame.sends() if isinstance(frame, SendRun) else [frame]:
            if isinstance(each, Send):
                found.append(tuple(getattr(each, name) for name in SEND_FIELDS))
            else:
                found.append(value_of(each))
    return found


def decoded(stream: bytes, piece: int) -> tuple[list[object], str]:
    """Delivered in pieces; and the error that ended it."""
    decoder = RequestDecoder(LIMIT)
    frames: list[object] = []
    try:
        for at in range(0, len(stream), piece):
            frames += singles(decoder.feed(stream[at : at + piece]))
            while decoder.is_left:
                frames += singles(decoder.go_on() if decoder.may_go_on else decoder.more())
    except RemoteProtocolError as error:
        return frames, str(error)
    return frames, str(decoder.failure or "")


@settings(max_examples=200, deadline=None)
@given(st.lists(FRAMES, max_size=12))
def test_the_same_messages_come_out_as_without_runs(frames: list[bytes]) -> None:
    together, error = decoded(b"".join(frames), LIMIT)
    one_by_one = [each for frame in frames for each in singles(RequestDecoder().feed(frame))]
    assert (together, error) == (one_by_one, "")


@settings(max_examples=200, deadline=None)
@given(st.lists(FRAMES, max_size=12).map(b"".join))
def test_a_verified_message_has_a_checksum_that_fits(stream: bytes) -> None:
    """The broker does not look at it again."""
    for frame in RequestDecoder(LIMIT).feed(stream):
        for each in frame.sends() if isinstance(frame, SendRun) else [frame]:
            if isinstance(each, Send) and each.is_verified:
                assert verify_checksum(each.payload)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(FRAMES, min_size=2, max_size=5).map(b"".join),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4),
    st.integers(0, 60),
)
def test_damaged_bytes_are_the_same_frames_or_an_error(
    stream: bytes, changes: list[tuple[int, int]], cut: int
) -> None:
    """Byte by byte no run can be found (and the text of an error has other sizes)."""
    data = bytearray(stream[: min(len(stream), 2_000) - cut])
    for at, value in changes:
        if at < len(data):
            data[at] = value
    frames, error = decoded(bytes(data), 1 << 20)
    expected, expected_error = decoded(bytes(data), 1)
    assert (frames, bool(error)) == (expected, bool(expected_error))


def test_consecutive_messages_are_one_run_with_columns() -> None:
    numbers = [0, 127, 128, 2**40, 5]
    messages = [PLAIN, BATCH, client.message(b"x", checksum=False), PLAIN, b"not metadata"]
    stream = b"".join(map(client.send, [7] * 5, numbers, messages))
    [run] = RequestDecoder().feed(stream)
    assert isinstance(run, SendRun)
    assert (run.producer_id, list(run.sequence_ids), run.payloads) == (7, numbers, messages)
    assert run.counts == list(map(count_messages, messages)) == [1, 2, 1, 1, 0]
    assert run.message_count == 1 + 2 + 1 + 1 + 1  # what no client gets counts as one
    assert (run.size_bytes, run.size_each_bytes) == (sum(map(len, messages)), 0)
    assert singles(run.sends()) == [
        (NO_SEQUENCE_ID, False, message, 7, number)
        for number, message in zip(numbers, messages, strict=True)
    ]


def test_messages_of_one_size_that_are_no_batches_need_no_columns_for_that() -> None:
    [run] = RequestDecoder().feed(client.send(7, 3, PLAIN) * 5)
    assert isinstance(run, SendRun)
    assert (run.counts, run.message_count) == (None, 5)
    assert (run.size_each_bytes, run.size_bytes) == (len(PLAIN), 5 * len(PLAIN))
    assert count_messages(PLAIN) == 1


def test_the_largest_message_of_a_run_is_one_whose_metadata_need_no_look() -> None:
    assert PAYLOAD_BYTES_MAX == METADATA_UNCOUNTED_BYTES


@given(st.binary(max_size=60), st.sampled_from([b"", b"\x0a\x01p\x10\x05\x18\x07"]))
@settings(max_examples=300)
def test_what_is_taken_for_one_message_is_counted_as_one(metadata: bytes, start: bytes) -> None:
    metadata = start + metadata
    payload = len(metadata).to_bytes(4, "big") + metadata + b"content"
    *_, flags, _end = read_sends(client.send(1, 1, payload), 0, LIMIT)
    assert not flags & ARE_SINGLE or count_messages(payload) == 1


@pytest.mark.parametrize(
    "unusual",
    [
        client.send(2, 3, PLAIN),
        client.send(1, 3, BATCH, 2, highest_sequence_id=4),
        client.send(1, 3, PLAIN, is_chunk=True),
        client.send(1, 3, damaged(PLAIN)),
        client.send(1, 3, b"too short"),
        client.send(1, 2**63, PLAIN),
        client.send(1, 3, client.message(bytes(METADATA_UNCOUNTED_BYTES))),
        client.ping() * 2,
    ],
    ids=["producer", "highest", "chunk", "damaged", "short", "number", "large", "other command"],
)
def test_a_run_ends_before_what_is_unusual(unusual: bytes) -> None:
    usual = client.send(1, 1, PLAIN) + client.send(1, 2, PLAIN)
    found = read_verified(usual + unusual + usual, 0, LIMIT)
    assert found is not None
    assert isinstance(found[0], SendRun)
    assert (list(found[0].sequence_ids), *found[1:]) == ([1, 2], 2, len(usual))
    one = usual[: len(usual) // 2]
    found = read_verified(one + unusual, 0, LIMIT)
    assert found is not None
    assert isinstance(found[0], Send)
    assert (found[0].sequence_id, found[0].payload, *found[1:]) == (1, PLAIN, 1, len(one))


def test_an_unfinished_or_too_large_frame_is_in_no_run() -> None:
    frame = client.send(1, 1, PLAIN)
    found = read_verified(frame * 2 + frame[:-1], 0, LIMIT)
    assert found is not None
    assert found[1:] == (2, 2 * len(frame))
    assert read_verified(frame * 3, 0, len(frame) - 1) is None


def with_a_field_of_the_future(send: bytes) -> bytes:
    """The SEND as protobuf alone reads it."""
    payload = send[8 + int.from_bytes(send[4:8], "big") :]
    encoded = send[8 : len(send) - len(payload)] + b"\x98\x06\x05"
    sizes = 4 + len(encoded) + len(payload), len(encoded)
    return b"".join((*(size.to_bytes(4, "big") for size in sizes), encoded, payload))


FIRST, SECOND = (client.send(producer, 2, PLAIN) for producer in (1, 2))
PARSED = with_a_field_of_the_future(FIRST)
DAMAGED = client.send(1, 2, damaged(PLAIN))


def slices(data: bytes) -> list[list[object]]:
    decoder = RequestDecoder()
    found: list[list[object]] = [list(decoder.feed(data))]
    while decoder.is_left:
        found.append(list(decoder.more()))
    return found


@pytest.mark.parametrize(
    ("cycle", "kind", "most"),
    [
        ((FIRST, SECOND), Send, SENDS_PER_SLICE),
        ((DAMAGED,), Send, SENDS_PER_SLICE),
        ((PARSED,), Send, SENDS_PER_SLICE),
        ((FIRST, FIRST, SECOND, SECOND), SendRun, SENDS_PER_SLICE),
        ((FIRST,), SendRun, RUN_MESSAGES_MAX),
        ((FIRST,) * 500 + (SECOND,), (Send, SendRun), RUN_MESSAGES_MAX),
    ],
    ids=[
        "of two producers in turn",
        "with a wrong checksum",
        "that protobuf has to read",
        "in runs of two",
        "of one producer",
        "in long runs",
    ],
)
def test_a_megabyte_of_tiny_messages_is_read_in_slices(
    cycle: tuple[bytes, ...], kind: type | tuple[type, ...], most: int
) -> None:
    """All were read in one turn, which took 30 and 70 ms."""
    times = (1 << 20) // sum(map(len, cycle))
    found = slices(b"".join(cycle) * times)
    frames = [each for part in found for each in part]
    assert all(isinstance(each, kind) for each in frames[:-1])  # the last one may be alone
    counts = [len(singles(part)) for part in found]
    assert sum(counts) == times * len(cycle)
    assert max(counts) <= most


def test_a_slice_has_few_messages_whose_metadata_may_be_long() -> None:
    """A chunk of 1 MB with 16 messages of 32,000 empty properties each was a turn of 25 ms."""
    large = [client.send(producer, 2, client.message(bytes(60_000))) for producer in (1, 2)]
    assert [len(part) for part in slices(b"".join(large) * 6)] == [5, 5, 2]


def test_slices_of_messages_may_be_one_turn_and_their_requests_count_together() -> None:
    messages = (FIRST + SECOND) * (SENDS_PER_SLICE // 2)
    decoder = RequestDecoder()
    read = decoder.feed((messages + client.flow(1, 1) * 40) * 3)
    requests = 0
    while decoder.may_go_on:
        assert len(read) <= SENDS_PER_SLICE + 40
        read = decoder.go_on()
        requests += sum(not isinstance(each, Send) for each in read)
    assert requests == REQUESTS_PER_SLICE
    assert decoder.is_left


@pytest.mark.parametrize(
    ("cycle", "most"),
    [((FIRST, SECOND), SENDS_PER_TURN), ((FIRST,), 2 * SENDS_PER_TURN)],
    ids=["two producers in turn", "a run"],
)
def test_a_turn_goes_on_up_to_a_number_of_messages(cycle: tuple[bytes, ...], most: int) -> None:
    decoder = RequestDecoder()
    for read in (decoder.feed, lambda _: decoder.more()):
        found = singles(read(b"".join(cycle) * 10_000))
        while decoder.may_go_on:
            found += singles(decoder.go_on())
        assert len(found) == most
    assert decoder.is_left


@pytest.mark.parametrize("producers", [1, 10])
def test_a_megabyte_of_kilobyte_messages_is_one_turn(producers: int) -> None:
    """So that it is one group of the journal."""
    message = client.message(bytes(1_024))
    cycle = b"".join(client.send(1 + number, 2, message) for number in range(producers))
    decoder = RequestDecoder()
    decoder.feed(cycle * ((1 << 20) // len(cycle)))
    while decoder.may_go_on:
        decoder.go_on()
    assert not decoder.is_left


def test_a_slice_that_requests_have_ended_ends_the_turn() -> None:
    decoder = RequestDecoder()
    decoder.feed(client.flow(1, 1) * REQUESTS_PER_SLICE + FIRST + SECOND)
    assert decoder.is_left
    assert not decoder.may_go_on


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from([FIRST, SECOND, DAMAGED, PARSED, client.flow(1, 1)]),
        min_size=1,
        max_size=20,
    ),
    st.integers(1, 400),
    st.integers(1, 100_000),
)
def test_slices_lose_and_change_no_message(cycle: list[bytes], times: int, piece: int) -> None:
    alone = [each for frame in cycle for each in singles(RequestDecoder().feed(frame))]
    assert decoded(b"".join(cycle) * times, piece) == (alone * times, "")
