import random

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap
from structlog.testing import capture_logs

from bookie.api import Status
from broker.ground.entry import Entry
from broker.managed_ledger.ack_state import AckState
from broker.managed_ledger.cursor_record import (
    BATCH_WORDS_MAX,
    BATCH_WORDS_MAX_INLINE,
    INLINE,
    IS_PART,
    decode_cursor_record,
    decode_position,
    encode_inline_record,
    encode_positions,
)
from broker.managed_ledger.ledger_table import LedgerRow, LedgerTable
from broker.managed_ledger.paths import cursor_info_path, decode_name, encode_name
from broker.managed_ledger.publish_time_search import LOOK_BACK_ENTRIES_MAX, newest_before
from broker.managed_ledger.tests.world import (
    NAME,
    World,
    append_and_wait,
    open_ledger,
    settle,
)
from protocol import ml_formats_pb2 as formats
from protocol import pulsar_api_pb2 as pb
from protocol.position import EARLIEST, LATEST


async def stored_record(world, cursor_name="s"):
    value, _ = await world.store.get(cursor_info_path(NAME, cursor_name))
    return decode_cursor_record(value, cursor_name)


async def make_topic(factory, count=20):
    ledger = await open_ledger(factory)
    cursor = await ledger.open_cursor("s", EARLIEST)
    payloads = [b"%d" % number for number in range(count)]
    return ledger, cursor, await append_and_wait(ledger, *payloads)


def state_of(cursor):
    return cursor.mark_delete, cursor.acked_ranges(), cursor.state.batches()


async def reopened(world, name="s"):
    """The cursor as a fresh broker finds it."""
    world.crash_bookie()
    async with world.broker() as factory:
        return (await open_ledger(factory)).cursors[name]


async def test_acks_are_stored_within_the_flush_interval_and_survive_a_crash(autojump_clock):
    world = World(max_entries_per_ledger=6)
    async with world.broker() as factory:
        _, cursor, positions = await make_topic(factory)
        cursor.ack_cumulative(positions[2])
        for number in (4, 5, 6, 9, 15):
            cursor.ack_individual(positions[number])
        assert not cursor.ack_batch_index(positions[11], 0b101)
        assert not cursor.ack_batch_index(positions[11], 0b110)
        before = state_of(cursor)
        assert before[2] == [(positions[11], 0b100)]
        await trio.sleep(1.5)
        assert not cursor.is_dirty
        assert (await stored_record(world)).cursor_ledger_id != INLINE
    cursor = await reopened(world)
    assert state_of(cursor) == before
    assert cursor.backlog_entries == 20 - 3 - 5
    assert cursor.batch_remaining(positions[11]) == 0b100


async def test_a_crash_before_the_flush_only_brings_messages_again(autojump_clock):
    world = World()
    async with world.broker() as factory:
        _, cursor, positions = await make_topic(factory)
        cursor.ack_cumulative(positions[4])
        await cursor.flush()
        cursor.ack_cumulative(positions[9])
    assert (await reopened(world)).mark_delete == positions[4]


async def test_a_clean_close_stores_inline_and_frees_the_cursor_ledger(autojump_clock):
    world = World()
    async with world.broker() as factory:
        _, cursor, positions = await make_topic(factory)
        cursor.ack_cumulative(positions[4])
        await cursor.flush()
        cursor.ack_individual(positions[7])
        cursor.ack_batch_index(positions[9], 1)
        before = state_of(cursor)
        live = await factory.client.live_ledgers()
        await factory.aclose()
        assert len(await factory.client.live_ledgers()) == len(live) - 1
    record = await stored_record(world)
    assert record.cursor_ledger_id == INLINE
    assert state_of(await reopened(world)) == before


async def test_many_ranges_go_to_the_cursor_ledger_on_close(autojump_clock):
    world = World(max_ranges_in_metadata_store=3)
    async with world.broker() as factory:
        _, cursor, positions = await make_topic(factory)
        for number in range(1, 20, 2):
            cursor.ack_individual(positions[number])
        before = state_of(cursor)
        await factory.aclose()
    record = await stored_record(world)
    assert record.cursor_ledger_id != INLINE
    assert record.position.ranges == []
    assert state_of(await reopened(world)) == before


