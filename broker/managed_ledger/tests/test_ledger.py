import pytest
import trio

from bookie.api import Status
from broker.ground.entry import Entry
from broker.managed_ledger.open_appends import AppendState
from broker.managed_ledger.tests.world import (
    NAME,
    World,
    append,
    append_and_wait,
    open_ledger,
    read_all,
    settle,
)
from protocol.errors import BrokerError, ServerError
from protocol.position import EARLIEST, LATEST


def numbers(start, stop):
    return [b"%d" % number for number in range(start, stop)]


async def test_entries_are_reported_in_groups_and_can_be_read_at_once(autojump_clock):
    world = World()
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        await ledger.open_cursor("s", LATEST)
        positions = await append_and_wait(ledger, *numbers(0, 5))
        ledger_id = positions[0][0]
        assert positions == [(ledger_id, number) for number in range(5)]
        assert ledger.listener.groups == 1
        assert ledger.last_confirmed == positions[-1]
        entries = ledger.read_nowait(EARLIEST, 3, 100)
        assert [entry.data for entry in entries] == numbers(0, 3)
        assert [entry.position for entry in entries] == positions[:3]
        assert ledger.read_nowait(ledger.next_position(positions[-1]), 3, 100) == []


async def test_a_read_is_bounded_by_bytes_but_gives_at_least_one(autojump_clock):
    async with World().broker() as factory:
        ledger = await open_ledger(factory)
        await ledger.open_cursor("s", LATEST)
        await append_and_wait(ledger, b"a" * 10, b"b" * 10, b"c" * 10)
        assert len(ledger.read_nowait(EARLIEST, 10, 1)) == 1
        assert len(ledger.read_nowait(EARLIEST, 10, 20)) == 2
        assert len(ledger.read_nowait(EARLIEST, 10, 30)) == 3


async def test_an_evicted_entry_is_read_from_the_bookie(autojump_clock):
    async with World().broker() as factory:
        ledger = await open_ledger(factory)
        await ledger.open_cursor("s", LATEST)
        await append_and_wait(ledger, *numbers(0, 100))
        await trio.sleep(5)
        assert factory.cache.size_bytes == 0
        assert ledger.read_nowait(EARLIEST, 3, 100) is None
        assert await read_all(ledger, count_max=20) == numbers(0, 100)
        assert [e.data for e in await ledger.read(ledger.position_after_n(EARLIEST, 8), 1, 1)] == [
            b"7"
        ]


async def test_the_cache_stays_within_its_bound(autojump_clock):
    world = World(cache_size_bytes=10_000)
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        await ledger.open_cursor("s", LATEST)
        for _ in range(50):
            await append_and_wait(ledger, b"x" * 800)
            assert factory.cache.size_bytes <= 10_000
        assert len(await read_all(ledger)) == 50


async def test_acked_entries_leave_the_cache(autojump_clock):
    async with World().broker() as factory:
        ledger = await open_ledger(factory)
        cursor = await ledger.open_cursor("s", LATEST)
        for _ in range(20):
            positions = await append_and_wait(ledger, b"x" * 1000)
            cursor.ack_cumulative(positions[-1])
        assert factory.cache.size_bytes < 3000


async def test_backlog_is_read_in_long_runs_ahead_of_the_reader(autojump_clock):
    world = World(read_ahead_size_bytes=10_000)
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        await ledger.open_cursor("s", LATEST)
        await append_and_wait(ledger, *[b"%03d" % n + b"x" * 97 for n in range(1000)])
        await trio.sleep(5)
        world.bookie.batch_reads = 0
        assert [p[:3] for p in await read_all(ledger)] == [b"%03d" % n for n in range(1000)]
        assert world.bookie.batch_reads <= 16


async def test_positions_grow_over_restarts_and_crashes(autojump_clock):
    world = World()
    seen = []
    for turn in range(5):
        async with world.broker() as factory:
            ledger = await open_ledger(factory)
            seen += await append_and_wait(ledger, *numbers(turn * 3, turn * 3 + 3))
            await ledger.open_cursor("s", EARLIEST)
            assert await read_all(ledger) == numbers(0, turn * 3 + 3)
            if turn % 2:
                await factory.aclose()
        world.crash_bookie()
    assert seen == sorted(set(seen))


