"""Ledgers whose bookies are lost: on bookies behind real ports."""

from __future__ import annotations

import inspect
import itertools

import pytest
import trio

from autorecovery.fragments import bookies_of
from autorecovery.tests.worlds import ENTRIES, recovery_world
from autorecovery.worker import Outcome
from bookie.api import Status
from ledgers.tests.test_cluster_over_tcp import payload
from metadata.store import MetadataUnavailable, SessionState
from protocol.bookkeeper.ledger_metadata import LedgerState, encode_ledger_metadata
from protocol.bookkeeper.paths import ledger_path, underreplicated_path, underreplication_lock_path
from runtime.testing.conditions import SECONDS_MAX

SIZES = [(2, 2, 2), (3, 2, 2), (3, 3, 2), (4, 2, 2), (3, 3, 3)]


@pytest.mark.parametrize("sizes", SIZES)
async def test_what_a_lost_bookie_had_is_copied_to_others(sizes):
    async with recovery_world(sizes[0] + 1, sizes) as world:
        writer, _ = await world.a_ledger()
        lost = (await world.metadata(writer.ledger_id)).ensembles[0][0]
        await world.lose(lost)

        assert await world.auditor().mark_lost(await world.registered()) == 1
        assert await world.marked() == [writer.ledger_id]
        mark = await world.marks.get(writer.ledger_id)
        assert mark.replicas == (lost,)

        worker = world.worker()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await world.until(lambda: worker.ledgers_completed == 1)
            nursery.cancel_scope.cancel()

        assert await world.marked() == []
        assert lost not in bookies_of(await world.metadata(writer.ledger_id))
        await world.require_all_copies(writer.ledger_id)
        assert await world.world.content(writer.ledger_id) == [payload(n) for n in range(ENTRIES)]
        assert not await world.store.exists(underreplication_lock_path(writer.ledger_id))


@pytest.mark.parametrize("entries", [0, 1, 2])
async def test_bookkeeper_3239_a_short_ledger_does_not_keep_naming_a_lost_bookie(entries):
    for place in range(3):
        async with recovery_world(4, (3, 2, 2)) as world:
            writer, _ = await world.a_ledger(entries)
            lost = (await world.metadata(writer.ledger_id)).ensembles[0][place]
            await world.lose(lost)

            assert await world.worker().replicate(writer.ledger_id) is Outcome.COMPLETE

            assert lost not in bookies_of(await world.metadata(writer.ledger_id))
            await world.require_all_copies(writer.ledger_id)


async def test_bookkeeper_4872_the_only_copy_is_waited_for_without_a_busy_loop():
    async with recovery_world(2, (1, 1, 1)) as world:
        writer, _ = await world.a_ledger()
        [lost] = (await world.metadata(writer.ledger_id)).ensembles[0]
        await world.lose(lost)
        await world.auditor().mark_lost(await world.registered())
        worker = world.worker()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await world.until(lambda: worker.ledgers_failed == 1)
            await trio.sleep(1.0)
            assert worker.ledgers_failed == 1
            # Still marked, and its lock is free for others.
            assert await world.marked() == [writer.ledger_id]
            assert not await world.store.exists(underreplication_lock_path(writer.ledger_id))
            assert (await world.metadata(writer.ledger_id)).ensembles[0] == (lost,)

            await world.world.node(lost).start()
            await world.register(lost)
            await world.until(lambda: worker.ledgers_completed == 1)
            nursery.cancel_scope.cancel()
        await world.require_all_copies(writer.ledger_id)


async def test_an_unregistered_bookie_that_answers_is_a_source():
    async with recovery_world(2, (1, 1, 1)) as world:
        writer, _ = await world.a_ledger()
        [leaving] = (await world.metadata(writer.ledger_id)).ensembles[0]
        await world.unregister(leaving)

        assert await world.worker().replicate(writer.ledger_id) is Outcome.COMPLETE

        assert leaving not in bookies_of(await world.metadata(writer.ledger_id))
        await world.require_all_copies(writer.ledger_id)


