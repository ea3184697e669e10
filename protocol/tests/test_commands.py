"""We send the bytes that Apache Pulsar 4.0.8 sends: the vectors come from its own classes."""

from __future__ import annotations

import pytest

from protocol import client, commands
from protocol import pulsar_api_pb2 as pb
from protocol.errors import LocalProtocolError
from protocol.frames import FrameDecoder, encode_frame

FLAGS_OF_PULSAR = pb.FeatureFlags(
    supports_topic_watchers=True,
    supports_get_partitioned_metadata_without_auto_creation=True,
    supports_repl_dedup_by_lid_and_eid=True,
)
VERSION_2 = bytes(7) + b"\x02"

GOLDEN = [
    (
        commands.connected("Pulsar Server4.0.8", 21, 5242880, FLAGS_OF_PULSAR),
        "0000002b0000002708031a230a1250756c73617220536572766572342e302e381015188080c0022206200128013001",
    ),
    (commands.success(7), "0000000a00000006080d6a020807"),
    (
        commands.error(7, pb.TopicNotFound, "gone"),
        "000000120000000e080e720a0807100b1a04676f6e65",
    ),
    (
        commands.error(commands.NO_REQUEST, pb.AuthenticationError, "no"),
        "0000001900000015080e721108ffffffffffffffffff0110031a026e6f",
    ),
    (
        commands.producer_success(7, "p-1"),
        "0000001f0000001b08118a011608071203702d3118ffffffffffffffffff0122003001",
    ),
    (
        commands.producer_success(7, "p-1", 41, VERSION_2, 3, producer_ready=False),
        "000000200000001c08118a011708071203702d3118292208000000000000000228033000",
    ),
    (
        commands.send_receipt(3, 99, -1, 12345, 678),
        "0000001f0000001b08073a17080310631a0608b96010a60520ffffffffffffffffff01",
    ),
    (
        commands.send_error(3, 99, pb.TopicTerminatedError, "end"),
        "000000130000000f0808420b08031063180f2203656e64",
    ),
    (
        commands.message_head(5, 12345, 678, -1, 0, 0),
        "0000001d0000001908094a150805121108b96010a60518ffffffffffffffffff01",
    ),
    (
        commands.message_head(5, 12345, 678, 2, 4, 0, (-1, 5), 0),
        "000000250000002108094a1d0805120808b96010a6051802180420ffffffffffffffffff0120052800",
    ),
    (commands.active_consumer_change(5, is_active=True), "0000000d00000009081ffa010408051001"),
    (commands.close_consumer(5), "0000001600000012081082010d080510ffffffffffffffffff01"),
    (commands.close_producer(5), "0000001500000011080f7a0d080510ffffffffffffffffff01"),
    (commands.reached_end_of_topic(5), "0000000b00000007081bda01020805"),
    (commands.partitioned_metadata(7, 0), "0000000f0000000b0816b20106080010071800"),
    (
        commands.partitioned_metadata_error(7, pb.AuthorizationError, "no"),
        "000000130000000f0816b2010a1007180120042a026e6f",
    ),
    (
        commands.lookup_connect(7, "pulsar://h:6650"),
        "000000220000001e0818c201190a0f70756c7361723a2f2f683a363635301801200728014000",
    ),
    (
        commands.lookup_error(7, pb.ServiceNotReady, "later"),
        "00000016000000120818c2010d1802200730063a056c61746572",
    ),
    (commands.ack_response(5, 7), "0000000d000000090826b2020408053007"),
    (
        commands.ack_response(5, 7, pb.NotAllowedError, "no"),
        "000000130000000f0826b2020a080520162a026e6f3007",
    ),
    (
        b"".join(
            commands.topics_of_namespace(
                7, [commands.names_of_topics(["persistent://public/default/a"])]
            )
        ),
        "0000002e0000002a08218a02250807121d70657273697374656e743a2f2f7075626c69632f64656661756c742f61"
        "18002801",
    ),
    (
        commands.get_last_message_id_response(7, (-1, -1)),
        "0000003900000035081ef201300a2c08ffffffffffffffffff0110ffffffffffffffffff0118ffffffffffffff"
        "ffff0120ffffffffffffffffff011007",
    ),
    (
        commands.get_last_message_id_response(7, (12, 3), 0, 9, (12, 2)),
        "0000001b00000017081ef201120a08080c10031800200910071a04080c1002",
    ),
    (
        commands.get_or_create_schema_response(7, VERSION_2),
        "00000015000000110828c2020c080722080000000000000002",
    ),
    (commands.tc_client_connect_response(7), "0000000b00000007083ffa03020807"),
    (
        commands.txn_response(pb.BaseCommand.NEW_TXN_RESPONSE, 7, 1, 2),
        "0000000f0000000b08339a0306080710011802",
    ),
]


