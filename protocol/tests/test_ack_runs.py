"""Runs are taken exactly as a parser would have, however the bytes arrive."""

from __future__ import annotations

import time
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import client
from protocol import pulsar_api_pb2 as pb
from protocol.ack_runs import RUNS_MAX, AckRuns
from protocol.request_frames import RequestDecoder
from protocol.tests.frame_values import value_of

CONSUMERS = [0, 1, 5, 127, 128, 300, 16_384, 70_000, 2**64 - 1]
NEAR = [0, 1, 5, 127, 128, 200]


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
    """A session's view of the chunks: everything as (consumer id, ids, kind...) in order."""
    decoder = RequestDecoder()
    decoder.ack_runs = AckRuns()
    for number, consumer in enumerate(CONSUMERS):
        decoder.ack_runs.add(consumer, number)
    commands = []
    for chunk in chunks:
        runs, data = decoder.take_ack_runs(chunk)
        commands += [("run", CONSUMERS[each], position) for run, position in runs for each in run]
        frames = decoder.feed(data) if data else []
        while decoder.is_left:
            frames += decoder.more()
        for command in map(value_of, frames):
            if _is_plain(command):
                commands += [
                    ("run", command.ack.consumer_id, (each.ledgerId, each.entryId))
                    for each in command.ack.message_id
                ]
            else:
                commands.append(("other", command))
    return commands


def _is_plain(command):
    if not isinstance(command, pb.BaseCommand) or command.type != pb.BaseCommand.ACK:
        return False
    body = command.ack
    return (
        body.ack_type == pb.CommandAck.Individual
        and not any(each.ack_set for each in body.message_id)
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
    known = AckRuns()
    known.add(1, 0)
    if like_an_ack:
        data = b"\0\0\0\x18\0\0\0\x14\x08\x0a\x52\x10\x08" + data
    runs = []
    assert known.take(data, runs) == 0
    assert runs == []


def test_a_consumer_that_left_is_the_parsers():
    known = AckRuns()
    known.add(1, 7)
    ack = client.ack(1, [(3, 4)])
    runs = []
    assert known.take(ack * 5, runs) == len(ack) * 5
    known.remove(1)
    assert known.take(ack, runs) == 0
    assert known.unused
    assert runs == [(array("i", [7] * 5), (3, 4))]


def test_an_ack_that_arrives_in_pieces_is_taken_with_its_run():
    """Its beginning waits in the decoder, like that of any other frame."""
    decoder = RequestDecoder()
    decoder.ack_runs = AckRuns()
    for number, consumer in enumerate(NEAR):
        decoder.ack_runs.add(consumer, number)
    data = b"".join(client.ack(each, [(3, 4)]) for each in NEAR)
    for cut in range(1, len(data)):
        first, rest = decoder.take_ack_runs(data[:cut])
        assert decoder.feed(rest) == []
        assert decoder.buffered_bytes < 64
        last, rest = decoder.take_ack_runs(data[cut:])
        assert rest == b""
        numbers = [number for run, _ in (*first, *last) for number in run]
        assert numbers == list(range(len(NEAR)))


def test_short_runs_take_time_in_proportion_to_what_is_taken():
    """1 MB of runs of four ACKs, which one client may send at once, held the event loop for 14 s:
    each run cost a pass over all of the data after it."""
    known = AckRuns()
    for number in range(4):
        known.add(number, number)
    positions = [(3, entry) for entry in range(200, 8_200)]
    runs_of_four = [
        b"".join(client.ack(each, [position]) for each in range(4)) for position in positions
    ]

    def seconds_for(count):
        data = b"".join(runs_of_four[:count])
        spent = []
        for _ in range(5):
            runs = []
            started = time.process_time()
            taken = known.take(data, runs)
            spent.append(time.process_time() - started)
            four = array("i", range(4))
            assert runs == [(four, position) for position in positions[:RUNS_MAX]]
            assert taken == len(b"".join(runs_of_four[:RUNS_MAX]))
        return min(spent)

    assert seconds_for(len(positions)) < 5 * seconds_for(RUNS_MAX)


def test_a_frame_that_ends_before_its_consumers_id_does_is_left_to_the_parser():
    ack = client.ack(300, [(3, 1)])
    at = ack.index(b"\x08\xac\x02") + 1  # the id's first byte, of two
    for end in (at, at + 1):
        short = (end - 4).to_bytes(4, "big") + ack[4:end]
        runs = []
        assert AckRuns().take(short + ack, runs) == 0
        assert runs == []


def taken(known, consumers):
    """Those of the consumers whose ACKs are taken."""
    found = []
    for consumer in consumers:
        runs = []
        known.take(client.ack(consumer, [(3, 4)]), runs)
        found += [number for run, _ in runs for number in run]
    return found


def test_consumers_that_come_and_go_are_known_wherever_their_ids_have_got_to():
    known = AckRuns()
    for consumer in range(100_000):
        known.add(consumer, consumer)
        if consumer >= 5:
            known.remove(consumer - 5)
    assert taken(known, [99_994, *range(99_995, 100_000)]) == list(range(99_995, 100_000))
    for consumer in range(99_995, 100_000):
        known.remove(consumer)
    assert known.unused
    known.add(3, 1)
    assert taken(known, [3, 99_999]) == [1]


@pytest.mark.parametrize("distance", [1, 4, 16, 64, 640, 10_007, 2**40])
def test_acks_are_taken_by_the_run_however_far_apart_the_ids_of_a_connection_are(distance):
    """Clients number their consumers over all of their connections. From the 37th consumer on, ACKs
    of ids more than 8 apart went through the parser, which cost twice as much as all the rest."""
    known = AckRuns()
    consumers = [7 + at * distance for at in range(1_500)]
    for number, consumer in enumerate(consumers):
        known.add(consumer, number)
    data = b"".join(client.ack(each, [(3, 4)]) for each in consumers)
    runs = []
    assert known.take(data, runs) == len(data)
    assert runs == [(array("i", range(1_500)), (3, 4))]


def test_extreme_ids_are_known_in_any_order_and_until_they_leave():
    known = AckRuns()
    consumers = [2**40, 0, 2**63, 2**64 - 1, 2**40 + 200, 2**40 - 20, 2**32, 2**32 - 1]
    for number, consumer in enumerate(consumers):
        known.add(consumer, number)
    assert taken(known, consumers) == list(range(len(consumers)))
    for consumer in (0, 2**63, 2**40 + 1):
        known.remove(consumer)
    assert taken(known, consumers) == [0, 3, 4, 5, 6, 7]
    known.add(0, 9)
    assert taken(known, [0, 2**64 - 1]) == [9, 3]
    for consumer in consumers:
        known.remove(consumer)
    assert known.unused
