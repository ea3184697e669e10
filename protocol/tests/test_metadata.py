"""Looking into entries: layout, checksum, keys, batches; damaged ones give one kind of error."""

from __future__ import annotations

import zlib

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import client, metadata
from protocol import pulsar_api_pb2 as pb
from protocol.errors import RemoteProtocolError
from protocol.templates import varint

# Made by Apache Pulsar 4.0.8: SEND of the payload 01 02 03 with a key and an ordering key.
PULSAR_ENTRY = bytes.fromhex("0e011addfe9e000000140a0170100418053204613256358801019201016f010203")


def test_entry_made_by_pulsar():
    assert metadata.verify_checksum(PULSAR_ENTRY)
    parsed, payload = metadata.peek_and_payload(PULSAR_ENTRY)
    assert (parsed.producer_name, parsed.sequence_id, parsed.publish_time) == ("p", 4, 5)
    assert bytes(payload) == b"\x01\x02\x03"
    assert metadata.encode_message(parsed, bytes(payload)) == PULSAR_ENTRY


@given(st.binary(max_size=50), st.integers(0, 10**6), st.integers(1, 255))
def test_checksum_covers_metadata_and_payload(payload, place, change):
    data = bytearray(client.message(payload))
    assert metadata.verify_checksum(bytes(data))
    data[2 + place % (len(data) - 2)] ^= change
    assert not metadata.verify_checksum(bytes(data))


def test_entry_without_checksum_passes():
    data = client.message(b"x", checksum=False)
    assert metadata.verify_checksum(data)
    assert not metadata.has_checksum(data)
    assert metadata.peek(data).producer_name == "producer"


def test_checksum_cut_short_fails():
    assert not metadata.verify_checksum(b"\x0e\x01\x00")


@given(st.binary(max_size=50), st.booleans(), st.integers(0, 2**63), st.integers(0, 2**63))
def test_broker_entry_metadata_goes_in_front_and_off_again(payload, checksum, timestamp, index):
    data = client.message(payload, checksum=checksum)
    extended = metadata.add_broker_entry_metadata(data, timestamp, index)
    assert metadata.strip_broker_entry_metadata(extended) == data
    assert metadata.strip_broker_entry_metadata(data) is data
    assert metadata.verify_checksum(extended)
    assert metadata.has_checksum(extended) == checksum
    assert metadata.peek(extended) == metadata.peek(data)
    added = metadata.broker_entry_metadata(extended)
    assert added is not None
    assert (added.broker_timestamp, added.index) == (timestamp, index)
    assert metadata.broker_entry_metadata(data) is None


@settings(max_examples=200)
@given(
    st.one_of(
        st.binary(max_size=60),
        st.binary(max_size=40).map(lambda tail: b"\x0e\x01" + tail),
        st.binary(max_size=40).map(lambda tail: b"\x0e\x02\0\0\0\x03" + tail),
    )
)
def test_arbitrary_bytes_give_metadata_or_one_error(data):
    for function in (metadata.peek, metadata.verify_checksum, metadata.broker_entry_metadata):
        try:
            function(data)
        except RemoteProtocolError:
            pass
    assert data.endswith(metadata.strip_broker_entry_metadata(data))


@pytest.mark.parametrize("size", [0, 1, 2, 5, 6, 9])
def test_broker_entry_metadata_cut_short_stays(size):
    data = metadata.add_broker_entry_metadata(b"", 1, 2)[:size]
    assert metadata.strip_broker_entry_metadata(data) is data


def test_sticky_key_of_names_that_are_no_utf_8_is_made_of_replacements():
    fields = pb.MessageMetadata(producer_name="p", sequence_id=4, publish_time=1)
    damaged = pb.MessageMetadata.FromString(fields.SerializeToString().replace(b"p", b"\xff"))
    assert metadata.sticky_key(damaged) == "\ufffd-4".encode()
    fields.partition_key = "k"
    damaged = pb.MessageMetadata.FromString(fields.SerializeToString().replace(b"k", b"\xff"))
    assert metadata.sticky_key(damaged) == "\ufffd".encode()


def test_sticky_key_is_the_one_pulsar_takes():
    fields = pb.MessageMetadata(producer_name="p", sequence_id=4, publish_time=5)
    assert metadata.sticky_key(fields) == b"p-4"
    fields.partition_key = "a2V5"
    assert metadata.sticky_key(fields) == b"a2V5"
    fields.partition_key_b64_encoded = True
    assert metadata.sticky_key(fields) == b"key"
    fields.ordering_key = b"o"
    assert metadata.sticky_key(fields) == b"o"


def test_key_that_only_claims_to_be_base64_stands_for_itself():
    assert metadata.key_bytes("n\u00f6", b64_encoded=True) == "n\u00f6".encode()
    assert metadata.key_bytes(b"\xff", b64_encoded=True) == b"\xff"


def test_a_batch_of_one_is_a_batch():
    single = metadata.peek(client.batch([b"x"]))
    assert metadata.is_batch(single)
    assert metadata.message_count(single) == 1
    unbatched = metadata.peek(client.message(b"x"))
    assert not metadata.is_batch(unbatched)
    assert metadata.message_count(unbatched) == 1


