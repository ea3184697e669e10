"""Stored data of a killed server with one bit flipped: the short form of `flips`, and the command
line's part in it."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys

import pytest

from tests.damage.flips import KINDS, LEDGERS, METADATA, content_of, fill, flip_one, outcome_of
from tests.server_process import TREE, VELA, ServerProcess

PLACES = {"CURRENT": 1, "OPTIONS": 1}
PLACES_ELSE = 2
SECONDS_MAX = 120
DATABASES = ("metadata", "locations", "ledgers")


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A data directory of a killed server, and all that is in it."""
    directory = tmp_path_factory.mktemp("killed")
    source = fill(directory)
    shutil.copytree(source, directory / "whole")
    expected = content_of(directory / "whole")
    assert len(expected.entries) > 900
    return source, expected


@pytest.mark.parametrize("name", [n for n in KINDS if n.split()[0] in DATABASES])
def test_a_flipped_bit_is_refused_or_isolated(killed, name):
    source, expected = killed
    rng = random.Random(name)
    for _place in range(PLACES.get(name.split()[1], PLACES_ELSE)):
        outcome = flip_one(source, name, expected, rng)
        assert outcome.kind != "failed", outcome.detail
        if name.endswith(("WAL", "MANIFEST", "CURRENT")):
            assert outcome.kind == "refused", outcome.detail


@pytest.mark.parametrize("name", [n for n in KINDS if n.split()[0] not in DATABASES])
def test_a_flipped_bit_in_a_file_of_the_bookie_is_refused_or_isolated(killed, name):
    source, expected = killed
    rng = random.Random(name)
    for _place in range(PLACES_ELSE):
        outcome = flip_one(source, name, expected, rng)
        assert outcome.kind != "failed", outcome.detail
        if name in ("cookie", "journal tail"):
            assert outcome.kind == "refused", outcome.detail
        if name in ("lastMark", "entry log header", "entry log map"):
            assert outcome.kind == "unchanged", outcome.detail


def vela(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "cli", *arguments],
        cwd=TREE,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )


def flip_newest_log(directory):
    path = max(directory.glob("*.log"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("directory", [METADATA, f"{LEDGERS}/locations", f"{LEDGERS}/ledgers"])
def test_a_server_whose_write_ahead_log_is_damaged_refuses_in_one_line(killed, tmp_path, directory):
    source, _expected = killed
    shutil.copytree(source, tmp_path / "data")
    path = flip_newest_log(tmp_path / "data" / directory)
    ended = vela("standalone", "--data-dir", str(tmp_path / "data"), "--broker-port", "0")
    assert ended.returncode == 1
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("vela: ")]
    assert f"{path}: damage at offset" in line
    assert "Traceback" not in ended.stderr


def test_a_rebuilt_index_brings_everything_back(killed, tmp_path):
    source, expected = killed
    data = tmp_path / "data"
    shutil.copytree(source, data)
    for name in ("locations", "ledgers"):
        flip_newest_log(data / LEDGERS / name)
    ended = vela("bookie", "rebuild-index", "--data-dir", str(data))
    assert ended.returncode == 0, ended.stderr
    assert "the old index is in" in ended.stdout
    outcome = outcome_of(data, "", expected)
    assert outcome.kind == "unchanged", outcome.detail


def test_the_index_of_a_running_server_is_not_rebuilt(tmp_path):
    server = ServerProcess(tmp_path, VELA)
    try:
        server.start()
        server.wait_ready(SECONDS_MAX)
        ended = vela("bookie", "rebuild-index", "--data-dir", str(tmp_path / "data"))
        assert ended.returncode == 1
        assert ended.stderr.splitlines() == [
            f"vela: data directory {tmp_path}/data is in use by process {server.pid}"
        ]
    finally:
        server.kill()
        server.wait_ended()


def test_metadata_that_is_gone_is_not_made_again_beside_the_bookies_data(killed, tmp_path):
    source, _expected = killed
    shutil.copytree(source, tmp_path / "data")
    shutil.rmtree(tmp_path / "data" / METADATA)
    ended = vela("standalone", "--data-dir", str(tmp_path / "data"), "--broker-port", "0")
    assert ended.returncode == 1
    assert "the database is missing" in ended.stderr.splitlines()[-1]
