"""Bodies of admin requests as people and libraries write them: numbers as texts, fractions, forms.

What Pulsar refuses is compared by its status, since its texts are those of its JSON reader.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import pulsar

from compat_tests.clients.admin_requests import AdminRequests, topic_path
from compat_tests.clients.python.scenario import Stage, scenario, send_all

if TYPE_CHECKING:
    from collections.abc import Sequence

COUNTS: Final = ("3", " 3 ", 3.0, 3.7, "+3", "", " ", 0, -1)
NO_COUNTS: Final = ("x", "3.0", "1_0", "0x3", True, [3], {})
POLICIES: Final[dict[str, Sequence[Any]]] = {
    "retention": (
        {"retentionTimeInMinutes": "10", "retentionSizeInMB": "5"},
        {"retentionTimeInMinutes": 11.0, "retentionSizeInMB": 6.9},
        {"retentionTimeInMinutes": "", "retentionSizeInMB": ""},
    ),
    "messageTTL": ("10", 10.9, " 7 ", ""),
    "maxProducersPerTopic": ("10", 10.9, ""),
    "deduplicationSnapshotInterval": ("10", 10.2),
    "deduplication": ("true", 0, 1, "TRUE", ""),
    "delayedDelivery": ({"active": "true", "tickTime": "100"}, {"active": 1, "tickTime": 100.5}),
}
ROLES: Final = ([], ["a"], ["a", "a"], [1], [" a"], None)


@scenario("bodies-numbers")
def numbers(stage: Stage) -> None:
    """Texts of digits and fractions are whole numbers; what is none is refused."""
    ask = AdminRequests(stage.server.web_url)
    base = topic_path(stage.topic())
    for number, count in enumerate(COUNTS):
        path = f"{base}-{number}/partitions"
        stage.see(f"{count!r} partitions", ask("PUT", path, count))
        stage.see("made", ask.raw("GET", path)[0])
    for count in NO_COUNTS:
        stage.see(f"{count!r} partitions", ask.raw("PUT", f"{base}-no/partitions", count)[0])
    stage.see("more partitions", ask("POST", f"{base}-0/partitions", "4"))
    stage.see("now", ask("GET", f"{base}-0/partitions"))
    namespace = f"/admin/v2/namespaces/public/{stage.scenario_name}{stage.mark}"
    stage.see("namespace", ask("PUT", namespace))
    for policy, values in POLICIES.items():
        for value in values:
            stage.see(f"{policy} {value!r}", ask.raw("POST", f"{namespace}/{policy}", value)[0])
            stage.see("is", ask("GET", f"{namespace}/{policy}"))
        stage.see(f"{policy} 'x'", ask.raw("POST", f"{namespace}/{policy}", "x")[0])


@scenario("bodies-tenants")
def tenants(stage: Stage) -> None:
    """A tenant shows the roles that were given, each once, and no other field."""
    ask = AdminRequests(stage.server.web_url)
    for number, roles in enumerate(ROLES):
        path = f"/admin/v2/tenants/{stage.scenario_name}{stage.mark}-{number}"
        body = {"allowedClusters": ["standalone"], "adminRoles": roles, "unknown": 1}
        stage.see(f"roles {roles!r}", ask("PUT", path, body))
        if ask.raw("GET", path)[0] == 200:
            stage.see("is", ask("GET", path))
    path = f"/admin/v2/tenants/{stage.scenario_name}{stage.mark}-none"
    stage.see("no roles", ask("PUT", path, {"allowedClusters": ["standalone"]}))
    stage.see("is", ask("GET", path))
    stage.see("no clusters", ask("PUT", path, {"adminRoles": ["a"]}))


@scenario("bodies-of-forms")
def forms(stage: Stage) -> None:
    """A form is refused where a body is read."""
    base = topic_path(stage.topic())
    for kind in ("application/x-www-form-urlencoded", "multipart/form-data"):
        ask = AdminRequests(stage.server.web_url, content_type=kind)
        stage.see(f"{kind}: PUT", ask.raw("PUT", f"{base}/partitions", 3)[0])
        stage.see("POST", ask.raw("POST", f"{base}/partitions", 3)[0])
        stage.see("DELETE", ask.raw("DELETE", base, 3)[0])


@scenario("reset-to-a-message")
def reset(stage: Stage) -> None:
    """To the message, or after it. Indexes within a batch matter only where the broker knows parts
    of batches, so they are not looked at but for those beyond its end."""
    topic = stage.topic()
    ask = AdminRequests(stage.server.web_url)
    plain = stage.client.create_producer(topic, batching_enabled=False)
    first = plain.send(b"first")
    batched = stage.client.create_producer(
        topic, batching_max_messages=10, batching_max_publish_delay_ms=5000
    )
    send_all(batched, [str(number) for number in range(10)])
    last = plain.send(b"last")
    reader = stage.client.create_reader(topic, first)
    batch = reader.read_next(10_000).message_id()
    reader.close()
    found = {"first": first, "batch": batch, "last": last}
    for name, more in (
        ("first", {}),
        ("first", {"excluded": True}),
        ("first", {"excluded": "true"}),
        ("first", {"batchIndex": -1, "excluded": False}),
        ("first", {"batchIndex": 3}),
        ("batch", {}),
        ("batch", {"excluded": True}),
        ("batch", {"batchIndex": 9, "excluded": True}),
        ("batch", {"batchIndex": 19}),
        ("last", {}),
        ("last", {"excluded": True}),
    ):
        body = {"ledgerId": found[name].ledger_id(), "entryId": found[name].entry_id(), **more}
        path = f"{topic_path(topic)}/subscription/s"
        ask.raw("PUT", path, {"ledgerId": -1, "entryId": -1})
        stage.see(f"reset to {name} {more}", ask("POST", f"{path}/resetcursor", body))
        stage.see("then", _first_of(stage, topic))
        stage.see("gone", ask("DELETE", path))
    path = f"{topic_path(topic)}/subscription/absent/position"
    stage.see("peek by an absent subscription", [ask.raw("GET", f"{path}/{n}")[1] for n in (1, 3)])


def _first_of(stage: Stage, topic: str) -> str | None:
    consumer = stage.client.subscribe(topic, "s")
    try:
        return str(consumer.receive(2000).data().decode())
    except pulsar.Timeout:
        return None
    finally:
        consumer.close()


@scenario("replicated-subscriptions")
def replicated(stage: Stage) -> None:
    """Whether a subscription is to be replicated is shown; for those of clients also after an
    unload. Pulsar then forgets it for one that an administrator made, and Vela does not."""
    topic = stage.topic()
    path = topic_path(topic)
    ask = AdminRequests(stage.server.web_url)
    for state in (True, False):
        stage.client.subscribe(topic, f"client-{state}", replicate_subscription_state_enabled=state)
        there = f"{path}/subscription/admin-{state}?replicated={str(state).lower()}"
        stage.see(f"made {state}", ask("PUT", there, {"ledgerId": -1, "entryId": -1}))
    stage.see("shown", _shown(ask, path))
    stage.see("unload", ask("PUT", f"{path}/unload"))
    deadline = time.monotonic() + 20
    while ask.raw("GET", f"{path}/stats")[0] != 200 and time.monotonic() < deadline:
        time.sleep(0.1)
    again = _shown(ask, path)
    stage.see("shown again", [row for row in again if row[0].startswith("client")])


def _shown(ask: AdminRequests, path: str) -> list[Any]:
    status, stats = ask("GET", f"{path}/stats")
    assert status == 200, stats
    return sorted((name, row["isReplicated"]) for name, row in stats["subscriptions"].items())
