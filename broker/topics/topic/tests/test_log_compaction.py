"""The compaction of a log of policies over crashes at every step."""

from __future__ import annotations

import pytest
import trio

from broker.ground.entry import Entry
from broker.managed_ledger.tests.world import World, open_ledger
from broker.topics.topic import log_compaction
from broker.topics.topic.log_compaction import (
    COMPACTED_LEDGER,
    COMPACTION_CURSOR,
    LogCompaction,
)
from broker.topics.topic.tests.test_compacted_log import played
from protocol import client as c
from protocol.errors import BrokerError
from protocol.position import EARLIEST
from protocol.topic_name import TopicName

LOG = TopicName.parse("persistent://public/default/__change_events")
NAME = LOG.managed_ledger_name
READ_MAX = 10_000


async def open_log(factory):
    ledger = await open_ledger(factory, NAME)
    compaction = LogCompaction(LOG, ledger)
    await compaction.load()
    return ledger, compaction


async def write(ledger, values):
    before = len(ledger.listener.appended)
    for key, value in values:
        ledger.append(
            Entry(c.message(value, partition_key=key, null_value=not value), 1), (key, value)
        )
    await ledger.listener.until(before + len(values))


async def read_all(compaction):
    log = compaction.log
    position, entries = log.first_position, []
    while position <= log.last_confirmed:
        got = await log.read(position, READ_MAX, 1 << 20)
        if not got:
            break
        entries += got
        position = (got[-1].position[0], got[-1].position[1] + 1)
    return entries


def values_of(number):
    """A change of each of three keys, and at last one that ends."""
    return [(key, b"%d" % number) for key in "abc"] + [("d", b"" if number % 2 else b"1")]


async def test_a_crash_at_any_step_loses_no_policy(autojump_clock):
    world = World()
    expected = {}
    number = step = 0
    ended = 0
    while ended < 3:
        async with world.broker() as factory:
            ledger, compaction = await open_log(factory)
            assert played(await read_all(compaction)) == expected
            if step == 0:
                values = values_of(number)
                number += 1
                await write(ledger, values)
                expected = {key: value for key, value in (expected | dict(values)).items() if value}
            async with trio.open_nursery() as nursery:

                async def compact(nursery=nursery, compaction=compaction):
                    nonlocal ended, step
                    await compaction.compact()
                    ended += 1
                    step = -1
                    nursery.cancel_scope.cancel()

                nursery.start_soon(compact)
                for _ in range(step):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
            step += 1
            if step % 2:
                assert played(await read_all(compaction)) == expected
        world.crash_bookie()
        assert step < 100
    assert number == 3
    async with world.broker() as factory:
        ledger, compaction = await open_log(factory)
        assert played(await read_all(compaction)) == expected
        await compaction.compact()
        await trio.sleep(1)
        assert len(ledger.ledger_ids) == 1


async def test_a_compacted_ledger_that_is_lost_is_an_error(autojump_clock):
    world = World()
    async with world.broker() as factory:
        ledger, compaction = await open_log(factory)
        await write(ledger, values_of(0))
        await compaction.compact()
        lost = ledger.cursors[COMPACTION_CURSOR].position_properties[COMPACTED_LEDGER]
        await ledger.client.delete(lost)
    async with world.broker() as factory:
        with pytest.raises(BrokerError, match=f"compacted ledger {lost} of .* cannot be read"):
            await open_log(factory)


async def test_a_compacted_ledger_of_another_topic_is_neither_read_nor_fenced(autojump_clock):
    world = World()
    async with world.broker() as factory:
        victim = await open_ledger(factory, "b/ns/persistent/secret")
        await write(victim, [("a", b"theirs")])
        ledger, _ = await open_log(factory)
        cursor = ledger.cursors[COMPACTION_CURSOR]
        cursor.position_properties = {COMPACTED_LEDGER: min(victim.ledger_ids)}
        await cursor.reset(ledger.last_confirmed)
        with pytest.raises(BrokerError, match="is not one of this topic"):
            await LogCompaction(LOG, ledger).load()
        await write(victim, [("a", b"more")])
        assert not victim.fenced


async def test_a_compaction_that_cannot_be_stored_changes_nothing(autojump_clock, monkeypatch):
    world = World()
    async with world.broker() as factory:
        ledger, compaction = await open_log(factory)
        await write(ledger, values_of(0))
        cursor = ledger.cursors[COMPACTION_CURSOR]
        before = cursor.mark_delete, dict(cursor.position_properties)
        with monkeypatch.context() as patch:

            async def refuse(*_arguments):
                raise BrokerError(0, "refused")

            patch.setattr(type(cursor), "_store_state", refuse)
            with pytest.raises(BrokerError):
                await compaction.compact()
        assert (cursor.mark_delete, dict(cursor.position_properties)) == before
        assert compaction.log.horizon == EARLIEST
        assert played(await read_all(compaction)) == {"a": b"0", "b": b"0", "c": b"0", "d": b"1"}
        await compaction.compact()
        assert compaction.log.kept_count == 4


async def test_one_compaction_after_the_other_keeps_one_compacted_ledger(
    autojump_clock, monkeypatch
):
    monkeypatch.setattr(log_compaction, "ENTRIES_MIN", 8)
    world = World()
    async with world.broker() as factory:
        ledger, compaction = await open_log(factory)
        for number in range(20):
            await write(ledger, values_of(number))
            if compaction.is_due:
                await compaction.compact()
            assert compaction.log.kept_count <= 5
        await trio.sleep(1)
        assert ledger.entries <= 12
        kept = ledger.cursors[COMPACTION_CURSOR].position_properties[COMPACTED_LEDGER]
        metadata = await ledger.client.metadata_of(kept)
        assert metadata.last_entry_id + 1 == compaction.log.kept_count
