"""Runs are taken exactly as a parser would have, however the bytes arrive."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.broadcast.ack_runs import AckRuns
from protocol import client
from protocol import pulsar_api_pb2 as pb
from protocol.frames import FrameDecoder
from protocol.templates import varint

CONSUMERS = [0, 1, 5, 127, 128, 300, 16_384, 70_000]


class Collected:
    """What was acknowledged, in order, as (consumer id, position)."""

    def __init__(self):
        self.acks = []

    def ack_run(self, slots, position):
        self.acks += [(CONSUMERS[slot], position) for slot in slots]


def frames():
    plain = st.builds(
        lambda consumer, ledger, entry: client.ack(consumer, [(ledger, entry)]),
        st.sampled_from([*CONSUMERS, 99]),
        st.sampled_from([3, 200]),
        st.sampled_from([0, 1, 127, 128]),
    )
    run = st.builds(
        lambda ledger, entry: b"".join(client.ack(each, [(ledger, entry)]) for each in CONSUMERS),
        st.sampled_from([3, 200]),
        st.sampled_from([0, 128, 2**40]),
    )
    other = st.sampled_from(
        [
            client.flow(1, 10),
            client.ping(),
            client.ack(1, [(3, 0), (3, 1)]),
            client.ack(5, [(3, 1)], cumulative=True),
            client.ack(5, [(3, 1)], request_id=7),
            client.ack(5, [pb.MessageIdData(ledgerId=3, entryId=1, ack_set=[1])]),
            client.ack(5, [pb.MessageIdData(ledgerId=3, entryId=1, partition=2, batch_index=4)]),
        ]
    )
    return st.lists(st.one_of(run, plain, other), max_size=12).map(b"".join)


def fed(chunks):
    """What a session makes of the chunks: everything as (consumer id, ids, kind...) in order."""
    collected = Collected()
    runs, decoder = AckRuns(collected), FrameDecoder()
    for slot, consumer in enumerate(CONSUMERS):
        runs.add(varint(consumer), slot)
    commands = []
    for chunk in chunks:
        data = chunk if decoder.buffered_bytes else runs.take(chunk)
        commands += [("run", *ack) for ack in collected.acks]
        collected.acks.clear()
        for command, _ in decoder.feed(data):
            if _is_plain(command):
                body = command.ack
                position = (body.message_id[0].ledgerId, body.message_id[0].entryId)
                commands.append(("run", body.consumer_id, position))
            else:
                commands.append(("other", command.SerializeToString()))
    return commands


def _is_plain(command):
    if command.type != pb.BaseCommand.ACK:
        return False
    body = command.ack
    return (
        body.ack_type == pb.CommandAck.Individual
        and len(body.message_id) == 1
        and not body.message_id[0].ack_set
        and not body.HasField("request_id")
    )


@settings(max_examples=300, deadline=None)
@given(frames(), st.lists(st.integers(1, 40), min_size=1, max_size=20))
def test_any_delivery_means_the_same(data, sizes):
    chunks = []
    at = 0
    for number in range(len(data)):
        if at >= len(data):
            break
        size = sizes[number % len(sizes)]
        chunks.append(data[at : at + size])
        at += size
    expected = fed([data[start : start + 1] for start in range(len(data))])
    assert fed(chunks) == expected
    assert fed([data] if data else []) == expected


@given(st.binary(max_size=200), st.booleans())
def test_arbitrary_bytes_are_left_to_the_parser(data, like_an_ack):
    runs = AckRuns(Collected())
    runs.add(varint(1), 0)
    if like_an_ack:
        data = b"\0\0\0\x18\0\0\0\x14\x08\x0a\x52\x10\x08" + data
    left = runs.take(data)
    assert left == data or (left == b"" and runs.take(b"") in (b"", data))


def test_a_consumer_that_left_is_the_parsers():
    collected = Collected()
    runs = AckRuns(collected)
    runs.add(varint(1), 1)
    ack = client.ack(1, [(3, 4)])
    assert runs.take(ack * 5) == b""
    runs.remove(varint(1))
    assert runs.take(ack) == ack
    assert runs.unused
    assert collected.acks == [(1, (3, 4))] * 5
