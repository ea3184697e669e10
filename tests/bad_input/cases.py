"""Wrong input of every kind, and what Apache Pulsar 4.0.8 answers to it.

A case is a function that misbehaves on a connection of its own; its outcome is what the broker
sent, and whether the connection is served afterwards. `python -m tests.bad_input.cases URL` prints
the outcomes of any broker: that is how the expected ones were found.
"""

from __future__ import annotations

import sys
from struct import pack
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from protocol import client as wire
from protocol import pulsar_api_pb2 as pb
from tests.bad_input.raw_connection import RawConnection

if TYPE_CHECKING:
    from collections.abc import Callable

Type = pb.BaseCommand

NEEDS_NO_CONNECT: Final[dict[str, Callable[[RawConnection], None]]] = {}
NEEDS_CONNECT: Final[dict[str, Callable[[RawConnection], None]]] = {}


def topic() -> str:
    """One that no other case uses."""
    return f"persistent://public/default/bad-input-{uuid4().hex[:12]}"


def topic_looked_up(connection: RawConnection) -> str:
    """One that this broker owns from now on."""
    full = topic()
    connection.send(wire.lookup(full, connection.request_id()))
    connection.expect(Type.LOOKUP_RESPONSE)
    connection.seen.clear()
    return full


def before_connect(
    case: Callable[[RawConnection], None],
) -> Callable[[RawConnection], None]:
    """Registers a case that starts with a connection on which nothing was said."""
    NEEDS_NO_CONNECT[case.__name__] = case
    return case


def connected(case: Callable[[RawConnection], None]) -> Callable[[RawConnection], None]:
    """Registers a case that starts after CONNECT."""
    NEEDS_CONNECT[case.__name__] = case
    return case


def with_producer(connection: RawConnection) -> str:
    """Producer 1 on a topic of its own."""
    full = topic_looked_up(connection)
    connection.send(wire.producer(full, 1, connection.request_id()))
    connection.expect(Type.PRODUCER_SUCCESS)
    connection.seen.clear()
    return full


def with_consumer(connection: RawConnection) -> str:
    """Consumer 1 on a topic of its own, without permits."""
    full = topic_looked_up(connection)
    connection.send(wire.subscribe(full, "s", 1, connection.request_id()))
    connection.expect(Type.SUCCESS)
    connection.seen.clear()
    return full


# Frames


@before_connect
def another_protocol(connection: RawConnection) -> None:
    connection.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")


@before_connect
def frame_of_nothing(connection: RawConnection) -> None:
    connection.send(bytes(8))


@before_connect
def frame_size_over_the_limit(connection: RawConnection) -> None:
    connection.send(pack(">II", 5 * 1024 * 1024 + 20 * 1024, 10), bytes(100))


@before_connect
def negative_frame_size(connection: RawConnection) -> None:
    connection.send(pack(">iI", -1, 10), bytes(100))


@before_connect
def half_a_frame(connection: RawConnection) -> None:
    connection.send(wire.connect()[:9])


@connected
def command_larger_than_its_frame(connection: RawConnection) -> None:
    connection.send(pack(">II", 8, 1000), b"\x08\x12\x92\x01")


@connected
def command_that_is_no_protobuf(connection: RawConnection) -> None:
    connection.send(pack(">II", 12, 8), b"\xff" * 8)


@connected
def command_of_unknown_type(connection: RawConnection) -> None:
    connection.send(pack(">II", 7, 3), b"\x08\xf8\x07")


@connected
def command_without_its_content(connection: RawConnection) -> None:
    connection.send(pack(">II", 6, 2), bytes([8, Type.LOOKUP]))


@connected
def command_that_lacks_a_required_field(connection: RawConnection) -> None:
    command = Type(type=Type.LOOKUP)
    command.lookupTopic.topic = topic()
    encoded = command.SerializePartialToString()
    connection.send(pack(">II", 4 + len(encoded), len(encoded)), encoded)


@connected
def command_only_a_broker_sends(connection: RawConnection) -> None:
    command = Type(type=Type.SUCCESS)
    command.success.request_id = 1
    encoded = command.SerializeToString()
    connection.send(pack(">II", 4 + len(encoded), len(encoded)), encoded)


# Before and after CONNECT


@before_connect
def lookup_before_connect(connection: RawConnection) -> None:
    connection.send(wire.lookup(topic(), 1))


@before_connect
def producer_before_connect(connection: RawConnection) -> None:
    connection.send(wire.producer(topic(), 1, 1))


@before_connect
def send_before_connect(connection: RawConnection) -> None:
    connection.send(wire.send(1, 0, wire.message(b"x")))


@before_connect
def flow_before_connect(connection: RawConnection) -> None:
    connection.send(wire.flow(1, 10))


@connected
def connect_twice(connection: RawConnection) -> None:
    connection.send(wire.connect())


# Names


