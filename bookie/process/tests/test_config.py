"""The keys of a bookie process: the stock file starts it, and what it cannot honour is told."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from bookie.config import BookieConfig
from bookie.process.config import BOOKIE_KEYS, BookieProcessConfig, start_notices
from settings.reading import ConfigError, load_config, read_properties
from settings.tests.stock import VERSIONS, stock_lines

ROOM = Path(__file__).parents[2]
LINES_MAX = 5


def load(tmp_path, lines, **options):
    path = tmp_path / "bookkeeper.conf"
    path.write_text("\n".join(lines) + "\n")
    return load_config(BOOKIE_KEYS, [path], {}, **options)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_stock_file_starts_a_bookie_with_few_lines(tmp_path, version):
    loaded = load(tmp_path, stock_lines(version, "bookkeeper"), strict=True)
    told = [notice.text for notice in loaded.notices]
    assert len(told + start_notices(loaded.config, "10.0.0.1")) <= LINES_MAX, told
    assert loaded.unknown == ()
    config = loaded.config
    assert config.bookiePort == 3181
    assert config.zkServers == "localhost:2181"
    assert config.journalDirectories == ("data/bookkeeper/journal",)
    assert config.bookieId == ""
    assert not config.httpServerEnabled


def test_what_the_stock_file_asks_of_another_process_is_told(tmp_path):
    config = load(tmp_path, stock_lines("4.0.8", "bookkeeper")).config
    [notice] = start_notices(config, "10.0.0.1")
    assert "autorecovery" in notice


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("zkEnableSecurity=true", "needs metadataStoreConfigPath"),
        ("journalWriteData=false", "not in the journal"),
        ("bookieSocketPath=run/b.sock", "an absolute path of at most 107 bytes"),
        (f"bookieSocketPath=/{'a' * 107}", "an absolute path of at most 107 bytes"),
        ("bookieSocketPath=/run/b.sock", "needs metadata of this machine"),
        ("bookiePort=0", "needs a bookieId"),
        ("bookiePort=70000", "at most 65535"),
        ("journalSyncDta=true", "did you mean 'journalSyncData'"),
        ("ledgerDirectories=,", "must name a directory each"),
        ("journalAlignmentSize=1000", "multiple of 512"),
        ("minorCompactionThreshold=0.9", "must not be above majorCompactionThreshold"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, line, complaint):
    with pytest.raises(ConfigError, match=complaint) as caught:
        load(tmp_path, [line])
    assert "\n" not in str(caught.value)


def test_the_shipped_file_offers_every_key_with_its_default():
    path = ROOM.parent / "conf" / "bookkeeper.conf"
    keys = {field.name for field in fields(BookieProcessConfig)} - set(BOOKIE_KEYS.refused)
    assert {setting.key for setting in read_properties(path)} == keys
    loaded = load_config(BOOKIE_KEYS, [path], {}, strict=True)
    assert (loaded.config, loaded.without_effect_count) == (BookieProcessConfig(), 0)


def test_dangers_are_told():
    config = BookieProcessConfig(journalSyncData=False)
    told = start_notices(config, "0.0.0.0")
    assert ["authentication" in told[0], "journalSyncData" in told[1]] == [True, True]
    assert start_notices(BookieProcessConfig(), "127.0.0.1") == []


def test_every_key_of_the_process_has_an_effect():
    own = {field.name for field in fields(BookieProcessConfig)} - {
        field.name for field in fields(BookieConfig)
    }
    text = (
        "".join(
            path.read_text()
            for path in (ROOM / "process").glob("*.py")
            if path != ROOM / "process" / "config.py"
        )
        + (ROOM / "process" / "config.py").read_text().partition("def start_notices")[2]
    )
    assert [key for key in own if not re.search(rf"config\.{key}\b", text)] == []
