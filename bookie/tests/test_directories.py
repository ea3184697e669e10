"""Directories in another order, at other paths, added and removed: ledgers are found by what is in
the directories, and what cannot be right is refused in one line."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie.api import Status
from bookie.bookie import Bookie
from bookie.directories import plan_existing, plan_new
from bookie.errors import BookieRefusesToStart
from bookie.tests.conftest import KEY, SMALL, Machine, RecordingSink, body_or_status, entry, whole
from protocol.bookkeeper.cookie import (
    Cookie,
    decode_version_file,
    encode_cookie,
    encode_version_file,
)
from protocol.bookkeeper.ledger_metadata import InvalidMetadata

LEDGERS = range(6)
TWO = replace(SMALL, journalDirectories=("/j0", "/j1"), ledgerDirectories=("/l0", "/l1"))


async def write(bookie, first, count, ledgers=LEDGERS):
    sink = RecordingSink()
    for entry_id in range(first, first + count):
        for ledger_id in ledgers:
            bookie.add_entry(ledger_id, entry_id, entry(ledger_id, entry_id), KEY, 0, sink)
    await sink.wait_for(count * len(ledgers))
    assert set(sink.statuses()) == {Status.OK}


async def check(bookie, count, ledgers=LEDGERS):
    for ledger_id in ledgers:
        for entry_id in range(count):
            found = await body_or_status(bookie, ledger_id, entry_id)
            assert found == whole(ledger_id, entry_id), (ledger_id, entry_id, found)


def forget_places(disk):
    """As an earlier version, or BookKeeper, wrote the cookies."""
    for path in disk.paths("/VERSION"):
        cookie, _place = decode_version_file(disk.content(path))
        disk.remove(path)
        disk.create(path).write_at(0, encode_cookie(cookie))


def move(machine, old, new):
    """Another mount point."""
    for path in machine.disk.paths(""):
        if path.startswith(old + "/"):
            machine.disk.rename(path, new + path.removeprefix(old))
    by_directory = machine.indexes._logs
    for directory in list(by_directory):
        if directory.startswith(old + "/"):
            by_directory[new + directory.removeprefix(old)] = by_directory.pop(directory)


@pytest.mark.parametrize("is_old", [False, True])
@pytest.mark.parametrize(
    "changes",
    [
        {"ledgerDirectories": ("/l1", "/l0")},
        {"journalDirectories": ("/j1", "/j0")},
        {"journalDirectories": ("/j1", "/j0"), "ledgerDirectories": ("/l1", "/l0/")},
    ],
)
async def test_directories_in_another_order_lose_nothing_after_kill_9(changes, is_old):
    machine = Machine(TWO)
    async with machine.running() as bookie:
        await write(bookie, 0, 20)
        await bookie.checkpoint()
        await write(bookie, 20, 20)
        machine.power.is_off = True
    machine.crash(random.Random(1))
    if is_old:
        forget_places(machine.disk)
    for first, keys in ((40, changes), (60, {}), (80, changes)):
        async with machine.running(**keys) as bookie:
            await check(bookie, first)
            await write(bookie, first, 20)
            await bookie.checkpoint()
            await check(bookie, first + 20)
            machine.power.is_off = True
        machine.crash(random.Random(first))


async def test_directories_moved_and_in_another_order_are_found():
    machine = Machine(TWO)
    async with machine.running() as bookie:
        await write(bookie, 0, 20)
    move(machine, "/l0", "/elsewhere")
    keys = {"ledgerDirectories": ("/l1", "/elsewhere")}
    async with machine.running(**keys) as bookie:
        await check(bookie, 20)
    async with machine.running(ledgerDirectories=("/elsewhere", "/l1")) as bookie:
        await check(bookie, 20)


async def test_a_directory_is_added_when_the_key_allows_it():
    machine = Machine(TWO)
    async with machine.running() as bookie:
        await write(bookie, 0, 20)
        await bookie.checkpoint()
        await write(bookie, 20, 5)
        machine.power.is_off = True
    machine.crash(random.Random(2))
    three = {"ledgerDirectories": ("/new", "/l0", "/l1")}
    with pytest.raises(BookieRefusesToStart, match="allowStorageExpansion=true") as refused:
        await machine.open(**three)
    assert "\n" not in str(refused.value)
    more = range(6, 12)
    async with machine.running(allowStorageExpansion=True, **three) as bookie:
        await check(bookie, 25)
        await write(bookie, 25, 5)
        await write(bookie, 0, 30, more)
        await bookie.checkpoint()
        assert {handle.storage.directory for handle in bookie._handles.values()} == {
            "/l0/current",
            "/l1/current",
            "/new/current",
        }
    async with machine.running(ledgerDirectories=("/l1", "/new", "/l0")) as bookie:
        await check(bookie, 30, (*LEDGERS, *more))
    with pytest.raises(BookieRefusesToStart, match="holds entries of ledger"):
        await machine.open()


@pytest.mark.parametrize("seed", range(25))
async def test_an_interrupted_addition_can_be_finished_or_taken_back(seed):
    rng = random.Random(seed)
    machine = Machine(TWO)
    async with machine.running() as bookie:
        await write(bookie, 0, 20)
    four = {
        "ledgerDirectories": ("/x", "/l0", "/l1", "/y"),
        "allowStorageExpansion": True,
    }
    machine.power.crash_after = machine.power.operations + rng.randint(1, 60)
    try:
        await (await machine.open(**four)).aclose()
    except Exception:
        assert machine.power.is_off
    machine.crash(rng)
    async with machine.running(**four) as bookie:
        await check(bookie, 20)


async def test_a_directory_is_removed_once_nothing_lives_in_it():
    machine = Machine(TWO)
    async with machine.running() as bookie:
        await write(bookie, 0, 20)
        await bookie.fence_ledger(3, KEY)
    one = {"ledgerDirectories": ("/l0",)}
    with pytest.raises(BookieRefusesToStart, match="holds entries of ledger") as refused:
        await machine.open(**one)
    assert "/l1" in str(refused.value)
    assert "\n" not in str(refused.value)
    async with machine.running() as bookie:
        await check(bookie, 20)
        for ledger_id in (1, 3, 5):
            await bookie.delete_ledger(ledger_id)
    async with machine.running(**one) as bookie:
        await check(bookie, 20, (0, 2, 4))
        sink = RecordingSink()
        bookie.add_entry(3, 20, entry(3, 20), KEY, 0, sink)  # fenced before it was deleted
        await sink.wait_for(1)
        assert sink.statuses() == [Status.FENCED]
        await write(bookie, 20, 5, (0, 2, 4, 7))
    async with machine.running(**one) as bookie:
        await check(bookie, 25, (0, 2, 4))
    with pytest.raises(BookieRefusesToStart, match="removed from ledgerDirectories earlier"):
        await machine.open()


async def test_ledgers_that_the_metadata_lost_do_not_keep_a_directory():
    machine = Machine(TWO)
    async with machine.running() as bookie:
        await write(bookie, 0, 20)

    async def live():
        return {0, 2, 4}

    config = replace(TWO, ledgerDirectories=("/l0",))
    bookie = await Bookie.open(
        config, machine.disk, open_index=machine.indexes.open, live_ledgers=live
    )
    await check(bookie, 20, (0, 2, 4))
    await bookie.aclose()


async def test_a_removed_directory_that_is_not_there_is_missed():
    machine = Machine(TWO)
    async with machine.running() as bookie:
        await write(bookie, 0, 20)
    for path in machine.disk.paths(""):
        if path.startswith("/l1/"):
            machine.disk.remove(path)
    with pytest.raises(BookieRefusesToStart, match=r"/l1 .* is not there"):
        await machine.open(ledgerDirectories=("/l0",))
    with pytest.raises(BookieRefusesToStart, match="Mount the lost directory"):
        await machine.open(allowStorageExpansion=True)


@pytest.mark.parametrize("directory", ["/j1", "/l1"])
async def test_a_directory_that_is_empty_is_named_once(directory):
    machine = Machine(TWO)
    async with machine.running() as bookie:
        await write(bookie, 0, 5)
    for path in machine.disk.paths(""):
        if path.startswith(directory + "/"):
            machine.disk.remove(path)
    with pytest.raises(BookieRefusesToStart, match="Mount the lost directory") as refused:
        await machine.open(allowStorageExpansion=True)
    assert str(refused.value).count(directory) == 1


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"journalDirectories": ("/j0",)}, "cannot be added or removed"),
        ({"journalDirectories": ("/j0", "/j1", "/j2")}, "cannot be added or removed"),
        ({"journalDirectories": ("/j0", "/j0")}, "twice"),
        ({"ledgerDirectories": ("/l0", "/l1", "/l1/")}, "twice"),
        ({"ledgerDirectories": ("/l0", "/copy", "/l1")}, "copy of the other"),
        ({"bookieId": "other:3181"}, "bookie id"),
    ],
)
async def test_what_cannot_be_right_is_refused_in_one_line(changes, text):
    machine = Machine(TWO)
    async with machine.running() as bookie:
        await write(bookie, 0, 5)
    content = machine.disk.content("/l0/current/VERSION")
    machine.disk.create("/copy/current/VERSION").write_at(0, content)
    with pytest.raises(BookieRefusesToStart, match=text) as refused:
        await machine.open(**changes)
    assert "\n" not in str(refused.value)
    async with machine.running() as bookie:
        await check(bookie, 5)


async def test_entries_of_one_ledger_in_two_directories_are_refused():
    """The result of an earlier version with directories in another order."""
    machine = Machine(TWO)
    async with machine.running() as bookie:
        await write(bookie, 0, 5)
    other = Machine(replace(TWO, ledgerDirectories=("/l1", "/l0")))
    async with other.running() as bookie:
        await write(bookie, 5, 5)
    index = machine.indexes.open("/l1/current")
    batch = index.new_batch()
    batch.put(bytes(16), (1 << 32 | 1028).to_bytes(8, "big"))
    index.write_locations(batch)
    index.write_ledgers({0: b"\x08\x01"})
    index.sync()
    with pytest.raises(BookieRefusesToStart, match="ledger 0 has entries in /l0/current and in"):
        await machine.open()


COOKIE = Cookie(
    bookie_id="b", journal_directories=("/j0", "/j1"), ledger_directories=("/a", "/b", "/c")
)


@given(st.permutations(["/j0", "/j1"]), st.permutations(["/a", "/b", "/c"]), st.data())
def test_every_order_gives_every_directory_its_number(journals, ledgers, data):
    plan = replace(plan_new(("/j0", "/j1"), ("/a", "/b", "/c")), set_id="5e")
    with_place = data.draw(st.sets(st.sampled_from([*journals, *ledgers])))
    copies = {
        path: (COOKIE, plan.place_of(path) if path in with_place else None)
        for path in (*journals, *ledgers)
    }
    found = plan_existing(journals, ledgers, copies, may_expand=False)
    assert found.journals == plan.journals
    assert found.ledgers == plan.ledgers
    assert found.removed == ()


def test_every_flipped_bit_of_a_version_file_is_noticed():
    place = replace(plan_new(("/j0", "/j1"), ("/a", "/b", "/c")), set_id="5e" * 8).place_of("/b")
    content = encode_version_file(COOKIE, place)
    assert decode_version_file(content) == (COOKIE, place)
    for bit in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(InvalidMetadata):
            decode_version_file(bytes(damaged))
