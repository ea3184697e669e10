"""From a topic of a running broker through REST and the bookie's port to payloads."""

import dataclasses
import json
import urllib.request

import pytest
import trio

from broker.assembly.app import running_broker
from broker.ground.config import DEFAULT_CONFIG
from pipeline.bookies.errors import LedgerMissing
from pipeline.bookies.layouts import ledger_layouts
from pipeline.bookies.reader import BookieReader, ReaderConfig
from protocol import client
from protocol.metadata import peek_and_payload

TOPIC = "persistent://public/default/t"
CONFIG = dataclasses.replace(
    DEFAULT_CONFIG,
    brokerServicePort=0,
    webServicePort=0,
    bookiePort=0,
    maxBatchReadSize=20_000,
    defaultRetentionTimeInMinutes=-1,
    defaultRetentionSizeInMB=-1,
)


async def publish(running, payloads):
    """Unbatched, over a connection of its own; returns when all are durable."""
    host, _, port = running.broker_service_url.rpartition("/")[2].rpartition(":")
    codec = client.Client()
    frames = [client.send(1, n, client.message(body)) for n, body in enumerate(payloads)]
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        await stream.send_all(client.connect() + client.producer(TOPIC, 1, 1))
        receipts = 0
        with trio.fail_after(60):
            while receipts < len(payloads):
                for command, _ in codec.receive(bytes(await stream.receive_some())):
                    receipts += command.HasField("send_receipt")
                    if command.HasField("producer_success") and frames:
                        await stream.send_all(b"".join(frames))
                        frames = []


def stats_of(running):
    path = "admin/v2/persistent/public/default/t/internalStats?metadata=true"
    with urllib.request.urlopen(f"{running.web_service_url}/{path}", timeout=60) as answer:
        return json.load(answer)


def topic_of(running):
    """Read as a job does: layouts and last confirmed entry over HTTP, entries from the bookie."""
    stats = stats_of(running)
    layouts = ledger_layouts(stats)
    last = tuple(map(int, stats["lastConfirmedEntry"].split(":")))
    payloads = []
    with BookieReader(ReaderConfig(run_size_bytes=50_000)) as reader:
        for ledger_id, layout in layouts.items():
            end = layout.last_entry_id
            if end is None:
                end = last[1] if last[0] == ledger_id else -1
            if end >= 0:
                for _, run in reader.read(layout, 0, end):
                    payloads += [bytes(peek_and_payload(entry)[1]) for entry in run]
    return payloads


async def test_a_topic_is_read_past_its_broker_and_stays_with_it(tmp_path):
    first = [b"%06d" % n + bytes(n % 700) for n in range(3_000)]
    second = [b"again %d" % n for n in range(50)]
    async with running_broker(CONFIG, tmp_path) as running:
        await publish(running, first)
        assert await trio.to_thread.run_sync(topic_of, running) == first
    async with running_broker(CONFIG, tmp_path) as running:
        await publish(running, second)
        assert await trio.to_thread.run_sync(topic_of, running) == first + second
        await publish(running, second)
        assert await trio.to_thread.run_sync(topic_of, running) == first + second + second
        page = "".join((await running.admin.metrics.page()).pieces())
        assert f"vela_bookie_tcp_entries_total {3_050 + 3_100}" in page


async def test_a_trimmed_ledger_is_missing():
    async with running_broker(CONFIG, None) as running:
        await publish(running, [b"x"] * 10)
        stats = await trio.to_thread.run_sync(stats_of, running)
        (layout,) = ledger_layouts(stats).values()
        (bookie,) = running.admin.bookie_addresses
        await running.bookie.delete_ledger(layout.ledger_id)

        def read():
            with BookieReader() as reader:
                list(reader.read(layout, 0, 9))

        with pytest.raises(LedgerMissing):
            await trio.to_thread.run_sync(read)
        assert bookie == "vela-embedded"
