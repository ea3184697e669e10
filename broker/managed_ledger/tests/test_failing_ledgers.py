"""Topics whose ledgers fail: how many ledgers they make, and how soon they go on."""

import pytest
import trio
from structlog.testing import capture_logs

from bookie.api import Status
from broker.managed_ledger.open_appends import AppendState
from broker.managed_ledger.tests.world import (
    World,
    append,
    append_and_wait,
    open_ledger,
)
from protocol.errors import ServerError
from protocol.position import EARLIEST


async def publish_every(ledger, seconds, step_s=0.1):
    """A producer that tries again and again."""
    for number in range(round(seconds / step_s)):
        append(ledger, b"try %d" % number)
        await trio.sleep(step_s)


async def test_a_full_disk_makes_few_ledgers_and_few_log_lines(autojump_clock):
    world = World()
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        await ledger.open_cursor("s", EARLIEST)
        await append_and_wait(ledger, b"before")
        world.bookie.add_status = lambda *_: Status.READ_ONLY
        first_id = (await factory.client.create_ledger({}, ledger.appender)).ledger_id
        with capture_logs() as lines:
            await publish_every(ledger, 600)
            last_id = (await factory.client.create_ledger({}, ledger.appender)).ledger_id
            assert last_id - first_id < 80
            assert len(ledger.listener.failed) > 5_900
            assert all(
                error.server_error == ServerError.PersistenceError and "READ_ONLY" in error.message
                for _, error in ledger.listener.failed
            )
            assert len(ledger.statistics().ledgers) == 2
            world.bookie.add_status = lambda *_: Status.OK
            await publish_every(ledger, 10.2)
            assert ledger.state is AppendState.OPEN
            assert len(ledger.listener.contexts) > 1
        events = [line["event"] for line in lines]
        assert events.count("topic_takes_no_entries") == 1
        assert events.count("topic_takes_entries_again") == 1
        assert len(events) < 10


def with_two_of_three(_ledger_id, entry_id):
    """Of three bookies one is gone: two copies of the first entry are stored, not of the next."""
    return Status.OK if entry_id == 0 else Status.NOT_ENOUGH_BOOKIES


async def test_ledgers_that_confirm_an_entry_and_fail_again_are_few(autojump_clock):
    world = World()
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        await ledger.open_cursor("s", EARLIEST)
        first_id = (await factory.client.create_ledger({}, ledger.appender)).ledger_id
        world.bookie.add_status = with_two_of_three
        await publish_every(ledger, 21)
        last_id = (await factory.client.create_ledger({}, ledger.appender)).ledger_id
        assert last_id - first_id <= 12
        assert ledger.listener.failed == []
        world.bookie.add_status = lambda *_: Status.OK
        await publish_every(ledger, 11)
        assert len(ledger.listener.appended) > 210


@pytest.mark.parametrize("topics", [1, 50])
async def test_topics_go_on_in_turns_when_a_bookie_joins(autojump_clock, topics):
    world = World(rolls_per_second_max=20.0, rolls_per_second_recovering_max=20.0)
    async with world.broker() as factory:
        names = [f"public/default/persistent/{n}" for n in range(topics)]
        ledgers = [await open_ledger(factory, name) for name in names]
        world.bookie.add_status = with_two_of_three
        for _ in range(200):
            for ledger in ledgers:
                append(ledger, b"a", b"b")
            await trio.sleep(0.1)
        # All are in a pause, or have their turn and a new ledger that fails with the next entries.
        world.bookie.add_status = lambda *_: Status.OK
        before = [len(ledger.listener.appended) for ledger in ledgers]
        for ledger in ledgers:
            append(ledger, b"c")
        factory.bookies_joined()
        await trio.sleep(0.2 + topics / 20)
        assert all(
            len(ledger.listener.appended) > count
            for ledger, count in zip(ledgers, before, strict=True)
        )


async def test_a_thousand_topics_whose_ledgers_fail_take_turns(autojump_clock):
    world = World(rolls_per_second_max=10.0)
    async with world.broker() as factory:
        ledgers = [await open_ledger(factory, f"public/default/persistent/{n}") for n in range(100)]
        world.bookie.add_status = with_two_of_three
        first_id = (await factory.client.create_ledger({}, ledgers[0].appender)).ledger_id
        for _ in range(30):
            for ledger in ledgers:
                append(ledger, b"a", b"b")
            await trio.sleep(0.1)
        last_id = (await factory.client.create_ledger({}, ledgers[0].appender)).ledger_id
        assert last_id - first_id <= 10 * 3 + 10


async def test_many_ledgers_that_fail_once_are_soon_replaced(autojump_clock):
    """As when all bookies were away for a moment."""
    world = World(rolls_per_second_max=10.0)
    async with world.broker() as factory:
        ledgers = [await open_ledger(factory, f"public/default/persistent/{n}") for n in range(100)]
        for ledger in ledgers:
            await append_and_wait(ledger, b"before")
        world.bookie.add_status = lambda *_: Status.TIMED_OUT
        for ledger in ledgers:
            append(ledger, b"a")
        await trio.sleep(0.05)
        world.bookie.add_status = lambda *_: Status.OK
        await trio.sleep(100 / 10 / 2)
        assert all(len(ledger.listener.appended) == 2 for ledger in ledgers)


async def outage(world, ledgers):
    """Every topic is given up, and may make another attempt."""
    world.bookie.add_status = lambda *_: Status.NOT_ENOUGH_BOOKIES
    for ledger in ledgers:
        append(ledger, b"lost")
    await trio.sleep(2 * len(ledgers) / world.config.rolls_per_second_max + 10)
    assert all(ledger.state is AppendState.BROKEN for ledger in ledgers)
    world.bookie.add_status = lambda *_: Status.OK


async def test_after_an_outage_many_topics_go_on_soon(autojump_clock):
    world = World(rolls_per_second_max=5.0)
    async with world.broker() as factory:
        ledgers = [await open_ledger(factory, f"public/default/persistent/{n}") for n in range(100)]
        await outage(world, ledgers)
        begun = trio.current_time()
        while not all(ledger.listener.appended for ledger in ledgers):
            for ledger in ledgers:
                append(ledger, b"again")
            await trio.sleep(0.1)
        assert trio.current_time() - begun < 100 / 5 / 2


async def test_topics_that_are_closed_use_no_turns(autojump_clock):
    world = World(rolls_per_second_max=1.0)
    async with world.broker() as factory:
        ledgers = [await open_ledger(factory, f"public/default/persistent/{n}") for n in range(40)]
        await outage(world, ledgers)
        for ledger in ledgers:
            append(ledger, b"waits for its turn")
        *closed, last = ledgers
        for ledger in closed:
            await factory.close(ledger.name)
        await trio.sleep(3)
        assert last.state is AppendState.OPEN
        assert last.listener.appended


async def test_after_a_short_outage_publishing_goes_on_soon(autojump_clock):
    world = World()
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        await ledger.open_cursor("s", EARLIEST)
        for _ in range(5):  # an outage leaves nothing behind that slows down the next one
            world.bookie.add_status = lambda *_: Status.READ_ONLY
            await publish_every(ledger, 1.0)
            assert ledger.state is AppendState.BROKEN
            world.bookie.add_status = lambda *_: Status.OK
            before = len(ledger.listener.contexts)
            await publish_every(ledger, 1.0)
            assert len(ledger.listener.contexts) > before
