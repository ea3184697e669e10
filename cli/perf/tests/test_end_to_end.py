"""`vela perf fanout` against a broker: every consumer gets everything, and the report says so."""

from __future__ import annotations

import base64
import json
from contextlib import asynccontextmanager

import pytest
import trio
from click.testing import CliRunner

from broker.topics.broadcast.tests.peer import broker
from cli.commands import main
from cli.perf.fanout import allow_open_files
from cli.perf.neighbour import ALONE_MESSAGES
from security.authentication.tests.tokens import SECRET, token
from security.testing.certificates import Authority


async def fanout(running, *arguments):
    """The command, in a thread beside the broker."""
    command = [
        "perf",
        "fanout",
        f"--service-url={running.broker_service_url}",
        f"--http-url={running.web_service_url}",
        "--rate=50",
        *arguments,
    ]
    with trio.fail_after(240):
        return await trio.to_thread.run_sync(CliRunner().invoke, main, command)


async def test_two_hundred_consumers_of_a_broadcast(tmp_path):
    path, picture = tmp_path / "report.json", tmp_path / "report.png"
    async with broker() as running:
        result = await fanout(
            running,
            "--consumers=200",
            "--connections=4",
            "--processes=2",
            "--messages=10",
            "--receiver-queue=6",
            f"--json={path}",
            f"--png={picture}",
        )
        topics = list(running.service.topics)

    assert result.exit_code == 0, result.output
    report = json.loads(path.read_text())
    assert (report["received"], report["expected"]) == (2000, 2000)
    assert [report[name] for name in ("lost", "duplicated", "out_of_order", "corrupt")] == [0] * 4
    assert sum(report["connect_histogram"]["counts"]) == 200
    assert report["stages"]["broadcasting"]["mean"] > 0
    assert "200 of 200 consumers on 4 connections" in result.output
    assert report["generator_cpu_seconds_per_message"] > 0
    assert " per message, 2 processes\n" in result.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert topics == []


async def test_stuck_consumers_get_everything_when_they_resume(tmp_path):
    path = tmp_path / "report.json"
    async with broker() as running:
        result = await fanout(
            running,
            "--consumers=100",
            "--connections=3",
            "--messages=4",
            "--stuck-percent=10",
            "--unacked-percent=10",
            "--subscription-type=shared",
            f"--json={path}",
            "--processes=2",
            f"--samples={tmp_path / 'samples'}",
        )

    assert result.exit_code == 0, result.output
    report = json.loads(path.read_text())
    assert (report["received"], report["lost"]) == (360, 0)
    assert (report["resumed"]["consumers"], report["resumed"]["lost"]) == (10, 0)
    rows = []
    for part in (tmp_path / "samples").iterdir():
        heading, *lines = part.read_text().splitlines()
        assert heading == "consumer_id,seq,publish_ns,recv_ns"
        rows += [tuple(map(int, line.split(","))) for line in lines]
    assert len(rows) == len({(consumer, seq) for consumer, seq, _, _ in rows}) == 360
    assert {seq for _, seq, _, _ in rows} == {1, 2, 3, 4}
    slowest = max(received - published for _, _, published, received in rows)
    assert slowest / 1e9 == report["delivery"]["max"]


async def test_a_subscription_of_its_own_for_each_consumer():
    async with broker() as running:
        result = await fanout(
            running, "--mode=own", "--consumers=30", "--connections=30", "--messages=3"
        )

    assert result.exit_code == 0, result.output
    assert "received        90 of 90: 0 lost, 0 duplicated" in result.output


async def test_refusals_are_counted_and_told():
    async with broker(maxConsumersPerTopic=20) as running:
        result = await fanout(running, "--consumers=30", "--connections=2", "--messages=2")

    assert result.exit_code == 1
    assert "20 of 30 consumers" in result.output
    assert "received        40 of 40: 0 lost" in result.output
    assert "failed: 10 x ConsumerBusy" in result.output


@asynccontextmanager
async def guarded_broker(directory):
    """With TLS and tokens, and a path of its authority."""
    authority = Authority("root")
    certificate, key = authority.issue("broker", "127.0.0.1").write(directory, "server")
    secret = base64.b64encode(SECRET).decode()
    async with broker(
        brokerServicePortTls=0,
        webServicePortTls=0,
        tlsCertificateFilePath=certificate,
        tlsKeyFilePath=key,
        authenticationEnabled=True,
        authenticationProviders=(
            "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
        ),
        tokenSecretKey=f"data:;base64,{secret}",
    ) as running:
        yield running, authority.write(directory)


