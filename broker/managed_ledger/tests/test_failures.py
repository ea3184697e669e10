"""Storage and metadata that fail at awkward instants: what is said, and what is kept."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from bookie.api import Status
from broker.managed_ledger.config import LedgerPolicies, RetentionPolicy
from broker.managed_ledger.cursor_store import CursorStore
from broker.managed_ledger.ledger_list import OwnershipLost
from broker.managed_ledger.open_appends import AppendState
from broker.managed_ledger.paths import cursor_info_path, ledger_info_path
from broker.managed_ledger.tests.world import (
    NAME,
    World,
    append,
    append_and_wait,
    open_ledger,
    read_all,
    settle,
)
from ledgers.errors import RecoveryFailed
from metadata.store import MetadataUnavailable
from protocol.bookkeeper.paths import ledger_path
from protocol.errors import BrokerError, ServerError
from protocol.position import EARLIEST

FOR_EVER = RetentionPolicy(time_minutes=-1, size_mb=-1)


class HeldPut:
    """Stops the next put of a path of the store, before it is done or just after."""

    def __init__(self, store, path, *, after):
        self._put = store.put
        self._path = path
        self._after = after
        self.reached = trio.Event()
        self.go_on = trio.Event()
        store.put = self.put

    async def put(self, path, value, expected_version):
        if path != self._path or self.reached.is_set():
            return await self._put(path, value, expected_version)
        if not self._after:
            self.reached.set()
            await self.go_on.wait()
        version = await self._put(path, value, expected_version)
        if self._after:
            self.reached.set()
            await self.go_on.wait()
        return version


class HeldGet:
    """Stops the next get of a path of the store before it is done."""

    def __init__(self, store, path):
        self._get = store.get
        self._path = path
        self.reached = trio.Event()
        self.go_on = trio.Event()
        store.get = self.get

    async def get(self, path):
        if path == self._path and not self.reached.is_set():
            self.reached.set()
            await self.go_on.wait()
        return await self._get(path)


def failing(error):
    async def fail(*_arguments):
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MetadataUnavailable("the disk is full"), ServerError.MetadataError),
        (RecoveryFailed("no bookie answers"), ServerError.ServiceNotReady),
    ],
)
async def test_cursors_that_cannot_be_restored_refuse_the_topic_with_one_error(
    monkeypatch, error, code, autojump_clock
):
    world = World()
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        for name in ("one", "two"):
            await ledger.open_cursor(name, EARLIEST)
        await factory.aclose()
        with monkeypatch.context() as patch:
            patch.setattr(CursorStore, "load", failing(error))
            with pytest.raises(BrokerError) as refused, capture_logs() as logs:
                await factory.open(NAME)
        assert {line.get("cursor") for line in logs} >= {"one", "two"}
        assert refused.value.server_error == code
        assert str(error) in str(refused.value)
        assert sorted((await open_ledger(factory)).cursors) == ["one", "two"]


@pytest.mark.parametrize("status", [Status.UNREACHABLE, Status.TIMED_OUT, Status.IO_ERROR])
@pytest.mark.parametrize("is_closed", [False, True])
async def test_a_silent_bookie_of_a_cursor_refuses_the_topic_until_it_answers(
    autojump_clock, status, is_closed
):
    world = World(max_ranges_in_metadata_store=0)
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        positions = await append_and_wait(ledger, *(b"%d" % number for number in range(9)))
        cursor = await ledger.open_cursor("s", EARLIEST)
        cursor.ack_cumulative(positions[1])
        await cursor.flush()
        cursor.ack_cumulative(positions[4])
        cursor.ack_individual(positions[7])
        await cursor.flush()
        if is_closed:
            await factory.aclose()
        before = cursor.mark_delete, cursor.acked_ranges()
        cursor_ledger_id = cursor.cursor_ledger[0]
    world.crash_bookie()
    world.bookie.read_status = lambda ledger_id, _: (
        status if ledger_id == cursor_ledger_id else Status.OK
    )
    async with world.broker() as factory:
        for _attempt in range(2):
            with pytest.raises(BrokerError) as refused:
                await factory.open(NAME)
            assert refused.value.server_error == ServerError.ServiceNotReady
        world.bookie.read_status = lambda _ledger_id, _entry_id: Status.OK
        cursor = (await open_ledger(factory)).cursors["s"]
        assert (cursor.mark_delete, cursor.acked_ranges()) == before


@pytest.mark.parametrize("force_recovery", [False, True])
async def test_a_damaged_cursor_ledger_gives_its_position_up_only_if_told_to(
    autojump_clock, force_recovery
):
    world = World(force_recovery=force_recovery, max_ranges_in_metadata_store=0)
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        positions = await append_and_wait(ledger, *(b"%d" % number for number in range(9)))
        cursor = await ledger.open_cursor("s", EARLIEST)
        cursor.ack_cumulative(positions[1])
        await cursor.flush()
        cursor.ack_cumulative(positions[4])
        cursor.ack_individual(positions[7])
        await factory.aclose()
    entries = world.bookie.ledgers[cursor.cursor_ledger[0]]
    entries[max(entries)] = entries[max(entries)][:-1] + b"?"
    async with world.broker() as factory:
        if force_recovery:
            assert (await open_ledger(factory)).cursors["s"].mark_delete == positions[1]
        else:
            with pytest.raises(BrokerError) as refused:
                await factory.open(NAME)
            assert refused.value.server_error == ServerError.ServiceNotReady


@pytest.mark.parametrize("path", [ledger_info_path(NAME), cursor_info_path(NAME, "s")])
async def test_a_damaged_record_refuses_the_topic_and_names_what_is_damaged(path, autojump_clock):
    world = World()
    async with world.broker() as factory:
        await (await open_ledger(factory)).open_cursor("s", EARLIEST)
        await factory.aclose()
        await world.store.put(path, b"\xff\xff damaged", None)
        with pytest.raises(BrokerError, match="damaged") as refused:
            await factory.open(NAME)
        assert refused.value.server_error == ServerError.MetadataError


async def test_a_topic_that_is_taken_over_during_a_rollover_stays_fenced(autojump_clock):
    world = World()
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        await append_and_wait(ledger, b"kept")
        held = HeldPut(world.store, ledger_info_path(NAME), after=True)
        ledger.appender.roll()
        append(ledger, b"queued")
        with trio.fail_after(5):
            await held.reached.wait()
        ledger.appender.fence("taken over")
        assert [context for context, _ in ledger.listener.failed] == [b"queued"]
        held.go_on.set()
        await settle()
        assert ledger.state is AppendState.FENCED
        append(ledger, b"late")
        assert [context for context, _ in ledger.listener.failed] == [b"queued", b"late"]
        await settle()
        assert ledger.listener.contexts == [b"kept"]
    async with world.broker() as factory:
        assert await read_all(await open_ledger(factory)) == [b"kept"]


async def test_a_cursor_stored_during_a_save_of_the_list_does_not_doubt_the_owner(autojump_clock):
    world = World()
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        cursor = await ledger.open_cursor("s", EARLIEST)
        (position,) = await append_and_wait(ledger, b"a")
        held = HeldPut(world.store, ledger_info_path(NAME), after=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ledger.change_properties, lambda _: {"k": "v"})
            await held.reached.wait()
            cursor.ack_cumulative(position)
            await cursor.flush()
            held.go_on.set()
        assert not ledger.fenced
        await append_and_wait(ledger, b"b")
    async with world.broker() as factory:
        again = await open_ledger(factory)
        assert again.cursors["s"].mark_delete == position
        assert again.properties == {"k": "v"}


async def test_a_list_written_by_another_during_our_save_is_noticed(autojump_clock):
    world = World()
    async with world.broker() as old, world.broker() as new:
        ledger = await open_ledger(old)
        held = HeldPut(world.store, ledger_info_path(NAME), after=False)
        ledger.appender.roll()
        await held.reached.wait()
        owner = await open_ledger(new)
        held.go_on.set()
        await settle()
        assert ledger.fenced
        await append_and_wait(owner, b"kept")


async def test_a_former_owner_whose_save_failed_leaves_the_cursors_to_the_present_one(
    autojump_clock, monkeypatch
):
    """Its save had no effect, and the new owner wrote the version that it would have had."""

    async def unavailable(*_arguments):
        raise MetadataUnavailable("no connection")

    world = World()
    async with world.broker() as former, world.broker() as present:
        ledger = await open_ledger(former)
        cursor = await ledger.open_cursor("s", EARLIEST)
        await append_and_wait(ledger, b"a", b"b")
        with monkeypatch.context() as patch:
            patch.setattr(world.store, "put", unavailable)
            with pytest.raises(MetadataUnavailable):
                await ledger.change_properties(lambda _: {"k": "v"})
        owner = await open_ledger(present)
        with pytest.raises(OwnershipLost):
            await cursor.set_properties({"a": "b"})
        assert ledger.fenced
        assert ledger.listener.fences == 1
        await owner.cursors["s"].reset(owner.last_confirmed)
        assert not owner.fenced


async def test_a_cursor_that_fails_at_the_close_keeps_no_other_from_being_stored(autojump_clock):
    world = World()
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        cursors = [await ledger.open_cursor(name, EARLIEST) for name in ("a", "b", "c")]
        positions = await append_and_wait(ledger, b"1", b"2", b"3")
        for cursor in cursors:
            cursor.ack_cumulative(positions[1])
        put, path = world.store.put, cursor_info_path(NAME, "a")

        async def put_but_one(asked, value, expected_version):
            if asked == path:
                raise MetadataUnavailable("the disk is full")
            return await put(asked, value, expected_version)

        world.store.put = put_but_one
        with capture_logs() as logs:
            await factory.close(NAME)
        world.store.put = put
        assert [each["cursor"] for each in logs if each["event"] == "cursor_not_stored"] == ["a"]
        assert not factory.ledgers
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        assert ledger.cursors["b"].mark_delete == ledger.cursors["c"].mark_delete == positions[1]
        assert ledger.cursors["a"].mark_delete < positions[0]


@pytest.mark.parametrize("entry_id", [2**32 - 1, 2**32, 2**63 - 1, -1, -(2**63)])
async def test_acks_of_entry_ids_of_any_size_harm_nothing(entry_id, autojump_clock):
    world = World()
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        cursor = await ledger.open_cursor("s", EARLIEST)
        positions = await append_and_wait(ledger, b"1", b"2", b"3")
        cursor.ack_individual(positions[1])
        for ledger_id in {positions[0][0], 2**63 - 1, -1, -(2**63)}:
            odd = (ledger_id, entry_id)
            cursor.ack_individual(odd)
            was_before = odd <= cursor.mark_delete
            assert cursor.ack_batch_index(odd, 1) == cursor.is_acked(odd) == was_before
        assert cursor.backlog_entries == 2
        await cursor.flush()
    async with world.broker() as factory:
        restored = (await open_ledger(factory)).cursors["s"]
        assert restored.backlog_entries == 2
        assert restored.is_acked(positions[1])


@pytest.mark.parametrize("entry_id", [2**32 - 1, 2**32, 2**63 - 1])
async def test_a_cumulative_ack_behind_the_end_of_a_ledger_acks_that_ledger(
    entry_id, autojump_clock
):
    world = World(max_entries_per_ledger=3)
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        await ledger.open_cursor("holds", EARLIEST)
        cursor = await ledger.open_cursor("s", EARLIEST)
        positions = await append_and_wait(ledger, *[b"%d" % number for number in range(5)])
        cursor.ack_individual(positions[1])
        cursor.ack_individual(positions[4])
        cursor.ack_cumulative((positions[0][0], entry_id))
        assert cursor.backlog_entries == 1
        await cursor.flush()
    async with world.broker() as factory:
        restored = (await open_ledger(factory)).cursors["s"]
        assert restored.backlog_entries == 1
        assert not restored.is_acked(positions[3])


@pytest.mark.parametrize("takes_effect", [False, True])
async def test_a_reset_that_cannot_be_stored_changes_nothing(takes_effect, autojump_clock):
    world = World()
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        cursor = await ledger.open_cursor("s", EARLIEST)
        positions = await append_and_wait(ledger, b"1", b"2", b"3", b"4")
        cursor.ack_cumulative(positions[1])
        cursor.ack_individual(positions[3])
        await cursor.flush()
        put = world.store.put

        async def put_not(path, value, expected_version):
            if takes_effect:
                await put(path, value, expected_version)
            raise MetadataUnavailable("the disk is full")

        world.store.put = put_not
        world.bookie.add_status = lambda *_: Status.IO_ERROR
        with pytest.raises(BrokerError, match="the disk is full"):
            await cursor.reset(positions[0])
        assert cursor.mark_delete == positions[1]
        assert cursor.is_acked(positions[3])
        world.store.put = put
        world.bookie.add_status = lambda *_: Status.OK
        await trio.sleep(2)
        assert not cursor.is_dirty
        assert not ledger.fenced
    async with world.broker() as factory:
        restored = (await open_ledger(factory)).cursors["s"]
        assert restored.mark_delete == positions[1]
        assert restored.is_acked(positions[3])


@pytest.mark.parametrize("takes_effect", [False, True])
async def test_a_topic_goes_on_after_writes_that_nobody_heard_of(takes_effect, autojump_clock):
    world = World()
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        cursor = await ledger.open_cursor("s", EARLIEST)
        positions = await append_and_wait(ledger, b"1", b"2", b"3")
        await cursor.flush()
        put = world.store.put

        async def put_unheard(path, value, expected_version):
            if takes_effect:
                await put(path, value, expected_version)
            raise MetadataUnavailable("the disk is full")

        world.store.put = put_unheard
        for call in (
            lambda: ledger.change_properties(lambda _: {"a": "1"}),
            lambda: cursor.set_properties({"a": "1"}),
            cursor.close,  # inline: the record does not point to the cursor ledger any more
        ):
            cursor.touch()
            with pytest.raises(MetadataUnavailable):
                await call()
        world.store.put = put
        await ledger.change_properties(lambda _: {"a": "2"})
        cursor.ack_cumulative(positions[1])
        await cursor.flush()
        cursor.ack_cumulative(positions[2])
        await cursor.flush()
        assert not ledger.fenced
    async with world.broker() as factory:
        again = await open_ledger(factory)
        assert again.properties == {"a": "2"}
        assert again.cursors["s"].mark_delete == positions[2]


@pytest.mark.parametrize(("count_max", "payloads"), [(1, [b"3"]), (100, [b"3", b"4", b"5"])])
async def test_a_read_goes_on_behind_the_ledgers_trimmed_meanwhile(
    count_max, payloads, autojump_clock
):
    world = World(policies=LedgerPolicies(retention=FOR_EVER), max_entries_per_ledger=3)
    async with world.broker() as factory:
        await append_and_wait(await open_ledger(factory), *[b"%d" % n for n in range(6)])
        await factory.aclose()
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        cursor = await ledger.open_cursor("s", EARLIEST)
        cursor.ack_cumulative(ledger.position_after_n(EARLIEST, 3))
        ledger.policies = LedgerPolicies()
        held = HeldGet(world.store, ledger_path(ledger.first_position[0]))

        async def read():
            entries = await ledger.read(EARLIEST, count_max, 1 << 20)
            assert [entry.data for entry in entries] == payloads

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await held.reached.wait()
            assert await ledger.trim() == 1
            held.go_on.set()


def test_a_bookie_that_refuses_after_the_end_of_the_broker_harms_nothing():
    async def scenario(turns):
        world = World()
        world.bookie.is_holding = True
        world.bookie.add_status = lambda _ledger_id, _entry_id: Status.IO_ERROR
        async with world.broker() as factory:
            ledger = await open_ledger(factory)
            append(ledger, b"late")
        for _ in range(turns):
            await trio.lowlevel.checkpoint()
        world.bookie.release(1)
        await settle()
        assert ledger.listener.appended == []

    for turns in range(4):
        trio.run(scenario, turns, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize(
    "change",
    [lambda cursor: cursor.reset(EARLIEST), lambda cursor: cursor.set_properties({"a": "b"})],
    ids=["reset", "properties"],
)
async def test_a_cursor_change_that_meets_another_owner_ends_the_topic(autojump_clock, change):
    world = World()
    async with world.broker() as former:
        ledger = await open_ledger(former)
        cursor = await ledger.open_cursor("s", EARLIEST)
        await append_and_wait(ledger, b"a", b"b")
        async with world.broker() as present:
            await open_ledger(present)
            with pytest.raises(OwnershipLost):
                await change(cursor)
            assert ledger.fenced, "a topic that stays open refuses its subscription for ever"


async def test_a_topic_that_ended_before_the_last_attempt_to_roll_stays_ended(autojump_clock):
    world = World(roll_attempts_max=1)
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        world.bookie.is_holding = True
        append(ledger, b"refused")
        ledger.appender.roll()
        await settle()
        world.bookie.add_status = lambda *_: Status.READ_ONLY
        world.bookie.release()
        assert ledger.state is AppendState.ROLLING
        await ledger.appender.drain_and_stop(AppendState.TERMINATED, 1.0)
        await settle()
        assert ledger.state is AppendState.TERMINATED
        append(ledger, b"too late")
        _, error = ledger.listener.failed[-1]
        assert error.server_error == ServerError.TopicTerminatedError


async def test_a_ledger_whose_record_is_damaged_is_named_and_usable_again_when_it_is_restored():
    world = World()
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        ((ledger_id, _),) = await append_and_wait(ledger, b"a")
    path = ledger_path(ledger_id)
    intact, _version = await world.store.get(path)
    await world.store.put(path, intact[:-5], None)
    async with world.broker() as factory:
        with pytest.raises(
            BrokerError, match=f"ledger {ledger_id} at {path} is damaged"
        ) as refused:
            await open_ledger(factory)
        assert refused.value.server_error is ServerError.ServiceNotReady
        await world.store.put(path, intact, None)
        assert await read_all(await open_ledger(factory)) == [b"a"]
