"""A broker that may open few files: clients above that are told why, the others are served."""

from __future__ import annotations

import os
import socket
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING
from urllib.request import urlopen

from broker.ground.config import DEFAULT_CONFIG
from protocol import client as wire
from protocol import pulsar_api_pb2 as pb
from runtime.open_files import client_connections_within, http_connections_within
from tests.bad_input.raw_connection import RawConnection
from tests.server_process import VELA, ServerProcess

if TYPE_CHECKING:
    from pathlib import Path

OPEN_FILES_MAX = 256
HTTP_CONNECTIONS_MAX = DEFAULT_CONFIG.maxHttpServerConnections
MESSAGES = 20
MESSAGE_BYTES = 20_000
TOPIC = "persistent://public/default/few-files"


def test_connections_above_the_limit_of_open_files_are_told_why(tmp_path: Path) -> None:
    command = f'sh -c \'ulimit -n {OPEN_FILES_MAX} && exec "$0" "$@"\' {VELA}'
    server = ServerProcess(tmp_path, command)
    server.start()
    try:
        server.wait_ready(240)
        assert "ulimit -n" in server.last_lines(200)
        possible = client_connections_within(OPEN_FILES_MAX, HTTP_CONNECTIONS_MAX)
        with ExitStack() as stack:
            served = [
                stack.enter_context(RawConnection(server.service_url)) for _ in range(possible)
            ]
            for connection in served:
                connection.connect()
            with RawConnection(server.service_url) as refused:
                refused.send(wire.connect())
                told = ("ERROR NotAllowedError", "closed")
                assert refused.outcome(is_connected=False, is_whole=told.__eq__) == told
                assert "ulimit -n" in refused.texts[0]
            # There is room for what storage has to open: a topic is made and written to.
            served[0].send(wire.producer(TOPIC, 1, 1))
            served[0].expect(pb.BaseCommand.PRODUCER_SUCCESS)
            served[0].send(wire.send(1, 0, wire.message(b"kept")))
            served[0].expect(pb.BaseCommand.SEND_RECEIPT)
    finally:
        server.kill()
        server.wait_ended()


def test_idle_http_connections_leave_the_storage_its_files(tmp_path: Path) -> None:
    """More of them than the limit of open files. The journal and the entry logs go on in new files,
    and a file that cannot be created ends the broker."""
    config = tmp_path / "small-files.conf"
    config.write_text("journalMaxSizeMB=1\nlogSizeLimit=1048576\nflushInterval=100\n")
    command = f'sh -c \'ulimit -n {OPEN_FILES_MAX} && exec "$0" "$@"\' {VELA} --config {config}'
    server = ServerProcess(tmp_path, command)
    server.start()
    try:
        server.wait_ready(240)
        address = ("127.0.0.1", server.web_port)
        possible = http_connections_within(OPEN_FILES_MAX, HTTP_CONNECTIONS_MAX)
        with ExitStack() as stack:
            producing = stack.enter_context(RawConnection(server.service_url))
            producing.connect()
            for _ in range(OPEN_FILES_MAX * 2):
                stack.enter_context(socket.create_connection(address, timeout=60))
            # 8 MB in files of 1 MB.
            for number in range(20):
                producing.send(wire.producer(f"{TOPIC}-{number}", number, number))
                producing.expect(pb.BaseCommand.PRODUCER_SUCCESS)
                for sequence_id in range(MESSAGES):
                    message = wire.message(bytes(MESSAGE_BYTES), sequence_id=sequence_id)
                    producing.send(wire.send(number, sequence_id, message))
                    producing.expect(pb.BaseCommand.SEND_RECEIPT)
            stored = tmp_path / "data" / "bookkeeper"
            end = time.monotonic() + 60
            while len(list(stored.glob("ledgers/current/*.log"))) < 2:  # they are flushed meanwhile
                assert time.monotonic() < end
                time.sleep(0.05)
            files = os.listdir(f"/proc/{server.pid}/fd")
            assert len(files) <= OPEN_FILES_MAX - possible
            # A new connection is served: one of those that wait gave way.
            with urlopen(f"http://127.0.0.1:{server.web_port}/admin/v2/brokers/health") as answer:
                assert answer.read() == b"ok"
        assert not server.has_ended()
        assert "Traceback" not in server.last_lines(10_000)
    finally:
        server.kill()
        server.wait_ended()
