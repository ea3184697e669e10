"""Clients that a topic has several reasons to refuse: which one they are told, and what is left.

A subscription that only a refused client asked for must not be there afterwards: it would hold
messages for ever.
"""

from __future__ import annotations

import time
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

from compat_tests.clients.admin_requests import AdminRequests, schema_path, topic_path
from compat_tests.clients.python.scenario import Stage, scenario
from compat_tests.clients.python.wire import Wire
from protocol import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

EXCLUSIVE: Final = pb.CommandSubscribe.Exclusive
SHARED: Final = pb.CommandSubscribe.Shared
REMOVAL_SECONDS_MAX: Final = 5.0
OF_CONSUMERS: Final[Mapping[str, Any]] = {
    "max_consumers_per_topic": 1,
    "max_consumers_per_subscription": 1,
    "max_subscriptions_per_topic": 1,
    "subscription_types_enabled": None,
    "autoSubscriptionCreationOverride": {"allowAutoSubscriptionCreation": False},
}
"""One consumer of one subscription, made by an administrator, is within each of them. The type
that is enabled is its own."""
OF_PRODUCERS: Final[Mapping[str, Any]] = {
    "max_producers_per_topic": 1,
    "max_subscriptions_per_topic": 1,
    "encryption_required": True,
    "autoSubscriptionCreationOverride": {"allowAutoSubscriptionCreation": False},
}
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
        for reasons in _every_two(OF_CONSUMERS):
            for holder in ("Exclusive", "Shared"):
                given = {reason: OF_CONSUMERS[reason] or [holder] for reason in reasons}
                attempts = _Attempts(stage, wire, holder, given)
                for domain in ("persistent", "non-persistent"):
                    stage.see(f"{holder} {domain}", reasons)
                    attempts.of_consumers(f"{domain}://{attempts.namespace}/t", holder)
    finally:
        wire.close()


@scenario("refused-producers")
def refused_producers(stage: Stage) -> None:
    """Every two of the reasons at once, and what is left of those who were refused."""
    wire = Wire(stage.server.service_url)
    try:
        for reasons in _every_two(OF_PRODUCERS):
            given = {reason: OF_PRODUCERS[reason] for reason in reasons}
            attempts = _Attempts(stage, wire, "producers", given)
            for domain in ("persistent", "non-persistent"):
                stage.see(domain, reasons)
                attempts.of_producers(f"{domain}://{attempts.namespace}/t")
    finally:
        wire.close()


def _every_two(policies: Iterable[str]) -> Iterable[tuple[str, ...]]:
    names = list(policies)
    for count in range(3):
        yield from combinations(names, count)


class _Attempts:
    """Those in one namespace, which has these policies from its beginning: real Pulsar may load a
    topic with the policies of a little earlier."""

    def __init__(self, stage: Stage, wire: Wire, name: str, given: dict[str, Any]) -> None:
        self._stage, self._wire = stage, wire
        self._ask = AdminRequests(stage.server.web_url)
        full = "-".join((name, *(reason.replace("_", "") for reason in given)))
        self.namespace = f"public/{stage.scenario_name}{stage.mark}-{full}"
        self._make(f"/admin/v2/namespaces/{self.namespace}", given)

    def of_consumers(self, topic: str, holder: str) -> None:
        """One after the other; those that come leave again."""
        path = topic_path(topic)
        self._make(path)
        if topic.startswith("persistent"):
            self._make(f"{path}/subscription/there")
        number = pb.CommandSubscribe.SubType.Value(holder)
        holds = self._wire.keep_consumer(topic, "there", sub_type=number)
        assert holds == ["SUCCESS"], holds
        for what, fields in ASKED.items():
            told = self._wire.try_consumer(topic, **({"subscription": "there"} | fields))
            self._see(what, told)
        self._stage.see("subscriptions", self._left(path))

    def of_producers(self, topic: str) -> None:
        """Three that want a subscription and a schema to be made for them. The last one's schema is
        no successor of the others'."""
        path = topic_path(topic)
        self._make(path)
        for number, kind in enumerate((pb.Schema.String, pb.Schema.String, pb.Schema.Int64)):
            told = self._wire.keep_producer(
                topic,
                initial_subscription_name=f"initial-{number}",
                schema=pb.Schema(name="", type=kind, schema_data=b""),
            )
            # Its text has names of Java's classes on Pulsar.
            told = told[:1] if told[0] == "IncompatibleSchema" else told
            self._see(f"producer {number}", told)
        status, names = self._ask("GET", f"{path}/subscriptions")
        self._stage.see("subscriptions", [status, sorted(names)])
        self._stage.see("schema", self._ask("GET", schema_path(topic))[0])

    def _see(self, what: str, told: Iterable[str]) -> None:
        self._stage.see(what, [text.replace(self.namespace, "NAMESPACE") for text in told])

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
