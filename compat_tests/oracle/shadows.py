"""Topics on a broker of one's choice, and shadows of topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compat_tests.oracle.vela_broker import VelaBroker
    from compat_tests.oracle.vela_cluster import VelaCluster

NAMES_MAX = 200
TURNS_MAX = 20
_PREFIX = "persistent://public/default/"


def _path(topic: str) -> str:
    return f"persistent/public/default/{topic.removeprefix(_PREFIX)}"


def owner_of(
    cluster: VelaCluster, topic: str, asked: VelaBroker | None = None
) -> VelaBroker | None:
    """The broker that owns a topic; it is assigned if it has none. None: there is none now."""
    asked = asked or next(broker for broker in cluster.brokers if broker.is_running())
    status, answer = asked.http("GET", f"/lookup/v2/topic/{_path(topic)}")
    return cluster.broker_at(answer["brokerUrl"]) if status == 200 else None


def spread_bundles(cluster: VelaCluster) -> None:
    """Have bundles assigned again until each broker owns some: one that comes back has none."""
    for _turn in range(TURNS_MAX):
        owners = [owner_of(cluster, f"{_PREFIX}spread-{number}") for number in range(NAMES_MAX)]
        if set(cluster.brokers) <= set(owners):
            return
        cluster.brokers[0].http("PUT", "/admin/v2/namespaces/public/default/unload")
    raise AssertionError(f"a broker has no bundle after {TURNS_MAX} assignments")


def topic_on(cluster: VelaCluster, broker: VelaBroker, prefix: str) -> str:
    """The full name of a topic of this broker."""
    for number in range(NAMES_MAX):
        name = f"{_PREFIX}{prefix}-{number}"
        if owner_of(cluster, name) is broker:
            return name
    raise AssertionError(f"none of {NAMES_MAX} names belongs to {broker.broker_id}")


def make_shadow(broker: VelaBroker, shadow: str, source: str) -> None:
    """Make a shadow that this broker owns, with the request of `create-shadow-topic`."""
    properties = {"PULSAR.SHADOW_SOURCE": source}
    status, answer = broker.http("PUT", f"/admin/v2/{_path(shadow)}", properties)
    assert status < 300, answer
