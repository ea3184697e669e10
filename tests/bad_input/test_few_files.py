"""A broker that may open few files: clients above that are told why, the others are served."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from broker.net.open_files import connections_within
from protocol import client as wire
from protocol import pulsar_api_pb2 as pb
from tests.bad_input.raw_connection import RawConnection
from tests.server_process import VELA, ServerProcess

if TYPE_CHECKING:
    from pathlib import Path

OPEN_FILES_MAX = 256
TOPIC = "persistent://public/default/few-files"


def test_connections_above_the_limit_of_open_files_are_told_why(tmp_path: Path) -> None:
    command = f'sh -c \'ulimit -n {OPEN_FILES_MAX} && exec "$0" "$@"\' {VELA}'
    server = ServerProcess(tmp_path, command)
    server.start()
    try:
        server.wait_ready(60)
        assert "ulimit -n" in server.last_lines(200)
        possible = connections_within(OPEN_FILES_MAX)
        with ExitStack() as stack:
            served = [
                stack.enter_context(RawConnection(server.service_url)) for _ in range(possible)
            ]
            for connection in served:
                connection.connect()
            with RawConnection(server.service_url) as refused:
                refused.send(wire.connect())
                assert refused.outcome(is_connected=False) == ("ERROR NotAllowedError", "closed")
                assert "ulimit -n" in refused.texts[0]
            # There is room for what storage has to open: a topic is made and written to.
            served[0].send(wire.producer(TOPIC, 1, 1))
            served[0].expect(pb.BaseCommand.PRODUCER_SUCCESS)
            served[0].send(wire.send(1, 0, wire.message(b"kept")))
            served[0].expect(pb.BaseCommand.SEND_RECEIPT)
    finally:
        server.kill()
        server.wait_ended()
