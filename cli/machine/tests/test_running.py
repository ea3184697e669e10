"""The parent of a cluster on one machine, with real children: up, a kill, down."""

import os
import signal
import urllib.request
from pathlib import Path

import trio

from broker.assembly.app import running_broker
from broker.ground.config import BrokerConfig
from cli.machine.plan import read_machine
from cli.machine.running import SOCKET_PATH_BYTES_MAX, running_machine, socket_path_in
from runtime.line_writer import LineWriter
from settings.reading import Setting

WAIT_SECONDS_MAX = 120.0
PORTS = {"brokerServicePort": 0, "webServicePort": 0}


def health_of(web_service_url):
    with urllib.request.urlopen(f"{web_service_url}/admin/v2/brokers/health") as answer:
        return answer.read()


async def until(condition):
    with trio.fail_after(WAIT_SECONDS_MAX):
        while not condition():  # noqa: ASYNC110 - the condition is another process's
            await trio.sleep(0.05)


async def test_a_killed_broker_is_back_on_its_ports_and_all_end_with_the_parent(tmp_path):
    socket_path = socket_path_in(tmp_path)
    free_port = [Setting("bookiePort", "0", "test")]
    machine, _ = read_machine(1, 1, free_port, PORTS, socket_path, strict=True)
    with trio.fail_after(2 * WAIT_SECONDS_MAX):
        async with running_machine(
            machine, tmp_path, socket_path, "warning", LineWriter()
        ) as running:
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
    long = tmp_path / ("d" * 100)
    path = socket_path_in(long)
    assert len(path.encode()) <= SOCKET_PATH_BYTES_MAX
    assert socket_path_in(tmp_path) == f"{tmp_path}/run/metadata.sock"
    os.rmdir(os.path.dirname(path))
