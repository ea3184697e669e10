"""What servers do at their own time: for those that look each minute, and at topics each second.

Played by `test_expiry.py` alone, on servers of its own.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import pulsar

from compat_tests.clients.python.limits import Place
from compat_tests.clients.python.policies_in_use import until
from compat_tests.clients.python.scenario import Stage, receive_many, send_all

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT_SECONDS: Final = 240.0
LOOK_SECONDS: Final = 0.5


def expiry(stage: Stage) -> None:
    """Messages, a subscription that is not used, and topics that nobody uses any more."""
    place = Place(stage)
    place.set(f"{place.namespace}/messageTTL", 3_600)
    place.set(f"{place.namespace}/subscriptionExpirationTime", 1)
    used = stage.client.subscribe(place.topic, "used", receiver_queue_size=1)
    stage.client.subscribe(place.topic, "unused").close()
    reader = stage.client.create_reader(place.topic, pulsar.MessageId.earliest)
    producer = stage.client.create_producer(place.topic)
    send_all(producer, [f"old {number}" for number in range(10)])
    status, told = place.ask.raw("POST", f"{place.path}/messageTTL?messageTTL=5")
    assert status == 204, told
    _leave_topics(stage, place)
    until(stage, "without the inactive", ["backlog", "kept", "t"], lambda: _topics(place))

    def subscriptions() -> dict[str, Any]:
        shown: dict[str, Any] = place.ask("GET", f"{place.path}/stats")[1]["subscriptions"]
        return shown

    def durable() -> list[dict[str, Any]]:
        return [each for each in subscriptions().values() if each["isDurable"]]

    def has_expired() -> bool:
        """In all of them: real Pulsar expires one after the other, and counts it afterwards."""
        return all(not each["msgBacklog"] and each["totalMsgExpired"] for each in durable())

    _wait("not everything expires", has_expired)
    shown = subscriptions()
    for field in ("msgBacklog", "totalMsgExpired"):
        stage.see(field, sorted(each[field] for each in durable()))
    stage.see("when", shown["used"]["lastExpireTimestamp"] > 0)
    _wait("no subscription expires", lambda: "unused" not in subscriptions())
    of_reader = next(each for each in subscriptions().values() if not each["isDurable"])
    stage.see("of the reader", [of_reader["msgBacklog"], of_reader["totalMsgExpired"]])
    reader.close()
    producer.send(b"new")
    received = receive_many(used, 1)[0]
    if received.data() != b"new":  # It was with the client when it expired.
        received = receive_many(used, 1)[0]
    stage.see_message("received", received)
    # That with the backlog goes when its subscription expires, now or with the next look.
    stage.see("topics", [name for name in _topics(place) if name != "backlog"])


def _leave_topics(stage: Stage, place: Place) -> None:
    """Some have policies by which they stay."""
    for name in ("unsubscribed", "caught-up", "backlog", "kept"):
        topic = place.topic.removesuffix("/t") + f"/{name}"
        producer = stage.client.create_producer(topic)
        if name != "unsubscribed":
            stage.client.subscribe(topic, "s").close()
        if name == "backlog":
            producer.send(b"x")
        unused = name == "unsubscribed"
        place.set(
            place.path.removesuffix("/t") + f"/{name}/inactiveTopicPolicies",
            {
                "inactiveTopicDeleteMode": "delete_when_no_subscriptions"
                if unused
                else "delete_when_subscriptions_caught_up",
                "maxInactiveDurationSeconds": 1,
                "deleteWhileInactive": name != "kept",
            },
        )
        producer.close()


def _topics(place: Place) -> list[str]:
    namespace = place.namespace.removeprefix("/admin/v2/namespaces/")
    there = place.ask("GET", f"/admin/v2/persistent/{namespace}")[1]
    names = [topic.rpartition("/")[2] for topic in there]
    return sorted(name for name in names if not name.startswith("__"))


def _wait(otherwise: str, holds: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < end, otherwise
        time.sleep(LOOK_SECONDS)
