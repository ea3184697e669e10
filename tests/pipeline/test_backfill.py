"""A backfill past the broker: the same rows, at no cost to it, and never a wrong or missing one."""

from __future__ import annotations

import json
import re
import struct
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pulsar
import pyarrow.dataset
import pytest

from pipeline.bookies.tests.fake_bookie import FakeBookie, entry
from pipeline.data_loss import DataLost
from pipeline.engine_bookie import BookieEngine
from pipeline.jobs import archive
from pipeline.options import source_options
from pipeline.plan import Slice
from pipeline.tests.http_server import QuietHandler, serving
from protocol import client as codec
from protocol.bookkeeper import messages as m
from tests.pipeline.conftest import CONFIG, options_for, running_server
from tests.pipeline.topics import admin, path_of, publish

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.server_process import ServerProcess

Options = dict[str, str]
TIMEOUT_SECONDS = 60
CHECKSUM = ("count(*)", "bit_xor(xxhash64(value, __key, __messageId, __eventTime))")


def read(spark: SparkSession, options: Options, engine: str) -> DataFrame:
    return spark.read.format("vela").options(**options, readEngine=engine).load()


def checksum(frame: DataFrame) -> tuple[int, int]:
    (row,) = frame.selectExpr(*CHECKSUM).collect()
    return tuple(row)


def bytes_out(options: Options) -> int:
    return admin(options, "GET", path_of(options["topic"]) + "/stats")["bytesOutCounter"]


def test_twenty_closed_ledgers_are_archived_past_the_broker(
    spark: SparkSession, client: pulsar.Client, options: Options, topic: str, tmp_path: Path
) -> None:
    values = [b"%d" % number * 40 for number in range(2050)]
    times = [1_700_000_000_000 + number for number in range(2050)]
    keys = [f"k{number % 7}" for number in range(2050)]
    ids = publish(client, topic, values, keys=keys, event_times=times)
    ledgers = admin(options, "GET", path_of(topic) + "/internalStats")["ledgers"]
    assert len(ledgers) == 21
    output = str(tmp_path / "out")
    arguments = ["--service-url", options["service.url"], "--admin-url", options["admin.url"]]
    arguments += ["--topic", topic, "--output", output, "--read-engine", "bookie"]

    assert archive.main(arguments) == 0
    straight = checksum(read(spark, options, "bookie"))
    assert bytes_out(options) == 0
    chosen = checksum(read(spark, options, "auto"))
    of_the_open_ledger = bytes_out(options)
    through_broker = checksum(read(spark, options, "broker"))

    archived = pyarrow.dataset.dataset(output, partitioning="hive").to_table(["__messageId"])
    assert sorted(archived.column("__messageId").to_pylist()) == sorted(ids)
    assert through_broker[0] == 2050
    assert checksum(spark.read.parquet(output)) == straight == chosen == through_broker
    everything = bytes_out(options) - of_the_open_ledger
    assert 0 < of_the_open_ledger < everything / 20


@contextmanager
def naming_bookies(admin_url: str, bookie_id: str) -> Iterator[str]:
    """The admin API, as it is when the bookies have another address."""

    class Handler(QuietHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) or None
            kind = {"Content-Type": "application/json"}
            request = urllib.request.Request(admin_url + self.path, body, kind, method=self.command)
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    status, content = answer.status, answer.read().decode()
            except urllib.error.HTTPError as refusal:
                status, content = refusal.code, refusal.read().decode()
            other = re.sub(r"ensembles=\{0=\[[^\]]*\]", f"ensembles={{0=[{bookie_id}]", content)
            self.send_response(status)
            self.send_header("Content-Length", str(len(other.encode())))
            self.end_headers()
            self.wfile.write(other.encode())

        do_GET = do_PUT = do_POST = _answer

    with serving(Handler) as url:
        yield url


@pytest.mark.parametrize(
    ("bookie_id", "error"),
    [
        # What a server names its bookie without `bookiePort`.
        ("vela-embedded", "'vela-embedded' is not named by host:port: set bookiePort"),
        ("127.0.0.1:9", r"entry \d+:0: 127.0.0.1:9: Connection refused; readEngine=broker or auto"),
    ],
    ids=["none", "closed"],
)
def test_bookies_out_of_reach_are_an_error_that_says_what_to_do_and_auto_does_without_them(
    spark: SparkSession, client: pulsar.Client, options: Options, bookie_id: str, error: str
) -> None:
    ids = publish(client, options["topic"], [b"x" * 100] * 250)
    with naming_bookies(options["admin.url"], bookie_id) as admin_url:
        away = {**options, "admin.url": admin_url, "pollTimeoutMs": "1000"}

        with pytest.raises(Exception, match=error):
            read(spark, away, "bookie").count()
        found = read(spark, away, "auto").collect()

    assert sorted(bytes(row["__messageId"]) for row in found) == sorted(ids)


@pytest.fixture(scope="module")
def flushing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server whose entries are soon in its entry logs, and nowhere else."""
    config = CONFIG + "flushInterval=200\n"
    with running_server(tmp_path_factory.mktemp("flushing"), config) as process:
        yield process


def position_in_logs(server: ServerProcess, content: bytes) -> tuple[Path, int]:
    """Where it is, once it was flushed."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        for path in (server.directory / "data").rglob("*.log"):
            position = path.read_bytes().find(content)
            if position >= 0:
                return path, position
    raise AssertionError(f"{content!r} was not flushed")


