"""Directories and journals replaced by older copies of themselves, and journals that are missing:
everything acknowledged is found, or the start is refused with the file's name."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from bookie.bookie import Bookie
from bookie.config import BookieConfig
from bookie.errors import BookieRefusesToStart, Corruption
from bookie.index_rebuild import rebuild_index
from bookie.tests.test_directories import check, write
from protocol.bookkeeper.digests import has_valid_crc


def config_of(directory, **changes):
    config = BookieConfig(
        journalDirectories=(f"{directory}/j",),
        ledgerDirectories=(f"{directory}/l0", f"{directory}/l1"),
        dbStorage_writeCacheMaxSizeMb=1,
        journalPreAllocSizeMB=1,
        journalMaxSizeMB=1,
        logSizeLimit=64 << 10,
        flushInterval=3_600_000,
        gcWaitTime=3_600_000,
    )
    return replace(config, **changes)


async def killed(directory, *, first, count, checkpoint, **changes):
    """A directory as kill -9 leaves it after these writes: a copy, taken before the bookie ends."""
    source = directory / "running"
    bookie = await Bookie.open(config_of(source, **changes))
    try:
        await write(bookie, first, count)
        if checkpoint:
            await bookie.checkpoint()
        copy = directory / f"after-{first + count}"
        shutil.copytree(source, copy)
    finally:
        await bookie.aclose()
    return copy


async def found_in(directory, count, **changes):
    bookie = await Bookie.open(config_of(directory, **changes))
    try:
        await check(bookie, count)
    finally:
        await bookie.aclose()


def restore(place, older):
    shutil.rmtree(place)
    shutil.copytree(older, place)


@pytest.mark.parametrize("name", ["l0", "l1"])
async def test_an_older_copy_of_one_ledger_directory_gets_what_it_lacks_from_the_journals(
    tmp_path, name
):
    older = await killed(tmp_path, first=0, count=20, checkpoint=True)
    newer = await killed(tmp_path, first=20, count=20, checkpoint=True)
    restore(newer / name, older / name)
    await found_in(newer, 40)


@pytest.mark.parametrize("name", ["l0", "l1"])
async def test_an_older_copy_of_one_ledger_directory_is_refused_without_the_journals(
    tmp_path, name
):
    keys = {"journalMaxBackups": 0}
    older = await killed(tmp_path, first=0, count=20, checkpoint=True, **keys)
    newer = await killed(tmp_path, first=20, count=20, checkpoint=True, **keys)
    restore(newer / name, older / name)
    with pytest.raises(BookieRefusesToStart, match=r"\.txn is missing"):
        await found_in(newer, 40, **keys)


async def test_an_older_copy_of_the_journal_is_refused(tmp_path):
    bookie = await Bookie.open(config_of(tmp_path / "data"))
    try:
        await write(bookie, 0, 20)
        shutil.copytree(tmp_path / "data/j", tmp_path / "older")
        await write(bookie, 20, 20)
        await bookie.checkpoint()
        await write(bookie, 40, 20)
        shutil.copytree(tmp_path / "data", tmp_path / "killed")
    finally:
        await bookie.aclose()
    await found_in(Path(shutil.copytree(tmp_path / "killed", tmp_path / "whole")), 60)
    restore(tmp_path / "killed/j", tmp_path / "older")
    with pytest.raises(Corruption, match=r"\.txn: .* it is an older copy"):
        await found_in(tmp_path / "killed", 60)


async def test_a_journal_that_is_missing_between_others_is_refused(tmp_path):
    keys = {"journalAlignmentSize": 1 << 16}  # which fills a file with a few groups
    bookie = await Bookie.open(config_of(tmp_path / "data", **keys))
    try:
        for first in range(50):
            await write(bookie, first, 1)
        shutil.copytree(tmp_path / "data", tmp_path / "killed")
    finally:
        await bookie.aclose()
    journals = sorted((tmp_path / "killed/j/current").glob("*.txn"))
    assert len(journals) > 2
    await found_in(Path(shutil.copytree(tmp_path / "killed", tmp_path / "whole")), 50, **keys)
    journals[1].unlink()
    with pytest.raises(BookieRefusesToStart, match=f"{journals[1].name} is missing"):
        await found_in(tmp_path / "killed", 50, **keys)


async def test_an_older_copy_of_the_rows_of_ledgers_is_refused_and_rebuilt(tmp_path):
    live = set(range(12))

    async def live_ledgers():
        return live

    for first in (0, 6):
        bookie = await Bookie.open(config_of(tmp_path / "data"))
        await write(bookie, 0, 20, range(first, first + 6))
        await bookie.aclose()
        shutil.copytree(tmp_path / "data", tmp_path / str(first))
    current = tmp_path / "data/l0/current"
    restore(current / "ledgers", tmp_path / "0/l0/current/ledgers")
    with pytest.raises(BookieRefusesToStart, match="l0/current/ledgers: the database ends at"):
        await Bookie.open(config_of(tmp_path / "data"), live_ledgers=live_ledgers)
    (current / "indexProgress").unlink()  # which earlier versions do not have
    for _start in range(2):
        with pytest.raises(BookieRefusesToStart, match="l0/current/ledgers: the row of ledger 6"):
            await Bookie.open(config_of(tmp_path / "data"), live_ledgers=live_ledgers)
    rebuild_index(str(current), [str(tmp_path / "data/j/current")], has_valid_crc)
    bookie = await Bookie.open(config_of(tmp_path / "data"), live_ledgers=live_ledgers)
    try:
        await check(bookie, 20, live)
    finally:
        await bookie.aclose()
