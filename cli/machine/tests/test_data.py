"""A data directory of one process is that of a machine with one bookie, and the other way round."""

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from bookie.bookie import Bookie
from bookie.config import BookieConfig
from bookie.cookie import FILE_NAME as COOKIE
from bookie.cookie import adopt
from bookie.disk import RealDisk
from bookie.errors import BookieRefusesToStart
from bookie.process.cluster import StoredCookies, initialize_ledgers
from broker.assembly.app import running_broker
from broker.assembly.parts import StartError
from broker.ground.config import DEFAULT_CONFIG
from broker.ground.data_directory import DataDirectoryError
from cli.machine.data import bookies_with_data, open_metadata, refuse_fewer_bookies
from cli.machine.plan import read_machine
from metadata.memory_store import MemoryStore
from protocol.bookkeeper.paths import INSTANCE_ID_PATH

CONFIG = replace(DEFAULT_CONFIG, brokerServicePort=0, webServicePort=0)


def machine_of(bookies):
    return read_machine(1, bookies, [], {}, "/run/metadata.sock", strict=True)[0]


def bookie_of(data, number):
    base = data / ("bookkeeper" if number == 1 else f"bookkeeper{number}")
    return BookieConfig(
        bookieId="vela-embedded" if number == 1 else f"vela-bookie-{number}",
        journalDirectories=(f"{base}/journal",),
        ledgerDirectories=(f"{base}/ledgers",),
    )


async def run_bookie(store, data, number):
    bookie = await Bookie.open(bookie_of(data, number), cookie_store=StoredCookies(store))
    await bookie.aclose()


async def test_a_directory_of_one_process_becomes_that_of_a_machine_and_back(tmp_path):
    data = tmp_path / "data"
    async with running_broker(CONFIG, data):
        pass
    for place in (data, tmp_path / "moved"):
        if place != data:
            data.rename(place)
        store = await open_metadata(machine_of(1), place)
        assert await store.get("/admin/clusters/standalone") is not None
        await run_bookie(store, place, 1)
        await store.aclose()
        async with running_broker(CONFIG, place):
            pass


async def test_bookies_may_be_added_and_not_left_out(tmp_path):
    store = await open_metadata(machine_of(1), tmp_path)
    await run_bookie(store, tmp_path, 1)
    await store.aclose()
    refuse_fewer_bookies(machine_of(2), tmp_path)
    store = await open_metadata(machine_of(2), tmp_path)
    for number in (1, 2):
        await run_bookie(store, tmp_path, number)
    await store.aclose()
    assert bookies_with_data(tmp_path) == [1, 2]
    with pytest.raises(StartError, match="start with --bookies 2"):
        refuse_fewer_bookies(machine_of(1), tmp_path)
    with pytest.raises(DataDirectoryError, match="several bookies"):
        async with running_broker(CONFIG, tmp_path):
            pass


async def test_bookies_that_joined_another_cluster_are_refused(tmp_path):
    store = await open_metadata(machine_of(1), tmp_path)
    await run_bookie(store, tmp_path, 1)
    await store.aclose()
    other = MemoryStore()
    await initialize_ledgers(other)
    await adopt(bookie_of(tmp_path, 1), RealDisk(), StoredCookies(other))
    for _ in range(2):
        with pytest.raises(BookieRefusesToStart, match="belongs to another cluster"):
            await open_metadata(machine_of(1), tmp_path)
    await run_bookie(other, tmp_path, 1)


async def test_bookies_without_their_metadata_are_refused(tmp_path):
    store = await open_metadata(machine_of(1), tmp_path)
    await run_bookie(store, tmp_path, 1)
    await store.aclose()
    (tmp_path / "metadata").rename(tmp_path / "lost")
    with pytest.raises(StartError):
        await open_metadata(machine_of(1), tmp_path)


@pytest.mark.parametrize("directory", ["journal", "ledgers"])
@pytest.mark.parametrize("damage", [b"", b"no cookie"])
async def test_the_damaged_cookie_of_one_bookie_keeps_no_other_from_starting(
    tmp_path, directory, damage
):
    store = await open_metadata(machine_of(2), tmp_path)
    for number in (1, 2):
        await run_bookie(store, tmp_path, number)
    await store.aclose()
    (tmp_path / "bookkeeper" / directory / "current" / COOKIE).write_bytes(damage)
    with capture_logs() as lines:
        store = await open_metadata(machine_of(2), tmp_path)
    try:
        assert [(line["log_level"], line["bookie"]) for line in lines] == [("error", 1)]
        await run_bookie(store, tmp_path, 2)
        with pytest.raises(BookieRefusesToStart, match="Restore this file from a backup"):
            await run_bookie(store, tmp_path, 1)
    finally:
        await store.aclose()


async def test_directories_of_another_cluster_stop_the_start_though_another_cookie_is_damaged(
    tmp_path,
):
    store = await open_metadata(machine_of(2), tmp_path)
    for number in (1, 2):
        await run_bookie(store, tmp_path, number)
    await store.put(INSTANCE_ID_PATH, b"another", None)
    await store.aclose()
    (tmp_path / "bookkeeper" / "journal" / "current" / COOKIE).write_bytes(b"")
    with pytest.raises(BookieRefusesToStart, match="belongs to another cluster"):
        await open_metadata(machine_of(2), tmp_path)
