"""Where a reader of bookies finds the entries of a topic."""

import dataclasses

import httpx
import trio

from broker.assembly.app import running_broker
from broker.http.router import Router
from broker.http.routes import all_routes
from broker.http.server import AdminApplication
from broker.http.tests.conftest import CONFIG, Http
from broker.http.topics.topic_layouts import topic_layouts
from broker.managed_ledger.ledger_table import LedgerRow
from ledgers.client import LedgerClient
from protocol import client
from protocol.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState
from runtime.testing.conditions import SECONDS_MAX
from web.callers import CallerRules

T = "persistent/public/default"
FOR_EVER = {"defaultRetentionTimeInMinutes": -1, "defaultRetentionSizeInMB": -1}
ROLLING = {"managedLedgerMaxEntriesPerLedger": 2, "managedLedgerMinLedgerRolloverTimeMinutes": 0}
FULL = "persistent://public/default"


def http_of(running):
    application = AdminApplication(Router(all_routes()), CallerRules((), ["*"]))
    application.context = running.admin
    transport = httpx.ASGITransport(application, raise_app_exceptions=True)
    return httpx.AsyncClient(transport=transport, base_url="http://vela")


async def publish(running, topic, count):
    """Over a connection of its own; returns when all are durable."""
    host, _, port = running.broker_service_url.rpartition("/")[2].rpartition(":")
    codec = client.Client()
    receipts = 0
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        await stream.send_all(client.connect() + client.producer(topic, 1, 1))
        sent = False
        with trio.fail_after(SECONDS_MAX):
            while receipts < count:
                for command, _ in codec.receive(bytes(await stream.receive_some())):
                    receipts += command.HasField("send_receipt")
                    if command.HasField("producer_success") and not sent:
                        sent = True
                        messages = [
                            client.send(1, n, client.message(b"m%d" % n)) for n in range(count)
                        ]
                        await stream.send_all(b"".join(messages))


async def test_ledger_metadata_says_where_the_bookie_is_reached(tmp_path):
    """For any name in the ledger metadata. Without bookiePort there is no address."""
    for port in (-1, 0):
        config = dataclasses.replace(CONFIG, bookiePort=port, **FOR_EVER)
        async with running_broker(config, tmp_path) as running, http_of(running) as session:
            http = Http(session)
            if port == -1:
                assert await http("PUT", f"{T}/a") == (204, None)
                await publish(running, f"{FULL}/a", 2)
            _, internal = await http("GET", f"{T}/a/internalStats?metadata=true")
            _, layouts = await http("GET", f"{T}/a/ledgerLayouts")
            address = running.bookie_address
            assert bool(address) is layouts["bookiesReachable"] is (port == 0)
            bookie = address or "vela-embedded"
            assert len(internal["ledgers"]) == port + 2
            for row, layout in zip(internal["ledgers"], layouts["ledgers"], strict=True):
                assert f"ensembles={{0=[{bookie}]}}" in row["metadata"]
                assert layout["ensembles"] == [{"firstEntryId": 0, "bookies": [bookie]}]


async def test_a_ledger_made_while_the_answer_is_collected_has_its_metadata_in_it(monkeypatch):
    config = dataclasses.replace(CONFIG, **FOR_EVER, **ROLLING)
    find = LedgerClient.metadata_of
    for path in ("internalStats?metadata=true", "ledgerLayouts"):
        async with running_broker(config, None) as running, http_of(running) as session:
            http = Http(session)
            assert await http("PUT", f"{T}/a") == (204, None)
            asked = []

            async def find_late(client, ledger_id, asked=asked, running=running):
                asked.append(ledger_id)
                if len(asked) == 1:
                    await publish(running, f"{FULL}/a", 3)
                return await find(client, ledger_id)

            with monkeypatch.context() as patch:
                patch.setattr(LedgerClient, "metadata_of", find_late)
                _, answer = await http("GET", f"{T}/a/{path}")
            assert len(answer["ledgers"]) == 2
            assert all(row.get("metadata") or row.get("ensembles") for row in answer["ledgers"])


async def test_layouts_tell_how_far_may_be_read(http, broker):
    await http("PUT", f"{T}/a")
    await publish(broker, f"{FULL}/a", 3)
    _, first = await http("GET", f"{T}/a/ledgerLayouts")
    assert [row["lastEntryId"] for row in first["ledgers"]] == [2]
    assert first["ledgers"][0]["state"] == "OPEN"
    assert first["ledgers"][0]["timestamp"] == 0
    assert first["lastConfirmedEntry"]["entryId"] == 2
    await http("POST", f"{T}/a/terminate")
    _, second = await http("GET", f"{T}/a/ledgerLayouts")
    row = second["ledgers"][0]
    assert (row["state"], row["lastEntryId"], row["entries"]) == ("CLOSED", 2, 3)
    assert row["timestamp"] > 0
    status, reason = await http("GET", f"{T}/none/ledgerLayouts")
    assert (status, reason) == (404, f"Topic {FULL}/none not found")


async def test_internal_info_gives_counts_of_closed_ledgers_only(http, broker):
    """As Pulsar 4.0.8: the open ledger comes without counts, and its time is now."""
    await http("PUT", f"{T}/a")
    await publish(broker, f"{FULL}/a", 3)
    before = broker.admin.clock.wall_ms()
    _, info = await http("GET", f"{T}/a/internal-info")
    (row,) = info["ledgers"]
    assert set(row) == {"ledgerId", "timestamp", "isOffloaded"}
    assert before <= row["timestamp"] <= broker.admin.clock.wall_ms()
    await http("POST", f"{T}/a/terminate")
    _, info = await http("GET", f"{T}/a/internal-info")
    (row,) = info["ledgers"]
    assert set(row) == {"ledgerId", "entries", "size", "timestamp", "isOffloaded"}
    assert (row["entries"], row["isOffloaded"]) == (3, False)


def test_a_striped_ledger_and_one_being_deleted():
    def row(ledger_id):
        return LedgerRow(ledger_id, entries=5, size_bytes=50, timestamp_ms=7)

    class Statistics:
        ledgers = (row(1), row(2))
        last_confirmed = (2, 4)

    metadata = LedgerMetadata(
        ensemble_size=2,
        write_quorum_size=1,
        ack_quorum_size=1,
        ensembles={0: ("a", "b"), 3: ("a", "c:1")},
        state=LedgerState.CLOSED,
        last_entry_id=4,
        length=50,
    )
    found = topic_layouts(Statistics(), {2: metadata}, {"a": "h:1", "b": "h:2"})
    assert found["bookiesReachable"] is False
    assert [each["ledgerId"] for each in found["ledgers"]] == [2]
    assert found["ledgers"][0]["ensembles"] == [
        {"firstEntryId": 0, "bookies": ["h:1", "h:2"]},
        {"firstEntryId": 3, "bookies": ["h:1", "c:1"]},
    ]
