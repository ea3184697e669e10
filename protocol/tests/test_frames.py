"""However the bytes arrive, the same commands come out; and nothing but commands or one error."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import client, commands
from protocol import pulsar_api_pb2 as pb
from protocol.decoding import decode_command, has_ascii_texts
from protocol.errors import RemoteProtocolError
from protocol.frame_stream import LARGE_FRAME_BYTES
from protocol.frames import FrameDecoder, frame_size_max
from protocol.request_frames import RequestDecoder
from protocol.send_runs import SendRun
from protocol.templates import varint
from protocol.tests.frame_values import value_of

FRAMES = st.one_of(
    st.just(client.ping()),
    st.builds(client.flow, st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1)),
    st.builds(client.lookup, st.text(), st.integers(0, 2**64 - 1)),
    st.builds(
        lambda payload, sequence_id: client.send(1, sequence_id, client.message(payload)),
        st.one_of(st.binary(max_size=60), st.integers(4000, 9000).map(bytes)),
        st.integers(0, 2**40),
    ),
)


def chunked(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


@settings(max_examples=60, deadline=None)
@given(st.lists(FRAMES, min_size=1, max_size=6), st.lists(st.integers(0, 10**6), max_size=12))
def test_delivery_in_pieces_gives_the_same_commands(frames, cuts):
    expected = [FrameDecoder().feed(frame)[0] for frame in frames]
    data = b"".join(frames)
    decoder = FrameDecoder()
    assert decoder.feed(data) == expected
    pieces = [frame for chunk in chunked(data, cuts) for frame in decoder.feed(chunk)]
    assert pieces == expected
    assert decoder.buffered_bytes == 0


@settings(max_examples=30, deadline=None)
@given(
    st.lists(FRAMES, max_size=2),
    st.integers(-60, 3 * LARGE_FRAME_BYTES),
    st.integers(0, 200),
    st.lists(st.integers(0, 10**7) | st.integers(0, 300), max_size=12),
)
def test_a_large_frame_in_pieces_gives_the_same_commands(around, more_bytes, seed, cuts):
    payload = bytes((seed,)) * (LARGE_FRAME_BYTES + more_bytes) + b"end"
    frames = [*around, client.send(1, 7, client.message(payload)), *around]
    expected = [FrameDecoder().feed(frame)[0] for frame in frames]
    decoder = FrameDecoder()
    seen = []
    fed = 0
    for chunk in chunked(b"".join(frames), cuts):
        seen += decoder.feed(chunk)
        fed += len(chunk)
        done = sum(map(len, frames[: len(seen)]))
        assert decoder.buffered_bytes == fed - done
    assert seen == expected


@pytest.mark.parametrize("piece", [5_000, 256 << 10, 1 << 20])
def test_what_completes_a_large_frame_copies_little_more_than_it_brings(piece):
    """To find memory for all of it at once, and to fill it, is a step of 3 ms."""
    frame = client.send(1, 7, client.message(bytes(5_000_000)))
    decoder = FrameDecoder()
    copied = []
    tracemalloc.start()
    try:
        for at in range(0, len(frame), piece):
            chunk = frame[at : at + piece]
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            frames = decoder.feed(chunk)
            copied.append(tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
    assert len(frames) == 1
    assert copied[-1] < piece


def test_a_large_frame_that_is_only_announced_takes_no_memory():
    frame = client.send(1, 7, client.message(bytes(5_000_000)))
    tracemalloc.start()
    try:
        decoder = FrameDecoder()
        decoder.feed(frame[:5_000])
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()


def test_a_large_command_in_small_pieces_is_not_copied_with_each_of_them():
    size = 4_000_000
    head = (size + 4).to_bytes(4, "big") + size.to_bytes(4, "big")
    decoder = FrameDecoder()
    decoder.feed(head + bytes(1000))
    piece = bytes(5_000)
    for _ in range((size - 1000) // len(piece) - 1):
        decoder.feed(piece)
    tracemalloc.start()
    try:
        decoder.feed(piece)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@settings(max_examples=25, deadline=None)
@given(st.lists(FRAMES, min_size=1, max_size=3))
def test_delivery_byte_by_byte_gives_the_same_commands(frames):
    expected = [FrameDecoder().feed(frame)[0] for frame in frames]
    decoder = FrameDecoder()
    assert [
        frame for byte in b"".join(frames) for frame in decoder.feed(bytes((byte,)))
    ] == expected


def read(decoder: FrameDecoder | RequestDecoder, chunk: bytes) -> list[object]:
    """What a chunk brings, as values; each message of a run by itself."""
    frames = list(decoder.feed(chunk))
    while isinstance(decoder, RequestDecoder) and decoder.is_left:
        frames += decoder.more()
    singles = [
        each
        for frame in frames
        for each in (frame.sends() if isinstance(frame, SendRun) else [frame])
    ]
    return [value_of(each) for each in singles]


def fuzz(data: bytes, limit: int) -> None:
    """Whole and byte by byte: commands or RemoteProtocolError, the same ones, in bounded memory."""
    for make in (FrameDecoder, RequestDecoder):
        whole, single = make(limit), make(limit)
        results: list[list[object]] = [[], []]
        for decoder, chunks, result in (
            (whole, [data], results[0]),
            (single, [bytes((byte,)) for byte in data], results[1]),
        ):
            try:
                for chunk in chunks:
                    result += read(decoder, chunk)
                    assert decoder.buffered_bytes <= limit
            except RemoteProtocolError:
                pass
        assert results[0] == results[1]
        assert (whole.failure is None) == (single.failure is None)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=120))
def test_arbitrary_bytes(data):
    fuzz(data, 1000)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=60), st.binary(max_size=20), st.integers(0, 3))
def test_arbitrary_commands_in_well_formed_frames(command, payload, wrong_size):
    size = len(command) + wrong_size
    total = 4 + len(command) + len(payload)
    fuzz(total.to_bytes(4, "big") + size.to_bytes(4, "big") + command + payload, 1000)


@settings(max_examples=100, deadline=None)
@given(FRAMES, st.integers(0, 10**6), st.integers(1, 255))
def test_damaged_frames(frame, place, change):
    damaged = bytearray(frame)
    damaged[place % len(frame)] ^= change
    fuzz(bytes(damaged) + client.ping(), 20_000)


def test_commands_before_a_violation_are_delivered_first():
    decoder = FrameDecoder()
    frames = decoder.feed(client.ping() + client.pong() + b"\xff\xff\xff\xff\0\0\0\0")
    assert [command.type for command, _ in frames] == [pb.BaseCommand.PING, pb.BaseCommand.PONG]
    assert decoder.failure is not None
    with pytest.raises(RemoteProtocolError):
        decoder.feed(client.ping())


def test_oversized_frame_is_refused_at_its_size_and_the_error_names_the_sizes():
    limit = frame_size_max(1000)
    with pytest.raises(RemoteProtocolError, match=f"{limit + 1} bytes.*{limit} bytes"):
        FrameDecoder(limit).feed((limit - 3).to_bytes(4, "big"))


def test_frame_of_exactly_the_limit_is_taken():
    frame = client.send(1, 2, client.message(bytes(2000)))
    ((_, payload),) = FrameDecoder(len(frame)).feed(frame)
    assert payload is not None
    assert frame.endswith(payload)
    with pytest.raises(RemoteProtocolError):
        FrameDecoder(len(frame) - 1).feed(frame)


@pytest.mark.parametrize(
    ("encoded", "reason"),
    [
        (b"\x08\x63", "unknown type"),
        (b"", "unknown type"),
        (b"\x08\x06", "SEND without its content"),
        (b"\x08\x06\x32\x00", "without a message"),
        (b"\x08\x17\xba\x01\x03\x0a\x01t", "lacks a required field"),
        (b"\x08\x17\xba\x01\x06\x0a\x02\xff\xfe\x10\x01", "not UTF-8"),
    ],
)
def test_the_reason_of_a_refused_command_is_told(encoded, reason):
    size = len(encoded)
    with pytest.raises(RemoteProtocolError, match=reason):
        FrameDecoder().feed((size + 4).to_bytes(4, "big") + size.to_bytes(4, "big") + encoded)


MARK = "0123456789abcdef"


def text_fields(message, path=()):
    """Paths of all text below a type of message, the same type not twice on the way."""
    for field in message.fields:
        if field.type == field.TYPE_STRING:
            yield (*path, field.name)
        elif field.type == field.TYPE_MESSAGE and field.name not in path:
            yield from text_fields(field.message_type, (*path, field.name))


def fill_required(message):
    for field in message.DESCRIPTOR.fields:
        if not field.is_required or message.HasField(field.name):
            continue
        if field.type == field.TYPE_MESSAGE:
            getattr(message, field.name).SetInParent()
        else:
            empty = b"" if field.type == field.TYPE_BYTES else ""
            text = field.type in (field.TYPE_STRING, field.TYPE_BYTES)
            number = field.enum_type.values[0].number if field.enum_type is not None else 0
            setattr(message, field.name, empty if text else number)
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for part in value if field.is_repeated else (value,):
                fill_required(part)


def with_text(path, text):
    """A command whose field at the path is `text`; the command's type is that of its content."""
    command = pb.BaseCommand()
    command.type = pb.BaseCommand.DESCRIPTOR.fields_by_name[path[0]].number
    message = command
    for name in path[:-1]:
        repeated = message.DESCRIPTOR.fields_by_name[name].is_repeated
        part = getattr(message, name)
        message = part.add() if repeated else part
        message.SetInParent()
    if message.DESCRIPTOR.fields_by_name[path[-1]].is_repeated:
        getattr(message, path[-1]).append(text)
    fill_required(command)
    if not message.DESCRIPTOR.fields_by_name[path[-1]].is_repeated:
        setattr(message, path[-1], text)
    return command.SerializeToString()