async def test_bookkeeper_3905_a_bookie_with_a_new_disk_gets_its_entries_again():
    """The ensemble is all bookies there are."""
    async with recovery_world(3, (3, 3, 2)) as world:
        writer, _ = await world.a_ledger()
        node = world.world.node((await world.metadata(writer.ledger_id)).ensembles[0][1])
        before = await world.metadata(writer.ledger_id)
        await node.kill()
        node.machine = type(node.machine)()
        await node.start()

        assert await world.auditor().check_ledgers() == 1
        await world.complete(world.worker(), writer.ledger_id)

        assert await world.metadata(writer.ledger_id) == before
        await world.require_all_copies(writer.ledger_id)
        assert await world.auditor().check_ledgers() == 0


async def test_a_read_only_bookie_is_a_source_and_no_target():
    async with recovery_world(4, (2, 2, 2)) as world:
        writer, _ = await world.a_ledger()
        lost, source = (await world.metadata(writer.ledger_id)).ensembles[0]
        others = [each.bookie_id for each in world.nodes if each.bookie_id not in (lost, source)]
        await world.become_read_only(source)
        await world.become_read_only(others[0])
        await world.lose(lost)

        assert await world.worker().replicate(writer.ledger_id) is Outcome.COMPLETE

        assert (await world.metadata(writer.ledger_id)).ensembles[0] == (others[1], source)
        await world.require_all_copies(writer.ledger_id)


async def test_a_target_that_refuses_is_passed_over():
    async with recovery_world(4, (2, 2, 2)) as world:
        writer, _ = await world.a_ledger()
        lost, source = (await world.metadata(writer.ledger_id)).ensembles[0]
        others = [each for each in world.nodes if each.bookie_id not in (lost, source)]
        others[0].gate.add_status = lambda ledger_id, entry_id: Status.IO_ERROR
        await world.lose(lost)

        assert await world.worker().replicate(writer.ledger_id) is Outcome.COMPLETE

        ensemble = (await world.metadata(writer.ledger_id)).ensembles[0]
        assert ensemble == (others[1].bookie_id, source)


async def test_too_few_bookies_leave_the_ledger_as_it_is_until_there_is_another_one():
    async with recovery_world(3, (3, 3, 2)) as world:
        writer, _ = await world.a_ledger()
        before = await world.metadata(writer.ledger_id)
        lost = before.ensembles[0][0]
        await world.lose(lost)
        await world.auditor().mark_lost(await world.registered())
        worker = world.worker()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await world.until(lambda: worker.ledgers_failed == 1)
            assert await world.metadata(writer.ledger_id) == before
            await world.world.node(lost).start()
            await world.register(lost)
            await world.until(lambda: worker.ledgers_completed == 1)
            nursery.cancel_scope.cancel()
        assert await world.metadata(writer.ledger_id) == before


async def test_a_writer_that_replaces_its_bookie_is_not_fenced():
    async with recovery_world(4, (3, 3, 2)) as world:
        writer, recorder = await world.a_ledger(close=False)
        lost = (await world.metadata(writer.ledger_id)).ensembles[0][0]
        await world.lose(lost)
        worker = world.worker(openLedgerRereplicationGracePeriod=60_000)
        assert await worker.replicate(writer.ledger_id) is Outcome.LEFT_TO_WRITER

        writer.add_run([payload(each) for each in range(ENTRIES, 2 * ENTRIES)])
        await recorder.wait_for(2 * ENTRIES - 1)

        await world.complete(worker, writer.ledger_id)
        writer.add(payload(2 * ENTRIES))
        await recorder.wait_for(2 * ENTRIES)
        await writer.close()
        await world.require_all_copies(writer.ledger_id)
        assert recorder.failures == []


async def test_an_open_ledger_without_a_writer_is_closed_after_the_grace_period():
    async with recovery_world(4, (3, 3, 2)) as world:
        writer, recorder = await world.a_ledger(close=False)
        lost = (await world.metadata(writer.ledger_id)).ensembles[0][0]
        await world.lose(lost)
        await world.auditor().mark_lost(await world.registered())
        worker = world.worker()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await world.until(lambda: worker.ledgers_completed == 1)
            nursery.cancel_scope.cancel()
        closed = await world.metadata(writer.ledger_id)
        assert (closed.state, closed.last_entry_id) == (LedgerState.CLOSED, ENTRIES - 1)
        await world.require_all_copies(writer.ledger_id)
        # The writer comes back too late: nothing of it is acknowledged.
        writer.add(b"late")
        await world.until(lambda: recorder.failures)
        assert recorder.confirmed[-1] == ENTRIES - 1