EXPANSION_MAX = {pb.NONE: 1, pb.LZ4: 255, pb.ZLIB: 1032, pb.ZSTD: 2**15, pb.SNAPPY: 22}


def room_in(size, compression, uncompressed_size):
    """Bytes that a payload can stand for."""
    return min(uncompressed_size if compression else size, size * EXPANSION_MAX[compression])


def test_a_compressed_batch_has_no_more_messages_than_its_bytes_can_stand_for():
    """Its uncompressed size is only a claim."""
    fields = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    fields.uncompressed_size = 2**32 - 1
    for compression, most in EXPANSION_MAX.items():
        if compression == pb.NONE:
            continue
        fields.compression = compression
        for count, counted in ((10 * most // 6, 10 * most // 6), (10 * most // 6 + 1, 1)):
            fields.num_messages_in_batch = count
            assert metadata.count_messages(metadata.encode_message(fields, bytes(10))) == counted


def test_a_batch_of_equal_messages_has_room_however_well_it_is_compressed():
    payload = b"\0\0\0\x02\x18\0" * 100_000
    fields = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    fields.compression = pb.ZLIB
    fields.uncompressed_size = len(payload)
    fields.num_messages_in_batch = 100_000
    entry = metadata.encode_message(fields, zlib.compress(payload, 9))
    assert metadata.count_messages(entry) == 100_000


COUNTS = st.sampled_from([-(2**31), -1, 0, 1, 2, 3, 10, 2**20, 2**20 + 1, 2**31 - 1])


@given(
    COUNTS | st.none(),
    st.integers(0, 200),
    st.sampled_from([0, 1, 2, 3, 4]),
    st.sampled_from([0, 12, 60, 2**32 - 1]),
    st.sampled_from(["", "X", "\u0410X" * 100]),
    st.sampled_from([b"", metadata.MAGIC_BROKER_ENTRY_METADATA + b"\0\0\0\x02\x08\x01"]),
)
def test_messages_are_counted_as_protobuf_reads_them_where_they_have_room(
    count, payload_size, compression, uncompressed_size, text, head
):
    fields = pb.MessageMetadata(producer_name=text, sequence_id=88, publish_time=2**64 - 1)
    fields.compression = compression
    fields.uncompressed_size = uncompressed_size
    fields.properties.add(key=text, value="X")
    fields.deliver_at_time = -1
    if count is not None:
        fields.num_messages_in_batch = count
    entry = head + metadata.encode_message(fields, bytes(payload_size))
    room = room_in(payload_size, compression, uncompressed_size)
    possible = count is not None and 1 <= count <= min(2**20, room // 6)
    assert metadata.count_messages(entry) == (count if possible else 1)


def as_protobuf_reads_it(encoded, payload):
    """The count; 0 if a client would not read it; None if clients differ (groups)."""
    try:
        parsed = pb.MessageMetadata.FromString(encoded)
    except DecodeError:
        return 0
    if not parsed.IsInitialized() or parsed.HasField("marker_type"):
        return 0
    room = room_in(len(payload), parsed.compression, parsed.uncompressed_size)
    claimed = parsed.num_messages_in_batch
    return claimed if 1 <= claimed <= min(2**20, room // 6) else 1


def counted(encoded, payload):
    return metadata.count_messages(len(encoded).to_bytes(4, "big") + encoded + payload)


FULL = pb.MessageMetadata(producer_name="p", sequence_id=300, publish_time=2**41)
FULL.properties.add(key="a", value="b")
FULL.properties.add(key="", value="")
FULL.encryption_keys.add(key="k", value=b"v").metadata.add(key="m", value="n")
FULL.num_messages_in_batch = 3
FULL.partition_key = "key"
FULL.chunk_id = 2
MARKER = pb.MessageMetadata(producer_name="p", sequence_id=300, publish_time=2**41, marker_type=-1)
PLAIN = pb.MessageMetadata(producer_name="p", sequence_id=300, publish_time=2**41)


@given(
    st.sampled_from([each.SerializeToString() for each in (FULL, PLAIN, MARKER)]),
    st.lists(
        st.tuples(st.integers(0, 200), st.sampled_from(["set", "cut", "add"]), st.integers(0, 255)),
        max_size=3,
    ),
    st.binary(max_size=30),
)
def test_metadata_is_for_a_client_if_it_is_readable_and_of_no_marker(encoded, changes, payload):
    mutated = bytearray(encoded)
    for at, what, byte in changes:
        at %= len(mutated) + 1
        if what == "set":
            mutated[at : at + 1] = bytes([byte])
        elif what == "cut":
            del mutated[at : at + 1]
        else:
            mutated[at:at] = bytes([byte])
    count = counted(bytes(mutated), payload)
    if count:
        assert count == as_protobuf_reads_it(bytes(mutated), payload)
    elif not has_unusual_tags(bytes(mutated)):
        assert as_protobuf_reads_it(bytes(mutated), payload) == 0


def has_unusual_tags(encoded):
    """Groups: real brokers refuse them as well."""
    return any(byte & 7 in (3, 4) for byte in encoded)


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_any_bytes_can_be_counted(encoded, payload):
    assert counted(encoded, payload) in (0, as_protobuf_reads_it(encoded, payload))
    entry = len(encoded).to_bytes(4, "big") + encoded + payload
    assert metadata.count_messages(entry[: len(entry) // 2]) >= 0


@pytest.mark.parametrize(
    "number", [varint(2**62), varint(2**63), varint(-1), b"\xff" * 9 + b"\x7f"]
)
def test_a_number_of_64_bits_is_larger_than_any_bound(number):
    encoded = PLAIN.SerializeToString()
    assert counted(encoded + b"\x58" + number, bytes(60)) == 1
    assert counted(encoded + b"\x0a" + number, b"") == 0
    assert counted(encoded + b"\x22\x0b\x12" + number, b"") == 0
    assert counted(encoded + b"\x40" + bytes([pb.LZ4]) + b"\x48" + number + b"\x58\x0a", b"x") == 10
    assert counted(encoded + b"\x40" + number + b"\x58\x0a", bytes(60)) == 10


@pytest.mark.parametrize("field", ["producer_name", "sequence_id", "publish_time"])
def test_metadata_without_a_required_field_is_no_message(field):
    fields = pb.MessageMetadata()
    fields.CopyFrom(FULL)
    fields.ClearField(field)
    assert counted(fields.SerializePartialToString(), b"") == 0
    assert counted(FULL.SerializeToString(), bytes(18)) == 3


@pytest.mark.parametrize("value", [0, 10, 22, -1])
def test_a_marker_holds_no_message(value):
    encoded = (
        PLAIN.SerializeToString() + pb.MessageMetadata(marker_type=value).SerializePartialToString()
    )
    assert counted(encoded, b"") == 0
    assert counted(encoded.replace(b"\xa0\x01", b"\xa0\x81\x00"), b"") == 0  # a longer varint


@pytest.mark.parametrize("broken", [b"\x22\x03\x0a\x01a", b"\x6a\x03\x0a\x01a", b"\x22\x01\x0a"])
def test_a_property_or_key_that_is_not_whole_makes_metadata_unreadable(broken):
    assert counted(PLAIN.SerializeToString() + broken, b"") == 0


@pytest.mark.parametrize("data", [b"", b"\x0e", b"\x0e\x01", b"\x0e\x02\0\0", b"\0\0\0\x05abc"])
def test_an_entry_that_ends_before_its_metadata_is_unreadable(data):
    assert metadata.count_messages(data) == 0


def test_flags_of_metadata():
    plain = metadata.peek(client.message(b"x"))
    assert not metadata.is_encrypted(plain)
    assert not metadata.is_marker(plain)
    assert not metadata.is_transactional(plain)
    keys = [pb.EncryptionKeys(key="k", value=b"v")]
    marked = metadata.peek(
        client.message(
            b"", encryption_keys=keys, marker_type=22, txnid_least_bits=1, txnid_most_bits=0
        )
    )
    assert metadata.is_encrypted(marked)
    assert metadata.is_marker(marked)
    assert metadata.is_transactional(marked)


@given(st.lists(st.binary(max_size=20), max_size=8))
def test_batches_come_apart_as_they_were_put_together(payloads):
    parsed, body = metadata.peek_and_payload(client.batch(payloads, sequence_id=10))
    messages = list(metadata.batch_messages(body, parsed.num_messages_in_batch))
    assert [bytes(payload) for _, payload in messages] == payloads
    assert [single.sequence_id for single, _ in messages] == [
        10 + index for index in range(len(payloads))
    ]


@given(st.binary(max_size=60), st.integers(0, 5))
def test_arbitrary_batch_payloads_give_messages_or_one_error(payload, count):
    try:
        list(metadata.batch_messages(payload, count))
    except RemoteProtocolError:
        pass


def test_a_message_of_twenty_thousand_properties_is_read():
    properties = {f"property-{number}": "value" * 5 for number in range(20_000)}
    parsed = metadata.peek(client.message(b"x", properties=properties))
    assert len(parsed.properties) == 20_000


def test_only_messages_of_a_batch_that_are_unacked_are_received():
    data = client.batch([b"a", b"b", b"c"])
    command = pb.BaseCommand(type=pb.BaseCommand.MESSAGE)
    command.message.consumer_id = 1
    command.message.message_id.ledgerId = 1
    command.message.message_id.entryId = 2
    assert [m.payload for m in client.received_messages(command, data)] == [b"a", b"b", b"c"]
    command.message.ack_set.append(0b101)
    messages = client.received_messages(command, data)
    assert [(m.payload, m.message_id.batch_index) for m in messages] == [(b"a", 0), (b"c", 2)]


def test_truncated_entry_is_refused_with_its_size():
    with pytest.raises(RemoteProtocolError, match="of 7 bytes"):
        metadata.peek(b"\0\0\0\x09abc")
