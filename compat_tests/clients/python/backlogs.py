"""Quotas of backlogs, time to live and expiration: which values are taken, and what quotas do.

Real Pulsar looks at backlogs once a minute, or when it is asked to; Vela also while messages are
published. The scenarios ask, and stop publishing at the limit, so that both have done the same.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import pulsar

from compat_tests.clients.python.limits import NUMBERS, Place
from compat_tests.clients.python.scenario import Stage, receive_together, scenario, texts

if TYPE_CHECKING:
    from collections.abc import Callable

AGE: Final = "?backlogQuotaType=message_age"
LIMIT_BYTES: Final = 10_240
PAYLOAD: Final = b"x" * 1_024
WAIT_SECONDS: Final = 15.0


def _quota(size: Any = 0, seconds: Any = 0, policy: Any = "producer_exception") -> dict[str, Any]:
    return {"limitSize": size, "limitTime": seconds, "policy": policy}


def _retention(minutes: int, megabytes: int) -> dict[str, Any]:
    return {"retentionTimeInMinutes": minutes, "retentionSizeInMB": megabytes}


QUOTAS: Final = (
    _quota(1_000, 10),
    {"limit": "10240", "policy": "producer_request_hold"},
    {"limit": 5, "limitSize": 7, "policy": "consumer_backlog_eviction"},
    _quota(-1, -1),
    _quota(-5, -7),
    _quota(1.5, 2.5),
    _quota("77"),
    _quota(None),
    {"policy": "producer_exception", "other": 1},
    {"limitSize": 1_000},
    _quota(5, 5, "nothing"),
    _quota("x"),
    _quota(5, 2**31),
    5,
    [],
)
RETENTIONS: Final = (
    _retention(2, 3),
    _retention(3, 2),
    _retention(3, 3),
    _retention(-1, 2),
    _retention(2, -1),
    _retention(-1, -1),
    _retention(0, 0),
)


def _try_quotas(place: Place, stage: Stage, base: str) -> None:
    kept = f"{base}/backlogQuotaMap"
    for kind in ("", AGE):
        path = f"{base}/backlogQuota{kind}"
        for value in QUOTAS:
            stage.see(f"quota{kind} {value!r}", place.told("POST", path, value))
            stage.see("kept", place.told("GET", kept))
        stage.see("both", place.told("POST", f"{base}/backlogQuota", _quota(9)))
        stage.see("kept", place.told("GET", kept))
        for _ in range(2):
            stage.see("removed", place.told("DELETE", path))
        stage.see("kept", place.told("GET", kept))
        place.told("DELETE", f"{base}/backlogQuota")
    status, _ = place.ask.raw("POST", f"{base}/backlogQuota?backlogQuotaType=other", _quota(9))
    stage.see("no such type", status)


@scenario("backlog-policies-of-namespaces")
def backlog_policies_of_namespaces(stage: Stage) -> None:
    place = Place(stage)
    _try_quotas(place, stage, place.namespace)
    quota, retention = f"{place.namespace}/backlogQuota", f"{place.namespace}/retention"
    for kind in ("", AGE):
        place.set(f"{quota}{kind}", _quota(2 * 2**20, 120))
        if not kind:  # Without a quota by size that of the broker counts, which is another here.
            for value in RETENTIONS:
                stage.see(f"retention {value}", place.told("POST", retention, value))
        place.told("DELETE", f"{quota}{kind}")
    for value in RETENTIONS:
        place.set(retention, value)
        for size, seconds in ((2**21, 1), (2**21 - 1, 1), (1, 120), (1, 119), (-1, -1)):
            stage.see(f"quota {size} {seconds}", place.told("POST", quota, _quota(size, seconds)))
        place.told("DELETE", quota)
    for policy in ("messageTTL", "subscriptionExpirationTime"):
        path = f"{place.namespace}/{policy}"
        stage.see(f"{policy} unset", place.told("GET", path))
        for number in NUMBERS:
            stage.see(f"{policy} {number!r}", place.told("POST", path, number))
            stage.see("kept", place.told("GET", path))
        for _ in range(2):
            stage.see("removed", place.told("DELETE", path))
        stage.see("left", place.told("GET", path))
        absent = f"{place.namespace}-absent/{policy}"
        for method, body in (("GET", None), ("POST", 5), ("DELETE", None)):
            stage.see(f"{method} of none", place.told(method, absent, body))
    for method, limits in (("POST", _quota(5)), ("DELETE", None)):
        path = f"{place.namespace}-absent/backlogQuota"
        stage.see(f"{method} of none", place.told(method, path, limits))


@scenario("backlog-policies-of-topics")
def backlog_policies_of_topics(stage: Stage) -> None:
    place = Place(stage)
    _try_quotas(place, stage, place.path)
    quota = f"{place.path}/backlogQuota"
    applied = f"{place.path}/backlogQuotaMap?applied=true"
    place.set(f"{place.namespace}/backlogQuota", _quota(77))
    stage.see("of the namespace", place.told("GET", applied))
    place.set(f"{quota}{AGE}", _quota(0, 5))
    stage.see("of the topic", place.told("GET", applied))
    stage.see("an empty body removes it", place.told("POST", f"{quota}{AGE}"))
    stage.see("of the namespace", place.told("GET", applied))
    place.told("DELETE", f"{place.namespace}/backlogQuota")
    place.set(f"{place.namespace}/retention", _retention(2, 2))
    for size, seconds in ((2**21, 1), (2**21 - 1, 1), (1, 120), (1, 119)):
        stage.see(f"quota {size} {seconds}", place.told("POST", quota, _quota(size, seconds)))
    path = f"{place.path}/messageTTL"
    place.set(f"{place.namespace}/messageTTL", 9)
    for number in ("5", "0", "-1", "x", "1.5", ""):
        status, _ = place.ask.raw("POST", f"{path}?messageTTL={number}")
        stage.see(f"messageTTL {number!r}", status)
        stage.see("kept", place.told("GET", path))
        stage.see("applied", place.told("GET", f"{path}?applied=true"))
    for _ in range(2):
        stage.see("removed", place.told("DELETE", path))


@scenario("quotas-beside-retention")
def quotas_beside_retention(stage: Stage) -> None:
    """A topic keeps at least what may pile up, whichever of the two is set first, and where."""
    place = Place(stage)
    retention = f"{place.path}/retention"
    for base in (place.path, place.namespace):
        _set_quotas(place, base, _quota(2**21, 120))
        for value in RETENTIONS:
            stage.see(f"retention {value}", place.told("POST", retention, value))
        place.set(retention, None)
        _set_quotas(place, base, None)
    _set_quotas(place, place.namespace, _quota(-1, -1))
    quota = f"{place.path}/backlogQuota"
    limits = ((2**21, 1), (2**21 - 1, 1), (2**22, 1), (1, 120), (1, 119), (1, 240), (-1, -1))
    for base, size in ((place.namespace, 2), (place.path, 4)):
        value = _retention(size, size)
        place.set(f"{base}/retention", value)
        _until(lambda base=base, value=value: place.ask("GET", f"{base}/retention")[1] == value)
        for limit in limits:
            stage.see(f"quota {limit}", place.told("POST", quota, _quota(*limit)))


def _set_quotas(place: Place, base: str, value: Any) -> None:
    """Of both kinds: without one that of the broker counts, which is another here. Real Pulsar
    reads the policies of a topic a little later."""
    for kind in (AGE, ""):
        place.set(f"{base}/backlogQuota{kind}", value)
    count = 0 if value is None else 2
    _until(lambda: len(place.ask("GET", f"{base}/backlogQuotaMap")[1] or ()) == count)


def _set_quota(place: Place, kind: str, value: dict[str, Any]) -> None:
    """Of the topic. In force when this returns: real Pulsar reads the policies of a topic a little
    after it has taken them."""
    place.set(f"{place.path}/backlogQuota{kind}", value)
    name = "message_age" if kind == AGE else "destination_storage"

    def is_in_force() -> bool:
        shown = (place.ask("GET", f"{place.path}/backlogQuotaMap")[1] or {}).get(name, {})
        return all(shown.get(field) == value[field] for field in value)

    _until(is_in_force)


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < end, "a policy is not in force"
        time.sleep(0.02)


def _shown(place: Place) -> dict[str, Any]:
    shown: dict[str, Any] = place.ask("GET", f"{place.path}/stats")[1]
    return shown


def _wait(place: Place, what: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Let backlogs be checked, until it holds."""
    end = time.monotonic() + WAIT_SECONDS
    while True:
        place.ask.raw("GET", "/admin/v2/brokers/backlog-quota-check")
        shown = _shown(place)
        if holds(shown):
            return shown
        assert time.monotonic() < end, (what, shown)
        time.sleep(0.1)


