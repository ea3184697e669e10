"""However the stream is cut, what the scanner finds is what the codec finds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.perf.frame_scanner import FrameScanner, Meaning
from protocol import client, commands
from protocol import pulsar_api_pb2 as pb
from protocol.commands import message_head
from protocol.decoding import COMMAND_FIELDS
from protocol.errors import RemoteProtocolError
from protocol.frames import FrameDecoder
from protocol.templates import varint

ID_FIELD = {
    pb.BaseCommand.MESSAGE: "consumer_id",
    pb.BaseCommand.SUCCESS: "request_id",
    pb.BaseCommand.PARTITIONED_METADATA_RESPONSE: "request_id",
    pb.BaseCommand.LOOKUP_RESPONSE: "request_id",
}


class Alike(Meaning):
    def __init__(self, key, verify_all):
        self.key = key
        self.verify_all = verify_all


def key_of(command, body):
    """The common part of frames that differ only in their id, and the id."""
    field = ID_FIELD.get(command.type)
    if field is None:
        return command.SerializeToString(), body, None
    copy = pb.BaseCommand()
    copy.CopyFrom(command)
    content = getattr(copy, COMMAND_FIELDS[command.type])
    number = getattr(content, field)
    setattr(content, field, 0)
    return copy.SerializeToString(), body, varint(number)


class Recorder:
    """A FrameTarget that keeps what it is told."""

    def __init__(self, verify_all=False):
        self.seen = []
        self.verify_all = verify_all

    def meaning(self, command, body):
        return Alike(key_of(command, body)[:2], self.verify_all)

    def on_run(self, meaning, ids):
        self.seen += [(*meaning.key, each) for each in ids]

    def on_frame(self, command, body):
        self.seen.append((command.SerializeToString(), body, None))


def expected(stream):
    return [key_of(command, body or b"") for command, body in FrameDecoder().feed(stream)]


def scanned(stream, cuts, target, scanner):
    """Feed the pieces as a worker does: what is unfinished goes in front of the next piece."""
    kept = b""
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        data = bytearray(kept + stream[start:end])
        filled = len(data)
        data += b"\xff" * 20  # the buffer goes on, with what was in it before
        used = scanner.scan(data, filled, target)
        kept = bytes(data[used:filled])
    assert kept == b""


ids = st.one_of(st.integers(0, 200), st.integers(16_300, 16_500), st.integers(0, 2**63))
bodies = st.sampled_from([client.message(b"x" * size) for size in (0, 3, 100)])


@st.composite
def frame_runs(draw):
    """Frames of one kind with different ids."""
    kind = draw(st.sampled_from(["message", "success", "metadata", "lookup", "ping", "error"]))
    numbers = draw(st.lists(ids, min_size=1, max_size=30))
    if kind == "message":
        body = draw(bodies)
        entry = draw(st.integers(0, 300))
        redeliveries = draw(st.integers(0, 1))
        return [
            message_head(number, 7, entry, -1, redeliveries, len(body)) + body for number in numbers
        ]
    if kind == "success":
        return [commands.success(number) for number in numbers]
    if kind == "metadata":
        partitions = draw(st.integers(0, 200))
        return [commands.partitioned_metadata(number, partitions) for number in numbers]
    if kind == "lookup":
        return [
            client.command_frame(
                pb.BaseCommand.LOOKUP_RESPONSE,
                brokerServiceUrl="pulsar://127.0.0.1:6650",
                response=pb.CommandLookupTopicResponse.Connect,
                request_id=number,
                authoritative=True,
            )
            for number in numbers
        ]
    if kind == "ping":
        return [client.ping()] * len(numbers)
    return [commands.error(number, pb.ServerError.ServiceNotReady, "later") for number in numbers]


@settings(max_examples=150, deadline=None)
@given(st.lists(frame_runs(), max_size=8), st.data())
def test_any_chunking_gives_what_the_codec_gives(runs, data):
    frames = [frame for run in runs for frame in run]
    if data.draw(st.booleans()):
        frames = data.draw(st.permutations(frames))
    stream = b"".join(frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    target, scanner = Recorder(), FrameScanner()

    scanned(stream, cuts, target, scanner)

    assert target.seen == expected(stream)
    assert scanner.corrupt == 0


def messages(count, body, entry=5):
    return [message_head(200 + each, 7, entry, -1, 0, len(body)) + body for each in range(count)]


def test_the_same_message_is_decoded_once_for_all_connections():
    stream = b"".join(messages(1000, client.message(b"x" * 5000)))
    scanner = FrameScanner()

    for _ in range(3):
        scanned(stream, [], Recorder(), scanner)

    assert scanner.decoded == 1


@pytest.mark.parametrize("position", [1, 2, 4])
def test_a_frame_within_a_payload_is_none_of_the_run(position):
    inner = messages(6, client.message(b"x" * 50))
    around = client.message(inner[0] * 3)
    frames = [*inner]
    frames.insert(position, messages(1, around, entry=6)[0])
    target = Recorder()

    scanned(b"".join(frames), [], target, FrameScanner())

    assert target.seen == expected(b"".join(frames))


@pytest.mark.parametrize("position", [1, 50, 99])
def test_damage_in_any_frame_is_seen_where_all_are_verified(position):
    body = client.message(b"x" * 100)
    frames = messages(100, body)
    frames[position] = frames[position][:-1] + b"y"
    scanner = FrameScanner()

    scanned(b"".join(frames), [], Recorder(verify_all=True), scanner)

    assert scanner.corrupt == 1


def test_sizes_that_cannot_be_are_refused():
    frame = (8).to_bytes(4, "big") + (9).to_bytes(4, "big") + bytes(20)

    with pytest.raises(RemoteProtocolError):
        FrameScanner().scan(bytearray(frame), len(frame), Recorder())
