"""A whole broker in this process: what it does by itself."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from bookie.api import Status
from bookie.tests.conftest import KEY, RecordingSink, entry
from broker.assembly.app import running_broker
from broker.assembly.parts import StartError
from broker.ground.config import BrokerConfig
from broker.managed_ledger.ledger_record import LedgerRecord, encode_ledger_record
from broker.managed_ledger.ledger_table import LedgerRow
from broker.managed_ledger.owner_of_ledger import ledger_custom_metadata
from broker.managed_ledger.paths import ledger_info_path
from broker.topics.broadcast.tests.peer import peer
from broker.topics.follow.shadow import SHADOW_SOURCE
from metadata.store import MUST_NOT_EXIST
from protocol.errors import NotAllowed
from protocol.topic_name import TopicName
from runtime.testing.conditions import SECONDS_MAX, eventually
from web.client import fetch

CONFIG = replace(BrokerConfig(), brokerServicePort=0, webServicePort=0)
SOURCE = TopicName.parse("persistent://public/default/news")
SHADOW = TopicName.parse("persistent://public/default/news-1")


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


async def test_a_shadow_that_a_cluster_made_is_refused_and_its_source_goes_on(tmp_path):
    async with running_broker(CONFIG, tmp_path) as broker:
        source = await broker.service.get_or_load_topic(SOURCE, create=True)
        rows = [LedgerRow(row.ledger_id) for row in source.ledger.statistics().ledgers]
        # Pulsar's brokers list the ledgers of the source in the record of a shadow.
        record = LedgerRecord(rows, None, {SHADOW_SOURCE: SOURCE.full})
        path = ledger_info_path(SHADOW.managed_ledger_name)
        written = encode_ledger_record(record)
        await broker.admin.store.put(path, written, MUST_NOT_EXIST)
        sentence = f"shadow of {SOURCE.full}.*--brokers 2"
        with pytest.raises(NotAllowed, match=sentence):
            await broker.service.get_or_load_topic(SHADOW, create=True)
        with pytest.raises(NotAllowed, match=sentence):
            await broker.service.delete_topic(SHADOW)
        await source.ledger.change_properties(lambda old: old)  # by compare-and-set
        async with peer(broker, producer=True, topic=SOURCE.full) as publisher:
            await publisher.publish(b"a", b"b")
        assert source.ledger.entries == 2
        assert not source.ledger.fenced
        assert (await broker.admin.store.get(path))[0] == written
        await broker.service.delete_topic(SHADOW, force=True)
        assert await broker.admin.store.get(path) is None
        assert len(await source.ledger.read((0, 0), 10, 10_000)) == 2


async def test_a_broker_by_itself_makes_an_ordinary_topic_of_a_shadow(tmp_path):
    async with running_broker(CONFIG, tmp_path) as broker:
        topic = await broker.service.get_or_load_topic(SHADOW, create=True)
        async with peer(broker, producer=True, topic=SHADOW.full) as publisher:
            await publisher.publish(b"own")
        await topic.ledger.change_properties(lambda _: {SHADOW_SOURCE: SOURCE.full})
        await broker.service.unload_topic(SHADOW)
        url = f"{broker.web_service_url}/admin/v2/{SHADOW.full.replace('://', '/')}/properties"
        assert (await fetch("GET", url, SECONDS_MAX, body_bytes_max=10_000)).status == 405
        query = f"{url}?key={SHADOW_SOURCE}"
        assert (await fetch("DELETE", query, SECONDS_MAX, body_bytes_max=10_000)).status == 204
        topic = await broker.service.get_or_load_topic(SHADOW, create=False)
        assert topic.ledger.entries == 1
        body = json.dumps({SHADOW_SOURCE: SOURCE.full}).encode()
        answer = await fetch("PUT", url, SECONDS_MAX, body=body, body_bytes_max=10_000)
        assert (answer.status, topic.ledger.properties) == (501, {})


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