async def test_empty_ledgers_are_dropped_on_open(autojump_clock):
    world = World()
    for _ in range(4):
        async with world.broker() as factory:
            ledger = await open_ledger(factory)
            assert len(ledger.statistics().ledgers) == 1
            assert len(await factory.client.live_ledgers()) == 1
            assert ledger.entries == 0


async def test_statistics_do_not_change_and_share_what_cannot(autojump_clock):
    """A topic may have ten thousand ledgers. To copy the row of each took 10 ms of a turn."""
    world = World(max_entries_per_ledger=3)
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        await ledger.open_cursor("s", EARLIEST)

        async def rows_after(count):
            await append_and_wait(ledger, *numbers(0, count))
            rows = ledger.statistics().ledgers
            return rows, [(row.ledger_id, row.entries, row.size_bytes) for row in rows]

        first, shown_first = await rows_after(7)
        second, shown_second = await rows_after(1)
        third, _ = await rows_after(3)
        assert [entries for _, entries, _ in shown_first] == [3, 3, 1]
        assert [entries for _, entries, _ in shown_second] == [3, 3, 2]
        assert [row.entries for row in third] == [3, 3, 3, 2]
        for rows, shown in ((first, shown_first), (second, shown_second)):
            assert [(row.ledger_id, row.entries, row.size_bytes) for row in rows] == shown
        assert all(before is after for before, after in zip(first[:2], third[:2], strict=True))


async def test_the_entry_that_fills_a_ledger_is_its_last(autojump_clock):
    world = World(max_entries_per_ledger=3)
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        cursor = await ledger.open_cursor("s", EARLIEST)
        positions = await append_and_wait(ledger, *numbers(0, 10))
        assert [entry_id for _, entry_id in positions] == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]
        assert positions == sorted(positions)
        assert await read_all(ledger) == numbers(0, 10)
        statistics = ledger.statistics()
        assert [row.entries for row in statistics.ledgers] == [3, 3, 3, 1]
        assert all(row.timestamp_ms for row in statistics.ledgers[:-1])
        assert cursor.backlog_entries == 10
    world.crash_bookie()
    async with world.broker() as factory:
        assert await read_all(await open_ledger(factory)) == numbers(0, 10)


async def test_a_young_ledger_is_not_rolled(autojump_clock):
    world = World(max_entries_per_ledger=3, min_rollover_time_s=600.0)
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        await ledger.open_cursor("s", EARLIEST)
        await append_and_wait(ledger, *numbers(0, 10))
        assert len(ledger.statistics().ledgers) == 1
        await trio.sleep(601)
        await append_and_wait(ledger, b"last of the first")
        positions = await append_and_wait(ledger, b"first of the second")
        assert positions[0][1] == 0


async def test_an_old_ledger_is_rolled_even_when_idle(autojump_clock):
    async with World(max_rollover_time_s=3600.0).broker() as factory:
        ledger = await open_ledger(factory)
        await ledger.open_cursor("s", EARLIEST)
        first = await append_and_wait(ledger, b"x")
        await trio.sleep(4000)
        second = await append_and_wait(ledger, b"y")
        assert second[0][0] > first[0][0]


async def test_appends_during_a_rollover_wait_and_keep_their_order(autojump_clock):
    world = World(max_entries_per_ledger=3)
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        await ledger.open_cursor("s", EARLIEST)
        world.bookie.is_holding = True
        append(ledger, *numbers(0, 8))
        assert ledger.state is AppendState.ROLLING
        assert ledger.statistics().pending_appends == 8
        world.bookie.release(1)
        assert ledger.listener.contexts == numbers(0, 1)
        world.bookie.is_holding = False
        world.bookie.release()
        await settle()
        assert ledger.listener.contexts == numbers(0, 8)
        assert await read_all(ledger) == numbers(0, 8)