def _refused(stage: Stage, place: Place, what: str) -> None:
    stage.see_error(what, lambda: stage.new_client().create_producer(place.topic).close())


@scenario("backlog-quota-of-size")
def backlog_quota_of_size(stage: Stage) -> None:
    """Producers leave at the limit, and return when there is room."""
    place = Place(stage)
    stage.client.subscribe(place.topic, "s").close()
    for policy in ("producer_exception", "producer_request_hold"):
        _set_quota(place, "", _quota(LIMIT_BYTES, policy=policy))
        producer = stage.new_client().create_producer(place.topic)
        for _ in range(10):  # The last one exceeds the limit.
            producer.send(PAYLOAD)
        shown = _wait(place, "they leave", lambda shown: not shown["publishers"])
        stage.see("limit", shown["backlogQuotaLimitSize"])
        stage.see("exceeded", LIMIT_BYTES <= shown["backlogSize"] < LIMIT_BYTES * 1.1)
        _refused(stage, place, policy)
        _set_quota(place, "", _quota(LIMIT_BYTES * 2, policy=policy))
        _until(lambda: _shown(place)["backlogQuotaLimitSize"] == LIMIT_BYTES * 2)
        _refused(stage, place, "with a higher limit")
        _set_quota(place, "", _quota(LIMIT_BYTES, policy=policy))
        status, _ = place.ask.raw("POST", f"{place.path}/subscription/s/skip_all")
        assert status == 204
        _refused(stage, place, "with room")


