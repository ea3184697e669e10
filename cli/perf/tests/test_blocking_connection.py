"""The blocking connection of the load generator in a process with many descriptors."""

from __future__ import annotations

import resource
import socket
from contextlib import ExitStack
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from cli.perf.blocking_connection import BlockingConnection
from cli.perf.target import Target
from protocol import commands

if TYPE_CHECKING:
    from collections.abc import Iterator

SELECT_MAX = 1024
"""Descriptors that select(2) can wait for; a load of a few thousand connections has more."""


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """So many that the next one is one that select(2) does not take."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * SELECT_MAX), hard))
    try:
        with ExitStack() as stack:
            source = stack.enter_context(socket.socket())
            while stack.enter_context(source.dup()).fileno() <= SELECT_MAX:
                pass
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_descriptors")
def test_answers_are_read_in_a_process_with_more_than_a_thousand_descriptors():
    with socket.create_server(("127.0.0.1", 0)) as server:
        answering = Thread(target=_answer_connect, args=(server,))
        answering.start()
        try:
            BlockingConnection(Target("127.0.0.1", server.getsockname()[1])).close()
        finally:
            answering.join()


def _answer_connect(server: socket.socket) -> None:
    server.settimeout(30)
    peer, _ = server.accept()
    with peer:
        peer.settimeout(30)
        peer.recv(65_536)
        peer.sendall(commands.connected("test", 21, 5 * 1024 * 1024))