async def test_a_write_error_moves_on_to_a_new_ledger_and_repeats_only_the_unconfirmed(
    autojump_clock,
):
    world = World()
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        await ledger.open_cursor("s", EARLIEST)
        acked = await append_and_wait(ledger, *numbers(0, 3))
        first_ledger = acked[0][0]
        world.bookie.add_status = lambda ledger_id, entry_id: (
            Status.IO_ERROR if (ledger_id, entry_id) == (first_ledger, 5) else Status.OK
        )
        append(ledger, *numbers(3, 9))
        await settle()
        positions = ledger.listener.positions
        assert ledger.listener.contexts == numbers(0, 9)
        assert positions[:5] == [(first_ledger, entry) for entry in range(5)]
        assert positions[5][0] > first_ledger
        assert [entry for _, entry in positions[5:]] == [0, 1, 2, 3]
        assert await read_all(ledger) == numbers(0, 9)
        assert ledger.listener.failed == []
    world.crash_bookie()
    async with world.broker() as factory:
        assert await read_all(await open_ledger(factory)) == numbers(0, 9)


async def test_when_no_ledger_takes_entries_producers_are_told_and_it_heals(autojump_clock):
    world = World()
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        await ledger.open_cursor("s", EARLIEST)
        world.bookie.add_status = lambda *_: Status.READ_ONLY
        append(ledger, *numbers(0, 2))
        await trio.sleep(5)
        assert [context for context, _ in ledger.listener.failed] == numbers(0, 2)
        assert all(
            error.server_error == ServerError.PersistenceError
            for _, error in ledger.listener.failed
        )
        assert ledger.state is AppendState.BROKEN
        world.bookie.add_status = lambda *_: Status.OK
        append(ledger, b"works")
        await trio.sleep(5)
        assert ledger.listener.contexts == [b"works"]
        assert await read_all(ledger) == [b"works"]


async def test_a_new_owner_fences_the_old_one_even_on_an_empty_ledger(autojump_clock):
    world = World()
    async with world.broker() as old, world.broker() as new:
        former = await open_ledger(old)
        owner = await open_ledger(new)
        await owner.open_cursor("s", EARLIEST)
        append(former, b"lost")
        await settle()
        (context, error), *_ = former.listener.failed
        assert context == b"lost"
        assert error.server_error == ServerError.ServiceNotReady
        assert former.fenced
        append(former, b"again")
        assert [context for context, _ in former.listener.failed] == [b"lost", b"again"]
        await append_and_wait(owner, b"kept")
        assert await read_all(owner) == [b"kept"]
        again = await open_ledger(old)
        assert await read_all(again) == [b"kept"]


async def test_consumed_ledgers_are_deleted_with_retention_0(autojump_clock):
    world = World(max_entries_per_ledger=3)
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        cursor = await ledger.open_cursor("s", EARLIEST)
        positions = await append_and_wait(ledger, *numbers(0, 10))
        assert len(await factory.client.live_ledgers()) == 4
        cursor.ack_cumulative(positions[4])
        await settle()
        assert len(await factory.client.live_ledgers()) == 3
        assert cursor.backlog_entries == 5
        assert ledger.first_position == positions[3]
        cursor.ack_cumulative(positions[9])
        await settle()
        assert [row.ledger_id for row in ledger.statistics().ledgers] == [positions[9][0]]
        assert ledger.last_confirmed == positions[9]
        ids = [position[0] for position in await append_and_wait(ledger, *numbers(10, 13))]
        assert ids == [positions[9][0]] * 2 + [ids[-1]]


async def test_without_subscriptions_nothing_is_kept(autojump_clock):
    world = World(max_entries_per_ledger=2)
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        await append_and_wait(ledger, *numbers(0, 8))
        await settle()
        assert len(ledger.statistics().ledgers) == 1
        assert len(await factory.client.live_ledgers()) == 1


async def test_what_nobody_subscribes_to_is_kept_over_a_restart_until_retention_is_checked(
    autojump_clock,
):
    world = World(retention_check_interval_s=60.0)
    async with world.broker() as factory:
        await append_and_wait(await open_ledger(factory), *numbers(0, 3))
        await factory.aclose()
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        await trio.sleep(59)
        assert await read_all(ledger) == numbers(0, 3)
        await trio.sleep(2)
        assert await read_all(ledger) == []


async def test_retention_by_time(autojump_clock):
    from broker.managed_ledger.config import LedgerPolicies, RetentionPolicy

    world = World(
        max_entries_per_ledger=2,
        policies=LedgerPolicies(retention=RetentionPolicy(time_minutes=10, size_mb=-1)),
        retention_check_interval_s=60.0,
    )
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        await append_and_wait(ledger, *numbers(0, 8))
        assert ledger.entries == 8
        await trio.sleep(599)
        assert ledger.entries == 8
        await trio.sleep(70)
        assert ledger.entries == 0