@connected
def lookup_of_an_invalid_topic(connection: RawConnection) -> None:
    connection.send(wire.lookup("persistent://public", connection.request_id()))


@connected
def metadata_of_an_invalid_topic(connection: RawConnection) -> None:
    connection.send(wire.partitioned_metadata("persistent://a/b", connection.request_id()))


@connected
def producer_on_an_invalid_topic(connection: RawConnection) -> None:
    connection.send(wire.producer("nonsense://a/b/c", 1, connection.request_id()))


@connected
def subscribe_to_an_invalid_topic(connection: RawConnection) -> None:
    connection.send(wire.subscribe("nonsense://a/b/c", "s", 1, connection.request_id()))


@connected
def producer_in_an_unknown_namespace(connection: RawConnection) -> None:
    name = "persistent://public/no-such-namespace/t"
    connection.send(wire.producer(name, 1, connection.request_id()))


@connected
def lookup_in_an_unknown_namespace(connection: RawConnection) -> None:
    name = "persistent://public/no-such-namespace/t"
    connection.send(wire.lookup(name, connection.request_id()))


@connected
def subscribe_without_a_name(connection: RawConnection) -> None:
    full = topic_looked_up(connection)
    connection.send(wire.subscribe(full, "", 1, connection.request_id()))


# Ids that the connection does not have


@connected
def send_of_an_unknown_producer(connection: RawConnection) -> None:
    connection.send(wire.send(99, 0, wire.message(b"x")))


@connected
def close_of_an_unknown_producer(connection: RawConnection) -> None:
    connection.send(wire.close_producer(99, connection.request_id()))


@connected
def flow_of_an_unknown_consumer(connection: RawConnection) -> None:
    connection.send(wire.flow(99, 10))


@connected
def ack_of_an_unknown_consumer(connection: RawConnection) -> None:
    connection.send(wire.ack(99, [(1, 1)], request_id=connection.request_id()))


@connected
def redelivery_to_an_unknown_consumer(connection: RawConnection) -> None:
    connection.send(wire.redeliver_unacknowledged(99))


@connected
def seek_of_an_unknown_consumer(connection: RawConnection) -> None:
    connection.send(wire.seek(99, connection.request_id(), (1, 1)))


@connected
def unsubscribe_of_an_unknown_consumer(connection: RawConnection) -> None:
    connection.send(wire.unsubscribe(99, connection.request_id()))


@connected
def last_message_id_of_an_unknown_consumer(connection: RawConnection) -> None:
    connection.send(wire.get_last_message_id(99, connection.request_id()))


@connected
def statistics_of_an_unknown_consumer(connection: RawConnection) -> None:
    connection.send(wire.consumer_stats(99, connection.request_id()))


@connected
def close_of_an_unknown_consumer(connection: RawConnection) -> None:
    connection.send(wire.close_consumer(99, connection.request_id()))


@connected
def producer_id_twice(connection: RawConnection) -> None:
    full = with_producer(connection)
    connection.send(wire.producer(full, 1, connection.request_id(), producer_name="another"))


@connected
def producer_name_twice(connection: RawConnection) -> None:
    full = topic_looked_up(connection)
    connection.send(wire.producer(full, 1, connection.request_id(), producer_name="same"))
    connection.expect(Type.PRODUCER_SUCCESS)
    connection.seen.clear()
    connection.send(wire.producer(full, 2, connection.request_id(), producer_name="same"))


@connected
def consumer_id_twice(connection: RawConnection) -> None:
    full = with_consumer(connection)
    connection.send(wire.subscribe(full, "s", 1, connection.request_id()))


@connected
def second_exclusive_consumer(connection: RawConnection) -> None:
    full = with_consumer(connection)
    connection.send(wire.subscribe(full, "s", 2, connection.request_id()))


@connected
def consumer_of_another_type(connection: RawConnection) -> None:
    full = with_consumer(connection)
    shared = pb.CommandSubscribe.Shared
    connection.send(wire.subscribe(full, "s", 2, connection.request_id(), shared))


# Messages


@connected
def wrong_checksum(connection: RawConnection) -> None:
    with_producer(connection)
    message = bytearray(wire.message(b"hello"))
    message[-1] ^= 1
    connection.send(wire.send(1, 0, bytes(message)))


@connected
def wrong_checksum_then_a_good_message(connection: RawConnection) -> None:
    wrong_checksum(connection)
    connection.send(wire.send(1, 1, wire.message(b"good", sequence_id=1)))


@connected
def message_over_the_limit(connection: RawConnection) -> None:
    with_producer(connection)
    connection.send(wire.send(1, 0, wire.message(bytes(5 * 1024 * 1024 + 100))))


@connected
def message_over_the_frame_limit(connection: RawConnection) -> None:
    with_producer(connection)
    connection.send(wire.send(1, 0, wire.message(bytes(5 * 1024 * 1024 + 20 * 1024))))


