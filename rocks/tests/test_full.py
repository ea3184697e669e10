"""A database on a full disk: the texts say what to do, and closing it is no failure."""

from __future__ import annotations

import pytest
from rocksdict import Options, WriteBatch

import rocks.database
from rocks.database import Database
from rocks.errors import DatabaseFull

NO_SPACE = "IO error: No space left on device: While appending to file: 000012.dbtmp"


def opened(directory):
    return Database.open(directory, Options(raw_mode=True), remedy="Restore it")


class FullAtClose:
    """A database that finds no space to write out what its log has."""

    def __init__(self, database):
        self._database = database

    def close(self):
        self._database.close()
        raise Exception(NO_SPACE)


def test_closing_without_space_loses_nothing(tmp_path):
    database = opened(tmp_path / "db")
    batch = WriteBatch(raw_mode=True)
    batch.put(b"k", b"v")
    database.write(batch)
    database._rocks = FullAtClose(database._rocks)
    database.close()
    again = opened(tmp_path / "db")
    assert again.get(b"k") == b"v"
    again.close()


def test_opening_without_space_names_the_directory_and_what_to_do(tmp_path, monkeypatch):
    def fails(*_):
        raise Exception(NO_SPACE)

    monkeypatch.setattr(rocks.database, "Rdict", fails)
    with pytest.raises(DatabaseFull) as refusal:
        opened(tmp_path / "db")
    assert str(refusal.value).startswith(f"opening the database {tmp_path / 'db'}: IO error: No sp")
    assert str(refusal.value).endswith("; free some space and start again")
