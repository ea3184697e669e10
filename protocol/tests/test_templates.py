"""The byte templates write what protobuf writes."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from native.broadcast import message_frames
from protocol import commands
from protocol import pulsar_api_pb2 as pb
from protocol.frames import encode_frame
from protocol.templates import (
    UINT64_MAX,
    epoch_option,
    message_head,
    message_rest,
    message_run_frames,
    send_receipt,
)

UINT64 = st.one_of(
    st.integers(0, 300),
    st.sampled_from([127, 128, 16383, 16384, 2**28 - 1, 2**28, 2**35, 2**63, UINT64_MAX]),
    st.integers(0, UINT64_MAX),
)
PARTITION = st.integers(-1, 2**31 - 1)


@given(UINT64, UINT64, UINT64, UINT64, UINT64)
def test_send_receipt_equals_protobuf(producer_id, sequence_id, highest, ledger_id, entry_id):
    command = pb.BaseCommand(type=pb.BaseCommand.SEND_RECEIPT)
    receipt = command.send_receipt
    receipt.producer_id = producer_id
    receipt.sequence_id = sequence_id
    receipt.message_id.ledgerId = ledger_id
    receipt.message_id.entryId = entry_id
    receipt.highest_sequence_id = highest
    assert send_receipt(producer_id, sequence_id, highest, ledger_id, entry_id) == encode_frame(
        command
    )


def test_send_receipt_takes_minus_one_for_no_highest_sequence_id():
    assert send_receipt(1, 2, -1, 3, 4) == send_receipt(1, 2, UINT64_MAX, 3, 4)


def message_frame(
    consumer_id, ledger_id, entry_id, partition, redelivery_count, payload, ack_set, epoch
):
    command = pb.BaseCommand(type=pb.BaseCommand.MESSAGE)
    message = command.message
    message.consumer_id = consumer_id
    message.message_id.ledgerId = ledger_id
    message.message_id.entryId = entry_id
    message.message_id.partition = partition
    if redelivery_count:
        message.redelivery_count = redelivery_count
    message.ack_set.extend(ack_set)
    if epoch is not None:
        message.consumer_epoch = epoch
    return encode_frame(command, payload)


@given(
    UINT64,
    UINT64,
    UINT64,
    PARTITION,
    st.integers(0, 2**32 - 1),
    st.binary(min_size=1, max_size=40),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20),
    st.none() | UINT64,
)
def test_message_head_equals_protobuf(
    consumer_id, ledger_id, entry_id, partition, redelivery_count, payload, ack_set, epoch
):
    head = message_head(
        consumer_id,
        ledger_id,
        entry_id,
        partition,
        redelivery_count,
        len(payload),
        ack_set,
        epoch,
    )
    assert head + payload == message_frame(
        consumer_id, ledger_id, entry_id, partition, redelivery_count, payload, ack_set, epoch
    )


@given(
    st.lists(UINT64, min_size=1, max_size=8),
    UINT64,
    UINT64,
    PARTITION,
    st.one_of(st.none(), UINT64),
    st.binary(max_size=9),
)
def test_a_strip_of_frames_has_the_head_of_every_consumer(
    consumer_ids, ledger_id, entry_id, partition, epoch, payload
):
    rest = message_rest(ledger_id, entry_id, partition, epoch_option(epoch))
    slots = array("i", reversed(range(len(consumer_ids))))
    frames = message_frames(slots, array("Q", consumer_ids), rest, payload)
    size = len(payload)
    assert frames[::2] == [
        message_head(each, ledger_id, entry_id, partition, 0, size, (), epoch)
        for each in reversed(consumer_ids)
    ]
    assert frames[1::2] == [payload] * len(slots)


@given(
    UINT64,
    UINT64,
    PARTITION,
    st.none() | UINT64,
    st.lists(st.tuples(UINT64, st.binary(max_size=20)), max_size=5),
    st.sampled_from([1, 1_000]),
)
def test_the_frames_of_a_run_are_those_of_its_entries(
    consumer_id, ledger_id, partition, epoch, entries, times
):
    entries = [(entry_id, times * data) for entry_id, data in entries]
    expected = [
        message_head(consumer_id, ledger_id, each, partition, 0, len(data), (), epoch) + data
        for each, data in entries
    ]
    entry_ids = [each for each, _ in entries]
    payloads = [data for _, data in entries]
    size_bytes = sum(map(len, payloads))
    buffers = message_run_frames(
        consumer_id, ledger_id, entry_ids, partition, payloads, size_bytes, epoch
    )
    assert b"".join(buffers) == b"".join(expected)


def test_large_payloads_of_a_run_are_not_copied():
    payloads = [bytes(10_000), bytes(20_000)]
    buffers = message_run_frames(1, 2, [3, 4], -1, payloads, 30_000)
    assert [each for each in buffers if len(each) > 100] == payloads
    assert any(each is payloads[0] for each in buffers)


@given(UINT64, st.integers(0, 2**31 - 1), st.text(max_size=200), st.booleans(), st.booleans())
def test_answers_to_requests_equal_protobuf(request_id, partitions, url, authoritative, proxy):
    command = pb.BaseCommand(type=pb.BaseCommand.SUCCESS)
    command.success.request_id = request_id
    assert commands.success(request_id) == encode_frame(command)

    command = pb.BaseCommand(type=pb.BaseCommand.PARTITIONED_METADATA_RESPONSE)
    metadata = command.partitionMetadataResponse
    metadata.request_id, metadata.partitions = request_id, partitions
    metadata.response = pb.CommandPartitionedTopicMetadataResponse.Success
    assert commands.partitioned_metadata(request_id, partitions) == encode_frame(command)

    command = pb.BaseCommand(type=pb.BaseCommand.LOOKUP_RESPONSE)
    lookup = command.lookupTopicResponse
    lookup.request_id, lookup.brokerServiceUrl, lookup.authoritative = (
        request_id,
        url,
        authoritative,
    )
    lookup.response = pb.CommandLookupTopicResponse.Connect
    lookup.proxy_through_service_url = proxy
    answer = commands.lookup_connect(
        request_id, url, authoritative=authoritative, proxy_through_service_url=proxy
    )
    assert answer == encode_frame(command)