NOT_LOOKED_AT = ("send", "ack", "flow")
"""Commands of the hot path: their text is never used."""
TEXTS = [path for path in text_fields(pb.BaseCommand.DESCRIPTOR) if path[0] not in NOT_LOOKED_AT]


@pytest.mark.parametrize("path", TEXTS, ids=".".join)
def test_text_that_is_not_utf_8_is_refused_wherever_it_stands(path):
    good = with_text(path, MARK)
    decode_command(good)
    decode_command(with_text(path, "é" * 8))
    with pytest.raises(RemoteProtocolError, match=rf"\.{path[-1]} is not UTF-8"):
        decode_command(good.replace(MARK.encode(), b"\xff" * len(MARK)))


@given(st.integers(0, 2**63 - 1), st.binary(max_size=300), st.binary(max_size=300))
def test_text_is_told_from_numbers_without_asking_for_each_field(number, topic, principal):
    encoded = _with_bytes(topic, principal, number)
    assert has_ascii_texts(encoded) == (topic.isascii() and principal.isascii())


def _with_bytes(topic, principal, number):
    """A LOOKUP with these bytes where it has text."""
    content = b"\x0a" + varint(len(topic)) + topic + b"\x10" + varint(number)
    content += b"\x22" + varint(len(principal)) + principal
    return b"\x08\x17\xba\x01" + varint(len(content)) + content


