"""The parent of a cluster on one machine, with real children: up, a kill, down."""

import os
import re
import signal
import subprocess
import sys
import urllib.request
from contextlib import closing
from pathlib import Path

import pulsar
import pytest
import trio

from bookie.cookie import FILE_NAME as COOKIE
from broker.assembly.app import running_broker
from broker.ground.config import BrokerConfig
from cli.machine.plan import read_machine
from cli.machine.running import running_machine, socket_path_in, socket_place
from runtime.line_writer import LineWriter
from runtime.supervision import ChildFailed
from runtime.unix_sockets import PATH_BYTES_MAX
from settings.reading import Setting

WAIT_SECONDS_MAX = 120.0
PORTS = {"brokerServicePort": 0, "webServicePort": 0}


def health_of(web_service_url):
    with urllib.request.urlopen(f"{web_service_url}/admin/v2/brokers/health") as answer:
        return answer.read()


def text_at(url):
    with urllib.request.urlopen(url) as answer:
        return answer.read()


async def until(condition):
    with trio.fail_after(WAIT_SECONDS_MAX):
        while not condition():  # noqa: ASYNC110 - the condition is another process's
            await trio.sleep(0.05)


async def test_a_killed_broker_is_back_on_its_ports_and_all_end_with_the_parent(tmp_path):
    socket_path = socket_path_in(tmp_path)
    free_port = [Setting("bookiePort", "0", "test")]
    machine, _ = read_machine(
        1, 1, free_port, PORTS, socket_path, strict=True, bookie_metrics_port=0
    )
    said = bytearray()

    def write(data):
        said.extend(data)
        return len(data)

    def metrics_of_the_bookie():
        return re.search(rb"bookie-1 \| .*metrics are served.*port=(\d+)", said)

    with trio.fail_after(2 * WAIT_SECONDS_MAX):
        async with running_machine(
            machine, tmp_path, socket_path, "info", LineWriter(write)
        ) as running:
            await until(metrics_of_the_bookie)
            port = int(metrics_of_the_bookie()[1])
            page = await trio.to_thread.run_sync(text_at, f"http://127.0.0.1:{port}/metrics")
            assert b"bookie_SERVER_STATUS 1" in page
            assert await trio.to_thread.run_sync(health_of, running.urls[1]) == b"ok"
            (broker,) = running.brokers
            os.kill(broker.process_id, signal.SIGKILL)
            await until(lambda: broker.restarts == 1 and broker.is_ready)
            assert await trio.to_thread.run_sync(health_of, running.urls[1]) == b"ok"
            children = [*running.brokers, *running.bookies]
            assert all(child.process_id for child in children)
    assert not any(child.process_id for child in children)
    assert not (tmp_path / "run").exists()


async def test_a_relative_data_directory_serves_one_process_and_then_a_machine_twice(
    tmp_path, monkeypatch
):
    """The default of --data-dir is relative."""
    monkeypatch.chdir(tmp_path)
    data = Path("data")
    async with running_broker(BrokerConfig(brokerServicePort=0, webServicePort=0), data):
        pass
    socket_path = socket_path_in(data)
    free_port = [Setting("bookiePort", "0", "test")]
    machine, _ = read_machine(1, 2, free_port, PORTS, socket_path, strict=True)
    for _ in range(2):
        with trio.fail_after(2 * WAIT_SECONDS_MAX):
            async with running_machine(
                machine, data, socket_path, "warning", LineWriter()
            ) as running:
                [url] = [each for each in running.urls if each.startswith("http:")]
                assert await trio.to_thread.run_sync(health_of, url) == b"ok"


def test_a_path_that_is_too_long_for_a_socket_is_replaced(tmp_path):
    with socket_place(tmp_path / ("d" * 100)) as path:
        assert len(path.encode()) <= PATH_BYTES_MAX
        assert os.path.isdir(os.path.dirname(path))
    assert not os.path.exists(os.path.dirname(path))
    with socket_place(tmp_path) as path:
        assert path == f"{tmp_path}/run/metadata.sock"