async def test_a_change_of_the_ledger_during_the_copy_is_not_overwritten():
    async with recovery_world(5, (2, 2, 2)) as world:
        writer, _ = await world.a_ledger()
        metadata = await world.metadata(writer.ledger_id)
        lost, kept = metadata.ensembles[0]
        others = [each for each in world.nodes if each.bookie_id not in (lost, kept)]
        await world.lose(lost)
        for node in others:
            node.gate.pause()
        outcome = []

        async def replicate():
            outcome.append(await world.worker().replicate(writer.ledger_id))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(replicate)
            await world.until(lambda: any(node.gate._held for node in others))
            # Another worker finishes first, with another bookie.
            target = next(node for node in others if not node.gate._held)
            for node in others:
                node.gate.resume()
            changed = metadata.with_ensemble(0, (target.bookie_id, kept))
            path = ledger_path(writer.ledger_id)
            await world.store.put(path, encode_ledger_metadata(changed), None)
        assert outcome == [Outcome.COMPLETE]
        assert (await world.metadata(writer.ledger_id)).ensembles[0] == (target.bookie_id, kept)
        await world.require_all_copies(writer.ledger_id)


async def test_two_workers_share_the_work_and_none_does_it_twice():
    async with recovery_world(4, (3, 2, 2)) as world:
        ledgers = [(await world.a_ledger(20))[0].ledger_id for _ in range(12)]
        lost = world.nodes[0].bookie_id
        await world.lose(lost)
        marked = await world.auditor().mark_lost(await world.registered())
        stores = [world.store.another_session() for _ in range(2)]
        workers = [world.worker(store, f"w{n}") for n, store in enumerate(stores)]
        async with trio.open_nursery() as nursery:
            for worker in workers:
                nursery.start_soon(worker.run)
            await world.until(lambda: sum(each.ledgers_completed for each in workers) == marked)
            nursery.cancel_scope.cancel()
        assert await world.marked() == []
        for ledger_id in ledgers:
            await world.require_all_copies(ledger_id)


async def test_the_lock_of_a_dead_worker_goes_with_its_session():
    async with recovery_world(3, (2, 2, 2)) as world:
        writer, _ = await world.a_ledger()
        lost = (await world.metadata(writer.ledger_id)).ensembles[0][0]
        await world.lose(lost)
        await world.auditor().mark_lost(await world.registered())
        dead = world.store.another_session()
        assert await type(world.marks)(dead, "dead").lock(writer.ledger_id)
        worker = world.worker()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await trio.sleep(0.3)
            assert worker.entries_copied == 0
            dead.become(SessionState.LOST)
            await world.until(lambda: worker.ledgers_completed == 1)
            nursery.cancel_scope.cancel()


class Unanswered:
    """A store whose answers to some requests are lost, after they had effect."""

    def __init__(self, store, requests):
        self._store = store
        self._requests = list(requests)

    def __getattr__(self, name):
        call = getattr(self._store, name)
        if name not in self._requests:
            return call

        async def unanswered(*arguments):
            await call(*arguments)
            if name in self._requests:
                self._requests.remove(name)
                raise MetadataUnavailable(f"no answer to {name}")

        return unanswered


@pytest.mark.parametrize(
    "requests", [["put_ephemeral"], ["delete"], ["get"], ["put_ephemeral", "delete", "get"]]
)
async def test_a_lock_whose_answer_was_lost_is_not_held_for_ever(requests):
    async with recovery_world(3, (2, 2, 2)) as world:
        writer, _ = await world.a_ledger()
        lost = (await world.metadata(writer.ledger_id)).ensembles[0][0]
        await world.lose(lost)
        await world.auditor().mark_lost(await world.registered())
        session = world.store.another_session()
        worker = world.worker(Unanswered(session, requests))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await world.until_unmarked()
            lock = underreplication_lock_path(writer.ledger_id)
            await world.marks.add(writer.ledger_id, ["again:1"], 1)
            await world.until_unmarked()
            nursery.cancel_scope.cancel()
        assert not await world.store.exists(lock)


