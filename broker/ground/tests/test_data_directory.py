"""Other users of the machine cannot see stored data; data of other programs is left alone."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from broker.assembly.app import running_broker
from broker.ground.config import BrokerConfig
from broker.ground.data_directory import DataDirectory, DataDirectoryError
from broker.managed_ledger.owner_of_ledger import ledger_custom_metadata

CONFIG = replace(BrokerConfig(), brokerServicePort=0, webServicePort=0)


def modes(directory):
    """Path -> mode of everything below."""
    found = {str(directory): os.stat(directory).st_mode & 0o7777}
    for path, directories, files in os.walk(directory):
        for name in (*directories, *files):
            found[f"{path}/{name}"] = os.stat(f"{path}/{name}").st_mode & 0o7777
    return found


def open_to_others(directory):
    return sorted(path for path, mode in modes(directory).items() if mode & 0o077)


async def use(config, directory):
    async with running_broker(config, directory) as broker:
        custom = ledger_custom_metadata("public/default/persistent/topic")
        await broker.admin.ledgers.create_ledger(custom, None)
        await broker.bookie.checkpoint()
        assert open_to_others(directory) == []


@pytest.fixture
def usual_umask():
    umask = os.umask(0o022)
    yield
    assert os.umask(umask) == 0o022


async def test_other_users_can_read_nothing_that_is_stored(tmp_path, usual_umask):
    await use(CONFIG, tmp_path / "data")
    names = {path.rpartition("/")[2] for path in modes(tmp_path / "data")}
    assert {"vela.lock", "VERSION", "lastMark", "locations", "ledgers", "metadata"} <= names
    assert any(name.endswith(".sst") or name == "CURRENT" for name in names)


async def test_data_of_an_earlier_version_is_closed_to_other_users_at_start(tmp_path, usual_umask):
    directory = tmp_path / "data"
    config = replace(
        CONFIG,
        journalDirectories=(str(tmp_path / "journal"),),
        ledgerDirectories=(str(tmp_path / "ledgers"),),
    )
    await use(config, directory)
    for path, mode in modes(tmp_path).items():
        os.chmod(path, 0o755 if mode & 0o100 else 0o644)
    assert open_to_others(tmp_path / "journal") != []
    await use(config, directory)
    assert open_to_others(tmp_path / "journal") == []
    assert open_to_others(tmp_path / "ledgers") == []


async def test_a_directory_with_other_things_in_it_keeps_its_mode(tmp_path, usual_umask):
    shared = tmp_path / "home"
    shared.mkdir(mode=0o755)
    (shared / "letter").write_text("Dear all")
    async with running_broker(CONFIG, shared):
        pass
    assert open_to_others(shared) == [str(shared), f"{shared}/letter"]


@pytest.mark.parametrize(
    "place",
    [
        "metadata/CURRENT",  # 4.0: RocksDB
        "standalone/bookkeeper/current/VERSION",
        "bookkeeper/current/VERSION",
        "bookkeeper0/current/VERSION",  # 2.10, beside ZooKeeper
        "zookeeper/version-2/log.1",
        "current/VERSION",  # a bookie's directory
    ],
)
def test_what_real_pulsar_stored_is_recognized_and_left_alone(tmp_path, place):
    (tmp_path / place).parent.mkdir(parents=True)
    (tmp_path / place).write_text("5\nbookieHost")
    before = modes(tmp_path)
    with pytest.raises(DataDirectoryError, match=f"holds {place.split('/')[0]}.* a real Pulsar"):
        DataDirectory(tmp_path).__enter__()
    assert modes(tmp_path) == before
    assert (tmp_path / place).read_text() == "5\nbookieHost"
