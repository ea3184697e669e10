"""Databases of another ledger directory, or of another bookie: refused, because they would report
the entries of this directory as absent."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bookie.bookie import Bookie
from bookie.errors import BookieRefusesToStart
from bookie.index_rebuild import rebuild_index
from bookie.tests.test_directories import check
from bookie.tests.test_older_copies import config_of, found_in, killed
from protocol.bookkeeper.digests import has_valid_crc


async def refused(directory, database):
    with pytest.raises(
        BookieRefusesToStart, match=rf"{database}: the database was made for another[^\n]*$"
    ):
        await Bookie.open(config_of(directory))


@pytest.mark.parametrize("name", ["locations", "ledgers"])
async def test_databases_exchanged_between_two_ledger_directories_are_refused(tmp_path, name):
    """The rows named the wrong directory, where every entry of the ledger was "no such entry"."""
    directory = await killed(tmp_path, first=0, count=40, checkpoint=True, journalMaxBackups=0)
    first, second = (directory / place / "current" / name for place in ("l0", "l1"))
    first.rename(directory / "between")
    second.rename(first)
    (directory / "between").rename(second)
    await refused(directory, name)


@pytest.mark.parametrize("name", ["locations", "ledgers"])
async def test_a_database_of_another_bookie_is_refused(tmp_path, name):
    for bookie in ("one", "other"):
        (tmp_path / bookie).mkdir()
    directory = await killed(tmp_path / "one", first=0, count=40, checkpoint=True)
    other = await killed(tmp_path / "other", first=0, count=4, checkpoint=True)
    current = directory / "l0" / "current"
    shutil.move(current / name, directory / "own")
    shutil.copytree(other / "l0" / "current" / name, current / name)
    await refused(directory, name)
    # What the refusal advises when the right database is lost.
    for database in ("locations", "ledgers"):
        shutil.move(current / database, directory / f"{database}-away")
    rebuild_index(str(current), [str(directory / "j" / "current")], has_valid_crc)
    await found_in(directory, 40)


def correct_by_hand(directory, former):
    for version in Path(directory).glob("*/current/VERSION"):
        lines = version.read_text().splitlines(keepends=True)
        kept = [line for line in lines if not line.startswith("# vela")]
        version.write_text("".join(kept).replace(str(former), str(directory)))


async def test_directories_whose_version_files_were_corrected_by_hand_keep_their_databases(
    tmp_path,
):
    """The advice about damaged VERSION files is to delete the line with the place from all."""
    directory = await killed(tmp_path, first=0, count=40, checkpoint=True)
    correct_by_hand(directory, former=tmp_path / "running")
    for _start in range(2):
        bookie = await Bookie.open(config_of(directory))
        await check(bookie, 40)
        await bookie.aclose()
