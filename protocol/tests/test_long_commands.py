"""Commands with many ids are divided; other long commands are bounded."""

from __future__ import annotations

import pytest

from protocol import client as c
from protocol import pulsar_api_pb2 as pb
from protocol.errors import RemoteProtocolError
from protocol.frames import FrameDecoder, encode_frame
from protocol.long_commands import (
    COMMAND_SIZE_BYTES_MAX,
    FIELDS_MAX,
    FIELDS_PER_STEP,
    IDS_PER_PART,
    PART_BYTES,
    LongCommand,
)
from protocol.outline import ACK_WORDS_MAX
from protocol.request_frames import RequestDecoder
from protocol.requests import ParsedRequest

T = pb.BaseCommand


def received(data):
    decoder = RequestDecoder()
    frames = decoder.feed(data)
    if decoder.failure is not None:
        raise decoder.failure
    return frames


def parts_of(data):
    (frame,) = received(data)
    assert isinstance(frame, LongCommand)
    return [part and part.command() for part in frame.parts()]


def ids_of(part):
    body = part.ack.message_id if part.type == T.ACK else None
    if body is None:
        body = part.redeliverUnacknowledgedMessages.message_ids
    return [(each.ledgerId, each.entryId) for each in body]


def raw(kind, content, before=b"", after=b""):
    """A frame with the content as it is."""
    command = pb.BaseCommand(type=kind).SerializePartialToString()
    size = len(content)
    encoded_size = bytes(
        (size & 127 | 128, size >> 7 & 127 | 128, size >> 14 & 127 | 128, size >> 21)
    )
    body = (
        before
        + command
        + bytes((kind << 3 & 127 | 2,) if kind < 16 else (kind << 3 & 127 | 130, kind >> 4))
    )
    body += encoded_size + content + after
    total = len(body)
    return (total + 4).to_bytes(4, "big") + total.to_bytes(4, "big") + body


@pytest.mark.parametrize("pieces", [1, 7])
@pytest.mark.parametrize("count", [300, IDS_PER_PART, IDS_PER_PART + 1, 20_000])
def test_an_ack_of_many_ids_becomes_acks_of_a_bounded_number(count, pieces):
    ids = [(5, number) for number in range(count)]
    data = c.ack(3, ids, request_id=9, txnid_least_bits=4)
    decoder = RequestDecoder()
    size = len(data) // pieces + 1
    frames = [
        frame
        for start in range(0, len(data), size)
        for frame in decoder.feed(data[start : start + size])
    ]
    parts = [part.command() for part in frames[0].parts() if part is not None]
    assert [one for part in parts for one in ids_of(part)] == ids
    assert max(len(ids_of(part)) for part in parts) <= IDS_PER_PART
    assert {(part.ack.consumer_id, part.ack.txnid_least_bits) for part in parts} == {(3, 4)}
    assert [part.ack.request_id for part in parts if part.ack.HasField("request_id")] == [9]
    assert parts[-1].ack.HasField("request_id")


def test_a_turn_can_end_after_each_part_and_each_step_of_the_look_ahead():
    steps = parts_of(c.ack(3, [(5, number) for number in range(20_000)]))
    first = next(index for index, step in enumerate(steps) if step is not None)
    assert first == 20_002 // FIELDS_PER_STEP
    assert [step is None for step in steps[first:]] == [False, True] * (20_000 // IDS_PER_PART)


def test_a_request_to_redeliver_many_is_divided():
    ids = [(5, number) for number in range(5_000)]
    parts = [p for p in parts_of(c.redeliver_unacknowledged(3, ids, consumer_epoch=7)) if p]
    assert [one for part in parts for one in ids_of(part)] == ids
    bodies = [part.redeliverUnacknowledgedMessages for part in parts]
    assert {(body.consumer_id, body.consumer_epoch) for body in bodies} == {(3, 7)}


def test_a_cumulative_ack_of_many_ids_stays_one_of_several():
    (part,) = [p for p in parts_of(c.ack(3, [(5, n) for n in range(5_000)], cumulative=True)) if p]
    assert ids_of(part) == [(5, 0), (5, 1)]


def test_short_commands_are_parsed_at_once():
    (frame,) = received(c.ack(3, [(5, 1)], request_id=9))
    assert isinstance(frame, ParsedRequest)
    assert ids_of(frame.command()) == [(5, 1)]


def test_nothing_of_a_long_command_with_a_broken_end_is_carried_out():
    good = c.ack(3, [(5, number) for number in range(3_000)])
    content = good[8 + 2 + 1 + 3 :]  # sizes, type, tag and size of the content
    with pytest.raises(RemoteProtocolError, match="ends within"):
        assert not any(parts_of(raw(T.ACK, content + b"\x1a\x7f")))


IDS = b"\x1a\x04\x08\x01\x10\x01" * 1_000


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (raw(T.PING, IDS, after=b"\x08\x07"), "nothing else"),
        (raw(T.ACK, IDS, before=b"\x58\x01"), "begin with its type"),
        (raw(T.ACK, IDS, after=b"\x08\x06"), "nothing else"),
        (raw(T.SUBSCRIBE, b"\x0a\x00" * (FIELDS_MAX + 1)), "more than"),
        (raw(T.SUBSCRIBE, b"\x0a" + b"\xff" * 600), "number is too long"),
        (raw(T.SUBSCRIBE, b"\x0b" * 600), "a group"),
        (raw(T.SUBSCRIBE, bytes(COMMAND_SIZE_BYTES_MAX + 1)), "the limit is"),
    ],
)
def test_other_long_commands_are_bounded_before_they_are_parsed(data, message):
    with pytest.raises(RemoteProtocolError, match=message):
        received(data)


