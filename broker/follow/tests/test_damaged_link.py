"""A link whose other side does not do what it should, or says it at the wrong time."""

from __future__ import annotations

import trio

from broker.follow.tests.between import followed_through
from broker.follow.tests.cluster import SHADOW, SOURCE, ack_up_to, peer, settled, topic_of
from protocol import client, commands
from protocol import pulsar_api_pb2 as pb
from protocol.errors import ServerError

SUCCESS = pb.BaseCommand.SUCCESS
ERROR = pb.BaseCommand.ERROR


def numbers(start, stop):
    return [b"%d" % number for number in range(start, stop)]


def backlog(running):
    return topic_of(running, SOURCE).subscriptions["all"].backlog_entries


async def subscribed(connection, *consumers, seconds=15):
    """Subscribe as a client does: again after ServiceNotReady."""
    with trio.fail_after(seconds):
        for consumer in consumers:
            while True:
                [answer] = await connection.subscribe(consumer, topic=SHADOW)
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
