"""What the log says while there are fewer bookies than a new ledger needs."""

from __future__ import annotations

import trio
import trio.testing
from structlog.testing import capture_logs

from bookie.adds import NoTurn
from broker.assembly.bookie_shortage import BookieShortage, tell_arrivals, tell_shortages
from ledgers.remote.bookie_pool import BookiePool
from metadata.memory_store import MemoryStore
from protocol.bookkeeper.paths import available_path


def test_a_shortage_is_told_when_it_begins_and_when_it_ends():
    shortage = BookieShortage(3)
    news = [shortage.news(writable) for writable in (0, 1, 2, 3, 4, 3, 2, 2, 5)]
    told = [each if each is None else bool(each) for each in news]
    assert told == [True, None, None, False, None, None, True, None, False]
    assert "0 bookies accept entries, and a new ledger needs 3" in news[0]
    assert "managedLedgerDefaultEnsembleSize" in news[0]


def test_enough_bookies_from_the_start_are_not_told():
    assert BookieShortage(2).news(2) is None


async def test_a_broker_logs_one_line_until_there_are_enough_bookies(autojump_clock):
    store = MemoryStore()
    other = store.another_session()
    await other.put_ephemeral(available_path("a:1"), b"")
    pool = BookiePool(store, NoTurn())
    with capture_logs() as logs:
        async with trio.open_nursery() as nursery:
            await nursery.start(pool.run)
            nursery.start_soon(tell_shortages, pool, BookieShortage(3))
            for bookie_id in ("b:1", "c:1", "d:1"):
                await trio.testing.wait_all_tasks_blocked()
                lines = [line for line in logs if line["event"] == "too few bookies"]
                assert len(lines) == 1
                await other.put_ephemeral(available_path(bookie_id), b"")
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    about = [line for line in logs if "bookies" in line["event"] and line["event"] != "bookies"]
    assert [(line["event"], line["log_level"]) for line in about] == [
        ("too few bookies", "warning"),
        ("enough bookies again", "info"),
    ]
    assert "1 bookie accepts entries, and a new ledger needs 3" in about[0]["reason"]
    assert (about[1]["bookies"], about[1]["needed"]) == (3, 3)


async def test_bookies_that_join_are_told_and_those_that_leave_are_not(autojump_clock):
    store = MemoryStore()
    other = store.another_session()
    await other.put_ephemeral(available_path("a:1"), b"")
    pool = BookiePool(store, NoTurn())
    joined = []
    async with trio.open_nursery() as nursery:
        await nursery.start(pool.run)
        nursery.start_soon(tell_arrivals, pool, lambda: joined.append(pool.writable))
        await trio.testing.wait_all_tasks_blocked()
        assert joined == []
        await other.put_ephemeral(available_path("b:1"), b"")
        await trio.testing.wait_all_tasks_blocked()
        assert joined == [("a:1", "b:1")]
        await other.delete(available_path("b:1"))
        await trio.testing.wait_all_tasks_blocked()
        assert joined == [("a:1", "b:1")]
        await other.put_ephemeral(available_path("b:1"), b"")
        await trio.testing.wait_all_tasks_blocked()
        assert joined == [("a:1", "b:1")] * 2
        nursery.cancel_scope.cancel()