def test_text_beside_the_content_of_a_command_is_looked_at_too():
    stray = with_text(("subscribe", "topic"), MARK).replace(MARK.encode(), b"\xff" * len(MARK))
    command = client.ping()[8:] + stray[2:]
    with pytest.raises(RemoteProtocolError, match="topic is not UTF-8"):
        decode_command(command)


def test_small_payloads_do_not_keep_the_received_chunk_alive():
    chunk = client.send(1, 1, client.message(b"x")) * 100
    for _, payload in FrameDecoder().feed(chunk):
        assert type(payload) is bytes


def test_a_decoder_reads_what_a_broker_sends():
    data = client.message(b"hello")
    frame = commands.message_head(1, 5, 6, -1, 0, len(data)) + data
    ((command, payload),) = client.Client().receive(frame)
    assert payload is not None
    (message,) = client.received_messages(command, payload)
    assert message.payload == b"hello"
    assert str(message.message_id) == "5:6:-1"


@given(st.integers(99, 2**29 - 1), st.binary(max_size=8), st.booleans())
def test_text_behind_a_field_that_nobody_knows_is_looked_at_too(number, inside, ahead):
    """The parser does not look into such a field, so what is in it may tell wrong lengths."""
    unknown = varint(number << 3 | 2) + varint(len(inside)) + inside
    lookup = _with_bytes(b"\xff\xfe" * 4, b"", 1)
    kind, content = lookup[:2], lookup[2:]
    with pytest.raises(RemoteProtocolError, match="topic is not UTF-8"):
        decode_command(kind + (unknown + content if ahead else content + unknown))
    good = _with_bytes(b"topic", b"", 1)
    command = decode_command(kind + (unknown + good[2:] if ahead else good[2:] + unknown))
    assert command.lookupTopic.topic == "topic"