@connected
def send_without_message(connection: RawConnection) -> None:
    with_producer(connection)
    connection.send(wire.send(1, 0, b""))


@connected
def send_of_a_single_byte(connection: RawConnection) -> None:
    with_producer(connection)
    connection.send(wire.send(1, 0, b"a"))


@connected
def send_of_half_a_checksum(connection: RawConnection) -> None:
    with_producer(connection)
    connection.send(wire.send(1, 0, b"\x0e\x01\0"))


@connected
def metadata_larger_than_the_message(connection: RawConnection) -> None:
    with_producer(connection)
    connection.send(wire.send(1, 0, pack(">I", 1000) + b"abcdefgh"))


@connected
def metadata_that_is_no_protobuf(connection: RawConnection) -> None:
    with_producer(connection)
    connection.send(wire.send(1, 0, pack(">I", 8) + b"\xff" * 8 + b"payload"))


@connected
def metadata_that_lacks_required_fields(connection: RawConnection) -> None:
    with_producer(connection)
    metadata = pb.MessageMetadata(sequence_id=0)
    encoded = metadata.SerializePartialToString()
    connection.send(wire.send(1, 0, pack(">I", len(encoded)) + encoded + b"payload"))


@connected
def negative_number_of_messages(connection: RawConnection) -> None:
    with_producer(connection)
    connection.send(wire.send(1, 0, wire.message(b"x"), num_messages=-5))


@connected
def message_after_the_producer_is_closed(connection: RawConnection) -> None:
    with_producer(connection)
    connection.send(
        wire.close_producer(1, connection.request_id()),
        wire.send(1, 0, wire.message(b"x")),
    )


# Consumers


@connected
def flow_of_no_permits(connection: RawConnection) -> None:
    with_consumer(connection)
    connection.send(wire.flow(1, 0))


@connected
def flow_of_too_many_permits(connection: RawConnection) -> None:
    with_consumer(connection)
    connection.send(wire.flow(1, 2**32 - 1))


@connected
def ack_of_messages_that_do_not_exist(connection: RawConnection) -> None:
    with_consumer(connection)
    connection.send(
        wire.ack(1, [(2**62, 5), (-1, -1), (0, 2**62)], request_id=connection.request_id())
    )


@connected
def cumulative_ack_of_a_message_that_does_not_exist(connection: RawConnection) -> None:
    with_consumer(connection)
    request_id = connection.request_id()
    connection.send(wire.ack(1, [(2**62, 5)], cumulative=True, request_id=request_id))


@connected
def cumulative_ack_of_two_messages(connection: RawConnection) -> None:
    with_consumer(connection)
    request_id = connection.request_id()
    connection.send(wire.ack(1, [(1, 1), (1, 2)], cumulative=True, request_id=request_id))


@connected
def cumulative_ack_on_a_shared_subscription(connection: RawConnection) -> None:
    shared = pb.CommandSubscribe.Shared
    full = topic_looked_up(connection)
    connection.send(wire.subscribe(full, "s", 1, connection.request_id(), shared))
    connection.expect(Type.SUCCESS)
    connection.seen.clear()
    request_id = connection.request_id()
    connection.send(wire.ack(1, [(1, 1)], cumulative=True, request_id=request_id))


@connected
def ack_of_nothing(connection: RawConnection) -> None:
    with_consumer(connection)
    connection.send(wire.ack(1, [], request_id=connection.request_id()))


@connected
def redelivery_of_messages_that_do_not_exist(connection: RawConnection) -> None:
    with_consumer(connection)
    connection.send(wire.redeliver_unacknowledged(1, [(2**62, 5), (-1, -1)]))


@connected
def seek_to_nowhere(connection: RawConnection) -> None:
    with_consumer(connection)
    connection.send(wire.seek(1, connection.request_id()))


@connected
def schema_version_of_odd_length(connection: RawConnection) -> None:
    connection.send(wire.get_schema(topic(), connection.request_id(), b"abc"))


def run_case(
    service_url: str,
    name: str,
    is_whole: Callable[[tuple[str, ...]], bool] = lambda _seen: True,
) -> tuple[tuple[str, ...], list[str]]:
    """(outcome, error messages) of one case; it is waited for longer until `is_whole`."""
    with RawConnection(service_url) as connection:
        if name in NEEDS_NO_CONNECT:
            NEEDS_NO_CONNECT[name](connection)
            outcome = connection.outcome(is_connected=False, wait_seconds=1.0, is_whole=is_whole)
            return outcome, connection.texts
        connection.connect()
        NEEDS_CONNECT[name](connection)
        return connection.outcome(is_whole=is_whole), connection.texts


if __name__ == "__main__":
    for case_name in [*NEEDS_NO_CONNECT, *NEEDS_CONNECT]:
        found, messages = run_case(sys.argv[1], case_name)
        print(f"    {case_name!r}: {found!r},")
        for text in messages:
            print(f"    # {text}")
