"""Records in the metadata store that are damaged: refused by their path, and nothing is lost."""

import pytest

from broker.managed_ledger.cursor_record import INLINE, decode_cursor_record
from broker.managed_ledger.ledger_record import (
    LedgerRecord,
    decode_ledger_record,
    encode_ledger_record,
)
from broker.managed_ledger.ledger_table import LedgerRow
from broker.managed_ledger.owner_of_ledger import is_ledger_of_cursor, ledger_custom_metadata
from broker.managed_ledger.paths import cursor_info_path, ledger_info_path
from broker.managed_ledger.tests.world import NAME, World, append_and_wait, open_ledger, read_all
from ledgers.errors import LedgerNotFound
from protocol import ml_formats_pb2 as formats
from protocol.bookkeeper.paths import ledger_path
from protocol.errors import BrokerError, MetadataError, ServerError
from protocol.position import EARLIEST

PATH = ledger_info_path(NAME)
CURSOR_PATH = cursor_info_path(NAME, "s")
OTHER = "public/default/persistent/other"
RETRIED = (ServerError.ServiceNotReady, ServerError.PersistenceError)


def decoded_cursor(info):
    return decode_cursor_record(info.SerializePartialToString(), CURSOR_PATH)


@pytest.mark.parametrize(
    "rows",
    [
        [LedgerRow(5, 1, 1, 1), LedgerRow(5)],
        [LedgerRow(7, 1, 1, 1), LedgerRow(5)],
        [LedgerRow(-3)],
        [LedgerRow(5, -1, 1, 1), LedgerRow(6)],
        [LedgerRow(5, 1, -1, 1), LedgerRow(6)],
    ],
)
def test_a_list_of_ledgers_that_cannot_be_is_damage(rows):
    with pytest.raises(MetadataError, match=PATH):
        decode_ledger_record(encode_ledger_record(LedgerRecord(rows)), PATH)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"cursorsLedgerId": INLINE},
        {"cursorsLedgerId": INLINE, "markDeleteLedgerId": 3},
        {"cursorsLedgerId": 7, "markDeleteLedgerId": 3},
        {"cursorsLedgerId": -2, "markDeleteLedgerId": 3, "markDeleteEntryId": 1},
        {"markDeleteLedgerId": 3, "markDeleteEntryId": 1},
    ],
)
def test_a_cursor_without_a_position_is_damage(fields):
    with pytest.raises(MetadataError, match=CURSOR_PATH):
        decoded_cursor(formats.ManagedCursorInfo(**fields))


async def test_a_deletion_takes_no_ledger_of_another_topic_with_it():
    async with World().broker() as factory:
        other = await open_ledger(factory, OTHER)
        await append_and_wait(other, b"theirs")
        (theirs,) = other.statistics().ledgers
        mine = await open_ledger(factory)
        await append_and_wait(mine, b"mine")
        (own,) = mine.statistics().ledgers
        await factory.close(NAME)
        stored = await factory._store.get(PATH)
        record = decode_ledger_record(stored[0], PATH)
        rows = sorted([*record.rows, LedgerRow(theirs.ledger_id, 1, 1, 1)], key=ledger_id_of)
        await factory._store.put(PATH, encode_ledger_record(LedgerRecord(rows)), stored[1])
        await factory.delete(NAME)
        assert await factory._client.metadata_of(theirs.ledger_id)
        with pytest.raises(LedgerNotFound):
            await factory._client.metadata_of(own.ledger_id)


def ledger_id_of(row):
    return row.ledger_id


def test_a_record_that_inflates_without_end_is_damage():
    import zlib

    head = formats.ManagedLedgerInfoMetadata(compressionType="ZLIB", uncompressedSize=1)
    bomb = zlib.compress(bytes(65 << 20))
    header = head.SerializeToString()
    data = b"\x47\x78" + len(header).to_bytes(4, "big") + header + bomb
    with pytest.raises(MetadataError, match=PATH):
        decode_ledger_record(data, PATH)


async def topic_with_cursor(world, *payloads, name=NAME):
    async with world.broker() as factory:
        ledger = await open_ledger(factory, name)
        await ledger.open_cursor("s", EARLIEST)
        await append_and_wait(ledger, *payloads)
        await factory.aclose()


async def contents(factory):
    ledger = await open_ledger(factory)
    return await read_all(ledger), ledger.cursors["s"].backlog_entries


@pytest.mark.parametrize("is_there", [True, False])
async def test_a_topic_whose_list_of_ledgers_is_gone_is_refused_and_can_be_restored(is_there):
    world = World()
    await topic_with_cursor(world, b"a", b"b")
    record, version = await world.store.get(PATH)
    if is_there:
        await world.store.put(PATH, b"", version)
    else:
        await world.store.delete(PATH)
    async with world.broker() as factory:
        for _attempt in range(2):
            with pytest.raises(MetadataError, match=PATH):
                await factory.open(NAME)
        await world.store.put(PATH, record, None)
        assert await contents(factory) == ([b"a", b"b"], 2)