class Ending:
    """A store whose `call`-th request ends a scope: what it asks for has effect, or has none."""

    def __init__(self, store, call, has_effect):
        self._store = store
        self._calls_left = call
        self._has_effect = has_effect
        self.scope = trio.CancelScope()

    def __getattr__(self, name):
        found = getattr(self._store, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def counted(*arguments):
            self._calls_left -= 1
            if self._calls_left == 0:
                try:
                    if self._has_effect:
                        return await found(*arguments)
                finally:
                    self.scope.cancel()
                    await trio.lowlevel.checkpoint()
            return await found(*arguments)

        return counted


@pytest.mark.parametrize("has_effect", [False, True])
async def test_a_worker_that_is_cancelled_anywhere_keeps_no_lock(has_effect):
    async with recovery_world(3, (2, 2, 2)) as world:
        writer, _ = await world.a_ledger()
        lost = (await world.metadata(writer.ledger_id)).ensembles[0][0]
        await world.lose(lost)
        lock = underreplication_lock_path(writer.ledger_id)
        were_locked = 0
        for call in itertools.count(1):
            await world.auditor().mark_lost(await world.registered())
            await world.marks.add(writer.ledger_id, [lost], 1)
            store = Ending(world.store.another_session(), call, has_effect)
            taken = []
            stop = world.store.watch(lock, taken.append)
            worker = world.worker(store)
            with trio.fail_after(SECONDS_MAX), store.scope:
                await worker.run()
            stop()
            were_locked += bool(taken)
            assert not await world.store.exists(lock), f"cancelled at request {call}"
            if worker.ledgers_completed:
                break
        assert were_locked >= 5


async def test_replication_that_is_switched_off_copies_nothing_until_it_is_on():
    async with recovery_world(3, (2, 2, 2)) as world:
        writer, _ = await world.a_ledger()
        lost = (await world.metadata(writer.ledger_id)).ensembles[0][0]
        await world.store.put("/ledgers/underreplication/disable", b"", None)
        await world.lose(lost)
        await world.auditor().mark_lost(await world.registered())
        worker = world.worker()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await trio.sleep(0.3)
            assert worker.entries_copied == 0
            await world.store.delete("/ledgers/underreplication/disable")
            await world.until(lambda: worker.ledgers_completed == 1)
            nursery.cancel_scope.cancel()


async def test_marks_of_deleted_ledgers_go():
    async with recovery_world(2, (2, 2, 2)) as world:
        await world.marks.add(77, ["gone:1"], 1)
        worker = world.worker()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await world.until(lambda: worker.ledgers_completed == 1)
            nursery.cancel_scope.cancel()
        assert await world.marked() == []


async def test_a_later_word_about_a_ledger_is_not_lost():
    async with recovery_world(2, (2, 2, 2)) as world:
        await world.marks.add(77, ["a:1"], 1)
        mark = await world.marks.get(77)
        await world.marks.add(77, ["b:1"], 2)

        assert not await world.marks.remove(mark)

        assert (await world.marks.get(77)).replicas == ("a:1", "b:1")
        assert await world.marks.remove(await world.marks.get(77))
        assert await world.store.get(underreplicated_path(77)) is None


async def test_damaged_metadata_of_one_ledger_keeps_no_other_from_being_marked():
    async with recovery_world(3, (2, 2, 2)) as world:
        writers = [(await world.a_ledger(3))[0] for _ in range(3)]
        await world.store.put(ledger_path(writers[1].ledger_id), b"rubbish", None)
        auditor = world.auditor()

        assert await auditor.mark_lost(frozenset()) == 2

        assert auditor.ledgers_damaged == 1
        assert await world.marked() == [writers[0].ledger_id, writers[2].ledger_id]
