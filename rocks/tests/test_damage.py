"""One flipped bit anywhere in a database: refused in one line that names a file, or harmless."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rocksdict import Options, WriteBatch

from rocks.database import Database
from rocks.errors import DatabaseDamaged, DatabaseError, DatabaseInUse

REMEDY = "Do this."
PLACES = 25
"""Per kind of file."""


def open_database(directory, *, logs_kept=1, **arguments):
    options = Options(raw_mode=True)
    options.set_write_buffer_size(64 << 10)
    options.set_max_write_buffer_number(2 * logs_kept)
    options.set_min_write_buffer_number_to_merge(logs_kept)
    options.set_keep_log_file_num(2)
    return Database.open(directory, options, remedy=REMEDY, **arguments)


def write_until_killed(directory, batches, value_size, logs_kept):
    """The child process: its last change is in the write-ahead log when it dies."""
    database = open_database(Path(directory), logs_kept=logs_kept)
    rng = random.Random(1)
    for number in range(batches):
        batch = WriteBatch(raw_mode=True)
        batch.put(b"key-%06d" % number, rng.randbytes(value_size))
        database.write(batch)
        if number == batches // 2 and logs_kept == 1:
            database._rocks.flush()
    os._exit(0)


def killed_database(directory, batches, value_size, logs_kept=1):
    command = "import sys; from rocks.tests.test_damage import write_until_killed as w; "
    command += "w(sys.argv[1], *map(int, sys.argv[2:]))"
    arguments = [str(directory), str(batches), str(value_size), str(logs_kept)]
    subprocess.run([sys.executable, "-c", command, *arguments], check=True)
    return directory


def rows_of(database):
    try:
        database.verify()
        rows = dict(database.items())
        for key, value in rows.items():
            assert database.get(key) == value
        return rows
    finally:
        database.close()


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A database of a killed process, with tables and a write-ahead log, and what is in it."""
    directory = killed_database(tmp_path_factory.mktemp("killed") / "db", 700, 200)
    copy = directory.parent / "copy"
    shutil.copytree(directory, copy)
    expected = rows_of(open_database(copy))
    assert len(expected) == 700
    assert {path.suffix for path in directory.iterdir()} >= {".sst", ".log"}
    return directory, expected


def flip(path, offset, bit):
    data = bytearray(path.read_bytes())
    data[offset] ^= 1 << bit
    path.write_bytes(data)


@pytest.mark.parametrize("pattern", ["*.log", "*.sst", "MANIFEST-*", "CURRENT", "OPTIONS-*"])
def test_a_flipped_bit_is_refused_or_changes_nothing(killed, tmp_path, pattern):
    source, expected = killed
    rng = random.Random(pattern)
    outcomes = []
    for number in range(PLACES):
        directory = tmp_path / str(number)
        shutil.copytree(source, directory)
        # Older logs are not read any more.
        paths = sorted(path for path in directory.glob(pattern) if path.stat().st_size)
        path = paths[-1] if pattern == "*.log" else rng.choice(paths)
        flip(path, rng.randrange(path.stat().st_size), rng.randrange(8))
        outcomes.append(outcome_of(directory, path.name, expected))
        shutil.rmtree(directory)
    assert set(outcomes) <= {"refused", "unchanged"}
    if pattern in ("*.log", "MANIFEST-*", "CURRENT"):
        assert set(outcomes) == {"refused"}


def outcome_of(directory, name, expected):
    """The result of a start with one flipped bit in the file `name`."""
    try:
        rows = rows_of(open_database(directory))
    except DatabaseDamaged as error:
        line = str(error)
        good = "\n" not in line and name in line and line.endswith(REMEDY)
        return "refused" if good else line
    return "unchanged" if rows == expected else f"{len(rows)} rows after damage of {name}"


@pytest.mark.parametrize("reserved", [False, True])
def test_an_incomplete_last_record_is_cut_off_and_the_rest_is_there(tmp_path, reserved):
    source = killed_database(tmp_path / "db", 3, 2000)
    log = max(source.glob("*.log"))
    data = log.read_bytes()
    for end in (512, 1024) if reserved else (len(data) - 1, len(data) - 1000, len(data) - 2030):
        directory = tmp_path / "cut"
        shutil.copytree(source, directory)
        (directory / log.name).write_bytes(data[:end] + bytes(8192 if reserved else 0))
        for _start in range(2):
            database = open_database(directory)
            assert sorted(rows_of(database)) == [b"key-000000", b"key-000001"]
        shutil.rmtree(directory)


