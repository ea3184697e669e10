"""Producers that wait for a topic: each wait ends once, with access or with the reason."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from broker.topics.topic.producer_turns import ProducerTurns
from protocol.errors import ProducerFenced


async def test_a_wait_ends_with_access_or_with_the_reason():
    turns = ProducerTurns()
    ended = []

    async def wait(name):
        turn = turns.of(name)
        try:
            await turn.wait()
        except ProducerFenced as error:
            ended.append((name, error.message))
        else:
            ended.append((name, ""))

    async with trio.open_nursery() as nursery:
        for name in ("first", "second"):
            turns.begin(name)
            nursery.start_soon(wait, name)
        await trio.testing.wait_all_tasks_blocked()
        assert turns.waiting() == ["first", "second"]
        assert ended == []
        turns.refuse("second", ProducerFenced("fenced out"))
        turns.grant("first")
    assert sorted(ended) == [("first", ""), ("second", "fenced out")]
    assert turns.waiting() == []


def test_a_refusal_of_one_that_does_not_wait_has_no_effect():
    turns = ProducerTurns()
    turns.refuse("a", ProducerFenced("closed"))
    turns.begin("a")
    turn = turns.of("a")
    turns.grant("a")
    turns.refuse("a", ProducerFenced("closed"))
    trio.run(turn.wait)
    with pytest.raises(KeyError):
        turns.of("a")
