from broker.topics.follow.carrier import PERMITS, Carrier
from broker.topics.subscription.tests.fakes import make_data
from protocol import pulsar_api_pb2 as pb
from protocol.client import Client
from protocol.command_frames import message_id
from protocol.topic_name import TopicName


def message(entry_id, count=None, consumer_id=0):
    command = pb.BaseCommand(type=pb.BaseCommand.MESSAGE)
    command.message.consumer_id = consumer_id
    command.message.message_id.CopyFrom(message_id((1, entry_id)))
    return command, make_data(messages=count)


def commands(frames):
    return [command for command, _ in Client().receive(frames)]


def test_the_owner_may_send_a_bounded_number_of_messages_however_they_are_batched():
    carrier = Carrier(TopicName.parse("a"))
    [first] = commands(carrier.grant())
    assert first.flow.messagePermits == PERMITS
    granted, sent = PERMITS, 0
    for entry_id in range(200):
        count = 1 + entry_id % 30
        assert carrier.entry_of(message(entry_id, count)).position == (1, entry_id)
        sent += count
        assert sent <= granted + count
        for again in commands(carrier.grant()):
            granted += again.flow.messagePermits
        assert 0 < granted - sent <= PERMITS


def test_what_has_arrived_is_acknowledged_once():
    carrier = Carrier(TopicName.parse("a"))
    assert carrier.acknowledgement() == b""
    carrier.entry_of(message(0))
    carrier.entry_of(message(1))
    [ack] = commands(carrier.acknowledgement())
    assert ack.ack.ack_type == pb.CommandAck.Cumulative
    assert [each.entryId for each in ack.ack.message_id] == [1]
    assert carrier.acknowledgement() == b""


def test_messages_for_others_are_none_of_its_business():
    assert Carrier(TopicName.parse("a")).entry_of(message(0, consumer_id=7)) is None