@pytest.mark.parametrize("pattern", ["*.log", "*.sst", "MANIFEST-*", "CURRENT"])
def test_a_missing_file_is_refused(killed, tmp_path, pattern):
    source, _expected = killed
    shutil.copytree(source, tmp_path / "db")
    for path in (tmp_path / "db").glob(pattern):
        path.unlink()
    with pytest.raises(DatabaseDamaged, match=r"missing.*\. Do this"):
        open_database(tmp_path / "db")


def test_a_log_that_is_missing_between_others_is_refused(tmp_path):
    # Too few for a flush, which would remove all logs but the last if it won against the kill.
    killed_database(tmp_path / "db", 900, 200, logs_kept=4)
    first, second, *_others = sorted((tmp_path / "db").glob("*.log"))
    rng = random.Random(2)
    rng.choice((first, second)).unlink()
    with pytest.raises(DatabaseDamaged, match="the write-ahead log before it is missing"):
        open_database(tmp_path / "db")


def test_a_database_that_is_gone_is_not_created_again(tmp_path):
    with pytest.raises(DatabaseDamaged, match=r"the database is missing\. Do this"):
        open_database(tmp_path / "db", may_create=False)
    assert not (tmp_path / "db").exists()


@pytest.mark.parametrize("size", [0, 20, 52])
def test_a_creation_that_was_interrupted_is_begun_again(tmp_path, size):
    """A process killed at its first start refused every later one: CURRENT is written last."""
    open_database(tmp_path / "whole").close()
    (manifest,) = (tmp_path / "whole").glob("MANIFEST-*")
    directory = tmp_path / "db"
    directory.mkdir()
    for name in ("LOCK", "LOG", "IDENTITY", "000001.dbtmp"):
        (directory / name).touch()
    (directory / "MANIFEST-000001").write_bytes(manifest.read_bytes()[:size])
    with pytest.raises(DatabaseDamaged, match="the database is missing"):
        open_database(directory, may_create=False)
    database = open_database(directory)
    batch = WriteBatch(raw_mode=True)
    batch.put(b"key", b"value")
    database.write(batch, synced=True)
    database.close()
    assert rows_of(open_database(directory)) == {b"key": b"value"}


def test_a_database_in_use_is_left_alone(killed, tmp_path):
    source, expected = killed
    shutil.copytree(source, tmp_path / "db")
    database = open_database(tmp_path / "db")
    log = max((tmp_path / "db").glob("*.log"))
    with log.open("ab") as file:
        file.write(b"as if a write were under way")
    size = log.stat().st_size
    with pytest.raises(DatabaseInUse, match="in use"):
        open_database(tmp_path / "db")
    assert log.stat().st_size == size
    assert rows_of(database) == expected


@pytest.mark.parametrize("name", ["LOCK", "CURRENT"])
def test_a_file_that_cannot_be_opened_is_told_in_one_line(killed, tmp_path, name):
    """It ended in a traceback, and a lock of another user was told as a running process."""
    source, _expected = killed
    shutil.copytree(source, tmp_path / "db")
    path = tmp_path / "db" / name
    path.unlink(missing_ok=True)
    if name == "LOCK":
        path.symlink_to("/sys/kernel/uevent_seqnum")  # nobody may write to it, not even root
    else:
        path.mkdir()
    with pytest.raises(DatabaseError, match=rf"^cannot open .*/{name}: [^\n]*$") as caught:
        open_database(tmp_path / "db")
    assert type(caught.value) is DatabaseError


def test_damage_in_a_table_is_not_the_end_of_the_rows(killed, tmp_path):
    source, expected = killed
    shutil.copytree(source, tmp_path / "db")
    open_database(tmp_path / "db").close()
    table = max((tmp_path / "db").glob("*.sst"), key=lambda path: path.stat().st_size)
    flip(table, table.stat().st_size // 2, 3)
    database = open_database(tmp_path / "db")
    assert not database.damage
    with pytest.raises(DatabaseDamaged, match=rf"{table.name}.*offset"):
        dict(database.items())
    with pytest.raises(DatabaseDamaged, match=rf"{table.name}.*offset"):
        [database.get(key) for key in expected]
    assert table.name in database.damage
    database.close()


def test_damage_that_a_compaction_meets_is_told_as_damage(tmp_path):
    """RocksDB reports it at the next write, or when it closes the database."""

    def life():
        database = open_database(tmp_path)
        try:
            batch = WriteBatch(raw_mode=True)
            for number in range(50):
                batch.put(b"key-%06d" % number, random.randbytes(100))
            database.write(batch)
        finally:
            database.close()

    def lives(count):
        for _life in range(count):
            life()

    lives(2)
    table = min(tmp_path.glob("*.sst"))
    content = bytearray(table.read_bytes())
    content[1000] ^= 4
    table.write_bytes(content)

    with pytest.raises(DatabaseDamaged, match=r"checksum.* in .*\.sst"):
        lives(20)
