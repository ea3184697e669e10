"""Who audits, when, and how a bookie leaves."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from autorecovery import records
from autorecovery.auditor import registered_bookies
from autorecovery.decommission import NotDecommissioned, decommission
from autorecovery.election import Election, LeaderNode, Votes, current_auditor
from autorecovery.fragments import bookies_of
from autorecovery.marks import Marks
from autorecovery.tests.worlds import recovery_world
from bookie.api import Status
from metadata.memory_store import MemoryStore
from metadata.store import MUST_NOT_EXIST, MetadataUnavailable, SessionState
from protocol.bookkeeper.ledger_metadata import encode_ledger_metadata
from protocol.bookkeeper.paths import (
    READ_ONLY_ROOT,
    available_path,
    cookie_path,
    ledger_path,
    read_only_path,
)
from runtime.testing.conditions import eventually

BALLOTS = [Votes, LeaderNode]


class Candidate:
    def __init__(self, store, ballot_type, name):
        self.store = store
        self.name = name
        self.audits = 0
        self.election = Election(store, ballot_type(store, name), self.audit)
        self.scope = trio.CancelScope()

    async def audit(self):
        self.audits += 1
        await trio.sleep_forever()

    async def run(self):
        with self.scope:
            await self.election.run()


@asynccontextmanager
async def candidates(ballot_type, count):
    first = MemoryStore()
    stores = [first, *(first.another_session() for _ in range(count - 1))]
    made = [Candidate(store, ballot_type, f"c{n}:1") for n, store in enumerate(stores)]
    async with trio.open_nursery() as nursery:
        for candidate in made:
            nursery.start_soon(candidate.run)
        yield made
        nursery.cancel_scope.cancel()


def elected(made):
    return [each.name for each in made if each.election.is_auditor]


@pytest.mark.parametrize("ballot_type", BALLOTS)
async def test_one_candidate_is_the_auditor_and_another_one_follows_it(ballot_type):
    async with candidates(ballot_type, 3) as made:
        await eventually(lambda: elected(made), 60)
        for _ in range(2):
            await trio.testing.wait_all_tasks_blocked(0.02)
            [name] = elected(made)
            assert await current_auditor(made[0].store) == name
            next(each for each in made if each.name == name).scope.cancel()
            await eventually(lambda name=name: elected(made) not in ([], [name]), 60)
        assert len(elected(made)) == 1


@pytest.mark.parametrize("ballot_type", BALLOTS)
async def test_an_auditor_without_its_session_ends_and_stands_again(ballot_type):
    async with candidates(ballot_type, 2) as made:
        await eventually(lambda: elected(made), 60)
        auditor = next(each for each in made if each.election.is_auditor)
        other = next(each for each in made if each is not auditor)
        auditor.store.become(SessionState.IN_DOUBT)
        await eventually(lambda: not auditor.election.is_auditor, 60)
        auditor.store.become(SessionState.LOST)
        await eventually(lambda: other.election.is_auditor, 60)
        auditor.store.become(SessionState.LIVE)
        other.scope.cancel()
        await eventually(lambda: auditor.audits == 2, 60)
        assert auditor.election.is_auditor


class Interrupted:
    """A session that is lost while it is asked something, if it shall be."""

    def __init__(self, inner):
        self.inner = inner
        self.is_due = False

    def __getattr__(self, name):
        return getattr(self.inner, name)

    async def get(self, path):
        if self.is_due:
            self.inner.become(SessionState.LOST)
            raise MetadataUnavailable("the session was lost")
        return await self.inner.get(path)


async def test_an_auditor_whose_session_is_lost_while_it_looks_ends_at_once(autojump_clock):
    store = Interrupted(MemoryStore())
    auditor = Candidate(store, Votes, "c0:1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(auditor.run)
        await trio.sleep(1)
        assert auditor.election.is_auditor
        store.is_due = True
        await store.another_session().put(f"{records.VOTES_ROOT}/looked-at", b"", None)
        await trio.testing.wait_all_tasks_blocked()
        assert store.session_state is SessionState.LOST
        assert not auditor.election.is_auditor
        store.is_due = False
        store.become(SessionState.LIVE)
        await trio.sleep(5)
        assert auditor.election.is_auditor
        nursery.cancel_scope.cancel()


async def test_a_vote_of_the_former_session_of_this_process_is_not_its_own():
    store = MemoryStore()
    former = store.another_session()
    await former.put_ephemeral(records.vote_path(3), records.encode_vote("c:1"))
    votes = Votes(store, "c:1")

    assert not await votes.stand()

    former.become(SessionState.LOST)
    assert await votes.stand()
    # As BookKeeper tells people.
    assert records.candidate_of_vote((await store.get(records.VOTES_ROOT))[0]) == "c:1"


async def test_the_parent_of_read_only_bookies_is_no_bookie():
    """It is there alone when all sessions ended with ZooKeeper. An audit would mark all ledgers."""
    store = MemoryStore()
    await store.put(READ_ONLY_ROOT, b"", None)
    assert await registered_bookies(store) == frozenset()
    await store.put_ephemeral(available_path("a"), b"")
    await store.put_ephemeral(read_only_path("b"), b"")
    assert await registered_bookies(store) == {"a", "b"}


async def test_the_auditor_marks_when_a_bookie_is_lost_and_when_it_is_asked():
    async with recovery_world(3, (2, 2, 2)) as world:
        writers = [(await world.a_ledger(3))[0] for _ in range(6)]
        auditor = world.auditor()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(auditor.run)
            await world.until(lambda: auditor.audits == 1)
            assert await world.marked() == []
            lost = world.nodes[0].bookie_id
            expected = [
                each.ledger_id
                for each in writers
                if lost in bookies_of(await world.metadata(each.ledger_id))
            ]
            await world.lose(lost)
            await world.until(lambda: auditor.audits == 2)
            assert await world.marked() == expected != []
            # The command of BookKeeper's shell, and its trigger: the same delay again.
            await world.store.put(records.DELAY_PATH, b"0", None)
            await world.until(lambda: auditor.audits == 3)
            nursery.cancel_scope.cancel()
        stored = await world.store.get(records.LEDGERS_CHECKED_PATH)
        assert records.ledgers_checked_ms(stored[0]) > 0


class Deaf:
    """A session that hears of no change until it is connected again, as all watches say then."""

    def __init__(self, inner):
        self._inner = inner
        self._watches = []
        self.is_deaf = False

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def watch(self, path, on_change):
        self._watches.append((path, on_change))
        return self._inner.watch(path, lambda changed: self.is_deaf or on_change(changed))

    def hear_again(self):
        self.is_deaf = False
        for path, on_change in self._watches:
            on_change(path)


async def test_a_delay_that_was_set_while_the_auditor_heard_nothing_is_in_force():
    async with recovery_world(3, (2, 2, 2)) as world:
        await world.store.put(records.DELAY_PATH, b"3600", None)
        store = Deaf(world.store)
        auditor = world.auditor(store)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(auditor.run)
            await world.until(lambda: auditor.audits == 1)
            await trio.testing.wait_all_tasks_blocked()
            store.is_deaf = True
            await world.store.put(records.DELAY_PATH, b"0", None)
            store.hear_again()
            await world.until(lambda: auditor.audits == 2)
            nursery.cancel_scope.cancel()


COOKIE = b"5\nthe cookie\n"


async def test_a_mark_made_again_during_the_work_outlives_it():
    store = MemoryStore()
    auditor, worker = Marks(store, "auditor"), Marks(store.another_session(), "worker")
    await auditor.add(7, ["b1:3181"], 1)
    before = await worker.get(7)
    await auditor.add(7, ["b1:3181"], 2)  # it came back, and was lost again

    assert not await worker.remove(before)
    again = await worker.get(7)
    assert again.replicas == ("b1:3181",)
    assert await worker.remove(again)


@asynccontextmanager
async def recovering(world):
    """Auditor and worker."""
    store = world.store.another_session()
    worker = world.worker(store)
    election = world.election(store, "daemon:1", world.auditor(store).run)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker.run)
        nursery.start_soon(election.run)
        await world.until(lambda: election.is_auditor)
        yield worker
        nursery.cancel_scope.cancel()


async def leave(world, bookie_id, wait_s=60.0):
    told = []
    await decommission(world.store, world.marks, bookie_id, wait_s, told.append)
    return told


async def test_a_bookie_leaves_when_no_ledger_names_it_any_more():
    async with recovery_world(4, (3, 2, 2)) as world:
        ledgers = [(await world.a_ledger(10))[0].ledger_id for _ in range(8)]
        leaving = world.nodes[1].bookie_id
        await world.store.put(cookie_path(leaving), COOKIE, MUST_NOT_EXIST)
        async with recovering(world):
            with pytest.raises(NotDecommissioned, match="is running: stop it first"):
                await leave(world, leaving)
            await world.lose(leaving)
            await leave(world, leaving)
        assert await world.store.get(cookie_path(leaving)) is None
        for ledger_id in ledgers:
            assert leaving not in bookies_of(await world.metadata(ledger_id))
            await world.require_all_copies(ledger_id)


async def test_a_bookie_with_the_only_copy_does_not_leave():
    async with recovery_world(2, (1, 1, 1)) as world:
        writer, _ = await world.a_ledger()
        [leaving] = (await world.metadata(writer.ledger_id)).ensembles[0]
        await world.store.put(cookie_path(leaving), COOKIE, MUST_NOT_EXIST)
        async with recovering(world):
            await world.lose(leaving)
            with pytest.raises(NotDecommissioned, match=f"only copy .* {writer.ledger_id} "):
                await leave(world, leaving)
        assert await world.store.get(cookie_path(leaving)) is not None


async def test_a_bookie_does_not_leave_without_another_one_in_its_place():
    async with recovery_world(3, (3, 3, 2)) as world:
        writer, _ = await world.a_ledger()
        leaving = (await world.metadata(writer.ledger_id)).ensembles[0][0]
        await world.lose(leaving)
        async with recovering(world):
            with pytest.raises(NotDecommissioned, match=r"a copy on every other .* Add a bookie"):
                await leave(world, leaving)


async def test_a_bookie_does_not_leave_while_copies_cannot_be_made():
    async with recovery_world(4, (3, 3, 2)) as world:
        writer, _ = await world.a_ledger()
        for node in world.nodes:
            node.gate.add_status = lambda ledger_id, entry_id: Status.IO_ERROR
        leaving = (await world.metadata(writer.ledger_id)).ensembles[0][0]
        await world.store.put(cookie_path(leaving), COOKIE, MUST_NOT_EXIST)
        await world.lose(leaving)
        with pytest.raises(NotDecommissioned, match="there is no auditor"):
            await leave(world, leaving)
        async with recovering(world):
            with pytest.raises(NotDecommissioned, match="1 ledgers still name"):
                await leave(world, leaving, 0.5)
            await world.store.put(records.DISABLE_PATH, b"", None)
            with pytest.raises(NotDecommissioned, match="switched off"):
                await leave(world, leaving)
        assert await world.store.get(cookie_path(leaving)) is not None


async def test_a_ledger_that_cannot_be_read_may_name_the_bookie():
    async with recovery_world(2, (1, 1, 1)) as world:
        await world.store.put(ledger_path(5), b"rubbish", None)
        await world.store.put(cookie_path("a:1"), COOKIE, MUST_NOT_EXIST)
        with pytest.raises(NotDecommissioned, match="metadata of 1 ledgers is damaged"):
            await leave(world, "a:1")
        assert await world.store.get(cookie_path("a:1")) is not None


async def test_a_bookie_that_was_never_there_cannot_leave():
    async with recovery_world(2, (1, 1, 1)) as world:
        with pytest.raises(NotDecommissioned, match="there is no bookie 'a:1'"):
            await leave(world, "a:1")


async def test_an_empty_ledger_with_one_copy_keeps_no_bookie():
    async with recovery_world(2, (1, 1, 1)) as world:
        writer, _ = await world.a_ledger(0)
        metadata = await world.metadata(writer.ledger_id)
        [leaving] = metadata.ensembles[0]
        await world.store.put(ledger_path(writer.ledger_id), encode_ledger_metadata(metadata), None)
        await world.store.put(cookie_path(leaving), COOKIE, MUST_NOT_EXIST)
        async with recovering(world):
            await world.lose(leaving)
            await leave(world, leaving)
        assert await world.store.get(cookie_path(leaving)) is None
