"""Write-ahead logs of the index that lost changes which were synced: the start is refused, and a
rebuild brings everything back. Changes that were not synced may be lost."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from bookie.bookie import Bookie
from bookie.errors import BookieRefusesToStart
from bookie.index import pack_location_key, pack_u64
from bookie.index_rebuild import rebuild_index
from bookie.tests.conftest import SMALL
from bookie.tests.test_directories import check, write
from protocol.bookkeeper.digests import has_valid_crc
from rocks.log_format import LogScan

LEDGERS = range(5)


def config_of(directory):
    return replace(
        SMALL, journalDirectories=(f"{directory}/j",), ledgerDirectories=(f"{directory}/l",)
    )


async def killed(directory, *, unsynced=False):
    """As kill -9 leaves it after two checkpoints, with every journal that was needed gone."""
    bookie = await Bookie.open(config_of(directory / "running"))
    try:
        for first in (0, 20):
            await write(bookie, first, 20, LEDGERS)
            await bookie.checkpoint()
        if unsynced:
            index = bookie._storages[0].index
            batch = index.new_batch()
            batch.put(pack_location_key(99, 0), pack_u64(1))
            index.write_locations(batch)
        shutil.copytree(directory / "running", directory / "killed")
    finally:
        await bookie.aclose()
    return directory / "killed"


async def found_in(directory, count=40):
    bookie = await Bookie.open(config_of(directory))
    try:
        await check(bookie, count, LEDGERS)
    finally:
        await bookie.aclose()


def last_record(path):
    """Offset and end of the last record of a write-ahead log."""
    data = path.read_bytes()
    scan = LogScan(lambda at, size: data[at : at + size], len(data), int(path.stem))
    offsets = [offset for offset, _record in scan.records()]
    return offsets[-1], len(data)


def cut(path, size):
    with path.open("r+b") as file:
        file.truncate(size)


@pytest.mark.parametrize("where", ["inside the last record", "before the last record"])
@pytest.mark.parametrize("name", ["locations", "ledgers"])
async def test_a_log_that_was_cut_inside_what_was_synced_is_refused(tmp_path, name, where):
    data = await killed(tmp_path)
    current = data / "l/current"
    await found_in(Path(shutil.copytree(data, tmp_path / "whole")))
    newest = max((current / name).glob("*.log"))
    start, end = last_record(newest)
    cut(newest, start if where == "before the last record" else end - 3)
    for _start in range(2):
        with pytest.raises(BookieRefusesToStart, match="vela bookie rebuild-index") as refusal:
            await found_in(data)
        assert str(refusal.value).startswith(f"{current}/{name}: the database ends at change")
    rebuild_index(str(current), [str(data / "j/current")], has_valid_crc)
    await found_in(data)
    await found_in(data)


async def test_a_log_that_lost_what_was_not_synced_starts(tmp_path):
    data = await killed(tmp_path, unsynced=True)
    newest = max((data / "l/current/locations").glob("*.log"))
    cut(newest, last_record(newest)[1] - 3)
    await found_in(data)


async def test_a_directory_of_an_earlier_version_starts_and_is_watched_from_then_on(tmp_path):
    data = await killed(tmp_path)
    progress = data / "l/current/indexProgress"
    progress.unlink()
    bookie = await Bookie.open(config_of(data))
    await write(bookie, 40, 1, LEDGERS)
    await bookie.aclose()
    assert progress.exists()
    await found_in(data, 41)


@pytest.mark.parametrize("flip", [20, 4096 + 20])
async def test_one_damaged_slot_does_not_hide_the_other(tmp_path, flip):
    data = await killed(tmp_path)
    progress = data / "l/current/indexProgress"
    content = bytearray(progress.read_bytes())
    content[flip] ^= 1
    progress.write_bytes(content)
    await found_in(data)


async def test_a_directory_whose_database_lost_ledgers_is_not_removed(tmp_path):
    two = replace(config_of(tmp_path), ledgerDirectories=(f"{tmp_path}/l", f"{tmp_path}/m"))
    bookie = await Bookie.open(two)
    await bookie.checkpoint()
    await bookie.aclose()
    current = tmp_path / "m/current"
    shutil.copytree(current / "ledgers", tmp_path / "older")
    bookie = await Bookie.open(two)
    await write(bookie, 0, 20, LEDGERS)
    await bookie.checkpoint()
    await bookie.aclose()
    shutil.rmtree(current / "ledgers")
    shutil.copytree(tmp_path / "older", current / "ledgers")
    with pytest.raises(BookieRefusesToStart, match=f"{current}/ledgers: the database ends at"):
        await Bookie.open(config_of(tmp_path))