async def test_a_ledger_is_not_deleted_because_its_row_says_that_it_is_empty():
    world = World()
    await topic_with_cursor(world, b"a")
    await topic_with_cursor(world, b"b")
    record, _version = await world.store.get(PATH)
    first, *others = decode_ledger_record(record, PATH).rows
    lying = [LedgerRow(first.ledger_id, 0, 0, first.timestamp_ms), *others]
    await world.store.put(PATH, encode_ledger_record(LedgerRecord(lying)), None)
    async with world.broker() as factory:
        with pytest.raises(MetadataError, match=PATH):
            await factory.open(NAME)
        assert (await factory.client.metadata_of(first.ledger_id)).last_entry_id == 0
        await world.store.put(PATH, record, None)
        assert await contents(factory) == ([b"a", b"b"], 2)


async def test_a_ledger_of_another_topic_is_not_taken():
    world = World()
    await topic_with_cursor(world, b"a")
    await topic_with_cursor(world, b"b", name=OTHER)
    stored, _version = await world.store.get(ledger_info_path(OTHER))
    theirs = decode_ledger_record(stored, PATH).rows
    await world.store.put(PATH, encode_ledger_record(LedgerRecord(theirs)), None)
    async with world.broker() as factory:
        with pytest.raises(MetadataError, match=OTHER):
            await factory.open(NAME)


async def test_a_cursor_does_not_take_the_ledger_of_another_topic():
    world = World()
    await topic_with_cursor(world, b"a")
    await topic_with_cursor(world, b"b", name=OTHER)
    stored, _version = await world.store.get(ledger_info_path(OTHER))
    foreign = decode_ledger_record(stored, PATH).rows[0].ledger_id
    info = formats.ManagedCursorInfo(
        cursorsLedgerId=foreign, markDeleteLedgerId=0, markDeleteEntryId=-1
    )
    await world.store.put(CURSOR_PATH, info.SerializeToString(), None)
    async with world.broker() as factory:
        with pytest.raises(MetadataError, match=CURSOR_PATH):
            await factory.open(NAME)
        assert await factory.client.metadata_of(foreign)


async def test_a_cursor_whose_ledger_is_lost_without_a_position_gets_everything_again():
    world = World()
    await topic_with_cursor(world, b"a", b"b")
    info = formats.ManagedCursorInfo(cursorsLedgerId=999)
    await world.store.put(CURSOR_PATH, info.SerializeToString(), None)
    async with world.broker() as factory:
        assert await contents(factory) == ([b"a", b"b"], 2)


async def test_a_damaged_record_of_a_cursor_keeps_its_topic_from_being_deleted():
    world = World()
    await topic_with_cursor(world, b"a")
    record, _version = await world.store.get(CURSOR_PATH)
    await world.store.put(CURSOR_PATH, b"\xff", None)
    async with world.broker() as factory:
        with pytest.raises(MetadataError, match=CURSOR_PATH):
            await factory.delete(NAME)
        await world.store.put(CURSOR_PATH, record, None)
        assert await contents(factory) == ([b"a"], 1)
        ledgers = (await factory.open(NAME)).ledger_ids
        await factory.delete(NAME)
        for ledger_id in ledgers:
            with pytest.raises(LedgerNotFound):
                await factory.client.metadata_of(ledger_id)


def test_a_ledger_of_a_cursor_is_known_by_either_form_of_its_name():
    for written in ("a b", "a+b"):
        assert is_ledger_of_cursor(ledger_custom_metadata(NAME, written), NAME, "a b")
    assert is_ledger_of_cursor({}, NAME, "a b")
    assert not is_ledger_of_cursor(ledger_custom_metadata(NAME, "c"), NAME, "a b")
    assert not is_ledger_of_cursor(ledger_custom_metadata(NAME), NAME, "a b")
    assert not is_ledger_of_cursor(ledger_custom_metadata(OTHER, "a b"), NAME, "a b")


@pytest.mark.parametrize("record", [b"", b"{", b"BookieMetadataFormatVersion\t3\n\x05\x08"])
async def test_damaged_metadata_of_a_ledger_refuse_its_topic_by_their_path(record):
    world = World()
    await topic_with_cursor(world, b"a")
    await topic_with_cursor(world, b"b")
    stored, _version = await world.store.get(PATH)
    async with world.broker() as factory:
        for row in decode_ledger_record(stored, PATH).rows:
            path = ledger_path(row.ledger_id)
            before, _version = await world.store.get(path)
            await world.store.put(path, record, None)
            with pytest.raises(BrokerError, match=path) as caught:
                await contents(factory)
            assert caught.value.server_error in RETRIED
            await world.store.put(path, before, None)
            await factory.close(NAME)
        assert await contents(factory) == ([b"a", b"b"], 2)