def _start_machine(data, temporary):
    """`vela standalone` as a process of its own, ready."""
    ports = ["--broker-port", "0", "--web-port", "0"]
    started = subprocess.Popen(
        [
            *(sys.executable, "-m", "cli", "standalone", "--brokers", "1", "--bookies", "1"),
            *("--data-dir", str(data), *ports),
        ],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary), "PULSAR_PREFIX_bookiePort": "0"},
    )
    assert "ready" in started.stdout.readline()
    return started


def _end(started, number):
    started.send_signal(number)
    started.wait(WAIT_SECONDS_MAX)
    started.stdout.close()


def test_the_sockets_of_a_killed_machine_are_removed_by_the_next_start(tmp_path):
    """Their directory is not below the data directory, whose path is too long."""
    temporary = tmp_path / "t"
    temporary.mkdir()
    data = tmp_path / ("d" * 100)
    first = _start_machine(data, temporary)
    [left] = temporary.iterdir()
    _end(first, signal.SIGKILL)
    assert left.is_dir()
    second = _start_machine(data, temporary)
    try:
        [used] = temporary.iterdir()
        assert used != left
    finally:
        _end(second, signal.SIGTERM)
    assert not any(temporary.iterdir())


def _send(service_url, count):
    with closing(pulsar.Client(service_url)) as client:
        producer = client.create_producer("persistent://public/default/kept")
        for number in range(count):
            producer.send(b"%d" % number + bytes(1_000))


def _read(service_url, count):
    with closing(pulsar.Client(service_url)) as client:
        reader = client.create_reader("persistent://public/default/kept", pulsar.MessageId.earliest)
        return [reader.read_next(60_000).data().rstrip(b"\0") for _ in range(count)]


def _shorten_entry_log(bookie):
    [entry_log] = (bookie / "ledgers" / "current").glob("*.log")
    os.truncate(entry_log, 1_500)


def _empty_cookie(bookie):
    os.truncate(bookie / "ledgers" / "current" / COOKIE, 0)


@pytest.mark.parametrize("damage", [_shorten_entry_log, _empty_cookie])
async def test_a_machine_starts_without_the_bookie_whose_files_are_damaged(tmp_path, damage):
    """The other bookie has a copy of every message."""
    socket_path = socket_path_in(tmp_path)
    free_port = [Setting("bookiePort", "0", "test")]
    machine, _ = read_machine(1, 2, free_port, PORTS, socket_path, strict=True)
    with trio.fail_after(2 * WAIT_SECONDS_MAX):
        async with running_machine(
            machine, tmp_path, socket_path, "warning", LineWriter()
        ) as running:
            await trio.to_thread.run_sync(_send, running.urls[0], 20)
    damage(tmp_path / "bookkeeper2")
    with trio.fail_after(2 * WAIT_SECONDS_MAX):
        async with running_machine(
            machine, tmp_path, socket_path, "warning", LineWriter()
        ) as running:
            assert [bookie.is_ready for bookie in running.bookies] == [True, False]
            found = await trio.to_thread.run_sync(_read, running.urls[0], 20)
    assert found == [b"%d" % number for number in range(20)]


async def test_a_machine_of_which_no_bookie_starts_does_not_start(tmp_path):
    socket_path = socket_path_in(tmp_path)
    free_port = [Setting("bookiePort", "0", "test")]
    machine, _ = read_machine(1, 2, free_port, PORTS, socket_path, strict=True)
    with trio.fail_after(2 * WAIT_SECONDS_MAX):
        async with running_machine(
            machine, tmp_path, socket_path, "warning", LineWriter()
        ) as running:
            await trio.to_thread.run_sync(_send, running.urls[0], 20)
        for entry_log in tmp_path.glob("bookkeeper*/ledgers/current/*.log"):
            os.truncate(entry_log, 1_500)
        with pytest.raises(BaseExceptionGroup) as refused:
            async with running_machine(machine, tmp_path, socket_path, "warning", LineWriter()):
                pass
    assert refused.group_contains(ChildFailed, match=r"bookie-\d did not start: .*\.log")
