"""Configuration files as Pulsar ships them start Vela, with few words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker.configuration.config_file import load_config
from broker.configuration.config_keys import BROKER_KEYS, REFUSED
from broker.configuration.start_notices import start_notices
from broker.ground.config import BrokerConfig
from settings.reading import ConfigError
from settings.rules import nearest
from settings.tests.stock import FILES, VERSIONS, stock_lines

if TYPE_CHECKING:
    from pathlib import Path

    from settings.reading import LoadedConfig

LINES_MAX = 5


def load(tmp_path: Path, lines: list[str], *, strict: bool = False) -> LoadedConfig[BrokerConfig]:
    path = tmp_path / "stock.conf"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return load_config([path], {}, strict=strict)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("file", FILES)
def test_a_stock_file_starts_without_a_flood_of_lines(tmp_path: Path, version: str, file: str):
    lines = stock_lines(version, file)
    assert len(lines) > 80
    loaded = load(tmp_path, lines, strict=True)
    told = [notice.text for notice in loaded.notices]
    told += start_notices(loaded.config, in_memory=False)
    assert len(told) <= LINES_MAX, told
    assert loaded.unknown == ()
    assert loaded.without_effect_count > 50


@pytest.mark.parametrize("version", VERSIONS)
def test_all_stock_files_of_a_version_start_together(tmp_path: Path, version: str):
    lines = [line for file in FILES for line in stock_lines(version, file)]
    config = load(tmp_path, lines, strict=True).config
    assert config.bindAddress == "0.0.0.0"
    assert config.journalDirectories == ("data/bookkeeper/journal",)


@pytest.mark.parametrize("file", ["broker", "standalone"])
def test_a_stock_file_that_asks_for_authorization_alone_is_refused(tmp_path: Path, file: str):
    lines = [
        "authorizationEnabled=true" if line.startswith("authorizationEnabled=") else line
        for line in stock_lines("4.0.8", file)
    ]
    with pytest.raises(ConfigError, match="authorizationEnabled=true needs authenticationEnabled"):
        load(tmp_path, lines)


def test_addresses_of_other_processes_are_told_and_passed_over(tmp_path: Path):
    lines = stock_lines("2.10.1", "broker")
    given = ["zookeeperServers=zk1:2181", "configurationStoreServers=zk1:2181", *lines]
    given += ["metadataStoreUrl=zk:zk1:2181", "zkServers=zk1:2181"]
    notices = load(tmp_path, given, strict=True).notices
    told = {notice.setting.key: notice.text for notice in notices}
    assert "metadataStoreUrl" in told
    assert "its own data directory" in told["zkServers"]


def test_keys_that_a_later_version_adds_are_not_taken_for_misspelt_ones():
    """4.0.8 is a later version to a list of keys that ends with 2.10.1."""
    keys = {
        version: {line.partition("=")[0] for file in FILES for line in stock_lines(version, file)}
        for version in VERSIONS
    }
    known = keys["2.10.1"] | set(BrokerConfig.__dataclass_fields__) | set(REFUSED)
    added = keys["4.0.8"] - known
    assert len(added) > 100
    mistaken = {
        key: like
        for key in added
        if (like := nearest(key, known)) and BROKER_KEYS.is_critical(like)
    }
    assert mistaken == {}
