"""Consumers of a broadcast that seek or are moved, and a move that cannot be stored."""

from __future__ import annotations

import pytest
import trio

from broker.topics.broadcast.tests.world import opened, received, settle
from protocol.errors import BrokerError, ServerError


async def test_seeking_back_holds_storage_again_and_disconnects_that_consumer_only(
    autojump_clock,
):
    async with opened() as world:
        one, two = await world.join("one"), await world.join("two")
        positions = world.publish(4)
        await settle()
        for consumer in (one, two):
            world.ack(consumer, *positions)
        assert world.subscription.backlog_entries == 0
        await world.handles[one].seek(positions[2])
        assert (one.session.disconnected, two.session.disconnected) == ([one], [])
        assert world.subscription.cursor.mark_delete == positions[1]
        again = await world.join("one")
        await settle()
        assert received(again) == positions[2:]
        assert received(two) == positions


@pytest.mark.parametrize("index", [0, 4], ids=["backwards", "forwards"])
async def test_a_seek_that_cannot_be_stored_leaves_the_consumer_where_it_was(autojump_clock, index):
    async with opened() as world:
        one, two = await world.join("one"), await world.join("two")
        positions = world.publish(6)
        await settle()
        world.ack(one, positions[0], positions[1], positions[3])
        world.ack(two, *positions)
        await world.subscription.commit()
        cursor = world.subscription.cursor
        world.ledger.client.failing = True
        with pytest.raises(BrokerError, match="could not be stored"):
            await world.handles[one].seek(positions[index])
        assert cursor.mark_delete == positions[1]
        world.ledger.client.failing = False
        await trio.sleep(5)
        await world.crash()
        again = await world.join("one")
        await settle()
        assert received(again) == [positions[2], *positions[4:]]
        assert world.subscription.cursor.mark_delete == positions[1]


async def test_an_unsubscribe_that_cannot_be_stored_leaves_the_consumer_its_place(autojump_clock):
    async with opened() as world:
        one, two = await world.join("one"), await world.join("two")
        positions = world.publish(4)
        await settle()
        world.ack(one, positions[0], positions[2])
        world.ack(two, *positions)
        await world.subscription.commit()
        world.ledger.client.failing = True
        with pytest.raises(BrokerError, match="could not be stored"):
            await world.handles[one].unsubscribe(force=False)
        assert world.subscription.cursor.mark_delete == positions[0]
        world.ledger.client.failing = False
        again = await world.join("one")
        await settle()
        assert received(again) == [positions[1], positions[3]]
        await world.handles[again].unsubscribe(force=False)
        assert world.subscription.cursors.slot_of("one") is None
        assert world.subscription.cursor.mark_delete == positions[3]


async def test_who_came_back_during_a_seek_that_was_refused_goes_back_too(autojump_clock):
    async with opened() as world:
        one = await world.join("one")
        await world.join("two")
        positions = world.publish(4)
        await settle()
        await world.subscription.commit()
        world.ledger.client.failing = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_refused_seek, world, one, positions[2])
            with trio.fail_after(5):
                while one in world.subscription.attached:
                    await trio.lowlevel.checkpoint()
            early = await world.join("one")
        assert early.session.disconnected == [early]
        again = await world.join("one")
        await settle()
        assert received(again) == positions


async def _refused_seek(world, consumer, position):
    with pytest.raises(BrokerError, match="could not be stored"):
        await world.handles[consumer].seek(position)


async def _come_back_during_a_refused_seek(world, nursery, consumer, position):
    """The same consumer, subscribed again before its seek is refused."""
    world.ledger.client.failing = True
    nursery.start_soon(_refused_seek, world, consumer, position)
    with trio.fail_after(5):
        while consumer in world.subscription.attached:
            await trio.lowlevel.checkpoint()
    return await world.join(consumer.name)


async def test_two_refused_seeks_at_once_leave_the_consumer_where_it_was(autojump_clock):
    async with opened() as world:
        one = await world.join("one")
        await world.join("two")
        positions = world.publish(6)
        await settle()
        await world.subscription.commit()
        async with trio.open_nursery() as nursery:
            early = await _come_back_during_a_refused_seek(world, nursery, one, positions[2])
            with pytest.raises(BrokerError, match="still being stored") as refused:
                await world.handles[early].seek(positions[4])
            assert refused.value.server_error == ServerError.ServiceNotReady
        again = await world.join("one")
        await settle()
        assert received(again) == positions
        world.ledger.client.failing = False
        await world.handles[again].seek(positions[4])
        last = await world.join("one")
        await settle()
        assert received(last) == positions[4:]


async def test_an_unsubscribe_during_a_seek_that_is_refused_leaves_the_consumer(autojump_clock):
    async with opened() as world:
        one = await world.join("one")
        await world.join("two")
        positions = world.publish(4)
        await settle()
        await world.subscription.commit()
        async with trio.open_nursery() as nursery:
            early = await _come_back_during_a_refused_seek(world, nursery, one, positions[2])
            with pytest.raises(BrokerError, match="still being stored"):
                await world.handles[early].unsubscribe(force=False)
        again = await world.join("one")
        await settle()
        assert received(again) == positions


@pytest.mark.parametrize(("method", "arguments"), [("skip", [2]), ("clear_backlog", [])])
async def test_administration_waits_for_the_end_of_a_seek(
    autojump_clock, monkeypatch, method, arguments
):
    async with opened() as world:
        await world.join("one", flow=0)
        positions = world.publish(5)
        subscription, gate = world.subscription, trio.Event()
        commit = subscription.keeper.commit

        async def slow():
            await gate.wait()
            await commit()

        monkeypatch.setattr(subscription.keeper, "commit", slow)
        moved = subscription.seek(positions[3])
        done = []

        async def administer():
            await getattr(subscription, method)(*arguments)
            done.append(subscription.backlog_entries)

        async with trio.open_nursery() as others:
            others.start_soon(administer)
            await settle()
            assert done == []
            assert subscription.backlog_entries == 2
            gate.set()
            await moved
        assert done == [0]


async def test_administration_moves_everybody(autojump_clock):
    async with opened() as world:
        one = await world.join("one", flow=0)
        gone = await world.join("gone")
        world.subscription.remove_consumer(gone)
        positions = world.publish(5)
        await world.subscription.skip(2)
        world.subscription.flow(one, 10)
        await settle()
        assert received(one) == positions[2:]
        await world.subscription.clear_backlog()
        assert world.subscription.backlog_entries == 0
        await world.subscription.seek(positions[3])
        assert world.subscription.backlog_entries == 2
        assert one.session.disconnected == [one]
        back = [await world.join(name) for name in ("one", "gone")]
        await settle()
        assert all(received(consumer) == positions[3:] for consumer in back)


async def test_a_main_cursor_that_could_not_be_put_back_is_put_back_by_the_next_try(
    autojump_clock,
):
    async with opened() as world:
        one = await world.join("one")
        positions = world.publish(4)
        await settle()
        world.ack(one, *positions)
        cursor = world.subscription.cursor
        cursor.reset_error = BrokerError(ServerError.MetadataError, "the disk is full")
        with pytest.raises(BrokerError, match="the disk is full"):
            await world.subscription.seek(positions[1])
        assert cursor.mark_delete == positions[3]
        cursor.reset_error = None
        await trio.sleep(5)
        assert cursor.mark_delete == positions[0]
        again = await world.join("one")
        await settle()
        assert received(again) == positions[1:]
