"""A cut holds one direction back and lets the other through."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest

from runtime.testing.ports import free_ports
from tests.cluster_faults.proxy import DIRECTIONS, Proxies

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS_MAX = 60.0
SILENCE_SECONDS = 0.3


@pytest.fixture
def proxies() -> Iterator[Proxies]:
    made = Proxies()
    made.start()
    yield made
    made.stop()


class Pair:
    """A connection through a proxy, and its other end."""

    def __init__(self, proxies: Proxies) -> None:
        (port,) = free_ports(1)
        self.listener = socket.create_server(("127.0.0.1", port))
        self.listener.settimeout(SECONDS_MAX)
        self.proxy = proxies.add(("127.0.1.99", port), ("127.0.0.1", port))
        self.broker, self.bookie = self.connected()

    def connected(self) -> tuple[socket.socket, socket.socket]:
        broker = socket.create_connection(self.proxy.listening_at, SECONDS_MAX)
        bookie, _ = self.listener.accept()
        bookie.settimeout(SECONDS_MAX)
        return broker, bookie

    def close(self) -> None:
        for each in (self.broker, self.bookie, self.listener):
            each.close()


@pytest.fixture
def pair(proxies: Proxies) -> Iterator[Pair]:
    made = Pair(proxies)
    yield made
    made.close()


def is_silent(end: socket.socket) -> bool:
    end.settimeout(SILENCE_SECONDS)
    try:
        end.recv(100)
    except TimeoutError:
        return True
    finally:
        end.settimeout(SECONDS_MAX)
    return False


def said(source: socket.socket, sink: socket.socket, text: bytes) -> bytes:
    source.sendall(text)
    return sink.recv(100)


def test_a_proxy_passes_both_directions_and_the_end(pair: Pair) -> None:
    assert said(pair.broker, pair.bookie, b"request") == b"request"
    assert said(pair.bookie, pair.broker, b"answer") == b"answer"
    pair.bookie.close()
    assert pair.broker.recv(100) == b""


@pytest.mark.parametrize("cut", DIRECTIONS)
def test_a_cut_direction_arrives_late_and_the_other_at_once(
    pair: Pair, proxies: Proxies, cut: str
) -> None:
    silent, loud = (pair.broker, pair.bookie)
    if cut == "answers":
        silent, loud = loud, silent
    proxies.cut(pair.proxy, (cut,))  # type: ignore[arg-type]
    silent.sendall(b"held")
    assert said(loud, silent, b"passed") == b"passed"
    assert is_silent(loud)
    proxies.heal(pair.proxy, is_reset=False)
    assert loud.recv(100) == b"held"


def test_the_end_of_a_connection_does_not_pass_a_cut(pair: Pair, proxies: Proxies) -> None:
    proxies.cut(pair.proxy, DIRECTIONS)
    pair.bookie.close()
    assert is_silent(pair.broker)
    proxies.heal(pair.proxy, is_reset=False)
    assert pair.broker.recv(100) == b""


def test_a_reset_ends_connections_and_new_ones_are_well(pair: Pair, proxies: Proxies) -> None:
    assert said(pair.broker, pair.bookie, b"first") == b"first"
    proxies.cut(pair.proxy, DIRECTIONS)
    pair.broker.sendall(b"held")
    proxies.heal(pair.proxy, is_reset=True)
    for end in (pair.broker, pair.bookie):
        with pytest.raises(ConnectionResetError):
            end.recv(100)
        end.close()
    pair.broker, pair.bookie = pair.connected()
    assert said(pair.broker, pair.bookie, b"new") == b"new"


def test_a_closed_proxy_listens_no_more(pair: Pair, proxies: Proxies) -> None:
    proxies.close(pair.proxy)
    assert pair.broker.recv(100) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(pair.proxy.listening_at, SECONDS_MAX)


def test_a_bookie_that_is_down_ends_connections(proxies: Proxies) -> None:
    (port,) = free_ports(1)
    proxy = proxies.add(("127.0.1.98", port), ("127.0.0.1", port))
    with socket.create_connection(proxy.listening_at, SECONDS_MAX) as broker:
        assert broker.recv(100) == b""


def test_proxies_end_with_their_thread() -> None:
    before = threading.active_count()
    made = Proxies()
    made.start()
    made.stop()
    assert threading.active_count() == before