async def test_holes_beyond_the_range_limit_are_kept_as_bits(autojump_clock):
    world = World(max_ranges_as_ranges=3, max_ranges_in_metadata_store=0)
    async with world.broker() as factory:
        _, cursor, positions = await make_topic(factory)
        for number in range(1, 20, 2):
            cursor.ack_individual(positions[number])
        before = state_of(cursor)
        await cursor.flush()
    assert state_of(await reopened(world)) == before


async def test_a_position_too_large_for_one_entry_is_spread(autojump_clock):
    world = World(max_ranges_as_ranges=0, max_cursor_entry_size_bytes=40, max_entries_per_ledger=4)
    async with world.broker() as factory:
        _, cursor, positions = await make_topic(factory)
        for number in range(1, 20, 2):
            cursor.ack_individual(positions[number])
        before = state_of(cursor)
        await cursor.flush()
        assert cursor.cursor_ledger[1] > 0
    assert state_of(await reopened(world)) == before


LARGEST_BATCH = int("10" * 524_288, 2)
"""A million messages, each second one acked."""


async def test_partly_acked_batches_of_any_size_fit_into_one_entry(autojump_clock):
    """A client says how many messages an entry has, up to a million."""
    world = World()
    count = BATCH_WORDS_MAX // 16_384
    async with world.broker() as factory:
        _, cursor, positions = await make_topic(factory)
        for position in positions:
            assert not cursor.ack_batch_index(position, LARGEST_BATCH)
        entries = encode_positions(cursor.state, {}, 500, 10_000, 4 * 1024 * 1024)
        assert [len(entry) < 4 * 1024 * 1024 for entry in entries] == [True]
        with capture_logs() as logs:
            await cursor.flush()
        assert [each["what"] for each in logs if each["event"] == "cursor_state_capped"] == [
            "words of batch indexes"
        ]
    cursor = await reopened(world)
    assert cursor.state.batches() == [(position, LARGEST_BATCH) for position in positions[:count]]


async def test_large_batches_stay_in_the_cursor_ledger_at_rest(autojump_clock):
    world = World()
    count = BATCH_WORDS_MAX_INLINE // 16_384 + 1
    async with world.broker() as factory:
        ledger, cursor, positions = await make_topic(factory)
        for position in positions[:count]:
            cursor.ack_batch_index(position, LARGEST_BATCH)
        await ledger.close()
    assert (await stored_record(world)).cursor_ledger_id != INLINE
    assert (await reopened(world)).state.batch_count == count


async def test_parts_without_their_end_are_skipped(autojump_clock):
    world = World()
    async with world.broker() as factory:
        _, cursor, positions = await make_topic(factory)
        cursor.ack_cumulative(positions[3])
        await cursor.flush()
        part = formats.PositionInfo(ledgerId=positions[9][0], entryId=positions[9][1])
        part.properties.add(name="vela.ack-parts", value=IS_PART)
        cursor._store._ledger.writer.add(part.SerializeToString())
        await settle()
    assert (await reopened(world)).mark_delete == positions[3]


async def test_cursor_ledgers_are_replaced_and_the_old_ones_deleted(autojump_clock):
    world = World(cursor_max_entries_per_ledger=3)
    async with world.broker() as factory:
        _, cursor, positions = await make_topic(factory)
        ledgers = []
        for position in positions[:10]:
            cursor.ack_individual(position)
            await cursor.flush()
            ledgers.append(cursor.cursor_ledger[0])
        assert len(set(ledgers)) == 4
        assert len(await factory.client.live_ledgers()) == 2
    assert (await reopened(world)).mark_delete == positions[9]


