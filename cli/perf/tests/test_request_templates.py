"""A filled template equals the output of the codec."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.perf.request_templates import (
    REQUEST_BASE,
    AckTemplate,
    ConsumerRequests,
    Template,
    first_consumer_id,
    padded,
)
from protocol import client
from protocol import pulsar_api_pb2 as pb
from protocol.templates import varint

TOPIC = "persistent://public/default/t"


def requests(own, first_id):
    return ConsumerRequests(
        TOPIC,
        "sub",
        own=own,
        name_prefix="perf",
        sub_type=pb.CommandSubscribe.Shared,
        metadata={"vela.broadcast": "true"},
        permits=1000,
        first_id=first_id,
    )


@given(
    own=st.booleans(),
    size=st.sampled_from([10, 20_000, 3_000_000]),
    offset=st.integers(0, 9),
    index=st.integers(0, 9_999_999),
    step=st.integers(1, 14),
    at=st.integers(0, REQUEST_BASE - 1),
)
def test_requests_are_those_of_the_codec(own, size, offset, index, step, at):
    first_id = first_consumer_id(size)
    made = requests(own, first_id)
    consumer_id, request_id = first_id + offset * (size // 10), step * REQUEST_BASE + at
    consumer, request = varint(consumer_id), varint(request_id)

    assert made.metadata(request) == client.partitioned_metadata(TOPIC, request_id)
    assert made.lookup(request) == client.lookup(TOPIC, request_id)
    assert made.flow(consumer) == client.flow(consumer_id, 1000)
    assert made.flow_half(consumer) == client.flow(consumer_id, 500)
    assert made.subscribe(consumer, request, index) == client.subscribe(
        TOPIC,
        f"sub-{padded(index)}" if own else "sub",
        consumer_id,
        request_id,
        pb.CommandSubscribe.Shared,
        consumer_name=f"perf-{padded(index)}",
        metadata={"vela.broadcast": "true"},
    )


@given(
    position=st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)),
    size=st.integers(1, 3),
    data=st.data(),
)
def test_acks_are_those_of_the_codec(position, size, data):
    low, high = (0 if size == 1 else 1 << 7 * (size - 1)), (1 << 7 * size) - 1
    consumers = data.draw(st.lists(st.integers(low, high), min_size=1, max_size=5))

    acks = AckTemplate(position, size).acks([varint(consumer) for consumer in consumers])

    assert acks == b"".join(client.ack(consumer, [position]) for consumer in consumers)


def test_a_mark_that_is_not_there_is_an_error():
    for frame, marks in ((b"abc", [b"x"]), (b"xbx", [b"x"]), (b"xy", [b"y", b"x"])):
        with pytest.raises(ValueError, match="in the frame"):
            Template(frame, marks)
    assert Template(b"x%b%yx", [b"x", b"y", b"x"]).filled(b"1", b"2", b"3") == b"1%b%23"


def test_more_consumers_than_ids_of_one_size_are_refused():
    with pytest.raises(ValueError, match="consumers"):
        first_consumer_id(1 << 28)
