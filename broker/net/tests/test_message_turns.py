"""How many messages of a chunk one turn takes."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from broker.net.session import MESSAGES_SECONDS_PER_TURN
from broker.net.tests.harness import T, running
from native.frames import RUN_MESSAGES_MAX
from protocol import client as c
from protocol.request_frames import SENDS_PER_SLICE, SENDS_PER_TURN

MESSAGES = 3_000
LIMITED = {"maxPublishRatePerTopicInMessages": 1_000_000_000}
DEDUPLICATED = {"brokerDeduplicationEnabled": True}


class SteppingClock:
    """Time passes only when somebody looks."""

    def __init__(self, step_seconds):
        self.step_seconds = step_seconds
        self.seconds = 0.0

    def now(self):
        self.seconds += self.step_seconds
        return self.seconds

    def wall_ms(self):
        return time.time_ns() // 1_000_000


async def messages_by_turn(producer_ids, clock, settings, messages=MESSAGES):
    """Of tiny messages that come at once."""
    async with running(clock=clock, **settings) as broker:
        connection = await broker.connect()
        for producer_id in producer_ids:
            await connection.producer(f"t{producer_id}", producer_id, producer_name="producer")
        topics = [broker.topic(f"t{producer_id}") for producer_id in producer_ids]
        producers = [one for topic in topics for one in topic.access.producers.values()]
        taken = [0]
        broker.service.connections.turns.on_published = lambda: taken.append(
            sum(producer.messages_in for producer in producers)
        )
        await connection.send(
            b"".join(
                c.send(producer_id, number, c.message(b"", sequence_id=number))
                for number in range(messages // len(producer_ids))
                for producer_id in producer_ids
            )
        )
        for _ in range(messages):
            await connection.expect(T.SEND_RECEIPT)
        assert taken[-1] == messages
        return [after - before for before, after in pairwise(taken)]


@pytest.mark.parametrize("settings", [{}, LIMITED, DEDUPLICATED])
@pytest.mark.parametrize(
    ("producer_ids", "most"),
    [((1,), SENDS_PER_SLICE + RUN_MESSAGES_MAX), ((1, 2), SENDS_PER_SLICE + 1)],
    ids=["a run", "two producers in turn"],
)
async def test_a_turn_takes_messages_as_long_as_there_is_time(producer_ids, most, settings):
    """What a message costs depends on its topic. With a publish rate, a chunk of 1 MB of tiny ones
    was a turn of 20 ms; a bound of their number that prevents this costs CPU where they are cheap.
    A message that came in pieces is one more.
    """
    while_no_time_passes = await messages_by_turn(producer_ids, SteppingClock(0.0), settings)
    assert max(while_no_time_passes) > most
    slow = SteppingClock(2 * MESSAGES_SECONDS_PER_TURN)
    assert max(await messages_by_turn(producer_ids, slow, settings)) <= most


@pytest.mark.parametrize(
    ("producer_ids", "most"),
    [((1,), 2 * SENDS_PER_TURN + RUN_MESSAGES_MAX), ((1, 2), SENDS_PER_TURN + 1)],
    ids=["a run", "two producers in turn"],
)
async def test_a_turn_has_a_bound_of_messages_that_are_read_in_no_time(producer_ids, most):
    """Floods of tiny messages were groups of thousands in front of another client's message."""
    turns = await messages_by_turn(producer_ids, SteppingClock(0.0), {}, messages=6_000)
    assert max(turns) <= most