async def test_without_a_working_cursor_ledger_the_position_goes_inline(autojump_clock):
    world = World()
    async with world.broker() as factory:
        _, cursor, positions = await make_topic(factory)
        data_ledger = positions[0][0]
        world.bookie.add_status = lambda ledger_id, _: (
            Status.OK if ledger_id == data_ledger else Status.IO_ERROR
        )
        cursor.ack_individual(positions[0])
        cursor.ack_individual(positions[5])
        await cursor.flush()
        before = state_of(cursor)
    assert (await stored_record(world)).cursor_ledger_id == INLINE
    assert state_of(await reopened(world)) == before


async def test_a_lost_cursor_ledger_falls_back_to_the_recorded_position(autojump_clock):
    world = World()
    async with world.broker() as factory:
        _, cursor, positions = await make_topic(factory)
        cursor.ack_cumulative(positions[3])
        await cursor.flush()
        cursor.ack_cumulative(positions[8])
        await cursor.flush()
        del world.bookie.ledgers[cursor.cursor_ledger[0]]
        await factory.client.delete(cursor.cursor_ledger[0])
    assert (await reopened(world)).mark_delete == positions[3]


async def test_a_position_beyond_the_end_is_clamped(autojump_clock):
    world = World()
    async with world.broker() as factory:
        ledger, _, positions = await make_topic(factory)
        state = AckState(ledger._table, (positions[-1][0], 500))
        path = cursor_info_path(NAME, "s")
        await world.store.put(path, encode_inline_record(state, {}, {}, 9, 9), None)
    assert (await reopened(world)).mark_delete == positions[-1]


async def test_reset_is_durable_at_once_and_forgets_individual_acks(autojump_clock):
    world = World()
    async with world.broker() as factory:
        ledger, cursor, positions = await make_topic(factory)
        cursor.ack_cumulative(positions[8])
        cursor.ack_individual(positions[12])
        await cursor.reset(positions[1])
        assert cursor.backlog_entries == 18
        await cursor.reset(LATEST)
        assert cursor.mark_delete == ledger.last_confirmed
        await cursor.reset(positions[1])
    cursor = await reopened(world)
    assert state_of(cursor) == (positions[1], [], [])


async def test_properties_survive_in_every_place(autojump_clock):
    world = World()
    async with world.broker() as factory:
        ledger, cursor, positions = await make_topic(factory)
        await ledger.open_cursor("with", LATEST, {"a": "1"})
        await cursor.set_properties({"inline": "yes"})
        assert (await stored_record(world)).properties == {"inline": "yes"}
        cursor.ack_individual(positions[0])
        cursor.position_properties = {"sequence": 7}
        await cursor.flush()
        await cursor.set_properties({"pointer": "yes"})
    cursor = await reopened(world)
    assert cursor.properties == {"pointer": "yes"}
    assert cursor.position_properties == {"sequence": 7}
    assert cursor.mark_delete == positions[0]
    assert (await reopened(world, "with")).properties == {"a": "1"}


async def test_initial_positions(autojump_clock):
    async with World().broker() as factory:
        ledger, _, positions = await make_topic(factory)
        earliest = await ledger.open_cursor("earliest", EARLIEST)
        latest = await ledger.open_cursor("latest", LATEST)
        middle = await ledger.open_cursor("middle", positions[4])
        assert earliest.backlog_entries == 20
        assert latest.backlog_entries == 0
        assert middle.backlog_entries == 15
        assert await ledger.open_cursor("middle", LATEST) is middle


async def test_a_cursor_that_is_not_durable_leaves_nothing(autojump_clock):
    world = World(max_entries_per_ledger=5)
    async with world.broker() as factory:
        ledger, cursor, positions = await make_topic(factory)
        reader = await ledger.open_cursor("reader", EARLIEST, durable=False)
        cursor.ack_cumulative(positions[-1])
        await settle()
        assert ledger.first_position > positions[9]
        assert reader.backlog_entries == ledger.entries
        reader.ack_cumulative(positions[-1])
        await trio.sleep(3)
        await factory.aclose()
    assert await world.store.children(f"/managed-ledgers/{NAME}") == ["s"]


