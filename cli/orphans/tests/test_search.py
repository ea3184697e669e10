"""Orphans are found and deleted while brokers work; nothing that a record names ever is."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import trio
import trio.testing
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.managed_ledger.ledger_list import OwnershipLost
from broker.managed_ledger.ledger_record import (
    LedgerRecord,
    decode_ledger_record,
    encode_ledger_record,
)
from broker.managed_ledger.ledger_table import LedgerRow
from broker.managed_ledger.orphans import LEASE_PATH
from broker.managed_ledger.owner_of_ledger import ledger_custom_metadata
from broker.managed_ledger.paths import cursor_info_path, ledger_info_path
from broker.managed_ledger.tests.world import NAME, World, append_and_wait, open_ledger
from broker.tenancy.schemas import schema_format
from cli.orphans.command import command
from cli.orphans.rule import AGE_MINUTES_MIN, Standing
from cli.orphans.search import NotToBeTold, delete_orphans, unnamed_ledgers
from metadata.memory_store import MemoryStore
from metadata.rocks_store import RocksStore
from metadata.store import MUST_NOT_EXIST, MetadataUnavailable, NodeNotFound, VersionConflict
from protocol.bookkeeper.ledger_metadata import (
    LedgerMetadata,
    LedgerState,
    decode_ledger_metadata,
    encode_ledger_metadata,
)
from protocol.bookkeeper.paths import ledger_path
from protocol.position import EARLIEST

LIST = ledger_info_path(NAME)
NOW_MS = 1_700_000_000_000
OLD_MS = NOW_MS - 2 * 3_600_000
SCHEMA = "public/default/topic"
SMALL = {"max_entries_per_ledger": 2, "cursor_max_entries_per_ledger": 1}


async def put_ledger(store, ledger_id, custom, *, closed=True, ctime_ms=OLD_MS):
    metadata = LedgerMetadata(
        ensemble_size=1,
        write_quorum_size=1,
        ack_quorum_size=1,
        ensembles={0: ("b",)},
        ctime_ms=ctime_ms,
        custom_metadata=custom,
    )
    if closed:
        metadata = metadata.closed(0, 1)
    await store.put(ledger_path(ledger_id), encode_ledger_metadata(metadata), MUST_NOT_EXIST)


async def put_list(store, *ledger_ids, path=LIST, version=MUST_NOT_EXIST):
    record = LedgerRecord([LedgerRow(each) for each in ledger_ids])
    return await store.put(path, encode_ledger_record(record), version)


async def delete(store, now_ms=NOW_MS):
    outcomes = []
    waits = []
    await delete_orphans(store, AGE_MINUTES_MIN, lambda: now_ms, outcomes.append, waits.append)
    return {each.ledger_id: each.kept for each in outcomes}


async def found(store, now_ms=NOW_MS):
    unnamed = await unnamed_ledgers(store, AGE_MINUTES_MIN, now_ms)
    return {each.ledger_id: each.verdict.standing for each in unnamed}


async def test_each_kind_of_ledger_is_listed_for_what_it_is_and_orphans_alone_are_deleted():
    store = MemoryStore()
    await put_list(store, 1, 9)
    topic, schema = ledger_custom_metadata(NAME), "public/default/topic"
    locator = schema_format.encode_locator([schema_format.IndexEntry(0, 4, 0, b"")])
    await store.put(f"/schemas/{schema}", locator, MUST_NOT_EXIST)
    of_schema = schema_format.ledger_custom_metadata(schema)
    for ledger_id, custom in {1: topic, 2: topic, 4: of_schema, 5: of_schema, 6: {}}.items():
        await put_ledger(store, ledger_id, custom)
    await put_ledger(store, 7, topic, ctime_ms=NOW_MS - 60_000)
    await put_ledger(store, 8, ledger_custom_metadata(NAME, "gone"), closed=False)
    await put_ledger(store, 9, topic, closed=False)
    await store.put(ledger_path(10), b"rubbish", MUST_NOT_EXIST)
    orphan, unknown = Standing.ORPHAN, Standing.UNKNOWN
    expected = {2: orphan, 5: orphan, 6: unknown, 7: Standing.KEPT, 8: orphan, 10: unknown}
    assert await found(store) == expected
    assert await delete(store) == {2: "", 5: "", 8: ""}
    assert await found(store) == {6: unknown, 7: Standing.KEPT, 10: unknown}
    assert not await store.exists(LEASE_PATH)


@pytest.mark.parametrize(
    "path",
    [
        "/managed-ledgers/other/ns/persistent/t",
        "/managed-ledgers/other/ns/persistent/t/cursor",
        "/managed-ledgers/old/cluster/ns/persistent/t",
        "/schemas/other/ns/t",
        "/schemas/old/cluster/ns/t",
    ],
)
async def test_a_damaged_record_anywhere_is_named_and_nothing_is_deleted(path):
    store = MemoryStore()
    await put_list(store, 9)
    await put_ledger(store, 2, ledger_custom_metadata(NAME))
    await store.put(path, b"\xff\xff damaged", MUST_NOT_EXIST)
    for act in (found, delete):
        with pytest.raises(NotToBeTold, match=f"{path} "):
            await act(store)
    assert await store.exists(ledger_path(2))
    await store.delete(path)
    assert await delete(store) == {2: ""}


async def test_a_store_without_topics_is_not_one_to_tell_orphans_by():
    store = MemoryStore()
    await put_ledger(store, 2, ledger_custom_metadata(NAME))
    with pytest.raises(NotToBeTold, match="no topic below"):
        await delete(store)


async def test_one_process_at_a_time_deletes():
    store = MemoryStore()
    await put_list(store, 9)
    other = store.another_session()
    await other.put_ephemeral(LEASE_PATH, b"")
    with pytest.raises(NotToBeTold, match="another process"):
        await delete(store)


async def test_a_broker_that_did_not_hear_of_its_own_trim_lists_no_deleted_ledger(autojump_clock):
    """It has the trimmed ledger in memory, and would write it into the record again."""
    world = World(**SMALL)
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        cursor = await ledger.open_cursor("s", EARLIEST)
        await append_and_wait(ledger, b"a", b"b", b"c")
        first_id = min(ledger.ledger_ids)
        cursor.ack_cumulative(ledger.last_confirmed)
        put = world.store.put

        async def put_unheard(*arguments):
            await put(*arguments)
            raise MetadataUnavailable("out of reach")

        world.store.put = put_unheard
        with pytest.raises(MetadataUnavailable):
            await ledger.trim()
        now_ms = NOW_MS + 3 * 3_600_000
        assert await delete(world.store.another_session(), now_ms) == {first_id: ""}
        world.store.put = put
        with pytest.raises(OwnershipLost):
            await ledger.change_properties(lambda _properties: {})
        data, _version = await world.store.get(LIST)
        assert first_id not in {row.ledger_id for row in decode_ledger_record(data, LIST).rows}
        again = await open_ledger(factory)
        await append_and_wait(again, b"e")


@pytest.mark.parametrize(
    ("record", "custom"),
    [
        (LIST, ledger_custom_metadata(NAME)),
        ("/schemas/public/default/topic", schema_format.ledger_custom_metadata(SCHEMA)),
    ],
)
@pytest.mark.parametrize("minutes", [1, 14])
async def test_a_ledger_of_a_machine_whose_clock_is_behind_is_kept_for_its_record(
    record, custom, minutes, autojump_clock
):
    """It was made now. Its maker records it within the time after which it would give it up."""
    store = MemoryStore()
    await put_list(store, 9, path=ledger_info_path("a/b/persistent/other"))
    await put_ledger(store, 1, custom, ctime_ms=NOW_MS - 50 * 60_000)

    async def record_it():
        await trio.sleep(minutes * 60)
        if record == LIST:
            await put_list(store, 1)
        else:
            locator = schema_format.encode_locator([schema_format.IndexEntry(0, 1, 0, b"")])
            await store.put(record, locator, MUST_NOT_EXIST)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(record_it)
        kept = await delete(store.another_session())
    assert await store.exists(ledger_path(1))
    assert kept[1]


async def test_an_orphan_without_a_record_is_deleted_when_it_has_been_seen_for_some_time(
    autojump_clock,
):
    store = MemoryStore()
    await put_list(store, 9, path=ledger_info_path("a/b/persistent/other"))
    await put_ledger(store, 1, ledger_custom_metadata(NAME))
    begun = trio.current_time()
    assert await delete(store) == {1: ""}
    assert trio.current_time() - begun >= AGE_MINUTES_MIN * 60


async def test_a_ledger_whose_metadata_change_is_kept():
    store = MemoryStore()
    await put_list(store, 9)
    await put_ledger(store, 2, ledger_custom_metadata(NAME), closed=False)
    path = ledger_path(2)
    put = store.put

    async def put_and_recover(where, value, version):
        if where == LIST:
            data, ledger_version = await store.get(path)
            closed = replace(decode_ledger_metadata(data), state=LedgerState.IN_RECOVERY)
            await put(path, encode_ledger_metadata(closed), ledger_version)
        return await put(where, value, version)

    store.put = put_and_recover
    assert "metadata have changed" in (await delete(store))[2]
    assert await store.exists(path)


# --- any interleaving -------------------------------------------------------------------------


class Owner:
    """A broker with one topic: it makes ledgers, records and trims them, and may hear of the
    outcome of a write or not. Another owner may follow it at any time."""

    def __init__(self, store):
        self.store = store
        self.rows, self.version, self.made, self.unheard = [], MUST_NOT_EXIST, None, None
        self.next_id = 1

    async def take(self):
        """Another broker opens the topic."""
        stored = await self.store.get(LIST)
        self.made = self.unheard = None
        self.rows, self.version = [], MUST_NOT_EXIST
        if stored is not None:
            self.version = stored[1]
            self.rows = [row.ledger_id for row in decode_ledger_record(stored[0], LIST).rows]

    async def make(self):
        if self.made is None:
            self.made, self.next_id = self.next_id, self.next_id + 1
            # One without a record is new, as far as clocks tell: see AGE_MINUTES_MIN.
            age = NOW_MS if self.version == MUST_NOT_EXIST else OLD_MS
            custom = ledger_custom_metadata(NAME)
            await put_ledger(self.store, self.made, custom, closed=False, ctime_ms=age)

    async def record(self):
        if self.made is not None and await self._save([*self.rows, self.made]):
            if self.rows:
                await self._close(self.rows[-1])
            self.rows.append(self.made)
            self.made = None

    async def roll(self):
        """Both."""
        await self.make()
        await self.record()

    async def trim(self):
        if len(self.rows) > 1 and await self._save(self.rows[1:]):
            await self._delete(self.rows.pop(0))

    async def trim_unheard(self):
        """As `trim`, but the answer is lost."""
        if len(self.rows) > 1:
            await self._save(self.rows[1:], heard=False)

    async def trim_and_die(self):
        """The ledger is off the list and never deleted."""
        if len(self.rows) > 1 and await self._save(self.rows[1:]):
            await self.take()

    async def remove(self):
        """Delete the topic, record first, and die before the ledgers are deleted."""
        try:
            await self.store.delete(LIST)
        except NodeNotFound:
            pass
        await self.take()

    async def _close(self, ledger_id):
        data, version = await self.store.get(ledger_path(ledger_id))
        closed = decode_ledger_metadata(data).closed(0, 1)
        await self.store.put(ledger_path(ledger_id), encode_ledger_metadata(closed), version)

    async def _delete(self, ledger_id):
        try:
            await self.store.delete(ledger_path(ledger_id))
        except NodeNotFound:
            pass

    async def _save(self, rows, *, heard=True):
        """See OwnedRecord."""
        if self.unheard is not None:
            stored = await self.store.get(LIST)
            if stored == (self.unheard, self.version + 1):
                self.version += 1
            self.unheard = None
        data = encode_ledger_record(LedgerRecord([LedgerRow(each) for each in rows]))
        try:
            version = await self.store.put(LIST, data, self.version)
        except VersionConflict:
            await self.take()
            return False
        if not heard:
            self.unheard = data
            return False
        self.version = version
        return True


ACTIONS = ("take", "make", "record", "roll", "trim", "trim_unheard", "trim_and_die", "remove")


class Interleaved:
    """The session of the tool: actions of the owner come before each of its calls."""

    def __init__(self, inner, act):
        self._inner, self._act = inner, act

    def __getattr__(self, name):
        call = getattr(self._inner, name)

        async def interleaved(*arguments):
            await self._act()
            return await call(*arguments)

        return interleaved


async def interleave(before, batches):
    store = MemoryStore()
    owner = Owner(store)
    await put_list(store, 10_000, path=ledger_info_path("a/b/persistent/other"))
    pending = list(batches)
    one_action_at_a_time = trio.Lock()

    async def act(names):
        async with one_action_at_a_time:
            for name in names:
                await getattr(owner, name)()
                await check()

    async def check():
        stored = await store.get(LIST)
        for row in [] if stored is None else decode_ledger_record(stored[0], LIST).rows:
            assert await store.exists(ledger_path(row.ledger_id)), row.ledger_id

    async def next_batch():
        await act(pending.pop() if pending else ())

    await put_list(store)
    await act(["take", "roll", *before])
    deleted = await delete(Interleaved(store.another_session(), next_batch))
    await check()
    await act([name for batch in pending for name in batch])
    await act(["record", "roll", "trim", "roll"])
    return deleted


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(ACTIONS), max_size=12),
    st.lists(st.lists(st.sampled_from(ACTIONS), max_size=2), max_size=60),
)
def test_no_interleaving_deletes_what_a_record_names(before, batches):
    trio.run(interleave, before, batches, clock=trio.testing.MockClock(autojump_threshold=0))


async def test_what_the_owner_left_behind_is_deleted_in_the_end():
    assert await interleave(["roll", "roll", "trim_and_die", "trim_unheard"], []) == {1: "", 2: ""}


# --- the command ------------------------------------------------------------------------------


async def fill(directory):
    store = await RocksStore.open(directory)
    await put_list(store, 9)
    await store.put(cursor_info_path(NAME, "s"), b"\x08\x08\x10\x09\x18\x00", MUST_NOT_EXIST)
    await put_ledger(store, 2, ledger_custom_metadata(NAME))
    await put_ledger(store, 3, {"application": b"else"})
    await put_ledger(store, 8, ledger_custom_metadata(NAME, "s"))
    await put_ledger(store, 9, ledger_custom_metadata(NAME), closed=False)
    await store.aclose()


def run(*arguments):
    done = CliRunner().invoke(command, ["orphans", *map(str, arguments), "--json"])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_the_command_lists_orphans_and_deletes_them(tmp_path, monkeypatch):
    monkeypatch.setattr("inspection.command.log_to_stderr", lambda _level: None)
    trio.run(fill, tmp_path / "metadata")
    url = f"rocksdb:{tmp_path / 'metadata'}"
    rows, problem = run("--data-dir", tmp_path)
    assert not problem
    assert [(row["kind"], row["ledger"]) for row in rows] == [("orphan", 2), ("unknown", 3)]
    assert rows[0]["record"] == LIST
    assert rows[1]["custom"] == {"application": "else"}
    assert "standalone" in run("--data-dir", tmp_path, "--delete")[1]
    assert run("--metadata-store", url, "--delete") == ([{"kind": "deleted", "ledger": 2}], "")
    assert run("--metadata-store", url, "--delete") == ([], "")
    rows, _ = run("--metadata-store", url)
    assert [(row["kind"], row["ledger"]) for row in rows] == [("unknown", 3)]
