"""Consumers that a topic has several reasons to refuse: which one they are told, and what is left.

A subscription that only a refused consumer asked for must not be there afterwards: it would hold
messages for ever.
"""

from __future__ import annotations

import time
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

from compat_tests.clients.admin_requests import AdminRequests, topic_path
from compat_tests.clients.python.scenario import Stage, scenario
from compat_tests.clients.python.wire import Wire
from protocol import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

EXCLUSIVE: Final = pb.CommandSubscribe.Exclusive
SHARED: Final = pb.CommandSubscribe.Shared
REMOVAL_SECONDS_MAX: Final = 5.0
POLICIES: Final[Mapping[str, Any]] = {
    "max_consumers_per_topic": 1,
    "max_consumers_per_subscription": 1,
    "max_subscriptions_per_topic": 1,
    "subscription_types_enabled": None,
    "autoSubscriptionCreationOverride": {"allowAutoSubscriptionCreation": False},
}
"""One consumer of one subscription, made by an administrator, is within each of them. The type
that is enabled is its own."""
ASKED: Final[Mapping[str, dict[str, Any]]] = {
    "exclusive": {"sub_type": EXCLUSIVE},
    "shared": {"sub_type": SHARED},
    "new and exclusive": {"subscription": "new-1", "sub_type": EXCLUSIVE},
    "new and shared": {"subscription": "new-2", "sub_type": SHARED},
    "reader": {"subscription": "reader", "sub_type": EXCLUSIVE, "durable": False},
    "compacted": {"sub_type": SHARED, "read_compacted": True},
    "new and compacted": {"subscription": "new-3", "sub_type": SHARED, "read_compacted": True},
    "exclusive and compacted": {"sub_type": EXCLUSIVE, "read_compacted": True},
}


@scenario("refused-consumers")
def refused_consumers(stage: Stage) -> None:
    """Every two of the reasons at once, beside a consumer that was there before."""
    wire = Wire(stage.server.service_url)
    try:
        for reasons in _every_two():
            for holder in ("Exclusive", "Shared"):
                attempts = _Attempts(stage, wire, reasons, holder)
                for domain in ("persistent", "non-persistent"):
                    stage.see(f"{holder} {domain}", reasons)
                    attempts.at(f"{domain}://{attempts.namespace}/t")
    finally:
        wire.close()


def _every_two() -> Iterable[tuple[str, ...]]:
    for count in range(3):
        yield from combinations(POLICIES, count)


class _Attempts:
    """Those in one namespace, which has these policies from its beginning: real Pulsar may load a
    topic with the policies of a little earlier."""

    def __init__(self, stage: Stage, wire: Wire, reasons: tuple[str, ...], holder: str) -> None:
        self._stage, self._wire, self._holder = stage, wire, holder
        self._ask = AdminRequests(stage.server.web_url)
        name = "-".join((holder, *(reason.replace("_", "") for reason in reasons)))
        self.namespace = f"public/{stage.scenario_name}{stage.mark}-{name}"
        given = {reason: POLICIES[reason] or [holder] for reason in reasons}
        self._make(f"/admin/v2/namespaces/{self.namespace}", given)

    def at(self, topic: str) -> None:
        """One after the other; those that come leave again."""
        path = topic_path(topic)
        self._make(path)
        if topic.startswith("persistent"):
            self._make(f"{path}/subscription/there")
        number = pb.CommandSubscribe.SubType.Value(self._holder)
        holds = self._wire.keep_consumer(topic, "there", sub_type=number)
        assert holds == ["SUCCESS"], holds
        for what, fields in ASKED.items():
            told = self._wire.try_consumer(topic, **({"subscription": "there"} | fields))
            self._stage.see(what, [text.replace(self.namespace, "NAMESPACE") for text in told])
        self._stage.see("subscriptions", self._left(path))

    def _left(self, path: str) -> list[str]:
        """The subscriptions that stay. Real Pulsar removes those that keep nothing a little
        later: that of a reader, and all of a non-persistent topic."""
        stores = "/non-persistent/" not in path
        deadline = time.monotonic() + REMOVAL_SECONDS_MAX
        while True:
            status, names = self._ask("GET", f"{path}/subscriptions")
            assert status == 200, names
            passing = {"reader"} if stores else set(names) - {"there"}
            if passing.isdisjoint(names) or time.monotonic() > deadline:
                return sorted(names)
            time.sleep(0.02)

    def _make(self, path: str, body: Any = None) -> None:
        status, told = self._ask.raw("PUT", path, body)
        assert status == 204, (path, status, told)
