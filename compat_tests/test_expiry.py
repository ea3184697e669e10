"""Time to live and expiration of subscriptions: the same happens on both servers.

Both look once a minute at most, so this takes two minutes or more, nearly all of it waiting.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pulsar
import pytest

from compat_tests.clients.admin_requests import AdminRequests
from compat_tests.conftest import start_servers

if TYPE_CHECKING:
    from pathlib import Path

    from compat_tests.oracle.server_process import ServerProcess

EACH_MINUTE = {
    "messageExpiryCheckIntervalInMinutes": "1",
    "subscriptionExpiryCheckIntervalInMinutes": "1",
}
WAIT_SECONDS = 240
TTL_SECONDS = 5


class Topic:
    """A topic with messages, one subscription in use and one that is not."""

    def __init__(self, server: ServerProcess) -> None:
        self._ask = AdminRequests(server.web_url)
        self._client = pulsar.Client(server.service_url)
        namespace = "/admin/v2/namespaces/public/expiry"
        self._path = "/admin/v2/persistent/public/expiry/t"
        self._done("PUT", namespace)
        self._done("POST", f"{namespace}/messageTTL", 3_600)
        self._done("POST", f"{namespace}/subscriptionExpirationTime", 1)
        self._name = "persistent://public/expiry/t"
        self._used = self._client.subscribe(self._name, "used", receiver_queue_size=1)
        self._client.subscribe(self._name, "unused").close()
        self._reader = self._client.create_reader(self._name, pulsar.MessageId.earliest)
        self._producer = self._client.create_producer(self._name)
        for number in range(10):
            self._producer.send(b"old %d" % number)
        self._done("POST", f"{self._path}/messageTTL?messageTTL={TTL_SECONDS}")

    def _done(self, method: str, path: str, body: Any = None) -> None:
        status, told = self._ask.raw(method, path, body)
        assert status == 204, (method, path, status, told)

    def subscriptions(self) -> dict[str, Any]:
        """Their statistics."""
        shown: dict[str, Any] = self._ask("GET", f"{self._path}/stats")[1]["subscriptions"]
        return shown

    def play(self) -> list[Any]:
        """What is seen."""
        end = time.monotonic() + WAIT_SECONDS
        while self.subscriptions()["used"]["msgBacklog"]:
            assert time.monotonic() < end, "nothing expires"
            time.sleep(1)
        shown = self.subscriptions()
        seen: list[Any] = [
            sorted(each["msgBacklog"] for each in shown.values()),
            sorted(each["totalMsgExpired"] for each in shown.values()),
            shown["used"]["lastExpireTimestamp"] > 0,
        ]
        while "unused" in self.subscriptions():
            assert time.monotonic() < end, "no subscription expires"
            time.sleep(1)
        self._producer.send(b"new")
        received = self._used.receive(10_000)
        if received.data() != b"new":  # It was with the client when it expired.
            received = self._used.receive(10_000)
        seen.append(received.data())
        self._used.acknowledge(received)
        self._client.close()
        return seen


@pytest.mark.slow
def test_what_expires_is_the_same(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    only = pytestconfig.getoption("--only-server")
    servers = start_servers(tmp_path, only, EACH_MINUTE)
    try:
        topics = {name: Topic(server) for name, server in servers.items()}
        seen = {name: topic.play() for name, topic in topics.items()}
        assert len(set(map(repr, seen.values()))) == 1, seen
        assert next(iter(seen.values())) == [[0, 0, 0], [10, 10, 10], True, b"new"]
    finally:
        for server in servers.values():
            server.kill()
            server.close()
