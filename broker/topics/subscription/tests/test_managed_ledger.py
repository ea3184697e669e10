"""Subscriptions over real managed ledgers: rollover, cold reads, restarts, seek."""

from __future__ import annotations

import trio

from broker.managed_ledger.tests.world import World
from broker.topics.subscription.sub_types import EXCLUSIVE, KEY_SHARED, SHARED
from broker.topics.subscription.tests.ledger_bench import LedgerBench, settle
from protocol.position import EARLIEST, LATEST


async def test_a_consumer_follows_the_tail_across_ledgers(nursery, autojump_clock):
    async with World(max_entries_per_ledger=3).broker() as factory:
        bench = LedgerBench(nursery, await factory.open("t"))
        await bench.open(earliest=False)
        consumer = bench.consumer(EXCLUSIVE, permits=100)
        positions = await bench.publish(11)
        assert len({ledger_id for ledger_id, _ in positions}) > 2
        assert consumer.session.positions() == positions
        bench.ack(consumer, positions[-1], cumulative=True)
        assert bench.subscription.backlog_entries == 0


async def test_an_evicted_backlog_is_read_and_acked_to_the_end(nursery, autojump_clock):
    world = World(max_entries_per_ledger=4)
    async with world.broker() as factory:
        bench = LedgerBench(nursery, await factory.open("t"))
        for sub_type in (EXCLUSIVE, SHARED, KEY_SHARED):
            await bench.open(name=f"s{sub_type}")
        positions = await bench.publish(30)
        await factory.aclose()
    async with world.broker() as factory:
        for sub_type in (EXCLUSIVE, SHARED, KEY_SHARED):
            bench = LedgerBench(nursery, await factory.open("t"))
            await bench.open(name=f"s{sub_type}")
            consumer = bench.consumer(sub_type, permits=100)
            await settle()
            assert consumer.session.positions() == positions
            for position in reversed(positions):
                bench.ack(consumer, position)
            assert bench.subscription.backlog_entries == 0
            assert bench.subscription.mark_delete_position() == positions[-1]


async def test_ack_holes_survive_a_restart(nursery, autojump_clock):
    world = World(max_entries_per_ledger=4)
    async with world.broker() as factory:
        bench = LedgerBench(nursery, await factory.open("t"))
        await bench.open()
        consumer = bench.consumer(SHARED, permits=100)
        positions = await bench.publish(10)
        bench.ack(consumer, positions[0], positions[3], positions[7])
        await factory.aclose()
    async with world.broker() as factory:
        bench = LedgerBench(nursery, await factory.open("t"))
        await bench.open()
        consumer = bench.consumer(SHARED, permits=100)
        await settle()
        assert consumer.session.positions() == [
            position for n, position in enumerate(positions) if n not in (0, 3, 7)
        ]


async def test_redelivery_of_evicted_entries(nursery, autojump_clock):
    async with World(max_entries_per_ledger=4).broker() as factory:
        bench = LedgerBench(nursery, await factory.open("t"))
        await bench.open()
        consumer = bench.consumer(SHARED, permits=100)
        positions = await bench.publish(10)
        consumer.session.take()
        consumer.session.writes.clear()
        await trio.sleep(60)
        bench.subscription.redeliver(consumer, None, -1)
        await settle()
        assert consumer.session.positions() == positions
        assert consumer.session.writes == [10]


async def test_seek_everywhere(nursery, autojump_clock):
    async with World(max_entries_per_ledger=4).broker() as factory:
        ledger = await factory.open("t")
        bench = LedgerBench(nursery, ledger)
        await bench.open()
        positions = await bench.publish(9)
        last = positions[-1]
        targets = {
            EARLIEST: positions,
            (positions[0][0], -1): positions,
            positions[5]: positions[5:],
            (positions[3][0], 99): positions[4:],
            (last[0], last[1] + 1): [],
            LATEST: [],
        }
        for target, expected in targets.items():
            consumer = bench.consumer(SHARED, permits=100)
            await settle()
            await bench.subscription.seek(target)
            assert consumer.session.disconnected == [consumer]
            again = bench.consumer(SHARED, permits=100)
            await settle()
            assert again.session.positions() == expected, target
            bench.subscription.remove_consumer(again)


async def test_a_reader_starts_at_its_message_id(nursery, autojump_clock):
    async with World(max_entries_per_ledger=4).broker() as factory:
        bench = LedgerBench(nursery, await factory.open("t"))
        await bench.open(name="holds the entries")
        positions = await bench.publish(9)
        starts = [
            (positions[5], positions[5:]),
            ((-1, -1), positions),
            (LATEST, []),
            ((positions[-1][0], 2**47), []),
            ((positions[0][0], 999), positions[4:]),
        ]
        for number, (start, expected) in enumerate(starts):
            await bench.open(name=f"r{number}", durable=False, start_message_id=(*start, -1))
            reader = bench.consumer(EXCLUSIVE, permits=100)
            await settle()
            assert reader.session.positions() == expected, start
