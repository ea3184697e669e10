"""The bookie's port: the same requests to BookKeeper's bookie in real Pulsar and to Vela's, and the
stock BookKeeper client and our own reader on both."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pulsar
import pytest

from compat_tests.bookie_probes import ask, probes, refused_probes
from compat_tests.oracle.distribution import TREE, pulsar_home
from compat_tests.servers import start_servers
from pipeline.bookies.addresses import BookieAddresses
from pipeline.bookies.layouts import ledger_layouts
from pipeline.bookies.reader import BookieReader
from protocol.bookkeeper import v2, v3
from protocol.bookkeeper.ledger_metadata import LedgerState, encode_ledger_metadata
from protocol.bookkeeper.ledger_metadata_text import parse_ledger_metadata_text
from protocol.bookkeeper.paths import ledger_path
from protocol.metadata import peek_and_payload

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from compat_tests.oracle.releases import Release
    from compat_tests.oracle.server_process import ServerProcess
    from compat_tests.servers import Wanted
    from protocol.bookkeeper.ledger_metadata import LedgerMetadata

MESSAGES = 300
TOPIC = "persistent://public/default/bookie-wire"
PATH = "/admin/v2/persistent/public/default/bookie-wire"
PROGRAM = TREE / "compat_tests" / "clients" / "bookkeeper" / "ReadLedger.java"
PROGRAM_TIMEOUT_SECONDS = 300

DIFFERENT = {
    "v2 batch of LAST_ENTRY": "BookKeeper goes on with entry 0",
    "v2 of version 5": "BookKeeper answers EBADVERSION and leaves the connection open",
    "v3 list entries": "BookKeeper's DbLedgerStorage never answers",
    "v3 read lac of unknown ledger": "BookKeeper says ENOENTRY outside and ENOLEDGER inside",
    "v3 read without its body": "BookKeeper takes it for a read of entry 0 of ledger 0",
}


@dataclass(frozen=True)
class StoredLedger:
    """A closed ledger of one server, and where it can be read."""

    host: str
    port: int
    ledger_id: int
    metadata: LedgerMetadata
    stats: dict[str, object]
    addresses: BookieAddresses


@pytest.fixture(scope="module")
def ledgers(
    tmp_path_factory: pytest.TempPathFactory, beside: Wanted
) -> Iterator[Mapping[str, StoredLedger]]:
    """The same messages in a closed ledger of each server."""
    configuration = {"bookiePort": "0", "defaultRetentionTimeInMinutes": "-1"}
    configuration["defaultRetentionSizeInMB"] = "-1"
    directory = tmp_path_factory.mktemp("bookie-wire")
    servers = start_servers(directory, beside, configuration)
    try:
        yield {name: stored_ledger(server) for name, server in servers.items()}
    finally:
        for server in servers.values():
            server.kill()


def stored_ledger(server: ServerProcess) -> StoredLedger:
    """Publish, close the ledger by unloading the topic, and ask where it is."""
    client = pulsar.Client(
        server.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    try:
        producer = client.create_producer(TOPIC, batching_enabled=False, producer_name="wire")
        for number in range(MESSAGES):
            producer.send(payload_of(number))
        producer.close()
    finally:
        client.close()
    status, told = server.http("PUT", f"{PATH}/unload")
    assert status < 300, told
    status, stats = server.http("GET", f"{PATH}/internalStats?metadata=true")
    assert status == 200, stats
    row = stats["ledgers"][0]
    metadata = parse_ledger_metadata_text(row["metadata"])
    assert (metadata.state, metadata.last_entry_id) == (LedgerState.CLOSED, MESSAGES - 1)
    addresses = addresses_of(server)
    host, port = addresses.of(metadata.ensembles[0][0])
    return StoredLedger(host, port, row["ledgerId"], metadata, stats, addresses)


def addresses_of(server: ServerProcess) -> BookieAddresses:
    """Pulsar 5.0.1 registers its bookie as `bk-0`, in a store that no other process can read."""
    port = getattr(server, "bookie_port", None)
    return BookieAddresses({"bk-0": ("127.0.0.1", port)} if port else {})


def payload_of(number: int) -> bytes:
    return b"%06d" % number + bytes(number)


def test_requests_are_answered_alike(ledgers: Mapping[str, StoredLedger], release: Release) -> None:
    """Reads, batch reads, version 3, and wrong requests of every kind."""
    told = {name: answers_of(ledger) for name, ledger in ledgers.items()}
    different = {
        probe: (answer, told["vela"][probe])
        for probe, answer in told[release.name].items()
        if answer != told["vela"][probe]
    }
    assert different.keys() <= DIFFERENT.keys(), different
    assert DIFFERENT.keys() <= different.keys(), "a difference is gone: take it off the list"


def answers_of(ledger: StoredLedger) -> dict[str, object]:
    """Probe -> answers, without what differs by nature: ledger ids, times, sizes of disks."""
    told: dict[str, object] = {}
    for probe in probes(ledger.ledger_id, MESSAGES - 1):
        answers = ask(ledger.host, ledger.port, probe)
        told[probe.name] = [normalised(answer, ledger.ledger_id) for answer in answers]
    return told


def normalised(answer: str, ledger_id: int) -> object:
    if not all(character in "0123456789abcdef" for character in answer):
        return answer  # closed, silent
    packet = bytes.fromhex(answer)
    decode = v3.decode_response if packet[0] == 0x0A else v2.decode_response
    if packet[0] not in (0x0A, 0x02):
        return answer
    response = decode(packet)
    fields = response._asdict()
    if fields.get("ledger_id") == ledger_id:
        fields["ledger_id"] = "the ledger"
    for name in ("body", "last_entry_body"):
        if fields.get(name):
            fields[name] = message_of(fields[name])
    if "bodies" in fields:
        fields["bodies"] = [message_of(body) for body in fields["bodies"]]
    if "free_bytes" in fields:
        fields |= {"free_bytes": fields["free_bytes"] > 0, "total_bytes": fields["total_bytes"] > 0}
    return type(response).__name__, sorted(fields.items())


def message_of(body: bytes) -> tuple[int, bytes]:
    """(last add confirmed in the head, message): the rest holds the time of publishing."""
    return int.from_bytes(body[16:24], "big"), bytes(peek_and_payload(body[36:])[1])


def test_what_would_take_a_topic_away_is_refused_by_vela(
    ledgers: Mapping[str, StoredLedger],
) -> None:
    if "vela" not in ledgers:
        pytest.skip("needs Vela")
    ledger = ledgers["vela"]
    for probe in refused_probes(ledger.ledger_id, MESSAGES - 1):
        (answer,) = ask(ledger.host, ledger.port, probe)
        packet = bytes.fromhex(answer)
        decode = v3.decode_response if packet[0] == 0x0A else v2.decode_response
        expected = 102 if "fencing" in probe.name else 105
        assert decode(packet).status == expected, probe.name


def entries_of(ledger: StoredLedger) -> list[bytes]:
    """As our own reader gets them."""
    layout = ledger_layouts(ledger.stats, ledger.addresses)[ledger.ledger_id]
    with BookieReader(addresses=ledger.addresses) as reader:
        runs = reader.read(layout, 0, MESSAGES - 1)
        return [payload for _, run in runs for payload in run]


def test_our_reader_reads_both(ledgers: Mapping[str, StoredLedger]) -> None:
    for ledger in ledgers.values():
        messages = [bytes(peek_and_payload(entry)[1]) for entry in entries_of(ledger)]
        assert messages == [payload_of(number) for number in range(MESSAGES)]


def test_the_stock_bookkeeper_client_reads_both(
    ledgers: Mapping[str, StoredLedger], release: Release, tmp_path: Path
) -> None:
    """Versions 2 and 3 of the protocol, single and batch reads, last confirmed, long poll."""
    libraries = pulsar_home() / "lib" / "*"
    if shutil.which("javac") is None:
        pytest.skip("no `javac` on the path")
    built = ["javac", "-d", str(tmp_path), "-cp", str(libraries), str(PROGRAM)]
    subprocess.run(built, check=True, timeout=PROGRAM_TIMEOUT_SECONDS)
    told = {
        name: lines_of(ledger, f"{tmp_path}:{libraries}", is_taken_over=name == "vela")
        for name, ledger in ledgers.items()
    }
    for name, ledger in ledgers.items():
        joined = hashlib.sha256(b"".join(entries_of(ledger))).hexdigest()
        for wire in ("v2", "v3"):
            assert told[name].pop(f"{wire} single reads") == f"{MESSAGES} {joined}"
            unconfirmed = told[name].pop(f"{wire} unconfirmed read")
            assert unconfirmed == f"{MESSAGES} {joined}"
        assert told[name].pop("v2 batch read of all") == f"{MESSAGES} {joined}"
        if name == "vela":
            for wire in ("v2", "v3"):
                assert "nauthorized" in told[name].pop(f"{wire} recovery")
    assert told["vela"] == told[release.name]


def lines_of(ledger: StoredLedger, classpath: str, *, is_taken_over: bool) -> dict[str, str]:
    """The output of the program: step -> outcome."""
    address = f"{ledger.host}:{ledger.port}"
    metadata = replace(ledger.metadata, ensembles={0: (address,)})  # no registrations are read
    opened = replace(metadata, state=LedgerState.OPEN, last_entry_id=-1, length=0)
    command = [
        "java",
        "-cp",
        classpath,
        "ReadLedger",
        address,
        str(ledger.ledger_id),
        str(MESSAGES - 1),
        ledger_path(ledger.ledger_id),
        encode_ledger_metadata(metadata).hex(),
        encode_ledger_metadata(opened).hex(),
        str(is_taken_over).lower(),
    ]
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=PROGRAM_TIMEOUT_SECONDS, check=False
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    told = [line[2:] for line in ran.stdout.splitlines() if line.startswith("> ")]
    return dict(line.split(": ", 1) for line in told)
