"""Where brokers ask for credentials, other users of the computer do not reach the bookies."""

import os
import shutil
import signal
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from cli.machine.plan import read_machine
from cli.machine.running import running_machine, socket_path_in
from cli.machine.tests.guarded import (
    credentials,
    entries_shown,
    layouts,
    listening_ports,
    outcomes_for_another_user,
    read,
    send,
)
from runtime.line_writer import LineWriter
from runtime.testing.conditions import eventually

WAIT_SECONDS_MAX = 240.0
PORTS = {"brokerServicePort": 0, "webServicePort": 0}
TOPIC = "persistent://public/default/kept"

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


@pytest.fixture
def data():
    """A directory that other users can look into, unlike those that pytest makes."""
    made = Path(tempfile.mkdtemp(prefix="vela-test-"))
    made.chmod(0o755)
    yield made / "data"
    shutil.rmtree(made)


@asynccontextmanager
async def a_machine(data, bookies=2, **keys):
    socket_path = socket_path_in(data)
    machine, _ = read_machine(1, bookies, credentials(**keys), PORTS, socket_path, strict=True)
    with trio.fail_after(WAIT_SECONDS_MAX):
        async with running_machine(machine, data, socket_path, "warning", LineWriter()) as running:
            yield running


@needs_root
async def test_another_user_neither_reads_nor_fences_at_the_bookies(data):
    async with a_machine(data) as running:
        await trio.to_thread.run_sync(send, running.urls[0], TOPIC, range(10))
        data.chmod(0o755)
        others = [*running.bookies, *running.autorecovery]
        ports = set().union(*(listening_ports(each.process_id) for each in others))
        places = [*ports, *map(str, (data / "run").iterdir())]
        outcomes = await trio.to_thread.run_sync(outcomes_for_another_user, places)
        assert set(outcomes.values()) == {"PermissionError"}
        told = await trio.to_thread.run_sync(layouts, running.urls[1], TOPIC)
        assert not told["bookiesReachable"]
        shown = await trio.to_thread.run_sync(
            entries_shown, socket_path_in(data), told["ledgers"][0]["ledgerId"], "vela-bookie-2"
        )
        assert shown == list(range(10))
        await trio.to_thread.run_sync(send, running.urls[0], TOPIC, range(10, 20))
        found = await trio.to_thread.run_sync(read, running.urls[0], TOPIC, 20)
    assert found == list(range(20))


async def test_a_killed_bookie_is_back_and_a_machine_finds_its_entries_again(data):
    async with a_machine(data) as running:
        await trio.to_thread.run_sync(send, running.urls[0], TOPIC, range(10))
        bookie = running.bookies[1]
        os.kill(bookie.process_id, signal.SIGKILL)
        await trio.to_thread.run_sync(send, running.urls[0], TOPIC, range(10, 20))
        await eventually(lambda: bookie.restarts and bookie.is_ready, WAIT_SECONDS_MAX)
        await trio.to_thread.run_sync(send, running.urls[0], TOPIC, range(20, 30))
    assert not (data / "run").exists()
    async with a_machine(data) as running:
        found = await trio.to_thread.run_sync(read, running.urls[0], TOPIC, 30)
    assert found == list(range(30))
