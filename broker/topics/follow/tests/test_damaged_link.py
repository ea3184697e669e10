"""A link whose other side does not do what it should, or says it at the wrong time."""

from __future__ import annotations

import random

import pytest
import trio
from structlog.testing import capture_logs

from broker.topics.follow.tests.between import followed_through
from broker.topics.follow.tests.cluster import (
    SHADOW,
    SOURCE,
    ack_up_to,
    peer,
    settled,
    topic_of,
)
from protocol import client, commands
from protocol import pulsar_api_pb2 as pb
from protocol.errors import ServerError
from protocol.frames import encode_frame
from protocol.position import ID_MAX, unsigned_id
from runtime.testing.conditions import SECONDS_MAX

SUCCESS = pb.BaseCommand.SUCCESS
ERROR = pb.BaseCommand.ERROR
EARLIEST = pb.CommandSubscribe.Earliest


def numbers(start, stop):
    return [b"%d" % number for number in range(start, stop)]


def backlog(running):
    return topic_of(running, SOURCE).subscriptions["all"].backlog_entries


async def subscribed(connection, *consumers, seconds=SECONDS_MAX, **fields):
    """Subscribe as a client does: again after ServiceNotReady."""
    with trio.fail_after(seconds):
        for consumer in consumers:
            while True:
                [answer] = await connection.subscribe(consumer, topic=SHADOW, **fields)
                if answer.type == SUCCESS:
                    break
                assert answer.error.error == ServerError.ServiceNotReady, answer
                await trio.sleep(0.05)


async def test_a_share_that_the_owner_closes_while_it_is_attached_is_attached_again():
    """The owner closes it, because an administrator moves all consumers, before the follower has
    made sure that it still owns the shadow."""
    asked, told = [], []

    def note(command, frame):
        body = command.getLastMessageId
        if command.type == pb.BaseCommand.GET_LAST_MESSAGE_ID and body.consumer_id == 1:
            asked.append(body.request_id)
        if command.type == pb.BaseCommand.ACK and told == ["follower"]:
            told.append("owner")
            return client.close_consumer(1, 1 << 40) + frame
        return frame

    def close(command, frame):
        if command.getLastMessageIdResponse.request_id in asked and not told:
            told.append("follower")
            return frame + commands.close_consumer(1, commands.NO_REQUEST)
        return frame

    async with followed_through() as (between, a, b, publisher), peer(b) as here:
        between.to_owner, between.to_follower = note, close
        await subscribed(here, (1, "one"))
        await publisher.publish(*numbers(0, 5))
        await here.until(lambda: len(here.received[1]) == 5)
        await here.send(ack_up_to(here, 1, 5))
        await settled(lambda: backlog(a) == 0)
        assert told


async def test_a_share_that_cannot_return_after_a_seek_returns_later():
    seen = []

    def refuse_second(command, frame):
        if command.type == pb.BaseCommand.SUBSCRIBE and command.subscribe.consumer_id == 1:
            seen.append(command.subscribe.request_id)
        return frame

    def refusal(command, frame):
        if command.type == pb.BaseCommand.SUCCESS and seen[1:2] == [command.success.request_id]:
            return commands.error(seen[1], ServerError.ServiceNotReady, "not now")
        return frame

    async with followed_through() as (between, a, b, publisher), peer(b) as here:
        between.to_owner, between.to_follower = refuse_second, refusal
        await here.subscribe((1, "one"), topic=SHADOW)
        await publisher.publish(*numbers(0, 5))
        await here.until(lambda: len(here.received[1]) == 5)
        await here.send(ack_up_to(here, 1, 5))
        await settled(lambda: backlog(a) == 0)
        target = here.received[1][2].message_id.position
        answer = await here.ask(lambda request: client.seek(1, request, target))
        assert answer.type == ERROR, answer
        assert backlog(a) == 3
        await settled(lambda: backlog(a) == 0)


def damaged_by(seed):
    """Turn a bit of some of the frames."""
    rng = random.Random(seed)

    def change(command, frame):
        if rng.random() > 0.3:
            return frame
        damaged = bytearray(frame)
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        return bytes(damaged)

    return change


def message_of(**ids):
    """Every message has another id."""

    def change(command, frame):
        if command.type != pb.BaseCommand.MESSAGE:
            return frame
        for name, value in ids.items():
            setattr(command.message.message_id, name, unsigned_id(value))
        return encode_frame(command, frame[8 + int.from_bytes(frame[4:8], "big") :])

    return change


def with_each_message(change):
    """Change the frames of messages."""
    return lambda command, frame: change(frame) if command.type == pb.BaseCommand.MESSAGE else frame


def answer_of_another_kind(command, frame):
    """SUCCESS to those who ask for a position."""
    if command.type != pb.BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE:
        return frame
    return commands.success(command.getLastMessageIdResponse.request_id)


LIES = {
    "damaged frames": damaged_by(3),
    "more damaged frames": damaged_by(10),
    "an entry before the first": message_of(entryId=-5),
    "an entry that is not there": message_of(entryId=2**62),
    "a ledger that is not there": message_of(ledgerId=ID_MAX),
    "the first entry again and again": message_of(ledgerId=0, entryId=0),
    "nothing": with_each_message(lambda frame: b""),
    "everything twice": with_each_message(lambda frame: 2 * frame),
    "half a frame": with_each_message(lambda frame: frame[: len(frame) // 2]),
    "an enormous frame": with_each_message(lambda frame: frame + b"\x7f\xff\xff\xff"),
    "many pings": with_each_message(lambda frame: frame + 10_000 * client.ping()),
    "an answer of another kind": answer_of_another_kind,
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
async def test_a_follower_survives_what_it_is_told_and_the_owner_keeps_the_messages(lie):
    with capture_logs() as logs:
        async with followed_through() as (between, a, b, publisher), peer(a) as there:
            await there.subscribe((1, "owners"), topic=SOURCE)
            async with peer(b) as here:
                await subscribed(here, (1, "one"))
                between.to_follower = lie
                await publisher.publish(*numbers(0, 10))
                await there.until(lambda: len(there.received[1]) == 10)
            between.heal()
            async with peer(b) as here:
                await subscribed(here, (1, "earliest"), initialPosition=EARLIEST)
                await publisher.publish(*numbers(10, 15), first=10)
                await here.until(lambda: here.payloads(1)[-5:] == numbers(10, 15))
            assert backlog(a) == 15
    assert [each for each in logs if each.get("exc_info")] == []