async def test_a_broker_with_tls_and_tokens_is_measured(tmp_path):
    path, shown = tmp_path / "report.json", tmp_path / "token"
    shown.write_text(token() + "\n")
    async with guarded_broker(tmp_path) as (running, trusted):
        result = await fanout(
            running,
            f"--service-url={running.address.broker_service_url_tls}",
            f"--http-url={running.address.web_service_url_tls}",
            f"--trust-cert-file={trusted}",
            f"--auth-params=file:{shown}",
            "--consumers=60",
            "--connections=4",
            "--processes=2",
            "--messages=5",
            "--size=100000",
            "--neighbour-rate=50",
            "--neighbour-seconds=1",
            f"--json={path}",
        )
        topics = list(running.service.topics)

    assert result.exit_code == 0, result.output
    report = json.loads(path.read_text())
    assert (report["received"], report["expected"], report["corrupt"]) == (300, 300, 0)
    assert report["neighbour"]["unread"] == 0
    assert shown.read_text().strip() not in path.read_text() + result.output
    assert topics == []


async def test_a_broker_that_wants_a_token_refuses_in_one_line(tmp_path):
    async with guarded_broker(tmp_path) as (running, _):
        result = await fanout(running, "--consumers=1", "--messages=1")
    assert result.exit_code == 1
    assert f"vela: {running.broker_service_url}: Failed to authenticate\n" in result.output


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ("--auth-params=secret", "--auth-params must be token:"),
        ("--auth-params=file:/nowhere/at/all", "--auth-params: cannot read /nowhere/at/all"),
        ("--trust-cert-file=/nowhere/at/all", "--trust-cert-file: cannot read certificates"),
    ],
)
def test_credentials_that_cannot_be_used_are_one_line(option, line):
    result = CliRunner().invoke(main, ["perf", "fanout", option])
    assert result.exit_code == 1
    assert result.output.startswith(f"vela: {line}")


def test_a_broker_that_is_not_there_is_one_line():
    result = CliRunner().invoke(main, ["perf", "fanout", "--service-url=pulsar://127.0.0.1:1"])

    assert result.exit_code == 1
    assert result.output == "vela: pulsar://127.0.0.1:1: Connection refused\n"


def test_an_address_of_another_kind_is_one_line():
    result = CliRunner().invoke(main, ["perf", "fanout", "--service-url=http://127.0.0.1:1"])

    assert result.exit_code == 1
    assert result.output.startswith("vela: --service-url must be pulsar://host:port")


def test_few_open_files_are_always_allowed():
    allow_open_files(10)


async def test_neighbours_are_measured_without_and_beside_the_fan_out(tmp_path):
    path = tmp_path / "report.json"
    async with broker() as running:
        result = await fanout(
            running,
            "--consumers=50",
            "--connections=2",
            "--messages=40",
            "--neighbour-rate=200",
            "--neighbour-seconds=1",
            f"--json={path}",
        )
        topics = list(running.service.topics)

    assert result.exit_code == 0, result.output
    report = json.loads(path.read_text())
    found = report["neighbour"]
    assert (report["received"], found["unread"]) == (2000, 0)
    assert min(found["topic"]["messages"]) > 0
    assert found["second subscription"]["messages"] == [ALONE_MESSAGES, 40]
    ratio = found["topic"]["beside"]["p99"] / found["topic"]["before"]["p99"]
    assert found["topic"]["ratio"]["p99"] == ratio
    assert "second subscription" in result.output
    assert topics == []


async def test_a_neighbour_on_another_broker_shows_what_the_machine_makes_of_it(tmp_path):
    path = tmp_path / "report.json"
    async with broker() as running, broker() as other:
        result = await fanout(
            running,
            "--consumers=20",
            "--connections=2",
            "--messages=3",
            "--neighbour-rate=100",
            "--neighbour-seconds=0.1",
            f"--neighbour-url={other.broker_service_url}",
            f"--json={path}",
        )
        assert len(other.service.topics) == 1

    assert result.exit_code == 0, result.output
    found = json.loads(path.read_text())["neighbour"]
    assert found["on_another_broker"]
    assert "second subscription" not in found
