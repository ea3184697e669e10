"""A whole broker in this process: what it does by itself."""

from __future__ import annotations

from dataclasses import replace

from structlog.testing import capture_logs

from broker.app import running_broker
from broker.config import BrokerConfig
from broker.managed_ledger.owner_of_ledger import ledger_custom_metadata
from broker.net.tests.harness import eventually

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