async def test_deleting_a_cursor_frees_storage(autojump_clock):
    world = World(max_entries_per_ledger=5)
    async with world.broker() as factory:
        ledger, cursor, positions = await make_topic(factory)
        cursor.ack_individual(positions[3])
        await cursor.flush()
        await ledger.delete_cursor("s")
        await ledger.delete_cursor("unknown")
        await settle()
        assert len(await factory.client.live_ledgers()) == 1
        assert await world.store.children(f"/managed-ledgers/{NAME}") == []
        cursor.ack_individual(positions[4])
        await trio.sleep(3)
        assert await world.store.children(f"/managed-ledgers/{NAME}") == []
        again = await ledger.open_cursor("s", LATEST)
        assert again.backlog_entries == 0


async def test_the_old_owners_cursor_cannot_overwrite_the_new_ones(autojump_clock):
    world = World()
    async with world.broker() as old, world.broker() as new:
        former, cursor, positions = await make_topic(old)
        owner = await open_ledger(new)
        owner.cursors["s"].ack_cumulative(positions[9])
        await owner.cursors["s"].flush()
        cursor.ack_cumulative(positions[2])
        await trio.sleep(2)
        assert former.fenced
        await old.aclose()
    assert (await reopened(world)).mark_delete == positions[9]


async def test_the_old_owner_does_not_disturb_a_new_one_that_has_not_written_yet(autojump_clock):
    world = World()
    async with world.broker() as old, world.broker() as new:
        former, cursor, positions = await make_topic(old)
        await former.open_cursor("inline", EARLIEST)
        cursor.ack_cumulative(positions[0])
        await trio.sleep(2)
        owner = await open_ledger(new)
        cursor.ack_cumulative(positions[2])
        former.cursors["inline"].ack_cumulative(positions[2])
        await trio.sleep(2)
        assert former.fenced
        for name in ("s", "inline"):
            owner.cursors[name].ack_cumulative(positions[9])
        await trio.sleep(2)
        assert not owner.fenced
    assert (await reopened(world)).mark_delete == positions[9]


@pytest.mark.parametrize("name", ["a/b", "ü ~*", "%2F", "x+y", "-._"])
async def test_odd_cursor_names(autojump_clock, name):
    assert decode_name(encode_name(name)) == name
    assert "/" not in encode_name(name)
    world = World()
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        await ledger.open_cursor(name, LATEST)
    async with world.broker() as factory:
        assert list((await open_ledger(factory)).cursors) == [name]


def test_names_are_encoded_as_java_does():
    assert encode_name("a b/c~*é") == "a+b%2Fc%7E*%C3%A9"


def published_at(publish_time_ms):
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=0, publish_time=publish_time_ms
    ).SerializeToString()
    return Entry(len(metadata).to_bytes(4, "big") + metadata + b"payload", 1)


async def test_find_by_publish_time(autojump_clock):
    world = World(max_entries_per_ledger=4)
    times = sorted(random.Random(4).choices(range(100, 130), k=23))
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        await ledger.open_cursor("s", EARLIEST)
        assert await ledger.find_by_publish_time(5) < ledger.first_position
        for time in times:
            ledger.append(published_at(time), time)
        await settle()
        positions = ledger.listener.positions
        for wanted in range(95, 135):
            found = await ledger.find_by_publish_time(wanted)
            linear = [p for p, time in zip(positions, times, strict=True) if time >= wanted]
            expected = linear[0] if linear else ledger.next_position(positions[-1])
            assert ledger.next_position(found) == expected, wanted