@scenario("backlog-quota-with-eviction")
def backlog_quota_with_eviction(stage: Stage) -> None:
    """The newest messages are kept."""
    place = Place(stage)
    stage.client.subscribe(place.topic, "s").close()
    quota = _quota(LIMIT_BYTES, policy="consumer_backlog_eviction")
    _set_quota(place, "", quota)
    producer = stage.client.create_producer(place.topic)
    for number in range(20):
        producer.send(b"%02d" % number + PAYLOAD)
    _wait(place, "it is evicted", lambda shown: shown["backlogSize"] < LIMIT_BYTES)
    _refused(stage, place, "producers stay welcome")
    consumer = stage.client.subscribe(place.topic, "s")
    newest = consumer.receive(10_000)
    kept = 1
    while newest.data()[:2] != b"19":
        newest = consumer.receive(10_000)
        kept += 1
    stage.see("some are kept", 5 < kept < 10)


@scenario("backlog-quota-of-age")
def backlog_quota_of_age(stage: Stage) -> None:
    """The age of a ledger counts from when it was closed."""
    place = Place(stage)
    consumer = stage.client.subscribe(place.topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    producer = stage.client.create_producer(place.topic)
    producer.send(b"old")
    producer.close()
    consumer.close()
    _set_quota(place, AGE, _quota(0, 1))
    _refused(stage, place, "in the newest ledger")
    status, _ = place.ask.raw("PUT", f"{place.path}/unload")
    assert status == 204
    _shown(place)  # It is closed when the topic is loaded again.
    time.sleep(1.5)
    _refused(stage, place, "in a closed ledger")
    shown = _wait(place, "its age", lambda shown: shown["oldestBacklogMessageAgeSeconds"] > 0)
    stage.see("limit", shown["backlogQuotaLimitTime"])
    stage.see("whose it is", shown["oldestBacklogMessageSubscriptionName"])
    _set_quota(place, AGE, _quota(0, 1, "producer_request_hold"))
    _refused(stage, place, "in a closed ledger")
    _set_quota(place, AGE, _quota(0, 1, "consumer_backlog_eviction"))
    producer = stage.client.create_producer(place.topic)
    producer.send(b"new")
    _wait(place, "it is evicted", lambda shown: shown["subscriptions"]["s"]["msgBacklog"] == 1)
    _set_quota(place, AGE, _quota(0, 1))
    _refused(stage, place, "in the newest ledger")
    consumer = stage.client.subscribe(place.topic, "s")
    stage.see_message("left", consumer.receive(10_000))


@scenario("openmessaging-benchmark")
def openmessaging_benchmark(stage: Stage) -> None:
    """The calls of the Pulsar driver of the OpenMessaging benchmark, in its order."""
    place = Place(stage)
    ask, told = place.ask, place.told
    tenant = f"omb{stage.mark}"
    clusters = ask("GET", "/admin/v2/clusters")[1]
    stage.see("tenant is new", tenant not in ask("GET", "/admin/v2/tenants")[1])
    info = {"adminRoles": [], "allowedClusters": clusters}
    stage.see("create tenant", told("PUT", f"/admin/v2/tenants/{tenant}", info))
    stage.see("by another worker", told("PUT", f"/admin/v2/tenants/{tenant}", info))
    namespace = f"/admin/v2/namespaces/{tenant}/ns-a1B2c3D"
    stage.see("create namespace", told("PUT", namespace))
    copies = {
        "bookkeeperEnsemble": 1,
        "bookkeeperWriteQuorum": 1,
        "bookkeeperAckQuorum": 1,
        "managedLedgerMaxMarkDeleteRate": 1.0,
    }
    stage.see("persistence", told("POST", f"{namespace}/persistence", copies))
    unlimited = {"limit": -1, "limitSize": -1, "limitTime": -1, "policy": "producer_exception"}
    path = f"{namespace}/backlogQuota?backlogQuotaType=destination_storage"
    stage.see("quota", told("POST", path, unlimited))
    stage.see("deduplication", told("POST", f"{namespace}/deduplication", False))
    for policy in ("persistence", "backlogQuotaMap", "deduplication"):
        stage.see(policy, told("GET", f"{namespace}/{policy}"))
    for partitions in (2, 1):
        topic = f"persistent://{tenant}/ns-a1B2c3D/test-topic-{partitions}"
        if partitions > 1:  # Otherwise the topic is created by its first client.
            created = f"/admin/v2/{topic.replace('://', '/')}/partitions"
            stage.see("create topic", told("PUT", created, partitions))
        client = stage.new_client()
        stage.see("partitions", len(client.get_topic_partitions(topic)))
        consumers = [
            client.subscribe(part, "sub-000", consumer_type=pulsar.ConsumerType.Failover)
            for part in client.get_topic_partitions(topic)
        ]
        producer = client.create_producer(
            topic,
            batching_enabled=True,
            batching_max_publish_delay_ms=1,
            block_if_queue_full=True,
            message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
        )
        for number in range(200):
            producer.send_async(b"m%d" % number, lambda *_: None)
        producer.flush()
        # All messages may be of one partition: no turn may wait for the consumer of the other one.
        parts = [texts(part) for part in receive_together(consumers, 200)]
        for part in parts:
            assert part == sorted(part, key=lambda text: int(text[1:])), part
        stage.see("received", sorted(text for part in parts for text in part))
        client.close()
