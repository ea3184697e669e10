"""Answers about a topic whose messages were all deleted by retention."""

import dataclasses

import pytest
import trio

from broker.assembly.app import running_broker
from broker.http.tests.conftest import CONFIG, Http
from broker.http.tests.test_topic_layouts import FULL, ROLLING, T, http_of, publish
from broker.managed_ledger.ledger import ManagedLedger
from ledgers.client import LedgerClient
from runtime.testing.conditions import SECONDS_MAX

UNSTORED = "Trim on a non-persistent topic is not allowed"


async def test_the_newest_message_is_not_one_that_was_deleted():
    config = dataclasses.replace(CONFIG, retentionCheckIntervalInSeconds=1, **ROLLING)
    async with running_broker(config, None) as running, http_of(running) as session:
        http = Http(session)
        assert await http("PUT", f"{T}/a/partitions", 1) == (204, None)
        await publish(running, f"{FULL}/a-partition-0", 2)
        with trio.fail_after(SECONDS_MAX):
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


async def test_a_newest_message_that_is_deleted_while_it_is_read_is_one_that_was_deleted(
    monkeypatch,
):
    async with running_broker(CONFIG, None) as running, http_of(running) as session:
        http = Http(session)
        await publish(running, f"{FULL}/a", 2)
        assert await http("PUT", f"{T}/a/unload") == (204, None)
        assert await entries_of(http, "a") == 2
        find = LedgerClient.reader

        async def trim_and_find(client, ledger_id):
            assert await http("POST", f"{T}/a/trim") == (200, None)
            return await find(client, ledger_id)

        monkeypatch.setattr(LedgerClient, "reader", trim_and_find)
        status, last = await http("GET", f"{T}/a/lastMessageId")
        assert (status, last["ledgerId"], last["entryId"]) == (200, -1, -1)
        assert await entries_of(http, "a") == 0


async def entries_of(http, topic):
    return (await http("GET", f"{T}/{topic}/internalStats"))[1]["numberOfEntries"]


@pytest.mark.parametrize("name", ["plain", "parted"])
async def test_trim_deletes_what_no_subscription_and_no_retention_wants(name, monkeypatch):
    config = dataclasses.replace(CONFIG, **ROLLING)
    async with running_broker(config, None) as running, http_of(running) as session:
        http = Http(session)
        if name == "parted":
            assert await http("PUT", f"{T}/parted/partitions", 2) == (204, None)
        part = "parted-partition-1" if name == "parted" else name
        await http("PUT", f"{T}/{part}/subscription/slow")
        await publish(running, f"{FULL}/{part}", 5)
        assert await http("POST", f"{T}/{name}/trim") == (200, None)
        assert await entries_of(http, part) == 5
        with monkeypatch.context() as patch:
            patch.setattr(ManagedLedger, "request_trim", lambda _ledger: None)
            assert await http("DELETE", f"{T}/{part}/subscription/slow") == (204, None)
        assert await entries_of(http, part) == 5
        assert await http("POST", f"{T}/{name}/trim") == (200, None)
        assert await entries_of(http, part) == 1


async def test_skipping_all_of_nothing_lets_go_of_what_was_consumed_before_an_unload(http, broker):
    await http("PUT", f"{T}/a")
    await http("PUT", f"{T}/a/subscription/s")
    await publish(broker, f"{FULL}/a", 3)
    assert await http("POST", f"{T}/a/subscription/s/skip_all") == (204, None)
    assert await http("PUT", f"{T}/a/unload") == (204, None)
    assert await entries_of(http, "a") == 3
    assert await http("POST", f"{T}/a/subscription/s/skip_all") == (204, None)
    with trio.fail_after(SECONDS_MAX):
        while await entries_of(http, "a"):
            await trio.lowlevel.checkpoint()


async def test_trim_of_what_is_not_there_or_not_stored_is_refused(http):
    await http("PUT", f"{T}/parted/partitions", 1)
    await http("PUT", "non-persistent/public/default/unstored")
    assert await http("POST", f"{T}/parted-partition-0/trim") == (200, None)
    none = "persistent://public/default/none-partition-0"
    for path, status, reason in (
        (f"{T}/none", 404, f"Topic {FULL}/none not found"),
        ("persistent/public/nowhere/t", 404, "Topic persistent://public/nowhere/t not found"),
        ("persistent/public/nowhere/t-partition-0", 404, "Namespace not found"),
        (f"{T}/parted-partition-7", 404, "Topic partitions were not yet created"),
        (f"{T}/none-partition-0", 404, f"Partitioned Topic not found: {none} has zero partitions"),
        ("non-persistent/public/default/unstored", 405, UNSTORED),
        ("non-persistent/public/nowhere/t", 405, UNSTORED),
    ):
        assert await http("POST", f"{path}/trim") == (status, reason)