async def test_a_seek_by_time_skips_no_exact_match_where_times_are_out_of_order_by_one_place(
    autojump_clock,
):
    for swapped in range(11):
        times = list(range(100, 112))
        times[swapped], times[swapped + 1] = times[swapped + 1], times[swapped]
        async with World(max_entries_per_ledger=5).broker() as factory:
            ledger = await open_ledger(factory)
            await ledger.open_cursor("s", EARLIEST)
            for time in times:
                ledger.append(published_at(time), time)
            await settle()
            positions = ledger.listener.positions
            for wanted in times:
                found = await ledger.find_by_publish_time(wanted)
                first = min(number for number, time in enumerate(times) if time >= wanted)
                assert ledger.next_position(found) == positions[first], (times, wanted)


async def test_a_seek_by_time_does_not_go_back_for_ever_where_clocks_disagree(autojump_clock):
    year_ms = 365 * 24 * 3_600_000
    async with World().broker() as factory:
        ledger = await open_ledger(factory)
        await ledger.open_cursor("s", EARLIEST)
        for number in range(1000):
            ahead_ms = year_ms if number % 2 else 0
            ledger.append(published_at(1000 + number + ahead_ms), number)
        await settle()
        crossing = await newest_before(ledger._table, ledger.read, 1900)
        found = await ledger.find_by_publish_time(1900)
        assert 0 < ledger.entries_between(found, crossing) <= LOOK_BACK_ENTRIES_MAX


positions_in_table = st.tuples(st.sampled_from([1, 4]), st.integers(0, 69))


@settings(max_examples=80, deadline=None)
@given(
    st.lists(positions_in_table, max_size=60),
    st.lists(st.tuples(positions_in_table, st.integers(0, 2**130)), max_size=5),
    st.integers(0, 10),
    st.sampled_from([30, 10_000]),
)
def test_every_stored_form_gives_the_state_back(acks, batches, ranges_max, size_max):
    table = LedgerTable([LedgerRow(1, 70), LedgerRow(4, 70)])
    state = AckState(table, (1, -1))
    for position in acks:
        state.ack_individual(position)
    for position, remaining in batches:
        state.ack_batch(position, remaining)

    def restored(position):
        other = AckState(table, position.mark_delete)
        other.restore(position.all_bitmaps(), position.batches)
        return other.mark_delete, other.acked_ranges(), other.batches()

    expected = (state.mark_delete, state.acked_ranges(), state.batches())
    *parts, last = encode_positions(state, {"p": 3}, ranges_max, 100, size_max)
    position, part_count = decode_position(last)
    assert part_count == len(parts)
    for part in parts:
        piece, marker = decode_position(part)
        assert marker == IS_PART
        position.bitmaps += piece.bitmaps
    assert restored(position) == expected
    assert position.properties == {"p": 3}
    record = decode_cursor_record(
        encode_inline_record(state, {"p": 3}, {"k": "v"}, 1000, 100), "/path"
    )
    assert restored(record.position) == expected
    assert record.properties == {"k": "v"}


def test_a_million_holes_fit_into_one_entry():
    table = LedgerTable(LedgerRow(number, 50_000) for number in range(1, 42))
    state = AckState(table, (1, -1))
    odd = BitMap(range(1, 50_000, 2))
    state.restore([(number, odd.copy()) for number in range(1, 41)], [])
    assert state.acked_count == 1_000_000
    entries = encode_positions(state, {}, 10_000, 100, 4 * 1024 * 1024)
    assert len(entries) == 1
    assert len(entries[0]) < 1_000_000
    other = AckState(table, (1, -1))
    other.restore(decode_position(entries[0])[0].all_bitmaps(), [])
    assert other.acked_count == 1_000_000
    assert other.acked_bitmaps() == state.acked_bitmaps()


async def test_a_full_disk_is_logged_once_per_cursor_and_acks_stay_stored(autojump_clock):
    world = World()
    async with world.broker() as factory:
        _, cursor, positions = await make_topic(factory)
        world.bookie.add_status = lambda *_: Status.READ_ONLY
        with capture_logs() as lines:
            for position in positions[:10]:
                cursor.ack_individual(position)
                await trio.sleep(2)
        assert [each["event"] for each in lines].count("cursor_ledger_failed") == 1
    assert (await reopened(world)).mark_delete == positions[9]
