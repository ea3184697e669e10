"""A request read from its bytes is the one that protobuf reads, or it is left to protobuf."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from protocol import client
from protocol import pulsar_api_pb2 as pb
from protocol.decoding import COMMAND_FIELDS, decode_command
from protocol.errors import RemoteProtocolError
from protocol.long_commands import FIELDS_MAX, LONG_COMMAND_BYTES
from protocol.plain_requests import read_request
from protocol.request_frames import REQUEST_BYTES_PER_SLICE, REQUESTS_PER_SLICE, RequestDecoder
from protocol.requests import REQUESTS, Flow, Subscribe
from protocol.templates import varint
from protocol.tests.frame_values import value_of

T = pb.BaseCommand
NUMBERS = st.one_of(
    st.integers(0, 300),
    st.sampled_from([2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1]),
)
TEXTS = st.one_of(st.text("ab/:-. \0\x7f", max_size=12), st.text(max_size=4))
SMALL = st.sampled_from([-(2**31), -1, 0, 1, 300, 2**31 - 1])
OPTIONS = {
    "consumer_name": TEXTS,
    "priority_level": SMALL,
    "durable": st.booleans(),
    "read_compacted": st.booleans(),
    "initialPosition": st.sampled_from([0, 1]),
    "replicate_subscription_state": st.booleans(),
    "force_topic_creation": st.booleans(),
    "start_message_rollback_duration_sec": NUMBERS,
    "consumer_epoch": NUMBERS,
    "metadata": st.dictionaries(TEXTS, TEXTS, max_size=3),
    "subscription_properties": st.dictionaries(TEXTS, TEXTS, max_size=1),
    "start_message_id": st.tuples(st.integers(-1, 5), st.integers(-1, 5)),
    "schema": st.just(pb.Schema(name="s", type=2, schema_data=b"x")),
    "sticky_ranges": st.just([(0, 5)]),
}
SUBSCRIBE_OPTIONS = st.fixed_dictionaries({}, optional=OPTIONS)
USUAL = frozenset(OPTIONS) - {
    "start_message_rollback_duration_sec",
    "subscription_properties",
    "start_message_id",
    "schema",
    "sticky_ranges",
}
REQUEST_FRAMES = st.one_of(
    st.just(client.ping()),
    st.builds(client.flow, NUMBERS, st.integers(0, 2**32 - 1)),
    st.builds(client.close_consumer, NUMBERS, NUMBERS),
    st.builds(
        lambda topic, number, options: client.partitioned_metadata(topic, number, **options),
        TEXTS,
        NUMBERS,
        st.fixed_dictionaries(
            {},
            optional={
                "metadata_auto_creation_enabled": st.booleans(),
                "original_principal": TEXTS,
            },
        ),
    ),
    st.builds(
        lambda topic, number, options: client.lookup(topic, number, **options),
        TEXTS,
        NUMBERS,
        st.fixed_dictionaries(
            {},
            optional={
                "authoritative": st.booleans(),
                "original_auth_data": TEXTS,
                "advertised_listener_name": TEXTS,
            },
        ),
    ),
    st.builds(
        lambda topic, name, kind, consumer, request, options: client.subscribe(
            topic, name, consumer, request, kind, **options
        ),
        TEXTS,
        TEXTS,
        st.sampled_from([0, 1, 2, 3]),
        NUMBERS,
        NUMBERS,
        SUBSCRIBE_OPTIONS,
    ),
)


def by_protobuf(encoded):
    """The request that protobuf reads. Raises: RemoteProtocolError."""
    command = decode_command(encoded)
    return REQUESTS[command.type](getattr(command, COMMAND_FIELDS[command.type]))


def same(plain, parsed):
    """Whether they say the same. The plain one may be said to be a little larger than it is."""
    if isinstance(plain, Subscribe):
        assert plain.size_bytes >= parsed.size_bytes
        parsed.size_bytes = plain.size_bytes
    return value_of(plain) == value_of(parsed)


def check(encoded):
    """A plain reader that reads it reads what protobuf reads, wherever it stands."""
    plain = read_request(b"junk" + encoded + b"more", 4, 4 + len(encoded))
    assert (plain is None) == (read_request(encoded, 0, len(encoded)) is None)
    if plain is not None:
        assert same(plain, by_protobuf(encoded))
    return plain


@settings(max_examples=400)
@given(REQUEST_FRAMES)
def test_both_read_the_same(frame):
    check(frame[8:])


@given(
    st.text("abc:/", min_size=1, max_size=20),
    st.integers(0, 2**63 - 1),
    st.fixed_dictionaries({}, optional={name: OPTIONS[name] for name in sorted(USUAL)}),
)
def test_a_usual_subscribe_needs_no_protobuf(topic, number, options):
    frame = client.subscribe(topic, "s", number, number, **options)
    texts = [options.get("consumer_name", ""), *options.get("metadata", {})]
    texts += options.get("metadata", {}).values()
    is_usual = (
        all(map(str.isascii, texts))
        and options.get("priority_level", 0) >= 0
        and options.get("consumer_epoch", 0) < 2**63
    )
    assert (check(frame[8:]) is not None) == is_usual


@pytest.mark.parametrize(
    "frame",
    [
        client.ping(),
        client.flow(7, 1000),
        client.close_consumer(7, 8),
        client.lookup("persistent://public/default/t", 9, authoritative=False),
        client.lookup("t", 2**63 - 1, advertised_listener_name="outside"),
        client.partitioned_metadata("t", 9, metadata_auto_creation_enabled=False),
    ],
)
def test_other_usual_requests_need_no_protobuf(frame):
    assert check(frame[8:]) is not None


VALUES = st.one_of(
    st.integers(0, 5).map(varint),
    NUMBERS.map(varint),
    st.sampled_from([-1, -(2**31), -(2**63)]).map(varint),
    # Longer than needed, and too long.
    st.sampled_from([b"\x80\x00", b"\x81\x80\x00", b"\xff" * 9 + b"\x01", b"\xff" * 10 + b"\x01"]),
    st.sampled_from([b"\x80" * 9 + b"\x00", b"\x80" * 9 + b"\x02", b"\x80"]),
)


def tagged(number, wire_type, content):
    return varint(number << 3 | wire_type) + content


def sized(content):
    return varint(len(content)) + content


TEXT_BYTES = st.one_of(st.sampled_from([b"", b"t", b"name", b"\xff", "é".encode()]))
KEY_VALUES = st.lists(
    st.tuples(st.sampled_from([1, 2, 3]), TEXT_BYTES).map(
        lambda pair: tagged(pair[0], 2, sized(pair[1]))
    ),
    max_size=3,
).map(b"".join)
FIELDS = st.one_of(
    st.builds(tagged, st.integers(1, 20), st.just(0), VALUES),
    st.builds(tagged, st.integers(1, 20), st.just(2), TEXT_BYTES.map(sized)),
    st.builds(tagged, st.sampled_from([8, 10, 18]), st.just(2), KEY_VALUES.map(sized)),
    st.sampled_from([b"\x0b\x0c", b"\x0b", b"\x0d\0\0\0\0", b"\x09" + bytes(8), b"\x8a\x00\x01t"]),
)
CONTENTS = {
    T.PING: b"",
    T.FLOW: b"\x08\x01\x10\x05",
    T.CLOSE_CONSUMER: b"\x08\x01\x10\x05",
    T.LOOKUP: b"\x0a\x01t\x10\x05",
    T.PARTITIONED_METADATA: b"\x0a\x01t\x10\x05",
    T.SUBSCRIBE: b"\x0a\x01t\x12\x01s\x18\x00\x20\x07\x28\x08",
}


@settings(max_examples=600)
@given(
    st.sampled_from(sorted(CONTENTS)),
    st.lists(FIELDS, max_size=3),
    st.lists(FIELDS, max_size=4),
    st.booleans(),
)
@example(T.FLOW, [], [b"\x08\x05"], True)
@example(T.SUBSCRIBE, [], [b"\x52\x02\x0a\x00"], True)
def test_extreme_and_odd_fields_mean_what_they_mean_to_protobuf(kind, before, after, has_usual):
    """Negative and huge numbers, overlong ones, groups, fields twice, out of order or unknown."""
    content = b"".join(before) + CONTENTS[kind] * has_usual + b"".join(after)
    encoded = b"\x08" + varint(kind) + tagged(kind, 2, sized(content))
    check(encoded)
    for more in (b"\x08\x12", b"\xfa\x01\x00"):
        check(encoded + more)


@given(
    REQUEST_FRAMES.map(lambda frame: frame[8:]),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3),
    st.integers(0, 6),
    st.binary(max_size=4),
)
def test_any_bytes_are_the_same_request_or_the_parsers(encoded, damage, cut, more):
    changed = bytearray(encoded)
    for at, byte in damage:
        if at < len(changed):
            changed[at] = byte
    check(bytes(changed[: max(0, len(changed) - cut)]) + more)


@settings(max_examples=300)
@given(st.binary(max_size=60))
def test_arbitrary_bytes(data):
    check(data)
    check(b"\x08\x04\x22" + sized(data))


def test_a_subscribe_with_very_many_properties_is_bounded_like_any_long_command():
    """170,000 properties of one plain SUBSCRIBE were looked at in one turn."""
    usual = client.subscribe("t", "s", 1, 2, metadata={str(at): "" for at in range(100)})
    assert len(usual) - 8 > LONG_COMMAND_BYTES
    assert read_request(usual, 8, len(usual)) is None
    (read,) = RequestDecoder().feed(usual)
    assert len(read.metadata) == 100
    many = client.subscribe("t", "s", 1, 2, metadata={str(at): "" for at in range(FIELDS_MAX)})
    with pytest.raises(RemoteProtocolError, match="more than"):
        RequestDecoder().feed(many)


def slices(data):
    decoder = RequestDecoder()
    found = [decoder.feed(data)]
    while decoder.is_left:
        found.append(decoder.more())
    assert decoder.failure is None
    return found


def test_a_megabyte_of_tiny_requests_is_read_in_slices():
    """A connection with a producer decoded all of it in one turn of 19 ms."""
    one = client.flow(1, 1)
    count = (1 << 20) // len(one)
    found = slices(one * count)
    assert sum(map(len, found)) == count
    assert {len(each) for each in found[:-1]} == {REQUESTS_PER_SLICE}
    assert all(isinstance(each, Flow) for part in found for each in part)


def test_large_requests_fill_a_slice_sooner():
    one = client.subscribe("t", "s", 1, 2, metadata={str(at): "" for at in range(1_000)})
    found = slices(one * 40)
    assert sum(map(len, found)) == 40
    assert max(map(len, found)) <= REQUEST_BYTES_PER_SLICE // len(one) + 1


def test_messages_between_requests_fill_no_slice():
    send = client.send(1, 2, client.message(b"x"))
    found = slices((send + send + client.flow(1, 1)) * (REQUESTS_PER_SLICE - 1))
    assert len(found) == 1


@settings(max_examples=60)
@given(st.lists(REQUEST_FRAMES, max_size=150), st.integers(1, 2_000))
def test_slices_lose_and_change_nothing(frames, piece):
    data = b"".join(frames)
    decoder = RequestDecoder()
    found = []
    for at in range(0, len(data), piece):
        found += decoder.feed(data[at : at + piece])
        while decoder.is_left:
            found += decoder.more()
    alone = [each for frame in frames for each in RequestDecoder().feed(frame)]
    assert list(map(value_of, found)) == list(map(value_of, alone))


def test_what_comes_before_a_violation_in_a_later_slice_is_read():
    decoder = RequestDecoder()
    found = decoder.feed(client.ping() * (REQUESTS_PER_SLICE + 3) + b"\xff" * 8)
    while decoder.is_left:
        found += decoder.more()
    assert len(found) == REQUESTS_PER_SLICE + 3
    assert decoder.failure is not None