@pytest.mark.parametrize(("frame", "expected"), GOLDEN)
def test_frames_equal_those_of_pulsar(frame, expected):
    assert frame.hex() == expected


def decoded(frame):
    ((command, payload),) = FrameDecoder().feed(frame)
    assert payload is None
    return command


SCHEMA = pb.Schema(name="s", schema_data=b"{}", type=pb.Schema.Json)

REFUSALS = [
    (
        client.consumer_stats(1, 7),
        "000000110000000d081ad201080807100d1a026e6f",
        pb.ConsumerNotFound,
    ),
    (client.get_schema("t", 7), "000000110000000d08239a02080807100b1a026e6f", pb.TopicNotFound),
    (
        client.get_or_create_schema("t", 7, SCHEMA),
        "000000110000000d0828c20208080710121a026e6f",
        pb.IncompatibleSchema,
    ),
    (
        client.partitioned_metadata("t", 7),
        "000000130000000f0816b2010a1007180120042a026e6f",
        pb.AuthorizationError,
    ),
    (
        client.ack(5, [(1, 2)], request_id=7),
        "000000130000000f0826b2020a080520162a026e6f3007",
        pb.NotAllowedError,
    ),
]


@pytest.mark.parametrize(("request_frame", "expected", "server_error"), REFUSALS)
def test_refusals_equal_those_of_pulsar(request_frame, expected, server_error):
    answer = commands.refusal(decoded(request_frame), server_error, "no")
    assert answer is not None
    assert answer.hex() == expected


def test_refused_lookup_is_answered_as_a_failed_lookup():
    answer = commands.refusal(decoded(client.lookup("t", 7)), pb.ServiceNotReady, "later")
    assert answer == commands.lookup_error(7, pb.ServiceNotReady, "later")


def test_refused_send_names_the_message():
    frame = client.send(3, 99, client.message(b"x"))
    ((command, _),) = FrameDecoder().feed(frame)
    answer = commands.refusal(command, pb.TopicTerminatedError, "end")
    assert answer == commands.send_error(3, 99, pb.TopicTerminatedError, "end")


def test_refused_requests_without_an_answer_of_their_own_get_error():
    for frame in (
        client.producer("t", 1, 7),
        client.subscribe("t", "s", 1, 7),
        client.unsubscribe(1, 7),
        client.seek(1, 7, (1, 2)),
        client.get_last_message_id(1, 7),
        client.close_consumer(1, 7),
        client.get_topics_of_namespace("a/b", 7),
    ):
        answer = commands.refusal(decoded(frame), pb.UnknownError, "no")
        assert answer == commands.error(7, pb.UnknownError, "no")


def test_refused_connect_is_answered_although_it_has_no_request_id():
    answer = commands.refusal(decoded(client.connect()), pb.AuthenticationError, "no")
    assert answer == commands.error(commands.NO_REQUEST, pb.AuthenticationError, "no")


def test_commands_without_request_id_are_not_answered():
    assert commands.refusal(decoded(client.flow(1, 2)), pb.UnknownError, "no") is None
    assert commands.refusal(decoded(client.ack(1, [(1, 2)])), pb.UnknownError, "no") is None


def test_refused_transaction_request_repeats_the_transaction():
    command = pb.BaseCommand(type=pb.BaseCommand.END_TXN)
    command.endTxn.request_id = 7
    command.endTxn.txnid_least_bits = 5
    command.endTxn.txnid_most_bits = 6
    answer = commands.refusal(command, pb.TransactionNotFound, "no")
    assert answer is not None
    response = decoded(answer).endTxnResponse
    assert (response.txnid_least_bits, response.txnid_most_bits) == (5, 6)
    assert response.error == pb.TransactionNotFound


def test_every_request_can_be_refused_with_a_decodable_answer():
    for kind in pb.BaseCommand.Type.values():
        command = pb.BaseCommand(type=kind)
        answer = commands.refusal(command, pb.UnknownError, "no")
        assert answer is None or decoded(answer)


def test_incomplete_command_is_our_own_error():
    with pytest.raises(LocalProtocolError):
        encode_frame(pb.BaseCommand(type=pb.BaseCommand.SUCCESS, success=pb.CommandSuccess()))