async def test_a_terminated_topic_keeps_its_end(autojump_clock):
    world = World()
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        positions = await append_and_wait(ledger, *numbers(0, 3))
        assert await ledger.terminate() == positions[-1]
        append(ledger, b"late")
        assert ledger.listener.failed[0][1].server_error == ServerError.TopicTerminatedError
        assert ledger.terminated
    world.crash_bookie()
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        assert ledger.terminated
        assert ledger.last_confirmed == positions[-1]
        assert await ledger.terminate() == positions[-1]
        await ledger.open_cursor("s", EARLIEST)
        assert await read_all(ledger) == numbers(0, 3)
        append(ledger, b"late")
        assert len(ledger.listener.failed) == 1


async def test_delete_leaves_nothing_behind(autojump_clock):
    world = World(max_entries_per_ledger=3)
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        cursor = await ledger.open_cursor("s", EARLIEST)
        positions = await append_and_wait(ledger, *numbers(0, 10))
        cursor.ack_individual(positions[5])
        await cursor.flush()
        await factory.delete(NAME)
        assert not await factory.exists(NAME)
        assert await factory.client.live_ledgers() == set()
        assert await world.store.children("/managed-ledgers") == []
        with pytest.raises(BrokerError):
            await factory.delete(NAME)
        append(ledger, b"late")
        assert [context for context, _ in ledger.listener.failed] == [b"late"]
        again = await open_ledger(factory)
        assert again is not ledger
        assert not again.cursors
        assert (await append_and_wait(again, b"new"))[0] > positions[-1]


async def test_a_clean_close_waits_for_what_is_under_way(autojump_clock):
    world = World()
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        append(ledger, *numbers(0, 5))
        await factory.aclose()
        assert ledger.listener.contexts == numbers(0, 5)
        append(ledger, b"late")
        assert ledger.listener.failed[0][1].server_error == ServerError.ServiceNotReady
    async with world.broker() as factory:
        assert (await open_ledger(factory)).entries == 5


async def test_a_close_with_a_dead_bookie_fails_what_is_unknown(autojump_clock):
    world = World()
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        world.bookie.is_holding = True
        append(ledger, *numbers(0, 2))
        await factory.aclose()
        assert [context for context, _ in ledger.listener.failed] == numbers(0, 2)


async def test_topic_properties_are_kept(autojump_clock):
    world = World()
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        await ledger.change_properties(lambda old: {**old, "owner": "me"})
    async with world.broker() as factory:
        assert (await open_ledger(factory)).properties == {"owner": "me"}


async def test_properties_changed_at_once_are_all_kept(autojump_clock):
    async with World().broker() as factory:
        ledger = await open_ledger(factory)
        async with trio.open_nursery() as nursery:
            for name in "abc":
                nursery.start_soon(
                    ledger.change_properties, lambda old, name=name: {**old, name: "1"}
                )
        assert ledger.properties == {"a": "1", "b": "1", "c": "1"}


async def test_opening_at_once_gives_one_ledger(autojump_clock):
    async with World().broker() as factory:
        opened = []

        async def open_one():
            opened.append(await factory.open(NAME))

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(open_one)
        assert len(set(map(id, opened))) == 1
        assert len(await factory.client.live_ledgers()) == 1


async def test_a_read_error_is_told_and_passes(autojump_clock):
    world = World()
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        ledger.append(Entry(b"x", 1), None)
        await settle()
        world.bookie.read_status = lambda *_: Status.IO_ERROR
        with pytest.raises(BrokerError, match="injected"):
            await ledger.read(EARLIEST, 20, 100)
        world.bookie.read_status = lambda *_: Status.OK
        assert len(await ledger.read(EARLIEST, 20, 100)) == 1


async def test_a_topic_with_one_ledger_is_not_asked_for_its_slowest_cursor(autojump_clock):
    async with World().broker() as factory:
        ledger = await open_ledger(factory)
        await ledger.open_cursor("s", EARLIEST)
        ledger.cursors = None  # Walking 10,000 of them would take milliseconds.
        ledger.request_trim()
