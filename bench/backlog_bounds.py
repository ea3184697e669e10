"""How far a backlog grows over its quota while the stock client publishes as fast as it can.

One topic for each policy. The backlog is read from the server's statistics all the time, and once
more after the flood has ended.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pulsar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from compat_tests.oracle.server_process import ServerProcess

LIMIT_BYTES: Final = 20_000_000
PAYLOAD: Final = bytes(10_000)
PENDING: Final = 100
FLOOD_SECONDS: Final = 10.0
TOLERANCE: Final = 0.02
POLICIES: Final = ("producer_exception", "producer_request_hold", "consumer_backlog_eviction")
CHECKED_EVERY_SECOND: Final = {"backlogQuotaCheckIntervalInSeconds": "1"}
"""For a server that looks at backlogs now and then; each message tells Vela."""
SAID: Final = (
    f"A topic with a subscription that reads nothing, and a quota of {LIMIT_BYTES:,} bytes. A "
    f"producer sends {len(PAYLOAD):,} bytes a message, as fast as it can and {PENDING} at a time, "
    f"for {FLOOD_SECONDS:.0f} s. The largest backlog may be {TOLERANCE:.0%} over the quota. Pulsar "
    "looks at backlogs at times: every second here (`backlogQuotaCheckIntervalInSeconds=1`), every "
    "minute by default."
)


@dataclass(frozen=True)
class Bound:
    """The largest backlog that was seen."""

    server: str
    policy: str
    backlog_bytes_max: int

    @property
    def over(self) -> float:
        """As a share of the quota; negative: it was not reached."""
        return self.backlog_bytes_max / LIMIT_BYTES - 1

    @property
    def is_met(self) -> bool:
        """Whether the quota was reached and not passed by more than the tolerance."""
        return -TOLERANCE <= self.over <= TOLERANCE


def measure(
    server: ServerProcess, client_of: Callable[[ServerProcess], AbstractContextManager[Any]]
) -> list[Bound]:
    """All policies, one after the other."""
    return [_measure(server, client_of, policy) for policy in POLICIES]


def _measure(
    server: ServerProcess,
    client_of: Callable[[ServerProcess], AbstractContextManager[Any]],
    policy: str,
) -> Bound:
    def ask(method: str, path: str, body: Any = None) -> Any:
        status, answer = server.http(method, f"/admin/v2/{path}", body)
        if status >= 300:
            raise RuntimeError(f"{method} {path} answered {status} {answer!r}")
        return answer

    namespace = f"public/quota-{policy.replace('_', '-')}"
    ask("PUT", f"namespaces/{namespace}")
    quota = {"limitSize": LIMIT_BYTES, "policy": policy}
    ask("POST", f"namespaces/{namespace}/backlogQuota", quota)
    topic = f"persistent://{namespace}/t"
    largest = 0
    with ExitStack() as stack:
        client = stack.enter_context(client_of(server))
        client.subscribe(topic, "s").close()
        publishing = threading.Thread(target=_publish, args=(client, topic))
        publishing.start()
        while publishing.is_alive():
            largest = max(
                largest, int(ask("GET", f"persistent/{namespace}/t/stats")["backlogSize"])
            )
        publishing.join()
        largest = max(largest, int(ask("GET", f"persistent/{namespace}/t/stats")["backlogSize"]))
    return Bound(server.name, policy, largest)


def _publish(client: pulsar.Client, topic: str) -> None:
    """For the time of the flood, with pauses when the topic takes nothing."""
    end = time.monotonic() + FLOOD_SECONDS
    while time.monotonic() < end:
        try:
            producer = client.create_producer(
                topic,
                batching_enabled=False,
                max_pending_messages=PENDING,
                send_timeout_millis=1_000,
            )
        except pulsar.PulsarException:  # the quota is exceeded
            time.sleep(0.1)
            continue
        refused = threading.Event()

        def told(result: pulsar.Result, _: object, refused: threading.Event = refused) -> None:
            if result != pulsar.Result.Ok:
                refused.set()

        while time.monotonic() < end and not refused.is_set():
            try:
                producer.send_async(PAYLOAD, told)
            except pulsar.ProducerQueueIsFull:
                time.sleep(0.001)
        producer.close()


def table(bounds: Sequence[Bound]) -> str:
    """In Markdown."""
    lines = ["| policy | server | largest backlog, bytes | over | |", "|---|---|---:|---:|---|"]
    for policy in POLICIES:
        lines += [
            f"| {each.policy} | {each.server} | {each.backlog_bytes_max:,} | {each.over:+.2%} |"
            f" {'met' if each.is_met else '**missed**'} |"
            for each in bounds
            if each.policy == policy
        ]
    return "\n".join(lines)