def field(number, content):
    """A field with content of up to 2 MB."""
    size = len(content)
    assert number < 16
    tag = bytes((number << 3 | 2,))
    return tag + bytes((size & 127 | 128, size >> 7 & 127 | 128, size >> 14)) + content


SUBSCRIBE = pb.CommandSubscribe(
    topic="t", subscription="s", subType=3, consumer_id=1, request_id=2
).SerializeToString()
RANGE = b"\x1a\x04\x08\x01\x10\x01"
EMPTY_PROPERTY = b"\x2a\x04\x0a\x00\x12\x00"
SEEK = b"\x08\x01\x10\x02"
ID = b"\x08\x01\x10\x01"


def subscribe_with_ranges(count, metas=1):
    """`count` ranges, in several occurrences of the field: protobuf merges them."""
    meta = b"\x8a\x01" + field(1, b"\x08\x01" + RANGE * (count // metas))[1:]
    return raw(T.SUBSCRIBE, SUBSCRIBE + meta * metas)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (subscribe_with_ranges(FIELDS_MAX + 1), "more than 4000 fields"),
        (subscribe_with_ranges(330_000), "more than 4000 fields"),
        (subscribe_with_ranges(64_000, metas=1_000), "more than 4000 fields"),
        (
            raw(T.PRODUCER, b"\x0a\x01t\x10\x01" + field(7, EMPTY_PROPERTY * 140_000)),
            "more than 4000 fields",
        ),
        (raw(T.SEEK, SEEK + field(3, ID + field(5, b"\x01" * 180_000))), "ack_set for more"),
        (raw(T.SEEK, SEEK + field(3, ID + field(5, b"\x01" * 1_900_000))), "ack_set for more"),
        (raw(T.SEEK, SEEK + field(3, ID + field(5, b"\x01" * 16_000)) * 20), "ack_set for more"),
        (raw(T.SEEK, SEEK + b"\x1a\x86\x08" + b"\x22" * 600), "ends within"),
    ],
)
def test_what_is_repeated_within_a_field_is_bounded_too(data, message):
    """330,000 key ranges took 0.3 s of the event loop, and 140,000 properties of a schema 0.5 s."""
    with pytest.raises(RemoteProtocolError, match=message):
        received(data)


def test_as_many_ranges_as_fields_pass():
    (request,) = received(subscribe_with_ranges(FIELDS_MAX - 10, metas=2))
    assert len(request.key_shared.hashRanges) == FIELDS_MAX - 10


@pytest.mark.parametrize(("kind", "tag"), [(T.ACK, 3), (T.REDELIVER_UNACKNOWLEDGED_MESSAGES, 2)])
@pytest.mark.parametrize("packed", [True, False])
def test_an_ack_set_is_no_longer_than_the_largest_batch(kind, tag, packed):
    """Five million words took 0.4 s."""

    def command(words):
        ack_set = field(5, b"\x01" * words) if packed else b"\x28\x01" * words
        head = b"\x08\x01\x10\x00" if kind == T.ACK else b"\x08\x01"
        return raw(kind, head + field(tag, ID + ack_set) + field(tag, ID))

    (part,) = [p for p in parts_of(command(ACK_WORDS_MAX)) if p]
    assert len(ids_of(part)) == 2
    for words in (ACK_WORDS_MAX + 1, 900_000):
        with pytest.raises(RemoteProtocolError, match="ack_set for more than 1048576 messages"):
            parts_of(command(words))


def test_ids_with_long_ack_sets_are_cut_by_their_bytes():
    """A thousand of them would be 16 million words."""
    one = field(3, ID + field(5, b"\x01" * 16_000))
    content = b"\x08\x01\x10\x00" + one * 100
    words = [
        sum(len(each.ack_set) for each in part.ack.message_id)
        for part in parts_of(raw(T.ACK, content))
        if part
    ]
    assert sum(words) == 100 * 16_000
    assert max(words) <= PART_BYTES


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x08\x01\x10\x00" + b"\x9a\x00" + field(3, b"\x01" * 300_000)[1:], "beside the ids"),
        (b"\x08\x01\x10\x00" + b"\x20\x01" * (FIELDS_MAX + 1), "more than"),
        (b"\x08\x01\x10\x00" + b"\x9a\x00\x04\x08\x01\x10\x01" * 1_000, "unusual form"),
        (b"\x08\x01\x10\x00" + b"\x1a\x02\x08\xff" * 1_000, "cannot be read"),
    ],
)
def test_a_long_ack_in_an_odd_form_is_refused(content, message):
    with pytest.raises(RemoteProtocolError, match=message):
        parts_of(raw(T.ACK, content))


def test_a_schema_of_a_megabyte_passes():
    schema = pb.Schema(name="s", type=2, schema_data=bytes(1_000_000))
    (request,) = received(c.producer("t", 1, 2, schema=schema))
    assert request.body.schema == schema


def test_a_client_reads_long_answers_as_they_are():
    command = pb.BaseCommand(type=T.GET_TOPICS_OF_NAMESPACE_RESPONSE)
    command.getTopicsOfNamespaceResponse.request_id = 1
    command.getTopicsOfNamespaceResponse.topics.extend(map(str, range(10_000)))
    assert FrameDecoder().feed(encode_frame(command)) == [(command, None)]
