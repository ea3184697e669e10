"""A whole broker in this process: what it does by itself."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from bookie.api import Status
from bookie.tests.conftest import KEY, RecordingSink, entry
from broker.app import running_broker
from broker.assembly.parts import StartError
from broker.config import BrokerConfig
from broker.managed_ledger.owner_of_ledger import ledger_custom_metadata
from runtime.testing.conditions import eventually

CONFIG = replace(BrokerConfig(), brokerServicePort=0, webServicePort=0)


async def test_a_start_deletes_the_ledgers_that_a_crash_left_behind(tmp_path):
    async with running_broker(CONFIG, tmp_path) as broker:
        custom = ledger_custom_metadata("public/default/persistent/gone")
        orphan = await broker.admin.ledgers.create_ledger(custom, None)
        assert orphan.ledger_id in await broker.admin.ledgers.live_ledgers()
    with capture_logs() as logs:
        async with running_broker(CONFIG, tmp_path) as broker:
            await eventually(lambda: any("orphan" in line["event"] for line in logs))
            assert orphan.ledger_id not in await broker.admin.ledgers.live_ledgers()
    (line,) = [line for line in logs if "orphan" in line["event"]]
    assert line["ledger_ids"] == [orphan.ledger_id]


async def write_ledgers(broker, count):
    """Topics with a ledger each, with an entry each."""
    for _number in range(count):
        custom = ledger_custom_metadata("public/default/persistent/topic")
        writer = await broker.admin.ledgers.create_ledger(custom, None)
        bookie = broker.bookie
        sink = RecordingSink()
        body = entry(writer.ledger_id, 0)
        bookie.add_entry(writer.ledger_id, 0, body, KEY, 0, sink)
        bookie.kick()
        await sink.wait_for(1)
        assert sink.statuses() == [Status.OK]


async def refusal_of(directory):
    """The text of the refusal, which comes again at the next start."""
    texts = set()
    for _start in range(2):
        with pytest.RaisesGroup(StartError, allow_unwrapped=True, flatten_subgroups=True) as found:
            async with running_broker(CONFIG, directory):
                pass
        error = found.value
        while isinstance(error, BaseExceptionGroup):
            (error,) = error.exceptions
        texts.add(str(error))
    (text,) = texts
    assert "\n" not in text
    return text


async def test_metadata_older_than_the_bookie_are_refused_and_nothing_is_deleted(tmp_path):
    async with running_broker(CONFIG, tmp_path) as broker:
        await write_ledgers(broker, 1)
    shutil.copytree(tmp_path / "metadata", tmp_path / "older")
    async with running_broker(CONFIG, tmp_path) as broker:
        await write_ledgers(broker, 2)
    shutil.rmtree(tmp_path / "metadata")
    shutil.copytree(tmp_path / "older", tmp_path / "metadata")
    assert "metadata is older than the bookie's directories" in await refusal_of(tmp_path)


async def test_a_lost_bookie_is_refused_beside_metadata_that_name_its_ledgers(tmp_path):
    async with running_broker(CONFIG, tmp_path) as broker:
        await write_ledgers(broker, 1)
    shutil.rmtree(tmp_path / "bookkeeper")
    text = await refusal_of(tmp_path)
    assert "bookkeeper/ledgers: no data of a bookie" in text
    assert not (tmp_path / "bookkeeper").exists()
