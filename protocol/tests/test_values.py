"""Hashes, bit sets and message ids: the forms that clients, disk and the admin API agree on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import ack_set, hashing, message_id
from protocol import pulsar_api_pb2 as pb
from protocol.errors import RemoteProtocolError
from protocol.message_id import MessageId
from protocol.position import EARLIEST, LATEST

MURMUR = [
    ("vehicle-0", 1708174597, 44293, 4823),
    ("vehicle-1", 2348527311, 44751, 47819),
    ("vehicle-2", 3663786027, 61483, 19085),
    ("vehicle-3", 3688641281, 13057, 36574),
    ("road-7", 3592296922, 6618, 28665),
    ("é", 269551495, 1927, 6041),
]


@pytest.mark.parametrize(("key", "whole", "slot", "slot_on_ring"), MURMUR)
def test_key_hashes(key, whole, slot, slot_on_ring):
    encoded = key.encode()
    assert hashing.key_hash(encoded) == whole & 0x7FFFFFFF
    assert hashing.key_slot(encoded) == slot
    assert hashing.key_slot_on_ring(encoded) == slot_on_ring
    assert hashing.partition_by_murmur3(key, 10) == (whole & 0x7FFFFFFF) % 10


def test_the_slot_that_means_no_hash_is_given_to_no_key():
    assert {hashing.key_slot(b"%d" % number, 2) for number in range(64)} == {1}
    assert {hashing.key_slot_on_ring(b"%d" % number, 3) for number in range(64)} == {1, 2}


def test_java_string_hash():
    assert hashing.java_string_hash("") == 0
    assert hashing.java_string_hash("hello") == 99162322
    assert hashing.java_string_hash("polygenelubricants") == -(2**31)
    assert hashing.java_string_hash("é") == 233
    assert hashing.java_string_hash("\U0001f600") == 0xD83D * 31 + 0xDE00
    assert hashing.partition_by_java_string_hash("polygenelubricants", 7) == 0


@given(st.integers(0, 2**200))
def test_ack_sets_round_trip(bits):
    words = ack_set.to_words(bits)
    assert ack_set.from_words(words) == bits
    assert not words or words[-1] != 0


def test_ack_set_words_are_those_of_java():
    assert ack_set.to_words(0) == ()
    assert ack_set.to_words(1 << 63) == (-(2**63),)
    assert ack_set.to_words((1 << 64) | 5) == (5, 1)
    assert ack_set.from_words((5, 0, 0)) == 5
    assert ack_set.all_unacked(3) == 0b111
    assert ack_set.without(0b111, 1) == 0b101


IDS = st.integers(-1, 2**63 - 1)


@given(st.builds(MessageId, IDS, IDS, st.integers(-1, 9), st.integers(-1, 9), st.just(())))
def test_message_ids_round_trip(identifier):
    assert message_id.from_wire(message_id.to_wire(identifier)) == identifier
    assert message_id.from_bytes(message_id.to_bytes(identifier)) == identifier
    assert message_id.from_json(message_id.to_json(identifier)) == identifier
    assert message_id.parse_text(str(identifier)) == identifier


def test_the_two_special_positions():
    earliest = pb.MessageIdData(ledgerId=2**64 - 1, entryId=2**64 - 1)
    assert message_id.position_of(earliest) == EARLIEST
    latest = pb.MessageIdData(ledgerId=2**63 - 1, entryId=2**63 - 1)
    assert message_id.position_of(latest) == LATEST
    assert message_id.parse_text("latest").position == LATEST
    assert message_id.parse_text("earliest").position == EARLIEST


def test_json_of_other_clients_is_understood():
    fields = {"ledgerId": 1, "entryId": 2, "partitionIndex": 3, "acker": {"x": 1}}
    assert message_id.from_json(fields) == MessageId(1, 2, 3)
    for wrong in (
        {"ledgerId": 1},
        {"ledgerId": "one", "entryId": 2},
        {"ledgerId": 1, "entryId": True},
    ):
        with pytest.raises(ValueError, match=r"entryId|ledgerId"):
            message_id.from_json(wrong)


@given(st.binary(max_size=30))
def test_arbitrary_bytes_are_a_message_id_or_refused(data):
    try:
        message_id.from_bytes(data)
    except RemoteProtocolError:
        pass