def flip(path: Path, position: int) -> None:
    with path.open("r+b") as log:
        log.seek(position)
        byte = log.read(1)[0]
        log.seek(position)
        log.write(bytes([byte ^ 1]))


@pytest.mark.parametrize("what", ["content", pytest.param("identity", marks=pytest.mark.slow)])
def test_an_entry_damaged_on_disk_is_an_error_that_names_it(
    spark: SparkSession, flushing: ServerProcess, topic: str, what: str
) -> None:
    options = options_for(flushing, topic) | {"pollTimeoutMs": "2000", "failOnDataLoss": "false"}
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(flushing.service_url, logger=logger)
    ids = publish(client, topic, [b"message %03d of %s" % (n, what.encode()) for n in range(250)])
    client.close()
    bad = pulsar.MessageId.deserialize(ids[123])
    position_in_logs(flushing, b"message 249 of " + what.encode())
    name = struct.pack(">qq", bad.ledger_id(), bad.entry_id())
    content = b"message 123 of " + what.encode() if what == "content" else name
    flip(*position_in_logs(flushing, content))

    deadline = time.monotonic() + TIMEOUT_SECONDS
    error = ""
    while not error:
        assert time.monotonic() < deadline, "the failure was not noticed"
        try:
            found = read(spark, options, "bookie").collect()
        except Exception as failure:
            error = str(failure)
        else:  # From a cache of the server.
            assert sorted(bytes(row["__messageId"]) for row in found) == sorted(ids)

    assert f"{topic}: entry {bad.ledger_id()}:{bad.entry_id()}: " in error
    assert ("digest" if what == "content" else "status 101") in error
    strict = {**options, "failOnDataLoss": "true"}
    for engine in ("auto", "broker"):
        with pytest.raises(Exception, match=f"{topic}: entry {bad.ledger_id()}:{bad.entry_id()}"):
            read(spark, strict, engine).collect()
    found = [bytes(row["__messageId"]) for row in read(spark, options, "broker").collect()]
    assert found == [each for each in ids if each != ids[123]]
    bound = f'{{"{topic}": "{bad.ledger_id()}:{bad.entry_id() - 1}"}}'
    assert read(spark, {**options, "endingOffsets": bound}, "bookie").count() == 123


LEDGER_TOPIC = "persistent://public/default/t"
LEDGER_VALUES = [b"%d" % number for number in range(10)]


@contextmanager
def ledger_of(bookie: FakeBookie, *missing: int) -> Iterator[str]:
    """A closed ledger 7 on it; the URL of the admin API that tells of it."""
    stored = dict(enumerate(entry(7, n, codec.message(v)) for n, v in enumerate(LEDGER_VALUES)))
    bookie.ledgers[7] = {number: body for number, body in stored.items() if number not in missing}
    metadata = (
        "LedgerMetadata{formatVersion=3, ensembleSize=1, writeQuorumSize=1, ackQuorumSize=1, "
        "state=CLOSED, length=100, lastEntryId=9, digestType=CRC32C, password=OMITTED, "
        f"ensembles={{0=[{bookie.bookie_id}]}}, customMetadata={{}}}}"
    )
    answer = json.dumps({"ledgers": [{"ledgerId": 7, "metadata": metadata}]}).encode()

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    try:
        with serving(Handler) as url:
            yield url
    finally:
        bookie.close()


def values_in_ledger(url: str, **more: str) -> Iterator[bytes]:
    given = {"admin.url": url, "topic": LEDGER_TOPIC, "readEngine": "bookie", **more}
    with BookieEngine(source_options(given, streaming=False)) as engine:
        for rows in engine.read_slice(Slice(LEDGER_TOPIC, 7, 0, 9, 0, sealed=True)):
            yield from [bytes(message.payload) for message in rows.messages()]


def test_an_entry_that_no_bookie_has_is_a_gap_of_one_entry() -> None:
    with ledger_of(FakeBookie(), 4, 9) as url:
        with pytest.raises(DataLost, match=f"{LEDGER_TOPIC}: entry 7:4: .*no such entry"):
            list(values_in_ledger(url, failOnDataLoss="true"))
        found = list(values_in_ledger(url, failOnDataLoss="false"))

    assert found == [b"%d" % number for number in (0, 1, 2, 3, 5, 6, 7, 8)]


def test_a_bookie_that_fails_once_is_asked_again_also_after_a_long_pause() -> None:
    """The time in which the query asks for no rows is none in which the bookie was away."""
    bookie = FakeBookie()
    bookie.has_batch_reads = False
    failures = [m.IO_ERROR]
    bookie.status_of = lambda read: failures.pop() if read.entry_id == 5 and failures else m.OK
    with ledger_of(bookie) as url:
        values = values_in_ledger(url, pollTimeoutMs="1000")
        begun = [next(values) for _ in range(5)]
        time.sleep(1.2)  # the pause itself: longer than pollTimeoutMs

        assert [*begun, *values] == LEDGER_VALUES
