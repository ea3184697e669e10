"""What is said of a topic whose messages were all deleted by retention."""

import dataclasses

import trio

from broker.admin.tests.conftest import CONFIG, Http
from broker.admin.tests.test_topic_layouts import FULL, T, http_of, publish
from broker.app import running_broker

ROLLING = {"managedLedgerMaxEntriesPerLedger": 2, "managedLedgerMinLedgerRolloverTimeMinutes": 0}


async def test_the_newest_message_is_not_one_that_was_deleted():
    config = dataclasses.replace(CONFIG, retentionCheckIntervalInSeconds=1, **ROLLING)
    async with running_broker(config, None) as running, http_of(running) as session:
        http = Http(session)
        assert await http("PUT", f"{T}/a/partitions", 1) == (204, None)
        await publish(running, f"{FULL}/a-partition-0", 2)
        with trio.fail_after(30):
            while (await http("GET", f"{T}/a-partition-0/internalStats"))[1]["numberOfEntries"]:
                await trio.lowlevel.checkpoint()  # requests in memory never let others run

        status, last = await http("GET", f"{T}/a-partition-0/lastMessageId")

        assert status == 200
        assert last == {
            "ledgerId": -1,
            "entryId": -1,
            "partitionIndex": -1,
            "batchIndex": -1,
            "batchSize": 0,
        }
